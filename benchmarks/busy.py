"""Steering beside a busy server: how soon a control that another process sends by REST is applied.

The server has a process of its own, over SQLite or Postgres, and is never idle: runs take steps with a tool all the
time, and other clients read lists. This process sends messages to a run that waits, and sees on the run's stream when
each was applied.
"""

from __future__ import annotations

import asyncio
import math
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from benchmarks.measure import Row
from benchmarks.server import ServerSide, be_server, serving
from tests.kit.postgres import PostgresServer, PostgresUnavailableError

if TYPE_CHECKING:
    from harborage.planner import Decision, RunContext

_CONTROLS: Final = 300
_RUNS: Final = 8
_TAKES_S: Final = 0.1
_READERS: Final = 2
_READ_EVERY_S: Final = 0.02
_PAUSE_S: Final = 0.01
_MOST_MS: Final = 20.0
_WITHIN_S: Final = 120.0


async def busy_controls() -> list[Row]:
    """The slowest but one of a hundred controls, from the request to the event that says it was applied."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="harborage-busy-") as folder:
        rows += await _measured("SQLite", f"sqlite:{Path(folder) / 'runs.db'}")
    try:
        with PostgresServer() as server:
            rows += await _measured("Postgres", server.url)
    except PostgresUnavailableError as error:
        print(f"left out: {error}", file=sys.stderr)
    return rows


async def _measured(name: str, storage: str) -> list[Row]:
    async with (
        asyncio.timeout(_WITHIN_S),
        serving("bare") as bare,
        serving("busy", module="benchmarks.busy", words=(storage,)) as side,
        _noise(side) as reads,
    ):
        began, used = time.perf_counter(), side.cpu()
        taken, alone = await _controls(side, bare)
        share = (side.cpu() - used) / (time.perf_counter() - began)
    p50, p99, base = _at(taken, 0.5), _at(taken, 0.99), _at(alone, 0.99)
    beside = f"{_RUNS} runs at work and {reads[0]} reads, {share:.0%} of a core"
    note = f"{len(taken)} controls, median {p50:.1f} ms; beside {beside}"
    name = f"control to applied by REST, p99, {name}"
    return [Row(name=name, unit="ms", ours=p99, bare=base, most=_MOST_MS, note=note)]


def _at(seconds: list[float], part: float) -> float:
    """Return in milliseconds what this part of them does not exceed."""
    return sorted(seconds)[math.ceil(part * len(seconds)) - 1] * 1_000


@asynccontextmanager
async def _noise(side: ServerSide) -> AsyncIterator[list[int]]:
    """Keep the server busy; counts the reads."""
    reads = [0]

    async def read() -> None:
        while True:
            await side.ask("/v1/tasks/list", b"{}")
            reads[0] += 1
            await asyncio.sleep(_READ_EVERY_S)

    for number in range(_RUNS):
        await side.ask("/v1/control/start", b'{"query":"work"}', session=f"busy-{number}")
    crew = [asyncio.create_task(read()) for _ in range(_READERS)]
    try:
        yield reads
    finally:
        for task in crew:
            task.cancel()
        await asyncio.gather(*crew, return_exceptions=True)


async def _controls(side: ServerSide, bare: ServerSide) -> tuple[list[float], list[float]]:
    """Seconds from sending a message to the event of its application, one after the other; and, in turn with them,
    those of a request to a handler that does nothing: what the machine itself takes now.
    """
    started = await side.ask("/v1/control/start", b'{"query":"wait"}', session="steered")
    run_id = msgspec.json.decode(started)["task_id"]
    async with _stream(side, run_id) as applied:
        taken, alone = [], []
        for number in range(_CONTROLS):
            event_id = f"m-{number}"
            identity = {"run": run_id, "scope": "owner_user"}
            body = {"identity": identity, "payload": {"message": "hello"}, "event_id": event_id}
            began = time.perf_counter()
            await side.ask("/v1/control/user_message", msgspec.json.encode(body), session="steered")
            taken.append(await applied(event_id) - began)
            began = time.perf_counter()
            await bare.ask("/bare", b'{"length":64}')
            alone.append(time.perf_counter() - began)
            await asyncio.sleep(_PAUSE_S)
    return taken, alone


@asynccontextmanager
async def _stream(side: ServerSide, run_id: str) -> AsyncIterator[Callable[[str], Awaitable[float]]]:
    """Open the stream of a run that waits; gives what waits for the event of a control's application."""
    reader, writer = await asyncio.open_connection("127.0.0.1", side.port)
    head = f"GET /v1/events?run={run_id}&after=0 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {side.token}\r\n"
    writer.write(f"{head}x-harbor-session: steered\r\n\r\n".encode())

    async def until(*parts: bytes) -> float:
        while line := await reader.readline():
            if line.startswith(b"data: ") and all(part in line for part in parts):
                return time.perf_counter()
        raise RuntimeError("the stream ended")

    try:
        await until(b'"pause.requested"')
        yield lambda event_id: until(b'"control.applied"', f'"{event_id}"'.encode())
    finally:
        writer.close()


class _Planner:
    """Works without an end, or waits for whatever comes."""

    async def next(self, run: RunContext) -> Decision:
        from harborage.planner import CallTool, PauseReason, RequestPause

        return CallTool("nap", b"{}") if run.goal == "work" else RequestPause(PauseReason.AWAIT_INPUT)


@asynccontextmanager
async def _application(storage: str) -> AsyncIterator[tuple[Any, str]]:
    from benchmarks.server import application
    from harborage.runtime.effects.options import RuntimeOptions
    from harborage.tools import tool

    @tool(effects="read")
    async def nap() -> str:
        """Take a moment."""
        await asyncio.sleep(_TAKES_S)
        return "rested"

    options = RuntimeOptions(max_steps=1_000_000)
    async with application(planner=_Planner(), tools=[nap], storage=storage, options=options) as served:
        yield served


if __name__ == "__main__":
    asyncio.run(be_server(_application(sys.argv[2])))
