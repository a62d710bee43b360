"""The steps that need nothing but the run."""

from __future__ import annotations

import pytest

from harborage.planner import (
    CallTool,
    Finish,
    FinishReason,
    InvalidConfigError,
    PauseReason,
    RequestPause,
    UnserializableError,
)
from harborage.planner.deterministic import CallToolStep, DecisionTreeStep, FinishStep, PauseStep
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

SKIPPED = (None, False)
BUILT = {
    "call": CallToolStep("search", lambda run: b"{}"),
    "finish": FinishStep(FinishReason.GOAL),
    "pause": PauseStep(PauseReason.AWAIT_INPUT),
}
EMPTY = {"call": CallToolStep, "finish": FinishStep, "pause": PauseStep}


@each_row("step", BUILT.values(), ids=BUILT)
async def test_a_step_without_a_guard_claims_every_call(step, runs):
    """A complete step claims the first call and the next."""
    for _ in range(2):
        decision, is_claimed = await step.decide(runs())
        assert is_claimed
        assert decision is not None


@each_row("kind", EMPTY.values(), ids=EMPTY)
async def test_a_skipped_step_never_complains(kind, runs):
    """The guard is asked before the fields are checked, so an incomplete step that is skipped is no error."""
    assert await kind(when=lambda run: False).decide(runs()) == SKIPPED


@each_row("kind", EMPTY.values(), ids=EMPTY)
async def test_an_incomplete_step_complains(kind, runs):
    """A step that is claimed without its required fields fails loudly."""
    with pytest.raises(InvalidConfigError):
        await kind(when=lambda run: True).decide(runs())


@each_row("kind", EMPTY.values(), ids=EMPTY)
def test_a_step_is_a_step(kind):
    """The steps fit the protocol that a step of one's own has to fit."""
    assert isinstance(kind(), DecisionTreeStep)


async def test_the_guard_sees_the_run(runs):
    """The guard decides from the run, call by call."""
    step = FinishStep(FinishReason.GOAL, when=lambda run: run.goal == "stop")
    assert await step.decide(runs(goal="go")) == SKIPPED
    assert (await step.decide(runs(goal="stop")))[1]


async def test_a_call_keeps_its_arguments_byte_for_byte(runs):
    """What the builder gives as bytes is not touched."""
    step = CallToolStep("search", lambda run: b'{ "b":1, "a":1.0 }')
    assert await step.decide(runs()) == (CallTool("search", b'{ "b":1, "a":1.0 }'), True)


async def test_a_dict_becomes_json(runs):
    """A builder may return a dict, which is written as JSON; the builder sees the run."""
    step = CallToolStep("search", lambda run: {"q": run.goal})
    assert await step.decide(runs(goal="äpfel")) == (CallTool("search", '{"q":"äpfel"}'.encode()), True)


@each_row("args", [None, "text", 1, [1]])
async def test_other_arguments_are_refused(args, runs):
    """A builder that returns neither bytes nor a dict fails the step."""
    with pytest.raises(InvalidConfigError, match=type(args).__name__):
        await CallToolStep("search", lambda run: args).decide(runs())


async def test_a_dict_that_is_no_json_names_the_place(runs):
    """A value without a JSON form fails the step with its path."""
    with pytest.raises(UnserializableError, match=r"args\.x"):
        await CallToolStep("search", lambda run: {"x": float("nan")}).decide(runs())


@pytest.mark.parametrize(("tool", "builder", "missing"), [("", lambda run: b"{}", "tool"), ("x", None, "args_builder")])
async def test_a_call_needs_a_tool_and_a_builder(tool, builder, missing, runs):
    """Each missing part of a call is named."""
    with pytest.raises(InvalidConfigError, match=missing):
        await CallToolStep(tool, builder).decide(runs())


async def test_a_finish_without_builders(runs):
    """Without builders there is no payload, and the metadata names the run."""
    decision, _ = await FinishStep(FinishReason.GOAL).decide(runs("r-9"))
    assert decision == Finish(FinishReason.GOAL, None, {"run_id": "r-9"})


async def test_a_finish_of_a_run_without_id(runs):
    """Without builder and without run id there is no metadata."""
    decision, _ = await FinishStep(FinishReason.GOAL).decide(runs(""))
    assert decision == Finish(FinishReason.GOAL, None, None)


async def test_a_finish_with_builders(runs):
    """Payload and metadata come from the builders; the run's id is added, and the builder's dict stays as it was."""
    shared = {"k": 1}
    step = FinishStep("no_path", lambda run: [run.goal], lambda run: shared)
    assert await step.decide(runs("r-9")) == (Finish(FinishReason.NO_PATH, ["go"], {"k": 1, "run_id": "r-9"}), True)
    assert shared == {"k": 1}


async def test_a_finish_keeps_the_builders_run_id(runs):
    """A run id that the builder set is not replaced."""
    decision, _ = await FinishStep("goal", metadata_builder=lambda run: {"run_id": "own"}).decide(runs("r-9"))
    assert decision.metadata == {"run_id": "own"}


async def test_a_metadata_builder_may_return_nothing(runs):
    """A builder that returns None is like no builder."""
    decision, _ = await FinishStep("goal", metadata_builder=lambda run: None).decide(runs("r-9"))
    assert decision.metadata == {"run_id": "r-9"}


@each_row("reason", ["", "done", "GOAL", "approval_required"])
async def test_a_finish_needs_a_known_reason(reason, runs):
    """A reason that is none of a finish's is refused, and the message lists those that are."""
    with pytest.raises(InvalidConfigError, match="no_path"):
        await FinishStep(reason).decide(runs())


@each_row("reason", FinishReason)
async def test_every_finish_reason_is_accepted(reason, runs):
    """Each reason may be configured, as a member or as its wire string."""
    for given in (reason, str(reason)):
        assert (await FinishStep(given).decide(runs()))[0].reason is reason


async def test_a_pause_without_a_builder(runs):
    """Without a builder the payload is empty."""
    assert await PauseStep("await_input").decide(runs()) == (RequestPause(PauseReason.AWAIT_INPUT, {}), True)


@pytest.mark.parametrize("built", [None, {}])
async def test_a_pause_builder_may_return_nothing(built, runs):
    """A builder that has nothing to show gives an empty payload."""
    decision, _ = await PauseStep("await_input", lambda run: built).decide(runs())
    assert decision.payload == {}


async def test_a_pause_with_a_builder(runs):
    """The payload comes from the builder, which sees the run."""
    decision, _ = await PauseStep(PauseReason.EXTERNAL_EVENT, lambda run: {"goal": run.goal}).decide(runs())
    assert decision == RequestPause(PauseReason.EXTERNAL_EVENT, {"goal": "go"})


@each_row("reason", ["", "wait", "goal", "AWAIT_INPUT"])
async def test_a_pause_needs_a_known_reason(reason, runs):
    """A reason that is none of a pause's is refused, and the message lists those that are."""
    with pytest.raises(InvalidConfigError, match="await_input"):
        await PauseStep(reason).decide(runs())


@each_row("reason", PauseReason)
async def test_every_pause_reason_is_accepted(reason, runs):
    """Each reason may be configured, as a member or as its wire string."""
    for given in (reason, str(reason)):
        assert (await PauseStep(given).decide(runs()))[0].reason is reason
