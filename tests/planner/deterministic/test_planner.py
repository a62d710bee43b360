"""The walk over a decision tree."""

from __future__ import annotations

import asyncio

import pytest

from harborage.identity import Quadruple
from harborage.planner import (
    CallTool,
    ControlSignals,
    DeterministicStepError,
    Finish,
    FinishReason,
    IdentityRequiredError,
    InvalidConfigError,
    Planner,
    WakeMode,
    registered_drivers,
    resolve_wake_mode,
)
from harborage.planner.deterministic import (
    DEFAULT_NAME,
    CallToolStep,
    DeterministicPlanner,
    FinishStep,
    SpawnAndAwaitStep,
    WatchGroupStep,
)
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

FINISH = FinishStep(FinishReason.GOAL)


class Fixed:
    """A step that always gives the same answer and counts how often it was asked."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = 0

    async def decide(self, run):
        """The answer, or the error that stands for it."""
        self.asked += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def test_the_default_name():
    """A planner without a name, or with an empty one, has the default name."""
    assert DEFAULT_NAME == "deterministic"
    assert DeterministicPlanner([FINISH]).name == DEFAULT_NAME
    assert DeterministicPlanner([FINISH], name="").name == DEFAULT_NAME
    assert DeterministicPlanner([FINISH], name="triage").name == "triage"


def test_it_is_a_planner_that_polls():
    """It fits the planner's protocol and declares that it polls."""
    planner = DeterministicPlanner(steps=[FINISH])
    assert isinstance(planner, Planner)
    assert planner.wake_mode() is WakeMode.POLL
    assert resolve_wake_mode(planner) is WakeMode.POLL


def test_it_has_no_name_for_configuration():
    """A decision tree is code, so no configuration can name it."""
    assert "deterministic" not in registered_drivers()


@each_row(
    "steps, why",
    [
        ([], "no steps"),
        ([None], "step 0 is a NoneType"),
        ([FINISH, None], "step 1 is a NoneType"),
        ([lambda run: None], "step 0 is a function"),
        ([SpawnAndAwaitStep()], "SpawnAndAwaitStep follows task groups"),
        ([FINISH, WatchGroupStep()], "WatchGroupStep follows task groups"),
    ],
)
def test_a_wrong_tree_is_refused_when_it_is_built(steps, why):
    """Configuration errors surface at construction and say what is wrong."""
    with pytest.raises(InvalidConfigError, match=why):
        DeterministicPlanner(steps)


def test_no_arguments_are_no_steps():
    """A planner without any step cannot be built."""
    with pytest.raises(InvalidConfigError, match="no steps"):
        DeterministicPlanner()


async def test_two_spawning_steps_need_ids_of_their_own(registry):
    """Two spawning steps with the same id, given or by default, are refused: they would share a task."""
    for ids in (("", ""), ("a", "a")):
        with pytest.raises(InvalidConfigError, match="step_id"):
            DeterministicPlanner([SpawnAndAwaitStep(step_id=one) for one in ids], registry=registry)
    DeterministicPlanner([SpawnAndAwaitStep(step_id="a"), SpawnAndAwaitStep(step_id="b")], registry=registry)


async def test_the_first_step_that_claims_wins(runs):
    """Steps are asked in order; those behind the one that claims the call are not asked."""
    skips, claims, never = Fixed((None, False)), Fixed((CallTool("x"), True)), Fixed((CallTool("y"), True))
    assert await DeterministicPlanner([skips, claims, never]).next(runs()) is claims.answer[0]
    assert (skips.asked, claims.asked, never.asked) == (1, 1, 0)


async def test_a_decision_of_a_step_that_does_not_claim_is_ignored(runs):
    """Only the claim counts: a decision without it leaves the call to the next step."""
    planner = DeterministicPlanner([Fixed((CallTool("x"), False)), FINISH])
    assert (await planner.next(runs())).reason is FinishReason.GOAL


async def test_a_tree_without_an_answer_ends_the_run(runs):
    """A tree without an answer ends the run as `no_path` and says so, instead of looping."""
    finish = await DeterministicPlanner([Fixed((None, False))]).next(runs("r-7"))
    assert finish == Finish(FinishReason.NO_PATH, None, {"deterministic": "no_step_matched", "run_id": "r-7"})


async def test_a_failing_step_fails_the_call(runs):
    """A step's error is not skipped: it names the step's place and carries the cause."""
    cause = ValueError("boom")
    planner = DeterministicPlanner([Fixed((None, False)), Fixed(cause), FINISH])
    with pytest.raises(DeterministicStepError, match="step 1 failed: Fixed: boom") as caught:
        await planner.next(runs())
    assert caught.value.index == 1
    assert caught.value.__cause__ is cause


async def test_builders_and_guards_fail_their_step(runs):
    """What a builder or a guard raises is the step's error."""

    def fails(run):
        raise KeyError("missing")

    for step in (CallToolStep("x", fails), CallToolStep("x", lambda run: b"{}", fails), FinishStep("goal", fails)):
        with pytest.raises(DeterministicStepError) as caught:
            await DeterministicPlanner([step]).next(runs())
        assert isinstance(caught.value.__cause__, KeyError)


async def test_an_incomplete_step_fails_its_call(runs):
    """A step without its required parts is a step error, at the call and not before."""
    with pytest.raises(DeterministicStepError, match="args_builder") as caught:
        await DeterministicPlanner([CallToolStep("x")]).next(runs())
    assert isinstance(caught.value.__cause__, InvalidConfigError)


async def test_a_claim_without_a_decision_fails_the_call(runs):
    """A step that claims the call must have decided it."""
    with pytest.raises(DeterministicStepError, match="without a decision") as caught:
        await DeterministicPlanner([Fixed((None, True))]).next(runs())
    assert caught.value.index == 0


async def test_a_step_that_gives_no_answer_fails_the_call(runs):
    """A step that forgets to answer at all is a step error too."""
    with pytest.raises(DeterministicStepError):
        await DeterministicPlanner([Fixed(None)]).next(runs())


@each_row("missing", ["tenant_id", "user_id", "session_id", "run_id"])
async def test_identity_must_be_complete(missing, runs):
    """All four parts of the identity are needed, before a step is asked; the message names the missing one."""
    parts = {"tenant_id": "t", "user_id": "u", "session_id": "s", "run_id": "r", missing: ""}
    step = Fixed((CallTool("x"), True))
    with pytest.raises(IdentityRequiredError, match=missing):
        await DeterministicPlanner([step]).next(runs(quadruple=Quadruple(**parts)))
    assert step.asked == 0


async def test_a_cancelled_run_finishes_before_any_step(runs):
    """Steering's cancel is honoured at the boundary."""
    step = Fixed((CallTool("x"), True))
    finish = await DeterministicPlanner([step]).next(runs("r-7", control=ControlSignals(cancelled=True)))
    assert finish == Finish(FinishReason.CANCELLED, None, {"steering": "cancelled", "run_id": "r-7"})
    assert step.asked == 0


async def test_identity_is_checked_before_steering(runs):
    """A cancelled run without identity is an identity error, not a finish."""
    run = runs("", control=ControlSignals(cancelled=True))
    with pytest.raises(IdentityRequiredError):
        await DeterministicPlanner([FINISH]).next(run)


async def test_a_cancelled_caller_gets_its_cancellation_first(runs):
    """A caller that was cancelled gets no decision, and no step is asked; that comes before the identity."""
    step = Fixed((CallTool("x"), True))

    async def call():
        asyncio.current_task().cancel()
        return await DeterministicPlanner([step]).next(runs(""))

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(call())
    assert step.asked == 0


async def test_cancellation_inside_a_step_is_no_step_error(runs):
    """A cancellation that hits a step passes through as it is."""
    with pytest.raises(asyncio.CancelledError):
        await DeterministicPlanner([Fixed(asyncio.CancelledError())]).next(runs())


async def test_one_instance_serves_128_runs(runs):
    """Concurrent runs on one planner each get the decision of their own context; cancelled ones disturb no other."""

    class Slow:
        async def decide(self, run):
            await asyncio.sleep(0)
            return None, False

    planner = DeterministicPlanner([Slow(), CallToolStep("echo", lambda run: {"run": run.quadruple.run_id})])

    async def one(number):
        control = ControlSignals(cancelled=number % 3 == 0)
        return await planner.next(runs(f"r-{number}", control=control))

    before = asyncio.all_tasks()
    decisions = await asyncio.gather(*(one(number) for number in range(128)))
    for number, decision in enumerate(decisions):
        if number % 3 == 0:
            assert decision.metadata == {"steering": "cancelled", "run_id": f"r-{number}"}
        else:
            assert decision == CallTool("echo", f'{{"run":"r-{number}"}}'.encode())
    assert asyncio.all_tasks() == before
