"""The rules of groups: who may join, when a group ends by itself, and what its completion says.

Pure: values in, values out. The one rule that is hard to debug when it is broken: a group is claimed for its
ending before any member is cancelled, so that the members' ends cannot end it a second time in another way.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeAlias

import msgspec

from harborage.tasks.errors import GroupInvalidTransitionError, GroupNotSealedError
from harborage.tasks.model import (
    GroupCompletion,
    GroupStatus,
    MemberOutcome,
    Task,
    TaskFailure,
    TaskGroup,
    TaskStatus,
)

FAIL_FAST = "fail-fast"
"""The reason of a group that a failed member ended; the member's error code follows a colon."""


class GroupFacts(msgspec.Struct, frozen=True):
    """What the rules need to know: `size` members, of which `live` have not ended; `is_ending` once it was claimed."""

    status: GroupStatus
    fail_fast: bool = False
    size: int = 0
    live: int = 0
    is_ending: bool = False


class Resolve(msgspec.Struct, frozen=True):
    """The group is done: all its members have ended."""


class FailFast(msgspec.Struct, frozen=True):
    """The group ends with its failed member; the others are to be cancelled."""

    reason: str


Verdict: TypeAlias = Resolve | FailFast | None


def check_sealable(group_id: str, facts: GroupFacts) -> None:
    """Accept a group that can be sealed.

    Raises:
        GroupInvalidTransitionError: it is not open, or is about to end.
    """
    if facts.status is not GroupStatus.OPEN or facts.is_ending:
        raise GroupInvalidTransitionError(group_id, "ending" if facts.is_ending else facts.status, "seal")


def check_resolvable(group_id: str, facts: GroupFacts) -> None:
    """Accept a group that can be resolved by hand; members that still run are no obstacle.

    Raises:
        GroupNotSealedError: it is open.
        GroupInvalidTransitionError: it has ended, or is about to.
    """
    if facts.status.is_terminal or facts.is_ending:
        raise GroupInvalidTransitionError(group_id, "ending" if facts.is_ending else facts.status, "resolve")
    if facts.status is GroupStatus.OPEN:
        raise GroupNotSealedError(group_id)


def verdict(facts: GroupFacts, failure: TaskFailure | None = None) -> Verdict:
    """What has to happen to a group now that it was sealed or a member ended; `failure` is that member's, if it failed.

    A failed member ends a `fail_fast` group even when it was the last one. An empty group never ends by itself.
    """
    if facts.status.is_terminal or facts.is_ending:
        return None
    if failure is not None and facts.fail_fast:
        return FailFast(fail_fast_reason(failure))
    if facts.status is GroupStatus.SEALED and facts.size and not facts.live:
        return Resolve()
    return None


def fail_fast_reason(failure: TaskFailure) -> str:
    """The reason that the completion carries: `fail-fast:<code>`, or `fail-fast` for a failure without a code."""
    return f"{FAIL_FAST}:{failure.code}" if failure.code else FAIL_FAST


def outcome_of(task: Task) -> MemberOutcome:
    """The status of this member."""
    return MemberOutcome(task.id, task.status, task.result, task.error)


def completion_of(
    group: TaskGroup, members: Iterable[MemberOutcome], final_status: GroupStatus, reason: str, at: datetime
) -> GroupCompletion:
    """The record of how `group` ended at `at`, with its members as they are."""
    return GroupCompletion(
        group_id=group.id,
        session=group.session,
        owner_task_id=group.owner_task_id,
        final_status=final_status,
        resolved_at=at,
        members=tuple(members),
        reason=reason,
    )


def failure_of(member: MemberOutcome) -> TaskFailure | None:
    """The failure that counts for fail-fast: a failed member's. A cancelled member never triggers it."""
    if member.status is not TaskStatus.FAILED:
        return None
    return member.error if member.error is not None else TaskFailure()
