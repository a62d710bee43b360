"""When parallel branches are done, and what their outcomes make together. Pure: values in, values out.

A branch always ends in exactly one `BranchOutcome`. A join says how many of them to wait for and in which order they
are handed on; how branches are run is the business of `parallel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeAlias, TypeVar, assert_never

import msgspec

from harborage.planner import (
    ABSOLUTE_MAX_PARALLEL,
    CallTool,
    InvalidDecisionError,
    JoinKind,
    JoinSpec,
    ParallelCapExceededError,
    ParallelInvalidJoinError,
    ParallelThresholdUnmetError,
)
from harborage.tools import ToolResult

T = TypeVar("T")


class Done(msgspec.Struct, Generic[T], frozen=True, tag=True):
    """The branch gave a value."""

    value: T


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The branch raised; a crash inside it counts as its error."""

    error: BaseException


class Cancelled(msgspec.Struct, frozen=True, tag=True):
    """The branch was cut short: the join needed it no more, or it was cancelled alone."""


BranchOutcome: TypeAlias = Done[T] | Failed | Cancelled

_ALL = JoinSpec(JoinKind.ALL)


def normalise_join(join: JoinSpec | None, branches: Sequence[CallTool]) -> JoinSpec:
    """The join to run `branches` with; none at all, or one without a kind, waits for all of them.

    Raises:
        ParallelCapExceededError: there are more than `ABSOLUTE_MAX_PARALLEL` branches.
        InvalidDecisionError: there are none.
        ParallelInvalidJoinError: the kind is unknown, `n` is not within 1 and the number of branches, or `merge_keys`
            is empty, repeats a key or names a branch that is not there. Checked in this order, before any look-up.
    """
    if len(branches) > ABSOLUTE_MAX_PARALLEL:
        raise ParallelCapExceededError(len(branches), ABSOLUTE_MAX_PARALLEL)
    if not branches:
        raise InvalidDecisionError("a parallel call has no branches; name at least one tool to call")
    if join is None or not join.kind:
        return _ALL
    if join.kind not in JoinKind:
        raise ParallelInvalidJoinError(f"unknown join; use one of {', '.join(JoinKind)}")
    if join.kind == JoinKind.N and not 0 < join.n <= len(branches):
        raise ParallelInvalidJoinError(f"join n needs 1 to {len(branches)} successes, not {join.n}")
    if join.kind == JoinKind.KEYED:
        _check_keys(join.merge_keys, branches)
    return join


def successes_needed(join: JoinSpec) -> int | None:
    """How many successes settle the join, or None for one that waits for every branch."""
    match join.kind:
        case JoinKind.ALL | JoinKind.KEYED:
            return None
        case JoinKind.FIRST_SUCCESS:
            return 1
        case JoinKind.N:
            return join.n
        case _ as unreachable:
            assert_never(unreachable)


def is_settled(join: JoinSpec, outcomes: Sequence[BranchOutcome[Any] | None]) -> bool:
    """Whether the branches still running, those with None, can no longer change the result.

    Failures never settle a join early: while a branch runs, a success may follow.
    """
    if None not in outcomes:
        return True
    needed = successes_needed(join)
    return needed is not None and sum(isinstance(outcome, Done) for outcome in outcomes) >= needed


def merge(
    join: JoinSpec,
    outcomes: Sequence[BranchOutcome[Any]],
    *,
    branches: Sequence[CallTool] = (),
    finished: Sequence[int] | None = None,
) -> list[int]:
    """The branches whose outcomes make the joined result, by index, in its order.

    All of them in order of index; for `keyed` those that `merge_keys` name come first, in order of the keys; for
    `first_success` and `n` only as many successes as it needs, in the order `finished` they came in. Fewer
    mean that the join was not met. `branches` is needed for `keyed` only.
    """
    needed = successes_needed(join)
    if needed is not None:
        arrivals = range(len(outcomes)) if finished is None else finished
        return [index for index in arrivals if isinstance(outcomes[index], Done)][:needed]
    if join.kind == JoinKind.KEYED:
        return _keyed(join.merge_keys, branches)
    return list(range(len(outcomes)))


def _check_keys(keys: Sequence[str], branches: Sequence[CallTool]) -> None:
    if not keys:
        raise ParallelInvalidJoinError("a keyed join needs merge_keys: name branches by tool or by call_id")
    known = {branch.tool for branch in branches} | {branch.call_id for branch in branches}
    for place, key in enumerate(keys):
        if not key or key not in known:
            raise ParallelInvalidJoinError(f"merge key {place} names no branch; use a branch's tool or its call_id")
        if key in keys[:place]:
            raise ParallelInvalidJoinError(f"merge key {place} repeats an earlier one; a branch has one place")


def _keyed(keys: Sequence[str], branches: Sequence[CallTool]) -> list[int]:
    """Branches by key, each at its call_id's place if that is a key, else at its tool's; then the rest, by index."""
    place = {key: at for at, key in enumerate(keys)}

    def rank(index: int) -> int:
        branch = branches[index]
        at = place.get(branch.call_id) if branch.call_id else None
        return place.get(branch.tool, len(place)) if at is None else at

    return sorted(range(len(branches)), key=rank)


class ParallelShortfallError(ParallelThresholdUnmetError):
    """Fewer branches succeeded than the join asks for. `results` are those that did, in the order they finished."""

    def __init__(
        self, needed: int = 0, results: Sequence[BranchResult] = (), failed: Sequence[BranchResult] = ()
    ) -> None:
        self.results = list(results)
        super().__init__(needed, len(results), {one.index: str(one.error) for one in failed})
        listed = "; ".join(f"branch[{one.index}] tool={one.tool}: {one.error}" for one in failed)
        self.args = (f"parallel call needs {needed} successes, got {len(results)}: {listed}",)


class BranchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one branch of a parallel call gave: a `result`, or the `error` that took its place."""

    index: int
    tool: str
    call_id: str = ""
    result: ToolResult | None = None
    error: BaseException | None = None
