"""The controls that were applied to the runs of a session: the newest lines of its audit trail, in memory.

Both the lines per session and the sessions are bounded. Keys are full identities, so that two tenants with the same
session id never see each other's lines.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.identity import Identity, IdentityRequiredError, Quadruple, effective_quadruple

if TYPE_CHECKING:
    from harborage.runtime.loop.controls import AppliedControl

MAX_CONTROL_HISTORY = 256
"""The default number of lines kept for one session."""
MAX_CONTROL_SESSIONS = 1024
"""The default number of sessions kept; the one with the oldest last line is dropped first."""


class ControlHistory:
    """The applied controls of recent sessions, failed ones too. Limits that are not positive mean the defaults."""

    __slots__ = ("_max_lines", "_max_sessions", "_rings")

    def __init__(self, max_lines: int = MAX_CONTROL_HISTORY, *, max_sessions: int = MAX_CONTROL_SESSIONS) -> None:
        self._max_lines = max_lines if max_lines > 0 else MAX_CONTROL_HISTORY
        self._max_sessions = max_sessions if max_sessions > 0 else MAX_CONTROL_SESSIONS
        # Ordered by last write, oldest first.
        self._rings: dict[Identity, deque[AppliedControl]] = {}

    def __len__(self) -> int:
        return len(self._rings)

    def record(self, who: Identity | Quadruple, applied: AppliedControl) -> None:
        """Add a line to the session of `who`; the oldest one is dropped when the session is full."""
        key = _triple(who)
        ring = self._rings.pop(key, None)
        if ring is None:
            ring = deque(maxlen=self._max_lines)
            if len(self._rings) >= self._max_sessions:
                del self._rings[next(iter(self._rings))]
        self._rings[key] = ring
        ring.append(applied if applied.err is None else replace(applied, err=_detached(applied.err)))

    def of(self, session_id: str, *, who: Identity | Quadruple | None = None) -> list[AppliedControl]:
        """Return a copy of the session's lines, oldest first; empty for a session without any.

        `who`, or else the ambient identity, is the owner of the session. Without either the id alone must be unique.

        Raises:
            IdentityRequiredError: no identity, and sessions of several owners have this id.
        """
        owner = effective_quadruple() if who is None else who
        if owner is not None:
            return list(self._rings.get(Identity(owner.tenant_id, owner.user_id, session_id), ()))
        rings = [ring for key, ring in self._rings.items() if key.session_id == session_id]
        if len(rings) > 1:
            raise IdentityRequiredError("control history: several owners have a session of this id; pass who=")
        return list(rings[0]) if rings else []

    def forget(self, who: Identity | Quadruple) -> None:
        """Drop the session of `who`, as when it is closed."""
        self._rings.pop(_triple(who), None)


def _triple(who: Identity | Quadruple) -> Identity:
    return who if isinstance(who, Identity) else who.identity


def _detached(error: Exception) -> Exception:
    """Return the error without traceback, cause and context, which would keep frames of the run alive."""
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    return twin
