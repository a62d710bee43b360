"""Code of users that misbehaves: whatever part of a runtime it is and whatever it does, its run ends by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

import pytest

from harborage import Agent, CallContext, Capability, Identity, Runtime, RuntimeOptions, tool
from harborage.artifacts.memory import MemoryArtifactStore
from harborage.events import MemoryEventBus
from harborage.memory import Memory, MemoryStrategy, SessionMemory
from harborage.planner import CallParallel, CallTool, Finish, FinishReason, SpawnSpec, SpawnTask
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import RunFailedError, RunPhase
from harborage.runtime.loop.context import ContextSource
from harborage.state.memory import MemoryStateStore
from harborage.testing.clock import FakeClock, settle
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from harborage.testing.planners import ScriptedPlanner

pytestmark = pytest.mark.anyio

Work = Callable[..., Awaitable[Any]]

WHO = Identity("t", "u", "s")
LIMIT_S = 20 * 60
"""The time that a planner has, here; every other limit is shorter, and a run that meets several of them takes less."""
OPTIONS = RuntimeOptions(planner_timeout=timedelta(seconds=LIMIT_S))
GOAL = Finish(FinishReason.GOAL, "ok")


# ── how it misbehaves ───────────────────────────────────────────────────────────────────────────────────────────────


class Nonsense:
    """Nothing can be asked of it."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __str__ = __repr__

    def __eq__(self, _: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")


def raising(error: BaseException) -> Work:
    async def work(*_: Any, **__: Any) -> Any:
        raise error

    return work


def giving(answer: Callable[[], Any]) -> Work:
    async def work(*_: Any, **__: Any) -> Any:
        return answer()

    return work


async def never(*_: Any, **__: Any) -> Any:
    """Never end."""
    await asyncio.get_running_loop().create_future()


class Stubborn:
    """Work that ignores its cancellation, for as long as the test lasts."""

    def __init__(self) -> None:
        self.is_over = threading.Event()

    async def __call__(self, *_: Any, **__: Any) -> Any:
        while not self.is_over.is_set():
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                continue


def _endless() -> list[Any]:
    inside: list[Any] = []
    inside.append(inside)
    return inside


HOW: Final[Mapping[str, Work]] = {
    "raises": raising(ValueError("boom")),
    "raises a timeout": raising(TimeoutError()),
    "exits": raising(SystemExit(3)),
    "raises GeneratorExit": raising(GeneratorExit()),
    "is cancelled by itself": raising(asyncio.CancelledError("mine")),
    "returns nothing": giving(lambda: None),
    "returns an object": giving(object),
    "returns a value that contains itself": giving(_endless),
    "returns what cannot be asked": giving(Nonsense),
    "returns no text": giving(lambda: "\ud800"),
    "returns no number": giving(lambda: float("nan")),
    "never ends": never,
}


# ── who misbehaves ──────────────────────────────────────────────────────────────────────────────────────────────────


@tool
async def look() -> str:
    """Look."""
    return "seen"


@tool
async def big() -> str:
    """Return more than a prompt should hold."""
    return "z" * 100_000


LOOK, BIG = CallTool("look", b"{}", "c1"), CallTool("big", b"{}", "c2")


class Part:
    """An object whose methods all do the same."""

    def __init__(self, work: Work, *names: str) -> None:
        for name in names:
            setattr(self, name, work)

    async def close(self) -> None:
        """It holds nothing open."""


class Parent:
    """Waits for a child, whose planner misbehaves."""

    def __init__(self, work: Work) -> None:
        self.work = work

    async def next(self, run: Any) -> Any:
        if run.query == "child":
            return await self.work()
        return GOAL if run.trajectory.steps else SpawnTask(spec=SpawnSpec(query="child", retain_turn=True))


class Shop:
    """What tools of an agent depend on."""


def bad_tool(work: Work) -> Any:
    async def bad() -> Any:
        """Do what it does."""
        return await work()

    return tool(bad)


def with_store(method: str) -> Callable[[Work], Made]:
    def build(work: Work) -> Made:
        async def called(_: object, *given: Any, **more: Any) -> Any:
            return await work()

        store = type("Store", (MemoryArtifactStore,), {method: called})()
        return of(planner=ScriptedPlanner([BIG, LOOK, GOAL]), tools=[big, look], artifacts=store)

    return build


def with_memory(method: str) -> Callable[[Work], Made]:
    def build(work: Work) -> Made:
        async def called(_: object, *given: Any, **more: Any) -> Any:
            return await work()

        kind = type("Kept", (SessionMemory,), {method: called})
        memory = kind(MemoryStateStore(), MemoryEventBus(), Memory(strategy=MemoryStrategy.TRUNCATION))
        return of(planner=ScriptedPlanner([GOAL]), memory=memory)

    return build


def with_hook(hook: str, takes: str) -> Callable[[Work], Made]:
    def build(work: Work) -> Made:
        made: dict[str, Any] = {"work": work}
        exec(f"async def {hook}(self, {takes}):\n    return await work()", made)
        guard = type("Guard", (Capability,), {hook: made[hook]})()
        return agent(tools=[look], capabilities=[guard])

    return build


class Made(NamedTuple):
    """A runtime that is not open yet, and its clock."""

    runtime: Runtime
    clock: FakeClock


def agent(*, runtime: Mapping[str, Any] = {}, **parts: Any) -> Made:
    """A runtime of an agent over a model that calls the first tool, if there is one."""
    tools = parts.get("tools", ())
    answers = [calls_tools((tools[0].tool.name, {})), says("done")] if tools else [says("done")]
    made = Agent("a", model=ScriptedLLM(answers), options=OPTIONS, **parts)
    clock = FakeClock()
    return Made(Runtime([made], clock=clock, options=OPTIONS, **runtime), clock)


def of(**parts: Any) -> Made:
    """A runtime of these parts."""
    clock = FakeClock()
    return Made(Runtime(clock=clock, **{"options": OPTIONS, **parts}), clock)


def conditional(work: Work) -> Made:
    async def is_offered(_: object) -> Any:
        return await work()

    @tool(when=is_offered)
    async def maybe() -> str:
        """Look, perhaps."""
        return "seen"

    return agent(tools=[look, maybe])


def dependent(work: Work) -> Made:
    @tool
    async def sell(shop: CallContext[Shop]) -> str:
        """Sell."""
        return "sold"

    return agent(tools=[sell], deps=Shop, runtime={"deps": {Shop: lambda _: work()}})


def summarised(work: Work) -> Made:
    options = RuntimeOptions(planner_timeout=OPTIONS.planner_timeout, token_budget=1)
    planner = ScriptedPlanner([LOOK, LOOK, GOAL])
    return of(planner=planner, tools=[look], summariser=Part(work, "summarise"), options=options)


WHO_MISBEHAVES: Final[Mapping[str, Callable[[Work], Made]]] = {
    "planner": lambda work: of(planner=Part(work, "next")),
    "planner of a child": lambda work: of(planner=Parent(work)),
    "model": lambda work: of(model=Part(work, "complete")),
    "tool": lambda work: of(planner=ScriptedPlanner([CallTool("bad", b"{}", "c"), GOAL]), tools=[bad_tool(work)]),
    "tool of a branch": lambda work: of(
        planner=ScriptedPlanner([CallParallel((CallTool("bad", b"{}", "c"), LOOK)), GOAL]), tools=[bad_tool(work), look]
    ),
    "approval policy": lambda work: of(planner=ScriptedPlanner([LOOK, GOAL]), tools=[look], approvals=work),
    "summariser": summarised,
    "context provider": lambda work: of(
        planner=ScriptedPlanner([GOAL]), context=[ContextSource(provider=Part(work, "provide"), name="news")]
    ),
    "required context provider": lambda work: of(
        planner=ScriptedPlanner([GOAL]),
        context=[ContextSource(provider=Part(work, "provide"), name="news", is_required=True)],
    ),
    "memory that is read": with_memory("context"),
    "memory that is written": with_memory("add_turn"),
    "artifact store that keeps": with_store("put_bytes"),
    "artifact store that lists": with_store("list"),
    "hook before the model": with_hook("before_model", "ctx, request"),
    "hook after the model": with_hook("after_model", "ctx, response"),
    "hook before a tool": with_hook("before_tool", "ctx, call"),
    "hook after a tool": with_hook("after_tool", "ctx, call, result"),
    "hook before the finish": with_hook("before_finish", "ctx, output"),
    "hook after the run": with_hook("after_run", "ctx, ending"),
    "instructions": lambda work: agent(instructions=lambda _: work()),
    "condition of a tool": conditional,
    "dependencies": dependent,
}

OPTIONAL: Final = (
    "summariser",
    "context provider",
    "memory that is written",
    "artifact store that",
    "hook after the run",
)
"""Parts that a run goes on without, to its goal."""


@pytest.fixture
def stubborn() -> Iterator[Stubborn]:
    stubborn = Stubborn()
    yield stubborn
    stubborn.is_over.set()


async def end_of(made: Made) -> str:
    """How a run of the runtime ends by itself; what still waits when every limit has passed is said in capitals."""
    runtime, clock = made
    await runtime.__aenter__()
    try:
        run = await runtime.start("g", who=WHO)
        ending = asyncio.ensure_future(run.finished())
        for seconds in (0, 1, 60, 60, 600, LIMIT_S, 600):
            await settle(8)
            if ending.done():
                break
            await clock.run_for(seconds)
        await settle(8)
        if not ending.done():
            ending.cancel()
            return "STILL WAITS"
        try:
            how = str((await ending).reason)
        except RunFailedError as error:
            how = f"failed: {error}"
        if not (await run.status()).phase.is_final:
            return f"{how}, BUT IS {(await run.status()).phase}"
        return how
    finally:
        closing = asyncio.ensure_future(runtime.aclose())
        for _ in range(8):
            await clock.run_for(10)
        assert closing.done(), "closing the runtime waits"
        await closing


@pytest.mark.parametrize("who", WHO_MISBEHAVES)
async def test_a_run_ends_whatever_one_of_its_parts_does(who: str, stubborn: Stubborn) -> None:
    """Nobody cancels it, it has no deadline, and the part may even ignore that it is cancelled."""
    wrong: dict[str, str] = {}
    for how, work in {**HOW, "ignores its cancellation": stubborn}.items():
        ended = await end_of(WHO_MISBEHAVES[who](work))
        is_fine = ended == "goal" if who.startswith(OPTIONAL) else not ended.isupper() and "BUT" not in ended
        if not is_fine or "StepCrashedError" in ended or (who == "model" and "has no attribute" in ended):
            wrong[how] = ended
    assert not wrong


async def test_a_planner_that_takes_too_long_fails_its_run_with_a_reason(stubborn: Stubborn) -> None:
    """The text names the limit, and how to set another."""
    for work in (never, stubborn):
        ended = await end_of(of(planner=Part(work, "next")))
        assert f"the planner gave no decision within {LIMIT_S} s; RuntimeOptions(planner_timeout=…)" in ended


async def test_an_approval_that_nobody_gives_ends_at_its_time() -> None:
    """A run that waits for a person says until when, and the call is refused then."""
    clock = FakeClock()
    options = RuntimeOptions(approval_ttl=timedelta(days=1))
    planner = ScriptedPlanner([LOOK, GOAL])
    async with Runtime(planner=planner, tools=[look], approvals=AlwaysDeny(), options=options, clock=clock) as runtime:
        run = await runtime.start("g", who=WHO)
        await settle(8)
        (pause,) = await run.waiting()
        assert pause.deadline == clock.now() + options.approval_ttl
        await clock.run_for(24 * 3600 + 1)
        await settle(8)
        assert (await run.status()).phase is RunPhase.FINISHED


async def test_a_subscriber_that_stops_reading_holds_up_no_run() -> None:
    """One that reads one event and waits, one that leaves its loop, and one that is never asked again."""
    clock = FakeClock()
    planner = ScriptedPlanner([*[LOOK] * 50, GOAL])
    async with Runtime(planner=planner, tools=[look], clock=clock) as runtime:
        run = await runtime.start("g", who=WHO)
        stalled, raised = run.events(), run.events()
        await anext(stalled)
        async for _ in raised:
            break
        run.events()
        async with asyncio.timeout(20):
            assert (await run.finished()).reason is FinishReason.GOAL
            assert [event.type async for event in run.events()][-1] == "task.completed"
        await stalled.aclose()
        await raised.aclose()
