"""The rules of tasks and groups: which moves a task may make, what a group may do, and when it ends by itself.

Pure: no clock, no I/O. Everything that moves a task asks here first; the documentation prints the same table. The one
rule that is hard to debug when it is broken: a group is claimed for its ending before any member is cancelled, so that
the members' ends cannot end it a second time in another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from harborage.errors import InvalidOptionError
from harborage.tasks.errors import GroupInvalidTransitionError, GroupNotSealedError, InvalidTransitionError
from harborage.tasks.model import GroupCompletion, GroupStatus, MemberOutcome, Task, TaskFailure, TaskGroup, TaskStatus

_S = TaskStatus

ALLOWED: Final[Mapping[TaskStatus, frozenset[TaskStatus]]] = MappingProxyType(
    {
        _S.PENDING: frozenset({_S.RUNNING, _S.CANCELLED}),
        _S.RUNNING: frozenset({_S.PAUSED, _S.COMPLETE, _S.FAILED, _S.CANCELLED}),
        _S.PAUSED: frozenset({_S.RUNNING, _S.CANCELLED}),
        _S.COMPLETE: frozenset(),
        _S.FAILED: frozenset(),
        _S.CANCELLED: frozenset(),
    }
)
"""Where a task may go from each status. Staying where it is is no transition either."""


class Move(StrEnum):
    """What can be done to a task's status; two of them lead to `running`."""

    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


MOVES: Final[Mapping[Move, tuple[frozenset[TaskStatus], TaskStatus]]] = MappingProxyType(
    {
        Move.START: (frozenset({_S.PENDING, _S.PAUSED}), _S.RUNNING),
        Move.PAUSE: (frozenset({_S.RUNNING}), _S.PAUSED),
        Move.RESUME: (frozenset({_S.PAUSED}), _S.RUNNING),
        Move.COMPLETE: (frozenset({_S.RUNNING}), _S.COMPLETE),
        Move.FAIL: (frozenset({_S.RUNNING}), _S.FAILED),
        Move.CANCEL: (frozenset({_S.PENDING, _S.RUNNING, _S.PAUSED}), _S.CANCELLED),
    }
)
"""From where each move is possible, and where it leads."""


def check_priority(value: object, option: str) -> None:
    """Accept the priority of a task.

    Raises:
        InvalidOptionError: it is no whole number from -1000 to 1000.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not -1000 <= value <= 1000:
        raise InvalidOptionError(option, value, "a whole number from -1000 to 1000")


def target_of(move: Move, prior: TaskStatus, task_id: str = "") -> TaskStatus:
    """The status that `move` leads to from `prior`.

    Raises:
        InvalidTransitionError: not from there.
    """
    sources, target = MOVES[move]
    if prior not in sources:
        raise InvalidTransitionError(prior, target, task_id)
    return target


def pending_order(tasks: Iterable[Task]) -> list[Task]:
    """The pending ones among `tasks` in the order to start them: highest priority first, then the oldest.

    Tasks of one priority made in the same instant keep the order in which they were given.
    """
    return sorted((task for task in tasks if task.status is _S.PENDING), key=_urgency)


def _urgency(task: Task) -> tuple[int, int]:
    return (-task.priority, task.created_at)


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
