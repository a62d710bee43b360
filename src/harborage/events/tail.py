"""How far this process has told a stream of stored events, and how it comes to tell what others have kept.

What it keeps itself is told without being read again as long as nothing lies between; whatever does is read first, so
that every reader gets the stream in the order of the store, each event once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from harborage.events.errors import EventCorruptError
from harborage.events.stored import decode_event
from harborage.store import EVENT_STEP, EventQuery

if TYPE_CHECKING:
    from harborage.events.event import Event
    from harborage.identity import Identity
    from harborage.store import EventRow, Views

__all__ = ["Tail"]

_PAGE: Final = 1_000
_log = logging.getLogger(__name__)


class Tail:
    """The events of one session, or without `who` those of all, on their way to the readers that `tell` hands them to.

    `last` is the number of the last one that was told: its place in its session, for all of them its number in the
    store; None before anybody has looked where the stream stands. While nobody reads it nothing is read for it.
    """

    __slots__ = ("_ahead", "_cursor", "_is_read", "_lock", "_step", "_store", "_tell", "_who", "last")

    def __init__(
        self, store: Views, who: Identity | None, tell: Callable[[Event], None], is_read: Callable[[], bool]
    ) -> None:
        self._store = store
        self._who = who
        self._tell = tell
        self._is_read = is_read
        self._step = EVENT_STEP if who is None else 1
        self.last: int | None = None
        self._cursor = 0
        self._ahead: dict[int, Event] = {}
        self._lock = asyncio.Lock()

    def follows(self, number: int) -> bool:
        """Whether an event of this number can be told next without anything being read."""
        is_next = self.last is None or number <= self.last + self._step
        return not self._is_read() or (is_next and not self._lock.locked())

    def put(self, events: Sequence[Event]) -> bool:
        """Take events that this process has kept, in order; whether all are told, or else `look` has to be called."""
        if not self._is_read():
            self._ahead.clear()
            for event in events:
                self._reach(event)
            return True
        for event in events:
            number = self._number(event)
            if self.last is None:
                self.last = number - self._step
            if number > self.last:  # others were found by a look, and told
                self._ahead[number] = event
        if not self._lock.locked():
            self._tell_next()
        return not self._ahead

    async def begin(self) -> None:
        """Find out where the stream stands, unless that is known: what is kept from then on is told."""
        if self.last is not None:
            return
        newest = await self._store.events(self._query(newest_first=True, limit=1))
        if self.last is None:
            self.last, self._cursor = (self._number_of(newest[0]), newest[0].sequence) if newest else (0, 0)

    async def look(self, *, before: int | None = None) -> None:
        """Tell what was kept behind the last event that was told; with `before` only up to that number.

        Raises:
            HarborageError: the store cannot be read; what was taken waits for the next look.
        """
        async with self._lock:
            if self.last is None:
                await self.begin()
            while await self._read(before):
                pass
        self._tell_next()

    async def _read(self, before: int | None) -> bool:
        """Read everything that is behind the last event; whether something taken meanwhile asks for another look."""
        waiting, is_more = set(self._ahead), True
        while is_more:
            found = await self._store.events(self._query(after=self._cursor, limit=_PAGE))
            is_more = len(found) == _PAGE
            for row in found:
                if before is not None and self._number_of(row) >= before:
                    return False
                self._found(row)
        self._tell_next()
        # Those are kept, and were not found: they, or what lies before them, were taken out from outside.
        for number in sorted(waiting.intersection(self._ahead)):
            self._pass(self._ahead.pop(number))
        return bool(self._ahead)

    def _found(self, row: EventRow) -> None:
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
            self._tell(event)
        self.last, self._cursor = number, row.sequence

    def _tell_next(self) -> None:
        """Tell what this process has kept, as far as nothing is missing before it."""
        while self._ahead and self.last is not None:
            event = self._ahead.pop(self.last + self._step, None)
            if event is None:
                return
            self._pass(event)

    def _pass(self, event: Event) -> None:
        self._reach(event)
        self._tell(event)

    def _reach(self, event: Event) -> None:
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
