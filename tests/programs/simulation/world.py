"""What simulated agents act on: an outside service that counts its calls, and the tools and planner that call it.

The service outlives every process. A tool's call may be lost on the way there, or on the way back after it acted; the
service does what comes under one key once, as services do that take keys.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Decision,
    Finish,
    FinishReason,
    JoinKind,
    JoinSpec,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
    Trajectory,
)
from harborage.testing.simulation import ServiceCall
from harborage.tools import CallContext, SideEffect, ToolDescriptor, tool

if TYPE_CHECKING:
    from harborage.testing.simulation.simulation import Simulation


class Outside(Protocol):
    """What tools and minds reach."""

    async def act(self, act: ServiceCall) -> str:
        """Do it, or, under a key that came before, nothing; what was done is the answer either way."""
        ...

    async def ask(self, run_id: str, at: int, process: str) -> None:
        """A mind is asked for what comes after `at` steps and answers."""
        ...


class Way(Protocol):
    """How they reach it: `Wire` is one."""

    async def ask(self, what: str, act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """What `act` gives."""
        ...


class World:
    """The outside service, and a count of how often minds were asked."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.acts: list[ServiceCall] = []
        self.keys: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self.asked: Counter[tuple[str, int]] = Counter()

    def count(self, tool: str, run_id: str, what: str) -> int:
        """How often a tool acted for a run."""
        return sum(one[:3] == (tool, run_id, what) for one in self.acts)

    async def act(self, act: ServiceCall) -> str:
        """Do it, or, under a key that came before, nothing; what was done is the answer either way."""
        if act.tool == "keyed":
            known = self.keys[act.run_id, act.what]
            if act.key in known:
                return f"did {act.what}"
            known.append(act.key)
        self.acts.append(act)
        self.simulation.note(f"{act.process} ✱ {act.tool} {act.what} for {act.run_id[-6:]}")
        return f"did {act.what}"

    async def ask(self, run_id: str, at: int, process: str) -> None:
        """A mind is asked for what comes after `at` steps and answers."""
        self.asked[run_id, at] += 1
        self.simulation.note(f"{process} asks for step {at} of {run_id[-6:]}")


def tools_of(world: Outside, process: str, wire: Way) -> list[ToolDescriptor]:
    """The tools of that process: `read` and `keyed` may be called again, `write` and `gated` must not be."""

    async def act(call: CallContext, name: str, what: str) -> str:
        done = ServiceCall(name, call.who.run_id, what, call.idempotency_key, process)
        return str(await wire.ask(f"tool {name}", partial(world.act, done)))

    async def read(call: CallContext, what: str) -> str:
        """Look something up."""
        return await act(call, "read", what)

    async def keyed(call: CallContext, what: str) -> str:
        """Do something that is done once a key."""
        return await act(call, "keyed", what)

    async def write(call: CallContext, what: str) -> str:
        """Do something that is done each time."""
        return await act(call, "write", what)

    async def gated(call: CallContext, what: str) -> str:
        """Do something that a person must allow."""
        return await act(call, "gated", what)

    async def large(call: CallContext, what: str) -> str:
        """Look up something large."""
        return await act(call, "read", what) + " " * 20_000

    return [
        tool(read, effects=SideEffect.READ),
        tool(large, effects=SideEffect.READ),
        tool(keyed, effects=SideEffect.EXTERNAL, idempotent=True),
        tool(write, effects=SideEffect.WRITE),
        tool(gated, effects=SideEffect.EXTERNAL),
    ]


class Mind:
    """A planner that follows the plan in the run's query, step by step, and asks a model outside before each.

    A plan is a list: `["read", what]` and so on call that tool; `["all" | "first_success" | …, [calls]]` call several;
    `["ask", n]` asks a person; `["spawn", plan]` begins a child, `["join", step]` awaits the one begun at that step,
    `["turn", plan]` does both. What happened is the answer.
    """

    def __init__(self, world: Outside, process: str, wire: Way) -> None:
        self._world = world
        self._process = process
        self._wire = wire

    async def next(self, run: RunContext) -> Decision:
        """The next step of the plan."""
        trajectory = run.trajectory
        assert trajectory is not None
        plan: list[Any] = json.loads(run.query)["plan"]
        at = len(trajectory.steps) + len(_answers(trajectory))
        # Every answer leads to a new question, also one that somebody gave without answering anything.
        question = len(trajectory.steps) + sum(one.kind == "resumed" for one in trajectory.steering_inputs)
        await self._wire.ask("model", partial(self._world.ask, run.quadruple.run_id, question, self._process))
        if run.control.cancelled:
            return Finish(FinishReason.CANCELLED, observations(trajectory))
        if at >= len(plan):
            return Finish(FinishReason.GOAL, observations(trajectory))
        kind, what = plan[at]
        return _DECISIONS.get(kind, partial(_parallel, kind))(what, trajectory)


def observations(trajectory: Trajectory) -> dict[str, Any]:
    """What happened in a run, in plain values."""
    return {
        "seen": [plain(step.observation) for step in trajectory.steps],
        "asked": _answers(trajectory),
        "heard": [one.payload.get("message") for one in trajectory.steering_inputs if one.kind == "user_message"],
    }


def plain(observation: Any) -> Any:
    """An observation without what is no JSON: of several calls a list, `None` for one that gave nothing."""
    branches = observation.get("branches") if isinstance(observation, dict) else getattr(observation, "branches", None)
    if branches is None:
        return observation
    return [{"error": error} if (error := _of(one, "error")) else _of(one, "value") for one in branches]


def _of(branch: Any, name: str) -> Any:
    return branch.get(name) if isinstance(branch, dict) else getattr(branch, name)


def _answers(trajectory: Trajectory) -> list[Any]:
    """The answers to what the plan asked; a pause of another test is not among them."""
    return [
        one.payload["answer"] for one in trajectory.steering_inputs if one.kind == "resumed" and "answer" in one.payload
    ]


def _call(kind: str, what: Any) -> CallTool:
    return CallTool(kind, json.dumps({"what": what}).encode(), f"call-{what}")


def _parallel(kind: str, what: Sequence[tuple[str, str]], trajectory: Trajectory) -> Decision:
    if isinstance(what, str):
        return _call(kind, what)
    join, _, number = kind.partition(" ")
    return CallParallel(tuple(_call(*one) for one in what), JoinSpec(JoinKind(join), n=int(number or 0)))


def _spawned(what: Any, trajectory: Trajectory, *, retain_turn: bool) -> Decision:
    return SpawnTask(spec=SpawnSpec(query=json.dumps({"plan": what}), retain_turn=retain_turn))


def _joined(what: Any, trajectory: Trajectory) -> Decision:
    observation = trajectory.steps[what].observation
    return AwaitTask(observation.get("task_id", "nobody"))


_DECISIONS: dict[str, Callable[[Any, Trajectory], Decision]] = {
    "ask": lambda what, _: RequestPause(PauseReason.AWAIT_INPUT, {"question": what}),
    "spawn": partial(_spawned, retain_turn=False),
    "turn": partial(_spawned, retain_turn=True),
    "join": _joined,
}
