"""Tasks that a run starts through the executor alone, where no decision brings a key of its own."""

from __future__ import annotations

import asyncio

import pytest

from harborage.events import EventType, Filter, MemoryEventBus
from harborage.identity import Quadruple
from harborage.planner import AwaitTask, RunContext, SpawnSpec, SpawnTask
from harborage.planner.spawning import own_group_id, spawn_request
from harborage.runtime.dispatch import CatalogToolExecutor
from harborage.runtime.effects.children import SEAL_AFTER, spawn_task
from harborage.tasks import (
    GroupRequest,
    GroupSealedError,
    GroupStatus,
    InProcessTaskRegistry,
    SpawnRequest,
    TaskFailure,
    TaskNotFoundError,
    WaitCycleError,
)
from harborage.testing.clock import FakeClock, settle
from harborage.tools import ToolCatalog
from tests.kit.tables import each_row

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
    groups = {(await registry.get(handle["task_id"], who=runs[n])).group_id for n, handle in enumerate(handles)}
    assert len(groups) == 3


async def test_spawns_under_one_key_are_one_task() -> None:
    """The same key asks for the same task, in the same group."""
    executor = CatalogToolExecutor(ToolCatalog(), None, InProcessTaskRegistry(bus=MemoryEventBus()))
    spawn = SpawnTask(spec=SpawnSpec(query="q"), idempotency_key="k")
    run = RunContext(quadruple=Quadruple("t", "u", "s", "r"))
    first, _ = await executor.execute_decision(run, spawn)
    again, _ = await executor.execute_decision(run, spawn)
    assert first == again


@each_row("has_task", [True, False])
async def test_a_spawn_repeated_after_a_crash_seals_the_group_that_was_left_open(has_task: bool) -> None:
    """An earlier version opened a group, spawned into it and sealed it, and its process died between two of these: the
    group still ends with its only member, and is published once."""
    bus, who = MemoryEventBus(), Quadruple("t", "u", "s", "r")
    registry = InProcessTaskRegistry(bus=bus)
    published = bus.subscribe(Filter(tenant="t", user="u", session="s"))
    spawn = SpawnTask(spec=SpawnSpec(query="q"))
    group_id = own_group_id(who, "k")
    await registry.resolve_or_create_group(
        GroupRequest(session=who.identity, id=group_id, owner_task_id=who.run_id), who=who
    )
    if has_task:
        await registry.spawn(spawn_request(who, spawn, "k", group_id))
    handle = await spawn_task(registry, who, spawn, key="k", max_depth=4)
    assert handle == await spawn_task(registry, who, spawn, key="k", max_depth=4)
    await registry.mark_running(handle.task_id, who=who)
    await registry.mark_complete(handle.task_id, who=who)
    completion = (await registry.watch_group(who.identity, handle.group_id)).peek()
    assert completion is not None
    assert [member.task_id for member in completion.members] == [handle.task_id]
    await bus.aclose()
    kinds = [event.type async for event in published]
    assert [kinds.count(one) for one in (EventType.TASK_GROUP_CREATED, EventType.TASK_GROUP_SEALED)] == [1, 1]


async def test_a_retained_turn_waits_for_the_whole_group() -> None:
    """A group of others that is still open when its members have ended is sealed some time after the last joined."""
    clock = FakeClock()
    registry = InProcessTaskRegistry(bus=MemoryEventBus(), clock=clock)
    who = Quadruple("t", "u", "s", "r")
    group = await registry.resolve_or_create_group(GroupRequest(session=who.identity), who=who)
    request = SpawnRequest(identity=who.identity.with_run(""), kind="background", group_id=group.id)
    other = (await registry.spawn(request)).id
    executor = CatalogToolExecutor(ToolCatalog(), None, registry, clock=clock)
    decision = SpawnTask(spec=SpawnSpec(query="mine", retain_turn=True), group_id=group.id)
    turn = asyncio.create_task(executor.execute_decision(RunContext(quadruple=who), decision))
    await settle()
    (mine,) = [one.id for one in await registry.list(who.identity) if one.id != other]
    for task_id in (mine, other):
        assert not turn.done()
        await registry.mark_running(task_id, who=who)
        await registry.mark_complete(task_id, b'"%s"' % task_id[-4:].encode(), who=who)
        await settle()
    assert not turn.done()
    clock.advance(SEAL_AFTER.total_seconds() + 1)
    await settle()
    observation, _ = await turn
    assert (observation["group_id"], observation["status"]) == (group.id, "completed")
    assert [member["task_id"] for member in observation["members"]] == [other, mine]


async def test_the_run_that_opened_a_group_seals_it_when_it_waits() -> None:
    """By a retained spawn into it, or by awaiting its name; a group of that name of another run is another group."""
    registry = InProcessTaskRegistry(bus=MemoryEventBus())
    executor = CatalogToolExecutor(ToolCatalog(), None, registry)
    groups = []
    for run_id in ("r1", "r2"):
        who = Quadruple("t", "u", "s", run_id)
        run = RunContext(quadruple=who)
        spawned = [
            (await executor.execute_decision(run, SpawnTask(spec=SpawnSpec(query=query), group_id="research")))[0]
            for query in ("a", "b")
        ]
        assert {one["group_id"] for one in spawned} == {"research"}
        turn = asyncio.create_task(executor.execute_decision(run, AwaitTask("research")))
        await settle()
        group = await registry.group((await registry.get(spawned[0]["task_id"], who=who)).group_id, who=who)
        groups.append(group.id)
        assert group.status is GroupStatus.SEALED
        with pytest.raises(GroupSealedError):
            await executor.execute_decision(run, SpawnTask(spec=SpawnSpec(query="late"), group_id="research"))
        for one in spawned:
            await registry.mark_running(one["task_id"], who=who)
            await registry.mark_failed(one["task_id"], TaskFailure("boom"), who=who)
        observation, _ = await turn
        assert [member["error"] for member in observation["members"]] == [{"code": "boom"}] * 2
    assert len(set(groups)) == 2


async def test_a_retained_spawn_into_a_group_that_waits_for_the_run_spawns_nothing() -> None:
    """It would wait for ever; the refusal says why."""
    registry = InProcessTaskRegistry(bus=MemoryEventBus())
    executor = CatalogToolExecutor(ToolCatalog(), None, registry)
    who = Quadruple("t", "u", "s", "r")
    handle, _ = await executor.execute_decision(
        RunContext(quadruple=who), SpawnTask(spec=SpawnSpec(query="a"), group_id="g")
    )
    child = RunContext(quadruple=who.identity.with_run(handle["task_id"]))
    group_id = (await registry.get(handle["task_id"], who=who)).group_id
    with pytest.raises(WaitCycleError, match="circle"):
        await executor.execute_decision(child, SpawnTask(spec=SpawnSpec(retain_turn=True), group_id=group_id))
    assert len(await registry.list(who.identity)) == 1


async def test_a_group_name_belongs_to_the_run_that_opened_it() -> None:
    """A child that uses the name of its parent's group, sealed already, opens a group of its own; refusals say the name
    that the decision used."""
    registry = InProcessTaskRegistry(bus=MemoryEventBus())
    executor = CatalogToolExecutor(ToolCatalog(), None, registry)
    who = Quadruple("t", "u", "s", "r")
    into = SpawnTask(spec=SpawnSpec(query="mid"), group_id="g")
    parent = RunContext(quadruple=who)
    handle, _ = await executor.execute_decision(parent, into)
    turn = asyncio.create_task(executor.execute_decision(parent, AwaitTask("g")))
    await settle()
    with pytest.raises(GroupSealedError, match="task group 'g' is sealed"):
        await executor.execute_decision(parent, into)
    child = RunContext(quadruple=who.identity.with_run(handle["task_id"]))
    below, _ = await executor.execute_decision(child, SpawnTask(spec=SpawnSpec(query="leaf"), group_id="g"))
    outer, inner = [(await registry.get(one["task_id"], who=who)).group_id for one in (handle, below)]
    assert outer != inner
    waiting = asyncio.create_task(executor.execute_decision(child, AwaitTask("g")))
    await settle()
    leaf = RunContext(quadruple=who.identity.with_run(below["task_id"]))
    with pytest.raises(WaitCycleError, match=f"waits for {inner}"):
        await executor.execute_decision(leaf, AwaitTask(inner))
    for one, whole in ((below, waiting), (handle, turn)):
        await registry.mark_running(one["task_id"], who=who)
        await registry.mark_complete(one["task_id"], b"1", who=who)
        observation, _ = await whole
        assert (observation["group_id"], [member["task_id"] for member in observation["members"]]) == (
            "g",
            [one["task_id"]],
        )


async def test_awaiting_what_is_neither_a_task_nor_a_group_is_an_error() -> None:
    """At once: nothing waits for ever."""
    executor = CatalogToolExecutor(ToolCatalog(), None, InProcessTaskRegistry(bus=MemoryEventBus()))
    with pytest.raises(TaskNotFoundError):
        await executor.execute_decision(RunContext(quadruple=Quadruple("t", "u", "s", "r")), AwaitTask("nothing"))
