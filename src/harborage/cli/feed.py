"""All that happens to a run and its tasks, in order: events, journal entries of this process and of others, logs.

Facts wait here until they are shown. While the journals of other processes are read, new facts are held back, so that
all of them can be put in order. Nothing here knows a terminal.
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
from harborage.cli.journal_view import Recorded
from harborage.errors import HarborageError
from harborage.events import DurableEventBus, Event, EventBus, Filter, Subscription, is_announced, typed_event
from harborage.runtime.engines.bodies import filled, read_whole
from harborage.runtime.history import all_runs
from harborage.runtime.journal import Done, Entry, decode_entry
from harborage.state.storage import Storage
from harborage.store import RunQuery, RunRow

if TYPE_CHECKING:
    from harborage.clock import Clock
    from harborage.identity import Identity
    from harborage.store import Commit, Committed, RunRow, Store

__all__ = ["Fact", "Feed", "Following", "OnEntries", "WatchedStore", "logged", "watched"]

_SETTLES = timedelta(seconds=0.2)


class _Written(msgspec.Struct, frozen=True):
    """Entries that this process wrote, at their place in a run's record."""

    run_id: str
    place: int
    entries: tuple[Entry, ...]


Fact: TypeAlias = Event | Recorded | str
"""An event, what was recorded, or what was logged."""

_Raw: TypeAlias = Fact | _Written


class Feed:
    """The facts of the session of `who`; `wake` is called whenever there are more of them.

    What is logged and recorded here is taken in from the beginning, events from `subscribe` on, the records of other
    processes from `follow` on.
    """

    def __init__(self, who: Identity, wake: Callable[[], None], clock: Clock) -> None:
        self._who = who
        self._wake = wake
        self._clock = clock
        self._bus: DurableEventBus | None = None
        self._events: Subscription | None = None
        self._following: Following | None = None
        self._happened: list[_Raw] = []
        self._held: list[_Raw] | None = None
        self._looking = asyncio.Lock()

    @property
    def following(self) -> Following:
        """The records that are followed."""
        assert self._following is not None
        return self._following

    def subscribe(self, bus: EventBus) -> None:
        """Take in the events of this bus from now on."""
        self._bus = bus if isinstance(bus, DurableEventBus) else None
        self._events = bus.subscribe(Filter.of(self._who))

    async def follow(self, following: Following, *, is_old: bool) -> list[Recorded]:
        """Follow these records from now on; of a run that was begun before, what it has done so far."""
        self._following = following
        return await following.look() if is_old else []

    async def listen(self) -> None:
        """Take in events as they are published, without end."""
        assert self._events is not None
        async for event in self._events:
            self._note(event)

    def logged(self, text: str) -> None:
        """Take in what was logged."""
        self._note(text)

    def recorded(self, run_id: str, place: int, entries: Sequence[Entry]) -> None:
        """Take in what this process recorded, behind the events that were published before it."""
        written = _Written(run_id, place, tuple(entries))
        self.behind(lambda: self._note(*self._drained(), written))

    def behind(self, then: Callable[[], None]) -> None:
        """Do something behind what was published before it: facts are to stand in the order of their making."""
        if self._bus is None:
            then()
        else:
            self._bus.behind(self._who, then)

    def take(self) -> Iterator[Fact]:
        """What is there to be shown, each fact once; those of runs that are strangers to this one are left out."""
        happened, self._happened = self._happened, []
        for one in happened:
            match one:
                case _Written(run_id, place, entries):
                    yield from self.following.heard(run_id, place, entries)
                case Event() if one.identity.run_id in self.following.strangers:
                    pass
                case Event():
                    yield typed_event(one)  # what another process told comes as it is kept
                case _:
                    yield one

    async def look(self, *, is_last: bool = False) -> None:
        """Take in what other processes recorded and told of the run, in the order of its time.

        Record and events are read one after the other: what is younger than both looks waits for the next one.
        """
        async with self._looking:
            until = None if is_last else self._clock.now() - _SETTLES
            held = self._held = self._held or []
            news: list[Recorded] = []
            try:
                news = await self._read_elsewhere()
            except HarborageError as error:
                held.append(str(error))
            held.extend(self._drained())
            self._held = None
            if not (news or self.following.is_elsewhere):
                self._note(*held)
                return
            facts = sorted([*held, *news], key=self._time_of)
            now_told = [one for one in facts if until is None or self._time_of(one) <= until]
            self._note(*now_told)
            self._held = facts[len(now_told) :] or None

    async def _read_elsewhere(self) -> list[Recorded]:
        """What others recorded; what they told of it is with the bus then."""
        news = await self.following.look()
        if (news or self.following.is_elsewhere) and self._bus is not None:
            await self._bus.catch_up()
        return news

    def _drained(self) -> list[Event]:
        return [] if self._events is None else self._events.drain()

    def _note(self, *facts: _Raw) -> None:
        """Take facts in; while the record of others is read they wait, so that all can be put in order."""
        if self._held is None:
            self._happened.extend(facts)
            self._wake()
        else:
            self._held.extend(facts)

    def _time_of(self, fact: _Raw) -> datetime:
        match fact:
            case Recorded(entry=entry) | _Written(entries=(entry, *_)):
                return entry.at
            case Event(occurred_at=datetime() as at):
                return at
            case _:
                return self._clock.now()


_SPAWN = "task.spawn"


class Following:
    """The record of the run `root` and of the tasks below it, as far as it was told. They share the session of `who`.

    Where other runs may be in that session too (`may_be_shared`), those that are there at the first look are strangers.
    After a look `record` is the root's, `unfinished` are the runs that are not over, and `is_elsewhere` says whether
    another process carries one of them.
    """

    def __init__(self, store: WatchedStore, root: str, who: Identity, *, may_be_shared: bool = False) -> None:
        self.root = root
        self.strangers: set[str] = set()
        self.record: RunRow | None = None
        self.unfinished: list[RunRow] = []
        self.is_elsewhere = False
        self._store = store
        self._who = who
        self._told: dict[str, int] = {}
        self._behind: set[str] = set()
        self._family = {root}
        self._has_looked = False
        self._may_be_shared = may_be_shared

    def heard(self, run_id: str, place: int, entries: Sequence[Entry]) -> list[Recorded]:
        """What is new in these entries, which stand at `place` of a run; a gap before them is read at the next look."""
        told = self._told.get(run_id, 0)
        if run_id in self.strangers:
            return []
        if place > told:
            self._behind.add(run_id)
            return []
        self._told[run_id] = max(told, place + len(entries))
        self._behind.discard(run_id)
        news = entries[told - place :]
        self._family.update(child for entry in news if (child := _child(entry)))
        self.strangers -= self._family
        return [Recorded(run_id, entry) for entry in news]

    async def look(self) -> list[Recorded]:
        """What was recorded and not told yet, in the order of its making; of several runs, by time.

        Raises:
            StateError, JournalCorruptError: a record cannot be read.
        """
        mine = RunQuery(tenant=self._who.tenant_id, user=self._who.user_id, session=self._who.session_id)
        records = {one.run_id: one for one in await all_runs(cast("Store", self._store), mine)}
        news: list[Recorded] = []
        if not self._has_looked:
            news += await self._look_first(records)
        for record in records.values():
            news += await self._news_of(record)
        self.unfinished = [one for one in records.values() if self._is_mine(one) and not one.status.is_final]
        self.is_elsewhere = any(one.owner and not self._store.is_written_here(one) for one in self.unfinished)
        self.record = records.get(self.root)
        return sorted(news, key=lambda one: one.entry.at)

    async def _look_first(self, records: dict[str, RunRow]) -> list[Recorded]:
        """The family of the root; whatever else is in the session by now is none of it."""
        self._has_looked = True
        news: list[Recorded] = []
        seen: set[str] = set()
        while waiting := (self._family & records.keys()) - seen:
            for run_id in waiting:
                seen.add(run_id)
                news += await self._news_of(records[run_id])
        if self._may_be_shared:
            self.strangers = set(records) - seen
        return news

    async def _news_of(self, record: RunRow) -> list[Recorded]:
        run_id, told = record.run_id, self._told.get(record.run_id, 0)
        is_told_here = self._store.is_written_here(record) and run_id not in self._behind
        if record.position <= told or is_told_here or not self._is_mine(record):
            return []
        stored = await self._store.entries(run_id, after=told)
        entries = await read_whole(run_id, stored, partial(self._store.body, run_id), first=told)
        return self.heard(run_id, told, entries)

    def _is_mine(self, record: RunRow) -> bool:
        return record.run_id not in self.strangers


def _child(entry: Entry) -> str:
    """The task that an entry tells the spawning of; "" for any other entry."""
    if not isinstance(entry, Done) or entry.name != _SPAWN:
        return ""
    handle = codec.decode(bytes(entry.result))
    return str(handle.get("task_id", "")) if isinstance(handle, dict) else ""


OnEntries: TypeAlias = Callable[[str, int, Sequence[Entry]], None]
"""Hears of a run, the place in its journal, counted from 0, and the entries that stand there now."""


class WatchedStore:
    """`inner` with a listener, told of the entries that this process writes once they are kept. Never: delays one."""

    def __init__(self, inner: Store, on_entries: OnEntries) -> None:
        self._inner = inner
        self._on_entries = on_entries
        self._fences: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def is_written_here(self, row: RunRow) -> bool:
        """Whether this process wrote to the run under the lease that it has now: then everything new was told."""
        return self._fences.get(row.run_id) == row.fence

    async def commit(self, commit: Commit) -> Committed:
        done = await self._inner.commit(commit)
        if done.is_again:
            return done
        for start in commit.starts:
            self._tell(start.run_id, 0, start.entries, commit)
        if commit.guard is not None and commit.entries:
            run_id, _, fence = commit.guard.lease
            self._fences[run_id] = fence
            self._tell(run_id, commit.guard.position, commit.entries, commit)
        return done

    def _tell(self, run_id: str, place: int, stored: Sequence[bytes], commit: Commit) -> None:
        entries = [decode_entry(data, run_id, place + index) for index, data in enumerate(stored)]
        self._on_entries(run_id, place, [filled(entry, commit.bodies) for entry in entries])


def watched(storage: Storage, on_entries: OnEntries) -> tuple[Storage, WatchedStore]:
    """The same storage, with a listener to what is recorded of runs; closing it closes `storage`."""
    store = WatchedStore(storage.store, on_entries)
    return Storage(state=storage.state, store=cast("Store", store), beneath=storage), store


@contextmanager
def logged(tell: Callable[[str], None]) -> Iterator[None]:
    """Hear warnings and errors of the library for the length of a block; `tell` is called on the event loop.

    What an event says as well is left to the event.
    """
    logger = logging.getLogger("harborage")
    handler = _Handler(asyncio.get_running_loop(), tell)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Handler(logging.Handler):
    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._loop = loop
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if is_announced(record):
            return  # its event is shown
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]}"
        with suppress(RuntimeError):  # the loop is closed, so nobody looks any more
            self._loop.call_soon_threadsafe(self._tell, text)
