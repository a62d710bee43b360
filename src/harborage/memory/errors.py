"""The errors of a session's memory. Each message names the session, and says what to do."""

from __future__ import annotations

from harborage.errors import HarborageError
from harborage.identity import IdentityRequiredError


class SessionMemoryError(HarborageError):
    """An operation of a session's memory failed."""


class MemoryClosedError(SessionMemoryError):
    """The memory is closed."""

    def __init__(self) -> None:
        super().__init__("the memory is closed; open a new one over the same state store")


class MemoryIdentityError(SessionMemoryError, IdentityRequiredError):
    """Memory was used without a whole identity; `missing` names the empty parts."""

    def __init__(self, missing: tuple[str, ...] = ()) -> None:
        self.missing = missing
        listed = ", ".join(missing[:-1])
        parts = f"{listed} and {missing[-1]}" if listed else "".join(missing)
        super().__init__(f"{parts} empty" if parts else "")


class MemoryHealthError(SessionMemoryError):
    """Memory cannot go from one health to the other."""

    def __init__(self, prior: str = "", new: str = "") -> None:
        self.prior = prior
        self.new = new
        super().__init__(f"memory cannot go from {prior} to {new}")


class MemoryCorruptError(SessionMemoryError):
    """The stored memory of a session cannot be read; `flush` removes it."""

    def __init__(self, session_id: str = "", reason: str = "") -> None:
        self.session_id = session_id
        super().__init__(
            f"the stored memory of session {session_id!r} cannot be read: {reason}; remove it with `flush`"
        )


class InvalidSnapshotError(SessionMemoryError):
    """A snapshot is not of this strategy, or cannot be read."""
