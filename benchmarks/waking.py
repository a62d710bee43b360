"""What it takes to carry a long run on, and what runs that wait cost the process that will carry them on."""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import time
import tracemalloc
from datetime import timedelta
from itertools import count
from statistics import median

from benchmarks.agents import add_tool
from benchmarks.measure import Row
from harborage import CallTool, Identity, PauseReason, RequestPause, RunContext, Runtime
from harborage.planner import Decision
from harborage.runtime.effects.options import RuntimeOptions
from harborage.state import Storage, open_storage
from harborage.store import LIVE, Commit, Move, RunQuery, RunRow, Status

_WHO = Identity("bench", "bench", "waking")
_STEPS = 1000
_TURNS = 5
_PARKED = 2_000
_MOST = 10_000
_AT_ONCE = 50
_ALL = RunQuery(tenant="bench", statuses=LIVE, limit=_MOST)
_names = count()
_CALL = CallTool("add", b'{"a":1,"b":2}')


class _Stopping:
    """Calls `add` for 1,000 steps; then it thinks for ever, and `stuck` says since when."""

    def __init__(self) -> None:
        self.stuck: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def next(self, run: RunContext) -> Decision:
        assert run.trajectory is not None
        if len(run.trajectory.steps) < _STEPS:
            return _CALL
        self.stuck.set_result(time.perf_counter())
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


async def resume(name: str, storage: Storage) -> Row:
    """From a runtime's opening until the planner of a run of 1,000 steps is asked for the next one.

    The bare side reads the same record and decodes it with the standard library.
    """
    options = RuntimeOptions(max_steps=10_000)
    run_id = ""
    spent: list[float] = []
    for _ in range(_TURNS + 1):
        planner = _Stopping()
        begin = time.perf_counter()
        async with Runtime(planner=planner, tools=[add_tool()], storage=storage, options=options) as rt:
            if not run_id:
                run_id = (await rt.start("g", who=_WHO)).id
            spent.append(await planner.stuck - begin)
    bare: list[float] = []
    for _ in range(_TURNS):
        begin = time.perf_counter()
        for entry in await storage.store.entries(run_id):
            json.loads(entry)
        bare.append(time.perf_counter() - begin)
    end = Move(run_id=run_id, expected=LIVE, status=Status.CANCELLED)
    await storage.store.commit(Commit(moves=(end,)))
    await storage.store.delete([run_id])
    ours = median(spent[1:]) * 1e3
    return Row(name=f"{name}: carry on at step {_STEPS:,}", unit="ms", ours=ours, bare=median(bare) * 1e3, most=200.0)


class _Waiting:
    """Waits for an answer at once."""

    async def next(self, _: RunContext) -> Decision:
        return RequestPause(PauseReason.AWAIT_INPUT)


async def parked_runs() -> list[Row]:
    """Memory beyond what the runtime held before there were runs, once 2,000 that it started wait for an answer."""
    with tempfile.TemporaryDirectory(prefix="harborage-") as folder:
        async with await open_storage(f"sqlite:{folder}/harborage.db") as storage:
            options = RuntimeOptions(linger=timedelta(0))
            async with Runtime(planner=_Waiting(), storage=storage, options=options) as rt:
                tracemalloc.start()
                try:
                    await _park(rt, storage, _AT_ONCE)  # what is made once is no cost of a run
                    before = _held()
                    await _park(rt, storage, _PARKED)
                    await asyncio.sleep(2)  # the host looks over what waits
                    held = _held() - before
                finally:
                    tracemalloc.stop()
    note = "each with its task, its pause and its events; over what one runtime holds"
    return [Row(name=f"{_PARKED:,} runs parked", unit="KB a run", ours=held / _PARKED / 1024, most=5.0, note=note)]


def _held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def _park(rt: Runtime, storage: Storage, number: int) -> None:
    known = await _parked(storage)
    for _ in range(number // _AT_ONCE):
        sessions = [Identity(_WHO.tenant_id, _WHO.user_id, f"waking-{next(_names):06}") for _ in range(_AT_ONCE)]
        await asyncio.gather(*(rt.start("wait", who=who) for who in sessions))
    while await _in_memory(storage) or await _parked(storage) < known + number:  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(0.01)


async def _in_memory(storage: Storage) -> bool:
    return any(one.owner for one in await _live(storage))


async def _parked(storage: Storage) -> int:
    return sum(not one.owner and not one.is_woken for one in await _live(storage))


async def _live(storage: Storage) -> list[RunRow]:
    return (await storage.store.runs(_ALL)).rows
