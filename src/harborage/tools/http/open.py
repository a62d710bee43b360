"""The open side of HTTP tools: descriptors of operations, and the client that is made with the first call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.secrets import SecretReader
from harborage.tools.errors import ToolError, UnsupportedTypeError
from harborage.tools.http.operation import Operation
from harborage.tools.http.values import Auth
from harborage.tools.model import CallContext, Tool, ToolDescriptor, ToolResult
from harborage.tools.schema import describe_tool
from harborage.tools.text import clean_text

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.tools.http.caller import Caller
    from harborage.tools.sources import SourceServices


_MOST_REASON: Final = 512


class HTTPTool(msgspec.Struct, frozen=True):
    """A tool, and the operation that it calls; one that is unavailable calls none."""

    descriptor: ToolDescriptor[Any]
    operation: Operation | None = None


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """How the operations of a source are reached. `trusted` are addresses that the operator wrote."""

    auth: Auth | None = None
    headers: Mapping[str, Any] = {}
    trusted: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    folder: Path = Path()


class OpenHTTP:
    """The tools of a source that a runtime has opened."""

    def __init__(self, tools: Sequence[HTTPTool], peer: Peer, services: SourceServices) -> None:
        self._peer = peer
        self._services = services
        self._caller: Caller | None = None
        self._tools = [self._described(one) for one in tools]

    def _described(self, one: HTTPTool) -> ToolDescriptor[Any]:
        if one.operation is None:
            return one.descriptor
        return msgspec.structs.replace(one.descriptor, body=partial(self._call, one.operation))

    async def list_tools(self, _who: Quadruple) -> Sequence[ToolDescriptor[Any]]:
        """Return the tools; nothing has to be requested for it."""
        return self._tools

    async def aclose(self) -> None:
        """Close the connections, if there was a call."""
        caller, self._caller = self._caller, None
        if caller is not None:
            await caller.aclose()

    async def _call(self, operation: Operation, args: bytes, call: CallContext[Any]) -> ToolResult:
        if self._caller is None:
            self._caller = self._open()
        return await self._caller.call(operation, args, call)

    def _open(self) -> Caller:
        from harborage.tools.guard import AddressGuard  # the client loads with the first call
        from harborage.tools.http.caller import Caller

        peer, services = self._peer, self._services
        guard = AddressGuard(peer.trusted, allow_hosts=(*peer.allow_hosts, *services.allow_hosts))
        secrets = SecretReader(folder=peer.folder, clock=services.clock)
        return Caller(services, guard, auth=peer.auth, headers=peer.headers, secrets=secrets)


def make_tool(tool: Tool, operation: Operation, approval: str | None = None) -> HTTPTool:
    """Return the tool of an operation, which checks its arguments; it is unavailable if its schema is none."""
    try:
        found = describe_tool(tool, partial(_refuse, "its source is not open: name it in tools=[…] of an agent"))
    except UnsupportedTypeError as error:
        return unavailable_tool(msgspec.structs.replace(tool, args_schema={}), error.reason)
    return HTTPTool(msgspec.structs.replace(found, approval=approval), operation)


def unavailable_tool(tool: Tool, why: str) -> HTTPTool:
    """Return a tool that people see with the reason why no run is offered it."""
    reason = clean_text(why, _MOST_REASON, one_line=True)
    return HTTPTool(ToolDescriptor(tool, partial(_refuse, reason), unavailable=reason))


async def _refuse(why: str, _args: bytes, _call: CallContext[Any]) -> ToolResult:
    raise ToolError(why)
