"""May the run take a step? Every combination of what the answer depends on."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from itertools import product

import pytest

from harborage.identity import Quadruple
from harborage.planner import Finish, FinishReason, PauseReason, Trajectory
from harborage.runtime.loop.apply import GO, Stop, gate, steering_finish
from harborage.runtime.loop.arrivals import Hold
from harborage.runtime.loop.state import Cancelling, OpenPause, RunState
from harborage.runtime.steering import MaxStepsExceededError
from tests.kit.tables import each_row

AT = datetime(2026, 1, 1, tzinfo=UTC)
RUN = Quadruple("t", "u", "s", "r")
OWN = Finish(FinishReason.NO_PATH, metadata={"by": "planner"})
FINISHES = (None, OWN)
PAUSES = (None, OpenPause("p", PauseReason.AWAIT_INPUT), OpenPause("p", PauseReason.EXTERNAL_EVENT, AT))
STEPS = (0, 2, 3, 4)
EVERY = list(product(FINISHES, Cancelling, (False, True), PAUSES, STEPS))


def state(
    finish: Finish | None = None,
    cancelling: Cancelling = Cancelling.NO,
    is_past_deadline: bool = False,
    pause: OpenPause | None = None,
    steps: int = 0,
) -> RunState:
    return RunState(
        who=RUN,
        goal="g",
        trajectory=Trajectory(),
        max_steps=3,
        finish=finish,
        cancelling=cancelling,
        is_past_deadline=is_past_deadline,
        pause=pause,
        steps=steps,
    )


def stopped(reason: FinishReason, why: str) -> Stop:
    return Stop(Finish(reason, metadata={"run_id": "r", "steering_reason": why}))


def wanted(
    finish: Finish | None, cancelling: Cancelling, is_past_deadline: bool, pause: OpenPause | None, steps: int
) -> object:
    """The rule as a table, in order of rank: the first line that holds decides."""
    table = [
        (finish is not None, Stop(OWN)),
        (cancelling == "hard", stopped(FinishReason.CANCELLED, "hard_cancel")),
        (is_past_deadline, stopped(FinishReason.DEADLINE_EXCEEDED, "deadline")),
        (pause is not None and cancelling != "no", stopped(FinishReason.CANCELLED, "cancel_while_paused")),
        (pause is not None, Hold("p", None if pause is None else pause.deadline)),
        (cancelling == "told", stopped(FinishReason.CANCELLED, "cancel_ignored")),
        (steps >= 3, "no steps left"),
        (True, GO),
    ]
    return next(answer for holds, answer in table if holds)


@each_row("case", EVERY)
def test_every_state_has_one_answer(case: tuple[object, ...]) -> None:
    """An end outranks a wait, a wait outranks a step, and a run without steps left ends loud."""
    answer = wanted(*case)
    if answer == "no steps left":
        with pytest.raises(MaxStepsExceededError, match="3 steps without a finish"):
            gate(state(*case))
    else:
        assert gate(state(*case)) == answer


@each_row("case", EVERY[:12])
def test_asking_changes_nothing(case: tuple[object, ...]) -> None:
    """The answer is the same a second time."""
    run = state(*case)
    before = {name: getattr(run, name) for name in run.__struct_fields__}
    for _ in range(2):
        with suppress(MaxStepsExceededError):
            gate(run)
    assert {name: getattr(run, name) for name in run.__struct_fields__} == before


def test_a_finish_of_the_steering_names_run_and_cause() -> None:
    """Its other fields do not change the order."""
    finish = steering_finish(state(), FinishReason.CONSTRAINTS_CONFLICT, "control_reject", rejected_by="steering")
    assert finish == Finish(
        FinishReason.CONSTRAINTS_CONFLICT,
        metadata={"run_id": "r", "rejected_by": "steering", "steering_reason": "control_reject"},
    )
