"""The loop over a seam that answers from a script: what it asks, in which order, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harborage.identity import Quadruple
from harborage.planner import (
    AwaitTask,
    BackgroundResult,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    SpawnTask,
    Trajectory,
    decision_kind,
)
from harborage.runtime.loop.arrivals import NOTHING, Arrivals, Hold, Interrupt, StepInterruptedError, Woken
from harborage.runtime.loop.capabilities import HookAnswer
from harborage.runtime.loop.loop import run_loop
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome
from harborage.runtime.loop.state import Cancelling, OpenPause, Planned, RunState, Steered, SteerRequest
from harborage.runtime.pauses import PauseDecision
from harborage.runtime.steering import ControlEvent, ControlType, MaxStepsExceededError, Scope
from harborage.testing.clock import FakeClock
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

RUN = Quadruple("t", "u", "s", "r")
GOAL = Finish(FinishReason.GOAL, "done")
CALL = CallTool("x")
ASK = RequestPause(PauseReason.AWAIT_INPUT, {"q": 1})
OPEN = OpenPause("p", PauseReason.AWAIT_INPUT)
AT = FakeClock().now()


def control(type: str, payload: dict[str, Any] | None = None) -> ControlEvent:
    return ControlEvent(ControlType(type), RUN, Scope.ADMIN, "t", payload)


def arrives(*controls: ControlEvent, **more: Any) -> Arrivals:
    return Arrivals(controls=controls, **more)


class Script:
    """Answers drains, plans and waits from lists, steers by a script, and notes every call."""

    run_id = "r"

    def __init__(
        self,
        plans: Sequence[Any],
        drains: Sequence[Arrivals] = (),
        waits: Sequence[Woken] = (),
        steers: Sequence[list[Steered]] = (),
    ) -> None:
        self.asked: list[Any] = []
        self._drains, self._waits = iter(drains), iter(waits)
        self._plans, self._steers = iter(plans), iter(steers)

    async def drain(self) -> Arrivals:
        self.asked.append("drain")
        return next(self._drains, NOTHING)

    async def wait(self, hold: Hold) -> Woken:
        self.asked.append(hold)
        return next(self._waits)

    async def step(self, name: str, payload: Any) -> Any:
        self.asked.append(name)
        match name:
            case "plan":
                answer = next(self._plans)
                if isinstance(answer, Exception):
                    raise answer
                return Planned(decision=answer)
            case "steer":
                assert isinstance(payload, SteerRequest)
                default = [Steered(control=one) for one in payload.controls]
                return next(self._steers, default)
            case "pause.request":
                return OPEN
            case _:
                return None

    async def dispatch(self, decision: Any, run: RunState, io: Any) -> ToolOutcome:
        assert io is self
        self.asked.append(decision)
        return ToolOutcome(OutcomeStatus.DONE, {"of": type(decision).__name__}, "short")


async def carry(script: Script, **fields: Any) -> tuple[Finish, RunState]:
    """The finish of a run over the script, and the run."""
    run = RunState(**{"who": RUN, "goal": "g", "trajectory": Trajectory(), **fields})
    return await run_loop(run, script, script.dispatch), run


async def test_a_turn_drains_plans_acts_and_remembers() -> None:
    """In this order, each once; the planner's finish comes back as it is."""
    script = Script([CALL, GOAL])
    finish, run = await carry(script)
    assert finish is GOAL
    assert script.asked == ["drain", "plan", CALL, "drain", "plan"]
    (step,) = run.trajectory.steps
    assert (step.action, step.observation, step.llm_observation) == (CALL, {"of": "CallTool"}, "short")


@each_row("decision", [CALL, CallParallel((CALL,)), SpawnTask(), AwaitTask("t")], ids=decision_kind)
async def test_every_decision_to_act_is_dispatched_and_remembered(decision: Any) -> None:
    """Each leaves one step in the history."""
    script = Script([decision, GOAL])
    _, run = await carry(script)
    assert decision in script.asked
    assert [step.action for step in run.trajectory.steps] == [decision]


async def test_controls_are_steered_before_the_planner_is_asked() -> None:
    """What they bring is there in the very next call."""
    script = Script([GOAL], [arrives(control("USER_MESSAGE", {"message": "a"}))])
    _, run = await carry(script)
    assert script.asked == ["drain", "steer", "plan"]
    assert [one.kind for one in run.trajectory.steering_inputs] == ["user_message"]


async def test_other_arrivals_need_no_steering() -> None:
    """Background results and the deadline are folded as they are."""
    result = BackgroundResult(group_id="g", status="completed", resolved_at=AT)
    script = Script([GOAL], [arrives(background=(result,))])
    _, run = await carry(script)
    assert script.asked == ["drain", "plan"]
    assert run.trajectory.background == {"g": result}


async def test_what_is_steered_depends_on_the_open_pause_and_the_task() -> None:
    """Both go along with the batch."""
    seen: list[SteerRequest] = []

    class Looks(Script):
        async def step(self, name: str, payload: Any) -> Any:
            if name == "steer":
                seen.append(payload)
            return await super().step(name, payload)

    one = control("PRIORITIZE", {"priority": 1})
    await carry(Looks([GOAL], [arrives(one)]), task_id="task")
    resolved = [Steered(control=one, resolved=PauseDecision.RESUME, resolved_token="p")]
    await carry(Looks([ASK, GOAL], [NOTHING, arrives(one)], steers=[resolved]))
    assert seen == [
        SteerRequest(controls=(one,), task_id="task", step=1),
        SteerRequest(controls=(one,), pause=OPEN, step=2),
    ]


async def test_a_pause_parks_the_run_until_it_is_resolved() -> None:
    """The planner is not asked meanwhile, the pause is no step, and waiting costs none."""
    script = Script([ASK, GOAL], waits=[Woken(at=AT), Woken(at=AT), Woken(PauseDecision.RESUME, {"a": 1}, AT)])
    finish, run = await carry(script, max_steps=2)
    assert finish is GOAL
    parked = ["drain", Hold("p")]
    assert script.asked == ["drain", "plan", "pause.request", *parked * 3, "drain", "plan"]
    assert run.trajectory.steps == []
    assert run.steps == 2


async def test_a_control_that_arrives_while_parked_is_applied_and_the_run_parks_again() -> None:
    """It keeps its inputs until the next call of the planner."""
    script = Script(
        [ASK, GOAL],
        [NOTHING, NOTHING, arrives(control("USER_MESSAGE", {"message": "a"}))],
        [Woken(at=AT), Woken(PauseDecision.APPROVE, None, AT)],
    )
    _, run = await carry(script)
    assert script.asked[3:] == ["drain", Hold("p"), "drain", "steer", Hold("p"), "drain", "plan"]
    assert [one.kind for one in run.trajectory.steering_inputs] == ["user_message", "resumed"]


@pytest.mark.parametrize(
    ("woken", "reason"),
    [
        (Woken(PauseDecision.REJECT, None, AT), FinishReason.CONSTRAINTS_CONFLICT),
        (Woken(PauseDecision.TIMEOUT, None, AT), FinishReason.DEADLINE_EXCEEDED),
    ],
)
async def test_a_pause_resolved_against_the_run_ends_it(woken: Woken, reason: FinishReason) -> None:
    """There is nothing left to abandon."""
    script = Script([ASK], waits=[woken])
    finish, _ = await carry(script)
    assert finish.reason is reason
    assert "pause.abandon" not in script.asked


@each_row(
    "drains, waits, why",
    [
        ([NOTHING, arrives(control("CANCEL"))], [], "cancel_while_paused"),
        ([NOTHING, arrives(control("CANCEL", {"hard": True}))], [], "hard_cancel"),
        ([NOTHING, arrives(is_past_deadline=True)], [], "deadline"),
        ([NOTHING, NOTHING], [Woken(is_past_deadline=True, at=AT)], "deadline"),
    ],
)
async def test_a_run_that_ends_while_parked_gives_its_pause_up(
    drains: list[Arrivals], waits: list[Woken], why: str
) -> None:
    """So that no person answers it without effect."""
    script = Script([ASK], drains, waits)
    finish, _ = await carry(script)
    assert (finish.metadata or {})["steering_reason"] == why
    assert script.asked[-1] == "pause.abandon"


async def test_a_call_of_the_planner_that_was_cut_short_is_not_counted() -> None:
    """The loop goes to the next boundary, where the cause is waiting."""
    cut = StepInterruptedError("plan", Interrupt.HARD_CANCEL)
    script = Script([cut], [NOTHING, arrives(control("CANCEL", {"hard": True}))])
    finish, run = await carry(script)
    assert (finish.metadata or {})["steering_reason"] == "hard_cancel"
    assert script.asked == ["drain", "plan", "drain", "steer"]
    assert run.steps == 0


async def test_what_the_planner_raises_ends_the_run() -> None:
    """Unchanged."""
    with pytest.raises(LookupError, match="lost"):
        await carry(Script([CALL, LookupError("lost")]))


async def test_a_planner_that_never_finishes_is_stopped() -> None:
    """After as many calls as it may have."""
    script = Script([CALL] * 9)
    with pytest.raises(MaxStepsExceededError, match="3 steps"):
        await carry(script, max_steps=3)
    assert script.asked.count("plan") == 3


async def test_a_planner_with_a_last_word_is_called_once_more() -> None:
    """Out of steps it may finish, and do nothing else: any other decision is not carried out."""
    for last, is_end in ((Finish(FinishReason.NO_PATH), True), (CALL, False), (ASK, False)):
        script = Script([CALL, CALL, last, CALL])
        if is_end:
            finish, _ = await carry(script, max_steps=2, has_last_word=True)
            assert finish is last
        else:
            with pytest.raises(MaxStepsExceededError, match="2 steps"):
                await carry(script, max_steps=2, has_last_word=True)
        assert script.asked.count("plan") == 3, last
        assert script.asked.count(CALL) == 2, last
        assert "pause.request" not in script.asked


@pytest.mark.parametrize("finishes", [True, False])
async def test_a_soft_cancel_gives_the_planner_one_call(finishes: bool) -> None:
    """It may end well; else it is ended."""
    last = Finish(FinishReason.CANCELLED, "cleaned up") if finishes else CALL
    script = Script([last, CALL], [arrives(control("CANCEL"))])
    finish, _ = await carry(script)
    assert script.asked.count("plan") == 1
    if finishes:
        assert finish is last
    else:
        assert finish.metadata == {"run_id": "r", "steering_reason": "cancel_ignored"}


async def test_it_asks_nothing_but_the_seam() -> None:
    """The same answers lead to the same questions and the same state, however often."""
    plans = [CALL, ASK, CallParallel((CALL, CALL)), CALL, GOAL]
    drains = [NOTHING, arrives(control("REDIRECT", {"goal": "new"})), NOTHING, arrives(control("INJECT_CONTEXT", {}))]
    waits = [Woken(at=AT), Woken(PauseDecision.RESUME, {"x": 1}, AT)]
    runs = []
    for _ in range(3):
        script = Script(plans, drains, waits)
        finish, run = await carry(script)
        runs.append((script.asked, finish, run.trajectory.serialize(), run.goal, run.steps))
    assert runs[0] == runs[1] == runs[2]


class Hooked(Script):
    """Answers the hooks before a finish from a list, too."""

    def __init__(self, plans: Sequence[Any], said: Sequence[Any]) -> None:
        super().__init__(plans)
        self._said = iter(said)

    async def step(self, name: str, payload: Any) -> Any:
        if name != "hook.before_finish":
            return await super().step(name, payload)
        self.asked.append((name, payload))
        answer = next(self._said)
        if isinstance(answer, Exception):
            raise answer
        return answer


def hooked(**fields: Any) -> RunState:
    return RunState(who=RUN, goal="g", trajectory=Trajectory(), hooks=("before_finish",), **fields)


async def never(decision: Any, run: RunState, io: Any) -> Any:
    raise AssertionError(decision)


@each_row(
    "said, ends",
    [
        ([HookAnswer()], GOAL),
        ([HookAnswer(value={"n": 1})], Finish(FinishReason.GOAL, {"n": 1})),
        ([HookAnswer(advice="more"), HookAnswer()], Finish(FinishReason.GOAL, "again")),
    ],
)
async def test_a_finish_is_as_its_hooks_let_it_be(said: list[Any], ends: Finish) -> None:
    """With advice the planner is asked again, and reads it."""
    run = hooked()
    io = Hooked([GOAL, Finish(FinishReason.GOAL, "again")], said)
    assert await run_loop(run, io, never) == ends
    assert run.guided == len(said) - 1
    assert [one.kind for one in run.trajectory.steering_inputs] == ["user_message"] * run.guided


async def test_a_finish_that_is_sent_back_too_often_fails_and_one_without_a_goal_is_not_asked_about() -> None:
    """The reason is in its metadata."""
    finish = await run_loop(hooked(), Hooked([GOAL] * 4, [HookAnswer(advice="more")] * 4), never)
    assert finish.reason is FinishReason.CONSTRAINTS_CONFLICT
    assert "sent back 3 times, and still is: more" in (finish.metadata or {})["detail"]
    gives_up = Finish(FinishReason.NO_PATH)
    assert await run_loop(hooked(), Hooked([gives_up], []), never) == gives_up


async def test_a_hard_cancel_during_a_hook_before_a_finish_ends_the_run_as_cancelled() -> None:
    """The answer does not go out unseen."""
    run = hooked()

    class Cancels(Hooked):
        async def step(self, name: str, payload: Any) -> Any:
            if name == "hook.before_finish":
                run.cancelling = Cancelling.HARD
            return await super().step(name, payload)

    cut = StepInterruptedError("hook.before_finish", Interrupt.HARD_CANCEL)
    assert (await run_loop(run, Cancels([GOAL], [cut]), never)).reason is FinishReason.CANCELLED


async def test_an_answer_of_the_agent_that_took_over_is_asked_about_too() -> None:
    """It is the answer of this run; sent back, the run's own planner goes on."""
    run = hooked(finish=Finish(FinishReason.GOAL, "theirs"))
    io = Hooked([GOAL], [HookAnswer(advice="in French"), HookAnswer()])
    assert await run_loop(run, io, never) == GOAL
    asked = [one[1].payload for one in io.asked if isinstance(one, tuple)]
    assert asked == ["theirs", "done"]
