"""The seam over a journal: what is noted when, what is answered from the record, and what does not fit it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from harborage.concurrency import Crew
from harborage.errors import NotFoundError
from harborage.identity import Quadruple
from harborage.planner import JoinKind, JoinSpec
from harborage.runtime.durable.engine import (
    HistoryMismatchError,
    RecordedFailureError,
    RolloverError,
    StrayCancellationError,
)
from harborage.runtime.durable.journal import Begun, Cut, Done, Entry, Failed, Joined
from harborage.runtime.durable.mailbox import Mailbox
from harborage.runtime.durable.recorder import Recorder
from harborage.runtime.durable.steps import Act, Change, Effect, EffectTable, Note, Recovery, StepCall
from harborage.runtime.loop.arrivals import Interrupt, StepInterruptedError
from harborage.runtime.loop.joins import Cancelled
from harborage.runtime.loop.joins import Done as BranchDone
from harborage.runtime.loop.joins import Failed as BranchFailed
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import ControlEvent, ControlType, InboxRegistry, Scope
from harborage.testing.clock import FakeClock, settle
from tests.kit.records import ListRecord

pytestmark = pytest.mark.anyio

RUN = Quadruple("t", "u", "s", "r")
ALL = JoinSpec(JoinKind.ALL)
Open = Callable[..., Recorder]


class Point(msgspec.Struct, frozen=True):
    x: int


class PickyRecord(ListRecord):
    """Refuses a given number of commits, and can hold one."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 0
        self.waits: asyncio.Event | None = None

    async def append(self, run_id: str, entries: Sequence[bytes]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise OSError("busy")
        if self.waits is not None:
            wait, self.waits = self.waits, None
            await wait.wait()
        await super().append(run_id, entries)


@pytest.fixture
async def crew() -> AsyncIterator[Crew]:
    crew = Crew(lambda name, error: None)
    yield crew
    await crew.aclose()


@pytest.fixture
def record() -> PickyRecord:
    return PickyRecord()


@pytest.fixture
def opened(record: PickyRecord, crew: Crew) -> Open:
    """Makes a recorder with these effects over what the journal holds; options replace its parts."""

    def make(effects: dict[str, Effect], past: Sequence[Entry] = (), **options: Any) -> Recorder:
        clock = FakeClock()
        inbox = InboxRegistry(clock=clock).open(RUN)
        mailbox = Mailbox(inbox, Coordinator(clock=clock), crew, clock=clock)
        parts = {"record": record, "mailbox": mailbox, "past": past, "clock": clock, "crew": crew, **options}
        return Recorder("r", EffectTable(effects), **parts)

    return make


def hard_cancel(io: Recorder) -> None:
    io.mailbox._inbox.enqueue(ControlEvent(ControlType.CANCEL, RUN, Scope.ADMIN, "t", {"hard": True}))


async def echo(call: StepCall) -> Any:
    return call.payload


def never(call: StepCall) -> bool:
    return False


async def boom(call: StepCall) -> Any:
    raise KeyError("boom \ud800")


async def stop(call: StepCall) -> Any:
    await asyncio.get_running_loop().create_future()


async def test_an_intent_is_kept_before_the_effect_begins(opened: Open, record: PickyRecord) -> None:
    """What the effect of an intended step sees in the journal is its own beginning, key and payload included."""
    seen: list[Entry] = []

    async def look(call: StepCall) -> str:
        seen.extend(record.entries())
        return "done"

    io = opened({"look": Change(run=look), "plain": Note(run=echo)})
    assert await io.step("plain", 0) == 0
    assert await io.step("look", {"a": 1}) == "done"
    plain, begun = seen
    assert isinstance(plain, Done)
    assert isinstance(begun, Begun)
    assert (begun.position, begun.name, begun.key, bytes(begun.payload)) == ("2", "look", "r/2", b'{"a":1}')
    assert [type(entry) for entry in record.entries()] == [Done, Begun, Done]


async def test_what_follows_a_step_runs_once_the_step_is_kept_and_never_again(
    opened: Open, record: PickyRecord
) -> None:
    """The hook finds the outcome in the journal; a resumed run gets the answer without it."""
    hooked: list[int] = []

    async def after(call: StepCall, result: Any) -> None:
        hooked.append(len(record.entries()))

    effects = {"one": Act(run=echo, after=after, is_intended=False, may_repeat=never)}
    assert await opened(effects).step("one", 1) == 1
    assert hooked == [1]
    assert await opened(effects, record.entries()).step("one", 1) == 1
    assert hooked == [1]


async def test_a_recorded_answer_reaches_the_process_that_uses_it(opened: Open, record: PickyRecord) -> None:
    """Once, with the step and what was recorded; a live answer is not."""
    received: list[Any] = []
    effects = {"one": Change(run=echo, recalled=lambda call, answer: received.append((call.key, answer)))}
    assert await opened(effects).step("one", 1) == 1
    assert received == []
    assert await opened(effects, record.entries()).step("one", 1) == 1
    assert received == [("r/1", 1)]


async def test_a_hook_that_fails_leaves_the_step_recorded(opened: Open, record: PickyRecord) -> None:
    """Its error is raised; the outcome is recorded."""

    async def after(call: StepCall, result: Any) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await opened({"one": Act(run=echo, after=after, is_intended=False, may_repeat=never)}).step("one", 1)
    assert [type(entry) for entry in record.entries()] == [Done]


async def test_without_a_journal_it_only_acts(opened: Open) -> None:
    """Nothing is encoded, so anything may be handed over and come back, and errors are themselves."""
    thing = object()
    io = opened({"echo": Change(run=echo), "boom": Note(run=boom)}, record=None)
    assert await io.step("echo", thing) is thing
    with pytest.raises(KeyError):
        await io.step("boom", None)
    assert [type(one) for one in await io.gather([partial(_step, "echo", thing)], ALL)] == [BranchDone]


async def _step(name: str, payload: Any, io: Any) -> Any:
    return await io.step(name, payload)


async def test_a_result_comes_back_as_its_type(opened: Open, record: PickyRecord) -> None:
    """The registered type reads the record; without one it is plain data."""
    io = opened({"typed": Note(run=echo, result=Point), "plain": Note(run=echo)})
    for name in ("typed", "plain"):
        assert await io.step(name, Point(3)) == Point(3)
    await io.flush()
    again = opened({"typed": Note(run=echo, result=Point), "plain": Note(run=echo)}, record.entries())
    assert [await again.step(name, Point(3)) for name in ("typed", "plain")] == [Point(3), {"x": 3}]


async def test_a_failure_is_kept_with_its_class_and_text(opened: Open, record: PickyRecord) -> None:
    """Text that JSON cannot hold is escaped; a resumed run gets the class by name."""
    io = opened({"boom": Note(run=boom)})
    with pytest.raises(KeyError):
        await io.step("boom", None)
    await io.flush()
    (failed,) = record.entries()
    assert isinstance(failed, Failed)
    assert (failed.error, failed.message) == ("KeyError", "'boom \\ud800'")
    with pytest.raises(RecordedFailureError, match="step 'boom' failed: KeyError") as caught:
        await opened({"boom": Note(run=boom)}, [failed]).step("boom", None)
    assert (caught.value.name, caught.value.error) == ("boom", "KeyError")


async def test_an_unknown_effect_is_named(opened: Open, record: PickyRecord) -> None:
    """With those that are known, and before anything is noted."""
    io = opened({"one": Note(run=echo), "tool.": Note(run=echo)})
    with pytest.raises(NotFoundError, match=r"no effect 'two'.*one, tool\."):
        await io.step("two", None)
    await io.flush()
    assert record.entries() == []


async def test_an_interrupted_step_without_a_recovery_is_retried(opened: Open, record: PickyRecord) -> None:
    """A step that asks, but has nothing to say for `unknown`, is run again."""
    io = opened({"one": Act(run=stop)})
    cut = asyncio.create_task(io.step("one", 1))
    await settle()
    cut.cancel()
    await asyncio.wait({cut})
    again = Act(run=echo, recover=lambda _: Recovery.UNKNOWN)
    assert await opened({"one": again}, record.entries()).step("one", 1) == 1


async def test_an_interrupted_step_is_noted_as_cut(opened: Open, record: PickyRecord) -> None:
    """In flight or not yet begun; what is not interruptible goes on."""
    io = opened({"stop": Note(run=stop, is_interruptible=True), "echo": Note(run=echo)})
    asyncio.get_running_loop().call_soon(hard_cancel, io)
    for _ in range(2):
        with pytest.raises(StepInterruptedError, match="step 'stop' interrupted: hard_cancel"):
            await io.step("stop", None)
    assert await io.step("echo", 1) == 1
    await io.flush()
    assert [type(entry) for entry in record.entries()] == [Cut, Cut, Done]
    assert io.mailbox._flights == []


async def test_a_step_that_cancels_its_own_run_is_not_hit_behind_its_back(opened: Open) -> None:
    """The effect ends well if it does not wait any more; the next interruptible step does not begin."""

    async def suicide(call: StepCall) -> str:
        hard_cancel(io)
        return "said so"

    io = opened({"suicide": Note(run=suicide, is_interruptible=True), "stop": Note(run=stop, is_interruptible=True)})
    assert await io.step("suicide", None) == "said so"
    await settle()
    with pytest.raises(StepInterruptedError) as caught:
        await io.step("stop", None)
    assert caught.value.reason is Interrupt.HARD_CANCEL


async def test_what_nothing_interrupts_is_not_hit_by_what_the_step_before_asked_for(opened: Open) -> None:
    """A step cancels its own run and ends at once; the end of the task, which follows and waits, is taken."""

    async def suicide(call: StepCall) -> str:
        hard_cancel(io)
        return "said so"

    async def rest(call: StepCall) -> str:
        await settle()
        return "rested"

    io = opened({"suicide": Note(run=suicide, is_interruptible=True), "rest": Note(run=rest)})
    assert await io.step("suicide", None) == "said so"
    assert await io.step("rest", None) == "rested"


async def test_a_cancellation_of_the_run_itself_passes_through(opened: Open, record: PickyRecord) -> None:
    """It is neither a failure nor an interruption: the record does not change."""
    io = opened({"stop": Note(run=stop, is_interruptible=True)})
    task = asyncio.create_task(io.step("stop", None))
    await settle()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    await io.flush()
    assert record.entries() == []


async def test_a_cancellation_from_elsewhere_is_a_failure(opened: Open, record: PickyRecord) -> None:
    """The task that the effect awaited was cancelled, not the run."""
    victim: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    victim.cancel()

    async def await_victim(call: StepCall) -> None:
        await victim

    for is_interruptible in (False, True):
        io = opened({"one": Note(run=await_victim, is_interruptible=is_interruptible)})
        with pytest.raises(StrayCancellationError, match="'one' awaited something") as caught:
            await io.step("one", None)
        assert isinstance(caught.value.__cause__, asyncio.CancelledError)
        await io.flush()
    assert [type(entry) for entry in record.entries()] == [Failed, Failed]


async def recorded(io: Recorder, record: PickyRecord, *names: str) -> list[Entry]:
    """The entries of a run that asked for these steps, and for a branch for each name with a slash."""
    for name in names:
        if name.startswith("/"):
            await io.gather([partial(_step, one, 1) for one in name[1:].split("/")], ALL)
        else:
            await io.step(name, 1)
    await io.flush()
    return record.entries()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (["a"], ["b"], ("'a'", "'b'", "at 1")),
        (["a"], ["/a"], ("'a'", "'joined'", "at 1")),
        (["/a"], ["a"], ("'joined'", "'a'", "at 1")),
        (["/a/b"], ["/a"], ("'2 branches'", "'1 branches'", "at 1")),
        (["/a/a"], ["/a/b"], ("'a'", "'b'", "at 1.1.1")),
        (["a", "a"], ["a", "b"], ("'a'", "'b'", "at 2")),
    ],
)
async def test_another_question_than_the_recorded_one_is_a_mismatch(
    opened: Open, record: PickyRecord, before: list[str], after: list[str], words: tuple[str, ...]
) -> None:
    """Place, record and question are named, wherever in the run they part."""
    effects = {"a": Note(run=echo), "b": Note(run=echo)}
    entries = await recorded(opened(effects), record, *before)
    with pytest.raises(HistoryMismatchError) as caught:
        await recorded(opened(effects, entries), record, *after)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert caught.value.run_id == "r"


async def test_branches_that_never_joined_are_not_taken_for_a_step(opened: Open, record: PickyRecord) -> None:
    """A process died in mid gather; code that asks for a step there parts from the record, and so does a branch that
    asks for another one."""
    effects = {"a": Change(run=echo), "b": Note(run=echo), "stop": Note(run=stop)}
    task = asyncio.create_task(recorded(opened(effects), record, "/a/stop"))
    await settle()
    task.cancel()
    await asyncio.wait({task})
    entries = record.entries()
    assert not [entry for entry in entries if isinstance(entry, Joined)]
    with pytest.raises(HistoryMismatchError, match="recorded step 'branches', the code asks for 'b'"):
        await opened(effects, entries).step("b", 1)
    with pytest.raises(HistoryMismatchError, match=r"at 1\.0\.1: recorded step 'a', the code asks for 'b'"):
        await recorded(opened(effects, entries), record, "/b/b")


async def test_a_record_of_another_shape_is_a_mismatch(opened: Open, record: PickyRecord) -> None:
    """A result that this code's type cannot read blocks the run instead of failing it."""
    entries = await recorded(opened({"a": Note(run=echo)}), record, "a")
    with pytest.raises(HistoryMismatchError, match=r"at 1: recorded step 'a \(Expected `object`.*asks for 'Point'"):
        await opened({"a": Note(run=echo, result=Point)}, entries).step("a", 1)


async def test_a_rollover_asked_for_in_a_branch_is_the_runs(opened: Open) -> None:
    """It is no outcome of the branch."""

    async def rolls(io: Any) -> None:
        await io.rollover(RunRequest(who=RUN, goal="again"))

    with pytest.raises(RolloverError) as caught:
        await opened({}).gather([rolls], ALL)
    assert caught.value.carry.goal == "again"


async def test_what_a_refused_write_held_is_written_with_the_next(opened: Open, record: PickyRecord) -> None:
    """A journal that is busy for a moment loses nothing, and keeps the order."""
    io = opened({"a": Note(run=echo), "b": Note(run=echo)})
    await io.step("a", 1)
    record.refusals = 1
    with pytest.raises(OSError, match="busy"):
        await io.flush()
    await io.step("b", 2)
    await io.flush()
    await io.flush()
    assert [getattr(entry, "name", "") for entry in record.entries()] == ["a", "b"]


async def test_a_loser_that_is_cut_while_writing_drops_no_others_entries(opened: Open, record: PickyRecord) -> None:
    """Branches share what is unsaved: the winner's outcome is in the journal though a loser was writing it."""
    released = asyncio.Event()

    async def wins(call: StepCall) -> str:
        await released.wait()
        return "won"

    async def writes(io: Any) -> None:
        await released.wait()
        record.waits = asyncio.Event()
        await io.step("stop", None)

    io = opened({"wins": Note(run=wins), "stop": Change(run=stop)})
    racing = asyncio.create_task(io.gather([partial(_step, "wins", None), writes], JoinSpec(JoinKind.FIRST_SUCCESS)))
    await settle()
    released.set()
    assert [type(one) for one in await racing] == [BranchDone, Cancelled]
    names = [getattr(entry, "name", "joined") for entry in record.entries()]
    assert names.index("wins") < names.index("joined")


async def test_branch_failures_are_outcomes(opened: Open, record: PickyRecord) -> None:
    """Live and on the way back; a branch never takes its siblings along."""
    effects = {"boom": Note(run=boom), "a": Note(run=echo)}
    for past in ([], None):
        io = opened(effects, record.entries() if past is None else past)
        outcomes = await io.gather([partial(_step, "boom", 1), partial(_step, "a", 1)], ALL)
        assert [type(one) for one in outcomes] == [BranchFailed, BranchDone]


async def test_positions_of_another_history_do_not_count(opened: Open, record: PickyRecord) -> None:
    """A straggler of the first history that wrote late is not taken for a step of the second."""
    effects = {"a": Change(run=echo), "b": Change(run=echo)}
    entries = await recorded(opened(effects), record, "a")
    second = opened(effects, entries, history=1)
    assert await second.step("b", 2) == 2
    assert [getattr(entry, "key", None) for entry in record.entries()] == ["r/1", None, "r/1~1", None]


async def test_an_intent_that_was_refused_is_not_kept_later(opened: Open, record: PickyRecord) -> None:
    """Its step never began: on record it would leave a recovery where there is none."""
    io = opened({"act": Change(run=echo), "look": Note(run=echo)})
    await io.step("look", 1)
    record.refusals = 1
    with pytest.raises(OSError, match="busy"):
        await io.step("act", 2)
    await io.flush()
    assert [getattr(entry, "name", "") for entry in record.entries()] == ["look"]
