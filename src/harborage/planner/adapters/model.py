"""What adapting an agent gives, and what can go wrong with it. No framework is imported here.

Every adapter makes the same three things of an agent: a planner, tool descriptors and approval policies.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import msgspec

from harborage.errors import MissingExtraError
from harborage.planner.errors import InvalidConfigError, PlannerError
from harborage.tools import (
    CallContext,
    ErrorClass,
    Tool,
    ToolBody,
    ToolDescriptor,
    ToolOptions,
    ToolPolicy,
    ToolResult,
)

if TYPE_CHECKING:
    from harborage.planner.context import Planner

__all__ = [
    "Adapted",
    "AdapterError",
    "AdapterToolError",
    "AdapterUnsupportedError",
    "ApprovalsNotTakenError",
    "GatePolicy",
    "Gates",
    "adapted",
    "always_ask",
    "framework",
]

GatePolicy: TypeAlias = Callable[[Any], bool | tuple[bool, str] | Awaitable[bool | tuple[bool, str]]]
"""Answers for one call whether it needs a person's approval; takes what approval gates ask with (`tool`, `args`, …)."""


_ONCE: Final = ToolPolicy(max_retries=0)
"""What frameworks do with a call that fails: they show it to the model and repeat nothing by themselves."""


class AdapterError(PlannerError):
    """An agent of another framework could not be run as a planner."""


class AdapterUnsupportedError(AdapterError):
    """This agent cannot be cut into steps. `framework` and `what` name the part; the message says what to do."""

    def __init__(self, framework: str = "", what: str = "", why: str = "") -> None:
        self.framework = framework
        self.what = what
        super().__init__(f"{framework}: {what} cannot be run one decision a step: {why}")


class AdapterToolError(AdapterError):
    """A framework's tool refused its call, or asked for something that only its own framework does."""

    error_class: ClassVar[ErrorClass] = ErrorClass.PERMANENT


class ApprovalsNotTakenError(AdapterToolError):
    """A tool that asks for approval was called by a runtime that was not given `Adapted.approvals`."""

    had_no_effect: ClassVar[bool] = True

    def __init__(self, tool: str = "") -> None:
        self.tool = tool
        super().__init__(
            f"tool {tool!r} asks for approval in its framework, and nobody holds it here: "
            "give the runtime approvals=adapted.approvals"
        )


class Gates:
    """The approvals that an agent's own tools ask for, and whether a program has taken them over."""

    def __init__(self, policies: Mapping[str, GatePolicy]) -> None:
        self.policies = dict(policies)
        self.are_taken = False

    def guarded(self, name: str, body: ToolBody) -> ToolBody:
        """`body`, which refuses to run while nobody has taken over the approvals it needs."""
        if name not in self.policies:
            return body

        async def call(args: bytes, context: CallContext) -> ToolResult:
            if not self.are_taken:
                raise ApprovalsNotTakenError(name)
            return await body(args, context)

        return call


class Adapted:
    """An agent of another framework, ready for `Runtime(planner=…, tools=…, approvals=…)` and `Agent(…)`.

    `planner` serves any number of runs at once. `tools` are the agent's own tools; add others beside them as you like.
    """

    def __init__(self, planner: Planner, tools: Sequence[ToolDescriptor], gates: Gates) -> None:
        self.planner = planner
        self.tools = tuple(tools)
        self._gates = gates

    @property
    def approvals(self) -> dict[str, GatePolicy]:
        """An approval policy for each tool that asks for approval in its framework; empty when none does.

        Give these to the runtime, alone or beside your own. A tool that asks for approval refuses to run as long as
        nobody has read them, so that forgetting them opens nothing.
        """
        self._gates.are_taken = True
        return dict(self._gates.policies)


def always_ask(request: Any) -> tuple[bool, str]:
    """The policy of a tool that its framework holds back at every call."""
    return True, "the agent's own definition of this tool asks for approval"


def adapted(
    planner: Planner,
    tools: Sequence[tuple[Tool, ToolBody]],
    policies: Mapping[str, GatePolicy],
    options: Mapping[str, ToolOptions] | None,
) -> Adapted:
    """What adapting an agent gives: its tools with what the program says about them, behind the approvals they need.

    Raises:
        InvalidConfigError: `options` speak of a tool that the agent does not have.
    """
    said = dict(options or {})
    strange = sorted(said.keys() - {tool.name for tool, _ in tools})
    if strange:
        raise InvalidConfigError(f"tool_options name tools that the agent does not have: {', '.join(strange)}")
    gates = Gates(policies)
    descriptors = [
        ToolDescriptor(
            tool=msgspec.structs.replace(tool, **{"policy": _ONCE, **said.get(tool.name, {})}),
            body=gates.guarded(tool.name, body),
        )
        for tool, body in tools
    ]
    return Adapted(planner, descriptors, gates)


def framework(module: str, extra: str, what: str) -> Any:
    """The module of a framework, imported now.

    Raises:
        MissingExtraError: the framework is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # What the framework itself lacks is its own error, not a missing extra.
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingExtraError(extra, what) from error
