"""The event bus whose events outlive the process: each is kept in the store of record first, and told then.

Numbers count the events of one session and go on where an earlier process, or another one, left off; the store gives
them. What readers see without a number (0) is told beside the record: streamed chunks, and what the bus itself has to
say to a reader.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK, Timer, Timers
from harborage.concurrency import CLOSE_GRACE_S, CancelScope, Crew
from harborage.errors import error_reason
from harborage.events.bus import EventBus, MemoryEventBus
from harborage.events.errors import BusClosedError, BusConfigError, EventGapError, IdentityScopeRequiredError
from harborage.events.event import Event, validate_event
from harborage.events.fanout import BusConfig, FanOut
from harborage.events.filters import Cursor, Filter, matches
from harborage.events.intake import admin_audit, redacted
from harborage.events.keeper import Keeper
from harborage.events.redaction import Redactor, default_redactor
from harborage.events.stored import decode_event, encode_event
from harborage.events.types import EventType
from harborage.identity import Identity, Quadruple, effective_quadruple
from harborage.store import EventQuery

if TYPE_CHECKING:
    from harborage.events.bus import CarriedRun
    from harborage.events.subscription import Subscription
    from harborage.store import Committed, EventRow, NewEvent, Store

__all__ = ["UNKEPT", "DurableEventBus", "make"]

UNKEPT = frozenset({EventType.LLM_COMPLETION_CHUNK})
"""What is told but not kept: the whole of it comes in another event."""

CLOSE_WITHIN_S: Final = 5.0
"""Seconds that the store gets to take what was told, when a bus is closed."""

_PAGE = 1_000
_log = logging.getLogger(__name__)


class DurableEventBus(EventBus):
    """A bus over a store of record. It must be used from the thread of one running event loop.

    `publish` returns the event with its number, once it is kept; the failure of the store reaches the caller. A caller
    that is cancelled meanwhile has told its event all the same. `publish_nowait` returns before that, with the number
    still 0. An event of its that the store refuses is logged and offered again, every second and with each `publish` of
    its session; until the store takes it, `publish_nowait` raises for that session. At most `max_backlog` events may
    wait for the store, those beyond it `publish_nowait` refuses. What a run publishes while an engine of this process
    carries it is kept, and told, with what the run records next: both return at once, and who stops waiting has no say.

    Readers hear of what other processes keep within `recheck_s` seconds, or when `catch_up` is called. The store stays
    its owner's to close, after the bus, unless `owns_store`. `aclose` waits for the store for `close_within_s` seconds
    at most; what it has not taken by then is logged, by session, and whoever waits for it gets BusClosedError.
    """

    def __init__(
        self,
        store: Store,
        *,
        redactor: Redactor | None = None,
        config: BusConfig = BusConfig(),  # noqa: B008 - a frozen value
        clock: Timers = SYSTEM_CLOCK,
        max_backlog: int = 10_000,
        owns_store: bool = False,
        recheck_s: float = 1.0,
        close_within_s: float = CLOSE_WITHIN_S,
    ) -> None:
        if max_backlog < 1:
            raise BusConfigError("max_backlog")
        if not 0 <= close_within_s < math.inf:
            raise BusConfigError("close_within_s")
        self._close_within_s = close_within_s
        self._store = store
        self._owns_store = owns_store
        self._redactor: Redactor = default_redactor() if redactor is None else redactor
        self._clock = clock
        self._readers = FanOut(config, clock, self._stamped, reaps_idle=False)
        self._keeper = Keeper(store, clock, self._readers, max_backlog=max_backlog)
        self._recheck_s = recheck_s
        self._timer: Timer | None = None
        # Whoever tells something learns that the store refuses; that readers wait on is no news to anybody.
        self._crew = Crew(lambda name, error: _log.debug("%s: %s", name, error_reason(error)))
        self._carried: dict[Quadruple, CarriedRun] = {}
        self._is_closed = False

    @property
    def store(self) -> Store:
        return self._store

    async def publish(self, event: Event) -> Event:
        event = self._admitted(event)
        if event.type in UNKEPT:
            self._keeper.pass_by(event)
            return event
        data = encode_event(event)
        return event if self._rides(event, data) else await self._keeper.add_waiting(event, data)

    def publish_nowait(self, event: Event) -> Event:
        event = self._admitted(event)
        if event.type in UNKEPT:
            self._keeper.pass_by(event)
        elif not self._rides(event, data := encode_event(event)):
            self._keeper.add(event, data)
        return event

    def carry(self, who: Quadruple, run: CarriedRun) -> Callable[[], None]:
        self._carried[who] = run

        def end() -> None:
            if self._carried.get(who) is run:
                del self._carried[who]

        return end

    def keep(self, events: Iterable[tuple[Event, NewEvent]]) -> None:
        for event, data in events:
            self._keeper.add(event, data)

    def kept(self, events: Sequence[Event], done: Committed) -> None:
        if not self._is_closed:
            self._keeper.kept(events, done)

    def subscribe(self, filter: Filter) -> Subscription:
        if self._is_closed:
            raise BusClosedError()
        subscription = self._readers.subscribe(filter)
        self._arm()
        if filter.admin:
            self._tell(admin_audit(filter, 0))
        return subscription

    async def replay(self, cursor: Cursor, filter: Filter) -> list[Event]:
        """The kept events of a session after `cursor` that `filter` asks for, with what was told before the call.

        Payloads come as `RedactedMap`, whatever they were. The session is the cursor's, else the filter's.

        Raises:
            BusClosedError, IdentityScopeRequiredError: in this order; admins name a whole session, too.
            EventGapError: an event that was kept is not there.
            EventCorruptError: one cannot be read.
        """
        if self._is_closed:
            raise BusClosedError()
        who = Identity(filter.tenant, filter.user, cursor.session_id or filter.session)
        if not (who.tenant_id and who.user_id and who.session_id):
            raise IdentityScopeRequiredError()
        if filter.admin:
            self._tell(admin_audit(filter, 0))
        await self._keeper.settle(who)
        await self._keeper.begin(who)  # what comes behind this replay is told
        return [event for event in await self._read(who, cursor.sequence) if matches(filter, event)]

    def place(self, who: Identity | Quadruple) -> int:
        return self._keeper.place(who)

    def behind(self, who: Identity, then: Callable[[], None]) -> None:
        """Call `then` when readers have been handed what this process told of the session so far; often that is now.

        For whoever puts what it learns elsewhere in order with what the bus tells. It must not raise.
        """
        self._keeper.behind(who, then)

    async def catch_up(self) -> None:
        """Tell the readers what other processes have kept since this bus last looked.

        For whoever learns that something happened elsewhere.
        """
        if not self._is_closed:
            await self._keeper.catch_up()

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._crew.aclose(clock=self._clock, grace_s=CLOSE_GRACE_S)
        await self._keeper.aclose(self._close_within_s)
        self._readers.close()
        if self._owns_store:
            with CancelScope(self._clock, self._close_within_s) as closing:
                await self._store.aclose()
            if closing.was_cancelled:
                _log.error("events: %s did not close within %g s", type(self._store).__name__, self._close_within_s)

    def _admitted(self, event: Event) -> Event:
        if self._is_closed:
            raise BusClosedError()
        validate_event(event)
        event = redacted(self._redactor, event, self._tell)
        return self._stamped(event)

    def _stamped(self, event: Event) -> Event:
        if event.occurred_at is not None and not event.sequence:
            return event
        at = event.occurred_at or self._clock.now()
        return Event(event.type, event.identity, event.payload, at, extra=event.extra)

    def _rides(self, event: Event, data: NewEvent) -> bool:
        """Whether an event goes with what its run records: the run published it of itself, and is carried here."""
        if not self._carried:
            return False
        session, by = event.identity.identity, effective_quadruple()
        # What is told of a run's task names the run in its payload alone.
        for run_id in dict.fromkeys((event.identity.run_id, getattr(event.payload, "task_id", ""))):
            who = session.with_run(str(run_id))
            run = self._carried.get(who)
            if run is not None and who == by:
                run.take(event, data)
                return True
            if run is not None:
                run.hurry()
        return False

    def _tell(self, event: Event) -> None:
        """Tell what the bus itself has to say. It is not kept, and a number that is not kept would be given twice."""
        self._readers.hand_out(self._stamped(event))

    def _arm(self) -> None:
        """Look again in a while, for as long as somebody reads."""
        if self._timer is None and not self._is_closed and (self._readers.readers or self._readers.admins):
            self._timer = self._clock.call_later(self._recheck_s, self._tick)

    def _tick(self) -> None:
        if not self._is_closed:
            self._crew.start(self._look(), "events: what other processes kept cannot be told")

    async def _look(self) -> None:
        try:
            await self.catch_up()
        finally:
            self._timer = None
            self._arm()

    async def _read(self, who: Identity, after: int) -> list[Event]:
        """The session's events behind place `after`, in order.

        Raises:
            EventGapError, EventCorruptError: one is not there, or cannot be read.
        """
        rows: list[EventRow] = []
        mine = EventQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, limit=_PAGE)
        # From the end: what a reader has not seen is there, and no index finds a place.
        query = replace(mine, newest_first=True)
        while found := [row for row in await self._store.events(query) if row.place > after]:
            rows += found
            query = replace(query, after=found[-1].sequence)
            if len(found) < _PAGE:
                break
        rows.reverse()
        for place, row in enumerate(rows, max(0, after) + 1):
            if row.place != place:
                raise EventGapError(who.session_id, place)
        return [decode_event(row) for row in rows]


def make(
    *,
    store: Store | None = None,
    redactor: Redactor | None = None,
    config: BusConfig = BusConfig(),  # noqa: B008 - a frozen value
    clock: Timers = SYSTEM_CLOCK,
) -> EventBus:
    """A bus over `store`; without one the bus keeps its events in memory, and says so loudly."""
    if store is None:
        _log.warning("events: the durable bus was given no store; what happens is forgotten with this process")
        return MemoryEventBus(redactor=redactor, config=config, clock=clock)
    return DurableEventBus(store, redactor=redactor, config=config, clock=clock)
