"""The words for the status of runs and for pending work."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import msgspec

from harborage.app.doctor import Finding
from harborage.cli.status import (
    agent_of,
    describe_status,
    is_blocked,
    needs_person,
    pending_json,
    render_ended,
    render_findings,
    render_pending,
    status_of,
)
from harborage.identity import Identity, Quadruple
from harborage.runtime.durable.orphans import EndedItem
from harborage.runtime.durable.pending import Party, PendingItem, PendingKind
from harborage.store import RunRow, Status
from harborage.store.times import micros
from tests.kit.tables import each_row

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROW = RunRow(
    number=1,
    run_id="r1",
    who=Identity("acme", "ada", "s1"),
    about="go",
    agent="a.py#1?folder=%2Fx",
    status=Status.RUNNING,
    created_at=micros(NOW),
    updated_at=micros(NOW),
    fence=1,
    position=3,
)
PENDING = msgspec.structs.replace(ROW, status=Status.PENDING, is_woken=True)
INTERRUPTED = msgspec.structs.replace(ROW, is_woken=True)
RUNNING = msgspec.structs.replace(ROW, owner="w")
BLOCKED = msgspec.structs.replace(ROW, blocked="why")
COMPLETE = msgspec.structs.replace(ROW, status=Status.COMPLETE, reason="why")
CANCELLED = msgspec.structs.replace(ROW, status=Status.CANCELLED)
CANCELLED_SOFTLY = msgspec.structs.replace(ROW, status=Status.COMPLETE, reason="cancelled")
FAILED = msgspec.structs.replace(ROW, status=Status.FAILED, reason="why")
NO_PROVIDER = msgspec.structs.replace(ROW, reason="interrupted: provider unavailable (503)")


@each_row(
    "row, status",
    [
        (PENDING, "pending"),
        (RUNNING, "running"),
        (ROW, "waiting"),
        (INTERRUPTED, "interrupted"),
        (NO_PROVIDER, "interrupted"),
        (BLOCKED, "blocked"),
        (COMPLETE, "complete"),
        (FAILED, "failed"),
        (CANCELLED, "cancelled"),
        (CANCELLED_SOFTLY, "cancelled"),
    ],
)
def test_a_run_has_one_of_eight_statuses(row: RunRow, status: str) -> None:
    """A run with a worker is running; one that a worker left, or that waits for its provider, is interrupted."""
    assert status_of(row) == status
    assert agent_of(row) == "a.py"


@each_row(
    "row, words",
    [
        (RUNNING, "another worker executes it, last step 5.0 s ago; followed and steered from here"),
        (INTERRUPTED, "interrupted 5.0 s ago; resuming here"),
        (ROW, "waiting for 5.0 s; resuming here"),
        (BLOCKED, "blocked 5.0 s ago: why; trying again with the agent's code of today"),
        (NO_PROVIDER, "interrupted: provider unavailable (503), 5.0 s ago; trying again now"),
        (COMPLETE, "ended 5.0 s ago: why"),
        (FAILED, "failed 5.0 s ago: why"),
    ],
)
def test_every_stand_has_its_words(row: RunRow, words: str) -> None:
    """Who carries it, since when, and what happens now."""
    assert describe_status(row, NOW + timedelta(seconds=5)) == words


def test_blocked_is_what_was_tried_and_failed() -> None:
    """Not what was blocked before, and not what is being tried."""
    assert is_blocked(BLOCKED, 0)
    assert not is_blocked(BLOCKED, 1)
    assert not is_blocked(msgspec.structs.replace(BLOCKED, owner="w"), 0)
    assert not is_blocked(INTERRUPTED, 0)


WHO = Quadruple("acme", "ada", "s1", "r1")


def wait(kind: PendingKind, on: Party, **more: object) -> PendingItem:
    """Something that waits since a minute."""
    return PendingItem(kind=kind, id="x1", who=WHO, on=on, since=NOW - timedelta(minutes=1), **more)  # type: ignore[arg-type]


EXECUTED = wait(PendingKind.RUN, Party.WORKER, name="w1", is_running=True)
LEFT = wait(PendingKind.RUN, Party.WORKER, name="agent.py#1", then="the next worker of its agent resumes it")
ASKED = wait(
    PendingKind.APPROVAL, Party.PERSON, until=NOW + timedelta(days=2), then="reject", detail="approval: publish"
)
PAUSED = wait(PendingKind.PAUSE, Party.PERSON)
UNFIT = wait(PendingKind.RUN, Party.CODE, name="agent.py#1", detail="recorded step 'plan'")
TASK = wait(PendingKind.TASK, Party.RUN, name="r2")
OVERDUE = wait(PendingKind.PAUSE, Party.PERSON, until=NOW - timedelta(hours=1), then="timeout", is_overdue=True)
ORPHAN = wait(PendingKind.PAUSE, Party.NONE, orphan="its run has ended")
SESSION = wait(PendingKind.SESSION, Party.CLOCK, until=NOW + timedelta(days=1))
TIMER = wait(PendingKind.RUN, Party.CLOCK, until=NOW + timedelta(seconds=5), then="looked at again")


@each_row(
    "one, is_needed, words",
    [
        (EXECUTED, False, "executed by worker w1"),
        (LEFT, True, "waits for a worker (agent.py): harborage resume x1"),
        (ASKED, True, "waits for a person, 2 d left, then reject: harborage approve x1, or reject"),
        (PAUSED, True, "waits for a person: harborage answer x1 TEXT, or approve, or reject"),
        (UNFIT, True, "waits for the code that it was started with (agent.py): harborage resume x1 tries again"),
        (TASK, False, "waits for run r2"),
        (
            OVERDUE,
            True,
            "waits for a person, overdue for 1 h, then timeout: harborage answer x1 TEXT, or approve, or reject",
        ),
        (ORPHAN, True, "its run has ended"),
        (TIMER, False, "waits for a timer, 5.0 s left, then looked at again"),
        (wait(PendingKind.RUN, Party.PERSON, name="t"), True, "waits for a person: harborage resume x1"),
        (wait(PendingKind.GROUP, Party.NONE), True, "orphaned"),
    ],
)
def test_each_wait_says_on_whom_and_what_to_do(one: PendingItem, is_needed: bool, words: str) -> None:
    """Until when, what happens then, and the command that ends it."""
    assert needs_person(one) is is_needed
    assert render_pending([one], NOW, settles=True)[-1].strip() == words


def test_what_needs_a_person_comes_last() -> None:
    """Sessions are only counted, and the way to settle is shown where there is something to settle."""
    lines = render_pending([ORPHAN, ASKED, EXECUTED, SESSION, SESSION], NOW, settles=False)
    assert [line for line in lines if line and not line.startswith(" ")] == [
        "✓ 2 sessions open, each closed when idle for long",
        "✓ 1 item will end without you:",
        "? 1 item needs a person:",
        "✗ 1 orphan: no worker, timer or person will end it:",
        "end orphans and overdue items: harborage doctor --settle",
    ]
    assert "--settle" not in "".join(render_pending([ASKED], NOW, settles=False))
    assert render_pending([], NOW, settles=False) == ["✓ nothing needs you"]


def test_findings_and_settled_items_are_listed() -> None:
    """A line each."""
    found = [Finding(what="database", detail="whole"), Finding(what="disk", detail="full\x1b", is_ok=False)]
    assert render_findings(found) == ["✓ database  whole", "✗ disk  full\\x1b"]
    assert render_ended([EndedItem(item=ORPHAN, done="rejected")]) == ["✓ ended pause x1: rejected"]
    assert render_ended([]) == ["nothing was left to end"]


def test_machines_get_all_of_it() -> None:
    """One object: findings, pending items and what was ended."""
    output = json.loads(
        pending_json([Finding(what="a", detail="b")], [ASKED], [EndedItem(item=ORPHAN, done="rejected")])
    )
    assert output["findings"] == [{"what": "a", "detail": "b", "is_ok": True}]
    assert output["settled"] == [{"kind": "pause", "id": "x1", "done": "rejected"}]
    (row,) = output["waits"]
    assert (row["kind"], row["needs_person"], row["is_orphan"], row["on"]) == ("approval", True, False, "person")
