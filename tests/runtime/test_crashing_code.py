"""What code of others raises beside ordinary errors: it fails what called it, not the host and not the event loop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from harborage.concurrency import Crew, together
from harborage.crashes import WorkCrashedError, is_order_to_stop
from harborage.errors import error_reason, error_summary, error_text
from harborage.identity import Identity
from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.engine import RunFailedError, RunPhase
from harborage.runtime.durable.steps import EffectTable
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.host import Runtime
from harborage.runtime.loop.context import ContextSource
from harborage.runtime.loop.seam import Durable, RunRequest
from harborage.runtime.pauses import Coordinator
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock, settle

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
GOAL = Finish(FinishReason.GOAL, "done")


class NoText(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class WrongText(Exception):
    """Its text is none."""

    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307


class Halt(BaseException):
    """No Exception."""


CRASHES: tuple[BaseException, ...] = (
    SystemExit(3),
    GeneratorExit(),
    Halt("stop"),
    BaseExceptionGroup("two", [SystemExit(1), GeneratorExit()]),
    asyncio.CancelledError("not the run's"),
    NoText(),
    WrongText(),
)


class Raises:
    """Context provider, planner and memory that raise what they are given."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def provide(self, run: Any) -> Any:
        raise self.error

    async def next(self, run: Any) -> Any:
        raise self.error


class Ends:
    """Reaches its goal at once."""

    async def next(self, run: Any) -> Finish:
        return Finish(FinishReason.GOAL, "done")


async def test_a_run_goes_on_without_an_optional_provider_whatever_it_raises() -> None:
    """Also one that the caller of `start` names."""
    for error in CRASHES:
        source = ContextSource(provider=Raises(error), name="broken")
        async with Runtime(planner=Ends(), context=[source]) as rt:
            run = await rt.start("g", who=ME)
            assert (await run.finished()).payload == "done", f"{type(error).__name__} failed the run"
            named = await rt.start("g", who=ME, context=[Raises(error)])
            assert (await named.finished()).payload == "done", f"{type(error).__name__} of start failed the run"


async def test_a_run_without_a_required_provider_fails_with_a_reason() -> None:
    """The reason names the provider and what it raised."""
    for error in CRASHES:
        source = ContextSource(provider=Raises(error), name="broken", is_required=True)
        async with Runtime(planner=Ends(), context=[source]) as rt:
            run = await rt.start("g", who=ME)
            with pytest.raises(RunFailedError, match="required context provider 'broken' gave nothing: "):
                await run.finished()


async def test_a_planner_that_crashes_fails_its_run(tmp_path: Any) -> None:
    """No run stays running without a task, in memory or in a database."""
    for storage in (None, f"sqlite:{tmp_path / 'runs.db'}"):
        for error in CRASHES:
            async with Runtime(planner=Raises(error), storage=storage) as rt:
                run = await rt.start("g", who=ME)
                with pytest.raises(RunFailedError):
                    await run.finished()
                assert (await run.status()).phase is RunPhase.FAILED, f"{type(error).__name__}, {storage}"


async def test_a_run_whose_asyncio_task_is_cancelled_is_resumed() -> None:
    """Only its host may stop it: the task of a run that was cancelled from elsewhere is replaced by another."""
    tasks: list[asyncio.Task[Any]] = []
    clock = FakeClock()

    async def program(io: Durable, request: RunRequest) -> Finish:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        if len(tasks) == 1:
            await asyncio.Event().wait()
        return GOAL

    engine = StoredEngine(MemoryStore(clock=clock), Coordinator(clock=clock), clock=clock)
    serving = asyncio.ensure_future(engine.serve(program, EffectTable({})))
    await engine.start("r", RunRequest(who=ME.with_run("r"), goal="g"))
    await settle()
    tasks[0].cancel()
    assert await engine.result("r") == GOAL
    assert len(tasks) == 2
    serving.cancel()
    await asyncio.wait([serving])
    await engine.aclose()


async def test_a_program_that_crashes_fails_its_run() -> None:
    """Whatever ends the task that carries a run, the run ends with it, or goes on in another."""
    clock = FakeClock()
    for error in CRASHES:

        async def program(io: Durable, request: RunRequest, error: BaseException = error) -> Finish:
            raise error

        engine = StoredEngine(MemoryStore(clock=clock), Coordinator(clock=clock), clock=clock)
        serving = asyncio.ensure_future(engine.serve(program, EffectTable({})))
        await engine.start("r", RunRequest(who=ME.with_run("r"), goal="g"))
        with pytest.raises(RunFailedError):
            await engine.result("r")
        assert (await engine.status("r")).phase is RunPhase.FAILED, type(error).__name__
        serving.cancel()
        await asyncio.wait([serving])
        await engine.aclose()


async def test_a_crash_in_a_task_of_a_crew_is_reported_and_the_loop_goes_on() -> None:
    """Where the task is awaited, it is an ordinary error there."""
    reported: list[str] = []
    left: list[BaseException | None] = []
    crew = Crew(lambda name, error: reported.append(f"{name}: {error}"))

    async def crash(error: BaseException) -> None:
        raise error

    for error in (SystemExit(3), GeneratorExit(), Halt("stop")):
        with pytest.raises(WorkCrashedError, match=type(error).__name__):
            await crew.start(crash(error), "work")
        with pytest.raises(WorkCrashedError, match=type(error).__name__):
            await crew.within(partial(crash, error), 1, "work", clock=FakeClock(), on_left=left.append)
        with pytest.raises(WorkCrashedError, match=type(error).__name__):
            await together(crash(error))
    with pytest.raises(WorkCrashedError, match="cancelled elsewhere"):
        await crew.within(partial(crash, asyncio.CancelledError()), 1, "work", clock=FakeClock(), on_left=left.append)
    await crew.aclose()
    assert reported[0] == "work: it raised SystemExit: 3"
    assert left == []


async def test_work_that_is_cancelled_before_its_first_turn_leaves_no_coroutine_behind() -> None:
    """A coroutine that is never awaited is a warning, and those are errors in these tests."""
    crew = Crew(lambda name, error: None)
    crew.start(asyncio.sleep(1), "never begun")
    await crew.aclose()
    both = asyncio.ensure_future(together(asyncio.sleep(1), asyncio.sleep(1)))
    await asyncio.sleep(0)
    both.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both


async def test_a_coroutine_that_is_thrown_away_is_no_crash() -> None:
    """A GeneratorExit in the running task is what its code raised; elsewhere it ends the coroutine."""
    task = asyncio.current_task()
    table: list[tuple[BaseException, Any, bool]] = [
        (GeneratorExit(), task, False),
        (GeneratorExit(), None, True),
        (KeyboardInterrupt(), task, True),
        (asyncio.CancelledError(), task, True),
        (SystemExit(), task, False),
        (Halt(), task, False),
    ]
    for error, owner, expected in table:
        assert is_order_to_stop(error, owner) is expected, repr(error)


def test_the_text_of_any_error_can_be_shown() -> None:
    """Also of one whose `__str__` raises or gives no text; what cannot be encoded is escaped."""
    for show in (error_text, error_reason, error_summary):
        for error in (*CRASHES, ValueError("\ud800")):
            assert show(error).encode() is not None
        assert "__str__ raised RuntimeError" in show(NoText())
        assert "__str__ raised TypeError" in show(WrongText())
    assert error_summary(ValueError("bad")) == "ValueError: bad"
    assert error_summary(ValueError()) == "ValueError"
