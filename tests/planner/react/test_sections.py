"""The system prompt says what it must, in a fixed order, and is the same all day."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from harborage.planner import (
    ArtifactManifestEntry,
    BudgetHints,
    CallTool,
    PlanningHints,
    RepairCounters,
    RunContext,
    Step,
    Trajectory,
)
from harborage.planner.react import DEFAULT_SYSTEM_PROMPT, DefaultPromptBuilder
from harborage.planner.react.guidance import guidance_lines
from harborage.planner.react.sections import planning_constraints
from harborage.tools import Tool
from tests.kit.tables import each_row

GOLDEN = Path(__file__).parent / "golden"
TAGS = [
    "identity",
    "tool_discovery",
    "heavy_results",
    "tool_usage",
    "reasoning",
    "tone",
    "error_handling",
    "available_tools",
]
META = ("tool_search", "tool_get", "skill_search", "skill_get", "artifact_fetch")
HEAVY = {"tool": "a", "size_bytes": 99_999, "truncated": True, "preview": "begin", "artifact_ref": "art-1"}
FORBIDDEN = [
    "_finish",
    "_spawn_task",
    "_await_task",
    '"reasoning":',
    '"thought":',
    "confidence",
    "route",
    "requires_followup",
    "warnings",
    "{{",
    "{day}",
    "output_format",
    "action_schema",
    "<finishing>",
    "parallel_execution",
    DEFAULT_SYSTEM_PROMPT,
]


def main_text(run: RunContext, prompt: str = DEFAULT_SYSTEM_PROMPT, **options) -> str:
    """The main system message for a run."""
    return DefaultPromptBuilder(**options).build(run, prompt).messages[0].content.text


def tags(text: str) -> list[str]:
    """The sections of a text, in order; each is closed before the next one begins."""
    found = re.findall(r"^<(/?)(\w+)>$", text, re.MULTILINE)
    opened = [name for closing, name in found if not closing]
    assert found == [one for name in opened for one in (("", name), ("/", name))]
    return opened


def body(text: str, tag: str) -> str:
    """What a section says."""
    return re.search(rf"^<{tag}>\n(.*)\n</{tag}>$", text, re.MULTILINE | re.DOTALL)[1]


def test_the_default_prompt_is_the_golden_one(make_run, catalog):
    """A change of the prompt shows as a change of this file."""
    shelf = catalog(Tool("add", "Adds two numbers."), Tool("now"), *map(Tool, META))
    assert main_text(make_run(catalog=shelf)) + "\n" == (GOLDEN / "default_prompt.txt").read_text("utf-8")


def test_the_order_of_sections(make_run, catalog):
    """Seven sections always, in this order, one blank line between two; the others only with content."""
    text = main_text(make_run())
    assert tags(text) == [tag for tag in TAGS if tag != "heavy_results"]
    assert "\n\n\n" not in text
    run = make_run(planning_hints=PlanningHints(constraints="c"), catalog=catalog(Tool("artifact_fetch")))
    full = main_text(run, extra="e")
    assert tags(full) == [*TAGS, "additional_guidance", "planning_constraints"]


def test_only_tools_that_may_be_called_are_named(make_run, catalog):
    """A meta tool that the run does not have is nowhere in the request; one that it discovered is."""
    step = Step(action=CallTool("a"), observation=HEAVY)
    rows = [ArtifactManifestEntry(ref=f"r{number}") for number in range(30)]
    for has in ((), *((name,) for name in META), META):
        run = make_run(catalog=catalog(*map(Tool, has)), trajectory=Trajectory(steps=[step]), session_artifacts=rows)
        request = DefaultPromptBuilder().build(run, DEFAULT_SYSTEM_PROMPT)
        said = "\n".join(message.content.text or "" for message in request.messages)
        for name in META:
            assert (re.search(rf"\b{name}\b", said) is not None) == (name in has), (name, has)
    found = make_run(catalog=catalog(hidden=(Tool("artifact_fetch"),)), discovered_tools=("artifact_fetch",))
    assert "artifact_fetch(ref" in main_text(found)


def test_what_cannot_be_fetched_is_said_to_be_kept(make_run, catalog):
    """Without a tool that reads artifacts the excerpt still says that something is missing, and where it is."""
    run = make_run(
        catalog=catalog(Tool("a")), trajectory=Trajectory(steps=[Step(action=CallTool("a"), observation=HEAVY)])
    )
    shown = DefaultPromptBuilder().build(run, DEFAULT_SYSTEM_PROMPT).messages[-1].content.text
    assert 'kept as "art-1", which no tool of this run reads' in shown


def test_what_must_not_be_said(make_run, catalog):
    """Nothing of reserved names, retired sections or fields, and no hole that was left unfilled."""
    text = main_text(make_run(catalog=catalog(Tool("add", "Adds."), Tool("artifact_fetch"))))
    assert not [word for word in FORBIDDEN if word in text]
    heavy = body(text, "heavy_results")
    assert not [word for word in ("artifact_ref", "preview", "ArtifactStub") if word in heavy]


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ("tool_discovery", ["tool_search", "tool_get", "skill_search", "skill_get", "natively", "plain text"]),
        ("heavy_results", ['ref="…"', "artifact_fetch(ref, max_bytes?)"]),
        ("tool_usage", ["schema", "pure", "read", "write", "external", "fails"]),
        ("reasoning", ["plan", "gather", "verify", "never invent", "identical call"]),
        ("tone", ["direct and professional", "operator"]),
        ("error_handling", ["arguments", "another way", "final answer"]),
    ],
)
def test_what_a_section_conveys(make_run, catalog, tag, words):
    """Each section names what it is about."""
    said = body(main_text(make_run(catalog=catalog(*map(Tool, META)))), tag)
    assert not [word for word in words if word not in said]


def test_the_date_is_a_day_of_the_run(make_run):
    """The date comes from the run's clock, in UTC; all day long the text is the same, byte for byte."""
    day = datetime(2026, 3, 4, tzinfo=UTC)
    first = main_text(make_run(clock=lambda: day))
    last = main_text(make_run("r-2", clock=lambda: day + timedelta(hours=23, minutes=59)))
    assert "Today is 2026-03-04 (UTC)." in first
    assert first.encode() == last.encode()
    assert not re.search(r"\d\d:\d\d", first)
    east = datetime(2026, 3, 5, 1, 0, tzinfo=timezone(timedelta(hours=2)))
    assert main_text(make_run(clock=lambda: east)) == first


def test_a_prompt_of_ones_own(make_run):
    """It replaces the leading sections word for word; tools, guidance and constraints follow all the same."""
    run = make_run(planning_hints=PlanningHints(constraints="c"))
    text = main_text(run, "You are Bob.\n<tone>gruff</tone> ", extra="e")
    assert text.startswith("You are Bob.\n<tone>gruff</tone> \n\n<available_tools>\n")
    assert tags(text) == ["available_tools", "additional_guidance", "planning_constraints"]


def test_an_empty_prompt_is_the_default(make_run):
    """An empty text does not replace anything."""
    assert main_text(make_run(), "") == main_text(make_run())


def test_guidance(make_run):
    """The operator's words come first, then a blank line, then one line for each slip."""
    counters = RepairCounters(args_repair=1, finish_repair=2)
    lines = "\n".join(line.text for line in guidance_lines(counters))
    run = make_run(repair_counters=counters)
    assert body(main_text(run, extra="  Be kind.\n"), "additional_guidance") == f"Be kind.\n\n{lines}"
    assert body(main_text(run), "additional_guidance") == lines
    assert body(main_text(make_run(), extra="Be kind."), "additional_guidance") == "Be kind."


@pytest.mark.parametrize("extra", ["", "  ", "\n\t"])
def test_no_guidance(make_run, extra):
    """Blanks are nothing, and no empty section is shown."""
    assert "additional_guidance" not in main_text(make_run(), extra=extra)


def test_guidance_is_announced(make_run, told):
    """Each build tells of each line that went into its prompt, and changes no counter."""
    counters = RepairCounters(multi_action=4, args_repair=1)
    run = make_run(repair_counters=counters)
    for _ in range(2):
        main_text(run)
    assert [event.type for event in told] == ["planner.repair_guidance_injected"] * 4
    payloads = [(event.payload.counter, event.payload.tier, event.payload.count) for event in told]
    assert payloads == [("args", "reminder", 1), ("multi_action", "critical", 4)] * 2
    assert all(event.payload.identity == run.quadruple for event in told)
    assert counters == RepairCounters(multi_action=4, args_repair=1)


def test_all_constraints():
    """One line for each hint, in this order; strings are trimmed."""
    hints = PlanningHints(
        constraints=" stay\nhere ",
        preferred_order=("a", " b "),
        parallel_groups=(("a", "b"), ("c",)),
        disallow_tools=("x", "y"),
        preferred_tools=("p",),
        budget=BudgetHints(max_steps=5, max_cost_usd=1.5, max_latency_ms=900),
    )
    assert planning_constraints(hints).split("\n") == [
        "Constraints: stay here",
        "Preferred tool order: a -> b",
        "Tools that may be called in the same turn:",
        "  - a, b",
        "  - c",
        "Do not use: x, y",
        "Preferred tools: p",
        "Use at most 5 steps.",
        "Spend at most $1.5 USD.",
        "Be done within 900 ms.",
    ]


@pytest.mark.parametrize(
    "hints",
    [
        None,
        PlanningHints(),
        PlanningHints(
            constraints=" \n",
            preferred_order=("", " "),
            parallel_groups=((), ("", "")),
            disallow_tools=(" ",),
            preferred_tools=("",),
            budget=BudgetHints(),
        ),
    ],
)
def test_no_constraints(make_run, hints):
    """Hints that say nothing are no section."""
    assert planning_constraints(hints) == ""
    assert "planning_constraints" not in main_text(make_run(planning_hints=hints))


@each_row("cost, shown", [(2.0, "2"), (100.0, "100"), (0.1, "0.1"), (1e-7, "0.0000001"), (0.0, "0"), (12.5, "12.5")])
def test_costs_are_short_decimals(cost, shown):
    """A cost is written with as few digits as it needs, never with an exponent."""
    assert planning_constraints(PlanningHints(budget=BudgetHints(max_cost_usd=cost))) == f"Spend at most ${shown} USD."


def test_a_zero_is_set():
    """A budget of zero is told; only what is not set is left out."""
    assert planning_constraints(PlanningHints(budget=BudgetHints(max_steps=0))) == "Use at most 0 steps."
