"""The session registry: opens, touches, closes, shows and lists sessions, and closes abandoned ones.

The store is the truth; a bus that refuses an event is only logged, but for that of an opening over a store of record,
which is stored with the session. A probe, which the caller passes in, says whether a
run executes in a session: the sweeper leaves such a session open.
"""

from __future__ import annotations

import builtins
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK, Clock, sleep, timers_of
from harborage.concurrency import CancelScope, Crew
from harborage.errors import InvalidOptionError
from harborage.events import (
    AdminActionPayload,
    Event,
    EventBus,
    EventType,
    Payload,
    RecordBus,
    SessionClosedPayload,
    SessionGCReapedPayload,
    SessionTouchedPayload,
    Triple,
    unix_ns,
)
from harborage.identity import (
    AdminScopeRequiredError,
    Identity,
    Quadruple,
    effective_quadruple,
    held_scopes,
    require_triple,
)
from harborage.sessions.model import (
    ANY,
    Reaped,
    Session,
    SessionAlreadyOpenError,
    SessionClosedError,
    SessionCorruptError,
    SessionFilter,
    SessionInspection,
    SessionMismatchError,
    SessionPolicy,
    SessionRegistryClosedError,
    Sweep,
    reason_to_reap,
    session_of,
)
from harborage.sessions.opening import Opening, closed_error, found_session, opening_of
from harborage.store.queries import SessionQuery
from harborage.store.times import micros

if TYPE_CHECKING:
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


FLEET_SCOPES = frozenset({"admin", "console:fleet"})
"""With one of these a caller may list sessions of other users."""

Who: TypeAlias = Identity | Quadruple
Probe: TypeAlias = Callable[[Identity], bool | Awaitable[bool]]

_VISIT_INTERVAL = timedelta(minutes=1)
_MAX_VISITED = 1_024
logger = logging.getLogger(__name__)


class SessionRegistry:
    """Sessions in a store of record, with events on a bus. Safe for many callers, and for several processes.

    `is_running` returns whether a run executes in a session, which the sweeper then spares; `on_closed` is called for
    every session that is closed here. The owner of the store and the bus closes them, after the registry.

    Raises:
        InvalidOptionError: the store or the bus is None.
    """

    def __init__(
        self,
        store: Store | None,
        bus: EventBus | None,
        *,
        policy: SessionPolicy = SessionPolicy(),  # noqa: B008 - a frozen value
        is_running: Probe | None = None,
        on_closed: Callable[[Identity], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if store is None:
            raise InvalidOptionError("store", store, "the store of the sessions")
        if bus is None:
            raise InvalidOptionError("bus", bus, "the bus on which the events of sessions are published")
        self._store = store
        self._bus = bus
        # Over the same store the event of an opening is stored with the session, so that no run's event precedes it.
        self._record_bus = bus if isinstance(bus, RecordBus) and bus.store is store else None
        self._policy = policy.effective()
        self._is_running = is_running
        self._on_closed = on_closed
        self._clock = clock
        self._sweeper = Sweeper(store, self._policy, self._has_runs, self._on_reaped, clock)
        # The sessions of the last minute, so that not every start of a run reads its session from the store.
        self._visited: dict[Identity, Session] = {}
        self._is_closed = False
        self._crew = Crew(self._failed)

    @property
    def policy(self) -> SessionPolicy:
        """How long sessions live here."""
        return self._policy

    async def open(self, session_id: str, who: Who, *, context: dict[str, Any] | None = None) -> Session:
        """Open a new session of `who`, whose identity names it. Each tenant and user has session ids of their own.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError, SessionMismatchError, SessionClosedError,
            SessionAlreadyOpenError: in this order; nothing was opened.
        """
        owner = self._owner(who, "sessions.open")
        if owner.session_id != session_id:
            raise SessionMismatchError(session_id)
        session, is_new = await self._open_row(owner, context or {})
        if not is_new:
            raise SessionAlreadyOpenError(session_id)
        return session

    async def ensure_open(self, who: Who) -> Session:
        """Return the open session of `who`; open it if there is none. Of concurrent callers one opens it.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError: in this order.
            SessionClosedError: it was closed; a new conversation needs a new id.
        """
        session, _ = await self._open_row(self._owner(who, "sessions.ensure_open"), {})
        return session

    async def touch(self, who: Who) -> Session:
        """Mark the session of `who` as seen now, and return it.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError, SessionNotFoundError, SessionClosedError: in this order.
        """
        owner = self._owner(who, "sessions.touch")
        done = await self._store.touch_session(owner)
        session = found_session(owner, done.row)
        if not done.is_changed:
            raise closed_error(session)
        self._publish_touched(session)
        return session

    async def visit(self, who: Who) -> Session:
        """Return the session of `who` for a caller that starts a run in it: opened if there is none, and seen now.

        A session that this process visited within a minute is neither read nor written again; if another process has
        closed it meanwhile, the store refuses to start a run in it.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError: in this order.
            SessionClosedError: it was closed; a new conversation needs a new id.
        """
        owner = self._owner(who, "sessions.visit")
        known = self._visit(owner)
        if known is not None:
            return known
        now = self._clock.now()
        session, _ = await self._open_row(owner, {})
        if now - session.last_seen >= _VISIT_INTERVAL:
            done = await self._store.touch_session(owner, before=micros(now - _VISIT_INTERVAL) + 1)
            session = found_session(owner, done.row)
            if session.closed:
                raise closed_error(session)
            if done.is_changed:
                self._publish_touched(session)
        self._keep_visit(owner, session)
        return session

    def visiting(self, who: Who) -> Opening | None:
        """Return what makes the commit that starts a run a visit of its session, too; None where none is needed.

        Once it is committed, `Opening.committed` is told so.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError: in this order.
        """
        owner = self._owner(who, "sessions.visit")
        return None if self._visit(owner) is not None else self._opening(owner, {}, self._visited_by)

    def _visit(self, owner: Identity) -> Session | None:
        """Return the session of a visit that is not long ago."""
        known = self._visited.get(owner)
        return known if known is not None and self._clock.now() - known.last_seen < _VISIT_INTERVAL else None

    def _visited_by(self, session: Session) -> None:
        """Note the visit of a commit, which has seen the session."""
        now = self._clock.now()
        if now - session.last_seen >= _VISIT_INTERVAL:
            session = replace(session, last_seen=now)
            self._publish_touched(session)
        self._keep_visit(session.identity, session)

    def _keep_visit(self, owner: Identity, session: Session) -> None:
        self._visited.pop(owner, None)
        self._visited[owner] = session
        while len(self._visited) > _MAX_VISITED:
            del self._visited[next(iter(self._visited))]

    def session_closed_error(self, row: SessionRow) -> SessionClosedError:
        """Return the error for a run that the store did not start because another process closed its session."""
        self._visited.pop(row.who, None)
        return closed_error(session_of(row))

    async def close(self, who: Who, reason: str = "") -> Session:
        """Close the session of `who` for good, and return it. One that was closed before keeps its time and reason.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError, SessionNotFoundError: in this order.
        """
        owner = self._owner(who, "sessions.close")
        done = await self._store.close_session(owner, str(reason))
        session = found_session(owner, done.row)
        self._forget(owner)
        if done.is_changed and session.closed_at is not None:
            body = SessionClosedPayload(session.id, unix_ns(session.closed_at), session.closed_reason)
            self._publish(EventType.SESSION_CLOSED, owner, body)
        return session

    async def get(self, session_id: str, *, who: Who | None = None) -> Session:
        """Return the caller's session.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError, SessionMismatchError, SessionNotFoundError: in this
                order.
        """
        caller = self._owner(effective_quadruple() if who is None else who, "sessions.get")
        if caller.session_id != session_id:
            raise SessionMismatchError(session_id)
        query = SessionQuery(
            tenant=caller.tenant_id,
            user=caller.user_id,
            session=session_id,
            only_opened=True,
            include_closed=True,
            limit=1,
        )
        rows = (await self._store.sessions(query)).rows
        return found_session(caller, rows[0] if rows else None)

    async def inspect(self, session_id: str, *, who: Who | None = None) -> SessionInspection:
        """Return the caller's session, its age, its idle time, and whether a run executes in it.

        Raises: as for `get`, and what the probe raised.
        """
        session = await self.get(session_id, who=who)
        now = session.closed_at or self._clock.now()
        return SessionInspection(
            session=session,
            age_s=(now - session.opened_at).total_seconds(),
            idle_s=(now - session.last_seen).total_seconds(),
            is_running=await self._has_runs(session.identity),
        )

    async def list(
        self, filter: SessionFilter = ANY, *, who: Who | None = None, scopes: frozenset[str] | None = None
    ) -> builtins.list[Session]:
        """Return the sessions that pass the filter, in no promised order: the caller's, or with a scope also others'.

        Sessions of earlier processes are among them. Rows that cannot be read are logged and left out. Without `scopes`
        the ambient ones count.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError: in this order.
            AdminScopeRequiredError: the filter names another tenant or user, and the caller is no admin.
        """
        caller = self._owner(effective_quadruple() if who is None else who, "sessions.list")
        mine = ((caller.tenant_id,), (caller.user_id,))
        asked = (_named(filter.tenants), _named(filter.users))
        tenants, users = asked if any(asked) else mine
        if (tenants, users) != mine:
            if FLEET_SCOPES.isdisjoint(held_scopes(scopes)):
                raise AdminScopeRequiredError("sessions.list: a list of another tenant or user", FLEET_SCOPES)
            body = AdminActionPayload(Triple.of(caller), "sessions.list")
            self._publish(EventType.AUDIT_ADMIN_SCOPE_USED, caller, body)
        sessions = _named(filter.sessions)
        query = SessionQuery(
            session=sessions[0] if len(sessions) == 1 else "",
            seen_since=micros(filter.seen_since),
            seen_until=micros(filter.seen_until),
            only_opened=True,
            include_closed=filter.include_closed,
            limit=_PAGE,
        )
        found: builtins.list[Session] = []
        for tenant, user in product(tenants or ("",), users or ("",)):
            found += await self._all(replace(query, tenant=tenant, user=user))
        return [session for session in found if not sessions or session.id in sessions]

    async def list_all_open(self) -> builtins.list[Session]:
        """Return every open session of all tenants, also of earlier processes. Only a host may call this.

        Raises:
            SessionRegistryClosedError: the registry is closed.
        """
        self._check_open()
        return await self._all(SessionQuery(only_opened=True, limit=_PAGE))

    async def _all(self, query: SessionQuery) -> builtins.list[Session]:
        """Return the sessions of a query, page by page; a row that cannot be read is logged and left out."""
        found: builtins.list[Session] = []
        asked: SessionQuery | None = query
        while asked is not None:
            page = await self._store.sessions(asked)
            for row in page.rows:
                try:
                    found.append(session_of(row))
                except SessionCorruptError as error:
                    logger.warning("sessions: %s", error)
            asked = None if page.cursor is None else replace(asked, after=page.cursor)
        return found

    async def sweep(self) -> Sweep:
        """Close the sessions that are idle or too old, unless a run executes in them.

        Takes at most one sweep interval. An error in one session does not keep the others from being closed.

        Raises:
            SessionRegistryClosedError: the registry is closed.
        """
        self._check_open()
        return await self._sweeper.sweep()

    def start(self) -> None:
        """Sweep every sweep interval until the registry closes. Starting twice does nothing.

        Raises:
            SessionRegistryClosedError: the registry is closed.
        """
        self._check_open()
        if not self._crew:
            self._crew.start(self._sweep_repeatedly(), "sessions.sweep")

    async def aclose(self) -> None:
        """Stop sweeping, and refuse every later call. Closing twice does nothing."""
        self._is_closed = True
        await self._crew.aclose()
        self._visited.clear()

    async def _sweep_repeatedly(self) -> None:
        while True:
            await sleep(timers_of(self._clock), self._policy.sweep_interval.total_seconds())
            done = await self.sweep()
            if done.error is not None:
                logger.warning("sessions: error in a sweep: %s", done.error, exc_info=done.error)

    async def _open_row(self, owner: Identity, context: dict[str, Any]) -> tuple[Session, bool]:
        """Return the open session of this owner, and whether it is new."""
        opening = self._opening(owner, context)
        asked = opening.session
        done = await self._store.open_session(owner, context=asked.context, at=asked.at, events=asked.events)
        return opening.committed(done), done.is_changed

    def _opening(
        self, owner: Identity, context: dict[str, Any], on_opened: Callable[[Session], None] | None = None
    ) -> Opening:
        return opening_of(owner, context, self._clock.now(), self._record_bus, self._publish, on_opened)

    def _on_reaped(self, session: Session, reason: Reaped) -> None:
        self._forget(session.identity)
        at = unix_ns(session.closed_at or self._clock.now())
        self._publish(EventType.SESSION_GC_REAPED, session.identity, SessionGCReapedPayload(session.id, at, reason))

    def _forget(self, who: Identity) -> None:
        """Forget a session that is closed now, and call `on_closed`."""
        self._visited.pop(who, None)
        if self._on_closed is not None:
            self._on_closed(who)

    def _publish_touched(self, session: Session) -> None:
        body = SessionTouchedPayload(session.id, unix_ns(session.last_seen))
        self._publish(EventType.SESSION_TOUCHED, session.identity, body)

    async def _has_runs(self, who: Identity) -> bool:
        if self._is_running is None:
            return False
        answer = self._is_running(who)
        return bool(await answer if inspect.isawaitable(answer) else answer)

    def _owner(self, who: Who | None, what: str) -> Identity:
        self._check_open()
        require_triple(who, what)
        assert who is not None
        return who.identity if isinstance(who, Quadruple) else who

    def _check_open(self) -> None:
        if self._is_closed:
            raise SessionRegistryClosedError()

    def _publish(self, type: EventType, who: Identity, payload: Payload) -> None:
        """Publish an event; a bus that refuses it is logged, since the store has the change."""
        try:
            self._bus.publish_nowait(Event(type, who.with_run(""), payload))
        except Exception as error:  # noqa: BLE001 - the store is the truth
            logger.warning("session %s: %s was not published: %s", who.session_id, type, error)

    def _failed(self, name: str, error: BaseException) -> None:
        logger.error("%s ended: %s", name, error, exc_info=error)


def _named(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that are not blank, each once."""
    return tuple(dict.fromkeys(name for name in names if name.strip()))
