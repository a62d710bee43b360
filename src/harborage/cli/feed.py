"""All that happens to a run and its tasks, in order: events, journal entries of this worker and of others, logs.

Facts are kept here until they are shown. While the journals of other workers are read, new facts are held back, so that
all of them can be sorted by time. Nothing here knows a terminal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from harborage import codec
from harborage.cli.journal_view import RecordedEntry
from harborage.errors import HarborageError
from harborage.events import DurableEventBus, Event, EventBus, Filter, Subscription, is_announced, typed_event
from harborage.runtime.durable.bodies import insert_bodies, read_whole
from harborage.runtime.durable.journal import Done, Entry, decode_entry
from harborage.runtime.history import all_runs
from harborage.runtime.loop.agent_calls import CHILD_OF_CALL
from harborage.state.storage import Storage
from harborage.store import RunQuery, RunRow

if TYPE_CHECKING:
    from harborage.clock import Clock
    from harborage.identity import Identity
    from harborage.store import Commit, Committed, RunRow, Store

_SETTLES = timedelta(seconds=0.2)
_SPAWN = "task.spawn"


class _Written(msgspec.Struct, frozen=True):
    """Entries that this process wrote, and the position of the first in the run's journal."""

    run_id: str
    position: int
    entries: tuple[Entry, ...]


Fact: TypeAlias = Event | RecordedEntry | str
"""An event, a journal entry, or a line of the log."""

_Raw: TypeAlias = Fact | _Written


class Feed:
    """The facts of the session of `who`; `wake` is called whenever there are new ones.

    Logs and entries of this process count from the beginning, events from `subscribe` on, the journals of other workers
    from `follow` on.
    """

    def __init__(self, who: Identity, wake: Callable[[], None], clock: Clock) -> None:
        self._who = who
        self._wake = wake
        self._clock = clock
        self._bus: DurableEventBus | None = None
        self._events: Subscription | None = None
        self._follower: JournalFollower | None = None
        self._facts: list[_Raw] = []
        self._held: list[_Raw] | None = None
        self._polling = asyncio.Lock()

    @property
    def follower(self) -> JournalFollower:
        """The follower of the journals."""
        assert self._follower is not None
        return self._follower

    def subscribe(self, bus: EventBus) -> None:
        """Add the events of this bus from now on."""
        self._bus = bus if isinstance(bus, DurableEventBus) else None
        self._events = bus.subscribe(Filter.of(self._who))

    async def follow(self, follower: JournalFollower, *, is_resumed: bool) -> list[RecordedEntry]:
        """Follow these journals from now on; returns the entries that a resumed run has so far."""
        self._follower = follower
        return await follower.poll() if is_resumed else []

    async def receive_events(self) -> None:
        """Add events as they are published, without end."""
        assert self._events is not None
        async for event in self._events:
            self._add(event)

    def add_log(self, text: str) -> None:
        """Add a line of the log."""
        self._add(text)

    def add_entries(self, run_id: str, position: int, entries: Sequence[Entry]) -> None:
        """Add entries that this process wrote, after the events that were published before them."""
        written = _Written(run_id, position, tuple(entries))
        # The bus delivers the events of the same commit when its caller goes on, which is before the next turn.
        asyncio.get_running_loop().call_soon(
            self.call_after_published, lambda: self._add(*self._drain_events(), written)
        )

    def call_after_published(self, then: Callable[[], None]) -> None:
        """Call `then` once all events that were published before are delivered, so that facts keep their order."""
        if self._bus is None:
            then()
        else:
            self._bus.call_after_delivery(self._who, then)

    def take(self) -> Iterator[Fact]:
        """Yield the facts that are to be shown, each once; those of unrelated runs are left out."""
        facts, self._facts = self._facts, []
        for one in facts:
            match one:
                case _Written(run_id, position, entries):
                    yield from self.follower.accept(run_id, position, entries)
                case Event() if one.identity.run_id in self.follower.unrelated:
                    pass
                case Event():
                    yield typed_event(one)  # events of other processes come as they are stored
                case _:
                    yield one

    async def poll(self, *, is_last: bool = False) -> None:
        """Add what other workers recorded and published for the run, sorted by time.

        Journals and events are read one after the other, so facts younger than both reads wait for the next poll.
        """
        async with self._polling:
            until = None if is_last else self._clock.now() - _SETTLES
            held = self._held = self._held or []
            entries: list[RecordedEntry] = []
            try:
                entries = await self._read_other_workers()
            except HarborageError as error:
                held.append(str(error))
            held.extend(self._drain_events())
            self._held = None
            if not (entries or self.follower.is_elsewhere):
                self._add(*held)
                return
            facts = sorted([*held, *entries], key=self._time_of)
            due = [one for one in facts if until is None or self._time_of(one) <= until]
            self._add(*due)
            self._held = facts[len(due) :] or None

    async def _read_other_workers(self) -> list[RecordedEntry]:
        """The entries that other workers wrote; the bus has their events then."""
        entries = await self.follower.poll()
        if (entries or self.follower.is_elsewhere) and self._bus is not None:
            await self._bus.catch_up()
        return entries

    def _drain_events(self) -> list[Event]:
        return [] if self._events is None else self._events.drain()

    def _add(self, *facts: _Raw) -> None:
        """Add facts; while other journals are read they are held back, so that all can be sorted."""
        if self._held is None:
            self._facts.extend(facts)
            self._wake()
        else:
            self._held.extend(facts)

    def _time_of(self, fact: _Raw) -> datetime:
        match fact:
            case RecordedEntry(entry=entry) | _Written(entries=(entry, *_)):
                return entry.at
            case Event(occurred_at=datetime() as at):
                return at
            case _:
                return self._clock.now()


class JournalFollower:
    """Follows the journals of the run `root` and of its tasks, which share the session of `who`; each entry comes once.

    With `may_be_shared` the session may hold other runs; those that exist at the first poll are `unrelated`.
    After a poll `record` is the row of the root, `unfinished` are the rows of runs that have not ended, and
    `is_elsewhere` says whether another worker executes one of them.
    """

    def __init__(self, store: ObservedStore, root: str, who: Identity, *, may_be_shared: bool = False) -> None:
        self.root = root
        self.unrelated: set[str] = set()
        self.record: RunRow | None = None
        self.unfinished: list[RunRow] = []
        self.is_elsewhere = False
        self._store = store
        self._who = who
        self._counts: dict[str, int] = {}
        self._gaps: set[str] = set()
        self._related = {root}
        self._has_polled = False
        self._may_be_shared = may_be_shared

    def accept(self, run_id: str, position: int, entries: Sequence[Entry]) -> list[RecordedEntry]:
        """Return the new ones of these entries, which begin at `position`; the next poll reads a gap before them."""
        count = self._counts.get(run_id, 0)
        if run_id in self.unrelated:
            return []
        if position > count:
            self._gaps.add(run_id)
            return []
        self._counts[run_id] = max(count, position + len(entries))
        self._gaps.discard(run_id)
        new = entries[count - position :]
        self._related.update(child for entry in new if (child := _spawned_task(entry)))
        self.unrelated -= self._related
        return [RecordedEntry(run_id, entry) for entry in new]

    async def poll(self) -> list[RecordedEntry]:
        """Return the entries that were not returned yet, in the order of each journal; of several runs, by time.

        Raises:
            StateError, JournalCorruptError: a journal cannot be read.
        """
        same_session = RunQuery(tenant=self._who.tenant_id, user=self._who.user_id, session=self._who.session_id)
        rows = {one.run_id: one for one in await all_runs(cast("Store", self._store), same_session)}
        entries: list[RecordedEntry] = []
        if not self._has_polled:
            entries += await self._poll_first(rows)
        for row in rows.values():
            entries += await self._read_new(row)
        self.unfinished = [one for one in rows.values() if self._is_related(one) and not one.status.is_final]
        self.is_elsewhere = any(one.owner and not self._store.is_written_here(one) for one in self.unfinished)
        self.record = rows.get(self.root)
        return sorted(entries, key=lambda one: one.entry.at)

    async def _poll_first(self, rows: dict[str, RunRow]) -> list[RecordedEntry]:
        """Read the root and its tasks; every other run that is in the session by now is unrelated."""
        self._has_polled = True
        entries: list[RecordedEntry] = []
        read: set[str] = set()
        while unread := (self._related & rows.keys()) - read:
            for run_id in unread:
                read.add(run_id)
                entries += await self._read_new(rows[run_id], is_first=True)
        if self._may_be_shared:
            self.unrelated = set(rows) - read
        return entries

    async def _read_new(self, row: RunRow, *, is_first: bool = False) -> list[RecordedEntry]:
        """Read what is new of a run; at first only what it had before this process wrote to it."""
        run_id, count = row.run_id, self._counts.get(row.run_id, 0)
        is_accepted_here = self._store.is_written_here(row) and run_id not in self._gaps
        if row.position <= count or (is_accepted_here and not is_first) or not self._is_related(row):
            return []
        stored = await self._store.entries(run_id, after=count)
        if is_accepted_here:
            stored = stored[: max(0, self._store.first_written(run_id) - count)]
        entries = await read_whole(run_id, stored, partial(self._store.body, run_id), first=count)
        return self.accept(run_id, count, entries)

    def _is_related(self, row: RunRow) -> bool:
        return row.run_id not in self.unrelated


def _spawned_task(entry: Entry) -> str:
    """The id of the task that an entry says was spawned; "" for any other entry."""
    if not isinstance(entry, Done) or entry.name not in (_SPAWN, CHILD_OF_CALL):
        return ""
    handle = codec.decode(bytes(entry.result))
    handle = handle.get("handle", handle) if isinstance(handle, dict) else handle
    return str(handle.get("task_id", "")) if isinstance(handle, dict) else ""


OnEntries: TypeAlias = Callable[[str, int, Sequence[Entry]], None]
"""Called with a run's id, a position in its journal, counted from 0, and the entries that begin there."""


class ObservedStore:
    """A store that calls `on_entries` with the entries that this process has written. Never: delays a commit."""

    def __init__(self, inner: Store, on_entries: OnEntries) -> None:
        self._inner = inner
        self._on_entries = on_entries
        self._fences: dict[str, int] = {}
        self._first: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def is_written_here(self, row: RunRow) -> bool:
        """Whether this process wrote to the run under its present lease: then `on_entries` has had every new entry."""
        return self._fences.get(row.run_id) == row.fence

    def first_written(self, run_id: str) -> int:
        """The position of the first entry that this process wrote to the run."""
        return self._first[run_id]

    async def commit(self, commit: Commit) -> Committed:
        done = await self._inner.commit(commit)
        if done.is_again:
            return done
        for start in commit.starts:
            self._notify(start.run_id, 0, start.entries, commit)
        if commit.guard is not None and commit.entries:
            run_id, _, fence = commit.guard.lease
            self._fences[run_id] = fence
            self._first.setdefault(run_id, commit.guard.position)
            self._notify(run_id, commit.guard.position, commit.entries, commit)
        return done

    def _notify(self, run_id: str, position: int, stored: Sequence[bytes], commit: Commit) -> None:
        entries = [decode_entry(data, run_id, position + index) for index, data in enumerate(stored)]
        self._on_entries(run_id, position, [insert_bodies(entry, commit.bodies) for entry in entries])


def observe_storage(storage: Storage, on_entries: OnEntries) -> tuple[Storage, ObservedStore]:
    """Return the same storage over an observed store, and that store; closing it closes `storage`."""
    store = ObservedStore(storage.store, on_entries)
    return Storage(state=storage.state, store=cast("Store", store), beneath=storage), store


@contextmanager
def capture_logs(add: Callable[[str], None]) -> Iterator[None]:
    """Pass warnings and errors of the library to `add` inside the block; it is called on the event loop.

    A log that repeats an event is left out.
    """
    logger = logging.getLogger("harborage")
    handler = _Handler(asyncio.get_running_loop(), add)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Handler(logging.Handler):
    def __init__(self, loop: asyncio.AbstractEventLoop, add: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._loop = loop
        self._add = add

    def emit(self, record: logging.LogRecord) -> None:
        if is_announced(record):
            return  # its event is shown
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]}"
        with suppress(RuntimeError):  # the event loop is closed, so the screen is gone, too
            self._loop.call_soon_threadsafe(self._add, text)
