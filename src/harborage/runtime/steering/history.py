"""What was applied to the runs of a session: the newest lines of its audit trail, kept in memory.

Bounded both ways, in lines per session and in sessions. Keys are full identities, so that sessions of two tenants that
happen to share an id never see each other's lines.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.identity import Identity, IdentityRequiredError, Quadruple, effective_quadruple

if TYPE_CHECKING:
    from harborage.runtime.steering.controls import AppliedControl

__all__ = ["MAX_CONTROL_HISTORY", "MAX_CONTROL_SESSIONS", "ControlHistory"]

MAX_CONTROL_HISTORY = 256
"""Lines kept for one session, unless told otherwise."""
MAX_CONTROL_SESSIONS = 1024
"""Sessions kept, unless told otherwise; the one that was written to longest ago goes first."""


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
        """Add a line to the session of `who`; the session's oldest goes when it is full."""
        key = _triple(who)
        ring = self._rings.pop(key, None)
        if ring is None:
            ring = deque(maxlen=self._max_lines)
            if len(self._rings) >= self._max_sessions:
                del self._rings[next(iter(self._rings))]
        self._rings[key] = ring
        ring.append(applied if applied.err is None else replace(applied, err=_detached(applied.err)))

    def of(self, session_id: str, *, who: Identity | Quadruple | None = None) -> list[AppliedControl]:
        """A copy of the session's lines, oldest first; empty for a session without any.

        `who`, or else the ambient identity, says whose session it is. Without either the id alone must say it.

        Raises:
            IdentityRequiredError: no identity, and sessions of several owners have this id.
        """
        owner = effective_quadruple() if who is None else who
        if owner is not None:
            return list(self._rings.get(Identity(owner.tenant_id, owner.user_id, session_id), ()))
        rings = [ring for key, ring in self._rings.items() if key.session_id == session_id]
        if len(rings) > 1:
            raise IdentityRequiredError("control history: several owners have a session of this id; say who asks")
        return list(rings[0]) if rings else []

    def forget(self, who: Identity | Quadruple) -> None:
        """Drop the session of `who`, as when it is closed."""
        self._rings.pop(_triple(who), None)


def _triple(who: Identity | Quadruple) -> Identity:
    return who if isinstance(who, Identity) else who.identity


def _detached(error: Exception) -> Exception:
    """The same error without traceback, cause and context, which would keep whole frames of the run alive."""
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    return twin
