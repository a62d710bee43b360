"""What can go wrong with cassettes."""

from __future__ import annotations

from harborage.llm.errors import InvalidConfigError

__all__ = ["CassetteError", "CassetteInvalidError", "CassetteMissError", "CassetteUnusedError"]


class CassetteError(InvalidConfigError):
    """A cassette cannot be used. `path` is its file."""

    def __init__(self, message: str = "", *, path: str = "") -> None:
        self.path = path
        super().__init__(message)


class CassetteInvalidError(CassetteError):
    """A file is no cassette, or one of another version; the text names the file and the place."""


class CassetteMissError(CassetteError):
    """A request is not on the cassette. `nearest` is the index of the most similar recording, `diff` what differs."""

    def __init__(self, message: str = "", *, path: str = "", nearest: int | None = None, diff: str = "") -> None:
        self.nearest = nearest
        self.diff = diff
        super().__init__(message, path=path)


class CassetteUnusedError(CassetteError):
    """Recordings were not asked for. `unused` are their indices."""

    def __init__(self, message: str = "", *, path: str = "", unused: tuple[int, ...] = ()) -> None:
        self.unused = unused
        super().__init__(message, path=path)
