"""The program of agents on a host: what blocks it, what it makes of a record that does not fit, and who is notified."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from harborage.identity import Identity
from harborage.planner import CallParallel, CallTool, Finish, FinishReason, RunContext, parallel_observation
from harborage.runtime.durable.engine import RunBlockedError, RunPhase
from harborage.runtime.durable.histories import request_of
from harborage.runtime.durable.journal import Done, Entry, decode_entries, encode_entry, raw
from harborage.state.storage import Storage
from harborage.tasks import TaskStatus
from harborage.testing.clock import FakeClock, settle
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner
from harborage.tools import SideEffect, tool
from tests.kit.stored_runs import rewrite
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
GOAL = Finish(FinishReason.GOAL, "done")
Runtimes = Callable[..., Awaitable[Any]]
Storages = Callable[..., Awaitable[Storage]]


class World:
    """Tools that count their calls, and hang until the gate is open."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.gate = asyncio.Event()

    def tools(self) -> list[Any]:
        async def read(text: str) -> str:
            """Read."""
            self.calls.append(f"read {text}")
            await self.gate.wait()
            return f"read {text}"

        async def keyed(text: str) -> str:
            """Do something under a key."""
            self.calls.append(f"keyed {text}")
            await self.gate.wait()
            return f"keyed {text}"

        async def write(text: str) -> str:
            """Write."""
            self.calls.append(f"write {text}")
            await self.gate.wait()
            return f"wrote {text}"

        return [
            tool(read, effects=SideEffect.READ),
            tool(keyed, effects=SideEffect.EXTERNAL, idempotent=True),
            tool(write, effects=SideEffect.WRITE),
        ]


def call(name: str, text: str = "a") -> CallTool:
    return CallTool(name, b'{"text":"%s"}' % text.encode())


def everything(run: RunContext) -> Finish:
    return Finish(FinishReason.GOAL, [step.observation for step in run.trajectory.steps])


class Stateless:
    """Decides by the history alone, so that it may be asked again by another process."""

    def __init__(self, *decisions: Any) -> None:
        self.asked: list[int] = []
        self._decisions = decisions

    async def next(self, run: RunContext) -> Any:
        at = len(run.trajectory.steps)
        self.asked.append(at)
        return self._decisions[at] if at < len(self._decisions) else everything(run)


@each_row(
    "name, calls, observed",
    [
        ("read", 2, "read a"),
        ("keyed", 2, "keyed a"),
        ("write", 1, {"error": 'tool "write" was interrupted when its worker died'}),
    ],
)
async def test_a_call_in_flight_at_a_crash_is_repeated_or_unknown(
    runtimes: Runtimes, storages: Storages, name: str, calls: int, observed: Any
) -> None:
    """A tool that only reads, or is safe under its key, is called again; of another the outcome is unknown."""
    clock, world = FakeClock(), World()
    parts = {"tools": world.tools(), "storage": await storages(clock), "clock": clock}
    planner = Stateless(call(name))
    first = await runtimes(planner, **parts)
    run = await first.start()
    await settle()
    await first.rt.aclose()
    world.gate.set()
    second = await runtimes(planner, **parts)
    (got,) = (await second.end(await second.rt.run(run.id, who=ME))).payload
    assert world.calls == [f"{name} a"] * calls
    if isinstance(observed, dict):
        assert got["error"].startswith(observed["error"])
        assert "unknown" in got["error"]
    else:
        assert got == observed
    assert planner.asked == [0, 1]


async def test_finished_branches_keep_their_results_over_a_crash(runtimes: Runtimes, storages: Storages) -> None:
    """What was in flight is decided call by call."""
    clock, world = FakeClock(), World()
    parts = {"tools": world.tools(), "storage": await storages(clock), "clock": clock}
    planner = Stateless(CallParallel((call("read"), call("write"), call("nope"))))
    first = await runtimes(planner, **parts)
    run = await first.start()
    await settle()
    await first.rt.aclose()
    world.gate.set()
    second = await runtimes(planner, **parts)
    (seen,) = (await second.end(await second.rt.run(run.id, who=ME))).payload
    observed = parallel_observation(seen)
    assert observed is not None
    values = [(one.value, one.error[:20]) for one in observed.branches]
    assert values == [("read a", ""), (None, 'tool "write" was int'), (None, "no tool 'nope' here;")]
    assert world.calls == ["read a", "write a", "read a"]


def of_other_code(entries: list[bytes], name: str) -> list[bytes]:
    """A record as another version of the code wrote it: steps of this name have another one there."""

    def changed(entry: Entry) -> Entry:
        is_meant = getattr(entry, "name", "") == name
        return msgspec.structs.replace(entry, name=f"{name}.v0") if is_meant else entry

    return [encode_entry(changed(entry)) for entry in decode_entries(entries, "r")]


@pytest.mark.parametrize("change", ["plan", "task.begin", "tool.read"])
async def test_a_record_of_other_code_blocks_the_run_and_leaves_its_task_alone(
    runtimes: Runtimes, storages: Storages, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is done or written, a caller that waits for its end gets the error, and it heals when the right code is
    back."""
    clock, world = FakeClock(), World()
    storage = await storages(clock)
    parts = {"tools": world.tools(), "storage": storage, "clock": clock}
    planner = Stateless(call("read"))
    first = await runtimes(planner, **parts)
    run = await first.start()
    await settle()
    await first.rt.aclose()
    planner.asked.clear()
    kept = await storage.store.entries(run.id)
    old = of_other_code(kept, change)
    rewrite(storage.store, run.id, old)
    second = await runtimes(planner, **parts)
    await settle()
    status = await (again := await second.rt.run(run.id, who=ME)).status()
    assert status.phase is RunPhase.BLOCKED
    assert f"{change}.v0" in status.reason
    assert (planner.asked, second.types("task.", "planner.", "tool.")) == ([], [])
    assert await again.history() == old
    assert (await second.rt.tasks.get(run.id, who=ME)).status is TaskStatus.RUNNING
    with pytest.raises(RunBlockedError, match=rf"{run.id} is blocked: .*{change}\.v0.* the code that it was started"):
        await again.finished()
    assert await again.message("kept")
    assert "is blocked and keeps USER_MESSAGE" in caplog.text
    await second.rt.aclose()
    assert await storage.store.entries(run.id) == old
    rewrite(storage.store, run.id, kept)
    world.gate.set()
    third = await runtimes(planner, **parts)
    assert (await third.end(await third.rt.run(run.id, who=ME))).payload == ["read a"]


async def test_a_blocked_run_keeps_its_task_running(runtimes: Runtimes) -> None:
    """The task does not fail, for the run may heal."""
    world = World()
    bench = await runtimes(Stateless(call("read")), tools=world.tools())
    run = await bench.start()
    await settle()
    parts = bench.rt.parts
    history = await run.history()
    crew = bench.rt._open[1]
    await crew.aclose()
    rewrite(parts.store, run.id, of_other_code(history, "plan"))
    worker = asyncio.create_task(parts.engine.serve(parts.agents.program, parts.agents))
    await settle()
    assert (await run.status()).phase is RunPhase.BLOCKED
    assert (await bench.rt.tasks.get(run.id, who=ME)).status is TaskStatus.RUNNING
    worker.cancel()
    await asyncio.wait({worker})


async def test_a_fork_repeats_no_call(runtimes: Runtimes) -> None:
    """A run that begins with another's steps goes on from there with its own planner."""
    world = World()
    world.gate.set()
    bench = await runtimes(Stateless(call("write"), call("read")), tools=world.tools())
    run = await bench.start()
    await bench.end(run)
    history = await run.history()
    upto = next(
        index
        for index, entry in enumerate(decode_entries(history, run.id))
        if isinstance(entry, Done) and entry.name == "tool.write"
    )
    await bench.rt.aclose()
    world.calls.clear()
    forked = RecordingPlanner(ScriptedPlanner([call("read", "b"), everything]))
    other = await runtimes(forked, tools=world.tools())
    parts = other.rt.parts
    asked = request_of(run.id, decode_entries(history, run.id))
    request = msgspec.structs.replace(asked, who=ME.with_run("fork"), task_id="fork")
    await parts.engine.start("fork", request, seed=history[: upto + 1])
    finish = await other.end(await other.rt.run("fork", who=ME))
    assert finish.payload == ["wrote a", "read b"]
    assert world.calls == ["read b"]


async def test_a_finish_that_cannot_be_recorded_fails_the_run_by_its_path(runtimes: Runtimes) -> None:
    """The planner's step is the last one; the task fails with its error, so no caller waits for ever."""
    bench = await runtimes([Finish(FinishReason.GOAL, {"deep": [object()]})])
    run = await bench.start()
    with pytest.raises(
        Exception, match=r"UnserializableError: cannot serialise plan\.result\.decision\.payload\.deep\[0\]"
    ):
        await bench.end(run)
    assert (await bench.rt.tasks.get(run.id, who=ME)).error.code == "runloop_error"


def test_entries_may_hold_live_values() -> None:
    """What the tests above rewrite is what a record holds."""
    entry = Done(at=FakeClock().now(), position="1", name="plan", result=raw({"a": 1}))
    assert b'"result":{"a":1}' in encode_entry(entry)
