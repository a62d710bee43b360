"""What a step leaves behind in the task that executes the run, and what it raises that is no error to Python."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from harborage.concurrency import Crew
from harborage.identity import Quadruple
from harborage.planner import JoinKind, JoinSpec
from harborage.runtime.durable.engine import StepCrashedError, StrayCancellationError
from harborage.runtime.durable.journal import Begun, raw
from harborage.runtime.durable.mailbox import Mailbox
from harborage.runtime.durable.recorder import Recorder
from harborage.runtime.durable.steps import Act, EffectTable, StepCall
from harborage.runtime.loop.joins import Cancelled
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import InboxRegistry
from harborage.testing.clock import FakeClock, settle
from tests.kit.records import ListRecord

pytestmark = pytest.mark.anyio

Run = Callable[[StepCall], Awaitable[Any]]
Open = Callable[..., Recorder]


class Halt(BaseException):
    """What pytest's own outcomes are: no Exception."""


@pytest.fixture
async def crew() -> AsyncIterator[Crew]:
    crew = Crew(lambda name, error: None)
    yield crew
    await crew.aclose()


@pytest.fixture
def opened(crew: Crew) -> Open:
    """Makes a recorder whose one effect is `act`."""

    def make(act: Run, cut: Callable[[StepCall], None] | None = None, **options: Any) -> Recorder:
        clock = FakeClock()
        inbox = InboxRegistry(clock=clock).open(Quadruple("t", "u", "s", "r"))
        mailbox = Mailbox(inbox, Coordinator(clock=clock), crew, clock=clock)
        table = EffectTable({"act": Act(run=act, cut=cut, is_intended=False)})
        return Recorder("r", table, ListRecord(), mailbox, clock=clock, crew=crew, **options)

    return make


async def leave_a_request(call: StepCall) -> str:
    """What Python 3.11's TaskGroup does: ask the own task to stop, and forget about it."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        if call.payload == "raise":
            raise ValueError("a member failed") from None
    return "done"


async def stop_myself(_: StepCall) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


def asked() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def test_a_request_to_stop_that_a_step_leaves_open_is_taken_back(opened: Open) -> None:
    """A tool whose TaskGroup failed does not end the run's next step, whether the tool returned or raised."""
    io = opened(leave_a_request)
    assert await io.step("act", "return") == "done"
    assert asked() == 0
    with pytest.raises(ValueError, match="member"):
        await io.step("act", "raise")
    assert asked() == 0


async def test_a_step_that_stops_its_own_task_fails_where_only_the_host_may_stop_it(opened: Open) -> None:
    """A run cannot vanish because of what it called: the step fails, and the task goes on."""
    io = opened(stop_myself, is_stopping=lambda: False)
    with pytest.raises(StrayCancellationError):
        await io.step("act", None)
    assert asked() == 0


@pytest.mark.parametrize("options", [{}, {"is_stopping": lambda: True}])
async def test_a_run_that_is_asked_to_stop_stops(opened: Open, options: dict[str, Any]) -> None:
    """A cancellation by the host passes through; so does any, where the host does not say which are its own."""

    async def wait(_: StepCall) -> None:
        await asyncio.get_running_loop().create_future()

    io = opened(wait, **options)
    task = asyncio.create_task(io.step("act", None))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_branch_that_its_siblings_cut_short_is_cancelled(opened: Open) -> None:
    """A losing branch counts as cancelled, not as one that stopped itself."""

    async def act(call: StepCall) -> str:
        if call.payload == "wait":
            await asyncio.get_running_loop().create_future()
        return "first"

    io = opened(act, is_stopping=lambda: False)
    race = [lambda branch: branch.step("act", "wait"), lambda branch: branch.step("act", "win")]
    lost, _ = await io.gather(race, JoinSpec(JoinKind.FIRST_SUCCESS))
    assert lost == Cancelled()


async def test_what_python_does_not_count_as_an_error_fails_the_step(opened: Open) -> None:
    """A bare BaseException fails the step by name, so that the worker that executes the run hears of it."""

    async def halt(_: StepCall) -> None:
        raise Halt("enough")

    with pytest.raises(StepCrashedError, match="'act' raised Halt: enough") as caught:
        await opened(halt).step("act", None)
    assert isinstance(caught.value.__cause__, Halt)


async def test_a_step_begun_where_the_run_was_carried_before_was_cut_short_there(opened: Open) -> None:
    """That is reported before it begins again, since a sibling may cut it short before it comes to anything here."""
    reported: list[str] = []

    async def act(call: StepCall) -> str:
        reported.append("again")
        return "done"

    def cut(call: StepCall) -> None:
        reported.append(f"cut at {call.position}")

    begun = Begun(at=FakeClock().now(), position="1", name="act", key="r/1", payload=raw(None))
    assert await opened(act, cut, past=[begun]).step("act", None) == "done"
    assert reported == ["cut at 1", "again"]
