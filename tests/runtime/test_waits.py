"""The rules of what waits: who ends it and until when, and what nobody would ever end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from harborage.identity import Identity
from harborage.planner import PauseReason
from harborage.runtime.pauses import Pause, PauseDecision, PauseState
from harborage.runtime.waits import (
    GRACE,
    Party,
    Wait,
    WaitKind,
    circles,
    of_group,
    of_pause,
    of_run,
    of_session,
    of_task,
)
from harborage.sessions import Session, SessionPolicy
from harborage.state.runs import RunRecord, Stand, Standing
from harborage.tasks import GroupStatus, Task, TaskGroup, TaskKind, TaskStatus

ME = Identity("t", "u", "s")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
LONG_AGO = NOW - timedelta(days=1)

RECORD = RunRecord(run_id="r", who=ME.with_run("r"), goal="go", agent="a.py", created_at=LONG_AGO, updated_at=LONG_AGO)
PAUSE = Pause(
    token="p",
    reason=PauseReason.AWAIT_INPUT,
    state=PauseState.PAUSED,
    identity=ME.with_run("r"),
    paused_at=LONG_AGO,
    deadline=LATER,
)
TASK = Task(
    id="r",
    identity=ME.with_run(""),
    kind=TaskKind.BACKGROUND,
    status=TaskStatus.RUNNING,
    query="go",
    created_at=int(LONG_AGO.timestamp() * 1e9),
)
GROUP = TaskGroup(id="g", session=ME, owner_task_id="r", created_at=LONG_AGO)


def run(*, owner: str = "", stands: dict[str, Stand] | None = None, pauses: tuple[Pause, ...] = (), **standing) -> Wait:
    """What a run waits for that stands like this."""
    record = replace(RECORD, owner=owner, standing=Standing(**standing))
    wait = of_run(record, stands=stands or {}, pauses=pauses, now=NOW)
    assert wait is not None
    return wait


def test_runs_that_wait_for_themselves_are_orphans() -> None:
    """Each run of a circle; not one that only leads to it, nor one whose chain a worker or the clock ends."""
    awaits = {"a": "b", "b": "c", "c": "a", "leads": "a", "self": "self", "x": "y", "y": "", "w": "v", "v": "w"}
    records = [
        replace(
            RECORD,
            run_id=one,
            owner="worker" if one == "v" else "",
            standing=Standing(stand=Stand.PARKED, waits_for=on),
        )
        for one, on in awaits.items()
    ]
    found = circles(records)
    assert found == {"a", "b", "c", "self"}
    stands = dict.fromkeys(awaits, Stand.PARKED)
    waits = [of_run(one, stands=stands, pauses=(), now=NOW, circular=found) for one in records]
    orphans = {wait.id for wait in waits if wait is not None and "waits for itself" in wait.orphan}
    assert orphans == found


@pytest.mark.parametrize("stand", [Stand.FINISHED, Stand.FAILED])
def test_an_ended_run_waits_for_nothing(stand: Stand) -> None:
    """It is in no list of what waits."""
    assert of_run(replace(RECORD, standing=Standing(stand=stand)), stands={}, pauses=(), now=NOW) is None


def test_a_run_that_is_carried_waits_for_its_worker() -> None:
    """However it stands: its worker knows better."""
    wait = run(owner="w", stand=Stand.PARKED)
    assert (wait.on, wait.name, wait.orphan) == (Party.WORKER, "w", "")


def test_a_ready_run_waits_for_a_worker_of_its_agent() -> None:
    """Nobody carries it yet, and the next worker will."""
    wait = run(stand=Stand.READY)
    assert (wait.on, wait.name, wait.orphan) == (Party.WORKER, "a.py", "")


def test_a_blocked_run_waits_for_other_code() -> None:
    """It says what its code did not fit."""
    wait = run(stand=Stand.BLOCKED, reason="step 3 is another")
    assert (wait.on, wait.detail, wait.orphan) == (Party.CODE, "step 3 is another", "")


def test_a_run_that_is_paused_waits_for_a_person() -> None:
    """Of several pauses the one with the next deadline is named."""
    sooner = replace(PAUSE, token="q", deadline=NOW + timedelta(minutes=1))
    never = replace(PAUSE, token="n", deadline=None)
    wait = run(stand=Stand.PARKED, wake_at=LATER, pauses=(PAUSE, never, sooner))
    assert (wait.on, wait.name, wait.until) == (Party.PERSON, "q", LATER)


def test_a_run_that_awaits_another_waits_for_its_end() -> None:
    """It names the other one."""
    wait = run(stand=Stand.PARKED, wake_at=LATER, waits_for="c", stands={"c": Stand.READY})
    assert (wait.on, wait.name, wait.orphan) == (Party.RUN, "c", "")


@pytest.mark.parametrize("stands", [{}, {"c": Stand.FINISHED}, {"c": Stand.FAILED}])
def test_a_run_that_awaits_what_has_ended_is_an_orphan(stands: dict[str, Stand]) -> None:
    """Nothing would wake it but its time."""
    assert run(stand=Stand.PARKED, wake_at=LATER, waits_for="c", stands=stands).is_orphan


def test_a_run_that_only_waits_for_a_time_waits_for_the_clock() -> None:
    """The time is in the list."""
    wait = run(stand=Stand.PARKED, wake_at=LATER)
    assert (wait.on, wait.until, wait.is_overdue, wait.orphan) == (Party.CLOCK, LATER, False, "")


def test_a_run_whose_time_has_come_is_overdue_and_no_orphan() -> None:
    """The next worker looks at it, whatever it waited for."""
    wait = run(stand=Stand.PARKED, wake_at=NOW, waits_for="gone")
    assert (wait.on, wait.is_overdue, wait.orphan) == (Party.WORKER, True, "")


def test_a_parked_run_without_a_time_or_a_reason_is_an_orphan() -> None:
    """Nobody would ever look at it again."""
    wait = run(stand=Stand.PARKED)
    assert (wait.on, wait.is_orphan) == (Party.NOBODY, True)


def test_an_open_pause_waits_for_a_person_until_its_deadline() -> None:
    """And says what happens then."""
    wait = of_pause(PAUSE, stands={"r": Stand.PARKED}, now=NOW)
    assert (wait.kind, wait.on, wait.name) == (WaitKind.PAUSE, Party.PERSON, "p")
    assert (wait.until, wait.then, wait.is_overdue) == (LATER, str(PauseDecision.TIMEOUT), False)


def test_an_approval_says_for_which_tool() -> None:
    """Approvals are pauses of a kind of their own."""
    asked = replace(PAUSE, reason=PauseReason.APPROVAL_REQUIRED, payload={"tool": "pay"})
    wait = of_pause(asked, stands={"r": Stand.PARKED}, now=LATER)
    assert (wait.kind, wait.detail, wait.is_overdue) == (WaitKind.APPROVAL, "approval_required: pay", True)


@pytest.mark.parametrize(
    ("stands", "deadline", "is_orphan"),
    [
        ({"r": Stand.FINISHED}, LATER, True),
        ({"r": Stand.PARKED}, None, False),
        ({}, LATER, False),
        ({}, None, True),
    ],
)
def test_a_pause_is_an_orphan_when_nothing_comes_of_it(
    stands: dict[str, Stand], deadline: datetime | None, is_orphan: bool
) -> None:
    """Its run is over, or is not kept and no deadline ends it."""
    assert of_pause(replace(PAUSE, deadline=deadline), stands=stands, now=NOW).is_orphan is is_orphan


def test_a_pause_of_no_run_is_no_orphan() -> None:
    """Whoever asked for it waits elsewhere."""
    assert not of_pause(replace(PAUSE, identity=ME.with_run(""), deadline=None), stands={}, now=NOW).is_orphan


@pytest.mark.parametrize("status", [one for one in TaskStatus if one.is_terminal])
def test_an_ended_task_waits_for_nothing(status: TaskStatus) -> None:
    """It is in no list of what waits."""
    assert of_task(replace(TASK, status=status), stands={}, now=NOW) is None


def test_a_foreground_task_is_spoken_for_by_its_run() -> None:
    """Only background work is listed beside its run."""
    stands = {"r": Stand.READY}
    assert of_task(replace(TASK, kind=TaskKind.FOREGROUND), stands=stands, now=NOW) is None
    wait = of_task(TASK, stands=stands, now=NOW)
    assert wait is not None
    assert (wait.on, wait.name, wait.orphan) == (Party.RUN, "r", "")


@pytest.mark.parametrize(
    ("stands", "age", "parent", "on"),
    [
        ({"r": Stand.FAILED}, timedelta(days=1), None, Party.NOBODY),
        ({}, timedelta(days=1), None, Party.NOBODY),
        ({}, GRACE / 2, None, Party.WORKER),
        ({"p": Stand.READY}, timedelta(days=1), "p", Party.RUN),
        ({"p": Stand.FINISHED}, timedelta(days=1), "p", Party.NOBODY),
    ],
)
def test_a_task_without_a_run_that_goes_on(
    stands: dict[str, Stand], age: timedelta, parent: str | None, on: Party
) -> None:
    """It is an orphan, unless it was only just made, or a parent that goes on will begin it."""
    task = replace(TASK, parent_task_id=parent, created_at=int((NOW - age).timestamp() * 1e9))
    wait = of_task(task, stands=stands, now=NOW)
    assert wait is not None
    assert wait.on is on
    assert wait.is_orphan is (on is Party.NOBODY)


@pytest.mark.parametrize(
    ("group", "stands", "living", "on"),
    [
        (GROUP, {"r": Stand.READY}, (), Party.RUN),
        (GROUP, {"r": Stand.FINISHED}, (), Party.NOBODY),
        (GROUP, {}, (), Party.NOBODY),
        (replace(GROUP, created_at=NOW), {}, (), Party.RUN),
        (replace(GROUP, owner_task_id=""), {}, (), Party.PERSON),
        (replace(GROUP, status=GroupStatus.SEALED, members=("m",)), {}, ("m",), Party.RUN),
        (replace(GROUP, status=GroupStatus.SEALED, members=("m",)), {}, (), Party.NOBODY),
    ],
)
def test_a_group_waits_for_its_owner_and_then_for_its_members(
    group: TaskGroup, stands: dict[str, Stand], living: tuple[str, ...], on: Party
) -> None:
    """It is an orphan when neither comes any more."""
    wait = of_group(group, stands=stands, living=frozenset(living), now=NOW)
    assert wait is not None
    assert wait.on is on
    assert wait.is_orphan is (on is Party.NOBODY)


@pytest.mark.parametrize("status", [one for one in GroupStatus if one.is_terminal])
def test_an_ended_group_waits_for_nothing(status: GroupStatus) -> None:
    """It is in no list of what waits."""
    assert of_group(replace(GROUP, status=status), stands={}, living=frozenset(), now=NOW) is None


def test_a_session_waits_to_be_left_alone_or_to_grow_old() -> None:
    """Whichever comes first; a closed one waits for nothing."""
    policy = SessionPolicy(idle_ttl=timedelta(hours=2), hard_cap=timedelta(hours=26))
    session = Session(id="s", identity=ME, opened_at=LONG_AGO, last_seen=NOW)
    wait = of_session(session, policy, now=NOW)
    assert wait is not None
    assert (wait.on, wait.until) == (Party.CLOCK, NOW + timedelta(hours=2))
    late = of_session(session, policy, now=NOW + timedelta(hours=3))
    assert late is not None
    assert late.is_overdue
    assert not late.is_orphan
    assert of_session(replace(session, closed=True), policy, now=NOW) is None
