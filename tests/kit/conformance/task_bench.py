"""What the task suites share: a registry on a bus that can be made to refuse, with everything that was published
recorded.

Part of the suite in `tasks`. A `Place` is where the registries of one scenario keep their tasks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from harborage.errors import HarborageError
from harborage.events import (
    BusConfig,
    Cursor,
    DurableEventBus,
    Event,
    EventBus,
    EventType,
    Filter,
    MemoryEventBus,
    PatternRedactor,
    RecordBus,
    Redactor,
    RunBuffer,
    Subscription,
)
from harborage.identity import Identity, Quadruple
from harborage.store.memory import MemoryStore
from harborage.tasks import (
    GroupRequest,
    InProcessTaskRegistry,
    SpawnRequest,
    TaskFailure,
    TaskGroup,
    TaskID,
    TaskKind,
    TaskLimits,
    TaskStatus,
)
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder

if TYPE_CHECKING:
    from harborage.store import Committed, NewEvent, Store

OpenStore: TypeAlias = Callable[[FakeClock], Awaitable["Store"]]
OpenPlace: TypeAlias = Callable[[], Awaitable["Place"]]

SESSION = Identity("tenant", "user", "session")
ME = SESSION.with_run("")
OTHERS = (
    Identity("other", "user", "session"),
    Identity("tenant", "other", "session"),
    Identity("tenant", "user", "other"),
)
_ROOM_FOR_ALL = BusConfig(subscriber_buffer_size=100_000)
_NEVER_S = 1e9


def _memory_store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock=clock)


class PublishRefusedError(HarborageError):
    """The bus refuses this event in this test."""


class FaultyBus(EventBus):
    """A bus that refuses the chosen events and passes on the rest."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._refuses: Callable[[Event], bool] | None = None

    def refuse(self, *types: EventType) -> None:
        """Refuse events of these types, or all of them, until `accept`."""
        self._refuses = lambda event: not types or event.type in types

    def refuse_after(self, count: int) -> None:
        """Let `count` events through and refuse every later one, until `accept`."""
        left = iter(range(count))
        self._refuses = lambda event: next(left, None) is None

    def accept(self) -> None:
        """Pass everything on again."""
        self._refuses = None

    async def publish(self, event: Event) -> Event:
        self._check(event)
        return await self._bus.publish(event)

    def publish_nowait(self, event: Event) -> Event:
        self._check(event)
        return self._bus.publish_nowait(event)

    def subscribe(self, filter: Filter) -> Subscription:
        return self._bus.subscribe(filter)

    async def replay(self, cursor: Cursor, filter: Filter) -> list[Event]:
        return await self._bus.replay(cursor, filter)

    async def aclose(self) -> None:
        await self._bus.aclose()

    def _check(self, event: Event) -> None:
        if self._refuses is not None and self._refuses(event):
            raise PublishRefusedError(f"refused {event.type}")


class FaultyRecordBus(FaultyBus, RecordBus):
    """The same over a store of record: what it refuses is refused before the commit that would keep it."""

    def __init__(self, bus: RecordBus) -> None:
        super().__init__(bus)
        self._records = bus

    @property
    def store(self) -> Store:
        return self._records.store

    def add_usage(self, who: Quadruple, *, tokens: int, cost: int) -> None:
        self._records.add_usage(who, tokens=tokens, cost=cost)

    def attach_run(self, who: Quadruple, buffer: RunBuffer) -> Callable[[], None]:
        return self._records.attach_run(who, buffer)

    def write(self, events: Iterable[tuple[Event, NewEvent]]) -> None:
        self._records.write(events)

    def prepare(self, event: Event) -> tuple[Event, NewEvent]:
        self._check(event)
        return self._records.prepare(event)

    async def follow(self, filter: Filter) -> None:
        await self._records.follow(filter)

    def deliver(self, events: Sequence[Event], committed: Committed) -> None:
        self._records.deliver(events, committed)


class Place(NamedTuple):
    """Where the registries of a scenario keep their tasks; `is_recorded` when the events are kept there, too."""

    open_store: OpenStore
    is_recorded: bool = False

    def bus(self, store: Store, clock: FakeClock) -> FaultyBus:
        """A bus for one more process."""
        if self.is_recorded:
            # While a bus looks for the events of others its own wait, and scenarios count them at once.
            bus = DurableEventBus(store, config=_ROOM_FOR_ALL, clock=clock, recheck_s=_NEVER_S)
            return FaultyRecordBus(bus)
        return FaultyBus(MemoryEventBus(config=_ROOM_FOR_ALL, clock=clock))


def in_memory(make: Callable[[FakeClock], MemoryStore] = _memory_store, *, is_recorded: bool = False) -> OpenPlace:
    """Opens places in one store in memory each; `make` makes it."""

    async def open_place() -> Place:
        made: list[MemoryStore] = []

        async def open_store(clock: FakeClock) -> Store:
            if not made:
                made.append(make(clock))
            return made[0]

        return Place(open_store, is_recorded)

    return open_place


class Bench:
    """A registry, its store, its bus and its clock, and short words for what scenarios do all the time."""

    def __init__(self, registry: InProcessTaskRegistry, store: Store, bus: FaultyBus, clock: FakeClock) -> None:
        self.registry = registry
        self.store = store
        self.bus = bus
        self.clock = clock
        self.events = EventRecorder(bus)

    async def aclose(self) -> None:
        """Close the registry, then the bus and the store."""
        await self.registry.aclose()
        self.events.cancel()
        await self.bus.aclose()
        await self.store.aclose()

    @staticmethod
    def request(**fields: Any) -> SpawnRequest:
        """A request for a background task of the usual session."""
        return SpawnRequest(**{"identity": ME, "kind": TaskKind.BACKGROUND, **fields})

    async def spawn(self, who: Quadruple = ME, **fields: Any) -> TaskID:
        """A pending task's id."""
        return (await self.registry.spawn(self.request(identity=who, **fields))).id

    async def running(self, **fields: Any) -> TaskID:
        """A running task's id."""
        task_id = await self.spawn(**fields)
        await self.registry.mark_running(task_id, who=ME)
        return task_id

    async def complete(self, task_id: TaskID, result: bytes = b"") -> None:
        """Complete a task, starting it first if need be."""
        if await self.status(task_id) is TaskStatus.PENDING:
            await self.registry.mark_running(task_id, who=ME)
        await self.registry.mark_complete(task_id, result, who=ME)

    async def fail(self, task_id: TaskID, code: str = "boom", message: str = "") -> None:
        """Fail a running task."""
        await self.registry.mark_failed(task_id, TaskFailure(code, message), who=ME)

    async def status(self, task_id: TaskID) -> TaskStatus:
        """The task's status."""
        return (await self.registry.get(task_id, who=ME)).status

    async def group(self, **fields: Any) -> TaskGroup:
        """A new open group."""
        return await self.registry.resolve_or_create_group(GroupRequest(session=SESSION, **fields), who=ME)

    async def group_of(self, count: int, **fields: Any) -> tuple[TaskGroup, list[TaskID]]:
        """A new open group with `count` running members."""
        group = await self.group(**fields)
        return group, [await self.running(group_id=group.id) for _ in range(count)]

    async def group_status(self, group_id: str) -> str:
        """The group's status."""
        return (await self.group(id=group_id)).status

    def published(self, *types: EventType) -> list[Event]:
        """The events of these types so far."""
        return [event for event in self.events.events if event.type in types]

    def count(self, *types: EventType) -> int:
        """How many events of these types there were so far."""
        return len(self.published(*types))


async def open_bench(
    place: Place,
    *,
    redactor: Redactor | None = None,
    clock: FakeClock | None = None,
    limits: TaskLimits = TaskLimits(),  # noqa: B008 - a frozen value
) -> Bench:
    """A bench with a fresh registry; without a redactor of its own it gets the default one."""
    clock = FakeClock() if clock is None else clock
    store = await place.open_store(clock)
    bus = place.bus(store, clock)
    redactor = PatternRedactor() if redactor is None else redactor
    registry = InProcessTaskRegistry(bus=bus, redactor=redactor, store=store, clock=clock, limits=limits)
    return Bench(registry, store, bus, clock)
