"""Events as text: one line each, the runs that a stream tells of, the steps of one, and the tree of what it did."""

from __future__ import annotations

from typing import Any

from harborage.cli.event_lines import (
    WireEvent,
    event_line,
    render_topology,
    run_steps,
    seen_runs,
    step_line,
    topology,
)
from tests.kit.tables import each_row

AT = "2026-01-02T03:04:05.000000000Z"


def event(number: int, type: str, run: str = "r1", **payload: Any) -> WireEvent:
    """An event of a run."""
    return WireEvent(type, number * 4096, AT, "acme", "ada", "s-1", run, payload or None)


@each_row(
    "payload, fields",
    [
        ({}, ""),
        ({"B": 1, "A": "x"}, "A=x B=1"),
        ({"Deep": {"a": 1}, "List": [1, 2], "Flag": True, "None": None}, "Deep={…} Flag=true List=[2] None=null"),
        ({"Text": "\x1b[31m"}, r"Text=\x1b[31m"),
        ({"Long": "x" * 300}, "Long=" + "x" * 235 + "…"),
    ],
)
def test_an_event_is_one_line(payload: dict[str, Any], fields: str) -> None:
    """When, whose, what, and its fields by name; deep values are signs, control characters are spelled out."""
    assert event_line(event(1, "tool.invoked", **payload)) == f"{AT} acme/ada/s-1/r1 tool.invoked {{{fields}}}"


def test_an_event_without_a_run_names_none() -> None:
    """The place of the run is left out."""
    assert event_line(event(1, "session.opened", "")) == f"{AT} acme/ada/s-1 session.opened {{}}"


def test_runs_are_seen_by_their_events() -> None:
    """A run is named by the envelope, else by the payload; its status is the last one that events tell of."""
    runs = seen_runs([
        event(4, "task.completed", "", TaskID="r1"),
        event(1, "task.spawned", "", TaskID="r1"),
        event(2, "task.started", "", TaskID="r1"),
        event(3, "tool.invoked", "r2"),
        event(5, "session.touched", ""),
        event(6, "task.paused", "", task_id="r3"),
    ])  # fmt: skip
    assert [(run.run_id, run.status, run.events) for run in runs] == [
        ("r1", "complete", 3),
        ("r2", "unknown", 1),
        ("r3", "paused", 1),
    ]


def test_the_steps_of_a_run_are_in_order_with_the_reasoning_of_decisions() -> None:
    """Other runs are left out; a decision says how much was reasoned."""
    steps = run_steps(
        [
            event(3, "tool.failed", ToolName="look", ErrorClass="TimeoutError"),
            event(1, "planner.decision", DecisionKind="CallTool", Tool="look", ReasoningChars=3, ReasoningTrace="hmm"),
            event(2, "tool.invoked", "other"),
        ],
        "r1",
    )
    assert [step["type"] for step in steps] == ["planner.decision", "tool.failed"]
    assert (steps[0]["reasoning"], steps[0]["reasoning_chars"], steps[0]["tool"]) == ("hmm", 3, "look")
    assert step_line(steps[0]).endswith("planner.decision  tool=look decision=CallTool reasoning=3 characters")
    assert step_line(steps[1]).endswith("tool.failed  tool=look error=TimeoutError")


def test_the_tree_of_a_run() -> None:
    """Ends belong to the latest open call of the same tool; what a child did stands below it."""
    nodes = topology(
        [
            event(1, "tool.invoked", ToolName="look"),
            event(2, "tool.invoked", ToolName="look"),
            event(3, "tool.completed", ToolName="look", DurationMS=12),
            event(4, "task.spawned", "", TaskID="r2", ParentTaskID="r1"),
            event(5, "tool.invoked", "r2", ToolName="dig"),
            event(6, "tool.failed", "r2", ToolName="dig", ErrorClass="OSError"),
            event(7, "tool.invoked", "stranger", ToolName="x"),
            event(8, "tool.approval_requested", Tool="buy"),
            event(9, "pause.requested", Reason="await_input"),
            event(10, "planner.finish", Reason="goal"),
        ],
        "r1",
    )
    assert list(render_topology(nodes, "r1", ("acme", "", "s-1"), 80)) == [
        "run r1",
        "tenant=acme user=<unknown> session=s-1",
        "source: events.synthesised",
        "",
        "[tool    ] look [pending]",
        "[tool    ] look [ok] (12ms)",
        "[task    ] r2 [spawned]",
        "  +- [tool    ] dig [fail] (class=OSError)",
        "[approval] buy [requested]",
        "[pause   ] await_input [requested]",
        "[finish  ] goal",
    ]


def test_an_empty_tree_says_so_and_lines_fit() -> None:
    """Without a node there is one line; with a long name the line is cut to the width."""
    assert list(render_topology([], "r1", ("a", "b", "c"), 20))[-1] == "(no events)"
    nodes = topology([event(1, "tool.invoked", ToolName="x" * 50)], "r1")
    assert list(render_topology(nodes, "r1", ("a", "b", "c"), 20))[-1] == "[tool    ] xxxxxxxx…"
