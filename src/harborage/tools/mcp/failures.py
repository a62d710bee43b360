"""What an error of the official library means for a call: whether it was answered, and whether it may be sent again.

By type, code and status only, whatever the words of the server say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import mcp_types as types
from mcp.shared.exceptions import MCPError as ProtocolError

from harborage.errors import error_text
from harborage.tools.enums import ErrorClass
from harborage.tools.errors import ToolUnansweredError
from harborage.tools.mcp.connection import NotConnectedError
from harborage.tools.mcp.errors import MCPAuthError, MCPError, MCPRequestError, MCPUnreachableError, cleaned
from harborage.tools.mcp.http import Exchange, is_unopened

if TYPE_CHECKING:
    from harborage.tools.mcp.connection import Connection

_STAND_IN: Final = "Server returned an error response"
_MAY_PASS: Final = frozenset({408, 425, 429})
_MOST: Final = 1_000


class LostSession(NamedTuple):
    """The server does not know the session any more; it has done nothing."""


def failure_of(
    error: Exception,
    *,
    server: str,
    tool: str,
    connection: Connection,
    exchange: Exchange,
    mask: Callable[[str], str],
) -> Exception | LostSession:
    """Return what a failed request means: the error that the call ends with, or that the session is lost."""
    if exchange.too_large:
        return MCPRequestError(server, f"{tool}: its answer has more than {exchange.too_large:,} bytes")
    if not isinstance(error, ProtocolError):
        return _of_other(error, server, tool)
    status = exchange.status
    if status == 401:
        return MCPAuthError(server)
    is_refused = status == 404 or (status == 400 and error.message == _STAND_IN)
    if is_refused and not connection.is_modern:
        return LostSession()  # servers say either of a session that they do not know
    if error.code == types.REQUEST_TIMEOUT:
        text = f"MCP server {server!r}: {tool}: it did not answer in time"
        return ToolUnansweredError(text, error_class=ErrorClass.TIMEOUT)
    if error.code == types.CONNECTION_CLOSED:
        return _of_closed(server, tool, connection)
    if status >= 400 and error.message == _STAND_IN:
        return MCPRequestError(server, f"{tool}: it answered with the status {status}", _class_of_status(status))
    error_class = ErrorClass.SERVER if error.code == types.INTERNAL_ERROR else ErrorClass.PERMANENT
    return MCPRequestError(server, f"{tool}: {cleaned(mask(error.message), _MOST)}", error_class)


def is_of_connection(error: Exception) -> bool:
    """Whether the library gave up a request because the whole connection has ended."""
    return (
        isinstance(error, ProtocolError)
        and error.code == types.CONNECTION_CLOSED
        and error.message == "Connection closed"
    )


def _of_other(error: Exception, server: str, tool: str) -> Exception:
    if isinstance(error, NotConnectedError):
        return MCPUnreachableError(server, error_text(error))
    if isinstance(error, TimeoutError | OSError):
        return ToolUnansweredError(f"MCP server {server!r}: {tool}: the connection broke")
    # A library that quotes what it got would quote a foreign value.
    return MCPRequestError(server, f"{tool}: it answered with what is no result of a call")


def _of_closed(server: str, tool: str, connection: Connection) -> Exception:
    if is_unopened(connection.error):
        return MCPUnreachableError(server, "no server accepts connections at its address")
    why = connection.why or "the connection was cut"
    return ToolUnansweredError(f"MCP server {server!r}: {tool}: {why} before it answered")


def _class_of_status(status: int) -> ErrorClass:
    if status >= 500:
        return ErrorClass.SERVER
    return ErrorClass.TRANSIENT if status in _MAY_PASS else ErrorClass.PERMANENT


def why_unopened(error: NotConnectedError, *, server: str, address: str, tail: str, status: int) -> MCPError:
    """Return why a server could not be connected to, with the fix."""
    cause = _innermost(error)
    if status in (401, 403):
        return MCPAuthError(server, f"the server answered {status}: check the secret behind auth= or headers=")
    if isinstance(cause, FileNotFoundError):
        program = cause.filename if isinstance(cause.filename, str) else address
        text = f"there is no program {program!r} here; install it, or mend command="
        return MCPUnreachableError(server, text, ErrorClass.PERMANENT)
    if isinstance(cause, PermissionError):
        return MCPUnreachableError(server, f"{address}: it may not be started", ErrorClass.PERMANENT)
    if is_unopened(error.__cause__) or isinstance(cause, ConnectionError):
        return MCPUnreachableError(server, f"no server accepts connections at {address}; is it running?")
    if status >= 400:
        return MCPUnreachableError(server, f"{address} answered with the status {status}", _class_of_status(status))
    if isinstance(cause, TimeoutError):
        return MCPUnreachableError(server, f"{cause}; {address} may be no MCP server", ErrorClass.TIMEOUT)
    said = f"; it wrote: {tail}" if tail else ""
    why = cleaned(cause.message, 300) if isinstance(cause, ProtocolError) else error_text(error)
    return MCPUnreachableError(server, f"it could not be connected to: {why or type(cause).__name__}{said}")


def _innermost(error: BaseException) -> BaseException:
    """The first error of a group, and of what it is chained to, that says what happened."""
    found: BaseException = error
    while True:
        if isinstance(found, BaseExceptionGroup) and found.exceptions:
            found = found.exceptions[0]
        elif isinstance(found, NotConnectedError) and found.__cause__ is not None:
            found = found.__cause__
        else:
            return found
