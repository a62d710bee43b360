"""The recorder of the test kit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from harborage.events import Event, EventType, Filter, MemoryEventBus, TaskPausedPayload
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder

pytestmark = pytest.mark.anyio

MakeEvent = Callable[..., Event]


async def test_a_recorder_has_all_published_events(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """Everything since it was made is there, again and again, but not its own audit."""
    recorder = EventRecorder(bus)
    published = [await bus.publish(make_event("a")), await bus.publish(make_event("b"))]
    assert recorder.events == recorder.events == published
    assert recorder.types == ["task.paused", "task.paused"]
    assert recorder.payloads(TaskPausedPayload) == [TaskPausedPayload("a"), TaskPausedPayload("b")]


async def test_a_recorder_sees_other_admins(bus: MemoryEventBus) -> None:
    """Only the recorder's own audit is left out."""
    recorder = EventRecorder(bus)
    bus.subscribe(Filter(admin=True))
    assert recorder.types == ["audit.admin_scope_used"]


async def test_a_recorder_waits_for_an_event(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """Waiting ends with the event asked for, also when it was there already."""
    recorder = EventRecorder(bus)
    waiting = asyncio.create_task(recorder.wait_for(EventType.TASK_PAUSED, 2))
    await settle()
    first, second = await bus.publish(make_event("a")), await bus.publish(make_event("b"))
    assert await waiting == second
    assert await recorder.wait_for("task.paused") == first


async def test_waiting_on_a_closed_bus_fails(bus: MemoryEventBus) -> None:
    """An event that can never come is reported, not waited for."""
    recorder = EventRecorder(bus)
    await bus.aclose()
    with pytest.raises(AssertionError, match=r"0 of 1 task\.paused"):
        await recorder.wait_for("task.paused")


async def test_a_recorder_can_start_anew_and_stop(bus: MemoryEventBus, make_event: MakeEvent) -> None:
    """Clearing drops the recorded events; a cancelled recorder gets no more."""
    recorder = EventRecorder(bus)
    await bus.publish(make_event())
    recorder.clear()
    assert recorder.types == []
    await bus.publish(make_event())
    recorder.cancel()
    await bus.publish(make_event())
    assert len(recorder.events) == 1


@pytest.mark.parametrize("later", [0, 2])
async def test_a_recorder_never_forgets_in_silence(
    make_bus: Callable[..., MemoryEventBus], make_event: MakeEvent, clock: FakeClock, later: int
) -> None:
    """A recorder whose queue overflowed says so when it is asked."""
    bus = make_bus(subscriber_buffer_size=2)
    recorder = EventRecorder(bus)
    for _ in range(3):
        bus.publish_nowait(make_event())
    clock.advance(later)
    bus.publish_nowait(make_event())
    with pytest.raises(AssertionError, match="subscriber_buffer_size"):
        recorder.events  # noqa: B018 - asking is what fails
