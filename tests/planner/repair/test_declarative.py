"""`declarative_action`: the order of its checks, what counts as a slip, and that it is no way around anything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from harborage import codec
from harborage.identity import IdentityRequiredError, Quadruple
from harborage.planner import RepairCounters, RunContext, Step, Trajectory
from harborage.planner.decisions import CallTool
from harborage.planner.react import tools
from harborage.planner.react.guidance import count_declarative_outcome
from harborage.planner.repair.declarative import DECLARATIVE_ACTION, declarative_action
from harborage.tools import (
    CallContext,
    CatalogView,
    Invoker,
    Loading,
    SideEffect,
    ToolCatalog,
    ToolDescriptor,
    ToolInvalidArgsError,
    ToolPolicy,
    ToolResult,
    tool,
)
from harborage.tools.enums import DECLARATIVE_ACTION as LISTED_NAME

pytestmark = pytest.mark.anyio

CLEAN = {"args_repaired": False, "multi_action": False, "finish_repair": False}


class Bench:
    """A catalog with a few tools, the action over it, and what its tools were called with."""

    def __init__(self, gated: tuple[str, ...] = (), scopes: frozenset[str] = frozenset()) -> None:
        self.calls: list[tuple[dict[str, Any], CallContext]] = []
        self.catalog = ToolCatalog()
        for made in self._tools():
            self.catalog.register(made)
        view = CatalogView(self.catalog, granted_scopes=scopes, loading=tuple(Loading))
        self.action = declarative_action(view.descriptor, Invoker().invoke, needs_approval=lambda name: name in gated)
        self.catalog.register(self.action)

    def _tools(self) -> list[ToolDescriptor]:
        def add(call: CallContext, x: int, y: int = 1) -> int:
            """Add two numbers."""
            self.calls.append(({"x": x, "y": y}, call))
            return x + y

        def fail() -> None:
            """Fail for good."""
            raise RuntimeError("out of order")

        def refuse() -> None:
            """Refuse what it was given, late."""
            raise ToolInvalidArgsError("no such city")

        def meta() -> ToolResult:
            """Give only what surrounds a value."""
            return ToolResult(None, {"pages": 2})

        def strange() -> Any:
            """Give what has no JSON form."""
            return {"lock": object()}

        once = ToolPolicy(max_retries=0)
        return [tool(fn, policy=once) for fn in (add, fail, refuse, meta, strange)] + [
            tool(add, name="hidden", auth_scopes=("admin",))
        ]

    async def act(self, call: CallContext, **args: Any) -> Any:
        """What the action gives."""
        return (await Invoker().invoke(self.action, codec.encode(args), call)).value


@pytest.fixture
def call() -> CallContext:
    """A call with a whole identity."""
    return CallContext(Quadruple("t", "u", "s", "r-1"), "c-1", "key-1")


@pytest.fixture
def bench() -> Bench:
    """A catalog without gated tools."""
    return Bench()


async def test_a_named_tool_is_called_and_its_result_observed(bench: Bench, call: CallContext) -> None:
    """The inner call has the same identity and an idempotency key of its own, the same for every attempt."""
    done = await bench.act(call, tool="add", args={"x": 2})
    assert done == {"dispatched": True, "tool": "add", "observation": 3}
    await bench.act(call, tool="add", args={"x": 2})
    (_, first), (_, second) = bench.calls
    assert first.who == call.who
    assert first.idempotency_key == second.idempotency_key
    assert first.idempotency_key.startswith("key-1/")


async def test_without_a_key_the_inner_call_has_none(bench: Bench, call: CallContext) -> None:
    """A key that is not there is not made up."""
    await bench.act(replace(call, idempotency_key=""), tool="add", args={"x": 2})
    assert bench.calls[0][1].idempotency_key == ""


@pytest.mark.parametrize(
    "body",
    [
        '{"tool": "add", "args": {"x": 2}}',
        'Sure!\n```json\n{"tool":"add","args":{"x":2}}\n```',
        '[{"tool":"add","args":{"x":2}}]',
    ],
)
async def test_an_action_is_found_in_the_body(bench: Bench, call: CallContext, body: str) -> None:
    """However the model wrapped it."""
    assert (await bench.act(call, body=body))["observation"] == 3


async def test_a_named_tool_wins_over_the_body(bench: Bench, call: CallContext) -> None:
    """The body is not even looked at."""
    done = await bench.act(call, tool="add", args={"x": 2}, body='{"tool":"fail"} {"tool":"fail"}')
    assert done["observation"] == 3


@pytest.mark.parametrize(
    ("args", "slip", "says"),
    [
        ({}, "args_repaired", "name a tool"),
        ({"tool": " ", "body": "\n"}, "args_repaired", "name a tool"),
        ({"body": "I would add two numbers."}, "args_repaired", "no action"),
        ({"body": '{"tool":"add","args":{"x":1}} {"tool":"add","args":{"x":2}}'}, "multi_action", "2 actions"),
        ({"tool": "_finish", "args": {"answer": "x"}}, "finish_repair", "answer in prose"),
        ({"body": '{"tool": "_finish"}'}, "finish_repair", "answer in prose"),
        ({"tool": "add", "args": {"x": "two"}}, "args_repaired", "$.x"),
        ({"tool": "add"}, "args_repaired", "x"),
        ({"tool": "add", "args": {"x": 1, "z": 1}}, "args_repaired", "z"),
        ({"tool": "add", "args": "x=2"}, "args_repaired", "add"),
        ({"tool": "add", "args": [2]}, "args_repaired", "add"),
        ({"tool": "refuse"}, "args_repaired", "no such city"),
    ],
)
async def test_a_slip_is_named_and_nothing_is_done(
    bench: Bench, call: CallContext, args: dict[str, Any], slip: str, says: str
) -> None:
    """Exactly one flag is set, and the text says what to do."""
    done = await bench.act(call, **args)
    assert done["dispatched"] is False
    assert done["repair_outcome"] == {**CLEAN, slip: True}
    assert says in done["error"]
    assert not bench.calls


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"tool": "_spawn_task", "args": {}}, "planner control"),
        ({"tool": "_await_task", "args": {}}, "planner control"),
        ({"tool": "unknown", "args": {}}, "there is no tool 'unknown'"),
        ({"tool": "hidden", "args": {"x": 1}}, "there is no tool 'hidden'"),
        ({"tool": DECLARATIVE_ACTION, "args": {"tool": "add"}}, "cannot declare another"),
        ({"tool": "fail", "args": {}}, "out of order"),
    ],
)
async def test_other_failures_are_reported_softly_and_count_for_nothing(
    bench: Bench, call: CallContext, args: dict[str, Any], says: str
) -> None:
    """A name that is not there or not to be called this way is no slip of the arguments; nor is a tool's failure."""
    done = await bench.act(call, **args)
    assert done["dispatched"] is False
    assert says in done["error"]
    assert "repair_outcome" not in done
    assert not bench.calls


async def test_a_tool_that_needs_approval_must_be_called_directly(call: CallContext) -> None:
    """Neither by name nor in a body does the action get past the gate; its arguments are not even looked at."""
    bench = Bench(gated=("add",))
    for args in ({"tool": "add", "args": {"x": 1}}, {"body": '{"tool":"add","args":{}}'}, {"tool": " add "}):
        done = await bench.act(call, **args)
        assert "call it directly" in done["error"]
        assert (done["dispatched"], "repair_outcome" in done) == (False, False)
    assert not bench.calls


async def test_scopes_decide_what_can_be_declared(call: CallContext) -> None:
    """A run that may see a tool may declare it, too."""
    bench = Bench(scopes=frozenset({"admin"}))
    assert (await bench.act(call, tool="hidden", args={"x": 1}))["observation"] == 2


@pytest.mark.parametrize("args", [{"tool": "meta"}, {"tool": "meta", "args": None}, {"body": '{"tool":"meta"}'}])
async def test_missing_arguments_are_an_empty_object(bench: Bench, call: CallContext, args: dict[str, Any]) -> None:
    """A tool that needs none can be named alone; a result without a value shows what came with it."""
    assert (await bench.act(call, **args))["observation"] == {"meta": {"pages": 2}}


async def test_a_result_that_is_no_json_was_dispatched_all_the_same(bench: Bench, call: CallContext) -> None:
    """The model learns that the tool ran, and that what it gave cannot be shown."""
    done = await bench.act(call, tool="strange")
    assert (done["dispatched"], done["tool"]) == (True, "strange")
    assert "not JSON" in done["error"]
    assert "observation" not in done


async def test_arguments_reach_the_tool_byte_for_byte(call: CallContext) -> None:
    """Spacing, order and the form of numbers stay as the model wrote them."""
    seen: list[bytes] = []

    async def body(args: bytes, _call: CallContext) -> ToolResult:
        seen.append(args)
        return ToolResult(1)

    probe = replace(tool(lambda: None, name="probe", description="Nothing."), body=body, validate_args=None)
    action = declarative_action({"probe": probe}.get, Invoker().invoke, needs_approval=lambda _name: False)
    raw = b'{ "b": 1.50e3,  "a": 12345678901234567890123 }'
    await Invoker().invoke(action, b'{"tool":"probe","args":' + raw + b"}", call)
    await Invoker().invoke(action, codec.encode({"body": f'do {{"tool":"probe","args":{raw.decode()}}}'}), call)
    assert seen == [raw, raw]


async def test_a_missing_identity_is_a_hard_error(bench: Bench, call: CallContext) -> None:
    """It comes before everything else."""
    with pytest.raises(IdentityRequiredError, match="declarative_action"):
        await bench.act(replace(call, who=Quadruple("t", "u")), tool="add", args={"x": 1})


async def test_a_cancellation_passes_through(call: CallContext) -> None:
    """It is never turned into a result."""
    begun = asyncio.Event()

    async def hang(_descriptor: ToolDescriptor, _args: bytes, _call: CallContext) -> ToolResult:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    action = declarative_action(
        lambda _name: tool(lambda: None, name="x", description="Nothing."), hang, needs_approval=lambda _name: False
    )
    task = asyncio.ensure_future(Invoker().invoke(action, b'{"tool":"x"}', call))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_it_is_deferred_and_never_repeated_on_its_own(bench: Bench) -> None:
    """A call in doubt is not made again, and no policy of its own multiplies the inner one's attempts."""
    described = bench.action.tool
    assert (described.loading, described.side_effects) == (Loading.DEFERRED, SideEffect.STATEFUL)
    assert set(described.tags) == {"builtin", "meta", "escape_hatch"}
    assert not described.is_repeatable
    assert (bench.action.policy.max_retries, bench.action.policy.timeout_s) == (0, None)
    assert described.args_schema["properties"]["args"]["type"] == "object"
    assert "required" not in described.args_schema


def test_names_are_in_step_with_the_planner_that_looks_for_them() -> None:
    """The planner recognises the tool by the name it has here, and reserves the names that are refused here."""
    assert DECLARATIVE_ACTION == LISTED_NAME == tools.DECLARATIVE_ACTION_TOOL_NAME
    from harborage.planner.repair import declarative

    assert {declarative._FINISH, *declarative._TASK_CONTROLS} == tools.RESERVED_TOOL_NAMES


async def test_the_planner_counts_what_the_action_reports(bench: Bench, call: CallContext) -> None:
    """A slip in the result reaches the run's counters."""
    counters = RepairCounters()
    observed = await bench.act(call, body="nothing to see")
    step = Step(action=CallTool(DECLARATIVE_ACTION), observation=observed)
    run = RunContext(quadruple=call.who, trajectory=Trajectory(steps=[step]), repair_counters=counters)
    assert count_declarative_outcome(run) is True
    assert counters.args_repair == 1
