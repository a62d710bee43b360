"""Steering: how soon a control is applied, and what a run costs that waits."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from statistics import median

from benchmarks.agents import WHO
from benchmarks.measure import Row
from harborage import EventType, Finish, FinishReason, PauseReason, RequestPause, RunContext, Runtime
from harborage.planner import Decision

_CONTROLS = 200
_PARKED = 1000


class _Waiter:
    async def next(self, run: RunContext) -> Decision:
        if run.control.cancelled:
            return Finish(FinishReason.CANCELLED)
        return RequestPause(PauseReason.AWAIT_INPUT)


async def control_latency() -> list[Row]:
    """Wall time from handing over a message to a parked run until it is applied, beside waking a bare task."""
    async with Runtime(planner=_Waiter()) as rt:
        run = await rt.start("wait", who=WHO)
        events = run.events()
        ours: list[float] = []
        await _until(events, EventType.PAUSE_REQUESTED)
        for _ in range(_CONTROLS):
            begin = time.perf_counter()
            await run.message("hello")
            await _until(events, EventType.CONTROL_APPLIED)
            ours.append(time.perf_counter() - begin)
        await run.cancel(hard=True)
        await run.finished()
        await events.aclose()  # type: ignore[attr-defined]
    return [
        Row(
            name="control enqueued → applied, as its sender sees it",
            unit="µs wall",
            ours=median(ours) * 1e6,
            bare=await _bare_latency() * 1e6,
            note="the bare task is woken by a queue and answers by another",
        )
    ]


async def parked_memory() -> list[Row]:
    """Bytes that a parked run holds, beside a bare task that waits for a future."""
    async with Runtime(planner=_Waiter()) as rt:
        warm = await rt.start("wait", who=WHO)
        await _parked(rt, 1)
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        runs = [await rt.start("wait", who=WHO) for _ in range(_PARKED)]
        await _parked(rt, _PARKED + 1)
        ours = (tracemalloc.get_traced_memory()[0] - before) / _PARKED
        tracemalloc.stop()
        for run in (warm, *runs):
            await run.cancel(hard=True)
    return [
        Row(
            name="memory per parked run",
            unit="bytes",
            ours=ours,
            bare=await _bare_memory(),
            note="journal, task, events and pause record included",
        )
    ]


async def _until(events, type: EventType) -> None:  # type: ignore[no-untyped-def]
    async for event in events:
        if event.type == type:
            return


async def _parked(rt: Runtime, count: int) -> None:
    """Return once so many runs wait; readers of the bus would count as memory, so the coordinator is asked."""
    while (await rt.pauses.list(who=WHO, page_size=1)).total < count:  # noqa: ASYNC110 - see above
        await asyncio.sleep(0)


async def _bare_latency() -> float:
    asked: asyncio.Queue[str] = asyncio.Queue()
    answered: asyncio.Queue[str] = asyncio.Queue()

    async def serve() -> None:
        while True:
            answered.put_nowait(await asked.get())

    task = asyncio.create_task(serve())
    spent: list[float] = []
    for _ in range(_CONTROLS):
        begin = time.perf_counter()
        asked.put_nowait("hello")
        await answered.get()
        spent.append(time.perf_counter() - begin)
    task.cancel()
    await asyncio.wait([task])
    return median(spent)


async def _bare_memory() -> float:
    loop = asyncio.get_running_loop()

    async def wait() -> None:
        await loop.create_future()

    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tasks = [asyncio.create_task(wait()) for _ in range(_PARKED)]
    await asyncio.sleep(0)
    held = (tracemalloc.get_traced_memory()[0] - before) / _PARKED
    tracemalloc.stop()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return held
