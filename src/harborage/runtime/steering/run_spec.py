"""What one run is given to a `RunLoop` with, and the executor it may bring along."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

import msgspec

from harborage.planner import CompressionRunner, Planner, RunContext

__all__ = ["DEFAULT_MAX_STEPS", "RunSpec", "ToolExecutor"]

DEFAULT_MAX_STEPS = 64
"""How many planner steps a run may take unless told otherwise."""


@runtime_checkable
class ToolExecutor(Protocol):
    """Carries out the decisions that are neither a finish nor a pause."""

    async def execute_decision(self, rc: RunContext, decision: Any) -> tuple[Any, Any]:
        """The observation as it was, and as the planner's next step sees it.

        Raises:
            DecisionShapeUnsupportedError: it cannot carry out this kind of decision.
            Exception: it failed; the text becomes the observation and the run goes on.
        """
        ...


class RunSpec(msgspec.Struct, kw_only=True):
    """What one run needs. `base` is the template of every step's context; its quadruple must be complete.

    `max_steps` below 1 means 64. `compression` works when `base.budget.token_budget` is positive. `on_tool_dispatched`
    runs after each decision that was carried out without error; when it raises, the run ends with that error.
    """

    planner: Planner | None = None
    base: RunContext | None = None
    task_id: str = ""
    max_steps: int = 0
    tool_executor: ToolExecutor | None = None
    compression: CompressionRunner | None = None
    on_tool_dispatched: Callable[[], Awaitable[None]] | None = None
