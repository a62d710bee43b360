"""Tasks that a run starts through the executor alone, where no decision brings a key of its own."""

from __future__ import annotations

import pytest

from harborage.events import MemoryEventBus
from harborage.identity import Quadruple
from harborage.planner import RunContext, SpawnSpec, SpawnTask
from harborage.runtime.dispatch import CatalogToolExecutor
from harborage.runtime.dispatch.children import spawn_task
from harborage.state import MemoryStateStore
from harborage.tasks import InProcessTaskRegistry
from harborage.tools import ToolCatalog

pytestmark = pytest.mark.anyio


async def test_spawns_without_a_key_are_tasks_and_groups_of_their_own() -> None:
    """Two spawns of one run, and one of another tenant, do not meet in a task, and each is alone in its group."""
    registry = InProcessTaskRegistry(bus=MemoryEventBus())
    executor = CatalogToolExecutor(ToolCatalog(), None, registry)
    runs = [Quadruple("t", "u", "s", "r"), Quadruple("t", "u", "s", "r"), Quadruple("other", "u", "s", "r")]
    handles = [
        (await executor.execute_decision(RunContext(quadruple=run), SpawnTask(spec=SpawnSpec(query="q"))))[0]
        for run in runs
    ]
    assert {handle["status"] for handle in handles} == {"spawned"}
    assert all(set(handle) == {"task_id", "kind", "status"} for handle in handles)
    assert len({handle["task_id"] for handle in handles}) == 3
    groups = {(await executor.spawn(run, SpawnTask(), key=""))["group_id"] for run in runs}
    assert len(groups) == 3


async def test_spawns_under_one_key_are_one_task() -> None:
    """The same key asks for the same task, in the same group."""
    executor = CatalogToolExecutor(ToolCatalog(), None, InProcessTaskRegistry(bus=MemoryEventBus()))
    spawn = SpawnTask(spec=SpawnSpec(query="q"), idempotency_key="k")
    run = RunContext(quadruple=Quadruple("t", "u", "s", "r"))
    first, _ = await executor.execute_decision(run, spawn)
    again, _ = await executor.execute_decision(run, spawn)
    assert first == again


async def test_a_spawn_repeated_after_a_crash_seals_the_group_that_was_left_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process died between the spawn and the sealing; in the next one the group still ends with its only member."""
    store = MemoryStateStore()
    who = Quadruple("t", "u", "s", "r")
    spawn = SpawnTask(spec=SpawnSpec(query="q"))
    first = InProcessTaskRegistry(bus=MemoryEventBus(), store=store)

    async def die(group_id: str, *, who: object) -> None:
        raise RuntimeError("killed")

    monkeypatch.setattr(first, "seal_group", die)
    with pytest.raises(RuntimeError):
        await spawn_task(first, who, spawn, key="k", max_depth=4)
    second = InProcessTaskRegistry(bus=MemoryEventBus(), store=store)
    handle = await spawn_task(second, who, spawn, key="k", max_depth=4)
    assert handle == await spawn_task(second, who, spawn, key="k", max_depth=4)
    await second.mark_running(handle["task_id"], who=who)
    await second.mark_complete(handle["task_id"], who=who)
    completion = (await second.watch_group(who.identity, handle["group_id"])).peek()
    assert completion is not None
    assert [member.task_id for member in completion.members] == [handle["task_id"]]
