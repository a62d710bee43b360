"""What a server offers as tools of an agent: each listed tool, resource and prompt with how to call it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from harborage.tools.enums import Loading, SideEffect, Transport
from harborage.tools.errors import UnsupportedTypeError
from harborage.tools.mcp.errors import cleaned
from harborage.tools.mcp.values import RemoteTool
from harborage.tools.model import CallContext, Tool, ToolDescriptor, ToolResult
from harborage.tools.schema import describe_tool, schema_validator

if TYPE_CHECKING:
    from harborage.tools.mcp.options import MCP
    from harborage.tools.mcp.values import Listing, Prompt, Resource
    from harborage.tools.policy import ToolPolicy

_NO_ARGS: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}


class Described(msgspec.Struct, frozen=True):
    """A tool of a server with what a call of it needs: whether it is called alone, and the check of its result."""

    remote: RemoteTool
    name: str
    is_guarded: bool
    check_result: Callable[[Any], None] | None
    timeout_s: float | None


CallTool: TypeAlias = Callable[[Described, bytes, CallContext[Any]], Awaitable[ToolResult]]
CallOther: TypeAlias = Callable[[str, bytes, CallContext[Any]], Awaitable[ToolResult]]


class MCPTool(ToolDescriptor[Any], frozen=True, dict=True, kw_only=True):
    """A tool of a server. It is given the services of its run, for its progress and its questions. `mark` returns the
    digest of what the server says of it now."""

    takes_context: bool = True
    mark: Callable[[], str] | None = None


def describe(
    server: MCP, listing: Listing, *, call: CallTool, read: CallOther, get: CallOther, mark: Callable[[str], str]
) -> tuple[tuple[ToolDescriptor[Any], ...], tuple[str, ...]]:
    """Return what a server lists as tools, and why others of it are left out."""
    found: list[ToolDescriptor[Any]] = []
    left_out: list[str] = []
    for remote in listing.tools:
        try:
            found.append(_tool(server, remote, call, mark))
        except (UnsupportedTypeError, ValueError) as error:
            reason = cleaned(str(error).partition("\n")[0], 300)
            left_out.append(f"the tool {cleaned(remote.name, 80)!r} is left out: {reason}")
    found += [_resource(server, one, read) for one in listing.resources]
    found += [_prompt(server, one, get) for one in listing.prompts]
    return tuple(found), tuple(left_out)


def _tool(server: MCP, remote: RemoteTool, call: CallTool, mark: Callable[[str], str]) -> ToolDescriptor[Any]:
    effect = _effect(server, remote)
    is_safe = effect in (SideEffect.PURE, SideEffect.READ)
    may_repeat = server.may_repeat(remote.name) or (server.trust_hints and remote.is_idempotent)
    name = f"{server.name}_{remote.name}"
    shown = Tool(
        name=name,
        description=remote.description,
        args_schema=remote.args_schema,
        out_schema=remote.out_schema,
        side_effects=effect,
        idempotent=may_repeat,
        source=server.name,
        transport=Transport.MCP,
        policy=_policy(server, remote.name, is_repeatable=is_safe or may_repeat),
    )
    checked = describe_tool(replace(shown, out_schema={}), _unreachable)
    described = Described(
        remote=remote,
        name=name,
        is_guarded=not (is_safe or may_repeat),
        check_result=schema_validator(remote.out_schema, f"{name} out_schema") if remote.out_schema else None,
        timeout_s=checked.policy.timeout_s,
    )
    return MCPTool(
        tool=shown,
        body=partial(call, described),
        validate_args=checked.validate_args,
        approval="always" if server.wants_approval(remote.name) else None,
        unavailable=remote.problem,
        mark=partial(mark, remote.name),
    )


async def _unreachable(args: bytes, call: CallContext[Any]) -> ToolResult:
    raise NotImplementedError


def _effect(server: MCP, remote: RemoteTool) -> SideEffect:
    said = server.effect_of(remote.name)
    if said is not None:
        return said
    is_read = server.trust_hints and remote.is_read_only and not remote.is_destructive
    return SideEffect.READ if is_read else SideEffect.EXTERNAL


def _policy(server: MCP, tool: str, *, is_repeatable: bool) -> ToolPolicy:
    own = server.tool_policies.get(tool)
    if own is not None:
        return own
    # Retries that are said for all tools of a server are for those that may be repeated.
    return server.policy if is_repeatable else msgspec.structs.replace(server.policy, max_retries=None)


def _resource(server: MCP, listed: Resource, read: CallOther) -> ToolDescriptor[Any]:
    about = listed.description or listed.title or listed.name
    kind = f" ({listed.mime_type})" if listed.mime_type else ""
    shown = Tool(
        name=f"{server.name}__resource.{listed.uri}",
        description=f"Read {cleaned(listed.uri, 300)}{kind}. {about}".strip(),
        args_schema=_NO_ARGS,
        side_effects=SideEffect.READ,
        loading=Loading.DEFERRED,
        source=server.name,
        transport=Transport.MCP,
        policy=server.policy,
    )
    made = describe_tool(shown, partial(read, listed.uri))
    return MCPTool(tool=shown, body=made.body, validate_args=made.validate_args)


def _prompt(server: MCP, listed: Prompt, get: CallOther) -> ToolDescriptor[Any]:
    properties = {
        one.name: {"type": "string"} | ({"description": one.description} if one.description else {})
        for one in listed.arguments
    }
    schema: dict[str, Any] = {**_NO_ARGS, "properties": properties}
    if required := sorted(one.name for one in listed.arguments if one.required):
        schema["required"] = required
    shown = Tool(
        name=f"{server.name}__prompt.{listed.name}",
        description=listed.description or f"The prompt {cleaned(listed.name, 80)}.",
        args_schema=schema,
        side_effects=SideEffect.READ,
        loading=Loading.DEFERRED,
        source=server.name,
        transport=Transport.MCP,
        policy=server.policy,
    )
    made = describe_tool(shown, partial(get, listed.name))
    return MCPTool(tool=shown, body=made.body, validate_args=made.validate_args)
