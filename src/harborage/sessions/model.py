"""The values of sessions: a session, a filter of lists, the limits of its life, and the result of a sweep.

A session is a conversation of one user of one tenant; its id is the session part of the identity. The errors of
sessions, beside `identity.IdentityRequiredError`:

SessionError
├── SessionRegistryClosedError    the registry was closed
├── SessionMismatchError          the id is not that of the caller's session
├── SessionAlreadyOpenError       the session is open already
├── SessionClosedError            the session was closed
├── SessionNotFoundError          no such session
└── SessionCorruptError           its row cannot be read
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import force_setattr

from harborage import codec
from harborage.errors import HarborageError, NotFoundError, names_of
from harborage.identity import Identity
from harborage.store.times import moment

if TYPE_CHECKING:
    from harborage.store import SessionRow


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


IDLE_TTL: Final = timedelta(hours=24)
HARD_CAP: Final = timedelta(hours=720)
SWEEP_INTERVAL: Final = timedelta(minutes=15)


class SessionLimits(msgspec.Struct, frozen=True):
    """The limits of a session; there are none yet."""


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One conversation. Once closed it never opens again: a new conversation needs a new id."""

    id: str
    identity: Identity
    opened_at: datetime
    last_seen: datetime
    closed: bool = False
    closed_at: datetime | None = None
    closed_reason: str = ""
    limits: SessionLimits = SessionLimits()
    context: dict[str, Any] = {}


class SessionInspection(msgspec.Struct, frozen=True, kw_only=True):
    """A session, the seconds since it was opened and last seen, and whether a run executes in it."""

    session: Session
    age_s: float
    idle_s: float
    is_running: bool


class SessionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions to list; an empty field narrows nothing, and blank names are skipped.

    `seen_since` and `seen_until` are inclusive bounds on `last_seen`.
    """

    tenants: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    seen_since: datetime | None = None
    seen_until: datetime | None = None
    include_closed: bool = False

    def __post_init__(self) -> None:
        for names in ("tenants", "users", "sessions"):
            force_setattr(self, names, names_of(getattr(self, names), names))


ANY = SessionFilter()
"""The caller's open sessions."""


class SessionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long sessions live, and the time between two sweeps. Values that are not positive mean the defaults."""

    idle_ttl: timedelta = IDLE_TTL
    hard_cap: timedelta = HARD_CAP
    sweep_interval: timedelta = SWEEP_INTERVAL

    def effective(self) -> SessionPolicy:
        """Return this policy with the defaults filled in."""
        return SessionPolicy(
            idle_ttl=_positive(self.idle_ttl, IDLE_TTL),
            hard_cap=_positive(self.hard_cap, HARD_CAP),
            sweep_interval=_positive(self.sweep_interval, SWEEP_INTERVAL),
        )


class Reaped(StrEnum):
    """Why the sweeper closed a session."""

    HARD_CAP = "gc:hard_cap"
    IDLE = "gc:idle"


class Sweep(msgspec.Struct, frozen=True):
    """The result of one sweep: the sessions that it closed, and its first error."""

    reaped: tuple[Identity, ...] = ()
    error: Exception | None = None


def session_of(row: SessionRow) -> Session:
    """Return the session of a row.

    Raises:
        SessionCorruptError: it cannot be read.
    """
    who = row.who
    if row.is_damaged:
        raise SessionCorruptError(who.session_id, f"row {row.number} of the sessions is damaged")
    try:
        context: dict[str, Any] = codec.decode(row.context, dict[str, Any])
    except msgspec.DecodeError as error:
        raise SessionCorruptError(who.session_id, str(error)) from error
    return Session(
        id=who.session_id,
        identity=who,
        opened_at=moment(row.opened_at),
        last_seen=moment(row.seen_at),
        closed=row.closed_at is not None,
        closed_at=None if row.closed_at is None else moment(row.closed_at),
        closed_reason=row.close_reason,
        context=context,
    )


def reason_to_reap(session: Session, policy: SessionPolicy, now: datetime) -> Reaped | None:
    """Return why the sweeper should close the session, or None; the hard cap comes first."""
    if now - session.opened_at > policy.hard_cap:
        return Reaped.HARD_CAP
    if now - session.last_seen > policy.idle_ttl:
        return Reaped.IDLE
    return None


def _positive(value: timedelta, default: timedelta) -> timedelta:
    return value if value > timedelta() else default
