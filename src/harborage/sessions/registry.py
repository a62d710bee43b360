"""The session registry: opens, touches, closes, shows and lists sessions, and closes those that were left.

The store is the truth; events are told as well as they can be. Whether something runs in a session is not known here: a
probe that is handed in says so.
"""

from __future__ import annotations

import asyncio
import builtins
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK, Clock, sleep, timers_of
from harborage.concurrency import CancelScope, Crew
from harborage.events import (
    AdminActionPayload,
    Event,
    EventBus,
    EventType,
    Payload,
    SessionClosedPayload,
    SessionGCReapedPayload,
    SessionOpenedPayload,
    SessionTouchedPayload,
    Triple,
    unix_ns,
)
from harborage.identity import Identity, Quadruple, effective_quadruple, held_scopes, require_triple
from harborage.sessions.errors import (
    SessionAlreadyOpenError,
    SessionBusRequiredError,
    SessionBusyError,
    SessionClosedError,
    SessionIDReuseError,
    SessionMismatchError,
    SessionNotFoundError,
    SessionRegistryClosedError,
    SessionReopenForbiddenError,
    SessionScopeRequiredError,
    SessionStoreRequiredError,
)
from harborage.sessions.model import (
    ANY,
    Session,
    SessionFilter,
    SessionInspection,
    SessionPolicy,
    Sweep,
    reason_to_reap,
)
from harborage.sessions.rows import CATALOG_SESSION, Row, Rows
from harborage.state.directory import DirectoryCorruptError

if TYPE_CHECKING:
    from harborage.state import StateStore

__all__ = ["FLEET_SCOPES", "Probe", "SessionRegistry", "Who"]

FLEET_SCOPES = frozenset({"admin", "console:fleet"})
"""Each of these lets a caller list sessions of others."""

Who: TypeAlias = Identity | Quadruple
Probe: TypeAlias = Callable[[Identity], bool | Awaitable[bool]]

_ATTEMPTS = 8
_SEEN_AGAIN = timedelta(minutes=1)
_LOOK_AGAIN = timedelta(hours=1)
logger = logging.getLogger(__name__)


class SessionRegistry:
    """Sessions in a record store, told about on a bus. Safe for many callers, and for several processes on one store.

    `is_running` says whether something runs in a session, which the sweeper then leaves alone; `on_closed` hears of
    every session that is closed here. The store and the bus stay their owner's to close, after the registry.

    Raises:
        SessionStoreRequiredError, SessionBusRequiredError: that part is None.
    """

    def __init__(
        self,
        store: StateStore | None,
        bus: EventBus | None,
        *,
        policy: SessionPolicy = SessionPolicy(),  # noqa: B008 - a frozen value
        is_running: Probe | None = None,
        on_closed: Callable[[Identity], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if store is None:
            raise SessionStoreRequiredError()
        if bus is None:
            raise SessionBusRequiredError()
        self._rows = Rows(store)
        self._bus = bus
        self._policy = policy.effective()
        self._is_running = is_running
        self._on_closed = on_closed
        self._clock = clock
        # The open sessions that this process knows of; a sweep looks now and then for those that others left.
        self._open: dict[Identity, None] = {}
        self._looked_at: datetime | None = None
        self._turns: WeakValueDictionary[Identity, asyncio.Lock] = WeakValueDictionary()
        self._is_closed = False
        self._crew = Crew(self._failed)

    @property
    def policy(self) -> SessionPolicy:
        """How long sessions live here."""
        return self._policy

    async def open(self, session_id: str, who: Who, *, context: dict[str, Any] | None = None) -> Session:
        """A new session of `who`, whose identity names it.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError, SessionMismatchError, SessionIDReuseError,
            SessionReopenForbiddenError, SessionAlreadyOpenError: in this order; nothing was opened.
        """
        owner = self._owner(who, "sessions.open")
        if owner.session_id != session_id or session_id == CATALOG_SESSION:
            raise SessionMismatchError(session_id)
        if not await self._rows.own(owner):
            raise SessionIDReuseError(session_id)
        session, is_new = await self._opened(owner, context or {})
        if not is_new:
            raise SessionAlreadyOpenError(session_id)
        return session

    async def ensure_open(self, who: Who) -> Session:
        """The open session of `who`, new if need be. Of callers at the same time one opens it.

        Raises:
            SessionReopenForbiddenError: it was closed; a new conversation needs a new id. Otherwise as for `open`.
        """
        owner = self._owner(who, "sessions.ensure_open")
        try:
            return await self.open(owner.session_id, owner)
        except SessionAlreadyOpenError:
            return (await self._row(owner)).session

    async def touch(self, who: Who) -> Session:
        """The session of `who`, seen now.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError, SessionNotFoundError, SessionClosedError: in this order.
        """
        owner = self._owner(who, "sessions.touch")

        def seen(session: Session) -> Session:
            return replace(session, last_seen=max(session.last_seen, self._clock.now()))

        return await self._touch(owner, seen)

    async def visit(self, who: Who) -> Session:
        """The session of `who`, for a program that begins to work in it: opened if need be, and seen now.

        One that was seen a moment ago is not written again. Programs name their sessions as they like: that another
        tenant or user has a session of the same id is no objection here.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError: in this order.
            SessionReopenForbiddenError: it was closed; a new conversation needs a new id.
        """
        owner = self._owner(who, "sessions.visit")

        def seen(session: Session) -> Session:
            now = self._clock.now()
            return replace(session, last_seen=now) if now - session.last_seen >= _SEEN_AGAIN else session

        session, _ = await self._opened(owner, {})
        return session if seen(session) is session else await self._touch(owner, seen)

    async def close(self, who: Who, reason: str = "") -> Session:
        """The session of `who`, closed for good. One that was closed before keeps its time and reason.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError, SessionNotFoundError: in this order.
        """
        owner = self._owner(who, "sessions.close")
        session, is_first = await self._close(owner, reason)
        if is_first and session.closed_at is not None:
            body = SessionClosedPayload(session.id, unix_ns(session.closed_at), session.closed_reason)
            self._tell(EventType.SESSION_CLOSED, owner, body)
        return session

    async def get(self, session_id: str, *, who: Who | None = None) -> Session:
        """The caller's session.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError, SessionMismatchError, SessionNotFoundError: in this
                order.
        """
        caller = self._owner(effective_quadruple() if who is None else who, "sessions.get")
        if caller.session_id != session_id:
            raise SessionMismatchError(session_id)
        return (await self._row(caller)).session

    async def inspect(self, session_id: str, *, who: Who | None = None) -> SessionInspection:
        """The caller's session, how long it has been there and been idle, and whether something runs in it.

        Raises: as for `get`, and what the probe raised.
        """
        session = await self.get(session_id, who=who)
        now = session.closed_at or self._clock.now()
        return SessionInspection(
            session=session,
            age_s=(now - session.opened_at).total_seconds(),
            idle_s=(now - session.last_seen).total_seconds(),
            is_running=await self._runs(session.identity),
        )

    async def list(
        self, filter: SessionFilter = ANY, *, who: Who | None = None, scopes: frozenset[str] | None = None
    ) -> builtins.list[Session]:
        """The caller's sessions that pass the filter, in no promised order; of others, for those who may see them.

        Those of earlier processes are among them. Rows that cannot be read are logged and left out. Without `scopes`
        the ambient ones count.

        Raises:
            SessionRegistryClosedError, IdentityRequiredError: in this order.
            SessionScopeRequiredError: the filter names another tenant or user, and the caller is no admin.
        """
        caller = self._owner(effective_quadruple() if who is None else who, "sessions.list")
        mine = SessionFilter(tenants=(caller.tenant_id,), users=(caller.user_id,))
        named = [name for name in (*filter.tenants, *filter.users) if name.strip()]
        if not named:
            owners = [(caller.tenant_id, caller.user_id)]
        else:
            reaches = _reaches_beyond(filter, mine)
            if reaches and FLEET_SCOPES.isdisjoint(held_scopes(scopes)):
                raise SessionScopeRequiredError()
            owners = [owner for owner in await self._rows.owners() if filter.may_own(*owner)]
            if reaches:
                body = AdminActionPayload(Triple.of(caller), "sessions.list")
                self._tell(EventType.AUDIT_ADMIN_SCOPE_USED, caller, body)
        found = [one for owner in owners for one in await self._rows.read(await self._rows.of_owner(owner))]
        return [row.session for row in found if filter.matches(row.session)]

    async def every_open(self) -> builtins.list[Session]:
        """Every open session of everybody, those of earlier processes among them: for hosts, who answer to nobody.

        Raises:
            SessionRegistryClosedError: the registry is closed.
        """
        self._check_open()
        found: builtins.list[Identity] = []
        for owner in await self._rows.owners():
            try:
                found += await self._rows.of_owner(owner)
            except DirectoryCorruptError as error:
                logger.warning("sessions of tenant %s, user %s cannot be listed: %s", *owner, error)
        return [row.session for row in await self._rows.read(found) if not row.session.closed]

    async def sweep(self) -> Sweep:
        """Close the sessions that were left idle, or are too old, unless something runs in them.

        Takes at most one sweep interval. What goes wrong with one session does not spare the others.

        Raises:
            SessionRegistryClosedError: the registry is closed.
        """
        self._check_open()
        reaped: list[Identity] = []
        errors: list[Exception] = []
        with CancelScope(timers_of(self._clock), self._policy.sweep_interval.total_seconds()) as scope:
            known = dict(self._open)
            await self._reap_all(known, reaped, errors)
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - told with the sweep
                errors.append(error)
            await self._reap_all([who for who in self._open if who not in known], reaped, errors)
        if scope.was_cancelled:
            errors.append(TimeoutError("the sweep took longer than the sweep interval; the rest waits for the next"))
        return Sweep(tuple(reaped), errors[0] if errors else None)

    def start(self) -> None:
        """Sweep every sweep interval until the registry closes. Starting twice does nothing.

        Raises:
            SessionRegistryClosedError: the registry is closed.
        """
        self._check_open()
        if not self._crew:
            self._crew.start(self._sweep_on(), "sessions.sweep")

    async def aclose(self) -> None:
        """Sweep no more, and refuse every later call. Closing twice does nothing."""
        self._is_closed = True
        await self._crew.aclose()
        self._open.clear()

    async def _sweep_on(self) -> None:
        while True:
            await sleep(timers_of(self._clock), self._policy.sweep_interval.total_seconds())
            done = await self.sweep()
            if done.error is not None:
                logger.warning("sessions: a sweep met an error: %s", done.error, exc_info=done.error)

    async def _look(self) -> None:
        """Find the open sessions of other processes, which may be gone by now."""
        now = self._clock.now()
        if self._looked_at is not None and now - self._looked_at < _LOOK_AGAIN:
            return
        for owner in await self._rows.owners():
            for row in await self._rows.read(await self._rows.of_owner(owner)):
                if not row.session.closed:
                    self._open[row.session.identity] = None
        self._looked_at = now

    async def _reap_all(
        self, sessions: Iterable[Identity], reaped: builtins.list[Identity], errors: builtins.list[Exception]
    ) -> None:
        for who in sessions:
            try:
                if await self._reap(who):
                    reaped.append(who)
            except Exception as error:  # noqa: BLE001 - told with the sweep
                errors.append(error)

    async def _reap(self, who: Identity) -> bool:
        if await self._runs(who):
            return False
        row = await self._rows.load(who)
        if row is None or row.session.closed:
            self._open.pop(who, None)
            return False
        reason = reason_to_reap(row.session, self._policy, self._clock.now())
        if reason is None:
            return False
        # Only as it was read: a session that somebody touches meanwhile is not idle any more.
        session = self._closed(row.session, reason)
        if not await self._rows.save(row.session, row.number) or not await self._rows.save(session, row.number + 1):
            return False
        self._left(who)
        at = unix_ns(session.closed_at or self._clock.now())
        self._tell(EventType.SESSION_GC_REAPED, who, SessionGCReapedPayload(session.id, at, reason))
        return True

    async def _opened(self, owner: Identity, context: dict[str, Any]) -> tuple[Session, bool]:
        """The open session of this owner, and whether it is new."""
        known = await self._rows.load(owner)
        if known is None:
            now = self._clock.now()
            session = Session(id=owner.session_id, identity=owner, opened_at=now, last_seen=now, context=context)
            # In the catalogue first: an entry that leads nowhere is skipped, a session without one would be lost.
            await self._rows.enter(owner)
            if await self._rows.save(session):
                self._open[owner] = None
                self._tell(EventType.SESSION_OPENED, owner, SessionOpenedPayload(owner.session_id, unix_ns(now)))
                return session, True
            known = await self._row(owner)
        if known.session.closed:
            raise SessionReopenForbiddenError(owner.session_id, known.session.closed_at, known.session.closed_reason)
        self._open[owner] = None
        return known.session, False

    async def _touch(self, owner: Identity, seen: Callable[[Session], Session]) -> Session:
        def touched(session: Session) -> Session:
            if session.closed:
                raise SessionClosedError(session.id)
            return seen(session)

        session, is_changed = await self._change(owner, touched)
        self._open[owner] = None
        if is_changed:
            body = SessionTouchedPayload(session.id, unix_ns(session.last_seen))
            self._tell(EventType.SESSION_TOUCHED, owner, body)
        return session

    async def _close(self, owner: Identity, reason: str) -> tuple[Session, bool]:
        def closed(session: Session) -> Session:
            return session if session.closed else self._closed(session, reason)

        session, is_changed = await self._change(owner, closed)
        self._left(owner)
        return session, is_changed

    def _left(self, who: Identity) -> None:
        """Forget an open session that is closed now."""
        self._open.pop(who, None)
        if self._on_closed is not None:
            self._on_closed(who)

    def _closed(self, session: Session, reason: str) -> Session:
        return replace(session, closed=True, closed_at=self._clock.now(), closed_reason=str(reason))

    async def _change(self, owner: Identity, change: Callable[[Session], Session]) -> tuple[Session, bool]:
        """The session after `change`, and whether that changed it; made anew while other processes come in between.

        Callers of this process take turns, so that many at once are no reason to give up.
        """
        turn = self._turns.get(owner)
        if turn is None:
            turn = self._turns[owner] = asyncio.Lock()
        async with turn:
            for _ in range(_ATTEMPTS):
                row = await self._row(owner)
                session = change(row.session)
                if session is row.session:
                    return session, False
                if await self._rows.save(session, row.number):
                    return session, True
        raise SessionBusyError(owner.session_id)

    async def _row(self, owner: Identity) -> Row:
        row = await self._rows.load(owner)
        if row is None:
            raise SessionNotFoundError(owner.session_id)
        return row

    async def _runs(self, who: Identity) -> bool:
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

    def _tell(self, type: EventType, who: Identity, payload: Payload) -> None:
        """Publish; a bus that refuses is logged, since the store has it."""
        try:
            self._bus.publish_nowait(Event(type, who.with_run(""), payload))
        except Exception as error:  # noqa: BLE001 - the store is the truth
            logger.warning("session %s: %s was not published: %s", who.session_id, type, error)

    def _failed(self, name: str, error: BaseException) -> None:
        logger.error("%s ended: %s", name, error, exc_info=error)


def _reaches_beyond(filter: SessionFilter, mine: SessionFilter) -> bool:
    """Whether the filter lets in anybody but the owner that `mine` names; an open axis means everybody."""
    tenants = {name for name in filter.tenants if name.strip()}
    users = {name for name in filter.users if name.strip()}
    return tenants != set(mine.tenants) or users != set(mine.users)
