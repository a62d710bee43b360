"""Asking a model within one step: how often it may be asked, what it got wrong, and how the run ends if it fails."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import force_setattr, replace

from harborage.events import EventType, RepairExhaustedPayload
from harborage.identity import Quadruple, bound, current_quadruple
from harborage.llm import ChatMessage, CompleteRequest, Content, Role
from harborage.planner.context import publish, raise_if_cancelled
from harborage.planner.decisions import ChunkKind, Finish, FinishReason
from harborage.planner.errors import RepairExhaustedError
from harborage.planner.text import truncate

if TYPE_CHECKING:
    from harborage.llm import CompleteResponse, LLMClient
    from harborage.planner.context import OnChunk, RunContext

DEFAULT_REPAIR_ATTEMPTS: Final = 3
"""Calls of the model that one step may make, by default."""

DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES: Final = 2
"""Failures over arguments after which a step gives up, by default."""


class RepairLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of repairing in one step; a number that is not positive means the default.

    `repair_attempts` counts every call of the model, the first one included. Without `arg_fill_enabled` nothing is
    checked and the model is not asked again: what it wrote is used as it is, or fails.
    """

    repair_attempts: int = DEFAULT_REPAIR_ATTEMPTS
    max_consecutive_arg_failures: int = DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES
    arg_fill_enabled: bool = True

    def __post_init__(self) -> None:
        if self.repair_attempts <= 0:
            force_setattr(self, "repair_attempts", DEFAULT_REPAIR_ATTEMPTS)
        if self.max_consecutive_arg_failures <= 0:
            force_setattr(self, "max_consecutive_arg_failures", DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES)


_REASON_BYTES = 256
_CHAIN_BYTES = 1024
_ECHO_BYTES = 8 * 1024


class Mistake(StrEnum):
    """The kinds of mistakes: unusable arguments, several actions instead of one, a finish without an answer."""

    ARGS = "args"
    MULTI_ACTION = "multi_action"
    FINISH = "finish"


class RepairSignals(msgspec.Struct, frozen=True):
    """What had to be repaired to get a step's decision: its arguments, several actions at once, or its finish."""

    args_repaired: bool = False
    multi_action: bool = False
    finish_repaired: bool = False


class Attempts:
    """The attempts of one step and its failures. Make one for each step; it is never shared."""

    __slots__ = ("_limits", "attempts", "consecutive", "kinds", "reasons")

    def __init__(self, limits: RepairLimits) -> None:
        self._limits = limits
        self.attempts = 0
        self.consecutive = 0
        self.kinds: set[Mistake] = set()
        self.reasons: list[str] = []

    @property
    def may_ask(self) -> bool:
        """Whether the step may call the model (again)."""
        return (
            self.attempts < self._limits.repair_attempts
            and self.consecutive < self._limits.max_consecutive_arg_failures
        )

    @property
    def signals(self) -> RepairSignals:
        """What was repaired so far."""
        return RepairSignals(
            args_repaired=Mistake.ARGS in self.kinds,
            multi_action=Mistake.MULTI_ACTION in self.kinds,
            finish_repaired=Mistake.FINISH in self.kinds,
        )

    def note(self, reason: str, kind: Mistake = Mistake.ARGS) -> None:
        """Record one failed attempt; several actions at once do not count as a failure over arguments."""
        self.reasons.append(truncate(reason, _REASON_BYTES))
        self.kinds.add(kind)
        if kind is not Mistake.MULTI_ACTION:
            self.consecutive += 1

    def give_up(self, run: RunContext) -> Finish:
        """Return the finish of a run whose model gave no usable answer, and publish it."""
        exhausted = RepairExhaustedPayload(
            identity=run.quadruple,
            attempts=self.attempts,
            consecutive_arg_failures=self.consecutive,
            reasons=tuple(self.reasons),
            occurred_at=run.now(),
        )
        publish(run, EventType.PLANNER_REPAIR_EXHAUSTED, exhausted)
        return Finish(
            FinishReason.NO_PATH,
            None,
            {
                "followup": True,
                "repair_attempts": self.attempts,
                "repair_consecutive_arg_failures": self.consecutive,
                "repair_chain": truncate("; ".join(self.reasons), _CHAIN_BYTES),
                "repair_error": str(RepairExhaustedError()),
            },
        )


def add_correction(original: CompleteRequest, answer: str, correction: str) -> CompleteRequest:
    """Return the original request, followed by the model's bad answer and its correction.

    Corrections do not pile up: each one starts from the original. A blank answer is left out, because providers refuse
    an empty message; of a long answer the beginning is enough to recognise it.
    """
    echo = [ChatMessage(Role.ASSISTANT, Content(text=truncate(answer, _ECHO_BYTES)))] if answer.strip() else []
    return replace(original, messages=(*original.messages, *echo, ChatMessage(Role.USER, Content(text=correction))))


async def call_model(run: RunContext, client: LLMClient, request: CompleteRequest) -> CompleteResponse:
    """Call the model under the run's identity. What the client raises passes through as it is.

    Raises:
        asyncio.CancelledError: the caller was cancelled; reported before the model is called.
    """
    raise_if_cancelled()
    with _bind_run(run.quadruple):
        return await client.complete(request)


def with_stream(request: CompleteRequest, on_chunk: OnChunk | None, **changes: Any) -> CompleteRequest:
    """Return the request with `changes`, and with its answer streamed to `on_chunk` unless that is None."""
    if on_chunk is None:
        return replace(request, **changes) if changes else request
    return replace(
        request,
        **changes,
        stream=True,
        on_content=partial(_pass_on, on_chunk, ChunkKind.CONTENT),
        on_reasoning=partial(_pass_on, on_chunk, ChunkKind.REASONING),
        on_reset=partial(on_chunk, "", False, ChunkKind.RESET),
    )


def reset_stream(run: RunContext) -> None:
    """Publish to the stream that the step asks its model again, so that what was streamed so far is void."""
    if run.on_chunk is not None:
        run.on_chunk("", False, ChunkKind.RESET)


def _bind_run(who: Quadruple) -> AbstractContextManager[None]:
    """Bind the identity that a model client reads, unless the host has bound it, which it usually has."""
    return nullcontext() if current_quadruple() == who else bound(who)


def _pass_on(on_chunk: OnChunk, kind: ChunkKind, delta: str, done: bool) -> None:
    on_chunk(delta, done, kind)
