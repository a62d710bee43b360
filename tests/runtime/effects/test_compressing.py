"""A prompt that a model finds too long is made again, once, from a history that was shortened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harborage.events import (
    LLMCompletionChunkPayload,
    RepairGuidanceInjectedPayload,
    TrajectoryCompressedPayload,
    TrajectoryCompressionFailedPayload,
)
from harborage.identity import Identity
from harborage.llm import CompleteRequest, CompleteResponse, ContextOverflowError, ContextWindowExceededError, Role
from harborage.planner import (
    CallTool,
    CompressionRunner,
    Finish,
    FinishReason,
    PlannerError,
    RunContext,
    Step,
    Trajectory,
    TrajectorySummary,
)
from harborage.planner.react import DECLARATIVE_ACTION_TOOL_NAME, ReActPlanner
from harborage.planner.summariser import TrajectorySummariser
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.durable.journal import decode_entries
from harborage.runtime.effects.planning import PlannerStepError
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import InboxRegistry, RunLoop, RunSpec
from harborage.state.storage import open_storage
from harborage.testing.llm import ScriptedLLM, calls_tools, user_text
from harborage.testing.planners import RecordingPlanner
from harborage.tools import SideEffect, tool
from tests.kit.provider_rules import check_request
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
Runtimes = Callable[..., Awaitable[Any]]
ROOMY = 1_000_000
TOO_LONG = ContextWindowExceededError(900, 1_000, 0.05, 950)
REFUSED = ContextOverflowError("peer: status 400: too long", status=400)
GOAL = Finish(FinishReason.GOAL, "done")
NOTE = calls_tools(("note", {"text": "a"}))


@tool
async def note(text: str) -> str:
    """Note."""
    return text


class Summariser:
    """Summarises, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.asked: list[int] = []

    async def summarise(self, run: RunContext, trajectory: Trajectory) -> TrajectorySummary:
        self.asked.append(len(trajectory.steps))
        if self._error is not None:
            raise self._error
        return TrajectorySummary(note=f"short {len(self.asked)}")


def replayed(request: CompleteRequest) -> int:
    """How many calls the request shows."""
    return sum(len(message.tool_calls) for message in request.messages)


@pytest.mark.parametrize("error", [TOO_LONG, REFUSED])
async def test_a_history_that_does_not_fit_is_summarised_and_asked_about_again(
    runtimes: Runtimes, error: Exception
) -> None:
    """Though its budget is not used up: the runner makes the summary, and the model gets a shorter, legal prompt."""
    llm, summariser = ScriptedLLM([NOTE, NOTE, error, "done"]), Summariser()
    bench = await runtimes(ReActPlanner(llm), tools=[note], summariser=summariser, token_budget=ROOMY)
    assert (await bench.run()).payload == "done"
    assert summariser.asked == [2]
    assert [replayed(request) for request in llm.requests] == [0, 1, 2, 0]
    assert "Note: short 1" in user_text(llm.requests[-1])
    check_request(llm.requests[-1])
    (published,) = bench.recorder.payloads(TrajectoryCompressedPayload)
    assert (published.steps_before, published.steps_after) == (2, 2)


async def test_a_budget_of_nothing_never_asks_the_summariser(runtimes: Runtimes) -> None:
    """A history that the model finds too long is folded; on a bare run loop the run ends with the model's error."""
    summariser = Summariser()
    llm = ScriptedLLM([NOTE, TOO_LONG, "done"])
    bench = await runtimes(ReActPlanner(llm), tools=[note], summariser=summariser, token_budget=0)
    assert (await bench.run()).payload == "done"
    assert "Made without a model: 1 steps" in user_text(llm.requests[-1])
    base = RunContext(quadruple=ME.with_run("r"), goal="g", trajectory=Trajectory(steps=[Step(action=CallTool("a"))]))
    loop = RunLoop(InboxRegistry(), Coordinator())
    spec = RunSpec(planner=ReActPlanner(ScriptedLLM([TOO_LONG])), base=base, compression=CompressionRunner(summariser))
    with pytest.raises(PlannerStepError) as caught:
        await loop.run(spec)
    assert caught.value.__cause__ is TOO_LONG
    assert summariser.asked == []


@pytest.mark.parametrize("summariser", [None, Summariser(LookupError("no model"))])
async def test_without_anybody_who_could_summarise_it_is_folded(runtimes: Runtimes, summariser: Any) -> None:
    """By arithmetic, which cannot fail; both are published."""
    llm = ScriptedLLM([NOTE, TOO_LONG, "done"])
    bench = await runtimes(ReActPlanner(llm), tools=[note], summariser=summariser, token_budget=ROOMY)
    assert (await bench.run()).payload == "done"
    assert "Made without a model: 1 steps" in user_text(llm.requests[-1])
    assert len(bench.recorder.payloads(TrajectoryCompressedPayload)) == 1
    assert len(bench.recorder.payloads(TrajectoryCompressionFailedPayload)) == (0 if summariser is None else 1)


async def test_it_happens_again_when_the_history_has_grown_again(runtimes: Runtimes) -> None:
    """As often as there are new steps to shorten, once for each step."""
    llm, summariser = ScriptedLLM([NOTE, TOO_LONG, NOTE, NOTE, TOO_LONG, "done"]), Summariser()
    bench = await runtimes(ReActPlanner(llm), tools=[note], summariser=summariser, token_budget=ROOMY)
    assert (await bench.run()).payload == "done"
    assert summariser.asked == [1, 3]
    assert "Note: short 2" in user_text(llm.requests[-1])


@each_row(
    "lines, asked",
    [([TOO_LONG], 1), ([NOTE, TOO_LONG, TOO_LONG], 3), ([NOTE, TOO_LONG, NOTE, TOO_LONG, TOO_LONG], 5)],
    ids=["nothing to shorten", "still too long", "still too long later"],
)
async def test_what_cannot_be_helped_fails_the_run(runtimes: Runtimes, lines: list[Any], asked: int) -> None:
    """With the model's own error, after one more attempt where there was anything to shorten."""
    llm = ScriptedLLM(lines)
    bench = await runtimes(ReActPlanner(llm), tools=[note], summariser=Summariser(), token_budget=ROOMY)
    with pytest.raises(RunFailedError) as caught:
        await bench.run()
    assert isinstance(caught.value.__cause__, PlannerStepError)
    assert caught.value.__cause__.__cause__ is TOO_LONG
    assert len(llm.calls) == asked


async def test_another_error_shortens_nothing(runtimes: Runtimes) -> None:
    """Only an overflow is answered so."""
    summariser = Summariser()
    llm = ScriptedLLM([NOTE, ConnectionError("gone"), "done"])
    bench = await runtimes(ReActPlanner(llm), tools=[note], summariser=summariser, token_budget=ROOMY)
    with pytest.raises(RunFailedError):
        await bench.run()
    assert summariser.asked == []


async def test_an_overflow_that_a_planner_wraps_is_known(runtimes: Runtimes) -> None:
    """Any planner over a model may say so, by the cause of its own error."""

    class Wraps:
        async def next(self, run: RunContext) -> Any:
            if not run.trajectory.steps:
                return CallTool("note", b'{"text":"a"}')
            if run.trajectory.summary is None:
                raise PlannerError("my model failed") from REFUSED
            return Finish(FinishReason.GOAL, run.trajectory.summary.note)

    bench = await runtimes(Wraps(), tools=[note], summariser=Summariser(), token_budget=ROOMY)
    assert (await bench.run()).payload == "short 1"


async def test_the_step_begins_again(runtimes: Runtimes) -> None:
    """What the first attempt counted is not counted twice, and what it streamed is void."""

    def overflows(request: CompleteRequest) -> CompleteResponse:
        assert request.on_content is not None
        request.on_content("ha", False)
        raise TOO_LONG

    @tool(name=DECLARATIVE_ACTION_TOOL_NAME)
    async def act() -> dict[str, Any]:
        """Act."""
        return {"repair_outcome": {"args_repaired": True}}

    again = calls_tools((DECLARATIVE_ACTION_TOOL_NAME, {}))
    llm = ScriptedLLM([again, again, overflows, "done"])
    bench = await runtimes(ReActPlanner(llm), tools=[act], summariser=Summariser(), token_budget=ROOMY)
    await bench.run()
    tiers = [one.tier for one in bench.recorder.payloads(RepairGuidanceInjectedPayload)]
    # The counters are those of the step; the summary has taken the report of the last one away only from the prompt.
    assert tiers == ["reminder", "warning", "warning"]
    pieces = [
        (one.delta, one.kind)
        for one in bench.recorder.payloads(LLMCompletionChunkPayload)
        if one.delta or one.kind == "reset"
    ]
    assert pieces[-3:] == [("ha", "content"), ("", "reset"), ("done", "content")]


async def test_a_run_that_is_carried_on_sees_the_same_history() -> None:
    """The summary that an overflow brought about is recorded, so the next process asks what this one would have."""
    reached = asyncio.Event()

    @tool(effects=SideEffect.READ)
    async def slow(text: str) -> str:
        """Take a while, once."""
        if text == "wait" and not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        return text

    def calls(text: str) -> CompleteResponse:
        return calls_tools(("slow", {"text": text}))

    dies = ScriptedLLM([calls("a"), TOO_LONG, calls("wait")])
    lives = ScriptedLLM(["done"])
    async with await open_storage("memory:") as storage:
        async with Runtime(planner=ReActPlanner(dies), tools=[slow], storage=storage) as runtime:
            run_id = (await runtime.start("go", who=ME)).id
            await reached.wait()
        async with Runtime(planner=ReActPlanner(lives), tools=[slow], storage=storage) as runtime:
            assert (await (await runtime.run(run_id, who=ME)).finished()).payload == "done"
    unbroken = ScriptedLLM([calls("a"), TOO_LONG, calls("wait"), "done"])
    async with Runtime(planner=ReActPlanner(unbroken), tools=[slow]) as runtime:
        await (await runtime.start("go", who=ME)).finished()
    assert lives.requests[0].messages == unbroken.requests[-1].messages
    assert "Made without a model" in user_text(lives.requests[0])


# --- by a model, for real

SUMMARY = '{"goals": ["g"], "facts": ["noted a"], "pending": [], "last_output_digest": "a", "note": "by the model"}'


class Two:
    """A client whose summaries follow one script and whose steps follow another."""

    def __init__(self, steps: list[Any], summaries: list[Any]) -> None:
        self.steps, self.summaries = ScriptedLLM(steps), ScriptedLLM(summaries)

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        return await (self.summaries if request.response_format is not None else self.steps).complete(request)

    async def close(self) -> None: ...


async def test_a_model_summarises_its_own_history(runtimes: Runtimes) -> None:
    """Over the budget, as often as it must be; each summary is made from the one before and the steps since."""
    client = Two([NOTE] * 20 + ["done"], [SUMMARY] * 20)
    bench = await runtimes(
        ReActPlanner(client, max_steps=99), tools=[note], summariser=TrajectorySummariser(client), token_budget=200
    )
    run = await bench.start()
    assert (await bench.end(run)).payload == "done"
    asked = client.summaries.requests
    assert len(asked) >= 2
    assert "[Summary of the first" not in user_text(asked[0])
    assert "facts: noted a" in user_text(asked[1])
    assert "Facts: noted a" in user_text(client.steps.requests[-1])
    for request in (*asked, *client.steps.requests):
        check_request(request)
    most = max(replayed(request) for request in client.steps.requests)
    assert most < 10
    assert len(bench.recorder.payloads(TrajectoryCompressedPayload)) == len(asked)
    # The record has every call and every result as it was.
    names = [getattr(entry, "name", "") for entry in decode_entries(await run.history(), run.id)]
    assert names.count("tool.note") >= 20


async def test_a_model_that_writes_no_summary_is_folded_over(runtimes: Runtimes) -> None:
    """An answer that is no summary is never taken for an empty one."""
    client = Two([NOTE] * 20 + ["done"], ["nothing to say"] * 20)
    bench = await runtimes(
        ReActPlanner(client, max_steps=99), tools=[note], summariser=TrajectorySummariser(client), token_budget=200
    )
    assert (await bench.run()).payload == "done"
    failed = bench.recorder.payloads(TrajectoryCompressionFailedPayload)
    assert {one.error_code for one in failed} == {"summariser_error"}
    assert len(bench.recorder.payloads(TrajectoryCompressedPayload)) == len(failed) >= 2
    assert "Made without a model" in user_text(client.steps.requests[-1])
    for request in client.steps.requests:
        check_request(request)


async def test_what_the_user_said_survives(runtimes: Runtimes) -> None:
    """Before a fold it is in the fold, after it in the conversation; nothing is said twice."""
    client = ScriptedLLM([NOTE, TOO_LONG, NOTE, "done"])
    planner = RecordingPlanner(ReActPlanner(client))
    bench = await runtimes(planner, tools=[note])
    run = await bench.start()
    await run.message("be brief")
    await bench.end(run)
    first, last = client.requests[0], client.requests[-1]
    assert [user_text(one).count("be brief") for one in (first, last)] == [1, 1]
    assert "the user said: be brief" in user_text(last)
    assert [message.role for message in last.messages].count(Role.TOOL) == 1
