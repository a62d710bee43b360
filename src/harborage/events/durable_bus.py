"""The event bus whose events outlive the process: each is stored in the store of record first, then delivered.

Numbers count the events of one session and go on where an earlier process, or another one, left off; the store gives
them. Events that are not stored have the number 0: streamed chunks, and the notices of the bus itself.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK, Timer, Timers
from harborage.concurrency import CLOSE_GRACE_S, CancelScope, Crew
from harborage.errors import InvalidOptionError, error_reason
from harborage.events.bus import EventBus
from harborage.events.errors import BusClosedError, EventCorruptError, IdentityScopeRequiredError
from harborage.events.event import Event, validate_event
from harborage.events.event_redaction import redact_event
from harborage.events.fanout import BusConfig, FanOut, admin_scope_used
from harborage.events.filters import Cursor, Filter, matches
from harborage.events.memory_bus import MemoryEventBus
from harborage.events.redaction import Redactor, default_redactor
from harborage.events.rows import decode_event, encode_event
from harborage.events.types import EventType
from harborage.events.writer import EventWriter
from harborage.identity import Identity, Quadruple, effective_quadruple
from harborage.store import EventQuery

if TYPE_CHECKING:
    from harborage.events.bus import RunBuffer
    from harborage.events.subscription import Subscription
    from harborage.store import Committed, EventRow, NewEvent, Store

UNSTORED = frozenset({EventType.LLM_COMPLETION_CHUNK, EventType.TOOL_PROGRESS})
"""Events that are delivered but not stored: another event has the whole answer, or how the call ended."""

CLOSE_WITHIN_S: Final = 5.0
"""Seconds that the store gets for the events still to be stored, when a bus is closed."""

_PAGE = 1_000
_log = logging.getLogger(__name__)


class DurableEventBus(EventBus):
    """A bus over a store of record. It must be used from the thread of one running event loop.

    `publish` returns the event with its number once it is stored, and raises what the store raises. The event of a
    caller that is cancelled meanwhile is stored all the same. `publish_nowait` returns before that, with the number
    still 0. If the store refuses such an event, the bus logs that and offers it again, every second and with each
    `publish` of its session; until the store takes it, `publish_nowait` raises for that session. At most `max_backlog`
    events may wait for the store; `publish_nowait` refuses more. The events that a run publishes while this worker
    executes it are stored, and delivered, with the run's next commit: both methods return at once for them.

    Subscribers get what other processes store within `recheck_s` seconds, or when `catch_up` is called. The owner of
    the store closes it, after the bus, unless `owns_store`. `aclose` waits for the store for `close_within_s` seconds
    at most; events that it has not taken by then are logged, by session, and their publishers get BusClosedError.
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
            raise InvalidOptionError("max_backlog", max_backlog, "a whole number above 0")
        if not 0 <= close_within_s < math.inf:
            raise InvalidOptionError("close_within_s", close_within_s, "a finite number that is not negative")
        self._close_within_s = close_within_s
        self._store = store
        self._owns_store = owns_store
        self._redactor: Redactor = default_redactor() if redactor is None else redactor
        self._clock = clock
        self._subscribers = FanOut(config, clock, self._stamp, reaps_idle=False)
        self._writer = EventWriter(store, clock, self._subscribers, max_backlog=max_backlog)
        self._recheck_s = recheck_s
        self._timer: Timer | None = None
        # Publishers get the errors of the store; that subscribers wait longer is worth a debug line only.
        self._crew = Crew(lambda name, error: _log.debug("%s: %s", name, error_reason(error)))
        self._attached: dict[Quadruple, RunBuffer] = {}
        self._is_closed = False

    @property
    def store(self) -> Store:
        return self._store

    async def publish(self, event: Event) -> Event:
        event = self._admit(event)
        if event.type in UNSTORED:
            self._writer.deliver_unstored(event)
            return event
        data = encode_event(event)
        return event if self._add_to_run(event, data) else await self._writer.add_and_wait(event, data)

    def publish_nowait(self, event: Event) -> Event:
        event = self._admit(event)
        if event.type in UNSTORED:
            self._writer.deliver_unstored(event)
        elif not self._add_to_run(event, data := encode_event(event)):
            self._writer.add(event, data)
        return event

    def attach_run(self, who: Quadruple, buffer: RunBuffer) -> Callable[[], None]:
        self._attached[who] = buffer

        def detach() -> None:
            if self._attached.get(who) is buffer:
                del self._attached[who]

        return detach

    def add_usage(self, who: Quadruple, *, tokens: int, cost: int) -> None:
        buffer = self._attached.get(who)
        if buffer is not None:
            buffer.add_usage(tokens, cost)

    def write(self, events: Iterable[tuple[Event, NewEvent]]) -> None:
        for event, data in events:
            self._writer.add(event, data)

    def prepare(self, event: Event) -> tuple[Event, NewEvent]:
        event = self._admit(event)
        return event, encode_event(event)

    def deliver(self, events: Sequence[Event], committed: Committed) -> None:
        if not self._is_closed:
            self._writer.deliver_committed(events, committed)

    def subscribe(self, filter: Filter) -> Subscription:
        if self._is_closed:
            raise BusClosedError()
        subscription = self._subscribers.subscribe(filter)
        self._schedule_recheck()
        if filter.admin:
            self._notify(admin_scope_used(filter, 0))
        return subscription

    async def replay(self, cursor: Cursor, filter: Filter) -> list[Event]:
        """Return the stored events of a session after `cursor` that match `filter`; all published before the call.

        Payloads are of type `RedactedMap`. The session is that of the cursor, else that of the filter.

        Raises:
            BusClosedError, IdentityScopeRequiredError: in this order; admins name a whole session, too.
            EventCorruptError: a stored event is missing.
            EventCorruptError: a stored event cannot be read.
        """
        if self._is_closed:
            raise BusClosedError()
        who = Identity(filter.tenant, filter.user, cursor.session_id or filter.session)
        if not (who.tenant_id and who.user_id and who.session_id):
            raise IdentityScopeRequiredError()
        if filter.admin:
            self._notify(admin_scope_used(filter, 0))
        await self._writer.wait_until_written(who)
        await self._writer.start_following(who)  # subscribers get what comes after this replay
        return [event for event in await self._read(who, cursor.sequence) if matches(filter, event)]

    async def follow(self, filter: Filter) -> None:
        if self._is_closed:
            raise BusClosedError()
        who = None if filter.admin else Identity(filter.tenant, filter.user, filter.session)
        await self._writer.start_following(who)

    def last_sequence(self, who: Identity | Quadruple) -> int:
        return self._writer.last_sequence(who)

    @property
    def events_per_second(self) -> float:
        """How many events this process stored a second, of late."""
        return self._subscribers.rate.per_second(self._clock.monotonic())

    def call_after_delivery(self, who: Identity, then: Callable[[], None]) -> None:
        """Call `then` once all events that this process published in the session are delivered; often that is now.

        It lets a caller put facts from another source in order with events. `then` must not raise.
        """
        self._writer.call_after_delivery(who, then)

    async def catch_up(self) -> None:
        """Deliver now what other processes have stored since the last look at the store."""
        if not self._is_closed:
            await self._writer.catch_up()

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._crew.aclose(clock=self._clock, grace_s=CLOSE_GRACE_S)
        await self._writer.aclose(self._close_within_s)
        self._subscribers.close()
        if self._owns_store:
            with CancelScope(self._clock, self._close_within_s) as closing:
                await self._store.aclose()
            if closing.was_cancelled:
                _log.error("events: %s did not close within %g s", type(self._store).__name__, self._close_within_s)

    def _admit(self, event: Event) -> Event:
        """Return `event` validated, redacted and with its time."""
        if self._is_closed:
            raise BusClosedError()
        validate_event(event)
        event = redact_event(self._redactor, event, self._notify)
        return self._stamp(event)

    def _stamp(self, event: Event) -> Event:
        if event.occurred_at is not None and not event.sequence:
            return event
        at = event.occurred_at or self._clock.now()
        return Event(event.type, event.identity, event.payload, at, extra=event.extra)

    def _add_to_run(self, event: Event, data: NewEvent) -> bool:
        """Add `event` to the buffer of its run, if the run itself published it and is attached; return whether."""
        if not self._attached:
            return False
        publisher = effective_quadruple()
        for who in _runs_of(event):
            buffer = self._attached.get(who)
            if buffer is not None and who == publisher:
                buffer.add(event, data)
                return True
            if buffer is not None:
                buffer.flush_soon()
        return False

    def _notify(self, event: Event) -> None:
        """Deliver an event of the bus itself. It is not stored, so it gets no number."""
        self._subscribers.deliver(self._stamp(event))

    def _schedule_recheck(self) -> None:
        """Look at the store again in `recheck_s` seconds, for as long as there are subscribers."""
        if self._timer is None and not self._is_closed and (self._subscribers.by_session or self._subscribers.admins):
            self._timer = self._clock.call_later(self._recheck_s, self._start_recheck)

    def _start_recheck(self) -> None:
        if not self._is_closed:
            self._crew.start(self._recheck(), "events: cannot read what other processes stored")

    async def _recheck(self) -> None:
        try:
            await self.catch_up()
        finally:
            self._timer = None
            self._schedule_recheck()

    async def _read(self, who: Identity, after: int) -> list[Event]:
        """Return the session's events after the sequence `after`, in order.

        Raises:
            EventCorruptError, EventCorruptError: one is missing, or cannot be read.
        """
        rows: list[EventRow] = []
        mine = EventQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, limit=_PAGE)
        # Newest first: the unseen events are at the end, and no index finds a sequence.
        query = replace(mine, newest_first=True)
        while found := [row for row in await self._store.events(query) if row.place > after]:
            rows += found
            query = replace(query, after=found[-1].sequence)
            if len(found) < _PAGE:
                break
        rows.reverse()
        for sequence, row in enumerate(rows, max(0, after) + 1):
            if row.place != sequence:
                raise EventCorruptError(who.session_id, sequence, is_missing=True)
        return [decode_event(row) for row in rows]


def _runs_of(event: Event) -> Iterator[Quadruple]:
    """Yield the runs that an event may be of, each once; one about a run's task names the run in its payload alone."""
    who = event.identity
    yield who
    task_id = str(getattr(event.payload, "task_id", ""))
    if task_id != who.run_id:
        yield who.identity.with_run(task_id)


def make(
    *,
    store: Store | None = None,
    redactor: Redactor | None = None,
    config: BusConfig = BusConfig(),  # noqa: B008 - a frozen value
    clock: Timers = SYSTEM_CLOCK,
) -> EventBus:
    """Return a bus over `store`; without one, a bus in memory, with a warning."""
    if store is None:
        _log.warning("events: the durable bus was given no store; events are lost when this process ends")
        return MemoryEventBus(redactor=redactor, config=config, clock=clock)
    return DurableEventBus(store, redactor=redactor, config=config, clock=clock)
