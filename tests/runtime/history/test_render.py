"""A history in words: one line a thing, in the order in which things happened."""

from __future__ import annotations

from typing import Any

from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    JoinKind,
    JoinSpec,
    PauseReason,
    RequestPause,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.history import build_history, render_history
from harborage.runtime.loop.arrivals import Arrivals, Woken
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.loop.dispatch import Approval
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome
from harborage.runtime.loop.state import OpenPause, Planned, Steered
from harborage.runtime.pauses import PauseDecision
from tests.kit.tables import each_row

ADD = CallTool("add", b'{"a":1}')
DONE = Finish(FinishReason.GOAL, "ok")


def lines(writing: Any, **options: Any) -> list[str]:
    """What is shown of a record, without its head and its sums."""
    return render_history(build_history(writing.record), **options)[2:-1]


def test_a_whole_run(writing: Any) -> None:
    """Head, steps, sums."""
    record = writing("count").done("2", "plan", Planned(decision=ADD, preamble="let me see", latency_ms=7))
    record.begun("3", "tool.add", ADD).done("3", "tool.add", ToolOutcome(OutcomeStatus.DONE, {"b": 2, "a": 1}))
    record.done("5", "plan", Planned(decision=DONE)).ended(DONE)
    assert render_history(build_history(record.record)) == [
        "run run-1  count",
        "  2026-01-01 00:00:00 UTC, 5.0 s: finished (goal)",
        '  1 add({"a":1})  (7 ms)',
        "    “ let me see",
        '    ✓ {"a":1,"b":2}  (1000 ms)',
        "  2 finish (goal): ok",
        "  2 steps · 1 tool calls",
    ]


def test_branches(writing: Any) -> None:
    """Each call of a step has a line of its own, and one for what it brought."""
    decision = CallParallel((ADD, CallTool("b")), JoinSpec(JoinKind.FIRST_SUCCESS))
    record = writing().done("2", "plan", Planned(decision=decision)).begun("3.0.1", "tool.add", ADD)
    record.done("3.0.1", "tool.add", ToolOutcome(OutcomeStatus.FAILED, {"error": "no"}))
    assert lines(record.joined("3", "failed", "cancelled")) == [
        "  1 2 calls side by side, joined by first_success",
        '    ▸ add({"a":1})  (1000 ms)',
        "      ✗ failed: no",
        "    ▸ b({})",
        "      – cancelled",
    ]


@each_row(
    "decision, line",
    [
        (SpawnTask(spec=SpawnSpec(query="q")), "  1 spawn a background task"),
        (AwaitTask("t-1"), "  1 await task t-1"),
        (RequestPause(PauseReason.AWAIT_INPUT, {"q": 1}), '  1 pause (await_input): {"q":1}'),
        (RequestPause(PauseReason.AWAIT_INPUT), "  1 pause (await_input)"),
        (Finish(FinishReason.NO_PATH), "  1 finish (no_path): "),
        (CallTool("x", b"{oops"), "  1 x({oops)"),
    ],
)
def test_every_decision_has_its_words(writing: Any, decision: Any, line: str) -> None:
    """What was decided, in a line."""
    assert lines(writing().done("2", "plan", Planned(decision=decision)))[0] == line


def test_what_went_wrong(writing: Any) -> None:
    """A planner that failed or was cut short, a call whose end is unknown, one that was refused."""
    assert lines(writing().failed("2", "plan", "E", "lost")) == ["  1 ✗ the planner failed: E: lost"]
    assert lines(writing().cut("2", "plan", "deadline")) == ["  1 – the planner was cut short: deadline"]
    begun = writing().done("2", "plan", Planned(decision=ADD)).begun("3", "tool.add", ADD)
    assert lines(begun)[-1] == "    … no outcome on record"
    refused = writing().done("2", "plan", Planned(decision=ADD)).done("3", "approve.add", Approval(refusal="no"))
    assert lines(refused)[-1] == "    ✗ rejected: no"


def test_an_approved_call_says_so(writing: Any) -> None:
    """A reader sees that a person let it through."""
    record = writing().done("2", "plan", Planned(decision=ADD)).done("3", "approve.add", Approval(args=ADD.args))
    record.begun("4", "tool.add", ADD).done("4", "tool.add", ToolOutcome(OutcomeStatus.DONE, 3))
    assert lines(record)[0] == '  1 add({"a":1})  approved'


def test_children_and_what_else_a_step_brought(writing: Any) -> None:
    """A task by its id and purpose, or why there is none."""
    spawn = SpawnTask(spec=SpawnSpec(description="count lines"))
    record = writing().done("2", "plan", Planned(decision=spawn))
    record.done("3", "task.spawn", {"task_id": "t-1", "kind": "background"})
    record.done("5", "plan", Planned(decision=spawn)).done("6", "task.spawn", {"error": "too deep"})
    record.done("8", "plan", Planned(decision=AwaitTask("t-1"))).done("9", "task.await", {"status": "complete"})
    shown = lines(record)
    assert shown[1] == "    ◆ background task t-1: count lines"
    assert shown[3] == "    ✗ too deep"
    assert shown[5] == '    → {"status":"complete"}'


def test_controls_and_pauses_stand_where_they_happened(writing: Any) -> None:
    """Before the step that they came before, at the end if none came after."""
    who = build_history(writing().record).who
    say = ControlEvent(ControlType.USER_MESSAGE, who, Scope.ADMIN, "t", {"message": "hi"})
    pause = ControlEvent(ControlType.PAUSE, who, Scope.ADMIN, "t")
    record = writing().done("2", "plan", Planned(decision=ADD)).arrived("3", Arrivals(controls=(say, pause)))
    opened = OpenPause("token", PauseReason.AWAIT_INPUT)
    record.done("4", "steer", [Steered(control=say), Steered(control=pause, opened=opened)])
    record.waited("6", Woken(PauseDecision.APPROVE, {"n": 1})).done("8", "plan", Planned(decision=DONE))
    record.arrived("9", Arrivals(controls=(say,))).done("10", "steer", [Steered(control=say, error="payload_invalid")])
    shown = lines(record)
    assert shown[1:5] == [
        '  ⇒ USER_MESSAGE {"message":"hi"}',
        "  ⇒ PAUSE",
        '  ‖ paused by the steering (await_input): approve {"n":1}',
        "  2 finish (goal): ok",
    ]
    assert shown[5] == '  ⇒ USER_MESSAGE {"message":"hi"}  not applied: payload_invalid'


def test_a_fork_and_a_rehearsal_say_what_they_are(writing: Any) -> None:
    """So that a reader does not take them for the run they came from."""
    fork = writing(forked_from="run-0", forked_at=3, is_rehearsal=True)
    assert render_history(build_history(fork.record))[1] == "  a fork of run-0 at step 3, without effects"
    assert (
        render_history(build_history(writing(is_rehearsal=True).record))[1]
        == "  a rehearsal: nothing that has effects is done"
    )


def test_how_it_stands(writing: Any) -> None:
    """Failed with what, or not over yet."""
    failed = render_history(build_history(writing().ended(error="E", message="m").record))
    assert failed[1].endswith("failed: E: m")
    assert render_history(build_history(writing().record))[1].endswith("has not ended")


def test_long_values_are_cut_after_they_were_cleaned(writing: Any) -> None:
    """What a reader may not see is gone before a line is made of it; a line stays a line."""
    record = writing().done("2", "plan", Planned(decision=Finish(FinishReason.GOAL, "secret\n" + "x" * 500)))
    (line,) = lines(record, clean=lambda value: str(value).replace("secret", "***"))
    assert line.startswith("  1 finish (goal): *** xxx")
    assert line.endswith("x…")
    assert len(line) < 200
