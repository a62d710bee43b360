"""A decision gives the same observation under `RunLoop`, in a runtime, and through `execute_decision`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from harborage import codec
from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.events import MemoryEventBus
from harborage.identity import Quadruple
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    JoinKind,
    JoinSpec,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnTask,
    Trajectory,
)
from harborage.runtime.dispatch import CatalogToolExecutor, ParallelDispatchError
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import InboxRegistry, RunLoop, RunSpec
from harborage.tasks import InProcessTaskRegistry
from harborage.testing.clock import FakeClock
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import CallContext, ToolCatalog, ToolDescriptor, ToolPolicy, ToolResult, tool

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
ONCE = ToolPolicy(max_retries=0)
GOAL = Finish(FinishReason.GOAL, "done")
Runtimes = Callable[..., Awaitable[Any]]


@tool(policy=ONCE)
async def echo(value: Any) -> Any:
    """Give back."""
    return value


@tool(policy=ONCE)
async def boom(size: int = 4) -> None:
    """Fail with a text of this size."""
    raise LookupError("boom" * (size // 4))


async def _pauser(args: bytes, call: CallContext) -> ToolResult:
    return ToolResult(RequestPause(PauseReason.AWAIT_INPUT, {"q": 1}))


@tool(policy=ONCE)
async def unspeakable() -> Any:
    """Something without a JSON form."""
    return {"deep": [object()]}


@tool(policy=ONCE)
async def meta() -> Any:
    """Only meta data."""
    return ToolResult(None, {"seen": 3})


pauser = ToolDescriptor(tool(echo.function, name="pauser").tool, _pauser)
TOOLS = (echo, boom, pauser, unspeakable, meta)

OK = CallTool("echo", b'{"value":"ok"}', "ok")
BOOM = CallTool("boom", b"{}", "boom")
HEAVY = CallTool("echo", b'{"value":{"x":"%s"}}' % (b"y" * 40_000), "heavy")
DECISIONS: dict[str, Any] = {
    "a call": OK,
    "meta data alone": CallTool("meta"),
    "a failure": BOOM,
    "an error of a megabyte": CallTool("boom", b'{"size":1000000}'),
    "a missing tool": CallTool("nope"),
    "bad arguments": CallTool("echo", b"{}"),
    "a heavy result": HEAVY,
    "no JSON form": CallTool("unspeakable"),
    "a tool that asks for a pause": CallTool("pauser"),
    "a branch that asks for a pause": CallParallel((CallTool("pauser"), OK)),
    "branches": CallParallel((OK, BOOM, CallTool("nope"), CallTool("echo"), HEAVY)),
    "the first success": CallParallel((BOOM, OK), JoinSpec(JoinKind.FIRST_SUCCESS)),
    "no success": CallParallel((BOOM, BOOM), JoinSpec(JoinKind.FIRST_SUCCESS)),
    "too few successes": CallParallel((OK, BOOM), JoinSpec(JoinKind.N, n=2)),
    "by key": CallParallel((OK, BOOM), JoinSpec(JoinKind.KEYED, merge_keys=("boom", "ok"))),
    "a bad join": CallParallel((OK,), JoinSpec(JoinKind.N, n=9)),
    "too many branches": CallParallel((OK,) * 51),
    "a spawn": SpawnTask(),
    "a task that nobody knows": AwaitTask("nobody"),
}


def shape(observation: Any) -> Any:
    """An observation as JSON, without the ids that no two runs share."""
    text = codec.encode(observation).decode()
    return codec.decode(re.sub(r'"(task_id|artifact_ref)":"[^"]*"', r'"\1":"…"', text).encode())


async def in_a_runtime(runtimes: Runtimes, decision: Any) -> tuple[Any, list[str]]:
    seen: list[Any] = []

    def last(run: RunContext) -> Finish:
        seen.append(run.trajectory.steps[0].llm_observation)
        return GOAL

    bench = await runtimes(ScriptedPlanner([decision, last]), tools=list(TOOLS))
    await bench.run()
    kept = await bench.rt.artifacts.list(ArtifactScope("t", "u", "s"))
    return shape(seen[0]), sorted(one.filename for one in kept)


def over_catalog() -> tuple[CatalogToolExecutor, MemoryArtifactStore, InProcessTaskRegistry]:
    catalog = ToolCatalog()
    for one in TOOLS:
        catalog.register(one)
    store, tasks = MemoryArtifactStore(), InProcessTaskRegistry(bus=MemoryEventBus())
    return CatalogToolExecutor(catalog, store, tasks, clock=FakeClock()), store, tasks


async def names_in(store: MemoryArtifactStore) -> list[str]:
    return sorted(one.filename for one in await store.list(ArtifactScope("t", "u", "s")))


async def under_run_loop(decision: Any) -> tuple[Any, list[str]]:
    executor, store, tasks = over_catalog()
    history = Trajectory()
    loop = RunLoop(InboxRegistry(), Coordinator(), clock=FakeClock())
    base = RunContext(quadruple=WHO, goal="g", trajectory=history)
    await loop.run(RunSpec(planner=ScriptedPlanner([decision, GOAL]), base=base, tool_executor=executor))
    await executor.aclose()
    await tasks.aclose()
    return shape(history.steps[0].llm_observation), await names_in(store)


async def directly(decision: Any) -> tuple[Any, list[str]]:
    executor, store, tasks = over_catalog()
    try:
        _, seen = await executor.execute_decision(RunContext(quadruple=WHO), decision)
    except ParallelDispatchError as error:
        seen = {"error": str(error)} if error.observation is None else error.for_planner
    except Exception as error:
        seen = {"error": str(error)}
    await executor.aclose()
    await tasks.aclose()
    return shape(seen), await names_in(store)


async def test_a_decision_gives_one_observation_on_every_path(runtimes: Runtimes) -> None:
    """What the planner sees and what is kept of it does not depend on who runs the loop."""
    for name, decision in DECISIONS.items():
        expected = await in_a_runtime(runtimes, decision)
        assert await under_run_loop(decision) == expected, name
        if name != "an error of a megabyte":  # the exception itself keeps the whole text
            assert await directly(decision) == expected, name


async def test_a_tool_cannot_pause_its_run(runtimes: Runtimes) -> None:
    """Returning a request to pause fails the call, alone and as a branch, on every path; other branches count."""
    alone, both = DECISIONS["a tool that asks for a pause"], DECISIONS["a branch that asks for a pause"]
    for perform in (partial(in_a_runtime, runtimes), under_run_loop, directly):
        refused, _ = await perform(alone)
        assert "cannot pause" in refused["error"], perform
        observed, _ = await perform(both)
        pausing, ok = observed["branches"]
        assert "cannot pause" in pausing["error"], perform
        assert ok["value"] == "ok", perform


async def test_every_text_of_an_error_that_a_planner_sees_is_bounded() -> None:
    """A tool that fails with a megabyte costs a prompt 4,000 characters, alone and as a branch."""
    big = CallTool("boom", b'{"size":1000000}')
    alone, _ = await under_run_loop(big)
    branches, _ = await under_run_loop(CallParallel((big, big), JoinSpec(JoinKind.FIRST_SUCCESS)))
    texts = [alone["error"], branches["error"], *(one["error"] for one in branches["branches"])]
    assert max(map(len, texts)) <= 4_001


async def test_a_run_loop_keeps_the_very_value() -> None:
    """The embedder's history holds what the tool gave, also where the planner sees less of it."""
    executor, _, tasks = over_catalog()
    history = Trajectory()
    loop = RunLoop(InboxRegistry(), Coordinator(), clock=FakeClock())
    script = [HEAVY, CallTool("unspeakable"), CallParallel((HEAVY, OK)), GOAL]
    base = RunContext(quadruple=WHO, goal="g", trajectory=history)
    await loop.run(RunSpec(planner=ScriptedPlanner(script), base=base, tool_executor=executor))
    heavy, odd, both = (step.observation for step in history.steps)
    assert heavy == {"x": "y" * 40_000} == both.branches[0].value
    assert isinstance(odd["deep"][0], object)
    assert all(step.llm_observation != step.observation for step in history.steps)
    await executor.aclose()
    await tasks.aclose()


async def test_the_hook_of_an_embedder_is_called_for_every_executed_decision() -> None:
    """Not of one that failed, also where only some of its branches did."""
    executor, _, tasks = over_catalog()
    received: list[int] = []
    history = Trajectory()

    async def hook() -> None:
        received.append(len(history.steps))

    script = [OK, BOOM, CallParallel((OK, BOOM)), CallParallel((BOOM,), JoinSpec(JoinKind.N, n=1)), SpawnTask(), GOAL]
    loop = RunLoop(InboxRegistry(), Coordinator(), clock=FakeClock())
    base = RunContext(quadruple=WHO, goal="g", trajectory=history)
    spec = RunSpec(planner=ScriptedPlanner(script), base=base, tool_executor=executor, on_tool_dispatched=hook)
    await loop.run(spec)
    assert received == [0, 2, 4]
    await executor.aclose()
    await tasks.aclose()


async def test_two_runs_of_one_id_share_neither_keys_nor_children() -> None:
    """Under `RunLoop` an id may come again: a tool that acts once a key acts for the second run, too."""
    keys: list[str] = []

    @tool(idempotent=True)
    async def keyed(call: CallContext) -> None:
        """Act once a key."""
        keys.append(call.idempotency_key)

    catalog = ToolCatalog()
    catalog.register(keyed)
    tasks = InProcessTaskRegistry(bus=MemoryEventBus())
    executor = CatalogToolExecutor(catalog, None, tasks, clock=FakeClock())
    loop = RunLoop(InboxRegistry(), Coordinator(), clock=FakeClock())
    for _ in range(2):
        base = RunContext(quadruple=WHO, goal="g")
        planner = ScriptedPlanner([CallTool("keyed"), SpawnTask(), GOAL])
        await loop.run(RunSpec(planner=planner, base=base, tool_executor=executor))
    assert len(set(keys)) == 2
    assert len(await tasks.list(WHO.identity)) == 2
    await executor.aclose()
    await tasks.aclose()
