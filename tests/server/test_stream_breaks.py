"""Streams that break, fall behind, end or wait: the joined stream is the log, and no number comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK
from harborage.events import BusConfig, DurableEventBus, Event, EventType, MemoryEventBus, TaskResumedPayload
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from harborage.state.errors import DatabaseError
from harborage.store import EventQuery, EventRow
from harborage.store.memory import MemoryStore
from harborage.store.sqlite import SQLiteStore
from harborage.testing.clock import FakeClock, settle
from tests.kit.postgres_fixtures import opened_or_skipped
from tests.kit.sse import Frame, open_page
from tests.kit.stream_breaks import FAMILY, disconnects, family_of
from tests.kit.streaming import STEP, delta, numbers, paused, publish, spawned, streaming
from tests.kit.wire import ADA, BEN, HeaderGate, Wire, caller_headers
from tests.programs.chaos.databases import Databases, open_at
from tests.programs.chaos.disconnects import stroll

pytestmark = pytest.mark.anyio

MINE = EventQuery(tenant=ADA.tenant_id, user=ADA.user_id, session=ADA.session_id, limit=100_000)
ENDS = {"task.completed", "task.failed", "task.cancelled"}


@pytest.fixture(params=["memory", "sqlite"])
async def bus(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DurableEventBus]:
    """A bus over a store of record, whose subscriptions hold little."""
    store = MemoryStore() if request.param == "memory" else await SQLiteStore.open(tmp_path / "runs.db")
    bus = DurableEventBus(store, config=BusConfig(subscriber_buffer_size=4))
    yield bus
    await bus.aclose()
    await store.aclose()


# ── Breaks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_joined_stream_is_the_log(bus: DurableEventBus, seed: int) -> None:
    """Over two hundred random breaks in runs with three levels of children, whose neighbours publish as well."""
    async with streaming(bus, planner=FAMILY) as wire:
        assert await disconnects(wire, bus.store, seed, 100) > 500
        assert len(wire.app.streams) == 0
        assert not bus._subscribers.by_session


async def test_the_joined_stream_is_the_log_on_postgres(tmp_path: Path) -> None:
    """The same over a real server."""
    with opened_or_skipped(Databases("postgres")) as databases:
        async with databases.fresh("breaks", tmp_path) as at, await open_at(at, SYSTEM_CLOCK) as storage:
            bus = DurableEventBus(storage.store, config=BusConfig(subscriber_buffer_size=4))
            async with streaming(bus, planner=FAMILY) as wire:
                assert await disconnects(wire, storage.store, 3, 20) > 100
            await bus.aclose()


async def test_a_break_right_after_the_first_frame_of_a_resume_loses_nothing(bus: DurableEventBus) -> None:
    """Its next id is the one that it came with, not the newest."""
    async with streaming(bus) as wire:
        await publish(bus, *(paused() for _ in range(5)))
        async with open_page(wire, last_id=2 * STEP) as page:
            assert page.first.id == 2 * STEP
        async with open_page(wire, last_id=page.last_id) as page:
            assert numbers(await page.events(3)) == [3 * STEP, 4 * STEP, 5 * STEP]


async def test_children_are_known_from_before_and_from_during(bus: DurableEventBus) -> None:
    """Of the run alone, also on a resume whose cursor is behind their start."""
    async with streaming(bus) as wire:
        await publish(bus, spawned("r"), spawned("x"))
        async with open_page(wire, "?run=r&children=1") as page:
            await publish(
                bus, spawned("a", "r"), spawned("b", "a"), spawned("y", "x"), paused("x"), paused("b"), delta(run="a"),
                delta(run="y"), paused("y"), paused("a"),
            )  # fmt: skip
            assert [frame.data["run"] for frame in await page.events(5)] == ["a", "b", "b", "a", "a"]
        async with open_page(wire, "?run=r&children=1&type=task.paused", last_id=0) as page:
            assert [frame.data["run"] for frame in await page.events(2)] == ["b", "a"]
            assert await page.is_silent()


async def test_descendants_before_the_cursor_are_read_from_the_store(tmp_path: Path) -> None:
    """Their start is in no event that the stream reads."""
    async with Runtime(**FAMILY, storage=f"sqlite:{tmp_path / 'x.db'}") as runtime:
        wire = Wire(Server(runtime, gate=HeaderGate()))
        run = await runtime.start("2", who=ADA)
        await run.finished()
        rows = await runtime.parts.store.events(MINE)
        family = sorted(family_of(rows, run.id))
        async with open_page(wire, f"?run={run.id}&children=1") as page:
            await publish(runtime.bus, *(paused(one) for one in (*family, "stranger")))
            assert [frame.data["run"] for frame in await page.events(len(family))] == family
            assert await page.is_silent()


# ── Slow readers ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_slow_reader_gets_every_event_and_all_text(bus: DurableEventBus) -> None:
    """From the log, with the deltas between, joined; there is no notice, and little waits in memory."""
    async with streaming(bus) as wire, open_page(wire) as page:
        said = ""
        for index in range(3_000):
            bus.publish_nowait(paused(str(index)))
            if index % 10 == 0:
                bus.publish_nowait(delta(f"{index} "))
                said += f"{index} "
            if index % 100 == 0:
                await stroll(3)
        (stream,) = wire.app.streams._open
        got, text = [], ""
        while len(got) < 3_000:
            frame = await page.event()
            assert frame.event != "bus.dropped"
            if frame.event == "task.paused":
                got.append(frame.data["run"])
            else:
                text += frame.payload["Delta"]
            assert len(stream._queue) <= 2_000
        assert got == [str(index) for index in range(3_000)]
        assert text == said
        assert page.ids == sorted(set(page.ids))


async def test_a_bus_in_memory_says_what_it_has_forgotten() -> None:
    """One notice with the numbers that the connection does not get, at their place, without an id."""
    bus = MemoryEventBus(config=BusConfig(replay_buffer_size=100))
    async with streaming(bus) as wire, open_page(wire) as page:
        for index in range(4_000):
            bus.publish_nowait(paused(str(index)))
            await asyncio.sleep(0)
        got = await page.until("task.paused", TaskID="3999")
        notices = [frame for frame in got if frame.event == "bus.dropped"]
        assert notices
        covered = {number for one in notices for number in _covered(one)}
        sent = {frame.sequence for frame in got if frame.event != "bus.dropped"}
        assert sent | covered == {number * STEP for number in range(1, 4_001)}
        assert not sent & covered
        order = [frame.sequence for frame in got]
        assert order == sorted(set(order))
        assert all(one.id is None and one.sequence == one.payload["ToSeq"] for one in notices)
    await bus.aclose()


def _covered(notice: Frame) -> range:
    payload = notice.payload
    found = range(payload["FromSeq"], payload["ToSeq"] + 1, STEP)
    assert payload["DroppedCount"] == len(found)
    return found


# ── Without a store ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_bus_in_memory_replays_what_it_retains() -> None:
    """With numbers of the same kind; a cursor that is too old is answered with a comment, and the newest number."""
    bus = MemoryEventBus(config=BusConfig(replay_buffer_size=4))
    async with streaming(bus) as wire:
        async with open_page(wire) as page:
            await publish(bus, paused(), delta(), paused(), paused())
            assert numbers(await page.events(4)) == [STEP, STEP + 1, 3 * STEP, 4 * STEP]
        async with open_page(wire, last_id=STEP + 1) as page:
            assert numbers(await page.events(2)) == [3 * STEP, 4 * STEP]
        await publish(bus, *(paused() for _ in range(4)))
        async with open_page(wire, last_id=STEP) as page:
            assert page.first.id == 8 * STEP
            gap = await page.frame()
            assert gap == Frame(comment="stream.replay_unavailable reconnect cursor older than the retained window")
            await publish(bus, paused())
            assert numbers([await page.event()]) == [9 * STEP]
        async with open_page(wire, last_id=0) as page:
            assert numbers(await page.events(4)) == [number * STEP for number in (6, 7, 8, 9)]
    await bus.aclose()


async def test_a_bus_that_keeps_nothing_says_so() -> None:
    """Only to those who ask for a replay; the stream goes on live."""
    bus = MemoryEventBus(config=BusConfig(replay_buffer_size=0))
    async with streaming(bus) as wire:
        async with open_page(wire, last_id=0) as page:
            gap = await page.frame()
            assert gap == Frame(comment="stream.replay_unavailable replay not configured on this driver")
            await publish(bus, paused())
            assert numbers([await page.event()]) == [STEP]
        async with open_page(wire) as page:
            assert await page.is_silent()
    await bus.aclose()


# ── Ends, and waits ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_streams_end_with_a_whole_frame_when_the_server_stops(bus: DurableEventBus) -> None:
    """At once; one that is opened later gets its first frame, so that its client comes again."""
    async with streaming(bus) as wire:
        async with open_page(wire) as page, open_page(wire, who=BEN) as other:
            await publish(bus, *(paused() for _ in range(20)))
            await page.event()
            wire.app.drain()
            while await page.frame() is not None:
                pass
            assert await other.frame() is None
        async with open_page(wire, last_id=STEP) as page:
            assert page.first == Frame(retry=3000, id=STEP)
            assert await page.frame() is None
        assert len(wire.app.streams) == 0


@pytest.mark.parametrize(("keepalive", "every"), [(15, 15), (2, 2), (0, 15), (-1, 15), (0.0001, 0.001)])
async def test_a_silent_stream_is_kept_alive(keepalive: float, every: float) -> None:
    """With a comment, every fifteen seconds unless it is configured."""
    bus, clock = DurableEventBus(MemoryStore()), FakeClock()
    async with streaming(bus, clock=clock, keepalive=keepalive) as wire, open_page(wire) as page:
        for _ in range(3):
            await settle()
            clock.advance(every * 0.9)
            assert await page.is_silent()
            clock.advance(every * 0.11)
            assert await page.frame() == Frame(comment="keepalive")
    await bus.aclose()


async def test_a_slot_is_free_before_the_next_frame(bus: DurableEventBus) -> None:
    """The peer's end is noticed while the stream waits, and while it cannot send."""
    async with streaming(bus) as wire:
        async with wire.open("GET", "/v1/events", caller_headers(ADA)):
            for _ in range(5):
                await publish(bus, *(paused() for _ in range(100)))
        assert not bus._subscribers.by_session


async def test_events_of_other_processes_come_too(tmp_path: Path) -> None:
    """Those that were stored before the stream opened are not live events of it."""
    clock = FakeClock()
    stores = [await SQLiteStore.open(tmp_path / "runs.db") for _ in range(2)]
    mine, theirs = (DurableEventBus(store, clock=clock) for store in stores)
    async with streaming(mine) as wire:
        await publish(theirs, paused("old"))
        async with open_page(wire) as page, open_page(wire, "?admin=1", who=BEN, scopes=("admin",)) as admin:
            assert page.first.id == STEP
            await publish(theirs, paused("a"))
            await publish(mine, paused("b"))
            clock.advance(1)
            assert [frame.data["run"] for frame in await page.events(2)] == ["a", "b"]
            assert [frame.data["run"] for frame in await admin.events(2)] == ["a", "b"]
    for one in (mine, theirs, *stores):
        await one.aclose()


class FailingStore(MemoryStore):
    """A store whose events cannot be read while `is_away`."""

    is_away = False

    async def events(self, query: EventQuery) -> list[EventRow]:
        if self.is_away:
            raise DatabaseError("away")
        return await super().events(query)


async def test_a_store_that_is_away_for_a_while_delays_a_stream(caplog: pytest.LogCaptureFixture) -> None:
    """Its headers and a first frame come at once, the replay follows when the store answers again."""
    store, clock = FailingStore(), FakeClock()
    bus = DurableEventBus(store)
    async with streaming(bus, clock=clock) as wire:
        await publish(bus, paused("a"), paused("b"))
        store.is_away = True
        async with open_page(wire, last_id=STEP) as page, open_page(wire) as fresh:
            assert page.first == Frame(retry=3000, id=STEP)
            assert fresh.first == Frame(retry=3000)
            store.is_away = False
            clock.advance(1)
            assert (await page.event()).data["run"] == "b"
            assert await fresh.frame() == Frame(id=2 * STEP)
            await publish(bus, paused("c"))
            assert (await fresh.event()).data["run"] == "c"
    await bus.aclose()


async def test_a_damaged_event_is_told(bus: DurableEventBus) -> None:
    """By a notice at its place; the others come."""
    async with streaming(bus) as wire:
        await publish(bus, paused("a"), paused("b"), paused("c"))
        store = bus.store
        if isinstance(store, MemoryStore):
            log = store._tables.events[ADA]
            log[1] = replace(log[1], data=b"no")
        else:
            pytest.skip("told of a store in memory")
        async with open_page(wire, last_id=0) as page:
            first, notice, last = await page.events(3)
            assert (first.id, notice.id, last.id) == (STEP, None, 3 * STEP)
            assert {name: notice.payload[name] for name in ("FromSeq", "ToSeq", "DroppedCount")} == {
                "FromSeq": 2 * STEP, "ToSeq": 2 * STEP, "DroppedCount": 1,
            }  # fmt: skip


async def test_an_event_that_cannot_be_encoded_is_skipped(
    bus: DurableEventBus, caplog: pytest.LogCaptureFixture
) -> None:
    """And logged; the next ones come."""
    who = ADA.with_run("r")
    async with streaming(bus) as wire, open_page(wire) as page:
        (stream,) = wire.app.streams._open
        broken: Any = TaskResumedPayload(object())  # type: ignore[arg-type]
        stream._take(Event(EventType.TASK_RESUMED, who, broken, FakeClock().now()))
        await publish(bus, paused())
        assert (await page.event()).event == "task.paused"
    assert "task.resumed cannot be sent" in caplog.text
