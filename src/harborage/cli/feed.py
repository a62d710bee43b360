"""What happens to a run and its tasks, in the order of its making: events, what is recorded here and elsewhere, logs.

Facts wait here until they are shown. While the record of other processes is read, what comes meanwhile is held back, so
that all of it can be put in order. Nothing here knows a terminal.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from harborage.cli.records import Recorded
from harborage.errors import HarborageError
from harborage.events import DurableEventBus, Event, EventBus, Filter, Subscription, typed_event
from harborage.runtime.journal import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harborage.cli.following import Following
    from harborage.clock import Clock
    from harborage.identity import Identity

__all__ = ["Fact", "Feed"]

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
