"""Keeping events before they are told: one line of events for each session, committed to the store in order.

Whatever is told with a number is on disk by then. The store gives the numbers, in the commit: another process may write
in the same session. What a run publishes while this process carries it comes here when it is kept already.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from harborage.concurrency import CLOSE_GRACE_S, CancelScope, Crew, together
from harborage.errors import error_reason
from harborage.events.errors import BusBacklogError, BusClosedError, BusStalledError
from harborage.events.event import Event
from harborage.events.stored import numbered
from harborage.events.tail import Tail
from harborage.identity import Identity, Quadruple
from harborage.store import Commit, Committed

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers
    from harborage.events.fanout import FanOut, SessionKey
    from harborage.store import NewEvent, Store

__all__ = ["Keeper"]

MAX_BATCH = 1_000
MAX_LINES = 1_024
RETRY_S = 1.0

_log = logging.getLogger(__name__)


class _Item:
    """One event on its way, or a mark that somebody waits to be reached. Without `data` it is told but not kept."""

    __slots__ = ("data", "event", "waiter")

    def __init__(self, event: Event | None, data: NewEvent | None, waiter: asyncio.Future[Event] | None) -> None:
        self.event = event
        self.data = data
        self.waiter = waiter

    def arrive(self, event: Event) -> None:
        """Tell who waits that this is what became of it."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(event)

    def fail(self, error: BaseException) -> None:
        """Tell who waits that nothing became of it."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(error)


class _Mark(_Item):
    """A place in the line: `then` is called, at once, when everything before it has been told or refused."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__(None, None, None)
        self._then = then

    def arrive(self, event: Event) -> None:
        self._then()

    def fail(self, error: BaseException) -> None:
        self._then()


class _Line:
    """The events of one session that wait for the store, and how far they have been told.

    `failure` is why the store refused events that nobody waits for; `is_working` says that somebody keeps them.
    """

    __slots__ = ("failure", "is_working", "items", "tail", "who")

    def __init__(self, who: Identity, tail: Tail) -> None:
        self.who = who
        self.tail = tail
        self.items: deque[_Item] = deque()
        self.failure: Exception | None = None
        self.is_working = False


class Keeper:
    """Takes events, keeps them in `store`, then gives them to `readers` with their numbers, those of a session in
    order. At most `max_backlog` events wait for the store.
    """

    def __init__(self, store: Store, clock: Timers, readers: FanOut, *, max_backlog: int) -> None:
        self._store = store
        self._clock = clock
        self._readers = readers
        self._max_backlog = max_backlog
        self._lines: dict[SessionKey, _Line] = {}
        self._all = Tail(store, None, readers.to_admins, lambda: bool(readers.admins))
        self._backlog = 0
        self._retry: Timer | None = None
        self._is_last = False
        self._crew = Crew(self._crashed)

    def add(self, event: Event, data: NewEvent) -> None:
        """Keep an event for which nobody waits; one that the store refuses is offered to it again until it takes it.

        Raises:
            BusStalledError: the store refuses what this session told before.
            BusBacklogError: too many events wait already.
        """
        line = self._line(event.identity)
        if line.failure is not None:
            raise BusStalledError(line.who.session_id) from line.failure
        if self._backlog >= self._max_backlog:
            raise BusBacklogError(self._max_backlog)
        self._put(line, _Item(event, data, None))

    def add_waiting(self, event: Event, data: NewEvent) -> asyncio.Future[Event]:
        """Keep an event for whoever awaits the result: the event with its number, or why it was not kept."""
        waiter: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._put(self._line(event.identity), _Item(event, data, waiter))
        return waiter

    def kept(self, events: Sequence[Event], done: Committed) -> None:
        """Tell events of one session that a commit kept; where it does not say under which numbers, they are read."""
        tail = self._line(events[0].identity).tail
        if done.first:
            self._tell(tail, [numbered(event, done.place, done.first, index) for index, event in enumerate(events)])
            return
        for one in (tail, self._all):
            self._crew.start(self._fill(one), "events.look")

    def pass_by(self, event: Event) -> None:
        """Tell an event that is not kept, behind those of its session that are on their way."""
        line = self._lines.get(_key(event.identity))
        if line is None or not line.items or line.failure is not None or self._backlog >= self._max_backlog:
            self._readers.hand_out(event)
        else:
            self._put(line, _Item(event, None, None))

    def behind(self, who: Identity, then: Callable[[], None]) -> None:
        """Call `then` as soon as what the session told so far was told or refused, and before what it tells later."""
        line = self._lines.get(_key(who))
        if line is None or not line.items or line.failure is not None:
            then()
        else:
            self._put(line, _Mark(then))

    async def settle(self, who: Identity) -> None:
        """Wait until what the session told so far was kept, or refused."""
        line = self._lines.get(_key(who))
        if line is None or not line.items:
            return
        mark: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._put(line, _Item(None, None, mark))
        try:
            await mark
        except Exception as error:  # noqa: BLE001 - logged
            # Whoever told the events learns of it; those that are kept can be read all the same.
            _log.warning("events: session %s: the store refuses what was told last: %s", who.session_id, error)

    async def begin(self, who: Identity) -> None:
        """From here on what others keep in the session is news."""
        await self._line(who).tail.begin()

    def place(self, who: Identity | Quadruple) -> int:
        """The highest number of the session that is known here; 0 when none is."""
        line = self._lines.get(_key(who))
        return 0 if line is None else line.tail.last or 0

    async def catch_up(self) -> None:
        """Tell the readers what other processes have kept since this one last looked."""
        tails = [self._line(Identity(*key)).tail for key in self._readers.readers]
        if self._readers.admins:
            tails.append(self._all)
        await together(*(tail.look() for tail in tails))

    async def aclose(self, seconds: float) -> None:
        """Offer everything to the store once more, for `seconds` at most, and let go of what it leaves, out loud."""
        self._is_last = True
        if self._retry is not None:
            self._retry.cancel()
        self._try_again()
        with CancelScope(self._clock, seconds) as waiting:
            await self._crew.join()
        left = [line for line in self._lines.values() if line.items]
        if left:
            lost = {line.who.session_id: len(line.items) for line in left}
            how = "refused to the end; not kept"
            if waiting.was_cancelled:
                how = f"did not answer within {seconds:g} s; not known to be kept"
            _log.error("events: %s %s, by session: %s", type(self._store).__name__, how, lost)
        for item in (item for line in left for item in line.items):
            item.fail(BusClosedError())
        self._lines.clear()
        held = await self._crew.aclose(clock=self._clock, grace_s=CLOSE_GRACE_S)
        if held:
            _log.error("events: %s ignores its cancellation and is left behind", type(self._store).__name__)

    def _line(self, who: Identity | Quadruple) -> _Line:
        key = _key(who)
        line = self._lines.get(key)
        if line is None:
            session = Identity(*key)
            readers = self._readers
            tail = Tail(self._store, session, readers.to_session, lambda: key in readers.readers)
            line = self._lines[key] = _Line(session, tail)
        return line

    def _put(self, line: _Line, item: _Item) -> None:
        if not line.is_working:
            asyncio.get_running_loop()  # without one nothing could ever be kept
        line.items.append(item)
        self._backlog += 1
        self._wake(line)

    def _wake(self, line: _Line) -> None:
        if not line.is_working:
            line.is_working = True
            self._crew.start(self._work(line), "events.keep")

    async def _work(self, line: _Line) -> None:
        """Keep and tell what waits in a line, batch by batch, until nothing does that the store may take."""
        try:
            while line.items and await self._write(line):
                pass
        finally:
            line.is_working = False
        self._spare()

    async def _write(self, line: _Line) -> bool:
        """Keep the next events of a line, and tell them; whether the next may be tried at once."""
        count = min(len(line.items), MAX_BATCH)
        kept = [item.data for item in islice(line.items, count) if item.data is not None]
        done = Committed()
        if kept:
            try:
                done = await self._store.commit(Commit(who=line.who, events=tuple(kept)))
            except Exception as error:  # noqa: BLE001 - handed to those who wait, logged for the others
                return self._refuse(line, count, error)
            if not line.tail.follows(done.place):
                await self._fill(line.tail, before=done.place)
        if line.failure is not None:
            line.failure = None
            _log.info("events: the store takes the events of session %s again", line.who.session_id)
        self._arrived(line, [line.items.popleft() for _ in range(count)], done)
        return True

    def _arrived(self, line: _Line, items: Sequence[_Item], done: Committed) -> None:
        """Tell what was kept, and between it what is not."""
        offset = 0
        self._backlog -= len(items)
        for item in items:
            event = item.event
            if event is None:
                item.arrive(_NOTHING)
                continue
            if item.data is None:
                self._readers.hand_out(event)
            else:
                event = numbered(event, done.place, done.first, offset)
                offset += 1
                self._tell(line.tail, [event])
            item.arrive(event)

    def _tell(self, tail: Tail, events: Sequence[Event]) -> None:
        """Tell events that are kept, or see to it that they are told behind those that others kept before them."""
        for one in (tail, self._all):
            if not one.put(events):
                self._crew.start(self._fill(one), "events.look")

    async def _fill(self, tail: Tail, before: int | None = None) -> None:
        """Tell what others kept; where it cannot be read its readers wait for the next look."""
        try:
            await tail.look(before=before)
        except Exception as error:  # noqa: BLE001 - what is missing is read with the next look
            _log.warning("events: what other processes kept cannot be told yet: %s", error_reason(error))

    def _refuse(self, line: _Line, count: int, error: Exception) -> bool:
        """The store did not take the first `count` events: tell those who wait, keep the rest to be offered again.

        Returns whether the next may be tried at once.
        """
        tried = [line.items.popleft() for _ in range(count)]
        owed = [item for item in tried if item.data is not None and item.waiter is None]
        for item in tried:
            item.fail(error)
            if item.event is not None and item.data is None:
                self._readers.hand_out(item.event)
        self._backlog -= count - len(owed)
        line.items.extendleft(reversed(owed))
        if owed and line.failure is None:
            _log.error(
                "events: the store refused %d events of session %s; they are offered again: %s",
                len(owed),
                line.who.session_id,
                error,
            )
        line.failure = error if owed else None
        if not owed or any(item.waiter is not None for item in line.items):
            return True
        if self._retry is None and not self._is_last:
            self._retry = self._clock.call_later(RETRY_S, self._try_again)
        return False

    def _try_again(self) -> None:
        self._retry = None
        for line in self._lines.values():
            if line.items:
                self._wake(line)

    def _spare(self) -> None:
        """Forget the places of sessions that have gone quiet; they are looked up again."""
        if len(self._lines) <= MAX_LINES:
            return
        readers = self._readers.readers
        idle = [key for key, line in self._lines.items() if not (line.items or line.is_working or key in readers)]
        for key in islice(idle, len(self._lines) - MAX_LINES // 2):
            del self._lines[key]

    def _crashed(self, name: str, error: BaseException) -> None:
        _log.critical("events: %s ended: %s", name, error, exc_info=error)
        for line in self._lines.values():
            for item in line.items:
                item.fail(error)


_NOTHING = Event("", Identity("", "", "").with_run(""), None)


def _key(who: Identity | Quadruple) -> SessionKey:
    return (who.tenant_id, who.user_id, who.session_id)
