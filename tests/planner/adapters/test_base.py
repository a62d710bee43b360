"""What all adapters share."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harborage.errors import MissingExtraError
from harborage.events import EventType
from harborage.identity import IdentityMissingError, Quadruple
from harborage.planner import (
    Budget,
    CallParallel,
    CallTool,
    ChunkKind,
    ControlSignals,
    Finish,
    FinishReason,
    InvalidConfigError,
    ParallelBranchObservation,
    ParallelObservation,
    RunContext,
    SteeringInjection,
    Step,
    Trajectory,
    WakeMode,
)
from harborage.planner.adapters import (
    AdapterUnsupportedError,
    ApprovalsNotTakenError,
    adapt_langgraph,
    adapt_openai_agents,
    adapt_pydantic_ai,
)
from harborage.planner.adapters.base import (
    ChunkStream,
    OneTurnPlanner,
    Turn,
    TurnUsage,
    always_ask,
    import_framework,
    iter_results,
    list_last_results,
    make_adapted,
    make_finish,
)
from harborage.planner.conformance import Capabilities, Harness, run_conformance
from harborage.planner.finish import FinishPlanner
from harborage.tools import CallContext, SideEffect, Tool, ToolResult

pytestmark = pytest.mark.anyio

PAY_CALL = CallContext(Quadruple("tenant", "user", "session", "run"))


async def pay(args: bytes, call: CallContext) -> ToolResult:
    """Pay."""
    return ToolResult("paid")


@pytest.mark.parametrize(
    ("adapt", "module", "extra"),
    [
        (adapt_pydantic_ai, "pydantic_ai", "pydantic-ai"),
        (adapt_openai_agents, "agents", "openai-agents"),
        (adapt_langgraph, "langgraph", "langgraph"),
    ],
)
def test_a_framework_that_is_not_installed(
    adapt: Any, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adapting names the extra to install; importing the adapters needs none of them."""
    for name in [*sys.modules, module]:
        if name == module or name.startswith(f"{module}."):
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError) as caught:
        adapt(object())
    assert caught.value.extra == extra
    assert f"harborage[{extra}]" in str(caught.value)


def test_what_a_framework_lacks_is_its_own_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A framework that is there and broken is not reported as missing."""
    (tmp_path / "framework_that_is_broken.py").write_text("import no_such_module_anywhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        import_framework("framework_that_is_broken", "extra")


async def test_a_gated_tool_refuses_until_its_approvals_are_taken() -> None:
    """Forgetting the approvals opens nothing; reading them hands them over."""
    made = make_adapted(FinishPlanner(), [(Tool("pay"), pay), (Tool("look"), pay)], {"pay": always_ask}, None)
    gated, free = made.tools
    with pytest.raises(ApprovalsNotTakenError, match=r"approvals=adapted\.approvals"):
        await gated.body(b"{}", PAY_CALL)
    assert (await free.body(b"{}", PAY_CALL)).value == "paid"
    assert made.approvals["pay"](None)[0] is True
    assert (await gated.body(b"{}", PAY_CALL)).value == "paid"


def test_calls_are_not_repeated_unless_configured() -> None:
    """Like its framework, an adapted tool is tried once; what the program says of a tool wins."""
    options: Any = {"pay": {"effects": SideEffect.WRITE, "tags": ("money",)}}
    (tool,) = make_adapted(FinishPlanner(), [(Tool("pay"), pay)], {}, options).tools
    assert (tool.tool.side_effects, tool.tool.tags) == (SideEffect.WRITE, ("money",))
    assert tool.policy.max_retries == 0


def test_options_for_an_unknown_tool_are_refused() -> None:
    """A slip in a name is an error, because a tool would run without what was said about it."""
    with pytest.raises(InvalidConfigError, match="pya"):
        make_adapted(FinishPlanner(), [(Tool("pay"), pay)], {}, {"pya": {}})


def test_a_refusal_names_the_part_and_the_reason() -> None:
    """Who cannot run an agent reads which part of it, and what to do."""
    error = AdapterUnsupportedError("langgraph", "the node 'x'", "make it a tool")
    assert str(error) == "langgraph: the node 'x' cannot be run one decision a step: make it a tool"
    assert (error.framework, error.what) == ("langgraph", "the node 'x'")


WHO = Quadruple("tenant", "user", "session", "run")
CALL = CallTool("look", b"{}", "c1")


def giving(turn: Turn) -> OneTurnPlanner:
    """A planner whose framework takes this turn."""

    async def take(run: RunContext, chunks: ChunkStream) -> Turn:
        chunks.add_text("said")
        return turn

    return OneTurnPlanner("test", take)


def never() -> OneTurnPlanner:
    """A planner whose framework must not be asked."""

    async def take(run: RunContext, chunks: ChunkStream) -> Turn:
        raise AssertionError("the model was asked")

    return OneTurnPlanner("test", take)


async def test_a_turn_is_one_decision() -> None:
    """One call is that call, several are one parallel call, and an answer is the finish."""
    run = RunContext(quadruple=WHO)
    assert await giving(Turn(calls=[CALL])).next(run) == CALL
    assert await giving(Turn(calls=[CALL, CALL])).next(run) == CallParallel((CALL, CALL))
    finish = make_finish("done", "test")
    assert await giving(Turn(finish=finish)).next(run) is finish


async def test_a_cancelled_or_late_run_ends_without_a_turn() -> None:
    """Steering and the deadline come before the model."""
    cancelled = RunContext(quadruple=WHO, control=ControlSignals(cancelled=True))
    assert (await never().next(cancelled)).reason is FinishReason.CANCELLED
    late = RunContext(quadruple=WHO, budget=Budget(deadline=datetime(2020, 1, 1, tzinfo=UTC)))
    assert (await never().next(late)).reason is FinishReason.DEADLINE_EXCEEDED


async def test_an_incomplete_identity_is_refused() -> None:
    """A run without an identity calls no model."""
    with pytest.raises(IdentityMissingError):
        await never().next(RunContext(quadruple=Quadruple("tenant", "", "session", "run")))


async def test_what_came_beside_the_decision_is_handed_on() -> None:
    """Thinking and prose go to the record, and each model call's usage to the events."""
    noted: dict[str, str] = {}
    events: list[Any] = []
    run = RunContext(
        quadruple=WHO,
        on_reasoning=lambda text: noted.update(reasoning=text),
        on_assistant_content=lambda text: noted.update(text=text),
        emit=events.append,
    )
    turn = Turn(calls=[CALL], text="let me see", reasoning="hm", usage=[TurnUsage("m", 3, 4, 1, 0.5), TurnUsage("m")])
    await giving(turn).next(run)
    assert noted == {"reasoning": "hm", "text": "let me see"}
    assert [event.type for event in events] == [EventType.LLM_COST_RECORDED] * 2
    first = events[0].payload
    assert (first.usage.total_tokens, first.usage.reasoning_tokens, first.cost.total_cost) == (7, 1, 0.5)


async def test_a_stream_is_closed_even_when_the_turn_fails() -> None:
    """A listener gets the end exactly once."""
    received: list[tuple[str, bool, ChunkKind]] = []

    async def take(run: RunContext, chunks: ChunkStream) -> Turn:
        chunks.add_reasoning("hm")
        raise ConnectionError("gone")

    run = RunContext(quadruple=WHO, on_chunk=lambda *chunk: received.append(chunk))
    with pytest.raises(ConnectionError):
        await OneTurnPlanner("test", take).next(run)
    assert received == [("hm", False, "reasoning"), ("", True, "reasoning"), ("", True, "content")]


def test_a_restart_voids_only_what_was_streamed() -> None:
    """Asking again resets the stream if something was streamed, and only then."""
    received: list[tuple[str, bool, ChunkKind]] = []
    chunks = ChunkStream(lambda *chunk: received.append(chunk))
    chunks.restart()
    chunks.add_text("")
    chunks.restart()
    assert received == []
    chunks.add_text("x")
    chunks.restart()
    chunks.restart()
    assert received == [("x", False, "content"), ("", False, "reset")]


def test_without_a_listener_nothing_is_streamed() -> None:
    """A run without a subscriber costs no streaming."""
    chunks = ChunkStream(None)
    chunks.add_text("x")
    chunks.restart()
    chunks.close()
    assert not chunks


@pytest.mark.parametrize("payload", [None, ""])
def test_an_answer_that_says_nothing_is_no_path(payload: Any) -> None:
    """An empty answer is not success; anything else is, an empty object too."""
    assert make_finish(payload, "test").reason is FinishReason.NO_PATH
    assert make_finish({}, "test").reason is FinishReason.GOAL
    assert make_finish(0, "test").payload == 0


def test_results_are_listed_by_tool() -> None:
    """Failed calls and failed branches give nothing; branches come in their order."""
    failed = Step(action=CALL, observation={"error": "no"})
    assert list(iter_results(failed)) == []
    assert list(iter_results(Step(action=CALL, error="no", observation=1))) == []
    assert list(iter_results(Step(action=CALL, observation={"error": "no", "more": 1}))) == [
        ("look", {"error": "no", "more": 1})
    ]
    joined = ParallelObservation(
        (
            ParallelBranchObservation(index=2, value="c"),
            ParallelBranchObservation(index=0, value="a"),
            ParallelBranchObservation(index=1, error="no"),
        )
    )
    parallel = CallParallel((CallTool("one"), CallTool("two"), CallTool("three")))
    assert list(iter_results(Step(action=parallel, observation=joined))) == [("one", "a"), ("three", "c")]
    assert list(iter_results(Step(action=Finish(FinishReason.GOAL)))) == []


def test_last_results_are_void_after_a_message() -> None:
    """What a person said after the last step is answered by the model, not by a tool's result."""
    trajectory = Trajectory(steps=[Step(action=CALL, observation="seen")])
    assert list_last_results(trajectory) == [("look", "seen")]
    assert list_last_results(None) == list_last_results(Trajectory()) == []
    trajectory.steering_inputs.append(SteeringInjection(kind="user_message", payload={"message": "hi"}, at_step=1))
    assert list_last_results(trajectory) == []


async def test_it_conforms_as_a_planner() -> None:
    """The pack of every planner passes."""
    planner = giving(Turn(finish=make_finish("done", "test")))
    report = await run_conformance(
        Harness(planner=lambda: planner, wake_mode=WakeMode.PUSH, capabilities=Capabilities.HONOURS_CANCEL_CONTROL)
    )
    assert not report.failed
