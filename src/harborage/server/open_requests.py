"""How long a request may take, and what ends it early: its client leaves, its time is over, the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.responses import Response

from harborage.concurrency import CancelScope, Crew
from harborage.errors import HarborageError, error_reason

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from harborage.server.services import Services

T = TypeVar("T")
Frames = AsyncGenerator[bytes, None]

KEEPALIVE: Final = b": keep-alive\n\n"

_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_LEAST_KEEPALIVE_S: Final = 0.05
_encoder: Final = msgspec.json.Encoder()


class ClientGoneError(Exception):
    """The client closed its connection before it was answered."""


class ServerStoppingError(HarborageError):
    """The server is stopping; a run that was started goes on."""


def frame(value: Any, event: str = "") -> bytes:
    """Return one server-sent event."""
    named = f"event: {event}\n".encode() if event else b""
    return named + b"data: " + _encoder.encode(value) + b"\n\n"


def _nothing() -> None: ...


class OpenRequests:
    """The requests that wait for a run; a server that stops ends them, and their runs go on.

    `last_frame` is what a stream that fails ends with.
    """

    def __init__(self, services: Services, last_frame: Callable[[Exception], bytes]) -> None:
        self._services = services
        self._last_frame = last_frame
        self._open: set[CancelScope] = set()
        self._is_idle = asyncio.Event()
        self._is_stopping = False

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._open)

    @property
    def is_stopping(self) -> bool:
        """Whether the server stops, so that nothing new shall begin."""
        return self._is_stopping

    def drain(self) -> None:
        """End those that are open, and each that comes."""
        self._is_stopping = True
        for scope in tuple(self._open):
            scope.cancel()

    async def idle(self) -> None:
        """Wait until none is open."""
        while self._open:
            self._is_idle.clear()
            await self._is_idle.wait()

    async def hold(
        self, receive: Receive, work: Awaitable[T], on_gone: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        """Return what `work` gives, unless the client leaves, and `on_gone` is called, or the server stops before.

        Raises:
            ClientGoneError: the client closed its connection.
            ServerStoppingError: the server stops.
        """
        crew = Crew(lambda name, error: self._services.logger.error("%s: %s", name, error_reason(error)))
        scope, found, is_gone = CancelScope(), [], asyncio.Event()
        self._open.add(scope)
        if self._is_stopping:
            scope.cancel()
        try:
            with scope:
                crew.start(_watch(receive, scope, is_gone), "a request that waits for a run")
                found.append(await work)
        except ClientGoneError:
            is_gone.set()
        finally:
            await crew.aclose()
            if is_gone.is_set() and not found and on_gone is not None:
                await on_gone()
            self._open.discard(scope)
            self._is_idle.set()
        if found:
            return found[0]
        raise (
            ClientGoneError()
            if is_gone.is_set()
            else ServerStoppingError("the server is stopping; a run that was started goes on")
        )

    def stream(
        self,
        frames: Frames,
        on_gone: Callable[[], Awaitable[None]] | None = None,
        close: Callable[[], None] = _nothing,
        *,
        last_frame: Callable[[Exception], bytes] | None = None,
    ) -> Response:
        """Return an answer that sends these frames.

        `on_gone` is called when the client leaves before their end, `close` in any case. `last_frame` is another one
        than that of all requests.
        """
        last = self._last_frame if last_frame is None else last_frame
        return _Stream(self, self._services, frames, last, on_gone, close)


async def _watch(receive: Receive, scope: CancelScope, is_gone: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    is_gone.set()
    scope.cancel()


async def done_within(work: Awaitable[object], seconds: float) -> bool:
    """Whether `work` is done within so many seconds; when they are over it is cancelled."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            await work
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    return True


class _Stream(Response):
    """Sends frames as they come; one that stays silent is kept alive."""

    def __init__(
        self,
        requests: OpenRequests,
        services: Services,
        frames: Frames,
        last_frame: Callable[[Exception], bytes],
        on_gone: Callable[[], Awaitable[None]] | None,
        close: Callable[[], None],
    ) -> None:
        super().__init__()
        self._last_frame = last_frame
        self._close = close
        self._requests = requests
        self._services = services
        self._frames = frames
        self._on_gone = on_gone
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(receive, send)
        finally:
            self._close()

    async def _answer(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        try:
            await self._requests.hold(receive, self._send_all(send), self._on_gone)
        except ClientGoneError:
            return
        except Exception as error:  # noqa: BLE001 - the status is sent; what is left to say goes into the stream
            await send({"type": "http.response.body", "body": self._last_frame(error), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        crew = Crew(lambda name, error: self._services.logger.debug("%s: %s", name, error_reason(error)))
        try:
            crew.start(self._keep_alive(send), "the keep-alive of a stream")
            async with aclosing(self._frames) as frames:
                async for one in frames:
                    await self._send(send, one)
        finally:
            await crew.aclose()

    async def _send(self, send: Send, body: bytes) -> None:
        try:
            async with self._lock, asyncio.timeout(self._services.options.answer_timeout):
                await send({"type": "http.response.body", "body": body, "more_body": True})
        except OSError as error:  # also a TimeoutError: it reads no more
            raise ClientGoneError() from error

    async def _keep_alive(self, send: Send) -> None:
        seconds = max(self._services.options.keepalive, _LEAST_KEEPALIVE_S)
        while True:
            await asyncio.sleep(seconds)
            await self._send(send, KEEPALIVE)


async def limited(shown: AsyncGenerator[T, None], seconds: float) -> AsyncGenerator[T, None]:
    """Yield what `shown` yields while each comes within so many seconds of the one before.

    Raises:
        TimeoutError: one did not.
    """
    async with aclosing(shown):
        while True:
            try:
                async with asyncio.timeout(seconds):
                    one = await anext(shown)
            except StopAsyncIteration:
                return
            yield one
