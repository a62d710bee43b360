"""What an open runtime does for pending work of all users, and how several runtimes share one storage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage.events import EventType
from harborage.identity import Identity
from harborage.planner import AwaitTask, CallTool, Finish, FinishReason, PauseReason, RequestPause, SpawnSpec, SpawnTask
from harborage.runtime.approval import AlwaysDeny, ApprovalDecision, answer_approval
from harborage.runtime.durable.engine import RunPhase
from harborage.runtime.durable.reader import phase_of
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import PauseDecision, PauseRequest
from harborage.runtime.run import Run
from harborage.sessions import SessionClosedError, SessionPolicy
from harborage.state.storage import Storage, open_storage
from harborage.store import RunQuery
from harborage.tasks import InProcessTaskRegistry, SpawnRequest, TaskFailure, TaskKind, TaskStatus
from harborage.testing.clock import FakeClock
from harborage.testing.planners import ScriptedPlanner
from tests.kit.stored_runs import row_of

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
ADMIN = frozenset({"admin"})
DONE = Finish(FinishReason.GOAL, "done")


class House:
    """A storage, the clock that everything in it goes by, and runtimes over it."""

    def __init__(self, storage: Storage, clock: FakeClock) -> None:
        self.storage = storage
        self.clock = clock

    def runtime(self, planner: ScriptedPlanner, *tools: Callable[..., Any], **more: Any) -> Runtime:
        """A runtime whose runs leave memory as soon as they only wait."""
        options = RuntimeOptions(linger=timedelta(0), **more.pop("options", {}))
        return Runtime(planner=planner, tools=tools, storage=self.storage, clock=self.clock, options=options, **more)

    async def until(self, enough: Callable[[], Awaitable[Any]]) -> Any:
        """What comes of `enough`, once it is something."""
        async with asyncio.timeout(60):
            while not (found := await enough()):
                await self.clock.run_for(0.05)
        return found

    async def end(self, run: Run) -> Any:
        """What the run's finish holds."""
        await self.until(lambda: self._has_ended(run))
        return (await run.finished()).payload

    async def parked(self, run: Run) -> None:
        """Return once the run waits and has left memory."""

        async def is_parked() -> bool:
            return phase_of(await row_of(self.storage.store, run.id)) is RunPhase.PARKED

        await self.until(is_parked)

    async def _has_ended(self, run: Run) -> bool:
        return (await run.status()).phase.is_final


@pytest.fixture(params=["memory:", "sqlite:"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    """A storage that outlives the runtimes of a test; the same object for all of them, as one process has it."""
    clock = FakeClock()
    url = request.param if request.param == "memory:" else f"sqlite:{tmp_path / 'kept.db'}"
    async with await open_storage(url, clock=clock) as storage:
        yield House(storage, clock)


async def test_a_pause_takes_its_default_although_no_worker_has_its_run(house: House) -> None:
    """A runtime of another agent resolves it when it opens; the run continues with the next worker of its agent."""
    script = ScriptedPlanner([RequestPause(PauseReason.AWAIT_INPUT), DONE])
    async with house.runtime(script, agent="a", options={"pause_ttl": timedelta(days=7)}) as first:
        run_id = (run := await first.start("go", who=ME)).id
        await house.parked(run)
        (pause,) = await run.waiting()
    house.clock.advance(timedelta(days=7).total_seconds())
    async with house.runtime(script, agent="b") as other:

        async def settled() -> bool:
            return not (await other.pauses.status(pause.token, who=ME)).is_paused

        await house.until(settled)
        assert (await other.pauses.status(pause.token, who=ME)).decision is PauseDecision.TIMEOUT
    async with house.runtime(script, agent="a") as again:
        run = await again.run(run_id, who=ME)
        await house.until(lambda: house._has_ended(run))
        assert (await run.finished()).reason is FinishReason.DEADLINE_EXCEEDED


async def test_an_open_runtime_looks_again_every_so_often(house: House) -> None:
    """A pause without a run takes its default at its deadline, while the runtime is open."""
    async with house.runtime(ScriptedPlanner([DONE]), options={"upkeep": timedelta(minutes=1)}) as rt:
        request = PauseRequest(
            identity=ME, reason=PauseReason.AWAIT_INPUT, deadline=house.clock.now() + timedelta(seconds=90)
        )
        token = (await rt.pauses.request(request)).token
        await house.clock.run_for(70)
        assert (await rt.pauses.status(token, who=ME)).is_paused

        async def settled() -> bool:
            return not (await rt.pauses.status(token, who=ME)).is_paused

        await house.until(settled)
        assert house.clock.monotonic() < 180


async def test_without_a_storage_pauses_have_their_deadline_too() -> None:
    """What ends with the process is looked after while it lives."""
    clock = FakeClock()
    async with Runtime(planner=ScriptedPlanner([DONE]), clock=clock) as rt:
        request = PauseRequest(identity=ME, reason=PauseReason.AWAIT_INPUT, deadline=clock.now() + timedelta(minutes=1))
        token = (await rt.pauses.request(request)).token
        await clock.run_for(600)
        assert (await rt.pauses.status(token, who=ME)).decision is PauseDecision.TIMEOUT


async def test_an_approval_is_answered_while_no_worker_has_its_run(house: House) -> None:
    """By a process that has not even the tool; then the call that was shown is made, once."""
    paid: list[int] = []

    async def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    script = ScriptedPlanner([CallTool("pay", b'{"amount":7}'), DONE])
    gates = {"pay": AlwaysDeny("look first")}
    async with house.runtime(script, pay, approvals=gates, agent="a") as first:
        run_id = (run := await first.start("go", who=ME)).id
        await house.parked(run)
        token = (await run.waiting())[0].token
    async with house.runtime(ScriptedPlanner([DONE]), agent="b") as other:
        answered = await answer_approval(
            other.pauses, token, ApprovalDecision.APPROVE, redactor=Plain(), who=ME, scopes=ADMIN
        )
        assert answered.decision is PauseDecision.APPROVE
        assert (await (await other.run(run_id, who=ME)).status()).phase is not RunPhase.FINISHED
    assert paid == []
    async with house.runtime(script, pay, approvals=gates, agent="a") as again:
        assert await house.end(await again.run(run_id, who=ME)) == "done"
    assert paid == [7]


class Plain:
    """Redacts nothing."""

    def redact(self, value: Any) -> Any:
        return value


async def test_who_watches_in_one_process_sees_what_another_does(house: House) -> None:
    """The stream of a run that is carried elsewhere goes on to its end, with nothing left out."""
    script = ScriptedPlanner([CallTool("work", b"{}"), CallTool("work", b"{}"), DONE])
    go_on = asyncio.Event()

    async def work() -> str:
        """Work while its event is set."""
        await go_on.wait()
        return "worked"

    async with house.runtime(script, work, agent="a") as worker, house.runtime(script, agent="b") as watcher:
        run = await worker.start("go", who=ME)
        seen: list[str] = []

        async def watch() -> None:
            async for event in (await watcher.run(run.id, who=ME)).events():
                seen.append(str(event.type))  # noqa: PERF401 - read while it grows

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())

            async def has_begun() -> bool:
                return EventType.TOOL_INVOKED in seen

            await house.until(has_begun)
            go_on.set()

            async def is_over() -> bool:
                return watching.done()

            await house.until(is_over)
        assert seen == [str(event.type) async for event in run.events()]
        assert seen[-1] == EventType.TASK_COMPLETED


async def test_parents_and_children_may_be_carried_by_different_processes(house: House) -> None:
    """Each parent gets the answer of its own child, whichever worker executed which."""
    script = ScriptedPlanner(
        [
            SpawnTask(spec=SpawnSpec(query="child")),
            lambda run: AwaitTask(run.trajectory.steps[0].observation["task_id"]),
            lambda run: Finish(FinishReason.GOAL, run.trajectory.steps[1].observation["result"]["answer"]),
        ],
        by_query={"child": [CallTool("work", b"{}"), lambda run: Finish(FinishReason.GOAL, run.quadruple.run_id)]},
    )

    async def work() -> str:
        """Work."""
        return "worked"

    async with house.runtime(script, work) as one, house.runtime(script, work) as two:
        runs = [await (one, two)[number % 2].start(f"go {number}", who=ME) for number in range(8)]
        for run in runs:
            child = await house.end(run)

            async def is_known(child: str = child) -> bool:
                return (await one.tasks.get(child, who=ME)).status is TaskStatus.COMPLETE

            await house.until(is_known)
            assert (await one.tasks.get(child, who=ME)).parent_task_id == run.id


async def test_a_run_that_awaits_a_task_without_a_run_is_woken_by_its_end(house: House) -> None:
    """A program ends the task itself; the parked run waits for that end."""
    script = ScriptedPlanner(
        [
            lambda run: AwaitTask(run.goal),
            lambda run: Finish(FinishReason.GOAL, run.trajectory.steps[0].observation["status"]),
        ]
    )
    async with house.runtime(script, agent="a") as rt:
        # A registry of its own, so that no runtime begins a run for it.
        tasks = InProcessTaskRegistry(bus=rt.bus, store=house.storage.store, clock=house.clock)
        boss = await tasks.spawn(SpawnRequest(identity=ME.with_run(""), kind=TaskKind.FOREGROUND, query="boss"))
        spawn = SpawnRequest(
            identity=ME.with_run(""), kind=TaskKind.BACKGROUND, query="by hand", parent_task_id=boss.id
        )
        by_hand = (await tasks.spawn(spawn)).id
        run = await rt.start(by_hand, who=ME)
        await house.parked(run)
        await rt.tasks.mark_running(by_hand, who=ME)
        await rt.tasks.mark_failed(by_hand, TaskFailure("x", "broke"), who=ME)
        assert await house.end(run) == "failed"
        await tasks.aclose()


async def test_a_session_is_opened_by_its_first_run_and_seen_by_each(house: House) -> None:
    """It is there for the next process, too."""
    async with house.runtime(ScriptedPlanner([DONE])) as first:
        await house.end(await first.start("go", who=ME))
        opened = await first.sessions.get("s", who=ME)
        house.clock.advance(3600)
        await house.end(await first.start("go", who=ME))
    async with house.runtime(ScriptedPlanner([DONE])) as second:
        session = await second.sessions.get("s", who=ME)
        assert session.opened_at == opened.opened_at
        assert session.last_seen >= opened.last_seen + timedelta(hours=1)
        assert [one.id for one in await second.sessions.list(who=ME)] == ["s"]


async def test_no_run_starts_in_a_session_that_was_closed(house: House) -> None:
    """Whichever process closed it; nothing of the run is left behind."""
    async with house.runtime(ScriptedPlanner([DONE])) as first:
        await house.end(await first.start("go", who=ME))
        await first.sessions.close(ME, "enough")
    async with house.runtime(ScriptedPlanner([DONE])) as second:
        with pytest.raises(SessionClosedError, match="enough"):
            await second.start("go", who=ME)
        assert len(await second.tasks.list(ME)) == 1
        assert second.control_history(who=ME) == []
        await house.end(await second.start("go", who=Identity("t", "u", "another")))


async def test_no_run_starts_in_a_session_that_another_process_has_just_closed(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that has seen the session a moment ago asks for it no more: the store refuses the start itself, and its
    caller alone gets the refusal."""
    async with (
        house.runtime(ScriptedPlanner([DONE]), agent="a") as first,
        house.runtime(ScriptedPlanner([DONE]), agent="b") as second,
    ):
        run = await first.start("go", who=ME)
        await house.end(run)
        await second.sessions.close(ME, "enough")
        for _ in range(2):
            with pytest.raises(SessionClosedError, match="enough"):
                await first.start("go", who=ME)
        assert [one.status for one in await first.tasks.list(ME)] == [TaskStatus.COMPLETE]
        mine = RunQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id)
        assert [row.run_id for row in (await house.storage.store.runs(mine)).rows] == [run.id]
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_session_is_swept_up_once_nothing_runs_in_it(house: House) -> None:
    """A run that waits for days keeps its session open, although no process carries it."""
    script = ScriptedPlanner([RequestPause(PauseReason.AWAIT_INPUT), DONE])
    policy = SessionPolicy(idle_ttl=timedelta(hours=1))
    async with house.runtime(script, agent="a", options={"session_policy": policy}) as first:
        run = await first.start("go", who=ME)
        await house.parked(run)
    house.clock.advance(timedelta(days=1).total_seconds())
    async with house.runtime(script, agent="b", options={"session_policy": policy}) as other:
        sweep = await other.sessions.sweep()
        assert (sweep.reaped, sweep.error) == ((), None)
        assert (await other.sessions.inspect("s", who=ME)).is_running
    async with house.runtime(script, agent="a", options={"session_policy": policy}) as again:
        run = await again.run(run.id, who=ME)
        await run.resume()
        assert await house.end(run) == "done"

        async def is_seen() -> bool:
            return (await again.sessions.get("s", who=ME)).last_seen > house.clock.now() - timedelta(hours=1)

        await house.until(is_seen)  # the end of a long run is a sign of life
        assert (await again.sessions.sweep()).reaped == ()
        house.clock.advance(3601)

        async def is_closed() -> bool:
            return (await again.sessions.get("s", who=ME)).closed

        await again.sessions.sweep()
        await house.until(is_closed)
