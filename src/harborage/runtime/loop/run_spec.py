"""The specification of one run of a `RunLoop`, and the executor that it may bring along."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from types import UnionType
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from harborage.errors import InvalidOptionError
from harborage.planner import (
    Budget,
    CompressionRunner,
    ControlSignals,
    Planner,
    RepairCounters,
    RunContext,
    Trajectory,
)

DEFAULT_MAX_STEPS = 64
"""The default number of planner steps that a run may take."""


@runtime_checkable
class ToolExecutor(Protocol):
    """Executes the decisions that are neither a finish nor a pause."""

    async def execute_decision(self, rc: RunContext, decision: Any) -> tuple[Any, Any]:
        """Execute a decision; return the observation, and its form for the planner's next step.

        Raises:
            DecisionShapeUnsupportedError: the executor does not support this kind of decision.
            Exception: it failed; the text becomes the observation, and the run continues.
        """
        ...


class RunSpec(msgspec.Struct, kw_only=True):
    """What one run needs. `base` is the template of every step's context; its quadruple must be complete.

    `max_steps` below 1 means 64. `compression` works when `base.budget.token_budget` is positive. `on_tool_dispatched`
    runs after each decision that was executed without error; when it raises, the run ends with that error.

    Raises:
        InvalidOptionError: a field has a value of another type; the text names the field and the values it takes.
    """

    planner: Planner | None = None
    base: RunContext | None = None
    task_id: str = ""
    max_steps: int = 0
    tool_executor: ToolExecutor | None = None
    compression: CompressionRunner | None = None
    on_tool_dispatched: Callable[[], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Accept values that a run can be made with; a planner and a template may still be missing.

        Raises:
            InvalidOptionError: a field has a value of another type.
        """
        if not isinstance(self.base, RunContext | None):
            raise _wrong("base", self.base, "a RunContext, such as RunContext(quadruple=who, goal=text)")
        if self.base is not None:
            _check_base(self.base)
        if not isinstance(self.task_id, str):
            raise _wrong("task_id", self.task_id, "a text, or an empty one for a run that is no task")
        if type(self.max_steps) is not int:
            raise _wrong("max_steps", self.max_steps, f"a whole number, or 0 for {DEFAULT_MAX_STEPS}")
        executor: Any = self.tool_executor
        if isinstance(executor, type) or not isinstance(executor, ToolExecutor | None):
            raise _wrong("tool_executor", executor, "an object with `async def execute_decision(self, rc, decision)`")
        if not isinstance(self.compression, CompressionRunner | None):
            raise _wrong("compression", self.compression, "a CompressionRunner(summariser), or None")


_BASE: Final[Mapping[str, tuple[type | UnionType, str]]] = {
    "goal": (str, "a text"),
    "query": (str, "a text"),
    "trajectory": (Trajectory | None, "a Trajectory, or None for a new one"),
    "budget": (Budget, "a Budget; Budget() limits nothing"),
    "control": (ControlSignals, "a ControlSignals"),
    "repair_counters": (RepairCounters | None, "a RepairCounters, or None"),
    "input_artifacts": (Sequence, "a list of InputArtifactView"),
    "session_artifacts": (Sequence, "a list of ArtifactManifestEntry"),
    "skills_context": (Sequence, "a list of skills"),
    "discovered_tools": (Sequence, "a list of names"),
    "pending_tool_calls": (Sequence, "a list of ToolCallDeferred"),
}
"""The fields of a template that the loop reads: the type of each, and its name in errors."""


def _check_base(base: RunContext) -> None:
    for field, (kind, expected) in _BASE.items():
        value = getattr(base, field)
        is_text = kind is Sequence and isinstance(value, str | bytes)
        if not isinstance(value, kind) or is_text:
            raise _wrong(f"base.{field}", value, expected)
    for limit in Budget.__struct_fields__:
        value = getattr(base.budget, limit)
        if limit == "deadline":
            if not isinstance(value, datetime | None):
                raise _wrong("base.budget.deadline", value, "a datetime with a time zone, or None")
        elif not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(f"base.budget.{limit}", value, "a whole number")


def _wrong(field: str, value: object, expected: str) -> InvalidOptionError:
    return InvalidOptionError(f"RunSpec: {field}", value, expected)
