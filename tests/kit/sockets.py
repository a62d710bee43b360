"""Real sockets for tests of the client: a server of this process, a proxy that cuts connections, a server that answers
what a test says.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import uvicorn

WITHIN_S: Final = 30.0
"""After this time a test that waits has failed."""


class _Quiet(uvicorn.Server):
    """A server that leaves the signals of the test's process alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_serving = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_serving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """Serve an ASGI application on a free port of this machine; gives its url."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, lifespan="off", log_level="error", timeout_graceful_shutdown=1)
    server = _Quiet(config)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve([listener]))
        try:
            await server.is_serving.wait()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
    listener.close()


class CuttingProxy:
    """Passes connections on to a server, and cuts them: at once, or when so many bytes of an answer have passed."""

    def __init__(self, url: str) -> None:
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port = int(port)
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0
        self.cut_after: Callable[[], int] | None = None
        """Gives for each new connection after how many bytes of answers it is cut."""
        self.is_down = False
        """Whether new connections are refused."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Listen on a free port; gives the url."""
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            self.cut()
            await server.wait_closed()

    def cut(self) -> None:
        """Cut all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_down:
            writer.transport.abort()
            return
        self.connections += 1
        left = None if self.cut_after is None else self.cut_after()
        onward, answers = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, answers}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, answers, None))
                group.create_task(_pump(onward, writer, left))
        finally:
            self._writers -= {writer, answers}
            writer.transport.abort()
            answers.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None) -> None:
    try:
        while piece := await reader.read(65_536):
            if left is not None and len(piece) >= left:
                writer.write(piece[:left])
                await writer.drain()
                break
            left = None if left is None else left - len(piece)
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass  # one side is gone, so the other side goes, too
    writer.transport.abort()


Answer = Callable[[str, bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """Serve on a free port what `answer` writes to the head and body of each request; gives the url."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lengths = [
                line.partition(":")[2] for line in head.splitlines() if line.lower().startswith("content-length")
            ]
            body = await reader.readexactly(int(lengths[0])) if lengths else b""
            await answer(head, body, writer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


def http(status: int, body: bytes, kind: str = "application/json") -> bytes:
    """An answer that closes its connection."""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
"""What an answer with events begins with."""
