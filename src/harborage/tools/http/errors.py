"""The errors of tools over HTTP. Messages name the operation and the status, never a header, a query or a secret.

ToolError
├── HTTPStatusError          an answer that is no success; `status`, and the class by the status alone
│   └── HTTPRateLimitError   429 or 503; `retry_after_s` says when to try again, where the peer said it
├── HTTPAnswerError          an answer that cannot be read, or is larger than results may be
├── PeerUnreachableError     the connection never opened, so nothing was sent
└── HeaderConflictError      a header or parameter that belongs to the connection or to the operator's auth

InvalidOptionError
├── DocumentError            an OpenAPI document that is none, or an option that does not fit it
└── TemplateSecretLeakError  a template that would put a secret into a URL, a header or a body
"""

from __future__ import annotations

from harborage.errors import InvalidOptionError
from harborage.tools.enums import ErrorClass
from harborage.tools.errors import ToolError

_TRANSIENT = frozenset({408, 425, 429})


def class_of_status(status: int) -> ErrorClass:
    """Return the class of an answer that is no success."""
    if status >= 500:
        return ErrorClass.SERVER
    return ErrorClass.TRANSIENT if status in _TRANSIENT else ErrorClass.PERMANENT


class HTTPStatusError(ToolError):
    """A peer answered with a status that is no success. `status` is the status."""

    def __init__(self, status: int = 0, message: str = "") -> None:
        self.status = status
        self.error_class = class_of_status(status)  # type: ignore[misc] # of one failure, not of all
        super().__init__(message)


class HTTPRateLimitError(HTTPStatusError):
    """A peer has too much to do. `retry_after_s` is when it wants to be asked again, in seconds; None if it did not say
    so in a way that counts."""

    def __init__(self, status: int = 0, message: str = "", retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(status, message)


class HTTPAnswerError(ToolError):
    """The answer of a peer cannot be read, or is too large to be a result."""

    error_class = ErrorClass.PERMANENT


class PeerUnreachableError(ToolError):
    """The connection to a peer never opened, so nothing was sent."""

    error_class = ErrorClass.TRANSIENT
    had_no_effect = True


class HeaderConflictError(ToolError):
    """A header or a parameter belongs to the connection or to the operator's auth. `operation` names the operation."""

    def __init__(self, operation: str = "", name: str = "", why: str = "") -> None:
        self.operation = operation
        self.name = name
        super().__init__(f"{operation}: {name} {why}" if name else "")


class DocumentError(InvalidOptionError):
    """An OpenAPI document cannot be read, or an option does not fit it."""


class TemplateSecretLeakError(InvalidOptionError):
    """A template names `.Auth`: the secret would be in a URL, a header or a body that anybody may log."""
