"""The errors of the artifact store."""

from __future__ import annotations

from harborage.errors import HarborageError, NotFoundError


class ArtifactError(HarborageError):
    """The artifact store failed."""


class ArtifactNotFoundError(ArtifactError, NotFoundError):
    """An artifact is not in its scope, or is listed there but its bytes are gone. `id` names it."""

    what = "artifact"
    fix = "put it first, in the same scope"


class ArtifactCorruptError(ArtifactError):
    """A stored artifact is damaged; put it again or delete it. `path` is the damaged file."""

    def __init__(self, path: str = "", reason: str = "") -> None:
        self.path = path
        super().__init__(f"{path} is damaged ({reason}); put the artifact again or delete it" if path else "")


class ArtifactStorageError(ArtifactError):
    """The medium below the store refused to read or write. `path` is where, `reason` the system's own text."""

    def __init__(self, path: str = "", reason: str = "", advice: str = "") -> None:
        self.path = path
        self.reason = reason
        text = f"cannot use {path}: {reason}" if path else ""
        super().__init__(f"{text}; {advice}" if text and advice else text)


class ArtifactStoreClosedError(ArtifactError):
    """The artifact store is closed; open a new one."""


class ArtifactScopeError(ArtifactError):
    """An artifact belongs to another scope than the given one. `id` names it."""

    def __init__(self, id: str = "") -> None:
        self.id = id
        super().__init__(f"artifact {id!r} belongs to another scope; ask for it in its own" if id else "")


class UnsafePathError(ArtifactError):
    """A name would lead out of the store's folder; use names without `.` or `..` between separators."""
