"""The agents that are measured: one tool, a planner that calls it a fixed number of times."""

from __future__ import annotations

from harborage import CallTool, Finish, FinishReason, Identity, RunContext, Runtime, SideEffect, tool
from harborage.planner import Decision
from harborage.runtime.options import RuntimeOptions
from harborage.tools import ToolDescriptor

__all__ = ["WHO", "StepPlanner", "add_tool", "runtime"]

WHO = Identity("bench", "bench", "bench")
_CALL = CallTool("add", b'{"a":1,"b":2}')
_DONE = Finish(FinishReason.GOAL)


class StepPlanner:
    """Calls `add` as often as the goal says, then finishes."""

    async def next(self, run: RunContext) -> Decision:
        assert run.trajectory is not None
        return _CALL if len(run.trajectory.steps) < int(run.goal) else _DONE


def add_tool() -> ToolDescriptor:
    """The tool of every benchmark."""

    @tool(side_effects=SideEffect.READ)
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return add


def runtime(max_steps: int = 2000) -> Runtime:
    """A runtime with all events and the journal in memory, as a program gets it by default."""
    return Runtime(planner=StepPlanner(), tools=[add_tool()], options=RuntimeOptions(max_steps=max_steps))
