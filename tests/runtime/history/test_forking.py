"""A fork begins with another run's steps, decides the next one anew, and leaves the other run as it is."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from harborage.identity import Identity
from harborage.llm import CompleteRequest, CompleteResponse
from harborage.planner import (
    CallTool,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.history import CallStatus, ForkError, build_history, compare, fork_at, read_run
from harborage.runtime.history.reading import open_record
from harborage.runtime.host import Runtime
from harborage.runtime.loop.arrivals import Arrivals
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.loop.limits import Limits
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.loop.state import Planned, Steered
from harborage.runtime.run import Run
from harborage.state.storage import Storage, open_storage
from harborage.tasks import TaskStatus
from harborage.testing.clock import settle
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import SideEffect, tool
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
NOW = datetime(2026, 1, 2, tzinfo=UTC)
DONE = Finish(FinishReason.GOAL, "ok")


class Hands:
    """Tools that count what they do."""

    def __init__(self) -> None:
        self.done: list[Any] = []

        @tool(effects=SideEffect.READ)
        async def look(at: int) -> int:
            """Look."""
            self.done.append(at)
            return at

        @tool(effects=SideEffect.WRITE)
        async def write(text: str) -> str:
            """Write."""
            self.done.append(text)
            return "written"

        @tool(effects=SideEffect.EXTERNAL)
        async def post(text: str) -> str:
            """Post."""
            self.done.append(text)
            return "posted"

        self.tools = [look, write, post]


class Model:
    """Looks three times, two of them at once, writes, and answers; in a fork it continues from the fork's step."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        made = sum(len(message.tool_calls) for message in request.messages)
        text = "\n".join(message.content.text or "" for message in request.messages)
        if "Stop now" in text:
            return says("stopped")
        match made:
            case 0:
                return calls_tools(("look", {"at": 1}))
            case 1:
                return calls_tools(("look", {"at": 2}), ("look", {"at": 3}))
            case 3:
                return calls_tools(("write", {"text": "w"}))
            case _:
                return says("done")

    async def close(self) -> None: ...


@pytest.fixture(params=["none", "memory:"])
async def storage(request: pytest.FixtureRequest) -> AsyncIterator[Storage | None]:
    """Runs in memory, and over a storage."""
    if request.param == "none":
        yield None
        return
    async with await open_storage(request.param) as opened:
        yield opened


def digest(record: list[bytes]) -> str:
    return hashlib.sha256(b"\n".join(record)).hexdigest()


async def test_a_run_is_forked_at_each_of_its_steps(storage: Storage | None) -> None:
    """What came before is served from the record; the rest happens anew, without effects; the parent stays, byte for
    byte; and the fork is a run like any other, that replays."""
    hands = Hands()
    async with Runtime(model=Model(), tools=hands.tools, storage=storage) as runtime:
        parent = await runtime.start("the goal", who=ME)
        assert (await parent.finished()).payload == "done"
        record = await parent.history()
        before = digest(record)
        assert hands.done == [1, 2, 3, "w"]
        for at, again in ((1, [1, 2, 3]), (2, [2, 3]), (3, []), (4, [])):
            hands.done.clear()
            fork = await runtime.fork(parent.id, at=at, who=ME)
            assert (await fork.finished()).payload == "done"
            assert hands.done == again
            history = build_history(await fork.history())
            assert [step.decision for step in history.steps] == [step.decision for step in build_history(record).steps]
            written = history.steps[2].calls[0].status
            assert written is (CallStatus.DONE if at == 4 else CallStatus.HELD_BACK)
            assert (history.request.forked_from, history.request.forked_at) == (parent.id, at)
            assert (await runtime.replay(await fork.history())).is_same
            assert digest(await parent.history()) == before
            assert (compare(build_history(record), history) == "") is (at == 4)
            assert (await runtime.tasks.get(fork.id, who=ME)).status is TaskStatus.COMPLETE


async def test_a_live_fork_acts() -> None:
    """Calls that have effects are made, once."""
    hands = Hands()
    async with Runtime(model=Model(), tools=hands.tools) as runtime:
        parent = await runtime.start("the goal", who=ME)
        await parent.finished()
        hands.done.clear()
        fork = await runtime.fork(parent.id, at=3, who=ME, live=True)
        await fork.finished()
        assert hands.done == ["w"]


@each_row("at", [1, 2, 3, 4])
async def test_a_fork_may_have_another_goal(at: int) -> None:
    """From its first own step on; in its replay the earlier steps keep the goal that they had."""
    async with Runtime(model=Model(), tools=Hands().tools) as runtime:
        parent = await runtime.start("the goal", who=ME)
        await parent.finished()
        fork = await runtime.fork(parent.id, at=at, who=ME, goal="Stop now")
        assert (await fork.finished()).payload == "stopped"
        record = await fork.history()
        assert len(build_history(record).steps) == at
        replayed = await runtime.replay(record)
        assert replayed.is_same, str(replayed.difference)


async def test_a_fork_can_be_forked() -> None:
    """Its own record is as good as any."""
    async with Runtime(model=Model(), tools=Hands().tools) as runtime:
        parent = await runtime.start("the goal", who=ME)
        await parent.finished()
        child = await runtime.fork(parent.id, at=3, who=ME, goal="Stop now")
        await child.finished()
        grandchild = await runtime.fork(child.id, at=2, who=ME)
        assert (await grandchild.finished()).payload == "done"
        assert (await runtime.replay(await grandchild.history())).is_same
        again = await runtime.fork(child.id, at=3, who=ME)
        assert (await again.finished()).payload == "stopped"
        assert (await runtime.replay(await again.history())).is_same


async def test_another_model_may_go_on() -> None:
    """The steps before are the first model's, the rest is the second's."""
    async with await open_storage("memory:") as storage:
        async with Runtime(model=Model(), tools=Hands().tools, storage=storage) as first:
            parent = await first.start("the goal", who=ME)
            await parent.finished()
        other = ScriptedLLM([says("mine")])
        async with Runtime(model=other, tools=Hands().tools, storage=storage) as second:
            fork = await second.fork(parent.id, at=3, who=ME)
            assert (await fork.finished()).payload == "mine"
            assert (await second.replay(await read_run(storage.store, fork.id))).is_same
    assert len(other.requests[0].messages) == 7


class Steps:
    """A planner of one's own: it decides by how many steps there are."""

    def __init__(self, *decisions: Any) -> None:
        self.decisions = decisions

    async def next(self, run: RunContext) -> Any:
        assert run.trajectory is not None
        pauses = sum(one.kind == "resumed" for one in run.trajectory.steering_inputs)
        return self.decisions[len(run.trajectory.steps) + pauses]


async def approve(run: Run) -> None:
    """Say yes to what the run waits for, and see that it goes on."""
    async with asyncio.timeout(10):
        while not (found := await run.waiting()):
            await settle()
        await run.approve(found[0].token)
        while found[0].token in [pause.token for pause in await run.waiting()]:
            await settle()


async def test_answers_of_people_are_taken_over() -> None:
    """A pause before the fork was settled then and does not ask again; an approved call is not asked about again."""
    hands = Hands()
    planner = Steps(
        RequestPause(PauseReason.AWAIT_INPUT), CallTool("write", b'{"text":"w"}'), CallTool("look", b'{"at":1}'), DONE
    )
    async with Runtime(planner=planner, tools=hands.tools, approvals={"write": AlwaysDeny()}) as runtime:
        parent = await runtime.start("g", who=ME)
        await approve(parent)
        await approve(parent)
        await parent.finished()
        hands.done.clear()
        fork = await runtime.fork(parent.id, at=3, who=ME)
        assert await fork.finished() == DONE
        assert hands.done == [1]
        assert (await runtime.replay(await fork.history())).is_same


async def test_no_approval_is_requested_for_what_a_rehearsal_may_not_do() -> None:
    """A gated call that has effects is refused before anybody is asked."""
    planner = Steps(CallTool("look", b'{"at":1}'), CallTool("write", b'{"text":"w"}'), DONE)
    async with Runtime(planner=planner, tools=Hands().tools, approvals={"write": AlwaysDeny()}) as runtime:
        parent = await runtime.start("g", who=ME)
        await approve(parent)
        await parent.finished()
        fork = await runtime.fork(parent.id, at=2, who=ME)
        assert await fork.finished() == DONE
        call = build_history(await fork.history()).steps[1].calls[0]
        assert "this run is a rehearsal, and the tool has effects (write)" in call.refusal


async def test_a_rehearsal_spawns_no_task() -> None:
    """A task would be a run of its own, and no rehearsal."""
    planner = Steps(SpawnTask(spec=SpawnSpec(query="child")), CallTool("post", b'{"text":"p"}'), DONE)
    hands = Hands()
    async with Runtime(planner=planner, tools=hands.tools) as runtime:
        parent = await runtime.start("g", who=ME)
        # The child follows the same steps and spawns another, until the depth ends it.
        await parent.finished()
        hands.done.clear()
        fork = await runtime.fork(parent.id, at=1, who=ME)
        await fork.finished()
        history = build_history(await fork.history())
        assert "rehearsal" in history.children[0].error
        assert history.steps[1].calls[0].status is CallStatus.HELD_BACK
        assert hands.done == []


@each_row("at", [0, -1, 3, 99])
async def test_a_step_that_is_not_there_cannot_be_forked(at: int) -> None:
    """The error says which ones there are."""
    planner = ScriptedPlanner([CallTool("look", b'{"at":1}'), DONE])
    async with Runtime(planner=planner, tools=Hands().tools) as runtime:
        parent = await runtime.start("g", who=ME)
        await parent.finished()
        with pytest.raises(ForkError, match=rf"run {parent.id} has no recorded step {at}; fork it at 1 to 2"):
            await runtime.fork(parent.id, at=at, who=ME)


async def test_another_owners_run_cannot_be_forked() -> None:
    """It is not there."""
    async with Runtime(planner=ScriptedPlanner([DONE])) as runtime:
        parent = await runtime.start("g", who=ME)
        await parent.finished()
        with pytest.raises(RunNotFoundError):
            await runtime.fork(parent.id, at=1, who=Identity("t", "other", "s"))


def control(type: ControlType, payload: dict[str, Any] | None = None) -> ControlEvent:
    return ControlEvent(type, ME.with_run("run-1"), Scope.ADMIN, "t", payload)


def test_a_goal_joins_the_controls_that_came_then(writing: Any) -> None:
    """A boundary where controls arrived has one more; what they did is kept."""
    say = control(ControlType.USER_MESSAGE, {"message": "hi"})
    record = writing().done("2", "plan", Planned(decision=CallTool("a")))
    record.done("3", "tool.a", ToolOutcome(OutcomeStatus.DONE, 1)).arrived("4", Arrivals(controls=(say,)))
    record.done("5", "steer", [Steered(control=say)]).done("6", "plan", Planned(decision=DONE)).ended(DONE)
    fork = fork_at(record.record, 2, now=NOW, goal="other")
    history = build_history([record.record[0], *fork.seed])
    assert [one.type for one in history.controls] == [ControlType.USER_MESSAGE, ControlType.REDIRECT]
    assert [one.error for one in history.controls] == ["", ""]
    assert len(history.steps) == 1


def test_what_was_recorded_after_the_fork_is_left_behind(writing: Any) -> None:
    """The beginning of the task is the parent's; code changes count only if the run met them before."""
    record = writing(deadline=NOW, max_steps=9).done("1", "task.begin", True).patched("early")
    record.done("3", "plan", Planned(decision=CallTool("a"))).done("4", "tool.a", ToolOutcome(OutcomeStatus.DONE, 1))
    record.done("6", "plan", Planned(decision=DONE)).patched("late").done("7", "task.end", None).ended(DONE)
    fork = fork_at(record.record, 2, now=NOW)
    history = build_history([record.record[0], *fork.seed])
    assert (history.patches, len(history.steps), len(fork.seed)) == (("early",), 1, 3)
    request = fork.for_run(ME.with_run("run-2"))
    assert (request.deadline, request.max_steps, request.who.run_id, request.task_id) == (None, 9, "run-2", "run-2")
    assert fork_at(record.record, 2, now=NOW, max_steps=3).request.max_steps == 3


def test_steps_before_a_rollover_cannot_be_forked(writing: Any) -> None:
    """Their history is gone; those after it can be, under the numbers that a history shows."""
    record = (
        writing()
        .done("2", "plan", Planned(decision=CallTool("a")))
        .rolled(RunRequest(who=ME.with_run("run-1"), goal="on"))
    )
    record.done("1~2", "plan", Planned(decision=CallTool("b"))).done("1~5", "plan", Planned(decision=DONE))
    with pytest.raises(ForkError, match="step 1 of run run-1 lies before its history was begun anew; fork it at 2 or"):
        fork_at(record.record, 1, now=NOW)
    fork = fork_at(record.record, 3, now=NOW)
    assert fork.request.goal == "on"
    assert [step.decision for step in build_history([record.record[0], *fork.seed]).steps] == [CallTool("b")]


def test_a_run_without_steps_cannot_be_forked(writing: Any) -> None:
    """There is nothing to decide anew."""
    with pytest.raises(ForkError, match="has no recorded step"):
        fork_at(writing().record, 1, now=NOW)


async def test_a_fork_has_the_limits_of_its_runtime_and_those_that_it_is_given() -> None:
    """It has a deadline of its own by the limit of seconds, ends at a deadline, and is held to limits set for it."""
    options = RuntimeOptions(limits=Limits(seconds=3600))
    planner = ScriptedPlanner([CallTool("look", {"at": 1}), DONE, DONE, DONE])
    async with Runtime(planner=planner, tools=Hands().tools, options=options) as rt:
        first = await rt.start("g", who=ME)
        await first.finished()
        plain = await rt.fork(first.id, at=2, who=ME)
        request = open_record(await plain.history()).request
        assert request.deadline is not None
        assert request.limits == Limits(seconds=3600)
        held = await rt.fork(first.id, at=2, who=ME, limits=Limits(steps=7))
        assert open_record(await held.history()).request.limits == Limits(seconds=3600, steps=7)
        late = await rt.fork(first.id, at=2, who=ME, deadline=NOW)
        assert (await late.finished()).reason is FinishReason.DEADLINE_EXCEEDED
        with pytest.raises(ValueError, match="time zone"):
            await rt.fork(first.id, at=2, who=ME, deadline=NOW.replace(tzinfo=None))
