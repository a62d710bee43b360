"""One call of the planner in an assembled runtime: what is announced, what is kept, and what a failure is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harborage.events import (
    DecisionPayload,
    Event,
    EventType,
    LLMCostRecordedPayload,
    MemoryEventBus,
    PlannerErrorPayload,
    PlannerFinishPayload,
)
from harborage.llm import CompleteRequest, CompleteResponse, ConfigSnapshot, Deps, Usage
from harborage.llm.chain.accounting import Metered
from harborage.planner import CallTool, Finish, FinishReason, RunContext
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.durable.journal import decode_entries
from harborage.runtime.effects.planning import PlannerStepError
from harborage.runtime.loop.limits import Limits
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder
from harborage.testing.llm import ScriptedLLM
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner
from harborage.tools import tool

pytestmark = pytest.mark.anyio

GOAL = Finish(FinishReason.GOAL, "done")
CALL = CallTool("note", b'{"text":"a"}')
Runtimes = Callable[..., Awaitable[Any]]


@tool
async def note(text: str) -> str:
    """Note."""
    return text


async def test_each_decision_is_announced_once(runtimes: Runtimes) -> None:
    """With its kind, its tool and the reasoning; the finish too."""

    def thinks(run: RunContext) -> Any:
        run.on_reasoning("because")
        return CALL

    bench = await runtimes([thinks, GOAL], tools=[note])
    run = await bench.start()
    await bench.end(run)
    published = bench.recorder.payloads(DecisionPayload)
    assert [(one.decision_kind, one.tool, one.reasoning_trace, one.reasoning_chars) for one in published] == [
        ("CallTool", "note", "because", 7),
        ("Finish", "", "", 0),
    ]
    (finish,) = bench.recorder.payloads(PlannerFinishPayload)
    assert (finish.reason, finish.identity) == ("goal", run.who)


async def test_a_planner_that_announces_itself_is_not_repeated(runtimes: Runtimes) -> None:
    """The planner's own event is published, under the run's identity."""

    def announces(run: RunContext) -> Any:
        payload = DecisionPayload(identity=run.quadruple, decision_kind="CallTool", tool="mine", occurred_at=run.now())
        run.emit(Event(EventType.PLANNER_DECISION, run.quadruple, payload))
        return CALL

    bench = await runtimes([announces, GOAL], tools=[note])
    await bench.run()
    assert [one.tool for one in bench.recorder.payloads(DecisionPayload)] == ["mine", ""]


async def test_a_planner_that_fails_is_announced_and_fails_the_run(runtimes: Runtimes) -> None:
    """Class, text cut to 256 characters, and step; the error itself is the cause of the cause."""
    lost = LookupError("x" * 300)
    bench = await runtimes([CALL, lost], tools=[note])
    with pytest.raises(RunFailedError) as caught:
        await bench.run()
    error = caught.value.__cause__
    assert isinstance(error, PlannerStepError)
    assert error.__cause__ is lost
    (published,) = bench.recorder.payloads(PlannerErrorPayload)
    assert (published.error_code, published.error_message, published.step) == ("LookupError", "x" * 255 + "…", 1)


async def test_a_planner_that_was_cancelled_elsewhere_fails_the_run(runtimes: Runtimes) -> None:
    """It awaited something that others cancelled; the run does not hang for ever."""
    victim: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    class Waits:
        async def next(self, run: RunContext) -> Any:
            await victim

    bench = await runtimes(Waits())
    run = await bench.start()
    victim.cancel()
    with pytest.raises(RunFailedError, match="cancelled elsewhere"):
        await bench.end(run)


async def test_how_long_the_planner_took_is_kept(runtimes: Runtimes) -> None:
    """In milliseconds of the runtime's clock, with the time at which it was asked."""

    class Thinks:
        async def next(self, run: RunContext) -> Any:
            if run.trajectory.steps:
                return Finish(FinishReason.GOAL, run.trajectory.steps[0].latency_ms)
            bench.clock.advance(1.5)
            return CALL

    bench = await runtimes(Thinks(), tools=[note])
    began = bench.clock.now()
    run = await bench.start()
    assert (await bench.end(run)).payload == 1500
    plans = [entry for entry in decode_entries(await run.history(), run.id) if getattr(entry, "name", "") == "plan"]
    assert began.strftime("%Y-%m-%dT%H:%M:%S").encode() in bytes(plans[0].result)


async def test_the_context_brings_what_the_runtime_has(runtimes: Runtimes) -> None:
    """Tools that the run may see, artifacts, budget, clock, repair counters, and callbacks for events and streaming."""
    planner = RecordingPlanner(ScriptedPlanner([CALL, GOAL]))
    bench = await runtimes(planner, tools=[note], token_budget=77)
    run = await bench.start()
    await bench.end(run)
    first, second = planner.contexts
    assert (first.quadruple, first.query, first.goal) == (run.who, "g", "g")
    assert [one.name for one in first.catalog.list()] == ["artifact_fetch", "note"]
    assert first.artifacts is bench.rt.artifacts
    assert (first.budget.token_budget, first.now()) == (77, bench.clock.now())
    assert first.repair_counters is second.repair_counters is not None
    assert None not in (first.emit, first.on_chunk, first.on_reasoning)


@pytest.mark.parametrize("limits", [Limits(), Limits(tokens=1_000_000)])
async def test_a_recorded_cost_names_the_step_that_it_is_for(runtimes: Runtimes, limits: Limits) -> None:
    """Of the calls of a planner and of a tool, whether the run has limits or not."""
    bus = MemoryEventBus()
    recorder = EventRecorder(bus)
    config = ConfigSnapshot(provider="openai", model="gpt-4o")
    answer = CompleteResponse("hi", usage=Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2))
    client = Metered(ScriptedLLM([answer] * 5), config, Deps(artifacts=None, bus=bus, clock=FakeClock()))

    @tool(effects="read")
    async def ask() -> str:
        """Ask the model."""
        return (await client.complete(CompleteRequest(model="of-the-tool"))).content

    class Asks:
        async def next(self, run: RunContext) -> Any:
            await client.complete(CompleteRequest(model="of-the-planner"))
            return GOAL if len(run.trajectory.steps) == 2 else CallTool("ask", b"{}")

    bench = await runtimes(Asks(), tools=[ask])
    run = await bench.start(limits=limits)
    await bench.end(run)
    costs = [one for one in recorder.payloads(LLMCostRecordedPayload) if one.identity.run_id == run.id]
    assert [(one.model.removeprefix("of-the-"), one.step) for one in costs] == [
        ("planner", 1), ("tool", 1), ("planner", 2), ("tool", 2), ("planner", 3)
    ]  # fmt: skip
