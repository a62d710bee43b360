"""What happens to a run, put in order before it is shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from harborage.cli.feed import Fact, Feed
from harborage.cli.records import Recorded
from harborage.errors import HarborageError
from harborage.events import Event, EventType, MemoryEventBus
from harborage.events.payloads import RuntimeWarningPayload
from harborage.identity import Quadruple
from harborage.runtime.journal import Begun, Entry
from harborage.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Quadruple("acme", "ada", "s1", "r1")


class Records:
    """Records of others, as a test writes them; `strangers` are runs that are none of this one's."""

    def __init__(self) -> None:
        self.strangers = {"r9"}
        self.is_elsewhere = True
        self.news: list[Recorded] | HarborageError = []

    async def look(self) -> list[Recorded]:
        if isinstance(self.news, HarborageError):
            raise self.news
        news, self.news = self.news, []
        return news

    def heard(self, run_id: str, place: int, entries: tuple[Entry, ...]) -> list[Recorded]:
        return [Recorded(run_id, entry) for entry in entries]


class Bench:
    """A feed over a bus in memory, whose clock stands where a test sets it."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOW)
        self.bus = MemoryEventBus()
        self.woken = 0
        self.records = Records()
        self.feed = Feed(WHO.identity, self._wake, self.clock)
        self.feed.subscribe(self.bus)

    async def follow(self) -> None:
        records: Any = self.records
        await self.feed.follow(records, is_old=False)

    def _wake(self) -> None:
        self.woken += 1

    def say(self, text: str, at_s: float, run_id: str = "r1") -> None:
        """Publish an event."""
        at = NOW + timedelta(seconds=at_s)
        who = WHO.identity.with_run(run_id)
        self.bus.publish_nowait(Event(EventType.RUNTIME_WARNING, who, RuntimeWarningPayload(message=text), at))

    def taken(self) -> list[str]:
        """What there is to be shown, in words."""
        return [_words(fact) for fact in self.feed.take()]


def begun(name: str, at_s: float) -> Entry:
    """An entry of that name."""
    at = NOW + timedelta(seconds=at_s)
    return Begun(at=at, position="1", name=name, payload=msgspec.Raw(b"1"), key="k")


def _words(fact: Fact) -> str:
    match fact:
        case Event(payload=payload):
            body: Any = payload
            return str(body.data["message"])
        case Recorded(entry=Begun(name=name)):
            return name
        case _:
            return str(fact)


async def test_what_is_recorded_here_stands_behind_what_was_published_before() -> None:
    """Each fact is told once, and whoever waits for more is woken; runs of others in the session are left out."""
    bench = Bench()
    await bench.follow()
    bench.say("first", 1)
    bench.say("of a stranger", 1, "r9")
    bench.feed.recorded("r1", 0, [begun("second", 0)])
    bench.feed.logged("third")
    assert bench.woken == 2
    assert bench.taken() == ["first", "second", "third"]
    assert bench.taken() == []


async def test_what_others_did_is_told_in_the_order_of_its_time() -> None:
    """What is younger than both readings may have an older one before it, so it waits for the next look."""
    bench = Bench()
    await bench.follow()
    bench.clock.advance(3.1)
    bench.say("b", 2)
    bench.say("d", 3)
    bench.records.news = [Recorded("r1", begun("a", 1)), Recorded("r1", begun("c", 2.5))]
    await bench.feed.look()
    assert bench.taken() == ["a", "b", "c"]
    bench.feed.logged("e")
    assert bench.taken() == []
    await bench.feed.look(is_last=True)
    assert bench.taken() == ["d", "e"]


async def test_a_record_that_cannot_be_read_is_told() -> None:
    """The run is watched all the same."""
    bench = Bench()
    await bench.follow()
    bench.records.is_elsewhere = False
    bench.records.news = HarborageError("the database is gone")
    bench.say("still here", 1)
    await bench.feed.look()
    assert bench.taken() == ["the database is gone", "still here"]
