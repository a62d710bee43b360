"""Runs with limits, whole: what is enforced, what the planner sees, what a tree shares, what outlives a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage import (
    CallTool,
    Finish,
    FinishReason,
    Identity,
    Quadruple,
    RunContext,
    RunLoop,
    Runtime,
    RuntimeOptions,
    SpawnSpec,
    SpawnTask,
    tool,
)
from harborage.artifacts.memory import MemoryArtifactStore
from harborage.errors import InvalidOptionError
from harborage.events import EventType
from harborage.events.memory_bus import MemoryEventBus
from harborage.llm import (
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Cost,
    LLMClient,
    PriceUnknownError,
    ToolCallStructured,
    Usage,
)
from harborage.llm.config import Deps
from harborage.llm.opening import count_calls
from harborage.planner import Budget
from harborage.runtime.loop.limits import Limits
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import InboxRegistry, RunLoopMisconfiguredError, RunSpec
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import ToolPolicy
from tests.kit.planners import BudgetPlanner

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")
GOAL = Finish(FinishReason.GOAL, "ok")
DEPS = Deps(artifacts=MemoryArtifactStore(), bus=MemoryEventBus())


@tool
async def look() -> str:
    """Look."""
    return "seen"


LOOK = CallTool("look", b"{}")


class Paid:
    """A model whose every call takes 10 tokens and a quarter of a dollar; `calls` counts them."""

    def __init__(self, answers: Callable[[int], CompleteResponse] | None = None) -> None:
        self.calls = 0
        self.prompts: list[str] = []
        self._answers = answers or (lambda _: CompleteResponse(tool_calls=[ToolCallStructured("c", "look")]))

    def price_of(self, model: str, usage: Usage) -> Cost | None:
        return Cost(total_cost=0.25)

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self.calls += 1
        self.prompts += [str(one.content.text) for one in request.messages[-1:]]
        answer = self._answers(self.calls)
        usage = Usage(prompt_tokens=8, completion_tokens=2, total_tokens=10)
        return CompleteResponse(answer.content, answer.tool_calls, cost=Cost(total_cost=0.25), usage=usage)

    async def close(self) -> None:
        return None


def limit_of(finish: Finish) -> str:
    assert finish.reason is FinishReason.CONSTRAINTS_CONFLICT, finish
    assert finish.metadata is not None
    return str(finish.metadata["limit"])


@asynccontextmanager
async def opened(planner: Any = None, **parts: Any) -> AsyncIterator[Runtime]:
    async with Runtime(planner=planner, tools=[look], **parts) as rt:
        yield rt


async def finish_of(rt: Runtime, limits: Limits | None = None, goal: str = "go") -> Finish:
    run = await rt.start(goal, who=WHO, limits=limits)
    return await asyncio.wait_for(run.finished(), 10)


# ── One run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_steps_run_out_and_the_planner_sees_how_many_are_left() -> None:
    """The run makes exactly its steps, its planner sees how many are left, and it finishes by saying which limit it
    met."""
    planner = BudgetPlanner(LOOK)
    async with opened(planner) as rt:
        finish = await finish_of(rt, Limits(steps=3))
    assert limit_of(finish) == "steps"
    assert [one.hop_budget for one in planner.seen] == [3, 2, 1]
    assert (finish.metadata or {})["detail"] == "the run's limit of 3 steps is reached"
    assert ((finish.metadata or {})["cap"], (finish.metadata or {})["spent"]) == (3, 3)
    async with opened(BudgetPlanner(LOOK)) as rt:
        finish = await finish_of(rt, Limits(steps=1))
    assert (finish.metadata or {})["detail"] == "the run's limit of 1 step is reached"


async def test_the_runtime_s_own_limits_hold_for_every_run_and_a_run_may_have_others() -> None:
    """`RuntimeOptions.limits` are the default, what `start` names takes their place."""
    planner = BudgetPlanner(LOOK)
    async with opened(planner, options=RuntimeOptions(limits=Limits(steps=2))) as rt:
        assert limit_of(await finish_of(rt)) == "steps"
        assert len(planner.seen) == 2
        await finish_of(rt, Limits(steps=4, calls=50))
        assert len(planner.seen) == 2 + 4


async def test_cost_is_counted_and_ends_the_run() -> None:
    """Of a dollar's limit four calls at a quarter are made, the planner sees what was spent, and the event is
    published."""
    model = Paid()
    bus = MemoryEventBus()
    recorder = EventRecorder(bus)
    async with opened(model=model, bus=bus) as rt:
        finish = await finish_of(rt, Limits(cost=1.0))
    assert (limit_of(finish), model.calls) == ("cost", 4)
    assert (finish.metadata or {})["detail"] == "the run's cost limit of $1 is reached ($1 spent)"
    (exceeded,) = [event.payload for event in recorder.events if event.type == EventType.GOVERNANCE_BUDGET_EXCEEDED]
    assert (exceeded.total_cost, exceeded.ceiling, exceeded.tier) == (1.0, 1.0, "run")  # type: ignore[union-attr]


async def test_the_prompt_names_the_limit_near_it_and_only_there() -> None:
    """The prompt of the last fifth says what is left; those before say nothing."""
    model = Paid()
    async with opened(model=model) as rt:
        await finish_of(rt, Limits(cost=1.25))
    assert [("near its limit" in prompt) for prompt in model.prompts] == [False, False, False, False, True]
    assert "$0.2500 of $1.2500 left" in model.prompts[-1]


async def test_tokens_are_counted_for_a_planner_that_calls_a_client_of_its_own() -> None:
    """The account is bound to the work, so whatever client of Harborage's the planner holds draws on it."""
    model = Paid()
    planner = BudgetPlanner(LOOK, count_calls(model, DEPS))
    async with opened(planner) as rt:
        finish = await finish_of(rt, Limits(tokens=30))
    assert (limit_of(finish), model.calls) == ("tokens", 3)
    assert [one.tokens_spent for one in planner.seen] == [0, 10, 20]


async def test_tool_calls_are_counted_and_the_last_one_allowed_may_be_answered() -> None:
    """With two calls allowed the third is refused and ends the run; a planner that stops in time reaches its goal."""
    async with opened(ScriptedPlanner([LOOK, LOOK, GOAL])) as rt:
        assert await finish_of(rt, Limits(calls=2)) == GOAL
    planner = BudgetPlanner(LOOK)
    async with opened(planner) as rt:
        assert limit_of(await finish_of(rt, Limits(calls=2))) == "calls"
    assert len(planner.seen) == 3


async def test_a_run_lasts_as_long_as_its_limit_says() -> None:
    """`seconds` is the run's deadline from its start; an earlier deadline of its own counts."""
    clock = FakeClock()

    @tool(policy=ToolPolicy(timeout_ms=0))
    async def hang() -> str:
        """Hang, without a deadline of its own."""
        await asyncio.Event().wait()
        return ""

    for limits, own in (
        (Limits(seconds=60), None),
        (Limits(seconds=600), timedelta(seconds=60)),
    ):
        async with Runtime(planner=ScriptedPlanner([CallTool("hang", b"{}"), GOAL]), tools=[hang], clock=clock) as rt:
            deadline = None if own is None else clock.now() + own
            run = await rt.start("go", who=WHO, limits=limits, deadline=deadline)
            await clock.run_for(59)
            assert not (await run.status()).phase.is_final
            await clock.run_for(3)
            assert (await run.finished()).reason is FinishReason.DEADLINE_EXCEEDED


async def test_a_run_without_limits_sees_its_own_cost_and_asks_no_store() -> None:
    """What it took is shown, nothing ends it, and no ledger is kept."""
    planner = BudgetPlanner(LOOK, count_calls(Paid(), DEPS))
    async with opened(planner, options=RuntimeOptions(max_steps=3)) as rt:
        run = await rt.start("go", who=WHO)
        with pytest.raises(Exception, match="3 steps without a finish"):
            await run.finished()
        assert rt.parts.agents.live(run.id) is None
    assert [one.cost_spent for one in planner.seen] == [0, 250_000, 500_000]
    assert {one.hop_budget for one in planner.seen} == {-1}


async def test_a_cancelled_run_ends_as_cancelled_even_when_nothing_is_left() -> None:
    """A caller that asked for the end gets the end, not the limit."""
    asked = asyncio.Event()

    class Slow:
        async def next(self, run: RunContext) -> Any:
            await asked.wait()
            return LOOK

    async with opened(Slow()) as rt:
        run = await rt.start("go", who=WHO, limits=Limits(steps=1))
        await run.cancel()
        asked.set()
        assert (await run.finished()).reason is FinishReason.CANCELLED


# ── Prices ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Unpriced(Paid):
    """The same, without a known price."""

    def price_of(self, model: str, usage: Usage) -> Cost | None:
        return None


async def test_a_cost_limit_for_a_model_without_a_price_is_refused_before_anything_is_spent() -> None:
    """At opening for the runtime's own limits, at `start` for those of a run; the text names the way out."""
    model = Unpriced()
    with pytest.raises(PriceUnknownError, match="limit tokens instead"):
        async with opened(model=model, options=RuntimeOptions(limits=Limits(cost=1))):
            pass
    async with opened(model=model) as rt:
        with pytest.raises(PriceUnknownError):
            await rt.start("go", who=WHO, limits=Limits(cost=1))
        assert limit_of(await finish_of(rt, Limits(tokens=20))) == "tokens"
    unknown = ConfigSnapshot(
        driver="openai_compat", provider="x", model="m", base_url="https://api.example.com/v1", api_key="k"
    )
    with pytest.raises(PriceUnknownError, match="'m'"):
        async with opened(model=unknown, options=RuntimeOptions(limits=Limits(cost=1))):
            pass


async def test_a_planner_s_own_client_without_a_price_cannot_spend_under_a_cost_limit() -> None:
    """No call is made, and the run says why it ended."""
    model = Unpriced()
    async with opened(BudgetPlanner(LOOK, count_calls(model, DEPS))) as rt:
        finish = await finish_of(rt, Limits(cost=1))
    assert (limit_of(finish), model.calls) == ("cost", 0)
    assert "none is known" in (finish.metadata or {})["detail"]


async def test_a_model_on_a_machine_nearby_costs_nothing() -> None:
    """A cost limit is no hindrance to it."""
    near = ConfigSnapshot(driver="openai_compat", provider="x", model="m", base_url="http://127.0.0.1:1/v1")
    async with opened(model=near, options=RuntimeOptions(limits=Limits(cost=1))):
        pass


# ── A tree ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Tree:
    """The root spawns `children` side by side and then looks; every child looks, too. All pay for each step."""

    def __init__(self, client: LLMClient, children: int) -> None:
        self._client = client
        self._children = children

    async def next(self, run: RunContext) -> Any:
        await self._client.complete(CompleteRequest())
        assert run.trajectory is not None
        if run.goal == "root" and len(run.trajectory.steps) < self._children:
            return SpawnTask(spec=SpawnSpec(query="child"))
        return LOOK


async def test_children_draw_on_the_limits_of_the_run_that_started_them() -> None:
    """Together they make as many calls as one run alone could, and each ends by the same limit."""
    model = Paid()
    async with opened(Tree(count_calls(model, DEPS), 3)) as rt:
        run = await rt.start("root", who=WHO, limits=Limits(cost=5.0))
        assert limit_of(await asyncio.wait_for(run.finished(), 20)) == "cost"
        for one in await rt.runs(who=WHO):
            finish = await asyncio.wait_for((await rt.run(one.run_id, who=WHO)).finished(), 20)
            assert finish.reason in {FinishReason.CONSTRAINTS_CONFLICT, FinishReason.CANCELLED}
    assert 20 <= model.calls <= 20 + 4


async def test_the_steps_of_a_tree_are_one_sum() -> None:
    """The planner of all of them is called no more often than the limit says."""
    planner = Tree(count_calls(Paid(), DEPS), 2)
    model = planner._client
    async with opened(planner) as rt:
        run = await rt.start("root", who=WHO, limits=Limits(steps=9))
        assert limit_of(await asyncio.wait_for(run.finished(), 20)) == "steps"
        for one in await rt.runs(who=WHO):
            await asyncio.wait_for((await rt.run(one.run_id, who=WHO)).finished(), 20)
    assert model.inner.inner.calls <= 9  # type: ignore[attr-defined]


async def test_a_child_ends_at_its_parent_s_deadline() -> None:
    """It is started with it, whatever its own task says."""
    clock = FakeClock()
    deadline = clock.now() + timedelta(hours=1)
    planner = ScriptedPlanner([SpawnTask(spec=SpawnSpec(query="child")), GOAL], by_query={"child": [GOAL]})
    async with opened(planner, clock=clock) as rt:
        run = await rt.start("root", who=WHO, deadline=deadline)
        await run.finished()
        (child,) = [one for one in await rt.runs(who=WHO) if one.run_id != run.id]
        assert (await rt._starter._request_of(child.run_id)).deadline == deadline  # type: ignore[union-attr]


# ── More than one process ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_that_is_taken_up_again_has_spent_what_it_spent(tmp_path: Path) -> None:
    """Its runtime ends in the middle of a model call; the next goes on with what was spent, the lost call included."""
    url, reached = f"sqlite:{tmp_path / 'runs.db'}", asyncio.Event()

    class Stuck(Paid):
        async def complete(self, request: CompleteRequest) -> CompleteResponse:
            if self.calls == 2 and not reached.is_set():
                self.calls += 1
                reached.set()
                await asyncio.Event().wait()
            return await super().complete(request)

    model = Stuck()
    async with opened(model=model, storage=url) as rt:
        run_id = (await rt.start("go", who=WHO, limits=Limits(cost=1.5))).id
        await asyncio.wait_for(reached.wait(), 10)
    async with opened(model=model, storage=url) as rt:
        finish = await asyncio.wait_for((await rt.run(run_id, who=WHO)).finished(), 20)
    assert (limit_of(finish), model.calls) == ("cost", 6)


# ── RunLoop ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Echo:
    async def execute_decision(self, rc: RunContext, decision: Any) -> tuple[Any, Any]:
        return "x", "x"


async def looped(planner: Any, budget: Budget) -> Finish:
    base = RunContext(quadruple=Quadruple("t", "u", "s", "r"), goal="g", budget=budget)
    return await RunLoop(InboxRegistry(), Coordinator()).run(RunSpec(planner=planner, base=base, tool_executor=Echo()))


async def test_a_run_loop_enforces_the_budget_of_its_base_context() -> None:
    """Steps fall by one a step, cost is what was spent before and what its model calls take."""
    planner = BudgetPlanner(LOOK)
    assert limit_of(await looped(planner, Budget(hop_budget=2))) == "steps"
    assert [one.hop_budget for one in planner.seen] == [2, 1]
    assert limit_of(await looped(planner, Budget(hop_budget=0))) == "steps"
    assert limit_of(await looped(planner, Budget(cost_cap=1, cost_spent=5))) == "cost"
    assert len(planner.seen) == 2
    planner = BudgetPlanner(LOOK, count_calls(Paid(), DEPS))
    assert limit_of(await looped(planner, Budget(cost_cap=1_000_000, cost_spent=400_000))) == "cost"
    assert [one.cost_spent for one in planner.seen] == [400_000, 650_000, 900_000]


async def test_a_run_loop_refuses_a_deadline_without_a_zone() -> None:
    """By name, before anything runs."""
    with pytest.raises(RunLoopMisconfiguredError, match="time zone"):
        await looped(BudgetPlanner(LOOK), Budget(deadline=datetime(2030, 1, 1)))
    past = datetime(2020, 1, 1, tzinfo=UTC)
    assert (await looped(BudgetPlanner(LOOK), Budget(deadline=past))).reason is FinishReason.DEADLINE_EXCEEDED


async def test_a_wrong_limit_never_reaches_a_run() -> None:
    """It is refused where it is written."""
    with pytest.raises(InvalidOptionError):
        RuntimeOptions(limits=Limits(cost=-1))
