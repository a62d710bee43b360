"""Planners that several tests need; each decides by what it is shown, so that any worker may ask it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from harborage.llm import CompleteRequest, LLMClient
from harborage.planner import Budget, Decision, Finish, FinishReason, PauseReason, RequestPause, RunContext, ToolContext

Line: TypeAlias = Decision | Exception | Callable[[RunContext], Decision | None] | None
"""A decision, a function that makes it, or an error to raise."""

DONE = Finish(FinishReason.GOAL, "done")


class StepPlanner:
    """Returns the line for the number of steps that the run has taken."""

    def __init__(self, *lines: Line) -> None:
        self._lines = lines

    async def next(self, run: RunContext) -> Any:
        line = self._lines[len(run.trajectory.steps if run.trajectory else ())]
        if isinstance(line, Exception):
            raise line
        return line(run) if callable(line) else line


class HandlePlanner:
    """Keeps a live object, named `browser`, while it waits for an answer."""

    async def next(self, run: RunContext) -> Decision:
        assert run.trajectory is not None
        run.trajectory.tool_context = ToolContext(handles=("browser",))
        if run.trajectory.resume_hint is None:
            return RequestPause(PauseReason.AWAIT_INPUT)
        return Finish(FinishReason.GOAL, "went on")


class BudgetPlanner:
    """Makes the same decision at each step, after a call of `client` if there is one, and keeps the budgets it saw."""

    def __init__(self, decision: Decision, client: LLMClient | None = None) -> None:
        self.seen: list[Budget] = []
        self._decision = decision
        self._client = client

    async def next(self, run: RunContext) -> Decision:
        self.seen.append(run.budget)
        if self._client is not None:
            await self._client.complete(CompleteRequest())
        return self._decision
