"""A small HTTP server for tests of tools: `async with peer(handler) as served`, which keeps what it was asked.

A handler gets a `Request` and returns a `Response`, or a Cut, which ends the connection instead of answering.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec


class Request(msgspec.Struct, frozen=True):
    """A request as it came: the path as it was sent, and the headers by lower-case names."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Response(msgspec.Struct, frozen=True):
    """An answer. A body that is no bytes is sent as JSON; with `cut_at` the connection ends after so many bytes."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = {}
    cut_at: int | None = None


class Cut(msgspec.Struct, frozen=True):
    """The connection ends without an answer."""


Handler: TypeAlias = Callable[[Request], "Response | Cut | Awaitable[Response | Cut]"]


class Served:
    """The server; `url` is where it listens, `asked` what it was asked. `drop` cuts every connection there is."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.asked: list[Request] = []
        self.url = ""
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def until(self, count: int) -> None:
        """Return once it was asked so many times."""
        async with asyncio.timeout(20):
            while len(self.asked) < count:
                self._changed.clear()
                await self._changed.wait()

    def drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._one(reader, writer):
                    pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await self._read(reader)
        self.asked.append(request)
        self._changed.set()
        found = self.handler(request)
        answer = await self._unless_hung_up(found, reader) if isinstance(found, Awaitable) else found
        if answer is None:
            return False
        if isinstance(answer, Cut):
            writer.transport.abort()
            return False
        body = answer.body if isinstance(answer.body, bytes) else msgspec.json.encode(answer.body)
        headers = {"content-type": "application/json", "content-length": str(len(body))} | answer.headers
        lines = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body[: answer.cut_at])
        await writer.drain()
        if answer.cut_at is not None:
            writer.close()
        return answer.cut_at is None and headers.get("connection") != "close"

    async def _unless_hung_up(
        self, handling: Awaitable[Response | Cut], reader: asyncio.StreamReader
    ) -> Response | Cut | None:
        """The answer; None when the caller hangs up before it is there, whose handler is cancelled then."""
        working, hung_up = asyncio.ensure_future(handling), asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([working, hung_up], return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            for one in (working, hung_up):
                one.cancel()
            await asyncio.wait([working, hung_up])

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rest = head.strip().split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await reader.readline(), 16):
                body += await reader.readexactly(size)
                await reader.readline()
            await reader.readline()
        else:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Request(method, target, headers, body)

    async def aclose(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def peer(handler: Handler) -> AsyncIterator[Served]:
    """Serve a handler on a free port of this machine for a block."""
    served = Served(handler)
    server = await asyncio.start_server(served.accept, "127.0.0.1", 0, limit=1 << 20)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
        await served.aclose()
        await server.wait_closed()
