"""What waits, as the command line tells it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from harborage.app.checkup import Finding
from harborage.app.waiting import Party, Settled, Wait, WaitKind
from harborage.cli.waits import findings_lines, needs_person, report, settled_lines, waits_lines
from harborage.identity import Quadruple

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Quadruple("acme", "ada", "s1", "r1")


def wait(kind: WaitKind, on: Party, **more: object) -> Wait:
    """Something that waits since a minute."""
    return Wait(kind=kind, id="x1", who=WHO, on=on, since=NOW - timedelta(minutes=1), **more)  # type: ignore[arg-type]


CARRIED = wait(WaitKind.RUN, Party.WORKER, name="w1", then="carried; free for others when that worker ends")
LEFT = wait(WaitKind.RUN, Party.WORKER, name="agent.py#1", then="carried on by the next worker of its agent")
ASKED = wait(WaitKind.APPROVAL, Party.PERSON, until=NOW + timedelta(days=2), then="reject", detail="approval: publish")
PAUSED = wait(WaitKind.PAUSE, Party.PERSON)
BLOCKED = wait(WaitKind.RUN, Party.CODE, name="agent.py#1", detail="recorded step 'plan'")
TASK = wait(WaitKind.TASK, Party.RUN, name="r2")
OVERDUE = wait(WaitKind.PAUSE, Party.PERSON, until=NOW - timedelta(hours=1), then="timeout", is_overdue=True)
ORPHAN = wait(WaitKind.PAUSE, Party.NOBODY, orphan="its run has ended")
SESSION = wait(WaitKind.SESSION, Party.CLOCK, until=NOW + timedelta(days=1))
TIMER = wait(WaitKind.RUN, Party.CLOCK, until=NOW + timedelta(seconds=5), then="looked at again")


@pytest.mark.parametrize(
    ("one", "is_needed", "told"),
    [
        (CARRIED, False, "executed by worker w1"),
        (LEFT, True, "for a worker (agent.py): harborage resume x1"),
        (ASKED, True, "for a person, 2 d left, then reject: harborage approve x1, or reject"),
        (PAUSED, True, "for a person: harborage answer x1 TEXT, or approve, or reject"),
        (BLOCKED, True, "for the code that it was begun with (agent.py): harborage resume x1 tries again"),
        (TASK, False, "for run r2"),
        (OVERDUE, True, "for a person, overdue for 1 h, then timeout: harborage answer x1 TEXT, or approve, or reject"),
        (ORPHAN, True, "its run has ended"),
        (TIMER, False, "for its time, 5.0 s left, then looked at again"),
        (wait(WaitKind.RUN, Party.PERSON, name="t"), True, "for a person: harborage resume x1"),
        (wait(WaitKind.GROUP, Party.NOBODY), True, "orphaned"),
    ],
)
def test_each_wait_says_on_whom_and_what_to_do(one: Wait, is_needed: bool, told: str) -> None:
    """Until when, what happens then, and the command that ends it."""
    assert needs_person(one) is is_needed
    assert waits_lines([one], NOW, settles=True)[-1].strip() == told


def test_what_needs_a_person_comes_last() -> None:
    """Sessions are only counted, and the way to settle is told where there is something to settle."""
    lines = waits_lines([ORPHAN, ASKED, CARRIED, SESSION, SESSION], NOW, settles=False)
    assert [line for line in lines if line and not line.startswith(" ")] == [
        "✓ 2 sessions open, each closed when left alone for long",
        "✓ 1 item will end without you:",
        "? 1 item needs a person:",
        "✗ 1 orphan, which nothing will ever end:",
        "harborage doctor --settle ends orphans, and what is overdue",
    ]
    assert "--settle" not in "".join(waits_lines([ASKED], NOW, settles=False))
    assert waits_lines([], NOW, settles=False) == ["✓ nothing needs you"]


def test_findings_and_what_was_settled_are_told() -> None:
    """A line each."""
    found = [Finding(what="database", told="whole"), Finding(what="disk", told="full\x1b", is_well=False)]
    assert findings_lines(found) == ["✓ database  whole", "✗ disk  full\\x1b"]
    assert settled_lines([Settled(wait=ORPHAN, done="rejected")]) == ["✓ settled pause x1: rejected"]
    assert settled_lines([]) == ["nothing was left to settle"]


def test_machines_get_all_of_it() -> None:
    """One object: findings, waits and what was settled."""
    told = json.loads(report([Finding(what="a", told="b")], [ASKED], [Settled(wait=ORPHAN, done="rejected")]))
    assert told["findings"] == [{"what": "a", "told": "b", "is_well": True}]
    assert told["settled"] == [{"kind": "pause", "id": "x1", "done": "rejected"}]
    (row,) = told["waits"]
    assert (row["kind"], row["needs_person"], row["is_orphan"], row["on"]) == ("approval", True, False, "person")
