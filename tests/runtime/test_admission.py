"""How large a tree of runs may grow, and how fast it ends."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from harborage.identity import Identity
from harborage.planner import CallTool, Decision, Finish, FinishReason, RunContext, SpawnSpec, SpawnTask
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.effects.task_runs import Admission
from harborage.runtime.host import Runtime
from harborage.state.storage import open_storage
from harborage.store import GroupQuery, GroupStatus
from harborage.tasks import TaskLimitError
from harborage.testing.clock import FakeClock, settle
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
Runtimes = Callable[..., Awaitable[Any]]


class Spawns:
    """A run that spawns `count` children which hang, and finishes with what the last spawn gave."""

    def __init__(self, count: int) -> None:
        self.count = count

    async def next(self, run: RunContext) -> Decision:
        if run.query == "child":
            return CallTool("hang")
        if len(run.trajectory.steps) < self.count:
            return SpawnTask(spec=SpawnSpec(query="child"))
        return Finish(FinishReason.GOAL, run.trajectory.steps[-1].observation)


async def hang() -> None:
    """Wait to be cut short."""
    await asyncio.get_running_loop().create_future()


@each_row("limit", ["max_children", "max_tree", "max_running"])
async def test_a_spawn_beyond_a_limit_is_refused_and_the_planner_sees_why(runtimes: Runtimes, limit: str) -> None:
    """Which limit it was, and what to do; no run, no task and no open group is left of it."""
    bench = await runtimes(Spawns(4), tools=[hang], **{limit: 3})
    finish = await bench.run("parent")
    assert f"{limit} allows (3)" in finish.payload["error"]
    assert len(await bench.rt.tasks.list(ME)) == (3 if limit == "max_running" else 4)
    groups = (await bench.rt.parts.store.groups(GroupQuery(statuses=(GroupStatus.OPEN,)))).rows
    assert groups == []


async def test_the_limit_of_a_tenant_counts_kept_runs_of_all_its_sessions() -> None:
    """Over a storage, and only those of the tenant that have not ended."""
    async with await open_storage("memory:") as storage:
        options = RuntimeOptions(max_running=3)
        async with Runtime(planner=Spawns(1), tools=[hang], storage=storage, options=options) as rt:
            answers = []
            for session in ("one", "two", "three"):
                run = await rt.start("parent", who=Identity("t", "u", session))
                answers.append((await run.finished()).payload)
            other = await rt.start("parent", who=Identity("other", "u", "s"))
            answers.append((await other.finished()).payload)
    assert ["error" in answer for answer in answers] == [False, False, True, False]


async def test_runs_are_counted_when_there_may_be_no_room() -> None:
    """And not at every spawn."""
    counts: list[int] = []
    living = 0

    async def count(tenant: str, most: int) -> int:
        counts.append(living)
        return living

    admission, who = Admission(count, 5), ME.with_run("r")
    for _ in range(5):
        await admission.admit(who)
    assert counts == [0]
    living = 4
    await admission.admit(who)
    living = 5
    for _ in range(2):
        with pytest.raises(TaskLimitError):
            await admission.admit(who)
    assert counts == [0, 4, 5, 5]


class Tree:
    """A run with two levels of runs below it, all of which hang."""

    def __init__(self, fan: int) -> None:
        self.fan = fan

    async def next(self, run: RunContext) -> Decision:
        level = int(run.query)
        if level < 2 and len(run.trajectory.steps) < self.fan:
            return SpawnTask(spec=SpawnSpec(query=str(level + 1)))
        return CallTool("hang")


async def test_a_hard_cancel_ends_a_whole_tree(runtimes: Runtimes) -> None:
    """Every run of it, with every call in flight."""
    bench = await runtimes(Tree(8), tools=[hang])
    run = await bench.start("0")
    await settle(2_000)
    assert len(await bench.rt.tasks.list(ME)) == 1 + 8 + 64
    await run.cancel(hard=True)
    assert (await bench.end(run)).reason is FinishReason.CANCELLED
    await settle(2_000)
    assert all(status.phase.is_final for status in await bench.rt.runs(who=ME))


class Counted:
    """A part of a storage that counts its calls."""

    def __init__(self, part: Any, counts: Counter[str]) -> None:
        self._part, self._counts = part, counts

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not inspect.iscoroutinefunction(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            self._counts[name] += 1
            return found(*args, **options)

        return call


class Calls(NamedTuple):
    """How many runs a tree has, and how many calls of its storage it takes to spawn them, and to end them."""

    size: int
    spawning: int
    ending: int


async def calls_of_a_tree(fan: int) -> Calls:
    """Of one that is spawned, and then cancelled hard."""
    counts: Counter[str] = Counter()
    # Time stands still, so that nothing is kept by itself because this process was slow.
    async with await open_storage("memory:") as storage:
        for name in ("state", "store"):
            setattr(storage, name, Counted(getattr(storage, name), counts))
        async with Runtime(planner=Tree(fan), tools=[hang], storage=storage, clock=FakeClock()) as rt:
            run = await rt.start("0", who=ME)
            size = 1 + fan + fan * fan
            while len(await rt.tasks.list(ME)) < size:
                await settle(100)
            await settle(2_000)
            spawning = counts.total()
            counts.clear()
            await run.cancel(hard=True)
            assert (await run.finished()).reason is FinishReason.CANCELLED
            while not all(status.phase.is_final for status in await rt.runs(who=ME)):
                await settle(100)
    return Calls(size, spawning, counts.total())


async def test_ending_a_larger_tree_costs_no_more_for_each_run() -> None:
    """Over a storage, counted in calls of it."""
    small, large = await calls_of_a_tree(3), await calls_of_a_tree(9)
    assert large.ending / large.size <= 1.2 * small.ending / small.size, (small, large)


async def test_ending_a_tree_takes_few_calls_for_each_run() -> None:
    """So that thousands of runs end in the time that a person waits for."""
    calls = await calls_of_a_tree(6)
    assert calls.ending <= 4 * calls.size, calls


async def test_spawning_a_tree_takes_few_calls_for_each_run() -> None:
    """A spawn is one commit beside those of the step that it is."""
    calls = await calls_of_a_tree(6)
    assert calls.spawning <= 9 * calls.size, calls
