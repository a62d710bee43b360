"""`Run.events()`: it always ends, misses nothing that the bus remembers, and says what it misses otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harborage.events import (
    BusClosedError,
    BusConfig,
    BusDroppedPayload,
    Cursor,
    Event,
    EventType,
    Filter,
    LLMCompletionChunkPayload,
    MemoryEventBus,
    TaskPausedPayload,
)
from harborage.events.durable_bus import DurableEventBus
from harborage.identity import Identity
from harborage.planner import CallTool, Finish, FinishReason, RunContext
from harborage.runtime.host import Runtime
from harborage.runtime.run import Run
from harborage.state.storage import Storage, open_storage
from harborage.store import Commit, Committed, Store
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock, settle
from harborage.tools import tool
from tests.kit.planners import DONE, StepPlanner
from tests.programs.chaos.disconnects import FamilyPlanner, disconnects, run_of, stroll

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
MINE = Filter.of(ME)
SMALL = BusConfig(subscriber_buffer_size=8)
Open = Callable[..., Awaitable[Runtime]]
STEPS = 60


class Steps:
    """Calls a tool as often as its goal says."""

    async def next(self, run: RunContext) -> Any:
        done = len(run.trajectory.steps)
        return CallTool("note", b"{}", f"c{done}") if done < int(run.goal) else Finish(FinishReason.GOAL, "ok")


@tool
async def note() -> str:
    """Note."""
    return "noted"


@pytest.fixture
async def open_runtime() -> AsyncIterator[Open]:
    """Opens runtimes over a bus; both are closed afterwards."""
    opened: list[Any] = []

    async def make(bus: Any, planner: Any = None, tools: Any = (note,)) -> Runtime:
        runtime = Runtime(planner=planner or Steps(), tools=tools, bus=bus)
        opened.extend((await runtime.__aenter__(), bus))
        return runtime

    yield make
    for one in opened:
        await one.aclose()


def buses(config: BusConfig = SMALL) -> list[Any]:
    """One of each kind."""
    return [MemoryEventBus(config=config), DurableEventBus(MemoryStore(), config=config)]


async def the_rest(stream: AsyncIterator[Event]) -> list[Event]:
    """What a stream gives until it ends, which it does."""
    async with asyncio.timeout(10):
        return [event async for event in stream]


async def kept_of(runtime: Runtime, run: Run) -> list[int]:
    """The numbers of the events that the bus keeps of a run."""
    found = await runtime.bus.replay(Cursor("s", 0), MINE)
    return [event.sequence for event in found if run_of(event) == run.id]


async def test_a_slow_reader_misses_nothing_that_the_bus_remembers(open_runtime: Open) -> None:
    """What another run of the session pushed out of its subscription is read again, and the stream ends."""
    for bus in buses():
        runtime = await open_runtime(bus)
        run = await runtime.start("3", who=ME)
        stream = run.events()
        first = await anext(stream)
        await run.finished()
        await (await runtime.start("60", who=ME)).finished()
        events = [first, *await the_rest(stream)]
        assert [event.sequence for event in events] == await kept_of(runtime, run), bus
        assert (events[0].type, events[-1].type) == ("task.spawned", "task.completed")


async def test_what_the_bus_has_forgotten_is_announced(open_runtime: Open) -> None:
    """A notice with the exact number of missing events comes first, and the stream ends."""
    runtime = await open_runtime(MemoryEventBus(config=BusConfig(subscriber_buffer_size=8, replay_buffer_size=40)))
    counted = runtime.bus.subscribe(Filter(admin=True))
    run = await runtime.start(str(STEPS), who=ME)
    stream = run.events()
    first = await anext(stream)
    place = runtime.bus.last_sequence(ME)
    await run.finished()
    notice, *left = await the_rest(stream)
    assert notice.type == EventType.BUS_DROPPED
    assert isinstance(notice.payload, BusDroppedPayload)
    numbers = [event.sequence for event in left]
    assert numbers == await kept_of(runtime, run)
    assert left[-1].type == "task.completed"
    assert notice.payload.dropped_count == numbers[0] - 1 - place
    assert first.sequence < notice.sequence < numbers[0]
    counted.cancel()


async def test_the_beginning_that_was_forgotten_before_the_reader_came_is_announced(open_runtime: Open) -> None:
    """Whether the handle began the run or found it: the stream says that it does not begin at the beginning."""
    runtime = await open_runtime(MemoryEventBus(config=BusConfig(replay_buffer_size=10)))
    run = await runtime.start(str(STEPS), who=ME)
    await run.finished()
    for handle in (run, await runtime.run(run.id, who=ME)):
        notice, *left = await the_rest(handle.events())
        assert notice.type == EventType.BUS_DROPPED
        assert [event.sequence for event in left] == await kept_of(runtime, run)


async def test_pieces_of_an_answer_that_are_lost_are_announced(open_runtime: Open) -> None:
    """They are not kept, so nothing can bring them back; what is kept still comes."""
    bus = DurableEventBus(MemoryStore(), config=SMALL)
    gate = asyncio.Event()

    @tool
    async def speak() -> str:
        """Stream a lot."""
        for turn in range(20):
            payload = LLMCompletionChunkPayload(identity=run.who, delta=str(turn), occurred_at=datetime.now(UTC))
            bus.publish_nowait(Event(EventType.LLM_COMPLETION_CHUNK, run.who, payload))
        gate.set()
        return "spoken"

    class Speaker(Steps):
        async def next(self, run: RunContext) -> Any:
            decision = await super().next(run)
            return CallTool("speak", b"{}") if isinstance(decision, CallTool) else decision

    runtime = await open_runtime(bus, Speaker(), (speak,))
    run = await runtime.start("1", who=ME)
    stream = run.events()
    first = await anext(stream)
    await gate.wait()
    await run.finished()
    events = [first, *await the_rest(stream)]
    pieces = [event for event in events if event.type == EventType.LLM_COMPLETION_CHUNK]
    lost = sum(event.payload.dropped_count for event in events if isinstance(event.payload, BusDroppedPayload))
    assert lost > 0
    assert len(pieces) + lost == 20
    numbers = [event.sequence for event in events if event.sequence and event.type != EventType.BUS_DROPPED]
    assert numbers == await kept_of(runtime, run)


async def test_a_reader_that_the_bus_let_go_comes_back_by_itself(open_runtime: Open) -> None:
    """One that reads nothing for a minute goes on where it was, and ends with the run."""
    clock, gate = FakeClock(), asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        await gate.wait()
        return "held"

    bus = MemoryEventBus(clock=clock)
    runtime = await open_runtime(bus, StepPlanner(CallTool("note"), CallTool("hold"), DONE), (note, hold))
    run = await runtime.start("g", who=ME)
    stream = run.events()
    first = await anext(stream)
    await settle()
    bus.publish_nowait(Event(EventType.TASK_PAUSED, run.who, TaskPausedPayload(run.id)))
    clock.advance(300)
    assert EventType.BUS_SUBSCRIPTION_IDLE_CLOSED in {event.type for event in await bus.replay(Cursor(), MINE)}
    gate.set()
    events = [first, *await the_rest(stream)]
    assert [event.sequence for event in events] == await kept_of(runtime, run)


class Forgetful(MemoryEventBus):
    """Loses the events that say how a task ended, like a process that is killed before it publishes them."""

    async def publish(self, event: Event) -> Event:
        return event if event.type == EventType.TASK_COMPLETED else await super().publish(event)


async def test_the_stream_ends_without_an_event_of_the_runs_end(open_runtime: Open) -> None:
    """A reader who was there before the end, and one who comes after it, come to the end of their stream."""
    runtime = await open_runtime(Forgetful())
    run = await runtime.start("3", who=ME)
    early = asyncio.create_task(the_rest(run.events()))
    await settle()
    await run.finished()
    numbers = await kept_of(runtime, run)
    assert [event.sequence for event in await early] == numbers
    assert [event.sequence for event in await the_rest(run.events())] == numbers


async def test_the_stream_ends_with_the_bus_and_with_the_runtime(open_runtime: Open) -> None:
    """Closing either while a run goes on leaves no reader behind."""
    for closes_bus in (True, False):

        @tool
        async def hold() -> str:
            """Wait."""
            await asyncio.Event().wait()
            return "held"

        class Holder(Steps):
            async def next(self, run: RunContext) -> Any:
                return CallTool("hold")

        runtime = await open_runtime(MemoryEventBus(), Holder(), (hold,))
        run = await runtime.start("g", who=ME)
        reader = asyncio.create_task(the_rest(run.events()))
        await settle()
        await (runtime.bus.aclose() if closes_bus else runtime.aclose())
        assert (await reader)[0].type == "task.spawned"
        if closes_bus:
            with pytest.raises(BusClosedError):
                await runtime.aclose()


async def test_a_reader_begins_where_the_run_began(open_runtime: Open) -> None:
    """What the session had published before the run started is not read again for each of its readers."""

    class Noting(MemoryEventBus):
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[int] = []

        async def replay(self, cursor: Cursor, filter: Filter) -> list[Event]:
            self.asked.append(cursor.sequence)
            return await super().replay(cursor, filter)

    bus = Noting()
    runtime = await open_runtime(bus)
    await (await runtime.start("20", who=ME)).finished()
    place = bus.last_sequence(ME)
    run = await runtime.start("1", who=ME)
    await run.finished()
    bus.asked.clear()
    assert (await the_rest(run.events()))[0].type == "task.spawned"
    assert bus.asked == [place]


async def test_a_reader_goes_on_behind_what_it_has_seen(open_runtime: Open) -> None:
    """With `after` the stream holds what is newer, children included, and ends as before."""
    for bus in buses(BusConfig()):
        runtime = await open_runtime(bus, FamilyPlanner(), (tool(stroll),))
        run = await runtime.start("1", who=ME)
        await run.finished()
        whole = [event.sequence for event in await the_rest(run.events())]
        for after in (whole[0], whole[len(whole) // 2], whole[-1], whole[-1] + 5):
            rest = [event.sequence for event in await the_rest(run.events(after=after))]
            assert rest == [number for number in whole if number > after]


@pytest.mark.parametrize("storage", ["memory", "forgetful memory", "sqlite"])
async def test_readers_that_come_and_go_see_what_was_kept(storage: str, tmp_path: Path) -> None:
    """Over three levels of children the joined pieces are the log, with one end; what was forgotten is announced."""
    replay = 120 if storage.startswith("forgetful") else 10_000
    count, parts = (20 if storage == "sqlite" else 60), dict[str, Any]()
    if storage == "sqlite":
        parts["storage"] = f"sqlite:{tmp_path / 'runs.db'}"
    else:
        parts["bus"] = MemoryEventBus(config=BusConfig(subscriber_buffer_size=6, replay_buffer_size=replay))
    async with Runtime(planner=FamilyPlanner(), tools=[tool(stroll)], **parts) as runtime:
        published = await disconnects(runtime, count, who=ME, seed=7)
    assert published.broken == []
    assert published.connections >= count
    assert (published.gaps > 0) == (storage == "forgetful memory")


class Listing:
    """Notes, of each commit that ends a run, the events in it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.ends: list[tuple[str, ...]] = []

    async def commit(self, commit: Commit) -> Committed:
        if commit.change is not None and commit.change.status is not None and commit.change.status.is_final:
            self.ends.append(tuple(event.type for event in commit.events))
        return await self.store.commit(commit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


async def test_the_event_that_ends_a_run_is_in_the_change_that_ends_it() -> None:
    """A process that is killed around it leaves no run whose end is never published, and publishes no end of one that
    goes on."""
    async with await open_storage("memory:") as storage:
        listing = Listing(storage.store)
        odd = Storage(state=storage.state, store=listing)
        async with Runtime(planner=Steps(), tools=[note], storage=odd) as runtime:
            run = await runtime.start("1", who=ME)
            await run.finished()
            assert (await the_rest(run.events()))[-1].type == "task.completed"
    assert [types[-1] for types in listing.ends] == ["task.completed"]
