"""What goes wrong with an MCP server. Texts name the server and the fix; what the server wrote in them is bounded.

MCPError
├── MCPToolError            the server answered that the tool failed
├── MCPRequestError         the server refused the request, or answered something that is no answer
├── MCPUnreachableError     the server could not be connected to; nothing was sent
└── MCPAuthError            the server does not let the caller in; nothing was done
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from harborage.tools.enums import ErrorClass
from harborage.tools.errors import ToolError

MOST_TEXT: Final = 4_000
"""Characters of a server's text that an error holds."""

# Control characters but for tab and newline, and those that hide or reorder what stands beside them.
_UNSHOWN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


# Sequences that a terminal acts on: colours and cursor, titles, single commands.
_ESCAPES: Final = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|.)?")


def cleaned(text: str, most: int = MOST_TEXT) -> str:
    """Return a text from outside as a person and a model may be shown it: bounded, without control characters."""
    text = text.replace("\r\n", "\n")
    clean = _UNSHOWN.sub("", _ESCAPES.sub("", text[: 2 * most]))
    return clean if len(clean) <= most and len(text) <= 2 * most else f"{clean[:most]}…"


class MCPError(ToolError):
    """An MCP server could not do what was asked. `server` is its name in the configuration."""

    def __init__(self, server: str = "", reason: str = "") -> None:
        self.server = server
        self.reason = reason
        super().__init__(f"MCP server {server!r}: {reason}" if server else reason)


class MCPToolError(MCPError):
    """The server answered that the tool failed. The call is not repeated, whatever the text says."""

    error_class = ErrorClass.PERMANENT


class MCPRequestError(MCPError):
    """The server refused a request, or answered something that is no answer. `error_class` is by its code alone."""

    error_class: ErrorClass  # type: ignore[misc] # of one failure, not of all

    def __init__(self, server: str = "", reason: str = "", error_class: ErrorClass = ErrorClass.PERMANENT) -> None:
        self.error_class = error_class
        super().__init__(server, reason)


class MCPUnreachableError(MCPError):
    """The server could not be connected to, so nothing was sent."""

    had_no_effect: ClassVar[bool] = True
    error_class: ErrorClass  # type: ignore[misc] # of one failure, not of all

    def __init__(self, server: str = "", reason: str = "", error_class: ErrorClass = ErrorClass.TRANSIENT) -> None:
        self.error_class = error_class
        super().__init__(server, reason)


class MCPAuthError(MCPUnreachableError):
    """The server does not let the caller in, so nothing was done."""

    def __init__(self, server: str = "", reason: str = "") -> None:
        fix = "the server answered 401: check the secret behind auth= or headers="
        super().__init__(server, reason or fix, ErrorClass.PERMANENT)
