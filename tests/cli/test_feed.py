"""The feed: facts in order, journals that are followed, and what the library logs."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from harborage.cli.feed import Fact, Feed, JournalFollower, ObservedStore, capture_logs
from harborage.cli.journal_view import RecordedEntry
from harborage.errors import HarborageError
from harborage.events import ANNOUNCED, Event, EventType, MemoryEventBus, RuntimeWarningPayload
from harborage.identity import Quadruple
from harborage.runtime.durable.journal import Begun, Done, Entry, encode_entry
from harborage.store import Change, Commit, Guard, Lease, NewRun, Status
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock, settle
from tests.kit.stored_runs import keep, row_of

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Quadruple("acme", "ada", "s1", "r1")


class Records:
    """Records of others, as a test writes them; `strangers` are runs that are none of this one's."""

    def __init__(self) -> None:
        self.unrelated = {"r9"}
        self.is_elsewhere = True
        self.news: list[RecordedEntry] | HarborageError = []

    async def poll(self) -> list[RecordedEntry]:
        if isinstance(self.news, HarborageError):
            raise self.news
        news, self.news = self.news, []
        return news

    def accept(self, run_id: str, place: int, entries: tuple[Entry, ...]) -> list[RecordedEntry]:
        return [RecordedEntry(run_id, entry) for entry in entries]


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
        await self.feed.follow(records, is_resumed=False)

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
        case RecordedEntry(entry=Begun(name=name)):
            return name
        case _:
            return str(fact)


async def test_what_is_recorded_here_stands_behind_what_was_published_before() -> None:
    """Each fact is shown once, and a reader that waits for more is woken; runs of others in the session are left
    out."""
    bench = Bench()
    await bench.follow()
    bench.say("first", 1)
    bench.say("of a stranger", 1, "r9")
    bench.feed.add_entries("r1", 0, [begun("second", 0)])
    await settle()
    bench.feed.add_log("third")
    assert bench.woken == 2
    assert bench.taken() == ["first", "second", "third"]
    assert bench.taken() == []


async def test_events_come_before_the_entries_that_one_commit_kept_with_them() -> None:
    """They are published after the commit has returned, but say what led to the entries: an interrupted call, say."""
    bench = Bench()
    await bench.follow()
    bench.feed.add_entries("r1", 0, [begun("the call again", 0)])
    bench.say("the call was interrupted", 0)
    await settle()
    assert bench.taken() == ["the call was interrupted", "the call again"]


async def test_the_events_of_others_are_shown_in_the_order_of_their_times() -> None:
    """What is younger than both readings may have an older one before it, so it waits for the next look."""
    bench = Bench()
    await bench.follow()
    bench.clock.advance(3.1)
    bench.say("b", 2)
    bench.say("d", 3)
    bench.records.news = [RecordedEntry("r1", begun("a", 1)), RecordedEntry("r1", begun("c", 2.5))]
    await bench.feed.poll()
    assert bench.taken() == ["a", "b", "c"]
    bench.feed.add_log("e")
    assert bench.taken() == []
    await bench.feed.poll(is_last=True)
    assert bench.taken() == ["d", "e"]


async def test_a_record_that_cannot_be_read_is_reported() -> None:
    """The run is watched all the same."""
    bench = Bench()
    await bench.follow()
    bench.records.is_elsewhere = False
    bench.records.news = HarborageError("the database is gone")
    bench.say("still here", 1)
    await bench.feed.poll()
    assert bench.taken() == ["the database is gone", "still here"]


def begun_entry(name: str, at_s: int = 0) -> Entry:
    """An entry of that name."""
    at = NOW + timedelta(seconds=at_s)
    return Begun(at=at, position="1", name=name, payload=msgspec.Raw(b"1"), key="k")


def spawned(child: str) -> Entry:
    """An entry that tells of a child."""
    result = msgspec.Raw(msgspec.json.encode({"task_id": child, "kind": "background"}))
    return Done(at=NOW, position="1", name="task.spawn", result=result)


def names(news: list[RecordedEntry]) -> list[str]:
    """Which run's entries of which name."""
    return [f"{one.run_id}.{getattr(one.entry, 'name', '')}" for one in news]


async def kept(store: MemoryStore, run_id: str, *entries: Entry) -> None:
    """Keep a run as another process would."""
    await keep(store, WHO.identity.with_run(run_id), [encode_entry(one) for one in entries])


async def claimed(store: MemoryStore, worker: str) -> Lease:
    """The lease of the one run that is ready, taken by this worker."""
    (claim,) = await store.claim(worker)
    return claim.row.lease


def step(lease: Lease, position: int, *entries: Entry) -> Commit:
    """What a worker writes behind so many entries."""
    guard = Guard(lease=lease, position=position)
    return Commit(guard=guard, entries=tuple(map(encode_entry, entries)))


async def test_what_others_record_is_read_once() -> None:
    """A look brings what came since the last one, of all runs of the family by time."""
    inner = MemoryStore()
    following = JournalFollower(ObservedStore(inner, lambda *_: None), "r1", WHO.identity)
    await kept(inner, "r1", begun_entry("a", 1), spawned("r2"), begun_entry("c", 3))
    await kept(inner, "r2", begun_entry("b", 2))
    assert names(await following.poll()) == ["r1.task.spawn", "r1.a", "r2.b", "r1.c"]
    assert await following.poll() == []
    assert following.record is not None
    assert [one.run_id for one in following.unfinished] == ["r1", "r2"]


async def test_shown_events_are_not_read_again() -> None:
    """Entries that this process wrote are shown by their writer, in whatever pieces they come."""
    inner = MemoryStore()
    following = JournalFollower(ObservedStore(inner, lambda *_: None), "r1", WHO.identity)
    await kept(inner, "r1", begun_entry("a"), begun_entry("b"))
    assert names(following.accept("r1", 0, [begun_entry("a")])) == ["r1.a"]
    assert names(following.accept("r1", 0, [begun_entry("a"), begun_entry("b")])) == ["r1.b"]
    assert await following.poll() == []


async def test_a_gap_is_read_at_the_next_look() -> None:
    """What stands before an entry comes before it, though this process writes the run by now."""
    inner = MemoryStore()
    received: list[str] = []
    store = ObservedStore(
        inner, lambda run, place, entries: received.extend(names(following.accept(run, place, entries)))
    )
    following = JournalFollower(store, "r1", WHO.identity)
    await kept(inner, "r1", begun_entry("a"))
    lease = await claimed(inner, "here")
    await store.commit(step(lease, 1, begun_entry("b")))
    assert received == []
    assert names(await following.poll()) == ["r1.a", "r1.b"]
    await store.commit(step(lease, 2, begun_entry("c")))
    assert received == ["r1.c"]
    assert await following.poll() == []


async def test_what_a_run_had_is_read_first_though_this_process_writes_to_it_by_now() -> None:
    """A worker of this process may be faster than the first look; what it wrote comes behind that."""
    inner = MemoryStore()
    written: list[tuple[str, int, Sequence[Entry]]] = []
    store = ObservedStore(inner, lambda run, place, entries: written.append((run, place, entries)))
    following = JournalFollower(store, "r1", WHO.identity)
    await kept(inner, "r1", begun_entry("a"), begun_entry("b"))
    lease = await claimed(inner, "here")
    await store.commit(step(lease, 2, begun_entry("c")))
    assert names(await following.poll()) == ["r1.a", "r1.b"]
    assert names(following.accept(*written[0])) == ["r1.c"]
    assert await following.poll() == []


async def test_it_knows_who_carries() -> None:
    """A run is elsewhere while another process has its lease."""
    inner = MemoryStore()
    following = JournalFollower(ObservedStore(inner, lambda *_: None), "r1", WHO.identity)
    await kept(inner, "r1", begun_entry("a"))
    lease = await claimed(inner, "elsewhere")
    await following.poll()
    assert following.is_elsewhere
    await inner.commit(Commit(guard=Guard(lease=lease, position=1), change=Change(status=Status.COMPLETE)))
    await following.poll()
    assert not following.is_elsewhere
    assert following.unfinished == []


async def test_other_runs_of_a_shared_session_are_strangers() -> None:
    """Until the record tells that the run has spawned them."""
    inner = MemoryStore()
    following = JournalFollower(ObservedStore(inner, lambda *_: None), "r1", WHO.identity, may_be_shared=True)
    await kept(inner, "r1", begun_entry("a"), spawned("r2"))
    for other in ("r2", "r3", "r4"):
        await kept(inner, other, begun_entry("b"))
    assert names(await following.poll()) == ["r1.a", "r1.task.spawn", "r2.b"]
    assert following.unrelated == {"r3", "r4"}
    assert following.accept("r4", 0, [begun_entry("b")]) == []
    following.accept("r1", 2, [spawned("r3")])
    assert following.unrelated == {"r4"}
    assert names(await following.poll()) == ["r3.b"]


def entry(name: str, payload: bytes = b"1") -> bytes:
    """An entry of that name, as it is stored."""
    return encode_entry(Begun(at=NOW, position="1", name=name, payload=msgspec.Raw(payload), key="r1/1"))


class Listener:
    """Keeps what it gets: the run, the place, and what was begun there."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, int, list[str]]] = []
        self.entries: list[Entry] = []

    def __call__(self, run_id: str, place: int, entries: Sequence[Entry]) -> None:
        self.entries += entries
        self.shown.append((run_id, place, [one.name for one in entries if isinstance(one, Begun)]))


def started(*entries: bytes, **more: Any) -> Commit:
    """The start of the run, ready for any worker."""
    return Commit(starts=(NewRun(run_id="r1", who=WHO.identity, entries=entries),), **more)


def commit_of(lease: Lease, position: int, *entries: bytes, **more: Any) -> Commit:
    """What a worker writes behind so many entries."""
    return Commit(guard=Guard(lease=lease, position=position), entries=entries, **more)


GIVEN_BACK = Change(release=True, is_ready=True)


async def test_entries_are_shown_with_their_place() -> None:
    """Once they are kept, in the order of the journal, whichever process wrote the entries before them."""
    inner, listener = MemoryStore(), Listener()
    store = ObservedStore(inner, listener)
    await store.commit(started(entry("a")))
    lease = await claimed(inner, "elsewhere")
    await inner.commit(commit_of(lease, 1, entry("b"), change=GIVEN_BACK))
    lease = await claimed(inner, "here")
    await store.commit(commit_of(lease, 2, entry("c"), entry("d")))
    last = commit_of(lease, 4, entry("e"))
    await store.commit(last)
    assert (await store.commit(last)).is_again
    assert listener.shown == [("r1", 0, ["a"]), ("r1", 2, ["c", "d"]), ("r1", 4, ["e"])]
    assert len(await store.entries("r1", after=3)) == 2


async def test_it_knows_what_is_written_here() -> None:
    """A run is written here from the first entry under a lease until another worker has it."""
    inner = MemoryStore()
    store = ObservedStore(inner, Listener())
    await store.commit(started(entry("begun")))
    lease = await claimed(inner, "here")
    assert not store.is_written_here(await row_of(inner, "r1"))
    await store.commit(commit_of(lease, 1, entry("a")))
    assert store.is_written_here(await row_of(inner, "r1"))
    await inner.commit(commit_of(lease, 2, change=GIVEN_BACK))
    await claimed(inner, "elsewhere")
    assert not store.is_written_here(await row_of(inner, "r1"))


async def test_a_large_value_is_shown_whole() -> None:
    """What is kept apart from its entry is put back in its place."""
    large = b'"' + b"x" * 9000 + b'"'
    digest = hashlib.sha256(large).hexdigest()
    inner, listener = MemoryStore(), Listener()
    store = ObservedStore(inner, listener)
    slim = entry("a", b'{"$body":"' + digest.encode() + b'"}')
    await store.commit(started(slim, bodies={digest: large}))
    (shown,) = listener.entries
    assert isinstance(shown, Begun)
    assert bytes(shown.payload) == large
    assert await store.body("r1", digest) == large
    await store.aclose()


LOG = logging.getLogger("harborage.somewhere")


async def test_warnings_are_shown_and_lesser_records_are_not() -> None:
    """A warning and an error with its cause are shown, from any thread; information is not."""
    received: list[str] = []
    with capture_logs(received.append):
        LOG.info("nothing needs you")
        await asyncio.to_thread(LOG.warning, "asked again in %.1f s", 0.5)
        try:
            raise ValueError("no such thing")
        except ValueError:
            LOG.exception("it stopped")
        await asyncio.sleep(0)
    assert received == ["asked again in 0.5 s", "it stopped: no such thing"]


async def test_what_is_an_event_as_well_is_left_to_the_event() -> None:
    """A warning that was also published is shown once, from the event."""
    received: list[str] = []
    with capture_logs(received.append):
        LOG.warning("provider unavailable", extra=ANNOUNCED)
        LOG.warning("and another one")
        await asyncio.sleep(0)
    assert received == ["and another one"]


async def test_nothing_is_received_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    """When the block has ended its listener is gone."""
    received: list[str] = []
    with capture_logs(received.append):
        pass
    LOG.warning("too late")
    await asyncio.sleep(0)
    assert received == []
    assert logging.getLogger("harborage").handlers == []
