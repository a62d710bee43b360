"""The steps that need nothing but the run: call a tool, finish, pause.

Every planner call asks the steps in order until one claims it, so a step without a guard claims every call. Steps are
shared by all runs and hold no state of any of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import msgspec

from harborage import codec
from harborage.callables import settled
from harborage.planner.context import RunContext
from harborage.planner.decisions import CallTool, Decision, Finish, RequestPause
from harborage.planner.enums import FinishReason, PauseReason
from harborage.planner.errors import InvalidConfigError

Guard: TypeAlias = Callable[[RunContext], bool | Awaitable[bool]]
"""Returns whether a step claims this call; a step without a guard claims every call. Plain or async."""

StepResult: TypeAlias = tuple[Decision | None, bool]
"""A decision and True from a step that claims the call; None and False from one that leaves it."""

SKIPPED: Final[StepResult] = (None, False)


@runtime_checkable
class DecisionTreeStep(Protocol):
    """One step of a decision tree. Never: holds state of a run that is not keyed by the whole run."""

    async def decide(self, run: RunContext) -> StepResult:
        """Return `(decision, True)` to claim the call, `(None, False)` to leave it to the next step.

        Raises:
            Exception: the step failed, and with it the run; a failing step is never skipped.
        """
        ...


class CallToolStep(msgspec.Struct, frozen=True):
    """Calls one tool with the arguments that `args_builder` makes: JSON text as bytes, or a dict to be written as such.

    Without a guard it calls the tool at every step; let the guard look at `run.trajectory.steps`.
    """

    tool: str = ""
    args_builder: Callable[[RunContext], bytes | dict[str, Any] | Awaitable[bytes | dict[str, Any]]] | None = None
    when: Guard | None = None

    async def decide(self, run: RunContext) -> StepResult:
        """Return the call.

        Raises:
            InvalidConfigError: the tool or the builder is missing, or the builder returned another type.
        """
        if not await is_claimed(self.when, run):
            return SKIPPED
        if not self.tool:
            raise InvalidConfigError("CallToolStep: tool is empty; name the tool to call")
        if self.args_builder is None:
            raise InvalidConfigError("CallToolStep: args_builder is missing; return b'{}' for a call without arguments")
        return CallTool(self.tool, _encode_args(await settled(self.args_builder(run)))), True


class FinishStep(msgspec.Struct, frozen=True):
    """Ends the run. The run's id is added to the metadata unless the builder set one."""

    reason: FinishReason | str = ""
    payload_builder: Callable[[RunContext], Any] | None = None
    metadata_builder: Callable[[RunContext], dict[str, Any] | Awaitable[dict[str, Any]]] | None = None
    when: Guard | None = None

    async def decide(self, run: RunContext) -> StepResult:
        """Return the finish; without builder and run id its metadata is None.

        Raises:
            InvalidConfigError: the reason is unknown.
        """
        if not await is_claimed(self.when, run):
            return SKIPPED
        if self.reason not in FinishReason:
            raise InvalidConfigError(
                f"FinishStep: reason {self.reason!r} is unknown; use one of {', '.join(FinishReason)}"
            )
        payload = None if self.payload_builder is None else await settled(self.payload_builder(run))
        given = None if self.metadata_builder is None else await settled(self.metadata_builder(run))
        metadata = dict(given) if given else {}
        if run.quadruple.run_id:
            metadata.setdefault("run_id", run.quadruple.run_id)
        return Finish(FinishReason(self.reason), payload, metadata or None), True


class PauseStep(msgspec.Struct, frozen=True):
    """Asks for a pause, with an empty payload unless there is a builder.

    Without a guard it pauses again at every step. `run.trajectory.resume_hint` has the answer at the one call after it
    arrived: let another step claim that call, and let the guard see in the history that it did.
    """

    reason: PauseReason | str = ""
    payload_builder: Callable[[RunContext], dict[str, Any] | Awaitable[dict[str, Any]]] | None = None
    when: Guard | None = None

    async def decide(self, run: RunContext) -> StepResult:
        """Return the request.

        Raises:
            InvalidConfigError: the reason is unknown.
        """
        if not await is_claimed(self.when, run):
            return SKIPPED
        if self.reason not in PauseReason:
            raise InvalidConfigError(
                f"PauseStep: reason {self.reason!r} is unknown; use one of {', '.join(PauseReason)}"
            )
        payload = {} if self.payload_builder is None else await settled(self.payload_builder(run))
        return RequestPause(PauseReason(self.reason), payload), True


async def is_claimed(when: Guard | None, run: RunContext) -> bool:
    """Whether a step with this guard claims the call."""
    return when is None or bool(await settled(when(run)))


def _encode_args(args: object) -> bytes:
    match args:
        case bytes():
            return args
        case dict():
            return codec.encode(args, "args")
        case _:
            raise InvalidConfigError(
                f"CallToolStep: args_builder returned a {type(args).__name__}; return JSON text as bytes, or a dict"
            )
