"""The rules of groups, by enumeration."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest

from harborage.identity import Identity, Quadruple
from harborage.tasks import (
    GroupInvalidTransitionError,
    GroupNotSealedError,
    GroupStatus,
    MemberOutcome,
    Task,
    TaskFailure,
    TaskGroup,
    TaskKind,
    TaskStatus,
)
from harborage.tasks.groups import (
    FailFast,
    GroupFacts,
    Resolve,
    check_resolvable,
    check_sealable,
    completion_of,
    failure_of,
    outcome_of,
    verdict,
)
from tests.kit.tables import each_row

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
    """The completion has each member as it stands, in order, with the group's owner, end and reason."""
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
