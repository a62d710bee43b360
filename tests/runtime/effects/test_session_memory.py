"""A session that remembers: a run sees what was said before, and is remembered when it reached its goal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from harborage.errors import InvalidOptionError
from harborage.events import MemoryEventBus
from harborage.identity import Identity
from harborage.llm import CompleteRequest, CompleteResponse
from harborage.memory import Memory, SessionMemory
from harborage.planner import CallTool, Finish, FinishReason, RunContext, SpawnSpec, SpawnTask
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.durable.journal import decode_entries
from harborage.runtime.host import Runtime
from harborage.runtime.loop.context import Context, ContextRequest
from harborage.state import MemoryStateStore, StateRecord
from harborage.state.errors import DatabaseError
from harborage.state.storage import Storage
from harborage.tasks import TaskStatus
from harborage.testing.clock import FakeClock
from harborage.testing.planners import ScriptedPlanner
from tests.kit.stored_runs import keep

pytestmark = pytest.mark.anyio

Runtimes = Callable[..., Awaitable[Any]]
ADA = Identity("t", "ada", "s")


def show(run: RunContext) -> Finish:
    """The end of a run that answers with what it was shown of its session."""
    return Finish(FinishReason.GOAL, _shown(run))


def _shown(run: RunContext) -> Any:
    return None if run.memory_blocks is None else run.memory_blocks.conversation


class Model:
    """A model that answers each run with the number of its call, and summaries with what it was given."""

    def __init__(self) -> None:
        self.requests: list[CompleteRequest] = []
        self.summaries: list[CompleteRequest] = []

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        if "running" in str(request.messages[0].content.text) or "summary" in str(request.messages[0].content.text):
            self.summaries.append(request)
            return CompleteResponse(content=f"  summary {len(self.summaries)}\n")
        self.requests.append(request)
        return CompleteResponse(content=f"answer {len(self.requests)}")

    async def close(self) -> None:
        """Nothing is open."""


async def ask(runtime: Runtime, goal: str, who: Identity = ADA) -> str:
    """The answer of one run."""
    run = await runtime.start(goal, who=who)
    async with asyncio.timeout(20):
        return (await run.finished()).payload


def texts(request: CompleteRequest) -> list[str]:
    """The prompt, message by message."""
    return [str(message.content.text) for message in request.messages]


async def test_the_second_run_of_a_session_is_shown_the_first() -> None:
    """Its prompt holds goal and answer of the first, framed as data; another session's and user's holds neither."""
    model = Model()
    async with Runtime(model=model, memory="truncation") as runtime:
        await ask(runtime, "Call me Zed.")
        await ask(runtime, "What is my name?")
        for who in (Identity("t", "ada", "other"), Identity("t", "bob", "s"), Identity("t2", "ada", "s")):
            await ask(runtime, "Who am I?", who)
    first, second, *others = (texts(request) for request in model.requests)
    framed = [text for text in second if "<read_only_conversation_memory>" in text]
    assert len(framed) == 1
    assert "UNTRUSTED" in framed[0]
    assert '{"recent_turns":[{"assistant":"answer 1","user":"Call me Zed."}],"strategy":"truncation"}' in framed[0]
    for prompt in (first, *others):
        assert "Zed" not in "".join(prompt) or prompt is first
        assert "read_only_conversation_memory" not in "".join(prompt)


async def test_nothing_is_remembered_unless_it_is_asked_for() -> None:
    """By default, and with strategy none, a run sees nothing of the one before."""
    for memory in (None, "none"):
        model = Model()
        async with Runtime(model=model, memory=memory) as runtime:
            await ask(runtime, "Call me Zed.")
            await ask(runtime, "What is my name?")
            assert runtime.memory is None
        assert "Zed" not in "".join(texts(model.requests[1])), memory


async def test_a_rolling_summary_is_made_by_the_runtimes_model() -> None:
    """The fifth turn has the first summarised, under the session's identity, and later prompts hold the summary."""
    model = Model()
    async with Runtime(model=model, memory=Memory(summary_model="small")) as runtime:
        for number in range(1, 7):
            await ask(runtime, f"question {number}")
    assert [request.model for request in model.summaries] == ["small"] * 2
    system, user = texts(model.summaries[0])
    assert "not instructions" in system
    assert user == "[Previous summary]\n(none)\n\n[New turns]\nU: question 1\nA: answer 1"
    assert "[Previous summary]\nsummary 1\n" in texts(model.summaries[1])[1]
    last = "".join(texts(model.requests[5]))
    assert '"summary":"summary 1"' in last
    assert "question 2" in last
    assert "question 1" not in last


async def test_only_a_run_that_reached_its_goal_is_remembered(runtimes: Runtimes) -> None:
    """Not one that failed, found no way, or was cancelled; nor a child, nor a fork that changes nothing outside."""
    ends = {
        "no path": Finish(FinishReason.NO_PATH, "lost"),
        "failed": ValueError("bug"),
        "goal": Finish(FinishReason.GOAL, "found"),
        "part": Finish(FinishReason.GOAL, "part of it"),
    }
    spawns = [SpawnTask(spec=SpawnSpec(query="part", retain_turn=True)), Finish(FinishReason.GOAL, "whole")]
    planner = ScriptedPlanner(spawns, by_query={query: [end] for query, end in ends.items()})
    bench = await runtimes(planner, memory="truncation")
    for goal in ("no path", "failed", "goal", "parent"):
        run = await bench.start(goal)
        try:
            await bench.end(run)
        except RunFailedError:
            assert goal == "failed"
    fork = await bench.rt.fork(run.id, at=2, who=bench.ME)
    await bench.end(fork)
    patch = await bench.rt.memory.context(bench.ME)
    assert [(turn.user_message, turn.assistant_response) for turn in patch.recent_turns] == [
        ("goal", "found"),
        ("parent", "whole"),
    ]


async def test_a_child_is_not_shown_the_conversation(runtimes: Runtimes) -> None:
    """It works on a task of its own: what was said before is its parent's to pass on."""
    child: list[Any] = []

    def part(run: RunContext) -> Finish:
        child.append(_shown(run))
        return Finish(FinishReason.GOAL)

    spawns = [SpawnTask(spec=SpawnSpec(query="part", retain_turn=True)), show]
    planner = ScriptedPlanner(spawns, by_query={"hello": [Finish(FinishReason.GOAL, "hi")], "part": [part]})
    bench = await runtimes(planner, memory="truncation")
    await bench.run("hello")
    seen = (await bench.run("parent")).payload
    assert [turn["user"] for turn in seen["recent_turns"]] == ["hello"]
    assert child == [None]


async def test_a_turn_names_its_tools_and_time(runtimes: Runtimes) -> None:
    """The stored turn says what was called, once each, and when; the prompt shows neither."""

    async def look() -> str:
        """Look."""
        return "seen"

    script = [CallTool("look"), CallTool("look"), Finish(FinishReason.GOAL, {"answer": "done"})]
    bench = await runtimes(script, memory="truncation", tools=[look])
    run = await bench.start()
    await bench.end(run)
    (turn,) = (await bench.rt.memory.context(bench.ME)).recent_turns
    assert (turn.assistant_response, turn.digest.tools_invoked, turn.at, turn.key) == (
        "done",
        ("look",),
        bench.clock.now(),
        run.id,
    )


async def test_sessions_are_remembered_by_the_next_process(tmp_path: Path) -> None:
    """Over a storage the memory is kept beside the runs, and another runtime's run is shown it."""
    url = f"sqlite:{tmp_path / 'h.db'}"
    async with Runtime(planner=ScriptedPlanner([show]), storage=url, memory="truncation") as runtime:
        assert await ask(runtime, "first") is None
    async with Runtime(planner=ScriptedPlanner([show]), storage=url, memory="truncation") as runtime:
        assert [turn["user"] for turn in (await ask(runtime, "second"))["recent_turns"]] == ["first"]


async def test_a_memory_that_cannot_be_read_fails_the_run(runtimes: Runtimes) -> None:
    """With the code of a run that lacks what it works with, and the way out in the message; other sessions go on."""
    state, bus = MemoryStateStore(), MemoryEventBus()
    memory = SessionMemory(state, bus, Memory(strategy="truncation"))
    bench = await runtimes([show], memory=memory)
    await state.save(StateRecord("e1", bench.ME.with_run(""), "memory.state", b"{"))
    run = await bench.start()
    with pytest.raises(RunFailedError, match=r"'memory' gave nothing: MemoryCorruptError: .*remove it with `flush`"):
        await bench.end(run)
    task = await bench.rt.tasks.get(run.id, who=bench.ME)
    assert (task.status, task.error.code) == (TaskStatus.FAILED, "runtime_fetch_error")
    assert await bench.run(who=Identity("t", "u", "s2")) == Finish(FinishReason.GOAL, None)
    await memory.flush(bench.ME)
    assert await bench.run() == Finish(FinishReason.GOAL, None)
    await memory.aclose()
    await bus.aclose()


async def test_a_memory_that_cannot_be_written_does_not_change_how_a_run_ends(
    runtimes: Runtimes, caplog: pytest.LogCaptureFixture
) -> None:
    """The run reached its goal; an event and the log say that the session does not remember it."""

    class ReadOnly(MemoryStateStore):
        async def save(self, record: StateRecord) -> None:
            raise DatabaseError("read-only")

    bus = MemoryEventBus()
    memory = SessionMemory(ReadOnly(), bus, Memory(strategy="truncation"))
    bench = await runtimes([Finish(FinishReason.GOAL, "done")], memory=memory)
    run = await bench.start()
    assert (await bench.end(run)).payload == "done"
    assert (await bench.rt.tasks.get(run.id, who=bench.ME)).status is TaskStatus.COMPLETE
    assert "the session does not remember this run: DatabaseError" in caplog.text
    assert "runtime.warning" in bench.recorder.types
    await memory.aclose()
    await bus.aclose()


async def test_what_a_memory_needs_is_checked_when_the_runtime_is_made() -> None:
    """Summaries with a planner of one's own need a summariser of one's own; an unknown strategy is refused."""
    planner = ScriptedPlanner([show])
    with pytest.raises(InvalidOptionError, match="pass a SessionMemory"):
        Runtime(planner=planner, memory="rolling_summary")
    with pytest.raises(InvalidOptionError, match="no memory strategy 'all'"):
        Runtime(planner=planner, memory="all")


async def test_a_run_that_is_cut_anywhere_is_given_its_context_and_remembered_once(
    runtimes: Runtimes, storages: Callable[..., Awaitable[Storage]]
) -> None:
    """Whichever entry a crash left last, the run goes on: one turn, and no provider asked that had answered."""
    asked: list[str] = []

    class Provider:
        async def provide(self, run: ContextRequest) -> Context:
            asked.append(run.who.run_id)
            return Context(llm_context={"city": "Porto"})

    class Planner:
        async def next(self, run: RunContext) -> Any:
            if not run.trajectory.steps:
                return CallTool("look")
            return Finish(FinishReason.GOAL, [run.llm_context["city"], _shown(run)])

    async def look() -> str:
        """Look."""
        return "seen"

    state, bus = MemoryStateStore(), MemoryEventBus()
    memory = SessionMemory(state, bus, Memory(strategy="truncation"))
    parts: dict[str, Any] = {"tools": [look], "context": [Provider()], "memory": memory}
    first = await runtimes(Planner(), **parts)
    run = await first.start()
    finish = await first.end(run)
    record = await run.history()
    names = [getattr(entry, "name", "") for entry in decode_entries(record, run.id)]
    assert (names.count("context.provide"), names.count("memory.write")) == (1, 1)
    for cut in range(1, len(record)):
        asked.clear()
        had_context = "context.provide" in names[:cut]
        if not had_context:
            await memory.flush(first.ME)
        clock = FakeClock()
        storage = await storages(clock)
        await keep(storage.store, first.ME.with_run(run.id), record[:cut])
        again = await runtimes(Planner(), storage=storage, clock=clock, **parts)
        assert await again.end(await again.rt.run(run.id, who=first.ME)) == finish, cut
        assert asked == ([] if had_context else [run.id]), cut
        assert [turn.key for turn in (await memory.context(first.ME)).recent_turns] == [run.id], cut
    await memory.aclose()
    await bus.aclose()
