"""The rules of pending items: who ends each, until when, and which are orphans."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from harborage.identity import Identity
from harborage.planner import PauseReason
from harborage.runtime.durable.pending import (
    Party,
    PendingItem,
    PendingKind,
    pending_group,
    pending_pause,
    pending_run,
    pending_session,
    pending_task,
)
from harborage.runtime.pauses import Pause, PauseDecision, PauseState
from harborage.sessions import Session, SessionPolicy
from harborage.store import GroupRow, GroupStatus, RunRow, Status
from harborage.store.times import micros
from tests.kit.tables import each_row

ME = Identity("t", "u", "s")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
LONG_AGO = NOW - timedelta(days=1)

ROW = RunRow(
    number=1,
    run_id="r",
    who=ME,
    about="go",
    agent="a.py",
    status=Status.RUNNING,
    created_at=micros(LONG_AGO),
    updated_at=micros(LONG_AGO),
)
PAUSE = Pause(
    token="p",
    reason=PauseReason.AWAIT_INPUT,
    state=PauseState.PAUSED,
    identity=ME.with_run("r"),
    paused_at=LONG_AGO,
    deadline=LATER,
)
TASK = replace(ROW, run_id="task", position=0)
GROUP = GroupRow(number=1, group_id="g", who=ME, owner="r", created_at=micros(LONG_AGO))


def run(
    *, wake_at: datetime | None = None, statuses: dict[str, Status] | None = None, pauses: tuple[Pause, ...] = (), **row
) -> PendingItem:
    """What a run waits for whose row says this."""
    mine = replace(ROW, wake_at=micros(wake_at), **row)
    wait = pending_run(mine, statuses=statuses or {}, pauses=pauses, now=NOW)
    assert wait is not None
    return wait


@each_row("status", [Status.COMPLETE, Status.FAILED, Status.CANCELLED])
def test_an_ended_run_waits_for_nothing(status: Status) -> None:
    """It is in no list of what waits."""
    assert pending_run(replace(ROW, status=status), statuses={}, pauses=(), now=NOW) is None


def test_a_run_that_is_carried_waits_for_its_worker() -> None:
    """However it statuses: its worker knows better."""
    wait = run(owner="w")
    assert (wait.on, wait.name, wait.orphan) == (Party.WORKER, "w", "")


def test_a_ready_run_waits_for_a_worker_of_its_agent() -> None:
    """No worker executes it yet, and the next worker will."""
    wait = run(is_woken=True)
    assert (wait.on, wait.name, wait.orphan) == (Party.WORKER, "a.py", "")


def test_a_blocked_run_waits_for_other_code() -> None:
    """It says what its code did not fit."""
    wait = run(blocked="step 3 is another")
    assert (wait.on, wait.detail, wait.orphan) == (Party.CODE, "step 3 is another", "")


def test_a_run_that_is_paused_waits_for_a_person() -> None:
    """Of several pauses the one with the next deadline is named."""
    sooner = replace(PAUSE, token="q", deadline=NOW + timedelta(minutes=1))
    never = replace(PAUSE, token="n", deadline=None)
    wait = run(wake_at=LATER, pauses=(PAUSE, never, sooner))
    assert (wait.on, wait.name, wait.until) == (Party.PERSON, "q", LATER)


def test_a_run_that_awaits_another_waits_for_its_end() -> None:
    """It names the other one."""
    wait = run(wake_at=LATER, awaits="c", statuses={"c": Status.PENDING})
    assert (wait.on, wait.name, wait.orphan) == (Party.RUN, "c", "")


@each_row("statuses", [{}, {"c": Status.COMPLETE}, {"c": Status.FAILED}])
def test_a_run_that_awaits_what_has_ended_is_an_orphan(statuses: dict[str, Status]) -> None:
    """Nothing would wake it but its time."""
    assert run(wake_at=LATER, awaits="c", statuses=statuses).is_orphan


def test_a_run_that_only_waits_for_a_time_waits_for_the_clock() -> None:
    """The time is in the list."""
    wait = run(wake_at=LATER)
    assert (wait.on, wait.until, wait.is_overdue, wait.orphan) == (Party.CLOCK, LATER, False, "")


def test_a_run_whose_time_has_come_is_overdue_and_no_orphan() -> None:
    """The next worker looks at it, whatever it waited for."""
    wait = run(wake_at=NOW, awaits="gone")
    assert (wait.on, wait.is_overdue, wait.orphan) == (Party.WORKER, True, "")


def test_a_parked_run_without_a_time_or_a_reason_is_an_orphan() -> None:
    """No worker, timer or person would end it."""
    wait = run()
    assert (wait.on, wait.is_orphan) == (Party.NONE, True)


def test_an_open_pause_waits_for_a_person_until_its_deadline() -> None:
    """And says what happens then."""
    wait = pending_pause(PAUSE, statuses={"r": Status.RUNNING}, now=NOW)
    assert (wait.kind, wait.on, wait.name) == (PendingKind.PAUSE, Party.PERSON, "p")
    assert (wait.until, wait.then, wait.is_overdue) == (LATER, str(PauseDecision.TIMEOUT), False)


def test_a_pause_whose_answer_was_sent_waits_for_a_worker() -> None:
    """So does its run: no person needs to answer again."""
    answered = replace(PAUSE, answering="sent")
    wait = pending_pause(answered, statuses={"r": Status.RUNNING}, now=NOW)
    assert (wait.on, wait.name, wait.then) == (Party.WORKER, "", "it applies the answer that was sent")
    assert wait.until is None, "its deadline is for an answer that was not sent"
    assert run(pauses=(answered,)).on is Party.WORKER


def test_an_approval_says_for_which_tool() -> None:
    """Approvals are pauses of a kind of their own."""
    asked = replace(PAUSE, reason=PauseReason.APPROVAL_REQUIRED, payload={"tool": "pay"})
    wait = pending_pause(asked, statuses={"r": Status.RUNNING}, now=LATER)
    assert (wait.kind, wait.detail, wait.is_overdue) == (PendingKind.APPROVAL, "approval_required: pay", True)


@each_row(
    "statuses, deadline, is_orphan",
    [
        ({"r": Status.COMPLETE}, LATER, True),
        ({"r": Status.RUNNING}, None, False),
        ({}, LATER, False),
        ({}, None, True),
    ],
)
def test_a_pause_is_an_orphan_when_nothing_comes_of_it(
    statuses: dict[str, Status], deadline: datetime | None, is_orphan: bool
) -> None:
    """Its run is over, or is not kept and no deadline ends it."""
    assert pending_pause(replace(PAUSE, deadline=deadline), statuses=statuses, now=NOW).is_orphan is is_orphan


def test_a_pause_of_no_run_is_no_orphan() -> None:
    """The run that requested it waits elsewhere."""
    assert not pending_pause(replace(PAUSE, identity=ME.with_run(""), deadline=None), statuses={}, now=NOW).is_orphan


@each_row("status", [one for one in Status if one.is_final])
def test_an_ended_task_waits_for_nothing(status: Status) -> None:
    """It is in no list of what waits."""
    assert pending_task(replace(TASK, status=status), statuses={}) is None


@each_row(
    "parent, is_cascading, on",
    [
        (None, True, Party.PERSON),
        (Status.RUNNING, True, Party.PERSON),
        (Status.COMPLETE, True, Party.NONE),
        (Status.COMPLETE, False, Party.PERSON),
    ],
)
def test_a_task_without_a_run_waits_for_the_program_that_spawned_it(
    parent: Status | None, is_cascading: bool, on: Party
) -> None:
    """It is an orphan when it was to go with a run that has ended."""
    statuses = {} if parent is None else {"p": parent}
    wait = pending_task(replace(TASK, parent="p", is_cascading=is_cascading), statuses=statuses)
    assert wait is not None
    assert wait.on is on
    assert wait.is_orphan is (on is Party.NONE)


@each_row(
    "group, statuses, living, on",
    [
        (GROUP, {"r": Status.PENDING}, "", Party.RUN),
        (GROUP, {"r": Status.COMPLETE}, "", Party.NONE),
        (GROUP, {}, "", Party.NONE),
        (replace(GROUP, created_at=micros(NOW)), {}, "", Party.RUN),
        (replace(GROUP, owner=""), {}, "", Party.PERSON),
        (replace(GROUP, status=GroupStatus.SEALED, members=1, open_members=1), {}, "m", Party.RUN),
        (replace(GROUP, status=GroupStatus.SEALED, members=1), {}, "", Party.NONE),
        (replace(GROUP, status=GroupStatus.SEALED), {}, "", Party.PERSON),
        (replace(GROUP, status=GroupStatus.ENDING, members=2, open_members=1), {}, "m", Party.RUN),
        (replace(GROUP, status=GroupStatus.ENDING, members=2), {}, "", Party.NONE),
    ],
)
def test_a_group_waits_for_its_owner_and_then_for_its_members(
    group: GroupRow, statuses: dict[str, Status], living: str, on: Party
) -> None:
    """It is an orphan when neither comes any more."""
    wait = pending_group(group, statuses=statuses, living={(ME, "g"): living} if living else {}, now=NOW)
    assert wait is not None
    assert wait.on is on
    assert wait.is_orphan is (on is Party.NONE)
    assert wait.name == (living or (wait.name if on is Party.RUN else ""))


@pytest.mark.parametrize("status", [one for one in GroupStatus if one.is_final])
def test_an_ended_group_waits_for_nothing(status: GroupStatus) -> None:
    """It is in no list of what waits."""
    assert pending_group(replace(GROUP, status=status), statuses={}, living={}, now=NOW) is None


def test_a_session_waits_to_be_left_alone_or_to_grow_old() -> None:
    """Whichever comes first; a closed one waits for nothing."""
    policy = SessionPolicy(idle_ttl=timedelta(hours=2), hard_cap=timedelta(hours=26))
    session = Session(id="s", identity=ME, opened_at=LONG_AGO, last_seen=NOW)
    wait = pending_session(session, policy, now=NOW)
    assert wait is not None
    assert (wait.on, wait.until) == (Party.CLOCK, NOW + timedelta(hours=2))
    late = pending_session(session, policy, now=NOW + timedelta(hours=3))
    assert late is not None
    assert late.is_overdue
    assert not late.is_orphan
    assert pending_session(replace(session, closed=True), policy, now=NOW) is None
