"""A runtime that was opened on one event loop, and what its runs say on another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from harborage.identity import Identity
from harborage.planner import CallTool, Decision, Finish, FinishReason, RunContext
from harborage.runtime.durable.engine import EngineElsewhereError
from harborage.runtime.host import Runtime
from harborage.runtime.run import Run
from harborage.state.storage import Storage, open_storage
from harborage.tasks import SpawnRequest, TaskKind
from harborage.tools import SideEffect, tool

ME = Identity("t", "u", "s")


class Ends:
    """Ends at once if the goal is to, else thinks for ever."""

    async def next(self, run: RunContext) -> Decision:
        if run.goal != "end":
            await asyncio.Event().wait()
        return Finish(FinishReason.GOAL, "done")


def opened_elsewhere(goal: str, storage: str | None) -> tuple[Runtime, Run]:
    """A runtime and a run of it whose event loop has ended without closing them."""
    runtime = Runtime(planner=Ends(), storage=storage)

    async def begin() -> Run:
        await runtime.__aenter__()
        run = await runtime.start(goal, who=ME)
        if goal == "end":
            await run.finished()
        return run

    return runtime, asyncio.run(begin())


@pytest.fixture(params=["memory", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return None if request.param == "memory" else f"sqlite:{tmp_path / 'runs.db'}"


async def _read_events(run: Run) -> None:
    async for _ in run.events():
        pass


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda _, run: run.finished(), id="result"),
        pytest.param(lambda _, run: _read_events(run), id="events"),
        pytest.param(lambda _, run: run.cancel(hard=True), id="cancel"),
        pytest.param(lambda _, run: run.message("hello"), id="message"),
        pytest.param(lambda runtime, _: runtime.start("another", who=ME), id="start"),
        pytest.param(lambda runtime, run: runtime.fork(run.id, at=1, who=ME), id="fork"),
    ],
)
def test_what_only_the_first_event_loop_goes_on_with_is_refused(
    ask: Callable[[Runtime, Run], Awaitable[Any]], storage: str | None
) -> None:
    """A caller on another event loop gets an error that says to stay on one, and never hangs."""
    runtime, run = opened_elsewhere("think", storage)

    async def later() -> None:
        with pytest.raises(EngineElsewhereError, match="on one, in `async with Runtime"):
            await ask(runtime, run)
        assert [task.id for task in await runtime.tasks.list(ME)] == [run.id]  # nothing was begun
        await runtime.aclose()

    asyncio.run(later())


def test_a_run_that_has_ended_can_be_read_on_a_later_event_loop(storage: str | None) -> None:
    """Its result, status and history are there."""
    runtime, run = opened_elsewhere("end", storage)

    async def later() -> None:
        assert (await run.finished()).reason is FinishReason.GOAL
        assert (await run.status()).phase.is_final
        assert await run.history()
        await runtime.aclose()

    asyncio.run(later())


def test_a_runtime_that_was_closed_can_be_opened_on_another_event_loop() -> None:
    """Its runs start there, and so do those of tasks that another loop spawns."""
    runtime = Runtime(planner=Ends())

    async def use() -> None:
        async with runtime, asyncio.timeout(60):
            assert (await (await runtime.start("end", who=ME)).finished()).reason is FinishReason.GOAL
            request = SpawnRequest(identity=ME.with_run(""), kind=TaskKind.BACKGROUND, query="end")
            spawned = await runtime.tasks.spawn(request)
            run = None
            while run is None:
                await asyncio.sleep(0)
                run = next((status for status in await runtime.runs(who=ME) if status.run_id == spawned.id), None)
            assert (await (await runtime.run(spawned.id, who=ME)).finished()).reason is FinishReason.GOAL

    asyncio.run(use())
    asyncio.run(use())


@tool(effects=SideEffect.READ)
async def ponder() -> str:
    """Think for ever, but for the first time on another event loop."""
    return await Ponders.seen[-1].wait()


class Ponders:
    """Calls `ponder`, or ponders itself, as its goal says; never done on the first event loop."""

    seen: ClassVar[list[Ponders]] = []

    def __init__(self, *, is_last: bool) -> None:
        self.is_last = is_last
        self.is_waiting = asyncio.Event()
        self.seen.append(self)

    async def wait(self) -> str:
        self.is_waiting.set()
        if not self.is_last:
            await asyncio.Event().wait()
        return "done"

    async def next(self, run: RunContext) -> Decision:
        assert run.trajectory is not None
        if run.goal == "call" and not run.trajectory.steps:
            return CallTool("ponder")
        return Finish(
            FinishReason.GOAL, run.trajectory.steps[-1].observation if run.trajectory.steps else await self.wait()
        )


@pytest.mark.parametrize("goal", ["think", "call"])
def test_the_end_of_an_event_loop_fails_no_step(goal: str, caplog: pytest.LogCaptureFixture) -> None:
    """What was in flight is done again by the next runtime over the storage: only the loop cancelled it. Nothing
    is recorded of it, and so no record refused."""
    for _ in range(8):  # in which order tasks are cancelled is chance
        storage = asyncio.run(open_storage("memory:"))
        run_id = asyncio.run(begin(goal, storage))
        finish = asyncio.run(end(run_id, storage))
        assert (finish.reason, finish.payload) == (FinishReason.GOAL, "done")
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def begin(goal: str, storage: Storage) -> str:
    """Start a run whose step is in flight when this event loop ends."""
    planner = Ponders(is_last=False)
    runtime = Runtime(planner=planner, tools=[ponder], storage=storage)
    await runtime.__aenter__()
    run = await runtime.start(goal, who=ME)
    await planner.is_waiting.wait()
    return run.id


async def end(run_id: str, storage: Storage) -> Finish:
    async with (
        Runtime(planner=Ponders(is_last=True), tools=[ponder], storage=storage) as runtime,
        asyncio.timeout(60),
    ):
        return await (await runtime.run(run_id, who=ME)).finished()
