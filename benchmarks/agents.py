"""The agents that are measured: one tool, and a planner or a model that calls it as often as the goal says.

Every stub waits for its answer as for I/O that is ready at once: what never suspends skips work that real agents pay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from benchmarks.gate import OPEN, Gate, answer_arrives
from harborage import CallTool, Finish, FinishReason, Identity, RunContext, Runtime, SideEffect, tool
from harborage.llm import (
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    LLMClient,
    ModelProfile,
    ToolCallStructured,
    Usage,
)
from harborage.llm.config import LLM_DRIVERS
from harborage.llm.streaming import AnswerBuilder
from harborage.planner import Decision
from harborage.runtime.effects.options import RuntimeOptions
from harborage.tools import ToolDescriptor

WHO = Identity("bench", "bench", "bench")
_CALL = CallTool("add", b'{"a":1,"b":2}')
_DONE = Finish(FinishReason.GOAL)
_USAGE = Usage(prompt_tokens=100, completion_tokens=10, total_tokens=110)
_ANSWER = CompleteResponse(
    "", (ToolCallStructured("call-0", "add", b'{"a":1,"b":2}'),), finish_reason="tool_calls", usage=_USAGE
)
_LAST = CompleteResponse("3", finish_reason="stop", usage=_USAGE)
_gates = [OPEN]
_names = count()


@contextmanager
def gated(gate: Gate) -> Iterator[None]:
    """Hold the runs of this block's stubs at `gate`."""
    _gates.append(gate)
    try:
        yield
    finally:
        _gates.pop()


class StepPlanner:
    """Calls `add` as often as the goal says, then finishes."""

    async def next(self, run: RunContext) -> Decision:
        assert run.trajectory is not None
        taken = len(run.trajectory.steps)
        await _gates[-1].passed(taken)
        return _CALL if taken < int(run.goal) else _DONE


class _StepModel:
    """Calls `add` as often as the goal says, then answers."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        first = next(index for index, message in enumerate(request.messages) if message.role == "user")
        wanted = int((request.messages[first].content.text or "").removeprefix("Goal:\n"))
        taken = (
            sum(message.role == "tool" for message in request.messages[-2:])
            and (len(request.messages) - first - 1) // 2
        )
        await _gates[-1].passed(taken)
        return _ANSWER if taken < wanted else _LAST

    async def close(self) -> None:
        """Nothing to close."""


class _StreamingModel:
    """Streams its answer, waiting for each piece."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = pieces

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        with AnswerBuilder(request, provider="bench") as answer:
            for piece in self._pieces:
                await answer_arrives()
                answer.content(piece)
            answer.finish("stop")
            return answer.answer()

    async def close(self) -> None:
        """Nothing to close."""


def add_tool() -> ToolDescriptor:
    """The tool of every benchmark."""

    @tool(effects=SideEffect.READ)
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        await answer_arrives()
        return a + b

    return add


def runtime(max_steps: int = 2000) -> Runtime:
    """A runtime over a planner of one's own, all else as a program gets it by default."""
    return Runtime(planner=StepPlanner(), tools=[add_tool()], options=RuntimeOptions(max_steps=max_steps))


def model_runtime(max_steps: int = 2000) -> Runtime:
    """A runtime over the configuration of a model, all else as a program gets it by default; the provider is a stub."""
    return Runtime(model=_configured(_StepModel()), tools=[add_tool()], options=RuntimeOptions(max_steps=max_steps))


def streaming_runtime(pieces: Sequence[str]) -> Runtime:
    """A runtime over a model that answers every goal at once, streamed in these pieces."""
    return Runtime(model=_configured(_StreamingModel(pieces)))


def _configured(client: LLMClient) -> ConfigSnapshot:
    """A configuration that opens `client` with every layer that a provider's driver gets."""
    name = f"bench-{next(_names)}"
    LLM_DRIVERS.register(name, lambda config, deps: client)
    profile = ModelProfile(context_window_tokens=1_000_000)
    return ConfigSnapshot(driver=name, provider="bench", model="stub", profiles={"stub": profile})
