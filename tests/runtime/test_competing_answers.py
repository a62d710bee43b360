"""An answer resolves the pause of its token or none; of two answers the first counts, in all processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from harborage import (
    CallTool,
    Decision,
    EventType,
    Finish,
    FinishReason,
    Identity,
    PauseReason,
    RequestPause,
    RunContext,
    Runtime,
    SideEffect,
    tool,
)
from harborage.events import Cursor, DurableEventBus, Filter
from harborage.planner import ProcessLocalHandleRegistry
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.pauses import (
    AlreadyAnsweredError,
    AlreadyResumedError,
    Coordinator,
    ToolContextLostError,
)
from harborage.runtime.run import Run
from harborage.runtime.steering import ControlType, NoOutstandingPauseError
from harborage.state.storage import open_storage
from tests.kit.pauses import wait_for_pause
from tests.kit.planners import HandlePlanner

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")


@tool(effects=SideEffect.WRITE)
async def publish(text: str) -> str:
    """Publish a text."""
    return f"published {text}"


class Publishes:
    """Publishes a text, which a person must approve, or asks a question first; finishes with what came of it."""

    async def next(self, run: RunContext) -> Decision:
        assert run.trajectory is not None
        if run.goal == "ask":
            if run.trajectory.resume_hint is None:
                return RequestPause(PauseReason.AWAIT_INPUT, {"question": "go on?"})
            return Finish(FinishReason.GOAL, "went on")
        if not run.trajectory.steps:
            return CallTool("publish", b'{"text":"draft"}')
        return Finish(FinishReason.GOAL, str(run.trajectory.steps[0].observation))


@pytest.fixture(params=["memory", "sqlite"])
def url(request: Any, tmp_path: Path) -> str | None:
    return None if request.param == "memory" else f"sqlite:{tmp_path / 'runs.db'}"


def runtime(url: str | None, planner: Any = None, **parts: Any) -> Runtime:
    planner = Publishes() if planner is None else planner
    return Runtime(planner=planner, tools=[publish], approvals={"publish": AlwaysDeny()}, storage=url, **parts)


async def ended(run: Run) -> Finish:
    return await asyncio.wait_for(run.finished(), 20)


@pytest.mark.parametrize("goal", ["publish", "ask"])
async def test_an_answer_right_behind_another_is_refused(url: str | None, goal: str) -> None:
    """The run goes on as the first one says, and the second raises, whether or not the first is applied by then."""
    async with runtime(url) as rt:
        run = await rt.start(goal, who=WHO)
        token = (await wait_for_pause(run)).token
        assert await run.approve(token)
        with pytest.raises(AlreadyResumedError):
            await run.reject(token=token)
        finish = await ended(run)
    assert (finish.reason, finish.payload) == (
        FinishReason.GOAL,
        "published draft" if goal == "publish" else "went on",
    )


@pytest.mark.parametrize("goal", ["publish", "ask"])
async def test_of_answers_that_are_sent_at_once_one_is_taken(url: str | None, goal: str) -> None:
    """Every other one raises, and is announced as rejected."""
    async with runtime(url) as rt:
        run = await rt.start(goal, who=WHO)
        token = (await wait_for_pause(run)).token
        sent = (run.approve(token), run.reject(token=token), run.resume({"token": token}), run.approve(token))
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert results.count(True) == 1
        assert sum(isinstance(one, AlreadyResumedError | NoOutstandingPauseError) for one in results) == 3
        await ended(run)
        # From the bus: the run may have ended before the last ones were refused, and its stream with it.
        rejected = await rt.bus.replay(Cursor(WHO.session_id, 0), Filter.of(WHO, (EventType.CONTROL_REJECTED,)))
    assert len(rejected) == 3


async def edited(run: Run, token: str, args: dict[str, object]) -> bool:
    """Send an approval as a client does that checks nothing before."""
    return await run.control(ControlType.APPROVE, {"token": token, "args": args})


async def test_an_answer_that_comes_to_nothing_lets_another_be_sent(url: str | None) -> None:
    """Arguments that the tool does not take use no answer up, however often."""
    async with runtime(url) as rt:
        run = await rt.start("publish", who=WHO)
        token = (await wait_for_pause(run)).token
        failed = 0
        assert await edited(run, token, {"text": 7})
        async for event in run.events():
            if event.type == EventType.CONTROL_APPLIED and event.payload.outcome == "failed":  # type: ignore[union-attr]
                failed += 1
                assert await edited(run, token, {"text": 8} if failed < 3 else {"text": "better"})
        assert (await ended(run)).payload == "published better"
    assert failed == 3


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[Callable[[Run], Any]]:
    """Makes handles on a run as processes have them that do not carry it, each with a storage of its own."""
    async with AsyncExitStack() as opened:

        async def handle(run: Run) -> Run:
            storage = await opened.enter_async_context(await open_storage(f"sqlite:{tmp_path / 'runs.db'}"))
            bus = DurableEventBus(storage.store)
            opened.push_async_callback(bus.aclose)
            pauses = Coordinator(bus=bus, store=storage.store)
            engine = StoredEngine(storage.store, pauses)
            opened.push_async_callback(engine.aclose)
            return Run(run.who, engine, bus, pauses)

        yield handle


@pytest.mark.parametrize("goal", ["publish", "ask"])
async def test_two_processes_answer_and_one_is_taken(
    tmp_path: Path, processes: Callable[[Run], Any], goal: str
) -> None:
    """No worker executes the run: the first answer waits for the next worker, and the other one is refused."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    async with runtime(url) as rt:
        run = await rt.start(goal, who=WHO)
        token = (await wait_for_pause(run)).token
    first, second = await processes(run), await processes(run)
    assert await first.approve(token)
    with pytest.raises(AlreadyAnsweredError, match="has a pending answer, and the first one counts"):
        await second.reject(token=token)
    async with runtime(url) as rt:
        finish = await ended(await rt.run(run.id, who=WHO))
    assert finish.payload == ("published draft" if goal == "publish" else "went on")


async def test_another_process_may_answer_again_once_an_answer_came_to_nothing(
    tmp_path: Path, processes: Callable[[Run], Any]
) -> None:
    """That it did is known to every process over the storage."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    async with runtime(url) as rt:
        run = await rt.start("publish", who=WHO)
        token = (await wait_for_pause(run)).token
        assert await edited(run, token, {"text": 7})
        async for event in run.events():
            if event.type == EventType.CONTROL_APPLIED:
                break
        other = await processes(run)
        assert await other.approve(token, args={"text": "theirs"})
        assert (await ended(run)).payload == "published theirs"


async def test_a_run_whose_live_objects_are_lost_is_not_resumed(url: str | None) -> None:
    """The answer raises, by the name of what is missing, with or without a token; the same pause waits on."""
    handles = ProcessLocalHandleRegistry()
    async with runtime(url, HandlePlanner(), handles=handles) as rt:
        run = await rt.start("go", who=WHO)
        pause = await wait_for_pause(run)
        for answer in (run.resume, lambda: run.resume({}), lambda: run.resume({"token": pause.token}), run.approve):
            with pytest.raises(ToolContextLostError, match="browser"):
                await answer()
        assert [one.token for one in await run.waiting()] == [pause.token]
        handles.set("browser", object())
        assert await run.resume({})
        assert (await ended(run)).payload == "went on"


class PublishThenAsk:
    """Publishes a text, asks a question, and finishes with the first observation."""

    async def next(self, run: RunContext) -> Decision:
        assert run.trajectory is not None
        if not run.trajectory.steps:
            return CallTool("publish", b'{"text":"draft"}')
        if run.trajectory.resume_hint is not None:
            return Finish(FinishReason.GOAL, run.trajectory.steps[0].observation)
        return RequestPause(PauseReason.AWAIT_INPUT, {"question": "go on?"})


async def test_a_used_approval_token_does_not_answer_the_next_pause() -> None:
    """A REJECT under the token of a call that was answered is refused and leaves the open pause alone."""
    async with Runtime(planner=PublishThenAsk(), tools=[publish], approvals={"publish": AlwaysDeny()}) as rt:
        run = await rt.start("publish", who=WHO)
        token = ""
        async for event in run.events():
            if event.type == EventType.TOOL_APPROVAL_REQUESTED:
                token = event.payload.pause_token  # type: ignore[union-attr]
                await run.approve(token)
            elif event.type == EventType.PAUSE_REQUESTED and token:
                with pytest.raises(AlreadyResumedError, match=r"was resolved before \(approve by \w+ at "):
                    await run.reject(token=token)
                with pytest.raises(AlreadyResumedError):
                    await run.resume({"token": token})
                await run.resume()
        finish = await run.finished()
    assert (finish.reason, finish.payload) == (FinishReason.GOAL, "published draft")


async def test_arguments_that_the_tool_does_not_take_use_no_approval_up() -> None:
    """The answer is recorded as failed, the call waits on, and the next answer counts."""
    async with Runtime(planner=PublishThenAsk(), tools=[publish], approvals={"publish": AlwaysDeny()}) as rt:
        run = await rt.start("publish", who=WHO)
        answers = iter([{"text": 7}, {"words": "x"}, {"text": "better"}])
        outcomes: list[str] = []
        token = ""
        async for event in run.events():
            match event.type:
                case EventType.TOOL_APPROVAL_REQUESTED:
                    token = event.payload.pause_token  # type: ignore[union-attr]
                    await edited(run, token, next(answers))
                case EventType.CONTROL_APPLIED:
                    outcomes.append(event.payload.outcome)  # type: ignore[union-attr]
                    if outcomes[-1] == "failed":
                        (pause,) = await run.waiting()
                        assert pause.token == token
                        await edited(run, token, next(answers))
                case EventType.PAUSE_REQUESTED if outcomes:
                    await run.resume()
        assert (await run.finished()).payload == "published better"
    assert outcomes == ["failed", "failed", "applied", "applied"]
