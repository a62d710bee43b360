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
    with socket.socket() as listener:
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
        async with _listening(self._pass) as url:
            yield url

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
            answers.transport.abort()
            with contextlib.suppress(OSError):
                await answers.wait_closed()


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


Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Answer = Callable[[str, bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """Serve on a free port what `answer` writes to the head and body of each request; gives the url."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = next((line for line in head.splitlines() if line.lower().startswith("content-length")), ":0")
        body = await reader.readexactly(int(size.partition(":")[2]))
        await answer(head, body, writer)
        await writer.drain()

    async with _listening(handle) as url:
        yield url


@asynccontextmanager
async def _listening(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """Serve connections on a free port; leaving ends them all, and waits until their sockets are closed."""
    tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: Any = asyncio.current_task()
        tasks[task] = writer
        try:
            await handle(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            writer.transport.abort()  # one side is gone
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            del tasks[task]

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        left = list(tasks)
        for task in left:
            tasks[task].transport.abort()
            task.cancel()
        if left:
            await asyncio.wait(left)
        await server.wait_closed()


def http(status: int, body: bytes, kind: str = "application/json") -> bytes:
    """An answer that closes its connection."""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
"""What an answer with events begins with."""
