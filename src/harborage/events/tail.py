"""Following a stream of stored events: those that this process stored and those that other processes stored.

Events that this process stored are delivered without being read again, unless others lie before them; those are read
first. So every subscriber gets the stream in the order of the store, each event once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from harborage.events.errors import EventCorruptError
from harborage.events.rows import decode_event
from harborage.store import EVENT_STEP, EventQuery

if TYPE_CHECKING:
    from harborage.events.event import Event
    from harborage.identity import Identity
    from harborage.store import EventRow, Views

_PAGE: Final = 1_000
_log = logging.getLogger(__name__)


class Tail:
    """The stored events of one session, or without `who` those of all sessions, on their way to `deliver`.

    `last` is the number of the last delivered event: its sequence in its session, or its number in the store for all
    sessions; None before the first look at the store. Nothing is read while `has_subscribers` is false.
    """

    __slots__ = (
        "_ahead",
        "_cursor",
        "_deliver",
        "_found",
        "_has_subscribers",
        "_lock",
        "_step",
        "_store",
        "_who",
        "last",
    )

    def __init__(
        self, store: Views, who: Identity | None, deliver: Callable[[Event], None], has_subscribers: Callable[[], bool]
    ) -> None:
        self._store = store
        self._who = who
        self._deliver = deliver
        self._has_subscribers = has_subscribers
        self._step = EVENT_STEP if who is None else 1
        self.last: int | None = None
        self._cursor = self._found = 0
        self._ahead: dict[int, Event] = {}
        self._lock = asyncio.Lock()

    def is_next(self, number: int) -> bool:
        """Return whether an event of this number can be delivered without a read."""
        is_next = self.last is None or number <= self.last + self._step
        return not self._has_subscribers() or (is_next and not self._lock.locked())

    def add(self, events: Sequence[Event], *, holds: bool = False) -> bool:
        """Add events that this process has stored, in order.

        With `holds` this process stores others just now, which may lie before these: while the end of the stream is
        unknown these wait for the next `add`, or for `release`. Returns whether all are delivered or held; if not, the
        caller has to call `read_on`.
        """
        if not self._has_subscribers():
            self._ahead.clear()
            for event in events:
                self._advance(event)
            return True
        if self.last is None and holds:
            self._ahead.update((self._number(event), event) for event in events)
            return True
        for event in events:
            number = self._number(event)
            if self.last is None:
                self.last = min(number, *self._ahead) - self._step if self._ahead else number - self._step
            if number > self.last:  # the others were read meanwhile, and delivered
                self._ahead[number] = event
            elif number <= self._found:
                # Stored before the first look at the store had its answer, and not delivered since.
                self._deliver(event)
        if not self._lock.locked():
            self._deliver_consecutive()
        return not self._ahead

    def release(self) -> None:
        """Deliver the events that `add` holds, if no later one has."""
        if self.last is None and self._ahead:
            self.last = min(self._ahead) - self._step
        if not self._lock.locked():
            self._deliver_consecutive()

    async def start(self) -> None:
        """Find the end of the stream, unless it is known: events that are stored from then on are delivered."""
        if self.last is not None:
            return
        newest = await self._store.events(self._query(newest_first=True, limit=1))
        if self.last is None:
            self.last, self._cursor = (self._number_of(newest[0]), newest[0].sequence) if newest else (0, 0)
            self._found = self.last
            for number in sorted(number for number in self._ahead if number <= self._found):
                self._deliver(self._ahead.pop(number))
            self._deliver_consecutive()

    async def read_on(self, *, before: int | None = None) -> None:
        """Read and deliver the events after the last delivered one; with `before` only those of lower numbers.

        Raises:
            HarborageError: the store cannot be read; added events wait for the next read.
        """
        async with self._lock:
            if self.last is None:
                await self.start()
            while await self._read(before):
                pass
        self._deliver_consecutive()

    async def _read(self, before: int | None) -> bool:
        """Read to the end of the stream; return whether events added meanwhile ask for another read."""
        waiting, is_more = set(self._ahead), True
        while is_more:
            found = await self._store.events(self._query(after=self._cursor, limit=_PAGE))
            is_more = len(found) == _PAGE
            for row in found:
                if before is not None and self._number_of(row) >= before:
                    return False
                self._deliver_row(row)
        self._deliver_consecutive()
        # These were stored, but the read found them or their predecessors deleted by another program.
        for number in sorted(waiting.intersection(self._ahead)):
            self._deliver_own(self._ahead.pop(number))
        return bool(self._ahead)

    def _deliver_row(self, row: EventRow) -> None:
        number = self._number_of(row)
        if self.last is not None and number <= self.last:
            return
        event = self._ahead.pop(number, None)
        if event is None:
            try:
                event = decode_event(row)
            except EventCorruptError as error:
                _log.error("%s", error)
        if event is not None:
            self._deliver(event)
        self.last, self._cursor = number, row.sequence

    def _deliver_consecutive(self) -> None:
        """Deliver the added events that directly follow the last delivered one."""
        while self._ahead and self.last is not None:
            event = self._ahead.pop(self.last + self._step, None)
            if event is None:
                return
            self._deliver_own(event)

    def _deliver_own(self, event: Event) -> None:
        self._advance(event)
        self._deliver(event)

    def _advance(self, event: Event) -> None:
        number = self._number(event)
        if self.last is None or number > self.last:
            self.last, self._cursor = number, event.store_sequence

    def _number(self, event: Event) -> int:
        return event.store_sequence if self._who is None else event.sequence

    def _number_of(self, row: EventRow) -> int:
        return row.sequence if self._who is None else row.place

    def _query(self, *, after: int = 0, newest_first: bool = False, limit: int) -> EventQuery:
        who = self._who
        if who is None:
            return EventQuery(after=after, newest_first=newest_first, limit=limit)
        tenant, user, session = who.tenant_id, who.user_id, who.session_id
        return EventQuery(
            tenant=tenant, user=user, session=session, after=after, newest_first=newest_first, limit=limit
        )
