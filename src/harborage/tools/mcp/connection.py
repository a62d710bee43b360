"""One connection to a server. It lives in a task of its own, which the library may cancel when the connection breaks;
those who make calls on it see an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mcp.client import Client
from mcp.client.subscriptions import listen
from mcp_types import Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from harborage.clock import sleep
from harborage.concurrency import STOP, CancelScope, Crew, is_cancelled
from harborage.tools.mcp.streams import Watch, watched
from harborage.tools.mcp.values import CLIENT_NAME, CLIENT_VERSION

if TYPE_CHECKING:
    from mcp.client import ClientSession

    from harborage.clock import Timers

OPEN_S: Final = 20.0
"""Seconds that a server has to answer to the first messages of a connection."""

_CLOSE_S: Final = 12.0
_LISTEN_AGAIN_S: Final = 5.0

_log = logging.getLogger(__name__)

OpenTransport: TypeAlias = Callable[[Callable[[str], None]], AbstractAsyncContextManager[tuple[Any, Any]]]
"""Makes the transport of a connection; it is given what to call when no message will come any more."""


class NotConnectedError(Exception):
    """A connection could not be opened; its cause says why."""


class Connection:
    """A connection that is opened by `open`, and used through its `session` until `is_open` says no.

    `callbacks` are those of the library for what a server may ask. `why` says what it ended of, `error` is the error
    that the library ended it with, once it has `ended`. `users` are the calls that it is used by now, `call` is the one
    that has it alone, where the server may ask on the connection.
    """

    def __init__(self, transport: OpenTransport, watch: Watch, crew: Crew, clock: Timers, **callbacks: Any) -> None:
        self._transport = transport
        self._crew = crew
        self._clock = clock
        self._callbacks = callbacks
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._client: Any = None
        self._ends: list[Callable[[Connection], None]] = []
        self.watch = watch
        watch.on_end = self._broke
        self.users = 0
        self.is_shared = False
        self.call: Any = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.idle_since = 0.0
        self.is_open = False
        self.why = ""
        self.error: BaseException | None = None

    @property
    def session(self) -> ClientSession:
        """The session of the library."""
        session: ClientSession = self._client.session
        return session

    @property
    def client(self) -> Any:
        """The client of the library."""
        return self._client

    @property
    def is_modern(self) -> bool:
        """Whether each request stands alone, and a call that needs an answer of a person returns."""
        return self._client.protocol_version in MODERN_PROTOCOL_VERSIONS

    def on_end(self, tell: Callable[[Connection], None]) -> None:
        """Call `tell` when the connection has ended, from either side."""
        self._ends.append(tell)

    async def open(self) -> None:
        """Connect.

        Raises:
            NotConnectedError: that failed, or took too long.
        """
        self._task = self._crew.start(self._live(), "connection to an MCP server")
        with CancelScope(self._clock, OPEN_S):
            try:
                await asyncio.shield(self._opened)
            except asyncio.CancelledError:
                self.close_soon()
                raise
            return
        self.close_soon()
        raise NotConnectedError from TimeoutError(f"no answer within {OPEN_S:g} s")

    async def _live(self) -> None:
        """Be connected, until asked to leave or the connection breaks."""
        beside = Crew(self._listening_failed)
        try:
            async with self._made() as client:
                self._client = client
                self.is_open = True
                self._opened.set_result(None)
                if self.is_modern:
                    beside.start(self._listen(client), "news of an MCP server")
                try:
                    await self._leaving.wait()
                finally:
                    await beside.aclose()
        except asyncio.CancelledError as error:
            self._ended("the connection was closed", error)
            if is_cancelled():
                raise
        except BaseException as error:
            self._ended("the connection broke", error)
            if not isinstance(error, Exception | BaseExceptionGroup):
                raise
        else:
            self._ended("the connection was closed", None)

    def _listening_failed(self, _name: str, error: BaseException) -> None:
        _log.debug("an MCP server sends no news of its lists: %s", type(error).__name__)

    def _made(self) -> Any:
        return Client(
            watched(self._transport(self._broke), self.watch),
            cache=None,
            client_info=Implementation(name=CLIENT_NAME, version=CLIENT_VERSION),
            **self._callbacks,
        )

    async def _listen(self, client: Any) -> None:
        """Hold the stream on which a server says that its lists have changed, while the connection is open.

        What it says is seen before the library sees it.
        """
        capabilities = client.server_capabilities
        wanted: dict[str, Any] = {
            f"{name}_list_changed": bool(getattr(getattr(capabilities, name, None), "list_changed", False))
            for name in ("tools", "prompts", "resources")
        }
        while any(wanted.values()) and self.is_open:
            async with listen(client.session, **wanted) as events:
                async for _ in events:
                    pass
            await sleep(self._clock, _LISTEN_AGAIN_S)

    def _broke(self, why: str) -> None:
        """The server will send nothing more."""
        if not self.why:
            self.why = why
        self.is_open = False
        self._leaving.set()

    def _ended(self, why: str, error: BaseException | None) -> None:
        self.why = self.why or why
        self.error = error
        self.is_open = False
        if not self._opened.done():
            failed = NotConnectedError(self.why)
            failed.__cause__ = error
            self._opened.set_exception(failed)
            self._opened.exception()  # who opened it may be gone
        if not self.ended.done():
            self.ended.set_result(None)
        for tell in self._ends:
            tell(self)

    def close_soon(self) -> None:
        """Leave, without waiting for it."""
        self.is_open = False
        self._leaving.set()
        if not self._opened.done() and self._task is not None:
            self._task.cancel(STOP)

    async def aclose(self) -> None:
        """Leave, and wait until that is done."""
        self.close_soon()
        if self._task is None:
            return
        with CancelScope(self._clock, _CLOSE_S):
            await asyncio.wait((self._task,))
        if not self._task.done():
            self._task.cancel(STOP)
            with CancelScope(self._clock, _CLOSE_S):
                await asyncio.wait((self._task,))
