"""The state machine is exactly its table, and pending tasks have one order. The rules of groups, by enumeration."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import hypothesis.strategies as st
import pytest
from hypothesis import given

from harborage.identity import Identity, Quadruple
from harborage.tasks import (
    GroupInvalidTransitionError,
    GroupNotSealedError,
    GroupStatus,
    InvalidTransitionError,
    MemberOutcome,
    Task,
    TaskFailure,
    TaskGroup,
    TaskKind,
    TaskStatus,
    pending_order,
)
from harborage.tasks.rules import (
    ALLOWED,
    MOVES,
    FailFast,
    GroupFacts,
    Move,
    Resolve,
    check_resolvable,
    check_sealable,
    completion_of,
    failure_of,
    outcome_of,
    target_of,
    verdict,
)
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
    assert (target in ALLOWED[prior]) == ((prior, target) in LEGAL)


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
        assert target in ALLOWED[prior]
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


G = GroupStatus
AT = datetime(2026, 1, 1, tzinfo=UTC)
EVERY = [
    GroupFacts(status, fail_fast, size, live, is_ending)
    for status, fail_fast, (size, live), is_ending in product(
        G, (False, True), ((0, 0), (2, 0), (2, 1), (2, 2)), (False, True)
    )
]


@each_row("facts", EVERY)
def test_a_group_ends_by_itself_only_when_it_is_done(facts: GroupFacts) -> None:
    """Without a failure a group resolves exactly when it is sealed, has members, none lives, and nothing ends it."""
    done = facts.status is G.SEALED and facts.size > 0 and facts.live == 0 and not facts.is_ending
    assert verdict(facts) == (Resolve() if done else None)


@each_row("facts", EVERY)
def test_a_failure_ends_a_fail_fast_group(facts: GroupFacts) -> None:
    """A failed member ends an open or sealed fail_fast group that nothing else ends, and only such a group."""
    is_live = facts.status in {G.OPEN, G.SEALED} and not facts.is_ending
    if is_live and facts.fail_fast:
        assert verdict(facts, TaskFailure("boom")) == FailFast("fail-fast:boom")
    else:
        assert verdict(facts, TaskFailure("boom")) == verdict(facts)


def test_a_failure_without_a_code_has_the_bare_reason() -> None:
    """The reason is `fail-fast` alone when the failure has no code."""
    assert verdict(GroupFacts(G.OPEN, True, 1, 0), TaskFailure()) == FailFast("fail-fast")


@each_row("facts", EVERY)
def test_only_an_open_group_is_sealed(facts: GroupFacts) -> None:
    """Sealing needs an open group that is not about to end."""
    if facts.status is G.OPEN and not facts.is_ending:
        check_sealable("g", facts)
        return
    word = "ending" if facts.is_ending else facts.status
    with pytest.raises(GroupInvalidTransitionError, match=f"'g' is {word}: seal"):
        check_sealable("g", facts)


@each_row("facts", EVERY)
def test_only_a_sealed_group_is_resolved_by_hand(facts: GroupFacts) -> None:
    """Resolving needs a sealed group; an open one must be sealed first, an ended or ending one is past it."""
    if facts.status.is_terminal or facts.is_ending:
        with pytest.raises(GroupInvalidTransitionError):
            check_resolvable("g", facts)
    elif facts.status is G.OPEN:
        with pytest.raises(GroupNotSealedError):
            check_resolvable("g", facts)
    else:
        check_resolvable("g", facts)


def test_only_a_failed_member_is_a_failure() -> None:
    """A cancelled or complete member is none, whatever it carries; a failed one without details still is."""
    for status in TaskStatus:
        got = failure_of(MemberOutcome("t", status, error=TaskFailure("boom")))
        assert (got is not None) == (status is TaskStatus.FAILED)
    assert failure_of(MemberOutcome("t", TaskStatus.FAILED)) == TaskFailure()


def test_a_completion_says_how_members_stand() -> None:
    """The completion has each member's status, in order, with the group's owner, end and reason."""
    group = TaskGroup(id="g", session=Identity("t", "u", "s"), owner_task_id="o", created_at=AT)
    who = Quadruple("t", "u", "s")
    tasks = [
        Task(id="a", identity=who, kind=TaskKind.BACKGROUND, status=TaskStatus.COMPLETE, result=b"1"),
        Task(id="b", identity=who, kind=TaskKind.BACKGROUND, status=TaskStatus.RUNNING),
    ]
    completion = completion_of(group, map(outcome_of, tasks), G.CANCELLED, "why", AT)
    assert completion.members == (
        MemberOutcome("a", TaskStatus.COMPLETE, b"1"),
        MemberOutcome("b", TaskStatus.RUNNING),
    )
    assert (completion.group_id, completion.owner_task_id, completion.final_status, completion.reason) == (
        "g",
        "o",
        G.CANCELLED,
        "why",
    )
    assert completion.resolved_at == AT
