"""A change is saved, told, then visible, and never half of it."""

from __future__ import annotations

import asyncio

import pytest

from harborage.concurrency import Crew
from harborage.events import Event, EventType, MemoryEventBus, TaskPausedPayload
from harborage.identity import Quadruple
from harborage.state import MemoryStateStore, NotFoundError, StateRecord
from harborage.tasks import Task, TaskKind
from harborage.tasks.commit import Writer, to_the_end
from harborage.tasks.records import TASK_KIND, decode_task, task_write
from harborage.testing.clock import settle
from tests.kit.conformance.task_bench import FaultyBus, PublishRefusedError

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s")
SLOT = Quadruple("t", "u", "s", "task")
OLD = Task(id="task", identity=WHO, kind=TaskKind.BACKGROUND)
NEW = Task(id="task", identity=WHO, kind=TaskKind.BACKGROUND, priority=9)
EVENT = Event(EventType.TASK_PAUSED, WHO, TaskPausedPayload("task"))


class Diary(MemoryStateStore):
    """A store that notes what happens, and fails when told to."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self.notes = notes
        self.fails: set[str] = set()

    async def save(self, record: StateRecord) -> None:
        self.notes.append("save")
        await super().save(record)
        if "save" in self.fails:
            raise OSError("disk full")

    async def delete(self, identity: Quadruple, kind: str) -> None:
        self.notes.append("delete")
        if "delete" in self.fails:
            raise OSError("disk gone")
        await super().delete(identity, kind)


class NotingBus(FaultyBus):
    """A bus that notes what is told."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(MemoryEventBus())
        self.notes = notes

    async def publish(self, event: Event) -> Event:
        self.notes.append("publish")
        return await super().publish(event)


async def test_a_change_is_saved_then_told_then_visible() -> None:
    """The order is persist, publish, apply; a change without an event is only saved and applied."""
    notes: list[str] = []
    writer = Writer(NotingBus(notes), Diary(notes))
    await writer.commit(EVENT, lambda: notes.append("apply"), lambda: task_write(NEW, None, ""))
    assert notes == ["save", "publish", "apply"]
    notes.clear()
    await writer.commit(None, lambda: notes.append("apply"), lambda: task_write(NEW, NEW, ""))
    assert notes == ["save", "apply"]


async def test_without_a_store_nothing_is_encoded() -> None:
    """The record is not even built when there is nowhere to put it."""
    notes: list[str] = []
    writer = Writer(NotingBus(notes), None)
    await writer.commit(EVENT, lambda: notes.append("apply"), lambda: pytest.fail("encoded for nobody"))
    assert notes == ["publish", "apply"]


async def test_a_refused_event_takes_the_record_back() -> None:
    """When the event does not go out the slot is as it was: the earlier record, or empty; nothing is applied."""
    notes: list[str] = []
    bus, store = NotingBus(notes), Diary(notes)
    writer = Writer(bus, store)
    bus.refuse()
    with pytest.raises(PublishRefusedError):
        await writer.commit(EVENT, lambda: notes.append("apply"), lambda: task_write(NEW, None, ""))
    with pytest.raises(NotFoundError):
        await store.load(SLOT, TASK_KIND)
    await store.save(task_write(OLD, None, "").record)
    with pytest.raises(PublishRefusedError):
        await writer.commit(EVENT, lambda: notes.append("apply"), lambda: task_write(NEW, OLD, ""))
    assert decode_task((await store.load(SLOT, TASK_KIND)).data).task == OLD
    assert "apply" not in notes


async def test_a_failed_save_tells_nobody() -> None:
    """A record that could not be saved is no change; a save that arrived all the same is taken back."""
    notes: list[str] = []
    store = Diary(notes)
    store.fails = {"save"}
    with pytest.raises(OSError, match="disk full"):
        await Writer(NotingBus(notes), store).commit(
            EVENT, lambda: notes.append("apply"), lambda: task_write(NEW, None, "")
        )
    assert notes == ["save", "delete"]


async def test_a_record_that_cannot_be_taken_back_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """When putting the slot back fails too, the first failure stands and names the record that is ahead."""
    notes: list[str] = []
    bus, store = NotingBus(notes), Diary(notes)
    bus.refuse()
    store.fails = {"delete"}
    with pytest.raises(PublishRefusedError) as caught:
        await Writer(bus, store).commit(EVENT, lambda: None, lambda: task_write(NEW, None, ""))
    [note] = caught.value.__notes__
    assert note == "the task.lifecycle record of 'task' may be ahead of the registry: disk gone"
    assert note in caplog.text


async def test_work_goes_to_the_end() -> None:
    """A cancelled caller is held until the work is done, then cancelled, however often it was asked."""
    crew = Crew(on_error=lambda name, error: None)
    gate, done = asyncio.Event(), []

    async def work() -> str:
        await gate.wait()
        done.append("done")
        return "value"

    caller = asyncio.create_task(to_the_end(crew, work()))
    for _ in range(2):
        await settle()
        caller.cancel()
    await settle()
    assert not caller.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == ["done"]
    assert await to_the_end(crew, work()) == "value"


async def test_a_failure_behind_a_cancellation_is_its_cause() -> None:
    """When held work fails, the cancellation still wins and carries the failure; without one the failure is raised."""
    crew = Crew(on_error=lambda name, error: None)
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()
        raise OSError("disk full")

    caller = asyncio.create_task(to_the_end(crew, work()))
    await settle()
    caller.cancel()
    await settle()
    gate.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await caller
    causes = []
    error: BaseException | None = caught.value
    while error is not None:
        causes.append(type(error))
        error = error.__cause__ or error.__context__
    assert OSError in causes
    with pytest.raises(OSError, match="disk full"):
        await to_the_end(crew, work())
