"""`RunLoop(approval_gates=…)`: the loop asks the gate before any executor sees the call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from harborage.events import MemoryEventBus, PatternRedactor
from harborage.planner import CallParallel, CallTool, Finish, FinishReason, JoinKind, JoinSpec, Trajectory
from harborage.runtime.approval import AlwaysDeny, ApprovalGate, ApprovalRequest
from harborage.runtime.dispatch import CatalogToolExecutor
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import InboxRegistry, RunLoop, RunLoopMisconfiguredError
from harborage.testing.clock import FakeClock, settle
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import ToolCatalog, tool
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

GOAL = Finish(FinishReason.GOAL, "done")
Benches = Callable[..., Any]


def pays(amount: int) -> CallTool:
    return CallTool("pay", b'{"amount":%d}' % amount, f"c{amount}")


LOOK = CallTool("look", b"{}", "look")


class Own:
    """An executor of an embedder that knows nothing of gates."""

    def __init__(self) -> None:
        self.saw: list[Any] = []

    async def execute_decision(self, rc: Any, decision: Any) -> tuple[Any, Any]:
        self.saw.append(decision)
        return "made", "made"


class Till:
    """A loop that guards `pay`, an executor of either kind, and what was really called."""

    def __init__(self, benches: Benches, *, is_own: bool, gated: tuple[str, ...] = ("pay",)) -> None:
        def gates(bench: Any) -> ApprovalGate | dict[str, ApprovalGate]:
            self.gate = ApprovalGate(
                AlwaysDeny("costs money"),
                bench.pauses,
                bench.bus,
                PatternRedactor(),
                timeout=timedelta(hours=1),
                clock=bench.clock,
            )
            return dict.fromkeys(gated, self.gate) if gated else self.gate

        self.bench = benches(gates=gates)
        self.acted: list[str] = []
        self.own = Own()
        self.catalog = ToolCatalog()
        self.catalog.register(tool(self.pay))
        self.catalog.register(tool(self.look))
        self.executor: Any = self.own if is_own else CatalogToolExecutor(self.catalog, clock=FakeClock())
        self.history = Trajectory()

    async def pay(self, amount: int) -> str:
        """Pay."""
        self.acted.append(f"pay {amount}")
        return f"paid {amount}"

    async def look(self) -> str:
        """Look."""
        self.acted.append("look")
        return "seen"

    def begin(self, *lines: Any) -> asyncio.Task[Finish]:
        base = {"trajectory": self.history}
        return self.bench.begin(ScriptedPlanner(lines), tool_executor=self.executor, base=base)

    async def answer(self, *answers: str) -> None:
        """Answer the calls that wait now, oldest first."""
        await settle()
        assert len(self.gate.tokens) == len(answers)
        for token, answer in zip(self.gate.tokens, answers, strict=True):
            self.bench.send(answer, {"token": token, "reason": "so"})
        await settle()


@pytest.mark.parametrize("is_own", [False, True])
async def test_a_gated_call_waits_for_its_approval_whatever_the_executor(benches: Benches, is_own: bool) -> None:
    """Nothing is called before the answer, and a refused call never is."""
    till = Till(benches, is_own=is_own)
    task = till.begin(pays(1), pays(2), GOAL)
    await settle()
    assert (till.acted, till.own.saw) == ([], [])
    await till.answer("APPROVE")
    await till.answer("REJECT")
    assert await till.bench.end(task) is GOAL
    assert (till.acted, till.own.saw) == (([], [pays(1)]) if is_own else (["pay 1"], []))
    assert "so" in till.history.steps[1].observation["error"]


async def test_one_gate_guards_every_tool_whenever_it_was_registered(benches: Benches) -> None:
    """Alone and as a branch, over a catalog and over an executor of an embedder; nothing is called unasked."""
    for is_own in (False, True):
        till = Till(benches, is_own=is_own, gated=())
        task = till.begin(LOOK, CallTool("new", b"{}", "new"), CallParallel((CallTool("new", b"{}", "n2"),)), GOAL)
        await settle()
        till.catalog.register(tool(till.look, name="new"))
        for answer in ("REJECT", "APPROVE", "REJECT"):
            assert len(till.gate.tokens) == 1, f"{is_own=} {answer}"
            await till.answer(answer)
        assert await till.bench.end(task) is GOAL
        assert (till.acted, len(till.own.saw)) == (([], 1) if is_own else (["look"], 0))


async def test_each_gated_branch_is_asked_about(benches: Benches) -> None:
    """Branches without a gate do not wait for it; a refused one has its reason, the others their results."""
    till = Till(benches, is_own=False)
    task = till.begin(CallParallel((pays(1), LOOK, pays(2))), GOAL)
    await settle()
    assert till.acted == ["look"]
    await till.answer("APPROVE", "REJECT")
    assert await till.bench.end(task) is GOAL
    assert till.acted == ["look", "pay 1"]
    entries = till.history.steps[0].observation.branches
    assert [one.value for one in entries] == ["paid 1", "seen", None]
    assert "so" in entries[2].error


@pytest.mark.parametrize(("last", "saw"), [("APPROVE", 1), ("REJECT", 0)])
async def test_a_parallel_call_reaches_an_executor_of_its_own_only_when_all_is_approved(
    benches: Benches, last: str, saw: int
) -> None:
    """One refusal refuses the call: what its other branches mean without that one, only the executor knows."""
    till = Till(benches, is_own=True)
    decision = CallParallel((pays(1), LOOK, pays(2)), JoinSpec(JoinKind.ALL))
    task = till.begin(decision, GOAL)
    await till.answer("APPROVE", last)
    assert await till.bench.end(task) is GOAL
    assert till.own.saw == [decision] * saw
    if not saw:
        error = till.history.steps[0].observation["error"]
        assert error.startswith("parallel dispatch: nothing was called: branch[2] tool=pay: ")


async def test_an_invalid_parallel_call_requests_no_approval(benches: Benches) -> None:
    """Not even where its executor might know better."""
    till = Till(benches, is_own=True)
    task = till.begin(CallParallel((pays(1),), JoinSpec(JoinKind.N, n=3)), GOAL)
    assert await till.bench.end(task) is GOAL
    assert till.own.saw == []
    assert "join n" in till.history.steps[0].observation["error"]


async def test_a_call_that_cannot_be_made_requests_no_approval(benches: Benches) -> None:
    """Bad arguments, and a run without an executor."""
    till = Till(benches, is_own=False)
    task = till.begin(CallTool("pay", b'{"amount":"x"}'), GOAL)
    assert await till.bench.end(task) is GOAL
    till.executor = None
    task = till.begin(pays(1), GOAL)
    assert await till.bench.end(task) is GOAL
    assert [("error" in step.observation) for step in till.history.steps] == [True, True]


async def test_an_approval_of_one_run_is_none_of_a_later_one_of_its_id(benches: Benches) -> None:
    """The same call in the same place is asked about again."""
    till = Till(benches, is_own=False)
    for _ in range(2):
        task = till.begin(pays(1), GOAL)
        await till.answer("APPROVE")
        assert await till.bench.end(task) is GOAL
    assert till.acted == ["pay 1", "pay 1"]


@pytest.mark.parametrize("how", ["hard", "task"])
async def test_a_run_that_ends_at_its_gate_leaves_no_open_pause(benches: Benches, how: str) -> None:
    """No person is asked about a call that no run waits for."""
    till = Till(benches, is_own=False)
    task = till.begin(CallParallel((pays(1), pays(2))), GOAL)
    await settle()
    assert len(till.gate.tokens) == 2
    if how == "hard":
        till.bench.send("CANCEL", {"hard": True})
        await till.bench.end(task)
    else:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
    rows = (await till.bench.pauses.list(who=till.bench.who())).rows
    assert [pause.is_paused for pause in rows] in ([], [False, False])
    assert (till.gate.tokens, till.acted) == ((), [])


def test_a_gate_that_could_never_be_asked_is_refused_where_the_loop_is_made() -> None:
    """A policy in the place of its gate, and a gate for no tool."""
    for gates, word in (
        ({"pay": AlwaysDeny()}, "ApprovalGate("),
        ({"pay": None}, "leave a tool out that needs no approval"),
        ({"": _gate()}, "names no tool"),
        (AlwaysDeny(), "ApprovalGate"),
    ):
        with pytest.raises(RunLoopMisconfiguredError, match=r"never be asked|for all tools") as caught:
            RunLoop(InboxRegistry(), Coordinator(), approval_gates=gates)  # type: ignore[arg-type]
        assert word in str(caught.value)


@pytest.mark.parametrize("is_for_all", [True, False])
def test_a_gate_of_another_coordinator_is_refused_where_the_loop_is_made(is_for_all: bool) -> None:
    """The loop would neither show its pauses nor settle them when a run ends."""
    gates = _gate() if is_for_all else {"pay": _gate()}
    with pytest.raises(RunLoopMisconfiguredError, match="another coordinator than the loop's"):
        RunLoop(InboxRegistry(), Coordinator(), approval_gates=gates)


class Derived(CatalogToolExecutor):
    """An embedder's executor over a catalog, with a way of its own."""

    async def execute_decision(self, rc: Any, decision: object) -> tuple[Any, Any]:
        return await super().execute_decision(rc, decision)


class Wrapping:
    """An embedder's executor around the catalog's."""

    def __init__(self, inner: CatalogToolExecutor) -> None:
        self.inner = inner

    async def execute_decision(self, rc: Any, decision: object) -> tuple[Any, Any]:
        return await self.inner.execute_decision(rc, decision)


class Telling(Wrapping):
    """One that calls its tools by other names, and says so."""

    tool_names = ("spend", "look")


@each_row("kind", [CatalogToolExecutor, Derived, Wrapping, Telling])
async def test_a_gate_for_a_tool_that_is_not_there_refuses_the_run(benches: Benches, kind: Any) -> None:
    """A misspelt name would let the real tool run unasked, also behind an embedder's executor."""
    till = Till(benches, is_own=False, gated=("pya",))
    till.executor = kind(till.executor if issubclass(kind, Wrapping) else till.catalog)
    holds = "spend, look" if kind is Telling else "look, pay"
    with pytest.raises(RunLoopMisconfiguredError, match=f"pya; it holds: {holds}"):
        await till.begin(pays(1), GOAL)
    assert till.acted == []


@pytest.mark.parametrize("kind", [Derived, Wrapping])
async def test_a_wrapped_executor_is_guarded_by_the_same_gates(benches: Benches, kind: Any) -> None:
    """Its gated call waits, a refused one is not made, and no person is asked twice."""
    till = Till(benches, is_own=False)
    till.executor = kind(till.executor if issubclass(kind, Wrapping) else till.catalog)
    task = till.begin(pays(1), pays(2), GOAL)
    await settle()
    assert till.acted == []
    await till.answer("APPROVE")
    await till.answer("REJECT")
    assert await till.bench.end(task) is GOAL
    assert till.acted == ["pay 1"]


async def test_a_grant_counts_once_and_only_inside_its_block(benches: Benches) -> None:
    """For the very call that was approved."""
    till = Till(benches, is_own=False)

    def asks(args: bytes) -> ApprovalRequest:
        return ApprovalRequest(tool="pay", args=args, identity=till.bench.who())

    async def is_asked(args: bytes) -> bool:
        task = asyncio.create_task(till.gate.run_guarded(asks(args)))
        await settle()
        if task.done():
            return (await task) != args
        task.cancel()
        await asyncio.wait({task})
        return True

    with till.gate.granted(asks(b"1")):
        assert [await is_asked(args) for args in (b"2", b"1", b"1")] == [True, False, True]
    with till.gate.granted(asks(b"1")):
        pass
    assert await is_asked(b"1")


def _gate() -> ApprovalGate:
    return ApprovalGate(AlwaysDeny(), Coordinator(), MemoryEventBus(), PatternRedactor())
