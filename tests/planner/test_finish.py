"""The planner that finishes at once, and what a finish means for its task."""

from __future__ import annotations

import asyncio
import json

import pytest

from harborage.identity import Quadruple
from harborage.planner import (
    TASK_ERROR_CANCELLED,
    TASK_ERROR_RUN_LOOP,
    AnswerEnvelope,
    FactoryDeps,
    Finish,
    FinishReason,
    InvalidConfigError,
    PlannerConfig,
    RunContext,
    extract_answer,
    task_error_code_for_finish,
)
from harborage.planner.finish import FinishPlanner, make
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio


def run(run_id: str = "r-1") -> RunContext:
    """A run of that id."""
    return RunContext(quadruple=Quadruple("t", "u", "s", run_id))


async def test_it_finishes_with_the_goal():
    """The first step ends the run, and the metadata names the run."""
    assert await FinishPlanner().next(run()) == Finish(FinishReason.GOAL, None, {"run_id": "r-1"})


async def test_the_template_is_copied():
    """Payload and metadata come from the template, which stays as it was; the reason is always the goal."""
    template = Finish(FinishReason.NO_PATH, {"answer": "x"}, {"k": "v"})
    finish = await FinishPlanner(template).next(run())
    assert finish == Finish(FinishReason.GOAL, {"answer": "x"}, {"k": "v", "run_id": "r-1"})
    finish.metadata["k"] = "changed"
    assert template.metadata == {"k": "v"}
    assert (await FinishPlanner(template).next(run())).metadata["k"] == "v"


@each_row("template", [None, Finish(FinishReason.GOAL), Finish(FinishReason.GOAL, metadata=None)])
async def test_nothing_to_say_gives_no_metadata(template):
    """Without template metadata and without a run id there is no metadata."""
    assert (await FinishPlanner(template).next(run(""))).metadata is None


async def test_identity_is_not_checked():
    """The stub serves a run without any identity."""
    finish = await FinishPlanner().next(RunContext(quadruple=Quadruple()))
    assert finish.reason is FinishReason.GOAL


async def test_a_cancelled_caller_gets_its_cancellation():
    """A cancelled caller gets no decision."""

    async def call():
        asyncio.current_task().cancel()
        return await FinishPlanner().next(run())

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(call())


async def test_one_instance_serves_128_runs():
    """Concurrent runs on one instance each get their own run id, and a cancelled one disturbs no other."""
    planner = FinishPlanner(Finish(FinishReason.GOAL, "p", {"shared": 1}))

    async def one(number: int) -> dict:
        await asyncio.sleep(0)
        if number % 2:
            asyncio.current_task().cancel()
        return (await planner.next(run(f"r-{number}"))).metadata

    results = await asyncio.gather(*(one(number) for number in range(128)), return_exceptions=True)
    for number, result in enumerate(results):
        if number % 2:
            assert isinstance(result, asyncio.CancelledError)
        else:
            assert result == {"shared": 1, "run_id": f"r-{number}"}


async def test_the_factory_needs_nothing():
    """The driver builds the stub from any configuration, but refuses options that no driver but another has."""
    assert isinstance(make(PlannerConfig(max_steps=3), FactoryDeps()), FinishPlanner)
    with pytest.raises(InvalidConfigError, match="leave out repair_attempts"):
        make(PlannerConfig(extra={"repair_attempts": 2}), FactoryDeps())


def test_envelope_bytes_are_exact():
    """The keys come in a fixed order, whatever their values."""
    envelope = AnswerEnvelope(answer="42", finish_reason="goal", tool_calls_seen=3)
    assert envelope.encode() == b'{"answer":"42","finish_reason":"goal","tool_calls_seen":3}'


def test_envelope_of_a_finish():
    """The envelope carries the extracted answer, the reason's wire string and the number of steps."""
    envelope = AnswerEnvelope.of(Finish(FinishReason.GOAL, {"answer": "yes"}), 2)
    assert envelope == AnswerEnvelope("yes", "goal", 2)
    assert json.loads(envelope.encode())["finish_reason"] == "goal"


@each_row(
    "payload, answer",
    [
        ("text", "text"),
        ("", ""),
        ({"answer": "inner", "more": 1}, "inner"),
        ({"answer": ""}, ""),
        ({"answer": 42}, '{"answer":42}'),
        ({"answer": None, "it's": [True, None]}, '{"answer":null,"it\'s":[true,null]}'),
        ({}, "{}"),
        (None, "goal"),
        (42, "42"),
        ([1, 2], "[1,2]"),
        (False, "false"),
    ],
)
def test_extracting_the_answer(payload, answer):
    """Text is the answer, so is the text under `answer`; nothing gives the reason, anything else is JSON."""
    assert extract_answer(Finish(FinishReason.GOAL, payload)) == answer


@each_row("reason", [reason for reason in FinishReason if reason is not FinishReason.GOAL])
def test_the_code_is_the_reason(reason):
    """A run that did not reach its goal fails its task with its reason as the code, verbatim."""
    assert task_error_code_for_finish(reason) == reason.value
    assert type(task_error_code_for_finish(reason)) is str


def test_codes_of_runs_without_a_finish():
    """A loop that raised and a run that was cancelled have codes of their own."""
    assert (TASK_ERROR_RUN_LOOP, TASK_ERROR_CANCELLED) == ("runloop_error", "cancelled")
