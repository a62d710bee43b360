"""The system prompt: what an agent has to know before it reads its goal, in tagged sections of a fixed order.

Nothing in it changes from step to step except what the run itself changed, so that a provider can keep its beginning.
The date is a day without a time for the same reason. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from harborage.planner.react.names import ARTIFACT_FETCH_TOOL_NAME, TOOL_SEARCH_TOOL_NAME
from harborage.planner.react.rendering import one_line

if TYPE_CHECKING:
    from harborage.planner.views import BudgetHints, PlanningHints

__all__ = ["default_sections", "planning_constraints", "section"]


def section(tag: str, body: str) -> str:
    """`body` between an opening and a closing tag, each on a line of its own."""
    return f"<{tag}>\n{body}\n</{tag}>"


def default_sections(day: str, tools: Collection[str] = ()) -> list[str]:
    """The sections that a system prompt of one's own replaces; `day` is today as `YYYY-MM-DD`.

    Meta tools are named only when they are among `tools`, the names that the model may call.
    """
    sections = [section("identity", _IDENTITY.format(day=day)), section("tool_discovery", _discovery(tools))]
    if ARTIFACT_FETCH_TOOL_NAME in tools:
        sections.append(_HEAVY_RESULTS)
    return [*sections, *_FIXED]


def _discovery(tools: Collection[str]) -> str:
    """How a turn works, and how to find what is not listed, as far as the run has a tool for it."""
    known = [text for name, text in _FINDING if name in tools]
    return "\n".join((_TURNS, *known))


def planning_constraints(hints: PlanningHints | None) -> str:
    """The body of the planning section, a line for each hint that says something; empty when none does."""
    return "" if hints is None else "\n".join(_constraint_lines(hints))


def _constraint_lines(hints: PlanningHints) -> Iterator[str]:
    constraints = one_line(hints.constraints)
    if constraints:
        yield f"Constraints: {constraints}"
    order = _named(hints.preferred_order)
    if order:
        yield f"Preferred tool order: {' -> '.join(order)}"
    groups = [group for group in map(_named, hints.parallel_groups) if group]
    if groups:
        yield "Tools that may be called in the same turn:"
        yield from (f"  - {', '.join(group)}" for group in groups)
    disallowed = _named(hints.disallow_tools)
    if disallowed:
        yield f"Do not use: {', '.join(disallowed)}"
    preferred = _named(hints.preferred_tools)
    if preferred:
        yield f"Preferred tools: {', '.join(preferred)}"
    if hints.budget is not None:
        yield from _budget_lines(hints.budget)


def _budget_lines(budget: BudgetHints) -> Iterator[str]:
    if budget.max_steps is not None:
        yield f"Use at most {budget.max_steps} steps."
    if budget.max_cost_usd is not None:
        yield f"Spend at most ${_decimal(budget.max_cost_usd)} USD."
    if budget.max_latency_ms is not None:
        yield f"Be done within {budget.max_latency_ms} ms."


def _named(names: Sequence[str]) -> list[str]:
    return [name for name in (one_line(one) for one in names) if name]


def _decimal(amount: float) -> str:
    """The shortest decimal that reads back as the same number, never with an exponent."""
    number = Decimal(repr(amount))
    return format(number.normalize(), "f") if number.is_finite() else str(number)


_IDENTITY = """\
You are an autonomous agent. You work towards the user's goal step by step, with the tools you are given.
Today is {day} (UTC)."""

_TURNS = """\
Call tools natively. A turn is either one or more tool calls, or your final answer as plain text without any call; \
such an answer ends the run. What you write reaches the user word for word while you write it."""

_FINDING = (
    (
        TOOL_SEARCH_TOOL_NAME,
        "Not every tool is listed below: `tool_search` finds tools by what they do and makes them callable from your "
        "next turn on.",
    ),
    ("tool_get", "`tool_get` shows one tool in full."),
    (
        "skill_search",
        "`skill_search` finds written know-how: look there before you work out a procedure yourself.",
    ),
    ("skill_get", "`skill_get` reads written know-how by its name."),
)

_HEAVY_RESULTS = section(
    "heavy_results",
    """\
A large result is kept outside this conversation. You see a short excerpt of it and a handle, ref="…".
Read more with `artifact_fetch(ref, max_bytes?)` when the excerpt is not enough. Repeating the call that gave the \
result does not get around the limit.""",
)

_TOOL_USAGE = """\
Call only the tools of this run, with arguments that match their schema: every required field, exact names and types.
Side effects: pure tools compute, read tools look something up, write tools change something, external tools act on \
systems outside. Find out with pure and read; write and act outside only where the goal asks for it.
Calls that do not depend on each other may share a turn. When a tool fails, read its error, then correct the call, \
try another tool, or go on without it."""

_REASONING = """\
Understand the request, plan, gather what you need, put it together, and verify it before you answer.
State only what you were told or have found; never invent facts. Do not repeat an identical call: its result is \
here already."""

_TONE = """\
Be direct and professional, unless the operator's guidance asks for another tone. Keep your internal reasoning out of \
what you write."""

_ERROR_HANDLING = """\
When arguments were refused, fix them and call again. When a tool ran and failed, look for another way.
If only the user can tell you what you need, asking them is a valid final answer."""

_FIXED = (
    section("tool_usage", _TOOL_USAGE),
    section("reasoning", _REASONING),
    section("tone", _TONE),
    section("error_handling", _ERROR_HANDLING),
)
