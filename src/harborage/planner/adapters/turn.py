"""What every adapter's planner does around its framework's one turn: end early, stream, report, decide.

The framework's part is a `Turn`: the model's answer in this package's words. Everything here is the same for all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from harborage.events import EventType, LLMCostRecordedPayload
from harborage.events.payloads import LLMCost, LLMUsage
from harborage.planner.context import OnChunk, RunContext, publish, raise_if_cancelled
from harborage.planner.decisions import CallParallel, CallTool, Decision, Finish
from harborage.planner.enums import ChunkKind, FinishReason, WakeMode
from harborage.planner.repair.asking import require_identity

__all__ = ["Chunks", "OneTurnPlanner", "TakeTurn", "Turn", "Used", "answered"]


class Used(msgspec.Struct, frozen=True):
    """What the model calls of one turn took; `cost` is in US dollars and None where the framework knows no price."""

    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None


class Turn(msgspec.Struct, frozen=True):
    """One turn of an agent's model: the calls it asks for, or how the run ends. `said` came beside the calls."""

    calls: Sequence[CallTool] = ()
    finish: Finish | None = None
    said: str = ""
    thought: str = ""
    used: Sequence[Used] = ()

    def decision(self) -> Decision:
        """The one decision that this turn means."""
        if self.finish is not None:
            return self.finish
        return self.calls[0] if len(self.calls) == 1 else CallParallel(tuple(self.calls))


class Chunks:
    """Passes on what a framework streams, in the terms of a run. Without a listener it does nothing."""

    __slots__ = ("_has_thought", "_is_begun", "_on_chunk")

    def __init__(self, on_chunk: OnChunk | None) -> None:
        self._on_chunk = on_chunk
        self._is_begun = False
        self._has_thought = False

    def __bool__(self) -> bool:
        return self._on_chunk is not None

    def say(self, delta: str) -> None:
        """A piece of the answer's text."""
        self._pass_on(delta, ChunkKind.CONTENT)

    def think(self, delta: str) -> None:
        """A piece of the thinking before it."""
        self._has_thought = self._has_thought or bool(delta)
        self._pass_on(delta, ChunkKind.REASONING)

    def restart(self) -> None:
        """The model is asked again within the step: what was streamed so far is void."""
        if self._on_chunk is not None and self._is_begun:
            self._on_chunk("", False, ChunkKind.RESET)
        self._is_begun = False

    def close(self) -> None:
        """Nothing more comes."""
        if self._on_chunk is None:
            return
        if self._has_thought:
            self._on_chunk("", True, ChunkKind.REASONING)
        self._on_chunk("", True, ChunkKind.CONTENT)

    def _pass_on(self, delta: str, kind: ChunkKind) -> None:
        if self._on_chunk is not None and delta:
            self._is_begun = True
            self._on_chunk(delta, False, kind)


TakeTurn: TypeAlias = Callable[[RunContext, Chunks], Awaitable[Turn]]
"""How a framework's agent takes one turn on a run's history, without calling any tool."""


class OneTurnPlanner:
    """Asks a framework's agent for one turn a step. Keeps nothing about any run; serves any number at once."""

    def __init__(self, name: str, take_turn: TakeTurn) -> None:
        self.name = name
        self._take_turn = take_turn

    def wake_mode(self) -> WakeMode:
        """`push`: the runtime asks again when background work has ended."""
        return WakeMode.PUSH

    async def next(self, run: RunContext) -> Decision:
        """The decision for this step.

        Raises:
            asyncio.CancelledError: the caller was cancelled; the model is not called.
            IdentityMissingError: a part of the run's identity is empty.
            Exception: what the framework or its model raised, as it is.
        """
        raise_if_cancelled()
        require_identity(run, f"the {self.name} adapter")
        ended = self._ended(run)
        if ended is not None:
            return ended
        chunks = Chunks(run.on_chunk)
        try:
            turn = await self._take_turn(run, chunks)
        finally:
            chunks.close()
        self._report(run, turn)
        return turn.decision()

    def _ended(self, run: RunContext) -> Finish | None:
        """How the run ends without asking the model, if it does."""
        if run.control.cancelled:
            return Finish(FinishReason.CANCELLED, None, {"steering": "cancelled", "via": self.name})
        deadline = run.budget.deadline
        if deadline is not None and run.now() >= deadline:
            return Finish(FinishReason.DEADLINE_EXCEEDED, None, {"deadline": deadline.isoformat(), "via": self.name})
        return None

    def _report(self, run: RunContext, turn: Turn) -> None:
        if run.on_reasoning is not None:
            run.on_reasoning(turn.thought)
        if run.on_assistant_content is not None:
            run.on_assistant_content(turn.said)
        for used in turn.used:
            publish(run, EventType.LLM_COST_RECORDED, _recorded(run, used))


def answered(payload: Any, via: str, **metadata: Any) -> Finish:
    """The finish that an agent's final output means; one that says nothing means that there is no path."""
    if payload is None or payload == "":
        return Finish(FinishReason.NO_PATH, None, {"followup": True, "via": via, **metadata})
    return Finish(FinishReason.GOAL, payload, {"goal_reach": True, "via": via, **metadata})


def _recorded(run: RunContext, used: Used) -> LLMCostRecordedPayload:
    return LLMCostRecordedPayload(
        identity=run.quadruple,
        model=used.model,
        cost=LLMCost(total_cost=used.cost or 0.0),
        usage=LLMUsage(
            prompt_tokens=used.input_tokens,
            completion_tokens=used.output_tokens,
            reasoning_tokens=used.reasoning_tokens,
            total_tokens=used.input_tokens + used.output_tokens,
        ),
        occurred_at=run.now(),
    )
