"""The errors of sessions. Sessions raise `identity.IdentityRequiredError`, too.

SessionError
├── SessionRegistryClosedError    the registry was closed
├── SessionMismatchError          the id is not that of the caller's session
├── SessionAlreadyOpenError       the session is open already
├── SessionClosedError            the session was closed
├── SessionNotFoundError          no such session
└── SessionCorruptError           its row cannot be read
"""

from __future__ import annotations

from datetime import datetime

from harborage.errors import HarborageError, NotFoundError


class SessionError(HarborageError):
    """An operation on a session failed."""


class SessionRegistryClosedError(SessionError):
    """The session registry is closed; open a new one."""


class _AboutSessionError(SessionError):
    def __init__(self, session_id: str, text: str) -> None:
        self.session_id = session_id
        super().__init__(text)


class SessionMismatchError(_AboutSessionError):
    """The id is not that of the session in the caller's identity. `session_id` is the requested id."""

    def __init__(self, session_id: str = "") -> None:
        super().__init__(
            session_id, f"session {session_id!r} is not the session of the caller's identity; ask as its owner"
        )


class SessionClosedError(_AboutSessionError):
    """A closed session takes no runs and does not open again. `closed_at` and `reason` are those of its close."""

    def __init__(self, session_id: str = "", closed_at: datetime | None = None, reason: str = "") -> None:
        self.closed_at = closed_at
        self.reason = reason
        when = "" if closed_at is None else f" at {closed_at.isoformat()}"
        why = f" ({reason})" if reason else ""
        super().__init__(session_id, f"session {session_id!r} was closed{when}{why}; start a new one under a new id")


class SessionAlreadyOpenError(_AboutSessionError):
    """The session is open already; `ensure_open` accepts that."""

    def __init__(self, session_id: str = "") -> None:
        super().__init__(session_id, f"session {session_id!r} is open already; ensure_open accepts that")


class SessionNotFoundError(SessionError, NotFoundError):
    """This identity has no such session; whether another one has is not shown."""

    what = "session"
    fix = "open it first, under the same identity"


class SessionCorruptError(_AboutSessionError):
    """The row of a session cannot be read; another program changed it."""

    def __init__(self, session_id: str = "", why: str = "") -> None:
        super().__init__(
            session_id, f"the record of session {session_id!r} cannot be read: {why}; bring back a copy of the database"
        )
