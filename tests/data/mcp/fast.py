"""A server of `fastmcp` on its standard input."""

from __future__ import annotations

from fastmcp import FastMCP

server = FastMCP("fast")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.resource("data://greeting")
def greeting() -> str:
    """A greeting."""
    return "hello"


@server.prompt
def ask(about: str) -> str:
    """Ask about something."""
    return f"What is {about}?"


if __name__ == "__main__":
    server.run(show_banner=False)
