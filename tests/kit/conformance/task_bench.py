"""What the task suites share: a registry on a bus that can be told to refuse, with everything that was told recorded.

Part of the suite in `tasks`; a driver's author needs only `OpenRegistry`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from harborage.errors import HarborageError
from harborage.events import (
    BusConfig,
    Cursor,
    Event,
    EventBus,
    EventType,
    Filter,
    MemoryEventBus,
    PatternRedactor,
    Redactor,
    Subscription,
)
from harborage.identity import Identity, Quadruple
from harborage.tasks import (
    GroupRequest,
    RegistryParts,
    SpawnRequest,
    TaskFailure,
    TaskGroup,
    TaskID,
    TaskKind,
    TaskRegistry,
    TaskStatus,
)
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder

if TYPE_CHECKING:
    from harborage.state import StateStore

__all__ = ["ME", "OTHERS", "SESSION", "Bench", "FaultyBus", "OpenRegistry", "PublishRefusedError", "open_bench"]

OpenRegistry: TypeAlias = Callable[[RegistryParts], Awaitable[TaskRegistry]]

SESSION = Identity("tenant", "user", "session")
ME = SESSION.with_run("")
OTHERS = (
    Identity("other", "user", "session"),
    Identity("tenant", "other", "session"),
    Identity("tenant", "user", "other"),
)
_ROOM_FOR_ALL = BusConfig(subscriber_buffer_size=100_000)


class PublishRefusedError(HarborageError):
    """The bus was told to refuse this event."""


class FaultyBus(EventBus):
    """A bus that refuses what it is told to refuse and passes on the rest."""

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


class Bench:
    """A registry, the bus and the clock it was built on, and short words for what scenarios do all the time."""

    def __init__(self, registry: TaskRegistry, bus: FaultyBus, clock: FakeClock) -> None:
        self.registry = registry
        self.bus = bus
        self.clock = clock
        self.events = EventRecorder(bus)

    async def aclose(self) -> None:
        """Close the registry, then the bus."""
        await self.registry.aclose()
        self.events.cancel()
        await self.bus.aclose()

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
        """Where the task stands."""
        return (await self.registry.get(task_id, who=ME)).status

    async def group(self, **fields: Any) -> TaskGroup:
        """A new open group."""
        return await self.registry.resolve_or_create_group(GroupRequest(session=SESSION, **fields), who=ME)

    async def group_of(self, count: int, **fields: Any) -> tuple[TaskGroup, list[TaskID]]:
        """A new open group with `count` running members."""
        group = await self.group(**fields)
        return group, [await self.running(group_id=group.id) for _ in range(count)]

    async def group_status(self, group_id: str) -> str:
        """Where the group stands."""
        return (await self.group(id=group_id)).status

    def told(self, *types: EventType) -> list[Event]:
        """The events of these types so far."""
        return [event for event in self.events.events if event.type in types]

    def count(self, *types: EventType) -> int:
        """How many events of these types there were so far."""
        return len(self.told(*types))


async def open_bench(
    open_registry: OpenRegistry,
    *,
    redactor: Redactor | None = None,
    store: StateStore | None = None,
    clock: FakeClock | None = None,
) -> Bench:
    """A bench with a fresh registry; without a redactor of its own it gets the default one."""
    clock = FakeClock() if clock is None else clock
    bus = FaultyBus(MemoryEventBus(config=_ROOM_FOR_ALL, clock=clock))
    redactor = PatternRedactor() if redactor is None else redactor
    parts = RegistryParts(bus=bus, redactor=redactor, store=store, clock=clock)
    return Bench(await open_registry(parts), bus, clock)
