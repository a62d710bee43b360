"""What a context provider may be, and how the answers of several become one context."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.errors import InvalidOptionError
from harborage.identity import Quadruple
from harborage.memory import Memory, MemoryStrategy
from harborage.planner import (
    BudgetHints,
    MemoryBlocks,
    PlanningHints,
    PlanningNudges,
    ReasoningReplayMode,
    RunContext,
    ToolContext,
)
from harborage.runtime.loop.context import (
    Context,
    ContextProviderError,
    ContextSource,
    apply_context,
    memory_of,
    merged,
    sources_of,
    without_handles,
)


class Gives:
    """A provider."""

    async def provide(self, run: Any) -> Context:
        return Context()


class Blocking:
    """Not async, so it would stop every other run while it works."""

    def provide(self, run: Any) -> Context:
        return Context()


def test_what_is_no_provider_is_refused_where_it_is_given() -> None:
    """A class, an object without `provide`, one that is not async, a bare provider for a list, a limit of nothing."""
    table: list[tuple[Any, str]] = [
        ([Gives], "type is no context provider: it needs `async def provide"),
        ([object()], "object is no context provider"),
        ([Blocking()], "Blocking.provide is not async"),
        (Gives(), r"write context=\[provider\]"),
        (ContextSource(provider=Gives()), r"write context=\[provider\]"),
        ([Gives(), Gives()], "two context providers are called 'Gives'"),
    ]
    for given, message in table:
        with pytest.raises(ContextProviderError, match=message):
            sources_of(given)
    for limits in ({"timeout_s": 0}, {"timeout_s": -1}, {"max_bytes": -1}):
        with pytest.raises(ContextProviderError, match="timeout_s > 0"):
            ContextSource(provider=Gives(), **limits)
    named = sources_of([Gives(), ContextSource(provider=Gives(), name="second")])
    assert [one.name for one in named] == ["Gives", "second"]


def test_several_contexts_become_one() -> None:
    """Tiers of two providers are kept apart, lists are joined, limits are the strictest, values the later."""
    first = Context(
        memory_blocks=MemoryBlocks(external="a", conversation="said"),
        skills_context=("skill 1",),
        llm_context={"city": "Porto", "unit": "km"},
        hints=PlanningNudges(max_parallel=4, prefer_transport="mcp"),
        planning_hints=PlanningHints(
            constraints="no refunds",
            preferred_order=("x",),
            parallel_groups=(("a", "b"),),
            disallow_tools=("pay", "send"),
            budget=BudgetHints(max_steps=9, max_cost_usd=1.5),
        ),
        reasoning_replay=ReasoningReplayMode.TEXT,
        tool_context=ToolContext(serializable={"shop": 1}, handles=("db",)),
        handles={"cart": 1},
    )
    second = Context(
        memory_blocks=MemoryBlocks(external={"b": 1}),
        skills_context=("skill 2",),
        llm_context={"unit": "mi"},
        hints=PlanningNudges(max_parallel=2),
        planning_hints=PlanningHints(
            constraints="no gifts", disallow_tools=("send",), preferred_tools=("find",), budget=BudgetHints(max_steps=3)
        ),
        tool_context=ToolContext(serializable={"till": 2}, handles=("db", "mq")),
        handles={"cart": 2},
    )
    assert merged([("one", first), ("two", second), ("none", Context())]) == Context(
        memory_blocks=MemoryBlocks(external={"one": "a", "two": {"b": 1}}, conversation="said"),
        skills_context=("skill 1", "skill 2"),
        llm_context={"city": "Porto", "unit": "mi"},
        hints=PlanningNudges(max_parallel=2, prefer_transport="mcp"),
        planning_hints=PlanningHints(
            constraints="no refunds\nno gifts",
            preferred_order=("x",),
            parallel_groups=(("a", "b"),),
            disallow_tools=("pay", "send"),
            preferred_tools=("find",),
            budget=BudgetHints(max_steps=3, max_cost_usd=1.5),
        ),
        reasoning_replay=ReasoningReplayMode.TEXT,
        tool_context=ToolContext(serializable={"shop": 1, "till": 2}, handles=("db", "mq")),
        handles={"cart": 2},
    )
    assert merged([("one", first)]) is first
    assert merged([("none", Context()), ("also", Context())]) == Context()


def test_every_field_of_a_context_reaches_the_planner() -> None:
    """A field that a provider can set and the loop drops would be lost silently."""
    given = {
        "memory_blocks": MemoryBlocks(external=1),
        "skills_context": ("s",),
        "llm_context": {"k": 1},
        "hints": PlanningNudges(max_parallel=1),
        "planning_hints": PlanningHints(constraints="c"),
        "reasoning_replay": ReasoningReplayMode.TEXT,
        "tool_context": ToolContext(serializable={"k": 1}),
        "instructions": "Be brief.",
    }
    assert {*given, "handles"} == set(Context.__struct_fields__)
    base = RunContext(quadruple=Quadruple("t", "u", "s", "r"))
    apply_context(base, Context(**given), max_skills=1)
    assert {name: getattr(base, name) for name in given} == given
    base = RunContext(quadruple=Quadruple("t", "u", "s", "r"), planning_hints=PlanningHints(disallow_tools=("pay",)))
    apply_context(base, Context(**given), max_skills=1)
    assert base.planning_hints == PlanningHints(constraints="c", disallow_tools=("pay",))  # the operator's stay


def test_instructions_add_up_and_are_told_once() -> None:
    """Also where a run is brought back, and told them again."""
    base = RunContext(quadruple=Quadruple("t", "u", "s", "r"), instructions="Be kind.")
    given = merged([("one", Context(instructions="Be brief.")), ("two", Context(instructions="No emoji."))])
    for _ in range(2):
        apply_context(base, given, max_skills=1)
    assert base.instructions == "Be kind.\n\nBe brief.\n\nNo emoji."


def test_live_objects_are_recorded_by_a_name_of_their_run() -> None:
    """What is recorded holds no live object, and the name under which another run has one is another name."""
    live = Context(tool_context=ToolContext(handles=("shared",)), handles={"db": object()})
    plain = without_handles(live, "r1")
    assert (plain.tool_context.handles, plain.handles) == (("shared", "r1/db"), {})
    assert without_handles(live, "r2").tool_context.handles == ("shared", "r2/db")


def test_how_sessions_remember_is_checked_where_it_is_said() -> None:
    """A strategy may be named by its string; summaries need a model; nothing is remembered unless it is asked for."""
    assert memory_of(None, has_model=True) is None
    assert memory_of("truncation", has_model=False) == Memory(strategy=MemoryStrategy.TRUNCATION)
    assert memory_of("rolling_summary", has_model=True) == Memory()
    for choice in ("rolling_summary", Memory()):
        with pytest.raises(InvalidOptionError, match="rolling_summary needs a model"):
            memory_of(choice, has_model=False)
    with pytest.raises(InvalidOptionError, match="no memory strategy 'rolling'"):
        memory_of("rolling", has_model=True)
