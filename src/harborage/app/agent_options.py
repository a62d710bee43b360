"""The options of an agent: what is accepted, what the words mean, and the words of other libraries. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import isfunction
from types import NoneType
from typing import Any, Final, TypeAlias

from harborage.errors import InvalidOptionError
from harborage.runtime.approval import AlwaysApprove, AlwaysDeny, ApprovalPolicy, BySideEffect
from harborage.tools import SideEffect, ToolDescriptor
from harborage.tools.typed import how_to_bind, is_unbound

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
    "session": 'agent.session("id").send(…)',
    "session_id": 'agent.session("id").send(…)',
}
"""What names mean that other libraries use for the options of an agent or of a run."""

MEANT_FOR_A_RUN: Final = MEANT | {
    name: f"agent.replace({name}=…).run(…)"
    for name in ("model", "output", "instructions", "tools", "approvals", "memory", "context")
}

_POLICIES: Final[Mapping[str, ApprovalPolicy]] = {
    "never": AlwaysApprove(),
    "writes": BySideEffect([SideEffect.WRITE, SideEffect.EXTERNAL, SideEffect.STATEFUL]),
    "always": AlwaysDeny(),
}


def check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise InvalidOptionError("name", name, 'the agent\'s name, first: Agent("support", model=…)')


def checked_tools(tools: Iterable[Any]) -> tuple[ToolDescriptor[Any], ...]:
    """Accept tools that can stand together.

    Raises:
        InvalidOptionError: one is no tool, or a method without its object, or two have the same name.
    """
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
        if one.tool.name in found:
            text = f"tools: two are named {one.tool.name!r}; give one of them another: @tool(name=…)"
            raise InvalidOptionError("tools", one, message=text)
        found[one.tool.name] = one
    return tuple(found.values())


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
    from harborage.app.outputs import output_type  # loaded for agents with another output than text

    return output_type(output)
