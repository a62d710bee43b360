"""Whatever a run's history is, every request made from it is one that all providers take."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harborage.identity import Quadruple
from harborage.llm import ArtifactStub, CompleteRequest, Role
from harborage.planner import (
    AwaitTask,
    BackgroundResult,
    CallParallel,
    CallTool,
    FailureRecord,
    Finish,
    FinishReason,
    ParallelBranchObservation,
    ParallelObservation,
    RequestPause,
    ResumeHint,
    RunContext,
    SpawnSpec,
    SpawnTask,
    SteeringInjection,
    Step,
    Trajectory,
    TrajectorySummary,
)
from harborage.planner.react import DefaultPromptBuilder
from tests.kit.provider_rules import check_request

AT = datetime(2026, 1, 1, tzinfo=UTC)

words = st.text(max_size=8)
# Few ids, so that they come again; some are ours.
ids = st.sampled_from(["", "call-0", "call-1", "react.callid.1", "react.callid.1.0", "react.callid.2+"])
args = st.sampled_from([b"", b"{}", b'{"x": 1}', b"[1]", b"{oops", b"\xff", b" "])
calls = st.builds(CallTool, st.sampled_from(["a", "tool_search", "declarative_action"]), args, ids)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | words, lambda inner: st.lists(inner) | st.dictionaries(words, inner)
)
heavy = st.fixed_dictionaries(
    {"tool": words, "size_bytes": st.integers() | st.floats(), "truncated": st.just(True), "preview": words},
    optional={"artifact_ref": words},
)
stubs = st.builds(ArtifactStub, words, words, st.integers(), summary=words)
branches = st.builds(
    ParallelBranchObservation, index=st.integers(0, 3), value=plain | heavy | stubs, error=st.just("") | words
)
observations = st.one_of(
    plain,
    heavy,
    stubs,
    st.binary(max_size=4),
    st.builds(object),
    st.builds(ParallelObservation, st.lists(branches, max_size=4).map(tuple)),
    st.fixed_dictionaries({"error": words}),
)
actions = st.one_of(
    st.none(),
    calls,
    st.builds(CallParallel, st.lists(calls, max_size=4).map(tuple)),
    st.builds(SpawnTask, st.sampled_from(["background", "foreground"]), st.builds(SpawnSpec, words, words), words),
    st.builds(AwaitTask, words),
    st.builds(RequestPause, st.just("await_input")),
    st.builds(Finish, st.sampled_from(list(FinishReason))),
    st.dictionaries(words, words),
)
steps = st.builds(
    Step,
    action=actions,
    observation=observations,
    llm_observation=observations,
    error=st.just("") | words,
    failure=st.none() | st.builds(FailureRecord, code=words, message=words),
    assistant_preamble=words,
    reasoning_trace=words,
)
inputs = st.builds(
    SteeringInjection,
    kind=st.sampled_from(["user_message", "inject_context", "redirect", "other"]),
    payload=st.fixed_dictionaries({}, optional={"message": words, "goal": words, "n": st.integers()}),
    at_step=st.integers(0, 8),
)
moments = st.lists(steps | inputs | st.just("summarise") | st.just("look"), max_size=12)


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    """Missing observations are many here, and their warnings are tested elsewhere."""
    logger = logging.getLogger("harborage.planner.react.transcript")
    before = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(before)


def run_of(trajectory: Trajectory) -> RunContext:
    """A run with that history."""
    return RunContext(quadruple=Quadruple("t", "u", "s", "r"), goal="g", trajectory=trajectory, clock=lambda: AT)


def lived(story: list, mode: str) -> tuple[Trajectory, list[CompleteRequest]]:
    """The history at the end of a story, and the requests that were made on the way and at its end."""
    builder = DefaultPromptBuilder(reasoning_replay=mode)
    trajectory = Trajectory()
    requests = []
    for moment in story:
        match moment:
            case Step():
                trajectory.steps.append(moment)
            case SteeringInjection():
                note = SteeringInjection(kind=moment.kind, payload=moment.payload, at_step=len(trajectory.steps))
                trajectory.steering_inputs.append(note)
            case "summarise":
                trajectory.summarise(TrajectorySummary(note="n"))
            case _:
                requests.append(builder.build(run_of(trajectory), ""))
    return trajectory, [*requests, builder.build(run_of(trajectory), "")]


@settings(max_examples=200, deadline=None)
@given(moments, st.sampled_from(["never", "text"]))
def test_every_request_is_legal(story, mode):
    """Each call is answered once and at once, ids are unique, and nothing stands between."""
    _, requests = lived(story, mode)
    for request in requests:
        check_request(request)


@settings(deadline=None)
@given(moments, st.sampled_from(["never", "text"]))
def test_looking_on_the_way_changes_nothing(story, mode):
    """What was built before does not matter: a history without earlier builds gives the same request."""
    trajectory, requests = lived(story, mode)
    fresh = Trajectory(
        steps=list(trajectory.steps),
        steering_inputs=list(trajectory.steering_inputs),
        summary=trajectory.summary,
        steps_summarised=trajectory.steps_summarised,
    )
    assert DefaultPromptBuilder(reasoning_replay=mode).build(run_of(fresh), "") == requests[-1]


@settings(deadline=None)
@given(st.lists(steps, max_size=6), st.lists(inputs, max_size=6), st.booleans(), st.booleans())
def test_histories_that_came_from_elsewhere(taken, steered, is_resumed, has_background):
    """Also where steering was noted out of order, and with everything that closes a conversation, it is legal."""
    trajectory = Trajectory(steps=taken, steering_inputs=steered)
    if is_resumed:
        trajectory.resume_hint = ResumeHint(pause_token="p", resume_payload={"a": 1})
    if has_background:
        trajectory.background["g"] = BackgroundResult(group_id="g", status="completed", resolved_at=AT)
    request = DefaultPromptBuilder().build(run_of(trajectory), "")
    check_request(request)
    assert sum(message.role is Role.USER for message in request.messages) >= 1 + len(steered)


@settings(deadline=None)
@given(moments)
def test_a_longer_history_only_adds(story):
    """Without a summary, a request begins with all of the one before it: providers can keep the beginning."""
    builder = DefaultPromptBuilder()
    trajectory = Trajectory()
    before: tuple = ()
    for moment in story:
        if isinstance(moment, Step):
            trajectory.steps.append(moment)
        elif isinstance(moment, SteeringInjection):
            note = SteeringInjection(kind=moment.kind, payload=moment.payload, at_step=len(trajectory.steps))
            trajectory.steering_inputs.append(note)
        now = builder.build(run_of(trajectory), "").messages
        assert now[: len(before)] == before
        before = now
