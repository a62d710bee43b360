"""`RunLoop`: what it refuses, what a planner is given, what becomes of its decisions, and how a run is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from harborage.events import Event, EventType
from harborage.identity import IdentityRequiredError, Quadruple, current_quadruple
from harborage.planner import (
    Budget,
    CallTool,
    ControlSignals,
    Finish,
    FinishReason,
    InputArtifactView,
    InvalidDecisionError,
    PauseReason,
    RequestPause,
    RunContext,
    Step,
    ToolCallDeferred,
    Trajectory,
)
from harborage.runtime.effects.planning import PlannerStepError
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import (
    InboxExistsError,
    InboxRegistry,
    MaxStepsExceededError,
    NoPlannerError,
    RunLoop,
    RunLoopMisconfiguredError,
    RunSpec,
    ToolExecutor,
)
from harborage.testing.clock import settle
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner

pytestmark = pytest.mark.anyio

GOAL = Finish(FinishReason.GOAL, "done", {"how": "well"})
CALL = CallTool("x", b'{"a":1}')
ASK = RequestPause(PauseReason.AWAIT_INPUT)


class Executor:
    """Answers every decision, or raises; keeps what it was given."""

    def __init__(self, answer: Any = ({"raw": 1}, "short")) -> None:
        self.answer = answer
        self.calls: list[tuple[RunContext, Any]] = []

    async def execute_decision(self, rc: RunContext, decision: Any) -> tuple[Any, Any]:
        self.calls.append((rc, decision))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Waits:
    """A planner or an executor that waits to be cut short."""

    def __init__(self) -> None:
        self.is_waiting = asyncio.Event()
        self.was_cut = False

    async def next(self, run: RunContext) -> Any:
        if run.control.cancelled:
            return Finish(FinishReason.CANCELLED)
        return await self.execute_decision(run, None)

    async def execute_decision(self, rc: RunContext, decision: Any) -> Any:
        self.is_waiting.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.was_cut = True
            raise


@pytest.mark.parametrize(
    ("registry", "coordinator", "word"),
    [(None, Coordinator(), "inbox registry"), (InboxRegistry(), None, "pause coordinator")],
)
def test_a_loop_needs_a_registry_and_a_coordinator(registry: Any, coordinator: Any, word: str) -> None:
    """Without either it is not made, and the error says which is missing."""
    with pytest.raises(RunLoopMisconfiguredError, match=word):
        RunLoop(registry, coordinator)


async def test_a_run_needs_a_planner(bench: Any) -> None:
    """There is no default."""
    with pytest.raises(NoPlannerError):
        await bench.run(None)


@pytest.mark.parametrize("missing", ["tenant_id", "user_id", "session_id", "run_id", "everything"])
async def test_a_run_needs_a_whole_identity(bench: Any, missing: str) -> None:
    """The missing part is named, and no inbox is opened."""
    parts = {"tenant_id": "t", "user_id": "u", "session_id": "s", "run_id": "r"}
    if missing == "everything":
        spec = RunSpec(planner=ScriptedPlanner([GOAL]))
    else:
        spec = bench.spec(ScriptedPlanner([GOAL]), base={"quadruple": Quadruple(**{**parts, missing: ""})})
    with pytest.raises(IdentityRequiredError, match="identity" if missing == "everything" else missing):
        await bench.loop.run(spec)
    assert len(bench.registry) == 0


async def test_a_run_that_is_under_way_cannot_be_started_again(bench: Any) -> None:
    """The second is refused, and the first is none the worse."""
    first = bench.begin(waits := Waits())
    await waits.is_waiting.wait()
    with pytest.raises(InboxExistsError):
        await bench.loop.run(bench.spec(ScriptedPlanner([GOAL])))
    assert len(bench.registry) == 1
    bench.send("CANCEL", {"hard": True})
    assert (await bench.end(first)).reason is FinishReason.CANCELLED


async def test_a_finish_comes_back_as_it_is(bench: Any) -> None:
    """The very object, and the same run may run again afterwards."""
    for _ in range(3):
        assert await bench.run(ScriptedPlanner([CALL, GOAL])) is GOAL


ENDS: dict[str, tuple[Any, type[BaseException] | None]] = {
    "finish": ([GOAL], None),
    "planner error": ([LookupError("lost")], PlannerStepError),
    "no decision": ([lambda run: None], InvalidDecisionError),
    "no steps left": ([CALL] * 9, MaxStepsExceededError),
    "hook error": ([CALL, GOAL], ZeroDivisionError),
}


@pytest.mark.parametrize("end", ENDS)
async def test_the_inbox_is_retired_however_a_run_ends(bench: Any, end: str) -> None:
    """And the run's identity is free again."""
    script, error = ENDS[end]

    async def hook() -> None:
        raise ZeroDivisionError

    spec = {"tool_executor": Executor(), "max_steps": 3, "on_tool_dispatched": hook if end == "hook error" else None}
    for _ in range(2):
        if error is None:
            await bench.run(ScriptedPlanner(script), **spec)
        else:
            with pytest.raises(error):
                await bench.run(ScriptedPlanner(script), **spec)
        assert len(bench.registry) == 0


async def test_the_inbox_is_retired_when_the_caller_goes(bench: Any) -> None:
    """Cancelling the call ends the run where it is: in mid step or parked."""
    for planner in (Waits(), ScriptedPlanner([ASK])):
        task = bench.begin(planner)
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bench.end(task)
        assert len(bench.registry) == 0


async def test_each_step_has_a_context_of_its_own(bench: Any) -> None:
    """The template's values, with the history so far; what a planner writes into one is lost."""

    def scribbles(run: RunContext) -> Any:
        run.goal, run.query = "scribble", "scribble"
        return CALL

    planner = RecordingPlanner(ScriptedPlanner([scribbles, CALL, GOAL]))
    spec = bench.spec(planner, base={"discovered_tools": ("a",)}, tool_executor=Executor())
    template = spec.base
    assert template is not None
    await bench.loop.run(spec)
    first, second, third = planner.contexts
    assert (second.goal, second.query, second.discovered_tools) == ("g", "q", ("a",))
    assert [len(one.trajectory.steps) for one in (first, second, third)] == [0, 1, 2]
    assert (template.goal, template.control, template.on_reasoning) == ("g", ControlSignals(), None)
    assert third.quadruple == bench.who()


async def test_what_the_template_brings_is_there_at_the_first_step(bench: Any) -> None:
    """Signals and queued calls until they are delivered; a history of its own is continued."""
    history = Trajectory(query="before", steps=[Step(action=CALL)])
    deferred = (ToolCallDeferred("later"),)
    planner = RecordingPlanner(ScriptedPlanner([CALL, GOAL]))
    signals = ControlSignals(user_messages=("hello",))
    await bench.run(planner, base={"trajectory": history, "control": signals, "pending_tool_calls": deferred})
    first, second = planner.contexts
    assert (first.control, first.pending_tool_calls, len(first.trajectory.steps)) == (signals, deferred, 1)
    assert (second.control, second.pending_tool_calls, len(second.trajectory.steps)) == (ControlSignals(), deferred, 2)
    assert [step.action for step in history.steps] == [CALL, CALL]


async def test_input_artifacts_come_with_every_step(bench: Any) -> None:
    """A model keeps nothing between two requests: a picture that it is shown once it has forgotten afterwards."""
    inputs = (InputArtifactView(id="a", mime="image/png"),)
    planner = RecordingPlanner(ScriptedPlanner([ASK, CALL, GOAL]))
    task = bench.begin(planner, base={"input_artifacts": inputs})
    await bench.paused()
    bench.send("RESUME")
    await bench.end(task)
    assert [tuple(one.input_artifacts) for one in planner.contexts] == [inputs] * 3


async def test_what_a_planner_says_beside_its_decision_is_kept(bench: Any) -> None:
    """Reasoning and prose stand in that step, and only in that one."""
    history = Trajectory()

    def talks(run: RunContext) -> Any:
        run.on_reasoning("because")
        run.on_assistant_content("so I said")
        return CALL

    await bench.run(ScriptedPlanner([talks, CALL, GOAL]), base={"trajectory": history})
    notes = [(step.reasoning_trace, step.assistant_preamble) for step in history.steps]
    assert notes == [("because", "so I said"), ("", "")]


async def test_queued_calls_change_only_when_the_planner_says_so(bench: Any) -> None:
    """An empty list empties the queue; silence keeps it."""
    queue = [ToolCallDeferred("a"), ToolCallDeferred("b")]
    script = [
        lambda run: run.on_pending_tool_calls(queue) or CALL,
        CALL,
        lambda run: run.on_pending_tool_calls([]) or CALL,
        GOAL,
    ]
    planner = RecordingPlanner(ScriptedPlanner(script))
    await bench.run(planner)
    assert [list(one.pending_tool_calls) for one in planner.contexts] == [[], queue, queue, []]


async def test_events_of_a_planner_go_where_the_template_sends_them(bench: Any) -> None:
    """Through the context of each step; without a place there is nothing to call."""
    received: list[Event] = []
    event = Event(EventType.PLANNER_DECISION, bench.who(), None)
    await bench.run(ScriptedPlanner([lambda run: run.emit(event) or GOAL]), base={"emit": received.append})
    assert received == [event]
    await bench.run(ScriptedPlanner([lambda run: GOAL if run.emit is None else CALL]))


async def test_a_run_is_carried_under_its_identity(bench: Any) -> None:
    """Planner and executor find it in their surroundings; the caller's own is untouched."""
    seen: list[Any] = []
    await bench.run(ScriptedPlanner([lambda run: seen.append(current_quadruple()) or GOAL]))
    assert seen == [bench.who()]
    assert current_quadruple() is None


async def test_a_decision_is_carried_out_by_the_runs_executor(bench: Any) -> None:
    """With the context of that very step; both observations go into the history."""
    executor = Executor()
    assert isinstance(executor, ToolExecutor)
    planner = RecordingPlanner(ScriptedPlanner([CALL, GOAL]))
    history = Trajectory()
    await bench.run(planner, base={"trajectory": history}, tool_executor=executor)
    ((context, decision),) = executor.calls
    assert (context.quadruple, context.goal, decision) == (bench.who(), "g", CALL)
    (step,) = history.steps
    assert (step.action, step.observation, step.llm_observation) == (CALL, {"raw": 1}, "short")


async def test_without_an_executor_a_step_has_no_observation(bench: Any) -> None:
    """The decision is in the history; the hook is not called."""
    history, hooked = Trajectory(), []

    async def hook() -> None:
        hooked.append(1)

    await bench.run(ScriptedPlanner([CALL, GOAL]), base={"trajectory": history}, on_tool_dispatched=hook)
    assert [(step.action, step.observation, step.llm_observation) for step in history.steps] == [(CALL, None, None)]
    assert hooked == []


@pytest.mark.parametrize(("error", "text"), [(ValueError("no such key"), "no such key"), (KeyError(), "KeyError")])
async def test_an_executor_that_fails_is_an_observation(bench: Any, error: Exception, text: str) -> None:
    """The planner sees it at its next step, the hook is not called, and the run goes on."""
    hooked: list[int] = []

    async def hook() -> None:
        hooked.append(1)

    planner = RecordingPlanner(ScriptedPlanner([CALL, GOAL]))
    await bench.run(planner, tool_executor=Executor(error), on_tool_dispatched=hook)
    (step,) = planner.contexts[1].trajectory.steps
    assert step.observation == step.llm_observation == {"error": text}
    assert hooked == []


async def test_the_hook_follows_each_decision_that_was_carried_out(bench: Any) -> None:
    """Its error ends the run before the step is in the history."""
    history, hooked = Trajectory(), []

    async def hook() -> None:
        hooked.append(len(history.steps))
        if len(hooked) == 2:
            raise RuntimeError("the counter is broken")

    with pytest.raises(RuntimeError, match="counter is broken"):
        await bench.run(
            ScriptedPlanner([CALL, CALL, GOAL]),
            base={"trajectory": history},
            tool_executor=Executor(),
            on_tool_dispatched=hook,
        )
    assert hooked == [0, 1]
    assert len(history.steps) == 1


@pytest.mark.parametrize(("asked", "given"), [(3, 3), (0, 64), (-5, 64)])
async def test_a_planner_has_so_many_calls(bench: Any, asked: int, given: int) -> None:
    """Then the run ends loud; no number means 64."""
    planner = RecordingPlanner(ScriptedPlanner([CALL] * 70))
    with pytest.raises(MaxStepsExceededError, match=f"{given} steps"):
        await bench.run(planner, max_steps=asked)
    assert len(planner.calls) == given


async def test_waiting_costs_no_steps(bench: Any) -> None:
    """A parked run may be talked to as much as one likes."""
    task = bench.begin(ScriptedPlanner([ASK, GOAL]), max_steps=2)
    for turn in range(20):
        await settle()
        bench.send("USER_MESSAGE", {"message": str(turn)})
    bench.send("RESUME")
    assert await bench.end(task) is GOAL


async def test_what_a_planner_raises_names_its_step(bench: Any) -> None:
    """The planner's own error is the cause."""
    lost = LookupError("lost")
    with pytest.raises(PlannerStepError, match="steering: planner step 2: lost") as caught:
        await bench.run(ScriptedPlanner([CALL, CALL, lost]))
    assert caught.value.__cause__ is lost
    assert caught.value.step == 2


@pytest.mark.parametrize("answer", [None, "CallTool", CallTool(""), RequestPause("tea time"), Finish("maybe")])
async def test_what_is_no_decision_ends_the_run(bench: Any, answer: Any) -> None:
    """None counts too: a planner that decides nothing is a mistake, not a wait."""
    executor = Executor()
    with pytest.raises(InvalidDecisionError):
        await bench.run(ScriptedPlanner([lambda run: answer]), tool_executor=executor)
    assert executor.calls == []
    assert (await bench.pauses.list(who=bench.who())).rows == ()


async def test_a_deadline_ends_a_run_in_mid_step(bench: Any) -> None:
    """The step is cut, and the finish says why."""
    deadline = bench.clock.now() + timedelta(seconds=5)
    task = bench.begin(waits := Waits(), base={"budget": Budget(deadline=deadline)})
    await waits.is_waiting.wait()
    await bench.clock.run_for(5)
    finish = await bench.end(task)
    assert (finish.reason, finish.metadata["steering_reason"]) == (FinishReason.DEADLINE_EXCEEDED, "deadline")
    assert waits.was_cut


async def test_a_loop_keeps_nothing_of_a_run(benches: Callable[..., Any]) -> None:
    """A run that fails, or is left, does not change the next one."""
    bench = benches()
    with pytest.raises(PlannerStepError):
        await bench.run(ScriptedPlanner([CALL, LookupError("lost")]))
    task = bench.begin(ScriptedPlanner([ASK]))
    await settle()
    task.cancel()
    await asyncio.wait({task})
    planner = RecordingPlanner(ScriptedPlanner([GOAL]))
    await bench.run(planner)
    (context,) = planner.contexts
    assert (context.trajectory.steps, context.control, context.trajectory.resume_hint) == ([], ControlSignals(), None)
