"""What became of one tool call. Every call that was decided has exactly one of these, whatever interrupted it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from harborage.errors import HarborageError
from harborage.planner import CallTool, ParallelBranchObservation, ParallelObservation

__all__ = ["OutcomeStatus", "ToolCallFailedError", "ToolOutcome", "failed", "merged", "unknown"]

_MOST_CHARS: Final = 4_000


class OutcomeStatus(StrEnum):
    """How a call ended. `UNKNOWN` is honest: it had begun when its process died, and may or may not have acted."""

    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class ToolOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a call: what it returned, or `{"error": …}`.

    `for_planner` is the reduced form of a heavy result, present only when it differs.
    """

    status: OutcomeStatus
    observation: Any = None
    for_planner: Any = msgspec.UNSET

    @property
    def seen(self) -> Any:
        """What the planner is shown."""
        return self.observation if self.for_planner is msgspec.UNSET else self.for_planner

    @property
    def error(self) -> str:
        """The text of what went wrong; empty for a call that is done."""
        return "" if self.status is OutcomeStatus.DONE else str(self.observation["error"])


class ToolCallFailedError(HarborageError):
    """A branch's call is not done; `outcome` says how it ended instead."""

    def __init__(self, outcome: ToolOutcome) -> None:
        self.outcome = outcome
        super().__init__(outcome.error)


def failed(error: str, status: OutcomeStatus = OutcomeStatus.FAILED) -> ToolOutcome:
    """The outcome of a call that gave nothing, with the reason as its observation."""
    # An error may quote a file name that is no text, or a whole page that a server sent with it: the one could not be
    # recorded, the other would not fit into a prompt.
    text = error.encode("utf-8", "replace").decode()
    return ToolOutcome(status, {"error": text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…"})


def unknown(tool: str, why: str = "") -> ToolOutcome:
    """The outcome of a call that nobody can tell: its process died in the middle of it."""
    text = f'tool "{tool}" was interrupted by a crash; whether it acted is unknown, so it was not called again'
    return failed(f"{text} ({why})" if why else text, OutcomeStatus.UNKNOWN)


def merged(
    calls: Sequence[CallTool], outcomes: Sequence[ToolOutcome], order: Sequence[int] | None = None
) -> tuple[Any, Any]:
    """A parallel call's observation, whole and as the planner sees it: one entry a branch, by index or in `order`."""
    places = range(len(calls)) if order is None else order
    whole = tuple(_entry(at, calls[at], outcomes[at], outcomes[at].observation) for at in places)
    seen = tuple(_entry(at, calls[at], outcomes[at], outcomes[at].seen) for at in places)
    return ParallelObservation(branches=whole), ParallelObservation(branches=seen)


def _entry(index: int, call: CallTool, outcome: ToolOutcome, value: Any) -> ParallelBranchObservation:
    is_done = outcome.status is OutcomeStatus.DONE
    return ParallelBranchObservation(
        call_id=call.call_id,
        tool=call.tool,
        index=index,
        value=value if is_done else None,
        error=outcome.error,
    )
