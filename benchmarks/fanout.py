"""Side by side: fifty tools of ten milliseconds in one decision, and one event to many readers."""

from __future__ import annotations

import asyncio
import time

from benchmarks.agents import WHO
from benchmarks.measure import Row, in_turn
from harborage import CallParallel, CallTool, Event, EventType, Filter, Finish, FinishReason, RunContext, Runtime, tool
from harborage.events import MemoryEventBus, ToolCompletedPayload
from harborage.planner import Decision

_WIDTH = 50
_TOOL_S = 0.010
_EVENTS = 2000


@tool
async def nap() -> str:
    """Take ten milliseconds."""
    await asyncio.sleep(_TOOL_S)
    return "rested"


class _FanOut:
    """Calls fifty naps at once, then finishes."""

    async def next(self, run: RunContext) -> Decision:
        assert run.trajectory is not None
        await asyncio.sleep(0)
        if run.trajectory.steps:
            return Finish(FinishReason.GOAL)
        return CallParallel(tuple(CallTool("nap") for _ in range(_WIDTH)))


async def tool_fan_out() -> list[Row]:
    """Wall time of a run that calls fifty 10 ms tools at once, beside fifty such sleeps in one gather."""

    async def ideal() -> None:
        await asyncio.gather(*(asyncio.sleep(_TOOL_S) for _ in range(_WIDTH)))

    async with Runtime(planner=_FanOut(), tools=[nap]) as rt:

        async def fan_out() -> None:
            await (await rt.start("rest", who=WHO)).finished()

        mine, theirs = await in_turn(fan_out, ideal, rounds=25, clock=time.perf_counter)
    return [Row(name="50-way fan-out of 10 ms tools", unit="ms wall", ours=mine * 1e3, bare=theirs * 1e3, limit=1.25)]


async def event_fan_out() -> list[Row]:
    """CPU per event that 1, 16 and 256 readers of one session get, beside a bare queue for each."""
    rows: list[Row] = []
    for readers in (1, 16, 256):
        mine, theirs = await in_turn(_bus_round(readers), _queue_round(readers), rounds=5)
        rows.append(
            Row(
                name=f"event to {readers} readers",
                unit="µs CPU",
                ours=mine / _EVENTS * 1e6,
                bare=theirs / _EVENTS * 1e6,
            )
        )
    return rows


def _bus_round(readers: int):  # type: ignore[no-untyped-def]
    who = WHO.with_run("run")
    payload = ToolCompletedPayload(identity=who, tool_name="add", transport="inprocess", attempts=1, duration_ms=1)

    async def publish() -> None:
        bus = MemoryEventBus()
        # Admin readers are not limited in number, and like any other reader each has a queue of its own.
        subscriptions = [bus.subscribe(Filter(admin=True)) for _ in range(readers)]
        for _ in range(_EVENTS // 100):
            for _ in range(100):
                bus.publish_nowait(Event(EventType.TOOL_COMPLETED, who, payload))
            for subscription in subscriptions:
                subscription.drain()
        await bus.aclose()

    return publish


def _queue_round(readers: int):  # type: ignore[no-untyped-def]
    who = WHO.with_run("run")
    payload = ToolCompletedPayload(identity=who, tool_name="add", transport="inprocess", attempts=1, duration_ms=1)

    async def publish() -> None:
        queues: list[asyncio.Queue[Event]] = [asyncio.Queue(256) for _ in range(readers)]
        for _ in range(_EVENTS // 100):
            for _ in range(100):
                event = Event(EventType.TOOL_COMPLETED, who, payload)
                for queue in queues:
                    queue.put_nowait(event)
            for queue in queues:
                while not queue.empty():
                    queue.get_nowait()

    return publish
