"""What a kept run costs a user: with 200 in flight whose tools take their time, and for an approval.

Everything is on as a program gets it by default. The tools really suspend, for 5 to 50 ms, so runs share their commits
as far as their calls happen to end together.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from statistics import median
from typing import Any, Final

from benchmarks.measure import Row
from harborage import CallTool, Finish, FinishReason, Identity, RunContext, Runtime, SideEffect, tool
from harborage.events import DurableEventBus
from harborage.planner import Decision
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.pauses import Coordinator
from harborage.runtime.run import Run
from harborage.state import Storage, open_storage
from harborage.store import Commit, PauseQuery, PauseStatus
from harborage.tools import ToolDescriptor

_FLIGHT: Final = 200
_STEPS: Final = 5
_ALONE: Final = 50
_WAITING: Final = 300
_ANSWERED: Final = 20
_ROUNDS: Final = 3
_GOAL: Final = "1"
_TEXTS: Final = len(_GOAL) + len("pay") + len("{}")  # a run's own words: its goal, its call and the arguments
_names = count()


async def kept_runs() -> list[Row]:
    """Runs kept in SQLite: without steps, with steps of tools that take 5 to 50 ms, and with an approval."""
    with tempfile.TemporaryDirectory(prefix="harborage-") as folder:
        async with await open_storage(f"sqlite:{folder}/flight.db") as storage:
            rows = await _in_flight(storage)
        async with await open_storage(f"sqlite:{folder}/approvals.db") as storage:
            rows += await _approvals(storage)
        rows += await _commits(f"sqlite:{folder}/commits.db")
        rows.append(await _new_process(f"sqlite:{folder}/new.db"))
    return rows


class _Planner:
    """Calls its tool as often as the goal says; a call of `work` takes 5 to 50 ms, differently each time."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._number = count()

    async def next(self, run: RunContext) -> Decision:
        assert run.trajectory is not None
        if len(run.trajectory.steps) >= int(run.goal):
            return Finish(FinishReason.GOAL)
        args = b'{"ms":%d}' % (5 + next(self._number) * 17 % 46) if self._tool == "work" else b"{}"
        return CallTool(self._tool, args)


def _tools() -> list[ToolDescriptor]:
    @tool(effects=SideEffect.WRITE)
    async def work(ms: int) -> int:
        """Wait so long for something that must not be done twice."""
        await asyncio.sleep(ms / 1000)
        return ms

    @tool(effects=SideEffect.WRITE)
    async def pay() -> str:
        """Do something that a person has to allow."""
        await asyncio.sleep(0)
        return "paid"

    return [work, pay]


def _who() -> Identity:
    return Identity("bench", "bench", f"session-{next(_names):06}")


async def _finished(rt: Runtime, steps: int) -> None:
    await (await rt.start(str(steps), who=_who())).finished()


# ── In flight ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def _in_flight(storage: Storage) -> list[Row]:
    async with Runtime(planner=_Planner("work"), tools=_tools(), storage=storage) as rt:
        alone = await _cpu(partial(_in_turn, rt))
        idle = await _cpu(partial(_together, rt, 0))
        busy = await _cpu(partial(_together, rt, _STEPS))
    step = (busy - idle) / (_FLIGHT * _STEPS)
    together = f"{_FLIGHT} at once"
    note = "tools of 5 to 50 ms"
    return [
        Row(name="kept run without steps, alone", unit="ms CPU", ours=alone / _ALONE * 1e3, most=2.0),
        Row(name=f"kept run without steps, {together}", unit="ms CPU", ours=idle / _FLIGHT * 1e3, most=0.5),
        Row(name=f"kept step, {together}", unit="ms CPU", ours=step * 1e3, most=0.25, note=note),
    ]


async def _in_turn(rt: Runtime) -> None:
    for _ in range(_ALONE):
        await _finished(rt, 0)


async def _together(rt: Runtime, steps: int) -> None:
    await asyncio.gather(*(_finished(rt, steps) for _ in range(_FLIGHT)))


async def _cpu(work: Callable[[], Awaitable[object]]) -> float:
    """The seconds of CPU that it takes, once it has been done before."""
    await work()
    spent: list[float] = []
    for _ in range(_ROUNDS):
        gc.collect()
        begin = time.process_time()
        await work()
        spent.append(time.process_time() - begin)
    return median(spent)


# ── Approvals ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _gated(storage: Storage) -> Runtime:
    return Runtime(planner=_Planner("pay"), tools=_tools(), approvals={"pay": AlwaysDeny()}, storage=storage)


async def _approvals(storage: Storage) -> list[Row]:
    """What it takes to bring runs to their approval, to keep them there, and to answer some of them."""
    async with _gated(storage) as rt:
        await _wait_for_pauses(storage, [await rt.start(_GOAL, who=_who())])  # what is made once is no cost of a run
        size, begin = await _size(storage), time.process_time()
        runs = [await rt.start(_GOAL, who=_who()) for _ in range(_WAITING)]
        tokens = await _wait_for_pauses(storage, runs)
        brought = (time.process_time() - begin) / _WAITING
        room = (await _size(storage) - size) / _WAITING
        answered: list[float] = []
        for run in runs[:_ANSWERED]:
            begin = time.process_time()
            await run.approve(tokens[run.id])
            answered.append(time.process_time() - begin)
            await run.finished()
    note = f"beside its texts, {_TEXTS} bytes"
    among = f"among {_WAITING} that wait"
    return [
        Row(name="kept run brought to its approval", unit="ms CPU", ours=brought * 1e3, most=1.5),
        Row(name=f"approve a kept run {among}", unit="ms CPU", ours=median(answered) * 1e3, most=2.0),
        Row(name="kept run that waits, on disk", unit="bytes", ours=room - _TEXTS, most=2048, note=note),
    ]


async def _wait_for_pauses(storage: Storage, runs: Sequence[Run]) -> dict[str, str]:
    """The token of each run's pause, once all are open."""
    wanted = {run.id for run in runs}
    query = PauseQuery(tenant="bench", statuses=(PauseStatus.OPEN,), limit=10_000)
    while True:
        found = {row.run_id: row.token for row in (await storage.store.pauses(query)).rows if row.run_id in wanted}
        if len(found) == len(wanted):
            return found
        await asyncio.sleep(0.02)


async def _size(storage: Storage) -> int:
    database: Any = storage.beneath
    pages: int = await database.read(lambda tx: tx.connection.pragma("page_count"))
    return pages * 4096


# ── Commits of an approval ──────────────────────────────────────────────────────────────────────────────────────────


class _Counted:
    """A store that counts its commits, and the claims that brought a run."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.commits = 0

    async def commit(self, commit: Commit) -> Any:
        self.commits += 1
        return await self._store.commit(commit)

    async def claim(self, worker: str, **options: Any) -> Any:
        claimed = await self._store.claim(worker, **options)
        self.commits += bool(claimed)
        return claimed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def _commits(url: str) -> list[Row]:
    """The commits of a run with an approval, beyond those of the same run without one."""
    plain = await _counted(url, None)
    here = await _counted(url, _approve_here)
    elsewhere = await _counted(url, _approve_elsewhere)
    name = "commits of an approval, answered"
    return [
        Row(name=f"{name} where the run is carried", unit="", ours=here - plain, most=2),
        Row(name=f"{name} where it is not", unit="", ours=elsewhere - plain, most=3),
    ]


async def _counted(url: str, approve: Callable[[str, Storage, Run, str], Awaitable[int]] | None) -> int:
    async with await open_storage(url) as storage:
        counted = _Counted(storage.store)
        storage.store = counted  # type: ignore[assignment]
        rt = Runtime(planner=_Planner("pay"), tools=_tools(), storage=storage) if approve is None else _gated(storage)
        async with rt:
            await _finished(rt, 0)  # from now on this worker executes what is started here
            counted.commits = others = 0
            run = await rt.start(_GOAL, who=_who())
            if approve is not None:
                token = (await _wait_for_pauses(storage, [run]))[run.id]
                others = await approve(url, storage, run, token)
            await run.finished()
        return counted.commits + others


async def _approve_here(url: str, storage: Storage, run: Run, token: str) -> int:
    await run.approve(token)
    return 0


async def _approve_elsewhere(url: str, storage: Storage, run: Run, token: str) -> int:
    """Answer by another connection, which executes no runs; the commits that it makes."""
    async with await open_storage(url) as other:
        counted = _Counted(other.store)
        store: Any = counted
        bus = DurableEventBus(store)
        pauses = Coordinator(bus=bus, store=store)
        engine = StoredEngine(store, pauses)
        try:
            await Run(run.who, engine, bus, pauses).approve(token)
        finally:
            await engine.aclose()
            await bus.aclose()
        return counted.commits


# ── A new process ───────────────────────────────────────────────────────────────────────────────────────────────────


async def _new_process(url: str) -> Row:
    """From the start of a process until the tool of a run is called that was approved while no process had it."""
    spent: list[float] = []
    for _ in range(_ROUNDS + 1):
        async with await open_storage(url) as storage:
            async with _gated(storage) as rt:
                run = await rt.start(_GOAL, who=_who())
                token = (await _wait_for_pauses(storage, [run]))[run.id]
            await _approve_elsewhere(url, storage, run, token)
        begin = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.kept", url, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        await process.stdout.readline()
        spent.append(time.perf_counter() - begin)
        await process.communicate()
    ours = median(spent[1:]) * 1e3
    note = "the interpreter's start and all imports in it"
    return Row(name="new process until the approved tool is called", unit="ms", ours=ours, most=100.0, note=note)


async def _carry_on(url: str) -> None:
    """Execute what is ready at `url` until a call of `pay` has been announced and its run has ended."""
    paid = asyncio.Event()

    @tool(effects=SideEffect.WRITE)
    async def pay() -> str:
        """Say that it is called."""
        print("called", flush=True)
        paid.set()
        return "paid"

    approvals = {"pay": AlwaysDeny()}
    async with (
        await open_storage(url) as storage,
        Runtime(planner=_Planner("pay"), tools=[pay], approvals=approvals, storage=storage),
    ):
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                await paid.wait()
                await asyncio.sleep(0.2)  # its end


if __name__ == "__main__":
    asyncio.run(_carry_on(sys.argv[1]))
