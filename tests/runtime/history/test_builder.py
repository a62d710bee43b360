"""Every kind of entry has its place in a run's history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from harborage import codec
from harborage.identity import Identity
from harborage.llm import CompleteResponse, Cost, RateLimitedError, Usage
from harborage.planner import (
    AwaitTask,
    BackgroundResult,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    SpawnSpec,
    SpawnTask,
    TrajectorySummary,
)
from harborage.runtime.durable.journal import JournalCorruptError, raw
from harborage.runtime.durable.model_records import Exchange, RecordedRequest, failure_of, record_answer
from harborage.runtime.history import CallStatus, build_history
from harborage.runtime.loop.arrivals import Arrivals, Woken
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.loop.dispatch import Approval
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.loop.state import OpenPause, Planned, Steered
from harborage.runtime.pauses import PauseDecision
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.tables import each_row

T0 = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Identity("t", "u", "s").with_run("run-1")
ADD = CallTool("add", b'{"a":1}', "id-1")
ASK = RequestPause(PauseReason.AWAIT_INPUT, {"why": "x"})
DONE = Finish(FinishReason.GOAL, "ok")


def planned(decision: Any, **fields: Any) -> Planned:
    return Planned(decision=decision, **fields)


def control(type: ControlType, payload: dict[str, Any] | None = None) -> ControlEvent:
    return ControlEvent(type, WHO, Scope.ADMIN, "t", payload, "event-1")


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def test_a_run_from_its_beginning_to_its_end(writing: Any) -> None:
    """What was asked for, when, how it ended, how long it took."""
    record = writing("count", max_steps=5).done("1", "task.begin", True).done("3", "plan", planned(DONE))
    history = build_history(record.done("4", "task.end", None).ended(DONE).record)
    assert (history.run_id, history.goal, history.request.max_steps) == ("run-1", "count", 5)
    assert (history.started_at, history.ended_at, history.seconds) == (T0, after(4), 4.0)
    assert (history.finish, history.error, history.has_ended) == (DONE, "", True)
    assert history.totals.steps == 1
    assert history.entries == 5


def test_a_run_that_goes_on_has_no_end(writing: Any) -> None:
    """Its time is that of the last thing on record."""
    history = build_history(writing().done("1", "task.begin", True).record)
    assert (history.ended_at, history.finish, history.seconds, history.steps) == (None, None, 1.0, ())
    assert not history.has_ended


def test_a_run_that_failed_says_with_what(writing: Any) -> None:
    """The error's class and text."""
    record = writing().failed("2", "plan", "PlannerStepError", "lost").done("3", "task.fail", None)
    history = build_history(record.ended(error="PlannerStepError", message="lost").record)
    assert (history.error, history.message, history.finish) == ("PlannerStepError", "lost", None)
    (step,) = history.steps
    assert (step.error, step.decision) == ("PlannerStepError: lost", None)


def test_a_step_with_a_call(writing: Any) -> None:
    """What was decided and said, the call with its arguments, key and times, and what it brought."""
    record = writing().done(
        "2",
        "plan",
        planned(
            ADD,
            reasoning="hm",
            preamble="let me see",
            started_at=T0,
            latency_ms=7,
            summary=TrajectorySummary(facts=("f",)),
        ),
    )
    record.begun("3", "tool.add", ADD).done("3", "tool.add", ToolOutcome(OutcomeStatus.DONE, {"big": 1}, "small"))
    (step,) = build_history(record.record).steps
    assert (step.number, step.decision, step.reasoning, step.preamble, step.latency_ms) == (
        1,
        ADD,
        "hm",
        "let me see",
        7,
    )
    assert step.was_summarised
    assert step.ended_at == after(3)
    (call,) = step.calls
    assert (call.tool, call.args, call.key, call.position) == ("add", '{"a":1}', "run-1/3", "3")
    assert (call.status, call.observation, call.seen) == (CallStatus.DONE, {"big": 1}, "small")
    assert (call.begun_at, call.ended_at) == (after(2), after(3))


@each_row("status", [one for one in OutcomeStatus if one is not OutcomeStatus.DONE])
def test_a_call_that_brought_nothing(writing: Any, status: OutcomeStatus) -> None:
    """Each way in which a call can end otherwise is shown with its reason."""
    record = writing().done("2", "plan", planned(ADD)).begun("3", "tool.add", ADD)
    record.done("3", "tool.add", ToolOutcome(status, {"error": "no"}))
    (call,) = build_history(record.record).steps[0].calls
    assert (str(call.status), call.error) == (str(status), "no")


def test_calls_without_an_outcome(writing: Any) -> None:
    """Without an outcome, interrupted, crashed."""
    record = writing().done("2", "plan", planned(ADD)).begun("3", "tool.add", ADD)
    assert build_history(record.record).steps[0].calls[0].status is CallStatus.OPEN
    cut = build_history(writing().done("2", "plan", planned(ADD)).cut("3", "tool.add", "hard_cancel").record)
    assert (cut.steps[0].calls[0].status, cut.steps[0].calls[0].error) == (CallStatus.CUT, "cut short: hard_cancel")
    crashed = build_history(record.failed("3", "tool.add", "StepCrashedError", "gone").record).steps[0].calls[0]
    assert (crashed.status, crashed.error) == (CallStatus.FAILED, "StepCrashedError: gone")


def test_an_approved_call_is_one_call(writing: Any) -> None:
    """With the arguments that the approver gave it; what the planner wanted is in the decision."""
    edited = CallTool("add", b'{"a":2}', "id-1")
    record = writing().done("2", "plan", planned(ADD)).done("3", "approve.add", Approval(args=b'{"a":2}'))
    record.begun("4", "tool.add", edited).done("4", "tool.add", ToolOutcome(OutcomeStatus.DONE, 3))
    (call,) = build_history(record.record).steps[0].calls
    assert (call.approval_asked, call.refusal, call.args, call.status) == (True, "", '{"a":2}', CallStatus.DONE)


def test_a_refused_call_was_never_made(writing: Any) -> None:
    """The gate's reason is there, a beginning is not; an approval that was cut short or failed is the call's end."""
    begun = writing().done("2", "plan", planned(ADD))
    (call,) = (
        build_history([*begun.record, *writing().done("3", "approve.add", Approval(refusal="no")).record[1:]])
        .steps[0]
        .calls
    )
    assert (call.status, call.refusal, call.begun_at) == (CallStatus.REJECTED, "no", None)
    (call,) = build_history([*begun.record, *writing().cut("3", "approve.add", "deadline").record[1:]]).steps[0].calls
    assert (call.status, call.approval_asked) == (CallStatus.CUT, True)
    (call,) = build_history([*begun.record, *writing().failed("3", "approve.add", "E", "m").record[1:]]).steps[0].calls
    assert call.status is CallStatus.FAILED


def test_branches_stand_in_their_order(writing: Any) -> None:
    """However their entries are interleaved, also after the next step began; losers of a join were cancelled."""
    decision = CallParallel((ADD, CallTool("b"), CallTool("c"), CallTool("d")))
    record = writing().done("2", "plan", planned(decision))
    record.begun("3.1.1", "tool.b", CallTool("b")).begun("3.0.1", "tool.add", ADD).begun(
        "3.3.1", "tool.d", CallTool("d")
    )
    record.done("3.1.1", "tool.b", ToolOutcome(OutcomeStatus.DONE, 1))
    record.joined("3", "cancelled", "done", "cancelled", "done").done("5", "plan", planned(DONE))
    record.done("3.3.1", "tool.d", ToolOutcome(OutcomeStatus.DONE, 2))
    first, second = build_history(record.record).steps
    assert [(call.branch, call.tool, call.status) for call in first.calls] == [
        (0, "add", CallStatus.CANCELLED),
        (1, "b", CallStatus.DONE),
        (2, "c", CallStatus.CANCELLED),
        (3, "d", CallStatus.DONE),
    ]
    assert second.calls == ()


def test_a_parallel_call_that_was_refused_as_a_whole(writing: Any) -> None:
    """What the check said is what the step brought."""
    record = writing().done("2", "plan", planned(CallParallel((ADD,)))).done("3", "parallel.check", "branch 0: no")
    assert build_history(record.record).steps[0].observation == {"error": "branch 0: no"}
    passed = writing().done("2", "plan", planned(CallParallel((ADD,)))).done("3", "parallel.check", "")
    assert build_history(passed.record).steps[0].observation is None


def test_children_and_how_they_ended(writing: Any) -> None:
    """What was spawned and what for, what came of waiting for it, and why there is no task."""
    spawn = SpawnTask(spec=SpawnSpec(query="q", description="d"))
    record = writing().done("2", "plan", planned(spawn)).begun("3", "task.spawn", ["k", spawn])
    record.done("3", "task.spawn", {"task_id": "child", "kind": "background", "status": "spawned"})
    record.done("5", "plan", planned(AwaitTask("child"))).done("6", "task.await", {"status": "complete", "result": 1})
    record.done("8", "plan", planned(spawn)).done("9", "task.spawn", {"error": "too deep"})
    record.done("11", "plan", planned(AwaitTask("child"))).cut("12", "task.await", "soft_cancel")
    history = build_history(record.record)
    assert [(child.task_id, child.kind, child.spec.query, child.error) for child in history.children] == [
        ("child", "background", "q", ""),
        ("", "", "q", "too deep"),
    ]
    assert history.steps[1].observation == {"status": "complete", "result": 1}
    assert history.steps[3].observation == {"error": "cut short: soft_cancel"}


def test_a_dispatched_decision(writing: Any) -> None:
    """An embedder's executor carries whole decisions out; what it brought is there, or what it failed with."""
    record = writing().done("2", "plan", planned(ADD)).done("3", "dispatch", [{"x": 1}, "short", True])
    record.done("5", "plan", planned(ADD)).failed("6", "dispatch", "E", "m")
    first, second = build_history(record.record).steps
    assert (first.observation, second.observation) == ({"x": 1}, {"error": "E: m"})


def test_a_planner_that_was_cut_short(writing: Any) -> None:
    """There is a step, and no decision."""
    (step,) = build_history(writing().cut("2", "plan", "deadline").record).steps
    assert (step.cut, step.decision) == ("deadline", None)


def test_a_pause_that_the_planner_asked_for(writing: Any) -> None:
    """Why, until when, and how it was resolved; a wake-up for a control resolves nothing."""
    record = writing().done("2", "plan", planned(ASK))
    record.done("3", "pause.request", OpenPause("token", PauseReason.AWAIT_INPUT, after(60)))
    (pause,) = build_history(record.record).pauses
    assert (pause.token, pause.by, pause.payload, pause.deadline, pause.decision) == (
        "token",
        "planner",
        {"why": "x"},
        after(60),
        "",
    )
    record.waited("5", Woken(at=after(4))).waited("7", Woken(PauseDecision.APPROVE, {"n": 1}, after(5)))
    (pause,) = build_history(record.record).pauses
    assert (pause.decision, pause.answer, pause.resolved_at) == ("approve", {"n": 1}, after(5))


def test_a_pause_that_was_given_up(writing: Any) -> None:
    """A run that ends while it is parked abandons its pause."""
    record = (
        writing().done("2", "plan", planned(ASK)).done("3", "pause.request", OpenPause("t", PauseReason.AWAIT_INPUT))
    )
    (pause,) = build_history(record.done("5", "pause.abandon", None).record).pauses
    assert (pause.decision, pause.resolved_at) == ("abandoned", after(3))


def test_controls_and_what_they_did(writing: Any) -> None:
    """Each with its payload, the step it came before and why it failed; pauses that it opened or resolved."""
    pause, resume = control(ControlType.PAUSE, {"note": "wait"}), control(ControlType.RESUME, {"go": 1})
    odd = control(ControlType.APPROVE, {"token": "x"})
    record = writing().arrived("1", Arrivals(controls=(pause, odd)))
    opened = OpenPause("token", PauseReason.AWAIT_INPUT)
    record.done("2", "steer", [Steered(control=pause, opened=opened), Steered(control=odd, error="pause_not_found")])
    record.arrived("4", Arrivals(controls=(resume,)))
    resolved = Steered(
        control=resume, resolved=PauseDecision.RESUME, resolved_token="token", resolved_payload={"go": 1}
    )
    record.done("5", "steer", [resolved]).done("7", "plan", planned(DONE)).arrived("8", Arrivals(controls=(pause,)))
    history = build_history(record.record)
    assert [(one.type, one.before_step, one.error) for one in history.controls] == [
        (ControlType.PAUSE, 1, ""),
        (ControlType.APPROVE, 1, "pause_not_found"),
        (ControlType.RESUME, 1, ""),
        (ControlType.PAUSE, 2, ""),
    ]
    assert (history.controls[0].payload, history.controls[0].scope, history.controls[0].event_id) == (
        {"note": "wait"},
        "admin",
        "event-1",
    )
    (pause_taken,) = history.pauses
    assert (pause_taken.by, pause_taken.decision, pause_taken.answer, pause_taken.resolved_at) == (
        "steering",
        "resume",
        {"go": 1},
        after(4),
    )


def test_background_results_and_code_changes(writing: Any) -> None:
    """Results of tasks that the run did not wait for, and the code changes that it took."""
    ended = BackgroundResult(group_id="g", status="completed", resolved_at=T0)
    history = build_history(writing().arrived("1", Arrivals(background=(ended,))).patched("new-prompt").record)
    assert (history.background, history.patches) == ((ended,), ("new-prompt",))


def test_what_the_model_was_asked_and_cost(writing: Any) -> None:
    """Answers, failures, tokens and money, also of a step that failed."""
    response = CompleteResponse("3", usage=Usage(prompt_tokens=10, completion_tokens=2), cost=Cost(total_cost=0.25))
    received = [
        Exchange(RecordedRequest(4), record_answer(response)),
        Exchange(RecordedRequest(6), failure=failure_of(RateLimitedError("slow"))),
    ]
    record = writing().done("2", "plan", planned(ADD, heard=msgspec.Raw(codec.encode(received))))
    euros = Exchange(RecordedRequest(1), record_answer(CompleteResponse(cost=Cost(total_cost=1.5, currency="EUR"))))
    record.failed("5", "plan", "E", "m", notes=raw([euros]))
    history = build_history(record.record)
    asked = history.steps[0].asked
    assert [(one.messages, one.failure and one.failure.kind) for one in asked] == [(4, None), (6, "RateLimitedError")]
    totals = history.totals
    assert (totals.model_calls, totals.prompt_tokens, totals.completion_tokens) == (3, 10, 2)
    assert totals.cost == {"USD": 0.25, "EUR": 1.5}


def test_a_run_that_began_anew(writing: Any) -> None:
    """Steps of all histories are counted through; positions of one do not meet those of another."""
    record = writing().done("2", "plan", planned(ADD)).begun("3", "tool.add", ADD)
    record.rolled(RunRequest(who=WHO, goal="on")).done("1~2", "plan", planned(ADD)).begun("1~3", "tool.add", ADD)
    record.done("1~3", "tool.add", ToolOutcome(OutcomeStatus.DONE, 1)).done("1~5", "plan", planned(DONE))
    steps = build_history(record.record).steps
    assert [(step.number, step.history, len(step.calls)) for step in steps] == [(1, 0, 1), (2, 1, 1), (3, 1, 0)]
    assert [step.calls[0].status for step in steps[:2]] == [CallStatus.OPEN, CallStatus.DONE]


def test_a_value_of_another_shape_is_named(writing: Any) -> None:
    """A record of other code, or a damaged one, is an error with the place."""
    with pytest.raises(JournalCorruptError, match="run run-1, entry 1: "):
        build_history(writing().done("2", "plan", {"decision": 1}).record)


@pytest.mark.anyio
async def test_a_history_is_json(recorded: Any) -> None:
    """Everything in it, for readers without this package."""

    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    model = ScriptedLLM([calls_tools(("add", {"a": 1, "b": 2})), says("3")])
    plain = codec.decode(build_history(await recorded(model=model, tools=[add])).to_json())
    assert plain["steps"][0]["calls"][0]["args"] == '{"a":1,"b":2}'
    assert plain["steps"][0]["calls"][0]["observation"] == 3
    assert plain["finish"]["payload"] == "3"
    assert plain["totals"] == {"steps": 2, "tool_calls": 1, "model_calls": 2}
