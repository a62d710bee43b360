"""The prompt: from what a step may see to the request that goes to the model.

A builder reads the context and changes nothing in it. What earlier steps already built is taken from beside the
trajectory instead of being made again, so building costs the same at every step. The system prompt is made of tagged
sections in a fixed order. It changes only with the run itself, and holds a date without a time, so that a provider can
cache its beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from harborage.events import EventType, RepairGuidanceInjectedPayload
from harborage.llm import ChatMessage, CompleteRequest, Content, Role
from harborage.planner.context import RunContext, effective_reasoning_replay, publish
from harborage.planner.decisions import ReasoningReplayMode
from harborage.planner.react.blocks import (
    render_changed_artifacts,
    render_context_blocks,
    render_limit_warning,
)
from harborage.planner.react.guidance import GuidanceLine, select_guidance
from harborage.planner.react.tools import (
    ARTIFACT_FETCH_TOOL_NAME,
    DEFAULT_MAX_TOOL_EXAMPLES,
    TOOL_SEARCH_TOOL_NAME,
    are_same,
    get_toolbox,
)
from harborage.planner.react.transcript import build_history, render_summary
from harborage.planner.text import one_line, to_content
from harborage.planner.trajectory import memoize_on
from harborage.planner.views import materialize_input_content

if TYPE_CHECKING:
    from harborage.planner.react.tools import Toolbox
    from harborage.planner.views import BudgetHints, InputArtifactView, PlanningHints
    from harborage.tools import Tool

DEFAULT_SYSTEM_PROMPT: Final = "harbor.react.default-system-prompt"
"""Stands for the built-in system prompt; never sent to a model."""

_NO_GOAL: Final = "(no goal was given)"


@runtime_checkable
class PromptBuilder(Protocol):
    """Turns a step's context into a request. One instance serves many runs at once."""

    def build(self, run: RunContext, system_prompt: str) -> CompleteRequest:
        """Return the request for this step, without model, tools and streaming; the planner adds the last two.

        Raises:
            MemoryBlockUnserializableError: something meant for the prompt cannot become JSON. Never: changes `run`.
        """
        ...


class DefaultPromptBuilder:
    """The built-in prompt: tagged system sections, framed data, the goal, and the history as a conversation.

    `extra` is the operator's own guidance. Tools are listed by name and description, each with at most
    `max_tool_examples` of its examples; the schemas are in the declarations.
    """

    def __init__(
        self,
        *,
        extra: str = "",
        reasoning_replay: ReasoningReplayMode = ReasoningReplayMode.NEVER,
        max_tool_examples: int = DEFAULT_MAX_TOOL_EXAMPLES,
    ) -> None:
        self._extra = extra.strip()
        self._reasoning_replay = reasoning_replay
        self.max_tool_examples = max_tool_examples if max_tool_examples > 0 else DEFAULT_MAX_TOOL_EXAMPLES

    def build(self, run: RunContext, system_prompt: str) -> CompleteRequest:
        """Return the request for this step.

        Raises:
            MemoryBlockUnserializableError: something meant for the prompt cannot become JSON.
        """
        guidance = select_guidance(run.repair_counters)
        tools = get_toolbox(run)
        can_fetch = ARTIFACT_FETCH_TOOL_NAME in tools.names
        messages = [self._system(run, system_prompt, guidance, tools)]
        messages += [_system(text) for text in render_context_blocks(run, can_fetch=can_fetch)]
        messages.append(memoize_on(run.trajectory, "react.first", _FirstMessage).message(run))
        if run.trajectory is not None:
            mode = effective_reasoning_replay(run, self._reasoning_replay)
            messages += build_history(run.trajectory, mode, can_fetch=can_fetch, pictures=run.pictures)
        if changed := render_changed_artifacts(run, can_fetch=can_fetch):
            messages.append(_user(changed))
        warning = render_limit_warning(run.budget, run.now())
        if warning:
            messages.append(_user(warning))  # last, so that the provider's cache still fits what comes before
        # Published last: a prompt that could not be built is not sent.
        _publish_guidance(run, guidance)
        return CompleteRequest(messages=tuple(messages))

    def _system(self, run: RunContext, system_prompt: str, guidance: list[GuidanceLine], tools: Toolbox) -> ChatMessage:
        is_default = not system_prompt or system_prompt == DEFAULT_SYSTEM_PROMPT
        return _system_message(
            "" if is_default else system_prompt,
            run.now().date().isoformat() if is_default else "",
            tools.names,
            tools.listed(self.max_tool_examples),
            "\n\n".join(
                text
                for text in (run.instructions.strip(), self._extra, "\n".join(line.text for line in guidance))
                if text
            ),
            render_planning_constraints(run.planning_hints),
        )


@lru_cache(maxsize=64)
def _system_message(
    prompt: str, day: str, tools: frozenset[str], listed: str, guidance: str, constraints: str
) -> ChatMessage:
    """Return the first message, by far the longest one; most steps of most runs share it."""
    parts = [prompt] if prompt else render_default_sections(day, tools)
    parts.append(render_section("available_tools", listed))
    if guidance:
        parts.append(render_section("additional_guidance", guidance))
    if constraints:
        parts.append(render_section("planning_constraints", constraints))
    return _system("\n\n".join(parts))


class _FirstMessage:
    """The user's message: the goal, what a summary keeps of earlier steps, and what the user attached.

    It is in every request, pictures included, so it is made again only when something in it has changed.
    """

    __slots__ = ("_artifacts", "_message", "_text", "_tools")

    def __init__(self) -> None:
        self._text = ""
        self._artifacts: Sequence[InputArtifactView] = ()
        self._tools: list[Tool] = []
        self._message: ChatMessage | None = None

    def message(self, run: RunContext) -> ChatMessage:
        text = _render_first_text(run)
        # The stub of a file names the tool that reads it.
        tools = run.catalog.list() if run.input_artifacts and run.catalog is not None else []
        is_known = (
            text == self._text and are_same(run.input_artifacts, self._artifacts) and are_same(tools, self._tools)
        )
        if self._message is None or not is_known:
            self._text, self._artifacts, self._tools = text, tuple(run.input_artifacts), tools
            self._message = ChatMessage(Role.USER, _make_first_content(text, run))
        return self._message


def _make_first_content(text: str, run: RunContext) -> Content:
    content = to_content(text)
    if content.parts is None:
        return materialize_input_content(text, run.input_artifacts, run.catalog)
    attached = materialize_input_content("", run.input_artifacts, run.catalog)
    return Content(parts=(*content.parts, *(attached.parts or ())))


def _render_first_text(run: RunContext) -> str:
    text = f"Goal:\n{run.goal or run.query or _NO_GOAL}"
    summary = None if run.trajectory is None else run.trajectory.summary
    return text if summary is None else f"{text}\n\n{render_summary(summary)}"


def _publish_guidance(run: RunContext, guidance: list[GuidanceLine]) -> None:
    for line in guidance:
        injected = RepairGuidanceInjectedPayload(
            identity=run.quadruple,
            tier=str(line.tier),
            counter=line.counter,
            count=line.count,
            occurred_at=run.now(),
        )
        publish(run, EventType.PLANNER_REPAIR_GUIDANCE_INJECTED, injected)


def _system(text: str) -> ChatMessage:
    return ChatMessage(Role.SYSTEM, to_content(text))


def _user(text: str) -> ChatMessage:
    return ChatMessage(Role.USER, to_content(text))


def render_section(tag: str, body: str) -> str:
    """Return `body` between an opening and a closing tag, each on a line of its own."""
    return f"<{tag}>\n{body}\n</{tag}>"


def render_default_sections(day: str, tools: Collection[str] = ()) -> list[str]:
    """Return the sections that a custom system prompt replaces; `day` is today as `YYYY-MM-DD`.

    Meta tools are named only when they are in `tools`, the names that the model may call.
    """
    sections = [
        render_section("identity", _IDENTITY.format(day=day)),
        render_section("tool_discovery", _render_discovery(tools)),
    ]
    if ARTIFACT_FETCH_TOOL_NAME in tools:
        sections.append(_HEAVY_RESULTS)
    return [*sections, *_FIXED]


def _render_discovery(tools: Collection[str]) -> str:
    """Describe a turn, and how to find tools and skills that are not listed, as far as the run has a tool for it."""
    known = [text for name, text in _DISCOVERY_TEXTS if name in tools]
    return "\n".join((_TURNS, *known))


def render_planning_constraints(hints: PlanningHints | None) -> str:
    """Return the body of the planning section, a line for each hint that is set; empty without one."""
    return "" if hints is None else "\n".join(_constraint_lines(hints))


def _constraint_lines(hints: PlanningHints) -> Iterator[str]:
    constraints = one_line(hints.constraints)
    if constraints:
        yield f"Constraints: {constraints}"
    order = _clean_names(hints.preferred_order)
    if order:
        yield f"Preferred tool order: {' -> '.join(order)}"
    groups = [group for group in map(_clean_names, hints.parallel_groups) if group]
    if groups:
        yield "Tools that may be called in the same turn:"
        yield from (f"  - {', '.join(group)}" for group in groups)
    disallowed = _clean_names(hints.disallow_tools)
    if disallowed:
        yield f"Do not use: {', '.join(disallowed)}"
    preferred = _clean_names(hints.preferred_tools)
    if preferred:
        yield f"Preferred tools: {', '.join(preferred)}"
    if hints.budget is not None:
        yield from _budget_lines(hints.budget)


def _budget_lines(budget: BudgetHints) -> Iterator[str]:
    if budget.max_steps is not None:
        yield f"Use at most {budget.max_steps} steps."
    if budget.max_cost_usd is not None:
        yield f"Spend at most ${_render_decimal(budget.max_cost_usd)} USD."
    if budget.max_latency_ms is not None:
        yield f"Be done within {budget.max_latency_ms} ms."


def _clean_names(names: Sequence[str]) -> list[str]:
    return [name for name in (one_line(one) for one in names) if name]


def _render_decimal(amount: float) -> str:
    """Return the shortest decimal that reads back as the same number, never with an exponent."""
    number = Decimal(repr(amount))
    return format(number.normalize(), "f") if number.is_finite() else str(number)


_IDENTITY = """\
You are an autonomous agent. You work towards the user's goal step by step, with the tools you are given.
Today is {day} (UTC)."""

_TURNS = """\
Call tools natively. A turn is either one or more tool calls, or your final answer as plain text without any call; \
such an answer ends the run. What you write reaches the user word for word while you write it."""

_DISCOVERY_TEXTS = (
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

_HEAVY_RESULTS = render_section(
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
    render_section("tool_usage", _TOOL_USAGE),
    render_section("reasoning", _REASONING),
    render_section("tone", _TONE),
    render_section("error_handling", _ERROR_HANDLING),
)
