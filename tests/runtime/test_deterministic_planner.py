"""Decision trees under the real runtime: it drives them as it drives any planner, and starts no task twice."""

from __future__ import annotations

import json

import pytest

from harborage.events import Cursor, EventType, Filter
from harborage.identity import Identity
from harborage.planner import (
    AwaitTask,
    DeterministicStepError,
    Finish,
    FinishReason,
    InvalidConfigError,
    PauseReason,
    RunContext,
    SpawnSpec,
    SpawnTask,
)
from harborage.planner.deterministic import (
    FROM_RUNTIME,
    CallToolStep,
    DeterministicPlanner,
    FinishStep,
    PauseStep,
    SpawnAndAwaitStep,
    WatchGroupStep,
)
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.tasks import TaskFilter, TaskStatus
from harborage.testing.planners import RecordingPlanner

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")


class Late:
    """A planner that is built when the runtime has opened its task registry."""

    def __init__(self):
        self.tree = None

    async def next(self, run: RunContext):
        """What the planner decides."""
        return await self.tree.next(run)


def is_root(run: RunContext) -> bool:
    """Whether this is the run that was started, and not a task that it spawned."""
    return run.query == "root"


def answered(run, members):
    """Finishes with what the one member answered."""
    (member,) = members
    return Finish(FinishReason.GOAL, json.loads(member.result)["answer"] if member.result else str(member.status))


def spawning(**fields) -> SpawnAndAwaitStep:
    """A step of the root run that spawns one task and finishes with its answer."""
    parts = {"spec_builder": lambda run: SpawnSpec(query="child"), "on_resolved": answered, "when": is_root}
    return SpawnAndAwaitStep(**{**parts, **fields})


async def test_exactly_one_task_is_spawned():
    """The step spawns, the runtime acts on its decision, and there is one child: the run takes up its answer."""
    late = Late()
    planner = RecordingPlanner(late)
    step = spawning()
    async with Runtime(planner=planner) as rt:
        child = FinishStep(FinishReason.GOAL, payload_builder=lambda run: "from the child")
        late.tree = DeterministicPlanner([step, child], registry=rt.tasks)
        run = await rt.start("root", who=WHO)
        finish = await run.finished()
        children = await rt.tasks.list(WHO, TaskFilter(parent=run.id))
        spawned = await rt.bus.replay(Cursor(WHO.session_id, 0), Filter.of(WHO, (EventType.TASK_SPAWNED,)))
    assert finish.payload == "from the child"
    assert len(children) == 1
    assert children[0].status is TaskStatus.COMPLETE
    assert len(spawned) == 2
    decisions = [call.decision for call in planner.of(run.id)]
    assert isinstance(decisions[0], SpawnTask)
    assert decisions[1:] == [AwaitTask(children[0].id), finish]
    last = planner.of(run.id)[-1].context.trajectory.steps
    assert [one.observation["task_id"] for one in last] == [children[0].id] * 2
    assert len(step._states) == 0


async def test_steps_that_follow_groups_use_the_registry_of_their_runtime():
    """The planner is built before the runtime is; one runtime after the other may open over it, but not two at once."""
    steps = [spawning(), FinishStep(FinishReason.GOAL, payload_builder=lambda run: "from the child")]
    planner = DeterministicPlanner(steps, registry=FROM_RUNTIME)
    for _ in range(2):
        async with Runtime(planner=planner) as rt:
            run = await rt.start("root", who=WHO)
            assert (await run.finished()).payload == "from the child"
            with pytest.raises(InvalidConfigError, match="another task registry"):
                await Runtime(planner=planner).__aenter__()
    with pytest.raises(DeterministicStepError, match="no task registry"):
        await planner.next(RunContext(quadruple=WHO.with_run("r"), query="root"))


async def test_a_turn_that_is_kept_needs_no_await():
    """With `retain_turn` the runtime waits for the task itself, and the next call finds the group ended."""
    late = Late()
    planner = RecordingPlanner(late)
    step = spawning(spec_builder=lambda run: SpawnSpec(query="child", retain_turn=True))
    async with Runtime(planner=planner) as rt:
        late.tree = DeterministicPlanner([step, FinishStep("goal", lambda run: "kept")], registry=rt.tasks)
        run = await rt.start("root", who=WHO)
        assert (await run.finished()).payload == "kept"
    assert [type(call.decision) for call in planner.of(run.id)] == [SpawnTask, Finish]


async def test_a_given_group_has_one_member_too():
    """A group id of the author's own changes nothing: one task, one group, one answer."""
    late = Late()
    async with Runtime(planner=late) as rt:
        steps = [spawning(group_id="mine"), FinishStep("goal", lambda run: "grouped")]
        late.tree = DeterministicPlanner(steps, registry=rt.tasks)
        run = await rt.start("root", who=WHO)
        assert (await run.finished()).payload == "grouped"
        assert len(await rt.tasks.list(WHO, TaskFilter(parent=run.id))) == 1


async def test_a_tree_that_spawns_itself_ends():
    """Without a guard every child spawns a child of its own; the depth of spawning ends that, and nothing is left."""
    late = Late()
    step = spawning(when=None, max_depth=2, on_resolved=lambda run, members: Finish("goal", str(members[0].status)))
    async with Runtime(planner=late, options=RuntimeOptions(max_spawn_depth=8)) as rt:
        late.tree = DeterministicPlanner([step], registry=rt.tasks)
        run = await rt.start("root", who=WHO)
        assert (await run.finished()).payload == "complete"
        tasks = await rt.tasks.list(WHO)
    assert sorted(task.status for task in tasks) == ["complete", "complete", "failed"]
    assert len(step._states) == 0


async def test_a_hard_cancel_leaves_nothing_behind():
    """A run that is ended from outside while it waits is forgotten, and takes its child along."""
    late = Late()
    step = spawning()
    async with Runtime(planner=late) as rt:
        late.tree = DeterministicPlanner([step, PauseStep(PauseReason.AWAIT_INPUT)], registry=rt.tasks)
        run = await rt.start("root", who=WHO)
        async for event in run.events():
            if event.type == EventType.PAUSE_REQUESTED:
                break
        assert len(step._states) == 1
        await run.cancel(hard=True)
        assert (await run.finished()).reason is FinishReason.CANCELLED
        (child,) = await rt.tasks.list(WHO, TaskFilter(parent=run.id))
        await rt.tasks.wait_ended(run.id, who=run.who)
        assert (await rt.tasks.wait_ended(child.id, who=run.who)).status is TaskStatus.CANCELLED
        assert len(step._states) == 0


async def test_a_second_run_of_the_session_spawns_its_own():
    """Runs that follow one another in a session each get a child, from one planner."""
    late = Late()
    async with Runtime(planner=late) as rt:
        steps = [spawning(), FinishStep("goal", lambda run: run.quadruple.run_id)]
        late.tree = DeterministicPlanner(steps, registry=rt.tasks)
        answers = []
        for _ in range(2):
            run = await rt.start("root", who=WHO)
            answers.append((await run.finished()).payload)
            assert len(await rt.tasks.list(WHO, TaskFilter(parent=run.id))) == 1
    assert len(set(answers)) == 2


async def test_a_watching_tree_takes_up_a_group_of_another_step():
    """One step spawns into a group and another watches it: both get its outcome."""
    late = Late()
    async with Runtime(planner=late) as rt:

        def first(run, members):
            return AwaitTask(members[0].task_id)

        watch = WatchGroupStep(
            group_id="g",
            owner_task_id="-",
            on_resolved=lambda run, members: Finish("goal", len(members)),
            when=lambda run: is_root(run) and len(run.trajectory.steps) > 2,
        )
        steps = [spawning(group_id="g", on_resolved=first), watch, FinishStep("goal")]
        late.tree = DeterministicPlanner(steps, registry=rt.tasks)
        run = await rt.start("root", who=WHO)
        assert (await run.finished()).payload == 1


async def test_a_tree_calls_tools_and_pauses():
    """Tool calls, a pause and a finish of a tree are the runtime's business like any planner's."""

    async def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    def steps_so_far(count):
        return lambda run: len(run.trajectory.steps) == count and run.trajectory.resume_hint is None

    tree = DeterministicPlanner(
        [
            CallToolStep("double", lambda run: {"n": 21}, steps_so_far(0)),
            PauseStep(
                "approval_required", lambda run: {"result": run.trajectory.steps[0].observation}, steps_so_far(1)
            ),
            FinishStep("goal", lambda run: [run.trajectory.resume_hint.resume_payload["decision"]]),
        ]
    )
    async with Runtime(planner=tree, tools=[double]) as rt:
        run = await rt.start("root", who=WHO)
        async for event in run.events():
            if event.type == EventType.PAUSE_REQUESTED:
                (pause,) = await run.waiting()
                assert pause.payload == {"result": 42}
                await run.approve()
        assert (await run.finished()).payload == ["approve"]


def _raise(run):
    raise RuntimeError("no answer")


async def test_a_step_that_fails_fails_the_run():
    """A step's error ends the run with the step's place in the text."""
    tree = DeterministicPlanner([FinishStep("goal", when=lambda run: False), FinishStep("goal", when=_raise)])
    async with Runtime(planner=tree) as rt:
        run = await rt.start("root", who=WHO)
        with pytest.raises(RunFailedError, match="step 1 failed") as caught:
            await run.finished()
    assert isinstance(caught.value.__cause__.__cause__, DeterministicStepError)


async def test_a_tree_without_an_answer_ends_the_run():
    """A tree without an answer ends its run as `no_path`, and the task as failed for that reason."""
    tree = DeterministicPlanner([FinishStep("goal", when=lambda run: False)])
    async with Runtime(planner=tree) as rt:
        run = await rt.start("root", who=WHO)
        assert (await run.finished()).metadata == {"deterministic": "no_step_matched", "run_id": run.id}
        assert (await rt.tasks.get(run.id, who=WHO)).error.code == "no_path"
