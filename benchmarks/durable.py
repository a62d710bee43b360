"""What a step of a kept run costs in time, CPU and bytes, beside bare inserts in the same run on the same disk."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count, pairwise
from pathlib import Path
from statistics import correlation, median, quantiles
from typing import Any, NamedTuple

from benchmarks.inserts import BareInserts, bare_postgres, bare_sqlite, commit_times
from benchmarks.measure import Row
from benchmarks.waking import parked_runs, resume
from harborage import CallTool, Finish, FinishReason, Identity, Quadruple, RunContext, Runtime, SideEffect, tool
from harborage.planner import Decision
from harborage.runtime.effects.options import RuntimeOptions
from harborage.state import Storage, open_storage
from harborage.store import EventQuery, RunQuery
from harborage.tools import ToolDescriptor
from tests.kit.postgres import PostgresServer, PostgresUnavailableError

_CALL = CallTool("act", b'{"a":1,"b":2}')
_DONE = Finish(FinishReason.GOAL)
_ROW = b"." * 250  # about what an entry, or an event, takes
_SIZES = (10, 100, 1000)
_LONE = 200
_ROUNDS = 3
_RUNS = 50
_EACH = 40
_PAGE = 4096
_names = count()


class _Place(NamedTuple):
    name: str
    storage: Storage
    bare: BareInserts


async def durable_steps() -> list[Row]:
    """Steps of a lone run and of 50 runs at once, on SQLite and, where one can be started, on Postgres; then what it
    takes to carry a long run on, and to keep 2,000 that wait."""
    rows: list[Row] = []
    async with _sqlite() as place:
        rows += await _measured(place)
    rows += await parked_runs()
    try:
        async with _postgres() as place:
            rows += await _measured(place)
    except PostgresUnavailableError as error:
        rows.append(Row(name="on Postgres: not measured", unit="", ours=0, note=str(error)))
    return rows


async def _measured(place: _Place) -> list[Row]:
    planner = StepPlanner()
    options = RuntimeOptions(max_steps=10_000)
    async with Runtime(planner=planner, tools=[_act()], storage=place.storage, options=options) as rt:
        rows = [*await _lone(place, rt, planner), *await _bytes(place, rt), *await _crowd(place, rt)]
    return [*rows, await resume(place.name, place.storage)]


class StepPlanner:
    """Calls `act` as often as the goal says; `asked` is when it was."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def next(self, run: RunContext) -> Decision:
        self.asked.append(time.perf_counter())
        assert run.trajectory is not None
        return _CALL if len(run.trajectory.steps) < int(run.goal) else _DONE


def _act() -> ToolDescriptor:
    @tool(effects=SideEffect.WRITE)
    async def act(a: int, b: int) -> int:
        """Do something that must not be done twice."""
        return a + b

    return act


def _who() -> Identity:
    return Identity("bench", "bench", f"session-{next(_names):06}")


async def _run(rt: Runtime, steps: int, who: Identity) -> Quadruple:
    run = await rt.start(str(steps), who=who)
    await run.finished()
    return who.with_run(run.id)


async def _lone(place: _Place, rt: Runtime, planner: StepPlanner) -> list[Row]:
    """A step of a run that is alone: it waits for the disk, so the time counts. Its two commits are its floor."""
    steps: list[float] = []
    commits: list[float] = []
    for _ in range(_ROUNDS):
        planner.asked.clear()
        await _run(rt, _LONE, _who())
        steps += [after - before for before, after in pairwise(planner.asked)]
        commits += await commit_times(place.bare, _LONE)
    name = f"{place.name}: step of a lone run"
    note = "plan, intent and outcome on disk; beside two committed inserts"
    middle = Row(
        name=f"{name}, p50",
        unit="ms",
        ours=median(steps) * 1e3,
        bare=median(commits) * 2e3,
        limit=1.5,
        most=2.0,
        note=note,
    )
    slow = Row(name=f"{name}, p99", unit="ms", ours=_p99(steps) * 1e3, bare=_p99(commits) * 2e3, note=note)
    return [middle, slow]


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100)[98]


async def _bytes(place: _Place, rt: Runtime) -> list[Row]:
    """What the steps of a run take: as many bytes a step however long the run is."""
    found = {steps: await _taken(place, await _run(rt, steps, _who())) for steps in (0, *_SIZES)}
    each = {steps: (found[steps].bytes - found[0].bytes) / steps for steps in _SIZES}
    rows = [
        Row(name=f"{place.name}: recorded a step, run of {steps:,}", unit="bytes", ours=each[steps], bare=each[10])
        for steps in _SIZES
    ]
    fit = correlation([float(steps) for steps in found], [float(one.bytes) for one in found.values()]) ** 2
    rows.append(
        Row(name=f"{place.name}: bytes by steps, R²", unit="", ours=fit, least=0.99, note="1 is a straight line")
    )
    if (begin := await _pages(place.storage)) is not None:
        await _run(rt, _SIZES[-1], _who())
        grown = (await _pages(place.storage) or 0) - begin
        name = f"{place.name}: on disk a step, run of {_SIZES[-1]:,}"
        rows.append(Row(name=name, unit="bytes", ours=grown * _PAGE / _SIZES[-1], bare=each[_SIZES[-1]]))
    return rows


class _Taken(NamedTuple):
    rows: int
    bytes: int


async def _taken(place: _Place, who: Quadruple) -> _Taken:
    """What a run, alone in its session, has left behind: its entries and its events."""
    entries = [len(entry) for entry in await place.storage.store.entries(who.run_id)]
    found = await place.storage.store.events(_events_of(who.identity))
    events = [len(event.data) for event in found]
    return _Taken(len(entries) + len(events), sum(entries) + sum(events))


async def _pages(storage: Storage) -> int | None:
    """The pages of the database; None where it is not in a file of ours."""
    database: Any = storage.beneath
    if not hasattr(database, "path"):
        return None
    pages: int = await database.read(lambda tx: tx.connection.pragma("page_count"))
    return pages


async def _crowd(place: _Place, rt: Runtime) -> list[Row]:
    """Rows of 50 runs at once, which share their flushes: the CPU counts, since the disk is shared.

    What is bare is a group commit with nothing around it: as many tasks as there are runs, each of which waits until
    its row is on disk, in a commit that they share. Another row goes the rest of the way down: rows of a transaction
    that nobody waits for, as many to a commit as on our side, where that can be told. What a run costs before its first
    step and after its last is measured by runs without any, and shown in a row of its own.
    """
    commits = await _Commits.of(place.storage)
    idle: list[float] = []
    busy: list[float] = []
    bare: list[float] = []
    shared: list[float] = []
    taken = rows = 0
    for _ in range(_ROUNDS):
        idle.append(await _at_once(rt, 0))
        before = commits.made
        whos = [_who() for _ in range(_RUNS)]
        busy.append(await _at_once(rt, _EACH, whos))
        made = commits.made - before
        rows = sum([await _rows(place, who) for who in whos])
        taken = max(1, rows // made) if made else _RUNS
        begin = time.process_time()
        for _ in range(rows // taken):
            await place.bare.commit(taken)
        bare.append((time.process_time() - begin) / (rows // taken * taken))
        begin = time.process_time()
        await asyncio.gather(*(_insert(place.bare, rows // _RUNS) for _ in range(_RUNS)))
        shared.append((time.process_time() - begin) / (rows // _RUNS * _RUNS))
    steps = _RUNS * _EACH
    net = (median(busy) - median(idle)) / (steps * 6)
    together, alone = median(shared) * 1e6, median(bare) * 1e6
    name = f"{place.name}: row kept, {_RUNS} at once"
    return [
        Row(name=name, unit="µs CPU", ours=net * 1e6, bare=together, limit=10.0, note="bare: 50 tasks, shared commits"),
        Row(name=f"{name}, start and end in", unit="µs CPU", ours=median(busy) / rows * 1e6, bare=together),
        Row(
            name=f"{name}, by rows nobody waits for",
            unit="µs CPU",
            ours=net * 1e6,
            bare=alone,
            note=f"{taken} rows a commit",
        ),
        Row(name=f"{place.name}: step, {_RUNS} at once", unit="µs CPU", ours=net * 6e6),
        Row(name=f"{place.name}: run without a step", unit="µs CPU", ours=median(idle) / _RUNS * 1e6),
    ]


async def _insert(bare: BareInserts, rows: int) -> None:
    for _ in range(rows):
        await bare.shared()


async def _at_once(rt: Runtime, steps: int, whos: list[Identity] | None = None) -> float:
    """The CPU that 50 runs take together."""
    begin = time.process_time()
    await asyncio.gather(*(_run(rt, steps, who) for who in whos or [_who() for _ in range(_RUNS)]))
    return time.process_time() - begin


async def _rows(place: _Place, who: Identity) -> int:
    query = RunQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id)
    (row,) = (await place.storage.store.runs(query)).rows
    return row.position + len(await place.storage.store.events(_events_of(who)))


def _events_of(who: Identity) -> EventQuery:
    return EventQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, limit=1_000_000)


class _Commits:
    """Counts what is committed, where SQLite can be asked to."""

    def __init__(self) -> None:
        self.made = 0

    def count(self) -> bool:
        """What SQLite calls with each commit; False lets it be."""
        self.made += 1
        return False

    @classmethod
    async def of(cls, storage: Storage) -> _Commits:
        """A counter of the commits from here on."""
        commits = cls()
        database: Any = storage.beneath
        if hasattr(database, "path"):
            await database.write(lambda tx: tx.connection.set_commit_hook(commits.count))
        return commits


@asynccontextmanager
async def _sqlite() -> AsyncIterator[_Place]:
    with tempfile.TemporaryDirectory(prefix="harborage-") as folder:
        bare = await bare_sqlite(Path(folder) / "bare.db", _ROW)
        async with await open_storage(f"sqlite:{folder}/harborage.db") as storage:
            yield _Place("SQLite", storage, bare)
        await bare.aclose()


@asynccontextmanager
async def _postgres() -> AsyncIterator[_Place]:
    with PostgresServer() as server:
        bare = await bare_postgres(server.url, _ROW)
        async with await open_storage(server.url) as storage:
            yield _Place("Postgres", storage, bare)
        await bare.aclose()
