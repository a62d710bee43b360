"""Opens, resolves, shows and lists pauses: a thin service over the store of record, which alone has their state.

A pause is resolved by a conditional update of the store: of several answers, from any process, one counts. The order of
checks in each verb is part of the contract. What a decision means for the run is not decided here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.errors import HarborageError, InvalidOptionError, error_reason
from harborage.events import Event, EventBus, EventType, PauseRequestedPayload, PauseResumedPayload, RecordBus, Triple
from harborage.identity import Identity, Quadruple, current_quadruple, effective_quadruple, held_scopes, require_triple
from harborage.planner.errors import ToolContextLostError
from harborage.runtime.durable.pauses.errors import (
    AlreadyResumedError,
    CheckpointCorruptError,
    PauseNotFoundError,
    PauseScopeMismatchError,
    UnsupportedFormatVersionError,
)
from harborage.runtime.durable.pauses.listing import (
    RESOLVED,
    build_queries,
    includes_resolved,
    is_same_triple,
    iterate_pauses,
    may_act,
    narrow_to_caller,
    read_page,
    select_tenants,
    validate_page,
)
from harborage.runtime.durable.pauses.record import checked_decision, checked_reason, pause_token, plain_payload
from harborage.runtime.durable.pauses.rows import (
    WITHDRAWN,
    decode_row,
    decode_trajectory,
    encode_open_pause,
    encode_resolution,
)
from harborage.runtime.durable.pauses.waiters import Waiters
from harborage.runtime.loop.pauses import (
    OPEN,
    Pause,
    PauseDecision,
    PauseFilter,
    PausePage,
    PauseRequest,
    PauseState,
    Who,
)
from harborage.store import Commit, DropAnswer, PauseQuery, PauseStatus
from harborage.store.errors import PauseSettledError, RowNotFoundError
from harborage.store.memory import MemoryStore
from harborage.store.times import micros

if TYPE_CHECKING:
    from harborage.events.bus import RunWriter
    from harborage.planner.views import HandleRegistry
    from harborage.store import PauseRow, Store

RETENTION = timedelta(days=30)
"""How long a resolved pause without a run stays at least, so that its answer can be read."""

_UNREADABLE = (CheckpointCorruptError, UnsupportedFormatVersionError)
_STATUSES = {
    PauseDecision.APPROVE: PauseStatus.APPROVED,
    PauseDecision.REJECT: PauseStatus.REJECTED,
    PauseDecision.RESUME: PauseStatus.ANSWERED,
    PauseDecision.TIMEOUT: PauseStatus.EXPIRED,
}

logger = logging.getLogger(__name__)


class Coordinator:
    """The pauses of a store of record; without `store`, of a new one in memory.

    Safe for many callers on one event loop, and for many processes over one store. `handles` are the live objects that
    trajectories name. A resolved pause stays as long as its run; one without a run stays for `retention` at least.
    """

    def __init__(
        self,
        *,
        bus: EventBus | None = None,
        store: Store | None = None,
        handles: HandleRegistry | None = None,
        clock: Clock = SYSTEM_CLOCK,
        retention: timedelta = RETENTION,
    ) -> None:
        self._retention = retention
        self._bus = bus
        self._store: Store = MemoryStore(clock=clock) if store is None else store
        self._handles = handles
        self._clock = clock
        self._waiters = Waiters()

    @property
    def record_bus(self) -> RecordBus | None:
        """The bus whose events a run commits with its changes; None if they are stored elsewhere, or not at all."""
        return self._bus if isinstance(self._bus, RecordBus) and self._bus.store is self._store else None

    async def request(
        self,
        request: PauseRequest,
        *,
        write: RunWriter | None = None,
        is_repeated: bool = False,
        announce: Callable[[str], Event] | None = None,
    ) -> Pause:
        """Open a pause, or return the one that has the same key.

        `write`, here and below, is how the run commits that makes the change itself. `is_repeated` says that such a run
        may have opened it before. If its events are committed on `record_bus`, the event that `announce` returns for
        the token is committed with the pause.

        Raises:
            IdentityRequiredError, InvalidReasonError, PauseDecisionError, InvalidOptionError: in this order.
            UnserializableError: the payload or the trajectory cannot be kept.
            DatabaseError, StoreError: the store refused. In every case nothing is recorded.
        """
        pause = self._build_pause(request)
        if is_repeated and (known := await self._find(pause.token)) is not None:
            return self._wake_if_resolved(known).without_trajectory()
        if not await self._open(pause, _requested(request, pause), write, announce):
            return self._wake_if_resolved(await self._read(pause.token)).without_trajectory()
        return pause.without_trajectory()

    async def resume(
        self,
        token: str,
        decision: PauseDecision,
        payload: dict[str, Any] | None = None,
        *,
        sealed: bytes | None = None,
        who: Who | None = None,
        scopes: frozenset[str] | None = None,
        by: Identity | UnsetType | None = UNSET,
        event_id: str = "",
        write: RunWriter | None = None,
        can_wait: bool = False,
    ) -> Pause:
        """Resolve a pause, as its owner or an admin of its tenant. Exactly one caller succeeds.

        `by` is the principal who sent the answer, by default the caller; None means that no principal did. `event_id`
        is that of the control with the answer.

        A rejection needs no live handles, because it does not resume the run. After its deadline a pause is resolved
        with its default, for every caller. Only the call that waits for the pause gets `sealed`. With `can_wait` the
        run that makes the change commits it together with its next entries.

        Raises:
            PauseDecisionError, IdentityRequiredError, PauseNotFoundError, AlreadyResumedError, PauseScopeMismatchError:
                in this order. For callers who may see the pause the error says how it was resolved, when and by whom.
            ToolContextLostError: the run needs a live handle that this process does not hold; the pause stays open.
            UnserializableError: the payload cannot be kept; the pause stays open.
            DatabaseError, StoreError: the store refused; the pause stays open.
        """
        chosen = checked_decision(decision)
        caller = _caller(who, "pauses.resume")
        now = self._clock.now()  # before the store is read, so that a slow store makes no answer late
        pause = await self._read(token)
        is_allowed = may_act(caller, scopes, pause.identity)
        if not pause.is_paused:
            self._wake_if_resolved(pause)
            raise AlreadyResumedError.of(pause) if is_allowed else AlreadyResumedError(token)
        if not is_allowed:
            raise PauseScopeMismatchError(token)
        if pause.is_due(now):
            raise AlreadyResumedError.of(await self._expire(pause, now))
        if chosen.goes_on:
            self._check_handles(pause)
        answer = plain_payload(payload)
        sender = _identity(caller) if by is UNSET else by
        user = caller.user_id if sender is None else sender.user_id
        resolved = pause.resolve(chosen, answer, now, sealed=sealed, by=user, sender=sender, event_id=event_id)
        status = _STATUSES[chosen]
        return await self._resolve(resolved, status, answer, write, event_id=event_id, can_wait=can_wait)

    async def withdraw(self, token: str, *, who: Who | None = None, write: RunWriter | None = None) -> bool:
        """Reject a pause that no call waits for any more; return False if it was resolved before.

        Raises:
            IdentityRequiredError, PauseNotFoundError, PauseScopeMismatchError: in this order.
            DatabaseError, StoreError: the store refused; the pause stays open.
        """
        caller = _caller(who, "pauses.withdraw")
        pause = await self._read(token)
        if not may_act(caller, None, pause.identity):
            raise PauseScopeMismatchError(token)
        if not self._wake_if_resolved(pause).is_paused:
            return False
        try:
            resolved = pause.resolve(PauseDecision.REJECT, WITHDRAWN, self._clock.now())
            await self._resolve(resolved, PauseStatus.CANCELLED, None, write)
        except AlreadyResumedError:
            return False
        return True

    async def drop_answer(self, token: str, event_id: str) -> None:
        """Drop the pending answer with this event id, so that another one may be sent.

        Raises:
            DatabaseError, StoreError: the store refused.
        """
        await self._store.commit(Commit(drops=(DropAnswer(token=token, event_id=event_id),)))

    async def check_handles(self, token: str) -> None:
        """Accept a pause whose run this process could resume.

        Raises:
            PauseNotFoundError: there is no such pause.
            ToolContextLostError: the run needs a live handle that this process does not hold.
        """
        pause = await self._read(token)
        if pause.is_paused:
            self._check_handles(pause)

    async def status(self, token: str, *, who: Who | None = None, scopes: frozenset[str] | None = None) -> Pause:
        """Return the pause. Without any identity, explicit or ambient, the token itself is the capability.

        If another process has resolved it, calls of this process that wait for it are woken.

        Raises:
            PauseNotFoundError, PauseScopeMismatchError: in this order.
            CheckpointCorruptError, UnsupportedFormatVersionError: it cannot be read.
        """
        pause = self._wake_if_resolved(await self._read(token))
        caller = effective_quadruple() if who is None else who
        if caller is not None:
            require_triple(caller, "pauses.status")
            if not may_act(caller, scopes, pause.identity):
                raise PauseScopeMismatchError(token)
        return pause.shown()

    async def list(
        self,
        filter: PauseFilter = OPEN,
        *,
        page: int = 0,
        page_size: int = 0,
        who: Who | None = None,
        scopes: frozenset[str] | None = None,
    ) -> PausePage:
        """Return a page of the caller's pauses, newest first; with the admin scope, those of its or the named tenants.

        A pause that cannot be read is logged and left out.

        Raises:
            IdentityRequiredError, InvalidPageError, CrossTenantScopeError, AdminScopeRequiredError: in this order.
        """
        caller = _caller(who, "pauses.list")
        number, size = validate_page(page, page_size)
        held = held_scopes(scopes)
        tenants = select_tenants(filter, caller, held)
        wanted = narrow_to_caller(filter, caller, held)
        rows, total = await read_page(self._store, build_queries(wanted, tenants), number, size)
        return PausePage(
            rows=tuple(pause.shown() for row in rows if (pause := self._decode_or_log(row)) is not None),
            page=number,
            page_size=size,
            page_count=-(-total // size),
            total=total,
            truncated=includes_resolved(wanted) and not await self._has_resolved(tenants),
        )

    async def list_open(
        self, who: Identity, *, after: tuple[int, int] | None = None, limit: int = 100
    ) -> tuple[Sequence[Pause], tuple[int, int] | None]:
        """Return a page of the open pauses of a session, newest first, and the cursor of the next one."""
        mine = PauseQuery(
            tenant=who.tenant_id,
            user=who.user_id,
            session=who.session_id,
            statuses=(PauseStatus.OPEN,),
            after=after,
            limit=limit,
        )
        page = await self._store.pauses(mine)
        return [pause.shown() for row in page.rows if (pause := self._decode_or_log(row)) is not None], page.cursor

    async def expire(self, token: str) -> Pause:
        """Resolve a pause whose deadline has passed with its default; return one that is not due unchanged.

        Raises:
            PauseNotFoundError: there is no such pause.
        """
        now = self._clock.now()
        pause = self._wake_if_resolved(await self._read(token))
        if pause.is_due(now):
            pause = await self._expire(pause, now)
        return pause.without_trajectory()

    async def list_all_open(self) -> tuple[Pause, ...]:
        """Return every open pause of all tenants. Only a host may call this. One that cannot be read is logged."""
        rows = iterate_pauses(self._store, PauseQuery(statuses=(PauseStatus.OPEN,)))
        return tuple([pause.shown() async for row in rows if (pause := self._decode_or_log(row)) is not None])

    async def expire_due(self) -> tuple[Pause, ...]:
        """Resolve every pause of all tenants whose deadline has passed; return those that it resolved.

        One that cannot be resolved is logged and does not hold up the others. Pauses without a run that were resolved
        long ago are deleted. Call it when a process starts.
        """
        resolved: list[Pause] = []
        now = self._clock.now()
        async for row in iterate_pauses(self._store, PauseQuery(due=micros(now))):
            pause = self._decode_or_log(row)
            if pause is None:
                continue
            try:
                due = pause.resolve(pause.default, None, now)
                resolved.append(await self._resolve(due, PauseStatus.EXPIRED, None))
            except AlreadyResumedError:
                continue  # another caller was faster
            except HarborageError:
                logger.warning("pause %s: its deadline passed, but it was not resolved", pause.token, exc_info=True)
        await self._store.drop_pauses(micros(now - self._retention))
        return tuple(resolved)

    def on_resolved(self, token: str, wake: Callable[[Pause], None]) -> Callable[[], None]:
        """Call `wake` once when the pause is resolved, at once if it was; the returned function cancels that.

        It is called for pauses resolved through this coordinator, and for those that the coordinator reads as resolved.
        """
        return self._waiters.subscribe(token, wake)

    def _build_pause(self, request: PauseRequest) -> Pause:
        """Return the pause that a request describes, or raise the error that refuses it."""
        owner = _owner(request.identity)
        reason, default = checked_reason(request.reason), checked_decision(request.default)
        if request.deadline is not None and request.deadline.tzinfo is None:
            raise InvalidOptionError("deadline", request.deadline, "a time with its zone: datetime(…, tzinfo=UTC)")
        return Pause(
            token=pause_token(owner, request.key),
            reason=reason,
            state=PauseState.PAUSED,
            identity=owner,
            paused_at=self._clock.now(),
            payload=plain_payload(request.payload),
            deadline=request.deadline,
            default=default,
            key=request.key,
            trajectory=None if request.trajectory is None else request.trajectory.serialize(),
            step=request.step,
            call_id=request.call_id,
            is_masked=request.is_masked,
        )

    async def _read(self, token: str) -> Pause:
        """Return the pause from the store.

        Raises:
            PauseNotFoundError: there is no such pause.
        """
        if (pause := await self._find(token)) is None:
            raise PauseNotFoundError(token)
        return pause

    async def _find(self, token: str) -> Pause | None:
        rows = (await self._store.pauses(PauseQuery(tokens=(token,), limit=1))).rows
        return decode_row(rows[0]) if rows else None

    async def _open(
        self, pause: Pause, event: Event, write: RunWriter | None, announce: Callable[[str], Event] | None
    ) -> bool:
        """Store a new pause and publish its event; return False if there is one with its token."""
        commit, bus = Commit(opens=(encode_open_pause(pause),)), self.record_bus
        if write is not None and bus is not None:
            events = [event] if announce is None else [event, announce(pause.token)]
            done = await write(commit, [bus.prepare(one) for one in events])
            return all(done.opened)
        done = await (self._store.commit(commit) if write is None else write(commit))
        if all(done.opened):
            self._publish(event)
        return all(done.opened)

    async def _expire(self, pause: Pause, now: datetime) -> Pause:
        """Resolve a pause whose deadline has passed, and return it as this process or a faster one has resolved it."""
        try:
            return await self._resolve(pause.resolve(pause.default, None, now), PauseStatus.EXPIRED, None)
        except AlreadyResumedError:
            return await self._read(pause.token)

    async def _resolve(
        self,
        resolved: Pause,
        status: PauseStatus,
        payload: dict[str, Any] | None,
        write: RunWriter | None = None,
        *,
        event_id: str = "",
        can_wait: bool = False,
    ) -> Pause:
        """Store that a pause is resolved, publish it, and wake the calls that wait for it here.

        Raises:
            AlreadyResumedError: another caller was faster.
        """
        commit = Commit(settles=(encode_resolution(resolved, status, payload),))
        try:
            if write is None:
                await self._store.commit(commit)
            else:
                # Only where the run commits its events too: `pause.resumed` is then stored together with the change.
                await write(commit, can_wait=can_wait and self.record_bus is not None)
        except PauseSettledError as error:
            raise AlreadyResumedError.of(self._wake_if_resolved(decode_row(error.row))) from error
        except RowNotFoundError as error:
            raise PauseNotFoundError(resolved.token) from error
        body = PauseResumedPayload(
            token=resolved.token,
            reason=resolved.reason,
            decision=str(resolved.decision or ""),
            by=UNSET if resolved.answered_by is None else Triple.of(resolved.answered_by),
            event_id=event_id or UNSET,
        )
        self._publish(Event(type=EventType.PAUSE_RESUMED, identity=resolved.identity, payload=body))
        self._waiters.wake(resolved)
        return resolved

    def _wake_if_resolved(self, pause: Pause) -> Pause:
        """Return the pause; if it is resolved, wake the calls that wait for it here."""
        if not pause.is_paused:
            self._waiters.wake(pause)
        return pause

    def _decode_or_log(self, row: PauseRow) -> Pause | None:
        try:
            return self._wake_if_resolved(decode_row(row))
        except _UNREADABLE as error:
            logger.warning("run %s: a pause cannot be listed: %s", row.run_id, error_reason(error))
            return None

    def _check_handles(self, pause: Pause) -> None:
        """Check that every live handle of the run's trajectory is in this process."""
        history = decode_trajectory(pause)
        for handle in () if history is None else history.tool_context.handles:
            if self._handles is None:
                raise ToolContextLostError(handle)
            self._handles.get(handle)

    async def _has_resolved(self, tenants: tuple[str, ...]) -> bool:
        """Return whether a resolved pause of these tenants is stored."""
        for tenant in tenants:
            if (await self._store.pauses(PauseQuery(tenant=tenant, statuses=RESOLVED, limit=1))).rows:
                return True
        return False

    def _publish(self, event: Event) -> None:
        """Publish an event of a pause; a bus that refuses it is logged, since the pause itself is stored."""
        if self._bus is None:
            return
        try:
            self._bus.publish_nowait(event)
        except Exception:
            logger.warning("%s of a pause was not published: %s", event.type, event.payload, exc_info=True)


def _caller(who: Who | None, operation: str) -> Who:
    caller = effective_quadruple() if who is None else who
    require_triple(caller, operation)
    assert caller is not None
    return caller


def _identity(who: Who) -> Identity:
    return who.identity if isinstance(who, Quadruple) else who


def _owner(who: Who) -> Quadruple:
    """Return the owner with its run: its own, else the ambient one if that belongs to the same triple."""
    require_triple(who, "pauses.request")
    owner = who if isinstance(who, Quadruple) else who.with_run("")
    ambient = current_quadruple()
    if not owner.run_id and ambient is not None and is_same_triple(ambient, owner):
        return ambient
    return owner


def _requested(request: PauseRequest, pause: Pause) -> Event:
    """Return the event that says of a new pause who may answer it, and until when."""
    body = PauseRequestedPayload(
        token=pause.token,
        reason=pause.reason,
        step=request.step or UNSET,
        call_id=request.call_id or UNSET,
        deadline=UNSET if pause.deadline is None else pause.deadline,
        default=UNSET if pause.deadline is None else str(pause.default),
        approvers=(f"user:{pause.identity.user_id}", "scope:admin"),
    )
    return Event(type=EventType.PAUSE_REQUESTED, identity=pause.identity, payload=body)
