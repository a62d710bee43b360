"""The sweeper: closes sessions that are idle or too old, unless a run executes in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.clock import Clock, timers_of
from harborage.concurrency import CancelScope
from harborage.sessions.model import Reaped, Session, SessionPolicy, Sweep, reason_to_reap, session_of
from harborage.store.queries import SessionQuery
from harborage.store.times import micros

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.store import SessionRow, Store

_PAGE = 500


class Sweeper:
    """Sweeps a store. `is_running` returns whether a run executes in a session, `reaped` is called for each close."""

    def __init__(
        self,
        store: Store,
        policy: SessionPolicy,
        is_running: Callable[[Identity], Awaitable[bool]],
        reaped: Callable[[Session, Reaped], None],
        clock: Clock,
    ) -> None:
        self._store = store
        self._policy = policy
        self._is_running = is_running
        self._reaped = reaped
        self._clock = clock

    async def sweep(self) -> Sweep:
        """Sweep once, for one sweep interval at most; return the closed sessions and the first error."""
        reaped: list[Identity] = []
        errors: list[Exception] = []
        with CancelScope(timers_of(self._clock), self._policy.sweep_interval.total_seconds()) as scope:
            try:
                await self._close_expired(reaped, errors)
            except Exception as error:  # noqa: BLE001 - part of the result
                errors.append(error)
        if scope.was_cancelled:
            errors.append(TimeoutError("the sweep took longer than the sweep interval; the rest waits for the next"))
        return Sweep(tuple(reaped), errors[0] if errors else None)

    async def _close_expired(self, reaped: list[Identity], errors: list[Exception]) -> None:
        """Close every open session that was last seen, or opened, too long ago."""
        now = self._clock.now()
        asked: SessionQuery | None = SessionQuery(
            only_opened=True,
            seen_before=micros(now - self._policy.idle_ttl),
            opened_before=micros(now - self._policy.hard_cap),
            limit=_PAGE,
        )
        while asked is not None:
            page = await self._store.sessions(asked)
            for row in page.rows:
                try:
                    if await self._reap(row):
                        reaped.append(row.who)
                except Exception as error:  # noqa: BLE001 - part of the result
                    errors.append(error)
            asked = None if page.cursor is None else replace(asked, after=page.cursor)

    async def _reap(self, row: SessionRow) -> bool:
        reason = reason_to_reap(session_of(row), self._policy, self._clock.now())
        if reason is None or await self._is_running(row.who):
            return False
        # Closed only in the state that was read: a session that is touched meanwhile is not idle any more.
        done = await self._store.close_session(row.who, reason.value, seen_at=row.seen_at)
        if not done.is_changed or done.row is None:
            return False
        self._reaped(session_of(done.row), reason)
        return True
