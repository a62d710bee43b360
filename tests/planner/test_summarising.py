"""A run's history is summarised by a model, in five fields or not at all."""

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
from harborage.llm.chain.downgrade import Downgrading
from harborage.llm.chain.retry import Retrying
from harborage.planner import (
    Budget,
    CallTool,
    CompressionRunner,
    IdentityMissingError,
    InvalidConfigError,
    NilTrajectoryError,
    RunContext,
    Step,
    Summariser,
    Trajectory,
    TrajectorySummariser,
    TrajectorySummary,
)
from harborage.planner.summarising import PROMPT_VERSION, parse_summary
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder
from harborage.testing.llm import ScriptedLLM, says, user_text
from tables import each_row

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


@pytest.mark.parametrize("missing", ["tenant_id", "user_id", "session_id", "run_id"])
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


@pytest.mark.parametrize("answer", ["", "I cannot do that.", "{}", '{"goals": []}'])
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


@pytest.mark.parametrize(
    ("options", "budget", "most"), [({}, 4000, 3000), ({"input_tokens": 1000}, 4000, 1000), ({}, 0, 6000)]
)
async def test_an_oversized_history_is_bounded(options, budget, most):
    """What is sent fits the size that was given, or three quarters of the run's budget, and no piece is heavy."""
    model = ScriptedLLM([ANSWER])
    await TrajectorySummariser(model, **options).summarise(run(token_budget=budget), history(200, 3000))
    assert len(user_text(model.requests[0]).encode()) <= most * 4 + 700
    parts = model.requests[0].messages[1].content.parts or ()
    assert all(len(part.text.encode()) < 32_768 for part in parts)


@pytest.mark.parametrize("error", [ContextWindowExceededError(9, 8, 0.05, 7), ContextOverflowError("too long")])
async def test_a_window_that_is_smaller_still(error):
    """When the prompt does not fit, it is told in half the size, and so on; the last failure comes out."""
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
    told = EventRecorder(bus)
    cfg = ConfigSnapshot(model="m", profiles={"m": ModelProfile(context_window_tokens=9, output_mode=mode)})
    deps = Deps(artifacts=None, bus=bus, clock=FakeClock())
    return Retrying(Downgrading(inner, cfg, deps), cfg, deps), inner, told


async def test_the_retry_layer_mends():
    """A malformed answer is asked for again, with what is wrong with it."""
    client, inner, told = chain("Here you are: {goals: none}", ANSWER)
    assert await TrajectorySummariser(client).summarise(run(), history()) == SUMMARY
    [event] = told.payloads(LLMRetryWithFeedbackPayload)
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
    client, _, told = chain(refused, refused, f"Sure!\n```json\n{ANSWER}\n```\nAnything else?")
    assert await TrajectorySummariser(client).summarise(run(), history()) == SUMMARY
    assert len(told.payloads(LLMModeDowngradedPayload)) == 2


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
