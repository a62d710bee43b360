"""The outcome of one tool call. Every call that was decided has exactly one of these, whatever interrupted it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, assert_never

import msgspec

from harborage.errors import HarborageError, error_summary, error_text
from harborage.events import safe_excerpt
from harborage.planner import (
    CallParallel,
    CallTool,
    FailureRecord,
    JoinKind,
    JoinSpec,
    ParallelBranchObservation,
    ParallelObservation,
    PlannerError,
)
from harborage.runtime.loop.apply import Observed
from harborage.runtime.loop.joins import (
    BranchOutcome,
    BranchResult,
    Cancelled,
    Done,
    Failed,
    ParallelShortfallError,
    merge,
    normalise_join,
    successes_needed,
)
from harborage.tools.inputs import InputNeeded

if TYPE_CHECKING:
    pass

_MOST_CHARS: Final = 4_000


class OutcomeStatus(StrEnum):
    """How a call ended. `UNKNOWN` is honest: it had begun when its process died, and may or may not have acted.

    `HELD_BACK` was not made because its run is a rehearsal.
    """

    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    HELD_BACK = "held_back"


class ToolOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a call: what it returned, or `{"error": …}`.

    `for_planner` is the reduced form of a heavy result, present only when it differs. `code` is the kind of a failure
    that a planner can do something about. `branches` are the statuses of a parallel call, where not all are done.
    `asks` is what the call needs of a person before it goes on; such an outcome is not the last one of its call.
    """

    status: OutcomeStatus
    observation: Any = None
    for_planner: Any = msgspec.UNSET
    code: str = ""
    branches: tuple[str, ...] = ()
    asks: InputNeeded | None = None

    @property
    def seen(self) -> Any:
        """What the planner is shown."""
        return self.observation if self.for_planner is msgspec.UNSET else self.for_planner

    @property
    def observed(self) -> Observed:
        """The outcome as the step that is remembered."""
        if self.status is OutcomeStatus.DONE and not self.code:
            return Observed(self.observation, self.seen, statuses=self.branches)
        failure = FailureRecord(code=self.code, message=self.error, attempts=1) if self.code else None
        error = "" if isinstance(self.observation, ParallelObservation) else self.error
        return Observed(self.observation, self.seen, failure, error, self.branches or (str(self.status),))

    @property
    def error(self) -> str:
        """The text of what went wrong; empty for a call that is done."""
        if self.status is OutcomeStatus.DONE:
            return ""
        if isinstance(self.observation, ParallelObservation):
            return self.observation.error
        return str(self.observation["error"])


class ToolCallFailedError(HarborageError):
    """A branch's call is not done; `outcome` says how it ended instead."""

    def __init__(self, outcome: ToolOutcome) -> None:
        self.outcome = outcome
        super().__init__(outcome.error)


def failed(error: str, status: OutcomeStatus = OutcomeStatus.FAILED, *, code: str = "") -> ToolOutcome:
    """The outcome of a call that gave nothing, with the reason as its observation."""
    return ToolOutcome(status, {"error": bounded(error)}, code=code)


def bounded(error: str) -> str:
    """The text of an error as a record can hold it and a prompt can show it.

    An error may quote a file name that is no text, or a whole page that a server sent with it.
    """
    text = error.encode("utf-8", "replace").decode()
    return text if len(text) <= _MOST_CHARS else safe_excerpt(text, _MOST_CHARS)


def unknown(tool: str, why: str = "") -> ToolOutcome:
    """The outcome of a call whose worker died during it: it is not known whether it acted."""
    text = f'tool "{tool}" was interrupted when its worker died; whether it acted is unknown, so it is not called again'
    return failed(f"{text} ({why})" if why else text, OutcomeStatus.UNKNOWN)


def unanswered(tool: str, why: str) -> ToolOutcome:
    """The outcome of a call that was sent to a peer and not answered: it is not known whether it acted."""
    text = f'tool "{tool}" was called and not answered; whether it acted is unknown, so it is not called again ({why})'
    return failed(text, OutcomeStatus.UNKNOWN)


def self_cancelled(step: str) -> ToolOutcome:
    """Return the outcome of a call that cancelled its own task, by the name of its step."""
    what = f'tool "{step.removeprefix("tool.")}" invoke' if step != "dispatch" else "dispatch"
    return failed(f"{what}: it cancelled its own task, which only its run may do")


def join_of(decision: CallParallel) -> JoinSpec | ToolOutcome:
    """The join of a parallel call, or the outcome of one that makes no sense and runs nothing."""
    try:
        return normalise_join(decision.join, decision.branches)
    except PlannerError as error:
        return failed(f"parallel dispatch: {error_text(error)}")


def kept_or_raised(outcome: ToolOutcome) -> ToolOutcome:
    """The outcome of a branch that is done; a join counts only those as successes.

    Raises:
        ToolCallFailedError: it is not done.
    """
    if outcome.status is not OutcomeStatus.DONE:
        raise ToolCallFailedError(outcome)
    return outcome


def joined(calls: Sequence[CallTool], join: JoinSpec, branches: Sequence[BranchOutcome[ToolOutcome]]) -> ToolOutcome:
    """The outcome of a parallel call: one entry a branch, whole and as the planner sees it.

    A join that is not met leaves what its branches gave all the same: those that acted did act.
    """
    outcomes = [_settled(one) for one in branches]
    places = merge(join, branches, branches=calls) if join.kind is JoinKind.KEYED else range(len(calls))
    shortfall = _shortfall(calls, join, outcomes)
    whole = tuple(_entry(at, calls[at], outcomes[at], outcomes[at].observation) for at in places)
    observation = ParallelObservation(branches=whole, error=shortfall)
    status = OutcomeStatus.FAILED if shortfall else OutcomeStatus.DONE
    is_done = all(one.status is OutcomeStatus.DONE for one in outcomes)
    statuses = () if is_done else tuple(str(outcomes[at].status) for at in places)
    if all(one.for_planner is msgspec.UNSET for one in outcomes):
        return ToolOutcome(status, observation, branches=statuses)
    seen = tuple(_entry(at, calls[at], outcomes[at], outcomes[at].seen) for at in places)
    return ToolOutcome(status, observation, ParallelObservation(branches=seen, error=shortfall), branches=statuses)


def _settled(outcome: BranchOutcome[ToolOutcome]) -> ToolOutcome:
    match outcome:
        case Done(value):
            return value
        case Failed(ToolCallFailedError() as error):
            return error.outcome
        case Failed(error):
            return failed(error_summary(error))
        case Cancelled():
            return failed("cancelled: the parallel call was settled without this branch", OutcomeStatus.CANCELLED)
        case _ as unreachable:
            assert_never(unreachable)


def _shortfall(calls: Sequence[CallTool], join: JoinSpec, outcomes: Sequence[ToolOutcome]) -> str:
    """Why the join is not met; empty when it is."""
    needed = successes_needed(join)
    if needed is None:
        return ""
    done: list[BranchResult] = []
    refused: list[BranchResult] = []
    for index, (call, one) in enumerate(zip(calls, outcomes, strict=True)):
        if one.status is OutcomeStatus.DONE:
            done.append(BranchResult(index=index, tool=call.tool, call_id=call.call_id))
        else:
            error = ToolCallFailedError(one)
            refused.append(BranchResult(index=index, tool=call.tool, call_id=call.call_id, error=error))
    if len(done) >= needed:
        return ""
    return bounded(f"parallel dispatch: {ParallelShortfallError(needed, done, refused)}")


def _entry(index: int, call: CallTool, outcome: ToolOutcome, value: Any) -> ParallelBranchObservation:
    is_done = outcome.status is OutcomeStatus.DONE
    return ParallelBranchObservation(
        call_id=call.call_id,
        tool=call.tool,
        index=index,
        value=value if is_done else None,
        error=outcome.error,
    )


def call_id(step: int, branch: int | None) -> str:
    """Return the id of a call, one for each call of a run; `branch` counts from 0, None for a lone call."""
    return str(step) if branch is None else f"{step}.{branch + 1}"
