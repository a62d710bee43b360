"""`Runtime`: opening and closing, starting runs, and the runs of spawned tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harborage import WorkflowContext, workflow
from harborage.artifacts import ArtifactNotFoundError, ArtifactScope, MemoryArtifactStore
from harborage.codec import UnserializableError
from harborage.errors import InvalidOptionError
from harborage.events import MemoryEventBus
from harborage.identity import Identity, IdentityRequiredError
from harborage.planner import (
    AwaitTask,
    CallTool,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.durable.engine import (
    EngineClosedError,
    RunFailedError,
    RunNotFoundError,
    RunPhase,
    RuntimeClosedError,
    RuntimeOpenError,
)
from harborage.runtime.host import Runtime
from harborage.state.storage import Storage
from harborage.store import Commit, Committed
from harborage.store.memory import MemoryStore
from harborage.tasks import SpawnRequest, TaskFilter, TaskKind, TaskStatus
from harborage.testing.clock import FakeClock, settle
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner
from harborage.tools import SideEffect, tool
from tests.kit.slow_store import storage_over
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
GOAL = Finish(FinishReason.GOAL, "done")
ASK = RequestPause(PauseReason.AWAIT_INPUT)
ADD = CallTool("add", b'{"a":1,"b":2}')
Runtimes = Callable[..., Awaitable[Any]]
Storages = Callable[..., Awaitable[Storage]]


@tool(effects=SideEffect.READ)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Hang:
    """A tool that waits to be cut short."""

    def __init__(self) -> None:
        self.is_called = asyncio.Event()
        self.was_cut = False

    async def hang(self) -> None:
        """Hang."""
        self.is_called.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.was_cut = True
            raise


class BrokenStore(MemoryStore):
    """Refuses to begin runs while the test says so."""

    refuses = True

    async def commit(self, commit: Commit) -> Committed:
        if self.refuses and commit.starts:
            raise OSError("the disk is full")
        return await super().commit(commit)


class BrokenArtifacts(MemoryArtifactStore):
    """Can be read once."""

    is_broken = False

    async def get_ref(self, scope: ArtifactScope, id: str) -> Any:
        if self.is_broken:
            raise OSError("no such bucket")
        self.is_broken = True
        return await super().get_ref(scope, id)


async def test_a_run_publishes_its_steps(runtimes: Runtimes) -> None:
    """From the task's birth to its end, in order; the handle, the task and the bus agree."""
    bench = await runtimes([ADD, GOAL], tools=[add])
    run = await bench.start("sum", priority=7)
    assert await bench.end(run) == GOAL
    assert bench.types() == [
        "session.opened",
        "task.spawned",
        "task.started",
        "planner.decision",
        "tool.invoked",
        "tool.completed",
        "planner.decision",
        "planner.finish",
        "task.completed",
    ]
    status = await run.status()
    assert (status.run_id, status.goal, status.phase, status.reason) == (run.id, "sum", RunPhase.FINISHED, "goal")
    task = await bench.rt.tasks.get(run.id, who=run.who)
    assert (task.status, task.query, task.priority, task.tool_count) == (TaskStatus.COMPLETE, "sum", 7, 1)
    assert task.result == b'{"answer":"done","finish_reason":"goal","tool_calls_seen":1}'


async def test_nothing_works_outside_its_block() -> None:
    """Before, and after, every verb says so; it may be opened again."""
    rt = Runtime(planner=ScriptedPlanner([GOAL]))
    for _ in range(2):
        for look in (lambda: rt.bus, lambda: rt.tasks, lambda: rt.pauses, lambda: rt.artifacts, lambda: rt.catalog):
            with pytest.raises(RuntimeClosedError, match="async with"):
                look()
        for attempt in (rt.start("g", who=ME), rt.run("r", who=ME), rt.runs(who=ME)):
            with pytest.raises(RuntimeClosedError):
                await attempt
        async with rt:
            run = await rt.start("g", who=ME)
            assert await run.finished() == GOAL
    await rt.aclose()


async def test_it_is_open_once_at_a_time(runtimes: Runtimes) -> None:
    """Opening it again would lose the parts that are open."""
    bench = await runtimes([GOAL])
    with pytest.raises(RuntimeOpenError):
        await bench.rt.__aenter__()
    assert await bench.run() == GOAL


async def test_an_answer_after_the_end_is_refused_for_what_is_wrong_with_it() -> None:
    """Not for the closed bus, on which no refusal can be published any more."""
    async with Runtime(planner=ScriptedPlanner([GOAL])) as rt:
        run = await rt.start("g", who=ME)
        assert await run.finished() == GOAL
    with pytest.raises(RunNotFoundError, match="has ended"):
        await run.approve()


async def test_closing_leaves_runs_off(runtimes: Runtimes) -> None:
    """Their tasks say so, a caller that waits for a result gets an error, and nothing of them goes on."""
    hang = Hang()
    bench = await runtimes([CallTool("hang")], tools=[hang.hang])
    run = await bench.start()
    await hang.is_called.wait()
    waiting = asyncio.create_task(run.finished())
    await settle()
    await bench.rt.aclose()
    with pytest.raises(EngineClosedError):
        await waiting
    assert hang.was_cut
    assert bench.types("task.")[-1] == "task.failed"
    assert bench.recorder.events[-1].payload.error_code == "cancelled"
    with pytest.raises(EngineClosedError):
        await run.cancel()


async def test_closing_refuses_controls_that_no_run_took(runtimes: Runtimes) -> None:
    """Each of them is announced as rejected."""
    hang = Hang()
    bench = await runtimes([CallTool("hang")], tools=[hang.hang])
    run = await bench.start()
    await hang.is_called.wait()
    await run.message("too late")
    await bench.rt.aclose()
    (rejected,) = [event for event in bench.recorder.events if event.type == "control.rejected"]
    assert (rejected.payload.type, rejected.payload.reason, rejected.identity) == ("USER_MESSAGE", "run_ended", run.who)


async def test_what_was_given_stays_open_and_the_rest_is_closed() -> None:
    """A store, a bus or a registry of the caller's own lives on; closing in the reverse order of opening."""
    bus = MemoryEventBus()
    artifacts = MemoryArtifactStore()
    for _ in range(2):
        async with Runtime(planner=ScriptedPlanner([GOAL]), bus=bus, artifacts=artifacts) as rt:
            run = await rt.start("g", who=ME)
            await run.finished()
            assert (rt.bus, rt.artifacts) == (bus, artifacts)
    await artifacts.put_text(ArtifactScope("t", "u", "s"), "still open")
    async with Runtime(planner=ScriptedPlanner([GOAL])) as rt:
        own = (rt.bus, rt.artifacts, rt.tasks)
    for closed in (own[0].replay(None, None), own[1].list(ArtifactScope("t", "u", "s")), own[2].list(ME)):
        with pytest.raises(Exception, match="closed"):
            await closed
    await bus.aclose()


@each_row(
    "fields, error, word",
    [
        ({"goal": ""}, ValueError, "goal"),
        ({"deadline": datetime(2026, 1, 1)}, ValueError, "time zone"),
        ({"who": Identity("", "u", "s")}, IdentityRequiredError, "tenant_id"),
        ({"who": Identity("t", "", "s")}, IdentityRequiredError, "user_id"),
        ({"who": Identity("t", "u", "")}, IdentityRequiredError, "session_id"),
        ({"who": Identity("", "", "")}, IdentityRequiredError, "tenant_id"),
        ({"goal": "half a pair \ud800"}, UnserializableError, "goal"),
    ],
)
async def test_a_start_that_makes_no_sense_starts_nothing(
    runtimes: Runtimes, fields: dict[str, Any], error: type[Exception], word: str
) -> None:
    """The error names what is wrong; no task, no run, and no event of either."""
    bench = await runtimes([GOAL])
    with pytest.raises(error, match=word):
        await bench.start(**fields)
    assert await bench.rt.tasks.list(ME) == []
    assert bench.types("task.", "planner.", "tool.", "control.") == []


async def test_a_start_that_the_store_refuses_starts_nothing(runtimes: Runtimes) -> None:
    """The caller gets the error, there is no task, and the runtime goes on with what is started later."""
    clock = FakeClock()
    store = BrokenStore(clock=clock)
    bench = await runtimes([GOAL], storage=storage_over(store, clock), clock=clock)
    request = SpawnRequest(identity=ME.with_run(""), kind=TaskKind.BACKGROUND, query="q")
    for start in (bench.start(), bench.rt.tasks.spawn(request)):
        with pytest.raises(OSError, match="disk is full"):
            await start
    assert await bench.rt.tasks.list(ME) == []
    store.refuses = False
    assert await bench.run() == GOAL


async def _only_foreground(bench: Any) -> Any:
    (summary,) = await bench.rt.tasks.list(ME, TaskFilter(kind=TaskKind.FOREGROUND))
    return await bench.rt.tasks.get(summary.id, who=ME)


async def test_a_run_that_cannot_be_equipped_fails_with_its_task(runtimes: Runtimes) -> None:
    """Neither its result nor its events are waited for in vain."""
    artifacts = BrokenArtifacts()
    ref = await artifacts.put_text(ArtifactScope("t", "u", "s"), "hello")
    bench = await runtimes([GOAL], artifacts=artifacts)
    run = await bench.start(input_artifacts=[ref.id])
    with pytest.raises(RunFailedError, match="OSError: no such bucket"):
        await bench.end(run)
    assert [event.type async for event in run.events()] == ["task.spawned", "task.started", "task.failed"]
    task = await bench.rt.tasks.get(run.id, who=ME)
    assert (task.error.code, task.error.message) == ("runtime_fetch_error", "no such bucket")


async def test_a_run_is_found_by_its_owner_only(runtimes: Runtimes) -> None:
    """By id and in the list; for others it is not there."""
    bench = await runtimes([GOAL])
    mine, another = await bench.start(), await bench.start(who=Identity("t2", "u", "s"))
    assert (await bench.rt.run(mine.id, who=ME)).who == mine.who
    assert [status.run_id for status in await bench.rt.runs(who=ME)] == [mine.id]
    for who in (Identity("t2", "u", "s"), Identity("t", "u2", "s"), Identity("t", "u", "s2")):
        with pytest.raises(RunNotFoundError):
            await bench.rt.run(mine.id, who=who)
    with pytest.raises(RunNotFoundError):
        await bench.rt.run("nobody", who=ME)
    await bench.end(another)


async def test_a_run_has_a_deadline_and_a_number_of_steps_of_its_own(runtimes: Runtimes) -> None:
    """Other than the runtime's; its task says how it ended."""
    hang = Hang()
    bench = await runtimes([CallTool("hang"), GOAL], tools=[hang.hang])
    run = await bench.start(deadline=bench.clock.now() + timedelta(seconds=9))
    await hang.is_called.wait()
    await bench.clock.run_for(9)
    assert (await bench.end(run)).reason is FinishReason.DEADLINE_EXCEEDED
    assert (await bench.rt.tasks.get(run.id, who=ME)).error.code == "deadline_exceeded"
    past = await bench.start(deadline=datetime(2020, 1, 1, tzinfo=UTC))
    assert (await bench.end(past)).metadata["steering_reason"] == "deadline"
    assert bench.types("planner.").count("planner.decision") == 1


def spawns(query: str = "child", **fields: Any) -> SpawnTask:
    return SpawnTask(spec=SpawnSpec(query=query, **fields))


def spawned(run: RunContext) -> str:
    """The id of the task that the run's first step spawned."""
    return run.trajectory.steps[0].observation["task_id"]


async def test_a_spawned_task_is_a_run_of_its_own(runtimes: Runtimes) -> None:
    """Its parent goes on at once and may wait for it; it has its own history."""
    script = ScriptedPlanner(
        [
            spawns(),
            lambda run: AwaitTask(spawned(run)),
            lambda run: Finish("goal", run.trajectory.steps[-1].observation),
        ],
        by_query={"child": [ADD, Finish(FinishReason.GOAL, {"answer": "from below"})]},
    )
    bench = await runtimes(script, tools=[add])
    run = await bench.start()
    outcome = (await bench.end(run)).payload
    answer = {"answer": "from below", "finish_reason": "goal", "tool_calls_seen": 1}
    assert outcome == {"task_id": outcome["task_id"], "status": "complete", "result": answer}
    task = await bench.rt.tasks.get(outcome["task_id"], who=ME)
    assert (task.parent_task_id, task.kind) == (run.id, TaskKind.BACKGROUND)
    child = await bench.rt.run(task.id, who=ME)
    assert (await child.status()).goal == "child"


async def test_a_background_result_comes_back_by_itself(runtimes: Runtimes) -> None:
    """A parked parent is woken, and its planner sees how the group ended."""
    script = ScriptedPlanner(
        [spawns(), ASK, lambda run: Finish("goal", sorted(one.status for one in run.trajectory.background.values()))],
        by_query={"child": [Finish(FinishReason.NO_PATH)]},
    )
    bench = await runtimes(script)
    run = await bench.start()
    await bench.paused(run)
    await run.resume()
    assert (await bench.end(run)).payload == ["completed"]


async def test_a_retained_turn_waits_for_its_child(runtimes: Runtimes) -> None:
    """The spawning step's observation is the child's outcome."""
    script = ScriptedPlanner(
        [spawns(retain_turn=True), lambda run: Finish("goal", run.trajectory.steps[0].observation["result"]["answer"])],
        by_query={"child": [GOAL]},
    )
    bench = await runtimes(script)
    assert (await bench.run()).payload == "done"


@pytest.mark.parametrize("hard", [False, True])
async def test_cancelling_a_run_takes_its_children_along(runtimes: Runtimes, hard: bool) -> None:
    """A planner that waits for a child is woken by either cancel; the child's call in flight is cut."""
    hang = Hang()
    script = ScriptedPlanner(
        [spawns(), lambda run: AwaitTask(spawned(run)), Finish(FinishReason.CANCELLED, "bye")],
        by_query={"child": [CallTool("hang")]},
    )
    bench = await runtimes(script, tools=[hang.hang])
    run = await bench.start()
    await hang.is_called.wait()
    await run.cancel(hard=hard)
    finish = await bench.end(run)
    assert finish.payload == (None if hard else "bye")
    await settle()
    assert hang.was_cut
    child = await bench.rt.tasks.list(ME, TaskFilter(parent=run.id))
    assert [one.status for one in child] == [TaskStatus.CANCELLED]
    below = await bench.rt.run(child[0].id, who=ME)
    assert (await bench.end(below)).metadata["steering_reason"] == "hard_cancel"


async def test_a_task_cancelled_from_outside_ends_its_run(runtimes: Runtimes) -> None:
    """The call in flight included; the task stays cancelled."""
    hang = Hang()
    bench = await runtimes([CallTool("hang")], tools=[hang.hang])
    run = await bench.start()
    await hang.is_called.wait()
    await bench.rt.tasks.cancel(run.id, "enough", who=ME)
    assert (await bench.end(run)).metadata["steering_reason"] == "hard_cancel"
    assert (await bench.rt.tasks.get(run.id, who=ME)).status is TaskStatus.CANCELLED


async def test_a_task_cancelled_before_it_began_does_not_run(runtimes: Runtimes) -> None:
    """Its planner is never asked."""
    planner = RecordingPlanner(ScriptedPlanner([GOAL]))
    bench = await runtimes(planner)
    handle = await bench.rt.tasks.spawn(SpawnRequest(identity=ME.with_run(""), kind=TaskKind.FOREGROUND, query="q"))
    await bench.rt.tasks.cancel(handle.id, who=ME)
    await settle()
    run = await bench.rt.run(handle.id, who=ME)
    finish = await bench.end(run)
    assert (finish.reason, finish.metadata["steering_reason"]) == (FinishReason.CANCELLED, "hard_cancel")
    assert planner.calls == []


async def test_a_run_that_fails_takes_its_children_along(runtimes: Runtimes) -> None:
    """No subscriber could still get the events."""
    hang = Hang()

    class FailsOnceTheChildHangs:
        async def next(self, run: RunContext) -> Any:
            if run.query == "child":
                return CallTool("hang")
            if not run.trajectory.steps:
                return spawns()
            await hang.is_called.wait()
            raise LookupError("lost")

    bench = await runtimes(FailsOnceTheChildHangs(), tools=[hang.hang])
    run = await bench.start()
    with pytest.raises(RunFailedError, match="lost"):
        await bench.end(run)
    await settle()
    assert hang.was_cut
    assert (await bench.rt.tasks.get(run.id, who=ME)).error.code == "runloop_error"


async def test_runs_are_carried_on_by_the_next_runtime(runtimes: Runtimes, storages: Storages) -> None:
    """Over the same storage: nothing recorded is done again, and the new runtime closes as well as the first."""
    clock, calls = FakeClock(), []
    storage = await storages(clock)

    @tool(effects=SideEffect.WRITE)
    async def write(text: str) -> str:
        """Write."""
        calls.append(text)
        return "written"

    hang = Hang()

    class WritesThenHangs:
        async def next(self, run: RunContext) -> Any:
            if not run.trajectory.steps:
                return CallTool("write", b'{"text":"once"}')
            if hang.was_cut:
                return Finish(FinishReason.GOAL, [step.observation for step in run.trajectory.steps])
            return await hang.hang()

    first = await runtimes(WritesThenHangs(), tools=[write], storage=storage, clock=clock)
    run = await first.start()
    await hang.is_called.wait()
    await first.rt.aclose()
    second = await runtimes(WritesThenHangs(), tools=[write], storage=storage, clock=clock)
    again = await second.rt.run(run.id, who=ME)
    assert (await second.end(again)).payload == ["written"]
    assert calls == ["once"]
    hang.was_cut = False
    left = await second.start()
    await settle()
    await second.rt.aclose()
    third = await runtimes(ScriptedPlanner([]), storage=storage, clock=clock)
    await third.rt.aclose()
    hang.was_cut = True
    fourth = await runtimes(WritesThenHangs(), tools=[write], storage=storage, clock=clock)
    assert (await fourth.end(await fourth.rt.run(left.id, who=ME))).payload == ["written"]


async def test_a_run_is_given_its_input_artifacts(runtimes: Runtimes) -> None:
    """By id."""
    planner = RecordingPlanner(ScriptedPlanner([GOAL]))
    artifacts = MemoryArtifactStore()
    ref = await artifacts.put_text(ArtifactScope("t", "u", "s"), "hello", filename="a.txt")
    bench = await runtimes(planner, artifacts=artifacts)
    run = await bench.start(input_artifacts=[ref.id])
    await bench.end(run)
    assert [view.id for view in planner.contexts[0].input_artifacts] == [ref.id]
    assert (await bench.rt.tasks.get(run.id, who=ME)).input_artifact_ids == (ref.id,)


async def test_a_heavy_answer_is_kept_as_an_artifact_and_its_task_has_the_reference(runtimes: Runtimes) -> None:
    """Who asked for the run gets it whole; a caller that reads the task's result gets its summary."""
    for payload in ({"x": "y" * 200_000}, "z" * 200_000):
        bench = await runtimes([Finish(FinishReason.GOAL, payload)])
        run = await bench.start()
        assert (await bench.end(run)).payload == payload
        task = await bench.rt.tasks.get(run.id, who=ME)
        assert len(task.result) < 20_000
        summary = json.loads(json.loads(task.result)["answer"])
        assert (summary["tool"], summary["truncated"]) == ("_finish", True)
        kept = await bench.rt.artifacts.get(ArtifactScope("t", "u", "s"), summary["artifact_ref"])
        assert (payload if isinstance(payload, str) else payload["x"]) in kept.decode()


async def test_a_heavy_answer_that_no_store_keeps_stays_whole_in_its_task(runtimes: Runtimes) -> None:
    """A summary without a reference would be all that is left of it."""

    class Full(MemoryArtifactStore):
        async def put_bytes(self, *args: Any, **options: Any) -> Any:
            raise OSError("no space left on device")

    bench = await runtimes([Finish(FinishReason.GOAL, "z" * 200_000)], artifacts=Full())
    run = await bench.start()
    await bench.end(run)
    assert json.loads((await bench.rt.tasks.get(run.id, who=ME)).result)["answer"] == "z" * 200_000


async def test_a_parent_is_shown_the_summary_of_a_childs_heavy_answer(runtimes: Runtimes) -> None:
    """With the reference to the rest, for one child as for the members of a group."""

    class Parent:
        async def next(self, run: RunContext) -> Any:
            if run.query == "child":
                return Finish(FinishReason.GOAL, "z" * 200_000)
            steps = run.trajectory.steps
            if len(steps) == 2:
                return Finish(FinishReason.GOAL, [step.observation for step in steps])
            group = "pair" if steps else ""
            return SpawnTask(spec=SpawnSpec(query="child", retain_turn=True), group_id=group)

    bench = await runtimes(Parent())
    alone, group = (await bench.run()).payload
    for summary in (alone, group["members"][0]["result"] if "members" in group else group):
        assert (summary["tool"], summary["truncated"]) == ("_finish", True)
        assert await bench.rt.artifacts.get(ArtifactScope("t", "u", "s"), summary["artifact_ref"])


async def test_an_input_artifact_that_is_not_there_is_refused_before_anything_starts(runtimes: Runtimes) -> None:
    """All of them by name: unknown ones, and those of another tenant, user or session."""
    artifacts = MemoryArtifactStore()
    mine = await artifacts.put_text(ArtifactScope("t", "u", "s"), "mine")
    others = [
        (await artifacts.put_text(ArtifactScope(*scope), f"of {scope}")).id
        for scope in (("t2", "u", "s"), ("t", "u2", "s"), ("t", "u", "s2"))
    ]
    bench = await runtimes([GOAL], artifacts=artifacts)
    with pytest.raises(ArtifactNotFoundError) as caught:
        await bench.start(input_artifacts=[mine.id, "gone", *others, ""])
    assert caught.value.id == ", ".join(("gone", *others, ""))
    for wrong in (mine.id, [mine], 3):
        with pytest.raises(InvalidOptionError, match="input_artifacts"):
            await bench.start(input_artifacts=wrong)
    assert await bench.rt.tasks.list(ME) == []
    assert bench.types("task.") == []


async def test_a_handle_is_got_at_once_and_looked_up_by_its_first_use() -> None:
    """So that an answer is one line; it is the owner's alone, and gives the typed output."""

    @tool(effects="external", approval="always")
    async def pay(euros: int) -> str:
        """Pay."""
        return f"paid {euros}"

    @workflow
    async def restock(ctx: WorkflowContext, goal: str) -> list[str]:
        return [await ctx.call(pay, euros=3)]

    async with Runtime([restock]) as rt:
        run = await rt.start(restock, "go", who=ME)
        await asyncio.wait_for(run.wait_pending(), 20)
        await rt.get(run.id, who=ME).approve()
        assert (await asyncio.wait_for(rt.get(run.id, who=ME).result(), 20)).output == ["paid 3"]


@pytest.mark.parametrize(
    "use",
    [
        lambda run: run.result(),
        lambda run: run.finished(),
        lambda run: run.status(),
        lambda run: run.history(),
        lambda run: run.pending(),
        lambda run: run.wait_pending(),
        lambda run: run.approve(),
        lambda run: run.answer(3),
        lambda run: run.cancel(),
        lambda run: run.message("hello"),
        lambda run: anext(run.events()),
        lambda run: anext(run.text()),
    ],
)
@pytest.mark.parametrize("is_there", [True, False], ids=["anothers", "unknown"])
async def test_a_handle_on_no_run_of_ones_own_does_nothing(use: Any, is_there: bool) -> None:
    """Whatever it is used for first; another owner learns no more than of an unknown run."""
    async with Runtime(planner=ScriptedPlanner([GOAL])) as rt:
        run_id = (await rt.start("g", who=Identity("t", "other", "s"))).id if is_there else "unknown"
        with pytest.raises(RunNotFoundError, match="no run"):
            await asyncio.wait_for(use(rt.get(run_id, who=ME)), 20)


async def test_a_web_application_keeps_the_runtime_open() -> None:
    runtime = Runtime(planner=ScriptedPlanner([GOAL]))
    async with runtime.lifespan(object()):
        assert await (await runtime.start("g", who=ME)).finished() == GOAL
    with pytest.raises(RuntimeClosedError):
        await runtime.start("g", who=ME)
