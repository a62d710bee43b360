"""What a run learns of its children beside its turn, and what becomes of them when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harborage.artifacts import MemoryArtifactStore
from harborage.events import MemoryEventBus
from harborage.identity import Identity
from harborage.planner import (
    AwaitTask,
    BackgroundMemberOutcome,
    BackgroundResult,
    CallTool,
    Decision,
    Finish,
    FinishReason,
    RunContext,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.dispatch import CatalogToolExecutor
from harborage.runtime.effects.background import background_result
from harborage.runtime.effects.heavy import Projection, project
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import InboxRegistry, RunLoop, RunSpec
from harborage.tasks import (
    GroupCompletion,
    GroupStatus,
    InProcessTaskRegistry,
    MemberOutcome,
    TaskFailure,
    TaskStatus,
)
from harborage.testing.clock import settle
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import ToolCatalog

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
AT = datetime(2026, 1, 1, tzinfo=UTC)
GOAL = Finish(FinishReason.GOAL, "done")
Runtimes = Callable[..., Awaitable[Any]]


def spawn(query: str, group: str = "", **spec: Any) -> SpawnTask:
    """A spawn decision."""
    return SpawnTask(spec=SpawnSpec(query=query, **spec), group_id=group)


async def hang() -> None:
    """Wait to be cut short."""
    await asyncio.get_running_loop().create_future()


async def whole(name: str, value: Any) -> Projection:
    """Shows everything."""
    return project(name, value)


async def test_a_group_that_ended_is_shown_member_by_member() -> None:
    """With the results of those that ended well, and the codes of those that failed."""
    completion = GroupCompletion(
        group_id="g",
        session=ME,
        final_status=GroupStatus.COMPLETED,
        members=(
            MemberOutcome("a", TaskStatus.COMPLETE, b'{"answer":"42"}', None),
            MemberOutcome("b", TaskStatus.FAILED, None, TaskFailure("boom", "it broke")),
        ),
        resolved_at=AT,
        reason="all done",
    )
    assert await background_result(completion, "named", whole) == BackgroundResult(
        group_id="named",
        status="completed",
        resolved_at=AT,
        reason="all done",
        members=(
            BackgroundMemberOutcome(task_id="a", status="complete", result={"answer": "42"}),
            BackgroundMemberOutcome(task_id="b", status="failed", error_code="boom", error_message="it broke"),
        ),
    )


async def test_a_heavy_background_result_travels_by_reference(runtimes: Runtimes) -> None:
    """The planner is shown a summary of it, and the artifact that holds it."""
    seen: list[BackgroundMemberOutcome] = []

    def look(run: RunContext) -> Decision:
        seen.extend(one for group in run.trajectory.background.values() for one in group.members)
        return GOAL

    async def pass_time() -> str:
        """Let others run."""
        await settle()
        return "ok"

    artifacts = MemoryArtifactStore()
    script = ScriptedPlanner(
        [spawn("child"), CallTool("pass_time"), look], by_query={"child": [Finish(FinishReason.GOAL, "x" * 50_000)]}
    )
    bench = await runtimes(script, tools=[pass_time], artifacts=artifacts)
    await bench.run()
    (member,) = seen
    assert member.result_ref
    assert member.result["artifact_ref"] == member.result_ref
    assert len(str(member.result)) < 40_000


async def test_a_run_loop_gets_background_groups_too() -> None:
    """Through any executor that gives a handle, two steps after its end even if no step of the run ever suspends."""
    tasks = InProcessTaskRegistry(bus=MemoryEventBus())
    who, seen = ME.with_run("r"), []

    class Works:
        async def next(self, run: RunContext) -> Decision:
            steps = run.trajectory.steps
            if not steps:
                return spawn("child")
            if len(steps) == 1:
                task_id = steps[0].observation["task_id"]
                await tasks.mark_running(task_id, who=who)
                await tasks.mark_complete(task_id, b'"well"', who=who)
            seen.extend(run.trajectory.background.values())
            return GOAL if seen or len(steps) > 3 else CallTool("none")

    loop = RunLoop(InboxRegistry(), Coordinator(), task_registry=tasks)
    executor = CatalogToolExecutor(ToolCatalog(), None, tasks)
    await loop.run(RunSpec(planner=Works(), base=RunContext(quadruple=who), tool_executor=executor))
    assert [member.result for group in seen for member in group.members] == ["well"]


async def test_a_finish_names_the_children_that_go_on(runtimes: Runtimes) -> None:
    """Background work outlives a run that reached its goal, and its finish says so."""
    script = ScriptedPlanner([spawn("child"), GOAL], by_query={"child": [CallTool("hang")]})
    bench = await runtimes(script, tools=[hang])
    finish = await bench.run()
    (child,) = finish.metadata["background_tasks"]
    assert (await bench.rt.tasks.get(child, who=ME)).query == "child"


async def test_children_end_with_the_deadline_of_their_parent(runtimes: Runtimes) -> None:
    """Retained and background ones: no deadline of a child is later than its parent's, all the way down."""
    by_query = {
        "child": [spawn("grandchild", retain_turn=True), GOAL],
        "grandchild": [CallTool("hang")],
        "beside": [CallTool("hang")],
    }

    script = ScriptedPlanner([spawn("beside"), spawn("child", retain_turn=True), GOAL], by_query=by_query)
    rt = await runtimes(script, tools=[hang])
    run = await rt.start(deadline=rt.clock.now() + timedelta(seconds=5))
    await settle(200)
    tasks = {one.query: one for one in await rt.rt.tasks.read(ME)}
    assert {query: one.deadline for query, one in tasks.items()} == dict.fromkeys(
        tasks, rt.clock.now() + timedelta(seconds=5)
    )
    rt.clock.advance(6)
    assert (await rt.end(run)).reason is FinishReason.DEADLINE_EXCEEDED
    await settle(200)
    assert {one.query for one in await rt.rt.tasks.read(ME) if not one.status.is_terminal} == set()


async def test_a_retained_child_is_cancelled_with_a_run_that_fails(runtimes: Runtimes) -> None:
    """No run reads the result it would have had."""
    script = ScriptedPlanner([spawn("child"), ValueError("broken")], by_query={"child": [CallTool("hang")]})
    bench = await runtimes(script, tools=[hang])
    run = await bench.start()
    with pytest.raises(Exception, match="broken"):
        await bench.end(run)
    await settle(200)
    (child,) = [one for one in await bench.rt.tasks.read(ME) if one.query == "child"]
    assert child.status is TaskStatus.CANCELLED


async def test_a_group_that_a_decision_names_is_opened_and_awaited(runtimes: Runtimes) -> None:
    """The spawn result names it, and awaiting the name gives all members."""
    script = ScriptedPlanner(
        [
            spawn("one", "research"),
            spawn("two", "research"),
            lambda run: AwaitTask(run.trajectory.steps[0].observation["group_id"]),
            lambda run: Finish("goal", run.trajectory.steps[-1].observation),
        ],
        by_query={"one": [Finish(FinishReason.GOAL, "1")], "two": [Finish(FinishReason.GOAL, "2")]},
    )
    bench = await runtimes(script)
    outcome = (await bench.run()).payload
    assert (outcome["group_id"], outcome["status"]) == ("research", "completed")
    assert [member["result"]["answer"] for member in outcome["members"]] == ["1", "2"]
