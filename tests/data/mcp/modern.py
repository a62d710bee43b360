"""A server of the official library on its standard input: what a test needs that no ready server does."""

from __future__ import annotations

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("modern")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def steps(ctx: Context, count: int) -> str:
    """Do some steps, and tell how far they are."""
    for number in range(count):
        await ctx.report_progress(number + 1, count, f"step {number + 1}")
    return "done"


if __name__ == "__main__":
    server.run("stdio")
