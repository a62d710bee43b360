"""What a step costs: in runs of several lengths, one after the other, and in a thousand runs in flight at once.

Both sides pay for their start and end. A run over a model has its prompt, declarations, the client's layers, events,
recording and budget as every user has them; only the provider is a stub.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from benchmarks.agents import WHO, gated, model_runtime, runtime
from benchmarks.bare import bare_run
from benchmarks.gate import Gate
from benchmarks.measure import Row, in_turn
from harborage import Runtime

_STEPS = (10, 50, 200, 1000)
_PROMISED_AT = 50
_TOTAL = 2000
_IDLE = 200
_RUNS = 1000
_EACH = 5
_MOST_US = 150.0
_MOST_KB = 20.0


class _Subject(NamedTuple):
    """What is measured, and how many times the bare loop its step of a run of 50 may cost."""

    name: str
    make: Callable[[], Runtime]
    limit: float
    growth: float


_SUBJECTS = (
    _Subject("own planner", runtime, 5.0, 1.15),
    _Subject("Runtime(model=…)", model_runtime, 20.0, 1.15),
)


async def step_overhead() -> list[Row]:
    """CPU per tool step in runs of 10 to 1,000 steps: a small multiple of the bare loop, and flat."""
    rows: list[Row] = []
    for subject in _SUBJECTS:
        async with subject.make() as rt:
            idle = [seconds / _IDLE * 1e6 for seconds in await in_turn(_ours(rt, 0, _IDLE), _bare(0, _IDLE))]
            rows.append(Row(name=f"{subject.name}: run without a step", unit="µs CPU", ours=idle[0], bare=idle[1]))
            for steps in _STEPS:
                runs = _TOTAL // steps
                mine, theirs = await in_turn(_ours(rt, steps, runs), _bare(steps, runs))
                limit = subject.limit if steps == _PROMISED_AT else None
                rows.append(_row(f"{subject.name}: step, run of {steps:,}", mine, theirs, _TOTAL, limit=limit))
            rows.append(await _growth(rt, subject))
    return rows


async def _growth(rt: Runtime, subject: _Subject) -> Row:
    """A step of the longest run beside one of a run of 50, measured in turn."""
    lengths = (_STEPS[-1], _PROMISED_AT)
    long, short = await in_turn(*(_ours(rt, steps, _TOTAL // steps) for steps in lengths))
    name = f"{subject.name}: step, run of {lengths[0]:,} beside {lengths[1]}"
    return _row(name, long, short, _TOTAL, limit=subject.growth)


def _ours(rt: Runtime, steps: int, runs: int) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        for _ in range(runs):
            await (await rt.start(str(steps), who=WHO)).finished()

    return work


def _bare(steps: int, runs: int) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        for _ in range(runs):
            await bare_run(steps)

    return work


async def in_flight() -> list[Row]:
    """CPU per step and memory per run of 1,000 runs of 5 steps, all of them started before any takes its first step."""
    rows: list[Row] = []
    for subject in _SUBJECTS:
        async with subject.make() as rt:
            mine, theirs = await in_turn(_ours_in_flight(rt), _bare_in_flight, rounds=3)
            rows.append(_row(f"{subject.name}: step, 1,000 runs in flight", mine, theirs, _RUNS * _EACH, most=_MOST_US))
            held, bare = await _held(_ours_in_flight(rt)), await _held(_bare_in_flight)
            name = f"{subject.name}: memory of a run in flight"
            note = "after four of its five steps"
            rows.append(Row(name=name, unit="KB", ours=held, bare=bare, most=_MOST_KB, note=note))
    return rows


def _ours_in_flight(rt: Runtime) -> Callable[[], Awaitable[float]]:
    async def work() -> float:
        gate = Gate(_RUNS, (0, _EACH - 1))
        with gated(gate):
            runs = [await rt.start(str(_EACH), who=WHO) for _ in range(_RUNS)]
            held = await _through(gate)
            for run in runs:
                await run.finished()
        return held

    return work


async def _bare_in_flight() -> float:
    gate = Gate(_RUNS, (0, _EACH - 1))
    tasks = [asyncio.create_task(bare_run(_EACH, gate=gate)) for _ in range(_RUNS)]
    held = await _through(gate)
    await asyncio.gather(*tasks)
    return held


async def _through(gate: Gate) -> float:
    """Let all runs through the gates together; returns what they held in front of the second, in bytes, if traced."""
    await gate.all_here(0)
    gate.open(0)
    await gate.all_here(_EACH - 1)
    held, _ = tracemalloc.get_traced_memory()
    gate.open(_EACH - 1)
    return float(held)


async def _held(work: Callable[[], Awaitable[float]]) -> float:
    """The kilobytes that each run in flight holds."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        return (await work() - before) / _RUNS / 1024
    finally:
        tracemalloc.stop()


def _row(
    name: str, ours: float, bare: float, steps: int, *, limit: float | None = None, most: float | None = None
) -> Row:
    return Row(name=name, unit="µs CPU", ours=ours / steps * 1e6, bare=bare / steps * 1e6, limit=limit, most=most)
