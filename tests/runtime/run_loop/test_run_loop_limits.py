"""`RunLoop`: the caps of tokens and tool calls in a run's budget, over a catalog and over an executor of one's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from harborage import CallTool, Finish, FinishReason, Quadruple, RunContext, RunLoop, tool
from harborage.artifacts.memory import MemoryArtifactStore
from harborage.errors import InvalidOptionError
from harborage.events.memory_bus import MemoryEventBus
from harborage.llm import CompleteRequest, CompleteResponse, LLMClient, Usage
from harborage.llm.config import Deps
from harborage.llm.opening import count_calls
from harborage.planner import Budget, CallParallel
from harborage.runtime.dispatch import CatalogToolExecutor
from harborage.runtime.effects.planning import PlannerStepError
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import InboxRegistry, RunSpec, ToolExecutor
from harborage.tools import ToolCatalog
from tests.kit.planners import BudgetPlanner
from tests.runtime.run_loop.conftest import LoopBench

pytestmark = pytest.mark.anyio

DEPS = Deps(artifacts=MemoryArtifactStore(), bus=MemoryEventBus())
LOOK = CallTool("look", b"{}")


class TenTokens:
    """A model whose every call takes 10 tokens."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        return CompleteResponse("hm", usage=Usage(prompt_tokens=8, completion_tokens=2, total_tokens=10))

    async def close(self) -> None:
        return None


class OwnExecutor:
    """An embedder's executor; its tools ask a model, where there is one."""

    def __init__(self, client: LLMClient | None = None) -> None:
        self.decisions: list[Any] = []
        self._client = client

    async def execute_decision(self, rc: RunContext, decision: Any) -> tuple[Any, Any]:
        self.decisions.append(decision)
        if self._client is not None:
            await self._client.complete(CompleteRequest())
        return "seen", "seen"


def over_catalog() -> tuple[CatalogToolExecutor, list[str]]:
    calls: list[str] = []

    @tool
    async def look() -> str:
        """Look."""
        calls.append("look")
        return "seen"

    catalog = ToolCatalog()
    catalog.register(look)
    return CatalogToolExecutor(catalog), calls


async def limit_of(planner: BudgetPlanner, budget: Budget, executor: ToolExecutor) -> str:
    """The limit that ended the run."""
    base = RunContext(quadruple=Quadruple("t", "u", "s", "r"), goal="g", budget=budget)
    spec = RunSpec(planner=planner, base=base, tool_executor=executor)
    finish: Finish = await asyncio.wait_for(RunLoop(InboxRegistry(), Coordinator()).run(spec), 10)
    assert finish.reason is FinishReason.CONSTRAINTS_CONFLICT, finish
    return str((finish.metadata or {})["limit"])


async def test_tokens_count_up_to_the_cap_and_end_the_run() -> None:
    """Of 50 tokens, 20 of them taken before, three calls of 10 are made; the planner gets the amount used."""
    planner = BudgetPlanner(LOOK, count_calls(TenTokens(), DEPS))
    assert await limit_of(planner, Budget(token_cap=50, tokens_spent=20), OwnExecutor()) == "tokens"
    assert [(one.token_cap, one.tokens_spent) for one in planner.seen] == [(50, 20), (50, 30), (50, 40)]


async def test_tokens_that_a_tool_takes_count_as_well() -> None:
    """A model that an embedder's executor asks draws on the run's budget like the planner's own."""
    executor = OwnExecutor(count_calls(TenTokens(), DEPS))
    assert await limit_of(BudgetPlanner(LOOK), Budget(token_cap=30), executor) == "tokens"
    assert len(executor.decisions) == 3


@pytest.mark.parametrize("is_own", [True, False], ids=["own executor", "catalog"])
async def test_tool_calls_count_up_to_the_cap_and_one_more_ends_the_run(is_own: bool) -> None:
    """Of four allowed calls, one of them made before, three are made; the fourth is refused, and no step follows."""
    executor: ToolExecutor
    made: list[Any]
    if is_own:
        executor = own = OwnExecutor()
        made = own.decisions
    else:
        executor, made = over_catalog()
    planner = BudgetPlanner(LOOK)
    assert await limit_of(planner, Budget(call_cap=4, calls_made=1), executor) == "calls"
    assert len(made) == 3
    assert [(one.call_cap, one.calls_made) for one in planner.seen] == [(4, 1), (4, 2), (4, 3), (4, 4)]


async def test_an_own_executor_gets_no_parallel_call_of_which_a_branch_is_over_the_cap() -> None:
    """Only the executor knows what the other branches would mean, so such a call is not made at all."""
    executor = OwnExecutor()
    planner = BudgetPlanner(CallParallel((LOOK, LOOK)))
    assert await limit_of(planner, Budget(call_cap=3), executor) == "calls"
    assert len(executor.decisions) == 1
    assert len(planner.seen) == 2


class Endless:
    """A planner that never decides; a stubborn one ignores that it is cancelled."""

    def __init__(self, *, is_stubborn: bool) -> None:
        self._is_stubborn = is_stubborn

    async def next(self, run: RunContext) -> Finish:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self._is_stubborn:
                    raise


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_a_planner_that_never_decides_fails_its_run(is_stubborn: bool, benches: Callable[..., LoopBench]) -> None:
    """After the limit, whether or not it ends when it is cancelled; without an option that is an hour."""
    for options, limit_s in (({"planner_timeout": timedelta(seconds=30)}, 30), ({}, 3600)):
        bench = benches(**options)
        running = bench.begin(Endless(is_stubborn=is_stubborn))
        await bench.clock.run_for(limit_s - 1)
        assert not running.done()
        await bench.clock.run_for(20)  # the grace of one that ignores its cancellation is in it
        with pytest.raises(PlannerStepError, match=rf"no decision within {limit_s} s; RunLoop\(planner_timeout"):
            await bench.end(running)


@pytest.mark.parametrize("limit", [timedelta(), timedelta(seconds=-1), 60, None])
def test_a_limit_of_planners_is_a_duration(limit: Any) -> None:
    """Anything else is refused where it is written."""
    with pytest.raises(InvalidOptionError, match="planner_timeout"):
        RunLoop(InboxRegistry(), Coordinator(), planner_timeout=limit)
