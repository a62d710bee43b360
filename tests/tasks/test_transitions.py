"""The state machine is exactly its table, and pending tasks have one order."""

from __future__ import annotations

from itertools import product

import hypothesis.strategies as st
import pytest
from hypothesis import given

from harborage.identity import Quadruple
from harborage.tasks import InvalidTransitionError, Task, TaskKind, TaskStatus, pending_order
from harborage.tasks.transitions import ALLOWED, MOVES, Move, can_go, target_of
from tests.kit.tables import each_row

S = TaskStatus
LEGAL = {
    (S.PENDING, S.RUNNING),
    (S.PENDING, S.CANCELLED),
    (S.RUNNING, S.PAUSED),
    (S.RUNNING, S.COMPLETE),
    (S.RUNNING, S.FAILED),
    (S.RUNNING, S.CANCELLED),
    (S.PAUSED, S.RUNNING),
    (S.PAUSED, S.CANCELLED),
}


def a_task(task_id: str = "t", **fields: object) -> Task:
    """A task with the given fields."""
    return Task(**{"id": task_id, "identity": Quadruple("t", "u", "s"), "kind": TaskKind.BACKGROUND, **fields})  # type: ignore[arg-type]


@each_row("prior, target", list(product(S, S)))
def test_every_pair_is_legal_or_not(prior: TaskStatus, target: TaskStatus) -> None:
    """Of all pairs of statuses exactly the eight of the table are steps; staying is none."""
    assert can_go(prior, target) == ((prior, target) in LEGAL)


def test_the_table_is_total() -> None:
    """Every status has a row, and a status is final exactly when its row is empty."""
    assert ALLOWED.keys() == set(S)
    assert {status for status in S if status.is_terminal} == {status for status, after in ALLOWED.items() if not after}


@each_row("move, prior", list(product(Move, S)))
def test_a_move_is_a_step_of_the_table_or_refused(move: Move, prior: TaskStatus) -> None:
    """A move leads where the table allows, or raises with both statuses; only a start and a resume share a target."""
    sources, target = MOVES[move]
    if prior in sources:
        assert target_of(move, prior) is target
        assert can_go(prior, target)
    else:
        with pytest.raises(InvalidTransitionError) as caught:
            target_of(move, prior, "t-1")
        assert (caught.value.prior, caught.value.target, caught.value.task_id) == (prior, target, "t-1")


def test_the_moves_cover_the_table() -> None:
    """Each step of the table is made by some move, so no status is out of reach."""
    made = {(prior, target) for sources, target in MOVES.values() for prior in sources}
    assert made == LEGAL


def test_resume_is_narrower_than_start() -> None:
    """A pending task can be started but not resumed; a paused one can be both."""
    assert MOVES[Move.START][0] == {S.PENDING, S.PAUSED}
    assert MOVES[Move.RESUME][0] == {S.PAUSED}


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3), st.sampled_from(list(S)))))
def test_pending_tasks_go_by_priority_then_age(specs: list[tuple[int, int, TaskStatus]]) -> None:
    """The order holds the pending tasks only, highest priority first, the oldest first among equals, then as given."""
    tasks = [
        a_task(str(index), priority=priority, created_at=at, status=status)
        for index, (priority, at, status) in enumerate(specs)
    ]
    ordered = pending_order(tasks)
    assert {task.id for task in ordered} == {task.id for task in tasks if task.status is S.PENDING}
    keys = [(-task.priority, task.created_at, int(task.id)) for task in ordered]
    assert keys == sorted(keys)
