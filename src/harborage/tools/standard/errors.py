"""The refusals of the standard tools. Each comes before anything was changed and says what would be accepted.

StandardToolError
├── PathRefusedError          a path that leads out of the root, through a link, or nowhere
├── FileRefusedError          a file that these tools cannot read or write
├── FetchFailedError          a server refused, did not answer, or did not send text
└── ExpressionRefusedError    an expression that is no arithmetic, or too large
"""

from __future__ import annotations

from harborage.tools.enums import ErrorClass
from harborage.tools.errors import ToolError

# A URL that is refused is an AddressRefusedError, as with every other tool that visits one.


class StandardToolError(ToolError):
    """A standard tool refused a call."""

    error_class: ErrorClass | None = ErrorClass.PERMANENT  # type: ignore[misc]
    had_no_effect = True


class PathRefusedError(StandardToolError):
    """A path is not one that the file tools follow. `path` is the path as it was given."""

    def __init__(self, path: str = "", reason: str = "") -> None:
        self.path = path
        super().__init__(f"{path!r}: {reason}" if reason else "")


class FileRefusedError(StandardToolError):
    """A file is not one that the file tools read or write. `path` is the path as it was given."""

    def __init__(self, path: str = "", reason: str = "") -> None:
        self.path = path
        super().__init__(f"{path!r}: {reason}" if reason else "")


class FetchFailedError(StandardToolError):
    """A URL could not be read. `status` is the HTTP status, when there was an answer."""

    def __init__(
        self, message: str = "", *, status: int | None = None, error_class: ErrorClass = ErrorClass.PERMANENT
    ) -> None:
        self.status = status
        self.error_class = error_class
        super().__init__(message)


class ExpressionRefusedError(StandardToolError):
    """An expression is not arithmetic that the calculator does."""
