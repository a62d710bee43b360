"""Callbacks that ignore their cancellation: whatever ends their run, it ends after a short grace, and closing does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from harborage.concurrency import CANCEL_GRACE_S, CLOSE_GRACE_S
from harborage.events import MemoryEventBus, PatternRedactor
from harborage.identity import Quadruple
from harborage.planner import CallTool, Finish, FinishReason, RunContext, Trajectory
from harborage.runtime.approval import ApprovalGate, ApprovalRequest
from harborage.runtime.dispatch import CatalogToolExecutor
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.loop.context import ContextSource
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import ControlEvent, ControlType, InboxRegistry, RunLoop, RunSpec, Scope
from harborage.testing.clock import FakeClock, settle
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import ToolCatalog, tool

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
LOOK = CallTool("look", b"{}")
GOAL = Finish(FinishReason.GOAL)


class Stubborn:
    """Work that ignores its cancellation: one that sleeps, one that spins, one that waits for a task that does so."""

    def __init__(self) -> None:
        self.is_over = False
        self.began = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def sleeps(self, *_: Any) -> Any:
        self.began += 1
        while not self.is_over:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                continue

    async def spins(self, *_: Any) -> Any:
        self.began += 1
        while not self.is_over:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                continue

    async def delegates(self, *_: Any) -> Any:
        self.tasks.append(asyncio.create_task(self.sleeps()))
        while not self.is_over:
            try:
                await self.tasks[-1]
            except asyncio.CancelledError:
                continue

    async def gathers(self, *_: Any) -> Any:
        self.tasks.append(asyncio.create_task(self.sleeps()))
        await asyncio.gather(self.tasks[-1], asyncio.sleep(0))

    @property
    def kinds(self) -> tuple[Callable[..., Awaitable[Any]], ...]:
        return (self.sleeps, self.spins, self.delegates, self.gathers)


class Case(NamedTuple):
    """Which callback is stubborn, how it is given to a runtime, and what the log calls it."""

    name: str
    parts: Callable[[Callable[..., Awaitable[Any]]], dict[str, Any]]


class Calling:
    """A planner that does nothing but await one callable."""

    def __init__(self, work: Callable[..., Awaitable[Any]]) -> None:
        self.next = work


class Summarising:
    """A summariser that does nothing but await one callable."""

    def __init__(self, work: Callable[..., Awaitable[Any]]) -> None:
        self.summarise = work


@tool
async def look() -> str:
    """Look."""
    return "seen"


def _policy(work: Callable[..., Awaitable[Any]]) -> dict[str, Any]:
    return {"planner": ScriptedPlanner([LOOK, GOAL]), "tools": [look], "approvals": work}


def _summariser(work: Callable[..., Awaitable[Any]]) -> dict[str, Any]:
    return {
        "planner": ScriptedPlanner([LOOK, LOOK, GOAL]),
        "tools": [look],
        "summariser": Summarising(work),
        "options": RuntimeOptions(token_budget=1),
    }


class Asking:
    """A model that does nothing but await one callable, and a memory's summariser and provider of context too."""

    def __init__(self, work: Callable[..., Awaitable[Any]]) -> None:
        self.complete = self.provide = work

    async def close(self) -> None:
        """It holds nothing open."""


def _provider(work: Callable[..., Awaitable[Any]]) -> dict[str, Any]:
    source = ContextSource(provider=Asking(work), name="news", timeout_s=60)
    return {"planner": ScriptedPlanner([GOAL]), "context": [source]}


CASES = (
    Case("context provider news", _provider),
    Case("planner", lambda work: {"model": Asking(work)}),
    Case("planner", lambda work: {"planner": Calling(work)}),
    Case("approval policy", _policy),
    Case("summariser", _summariser),
)


@pytest.fixture
async def stubborn() -> AsyncIterator[Stubborn]:
    stubborn = Stubborn()
    yield stubborn
    stubborn.is_over = True
    for task in stubborn.tasks:
        task.cancel()
    await settle(3)


async def test_a_run_ends_although_its_callback_ignores_the_cancellation(
    stubborn: Stubborn, caplog: pytest.LogCaptureFixture
) -> None:
    """At a hard cancel and at its deadline, as what it was asked to end as; the log names what was left."""
    for case in CASES:
        for work in stubborn.kinds:
            for how in ("hard", "deadline"):
                caplog.clear()
                stubborn.began = 0
                clock = FakeClock()
                async with Runtime(clock=clock, **case.parts(work)) as rt:
                    label = f"{case.name} that {work.__name__}, {how}"
                    run = await rt.start("g", who=WHO.identity, deadline=clock.now() + timedelta(seconds=5))
                    await settle(8)
                    assert stubborn.began, label
                    if how == "hard":
                        await run.cancel(hard=True)
                    else:
                        await clock.run_for(5)
                    await clock.run_for(2 * CANCEL_GRACE_S)
                    async with asyncio.timeout(5):
                        reason = (await run.finished()).reason
                    wanted = FinishReason.CANCELLED if how == "hard" else FinishReason.DEADLINE_EXCEEDED
                    assert reason is wanted, label
                    assert f"{case.name}" in caplog.text, label
                    assert "ignored its cancellation" in caplog.text, label


async def test_closing_a_runtime_does_not_wait_for_a_callback(stubborn: Stubborn) -> None:
    """It returns after the grace, the run is as its record has it, and no task is left but the callback's own."""
    before = asyncio.all_tasks()
    for case in CASES:
        for work in stubborn.kinds:
            clock = FakeClock()
            rt = Runtime(clock=clock, **case.parts(work))
            await rt.__aenter__()
            await rt.start("g", who=WHO.identity)
            await settle(8)
            closing = asyncio.create_task(rt.aclose())
            for _ in range(8):
                await clock.run_for(CLOSE_GRACE_S)
            assert closing.done(), f"{case.name} that {work.__name__}"
            await closing
            left = asyncio.all_tasks() - before - {*stubborn.tasks}
            assert not left, f"{case.name} that {work.__name__} would keep asyncio.run from returning"


class Bed(NamedTuple):
    """A loop of an embedder, the spec of its run, and the clock of both."""

    loop: RunLoop
    spec: RunSpec
    registry: InboxRegistry
    clock: FakeClock


def bed(work: Callable[..., Awaitable[Any]], name: str) -> Bed:
    """A loop in which the callback of this name is stubborn, and hooks end otherwise."""

    class Own:
        async def execute_decision(self, rc: RunContext, decision: Any) -> tuple[Any, Any]:
            return "seen", "seen"

    async def policy(request: ApprovalRequest) -> Any:
        return await work(request)

    clock, registry, pauses, catalog = FakeClock(), InboxRegistry(), Coordinator(), ToolCatalog()
    catalog.register(look)
    gate = ApprovalGate(policy, pauses, MemoryEventBus(), PatternRedactor(), clock=clock)

    async def hold(_: RunContext) -> Any:
        return await asyncio.get_running_loop().create_future()

    async def hook(*_: Any) -> None:
        await work()

    planner: Any = {"planner": Calling(work), "hard_cancel_hook": Calling(hold)}.get(
        name, ScriptedPlanner([LOOK, GOAL])
    )
    loop = RunLoop(
        registry,
        pauses,
        clock=clock,
        control_errors="reject",
        approval_gates=gate if name == "approval policy" else None,
        hard_cancel_hook=hook if name == "hard_cancel_hook" else None,
    )
    spec = RunSpec(
        planner=planner,
        base=RunContext(quadruple=WHO, goal="g", trajectory=Trajectory()),
        tool_executor=Own() if name.endswith("(own)") else CatalogToolExecutor(catalog, clock=clock),
        on_tool_dispatched=hook if name.startswith("on_tool_dispatched") else None,
    )
    return Bed(loop, spec, registry, clock)


async def test_a_run_loop_ends_although_its_callback_ignores_the_cancellation(stubborn: Stubborn) -> None:
    """At a hard cancel and when the embedder cancels the task that runs it."""
    names = (
        "planner",
        "approval policy",
        "hard_cancel_hook",
        "on_tool_dispatched (catalog)",
        "on_tool_dispatched (own)",
    )
    for name in names:
        for work in stubborn.kinds:
            for how in ("hard", "task"):
                label = f"{name} that {work.__name__}, {how}"
                stubborn.began = 0
                made = bed(work, name)
                task = asyncio.create_task(made.loop.run(made.spec))
                await settle(8)
                if how == "hard":
                    cancel = ControlEvent(ControlType.CANCEL, WHO, Scope.OWNER_USER, WHO.tenant_id, {"hard": True})
                    made.registry.lookup(WHO).enqueue(cancel)
                else:
                    task.cancel()
                await settle(8)
                assert stubborn.began or (name, how) == ("hard_cancel_hook", "task"), label
                if how == "hard" and name.startswith("on_tool"):
                    task.cancel()  # a hook is not cut short by a control: it belongs to a call that was made
                await made.clock.run_for(2 * CANCEL_GRACE_S)
                await made.clock.run_for(10 + CLOSE_GRACE_S)  # the hook of a hard cancel has 10 seconds
                await settle(8)
                assert task.done(), label
                if not task.cancelled():
                    assert task.result().reason is FinishReason.CANCELLED, label
