"""The closed vocabularies of tools, with their wire strings, and the names of the built-in tools."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Transport(StrEnum):
    """How a call reaches the tool."""

    INPROCESS = "inprocess"
    HTTP = "http"
    MCP = "mcp"
    A2A = "a2a"
    FLOW = "flow"


class SideEffect(StrEnum):
    """What a call does to the outside world; it decides whether an interrupted call may be repeated."""

    PURE = "pure"
    READ = "read"
    WRITE = "write"
    EXTERNAL = "external"
    STATEFUL = "stateful"


class Loading(StrEnum):
    """When the planner sees a tool: every turn, or only once a search has found it."""

    ALWAYS = "always"
    DEFERRED = "deferred"


class OnUnknown(StrEnum):
    """How an interrupted call with an unknown outcome is resolved, whose worker died in it.

    `retry` makes it again under the same key, `probe` asks the tool's own probe, `report` says to the planner that the
    outcome is unknown, `pause` asks a person.
    """

    RETRY = "retry"
    PROBE = "probe"
    REPORT = "report"
    PAUSE = "pause"


class ErrorClass(StrEnum):
    """The class of a failed attempt; only after `permanent` another attempt is pointless."""

    TRANSIENT = "transient"
    TIMEOUT = "timeout"
    SERVER = "5xx"
    PERMANENT = "permanent"


class ValidateMode(StrEnum):
    """Which side of a call is checked against its schema."""

    BOTH = "both"
    IN = "in"
    OUT = "out"
    NONE = ""


ARTIFACT_FETCH: Final = "artifact_fetch"
CLOCK_NOW: Final = "clock.now"
DECLARATIVE_ACTION: Final = "declarative_action"
TEXT_ECHO: Final = "text.echo"
TOOL_GET: Final = "tool_get"
TOOL_SEARCH: Final = "tool_search"

BUILT_IN_TOOL_NAMES: Final = (ARTIFACT_FETCH, CLOCK_NOW, DECLARATIVE_ACTION, TEXT_ECHO, TOOL_GET, TOOL_SEARCH)
"""Every built-in tool, sorted."""

MAX_FETCH_BYTES: Final = 1024 * 1024
"""Bytes that one call of `artifact_fetch` returns at most."""
