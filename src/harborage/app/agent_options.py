"""The options of an agent: what is accepted, what the words mean, and the words of other libraries. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from inspect import isfunction, signature
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from harborage.errors import InvalidOptionError
from harborage.planner import OperatorPlannerConfig, PlannerConfig
from harborage.runtime.approval import AlwaysApprove, AlwaysDeny, ApprovalPolicy, BySideEffect
from harborage.runtime.effects.model import PlannerChoice, is_own_planner
from harborage.runtime.loop.capabilities import Capability, has_model_hook
from harborage.tools import SideEffect, ToolDescriptor
from harborage.tools.sources import ToolSource
from harborage.tools.typed import FunctionTool, how_to_bind, is_unbound

if TYPE_CHECKING:
    from harborage.runtime.loop.capabilities import InstructionsFunction

ApprovalChoice: TypeAlias = ApprovalPolicy | Mapping[str, ApprovalPolicy | str] | str
"""Which calls a person must approve: "never", "writes", "always", a policy, or one of these for each tool."""

MEANT: Final = {
    "output_type": "output",
    "result_type": "output",
    "response_format": "output",
    "response_model": "output",
    "deps_type": "deps",
    "dependencies": "deps",
    "system_prompt": "instructions",
    "prompt": "instructions",
    "functions": "tools",
    "sub_agents": "agents",
    "subagents": "agents",
    "handoffs": "agents=[agent.handoff()]",
    "llm": "model",
    "max_turns": "limits=Limits(steps=…)",
    "max_steps": "limits=Limits(steps=…)",
    "max_tokens": "limits=Limits(tokens=…)",
    "timeout": "limits=Limits(seconds=…)",
    "retries": "@tool(retries=…)",
    "approval": "approvals",
    "hooks": "capabilities",
    "middleware": "capabilities",
    "guardrails": "capabilities",
    "input_guardrails": "capabilities",
    "output_guardrails": "capabilities",
    "plugins": "capabilities",
    "session": 'agent.session("id").send(…)',
    "session_id": 'agent.session("id").send(…)',
}
"""What names mean that other libraries use for the options of an agent or of a run."""

MEANT_FOR_A_RUN: Final = MEANT | {
    name: f"agent.replace({name}=…).run(…)" for name in ("output", "instructions", "approvals", "memory", "context")
}

_TOOL_NAME: Final = r"[A-Za-z0-9_-]{1,64}"
_POLICIES: Final[Mapping[str, ApprovalPolicy]] = {
    "never": AlwaysApprove(),
    "writes": BySideEffect([SideEffect.WRITE, SideEffect.EXTERNAL, SideEffect.STATEFUL]),
    "always": AlwaysDeny(),
}


def check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise InvalidOptionError("name", name, 'the agent\'s name, first: Agent("support", model=…)')


def split_tools(tools: Any) -> tuple[tuple[ToolDescriptor[Any], ...], tuple[ToolSource, ...]]:
    """Return the tools, and the sources of tools from elsewhere, that stand in one list.

    Raises:
        InvalidOptionError: as of `checked_tools`, or two sources have the same name, or one is a class.
    """
    if isinstance(tools, ToolSource):
        raise InvalidOptionError("tools", tools, message=f"tools: give several, such as tools=[{tools.name}]")
    if isinstance(tools, str | ToolDescriptor) or not isinstance(tools, Iterable):
        return checked_tools(tools), ()
    sources: dict[str, ToolSource] = {}
    others: list[Any] = []
    for one in tools:
        if isinstance(one, (ToolDescriptor, type)) or not isinstance(one, ToolSource):
            others.append(one)
            continue
        if one.name in sources:
            text = f"tools: two sources are named {one.name!r}; give one of them another name"
            raise InvalidOptionError("tools", one, message=text)
        sources[one.name] = one
    return checked_tools(others), tuple(sources.values())


def checked_tools(tools: Any) -> tuple[ToolDescriptor[Any], ...]:
    """Accept tools that can stand together.

    Raises:
        InvalidOptionError: one is no tool, or a method without its object, or two have the same name.
    """
    if isinstance(tools, ToolDescriptor):
        raise InvalidOptionError("tools", tools, message=f"tools: give several, such as tools=[{tools.tool.name}]")
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise InvalidOptionError("tools", tools, "several tools, such as [refund]")
    found: dict[str, ToolDescriptor[Any]] = {}
    for one in tools:
        if not isinstance(one, ToolDescriptor):
            fix = f"{one.__name__} is a plain function; put @tool above it" if isfunction(one) else ""
            raise InvalidOptionError(
                "tools", one, "tools, such as functions with @tool", message=fix and f"tools: {fix}"
            )
        if is_unbound(one):
            raise InvalidOptionError("tools", one, message=f"tools: {one.tool.name}: {how_to_bind(one)}")
        if not re.fullmatch(_TOOL_NAME, one.tool.name):
            text = f"tools: {one.tool.name!r} is no name of a tool: up to 64 letters, digits, _ and -"
            raise InvalidOptionError("tools", one, message=text)
        if one.tool.name in found:
            text = f"tools: two are named {one.tool.name!r}; give one of them another: @tool(name=…)"
            raise InvalidOptionError("tools", one, message=text)
        found[one.tool.name] = one
    return tuple(found.values())


def checked_capabilities(
    capabilities: Iterable[Any], tools: Sequence[ToolDescriptor[Any]], planner: PlannerChoice | None
) -> tuple[Capability, ...]:
    """Accept capabilities whose tools can stand beside those of the agent.

    Raises:
        InvalidOptionError: one is no capability, or has tools or instructions that are none, or a tool whose name is
            taken, or a hook around a model that a planner calls itself.
    """
    if isinstance(capabilities, str | Capability) or not isinstance(capabilities, Iterable):
        raise InvalidOptionError("capabilities", capabilities, "several capabilities, such as [Moderation()]")
    given = tuple(capabilities)
    for one in given:
        if isinstance(one, type) and issubclass(one, Capability):
            text = f"capabilities: {one.__name__} is the class; write {one.__name__}()"
            raise InvalidOptionError("capabilities", one, message=text)
        if not isinstance(one, Capability):
            raise InvalidOptionError("capabilities", one, "capabilities, such as [Moderation()]")
        if not isinstance(one.instructions, str):
            raise InvalidOptionError(f"{type(one).__name__}.instructions", one.instructions, "a text")
        brought: object = one.tools
        if isinstance(brought, str) or not isinstance(brought, Iterable):
            raise InvalidOptionError(f"{type(one).__name__}.tools", brought, "several tools, such as [refund]")
    if is_own_planner(planner) and (asking := next(filter(has_model_hook, given), None)) is not None:
        text = (
            f"capabilities: {type(asking).__name__} has a hook around the model, and a planner of your own calls its "
            "model itself; pass model= with a function that makes the planner over its client"
        )
        raise InvalidOptionError("capabilities", asking, message=text)
    checked_tools((*tools, *tools_of(given)))
    return given


def tools_of(capabilities: Iterable[Capability]) -> tuple[ToolDescriptor[Any], ...]:
    """The tools that capabilities bring; a method of the class of one is bound to it."""
    return tuple(_bound(tool, one) for one in capabilities for tool in one.tools)


def _bound(tool: Any, to: Capability) -> Any:
    is_method = isinstance(tool, FunctionTool) and is_unbound(tool)
    is_its_own = is_method and any(value is tool for base in type(to).__mro__ for value in vars(base).values())
    return tool.__get__(to) if is_its_own else tool


def checked_instructions(instructions: Any, planner: PlannerChoice | None) -> str | InstructionsFunction:
    """Accept a text, or a function of the context of a run.

    Raises:
        InvalidOptionError: it is neither, a function that takes no context, or one for a planner without instructions.
    """
    if isinstance(instructions, str):
        return instructions
    if not callable(instructions) or isinstance(instructions, type):
        raise InvalidOptionError("instructions", instructions, "a text, or a function of the AgentContext")
    if planner is not None and not isinstance(planner, PlannerConfig | OperatorPlannerConfig):
        text = "instructions are for the configured planner: pass them to the planner that you make yourself"
        raise InvalidOptionError("instructions", instructions, message=text)
    try:
        signature(instructions).bind(None)
    except TypeError as error:
        name = getattr(instructions, "__name__", "the function")
        text = f"instructions: {name} is called with the AgentContext alone: write def {name}(ctx)"
        raise InvalidOptionError("instructions", instructions, message=text) from error
    except ValueError:
        pass  # it has no signature in Python
    return cast("InstructionsFunction", instructions)


def instructions_of(own: str, capabilities: Iterable[Capability]) -> str:
    """The instructions of an agent, and those that its capabilities add."""
    return "\n\n".join(text for text in (own, *(one.instructions for one in capabilities)) if text)


def policy_of(approvals: ApprovalChoice | None) -> ApprovalPolicy | Mapping[str, ApprovalPolicy] | None:
    """The policy that a word stands for; anything else is one already.

    Raises:
        InvalidOptionError: there is no such word, or it is no policy.
    """
    if isinstance(approvals, Mapping):
        return {tool: _policy(policy, f"approvals[{tool!r}]") for tool, policy in approvals.items()}
    return None if approvals is None else _policy(approvals, "approvals")


def _policy(said: object, option: str) -> ApprovalPolicy:
    if isinstance(said, str) and said in _POLICIES:
        return _POLICIES[said]
    if not callable(said):
        raise InvalidOptionError(option, said, "never, writes, always, a policy, or one for each tool")
    return said


def deps_type(deps: Any) -> Any:
    """Accept the type of what tools depend on.

    Raises:
        InvalidOptionError: it is an object, or a name.
    """
    if isinstance(deps, type) or hasattr(deps, "__origin__"):
        return deps
    if deps is None:
        return NoneType
    fix = f"deps takes the type: Agent(…, deps={type(deps).__name__}); the object goes to run(…, deps=…)"
    if isinstance(deps, str):
        fix = f"deps takes the type, not its name: deps={deps}"
    raise InvalidOptionError("deps", deps, message=fix)


def read_as(output: Any) -> Any:
    """How answers become the output.

    Raises:
        UnsupportedTypeError: it is no type with a JSON form.
    """
    if output is str:
        return None
    from harborage.runtime.outputs import output_type  # loaded for agents with another output than text

    return output_type(output)
