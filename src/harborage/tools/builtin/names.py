"""The names of the built-in tools: what configuration may list. It imports nothing, so reading it costs nothing."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ARTIFACT_FETCH",
    "BUILT_IN_TOOL_NAMES",
    "CLOCK_NOW",
    "DECLARATIVE_ACTION",
    "TEXT_ECHO",
    "TOOL_GET",
    "TOOL_SEARCH",
]

ARTIFACT_FETCH: Final = "artifact_fetch"
CLOCK_NOW: Final = "clock.now"
DECLARATIVE_ACTION: Final = "declarative_action"
TEXT_ECHO: Final = "text.echo"
TOOL_GET: Final = "tool_get"
TOOL_SEARCH: Final = "tool_search"

BUILT_IN_TOOL_NAMES: Final = (ARTIFACT_FETCH, CLOCK_NOW, DECLARATIVE_ACTION, TEXT_ECHO, TOOL_GET, TOOL_SEARCH)
"""Every built-in tool, sorted."""
