"""An MCP server that a runtime has opened: its connections, what it offers, and calls of that."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mcp_types as types

from harborage.clock import sleep
from harborage.concurrency import CancelScope, Crew
from harborage.errors import error_reason
from harborage.secrets import SecretMissingError, SecretReader
from harborage.tools.enums import ErrorClass
from harborage.tools.mcp.calls import CONNECT_S, Calls
from harborage.tools.mcp.connection import Connection, NotConnectedError
from harborage.tools.mcp.descriptors import describe
from harborage.tools.mcp.errors import MCPError, MCPUnreachableError
from harborage.tools.mcp.failures import LostSession, why_unopened
from harborage.tools.mcp.http import EXCHANGE, Exchange, http_transport
from harborage.tools.mcp.listing import PAGE_S, read_listing
from harborage.tools.mcp.pool import Pool
from harborage.tools.mcp.status import ServerStatus
from harborage.tools.mcp.stdio import Program, stdio_transport
from harborage.tools.mcp.streams import Watch, dropped_text
from harborage.tools.mcp.values import Listing, RawHTML, RemoteTool, ServerTransport

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.tools.mcp.options import MCP
    from harborage.tools.model import ToolDescriptor
    from harborage.tools.sources import SourceServices


class OpenMCP:
    """The open side of one server. `server` is what an operator says of it, `status` how its connection has been."""

    def __init__(self, server: MCP, services: SourceServices) -> None:
        self.server = server
        self.status = ServerStatus(services.clock)
        self.services = services
        self._logger = services.logger
        self._crew = Crew(self._failed)
        self._secrets = SecretReader(clock=services.clock)
        self._pool = self._make_pool()
        self._calls = Calls(server, services, self._pool, self.status, self._secrets, self._current)
        self._listing: Listing | None = None
        self._described: tuple[ToolDescriptor[Any], ...] = ()
        self._is_stale = False
        self.is_html_trusted = server.raw_html is RawHTML.TRUSTED
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
                raise await self._error(error, connection, "ping") from error
            return clock.monotonic() - began
        raise MCPUnreachableError(self.server.name, f"it did not answer within {PAGE_S:g} s", ErrorClass.TIMEOUT)

    async def _opened(self, connection: Connection) -> None:
        self._pool.asks_on_connection = not connection.is_modern and self._may_ask
        await self._list(connection)
        if self.server.keep_alive > timedelta() and not self._crew.is_closed:
            self._crew.start(self._keep_alive(connection), f"keeping the MCP server {self.server.name} alive")

    async def _keep_alive(self, connection: Connection) -> None:
        """Ask the server at intervals whether it lives; one that does not answer is connected to anew."""
        while True:
            await sleep(self.services.clock, self.server.keep_alive.total_seconds())
            if not connection.is_open:
                return
            try:
                await self.probe()
            except MCPError as error:
                self._logger.warning("%s", error)
                connection.close_soon()
                return

    @property
    def _may_ask(self) -> bool:
        return self.server.elicitation or bool(self.server.roots)

    async def _error(self, error: Exception, connection: Connection, what: str) -> Exception:
        found = await self._calls.failure(error, connection, Exchange(), what)
        return MCPError(self.server.name, "it lost the session") if isinstance(found, LostSession) else found

    async def _list(self, connection: Connection) -> None:
        self._is_stale = False
        clock = self.services.clock
        with CancelScope(clock, CONNECT_S) as scope:
            try:
                listing = await read_listing(connection, self.services.limits, clock.now())
            except Exception as error:
                self._is_stale = True
                found = await self._error(error, connection, "tools/list")
                reason = f"its tools cannot be listed: {getattr(found, 'reason', '') or error_reason(found)}"
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
            self.server,
            listing,
            call=self._calls.call_tool,
            read=self._calls.read_resource,
            get=self._calls.get_prompt,
            mark=self._mark,
        )
        for text in (*listing.warnings, *left_out, *self._unmatched(listing)):
            self._logger.warning("MCP server %r: %s", self.server.name, text)
        for tool, why in self._dropped.items():
            self._logger.warning(dropped_text(self.server.name, tool, why))

    def _mark(self, tool: str) -> str:
        found = self._listed(tool)
        return "" if found is None else found.digest

    def _listed(self, tool: str) -> RemoteTool | None:
        listed = () if self._listing is None else self._listing.tools
        return next((one for one in listed if one.name == tool), None)

    async def _current(self, tool: str, *, is_approved: bool) -> RemoteTool | None:
        """Return a tool as its server lists it now: asked again before an approved call, and after it said that
        something has changed."""
        if is_approved or self._is_stale:
            await self._list(await self._pool.shared(CONNECT_S))
        return self._listed(tool)

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
        made: list[Connection] = []
        callbacks: dict[str, Any] = {}
        if self.server.elicitation:
            callbacks["elicitation_callback"] = lambda _ctx, params: self._asked(made[0], params)
        if self.server.roots:
            callbacks["list_roots_callback"] = self._list_roots
        made.append(Connection(self._transport, watch, self._crew, self.services.clock, **callbacks))
        return made[0]

    async def _asked(self, connection: Connection, params: Any) -> Any:
        return await self._calls.answer(connection, types.ElicitRequest(params=params))

    async def _list_roots(self, _ctx: Any) -> types.ListRootsResult:
        named = [{"uri": one.as_uri(), "name": one.name} for one in map(_absolute, self.server.roots)]
        return types.ListRootsResult(roots=[types.Root.model_validate(one) for one in named])

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
            env = {name: self._secrets.reveal(secret) for name, secret in server.env.items()}
            return stdio_transport(
                server.command, env, server.folder, most=limits.line_bytes, on_end=on_end, on_start=self._started
            )
        EXCHANGE.set(self._exchange)
        kind = ServerTransport.SSE if server.transport is ServerTransport.SSE else ServerTransport.STREAMABLE_HTTP
        return http_transport(server.url, kind, self._headers(), most=limits.result_bytes)

    def _started(self, program: Program) -> None:
        self._program = program

    def _headers(self) -> Mapping[str, str]:
        headers = {name: self._secrets.reveal(secret) for name, secret in self.server.headers.items()}
        if self.server.auth is not None:
            headers["Authorization"] = f"Bearer {self._secrets.reveal(self.server.auth)}"
        return headers

    def _explain(self, error: NotConnectedError, _: Connection) -> MCPUnreachableError:
        if isinstance(error.__cause__, SecretMissingError):
            return MCPUnreachableError(self.server.name, str(error.__cause__), ErrorClass.PERMANENT)
        tail = "" if self._program is None else self._secrets.mask(self._program.tail)
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


def _absolute(folder: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(folder)))
