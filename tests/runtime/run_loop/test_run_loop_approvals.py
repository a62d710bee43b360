"""A guarded tool called through `RunLoop`: only the run's own inbox can bring the answer that its step waits for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from harborage.events import PatternRedactor
from harborage.identity import current_scopes
from harborage.planner import CallTool, Finish, FinishReason, PauseReason, RequestPause, Trajectory
from harborage.runtime.approval import AlwaysApprove, AlwaysDeny, ApprovalGate, ApprovalRequest
from harborage.runtime.dispatch import CatalogToolExecutor
from harborage.runtime.pauses import PauseDecision
from harborage.runtime.steering import NoOutstandingPauseError
from harborage.testing.clock import FakeClock, settle
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner
from harborage.tools import ToolCatalog, tool

pytestmark = pytest.mark.anyio

GOAL = Finish(FinishReason.GOAL, "done")
PAY = CallTool("pay", b'{"amount":3}', "c1")
Benches = Callable[..., Any]


class Shop:
    """A catalog with one guarded tool, the gate in front of it, and an executor that asks the gate before it calls."""

    def __init__(self, benches: Benches, policy: Any = None) -> None:
        def gates(bench: Any) -> dict[str, ApprovalGate]:
            self.gate = ApprovalGate(
                policy or AlwaysDeny("costs money"),
                bench.pauses,
                bench.bus,
                PatternRedactor(),
                timeout=timedelta(hours=1),
                clock=bench.clock,
            )
            return {"pay": self.gate}

        self.bench = benches(gates=gates)
        self.paid: list[tuple[int, frozenset[str]]] = []
        catalog = ToolCatalog()
        catalog.register(tool(self.pay))
        # On a clock of its own: the timer that stands for all timeouts stays armed.
        self._executor = CatalogToolExecutor(catalog, clock=FakeClock())
        self.history = Trajectory()

    async def pay(self, amount: int) -> str:
        """Pay."""
        self.paid.append((amount, current_scopes()))
        return f"paid {amount}"

    async def execute_decision(self, rc: Any, decision: Any) -> tuple[Any, Any]:
        request = ApprovalRequest(tool=decision.tool, args=decision.args, identity=rc.quadruple)
        args = await self.gate.run_guarded(request)
        return await self._executor.execute_decision(rc, CallTool(decision.tool, args, decision.call_id))

    def begin(self, *lines: Any, run_id: str = "r") -> asyncio.Task[Finish]:
        """A run of this script."""
        base = {"trajectory": self.history}
        return self.bench.begin(ScriptedPlanner(lines), run_id, tool_executor=self, base=base)

    async def token(self) -> str:
        """The token under which a call waits now."""
        await settle()
        (token,) = self.gate.tokens
        return token

    @property
    def observations(self) -> list[Any]:
        return [step.observation for step in self.history.steps]


@pytest.fixture
def shop(benches: Benches) -> Shop:
    return Shop(benches)


async def test_an_approval_reaches_the_call_that_waits_for_it(shop: Shop) -> None:
    """In mid step, by the run's own inbox: the call is made, the run goes on, and the control was applied once."""
    task = shop.begin(PAY, GOAL)
    shop.bench.send("APPROVE", {"token": await shop.token(), "reason": "fine"})
    assert await shop.bench.end(task) is GOAL
    assert shop.observations == ["paid 3"]
    assert shop.bench.controls == [("APPROVE", "received"), ("APPROVE", "applied")]
    assert shop.bench.history == [("APPROVE", "")]


async def test_an_approver_lends_no_scopes(shop: Shop) -> None:
    """The gate is answered with an approver's scopes; neither the tool nor the rest of the run gets them."""
    task = shop.begin(PAY, lambda run: Finish(FinishReason.GOAL, sorted(current_scopes())))
    shop.bench.send("APPROVE", {"token": await shop.token()})
    assert (await shop.bench.end(task)).payload == []
    assert shop.paid == [(3, frozenset())]


async def test_a_rejection_reaches_the_call_too(shop: Shop) -> None:
    """The tool is not called; the planner sees why, and the run goes on."""
    task = shop.begin(PAY, GOAL)
    shop.bench.send("REJECT", {"token": await shop.token(), "reason": "too much"})
    assert await shop.bench.end(task) is GOAL
    assert shop.paid == []
    assert "too much" in shop.observations[0]["error"]


async def test_an_approver_may_change_the_arguments(shop: Shop) -> None:
    """The tool gets those, and the history keeps the decision as it was."""
    task = shop.begin(PAY, GOAL)
    shop.bench.send("APPROVE", {"token": await shop.token(), "args": {"amount": 1}})
    await shop.bench.end(task)
    assert [amount for amount, _ in shop.paid] == [1]
    assert json.loads(shop.history.steps[0].action.args) == {"amount": 3}


async def test_a_call_that_needs_no_approval_does_not_wait(benches: Benches) -> None:
    """The gate lets it through."""
    shop = Shop(benches, AlwaysApprove())
    assert await shop.bench.end(shop.begin(PAY, GOAL)) is GOAL
    assert shop.observations == ["paid 3"]


async def test_no_answer_is_a_refusal(shop: Shop) -> None:
    """When the gate's time is up the run goes on without the call."""
    task = shop.begin(PAY, GOAL)
    await shop.token()
    await shop.bench.clock.run_for(3600)
    assert await shop.bench.end(task) is GOAL
    assert shop.paid == []
    assert "no answer before" in shop.observations[0]["error"]


async def test_other_controls_wait_for_the_boundary_in_order(shop: Shop) -> None:
    """They are applied after the answer, though they came before it."""
    seen: list[Any] = []
    task = shop.begin(PAY, lambda run: seen.append((run.goal, run.control.user_messages)) or GOAL)
    token = await shop.token()
    shop.bench.send("USER_MESSAGE", {"message": "one"})
    shop.bench.send("REDIRECT", {"goal": "elsewhere"})
    shop.bench.send("USER_MESSAGE", {"message": "two"})
    await settle()
    assert shop.bench.controls == []
    shop.bench.send("APPROVE", {"token": token})
    await shop.bench.end(task)
    assert seen == [("elsewhere", ("one", "two"))]
    assert [kind for kind, _ in shop.bench.history] == ["APPROVE", "USER_MESSAGE", "REDIRECT", "USER_MESSAGE"]


@pytest.mark.parametrize("type", ["APPROVE", "REJECT"])
async def test_an_answer_without_a_waiting_call_waits_for_the_boundary(shop: Shop, type: str) -> None:
    """A token that no gate knows is not applied in mid step; there it answers no pause and ends the run."""
    task = shop.begin(PAY, GOAL)
    token = await shop.token()
    shop.bench.send(type, {"token": "nobody's"})
    await settle()
    assert (shop.bench.controls, shop.gate.tokens) == ([], (token,))
    shop.bench.send("APPROVE", {"token": token})
    with pytest.raises(NoOutstandingPauseError):
        await shop.bench.end(task)
    assert shop.observations == ["paid 3"]


async def test_resume_is_no_approval(shop: Shop) -> None:
    """It never reaches a gate, whatever token it names."""
    task = shop.begin(PAY, GOAL)
    token = await shop.token()
    shop.bench.send("RESUME", {"token": token})
    await settle()
    assert shop.gate.tokens == (token,)
    shop.bench.send("REJECT", {"token": token})
    with pytest.raises(NoOutstandingPauseError):
        await shop.bench.end(task)


async def test_a_second_answer_comes_too_late(shop: Shop) -> None:
    """The first one counts; the other is recorded as failed, and the run goes on."""
    task = shop.begin(PAY, GOAL)
    token = await shop.token()
    shop.bench.send("APPROVE", {"token": token})
    shop.bench.send("REJECT", {"token": token})
    assert await shop.bench.end(task) is GOAL
    assert shop.observations == ["paid 3"]
    ends = [line for line in shop.bench.controls if line[1] != "received"]
    assert ends == [("APPROVE", "applied"), ("REJECT", "failed", "apply_failed")]


async def test_one_run_cannot_answer_for_another(shop: Shop) -> None:
    """A token is good only in the inbox of the run whose call waits under it."""
    mine = shop.begin(PAY, GOAL)
    token = await shop.token()
    other = shop.bench.begin(ScriptedPlanner([RequestPause(PauseReason.AWAIT_INPUT), GOAL]), "other")
    await settle()
    shop.bench.send("APPROVE", {"token": token}, "other")
    assert await shop.bench.end(other) is GOAL
    assert shop.gate.tokens == (token,)
    assert shop.paid == []
    shop.bench.send("REJECT", {"token": token})
    await shop.bench.end(mine)


async def test_a_hard_cancel_reaches_a_call_that_waits(shop: Shop) -> None:
    """The tool is not called, and the run is over at once."""
    task = shop.begin(PAY)
    await shop.token()
    shop.bench.send("CANCEL", {"hard": True})
    assert (await shop.bench.end(task)).metadata["steering_reason"] == "hard_cancel"
    assert shop.paid == []
    assert shop.gate.tokens == ()


async def test_an_approval_settled_on_the_coordinator_alone_is_none(shop: Shop) -> None:
    """Only an answer through the gate binds to the call."""
    task = shop.begin(PAY, GOAL)
    token = await shop.token()
    await shop.bench.pauses.resume(token, PauseDecision.APPROVE, who=shop.bench.who())
    assert await shop.bench.end(task) is GOAL
    assert shop.paid == []


async def test_gates_may_be_missing(benches: Benches) -> None:
    """Without any, an answer goes to the run's own pause."""
    bench = benches(approval_gates={})
    task = bench.begin(ScriptedPlanner([RequestPause(PauseReason.AWAIT_INPUT), GOAL]))
    await bench.paused()
    bench.send("APPROVE", {"token": "whatever"})
    assert await bench.end(task) is GOAL


async def test_approvals_of_many_runs_do_not_mix(shop: Shop) -> None:
    """Each answer goes to its own run's call, in whatever order they come."""
    runs = [f"r{index}" for index in range(24)]
    tasks = [
        shop.bench.begin(
            RecordingPlanner(ScriptedPlanner([CallTool("pay", b'{"amount":%d}' % index), _last_observation])),
            run_id,
            tool_executor=shop,
        )
        for index, run_id in enumerate(runs)
    ]
    await settle()
    owners = {shop.gate.owner(token).run_id: token for token in shop.gate.tokens}
    assert set(owners) == set(runs)
    for index, run_id in reversed(list(enumerate(runs))):
        shop.bench.send("APPROVE" if index % 3 else "REJECT", {"token": owners[run_id]}, run_id)
    for index, task in enumerate(tasks):
        payload = (await shop.bench.end(task)).payload
        assert payload == f"paid {index}" if index % 3 else "error" in payload


def _last_observation(run: Any) -> Finish:
    return Finish(FinishReason.GOAL, run.trajectory.steps[-1].observation)
