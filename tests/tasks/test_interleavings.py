"""Whatever callers do at once, and whatever is refused or cut short between them, the rules of tasks and groups hold.

A machine starts operations of two registries without waiting for them, lets their commits through one at a time and in
any order, refuses some, and cancels callers. Every event that was kept is checked against what the store then shows.
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

from harborage.codec import decode
from harborage.errors import HarborageError
from harborage.events import DurableEventBus, EventType
from harborage.identity import Identity
from harborage.state.errors import DatabaseError
from harborage.store import Commit, Committed, Page, RunQuery, RunRow
from harborage.store.memory import MemoryStore
from harborage.tasks import (
    GroupRequest,
    GroupStatus,
    GroupWatch,
    InProcessTaskRegistry,
    SpawnRequest,
    TaskFailure,
    TaskStatus,
)
from harborage.tasks.rules import ALLOWED
from harborage.testing.clock import FakeClock

FATES = st.lists(st.sampled_from(["through", "through", "refused", "held"]), max_size=6)
ENDS = ["mark_running", "mark_complete", "mark_failed", "cancel"]
GROUP_VERBS = ["seal", "seal", "cancel", "leave", "resolve"]
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


class GatedStore(MemoryStore):
    """A store whose commits take as long as the machine likes, or are refused; keeps the events it took."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(clock=FakeClock())
        self._gate = gate
        self.published: list[tuple[EventType, dict[str, Any]]] = []

    async def commit(self, commit: Commit) -> Committed:
        if not await self._gate.go_through():
            raise DatabaseError("refused")
        done = await super().commit(commit)
        self.published += [(EventType(event.type), decode(event.data)["payload"]) for event in commit.events]
        return done

    async def runs(self, query: RunQuery) -> Page[RunRow]:
        page = await super().runs(query)
        await asyncio.sleep(0)
        return page


class Interleavings(RuleBasedStateMachine):
    """Callers of two registries over one store, gates and faults in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.gate = Gate()
        self.callers: list[asyncio.Task[Any]] = []
        self.group_ids: list[str] = []
        self.watches: dict[str, list[GroupWatch]] = defaultdict(list)
        self.waits: list[tuple[str, asyncio.Task[Any]]] = []
        self.tool_calls: Counter[str] = Counter()

    @initialize(sizes=st.lists(st.integers(0, 3), max_size=3))
    def build(self, sizes: list[int]) -> None:
        """Groups with some running members to begin with."""
        self.store = GatedStore(self.gate)
        self.buses = [DurableEventBus(self.store, clock=FakeClock()) for _ in range(2)]
        self.registries = [InProcessTaskRegistry(bus=bus, store=self.store, clock=FakeClock()) for bus in self.buses]
        for size in sizes:
            self.create_group(len(self.group_ids) % 2 == 0)
            for _ in range(size):
                self.spawn(None, len(self.group_ids) - 1, "", "", [])
                self.start(self.registry.mark_running(self.spawned[-1], who=ME))

    @property
    def registry(self) -> InProcessTaskRegistry:
        """Now this one, now that one."""
        self.registries.reverse()
        return self.registries[0]

    @property
    def spawned(self) -> list[str]:
        """The tasks that were published, in that order."""
        return [body["TaskID"] for what, body in self.published() if what is EventType.TASK_SPAWNED]

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
    @rule(index=st.integers(0, 20), verbs=st.lists(st.sampled_from(ENDS), min_size=2, max_size=3))
    def race(self, index: int, verbs: list[str]) -> None:
        """Several end one task, all of which have read it before the first of them has."""
        self.gate.script.clear()
        for verb in verbs:
            self.gate.script.append("held")
            self.move(index, verb, [])

    @precondition(lambda self: self.group_ids)
    @rule(index=st.integers(0, 5), verbs=st.lists(st.sampled_from(GROUP_VERBS), min_size=2, max_size=3))
    def race_for_a_group(self, index: int, verbs: list[str]) -> None:
        """The same with one group."""
        self.gate.script.clear()
        for verb in verbs:
            self.gate.script.append("held")
            self.end_group(index, verb, [])

    @precondition(lambda self: self.spawned)
    @rule(index=st.integers(0, 20), priority=st.integers(0, 2), fates=FATES)
    def prioritize(self, index: int, priority: int, fates: list[str]) -> None:
        """Another priority, and a tool call in between."""
        self.gate.script.extend(fates)
        task_id = self.a_task(index)
        assert task_id is not None
        self.start(self.registry.prioritize(task_id, priority, who=ME))
        self.start(self.count(task_id))

    async def count(self, task_id: str) -> None:
        await self.registry.increment_tool_count(task_id, who=ME)
        self.tool_calls[task_id] += 1

    @precondition(lambda self: self.spawned)
    @rule(index=st.integers(0, 20))
    def wait(self, index: int) -> None:
        """A caller waits for a task."""
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
    @rule(index=st.integers(0, 5), verb=st.sampled_from(GROUP_VERBS), fates=FATES)
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
        """A caller watches a group."""
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
        published: dict[str, list[TaskStatus]] = defaultdict(lambda: [TaskStatus.PENDING])
        for what, body in self.published():
            if what in MOVED_TO:
                published[body["TaskID"]].append(MOVED_TO[what])
        for task_id in self.spawned:
            path = published[task_id]
            assert all(after in ALLOWED[before] for before, after in pairwise(path)), path
            assert self.rows()[task_id].status == path[-1]

    @invariant()
    def each_spawn_is_published_once(self) -> None:
        """Exactly the tasks that are kept were published, in that order; one for each key."""
        assert self.spawned == list(self.rows())
        keyed = [row.key for row in self.rows().values() if row.key]
        assert len(keyed) == len(set(keyed))

    @invariant()
    def groups_end_once(self) -> None:
        """A group has at most one terminal event, and who watches it gets no other end."""
        ended = self.ends()
        assert len(ended) == len({group_id for group_id, _ in ended})
        for group_id, watches in self.watches.items():
            for got in (watch.peek() for watch in watches):
                assert got is None or got.final_status is dict(ended)[group_id]

    def teardown(self) -> None:
        """At rest nothing is owed: groups that must have ended have, and all who waited for them know."""
        try:
            if hasattr(self, "registries"):
                self.come_to_rest()
                self.check_rest()
                for one in (*self.registries, *self.buses):
                    self.run(one.aclose())
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
        for group_id in self.known_groups():
            # What a caller owed that was cut short, whoever looks over the store does.
            self.run(self.registry.settle_group(group_id, who=SESSION))
        self.turn()
        self.tasks_follow_the_table()
        self.each_spawn_is_published_once()
        self.groups_end_once()

    def check_rest(self) -> None:
        tasks = {task.id: task for task in self.run(self.registry.read(SESSION))}
        for group_id in self.known_groups():
            group = self.run(self.registry.group(group_id, who=ME))
            members = [tasks[task_id] for task_id in group.members]
            failed = group.fail_fast and any(task.status is TaskStatus.FAILED for task in members)
            done = bool(members) and all(task.status.is_terminal for task in members)
            assert group.status.is_terminal or not (failed and done)
            assert not (group.status is GroupStatus.SEALED and done)
            if group.status is GroupStatus.CANCELLED and group.reason != "leave":
                assert all(task.status.is_terminal for task in members)
            assert {watch.is_closed for watch in self.watches[group_id]} <= {group.status.is_terminal}
        for task_id, wait in self.waits:
            if tasks[task_id].status.is_terminal:
                assert wait.done()
        for task in tasks.values():
            assert task.tool_count == self.tool_calls[task.id]

    # Means

    def published(self) -> list[tuple[EventType, dict[str, Any]]]:
        return self.store.published

    def rows(self) -> dict[str, RunRow]:
        return {run_id: held.row for run_id, held in self.store._tables.runs.items()}

    def ends(self) -> list[tuple[str, GroupStatus]]:
        return [
            (body["Completion"]["GroupID"], GROUP_ENDS[what]) for what, body in self.published() if what in GROUP_ENDS
        ]

    def known_groups(self) -> list[str]:
        return [body["GroupID"] for what, body in self.published() if what is EventType.TASK_GROUP_CREATED]

    def a_task(self, index: int | None) -> str | None:
        return None if index is None or not self.spawned else self.spawned[index % len(self.spawned)]

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
            for _ in range(80):
                await asyncio.sleep(0)

        self.run(turns())
        for caller in self.callers:
            if caller.done() and not caller.cancelled() and caller.exception() is not None:
                raise AssertionError("a caller met an unexpected error") from caller.exception()


Interleavings.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestInterleavings = Interleavings.TestCase
