"""A model server for tests, on loopback: it speaks a provider's protocol, follows a script, and fails on demand.

    async with LLMServer() as server:
        server.script("Hello!", Refusal(failure=Failure.RATE_LIMITED, retry_after="1"), Answer(content="…", broken=…))
        client = …  # any client of OpenAI's API, at server.base_url()

It is real HTTP over real sockets, so that what a client does with a broken connection is what it does in production.
Nothing here sleeps: a server that is to be slow waits until its caller gives up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from harborage.testing.conformance.llm_bench import (
    Answer,
    Break,
    Line,
    ReceivedRequest,
    Refusal,
    Silence,
)
from tests.kit.llm_dialects.chat import ChatDialect

if TYPE_CHECKING:
    from tests.kit.llm_dialects import Dialect, Frame

_HOST = "127.0.0.1"
_PATIENCE_S = 10.0


class LLMServer:
    """Answers calls with the lines of its script, in order; `otherwise` answers when none is left.

    `requests` is what was asked. `given_up` counts the calls whose caller hung up before their answer was whole.
    """

    def __init__(self, *dialects: Dialect, otherwise: Line | None = None) -> None:
        self.dialects: tuple[Dialect, ...] = dialects or (ChatDialect(),)
        self.otherwise = otherwise
        self.requests: list[ReceivedRequest] = []
        self.given_up = 0
        self._script: deque[Line] = deque()
        self._calls: set[asyncio.Task[None]] = set()
        self._busy = 0
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, _HOST, 0)

    async def aclose(self) -> None:
        """Stop listening and hang up on everybody. Closing twice does nothing."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        while calls := set(self._calls):
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
        await server.wait_closed()

    @property
    def url(self) -> str:
        """The address of the server's root."""
        assert self._server is not None, "the server is not running"
        return f"http://{_HOST}:{self._server.sockets[0].getsockname()[1]}"

    def base_url(self, dialect: str = "") -> str:
        """The base address for a client that speaks the dialect of this name; of the first one when none is named."""
        found = next((one for one in self.dialects if one.name == dialect), self.dialects[0])
        return f"{self.url}{found.base_path}"

    def script(self, *lines: Line) -> None:
        """Add lines for the calls to come."""
        self._script.extend(lines)

    @property
    def busy(self) -> int:
        """How many calls are being answered."""
        return self._busy

    @property
    def connections(self) -> int:
        """How many connections are open, busy or not."""
        return len(self._calls)

    async def until(self, holds: Callable[[Self], bool], what: str = "what was waited for") -> None:
        """Return when `holds(server)` does; it is looked at whenever a call begins or ends, or a client hangs up.

        Raises:
            TimeoutError: it did not come true in ten seconds.
        """
        try:
            async with asyncio.timeout(_PATIENCE_S), self._changed:
                await self._changed.wait_for(lambda: holds(self))
        except TimeoutError:
            state = f"{len(self.requests)} requests, {self.busy} busy, {self.connections} connections"
            raise TimeoutError(f"{what}: not within {_PATIENCE_S:g} s ({state})") from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, call after call, until the client hangs up."""
        task = asyncio.current_task()
        assert task is not None
        if self._server is None:  # closed while this connection was on its way
            writer.transport.abort()
            return
        self._calls.add(task)
        try:
            while (asked := await _read(reader)) is not None:
                if not await self._answer(asked, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the caller hung up
        finally:
            writer.close()
            try:
                with suppress(ConnectionError):
                    await writer.wait_closed()
            finally:  # cancelled there, too: `aclose` waits until none is left
                self._calls.discard(task)
                await self._tell()

    async def _answer(self, asked: ReceivedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one call; whether the connection may be used again."""
        self.requests.append(asked)
        self._busy += 1
        await self._tell()
        try:
            return await self._follow(self._line(asked), asked, _Wire(reader, writer))
        except ConnectionError:
            self.given_up += 1
            return False
        finally:
            self._busy -= 1
            await self._tell()

    def _line(self, asked: ReceivedRequest) -> Answer | Refusal | Silence | str:
        line = self._script.popleft() if self._script else self.otherwise
        if callable(line):
            line = line(asked)
        return "The script of the model server has no line for this call." if line is None else line

    async def _follow(self, line: Answer | Refusal | Silence | str, asked: ReceivedRequest, wire: _Wire) -> bool:
        dialect = next((one for one in self.dialects if one.is_mine(asked)), None)
        if dialect is None:
            await wire.whole(404, {"error": {"message": f"nobody here speaks {asked.path}"}})
            return True
        match line:
            case str():
                return await self._say(Answer(content=line), asked, dialect, wire)
            case Answer():
                return await self._say(line, asked, dialect, wire)
            case Refusal():
                status, body = dialect.refusal(line, asked)
                await wire.whole(status, body, {"retry-after": line.retry_after} if line.retry_after else {})
                return True
            case Silence():
                await wire.given_up()
                return False

    async def _say(self, answer: Answer, asked: ReceivedRequest, dialect: Dialect, wire: _Wire) -> bool:
        if not dialect.is_streamed(asked):
            return await _say_whole(answer, dialect.whole(answer, asked), wire)
        frames = dialect.frames(answer, asked)
        await wire.begin()
        if answer.broken is None:
            await wire.send([frame.data for frame in frames])
            await wire.end()
            return True
        await wire.send([frame.data for frame in _until_broken(frames, answer.after)])
        return await _break(answer.broken, asked, dialect, wire)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class _Wire:
    """The answering side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def whole(
        self, status: int, body: Mapping[str, Any] | bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self._head(status, {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})})
        self._writer.write(data)
        await self._writer.drain()

    async def begin(self) -> None:
        self._head(200, {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"})
        await self._writer.drain()

    async def send(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await self._writer.drain()

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def promise(self, body: bytes) -> None:
        """Send less than the headers promise."""
        self._head(200, {"content-type": "application/json", "content-length": str(len(body) * 2)})
        self._writer.write(body)
        await self._writer.drain()

    def reset(self) -> None:
        self._writer.transport.abort()

    async def given_up(self) -> None:
        """Wait until the caller hangs up, and raise that."""
        while await self._reader.read(1024):
            pass
        raise ConnectionResetError("the caller hung up")

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())


def _until_broken(frames: Sequence[Frame], after: int) -> list[Frame]:
    """The frames up to the one that holds the last piece that still comes; never all that speak."""
    kept: list[Frame] = []
    spoken = 0
    for frame in frames:
        if spoken >= after:
            break
        kept.append(frame)
        spoken += frame.speaks
    return kept


async def _break(how: Break, asked: ReceivedRequest, dialect: Dialect, wire: _Wire) -> bool:
    match how:
        case Break.TRUNCATED:
            await wire.end()
            return True
        case Break.DROPPED:
            wire.reset()
            return False
        case Break.STALLED:
            await wire.given_up()
            return False
        case Break.MALFORMED:
            await wire.send([dialect.garbage(asked)])
            await wire.given_up()
            return False
        case Break.FAILED:
            await wire.send([dialect.failure(asked)])
            await wire.end()
            return True


async def _say_whole(answer: Answer, body: Mapping[str, Any], wire: _Wire) -> bool:
    """An answer in one piece, whole or broken in the way that comes closest."""
    text = msgspec.json.encode(body)
    match answer.broken:
        case None:
            await wire.whole(200, text)
            return True
        case Break.MALFORMED | Break.TRUNCATED:
            await wire.whole(200, text[: len(text) // 2])
            return True
        case Break.FAILED:
            await wire.whole(200, {"error": {"message": "The upstream server failed", "code": 502}})
            return True
        case Break.DROPPED:
            await wire.promise(text[: len(text) // 2])
            wire.reset()
            return False
        case Break.STALLED:
            await wire.promise(text[: len(text) // 2])
            await wire.given_up()
            return False


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    """The next request; None when the caller has hung up in between."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(method, path, headers, msgspec.json.decode(body) if body else {})
