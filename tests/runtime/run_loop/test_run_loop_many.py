"""One `RunLoop`, many runs at once: no run sees the data of another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harborage.identity import Quadruple, current_quadruple
from harborage.planner import CallTool, Finish, FinishReason, PauseReason, RequestPause, RunContext
from harborage.runtime.steering import ControlEvent, ControlType, RunSpec, Scope
from harborage.testing.clock import settle

pytestmark = pytest.mark.anyio


class Curious:
    """One planner for all runs: asks for input, acts a few times, then returns everything that it saw of its run."""

    def __init__(self) -> None:
        self.asked: set[Quadruple] = set()

    async def next(self, run: RunContext) -> Any:
        await asyncio.sleep(0)
        who = run.quadruple
        assert current_quadruple() == who
        if who not in self.asked:
            self.asked.add(who)
            return RequestPause(PauseReason.AWAIT_INPUT, {"of": who.run_id})
        if len(run.trajectory.steps) < 3:
            run.on_reasoning(f"thought of {who.run_id}")
            return CallTool("x", f'"{who.tenant_id}/{who.run_id}"'.encode())
        seen = [note.payload for note in run.trajectory.steering_inputs]
        steps = [(step.action.args, step.observation, step.reasoning_trace) for step in run.trajectory.steps]
        return Finish(FinishReason.GOAL, {"seen": seen, "steps": steps, "goal": run.goal})


class Echo:
    """One executor for all runs."""

    async def execute_decision(self, rc: RunContext, decision: Any) -> tuple[Any, Any]:
        await asyncio.sleep(0)
        answer = {"who": rc.quadruple.run_id, "args": decision.args.decode()}
        return answer, answer


def owner(index: int) -> Quadruple:
    """Few tenants, users and sessions, so that many runs differ in one part only; run ids repeat across tenants."""
    return Quadruple(f"t{index % 2}", f"u{index // 2 % 2}", f"s{index // 4 % 2}", f"r{index // 8}")


def control(who: Quadruple, type: str, payload: dict[str, Any]) -> ControlEvent:
    return ControlEvent(ControlType(type), who, Scope.ADMIN, who.tenant_id, payload)


@pytest.mark.parametrize("count", [16, 128])
async def test_runs_on_one_loop_see_only_their_own(bench: Any, count: int) -> None:
    """Context, goal, answers, notes, history and finish of each are its own, and no inbox is left."""
    owners = [owner(index) for index in range(count)]
    assert len(set(owners)) == count
    planner, executor = Curious(), Echo()
    tasks = [
        asyncio.create_task(
            bench.loop.run(
                RunSpec(planner=planner, base=RunContext(quadruple=who, goal=f"goal of {who}"), tool_executor=executor)
            )
        )
        for who in owners
    ]
    await settle()
    assert len(bench.registry) == count
    for who in owners:
        bench.registry.lookup(who).enqueue(control(who, "INJECT_CONTEXT", {"for": str(who)}))
        bench.registry.lookup(who).enqueue(control(who, "USER_MESSAGE", {"message": f"hello {who}"}))
        bench.registry.lookup(who).enqueue(control(who, "RESUME", {"mark": str(who)}))
    finishes = await asyncio.gather(*tasks)
    for who, finish in zip(owners, finishes, strict=True):
        args = f'"{who.tenant_id}/{who.run_id}"'
        step = (args.encode(), {"who": who.run_id, "args": args}, f"thought of {who.run_id}")
        assert finish.payload == {
            "seen": [
                {"for": str(who)},
                {"message": f"hello {who}"},
                {"of": who.run_id, "mark": str(who), "decision": "resume"},
            ],
            "steps": [step] * 3,
            "goal": f"goal of {who}",
        }
        lines = bench.loop.control_history(who.session_id, who=who.identity)
        assert [line.type for line in lines if line.run_id == who.run_id] == [
            "INJECT_CONTEXT",
            "USER_MESSAGE",
            "RESUME",
        ]
    assert len(bench.registry) == 0


async def test_a_run_that_fails_disturbs_no_other(bench: Any) -> None:
    """Half of many runs fail, are cancelled or are left; the other half finishes."""

    class Moody:
        async def next(self, run: RunContext) -> Any:
            await asyncio.sleep(0)
            if len(run.trajectory.steps) == 2:
                match int(run.quadruple.run_id[1:]) % 4:
                    case 0:
                        raise LookupError(run.quadruple.run_id)
                    case 1:
                        return RequestPause(PauseReason.AWAIT_INPUT)
                    case 2:
                        return None
                return Finish(FinishReason.GOAL, run.quadruple.run_id)
            return CallTool("x")

    tasks = {f"r{index}": bench.begin(Moody(), f"r{index}") for index in range(40)}
    await settle()
    for index, (run_id, task) in enumerate(tasks.items()):
        if index % 4 == 1:
            if index % 8 == 1:
                task.cancel()
            else:
                bench.send("CANCEL", {"hard": True}, run_id)
    await asyncio.wait(tasks.values())
    finished = {run_id for run_id, task in tasks.items() if not task.cancelled() and task.exception() is None}
    assert {run_id for run_id in finished if tasks[run_id].result().payload == run_id} == {
        f"r{index}" for index in range(3, 40, 4)
    }
    assert len(bench.registry) == 0
