"""A call of an MCP tool through the driver beside `session.call_tool` of the official library, on one connection.

The servers are processes of their own, so that the CPU is the client's alone: a node server on its standard input, and
one of the library at an address, in the modern protocol.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.measure import Row
from harborage.identity import Identity
from harborage.tools import MCP, CallContext, Invoker
from harborage.tools.sources import SourceServices

CALLS: Final = 200
ROUNDS: Final = 7
CPU_LIMIT: Final = 1.3
P50_LIMIT: Final = 1.5
WHO: Final = Identity("acme", "ada", "s-1").with_run("run-1")
NODE: Final = Path("tests/foreign/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
PEER: Final = """
import sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("peer")
@server.tool()
async def add(a: int, b: int) -> int:
    return a + b
server.run("streamable-http", port=int(sys.argv[1]))
"""


async def mcp_calls() -> list[Row]:
    """CPU and p50 of calls on standard input and over HTTP; a row is left out where npm's server is not here."""
    rows: list[Row] = []
    if NODE.is_file():
        server = MCP("all", command=["node", str(NODE), "stdio"], effects={"get-sum": "read"})
        rows += await _compared("MCP, stdio to node", server, "get-sum")
    else:
        print(f"{NODE} is not here: run make foreign", file=sys.stderr)
    async with _at_an_address() as url:
        rows += await _compared("MCP, HTTP", MCP("peer", url=url, effects={"add": "read"}), "add")
    return rows


async def _compared(name: str, server: MCP, tool: str) -> list[Row]:
    source: Any = server.open(SourceServices())
    try:
        (found,) = [one for one in await source.list_tools(WHO) if one.tool.name.endswith(f"_{tool}")]
        connection = await source._pool.shared(10)
        invoker, context = Invoker(), CallContext(WHO, "call-1", "run-1/1")

        async def ours() -> None:
            await invoker.invoke(found, b'{"a": 2, "b": 3}', context)

        async def theirs() -> None:
            await connection.session.call_tool(tool, {"a": 2, "b": 3}, read_timeout_seconds=30)

        cpu, p50 = await _in_turn(ours, theirs)
    finally:
        await source.aclose()
    return [
        Row(name=f"{name}: CPU a call", unit="ms", ours=cpu[0], bare=cpu[1], limit=CPU_LIMIT),
        Row(name=f"{name}: p50", unit="ms", ours=p50[0], bare=p50[1], limit=P50_LIMIT),
    ]


async def _in_turn(
    ours: Callable[[], Awaitable[None]], theirs: Callable[[], Awaitable[None]]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Milliseconds of CPU a call, and the p50 of one, of both sides: medians of blocks that take turns."""
    cpu: tuple[list[float], list[float]] = ([], [])
    p50: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS + 1):
        for side, make in enumerate((ours, theirs)):
            took: list[float] = []
            begin = time.process_time()
            for _ in range(CALLS):
                began = time.perf_counter()
                await make()
                took.append(time.perf_counter() - began)
            if number:  # the first block warms up
                cpu[side].append((time.process_time() - begin) / CALLS * 1000)
                p50[side].append(median(took) * 1000)
    return (median(cpu[0]), median(cpu[1])), (median(p50[0]), median(p50[1]))


@asynccontextmanager
async def _at_an_address() -> AsyncIterator[str]:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PEER, str(port), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.1)
                else:
                    writer.close()
                    break
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()
