"""The bus over a store when the store fails, dawdles, loses events or belongs to several."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from harborage.codec import UnserializableError
from harborage.errors import HarborageError, InvalidOptionError
from harborage.events import BUS_DRIVERS, BusClosedError, Cursor, Event, EventType, Filter, MemoryEventBus, RedactedMap
from harborage.events.durable_bus import DurableEventBus, make
from harborage.events.errors import BusBacklogError, BusStalledError, EventCorruptError
from harborage.events.writer import MAX_SESSIONS, RETRY_S
from harborage.identity import Quadruple
from harborage.state.errors import StoreClosedError
from harborage.store import Commit, Committed, EventQuery, EventRow, NewEvent
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock, settle
from harborage.testing.conformance.event_bench import ME, MINE, a_chunk, an_event, names
from harborage.testing.events import EventRecorder

OTHER = Quadruple("tenant", "user", "other", "run")


class RefusedError(HarborageError):
    """The store refuses because the test says so."""


class FaultyStore(MemoryStore):
    """A store that refuses sessions, and waits for the test, where the test says so; it remembers its commits."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: set[str] = set()
        self.refuses_reads = False
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.handed: list[int] = []
        self.reads = 0

    async def commit(self, commit: Commit) -> Committed:
        self.handed.append(len(commit.events))
        await self.may_write.wait()
        if commit.who is not None and commit.who.session_id in self.refuses:
            raise RefusedError("full")
        return await super().commit(commit)

    async def events(self, query: EventQuery) -> list[EventRow]:
        self.reads += 1
        if self.refuses_reads:
            raise RefusedError("unreadable")
        return await super().events(query)

    async def keep(self, *data: bytes) -> None:
        """Keep this as another process would that writes what it likes."""
        await super().commit(Commit(who=ME.identity, events=tuple(NewEvent(type="x", data=one) for one in data)))

    def lose(self, place: int) -> None:
        """Lose a stored event."""
        rows = self._tables.events[ME.identity]
        rows[:] = [row for row in rows if row.place != place]


@pytest.fixture
def store() -> FaultyStore:
    """The store under the bus."""
    return FaultyStore()


@pytest.fixture
def opening(store: FaultyStore, clock: FakeClock) -> Callable[..., DurableEventBus]:
    """Makes another bus over the same store, as a process does when it starts."""
    return lambda **options: DurableEventBus(store, clock=clock, **options)


Opening = Callable[..., DurableEventBus]


async def kept(bus: DurableEventBus) -> list[str]:
    """The names in the record."""
    return names(await bus.replay(Cursor(), MINE))


async def test_a_refused_publish_raises_and_takes_no_number(opening: Opening, store: FaultyStore) -> None:
    """The store's own error reaches the caller, no subscriber gets the event, and the next event has the number."""
    bus = opening()
    reader = bus.subscribe(MINE)
    store.refuses.add(ME.session_id)
    with pytest.raises(RefusedError):
        await bus.publish(an_event("lost"))
    store.refuses.clear()
    assert (await bus.publish(an_event("next"))).sequence == 1
    assert names(reader.drain()) == ["next"]
    await bus.aclose()


async def test_a_closed_store_fails_the_publish(opening: Opening, store: FaultyStore) -> None:
    """A store that is closed under its bus fails with that reason."""
    bus = opening()
    await store.aclose()
    with pytest.raises(StoreClosedError):
        await bus.publish(an_event())
    await bus.aclose()


async def test_a_refused_event_of_publish_nowait_is_offered_again(
    opening: Opening, store: FaultyStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, its session cannot publish more without waiting, and it comes first when the store heals."""
    bus = opening()
    reader = bus.subscribe(MINE)
    store.refuses.add(ME.session_id)
    bus.publish_nowait(an_event("first"))
    await settle()
    await clock.run_for(3 * RETRY_S)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    with pytest.raises(BusStalledError) as caught:
        bus.publish_nowait(an_event("refused"))
    assert isinstance(caught.value.__cause__, RefusedError)
    bus.publish_nowait(an_event("elsewhere", OTHER))
    store.refuses.clear()
    await clock.run_for(RETRY_S)
    bus.publish_nowait(an_event("second"))
    await settle()
    assert names(reader.drain()) == ["first", "second"]
    assert await kept(bus) == ["first", "second"]
    await bus.aclose()
    assert clock.armed == 0


async def test_a_publish_heals_its_session_at_once(opening: Opening, store: FaultyStore, clock: FakeClock) -> None:
    """It need not wait for the next retry, and comes behind what was owed."""
    bus = opening()
    store.refuses.add(ME.session_id)
    bus.publish_nowait(an_event("owed"))
    await settle()
    with pytest.raises(RefusedError):
        await bus.publish(an_event("refused"))
    store.refuses.clear()
    assert (await bus.publish(an_event("heals"))).sequence == 2
    assert await kept(bus) == ["owed", "heals"]
    bus.publish_nowait(an_event("after"))
    await bus.aclose()


async def test_one_sessions_trouble_is_not_anothers(opening: Opening, store: FaultyStore) -> None:
    """In one batch with an event that is refused, the event of the other session is stored."""
    bus = opening()
    store.refuses.add(OTHER.session_id)
    results = await asyncio.gather(
        bus.publish(an_event("mine")), bus.publish(an_event("theirs", OTHER)), return_exceptions=True
    )
    assert isinstance(results[0], Event)
    assert isinstance(results[1], RefusedError)
    assert await kept(bus) == ["mine"]
    await bus.aclose()


async def test_what_the_store_refuses_to_the_end_is_said_at_close(
    opening: Opening, store: FaultyStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing offers it once more and then lets go of it, out loud."""
    bus = opening()
    store.refuses.add(ME.session_id)
    bus.publish_nowait(an_event("lost"))
    await bus.aclose()
    assert "they are lost, by session: {'session': 1}" in caplog.text


async def test_a_replay_answers_while_the_store_refuses_writes(opening: Opening, store: FaultyStore) -> None:
    """Stored events can be read while the latest event waits for the store."""
    bus = opening()
    await bus.publish(an_event("kept"))
    store.refuses.add(ME.session_id)
    bus.publish_nowait(an_event("stuck"))
    assert await kept(bus) == ["kept"]
    store.refuses.clear()
    await bus.aclose()


async def test_many_events_are_written_at_once(opening: Opening, store: FaultyStore) -> None:
    """Events published while the store writes go into the next commit of their session."""
    bus = opening()
    store.may_write.clear()
    bus.publish_nowait(an_event("first"))
    await settle()
    for turn in range(50):
        bus.publish_nowait(an_event(str(turn), ME if turn % 2 else OTHER))
    store.may_write.set()
    await bus.aclose()
    assert sorted(store.handed) == [1, 25, 25]


async def test_a_slow_store_bounds_what_may_wait(opening: Opening, store: FaultyStore) -> None:
    """Beyond the limit `publish_nowait` is refused and `publish` is accepted."""
    bus = opening(max_backlog=10)
    store.may_write.clear()
    for turn in range(10):
        bus.publish_nowait(an_event(str(turn)))
    with pytest.raises(BusBacklogError) as caught:
        bus.publish_nowait(an_event("too much", OTHER))
    assert caught.value.limit == 10
    reader = bus.subscribe(MINE)
    bus.publish_nowait(a_chunk("told at once"))
    assert [event.type for event in reader.drain()] == [EventType.LLM_COMPLETION_CHUNK]
    waiting = asyncio.create_task(bus.publish(an_event("waits")))
    await settle()
    store.may_write.set()
    assert (await waiting).sequence == 11
    bus.publish_nowait(an_event("room again"))
    await bus.aclose()


async def test_a_cancelled_publish_stores_its_event(opening: Opening, store: FaultyStore) -> None:
    """Cancelling the wait does not take back what is on its way."""
    bus = opening()
    store.may_write.clear()
    caller = asyncio.create_task(bus.publish(an_event("told")))
    await settle()
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    store.may_write.set()
    assert await kept(bus) == ["told"]
    await bus.aclose()


async def test_publish_nowait_gives_the_event_without_its_number(opening: Opening) -> None:
    """Stamped and redacted, but the number is given when the event is stored."""
    bus = opening()
    event = bus.publish_nowait(an_event("x"))
    assert event.sequence == 0
    assert event.occurred_at is not None
    await bus.aclose()


async def test_a_payload_without_a_json_form_is_refused(opening: Opening, store: FaultyStore) -> None:
    """The publisher learns of it at once, and nothing behind it is held up."""
    bus = opening()
    with pytest.raises(UnserializableError):
        bus.publish_nowait(Event(EventType.RUNTIME_ERROR, ME, RedactedMap({"x": object()})))
    assert (await bus.publish(an_event("next"))).sequence == 1
    await bus.aclose()


async def test_a_gap_in_the_record_is_loud(opening: Opening, store: FaultyStore) -> None:
    """A missing stored event fails a replay from before it, but not one from behind it."""
    bus = opening()
    for turn in range(4):
        await bus.publish(an_event(str(turn)))
    store.lose(2)
    for after in (0, 1):
        with pytest.raises(EventCorruptError) as caught:
            await bus.replay(Cursor("", after), MINE)
        assert (caught.value.session_id, caught.value.sequence) == ("session", 2)
        assert caught.value.is_missing
        assert "missing from the store" in str(caught.value)
    assert names(await bus.replay(Cursor("", 2), MINE)) == ["2", "3"]
    await bus.aclose()


async def test_an_event_that_cannot_be_read_is_named(opening: Opening, store: FaultyStore) -> None:
    """A damaged record fails the replay and names the event; the bus goes on."""
    await store.keep(b"[]")
    bus = opening()
    with pytest.raises(EventCorruptError) as caught:
        await bus.replay(Cursor(), MINE)
    assert (caught.value.session_id, caught.value.sequence) == ("session", 1)
    assert not caught.value.is_missing
    assert (await bus.publish(an_event())).sequence == 2
    await bus.aclose()


async def test_catching_up_delivers_what_another_process_stored(opening: Opening) -> None:
    """A subscriber that replayed first misses no event between its replay and the first read of the store."""
    bus, other = opening(), opening()
    reader = bus.subscribe(MINE)
    assert await kept(bus) == []
    for turn in range(3):
        await other.publish(an_event(str(turn)))
    await bus.catch_up()
    assert names(reader.drain()) == ["0", "1", "2"]
    await bus.catch_up()
    assert reader.drain() == []
    await bus.aclose()
    await bus.catch_up()
    await other.aclose()


async def test_a_subscriber_without_a_replay_starts_now(opening: Opening) -> None:
    """Without a replay the first read starts the subscriber at the end of the stored events."""
    bus, other = opening(), opening()
    await other.publish(an_event("before"))
    reader = bus.subscribe(MINE)
    await bus.catch_up()
    await other.publish(an_event("after"))
    await bus.catch_up()
    assert names(reader.drain()) == ["after"]
    await bus.aclose()
    await other.aclose()


async def test_a_damaged_event_of_another_process_is_logged(
    opening: Opening, store: FaultyStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream goes on behind it."""
    bus = opening()
    reader = bus.subscribe(MINE)
    await kept(bus)
    await store.keep(b"broken")
    await bus.publish(an_event("mine"))
    assert [event.sequence for event in reader.drain()] == [2]
    assert "event 1 of session session cannot be read" in caplog.text
    await bus.aclose()


async def test_what_follows_at_once_is_not_read_again(opening: Opening, store: FaultyStore) -> None:
    """Events that this process stored are not read again, for subscribers of a session and for admins alike."""
    bus = opening()
    reader, admin = bus.subscribe(MINE), bus.subscribe(Filter(admin=True))
    for turn in range(10):
        await bus.publish(an_event(str(turn)))
        await bus.publish(an_event(str(turn), OTHER))
    assert store.reads == 0
    assert names(reader.drain()) == [str(turn) for turn in range(10)]
    assert names(admin.drain()) == [str(turn) for turn in range(10) for _ in range(2)]
    await bus.aclose()


async def test_who_sees_all_sessions_sees_those_of_other_processes(opening: Opening, clock: FakeClock) -> None:
    """In the order of the store, each once: events of others between two of its own are delivered between them."""
    bus, other = opening(), opening()
    admin = bus.subscribe(Filter(admin=True))
    await bus.publish(an_event("1"))
    await other.publish(an_event("2", OTHER))
    await other.publish(an_event("3"))
    await bus.publish(an_event("4", OTHER))
    await other.publish(an_event("5", OTHER))
    await clock.run_for(2)
    seen = [event for event in admin.drain() if event.store_sequence]
    assert names(seen) == list("12345")
    assert [event.store_sequence for event in seen] == [4096 * number for number in range(1, 6)]
    assert [event.sequence for event in seen] == [1, 1, 2, 2, 3]
    await bus.aclose()
    await other.aclose()


async def test_events_that_cannot_be_read_are_delivered_later(
    opening: Opening, store: FaultyStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The publisher gets its event at once; subscribers get it after the others once the store can be read."""
    bus, other = opening(), opening()
    reader = bus.subscribe(MINE)
    await bus.publish(an_event("one"))
    await other.publish(an_event("two"))
    store.refuses_reads = True
    assert (await bus.publish(an_event("three"))).sequence == 3
    assert names(reader.drain()) == ["one"]
    assert "cannot read yet what other processes stored" in caplog.text
    store.refuses_reads = False
    await clock.run_for(2)
    assert names(reader.drain()) == ["two", "three"]
    await bus.aclose()
    await other.aclose()


async def test_a_deleted_event_holds_up_no_subscriber(opening: Opening, store: FaultyStore) -> None:
    """A stored event that is deleted before its delivery is left out."""
    bus = opening()
    reader = bus.subscribe(MINE)
    await bus.publish(an_event("one"))
    await store.keep(b"{}")
    store.lose(2)
    await bus.publish(an_event("three"))
    assert [event.sequence for event in reader.drain()] == [1, 3]
    await bus.aclose()


async def test_quiet_sessions_are_forgotten_but_not_their_numbers(opening: Opening, store: FaultyStore) -> None:
    """Memory does not grow with the number of sessions; a returning one continues its numbers."""
    bus = opening()
    await bus.publish(an_event())
    for number in range(MAX_SESSIONS + 10):
        bus.publish_nowait(an_event("", Quadruple("tenant", "user", f"s{number}", "")))
        if not number % 1_000:
            await bus.replay(Cursor(), Filter("tenant", "user", f"s{number}"))
    await bus.replay(Cursor(), Filter("tenant", "user", f"s{number}"))
    await settle()
    assert len(bus._writer._queues) <= MAX_SESSIONS
    assert (await bus.publish(an_event())).sequence == 2
    await bus.aclose()


async def test_a_recorder_works_on_it(opening: Opening) -> None:
    """The test kit's recorder leaves out its own audit here too."""
    bus = opening()
    recorder = EventRecorder(bus)
    await bus.publish(an_event("x"))
    assert names(recorder.events) == ["x"]
    assert len(recorder.events) == 1
    await bus.aclose()


async def test_the_store_is_its_owners_to_close(opening: Opening, store: FaultyStore) -> None:
    """Unless the bus owns it."""
    await opening().aclose()
    assert await store.events(EventQuery()) == []
    bus = opening(owns_store=True)
    await bus.aclose()
    with pytest.raises(StoreClosedError):
        await store.entries("r")
    with pytest.raises(BusClosedError):
        await bus.publish(an_event())


async def test_it_is_opened_by_name(store: FaultyStore, caplog: pytest.LogCaptureFixture) -> None:
    """With a store it is durable; without one it warns, and events stay in memory."""
    factory: Any = BUS_DRIVERS.factory("durable")
    assert factory is make
    assert isinstance(factory(store=store), DurableEventBus)
    assert not caplog.records
    assert isinstance(factory(), MemoryEventBus)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_the_backlog_must_be_positive(store: FaultyStore) -> None:
    """A bus whose queue holds nothing could publish nothing."""
    with pytest.raises(InvalidOptionError):
        DurableEventBus(store, max_backlog=0)


def test_it_needs_a_running_loop(store: FaultyStore) -> None:
    """Without one no event could ever be stored, so none is accepted."""
    with pytest.raises(RuntimeError):
        DurableEventBus(store).publish_nowait(an_event())


async def test_what_is_put_behind_the_events_comes_behind_them(opening: Opening) -> None:
    """And before later events; with an empty queue the call comes at once."""
    bus = opening()
    order: list[str] = []
    bus.call_after_delivery(ME.identity, lambda: order.append("at once"))
    subscription = bus.subscribe(MINE)
    bus.publish_nowait(an_event("first"))
    bus.call_after_delivery(ME.identity, lambda: order.append(f"behind {len(subscription)}"))
    bus.publish_nowait(an_event("second"))
    assert order == ["at once"]
    assert await kept(bus) == ["first", "second"]
    assert order == ["at once", "behind 1"]
    assert len(subscription) == 2


async def test_what_is_put_behind_refused_events_comes_all_the_same(opening: Opening, store: FaultyStore) -> None:
    """The call does not wait for a store that refuses events."""
    bus = opening()
    store.refuses.add(ME.session_id)
    order: list[str] = []
    bus.publish_nowait(an_event("first"))
    bus.call_after_delivery(ME.identity, lambda: order.append("behind"))
    await settle()
    bus.call_after_delivery(ME.identity, lambda: order.append("at once"))
    assert order == ["behind", "at once"]
    store.refuses.clear()
    await bus.aclose()


async def test_a_bus_over_a_store_that_hangs_is_closed_in_time(
    store: FaultyStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """After the stated time it is: waiting publishers get an error, a log names the sessions with losses."""
    bus = DurableEventBus(store, clock=clock, close_within_s=3.0)
    store.may_write.clear()
    bus.publish_nowait(an_event(1))
    bus.publish_nowait(an_event(2, OTHER))
    waiting = asyncio.create_task(bus.publish(an_event(3, OTHER)))
    await settle()
    closing = asyncio.create_task(bus.aclose())
    await clock.run_for(2.9)
    assert not closing.done()
    await clock.run_for(0.2)
    assert closing.done()
    with pytest.raises(BusClosedError):
        await waiting
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert line.startswith("events: FaultyStore did not answer within 3 s; events may be lost, by session:")
    assert "'other': 2" in line


async def test_an_owned_store_that_does_not_close_holds_up_no_caller(
    store: FaultyStore, clock: FakeClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log names it, and the bus is closed."""
    monkeypatch.setattr(store, "aclose", asyncio.Event().wait)
    bus = DurableEventBus(store, clock=clock, close_within_s=3.0, owns_store=True)
    closing = asyncio.create_task(bus.aclose())
    await clock.run_for(3.1)
    assert closing.done()
    assert "events: FaultyStore did not close within 3 s" in caplog.text


@pytest.mark.parametrize("wrong", [-1.0, float("inf"), float("nan")])
async def test_the_time_to_close_is_limited(store: FaultyStore, wrong: float) -> None:
    """A bus that could wait for ever is refused."""
    with pytest.raises(InvalidOptionError, match="close_within_s"):
        DurableEventBus(store, close_within_s=wrong)


async def test_an_event_stored_before_the_first_look_at_the_store_is_delivered_after_it() -> None:
    """A run commits its events itself: the bus may find them in the store before the run passes them on."""
    store = MemoryStore()
    bus = DurableEventBus(store)
    subscription = bus.subscribe(MINE)
    prepared = [bus.prepare(an_event()) for _ in range(3)]
    done = await store.commit(Commit(who=ME.identity, events=tuple(data for _, data in prepared[:2])))
    await bus.catch_up()
    bus.deliver([event for event, _ in prepared[:2]], done)
    done = await store.commit(Commit(who=ME.identity, events=(prepared[2][1],)))
    bus.deliver([prepared[2][0]], done)
    await bus.catch_up()
    assert [event.sequence for event in subscription.drain()] == [1, 2, 3]
    await bus.aclose()


class SlowAnsweringStore(MemoryStore):
    """A store that has applied a commit with an event of the name `first` before it waits to say so."""

    def __init__(self, *, refuses: bool) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self._refuses = refuses

    async def commit(self, commit: Commit) -> Committed:
        is_first = any(b"first" in event.data for event in commit.events)
        if is_first and self._refuses:
            await self.may_answer.wait()
            raise RefusedError("full")
        done = await super().commit(commit)
        if is_first:
            await self.may_answer.wait()
        return done


@pytest.mark.parametrize("filter", [MINE, Filter(admin=True)], ids=["session", "admin"])
@pytest.mark.parametrize("refuses", [False, True])
async def test_a_subscriber_gets_what_is_being_stored_when_the_commit_of_a_run_follows_it(
    filter: Filter, refuses: bool
) -> None:
    """A session's first event may be on its way to the store when its first run commits: both come, in their order."""
    store = SlowAnsweringStore(refuses=refuses)
    bus = DurableEventBus(store)
    subscription = bus.subscribe(filter)
    stored = asyncio.create_task(bus.publish(an_event("first")))
    await settle()
    event, data = bus.prepare(an_event("second"))
    bus.deliver([event], await store.commit(Commit(who=ME.identity, events=(data,))))
    store.may_answer.set()
    await asyncio.wait([stored])
    await settle()
    assert isinstance(stored.exception(), RefusedError) is refuses
    assert [name for name in names(subscription.drain()) if name] == (["second"] if refuses else ["first", "second"])
    await bus.aclose()


async def test_a_look_at_the_store_delivers_what_waits_for_an_event_that_is_refused() -> None:
    """The end of a session is looked up while its first event is on its way, and its run's later one waits for that."""
    store = SlowAnsweringStore(refuses=True)
    bus = DurableEventBus(store)
    subscription = bus.subscribe(MINE)
    stored = asyncio.create_task(bus.publish(an_event("first")))
    await settle()
    following = asyncio.create_task(bus.follow(MINE))
    event, data = bus.prepare(an_event("second"))
    bus.deliver([event], await store.commit(Commit(who=ME.identity, events=(data,))))
    await following
    assert names(subscription.drain()) == ["second"]
    store.may_answer.set()
    await asyncio.wait([stored])
    assert isinstance(stored.exception(), RefusedError)
    await bus.aclose()
