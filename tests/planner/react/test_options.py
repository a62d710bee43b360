"""Every option of the reference planner changes what it does, and none is accepted that it cannot use.

The tables must name every option, so that a new one without an effect fails here.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import pytest

from harborage.planner import (
    BudgetHints,
    CallTool,
    FactoryDeps,
    InvalidConfigError,
    PlannerConfig,
    PlanningHints,
    PlanningNudges,
    Step,
    Trajectory,
    resolve,
)
from harborage.planner.answers import AnswerInvalidError
from harborage.planner.react import DefaultPromptBuilder, ReActPlanner
from harborage.planner.react.prompt import render_planning_constraints
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from harborage.tools import Tool, ToolExample, Transport

pytestmark = pytest.mark.anyio

EXAMPLES = tuple(ToolExample({"n": number}) for number in range(5))
TOOLS = (Tool("a", examples=EXAMPLES), Tool("b", transport=Transport.MCP))
BAD = calls_tools(("_await_task", {}))
MIXED = calls_tools(("a", {}), ("_await_task", {"task_id": "t"}))
BOTH = calls_tools(("a", {}), ("b", {}))


class OwnBuilder(DefaultPromptBuilder):
    """The built-in prompt with another word in it."""

    def __init__(self) -> None:
        super().__init__(extra="From my own builder.")


class Number:
    """An answer that is an object with a number."""

    schema: ClassVar = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    def check(self, value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get("n"), int):
            raise AnswerInvalidError("Expected `int` - at $.n")
        return value


# For each option a value other than its default, and the answers of the model that bring its effect out.
PLANNER: dict[str, tuple[Any, list[Any]]] = {
    "max_steps": (1, [says("done")]),
    "repair_attempts": (1, [MIXED] * 9),
    "max_consecutive_arg_failures": (1, [BAD] * 9),
    "arg_fill_enabled": (False, [BAD] * 9),
    "prompt_builder": (OwnBuilder(), [says("done")]),
    "reasoning_replay": ("text", [says("done")]),
    "max_tool_examples_per_tool": (1, [says("done")]),
    "parallel_tool_calls": (False, [BOTH]),
    "system_prompt": ("You are Bob.", [says("done")]),
    "system_prompt_extra": ("Be kind.", [says("done")]),
    "answer": (Number(), [says("done"), says('{"n": 1}')]),
}
CONFIG: dict[str, tuple[Any, list[Any]]] = {
    "max_steps": (1, [says("done")]),
    "extra_guidance": ("Be kind.", [says("done")]),
    "reasoning_replay": ("text", [says("done")]),
    "max_tool_examples_per_tool": (1, [says("done")]),
    "parallel_tool_calls": (False, [BOTH]),
    "answer": (Number(), [says("done"), says('{"n": 1}')]),
    "extra": ({"system_prompt": "You are Bob."}, [says("done")]),
}


async def seen(planner: Any, make_run: Any, catalog: Any, llm: ScriptedLLM, **fields: Any) -> list[Any]:
    """All that one step shows to the outside: the requests, and the decision or the error."""
    trajectory = Trajectory(steps=[Step(action=CallTool("a"), observation=1, reasoning_trace="why")])
    run = make_run(catalog=catalog(*TOOLS), trajectory=trajectory, **fields)
    try:
        outcome: Any = await planner.next(run)
    except Exception as error:
        outcome = repr(error)
    return [*llm.requests, outcome]


async def test_every_option_of_the_planner_has_an_effect(make_run, catalog):
    """Setting it changes a request, a decision or how often the model is asked."""
    known = [name for name in inspect.signature(ReActPlanner).parameters if name != "client"]
    assert sorted(PLANNER) == sorted(known)
    for name, (value, lines) in PLANNER.items():
        plain, changed = ScriptedLLM(lines), ScriptedLLM(lines)
        before = await seen(ReActPlanner(plain), make_run, catalog, plain)
        after = await seen(ReActPlanner(changed, **{name: value}), make_run, catalog, changed)
        assert before != after, name


async def test_every_option_of_the_configuration_has_an_effect(make_run, catalog):
    """The same, through the driver that configuration names."""
    assert sorted([*CONFIG, "driver"]) == sorted(PlannerConfig.__struct_fields__)
    for name, (value, lines) in CONFIG.items():
        plain, changed = ScriptedLLM(lines), ScriptedLLM(lines)
        default = await resolve(PlannerConfig(driver="react"), FactoryDeps(llm=plain))
        config = PlannerConfig(driver="react", **{name: value})
        other = await resolve(config, FactoryDeps(llm=changed))
        before = await seen(default, make_run, catalog, plain)
        assert before != await seen(other, make_run, catalog, changed), name


async def test_every_driver_option_has_an_effect(make_run, catalog):
    """What `extra` may hold for this planner are options of it, under their own names."""
    for name in ("repair_attempts", "max_consecutive_arg_failures", "arg_fill_enabled", "system_prompt"):
        value, lines = PLANNER[name]
        by_hand, by_config = ScriptedLLM(lines), ScriptedLLM(lines)
        config = PlannerConfig(driver="react", extra={name: value})
        configured = await resolve(config, FactoryDeps(llm=by_config))
        before = await seen(ReActPlanner(by_hand, **{name: value}), make_run, catalog, by_hand)
        assert await seen(configured, make_run, catalog, by_config) == before, name


async def test_every_hint_and_nudge_has_an_effect(make_run, catalog):
    """What an operator hints and a caller wishes reaches the model."""
    hints = {
        "constraints": "be quick",
        "preferred_order": ("a", "b"),
        "parallel_groups": (("a", "b"),),
        "disallow_tools": ("b",),
        "preferred_tools": ("a",),
        "budget": BudgetHints(max_steps=3),
    }
    assert sorted(hints) == sorted(PlanningHints.__struct_fields__)
    for name, value in hints.items():
        assert render_planning_constraints(PlanningHints(**{name: value})), name
    budget = {"max_steps": 3, "max_cost_usd": 1.0, "max_latency_ms": 10}
    assert sorted(budget) == sorted(BudgetHints.__struct_fields__)
    for name, value in budget.items():
        assert render_planning_constraints(PlanningHints(budget=BudgetHints(**{name: value}))), name
    nudges = {"max_parallel": 1, "prefer_transport": "mcp"}
    assert sorted(nudges) == sorted(PlanningNudges.__struct_fields__)
    for name, value in nudges.items():
        plain, changed = ScriptedLLM([BOTH]), ScriptedLLM([BOTH])
        before = await seen(ReActPlanner(plain), make_run, catalog, plain)
        wish = PlanningNudges(**{name: value})
        assert before != await seen(ReActPlanner(changed), make_run, catalog, changed, hints=wish), name


async def test_what_cannot_be_used_is_refused_when_the_planner_is_built():
    """A misspelt mode, a negative count, a value of another type, an option that the driver does not have."""
    for name, value in (
        ("reasoning_replay", "txet"),
        ("max_steps", -5),
        ("max_steps", True),
        ("max_steps", "12"),
        ("max_tool_examples_per_tool", -1),
        ("extra_guidance", 7),
        ("parallel_tool_calls", "no"),
        ("extra", {"nonsense": 1}),
        ("extra", {"repair_attempts": "3"}),
        ("extra", {"repair_attempts": -1}),
        ("extra", {"max_consecutive_arg_failures": -3}),
    ):
        config = PlannerConfig(driver="react", **{name: value})
        with pytest.raises(InvalidConfigError, match=rf"planner\.{name}"):
            await resolve(config, FactoryDeps(llm=ScriptedLLM()))
