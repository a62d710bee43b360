"""Registries over one store: a caller that waits in one learns of what another ended, as soon as the store notifies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from harborage.events import MemoryEventBus
from harborage.identity import Identity
from harborage.state.errors import DatabaseError
from harborage.store import Commit, Move, Status
from harborage.tasks import (
    GroupNotFoundError,
    GroupRequest,
    GroupStatus,
    InProcessTaskRegistry,
    SpawnRequest,
    TaskNotFoundError,
    TaskStatus,
)
from harborage.testing.clock import FakeClock, settle
from tests.kit.conformance.task_bench import FaultyBus, PublishRefusedError
from tests.kit.conformance.task_stores import RemoteStore

pytestmark = pytest.mark.anyio

SESSION = Identity("tenant", "user", "session")
ME = SESSION.with_run("")
Starting = Callable[..., InProcessTaskRegistry]


@pytest.fixture
def clock() -> FakeClock:
    """A clock that moves by hand."""
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> RemoteStore:
    """What the registries of a test share."""
    return RemoteStore(clock=clock)


@pytest.fixture
async def starting(store: RemoteStore, clock: FakeClock) -> AsyncIterator[Starting]:
    """Makes another registry over the store, as a process does when it starts."""
    opened: list[InProcessTaskRegistry] = []

    def start(**options: Any) -> InProcessTaskRegistry:
        opened.append(InProcessTaskRegistry(**{"bus": MemoryEventBus(), "store": store, "clock": clock} | options))
        return opened[-1]

    yield start
    for registry in opened:
        await registry.aclose()


async def grown(tasks: InProcessTaskRegistry, session: Identity = SESSION, **group: Any) -> tuple[str, str]:
    """A group with one running task in it, sealed; the ids of both."""
    who = session.with_run("")
    made = await tasks.resolve_or_create_group(GroupRequest(session=session, **group), who=who)
    spawn = SpawnRequest(identity=who, kind="background", query="go", group_id=made.id)
    task_id = (await tasks.spawn(spawn)).id
    await tasks.mark_running(task_id, who=who)
    await tasks.seal_group(made.id, who=who)
    return made.id, task_id


async def test_a_waiting_turn_gets_the_end_of_a_group_in_another_process(starting: Starting) -> None:
    """Of the next one that holds a turn, and of no other."""
    here, there = starting(), starting()
    group_id, task_id = await grown(there, retain_turn=True)
    _, other = await grown(there)
    waiter = here.register_retain_turn_waiter(SESSION)
    await there.mark_complete(other, who=ME)
    await settle()
    assert not waiter.is_closed
    await there.mark_complete(task_id, who=ME)
    assert await waiter.group_id() == group_id


async def test_a_group_that_ended_before_is_no_news(starting: Starting, clock: FakeClock) -> None:
    """A waiter waits for the next group, though another that was there before it is notified of an older one."""
    here, there = starting(), starting()
    old, first = await grown(there, retain_turn=True)
    early = here.register_retain_turn_waiter(SESSION)
    clock.advance(1)
    await there.mark_complete(first, who=ME)
    clock.advance(1)
    late = here.register_retain_turn_waiter(SESSION)
    assert await early.group_id() == old
    assert (await here.watch_group(SESSION, old)).peek() is not None
    await settle()
    assert not late.is_closed
    new, second = await grown(there, retain_turn=True)
    await there.mark_complete(second, who=ME)
    assert await late.group_id() == new


async def test_however_many_groups_there_are_the_one_that_is_awaited_is_found(starting: Starting) -> None:
    """Many that were opened later have ended before."""
    here, there = starting(), starting()
    group_id, task_id = await grown(there)
    waiter = here.register_retain_turn_waiter(SESSION)
    watch = await here.watch_group(SESSION, group_id)
    for _ in range(250):
        later = await there.resolve_or_create_group(GroupRequest(session=SESSION), who=ME)
        await there.cancel_group(later.id, who=ME)
    await there.mark_complete(task_id, who=ME)
    completion = await watch.completion()
    assert completion is not None
    assert completion.final_status is GroupStatus.COMPLETED
    assert not waiter.is_closed


async def test_no_listener_gets_an_end_of_another_process(starting: Starting) -> None:
    """A host acts on the ends of its own process; the others have theirs."""
    here, there = starting(), starting()
    _, task_id = await grown(there)
    received: list[str] = []
    here.on_ended(lambda who: received.append("here"))
    there.on_ended(lambda who: received.append(who.run_id))
    waiting = asyncio.create_task(here.wait_ended(task_id, who=ME))
    await settle()
    await there.mark_complete(task_id, b"1", who=ME)
    assert (await waiting).result == b"1"
    assert received == [task_id]


async def test_a_store_that_is_away_for_a_while_strands_no_run(
    starting: Starting, store: RemoteStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether a task has ended is asked again; without waiting callers no timer is set."""
    here, there = starting(), starting()
    _, task_id = await grown(there)
    waiting = asyncio.create_task(here.wait_ended(task_id, who=ME))
    await settle()
    runs = store.runs

    async def gone(query: Any) -> Any:
        raise DatabaseError("the server is gone")

    store.runs = gone  # type: ignore[method-assign]
    await store.commit(Commit(moves=(Move(run_id=task_id, expected=(Status.RUNNING,), status=Status.COMPLETE),)))
    await settle()
    assert "is asked again in a moment" in caplog.text
    store.runs = runs  # type: ignore[method-assign]
    await clock.run_for(5)
    assert (await waiting).status is TaskStatus.COMPLETE
    assert clock.armed == 0


async def test_a_process_without_a_worker_learns_of_it_within_a_second(
    starting: Starting, store: RemoteStore, clock: FakeClock
) -> None:
    """No worker of its own looks at the store for it, so nothing says that another process changed something."""
    store.is_shared = True
    here, there = starting(), starting()
    group_id, task_id = await grown(there, retain_turn=True)
    waiting = asyncio.create_task(here.wait_ended(task_id, who=ME))
    watch = await here.watch_group(SESSION, group_id)
    turn = here.register_retain_turn_waiter(SESSION)
    await settle()
    store._listeners.clear()
    await there.mark_complete(task_id, who=ME)
    await settle()
    assert [waiting.done(), watch.is_closed, turn.is_closed] == [False] * 3
    await clock.run_for(1)
    assert waiting.done()
    assert (await waiting).status is TaskStatus.COMPLETE
    assert (watch.is_closed, turn.peek()) == (True, group_id)
    await clock.run_for(1)
    assert clock.armed == 0


async def test_who_gives_up_leaves_no_trace(starting: Starting) -> None:
    """A waiter that is cancelled, a watch and a turn that are given up: nothing is looked for any more."""
    here = starting()
    group_id, task_id = await grown(here)
    waiting = asyncio.create_task(here.wait_ended(task_id, who=ME))
    watch = await here.watch_group(SESSION, group_id)
    turn = here.register_retain_turn_waiter(SESSION)
    await settle()
    waiting.cancel()
    watch.cancel()
    turn.cancel()
    await settle()
    ends = here._ends
    assert not ends._tasks
    assert not ends._groups
    assert not ends._turns
    await here.mark_complete(task_id, who=ME)


async def test_asking_for_nothing_leaves_nothing(starting: Starting, store: RemoteStore) -> None:
    """Unknown tasks and groups are not waited for, and nothing is written."""
    registry = starting()
    with pytest.raises(TaskNotFoundError):
        await registry.wait_ended("none", who=ME)
    with pytest.raises(GroupNotFoundError):
        await registry.watch_group(SESSION, "none")
    await registry.begin_wait("none", "nothing", who=ME)
    await registry.end_wait("none", who=ME)
    assert await registry.acknowledge_background(SESSION, ["none"]) == 0
    assert not registry._ends._tasks
    assert not registry._ends._groups
    assert store.commits == []


async def test_a_group_whose_process_died_is_ended_by_another(starting: Starting, store: RemoteStore) -> None:
    """Its last member's end was stored, its own was not: the next worker ends it, once."""
    first, second = starting(), starting()
    group_id, task_id = await grown(first)
    await store.commit(Commit(moves=(Move(run_id=task_id, expected=(Status.RUNNING,), status=Status.COMPLETE),)))
    assert (await second.group(group_id, who=ME)).status is GroupStatus.SEALED
    store.commits.clear()
    await second.settle_group(group_id, who=SESSION)
    await first.settle_group(group_id, who=SESSION)
    assert (await first.group(group_id, who=ME)).status is GroupStatus.COMPLETED
    assert len(store.commits) == 1


async def test_a_bus_apart_from_the_store_gets_the_events_afterwards(starting: Starting) -> None:
    """What it refuses has happened all the same: the verb fails, and the task is where it went."""
    bus = FaultyBus(MemoryEventBus())
    registry = starting(bus=bus)
    _, task_id = await grown(registry)
    bus.refuse()
    with pytest.raises(PublishRefusedError):
        await registry.mark_paused(task_id, who=ME)
    assert (await registry.get(task_id, who=ME)).status is TaskStatus.PAUSED
