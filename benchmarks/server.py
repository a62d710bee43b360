"""The server: what a request costs in its process, beside a bare ASGI handler under the same uvicorn.

Each side serves in a process of its own, over a socket; the requests come from this one, over connections that stay
open. The bare handler reads the body, decodes it, and encodes an answer of the same length.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from statistics import median
from typing import Any, Final

import msgspec

from benchmarks.measure import Row
from harborage.planner import Decision, Finish, FinishReason, RunContext

_CONNECTIONS: Final = 16
_REQUESTS: Final = 960
_ROUNDS: Final = 9
_READS: Final = {
    "tools.list": ("/v1/tools/list", b"{}"),
    "pause.list": ("/v1/pause/list", b"{}"),
}
_START: Final = ("/v1/control/start", b'{"query":"say hello"}')


async def server_requests() -> list[Row]:
    """CPU a request of reads and of `start`, each beside the bare handler."""
    async with serving("ours") as ours, serving("bare") as bare:
        answer = await ours.ask(*_START)
        run = msgspec.json.decode(answer)["task_id"].encode()
        rows = []
        for name, (path, body) in _READS.items():
            body = body.replace(b"%s", run)
            rows.append(await _row(f"{name} over HTTP", ours, bare, path, body, limit=2))
        rows.append(await _row("start over HTTP", ours, bare, *_START, limit=3))
    return rows


async def _row(name: str, ours: ServerSide, bare: ServerSide, path: str, body: bytes, *, limit: float) -> Row:
    length = len(await ours.ask(path, body))
    to_bare = msgspec.json.encode({"length": length, "body": body.decode()})
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(_ROUNDS):
        spent[0].append(await ours.load(path, body))
        spent[1].append(await bare.load("/bare", to_bare))
    return Row(
        name=name,
        unit="µs of CPU a request",
        ours=median(spent[0]) * 1e6,
        bare=median(spent[1]) * 1e6,
        limit=limit,
        note=f"{_CONNECTIONS} connections, an answer of {length} bytes",
    )


class ServerSide:
    """One server in its process, and the connections to it."""

    def __init__(self, pid: int, port: int, token: str) -> None:
        self._pid = pid
        self.port = port
        self.token = token

    async def ask(self, path: str, body: bytes, *, session: str = "") -> bytes:
        """The body of the answer to one request."""
        return await self._connection(path, body, 1, session)

    def cpu(self) -> float:
        """The seconds of CPU that the server's process has used."""
        return _cpu(self._pid)

    def memory(self) -> int:
        """The bytes of memory that the server's process holds."""
        with open(f"/proc/{self._pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def load(self, path: str, body: bytes) -> float:
        """The seconds of CPU that a request costs the server, of many over many connections."""
        await asyncio.gather(*(self._connection(path, body, 5) for _ in range(_CONNECTIONS)))
        before = _cpu(self._pid)
        each = _REQUESTS // _CONNECTIONS
        await asyncio.gather(*(self._connection(path, body, each) for _ in range(_CONNECTIONS)))
        return (_cpu(self._pid) - before) / (each * _CONNECTIONS)

    async def _connection(self, path: str, body: bytes, times: int, session: str = "") -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self.token}\r\n"
        head += f"x-harbor-session: {session}\r\n" if session else ""
        request = head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
        answer = b""
        try:
            for _ in range(times):
                writer.write(request)
                status = await reader.readuntil(b"\r\n\r\n")
                if not status.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"{path}: {status.splitlines()[0].decode()}")
                answer = await reader.readexactly(_length(status))
        finally:
            writer.close()
        return answer


def _length(head: bytes) -> int:
    (found,) = (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(found.partition(b":")[2])


def _cpu(pid: int) -> float:
    """Seconds of CPU that a process has used, all its threads together."""
    # The clock that clock_getcpuclockid(3) names: `/proc` counts in hundredths, which is a tenth of what is measured.
    return time.clock_gettime(~pid << 3 | 2)


@asynccontextmanager
async def serving(
    kind: str, *, module: str = "benchmarks.server", words: Sequence[str] = ()
) -> AsyncIterator[ServerSide]:
    """A server in a process of its own, which `module` runs; it ends when its input does."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        kind,
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        port, _, token = (await child.stdout.readline()).decode().strip().partition(" ")
        yield ServerSide(child.pid, int(port), token)
    finally:
        child.stdin.close()
        await child.wait()


async def be_server(opening: AbstractAsyncContextManager[tuple[Any, str]]) -> None:
    """Be the server of one side until standard input ends; `opening` gives the application and a token for it."""
    from harborage.server.listening import Address, Listener, bound_address, listen

    opened = listen(Address("127.0.0.1", 0))
    port = bound_address(opened).port
    async with opening as (app, token):
        listener = Listener(app, opened, grace=1)
        serving = asyncio.create_task(listener.serve())
        print(port, token, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        if drain := getattr(app, "drain", None):
            drain()  # streams end before the listener waits for them
        listener.stop()
        await serving


@asynccontextmanager
async def _application(kind: str) -> AsyncIterator[tuple[Any, str]]:
    if kind == "bare":
        yield _bare, "none"
        return
    async with application(planner=_Answers(), storage="memory:") as served:
        yield served


@asynccontextmanager
async def application(**runtime: Any) -> AsyncIterator[tuple[Any, str]]:
    """A server over a runtime with these options, and a token for it."""
    from harborage import Runtime
    from harborage.events import REDACTOR_DRIVERS
    from harborage.server.application import Server
    from harborage.server.auth.gate import TokenGate
    from harborage.server.auth.minting import development_mint, sign_development_token, verifier_of

    mint = development_mint()
    redactor = REDACTOR_DRIVERS.factory("patterns")()
    async with Runtime(**runtime) as opened:
        gate = TokenGate(verifier_of(mint), redactor=redactor, bus=opened.bus)
        yield Server(opened, gate=gate, issuer=mint), sign_development_token(mint)


class _Answers:
    """A planner that ends each run at once."""

    async def next(self, run: RunContext) -> Decision:
        return Finish(FinishReason.GOAL, "hello")


_decoder: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder()


async def _bare(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    asked = _decoder.decode(body)
    answer = _encoder.encode("x" * (asked["length"] - 2))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    asyncio.run(be_server(_application(sys.argv[1])))
