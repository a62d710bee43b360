"""Summaries of a history by a model, and the digest that the model reads."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.events import LLMModeDowngradedPayload, LLMRetryWithFeedbackPayload, MemoryEventBus
from harborage.identity import Quadruple, bound, effective_quadruple
from harborage.llm import (
    BadRequestError,
    CompleteRequest,
    ConfigSnapshot,
    ContextOverflowError,
    ContextWindowExceededError,
    Deps,
    ModelProfile,
    RateLimitedError,
    ResponseFormatKind,
    RetryExhaustedError,
    Role,
    ValidationFailedError,
)
from harborage.llm.chain.retry import Downgrading, Retrying
from harborage.planner import (
    AwaitTask,
    Budget,
    CallParallel,
    CallTool,
    CompressionRunner,
    FailureRecord,
    Finish,
    IdentityMissingError,
    InvalidConfigError,
    NilTrajectoryError,
    ParallelBranchObservation,
    ParallelObservation,
    RunContext,
    SpawnSpec,
    SpawnTask,
    SteeringInjection,
    Step,
    Summariser,
    ToolContext,
    Trajectory,
    TrajectorySummariser,
    TrajectorySummary,
)
from harborage.planner.summariser import PROMPT_VERSION, parse_summary, render_digest
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder
from harborage.testing.llm import ScriptedLLM, says, user_text
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
FIELDS = {"goals": ["g"], "facts": ["f"], "pending": [], "last_output_digest": "d", "note": ""}
ANSWER = json.dumps(FIELDS)
SUMMARY = TrajectorySummary(goals=("g",), facts=("f",), last_output_digest="d")


def run(who: Quadruple = WHO, *, token_budget: int = 0, **fields) -> RunContext:
    """A run."""
    return RunContext(quadruple=who, goal="the goal", budget=Budget(token_budget=token_budget, **fields))


def history(count: int = 3, size: int = 20) -> Trajectory:
    """A history of so many calls with results of a size."""
    steps = [
        Step(action=CallTool("look", b"{}"), observation=f"result-{number} " + "x" * size) for number in range(count)
    ]
    return Trajectory(query="the question", steps=steps)


# --- the call


async def test_the_summary():
    """One call with a schema, a task and the history; its answer becomes the five fields."""
    model = ScriptedLLM([ANSWER])
    summariser = TrajectorySummariser(model)
    assert isinstance(summariser, Summariser)
    assert await summariser.summarise(run(), history()) == SUMMARY
    [request] = model.requests
    system, user = request.messages
    assert (system.role, user.role) == (Role.SYSTEM, Role.USER)
    assert "the goal" in user_text(request)
    assert "result-2" in user_text(request)
    assert request.response_format is not None
    assert request.response_format.kind is ResponseFormatKind.JSON_SCHEMA
    schema = json.loads(request.response_format.json_schema)
    assert schema["required"] == ["goals", "facts", "pending", "last_output_digest", "note"]
    assert schema["additionalProperties"] is False
    assert request.model == ""


async def test_a_model_and_a_deadline():
    """The model that was chosen is asked, within the run's own deadline."""
    model = ScriptedLLM([ANSWER])
    deadline = datetime(2026, 1, 1, tzinfo=UTC)
    await TrajectorySummariser(model, model="small").summarise(run(deadline=deadline), history())
    assert (model.requests[0].model, model.requests[0].deadline) == ("small", deadline)


async def test_the_runs_identity():
    """The call is made under the run's whole identity, and the caller's own is back afterwards."""
    model = ScriptedLLM([ANSWER])
    other = Quadruple("o", "o", "o", "o")
    with bound(other):
        await TrajectorySummariser(model).summarise(run(), history())
        assert effective_quadruple() == other
    assert model.calls[0].who == WHO


@each_row("missing", ["tenant_id", "user_id", "session_id", "run_id"])
async def test_an_incomplete_identity(missing):
    """Without one of its four parts no call is made."""
    model = ScriptedLLM([ANSWER])
    parts = {"tenant_id": "t", "user_id": "u", "session_id": "s", "run_id": "r", missing: ""}
    with pytest.raises(IdentityMissingError, match=missing):
        await TrajectorySummariser(model).summarise(run(Quadruple(**parts)), history())
    assert model.requests == []


async def test_no_trajectory():
    """Nothing cannot be summarised."""
    with pytest.raises(NilTrajectoryError):
        await TrajectorySummariser(ScriptedLLM([ANSWER])).summarise(run(), None)


async def test_a_cancelled_caller():
    """The cancellation is reported before anything else, and no call is made."""
    model = ScriptedLLM([ANSWER])

    async def call():
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await TrajectorySummariser(model).summarise(run(Quadruple()), None)

    task = asyncio.ensure_future(call())
    await asyncio.wait([task])
    assert task.cancelled()
    assert model.requests == []


async def test_a_failed_call():
    """What the model's client raises comes out."""
    with pytest.raises(RateLimitedError):
        await TrajectorySummariser(ScriptedLLM([RateLimitedError("slow")])).summarise(run(), history())


@each_row("answer", ["", "I cannot do that.", "{}", '{"goals": []}'])
async def test_an_answer_that_is_none(answer):
    """An answer that cannot be read is an error, never an empty summary."""
    with pytest.raises(ValidationFailedError):
        await TrajectorySummariser(ScriptedLLM([answer])).summarise(run(), history())


def test_how_it_is_made():
    """Without a client, or with a negative size, it is refused; its prompt has a version."""
    with pytest.raises(InvalidConfigError):
        TrajectorySummariser(None)
    with pytest.raises(InvalidConfigError):
        TrajectorySummariser(ScriptedLLM(), input_tokens=-1)
    assert PROMPT_VERSION == "v1"


async def test_many_at_once():
    """128 runs get their own summaries, each call under its own identity."""

    def answer(request: CompleteRequest):
        text = user_text(request)
        return says(json.dumps({**FIELDS, "note": text[text.index("mark-") :].split()[0]}))

    model = ScriptedLLM([answer])
    summariser = TrajectorySummariser(model)

    async def one(number: int) -> str:
        trajectory = Trajectory(steps=[Step(action=CallTool("a"), observation=f"mark-{number} seen")])
        return (await summariser.summarise(run(Quadruple("t", "u", "s", f"r-{number}")), trajectory)).note

    assert await asyncio.gather(*map(one, range(128))) == [f"mark-{number}" for number in range(128)]
    assert {call.who.run_id for call in model.calls} == {f"r-{number}" for number in range(128)}


# --- within the window


@each_row("options, budget, most", [({}, 4000, 3000), ({"input_tokens": 1000}, 4000, 1000), ({}, 0, 6000)])
async def test_an_oversized_history_is_bounded(options, budget, most):
    """What is sent fits the size that was given, or three quarters of the run's budget, and no piece is heavy."""
    model = ScriptedLLM([ANSWER])
    await TrajectorySummariser(model, **options).summarise(run(token_budget=budget), history(200, 3000))
    assert len(user_text(model.requests[0]).encode()) <= most * 4 + 700
    parts = model.requests[0].messages[1].content.parts or ()
    assert all(len(part.text.encode()) < 32_768 for part in parts)


@pytest.mark.parametrize("error", [ContextWindowExceededError(9, 8, 0.05, 7), ContextOverflowError("too long")])
async def test_a_window_that_is_smaller_still(error):
    """When the prompt does not fit, the digest is halved, and so on; the last failure is raised."""
    model = ScriptedLLM([error, error, ANSWER])
    assert await TrajectorySummariser(model).summarise(run(), history(200, 3000)) == SUMMARY
    sizes = [len(user_text(request)) for request in model.requests]
    assert sizes[0] > 1.5 * sizes[1] > 2 * sizes[2]
    with pytest.raises(type(error)):
        await TrajectorySummariser(ScriptedLLM([error] * 4)).summarise(run(), history())


# --- in the chain and in the runner


def chain(*script, mode: str = "native") -> tuple[Retrying, ScriptedLLM, EventRecorder]:
    """The layers that mend an answer, over a script."""
    inner = ScriptedLLM(script)
    bus = MemoryEventBus()
    recorder = EventRecorder(bus)
    cfg = ConfigSnapshot(model="m", profiles={"m": ModelProfile(context_window_tokens=9, output_mode=mode)})
    deps = Deps(artifacts=None, bus=bus, clock=FakeClock())
    return Retrying(Downgrading(inner, cfg, deps), cfg, deps), inner, recorder


async def test_the_retry_layer_repairs():
    """A malformed answer is asked for again, with what is wrong with it."""
    client, inner, recorder = chain("Here you are: {goals: none}", ANSWER)
    assert await TrajectorySummariser(client).summarise(run(), history()) == SUMMARY
    [event] = recorder.payloads(LLMRetryWithFeedbackPayload)
    assert "no summary in the answer" in event.reason
    assert '"goals"' in user_text(inner.requests[1])


async def test_the_retry_layer_gives_up():
    """An answer that stays malformed is the retry layer's error."""
    client, _, _ = chain("no", "no")
    with pytest.raises(RetryExhaustedError):
        await TrajectorySummariser(client).summarise(run(), history())


async def test_down_the_ladder():
    """A provider without schemas still makes a summary, found inside the text that it writes."""
    refused = BadRequestError("response_format is not supported")
    client, _, recorder = chain(refused, refused, f"Sure!\n```json\n{ANSWER}\n```\nAnything else?")
    assert await TrajectorySummariser(client).summarise(run(), history()) == SUMMARY
    assert len(recorder.payloads(LLMModeDowngradedPayload)) == 2


async def test_it_drives_compression():
    """A history beyond its budget is summarised, and later anew with what the first summary said."""
    second = json.dumps({**FIELDS, "note": "second"})
    model = ScriptedLLM([ANSWER, second])
    runner = CompressionRunner(TrajectorySummariser(model))
    trajectory = history(5, 500)
    await runner.maybe_compress(run(token_budget=100), trajectory)
    assert trajectory.summary == SUMMARY
    trajectory.steps.extend(history(5, 500).steps)
    await runner.maybe_compress(run(token_budget=100), trajectory, again=True)
    assert trajectory.summary is not None
    assert trajectory.summary.note == "second"
    assert "[Summary of the first 5 steps]" in user_text(model.requests[1])
    assert "facts: f" in user_text(model.requests[1])


# --- reading the answer


@each_row(
    "text",
    [
        ANSWER,
        f"  {ANSWER}\n",
        f"Here it is: {ANSWER}. Good luck!",
        f"```json\n{ANSWER}\n```",
        json.dumps({"summary": FIELDS}),
        json.dumps([FIELDS]),
        '{"a": 1} ' + ANSWER,
        "{ broken {" + ANSWER,
        json.dumps({**FIELDS, "facts": ["draft"]}) + " no, rather: " + ANSWER,
        json.dumps({**FIELDS, "extra": 1}),
        json.dumps({**FIELDS, "facts": [" f ", ""]}),
    ],
)
def test_a_summary_is_found(text):
    """The JSON may stand alone or inside text or another object; of several the last one counts."""
    assert parse_summary(text) == SUMMARY


@each_row(
    "text, problem",
    [
        ("", "no JSON object"),
        ("goals: g", "no JSON object"),
        ("null", "no JSON object"),
        ("{", "no JSON object"),
        ("{}", "goals"),
        (json.dumps({key: value for key, value in FIELDS.items() if key != "note"}), "note"),
        (json.dumps({**FIELDS, "goals": "g"}), "goals"),
        (json.dumps({**FIELDS, "facts": [1]}), "facts"),
        (json.dumps({**FIELDS, "note": None}), "note"),
        ("{" * 100_000, "no JSON object"),
        ('{"a":' * 100_000, "no JSON object"),
    ],
)
def test_anything_else_is_refused(text, problem):
    """What lacks a field or has a wrong one is refused, and the text tells the model what is wanted."""
    with pytest.raises(ValidationFailedError, match=problem) as caught:
        parse_summary(text)
    assert '"last_output_digest"' in str(caught.value)


def test_an_empty_summary_is_refused():
    """Five empty fields would lose the history."""
    with pytest.raises(ValidationFailedError, match="empty"):
        parse_summary(json.dumps({"goals": [], "facts": [" "], "pending": [], "last_output_digest": "", "note": " "}))


_WORDS = st.text("ab{}[]\"' \\", max_size=12)


@given(st.lists(_WORDS, min_size=1), st.lists(_WORDS), st.lists(_WORDS), _WORDS, _WORDS, _WORDS, _WORDS)
def test_whatever_stands_around_it(goals, facts, pending, last, note, before, after):
    """A summary is read back from among any text that opens no brace of its own."""
    fields = {"goals": [*goals, "g"], "facts": facts, "pending": pending, "last_output_digest": last, "note": note}
    text = before.replace("{", "") + json.dumps(fields) + after.replace("{", "")
    found = parse_summary(text)
    assert found.goals == tuple(line.strip() for line in fields["goals"] if line.strip())
    assert (found.last_output_digest, found.note) == (last.strip(), note.strip())


@given(st.text('{}[]":,a1 \\', max_size=80))
def test_no_text_breaks_the_reader(text):
    """Any text is a summary or is refused; nothing else is raised."""
    with suppress(ValidationFailedError):
        assert isinstance(parse_summary(text), TrajectorySummary)


ROOMY = 1_000_000


def digest_text(trajectory: Trajectory, *, goal: str = "", limit: int = ROOMY) -> str:
    """The digest as one text."""
    return "\n".join(render_digest(trajectory, goal=goal, limit_bytes=limit))


def calls(count: int, size: int = 10) -> Trajectory:
    """A history of so many calls, whose results have a size."""
    steps = [
        Step(action=CallTool("look", b'{"n":%d}' % number), observation=f"result-{number} " + "x" * size)
        for number in range(count)
    ]
    return Trajectory(query="the question", steps=steps)


def test_the_shape():
    """The goal, then each step with its decision and what came of it."""
    trajectory = Trajectory(
        query="find it", steps=[Step(action=CallTool("look", b'{"at":"home"}'), observation={"found": True})]
    )
    assert digest_text(trajectory) == ('[Goal]\nfind it\n[Steps]\nstep 1: look({"at":"home"})\n  -> {"found":true}')


def test_an_empty_history():
    """Nothing happened, and that is what is said."""
    assert digest_text(Trajectory()) == "[Goal]\n(none)\n[Steps]\n(none)"


def test_the_goal_may_have_moved():
    """What the run aims at now comes first, what it was asked for is kept beside it."""
    assert digest_text(Trajectory(query="old"), goal="new").startswith("[Goal]\nnew\n[First request]\nold\n")
    assert "[First request]" not in digest_text(Trajectory(query="same"), goal="same")


@each_row(
    "step, expected",
    [
        (Step(action=CallTool("a"), error="it broke"), "-> error: it broke"),
        (Step(action=CallTool("a"), failure=FailureRecord(code="c", message="m")), "-> error: c: m"),
        (Step(action=CallTool("a")), "-> (nothing)"),
        (Step(action=CallTool("a"), observation=b"12345"), "-> (5 bytes)"),
        (Step(action=CallTool("a"), observation=object()), "-> (object without a JSON form)"),
        (Step(action=CallTool("a"), observation="raw", llm_observation="shown"), "-> shown"),
        (Step(action=SpawnTask("background", SpawnSpec(query="dig"))), "started a task: dig"),
        (Step(action=AwaitTask("task-1")), "waited for the task task-1"),
        (Step(action={"type": "Later"}), "step 1: Later"),
        (Step(action=Finish("goal", "x")), "step 1: Finish"),
        (Step(action=None, observation="seen"), "(no decision)\n  -> seen"),
    ],
)
def test_each_kind_of_step(step, expected):
    """Decisions, results and failures of every kind are rendered in a few words."""
    assert expected in digest_text(Trajectory(steps=[step]))


def test_parallel_branches():
    """Each branch is rendered with its own outcome, in their order."""
    action = CallParallel((CallTool("a"), CallTool("b")))
    branches = (
        ParallelBranchObservation(index=0, tool="a", value={"v": 1}),
        ParallelBranchObservation(index=1, tool="b", error="no"),
    )
    text = digest_text(Trajectory(steps=[Step(action=action, observation=ParallelObservation(branches=branches))]))
    assert 'a({}) + b({})\n  -> {"v":1}\n  -> error: no' in text


def test_heavy_results_are_never_raw():
    """Of a heavy result only its form for the model is rendered; without one, its size."""
    stub = {"preview": "short", "artifact_ref": "ref-1"}
    steps = [
        Step(action=CallTool("a"), observation="SECRET" * 20_000, llm_observation=stub),
        Step(action=CallTool("b"), observation="SECRET" * 20_000),
        Step(action=CallTool("c"), observation={"all": "SECRET" * 20_000}),
    ]
    text = digest_text(Trajectory(steps=steps))
    assert "SECRET" not in text
    assert "ref-1" in text
    assert "(a heavy result of 120000 bytes, not shown)" in text


def test_the_tool_context_stays_out():
    """Neither the data of tools nor the names of live handles are rendered."""
    context = ToolContext(serializable={"token": "SECRET"}, handles=("HANDLE",))
    text = digest_text(Trajectory(query="q", tool_context=context, steps=[Step(action=CallTool("a"), observation="x")]))
    assert "SECRET" not in text
    assert "HANDLE" not in text


def test_what_steering_brought():
    """Messages, new goals and added context stand where they came in, also after the last step."""
    trajectory = calls(2)
    trajectory.steering_inputs = [
        SteeringInjection(kind="user_message", payload={"message": "be quick"}, at_step=0),
        SteeringInjection(kind="redirect", payload={"goal": "something else"}, at_step=1),
        SteeringInjection(kind="inject_context", payload={"fact": 7}, at_step=2),
    ]
    text = digest_text(trajectory)
    places = [
        text.index(one)
        for one in (
            "the user said: be quick",
            "step 1:",
            "the goal became: something else",
            "step 2:",
            'context was added: {"fact":7}',
        )
    ]
    assert places == sorted(places)


def test_an_earlier_summary_stands_for_its_steps():
    """The steps it was made of are left out, and what steering brought before them; numbers go on."""
    trajectory = calls(3)
    trajectory.summary = TrajectorySummary(
        goals=["g"], facts=["f1", "f2"], pending=["p"], last_output_digest="d", note="n"
    )
    trajectory.steps_summarised = 2
    trajectory.steering_inputs = [
        SteeringInjection(kind="user_message", payload={"message": "early"}, at_step=1),
        SteeringInjection(kind="user_message", payload={"message": "late"}, at_step=2),
    ]
    text = digest_text(trajectory)
    assert (
        "[Summary of the first 2 steps]\ngoals: g\nfacts: f1\nfacts: f2\npending: p\nlast_output_digest: d\nnote: n"
        in text
    )
    assert "result-1" not in text
    assert "early" not in text
    assert "the user said: late" in text
    assert "step 3: look" in text


def test_the_oldest_steps_are_shortened_first():
    """When space runs out the newest steps are still whole, the oldest are not."""
    text = digest_text(calls(30, size=1000), limit=20_000)
    assert "result-0 " in text
    assert "result-0 " + "x" * 200 not in text
    assert "result-29 " + "x" * 1000 in text


def test_then_they_are_left_out():
    """When even short lines do not fit, the first ones go, and how many went is said."""
    text = digest_text(calls(500, size=1000), limit=10_000)
    assert "result-0 " not in text
    assert "entries are left out)" in text
    assert "result-499" in text


@given(st.integers(0, 60), st.integers(0, 3000), st.integers(0, 60_000))
def test_the_limit_holds(count, size, limit):
    """However long the history, the digest keeps to its limit, give or take its last step and the framing."""
    trajectory = calls(count, size)
    before = trajectory.serialize()
    assert len(digest_text(trajectory, limit=limit).encode()) <= max(limit, 1000) + 700
    assert trajectory.serialize() == before
