"""MCP servers for tests: one of this process at an address, and programs that speak on their standard input."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import mcp_types as types
import pytest
from mcp.server.lowlevel import Server

from tests.kit.sockets import serving

FOREIGN: Final = Path(__file__).parents[1] / "foreign"
PROGRAMS: Final = Path(__file__).parents[1] / "data" / "mcp"

OnCall = Callable[[str, Mapping[str, Any], Mapping[str, Any]], Awaitable[Any]]
"""Answers a call: its tool, arguments and metadata; a result of the library, or a value that becomes its text."""


@cache
def _package(name: str) -> Path:
    return FOREIGN / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"


def node_server(name: str, *args: str) -> list[str]:
    """The command of a server that npm has; the test is skipped where `make foreign` was not run."""
    if not _package(name).is_file():
        pytest.skip(f"npm's @modelcontextprotocol/server-{name} is not here: run make foreign")
    return ["node", str(_package(name)), *args]


def python_server(name: str, *args: str) -> list[str]:
    """The command of a server in `tests/data/mcp`."""
    return [sys.executable, str(PROGRAMS / f"{name}.py"), *args]


def listed(name: str, description: str = "", schema: Mapping[str, Any] | None = None, **more: Any) -> types.Tool:
    """A tool as a server lists it."""
    return types.Tool(name=name, description=description, input_schema=dict(schema or {"type": "object"}), **more)


def server_of(tools: Sequence[types.Tool], on_call: OnCall, *, is_live: bool = False) -> Server[Any]:
    """A server of the official library with these tools; one that is live lists them as they are when it is asked."""
    first = list(tools)

    async def on_list(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(tools) if is_live else first)

    async def called(ctx: Any, params: types.CallToolRequestParams) -> Any:
        found = await on_call(params.name, params.arguments or {}, dict(ctx.meta or {}))
        if isinstance(found, types.CallToolResult | types.InputRequiredResult):
            return found
        return types.CallToolResult(content=[types.TextContent(text=str(found))])

    return Server("peer", on_list_tools=on_list, on_call_tool=called)


@asynccontextmanager
async def at_an_address(server: Any, **options: Any) -> AsyncIterator[str]:
    """Serve an MCP server of this process; gives its address."""
    app = server.streamable_http_app(**options)
    async with app.router.lifespan_context(app), serving(app) as url:
        yield f"{url}/mcp"
