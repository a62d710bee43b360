"""Keeping events before they are told: one line of events for each session, written to the log in order and in batches.

Whatever is told with a number is on disk by then, so no number that anybody has seen is ever given to another event.
Numbers are given when the log is written, not before: another process may write the same session's line.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from harborage.concurrency import CLOSE_GRACE_S, CancelScope, Crew, together
from harborage.events.errors import (
    BusBacklogError,
    BusClosedError,
    BusStalledError,
    EventCorruptError,
    SequenceTakenError,
)
from harborage.events.event import Event
from harborage.events.log import EventLog, Logged
from harborage.events.stored import decode_event
from harborage.identity import Identity, Quadruple

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers
    from harborage.events.fanout import SessionKey

__all__ = ["Keeper"]

MAX_BATCH = 1_000
MAX_LINES = 1_024
RETRY_S = 1.0

_log = logging.getLogger(__name__)


class _Item:
    """One event on its way, or a mark that somebody waits to be reached. Without `data` it is told but not kept."""

    __slots__ = ("data", "event", "waiter")

    def __init__(self, event: Event | None, data: bytes | None, waiter: asyncio.Future[Event] | None) -> None:
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
    """The events of one session that wait for the log. `last` is the highest number it is known to have, or None.

    `failure` is why the log refused events that nobody waits for; `is_behind` asks for what other processes kept.
    """

    __slots__ = ("failure", "is_behind", "items", "last", "who")

    def __init__(self, who: Identity) -> None:
        self.who = who
        self.last: int | None = None
        self.items: deque[_Item] = deque()
        self.failure: Exception | None = None
        self.is_behind = False


class Keeper:
    """Takes events, keeps them in `log`, then gives each to `tell` with its number, those of a session in order.

    At most `max_backlog` events wait for the log. `is_read` says whether a session has readers, so that its place in
    the log is not forgotten.
    """

    def __init__(
        self,
        log: EventLog,
        clock: Timers,
        tell: Callable[[Event], None],
        *,
        is_read: Callable[[SessionKey], bool],
        max_backlog: int,
    ) -> None:
        self._log = log
        self._clock = clock
        self._tell = tell
        self._is_read = is_read
        self._max_backlog = max_backlog
        self._lines: dict[SessionKey, _Line] = {}
        self._due: dict[_Line, None] = {}
        self._backlog = 0
        self._is_working = False
        self._retry: Timer | None = None
        self._crew = Crew(self._crashed)

    def add(self, event: Event, data: bytes) -> None:
        """Keep an event for which nobody waits; one that the log refuses is offered to it again until it takes it.

        Raises:
            BusStalledError: the log refuses what this session told before.
            BusBacklogError: too many events wait already.
        """
        line = self._line(event)
        if line.failure is not None:
            raise BusStalledError(line.who.session_id) from line.failure
        if self._backlog >= self._max_backlog:
            raise BusBacklogError(self._max_backlog)
        self._put(line, _Item(event, data, None))

    def add_waiting(self, event: Event, data: bytes) -> asyncio.Future[Event]:
        """Keep an event for whoever awaits the result: the event with its number, or why it was not kept."""
        waiter: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._put(self._line(event), _Item(event, data, waiter))
        return waiter

    def pass_by(self, event: Event) -> None:
        """Tell an event that is not kept, behind those of its session that are on their way."""
        line = self._lines.get(_key(event))
        if line is None or not line.items or line.failure is not None or self._backlog >= self._max_backlog:
            self._tell(event)
        else:
            self._put(line, _Item(event, None, None))

    def behind(self, who: Identity, then: Callable[[], None]) -> None:
        """Call `then` as soon as what the session told so far was told or refused, and before what it tells later."""
        line = self._lines.get((who.tenant_id, who.user_id, who.session_id))
        if line is None or not line.items or line.failure is not None:
            then()
        else:
            self._put(line, _Mark(then))

    async def settle(self, who: Identity) -> None:
        """Wait until what the session told so far was kept, or refused."""
        line = self._lines.get((who.tenant_id, who.user_id, who.session_id))
        if line is None or not line.items:
            return
        try:
            await self._reached(line)
        except Exception as error:  # noqa: BLE001 - logged
            # Whoever told the events learns of it; those that are kept can be read all the same.
            _log.warning("events: session %s: the log refuses what was told last: %s", who.session_id, error)

    def note(self, who: Identity, sequence: int) -> None:
        """A reader has been given the session's events up to this number; what others keep from here on is news."""
        line = self._lines.setdefault((who.tenant_id, who.user_id, who.session_id), _Line(who))
        if line.last is None:
            line.last = sequence

    def place(self, who: Identity | Quadruple) -> int:
        """The highest number of the session that is known here; 0 when none is."""
        line = self._lines.get((who.tenant_id, who.user_id, who.session_id))
        return 0 if line is None or line.last is None else line.last

    async def catch_up(self, sessions: Iterable[SessionKey]) -> None:
        """Tell what other processes have kept of these sessions since this one last looked."""
        marks = []
        for key in sessions:
            line = self._lines.get(key) or self._lines.setdefault(key, _Line(Identity(*key)))
            line.is_behind = True
            marks.append(self._reached(line))
        await together(*marks)

    async def aclose(self, seconds: float) -> None:
        """Offer everything to the log once more, for `seconds` at most, and let go of what it leaves, out loud."""
        if self._retry is not None:
            self._retry.cancel()
        self._try_again(is_last=True)
        with CancelScope(self._clock, seconds) as waiting:
            await self._crew.join()
        left = [line for line in self._lines.values() if line.items]
        if left:
            lost = {line.who.session_id: len(line.items) for line in left}
            how = "refused to the end; not kept"
            if waiting.was_cancelled:
                how = f"did not answer within {seconds:g} s; not known to be kept"
            _log.error("events: %s %s, by session: %s", type(self._log).__name__, how, lost)
        for item in (item for line in left for item in line.items):
            item.fail(BusClosedError())
        self._lines.clear()
        held = await self._crew.aclose(clock=self._clock, grace_s=CLOSE_GRACE_S)
        if held:
            _log.error("events: %s ignores its cancellation and is left behind", type(self._log).__name__)

    def _line(self, event: Event) -> _Line:
        key = _key(event)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(event.identity.identity)
        return line

    def _reached(self, line: _Line) -> asyncio.Future[Event]:
        mark: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._put(line, _Item(None, None, mark))
        return mark

    def _put(self, line: _Line, item: _Item) -> None:
        if not self._is_working:
            asyncio.get_running_loop()  # without one nothing could ever be kept
        line.items.append(item)
        self._backlog += 1
        self._due[line] = None
        self._wake()

    def _wake(self) -> None:
        if not self._is_working and self._due:
            self._is_working = True
            self._crew.start(self._work(), "events.keep")

    async def _work(self) -> None:
        """Write what waits, batch by batch, until nothing does that the log may take."""
        try:
            while self._due:
                lines = list(self._due)
                self._due.clear()
                if closed := [line for line in lines if line.last is None or line.is_behind]:
                    await together(*(self._open(line) for line in closed))
                await self._write(self._batch(lines))
        finally:
            self._is_working = False
        self._spare()

    async def _open(self, line: _Line) -> None:
        """Find the end of a session's line, and tell what others have added to it when that is asked for."""
        try:
            if line.last is None:
                line.last = await self._log.last(line.who)
                line.is_behind = False
            elif line.is_behind:
                await self._look(line)
        except Exception as error:  # noqa: BLE001 - handed to those who wait, logged for the others
            self._refuse(line, len(line.items), error)

    async def _look(self, line: _Line) -> bool:
        """Tell what other processes have kept behind `last`; whether that was anything."""
        line.is_behind = False
        assert line.last is not None
        before = line.last
        while found := await self._log.read(line.who, after=line.last, limit=MAX_BATCH):
            for kept in found:
                line.last = kept.sequence
                try:
                    self._tell(decode_event(kept))
                except EventCorruptError as error:
                    _log.error("%s", error)
        return line.last > before

    def _batch(self, lines: list[_Line]) -> dict[_Line, int]:
        """How many events of which lines to write at once; the lines that must wait their turn are due again."""
        room = MAX_BATCH
        batch: dict[_Line, int] = {}
        for line in lines:
            if line.last is None or not line.items:
                continue
            count = min(room, len(line.items))
            if count:
                batch[line] = count
                room -= count
            if count < len(line.items):
                self._due[line] = None
        return batch

    async def _write(self, batch: dict[_Line, int]) -> None:
        events = [logged for line, count in batch.items() for logged in _numbered(line, count)]
        try:
            if events:
                await self._log.append(events)
        except SequenceTakenError as error:
            await self._renumber(batch, error)
        except Exception as error:  # noqa: BLE001 - handed to those who wait, logged for the others
            if len(batch) == 1:
                ((line, count),) = batch.items()
                self._refuse(line, count, error)
                return
            # One session's trouble is not another's.
            for line, count in batch.items():
                await self._write({line: count})
        else:
            for line, count in batch.items():
                self._kept(line, count)

    async def _renumber(self, batch: dict[_Line, int], error: SequenceTakenError) -> None:
        """Another process wrote: tell what it kept, and come again behind it."""
        has_moved = False
        for line, count in batch.items():
            try:
                has_moved |= await self._look(line)
            except Exception as failure:  # noqa: BLE001 - handed to those who wait, logged for the others
                self._refuse(line, count, failure)
                has_moved = True
            else:
                self._due[line] = None
        if not has_moved:
            for line, count in batch.items():
                self._due.pop(line, None)
                self._refuse(line, count, error)

    def _kept(self, line: _Line, count: int) -> None:
        """Number the first `count` events of the line, and tell them."""
        assert line.last is not None
        if line.failure is not None:
            line.failure = None
            _log.info("events: the log takes the events of session %s again", line.who.session_id)
        for _ in range(count):
            item = line.items.popleft()
            self._backlog -= 1
            event = item.event
            if event is None:
                item.arrive(_NOTHING)
                continue
            if item.data is not None:
                line.last += 1
                event = Event(event.type, event.identity, event.payload, event.occurred_at, line.last, event.extra)
            self._tell(event)
            item.arrive(event)
        if line.items:
            self._due[line] = None

    def _refuse(self, line: _Line, count: int, error: Exception) -> None:
        """The log did not take the first `count` events: tell those who wait, keep the rest to be offered again."""
        tried = [line.items.popleft() for _ in range(count)]
        owed = [item for item in tried if item.data is not None and item.waiter is None]
        for item in tried:
            item.fail(error)
            if item.event is not None and item.data is None:
                self._tell(item.event)
        self._backlog -= count - len(owed)
        line.items.extendleft(reversed(owed))
        if owed and line.failure is None:
            _log.error(
                "events: the log refused %d events of session %s; they are offered again: %s",
                len(owed),
                line.who.session_id,
                error,
            )
        line.failure = error if owed else None
        if any(item.waiter is not None for item in line.items):
            self._due[line] = None
        elif owed and self._retry is None:
            self._retry = self._clock.call_later(RETRY_S, self._try_again)

    def _try_again(self, *, is_last: bool = False) -> None:
        self._retry = _NEVER if is_last else None
        self._due.update(dict.fromkeys(line for line in self._lines.values() if line.items))
        self._wake()

    def _spare(self) -> None:
        """Forget the places of sessions that have gone quiet; they are looked up again."""
        if len(self._lines) <= MAX_LINES:
            return
        idle = [key for key, line in self._lines.items() if not line.items and not self._is_read(key)]
        for key in islice(idle, len(self._lines) - MAX_LINES // 2):
            del self._lines[key]

    def _crashed(self, name: str, error: BaseException) -> None:
        _log.critical("events: %s ended: %s", name, error, exc_info=error)
        for line in self._lines.values():
            for item in line.items:
                item.fail(error)


class _Never:
    def cancel(self) -> None:
        """Nothing is armed."""


_NEVER = _Never()
_NOTHING = Event("", Identity("", "", "").with_run(""), None)


def _key(event: Event) -> SessionKey:
    who = event.identity
    return (who.tenant_id, who.user_id, who.session_id)


def _numbered(line: _Line, count: int) -> Iterable[Logged]:
    number = line.last or 0
    for item in islice(line.items, count):
        if item.data is not None:
            number += 1
            yield Logged(line.who, number, item.data)
