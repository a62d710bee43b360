"""Opens, settles, shows and lists pauses: a thin service over the store of record, which alone knows how they stand.

Nothing of a pause is kept here. Whether it is open is asked of the store, and settling one is a change of the store
that is true only while it is; so of several answers, from whichever processes they come, one counts. The order of
checks in each verb is part of the contract. What a decision means for the run is not decided here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.errors import HarborageError, error_reason
from harborage.events import Event, EventBus, EventType, PauseRequestedPayload, PauseResumedPayload, Payload
from harborage.identity import Quadruple, current_quadruple, effective_quadruple, held_scopes, require_triple
from harborage.ids import named_id, new_id
from harborage.runtime.pauses.errors import (
    AlreadyResumedError,
    CheckpointCorruptError,
    InvalidDeadlineError,
    InvalidDecisionError,
    InvalidReasonError,
    PauseNotFoundError,
    ScopeMismatchError,
    ToolContextLostError,
    UnsupportedFormatVersionError,
)
from harborage.runtime.pauses.listing import (
    SETTLED,
    every,
    is_same_triple,
    may_act,
    page_bounds,
    page_of,
    queries_of,
    tenants_of,
    wants_resumed,
    within_reach,
)
from harborage.runtime.pauses.model import (
    OPEN,
    Pause,
    PauseDecision,
    PauseFilter,
    PausePage,
    PauseReason,
    PauseRequest,
    PauseState,
    Who,
)
from harborage.runtime.pauses.record import plain_payload
from harborage.runtime.pauses.rows import WITHDRAWN, history_of, opening, pause_of, settling
from harborage.runtime.pauses.waiters import Waiters
from harborage.store import Commit, DropAnswer, PauseQuery, PauseStatus
from harborage.store.errors import PauseSettledError, RowNotFoundError
from harborage.store.memory import MemoryStore
from harborage.store.times import micros

if TYPE_CHECKING:
    from harborage.planner.views import HandleRegistry
    from harborage.store import PauseRow, Store

__all__ = ["SETTLED_FOR", "Coordinator"]

SETTLED_FOR = timedelta(days=30)
"""How long a settled pause of no run is kept at least, for whoever comes for its answer."""

_UNREADABLE = (CheckpointCorruptError, UnsupportedFormatVersionError)
_STATUSES = {
    PauseDecision.APPROVE: PauseStatus.APPROVED,
    PauseDecision.REJECT: PauseStatus.REJECTED,
    PauseDecision.RESUME: PauseStatus.ANSWERED,
    PauseDecision.TIMEOUT: PauseStatus.EXPIRED,
}

logger = logging.getLogger(__name__)


class Coordinator:
    """Pauses of a store of record; of one in memory, of its own, when none is given.

    Safe for many callers on one event loop, and for many processes over one store. `handles` are the live objects that
    trajectories name. A settled pause stays as long as its run; one that belongs to none for `settled_for`, at least.
    """

    def __init__(
        self,
        *,
        bus: EventBus | None = None,
        store: Store | None = None,
        handles: HandleRegistry | None = None,
        clock: Clock = SYSTEM_CLOCK,
        settled_for: timedelta = SETTLED_FOR,
    ) -> None:
        self._settled_for = settled_for
        self._bus = bus
        self._store: Store = MemoryStore(clock=clock) if store is None else store
        self._handles = handles
        self._clock = clock
        self._waiters = Waiters()

    async def request(self, request: PauseRequest) -> Pause:
        """Open a pause, or return the one that was opened before under the same key.

        Raises:
            IdentityRequiredError, InvalidReasonError, InvalidDecisionError, InvalidDeadlineError: in this order.
            UnserializableError: the payload or the trajectory cannot be kept.
            DatabaseError, StoreError: the store refused. In every case nothing is recorded.
        """
        pause = self._checked(request)
        done = await self._store.commit(Commit(opens=(opening(pause),)))
        if not all(done.opened):
            return self._noticed(await self._pause(pause.token)).without_trajectory()
        self._tell(EventType.PAUSE_REQUESTED, pause, PauseRequestedPayload(token=pause.token, reason=pause.reason))
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
    ) -> Pause:
        """Settle a pause. Exactly one caller ever does; its owner may, and an admin of its tenant.

        A rejection needs no live handles: it ends the wait without carrying the run on. After its deadline a pause is
        settled with its default, whoever comes. `sealed` reaches whoever waits for the pause, and nobody else.

        Raises:
            InvalidDecisionError, IdentityRequiredError, PauseNotFoundError, AlreadyResumedError, ScopeMismatchError:
                in this order. Who may see the pause learns how it was settled, when and by whom.
            ToolContextLostError: the run needs a live handle that this process does not hold; the pause stays open.
            UnserializableError: the payload cannot be kept; the pause stays open.
            DatabaseError, StoreError: the store refused; the pause stays open.
        """
        chosen = _decision(decision)
        caller = _caller(who, "pauses.resume")
        now = self._clock.now()  # an answer that was given in time is not late for the time that the store takes
        pause = await self._pause(token)
        is_allowed = may_act(caller, scopes, pause.identity)
        if not pause.is_paused:
            self._noticed(pause)
            raise AlreadyResumedError.of(pause) if is_allowed else AlreadyResumedError(token)
        if not is_allowed:
            raise ScopeMismatchError(token)
        if pause.is_due(now):
            raise AlreadyResumedError.of(await self._expire(pause, now))
        if chosen.goes_on:
            self._reattach(pause)
        answer = plain_payload(payload)
        settled = pause.settled(chosen, answer, now, sealed=sealed, by=caller.user_id)
        return await self._settle(settled, _STATUSES[chosen], answer)

    async def withdraw(self, token: str, *, who: Who | None = None) -> bool:
        """Settle a pause that nobody waits for any more, as rejected; False for one that was settled before.

        Raises:
            IdentityRequiredError, PauseNotFoundError, ScopeMismatchError: in this order.
            DatabaseError, StoreError: the store refused; the pause stays open.
        """
        caller = _caller(who, "pauses.withdraw")
        pause = await self._pause(token)
        if not may_act(caller, None, pause.identity):
            raise ScopeMismatchError(token)
        if not self._noticed(pause).is_paused:
            return False
        try:
            settled = pause.settled(PauseDecision.REJECT, WITHDRAWN, self._clock.now())
            await self._settle(settled, PauseStatus.CANCELLED, None)
        except AlreadyResumedError:
            return False
        return True

    async def drop_answer(self, token: str, event_id: str) -> None:
        """The answer that was sent with this event id came to nothing: another one may be sent.

        Raises:
            DatabaseError, StoreError: the store refused.
        """
        await self._store.commit(Commit(drops=(DropAnswer(token=token, event_id=event_id),)))

    async def check_handles(self, token: str) -> None:
        """Accept a pause after which its run could go on in this process.

        Raises:
            PauseNotFoundError: there is no such pause.
            ToolContextLostError: the run needs a live handle that this process does not hold.
        """
        pause = await self._pause(token)
        if pause.is_paused:
            self._reattach(pause)

    async def status(self, token: str, *, who: Who | None = None, scopes: frozenset[str] | None = None) -> Pause:
        """The pause as it stands. Without any identity, explicit or ambient, the token itself is the capability.

        Whoever waits here for a pause that another process has settled is woken.

        Raises:
            PauseNotFoundError, ScopeMismatchError: in this order.
            CheckpointCorruptError, UnsupportedFormatVersionError: it cannot be read.
        """
        pause = self._noticed(await self._pause(token))
        caller = effective_quadruple() if who is None else who
        if caller is not None:
            require_triple(caller, "pauses.status")
            if not may_act(caller, scopes, pause.identity):
                raise ScopeMismatchError(token)
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
        """A page of the caller's own pauses; with the admin scope of its tenant's, or the tenants named; newest first.

        One that cannot be read is logged and left out.

        Raises:
            IdentityRequiredError, InvalidPageError, CrossTenantScopeError, CrossUserScopeError: in this order.
        """
        caller = _caller(who, "pauses.list")
        number, size = page_bounds(page, page_size)
        held = held_scopes(scopes)
        tenants = tenants_of(filter, caller, held)
        wanted = within_reach(filter, caller, held)
        rows, total = await page_of(self._store, queries_of(wanted, tenants), number, size)
        return PausePage(
            rows=tuple(pause.shown() for row in rows if (pause := self._readable(row)) is not None),
            page=number,
            page_size=size,
            page_count=-(-total // size),
            total=total,
            truncated=wants_resumed(wanted) and not await self._has_settled(tenants),
        )

    async def expire(self, token: str) -> Pause:
        """Settle a pause whose deadline has passed with its default; one that is not due comes back unchanged.

        Raises:
            PauseNotFoundError: there is no such pause.
        """
        now = self._clock.now()
        pause = self._noticed(await self._pause(token))
        if pause.is_due(now):
            pause = await self._expire(pause, now)
        return pause.without_trajectory()

    async def every_open(self) -> tuple[Pause, ...]:
        """Every open pause, of all tenants: for hosts, who answer to nobody. One that cannot be read is logged."""
        rows = every(self._store, PauseQuery(statuses=(PauseStatus.OPEN,)))
        return tuple([pause.shown() async for row in rows if (pause := self._readable(row)) is not None])

    async def expire_due(self) -> tuple[Pause, ...]:
        """Settle every pause whose deadline has passed, whoever's it is; returns those it settled.

        One that cannot be settled is logged and does not keep the others waiting. Pauses of no run that were settled
        long enough ago are dropped. Call it when a process starts.
        """
        settled: list[Pause] = []
        now = self._clock.now()
        async for row in every(self._store, PauseQuery(due=micros(now))):
            pause = self._readable(row)
            if pause is None:
                continue
            try:
                due = pause.settled(pause.default, None, now)
                settled.append(await self._settle(due, PauseStatus.EXPIRED, None))
            except AlreadyResumedError:
                continue  # somebody was faster
            except HarborageError:
                logger.warning("pause %s: its deadline passed, but it was not settled", pause.token, exc_info=True)
        await self._store.drop_pauses(micros(now - self._settled_for))
        return tuple(settled)

    def on_resolved(self, token: str, wake: Callable[[Pause], None]) -> Callable[[], None]:
        """Call `wake` once when the pause is settled, at once if it was; the returned function calls it off.

        It hears of what is settled through this coordinator, and of what that sees to have been settled elsewhere.
        """
        return self._waiters.listen(token, wake)

    def _checked(self, request: PauseRequest) -> Pause:
        """The pause that a request describes, or the error that refuses it."""
        owner = _owner(request.identity)
        reason = _reason(request.reason)
        default = _decision(request.default)
        if request.deadline is not None and request.deadline.tzinfo is None:
            raise InvalidDeadlineError()
        payload = plain_payload(request.payload)
        trajectory = None if request.trajectory is None else request.trajectory.serialize()
        return Pause(
            token=_token(owner, request.key),
            reason=reason,
            state=PauseState.PAUSED,
            identity=owner,
            paused_at=self._clock.now(),
            payload=payload,
            deadline=request.deadline,
            default=default,
            key=request.key,
            trajectory=trajectory,
        )

    async def _pause(self, token: str) -> Pause:
        """The pause as the store has it.

        Raises:
            PauseNotFoundError: there is none.
        """
        rows = (await self._store.pauses(PauseQuery(tokens=(token,), limit=1))).rows
        if not rows:
            raise PauseNotFoundError(token)
        return pause_of(rows[0])

    async def _expire(self, pause: Pause, now: datetime) -> Pause:
        """The pause as it is settled now that its deadline has passed, by this process or by a faster one."""
        try:
            return await self._settle(pause.settled(pause.default, None, now), PauseStatus.EXPIRED, None)
        except AlreadyResumedError:
            return await self._pause(pause.token)

    async def _settle(self, settled: Pause, status: PauseStatus, payload: dict[str, Any] | None) -> Pause:
        """Write down that a pause is settled so, tell of it, and wake who waits for it here.

        Raises:
            AlreadyResumedError: somebody else was faster.
        """
        try:
            await self._store.commit(Commit(settles=(settling(settled, status, payload),)))
        except PauseSettledError as error:
            raise AlreadyResumedError.of(self._noticed(pause_of(error.row))) from error
        except RowNotFoundError as error:
            raise PauseNotFoundError(settled.token) from error
        told = PauseResumedPayload(token=settled.token, reason=settled.reason, decision=str(settled.decision or ""))
        self._tell(EventType.PAUSE_RESUMED, settled, told)
        self._waiters.wake(settled)
        return settled

    def _noticed(self, pause: Pause) -> Pause:
        """The pause itself; where it is settled, whoever waits for it here is woken."""
        if not pause.is_paused:
            self._waiters.wake(pause)
        return pause

    def _readable(self, row: PauseRow) -> Pause | None:
        try:
            return self._noticed(pause_of(row))
        except _UNREADABLE as error:
            logger.warning("run %s: a pause cannot be listed: %s", row.run_id, error_reason(error))
            return None

    def _reattach(self, pause: Pause) -> None:
        """Make sure that every live handle of the run's trajectory is in this process."""
        history = history_of(pause)
        for handle in () if history is None else history.tool_context.handles:
            if self._handles is None:
                raise ToolContextLostError(handle)
            self._handles.get(handle)

    async def _has_settled(self, tenants: tuple[str, ...]) -> bool:
        """Whether any settled pause of these tenants is kept."""
        for tenant in tenants:
            if (await self._store.pauses(PauseQuery(tenant=tenant, statuses=SETTLED, limit=1))).rows:
                return True
        return False

    def _tell(self, type: EventType, pause: Pause, payload: Payload) -> None:
        """Publish; a bus that refuses is logged, since the pause itself is recorded."""
        if self._bus is None:
            return
        try:
            self._bus.publish_nowait(Event(type=type, identity=pause.identity, payload=payload))
        except Exception:
            logger.warning("pause %s: %s was not published", pause.token, type, exc_info=True)


def _caller(who: Who | None, what: str) -> Who:
    asked = effective_quadruple() if who is None else who
    require_triple(asked, what)
    assert asked is not None
    return asked


def _owner(who: Who) -> Quadruple:
    """The owner with its run: its own, else the ambient one when that belongs to the same triple."""
    require_triple(who, "pauses.request")
    owner = who if isinstance(who, Quadruple) else who.with_run("")
    ambient = current_quadruple()
    if not owner.run_id and ambient is not None and is_same_triple(ambient, owner):
        return ambient
    return owner


def _reason(reason: PauseReason) -> PauseReason:
    try:
        return PauseReason(reason)
    except ValueError:
        raise InvalidReasonError(reason) from None


def _decision(decision: PauseDecision) -> PauseDecision:
    try:
        return PauseDecision(decision)
    except ValueError:
        raise InvalidDecisionError(decision) from None


def _token(owner: Quadruple, key: str) -> str:
    """A fresh token, or the one that a key of this owner stands for, so that asking again opens nothing new."""
    if not key:
        return new_id()
    return named_id(owner.tenant_id, owner.user_id, owner.session_id, owner.run_id, key)
