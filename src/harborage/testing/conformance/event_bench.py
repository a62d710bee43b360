"""What the scenarios for event buses share: a place where buses are opened, short helpers, and a fake clock.

Part of the suite in `events`; a driver's author needs only `BusParts` and `OpenPlace`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from harborage.events import (
    BusConfig,
    Cursor,
    Event,
    EventBus,
    EventType,
    Filter,
    LLMCompletionChunkPayload,
    Redactor,
    RuntimeErrorPayload,
    Subscription,
    TaskPausedPayload,
)
from harborage.identity import Quadruple
from harborage.testing.clock import FakeClock

ME = Quadruple("tenant", "user", "session", "run")
OTHERS = (
    Quadruple("other", "user", "session", "run"),
    Quadruple("tenant", "other", "session", "run"),
    Quadruple("tenant", "user", "other", "run"),
)
MINE = Filter.of(ME.identity)


class BusParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that a bus is opened with."""

    redactor: Redactor | None
    config: BusConfig
    clock: FakeClock


OpenBus: TypeAlias = Callable[[BusParts], Awaitable[EventBus]]
OpenPlace: TypeAlias = Callable[[], Awaitable[OpenBus]]
"""Makes an empty place, from which buses are opened; a durable bus is opened several times from one place."""


def an_event(name: str = "", who: Quadruple = ME, **fields: Any) -> Event:
    """Return an event that carries a name."""
    return Event(EventType.TASK_PAUSED, who, TaskPausedPayload(name), **fields)


def an_error(fields: dict[str, Any], who: Quadruple = ME) -> Event:
    """Return an event whose payload must be redacted."""
    return Event(EventType.RUNTIME_ERROR, who, RuntimeErrorPayload("failed", fields))


def a_chunk(text: str = "", who: Quadruple = ME) -> Event:
    """Return a piece of a streamed answer."""
    payload = LLMCompletionChunkPayload(identity=who, delta=text, occurred_at=datetime(2026, 1, 1, tzinfo=UTC))
    return Event(EventType.LLM_COMPLETION_CHUNK, who, payload)


def names(events: list[Event]) -> list[str]:
    """Return the names that these events carry, in typed or plain payloads."""
    return [name for event in events if (name := _name(event)) is not None]


def _name(event: Event) -> str | None:
    if event.type != EventType.TASK_PAUSED:
        return None
    data = getattr(event.payload, "data", None)
    return str(data["TaskID"]) if isinstance(data, dict) else str(getattr(event.payload, "task_id", ""))


class EventBench:
    """One place, the buses that were opened there, and their clock."""

    def __init__(self, open_bus: OpenBus) -> None:
        self._open_bus = open_bus
        self._opened: list[EventBus] = []
        self.clock = FakeClock()

    async def open(self, *, redactor: Redactor | None = None, **bounds: Any) -> EventBus:
        """Open a bus on this place, with these bounds; it is closed with the bench."""
        bus = await self._open_bus(BusParts(redactor=redactor, config=BusConfig(**bounds), clock=self.clock))
        self._opened.append(bus)
        return bus

    async def aclose(self) -> None:
        """Close every bus that was opened."""
        for bus in self._opened:
            await bus.aclose()

    @staticmethod
    async def drain(bus: EventBus, subscription: Subscription) -> list[Event]:
        """Wait until all published events are delivered, and return those of a subscription."""
        for who in (ME, *OTHERS):
            await bus.replay(Cursor(), Filter.of(who.identity))
        return subscription.drain()
