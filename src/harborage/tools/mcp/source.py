"""An MCP server that a runtime has opened: its connections, what it offers, and calls of that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
import msgspec
from pydantic import TypeAdapter

from harborage.concurrency import CancelScope, Crew
from harborage.errors import error_reason
from harborage.identity import IdentityMissingError
from harborage.secrets import SecretMissingError
from harborage.tools.enums import ErrorClass
from harborage.tools.errors import ToolError, ToolInvalidArgsError, ToolUnansweredError
from harborage.tools.mcp.connection import Connection, NotConnectedError
from harborage.tools.mcp.descriptors import Described, describe
from harborage.tools.mcp.errors import MCPError, MCPRequestError, MCPUnreachableError
from harborage.tools.mcp.failures import LostSession, failure_of, is_of_connection, why_unopened
from harborage.tools.mcp.http import EXCHANGE, Exchange, http_transport
from harborage.tools.mcp.listing import PAGE_S, read_listing
from harborage.tools.mcp.pool import Pool
from harborage.tools.mcp.results import contents_of, prompt_text, result_of
from harborage.tools.mcp.status import ServerStatus
from harborage.tools.mcp.stdio import Program, stdio_transport
from harborage.tools.mcp.streams import Watch, dropped_text
from harborage.tools.mcp.values import KEY_META, Listing, ServerTransport
from harborage.tools.model import ToolResult

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.tools.mcp.options import MCP
    from harborage.tools.model import CallContext, ToolDescriptor
    from harborage.tools.sources import SourceServices

CONNECT_S: Final = 25.0
"""Seconds that a call waits for a connection at most."""

_ENDED_S: Final = 1.0
_RESULT: Final[TypeAdapter[Any]] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
_IDENTITY: Final = ("tenant", "user", "session")


class OpenMCP:
    """The open side of one server. `server` is what an operator says of it, `status` how its connection has been."""

    def __init__(self, server: MCP, services: SourceServices) -> None:
        self.server = server
        self.status = ServerStatus(services.clock)
        self.services = services
        self._logger = services.logger
        self._crew = Crew(self._failed)
        self._pool = self._make_pool()
        self._listing: Listing | None = None
        self._described: tuple[ToolDescriptor[Any], ...] = ()
        self._is_stale = False
        self._tokens = 0
        self._exchange = Exchange()
        self._program: Program | None = None
        self._dropped: dict[str, str] = {}

    # ── What it offers ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def listing(self) -> Listing | None:
        """What the server listed last; None before that."""
        return self._listing

    async def list_tools(self, who: Quadruple) -> Sequence[ToolDescriptor[Any]]:
        """Return what the server offers, as tools; it is asked again only where it said that something has changed.

        Raises:
            MCPError: it cannot be asked now.
        """
        connection = await self._pool.shared(CONNECT_S)
        if self._is_stale:
            await self._list(connection)
        return self._described

    async def discover(self) -> Listing:
        """Ask the server again what it offers.

        Raises:
            MCPError: it cannot be asked now.
        """
        connection = await self._pool.shared(CONNECT_S)
        await self._list(connection)
        assert self._listing is not None
        return self._listing

    async def probe(self) -> float:
        """Return how many seconds the server takes to answer.

        Raises:
            MCPError: it does not.
        """
        connection = await self._pool.shared(CONNECT_S)
        clock = self.services.clock
        began = clock.monotonic()
        with CancelScope(clock, PAGE_S):
            try:
                await (connection.session.list_tools() if connection.is_modern else connection.session.send_ping())
            except Exception as error:
                await self._wait_for_end(connection, error)
                raise self._error(error, connection, "ping") from error
            return clock.monotonic() - began
        raise MCPUnreachableError(self.server.name, f"it did not answer within {PAGE_S:g} s", ErrorClass.TIMEOUT)

    async def _opened(self, connection: Connection) -> None:
        self._pool.asks_on_connection = not connection.is_modern and self._may_ask
        await self._list(connection)

    @property
    def _may_ask(self) -> bool:
        return False

    async def _list(self, connection: Connection) -> None:
        self._is_stale = False
        clock = self.services.clock
        with CancelScope(clock, CONNECT_S) as scope:
            try:
                listing = await read_listing(connection, self.services.limits, clock.now())
            except Exception as error:
                self._is_stale = True
                await self._wait_for_end(connection, error)
                reason = f"its tools cannot be listed: {error_reason(self._error(error, connection, 'tools/list'))}"
                raise MCPUnreachableError(self.server.name, reason) from error
        if scope.was_cancelled:
            self._is_stale = True
            reason = f"its tools could not be listed within {CONNECT_S:g} s"
            raise MCPUnreachableError(self.server.name, reason, ErrorClass.TIMEOUT)
        self._take(listing)

    def _take(self, listing: Listing) -> None:
        before, self._listing = self._listing, listing
        if before is not None and (before.tools, before.resources, before.prompts) == (
            listing.tools, listing.resources, listing.prompts,
        ):  # fmt: skip
            return
        self._described, left_out = describe(
            self.server, listing, call=self._call_tool, read=self._read_resource, get=self._get_prompt
        )
        for text in (*listing.warnings, *left_out, *self._unmatched(listing)):
            self._logger.warning("MCP server %r: %s", self.server.name, text)
        for tool, why in self._dropped.items():
            self._logger.warning(dropped_text(self.server.name, tool, why))

    def _unmatched(self, listing: Listing) -> list[str]:
        """Names and patterns of the operator that no tool of the first listing has."""
        from fnmatch import fnmatchcase

        names = [one.name for one in listing.tools]
        said = {
            "effects": self.server.effects, "idempotent": self.server.idempotent, "approve": self.server.approve,
            "tool_policies": self.server.tool_policies,
        }  # fmt: skip
        return [
            f"{option} names {pattern!r}, and it lists no such tool"
            for option, patterns in said.items()
            for pattern in patterns
            if not any(fnmatchcase(name, pattern) for name in names)
        ]

    def _changed(self) -> None:
        self._is_stale = True

    def _updated(self, uri: str) -> None:
        pass

    # ── Calls ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _call_tool(self, tool: Described, args: bytes, call: CallContext[Any]) -> ToolResult:
        arguments = msgspec.json.decode(args) if args.strip() else {}

        def send(connection: Connection, meta: Any) -> Awaitable[Any]:
            # Not `call_tool`: it may list all tools behind a call that has acted, and fail that call for it.
            params = types.CallToolRequestParams(name=tool.remote.name, arguments=arguments, _meta=meta)
            request = types.CallToolRequest(params=params)
            return connection.session.send_request(request, _RESULT, request_read_timeout_seconds=tool.timeout_s)

        result = await self._made(tool.remote.name, send, call, alone=tool.is_guarded, timeout_s=tool.timeout_s)
        value = await result_of(result, self.server.name, tool.remote.name, call)
        if tool.check_result is not None:
            _check_result(tool, result.structured_content)
        return value

    async def _read_resource(self, uri: str, args: bytes, call: CallContext[Any]) -> ToolResult:
        def send(connection: Connection, meta: Any) -> Awaitable[Any]:
            return connection.session.read_resource(uri, meta=meta)

        return await contents_of(await self._made(uri, send, call), self.server.name, uri, call)

    async def _get_prompt(self, name: str, args: bytes, call: CallContext[Any]) -> ToolResult:
        arguments = msgspec.json.decode(args) if args.strip() else {}

        def send(connection: Connection, meta: Any) -> Awaitable[Any]:
            return connection.session.get_prompt(name, arguments, meta=meta)

        return ToolResult(prompt_text(await self._made(name, send, call)))

    async def _made(
        self,
        what: str,
        send: Callable[[Connection, Any], Awaitable[Any]],
        call: CallContext[Any],
        *,
        alone: bool = False,
        timeout_s: float | None = None,
    ) -> Any:
        """Send a request on a connection; one that a lost session refused is sent once more on a new one.

        Raises:
            IdentityMissingError: it is of nobody; nothing was sent.
            ToolError: it failed.
        """
        if not (call.who.tenant_id and call.who.user_id and call.who.session_id):
            raise IdentityMissingError(f"MCP server {self.server.name!r}: a call without an identity is not sent")
        found = await self._sent(what, send, call, alone, timeout_s)
        if isinstance(found, LostSession):
            found = await self._sent(what, send, call, alone, timeout_s)
        if isinstance(found, LostSession):
            raise MCPRequestError(self.server.name, f"{what}: it loses its session with every request")
        return found

    async def _sent(
        self,
        what: str,
        send: Callable[[Connection, Any], Awaitable[Any]],
        call: CallContext[Any],
        alone: bool,
        timeout_s: float | None,
    ) -> Any:
        within_s = CONNECT_S if timeout_s is None else min(CONNECT_S, 0.9 * timeout_s)
        connection = await self._pool.acquire(alone=alone, within_s=within_s)
        self._tokens += 1
        token, exchange, clock = f"p{self._tokens}", Exchange(), self.services.clock
        meta = self._meta(call, token)
        if call.services is not None:
            connection.watch.progress[token] = partial(_progressed, call)
        noted = EXCHANGE.set(exchange)
        began, has_failed = clock.monotonic(), True
        try:
            result = await send(connection, meta)
            has_failed = False
            return result
        except Exception as error:
            await self._wait_for_end(connection, error)
            found = failure_of(error, server=self.server.name, tool=what, connection=connection, exchange=exchange)
            if isinstance(found, LostSession):
                self._pool.drop(connection)
                return found
            has_failed = isinstance(found, ToolUnansweredError | MCPUnreachableError)
            raise found from error
        finally:
            EXCHANGE.reset(noted)
            connection.watch.progress.pop(token, None)
            self.status.called(clock.monotonic() - began, has_failed=has_failed)
            self._pool.release(connection)

    def _meta(self, call: CallContext[Any], token: str) -> dict[str, Any]:
        meta: dict[str, Any] = {}
        if call.services is not None:
            meta["progressToken"] = token
        if call.idempotency_key:
            meta[KEY_META] = call.idempotency_key
        if self.server.share_identity:
            who = (call.who.tenant_id, call.who.user_id, call.who.session_id)
            meta |= {f"dev.harborage/{name}": value for name, value in zip(_IDENTITY, who, strict=True)}
        return meta

    async def _wait_for_end(self, connection: Connection, error: Exception) -> None:
        """Let a connection that breaks say what it broke of."""
        if not connection.is_open or is_of_connection(error):
            with CancelScope(self.services.clock, _ENDED_S):
                await asyncio.shield(connection.ended)

    def _error(self, error: Exception, connection: Connection, what: str) -> Exception:
        if isinstance(error, ToolError):
            return error
        found = failure_of(error, server=self.server.name, tool=what, connection=connection, exchange=Exchange())
        return MCPError(self.server.name, "it lost the session") if isinstance(found, LostSession) else found

    # ── Connections ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _make_pool(self) -> Pool:
        return Pool(
            self.server.name,
            self.server.connections,
            self._connection,
            self._explain,
            status=self.status,
            crew=self._crew,
            clock=self.services.clock,
            on_opened=self._opened,
        )

    def _connection(self) -> Connection:
        watch = Watch(on_changed=self._changed, on_updated=self._updated, on_dropped=self._was_dropped)
        return Connection(self._transport, watch, self._crew, self.services.clock)

    def _was_dropped(self, tool: str, why: str) -> None:
        self._dropped[tool] = why

    def _transport(self, on_end: Callable[[str], None]) -> AbstractAsyncContextManager[tuple[Any, Any]]:
        """The transport of a new connection; secrets are read now.

        Raises:
            SecretMissingError: one is not there.
        """
        server, limits = self.server, self.services.limits
        self._exchange, self._program = Exchange(), None
        if server.is_local:
            env = {name: secret.reveal() for name, secret in server.env.items()}
            return stdio_transport(
                server.command, env, server.folder, most=limits.line_bytes, on_end=on_end, on_start=self._started
            )
        EXCHANGE.set(self._exchange)
        kind = ServerTransport.SSE if server.transport is ServerTransport.SSE else ServerTransport.STREAMABLE_HTTP
        return http_transport(server.url, kind, self._headers(), most=limits.result_bytes)

    def _started(self, program: Program) -> None:
        self._program = program

    def _headers(self) -> Mapping[str, str]:
        headers = {name: secret.reveal() for name, secret in self.server.headers.items()}
        if self.server.auth is not None:
            headers["Authorization"] = f"Bearer {self.server.auth.reveal()}"
        return headers

    def _explain(self, error: NotConnectedError, _: Connection) -> MCPUnreachableError:
        if isinstance(error.__cause__, SecretMissingError):
            return MCPUnreachableError(self.server.name, str(error.__cause__), ErrorClass.PERMANENT)
        tail = "" if self._program is None else self._program.tail
        found = why_unopened(
            error, server=self.server.name, address=self.server.address, tail=tail, status=self._exchange.status
        )
        assert isinstance(found, MCPUnreachableError)
        return found

    def _failed(self, name: str, error: BaseException) -> None:
        self._logger.log(logging.WARNING, "%s: %s", name, error_reason(error))

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()
        await self._crew.aclose()


def _progressed(call: CallContext[Any], done: float, total: float | None, text: str) -> None:
    call.progress(text, done=done, total=total)


def _check_result(tool: Described, structured: Any) -> None:
    """Accept structured content that fits the schema that the server lists for it.

    Raises:
        ToolInvalidArgsError: it does not, or is missing.
    """
    assert tool.check_result is not None
    if structured is None:
        raise ToolInvalidArgsError("output: the server lists a schema of the result, and sent none that has one")
    try:
        tool.check_result(structured)
    except ToolInvalidArgsError as error:
        raise ToolInvalidArgsError(f"output: {error.reason}", error.path) from error
