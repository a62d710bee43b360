"""What controls, answers and observations make of a run's state, one combination at a time."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.identity import Quadruple
from harborage.planner import (
    UNSET_TIME,
    BackgroundResult,
    CallTool,
    ControlSignals,
    FinishReason,
    PauseReason,
    ResumeHint,
    Step,
    ToolCallDeferred,
    Trajectory,
    TrajectorySummary,
)
from harborage.runtime.loop.apply import (
    Observed,
    apply_arrivals,
    apply_controls,
    apply_plan,
    apply_wake,
    park,
    remember,
)
from harborage.runtime.loop.arrivals import Arrivals, Woken
from harborage.runtime.loop.state import Cancelling, OpenPause, Planned, RunState, Steered
from harborage.runtime.pauses import PauseDecision
from harborage.runtime.steering import ControlEvent, ControlType, Scope
from tests.kit.tables import each_row

AT = datetime(2026, 1, 1, tzinfo=UTC)
RUN = Quadruple("t", "u", "s", "r")
PAUSE = OpenPause("p", PauseReason.AWAIT_INPUT)
CALL = CallTool("x")
PAYLOADS: tuple[dict[str, Any] | None, ...] = (
    None,
    {},
    {"message": "hi"},
    {"message": ""},
    {"message": 3},
    {"goal": "new"},
    {"goal": ""},
    {"goal": 3},
    {"hard": True},
    {"hard": "true"},
    {"priority": 3},
)


def state(**fields: Any) -> RunState:
    return RunState(**{"who": RUN, "goal": "old", "trajectory": Trajectory(), **fields})


def control(type: ControlType, payload: dict[str, Any] | None = None) -> ControlEvent:
    return ControlEvent(type, RUN, Scope.ADMIN, "t", payload)


def seen(run: RunState) -> dict[str, Any]:
    """All of a state that a control could change."""
    return {
        "goal": run.goal,
        "signals": run.signals,
        "cancelling": run.cancelling,
        "pause": run.pause,
        "finish": run.finish,
        "notes": [(one.kind, one.payload, one.at_step) for one in run.trajectory.steering_inputs],
        "hint": run.trajectory.resume_hint,
    }


def changes(type: ControlType, payload: dict[str, Any] | None) -> dict[str, Any]:
    """What the control does to a fresh run, by the rules."""
    given = payload or {}
    match type:
        case "INJECT_CONTEXT" if payload is not None:
            return {
                "signals": ControlSignals(injected_context=(payload,)),
                "notes": [("inject_context", payload, 0)],
            }
        case "USER_MESSAGE" if isinstance(given.get("message"), str):
            return {
                "signals": ControlSignals(user_messages=(given["message"],)),
                "notes": [("user_message", payload, 0)],
            }
        case "REDIRECT" if isinstance(given.get("goal"), str) and given["goal"]:
            goal = given["goal"]
            return {"goal": goal, "signals": ControlSignals(redirect_goal=goal), "notes": [("redirect", payload, 0)]}
        case "PAUSE":
            return {"signals": ControlSignals(pause_requested=True)}
        case "CANCEL":
            hard = given.get("hard") is True
            return {
                "signals": ControlSignals(cancelled=True),
                "cancelling": Cancelling.HARD if hard else Cancelling.ASKED,
            }
        case _:
            return {}


@each_row("payload", PAYLOADS, ids=str)
@each_row("type", ControlType)
def test_every_control_with_every_payload_changes_what_it_may(
    type: ControlType, payload: dict[str, Any] | None
) -> None:
    """Nothing else moves; a payload that makes no sense changes nothing; a control that failed changes nothing."""
    one = control(type, payload)
    before = seen(state())
    assert seen(apply_controls(state(), [Steered(control=one)])) == {**before, **changes(type, payload)}
    assert seen(apply_controls(state(), [Steered(control=one, error="apply_failed")])) == before


@each_row(
    "before, hard, after",
    [
        ("no", False, "asked"),
        ("asked", False, "asked"),
        ("told", False, "told"),
        ("hard", False, "hard"),
        ("no", True, "hard"),
        ("asked", True, "hard"),
        ("told", True, "hard"),
        ("hard", True, "hard"),
    ],
)
def test_a_cancel_only_ever_gets_harder(before: str, hard: bool, after: str) -> None:
    """A second soft one does not give the planner another call."""
    run = state(cancelling=Cancelling(before))
    apply_controls(run, [Steered(control=control(ControlType.CANCEL, {"hard": hard}))])
    assert run.cancelling == after
    assert run.signals.cancelled


def test_controls_of_one_batch_add_up_in_order() -> None:
    """Lists grow in arrival order, the last goal wins, and every one that counts is noted at its step."""
    run = state(trajectory=Trajectory(steps=[Step(action=CALL)]))
    apply_controls(
        run,
        [
            Steered(control=control(ControlType.USER_MESSAGE, {"message": "a"})),
            Steered(control=control(ControlType.REDIRECT, {"goal": "one"})),
            Steered(control=control(ControlType.USER_MESSAGE, {"message": "lost"}), error="x"),
            Steered(control=control(ControlType.INJECT_CONTEXT, {"k": 1})),
            Steered(control=control(ControlType.REDIRECT, {"goal": "two"})),
            Steered(control=control(ControlType.USER_MESSAGE, {"message": "b"})),
        ],
    )
    assert run.signals == ControlSignals(user_messages=("a", "b"), injected_context=({"k": 1},), redirect_goal="two")
    assert run.goal == "two"
    notes = run.trajectory.steering_inputs
    assert [one.kind for one in notes] == ["user_message", "redirect", "inject_context", "redirect", "user_message"]
    assert {one.at_step for one in notes} == {1}


@each_row("decision, payload, at", list(product(PauseDecision, (None, {"a": 1}, {"decision": "mine"}), (None, AT))))
@each_row("by", ["control", "coordinator"])
def test_a_resolved_pause_goes_on_or_ends_the_run(
    decision: PauseDecision, payload: dict[str, Any] | None, at: datetime | None, by: str
) -> None:
    """Approved and resumed: the planner gets a hint with the answer. Rejected and timed out: a finish that says so."""
    run = state(pause=PAUSE)
    if by == "control":
        outcome = Steered(
            control=control(ControlType.RESUME),
            resolved=decision,
            resolved_token="p",
            resolved_payload=payload,
            resolved_at=at,
        )
        apply_controls(run, [outcome])
    else:
        apply_wake(run, Woken(decision, payload, at))
    assert run.pause is None
    if decision in ("approve", "resume"):
        hint = ResumeHint(
            pause_token="p", resumed_at=at or UNSET_TIME, resume_payload={**(payload or {}), "decision": str(decision)}
        )
        assert (run.trajectory.resume_hint, run.finish) == (hint, None)
        (note,) = run.trajectory.steering_inputs
        assert (note.kind, note.payload, note.at_step) == ("resumed", hint.resume_payload, 0)
        return
    assert run.trajectory.resume_hint is None
    assert run.finish is not None
    want = {
        "reject": (FinishReason.CONSTRAINTS_CONFLICT, {"rejected_by": "steering", "steering_reason": "control_reject"}),
        "timeout": (FinishReason.DEADLINE_EXCEEDED, {"pause_token": "p", "steering_reason": "pause_timeout"}),
    }
    assert (run.finish.reason, run.finish.metadata) == (want[decision][0], {"run_id": "r", **want[decision][1]})


def test_a_pause_that_a_control_opened_parks_the_run() -> None:
    """One that the next control of the batch resolves does not."""
    run = state()
    opened = Steered(control=control(ControlType.PAUSE), opened=PAUSE)
    apply_controls(run, [opened])
    assert run.pause == PAUSE
    resolved = Steered(control=control(ControlType.RESUME), resolved=PauseDecision.RESUME, resolved_token="p")
    run = apply_controls(state(), [opened, resolved])
    assert run.pause is None
    assert run.trajectory.resume_hint is not None


def test_a_planner_may_park_the_run() -> None:
    """The pause that was opened for it is the run's."""
    assert park(state(), PAUSE).pause == PAUSE


@each_row("is_past", [False, True])
@each_row("was_past", [False, True])
def test_a_deadline_that_passed_stays_passed(was_past: bool, is_past: bool) -> None:
    """Whether a boundary or a wake-up said so."""
    for change in (
        lambda run: apply_arrivals(run, Arrivals(is_past_deadline=is_past)),
        lambda run: apply_wake(run, Woken(is_past_deadline=is_past)),
    ):
        assert change(state(is_past_deadline=was_past)).is_past_deadline == (was_past or is_past)


def test_waking_for_a_control_changes_nothing() -> None:
    """The run stays parked; the control is taken at the next boundary."""
    run = apply_wake(state(pause=PAUSE), Woken(at=AT))
    assert seen(run) == {**seen(state()), "pause": PAUSE}


def test_waking_without_a_pause_changes_nothing() -> None:
    """A decision without an open pause changes nothing."""
    assert seen(apply_wake(state(), Woken(PauseDecision.REJECT, None, AT))) == seen(state())


def test_background_results_are_kept_by_group() -> None:
    """A later result of the same group takes the place of the earlier one."""
    first, second = (BackgroundResult(group_id="g", status=one, resolved_at=AT) for one in ("completed", "cancelled"))
    run = apply_arrivals(state(), Arrivals(background=(first,)))
    assert apply_arrivals(run, Arrivals(background=(second,))).trajectory.background == {"g": second}


@each_row("before, after", [("no", "no"), ("asked", "told"), ("told", "told"), ("hard", "hard")])
def test_a_soft_cancel_gets_one_call(before: str, after: str) -> None:
    """Once the planner has answered it has seen the cancel."""
    assert apply_plan(state(cancelling=Cancelling(before)), Planned(decision=CALL)).cancelling == after


@each_row("signals", [ControlSignals(), ControlSignals(cancelled=True, user_messages=("a",))])
@each_row("hint", [None, ResumeHint(pause_token="p")])
def test_messages_to_the_planner_are_delivered_once(signals: ControlSignals, hint: ResumeHint | None) -> None:
    """Signals and the answer to a pause are gone after its call, together or alone; the call is counted."""
    run = state(signals=signals, trajectory=Trajectory(resume_hint=hint))
    apply_plan(run, Planned(decision=CALL))
    assert (run.signals, run.trajectory.resume_hint, run.steps) == (ControlSignals(), None, 1)


DEFERRED = (ToolCallDeferred(name="x"),)


@each_row("answered, kept", [(None, DEFERRED), ((), ()), (DEFERRED * 2, DEFERRED * 2)], ids=["silent", "empty", "new"])
def test_the_queue_of_calls_changes_only_when_the_planner_says_so(answered: Any, kept: Any) -> None:
    """An empty list counts; silence does not."""
    assert apply_plan(state(pending=DEFERRED), Planned(decision=CALL, pending=answered)).pending == kept


def test_a_summary_stands_for_the_steps_so_far() -> None:
    """Without one nothing is summarised."""
    summary = TrajectorySummary(note="n")
    run = state(trajectory=Trajectory(steps=[Step(action=CALL)] * 3))
    assert apply_plan(run, Planned(decision=CALL)).trajectory.summary is None
    apply_plan(run, Planned(decision=CALL, summary=summary))
    assert (run.trajectory.summary, run.trajectory.steps_summarised) == (summary, 3)


@pytest.mark.parametrize("started_at", [None, AT])
def test_a_step_remembers_all_of_it(started_at: datetime | None) -> None:
    """Decision, both observations, notes, time and duration."""
    planned = Planned(decision=CALL, reasoning="why", preamble="so", started_at=started_at, latency_ms=7)
    run = remember(state(), planned, Observed({"raw": 1}, {"short": 1}))
    assert run.trajectory.steps == [
        Step(
            action=CALL,
            observation={"raw": 1},
            llm_observation={"short": 1},
            reasoning_trace="why",
            assistant_preamble="so",
            started_at=started_at or UNSET_TIME,
            latency_ms=7,
        )
    ]


outcomes = st.builds(
    lambda kind, payload, error: Steered(control=control(kind, payload), error=error),
    st.sampled_from(list(ControlType)),
    st.sampled_from(PAYLOADS),
    st.sampled_from(["", "", "apply_failed"]),
)


@given(st.lists(outcomes, max_size=12), st.integers(0, 12))
def test_it_does_not_matter_how_controls_fall_into_batches(batch: list[Steered], cut: int) -> None:
    """One batch, or the same controls in two: the same state."""
    whole = apply_controls(state(), batch)
    parts = apply_controls(apply_controls(state(), batch[:cut]), batch[cut:])
    assert seen(whole) == seen(parts)
