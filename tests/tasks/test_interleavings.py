"""Whatever callers do at once, and whatever is refused or cut short between them, the rules of tasks and groups hold.

A machine starts operations without waiting for them, lets their events and records through one at a time and in any
order, refuses some, and cancels callers. Every event that went out is checked against what the registry then shows.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harborage.errors import HarborageError
from harborage.events import Cursor, Event, EventBus, EventType, Filter, MemoryEventBus, Subscription
from harborage.identity import Identity, Quadruple
from harborage.state import MemoryStateStore, StateRecord
from harborage.tasks import (
    GroupRequest,
    GroupStatus,
    GroupWatch,
    InProcessTaskRegistry,
    SpawnRequest,
    Task,
    TaskFailure,
    TaskStatus,
)
from harborage.tasks.records import GROUP_KIND, OWED_KIND, TASK_KIND
from harborage.tasks.shelf import Shelf
from harborage.tasks.transitions import ALLOWED
from harborage.testing.clock import FakeClock
from tests.kit.conformance.task_bench import PublishRefusedError

FATES = st.lists(st.sampled_from(["through", "through", "refused", "held"]), max_size=6)
SESSION = Identity("t", "u", "s")
ME = SESSION.with_run("")
MOVED_TO = {
    EventType.TASK_STARTED: TaskStatus.RUNNING,
    EventType.TASK_PAUSED: TaskStatus.PAUSED,
    EventType.TASK_RESUMED: TaskStatus.RUNNING,
    EventType.TASK_COMPLETED: TaskStatus.COMPLETE,
    EventType.TASK_FAILED: TaskStatus.FAILED,
    EventType.TASK_CANCELLED: TaskStatus.CANCELLED,
}
GROUP_ENDS = {
    EventType.TASK_GROUP_RESOLVED: GroupStatus.COMPLETED,
    EventType.TASK_GROUP_CANCELLED: GroupStatus.CANCELLED,
}


class Gate:
    """Everybody who passes meets the next fate of the script: let through, refused, or held until answered."""

    def __init__(self) -> None:
        self.script: deque[str] = deque()
        self.waiting: list[asyncio.Future[bool]] = []

    async def go_through(self) -> bool:
        """Whether the caller was let through; without a script everybody is."""
        fate = self.script.popleft() if self.script else "through"
        if fate != "held":
            return fate == "through"
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        try:
            return await future
        finally:
            if future in self.waiting:
                self.waiting.remove(future)

    def answer(self, index: int, let_through: bool) -> None:
        """Answer one of those who wait."""
        future = self.waiting.pop(index % len(self.waiting))
        if not future.done():
            future.set_result(let_through)


class GatedBus(EventBus):
    """A bus behind a gate; keeps what went out."""

    def __init__(self, bus: EventBus, gate: Gate) -> None:
        self._bus = bus
        self._gate = gate
        self.told: list[Event] = []

    async def publish(self, event: Event) -> Event:
        if not await self._gate.go_through():
            raise PublishRefusedError(f"refused {event.type}")
        self.told.append(event)
        return await self._bus.publish(event)

    def publish_nowait(self, event: Event) -> Event:
        raise NotImplementedError

    def subscribe(self, filter: Filter) -> Subscription:
        return self._bus.subscribe(filter)

    async def replay(self, cursor: Cursor, filter: Filter) -> list[Event]:
        return await self._bus.replay(cursor, filter)

    async def aclose(self) -> None:
        await self._bus.aclose()


class GatedStore(MemoryStateStore):
    """A store whose saves take as long as the machine likes and never fail; knows which slots are full."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

        self.slots: set[tuple[Quadruple, str]] = set()

    async def save(self, record: StateRecord) -> None:
        await self._gate.go_through()
        await super().save(record)
        self.slots.add((record.identity, record.kind))

    async def delete(self, identity: Quadruple, kind: str) -> None:
        await super().delete(identity, kind)
        self.slots.discard((identity, kind))


class Interleavings(RuleBasedStateMachine):
    """Callers, gates and faults in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.gate = Gate()
        self.callers: list[asyncio.Task[Any]] = []
        self.spawned: list[Task] = []
        self.group_ids: list[str] = []
        self.watches: dict[str, list[GroupWatch]] = defaultdict(list)
        self.waits: list[tuple[str, asyncio.Task[Any]]] = []
        self.store: GatedStore | None = None
        self.tool_calls: Counter[str] = Counter()

    @initialize(is_durable=st.booleans(), sizes=st.lists(st.integers(0, 3), max_size=3))
    def build(self, is_durable: bool, sizes: list[int]) -> None:
        """With or without a store behind the same gate; groups with some running members to begin with."""
        self.store = GatedStore(self.gate) if is_durable else None
        self.bus = GatedBus(MemoryEventBus(), self.gate)
        self.registry = InProcessTaskRegistry(bus=self.bus, store=self.store, clock=FakeClock())
        self.registry.on_spawned(self.spawned.append)
        for size in sizes:
            self.create_group(len(self.group_ids) % 2 == 0)
            for _ in range(size):
                self.spawn(None, len(self.group_ids) - 1, "", "", [])
                self.start(self.registry.mark_running(self.spawned[-1].id, who=ME))

    # What callers do

    @rule(
        parent=st.none() | st.integers(0, 20),
        group=st.none() | st.integers(0, 5),
        policy=st.sampled_from(["", "isolate"]),
        key=st.sampled_from(["", "", "k1", "k2"]),
        fates=FATES,
    )
    def spawn(self, parent: int | None, group: int | None, policy: str, key: str, fates: list[str]) -> None:
        """A task, perhaps below another, perhaps in a group."""
        self.gate.script.extend(fates)
        request = SpawnRequest(
            identity=ME,
            kind="background",
            parent_task_id=self.a_task(parent),
            group_id=self.a_group(group) or "",
            propagate_on_cancel=policy,
            idempotency_key=key,
        )
        self.start(self.registry.spawn(request))

    @precondition(lambda self: self.spawned)
    @rule(
        index=st.integers(0, 20),
        verb=st.sampled_from(
            ["mark_running", "mark_running", "mark_paused", "mark_resumed", "mark_complete", "mark_failed", "cancel"]
        ),
        fates=FATES,
    )
    def move(self, index: int, verb: str, fates: list[str]) -> None:
        """One step of one task, possible or not."""
        self.gate.script.extend(fates)
        task_id = self.a_task(index)
        extra = (TaskFailure("boom"),) if verb == "mark_failed" else ()
        self.start(getattr(self.registry, verb)(task_id, *extra, who=ME))

    @precondition(lambda self: self.spawned)
    @rule(index=st.integers(0, 20), priority=st.integers(0, 2), fates=FATES)
    def prioritize(self, index: int, priority: int, fates: list[str]) -> None:
        """Another priority, and a tool call in between."""
        self.gate.script.extend(fates)
        task_id = self.a_task(index)
        assert task_id is not None
        self.start(self.registry.prioritize(task_id, priority, who=ME))
        self.start(self.registry.increment_tool_count(task_id, who=ME))
        self.tool_calls[task_id] += 1

    @precondition(lambda self: self.spawned)
    @rule(index=st.integers(0, 20))
    def wait(self, index: int) -> None:
        """Somebody waits for a task."""
        task_id = self.a_task(index)
        assert task_id is not None
        self.waits.append((task_id, self.start(self.registry.wait_ended(task_id, who=ME))))

    @precondition(lambda self: len(self.group_ids) < 4)
    @rule(fail_fast=st.booleans())
    def create_group(self, fail_fast: bool) -> None:
        """A group with or without fail-fast."""
        group_id = f"g{len(self.group_ids)}"
        self.group_ids.append(group_id)
        self.start(
            self.registry.resolve_or_create_group(
                GroupRequest(session=SESSION, id=group_id, fail_fast=fail_fast), who=ME
            )
        )

    @precondition(lambda self: self.group_ids)
    @rule(index=st.integers(0, 5), verb=st.sampled_from(["seal", "seal", "cancel", "leave", "resolve"]), fates=FATES)
    def end_group(self, index: int, verb: str, fates: list[str]) -> None:
        """One step of one group, possible or not."""
        self.gate.script.extend(fates)
        group_id = self.a_group(index)
        assert group_id is not None
        if verb == "leave":
            self.start(self.registry.cancel_group(group_id, "leave", propagate=False, who=ME))
        else:
            self.start(self.registry.apply_group(group_id, verb, who=ME))

    @precondition(lambda self: self.group_ids)
    @rule(index=st.integers(0, 5))
    def watch(self, index: int) -> None:
        """Somebody watches a group."""
        group_id = self.a_group(index)
        assert group_id is not None
        if group_id in self.known_groups():
            self.start(self.keep_watch(group_id))

    async def keep_watch(self, group_id: str) -> None:
        self.watches[group_id].append(await self.registry.watch_group(SESSION, group_id))

    # What the world does to them

    @precondition(lambda self: self.gate.waiting)
    @rule(index=st.integers(0, 50), fate=st.sampled_from(["through", "through", "through", "refused"]))
    def let_one_go(self, index: int, fate: str) -> None:
        """One event or record goes through, or is refused."""
        self.gate.answer(index, fate == "through")
        self.turn()

    @precondition(lambda self: self.callers)
    @rule(index=st.integers(0, 50))
    def cancel_a_caller(self, index: int) -> None:
        """One caller is cancelled wherever it stands."""
        self.callers[index % len(self.callers)].cancel()
        self.turn()

    # What must be true after every step

    @invariant()
    def tasks_follow_the_table(self) -> None:
        """Events of a task are steps of the table, at most one of them the last, and the task is where they lead."""
        told: dict[str, list[TaskStatus]] = defaultdict(lambda: [TaskStatus.PENDING])
        for event in self.told():
            status = MOVED_TO.get(EventType(event.type))
            if status is not None:
                told[event.payload.task_id].append(status)  # type: ignore[union-attr]
        # Read without turning the loop: what is under way must not move between the two sides of the comparison.
        shown = {task.id: task.status for task in self.remembered()}
        for task in self.spawned:
            path = told[task.id]
            assert all(after in ALLOWED[before] for before, after in pairwise(path)), path
            assert shown[task.id] is path[-1]

    @invariant()
    def spawns_are_told_once_each(self) -> None:
        """Listeners heard exactly the tasks that were told, in that order, and each can be read."""
        told = [event.payload.task_id for event in self.told() if event.type == EventType.TASK_SPAWNED]  # type: ignore[union-attr]
        assert [task.id for task in self.spawned] == told
        keyed = [task.idempotency_key for task in self.spawned if task.idempotency_key]
        assert len(keyed) == len(set(keyed))

    @invariant()
    def groups_end_once(self) -> None:
        """A group has at most one terminal event; exactly those who watch an ended group hold its one completion."""
        ended: dict[str, list[Any]] = defaultdict(list)
        for event in self.told():
            if event.type in GROUP_ENDS:
                ended[event.payload.completion.group_id].append(event)  # type: ignore[union-attr]
        for group_id, watches in self.watches.items():
            assert len(ended[group_id]) <= 1
            for watch in watches:
                got = watch.peek()
                assert (got is not None) == bool(ended[group_id])
                if got is not None:
                    assert got.final_status is GROUP_ENDS[EventType(ended[group_id][0].type)]
        assert all(len(events) <= 1 for events in ended.values())

    def teardown(self) -> None:
        """At rest nothing is owed: groups that must have ended have, waiters are awake, the store agrees."""
        try:
            if hasattr(self, "registry"):
                self.come_to_rest()
                self.check_rest()
                self.run(self.registry.aclose())
                self.turn()
                assert all(caller.done() for caller in self.callers)
        finally:
            for caller in self.callers:
                caller.cancel()
            self.turn()
            self.loop.close()

    def come_to_rest(self) -> None:
        self.gate.script.clear()
        while self.gate.waiting:
            self.gate.answer(0, True)
            self.turn()
        self.run(self.registry.spawn(SpawnRequest(identity=ME, kind="foreground")))
        self.tasks_follow_the_table()
        self.spawns_are_told_once_each()
        self.groups_end_once()

    def check_rest(self) -> None:
        tasks = {task.id: task for task in self.run(self.registry.read(SESSION))}
        for group_id in self.known_groups():
            group = self.run(self.registry.resolve_or_create_group(GroupRequest(session=SESSION, id=group_id), who=ME))
            members = [tasks[task_id] for task_id in group.members]
            failed = group.fail_fast and any(task.status is TaskStatus.FAILED for task in members)
            done = bool(members) and all(task.status.is_terminal for task in members)
            assert group.status.is_terminal or not failed
            assert not (group.status is GroupStatus.SEALED and done)
            if group.status is GroupStatus.CANCELLED and group.reason != "leave":
                assert all(task.status.is_terminal for task in members)
            self.check_stored_group(group_id, group.status)
        for task_id, wait in self.waits:
            if tasks[task_id].status.is_terminal:
                assert wait.done()
        for task in tasks.values():
            assert task.tool_count == self.tool_calls[task.id]
            self.check_stored_task(task)
        if self.store is not None:
            kept = {slot.run_id for slot, kind in self.store.slots if kind in {TASK_KIND, GROUP_KIND}}
            assert kept == tasks.keys() | self.known_groups()
            assert OWED_KIND not in {kind for _, kind in self.store.slots}

    def check_stored_task(self, task: Task) -> None:
        if self.store is not None:
            stored = self.run(Shelf(self.store).task(SESSION, task.id)).task
            assert (stored.status, stored.priority, stored.group_id) == (task.status, task.priority, task.group_id)

    def check_stored_group(self, group_id: str, status: GroupStatus) -> None:
        if self.store is not None:
            assert self.run(Shelf(self.store).group(SESSION, group_id)).group.status is status

    # Means

    def told(self) -> list[Event]:
        return self.bus.told

    def remembered(self) -> list[Task]:
        ledger = self.registry._books.find(SESSION)
        return [] if ledger is None else list(ledger.tasks.values())

    def known_groups(self) -> set[str]:
        created = [event for event in self.told() if event.type == EventType.TASK_GROUP_CREATED]
        return {event.payload.group_id for event in created}  # type: ignore[union-attr]

    def a_task(self, index: int | None) -> str | None:
        return None if index is None or not self.spawned else self.spawned[index % len(self.spawned)].id

    def a_group(self, index: int | None) -> str | None:
        return None if index is None or not self.group_ids else self.group_ids[index % len(self.group_ids)]

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        caller = self.loop.create_task(self.absorb(work))
        self.callers = [one for one in self.callers if not one.done()] + [caller]
        self.turn()
        return caller

    async def absorb(self, work: Awaitable[Any]) -> None:
        # Refusals and impossible steps are part of the game; anything else fails the run.
        with suppress(HarborageError):
            await work

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def turn(self) -> None:
        async def turns() -> None:
            for _ in range(80 if self.store is not None else 12):
                await asyncio.sleep(0)

        self.run(turns())
        for caller in self.callers:
            if caller.done() and not caller.cancelled() and caller.exception() is not None:
                raise AssertionError("a caller met an unexpected error") from caller.exception()


Interleavings.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestInterleavings = Interleavings.TestCase
