"""The blocking façade: the same runtime, for programs without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import harborage.sync as blocking
from harborage import Agent
from harborage.identity import Identity
from harborage.planner import CallTool, Finish, FinishReason, PauseReason, RequestPause, RunContext
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import RunFailedError, RunNotFoundError, RunPhase, RuntimeClosedError
from harborage.runtime.steering import Scope, SteeringError
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import tool
from harborage.tools.errors import ToolNotFoundError

ME = Identity("t", "u", "s")
GOAL = Finish(FinishReason.GOAL, "done")
ASK = RequestPause(PauseReason.AWAIT_INPUT, {"q": 1})


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(effects="external", approval="always")
async def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


ADD = CallTool("add", b'{"a":1,"b":2}')


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Whatever a test did, its loop's thread has ended."""
    before = set(threading.enumerate())
    yield
    assert [one for one in set(threading.enumerate()) - before if one.name == "harborage"] == []


def opened(*lines: Any, **parts: Any) -> blocking.Runtime:
    return blocking.Runtime(planner=ScriptedPlanner(lines), tools=[add], **parts)


def waiting(run: blocking.Run) -> Any:
    """The pause that the run waits for, once it does."""
    for event in run.events():
        if event.type in {"pause.requested", "tool.approval_requested"}:
            break
    (pause,) = run.waiting()
    return pause


def test_a_run_from_beginning_to_end() -> None:
    """Start, watch, result, status, and find it again."""
    with opened(ADD, GOAL) as rt:
        run = rt.start("sum", who=ME, priority=3)
        types = [event.type for event in run.events()]
        assert (types[0], types[-1]) == ("task.spawned", "task.completed")
        assert run.finished() == GOAL
        assert run.status().phase is RunPhase.FINISHED
        assert rt.run(run.id, who=ME).id == run.id
        with pytest.raises(RunNotFoundError):
            rt.run(run.id, who=Identity("t2", "u", "s"))


def test_every_control_goes_through() -> None:
    """As from an event loop."""

    def tells(run: RunContext) -> Finish:
        published = run.control
        return Finish(FinishReason.GOAL, [run.goal, *published.user_messages, *published.injected_context])

    with opened(ASK, ASK, tells) as rt:
        run = rt.start("g", who=ME)
        waiting(run)
        assert rt.run(run.id, who=ME, scope=Scope.ADMIN).prioritize(3)
        assert run.approve()
        while not run.waiting():
            pass
        for sent in (run.message("hi"), run.inject({"k": 1}), run.redirect("new"), run.resume({"a": 1})):
            assert sent
        assert run.finished().payload == ["new", "hi", {"k": 1}]
        run = rt.start("g", who=ME)
        waiting(run)
        assert run.pause()
        assert run.reject(reason="no")
        assert run.finished().reason is FinishReason.CONSTRAINTS_CONFLICT
        run = rt.start("g", who=ME)
        waiting(run)
        assert run.cancel(hard=True)
        assert run.finished().metadata["steering_reason"] == "hard_cancel"


def test_a_call_is_approved_with_other_arguments() -> None:
    """By its token."""
    with opened(ADD, lambda run: Finish("goal", run.trajectory.steps[0].observation), approvals=AlwaysDeny()) as rt:
        run = rt.start("g", who=ME)
        assert run.approve(waiting(run).token, args={"a": 5, "b": 5})
        assert run.finished().payload == 10


def test_errors_come_out_as_they_are() -> None:
    """Of a run, of a control, and of the opening."""
    with opened(LookupError("lost")) as rt:
        run = rt.start("g", who=ME)
        with pytest.raises(RunFailedError, match="lost"):
            run.finished()
    with opened(ASK) as rt:
        run = rt.start("g", who=ME)
        waiting(run)
        with pytest.raises(SteeringError):
            run.message("x" * 5000)
    with pytest.raises(ToolNotFoundError), opened(GOAL, approvals={"nope": AlwaysDeny()}):
        pass


def test_outside_its_block_nothing_works() -> None:
    """Before and after; closing twice is closing once, and it may be opened again."""
    rt = opened(GOAL)
    for _ in range(2):
        for attempt in (lambda: rt.start("g", who=ME), lambda: rt.run("r", who=ME)):
            with pytest.raises(RuntimeClosedError):
                attempt()
        rt.close()
        with rt:
            assert rt.start("g", who=ME).finished() == GOAL


def test_a_handle_that_outlived_its_runtime_says_so() -> None:
    """Every verb; a stream that was left open just ends."""
    with opened(ASK) as rt:
        run = rt.start("g", who=ME)
        stream = run.events()
        next(stream)
    for attempt in (run.finished, run.status, run.waiting, run.cancel, run.resume, lambda: next(stream)):
        with pytest.raises(RuntimeClosedError):
            attempt()
    stream.close()


def test_closing_lets_waiting_threads_go() -> None:
    """A thread that waits for a result, or for the next event, gets an error; no thread hangs."""
    said: list[str] = []

    def wait(work: Any) -> None:
        try:
            work()
            said.append("ended")
        except Exception as error:
            said.append(type(error).__name__)

    with opened(ASK) as rt:
        run = rt.start("g", who=ME)
        waiting(run)
        threads = [
            threading.Thread(target=wait, args=(work,)) for work in (run.finished, lambda: [None for _ in run.events()])
        ]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert len(said) == 2
    # Which of these a thread hears depends on whether it had begun to wait when the runtime closed.
    assert set(said) <= {"ended", "EngineClosedError", "RuntimeClosedError"}
    assert said != ["ended", "ended"]


def test_whatever_still_waits_is_let_go_when_the_loop_ends() -> None:
    """Also what no part of the runtime would ever wake; later calls are refused, and their work is not begun."""
    thread = blocking._LoopThread()
    begun, said = threading.Event(), []

    async def wait_for_ever() -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    def wait() -> None:
        try:
            thread.call(wait_for_ever())
        except RuntimeClosedError:
            said.append("closed")

    waiter = threading.Thread(target=wait)
    waiter.start()
    begun.wait(10)
    thread.close()
    waiter.join(10)
    assert said == ["closed"]
    with pytest.raises(RuntimeClosedError):
        thread.call(wait_for_ever())


def test_many_threads_share_one_runtime() -> None:
    """Each starts and waits for a run of its own."""
    answers: dict[str, Any] = {}
    with blocking.Runtime(planner=ScriptedPlanner([lambda run: Finish("goal", run.goal)])) as rt:

        def one(name: str) -> None:
            answers[name] = rt.start(name, who=Identity("t", "u", name)).finished().payload

        threads = [threading.Thread(target=one, args=(f"s{index}",)) for index in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert answers == {f"s{index}": f"s{index}" for index in range(16)}


async def test_a_caller_whose_own_loop_is_running_uses_it_as_any_other() -> None:
    """As in a notebook: the whole block works in a thread with a running loop, its end and a second `close` as well."""
    asyncio.get_running_loop()
    with opened(ADD, GOAL) as rt:
        run = rt.start("sum", who=ME)
        assert [event.type for event in run.events()][-1] == "task.completed"
        assert run.finished() == GOAL
    rt.close()
    with pytest.raises(RuntimeClosedError):
        rt.start("late", who=ME)


async def test_with_a_running_loop_a_run_that_goes_on_ends_with_the_block() -> None:
    """Leaving the block while a run waits ends it, and the thread, without help of the caller's loop."""
    with opened(ASK, GOAL) as rt:
        run = rt.start("wait", who=ME)
        assert waiting(run).reason is PauseReason.AWAIT_INPUT


async def test_with_a_running_loop_what_cannot_be_opened_says_so_and_leaves_nothing() -> None:
    """The error of opening comes out as it is, and the thread has ended."""
    with pytest.raises(ToolNotFoundError), opened(GOAL, approvals={"nope": AlwaysDeny()}):
        pass


def test_a_call_on_the_loops_own_thread_is_refused() -> None:
    """An async tool that calls the façade would wait for itself: it is told so by name, and its run goes on."""
    runtimes: list[Any] = []

    @tool
    async def peek() -> str:
        """Look at the runtime from inside."""
        with pytest.raises(blocking.BlockingCallError, match="plain `def`"):
            runtimes[0].run("x", who=ME)
        with pytest.raises(blocking.BlockingCallError):
            runtimes[0]._thread.close()
        return "refused"

    with blocking.Runtime(planner=ScriptedPlanner([CallTool("peek", b"{}"), GOAL]), tools=[peek]) as rt:
        runtimes.append(rt)
        assert rt.start("g", who=ME).finished() == GOAL


def test_closing_abandons_what_ignores_its_cancellation(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names it; a caller that waits for it in another thread learns that the runtime is closed."""
    monkeypatch.setattr(blocking, "_GRACE_S", 0.05)
    is_begun, is_done = threading.Event(), threading.Event()

    async def stubborn() -> None:
        is_begun.set()
        while not is_done.is_set():
            try:
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                pass

    thread = blocking._LoopThread()
    refused: list[str] = []

    def wait() -> None:
        try:
            thread.call(stubborn())
        except RuntimeClosedError as error:
            refused.append(str(error))

    waits = threading.Thread(target=wait)
    waits.start()
    assert is_begun.wait(5)
    thread.close()
    is_done.set()
    waits.join(5)
    assert len(refused) == 1
    assert "abandoned, ignoring their cancellation" in caplog.text


def test_agents_talk_ask_and_are_found_by_the_same_names() -> None:
    """Start by value, answer what is pending, read the result, page through the runs, go on with a conversation."""
    lines = [calls_tools(("pay", {"euros": 3})), says("paid")]
    model = ScriptedLLM(lines, by_text={"and?": [says("again")], "hi": [says("hello")]})
    agent = Agent("payer", tools=[pay], model=model)
    with blocking.Runtime([agent]) as rt:
        run = rt.start(agent, "Pay 3 euros", who=ME, tags={"shop": "porto"}, key="one")
        (asked,) = [run.wait_pending()]
        assert (asked.tool, asked.args, asked.run_id) == ("pay", {"euros": 3}, run.id)
        (same,) = rt.pending(who=ME)
        assert same.token == asked.token == run.pending()[0].token
        assert same.approve(args={"euros": 2})
        result = rt.get(run.id, who=ME).result()
        assert (result.output, result.messages[2].text) == ("paid", "paid 2")
        assert len(run.history()) > 2
        assert rt.start(agent, "Pay 3 euros", who=ME, key="one").id == run.id
        assert [one.run_id for one in rt.runs(who=ME, tags={"shop": "porto"}, status="complete")] == [run.id]
        chat = rt.session(agent, who=Identity("t", "u", "chat"))
        assert chat.send("hi").output == "hello"
        assert "".join(chat.start("and?").text()) in {"again", ""}
    for late in (lambda: rt.runs(who=ME), lambda: rt.get(run.id, who=ME)):
        with pytest.raises(RuntimeClosedError):
            late()
