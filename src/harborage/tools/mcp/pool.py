"""The connections to one server for those who share its credentials: one that reads share, and some for one call each.

The official library never connects again. Here a caller that needs a connection makes a new one, not sooner after a
failure than the backoff says, and one that was lost is made again in the background.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from harborage.clock import dice, sleep
from harborage.concurrency import CancelScope, Crew
from harborage.tools.enums import ErrorClass
from harborage.tools.mcp.connection import Connection, NotConnectedError
from harborage.tools.mcp.errors import MCPAuthError, MCPUnreachableError
from harborage.tools.mcp.values import ConnectionState

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.tools.mcp.status import ServerStatus

FIRST_BACKOFF_S: Final = 1.0
MOST_BACKOFF_S: Final = 60.0
IDLE_S: Final = 600.0
"""Seconds after which a connection that no call uses is closed."""


class Pool:
    """Connections to one server. `make` makes one that is not open yet, `explain` turns why one did not open into an
    error, `on_opened` is called with the one that reads share, each time it is new."""

    def __init__(
        self,
        server: str,
        most: int,
        make: Callable[[], Connection],
        explain: Callable[[NotConnectedError, Connection], MCPUnreachableError],
        *,
        status: ServerStatus,
        crew: Crew,
        clock: Timers,
        on_opened: Callable[[Connection], Awaitable[None]],
    ) -> None:
        self._server = server
        self._most = most
        self._make = make
        self._explain = explain
        self._status = status
        self._crew = crew
        self._clock = clock
        self._on_opened = on_opened
        self._shared: Connection | None = None
        self._idle: list[Connection] = []
        self._alone = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._opening = asyncio.Lock()
        self._failures = 0
        self._not_before = 0.0
        self._last_failure: MCPUnreachableError | None = None
        self._is_closed = False
        self._is_mending = False
        self.asks_on_connection = False
        """Whether the server may ask on a connection, so that no two calls may share one."""

    @property
    def size(self) -> int:
        """How many connections are open."""
        return self._alone + (self._shared is not None and self._shared.is_open)

    async def shared(self, within_s: float) -> Connection:
        """Return the connection that many calls may share; made when there is none.

        Raises:
            MCPUnreachableError: it could not be made within that time.
        """
        found = self._shared
        if found is not None and found.is_open:
            return found
        with CancelScope(self._clock, within_s):
            async with self._opening:
                if self._shared is not None and self._shared.is_open:
                    return self._shared
                opened = await self._open(within_s)
                try:
                    await self._on_opened(opened)
                except BaseException:
                    opened.close_soon()
                    raise
                opened.is_shared = True
                opened.on_end(self._lost)
                self._shared = opened
                return opened
        raise self._too_late(within_s)

    async def acquire(self, *, alone: bool, within_s: float) -> Connection:
        """Return a connection for a call, which must be given back by `release`; `alone` lets no other call use it.

        Raises:
            MCPUnreachableError: there was none within that time; nothing was sent.
        """
        shared = await self.shared(within_s)
        if not (alone or self.asks_on_connection or self._most == 1):
            shared.users += 1
            return shared
        with CancelScope(self._clock, within_s):
            return await self._unused(shared, within_s)
        raise self._too_late(within_s)

    async def _unused(self, shared: Connection, within_s: float) -> Connection:
        """A connection that no other call uses: one that is there, a new one, or the next that is given back."""
        counts_shared = self.asks_on_connection or self._most == 1
        while True:
            if counts_shared and shared.is_open and not shared.users:
                shared.users += 1
                return shared
            found = self._take_idle()
            if found is None and self._alone < self._most - counts_shared:
                found = await self._one_more(within_s)
            if found is not None:
                found.users = 1
                return found
            await self._turn()
            if counts_shared and not shared.is_open:
                shared = await self.shared(within_s)

    def _take_idle(self) -> Connection | None:
        while self._idle:
            found = self._idle.pop()
            if found.is_open:
                return found
            self._alone -= 1
        return None

    async def _one_more(self, within_s: float) -> Connection:
        self._alone += 1
        try:
            return await self._open(within_s)
        except BaseException:
            self._alone -= 1
            self._wake()
            raise

    async def _turn(self) -> None:
        """Wait until a connection is given back, or has ended."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake()  # the turn of the next one
            raise
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def release(self, connection: Connection) -> None:
        """Give a connection back."""
        connection.users -= 1
        if connection.is_shared:
            self._wake()
            return
        if connection.is_open and not self._is_closed:
            connection.idle_since = self._clock.monotonic()
            self._idle.append(connection)
            self._clock.call_later(IDLE_S, self._close_idle)
        else:
            connection.close_soon()
            self._alone -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _close_idle(self) -> None:
        now = self._clock.monotonic()
        old = [one for one in self._idle if now - one.idle_since >= IDLE_S - 1 or not one.is_open]
        for one in old:
            self._idle.remove(one)
            self._alone -= 1
            one.close_soon()

    async def _open(self, within_s: float) -> Connection:
        """Make a connection, not sooner than the backoff of the last failure says.

        Raises:
            MCPUnreachableError: it does not open; or it would be tried too late.
        """
        left_s = self._not_before - self._clock.monotonic()
        if left_s > within_s and self._last_failure is not None:
            raise self._again(self._last_failure)
        if left_s > 0:
            await sleep(self._clock, left_s)
        began = self._clock.monotonic()
        connection = self._make()
        try:
            await connection.open()
        except NotConnectedError as error:
            raise self._failed(self._explain(error, connection)) from error
        self._failures, self._not_before, self._last_failure = 0, 0.0, None
        self._status.connected(self._clock.monotonic() - began)
        return connection

    def _failed(self, error: MCPUnreachableError) -> MCPUnreachableError:
        self._failures += 1
        wait_s = min(FIRST_BACKOFF_S * 2 ** min(self._failures - 1, 10), MOST_BACKOFF_S)
        self._not_before = self._clock.monotonic() + wait_s * (1 + 0.1 * dice())
        self._last_failure = error
        if isinstance(error, MCPAuthError):
            state = ConnectionState.AUTH_PENDING
        else:
            state = ConnectionState.ERROR if error.error_class is ErrorClass.PERMANENT else ConnectionState.OFFLINE
        self._status.failed(state, error.reason)
        return error

    def _again(self, last: MCPUnreachableError) -> MCPUnreachableError:
        """The last failure, as an error of its own: one that is raised twice would grow with each traceback."""
        if isinstance(last, MCPAuthError):
            return MCPAuthError(last.server, last.reason)
        return MCPUnreachableError(last.server, last.reason, last.error_class)

    def _too_late(self, within_s: float) -> MCPUnreachableError:
        if self._last_failure is not None:
            return self._again(self._last_failure)
        text = f"no connection was free within {within_s:g} s; connections={self._most} may be too few"
        return MCPUnreachableError(self._server, text, ErrorClass.TIMEOUT)

    def _lost(self, connection: Connection) -> None:
        """The shared connection has ended; unless it was closed, it is made again."""
        if self._is_closed or connection is not self._shared:
            return
        self._shared = None
        self._status.lost(connection.why)
        self._wake()
        if not self._is_mending and not self._crew.is_closed:
            self._is_mending = True
            self._crew.start(self._mend(), f"reconnecting to the MCP server {self._server}")

    async def _mend(self) -> None:
        """Connect again, with backoff, until it works or nothing can."""
        wait_s = FIRST_BACKOFF_S
        try:
            while not self._is_closed:
                await sleep(self._clock, wait_s * (1 + 0.1 * dice()))
                wait_s = min(2 * wait_s, MOST_BACKOFF_S)
                if self._status.state in (ConnectionState.ERROR, ConnectionState.AUTH_PENDING):
                    return
                if await self._is_mended():
                    return
        finally:
            self._is_mending = False

    async def _is_mended(self) -> bool:
        try:
            await self.shared(MOST_BACKOFF_S)
        except MCPUnreachableError as error:
            self._status.failed(self._status.state, error.reason)
            return False
        return True

    def drop(self, connection: Connection) -> None:
        """Use a connection for no other call."""
        connection.close_soon()
        if connection is self._shared:
            self._shared = None

    async def aclose(self) -> None:
        """Close every connection; calls that wait for one get none."""
        self._is_closed = True
        open_ones = [*self._idle, *([] if self._shared is None else [self._shared])]
        self._idle, self._shared = [], None
        closed = MCPUnreachableError(self._server, "its connections are closed", ErrorClass.PERMANENT)
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(closed)
        for one in open_ones:
            one.close_soon()
        for one in open_ones:
            await one.aclose()
