"""An answer that means no decision: the model is corrected and asked again, within limits, before the run fails."""

from __future__ import annotations

import pytest

from harborage.llm import Role
from harborage.planner import (
    AwaitTask,
    CallTool,
    Finish,
    FinishReason,
    InvalidDecisionError,
    RepairCounters,
    Step,
    ToolCallDeferred,
    Trajectory,
)
from harborage.planner.react import DECLARATIVE_ACTION_TOOL_NAME, ReActPlanner
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.provider_rules import check_request
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

BAD_ARGS = calls_tools(("_await_task", {"id": "t-1"}))
MIXED = calls_tools(("search", {"q": 1}), ("_await_task", {"task_id": "t-1"}), content="both", reasoning="hasty")
GOOD = calls_tools(("_await_task", {"task_id": "t-1"}), content="one", reasoning="calm")


async def test_the_first_slip_is_corrected_in_the_same_step(make_run, emitted):
    """The model is asked a second time, and the run goes on as if the first answer had not been."""
    llm = ScriptedLLM([MIXED, GOOD])
    notes = []
    run = make_run(on_reasoning=notes.append, on_assistant_content=notes.append, on_pending_tool_calls=notes.append)
    planner = ReActPlanner(llm)
    assert await planner.next(run) == AwaitTask("t-1")
    assert len(llm.calls) == 2
    assert notes == [(), "calm", "one"]
    assert [event.type for event in emitted] == ["planner.decision"]
    assert planner.steps_taken == 1


async def test_the_corrective_turn(make_run):
    """It is the first request, what the model said, and which calls were not made for which reason; it is legal."""
    llm = ScriptedLLM([MIXED, GOOD])
    await ReActPlanner(llm).next(make_run())
    first, second = llm.requests
    assert second.messages[: len(first.messages)] == first.messages
    echo, correction = second.messages[len(first.messages) :]
    assert (echo.role, echo.content.text, echo.tool_calls) == (Role.ASSISTANT, "both", ())
    assert correction.role is Role.USER
    for word in ('search {"q":1}', '_await_task {"task_id":"t-1"}', "only call of its turn"):
        assert word in correction.content.text
    assert (second.tools, second.parallel_tool_calls) == (first.tools, first.parallel_tool_calls)
    check_request(second)


async def test_a_finish_without_an_answer_is_asked_for_again(make_run, emitted):
    """It is no goal: the model is corrected, and its next prompt has a reminder when it continues with a call."""
    bad = calls_tools(("_finish", {"status": "done"}))
    llm = ScriptedLLM([bad, calls_tools(("search", {})), says("42")])
    counters = RepairCounters()
    run = make_run(repair_counters=counters)
    assert (await ReActPlanner(llm).next(run)).tool == "search"
    assert counters.finish_repair == 1
    assert "write the answer as plain text" in llm.requests[1].messages[-1].content.text
    decision = await ReActPlanner(llm).next(make_run(repair_counters=counters))
    assert (decision.reason, decision.payload, counters.finish_repair) == ("goal", "42", 0)
    assert "reminder: end the run" in llm.requests[2].messages[0].content.text


async def test_a_model_that_never_finishes_well_has_no_path(make_run, emitted):
    """The failed finishes are bounded and announced like any other failure; nothing is taken for an answer."""
    llm = ScriptedLLM([calls_tools(("_finish", {}))] * 9)
    counters = RepairCounters()
    decision = await ReActPlanner(llm).next(make_run(repair_counters=counters))
    assert (decision.reason, decision.payload) == ("no_path", None)
    assert (len(llm.calls), counters.finish_repair) == (2, 1)
    assert [event.type for event in emitted] == ["planner.repair_exhausted", "planner.decision"]


async def test_corrections_do_not_pile_up(make_run):
    """Each correction starts from the first request again."""
    llm = ScriptedLLM([MIXED, BAD_ARGS, GOOD])
    await ReActPlanner(llm).next(make_run())
    assert [len(request.messages) for request in llm.requests] == [2, 4, 3]


@pytest.mark.parametrize(("slip", "counters"), [(BAD_ARGS, RepairCounters(0, 1, 0)), (MIXED, RepairCounters(0, 0, 1))])
async def test_what_was_repaired_is_counted(make_run, slip, counters):
    """A slip over arguments and one over several actions raise their own counters, so that the next prompt reminds."""
    run = make_run()
    await ReActPlanner(ScriptedLLM([slip, GOOD])).next(run)
    assert run.repair_counters == counters


async def test_the_next_prompt_reminds_and_the_one_after_does_not(make_run, system_text):
    """Guidance follows a slip for as long as there is one, and a clean step ends it."""
    llm = ScriptedLLM([BAD_ARGS, GOOD, GOOD, "done"])
    planner = ReActPlanner(llm)
    trajectory = Trajectory()
    run = make_run(trajectory=trajectory)
    for _ in range(2):
        trajectory.steps.append(Step(action=await planner.next(run), observation="ok"))
    await planner.next(run)
    has_guidance = ["reminder: " in system_text(request) for request in llm.requests]
    assert has_guidance == [False, False, True, False]


async def test_giving_up(make_run, emitted):
    """Two failures over arguments in a step end the run without its goal; an event says why, and nothing is raised."""
    llm = ScriptedLLM([BAD_ARGS] * 5)
    run = make_run()
    planner = ReActPlanner(llm)
    decision = await planner.next(run)
    assert len(llm.calls) == 2
    assert isinstance(decision, Finish)
    assert decision.reason is FinishReason.NO_PATH
    assert decision.metadata["followup"] is True
    assert decision.metadata["repair_attempts"] == 2
    assert decision.metadata["repair_error"] == "planner: schema repair exhausted"
    assert "_await_task: task_id is missing" in decision.metadata["repair_chain"]
    assert [event.type for event in emitted] == ["planner.repair_exhausted", "planner.decision"]
    assert (emitted[0].payload.attempts, emitted[0].payload.consecutive_arg_failures) == (2, 2)
    assert emitted[1].payload.decision_kind == "Finish"
    assert run.repair_counters == RepairCounters(1, 1, 0)


@each_row("attempts, calls", [(1, 1), (2, 2), (5, 5), (0, 3)])
async def test_attempts_are_the_other_bound(make_run, attempts, calls):
    """Mixed calls are no failure over arguments: they are asked again until the attempts are used up."""
    llm = ScriptedLLM([MIXED] * 9)
    decision = await ReActPlanner(llm, repair_attempts=attempts).next(make_run())
    assert decision.reason is FinishReason.NO_PATH
    assert len(llm.calls) == calls


async def test_the_guard_can_be_widened(make_run):
    """More failures over arguments may be allowed."""
    llm = ScriptedLLM([BAD_ARGS, BAD_ARGS, GOOD])
    decision = await ReActPlanner(llm, max_consecutive_arg_failures=3).next(make_run())
    assert decision == AwaitTask("t-1")


@pytest.mark.parametrize("answer", [MIXED, BAD_ARGS, calls_tools(("", {}))])
async def test_repairing_switched_off(make_run, emitted, answer):
    """Then the error of the first answer is raised, and nothing is published or passed on."""
    notes = []
    planner = ReActPlanner(ScriptedLLM([answer]), arg_fill_enabled=False)
    with pytest.raises(InvalidDecisionError):
        await planner.next(make_run(on_pending_tool_calls=notes.append))
    assert notes == emitted == []


async def test_each_attempt_is_streamed(make_run):
    """The subscriber's stream is reset after the first answer, and gets the second."""
    pieces = []
    llm = ScriptedLLM([MIXED, says("done")], piece=99)
    await ReActPlanner(llm).next(make_run(on_chunk=lambda delta, done, kind: pieces.append((delta, str(kind)))))
    assert all(request.stream for request in llm.requests)
    assert [piece for piece in pieces if piece[0] or piece[1] == "reset"] == [
        ("hasty", "reasoning"),
        ("both", "content"),
        ("", "reset"),
        ("done", "content"),
    ]


async def test_giving_up_voids_nothing(make_run):
    """A reset comes before each further attempt, and none after the last."""
    kinds = []
    run = make_run(on_chunk=lambda delta, done, kind: kinds.append(str(kind)))
    await ReActPlanner(ScriptedLLM([MIXED] * 3)).next(run)
    assert kinds.count("reset") == 2
    assert kinds[-1] != "reset"


async def test_a_client_that_starts_again_voids_what_it_streamed(make_run):
    """A layer below that repeats a call says so through the same channel."""
    pieces = []

    class Repeats:
        async def complete(self, request):
            request.on_content("ha", False)
            request.on_reset()
            request.on_content("done", False)
            request.on_content("", True)
            return says("done")

        async def close(self): ...

    await ReActPlanner(Repeats()).next(make_run(on_chunk=lambda delta, done, kind: pieces.append((delta, str(kind)))))
    assert pieces == [("ha", "content"), ("", "reset"), ("done", "content"), ("", "content")]


async def test_a_long_call_is_cut_in_the_correction(make_run):
    """The correction quotes the call briefly, however long the call was."""
    llm = ScriptedLLM([calls_tools(("a", {"x": "y" * 9_000}), ("_finish", {})), GOOD])
    await ReActPlanner(llm).next(make_run())
    assert len(llm.requests[1].messages[-1].content.text) < 1_000


def escape(**outcome: bool) -> Step:
    """A declarative action and what it reports."""
    return Step(action=CallTool(DECLARATIVE_ACTION_TOOL_NAME), observation={"repair_outcome": outcome})


async def test_a_declarative_action_that_keeps_failing(make_run, system_text):
    """Three bad ones in a row bring a reminder, a warning and a critical line; a goal clears them all."""
    again = calls_tools((DECLARATIVE_ACTION_TOOL_NAME, {"body": "{"}))
    llm = ScriptedLLM([again, again, again, says("done")])
    planner = ReActPlanner(llm)
    trajectory = Trajectory()
    run = make_run(trajectory=trajectory)
    for _ in range(3):
        await planner.next(run)
        trajectory.steps.append(escape(args_repaired=True, finish_repair=True))
    await planner.next(run)
    texts = [system_text(request) for request in llm.requests]
    assert "additional_guidance" not in texts[0]
    for text, tier in zip(texts[1:], ("reminder", "warning", "critical"), strict=True):
        assert text.count(f"\n{tier}: ") == 2
    assert run.repair_counters == RepairCounters()


async def test_another_tool_clears_what_a_declarative_action_reported(make_run):
    """The report is kept only while the same tool is tried again."""
    run = make_run(trajectory=Trajectory(steps=[escape(multi_action=True)]))
    await ReActPlanner(ScriptedLLM([calls_tools(("other", {}))])).next(run)
    assert run.repair_counters == RepairCounters()


async def test_a_report_is_kept_for_a_call_that_waited(make_run):
    """A waiting declarative action does not clear the report either."""
    run = make_run(
        trajectory=Trajectory(steps=[escape(multi_action=True)]),
        pending_tool_calls=(ToolCallDeferred(DECLARATIVE_ACTION_TOOL_NAME),),
    )
    await ReActPlanner(ScriptedLLM()).next(run)
    assert run.repair_counters == RepairCounters(0, 0, 1)


async def test_one_runs_slips_are_not_anothers(make_run, system_text):
    """On one planner, a run that keeps failing leaves another's prompt without guidance."""
    llm = ScriptedLLM(["done"])
    planner = ReActPlanner(llm)
    await planner.next(make_run("r-1", trajectory=Trajectory(steps=[escape(args_repaired=True)])))
    await planner.next(make_run("r-2"))
    bad, good = llm.requests
    assert "reminder: " in system_text(bad)
    assert "additional_guidance" not in system_text(good)
