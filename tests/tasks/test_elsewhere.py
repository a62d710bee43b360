"""Two processes over one store: what one of them ends the other hears of; and what is over long enough is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage.events import MemoryEventBus
from harborage.identity import Identity
from harborage.state import StateStore
from harborage.state.storage import open_storage
from harborage.tasks import (
    GroupNotFoundError,
    GroupRequest,
    GroupStatus,
    InProcessTaskRegistry,
    NotFoundError,
    SpawnRequest,
    TaskStatus,
)
from harborage.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

SESSION = Identity("tenant", "user", "session")
ME = SESSION.with_run("")
Starting = Callable[..., InProcessTaskRegistry]


@pytest.fixture
def clock() -> FakeClock:
    """A clock that moves by hand."""
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> AsyncIterator[StateStore]:
    """What both processes work on."""
    url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'kept.db'}"
    async with await open_storage(url, clock=clock) as storage:
        yield storage.state


@pytest.fixture
async def starting(store: StateStore, clock: FakeClock) -> AsyncIterator[Starting]:
    """Makes another registry over the store, as a process does when it starts."""
    opened: list[InProcessTaskRegistry] = []

    def start(who: Any = None) -> InProcessTaskRegistry:
        opened.append(InProcessTaskRegistry(bus=MemoryEventBus(), store=store, clock=clock))
        return opened[-1]

    yield start
    for registry in opened:
        await registry.aclose()


async def grown(tasks: InProcessTaskRegistry, session: Identity = SESSION, **group: Any) -> tuple[str, str]:
    """A group with one task in it, sealed; the ids of both."""
    who = session.with_run("")
    made = await tasks.resolve_or_create_group(GroupRequest(session=session, **group), who=who)
    spawn = SpawnRequest(identity=who, kind="background", query="go", group_id=made.id, idempotency_key="k")
    task_id = (await tasks.spawn(spawn)).id
    await tasks.seal_group(made.id, who=who)
    return made.id, task_id


async def ended(tasks: InProcessTaskRegistry, task_id: str, who: Identity = SESSION) -> None:
    """Let a task run and complete."""
    await tasks.mark_running(task_id, who=who)
    await tasks.mark_complete(task_id, b'"done"', who=who)


async def test_who_waits_for_the_turn_hears_of_a_group_that_ends_elsewhere(starting: Starting) -> None:
    """At the next look, or when it is told that something happened."""
    here, there = starting(), starting()
    group_id, task_id = await grown(there, retain_turn=True)
    waiter = here.register_retain_turn_waiter(SESSION)
    await here.recheck()
    assert waiter.peek() is None
    await ended(there, task_id)
    await here.recheck()
    assert waiter.peek() == group_id


async def test_the_look_is_taken_by_itself(starting: Starting, clock: FakeClock) -> None:
    """Nobody has to ask for it while somebody waits."""
    here, there = starting(), starting()
    group_id, task_id = await grown(there, retain_turn=True)
    waiter = here.register_retain_turn_waiter(SESSION)
    await ended(there, task_id)
    for _ in range(40):
        await clock.run_for(0.5)
        if waiter.is_closed:
            break
    assert waiter.peek() == group_id


async def test_what_held_no_turn_or_ended_before_is_no_news(starting: Starting, clock: FakeClock) -> None:
    """A waiter waits for the next group, whoever reads an older one back meanwhile."""
    here, there = starting(), starting()
    old, first = await grown(there, retain_turn=True)
    await ended(there, first)
    clock.advance(1)
    waiter = here.register_retain_turn_waiter(SESSION)
    assert (await here.watch_group(SESSION, old)).peek() is not None
    await here.recheck()
    assert waiter.peek() is None
    waiter.cancel()


async def test_groups_that_have_not_ended_are_read_back(starting: Starting) -> None:
    """With their members, open or sealed; those that have ended are left out."""
    there = starting()
    sealed, _ = await grown(there)
    opened = (await there.resolve_or_create_group(GroupRequest(session=SESSION), who=ME)).id
    spawn = SpawnRequest(identity=ME, kind="background", query="go", group_id=opened)
    joined = [(await there.spawn(spawn)).id for _ in range(2)]
    over = (await there.resolve_or_create_group(GroupRequest(session=SESSION), who=ME)).id
    await there.spawn(SpawnRequest(identity=ME, kind="background", query="go", group_id=over))
    await there.cancel_group(over, who=ME)
    found = {group.id: group for group in await starting().groups(SESSION)}
    assert set(found) == {sealed, opened}
    assert (found[opened].status, sorted(found[opened].members)) == (GroupStatus.OPEN, sorted(joined))
    assert found[sealed].status is GroupStatus.SEALED


async def always(session: Identity) -> bool:
    """Every session is over."""
    return True


async def test_the_tasks_of_a_session_that_is_over_are_forgotten(starting: Starting, clock: FakeClock) -> None:
    """With their groups and keys, once all of them ended long enough ago; nothing else of the store is touched."""
    there = starting()
    group_id, task_id = await grown(there)
    other = Identity("tenant", "user", "other")
    _, alive = await grown(there, other)
    await ended(there, task_id)
    at = clock.now()
    clock.advance(60)

    async def never(session: Identity) -> bool:
        return False

    assert await there.forget(clock.now(), never) == 0
    assert await there.forget(at, always) == 0
    assert await there.forget(clock.now(), always) == 1
    for registry in (there, starting()):
        with pytest.raises(NotFoundError):
            await registry.get(task_id, who=SESSION)
        with pytest.raises(GroupNotFoundError):
            await registry.watch_group(SESSION, group_id)
        assert await registry.read(SESSION) == []
        assert (await registry.get(alive, who=other)).status is TaskStatus.PENDING
    assert await there.forget(clock.now(), always) == 0


async def test_a_session_may_have_tasks_again(starting: Starting, clock: FakeClock) -> None:
    """They are found, and forgotten in their turn, as if there had never been others; the key is free again."""
    for _ in range(3):
        tasks = starting()
        _, task_id = await grown(tasks)
        await ended(tasks, task_id)
        assert [one.id for one in await starting().read(SESSION)] == [task_id]
        assert SESSION in await starting().sessions()
        clock.advance(60)
        assert await tasks.forget(clock.now(), always) == 1


async def test_the_list_of_sessions_does_not_grow_for_ever(starting: Starting, clock: FakeClock) -> None:
    """Sessions whose tasks are forgotten leave it, some at a time."""
    tasks = starting()
    for number in range(150):
        session = Identity("tenant", "user", f"s{number}")
        spawn = SpawnRequest(identity=session.with_run(""), kind="background", query="go")
        await tasks.cancel((await tasks.spawn(spawn)).id, who=session)
    clock.advance(60)
    assert await tasks.forget(clock.now(), always) == 150
    assert len(await tasks.sessions()) < 64


async def test_in_memory_they_are_forgotten_too(clock: FakeClock) -> None:
    """A process that runs for months keeps no month-old tasks."""
    tasks = InProcessTaskRegistry(bus=MemoryEventBus(), clock=clock)
    group_id, task_id = await grown(tasks)
    assert [group.id for group in await tasks.groups(SESSION)] == [group_id]
    await ended(tasks, task_id)
    assert await tasks.groups(SESSION) == []
    clock.advance(timedelta(days=30).total_seconds())
    assert await tasks.forget(clock.now(), always) == 1
    with pytest.raises(NotFoundError):
        await tasks.get(task_id, who=SESSION)
    again, _ = await grown(tasks, id=group_id)
    assert again == group_id
    await tasks.aclose()
