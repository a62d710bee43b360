"""Records the runs of this folder: `python tests/data/journal/record.py` writes those of today's format version.

A folder holds what a released version wrote, and stays as it is for ever: each of its runs must load, fold, replay and
be carried on by any later code (`tests/runtime/test_golden.py`). Run this when a format version is new, before it is
released, or when a scene is added; never over the runs of a version that is out.

A run is one file: a line for each entry as it was stored. What is kept apart from its entries by reference lies beside
it in `<run>.bodies.json`, by digest. Ids are numbered in the order of their appearance and time stands still, so that
recording twice writes the same.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from harborage.concurrency import Crew
from harborage.events import EventType
from harborage.identity import Identity
from harborage.ids import new_id
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
    Trajectory,
    TrajectorySummary,
)
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.bodies import digests_of
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.durable.journal import FORMAT_VERSION, decode_entries
from harborage.runtime.durable.steps import EffectTable, Note, StepCall
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.loop.seam import Durable, RunRequest
from harborage.runtime.pauses import Coordinator
from harborage.runtime.run import Run
from harborage.runtime.steering import Scope
from harborage.state.storage import Storage, open_storage
from harborage.testing.clock import FakeClock
from harborage.testing.planners import Line, ScriptedPlanner
from harborage.tools import ErrorClass, SideEffect, ToolPolicy, ToolPolicyExhaustedError, tool


@asynccontextmanager
async def on_disk(clock: FakeClock) -> AsyncIterator[Storage]:
    """A storage in a file, which keeps large values apart from the entries that name them."""
    with tempfile.TemporaryDirectory() as folder:
        async with await open_storage(f"sqlite:{folder}/runs.db", clock=clock) as storage:
            yield storage


FOLDER = Path(__file__).resolve().parent
ME = Identity("tenant", "user", "session")
_ID = re.compile(rb"[0-7][0-9A-HJKMNP-TV-Z]{25}")


class Recorded(NamedTuple):
    """A run as it was stored."""

    entries: list[bytes]
    bodies: dict[str, str]


class Shortener:
    """Summarises any history the same way."""

    async def summarise(self, run: RunContext, trajectory: Trajectory) -> TrajectorySummary:
        return TrajectorySummary(goals=("count",), note=f"{len(trajectory.steps)} steps were taken")


@dataclass
class Scene:
    """A run to record: what its planner says, and what people do meanwhile. `dies` cuts its first process short."""

    lines: list[Line]
    drive: Callable[[Run, Stage], Awaitable[None]] | None = None
    by_query: dict[str, list[Line]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    dies: bool = False


class Stage:
    """A scene's planner, the tools of all scenes, and where a run has come to."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.planner = ScriptedPlanner(scene.lines, by_query=scene.by_query)
        self.held = asyncio.Event()
        self.go = asyncio.Event()

    def tools(self) -> list[Any]:
        async def add(a: int, b: int) -> int:
            """The sum of two numbers."""
            return a + b

        async def fail() -> None:
            """Fail."""
            # The text that the tool layer gave to any failure when the first of these records were made.
            raise ToolPolicyExhaustedError(1, ErrorClass.TRANSIENT, "there is no such thing")

        async def long() -> str:
            """A result that is kept apart from its entry."""
            return "All work and no play makes Jack a dull boy. " * 300

        async def transfer(to: str, euros: int) -> str:
            """Send money."""
            return f"sent {euros} to {to}"

        async def hold() -> str:
            """Wait until the scene goes on."""
            self.held.set()
            await self.go.wait()
            return "held"

        once = ToolPolicy(max_retries=0, timeout_ms=0)
        return [
            tool(add, effects=SideEffect.PURE),
            tool(fail, effects=SideEffect.READ, policy=once),
            tool(long, effects=SideEffect.READ),
            tool(transfer, effects=SideEffect.EXTERNAL),
            tool(hold, effects=SideEffect.WRITE, policy=once),
        ]

    def runtime(self, storage: Storage | None, clock: FakeClock) -> Runtime:
        """A runtime that plays the scene; the next one goes on where the planner was."""
        return Runtime(
            planner=self.planner,
            tools=self.tools(),
            approvals={"transfer": AlwaysDeny("money leaves the house")},
            summariser=Shortener(),
            storage=storage,
            clock=clock,
            options=RuntimeOptions(linger=timedelta(hours=1), **self.scene.options),
        )


def add(a: int, b: int) -> CallTool:
    return CallTool("add", b'{"a":%d,"b":%d}' % (a, b), f"add-{a}-{b}")


def last(run: RunContext) -> Finish:
    """Finish with what the last step gave."""
    observation = run.trajectory.steps[-1].observation
    branches = getattr(observation, "branches", None)
    return Finish(FinishReason.GOAL, observation if branches is None else [one.error or one.value for one in branches])


def measured(run: RunContext) -> Finish:
    """Finish with the length of what the last step gave."""
    return Finish(FinishReason.GOAL, len(run.trajectory.steps[-1].observation))


def received(run: RunContext) -> Finish:
    """Finish with what was heard meanwhile."""
    return Finish(FinishReason.GOAL, [run.goal, [one.payload for one in run.trajectory.steering_inputs]])


def child(run: RunContext) -> AwaitTask:
    """Wait for the task that was spawned before."""
    return AwaitTask(run.trajectory.steps[-1].observation["task_id"])


async def allow(run: Run, _: Stage) -> None:
    """Answer the pause, then allow the call, with other arguments."""
    async for event in run.events():
        if event.type == EventType.PAUSE_REQUESTED and event.payload.reason == PauseReason.AWAIT_INPUT:
            await run.resume({"answer": 42})
        if event.type == EventType.TOOL_APPROVAL_REQUESTED:
            await run.approve(event.payload.pause_token, reason="less", args={"to": "Bob", "euros": 50})


async def steer(run: Run, stage: Stage) -> None:
    """Say all kinds of things while a tool is at work, and let the run park."""
    await stage.held.wait()
    await run.message("hurry up")
    await run.inject({"weather": "rain"})
    await run.redirect("come home")
    await run.prioritize(3)
    await run.pause()
    stage.go.set()
    async for event in run.events():
        if event.type == EventType.PAUSE_REQUESTED:
            await run.resume({"note": "go on"})


async def cancel(run: Run, stage: Stage) -> None:
    """End the run in the middle of a call."""
    await stage.held.wait()
    await run.cancel(hard=True)


SCENES = {
    "single_tool": Scene([add(2, 3), last]),
    "parallel": Scene([CallParallel((add(1, 2), CallTool("fail"), add(3, 4))), last]),
    "spawn_and_await": Scene(
        [SpawnTask(spec=SpawnSpec(query="child", retain_turn=False)), child, last],
        by_query={"child": [add(20, 22), last]},
    ),
    "pause_and_approve": Scene(
        [RequestPause(PauseReason.AWAIT_INPUT), CallTool("transfer", b'{"to":"Bob","euros":500}'), last], allow
    ),
    "controls": Scene([CallTool("hold"), received], steer),
    "compression": Scene([*(add(number, number) for number in range(6)), last], options={"token_budget": 120}),
    "large_body": Scene([CallTool("long"), measured]),
    "failed": Scene([add(1, 1), RuntimeError("the planner is lost")]),
    "cancelled": Scene([CallTool("hold"), last], cancel),
    "in_doubt": Scene([CallTool("hold"), last], dies=True),
}


async def record(scene: Scene) -> Recorded:
    """The scene's run, from beginning to end."""
    clock, stage = FakeClock(), Stage(scene)
    async with on_disk(clock) as storage:
        run_id = ""
        if scene.dies:
            async with stage.runtime(storage, clock) as rt:
                run_id = (await rt.start("golden", who=ME)).id
                await stage.held.wait()
        async with stage.runtime(storage, clock) as rt:
            run_id = run_id or (await rt.start("golden", who=ME)).id
            run = await rt.run(run_id, who=ME, scope=Scope.ADMIN)
            if scene.drive is not None:
                await scene.drive(run, stage)
            try:
                await run.finished()
            except RunFailedError:
                pass  # the failed run is a scene, too
            run_id = run.id
        return await kept(storage, run_id)


async def kept(storage: Storage, run_id: str) -> Recorded:
    """A run as a storage has it."""
    entries = await storage.store.entries(run_id)
    digests = {one for entry in decode_entries(entries, run_id) for one in digests_of(entry).values()}
    bodies = {digest: (await storage.store.body(run_id, digest)).decode() for digest in sorted(digests)}
    return Recorded(numbered(entries), bodies)


async def two_histories(io: Durable, asked: RunRequest) -> Finish:
    """A program that met a change of its code, and began a new history once."""
    is_new = await io.patched("a better way")
    seen = await io.step("look", asked.goal)
    if asked.goal == "first":
        await io.rollover(RunRequest(who=asked.who, goal="second"))
    return Finish(FinishReason.GOAL, [is_new, seen])


async def _look(call: StepCall) -> Any:
    return call.payload


LOOK = EffectTable({"look": Note(run=_look)})


async def record_histories() -> Recorded:
    """A run of `two_histories`."""
    clock = FakeClock()
    async with on_disk(clock) as storage:
        engine = StoredEngine(storage.store, Coordinator(clock=clock), clock=clock)
        crew = Crew(lambda name, error: None)
        crew.start(engine.serve(two_histories, LOOK), "worker")
        run_id = new_id()
        await engine.start(run_id, RunRequest(who=ME.with_run(run_id), goal="first"))
        await engine.result(run_id)
        await crew.aclose()
        await engine.aclose()
        return await kept(storage, run_id)


def numbered(entries: list[bytes]) -> list[bytes]:
    """The entries with their ids numbered."""
    found: dict[bytes, bytes] = {}

    def number(match: re.Match[bytes]) -> bytes:
        return found.setdefault(match[0], b"%026d" % (len(found) + 1))

    return [_ID.sub(number, entry) for entry in entries]


def load(folder: Path, name: str) -> Recorded:
    """A run as it lies in a folder."""
    bodies = folder / f"{name}.bodies.json"
    entries = (folder / f"{name}.jsonl").read_bytes().splitlines()
    return Recorded(entries, json.loads(bodies.read_text("utf-8")) if bodies.exists() else {})


def keep(folder: Path, name: str, run: Recorded) -> None:
    """Write a run into a folder."""
    (folder / f"{name}.jsonl").write_bytes(b"".join(entry + b"\n" for entry in run.entries))
    if run.bodies:
        (folder / f"{name}.bodies.json").write_text(json.dumps(run.bodies, indent=1) + "\n", "utf-8")


def main() -> None:
    """Record every scene."""
    folder = FOLDER / f"v{FORMAT_VERSION}"
    folder.mkdir(exist_ok=True)
    for name, scene in SCENES.items():
        keep(folder, name, asyncio.run(record(scene)))
    keep(folder, "two_histories", asyncio.run(record_histories()))


if __name__ == "__main__":
    main()
