"""The entries and events of a run, branches included, that are not in its record yet.

Entries reach the record in the order in which they were noted, one batch at a time. An entry is stored once `flush`
returns; `flush_soon` lets the run continue meanwhile. The run's events go with the next batch. If none follows soon,
because a step takes long, they are stored without entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from harborage.clock import SYSTEM_CLOCK
from harborage.runtime.durable.engine import RunLeftError
from harborage.runtime.durable.journal import Entry, Record, encode_entry

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers
    from harborage.concurrency import Crew
    from harborage.events import Event
    from harborage.events.bus import RunWriter
    from harborage.runtime.durable.event_buffer import PublishingRecord, RunEventBuffer
    from harborage.store import Commit, Committed, NewEvent

T = TypeVar("T")

EVENT_DELAY_S: Final = 0.02
"""How long a published event waits for entries to be stored with, in seconds."""

RETRY_S: Final = 1.0
"""How long it waits after the record refused it, in seconds."""


class Outbox:
    """The entries of one run on their way to `record`; without a record it takes none.

    `is_waiting` returns whether a step runs that may take long: only then events are stored without the step's outcome.
    """

    __slots__ = (
        "_append_now",
        "_batches",
        "_callers",
        "_clock",
        "_crew",
        "_is_flush_due",
        "_is_trailing",
        "_is_uncertain_entries",
        "_is_waiting",
        "_is_writing",
        "_publisher",
        "_record",
        "_run_id",
        "_seen",
        "_timer",
        "_unsaved",
        "_waiters",
    )

    def __init__(
        self,
        run_id: str,
        record: Record | None,
        crew: Crew,
        clock: Timers = SYSTEM_CLOCK,
        is_waiting: Callable[[], bool] = bool,
    ) -> None:
        self._run_id = run_id
        self._record = record
        self._clock = clock
        self._is_waiting = is_waiting
        # Not an isinstance check, which is slow with a protocol: a record that buffers events stores them, too.
        publishes = getattr(record, "event_buffer", None) is not None
        self._publisher = cast("PublishingRecord", record) if publishes else None
        self._timer: Timer | None = None
        self._batches = self._seen = 0
        self._append_now = None if record is None else record.append_now
        self._crew = crew
        self._unsaved: list[bytes] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._is_writing = False
        self._is_flush_due = False
        self._is_uncertain_entries = False
        self._is_trailing = False
        self._callers = 0
        if (buffer := self.event_buffer) is not None:
            buffer.on_added, buffer.on_flush_needed = self._on_published, self.start_flush
            self._start_timer()

    @property
    def event_buffer(self) -> RunEventBuffer | None:
        """The run's events that are not stored yet; None if the bus stores them itself."""
        return None if self._publisher is None else self._publisher.event_buffer

    @property
    def is_busy(self) -> bool:
        """Whether a caller of `flush` waits, and continues once its entries are stored."""
        return self._callers > 0

    @property
    def is_behind(self) -> bool:
        """Whether entries that `flush_soon` should store are not stored yet."""
        return self._is_trailing or self._is_writing

    def note(self, entry: Entry) -> bytes:
        """Take an entry, to be stored by the next flush; return its stored form.

        Raises:
            UnserializableError: a value inside has no JSON form.
        """
        if self._record is None:
            return b""
        stored = encode_entry(entry)
        self._unsaved.append(stored)
        if self._publisher is not None and (buffer := self._publisher.event_buffer) is not None:
            buffer.release_held()
            if buffer:
                self._start_timer()
        return stored

    def withdraw(self, stored: bytes) -> None:
        """Remove an entry that is not stored and not being written: what it announced does not happen."""
        with suppress(ValueError):
            self._unsaved.remove(stored)

    async def flush(self) -> None:
        """Store the entries that were noted so far.

        Raises:
            Exception: the record's own error; the entries wait for the next flush.
        """
        if self.flush_now():
            return
        self._callers += 1
        try:
            await self._flush()
        finally:
            self._callers -= 1

    @property
    def flush_before(self) -> Callable[[], Awaitable[None]] | None:
        """What stores the intent of an effect that is about to act; None where it is stored already."""
        return None if self._record is None or self._append_now is not None else self.flush

    def flush_now(self) -> bool:
        """Store the entries that were noted so far without an await; return False for a record that is not in memory.

        Raises:
            Exception: the record's own error.
        """
        if self._append_now is None:
            return False
        if self._unsaved:
            batch, self._unsaved = self._unsaved, []
            self._append_now(self._run_id, batch)
        return True

    async def _flush(self) -> None:
        while self._is_writing:  # the batch being written may be the caller's, and is stored before later entries
            await self._wait_for_write()
        if not self._unsaved or self._record is None:
            return
        append = partial(self._record.append, self._run_id)
        await self._write_unsaved(append)

    @property
    def write(self) -> RunWriter | None:
        """Stores the entries noted so far in one commit with changes of other rows; None where its record cannot.

        Events that are held back stay so: the step that makes the changes has no outcome yet.
        """
        return None if self._record is None or self._record.write is None else self._write

    async def _write(
        self,
        changes: Commit,
        events: Sequence[tuple[Event, NewEvent]] = (),
        accepted: Callable[[], None] | None = None,
        *,
        can_wait: bool = False,
    ) -> Committed:
        write = None if self._record is None else self._record.write
        assert write is not None
        if can_wait:
            return await write((), changes, (), None, can_wait=True)
        self._callers += 1
        try:
            while self._is_writing:
                await self._wait_for_write()
            return await self._write_unsaved(lambda batch: write(batch, changes, events, accepted))
        finally:
            self._callers -= 1

    async def _write_unsaved(self, write: Callable[[list[bytes]], Awaitable[T]]) -> T:
        """Store the entries noted so far by `write`; where it fails, they wait for the next batch."""
        batch, self._unsaved = self._unsaved, []
        was_trailing, self._is_trailing = self._is_trailing, False
        self._is_writing = True
        self._batches += 1
        try:
            done = await write(batch)
            self._is_uncertain_entries = False
            return done
        except BaseException as error:
            # Branches share the unsaved entries, so one that is cut short here must not lose those of others. An
            # entry that was stored all the same may be stored twice, which changes nothing.
            self._unsaved[:0] = batch
            self._is_trailing |= was_trailing
            self._is_uncertain_entries = not isinstance(error, Exception)
            raise
        finally:
            self._is_writing = False
            self._wake_waiters()

    def flush_soon(self) -> None:
        """Store the entries that were noted so far while the run continues; `flush` waits for it and raises its error.

        Nothing is written before the run first yields to the event loop, so a run that never does stores them together
        with its next entries.
        """
        if self._record is None or self.flush_now():
            return
        self._is_trailing = True
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._start_trailing_flush)

    async def take_unsaved(self) -> list[bytes]:
        """Remove and return the entries that are not stored, to be committed with the end of the run."""
        while self._is_writing:
            await self._wait_for_write()
        unsaved, self._unsaved = self._unsaved, []
        self._is_trailing = False
        return unsaved

    async def try_flush(self) -> None:
        """Store the entries that were noted so far, if the record accepts them; only `flush` raises the record's error.

        A batch that was being written when the run was cut short is not written again: it may be stored already.
        """
        while self._is_writing:
            await self._wait_for_write()
        if not self._is_uncertain_entries:
            with suppress(RunLeftError):
                await self.flush()

    async def flush_all(self) -> None:
        """Store the entries and events so far.

        Raises:
            Exception: the record's own error; the entries wait for the next flush.
        """
        await self.flush()
        while self._is_writing:
            await self._wait_for_write()
        if self._publisher is None or not self.event_buffer:
            return
        if self._unsaved:
            await self._flush()
        else:
            await asyncio.shield(self._flush_events(self._publisher))

    def start_flush(self) -> None:
        """Start to store the entries and events so far, before any that come later."""
        if self._publisher is None or not self.event_buffer or self._crew.is_closed:
            return
        flushing = None if self._is_writing or self._unsaved else self._flush_events(self._publisher)
        self._crew.start(self._flush_in_background(flushing), "record")

    def _flush_events(self, publisher: PublishingRecord) -> asyncio.Task[None]:
        self._is_writing = True
        self._batches += 1
        flushing = publisher.flush_events()
        flushing.add_done_callback(self._end_write)
        return flushing

    def _end_write(self, _: asyncio.Task[None]) -> None:
        self._is_writing = False
        self._wake_waiters()

    def close(self) -> None:
        """Stop storing events on the outbox's own timer."""
        if self._timer is not None:
            self._timer.cancel()
        if (buffer := self.event_buffer) is not None:
            buffer.on_added = buffer.on_flush_needed = None

    async def _flush_in_background(self, flushing: asyncio.Task[None] | None) -> None:
        try:
            await (self.flush_all() if flushing is None else asyncio.shield(flushing))
        except RunLeftError:  # the next flush of entries raises it in the run
            if self.event_buffer:
                self._start_timer(RETRY_S)

    def _on_published(self) -> None:
        """Hold back the event of a short step until the step's outcome is recorded: only then is it certain."""
        assert self.event_buffer is not None
        self.event_buffer.hold(not self._is_waiting())
        self._start_timer()

    def _start_timer(self, after_s: float = EVENT_DELAY_S) -> None:
        """Check in `after_s` seconds whether the events have been stored with entries."""
        if self._timer is None and not self._crew.is_closed:
            self._seen = self._batches
            self._timer = self._clock.call_later(after_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self.event_buffer and self._batches == self._seen:
            self.start_flush()
        elif self.event_buffer:
            self._start_timer()  # these events came after the last batch

    def _start_trailing_flush(self) -> None:
        self._is_flush_due = False
        if self._is_trailing and not self._crew.is_closed:
            self._crew.start(self.try_flush(), "record")

    async def _wait_for_write(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
