"""What the registry remembers shrinks to the records themselves when tasks have ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from harborage.identity import Identity, Quadruple
from harborage.tasks import Task, TaskGroup, TaskKind, TaskStatus
from harborage.tasks.ledger import CancelTask, EndGroup, GroupState, SessionLedger, key_of

SESSION = Identity("t", "u", "s")


def a_task(task_id: str, **fields: Any) -> Task:
    """A running task."""
    base: dict[str, Any] = {"identity": SESSION.with_run(""), "kind": TaskKind.BACKGROUND}
    return Task(id=task_id, status=TaskStatus.RUNNING, **{**base, **fields})


def a_ledger(*tasks: Task) -> SessionLedger:
    """A ledger with these tasks, and a group for each that names one."""
    ledger = SessionLedger(SESSION)
    for task in tasks:
        if task.group_id and task.group_id not in ledger.groups:
            ledger.groups[task.group_id] = a_group(task.group_id)
        ledger.add(task, "")
    return ledger


def a_group(group_id: str, **fields: Any) -> GroupState:
    """An open group."""
    return GroupState(TaskGroup(id=group_id, session=SESSION, created_at=datetime(2026, 1, 1, tzinfo=UTC), **fields))


def end(ledger: SessionLedger, task_id: str) -> None:
    """Complete a task."""
    prior = ledger.tasks[task_id]
    ledger.put(msgspec.structs.replace(prior, status=TaskStatus.COMPLETE), prior)


def test_the_key_is_the_whole_identity() -> None:
    """A ledger's key has tenant, user and session, and nothing of the run."""
    assert key_of(Quadruple("t", "u", "s", "r")) == key_of(SESSION) == ("t", "u", "s")


def test_ended_tasks_leave_the_tree() -> None:
    """When a tree has ended, in any order, no entry of it is left."""
    tasks = [a_task("root")] + [a_task(f"child-{n}", parent_task_id="root") for n in range(3)]
    tasks += [a_task("leaf", parent_task_id="child-0")]
    for order in (["root", "child-0", "child-1", "child-2", "leaf"], ["leaf", "child-2", "child-1", "child-0", "root"]):
        ledger = a_ledger(*tasks)
        for task_id in order:
            end(ledger, task_id)
        assert not ledger.children
        assert len(ledger.end_waiters) == 0


def test_only_a_living_parent_gets_children() -> None:
    """A parent that is unknown or has ended can never be cancelled, so nothing is kept under it."""
    ledger = a_ledger(a_task("parent"))
    end(ledger, "parent")
    ledger.add(a_task("late", parent_task_id="parent"), "")
    ledger.add(a_task("stray", parent_task_id="unknown"), "")
    assert not ledger.children


def test_descendants_are_found_breadth_first() -> None:
    """The walk goes level by level in the order of spawning, and not below what has ended."""
    ledger = a_ledger(
        a_task("root"),
        a_task("a", parent_task_id="root"),
        a_task("a1", parent_task_id="a"),
        a_task("b", parent_task_id="root"),
        a_task("b1", parent_task_id="b"),
        a_task("a2", parent_task_id="a"),
    )
    assert ledger.descendants("root") == [["a", "b"], ["a1", "a2", "b1"]]
    end(ledger, "b")
    assert ledger.descendants("root") == [["a"], ["a1", "a2"]]
    assert ledger.descendants("b") == []


def test_a_claim_owes_the_members_then_the_end() -> None:
    """A group is claimed before anybody is cancelled; each task is owed once, though it is member and child."""
    ledger = a_ledger(
        a_task("a", group_id="g"),
        a_task("a1", group_id="g", parent_task_id="a"),
        a_task("b", group_id="g"),
    )
    end(ledger, "b")
    state = ledger.groups["g"]
    ledger.claim(state, "cancelled", "why", members=ledger.member_tree(state))  # type: ignore[arg-type]
    assert state.is_ending
    assert list(ledger.owed) == [CancelTask("a", "why"), CancelTask("a1", "why"), EndGroup("g", "cancelled", "why")]  # type: ignore[arg-type]


def test_a_change_keeps_tool_calls_counted_meanwhile() -> None:
    """Tool calls that were counted while a change was on its way are not lost."""
    ledger = a_ledger(a_task("t"))
    prior = ledger.tasks["t"]
    ledger.tasks["t"] = msgspec.structs.replace(prior, tool_count=3)
    ledger.put(msgspec.structs.replace(prior, priority=1), prior)
    assert (ledger.tasks["t"].tool_count, ledger.tasks["t"].priority) == (3, 1)


def test_watches_that_end_are_released() -> None:
    """Watches and turn waiters that were given up are forgotten at once."""
    ledger = a_ledger(a_task("a", group_id="g"))
    state = ledger.groups["g"]
    gone, kept = state.watch(), state.watch()
    turns = [ledger.turn_waiter(), ledger.turn_waiter()]
    gone.cancel()
    turns[0].cancel()
    assert state.watchers == [kept]
    assert ledger.turn_waiters == [turns[1]]
    ledger.close()
    assert (state.watchers, ledger.turn_waiters) == ([], [])
    assert kept.is_closed
