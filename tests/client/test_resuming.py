"""A stream over a real server whose connections are cut at random: what arrives is the log, once and in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from harborage.client.events import EventStream, StreamOptions
from harborage.events import (
    Cursor,
    Event,
    EventType,
    Filter,
    LLMCompletionChunkPayload,
    TaskPausedPayload,
    TaskSpawnedPayload,
    ToolInvokedPayload,
    typed_event,
)
from harborage.runtime.host import Runtime
from harborage.store import EVENT_STEP
from harborage.testing.clock import FakeClock
from tests.kit.served import client_of, served
from tests.kit.sockets import WITHIN_S, CuttingProxy
from tests.kit.wire import ADA, BEN

LAST = "last"
CUTS = 200


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    """A runtime over a database."""
    async with Runtime(model="mock:echo", storage=f"sqlite:{tmp_path / 'runs.db'}") as opened:
        yield opened


async def publish(runtime: Runtime, count: int) -> None:
    """Publish events of three levels of runs, pieces of text between them, and events of another user."""
    at = FakeClock().now()
    for number in range(count):
        run = f"run-{number % 3}"
        who = ADA.with_run(run)
        if number < 2:
            spawned = TaskSpawnedPayload(f"run-{number + 1}", "background", f"run-{number}")
            await runtime.bus.publish(Event(EventType.TASK_SPAWNED, who, spawned))
        piece = LLMCompletionChunkPayload(identity=who, task_id=run, run_id=run, delta=f"{number} ", occurred_at=at)
        await runtime.bus.publish(Event(EventType.LLM_COMPLETION_CHUNK, who, piece))
        await runtime.bus.publish(Event(EventType.TOOL_INVOKED, who, ToolInvokedPayload(who, "look", "in-proc", at)))
        await runtime.bus.publish(Event(EventType.TASK_PAUSED, BEN.with_run("ben"), TaskPausedPayload("ben")))
        await asyncio.sleep(0)
    await runtime.bus.publish(Event(EventType.TASK_PAUSED, ADA.with_run("run-0"), TaskPausedPayload(LAST)))


async def logged(runtime: Runtime) -> list[tuple[int, str, object]]:
    """The stored events of the session."""
    found = await runtime.bus.replay(Cursor(ADA.session_id, 0), Filter.of(ADA))
    return [(event.store_sequence, str(event.type), typed_event(event).payload) for event in found]


async def read(stream: EventStream) -> list[Event]:
    """What a stream yields up to the last event."""
    found: list[Event] = []
    async with asyncio.timeout(WITHIN_S * 2), aclosing(stream.read()) as events:
        async for event in events:
            found.append(event)
            if isinstance(event.payload, TaskPausedPayload) and event.payload.task_id == LAST:
                return found
    return found


async def test_what_arrives_over_cut_connections_is_the_log(runtime: Runtime) -> None:
    """Hundreds of cuts, some before the first event, lose no stored event and repeat none; numbers only grow."""
    dice = random.Random(7)
    async with served(runtime) as url:
        proxy = CuttingProxy(url)
        proxy.cut_after = lambda: dice.choice([0, 40, 300, 400, 900, 2_000, 5_000])
        async with proxy.open() as through, client_of(through) as remote:
            stream = EventStream(remote.connection, ADA, StreamOptions(after=0))
            async with asyncio.TaskGroup() as group:
                group.create_task(publish(runtime, CUTS))
                reading = group.create_task(read(stream))
    found = reading.result()
    numbers = [event.sequence for event in found]
    assert numbers == sorted(set(numbers))
    stored = [event for event in found if event.sequence % EVENT_STEP == 0]
    assert [(event.store_sequence, event.type, event.payload) for event in stored] == await logged(runtime)
    assert stream.reconnects > 20


async def test_a_reader_that_stops_for_a_while_gets_the_rest_from_the_log(runtime: Runtime) -> None:
    """Nothing is read while nobody asks, and nothing is lost by that."""
    async with served(runtime) as url, client_of(url) as remote:
        stream = EventStream(remote.connection, ADA, StreamOptions(after=0))
        async with aclosing(stream.read()) as events:
            await runtime.bus.publish(
                Event(EventType.TASK_SPAWNED, ADA.with_run("run-0"), TaskSpawnedPayload("a", "foreground"))
            )
            found = [await anext(events)]
            await publish(runtime, 300)
            async for event in events:
                found.append(event)
                if isinstance(event.payload, TaskPausedPayload):
                    break
    stored = [event for event in found if event.sequence % EVENT_STEP == 0]
    assert [(event.store_sequence, event.type, event.payload) for event in stored] == await logged(runtime)


async def test_a_stream_of_one_run_has_those_below_it_when_they_are_wanted(runtime: Runtime) -> None:
    """Narrowed to a run, the stream has its events and, where that is said, those of the runs that it started."""
    await publish(runtime, 9)
    async with served(runtime) as url, client_of(url) as remote:
        alone = await read(EventStream(remote.connection, ADA, StreamOptions(run="run-0", after=0)))
        tree = await read(EventStream(remote.connection, ADA, StreamOptions(run="run-0", children=True, after=0)))
    assert {event.identity.run_id for event in alone} == {"run-0"}
    assert {event.identity.run_id for event in tree} == {"run-0", "run-1", "run-2"}
