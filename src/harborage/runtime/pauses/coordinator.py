"""The one place in a process where pauses are opened, settled, shown and listed.

With a store every pause survives the process: the store knows better than memory whether one is open, and its
trajectory lies there alone. The order of checks in each verb is part of the contract. What a decision means for the
run is not decided here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.errors import HarborageError
from harborage.events import Event, EventBus, EventType, PauseRequestedPayload, PauseResumedPayload, Payload
from harborage.identity import Quadruple, current_quadruple, effective_quadruple, held_scopes, require_triple
from harborage.ids import new_id
from harborage.planner.trajectory import Trajectory
from harborage.runtime.pauses.checkpoints import Checkpoints
from harborage.runtime.pauses.errors import (
    AlreadyResumedError,
    CheckpointCorruptError,
    InvalidDeadlineError,
    InvalidDecisionError,
    InvalidReasonError,
    PauseNotFoundError,
    ScopeMismatchError,
    ToolContextLostError,
)
from harborage.runtime.pauses.ledger import RESOLVED_PER_TENANT, Ledger
from harborage.runtime.pauses.listing import (
    is_same_triple,
    may_act,
    page_bounds,
    page_of,
    pause_matches,
    tenants_of,
    wants_resumed,
    within_reach,
)
from harborage.runtime.pauses.locks import KeyedLocks
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
from harborage.state.directory import DirectoryCorruptError

if TYPE_CHECKING:
    from harborage.planner.views import HandleRegistry
    from harborage.state import StateStore

__all__ = ["SETTLED_FOR", "Coordinator"]

SETTLED_FOR = timedelta(days=30)
"""How long a store keeps a settled pause at least, for the run that comes for its answer."""

logger = logging.getLogger(__name__)


class Coordinator:
    """Pauses in memory, and in a record store where one is given. Safe for many callers on one event loop.

    `handles` are the live objects that trajectories name; `retained` is how many settled pauses of a tenant stay
    readable in memory, `settled_for` how long the store keeps one at least. `on_settled` hears of every pause that is
    settled here, and of those whose settling a crash cut short, when their waiters have been woken; where what it
    returns can be awaited and fails, the pause stays on the list of those whose settling was cut short.
    """

    def __init__(
        self,
        *,
        bus: EventBus | None = None,
        store: StateStore | None = None,
        handles: HandleRegistry | None = None,
        clock: Clock = SYSTEM_CLOCK,
        retained: int = RESOLVED_PER_TENANT,
        settled_for: timedelta = SETTLED_FOR,
        on_settled: Callable[[Pause], Awaitable[None] | None] | None = None,
    ) -> None:
        self._id = new_id()
        self._settled_for = settled_for
        self._on_settled = on_settled
        self._bus = bus
        self._checkpoints = None if store is None else Checkpoints(store)
        self._handles = handles
        self._clock = clock
        self._ledger = Ledger(retained)
        self._locks = KeyedLocks()

    async def request(self, request: PauseRequest) -> Pause:
        """Open a pause, or return the one that was opened before under the same key.

        Raises:
            IdentityRequiredError, InvalidReasonError, InvalidDecisionError, InvalidDeadlineError: in this order.
            UnserializableError: the payload or the trajectory cannot be kept.
            StateError: the store refused. In every case nothing is recorded.
        """
        pause = self._checked(request)
        if not pause.key:
            return await self._open(pause)
        async with self._locks((pause.identity, pause.key)):
            return await self._known(pause.identity, pause.key) or await self._open(pause)

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
                in this order.
            ToolContextLostError: the run needs a live handle that this process does not hold; the pause stays open.
            UnserializableError: the payload cannot be kept; the pause stays open.
            StateError: the store refused; the pause stays open.
        """
        chosen = _decision(decision)
        caller = _caller(who, "pauses.resume")
        async with self._locks(token):
            pause = await self._current(token)
            if not pause.is_paused:
                raise AlreadyResumedError(token)
            if not may_act(caller, scopes, pause.identity):
                raise ScopeMismatchError(token)
            if pause.is_due(self._clock.now()):
                await self._settle(pause, pause.default, None)
                raise AlreadyResumedError(token)
            if chosen.goes_on:
                self._reattach(pause)
            return await self._settle(pause, chosen, plain_payload(payload), sealed)

    async def check_handles(self, token: str) -> None:
        """Accept a pause after which its run could go on in this process.

        Raises:
            PauseNotFoundError: nobody here knows the token.
            ToolContextLostError: the run needs a live handle that this process does not hold.
        """
        async with self._locks(token):
            pause = await self._current(token)
            if pause.is_paused:
                self._reattach(pause)

    async def status(
        self, token: str, *, who: Who | None = None, scopes: frozenset[str] | None = None, fresh: bool = False
    ) -> Pause:
        """The pause as it stands. Without any identity, explicit or ambient, the token itself is the capability.

        With `fresh` the store is asked about a pause that is remembered as open: another process may have settled it.
        When one has, whoever waits for it here is woken.

        Raises:
            PauseNotFoundError, ScopeMismatchError: in this order.
            CheckpointCorruptError, UnsupportedFormatVersionError: its checkpoint cannot be read.
        """
        pause = self._ledger.get(token)
        if self._checkpoints is not None and (pause is None or (fresh and pause.is_paused)):
            pause = await self._kept(self._checkpoints, token, pause)
        if pause is None:
            raise PauseNotFoundError(token)
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

        Pauses of an earlier process are among them when there is a store.

        Raises:
            IdentityRequiredError, InvalidPageError, CrossTenantScopeError, CrossUserScopeError: in this order.
        """
        caller = _caller(who, "pauses.list")
        number, size = page_bounds(page, page_size)
        held = held_scopes(scopes)
        tenants = tenants_of(filter, caller, held)
        wanted = within_reach(filter, caller, held)
        rows: list[Pause] = []
        for tenant in tenants:
            rows += [pause.shown() for pause in await self._of_tenant(tenant, wanted) if pause_matches(pause, wanted)]
        truncated = wants_resumed(wanted) and not any(self._ledger.has_resolved(tenant) for tenant in tenants)
        return page_of(rows, number, size, truncated=truncated)

    async def expire(self, token: str, *, fresh: bool = False) -> Pause:
        """Settle a pause whose deadline has passed with its default; one that is not due comes back unchanged.

        With `fresh` the store is asked, as for `status`.

        Raises:
            PauseNotFoundError: nobody here knows the token.
        """
        now = self._clock.now()
        known = self._ledger.get(token)
        if known is not None and not known.is_due(now) and not (fresh and known.is_paused):
            return known
        async with self._locks(token):
            pause = await self._current(token)
            if not pause.is_due(now):
                return pause.without_trajectory()
            try:
                return await self._settle(pause, pause.default, None)
            except AlreadyResumedError:
                return (await self._current(token)).without_trajectory()

    async def every_open(self) -> tuple[Pause, ...]:
        """Every open pause, of all tenants and of earlier processes too: for hosts, who answer to nobody."""
        found: list[Pause] = []
        for tenant in await self._tenants():
            try:
                found += await self._of_tenant(tenant, OPEN)
            except (CheckpointCorruptError, DirectoryCorruptError) as error:
                logger.warning("tenant %s: its pauses cannot be listed: %s", tenant, error)
        return tuple(pause.shown() for pause in found if pause.is_paused)

    async def expire_due(self) -> tuple[Pause, ...]:
        """Settle every pause whose deadline has passed, those of an earlier process too; returns those it settled.

        One that cannot be settled is logged and does not keep the others waiting. What a crash cut short is finished,
        and settled pauses that were kept long enough are dropped from the store. Call it when a process starts.
        """
        now = self._clock.now()
        settled: list[Pause] = []
        for tenant in await self._tenants():
            for pause in await self._of_tenant(tenant, OPEN):
                if not pause.is_due(now):
                    continue
                try:
                    settled.append(await self.expire(pause.token))
                except HarborageError:
                    logger.warning("pause %s: its deadline passed, but it was not settled", pause.token, exc_info=True)
            if self._checkpoints is not None:
                await self._checkpoints.drop_settled(tenant, now - self._settled_for)
        return tuple(settled)

    def on_resolved(self, token: str, wake: Callable[[Pause], None]) -> Callable[[], None]:
        """Call `wake` once when the pause is settled, at once if it was; the returned function calls it off."""
        return self._ledger.listen(token, wake)

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
            token=new_id(),
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

    async def _open(self, pause: Pause) -> Pause:
        if self._checkpoints is None:
            self._ledger.open(pause.without_trajectory(), pause.trajectory)
        else:
            pause, is_new = await self._checkpoints.save(pause)
            if not is_new:
                return self._found(pause)
            self._ledger.open(pause.without_trajectory(), None)
        self._tell(EventType.PAUSE_REQUESTED, pause, PauseRequestedPayload(token=pause.token, reason=pause.reason))
        return pause.without_trajectory()

    async def _known(self, owner: Quadruple, key: str) -> Pause | None:
        """The pause that was opened under this key, if it is still known."""
        known = self._ledger.by_key(owner, key)
        if self._checkpoints is not None and (known is None or known.is_paused):
            kept = await self._checkpoints.load_by_key(owner, key)
            if kept is not None and kept.is_paused and known is None:
                await self._checkpoints.enlist(kept)
            return None if kept is None else self._found(kept)
        return known

    def _found(self, kept: Pause) -> Pause:
        """A pause from the store, whose answer whoever waits for it here can hear of."""
        known = self._ledger.get(kept.token)
        if not kept.is_paused and known is not None:
            self._remember(kept)
        elif not kept.is_paused:
            self._ledger.settle(kept)
        return kept.without_trajectory()

    async def _kept(self, checkpoints: Checkpoints, token: str, known: Pause | None) -> Pause | None:
        """The pause as the store has it; one that turns out to be settled is remembered as that."""
        kept = await checkpoints.load(token, None if known is None else known.identity)
        if known is None:
            return kept
        if kept is None:
            self._ledger.drop(token)
        elif not kept.is_paused:
            self._remember(kept)
        return kept

    async def _current(self, token: str) -> Pause:
        """The pause with its trajectory, as memory and the store together have it; hold its lock.

        The store is asked even about a pause that is remembered as open: another process may have settled it.
        """
        known = self._ledger.get(token)
        if known is not None and not known.is_paused:
            return known
        if self._checkpoints is not None:
            kept = await self._kept(self._checkpoints, token, known)
        else:
            kept = known and replace(known, trajectory=self._ledger.trajectory(token))
        if kept is None:
            raise PauseNotFoundError(token)
        return kept

    def _reattach(self, pause: Pause) -> None:
        """Make sure that every live handle of the run's trajectory is in this process."""
        if pause.trajectory is None:
            return
        for handle in Trajectory.deserialize(pause.trajectory).tool_context.handles:
            if self._handles is None:
                raise ToolContextLostError(handle)
            self._handles.get(handle)

    async def _settle(
        self, pause: Pause, decision: PauseDecision, payload: dict[str, Any] | None, sealed: bytes | None = None
    ) -> Pause:
        """Settle an open pause; hold its lock. Between the claim and the wake-ups nothing can come in between."""
        settled = pause.settled(decision, payload, self._clock.now(), sealed=sealed, by=self._id)
        if self._checkpoints is not None and not await self._checkpoints.claim(settled.without_trajectory()):
            await self._current(pause.token)
            raise AlreadyResumedError(pause.token)
        await self._finish(settled)
        return settled

    async def _finish(self, settled: Pause) -> None:
        """What follows once it is written down that a pause is settled. Only then it leaves the list of open ones."""
        self._remember(settled)
        is_heard = await self._told(settled)
        if is_heard and self._checkpoints is not None:
            await self._checkpoints.retire(settled)

    async def _told(self, settled: Pause) -> bool:
        """Tell the listener; False when what it began has failed and is to be begun again."""
        if self._on_settled is None:
            return True
        following: Awaitable[None] | None = None
        try:
            following = self._on_settled(settled.without_trajectory())
            if following is not None:
                await following
        except Exception:
            logger.exception("pause %s: the listener for settled pauses failed", settled.token)
            return following is None
        return True

    def _remember(self, settled: Pause) -> None:
        """Record, tell and wake, once: in this order, so that whoever is woken finds the rest done."""
        known = self._ledger.get(settled.token)
        if known is not None and not known.is_paused:
            return
        self._ledger.settle(settled)
        decision = str(settled.decision or "")
        payload = PauseResumedPayload(token=settled.token, reason=settled.reason, decision=decision)
        self._tell(EventType.PAUSE_RESUMED, settled, payload)
        self._ledger.wake(settled)

    async def _tenants(self) -> tuple[str, ...]:
        """The tenants that may have open pauses."""
        tenants = set(self._ledger.tenants())
        if self._checkpoints is not None:
            tenants.update(await self._checkpoints.tenants())
        return tuple(sorted(tenants))

    async def _of_tenant(self, tenant: str, filter: PauseFilter) -> tuple[Pause, ...]:
        """What the store and memory have of a tenant: the store knows which are open, memory which were settled."""
        kept: list[Pause] = []
        if self._checkpoints is not None:
            kept, lost = await self._checkpoints.of_tenant(tenant, filter)
            for token in lost:
                self._ledger.drop(token)
            for pause in kept:
                if not pause.is_paused:
                    await self._finish(pause)
        remembered = {pause.token: pause for pause in self._ledger.of_tenant(tenant)}
        others = (pause for pause in kept if pause.token not in remembered)
        return (*remembered.values(), *others)

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
