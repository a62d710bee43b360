"""The scripted and the recording planner."""

from __future__ import annotations

import asyncio

import pytest

from harborage.identity import Identity, Quadruple
from harborage.planner import (
    AwaitTask,
    BackgroundResult,
    CallTool,
    Finish,
    FinishReason,
    Planner,
    RunContext,
    SpawnSpec,
    SpawnTask,
    Step,
    Trajectory,
    WakeMode,
    resolve_wake_mode,
)
from harborage.planner.finish import FinishPlanner
from harborage.planner.trajectory import UNSET_TIME
from harborage.runtime.host import Runtime
from harborage.testing.planners import PlannerScriptExhaustedError, RecordingPlanner, ScriptedPlanner
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

CALL = CallTool("a")
DONE = Finish(FinishReason.GOAL)


def run(run_id: str = "r-1", *, tenant: str = "t", user: str = "u", session: str = "s", **fields) -> RunContext:
    """The context of one run."""
    return RunContext(**{"quadruple": Quadruple(tenant, user, session, run_id), "goal": "go", **fields})


def test_they_are_planners():
    """Both fit the planner's protocol."""
    assert isinstance(ScriptedPlanner([]), Planner)
    assert isinstance(RecordingPlanner(FinishPlanner()), Planner)


async def test_a_run_follows_the_script():
    """The first call gets the first line, the second the second, whatever the history holds."""
    planner = ScriptedPlanner([CALL, CallTool("b"), DONE])
    assert [await planner.next(run()) for _ in range(3)] == [CALL, CallTool("b"), DONE]


async def test_every_run_begins_at_the_beginning():
    """Runs that differ in any part of their identity follow the script on their own."""
    planner = ScriptedPlanner([CALL, DONE])
    runs = [run(), run("r-2"), run(tenant="x"), run(user="x"), run(session="x")]
    assert [await planner.next(one) for one in runs] == [CALL] * 5
    assert planner.under_way == {one.quadruple for one in runs}
    assert [await planner.next(one) for one in runs] == [DONE] * 5


async def test_a_finish_forgets_the_run():
    """After its finish nothing of a run is remembered; one that comes again begins anew."""
    planner = ScriptedPlanner([CALL, DONE])
    for _ in range(2):
        assert await planner.next(run()) == CALL
        assert len(planner.under_way) == 1
        assert await planner.next(run()) == DONE
        assert planner.under_way == frozenset()


async def test_a_line_may_decide_from_the_run():
    """A function is called with what the planner is shown; what it finishes is finished."""
    planner = ScriptedPlanner([lambda run: CallTool(run.goal), lambda run: Finish("goal", run.goal)])
    assert await planner.next(run(goal="x")) == CallTool("x")
    assert await planner.next(run(goal="y")) == Finish("goal", "y")
    assert planner.under_way == frozenset()


async def test_a_line_may_be_an_error():
    """An exception is raised, and the next call goes on behind it."""
    error = ValueError("boom")
    planner = ScriptedPlanner([error, DONE])
    with pytest.raises(ValueError, match="boom") as caught:
        await planner.next(run())
    assert caught.value is error
    assert await planner.next(run()) == DONE


async def test_a_script_has_an_end():
    """A call too many is an error that names the run and the length of the script, every time."""
    planner = ScriptedPlanner([CALL])
    await planner.next(run())
    for _ in range(2):
        with pytest.raises(PlannerScriptExhaustedError, match=r"run r-1: the script has 1 line\(s\)") as caught:
            await planner.next(run())
        assert (caught.value.run_id, caught.value.lines) == ("r-1", 1)


async def test_a_query_may_have_a_script_of_its_own():
    """A run whose query is listed follows that script, also after its goal was changed; the others the usual one."""
    planner = ScriptedPlanner([DONE], by_query={"child": iter([CALL, Finish("no_path")])})
    assert await planner.next(run(query="child", goal="child")) == CALL
    assert await planner.next(run(query="child", goal="changed")) == Finish("no_path")
    assert await planner.next(run(query="root", goal="child")) == DONE
    assert await planner.next(run(goal="child")) == CALL


async def test_a_cancelled_caller_uses_up_no_line():
    """A cancelled caller gets no decision, and the line is still there."""
    planner = ScriptedPlanner([DONE])

    async def call():
        asyncio.current_task().cancel()
        return await planner.next(run())

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(call())
    assert await planner.next(run()) == DONE


async def test_one_script_serves_128_runs():
    """Concurrent runs on one planner each follow the script to its end and leave nothing."""
    planner = ScriptedPlanner([CALL, lambda run: CallTool(run.quadruple.run_id), DONE])

    async def one(number):
        context = run(f"r-{number}")
        decisions = []
        for _ in range(3):
            decisions.append(await planner.next(context))
            await asyncio.sleep(0)
        return decisions

    results = await asyncio.gather(*(one(number) for number in range(128)))
    assert results == [[CALL, CallTool(f"r-{number}"), DONE] for number in range(128)]
    assert planner.under_way == frozenset()


async def test_it_drives_a_real_run_and_its_child():
    """Under the runtime a script spawns a task with its own script, and reads its result from the history."""

    def await_child(run):
        return AwaitTask(run.trajectory.steps[0].observation["task_id"])

    script = [
        SpawnTask(spec=SpawnSpec(query="child")),
        await_child,
        lambda run: Finish("goal", run.trajectory.steps[1].observation["status"]),
    ]
    planner = ScriptedPlanner(script, by_query={"child": [Finish("goal", "done")]})
    async with Runtime(planner=planner) as rt:
        started = await rt.start("root", who=Identity("t", "u", "s"))
        assert (await started.finished()).payload == "complete"
    assert planner.under_way == frozenset()


# Recording


async def test_calls_are_kept_in_order():
    """What the planner was shown and what it decided is kept, call by call and run by run."""
    recorder = RecordingPlanner(ScriptedPlanner([CALL, DONE]))
    for run_id in ("r-1", "r-2", "r-1"):
        await recorder.next(run(run_id))
    assert recorder.decisions == [CALL, CALL, DONE]
    assert [context.quadruple.run_id for context in recorder.contexts] == ["r-1", "r-2", "r-1"]
    assert [call.decision for call in recorder.of("r-1")] == [CALL, DONE]
    assert recorder.of("r-3") == []


async def test_a_context_is_kept_as_it_was():
    """What is added to the history or changed in the context later does not show in what was kept."""
    recorder = RecordingPlanner(FinishPlanner())
    context = run(trajectory=Trajectory(query="q", steps=[Step(observation=1)]))
    await recorder.next(context)
    context.trajectory.steps.append(Step(observation=2))
    context.trajectory.background["g"] = BackgroundResult(group_id="g", status="completed", resolved_at=UNSET_TIME)
    context.goal = "changed"
    (kept,) = recorder.contexts
    assert kept.trajectory.query == "q"
    assert [step.observation for step in kept.trajectory.steps] == [1]
    assert kept.trajectory.background == {}
    assert kept.goal == "go"


async def test_the_planner_gets_the_context_itself():
    """The planner inside works on the very context that was passed in."""
    seen = []
    context = run(trajectory=Trajectory())
    await RecordingPlanner(ScriptedPlanner([lambda shown: seen.append(shown) or DONE])).next(context)
    assert seen == [context]
    assert seen[0] is context


async def test_a_run_without_history_is_recorded():
    """A context without a history is kept like any other."""
    recorder = RecordingPlanner(FinishPlanner())
    await recorder.next(run(trajectory=None))
    assert recorder.contexts[0].trajectory is None


async def test_errors_are_kept_and_raised():
    """A call that raised is kept with its error, and the error goes on."""
    error = ValueError("boom")
    recorder = RecordingPlanner(ScriptedPlanner([error]))
    with pytest.raises(ValueError, match="boom"):
        await recorder.next(run())
    (call,) = recorder.calls
    assert (call.decision, call.error) == (None, error)
    assert recorder.decisions == []


async def test_a_cancelled_call_is_kept_and_cancelled():
    """A call that was cut short is kept as such, and stays cancelled."""

    class Waits:
        async def next(self, run):
            """Wait for ever."""
            await asyncio.Event().wait()

    recorder = RecordingPlanner(Waits())
    task = asyncio.create_task(recorder.next(run()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(recorder.calls[0].error, asyncio.CancelledError)


@each_row("mode", WakeMode)
def test_the_wake_mode_is_that_of_the_planner_inside(mode):
    """Recording does not change how a planner is woken."""

    class Wakes(FinishPlanner):
        def wake_mode(self):
            """This one."""
            return mode

    assert resolve_wake_mode(RecordingPlanner(Wakes())) is mode
    assert resolve_wake_mode(RecordingPlanner(FinishPlanner())) is WakeMode.PUSH
