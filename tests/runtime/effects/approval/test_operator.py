"""What operators decide about tools: over the gates of agents, for their tenant alone, in every process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, Identity, Runtime, tool
from harborage.runtime.effects.approval.operator import REFRESH_S, OperatorApprovals, ToolApproval
from harborage.runtime.loop.errors import NoOutstandingPauseError
from harborage.runtime.loop.seam import GatedTools
from harborage.runtime.run import Run
from harborage.state import DatabaseError, MemoryStateStore
from harborage.testing.clock import FakeClock
from harborage.testing.llm import ScriptedLLM, calls_tools, says

pytestmark = pytest.mark.anyio

ADA = Identity("acme", "ada", "s-1")
EVE = Identity("rival", "eve", "s-3")
AUTO, GATED, DENIED = ToolApproval.AUTO, ToolApproval.GATED, ToolApproval.DENIED


class Shop:
    """An agent whose model calls both of its tools, one after the other, and what came of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @tool(effects="read")
        async def look(place: str) -> str:
            """Look at a place."""
            self.calls.append("look")
            return place

        @tool(effects="external", approval="always")
        async def refund(order: str) -> str:
            """Refund an order."""
            self.calls.append("refund")
            return order

        script = [calls_tools(("look", {"place": "here"})), calls_tools(("refund", {"order": "7"})), says("done")]
        self.agent: Agent[Any, Any] = Agent("shop", tools=[look, refund], model=ScriptedLLM(script))


@pytest.fixture(params=["none", "memory", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """Where the runs are."""
    return {"none": None, "memory": "memory:", "sqlite": f"sqlite:{tmp_path / 'runs.db'}"}[request.param]


async def answer_all(run: Run) -> list[str]:
    """Approve whatever the run asks until it ends; return the tools that were asked about."""
    asked = []
    while not (await run.status()).phase.is_final:
        try:
            pending = await run.wait_pending()
        except NoOutstandingPauseError:
            break
        asked.append(pending.tool)
        await pending.approve()
    await run.result()
    return asked


@pytest.mark.parametrize(
    ("decided", "asked", "called"),
    [
        ({}, ["refund"], ["look", "refund"]),
        ({"look": GATED}, ["look", "refund"], ["look", "refund"]),
        ({"refund": AUTO}, [], ["look", "refund"]),
        ({"refund": DENIED}, [], ["look"]),
        ({"look": DENIED}, ["refund"], ["refund"]),
        ({"refund": GATED, "look": AUTO}, ["refund"], ["look", "refund"]),
        ({"look": DENIED, "refund": DENIED}, [], []),
    ],
)
async def test_a_run_that_starts_later_is_bound(
    storage: str | None, decided: dict[str, ToolApproval], asked: list[str], called: list[str]
) -> None:
    """A denied call is refused without asking, and the run goes on; another tenant is as its agent says."""
    shop = Shop()
    async with Runtime([shop.agent], storage=storage) as rt:
        for name, policy in decided.items():
            await rt.parts.approvals.set("acme", name, policy)
        run = await rt.start("go", who=ADA)
        assert (await answer_all(run), shop.calls) == (asked, called)
        shop.calls.clear()
        assert (await answer_all(await rt.start("go", who=EVE)), shop.calls) == (["refund"], ["look", "refund"])
        replayed = await rt.replay(await run.history())
        assert replayed.difference is None


async def test_what_was_decided_may_be_taken_back(storage: str | None) -> None:
    """Then the agent decides again."""
    shop = Shop()
    async with Runtime([shop.agent], storage=storage) as rt:
        for policy in (DENIED, None):
            await rt.parts.approvals.set("acme", "look", policy)
            await rt.parts.approvals.set("acme", "refund", policy)
        assert await answer_all(await rt.start("go", who=ADA)) == ["refund"]
        assert shop.calls == ["look", "refund"]


@pytest.mark.parametrize(
    ("policy", "called"), [(DENIED, ["look"]), (GATED, ["look", "refund"]), (AUTO, ["look", "refund"])]
)
async def test_a_call_that_waits_for_approval_is_bound_too(
    storage: str | None, policy: ToolApproval, called: list[str]
) -> None:
    """What was approved is not made once an operator has denied it."""
    shop = Shop()
    async with Runtime([shop.agent], storage=storage) as rt:
        run = await rt.start("go", who=ADA)
        pending = await run.wait_pending()
        await rt.parts.approvals.set("acme", "refund", policy)
        await pending.approve()
        await run.result()
    assert shop.calls == called


async def test_a_run_under_way_does_not_make_calls_that_are_gated_since(storage: str | None) -> None:
    """It has recorded that nobody is asked, so the call is refused, and the model learns why."""
    shop = Shop()

    @tool(effects="read", approval="always")
    async def first() -> str:
        """Ask first."""
        return "asked"

    script = [calls_tools(("first", {})), calls_tools(("look", {"place": "here"})), says("done")]
    model = ScriptedLLM(script)
    agent: Agent[Any, Any] = Agent("shop", tools=[first, *shop.agent.tools], model=model)
    async with Runtime([agent], storage=storage) as rt:
        run = await rt.start("go", who=ADA)
        pending = await run.wait_pending()
        await rt.parts.approvals.set("acme", "look", GATED)
        await pending.approve()
        await run.result()
    assert shop.calls == []
    assert "an operator lets a person approve" in str(model.requests[-1].messages)


async def test_another_process_learns_of_it_in_time() -> None:
    """Within the refresh; before that it goes by what it knew."""
    state, clock = MemoryStateStore(), FakeClock()
    here, there = OperatorApprovals(state, clock), OperatorApprovals(state, clock)
    assert await there.load("acme") == {}
    await here.set("acme", "look", DENIED)
    assert (here.known("acme"), there.known("acme")) == ({"look": DENIED}, {})
    clock.advance(REFRESH_S)
    assert there.known("acme") is None
    assert await there.load("acme") == {"look": DENIED}
    await there.set("acme", "refund", AUTO)
    await here.set("acme", "look", None)
    assert await OperatorApprovals(state, clock).load("acme") == {"refund": AUTO}
    assert await here.load("rival") == {}


async def test_a_store_that_fails_leaves_what_was_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing was known, it is not guessed."""
    state, clock = MemoryStateStore(), FakeClock()
    approvals = OperatorApprovals(state, clock)
    await approvals.set("acme", "look", DENIED)

    async def fails(*_: Any) -> Any:
        raise DatabaseError("no")

    monkeypatch.setattr(state, "load", fails)
    clock.advance(REFRESH_S)
    assert await approvals.load("acme") == {"look": DENIED}
    with pytest.raises(DatabaseError):
        await approvals.load("rival")


@pytest.mark.parametrize(
    ("gated", "expected"),
    [
        (GatedTools(), {"g", "d"}),
        (GatedTools(names=frozenset("ax")), {"g", "d", "x"}),
        (GatedTools(is_all=True), {"g", "d", "x", "y"}),
        (GatedTools(is_all=True, exempt=frozenset("gy")), {"g", "d", "x"}),
    ],
)
async def test_decisions_stand_over_what_the_agent_says(gated: GatedTools, expected: set[str]) -> None:
    """Denied and gated tools are asked about, those that are waived are not, and the others stay as they are."""
    approvals = OperatorApprovals(MemoryStateStore(), FakeClock())
    assert approvals.overlay("acme", gated) is gated
    for name, policy in (("a", AUTO), ("g", GATED), ("d", DENIED)):
        await approvals.set("acme", name, policy)
    over = approvals.overlay("acme", gated)
    assert {name for name in "agdxy" if name in over} == expected
    assert approvals.overlay("rival", gated) is gated
    assert [approvals.is_forced(name) for name in "agdx"] == [False, True, True, False]
