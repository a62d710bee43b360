"""What a tool step costs, alone at several lengths of a run and among a thousand runs at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from benchmarks.agents import WHO, runtime
from benchmarks.bare import bare_run
from benchmarks.measure import Row, in_turn
from harborage import Runtime

__all__ = ["concurrent_runs", "step_overhead"]

_STEPS = (10, 50, 200, 1000)
_TOTAL = 2000
_IDLE = 200
_RUNS = 1000
_EACH = 5


async def step_overhead() -> list[Row]:
    """CPU per tool step in runs of 10 to 1,000 steps: flat, and a small multiple of the bare loop.

    What a run costs before its first step and after its last is measured by runs without any, shown in a row of its own
    and left out of the others, for ours as for the bare loop.
    """
    async with runtime() as rt:
        idle = _Cost(*[seconds / _IDLE for seconds in await in_turn(_ours(rt, 0, _IDLE), _bare(0, _IDLE))])
        rows = [Row(name="run without a step", unit="µs CPU", ours=idle.ours * 1e6, bare=idle.bare * 1e6)]
        for steps in _STEPS:
            runs = _TOTAL // steps
            mine, theirs = await in_turn(_ours(rt, steps, runs), _bare(steps, runs))
            net = _Cost(mine - idle.ours * runs, theirs - idle.bare * runs)
            rows.append(_row(f"step, run of {steps:,}", net.ours, net.bare, steps * runs, limit=8.0))
    return rows


class _Cost(NamedTuple):
    ours: float
    bare: float


def _ours(rt: Runtime, steps: int, runs: int) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        for _ in range(runs):
            await (await rt.start(str(steps), who=WHO)).result()

    return work


def _bare(steps: int, runs: int) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        for _ in range(runs):
            await bare_run(steps)

    return work


async def concurrent_runs() -> list[Row]:
    """CPU per step of 1,000 runs of 5 steps at once, beside the same runs one after the other."""
    async with runtime() as rt:

        async def together() -> None:
            runs = [await rt.start(str(_EACH), who=WHO) for _ in range(_RUNS)]
            for run in runs:
                await run.result()

        async def bare() -> None:
            await asyncio.gather(*(bare_run(_EACH) for _ in range(_RUNS)))

        mine, theirs = await in_turn(together, bare, rounds=3)
        many, alone = await in_turn(together, _ours(rt, _EACH, _RUNS), rounds=3)
    steps = _RUNS * _EACH
    return [
        _row("step, 1,000 runs of 5 at once", mine, theirs, steps),
        Row(
            name="step, 1,000 runs at once : one by one",
            unit="µs CPU",
            ours=many / steps * 1e6,
            bare=alone / steps * 1e6,
            limit=1.0,
            note="beside the same runs one after the other",
        ),
    ]


def _row(name: str, ours: float, bare: float, steps: int, limit: float | None = None) -> Row:
    return Row(name=name, unit="µs CPU", ours=ours / steps * 1e6, bare=bare / steps * 1e6, limit=limit)
