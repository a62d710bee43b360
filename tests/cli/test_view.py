"""Events and records into lines: every kind by enumeration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harborage import events
from harborage.app import ChosenModel
from harborage.artifacts import ArtifactRef, ArtifactScope
from harborage.cli.journal_view import RecordedEntry, View, new_view
from harborage.cli.status import ending_of
from harborage.cli.view import current_activity, render, render_header, render_summary, render_totals
from harborage.events import Event, EventType, Payload, RedactedMap, register_event_type
from harborage.identity import Quadruple
from harborage.planner import (
    CallParallel,
    CallTool,
    Decision,
    Finish,
    FinishReason,
    JoinKind,
    JoinSpec,
    SpawnSpec,
    SpawnTask,
)
from harborage.runtime.durable.journal import (
    Begun,
    Cut,
    Done,
    Ended,
    Entry,
    Failed,
    Joined,
    Started,
    decode_entry,
    encode_entry,
    raw,
)
from harborage.runtime.loop.capabilities import HookAnswer
from harborage.runtime.loop.dispatch import Approval
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome, failed
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.loop.state import Planned
from tests.kit.tables import each_row

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Quadruple("t", "u", "s", "root")
TRANSPORT = "inprocess"


def at(seconds: float = 0.0) -> datetime:
    """A moment of the run."""
    return NOW + timedelta(seconds=seconds)


def event(type: str, payload: Payload | None, run: str = "root", seconds: float = 0.0) -> Event:
    """An event as the bus delivers it."""
    return Event(type, Quadruple("t", "u", "s", run), payload, at(seconds), 1)


def decided(kind: str, run: str = "root", reasoning: str = "", seconds: float = 0.0) -> Event:
    """The planner decided."""
    payload = events.DecisionPayload(identity=WHO, decision_kind=kind, reasoning_trace=reasoning, occurred_at=NOW)
    return event(EventType.PLANNER_DECISION, payload, run, seconds)


def record(entry: Entry, run: str = "root") -> RecordedEntry:
    """An entry the way it comes out of a journal."""
    return RecordedEntry(run, decode_entry(encode_entry(entry), run, 0))


def planned(decision: Decision, run: str = "root", preamble: str = "") -> RecordedEntry:
    """The record of a decision."""
    return record(
        Done(at=NOW, position="1", name="plan", result=raw(Planned(decision=decision, preamble=preamble))), run
    )


def begun(
    tool: str, args: bytes = b"{}", position: str = "2", run: str = "root", seconds: float = 0.0
) -> RecordedEntry:
    """The entry that begins a call."""
    entry = Begun(at=at(seconds), position=position, name=f"tool.{tool}", key="k", payload=raw(CallTool(tool, args)))
    return record(entry, run)


def done(
    tool: str, outcome: ToolOutcome, position: str = "2", run: str = "root", seconds: float = 0.0
) -> RecordedEntry:
    """The entry with the outcome of a call."""
    return record(Done(at=at(seconds), position=position, name=f"tool.{tool}", result=raw(outcome)), run)


def spawned(task: str, parent: str = "root", kind: str = "background") -> Event:
    """A task was spawned; task events carry no run."""
    return event(EventType.TASK_SPAWNED, events.TaskSpawnedPayload(task, kind, parent), run="")


def started(run: str, goal: str = "g", seconds: float = 0.0) -> RecordedEntry:
    """The record that a run begins."""
    request = RunRequest(who=Quadruple("t", "u", "s", run), goal=goal)
    return record(Started(at=at(seconds), request=raw(request)), run)


def lines(view: View, *facts: Any) -> list[str]:
    """All lines that the facts give, as plain text without the space before them."""
    return [line.plain.strip() for fact in facts for line in render(view, fact)]


@pytest.fixture
def view() -> View:
    """The view of a run that has just begun."""
    return new_view("root", NOW)


def test_a_call_is_shown_with_its_arguments_and_its_result(view: View) -> None:
    """A call has its step, its name, its arguments; its end has the time it took and what it gave."""
    facts = [
        decided("CallTool"),
        begun("add", b'{"a":1,"b":"x"}'),
        done("add", ToolOutcome(OutcomeStatus.DONE, 3), seconds=1.5),
    ]
    assert lines(view, *facts) == ['1 ▸ add(a=1, b="x")', "1 ✓ 1.5 s  3"]
    assert view.calls == 1


@each_row("args", [b"", b"nope", b"\xff\xfe", b"[1]", b"null"])
def test_arguments_that_are_no_object_are_shown_too(args: bytes) -> None:
    """Whatever a planner passes as arguments, the call is shown."""
    view = new_view("root", NOW)
    assert lines(view, decided("CallTool"), begun("add", args))[0].startswith("1 ▸ add(")


@each_row(
    "outcome, line",
    [
        (ToolOutcome(OutcomeStatus.DONE, None), "1 ✓ 0 ms"),
        (ToolOutcome(OutcomeStatus.DONE, {"token": "abc", "a": "b"}), '1 ✓ 0 ms  {"token":"***","a":"b"}'),
        (ToolOutcome(OutcomeStatus.DONE, "two\nlines"), "1 ✓ 0 ms  two lines"),
        (
            ToolOutcome(
                OutcomeStatus.DONE, {"tool": "x", "size_bytes": 40_000, "truncated": True, "artifact_ref": "a_1"}
            ),
            "1 ✓ 0 ms  40.0 KB, stored as artifact a_1",
        ),
        (
            ToolOutcome(
                OutcomeStatus.DONE,
                {"id": "a_1", "mime_type": "text/plain", "size_bytes": 12, "filename": "n.md", "sha256": "0"},
            ),
            "1 ✓ 0 ms  artifact n.md (text/plain, 12 B) a_1",
        ),
        (failed('tool "add" invoke: no route'), "1 ✗ 0 ms  add: no route"),
        (failed("no tool"), "1 ✗ 0 ms  add: no tool"),
        (failed("denied", OutcomeStatus.REJECTED), "1 ✗ 0 ms  add: denied"),
        (failed("cancelled: deadline", OutcomeStatus.CANCELLED), "1 ✗ 0 ms  add: cancelled: deadline"),
        (failed("may have acted", OutcomeStatus.UNKNOWN), "1 ✗ 0 ms  add: may have acted"),
    ],
)
def test_every_outcome_has_its_line(outcome: ToolOutcome, line: str) -> None:
    """Each way a call can end is shown in one line, artifacts by name instead of by content."""
    view = new_view("root", NOW)
    assert lines(view, decided("CallTool"), begun("add"), done("add", outcome))[1:] == [line]
    assert view.main.calls == {}


def test_every_outcome_is_covered(view: View) -> None:
    """No status of an outcome is left without a line."""
    for status in OutcomeStatus:
        outcome = ToolOutcome(status, 1) if status is OutcomeStatus.DONE else failed("no", status)
        assert lines(view, begun("add"), done("add", outcome))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (Cut(at=NOW, position="2", name="tool.add", reason="hard_cancel"), "cancelled: hard_cancel"),
        (Failed(at=NOW, position="2", name="tool.add", error="ValueError", message="odd"), "ValueError: odd"),
    ],
)
def test_a_call_that_never_ended_is_shown(view: View, entry: Entry, why: str) -> None:
    """A call that was cut short, or whose step broke, is shown once."""
    assert lines(view, decided("CallTool"), begun("add"), record(entry))[1:] == [f"1 ✗ add: {why}"]
    assert lines(view, record(entry)) == []


def test_branches_are_numbered(view: View) -> None:
    """Calls of one step are announced together, and distinguished by a number behind the step's."""
    decision = CallParallel((CallTool("a"), CallTool("b")))
    facts = [
        decided("CallParallel"),
        planned(decision),
        begun("a", position="3.0.1"),
        begun("b", position="3.1.2"),
        done("b", ToolOutcome(OutcomeStatus.DONE, 2), "3.1.2"),
    ]
    assert lines(view, *facts) == ["1 ▸ 2 calls in parallel", "1.1 ▸ a()", "1.2 ▸ b()", "1.2 ✓ 0 ms  2"]
    assert current_activity(view)[0] == "calling a"


@pytest.mark.parametrize(
    ("join", "text"),
    [
        (JoinSpec(), ""),
        (JoinSpec(JoinKind.FIRST_SUCCESS), ", first success wins"),
        (JoinSpec(JoinKind.KEYED, ("x", "y")), ", merged by x, y"),
        (JoinSpec(JoinKind.N, n=1), ", 1 success needed"),
        (JoinSpec(JoinKind.N, n=2), ", 2 successes needed"),
    ],
)
def test_a_join_is_shown(view: View, join: JoinSpec, text: str) -> None:
    """How branches are joined is said where it matters."""
    decision = CallParallel((CallTool("a"), CallTool("b")), join)
    assert lines(view, decided("CallParallel"), planned(decision)) == [f"1 ▸ 2 calls in parallel{text}"]


def test_branches_that_are_no_longer_needed_are_dropped(view: View) -> None:
    """A branch that the join cancelled is shown as such, and is no longer in flight."""
    facts = [decided("CallParallel"), begun("a", position="3.0.1"), begun("b", position="3.1.1")]
    lines(view, *facts, done("a", ToolOutcome(OutcomeStatus.DONE, 1), "3.0.1"))
    joined = record(Joined(at=NOW, position="3", outcomes=["done", "cancelled"]))
    assert lines(view, joined) == ["1.2 – b cancelled: no longer needed"]
    assert view.main.calls == {}


def test_a_thought_and_a_remark_are_shown(view: View) -> None:
    """What the planner thought and what it said besides its decision stand before the step."""
    facts = [
        decided("CallTool", reasoning="first\nthis"),
        planned(CallTool("add"), preamble="Let me add."),
        begun("add"),
    ]
    assert lines(view, *facts) == ["1 ∴ first this", "1 “ Let me add.", "1 ▸ add()"]


def test_the_answer_is_no_remark(view: View) -> None:
    """What the model says in its last step is the answer, which is written in full at the end, and nowhere else."""
    facts = [
        chunk("It is"),
        chunk(" 4."),
        decided("Finish"),
        planned(Finish(FinishReason.GOAL, "It is 4."), preamble="It is 4."),
    ]
    assert lines(view, *facts) == []


def test_a_remark_stands_before_the_question_that_it_explains(view: View) -> None:
    """What the model said while it was heard stands with its decision, once, even if the record comes later."""
    facts = [chunk("I write"), chunk(" it down."), decided("CallTool")]
    assert lines(view, *facts) == ["1 “ I write it down."]
    assert lines(view, planned(CallTool("write"), preamble="I write it down.")) == []
    assert lines(view, decided("CallTool"), planned(CallTool("read"), preamble="Read.")) == ["2 “ Read."]


def test_a_remark_that_was_taken_back_is_not_written(view: View) -> None:
    """What was streamed before an answer started again is no remark."""
    assert lines(view, chunk("Hm"), chunk("", kind="reset"), chunk("So"), decided("CallTool")) == ["1 “ So"]


def test_a_call_that_no_gate_let_through_is_shown_once(view: View) -> None:
    """A refusal is shown by its event; one without a question is shown from the record."""

    def refused(tool: str, why: str) -> RecordedEntry:
        entry = Done(at=NOW, position="2", name=f"approve.{tool}", result=raw(Approval(refusal=why)))
        return record(entry)

    asked = events.ToolRejectedPayload(tool="write", pause_token="t", reason="no")
    assert lines(view, event(EventType.TOOL_REJECTED, asked), refused("write", "rejected: no")) == [
        "0 ✗ write rejected: no"
    ]
    assert lines(view, refused("write", "no `path`")) == ["0 ✗ write: no `path`"]
    assert lines(view, record(Done(at=NOW, position="3", name="approve.write", result=raw(Approval(args=b"{}"))))) == []


@each_row(
    "name, said, shown",
    [
        (
            "hook.before_tool.write",
            HookAnswer(refusal="the call was denied: no"),
            ["0 ✗ write: the call was denied: no"],
        ),
        ("hook.before_tool.write", HookAnswer(advice="read first"), ["0 ✗ write: read first"]),
        ("hook.before_tool.write", HookAnswer(value={"a": 1}, confirm="sure?"), []),
        ("confirm.write", Approval(refusal="rejected: no"), ["0 ✗ write: rejected: no"]),
        ("confirm.write", Approval(args=b"{}"), []),
        ("hook.after_tool.write", HookAnswer(refusal="withheld"), []),
        ("hook.before_finish", HookAnswer(advice="say please"), ["0 ↺ sent back: say please"]),
        ("hook.before_finish", HookAnswer(), []),
        ("hook.after_run", HookAnswer(), []),
    ],
)
def test_what_hooks_decide_is_shown_from_the_record(name: str, said: Any, shown: list[str]) -> None:
    """A call that they refuse, and an answer that they send back."""
    assert lines(new_view("root"), record(Done(at=NOW, position="2", name=name, result=raw(said)))) == shown


def test_a_decision_that_is_recorded_late_is_not_shown_twice(view: View) -> None:
    """A record that comes when the run has gone on adds nothing."""
    assert lines(view, decided("AwaitTask"), decided("CallTool")) == ["1 … waits for a task"]
    assert lines(view, planned(CallTool("x"), preamble="old"), planned(CallTool("y"), preamble="new")) == ["2 “ new"]
    assert view.main.step == 2


def test_a_lost_event_does_not_upset_the_count(view: View) -> None:
    """When a decision's event was lost its record still counts."""
    lines(view, planned(CallTool("a")), begun("a"))
    assert lines(view, decided("CallTool"), planned(CallTool("b")), begun("b"))[-1].startswith("2 ▸ b()")


def test_a_task_is_followed_from_spawn_to_end(view: View) -> None:
    """A spawned task gets a name, its lines stand behind it, and its end is shown with its answer."""
    spawn = SpawnTask(spec=SpawnSpec(query="check the links", description="links"))
    handle = {"task_id": "c", "kind": "background", "status": "spawned"}
    assert lines(
        view,
        decided("SpawnTask"),
        planned(spawn),
        spawned("c"),
        record(Done(at=NOW, position="2", name="task.spawn", result=raw(handle))),
        started("c", "check the links", 1),
        decided("CallTool", "c"),
        begun("look", run="c"),
    ) == ["1 ◆ t1 background: links", "│ t1     1 ▸ look()"]
    assert lines(view, decided("AwaitTask")) == ["2 … waits for t1"]
    assert current_activity(view)[0] == "waiting for t1"
    ended = Ended(at=at(3), finish=raw(Finish(FinishReason.GOAL, "all fine")))
    assert lines(view, record(ended, "c"), record(ended, "c")) == ["✓ t1 done 2.0 s: all fine"]


def test_a_task_whose_spawning_was_not_seen_is_named_by_its_goal(view: View) -> None:
    """A task that only shows up when it starts is announced then."""
    assert lines(view, spawned("c"), started("c", "look around")) == ["◆ t1 background: look around"]
    assert lines(view, started("d", "more")) == ["◆ t2 task: more"]


@each_row(
    "ended, line",
    [
        (Ended(at=at(1), finish=raw(Finish(FinishReason.GOAL))), "✓ t1 done 1.0 s"),
        (Ended(at=at(1), finish=raw(Finish(FinishReason.NO_PATH))), "✗ t1 the planner found no way to the goal 1.0 s"),
        (Ended(at=at(1), error="ValueError", message="odd"), "✗ t1 failed 1.0 s: ValueError: odd"),
    ],
)
def test_a_tasks_end_says_how(ended: Ended, line: str) -> None:
    """A task that ended otherwise than by its goal says why."""
    view = new_view("root", NOW)
    assert lines(view, started("c"), record(ended, "c"))[1:] == [line]


def test_a_task_has_ended_before_who_waited_for_it_goes_on(view: View) -> None:
    """Its line stands where its end was noted, which comes before its last entry, and only there."""
    goal, no_path = Finish(FinishReason.GOAL, "all fine"), Finish(FinishReason.NO_PATH)
    ends = Done(at=at(3), position="9", name="task.end", result=raw([]))
    fails = Done(at=at(3), position="9", name="task.fail", result=raw(None))
    failed = record(Failed(at=at(2), position="8", name="plan", error="PlannerStepError", message="odd"), "d")
    lines(view, started("c", "links", 1), started("d", "prices", 1), started("e", "stock", 1))
    assert lines(view, planned(goal, run="c"), record(ends, "c"), begun("look")) == [
        "✓ t1 done 2.0 s: all fine",
        "0 ▸ look()",
    ]
    assert lines(view, failed, record(fails, "d")) == ["✗ t2 failed 2.0 s: PlannerStepError: odd"]
    assert lines(view, planned(no_path, run="e"), record(ends, "e")) == [
        "✗ t3 the planner found no way to the goal 2.0 s"
    ]
    last = [
        record(Ended(at=at(4), finish=raw(goal)), "c"),
        record(Ended(at=at(4), error="PlannerStepError", message="odd"), "d"),
        record(Ended(at=at(4), finish=raw(no_path)), "e"),
    ]
    assert lines(view, *last) == []


def test_a_failed_spawn_is_shown(view: View) -> None:
    """A task that could not be spawned leaves a line."""
    refused = record(Done(at=NOW, position="2", name="task.spawn", result=raw({"error": "too deep"})))
    assert lines(view, decided("SpawnTask"), refused) == ["1 ✗ no task: too deep"]


def test_a_task_that_begins_before_its_spawning_is_recorded_is_announced_once(view: View) -> None:
    """Whichever comes first announces it, in the place of the step that spawned it."""
    handle = record(Done(at=NOW, position="2", name="task.spawn", result=raw({"task_id": "c", "kind": "background"})))
    assert lines(view, decided("SpawnTask"), spawned("c"), started("c", "q"), handle) == ["1 ◆ t1 background: q"]


def test_an_existing_task_is_shown(view: View) -> None:
    """The same spawn twice gives the same task, which is said."""
    handle = record(Done(at=NOW, position="2", name="task.spawn", result=raw({"task_id": "c", "kind": "background"})))
    planned_spawn = planned(SpawnTask(spec=SpawnSpec(query="q")))
    assert lines(view, decided("SpawnTask"), planned_spawn, handle, handle) == [
        "1 ◆ t1 background: q",
        "1 ◆ t1 exists already",
    ]


def test_a_run_that_awaits_one_of_several_says_which_it_may_be(view: View) -> None:
    """The event does not name the task; those that still run are named."""
    lines(view, spawned("c"), spawned("d"), spawned("e", parent="c"))
    assert lines(view, decided("AwaitTask")) == ["1 … waits for one of t1, t2"]
    lines(view, event(EventType.TASK_COMPLETED, events.TaskCompletedPayload("c"), run=""))
    assert lines(view, decided("AwaitTask")) == ["2 … waits for t2"]


def call_event(kind: type[Any], **fields: Any) -> Payload:
    """The payload of an event about a tool call."""
    made: Payload = kind(identity=WHO, tool_name="add", transport=TRANSPORT, **fields)
    return made


LINES: list[tuple[EventType, Payload, list[str]]] = [
    (EventType.TOOL_COMPLETED, call_event(events.ToolCompletedPayload, attempts=1, duration_ms=1), []),
    (
        EventType.TOOL_COMPLETED,
        call_event(events.ToolCompletedPayload, attempts=3, duration_ms=1),
        ["↻ add took 3 attempts"],
    ),
    (
        EventType.TOOL_POLICY_EXHAUSTED,
        call_event(events.ToolPolicyExhaustedPayload, attempts=2, last_class="transient"),
        ["↻ add failed after 2 attempts"],
    ),
    (EventType.TOOL_APPROVED, events.ToolApprovedPayload("add", "t"), ["0 ✓ add approved"]),
    (EventType.TOOL_APPROVED, events.ToolApprovedPayload("add", "t", "fine"), ["0 ✓ add approved: fine"]),
    (EventType.TOOL_REJECTED, events.ToolRejectedPayload("add", "t"), ["0 ✗ add rejected"]),
    (EventType.TOOL_REJECTED, events.ToolRejectedPayload("add", "t", "no"), ["0 ✗ add rejected: no"]),
    (EventType.CONTROL_RECEIVED, events.ControlLifecyclePayload("CANCEL", "received"), []),
    (EventType.CONTROL_APPLIED, events.ControlLifecyclePayload("REDIRECT", "applied"), ["» goal changed"]),
    (EventType.CONTROL_APPLIED, events.ControlLifecyclePayload("APPROVE", "applied"), []),
    (
        EventType.CONTROL_APPLIED,
        events.ControlLifecyclePayload("RESUME", "failed", "no_outstanding_pause"),
        ["» resume failed: no_outstanding_pause"],
    ),
    (
        EventType.CONTROL_REJECTED,
        events.ControlRejectedPayload("CANCEL", "run_ended"),
        ["» cancel rejected: run_ended"],
    ),
    (EventType.TASK_PRIORITISED, events.TaskPrioritisedPayload("root", 0, 5), ["» priority 0 → 5"]),
    (EventType.BUS_DROPPED, events.BusDroppedPayload(1, 9, 3, 1), ["! 3 events came too fast to be shown"]),
    (EventType.RUNTIME_WARNING, RedactedMap({"message": "careful"}), ["! careful"]),
    (EventType.RUNTIME_ERROR, RedactedMap({"message": "broken"}), ["! broken"]),
    (
        EventType.PLANNER_ERROR,
        events.PlannerErrorPayload(identity=WHO, error_code="ValueError", error_message="odd", occurred_at=NOW),
        ["1 ✗ the planner failed: ValueError"],
    ),
    (
        EventType.PLANNER_MAX_STEPS_EXCEEDED,
        events.MaxStepsExceededPayload(identity=WHO, max_steps=4, steps_observed=4, occurred_at=NOW),
        ["! the planner's own limit of 4 steps is reached"],
    ),
    (
        EventType.PLANNER_REPAIR_GUIDANCE_INJECTED,
        events.RepairGuidanceInjectedPayload(identity=WHO, tier="1", counter="args", count=2, occurred_at=NOW),
        ["↻ invalid answer; asking the model again (args, 2)"],
    ),
    (
        EventType.PLANNER_REPAIR_EXHAUSTED,
        events.RepairExhaustedPayload(
            identity=WHO, attempts=3, consecutive_arg_failures=3, reasons=("a", "b"), occurred_at=NOW
        ),
        ["! the model's answers could not be repaired: b"],
    ),
    (
        EventType.TRAJECTORY_COMPRESSED,
        events.TrajectoryCompressedPayload(
            identity=WHO, steps_before=9, steps_after=1, token_estimate=1234, occurred_at=NOW
        ),
        ["· history of 9 steps summarised (about 1,234 tokens)"],
    ),
    (
        EventType.TRAJECTORY_COMPRESSION_FAILED,
        events.TrajectoryCompressionFailedPayload(
            identity=WHO,
            steps_observed=9,
            token_estimate=1,
            error_code="empty_summary",
            error_message="nothing",
            occurred_at=NOW,
        ),
        ["! history not summarised: empty_summary: nothing"],
    ),
    (
        EventType.LLM_RETRY_WITH_FEEDBACK,
        events.LLMRetryWithFeedbackPayload(
            identity=WHO, model="m", attempt=1, max_retries=3, reason="no JSON", occurred_at=NOW
        ),
        ["↻ model asked again (1 of 3): no JSON"],
    ),
    (
        EventType.LLM_CONTEXT_WINDOW_EXCEEDED,
        events.LLMContextWindowExceededPayload(
            identity=WHO,
            model="m",
            estimated_tokens=2,
            context_window_tokens=1,
            context_window_reserve=0.1,
            occurred_at=NOW,
        ),
        ["! llm: context window exceeded"],
    ),
    *(
        (EventType.TOOL_INTERRUPTED, events.ToolInterruptedPayload(WHO, "pay", "inprocess", policy, outcome), text)
        for policy, outcome, text in (
            ("retry", "repeated", ["0 ↻ pay was interrupted; calling it again"]),
            ("pause", "repeated", ["0 ↻ pay was interrupted; calling it again, says a person"]),
            ("probe", "known", ["0 ↻ pay was interrupted and had acted, says its probe"]),
            ("report", "unknown", []),  # which is shown with the record of the call
        )
    ),
]


@each_row("type, payload, text", LINES)
def test_events_have_their_lines(type: EventType, payload: Payload, text: list[str]) -> None:
    """What a person should know of an event is one line; what they need not know is none."""
    view = new_view("root", NOW)
    assert lines(view, event(type, payload)) == text


@each_row("type", EventType)
def test_no_event_is_too_much(type: EventType) -> None:
    """Every event type is either shown or left out on purpose, never shown raw."""
    view = new_view("root", NOW)
    known = {kind for kind, _, _ in LINES}
    if type not in known and type not in HANDLED:
        assert lines(view, event(type, RedactedMap({"secret": "x"}))) == []


HANDLED = {
    EventType.PLANNER_DECISION,
    EventType.PAUSE_REQUESTED,
    EventType.PAUSE_RESUMED,
    EventType.TASK_SPAWNED,
    EventType.TASK_COMPLETED,
    EventType.TASK_FAILED,
    EventType.TASK_CANCELLED,
    EventType.LLM_COMPLETION_CHUNK,
    EventType.LLM_COST_RECORDED,
    EventType.GOVERNANCE_BUDGET_EXCEEDED,
    EventType.GOVERNANCE_MAXTOKENS_EXCEEDED,
    EventType.GOVERNANCE_RATE_LIMITED,
}


def test_events_of_a_product_speak_for_themselves(view: View) -> None:
    """An event of a name that is not built in is shown by its name and what it holds."""
    register_event_type("order.shipped")
    assert lines(view, event("order.shipped", RedactedMap({"order": 7}))) == ['· order.shipped {"order":7}']


def paused(reason: str) -> Event:
    """The run waits."""
    return event(EventType.PAUSE_REQUESTED, events.PauseRequestedPayload("t", reason))


def test_a_pause_in_the_middle_of_a_call_is_shown_by_its_question(view: View) -> None:
    """It asks for the outcome of an interrupted call; the run is not parked."""
    lines(view, planned(CallTool("pay")), begun("pay"))
    assert lines(view, paused("await_input")) == []
    assert view.main.pause_reason == ""


def resumed(decision: str) -> Event:
    """It was decided."""
    return event(EventType.PAUSE_RESUMED, events.PauseResumedPayload("t", "await_input", decision))


@each_row(
    "decision, line",
    [
        ("approve", "1 ▸ resumed"),
        ("resume", "1 ▸ resumed"),
        ("reject", "1 ✗ not resumed: rejected"),
        ("timeout", "1 ✗ not resumed: not answered in time"),
    ],
)
def test_a_pause_and_its_end_are_shown(decision: str, line: str) -> None:
    """A run that waits says for what, and how that ended."""
    view = new_view("root", NOW)
    assert lines(view, decided("RequestPause"), paused("external_event")) == ["1 ‖ waits: external_event"]
    assert current_activity(view)[0] == "paused"
    assert lines(view, resumed(decision)) == [line]
    assert current_activity(view)[0] == "thinking"


def test_a_parked_run_is_shown(view: View) -> None:
    """A run that a control parked is not said to wait for anything."""
    assert lines(view, decided("CallTool"), paused("await_input")) == ["1 ‖ paused"]


def test_the_pause_of_a_gated_call_is_shown_by_its_gate(view: View) -> None:
    """A pause that belongs to an approval gate gives no line of its own, neither when it opens nor when it ends."""
    assert lines(view, decided("CallTool"), paused("approval_required"), resumed("approve")) == []
    assert current_activity(view)[0] == "thinking"


def test_what_the_run_does_is_known(view: View) -> None:
    """The status is what the run does now, and since when."""
    assert current_activity(view) == ("thinking", NOW)
    lines(view, decided("CallTool", seconds=1), begun("add", seconds=2))
    assert current_activity(view) == ("calling add", at(2))
    lines(view, done("add", ToolOutcome(OutcomeStatus.DONE, 1), seconds=3))
    assert current_activity(view) == ("thinking", at(3))
    lines(view, decided("Finish", seconds=4))
    assert current_activity(view) == ("finishing", at(4))


def chunk(delta: str, run: str = "root", *, done: bool = False, kind: str = "content") -> Event:
    """A piece of what a model writes."""
    payload = events.LLMCompletionChunkPayload(identity=WHO, delta=delta, done=done, kind=kind, occurred_at=NOW)
    return event(EventType.LLM_COMPLETION_CHUNK, payload, run)


def test_a_streamed_answer_is_kept_by_its_tail(view: View) -> None:
    """While a model writes, the end of what it wrote is there to be shown, for the run itself alone."""

    assert lines(view, chunk("a" * 5000), chunk("end"), chunk("other", "c")) == []
    assert view.streaming.endswith("aend")
    assert len(view.streaming) <= 2000
    lines(view, chunk("", done=True))
    assert view.streaming == ""


def test_thinking_is_kept_apart_and_a_reset_forgets_both(view: View) -> None:
    """What the model thinks is no part of its answer, and an answer that starts again leaves nothing behind."""
    assert lines(view, chunk("hm", kind="reasoning"), chunk("So", kind="content")) == []
    assert (view.thinking, view.streaming) == ("hm", "So")
    assert lines(view, chunk("", kind="reset")) == []
    assert (view.thinking, view.streaming) == ("", "")
    lines(view, chunk("hm", kind="reasoning"), chunk("", kind="reasoning", done=True))
    assert view.thinking == ""


def test_costs_add_up(view: View) -> None:
    """Tokens and costs of every model call are in the totals."""
    payload = events.LLMCostRecordedPayload(
        identity=WHO,
        model="m",
        cost=events.LLMCost(total_cost=0.01),
        usage=events.LLMUsage(prompt_tokens=900, completion_tokens=100),
        occurred_at=NOW,
    )
    lines(
        view,
        decided("CallTool"),
        event(EventType.LLM_COST_RECORDED, payload),
        event(EventType.LLM_COST_RECORDED, payload),
    )
    assert render_totals(view, 61) == "1 step · 0 calls · 1 m 1 s · 2,000 tokens · $0.02"


def test_the_header_names_everything() -> None:
    """Above a run stand the agent, the goal, the run and whose it is."""
    text = "\n".join(line.plain for line in render_header("notes", "Draft\nthem", Quadruple("t", "ana", "s", "run-1")))
    for part in ("notes", "goal   Draft them", "run    run-1 for ana"):
        assert part in text


def test_the_header_names_the_model_and_the_files() -> None:
    """It says which model decides, why it is that one, and what was attached."""
    chosen = ChosenModel("ollama:qwen3", "Ollama answers at http://127.0.0.1:11434")
    text = "\n".join(line.plain for line in render_header("a", "g", WHO, chosen, [ref("plan.md")]))
    assert "model  ollama:qwen3 (Ollama answers at http://127.0.0.1:11434)" in text
    assert "file   plan.md text/plain, 12 B" in text


def ref(name: str) -> ArtifactRef:
    """A kept artifact."""
    return ArtifactRef("a_1", "text/plain", 12, name, "0" * 64, ArtifactScope("t", "u", "s"), "default")


def test_the_summary_of_a_run(view: View) -> None:
    """Below a run stand tasks that were left, what was kept and where, how it ended, and the effort."""
    lines(view, started("c"), started("d"), event(EventType.TASK_FAILED, events.TaskFailedPayload("d", "x"), run=""))
    ending = ending_of(Finish(FinishReason.NO_PATH))
    text = [line.plain.strip() for line in render_summary(view, ending, 2, [ref("n.md"), ref("")], is_kept=False)]
    assert text == [
        "",
        "◆ t1 was still running; it stopped with this process",
        "◆ t2 failed",
        "+ n.md text/plain, 12 B, a_1, in memory only",
        "+ a_1 text/plain, 12 B, a_1, in memory only",
        "✗ no path · 0 steps · 0 calls · 2 children · 2.0 s",
    ]
    assert render_summary(view, ending_of(Finish(FinishReason.GOAL)), 2, [], is_kept=True)[-1].plain.startswith(
        "✓ complete"
    )


def test_lines_are_cut_rather_than_wrapped(view: View) -> None:
    """A call or a result stays on one line of the screen; the reason of a failure is shown whole."""
    call, result = (render(view, fact)[0] for fact in (begun("add"), done("add", ToolOutcome(OutcomeStatus.DONE, 1))))
    assert call.no_wrap
    assert result.no_wrap
    render(view, begun("add"))
    assert not render(view, done("add", failed("why")))[0].no_wrap


def test_a_result_cannot_drive_the_terminal(view: View) -> None:
    """Control characters from a tool, a model or a planner are spelled out."""
    evil = "\x1b[2J\x07"
    facts = [
        decided("CallTool", reasoning=evil),
        planned(CallTool("x"), preamble=evil),
        begun(evil, b'{"a":"\\u001b[2J"}'),
        done("add", ToolOutcome(OutcomeStatus.DONE, evil)),
        started("c", evil),
        event(EventType.CONTROL_REJECTED, events.ControlRejectedPayload(evil, evil)),
        event(EventType.TOOL_REJECTED, events.ToolRejectedPayload(evil, "t", evil)),
    ]
    assert not any("\x1b" in line or "\x07" in line for line in lines(view, *facts))
