"""What the model answered becomes the decision that it means, or an error that names the call."""

from __future__ import annotations

import pytest

from harborage.llm import CompleteResponse, ToolCallStructured
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    InvalidDecisionError,
    SpawnSpec,
    SpawnTask,
    ToolCallDeferred,
)
from harborage.planner.react import UnusableCallError, project
from harborage.planner.repair import Mistake
from harborage.testing.llm import calls_tools, says
from tests.kit.tables import each_row

RESERVED = ["_finish", "_spawn_task", "_await_task"]


def decided(response: CompleteResponse, *, is_parallel: bool = True):
    """The decision in an answer that leaves nothing pending."""
    projected = project(response, is_parallel=is_parallel)
    assert projected.pending == ()
    return projected.decision


@each_row("content", ["the answer", " ", "\n"])
def test_text_is_the_answer(content):
    """Text without a call reaches the goal, just as it is; a single space is text."""
    assert decided(says(content)) == Finish(
        FinishReason.GOAL, content, {"via": "react.projectResponse", "goal_reach": True}
    )


def test_nothing_is_no_path():
    """Neither text nor a call ends the run without its goal."""
    assert decided(says("")) == Finish(
        FinishReason.NO_PATH, None, {"followup": True, "via": "react.projectResponse.empty"}
    )


def test_one_call():
    """One call is a call; the text beside it is no answer."""
    answer = calls_tools(("search", b'{ "q": 1.0 }'), content="let me see", ids=["id-7"])
    assert decided(answer) == CallTool("search", b'{ "q": 1.0 }', "id-7")


def test_a_call_without_arguments():
    """Arguments that are empty are an empty object."""
    assert decided(calls_tools(("now", b""))) == CallTool("now", b"{}", "call-0")


def test_several_calls_in_parallel():
    """Several calls are one parallel call in their order, which waits for all."""
    answer = calls_tools(("a", {"n": 1}), ("b", {}), ("a", {"n": 2}))
    assert decided(answer) == CallParallel(
        (CallTool("a", b'{"n":1}', "call-0"), CallTool("b", b"{}", "call-1"), CallTool("a", b'{"n":2}', "call-2"))
    )


def test_several_calls_one_by_one():
    """Where calls are made one at a time, the first is the decision and the rest waits in order."""
    projected = project(calls_tools(("a", {}), ("b", {"n": 1}), ("c", {})), is_parallel=False)
    assert projected.decision == CallTool("a", b"{}", "call-0")
    assert projected.pending == (
        ToolCallDeferred("b", b'{"n":1}', "call-1"),
        ToolCallDeferred("c", b"{}", "call-2"),
    )


@each_row("is_parallel", [True, False])
@each_row("name", RESERVED)
@each_row("place", [0, 1])
def test_a_reserved_call_stands_alone(name, place, is_parallel):
    """A reserved call beside others, wherever, is refused by name; none of them is made."""
    calls = [("search", {}), ("read", {})]
    calls.insert(place * 2, (name, {"task_id": "t"}))
    with pytest.raises(InvalidDecisionError, match=name) as caught:
        project(calls_tools(*calls), is_parallel=is_parallel)
    assert caught.value.mistake is Mistake.MULTI_ACTION
    assert caught.value.tool == name


@pytest.mark.parametrize("calls", [[("", {})], [("a", {}), ("", {})]])
def test_a_call_names_its_tool(calls):
    """A call of nothing is refused."""
    with pytest.raises(UnusableCallError, match="name the tool"):
        project(calls_tools(*calls), is_parallel=True)


@each_row(
    "args, answer",
    [
        (b'{"answer": "42"}', "42"),
        (b'{"answer": {"n": 1}}', {"n": 1}),
        (b'{"answer": 7}', 7),
        (b'{"answer": false}', False),
        (b'{"answer": "", "status": "done"}', ""),
    ],
)
def test_a_finish_that_is_called(args, answer):
    """The reserved finish reaches the goal with its answer of any type; other keys are ignored."""
    assert decided(calls_tools(("_finish", args))) == Finish(
        FinishReason.GOAL,
        answer,
        {
            "raw_args": args.decode(),
            "via": "react.projectResponse._finish",
            "tool": "_finish",
            "goal_reach": True,
        },
    )


def test_a_finish_without_an_answer():
    """It is refused as a failed finish, and the text says how to end instead."""
    for args in (b"{}", b"", b"[1]", b"{oops", b'{"answer": null}', b'{"result": 1}'):
        with pytest.raises(UnusableCallError, match="_finish: to end, write the answer as plain text") as caught:
            project(calls_tools(("_finish", args)), is_parallel=True)
        assert caught.value.mistake is Mistake.FINISH, args


def test_a_spawn():
    """The reserved spawn is a spawn with all that it says."""
    args = {
        "kind": "foreground",
        "group_id": "g",
        "spec": {"description": "d", "query": "q", "priority": -3, "retain_turn": True, "fail_fast": True},
    }
    assert decided(calls_tools(("_spawn_task", args))) == SpawnTask(
        "foreground", SpawnSpec("d", "q", -3, True, True), "g"
    )


@each_row("args", [b"", b"{}", b'{"kind": ""}', b'{"kind": null, "spec": null, "group_id": null}'])
def test_a_spawn_without_arguments(args):
    """What is left out, or null, has its default: a background task."""
    assert decided(calls_tools(("_spawn_task", args))) == SpawnTask("background", SpawnSpec(), "")


@each_row(
    "args",
    [
        b"{oops",
        b"[]",
        b'{"kind": "sideways"}',
        b'{"kind": 1}',
        b'{"spec": "do it"}',
        b'{"spec": {"priority": "high"}}',
        b'{"spec": {"priority": 1001}}',
        b'{"spec": {"retain_turn": "yes"}}',
        b'{"kind": "\xff"}',
    ],
)
def test_a_spawn_that_means_nothing(args):
    """Arguments that cannot be read, of a wrong type or out of range are refused."""
    with pytest.raises(UnusableCallError, match="_spawn_task") as caught:
        project(calls_tools(("_spawn_task", args)), is_parallel=True)
    assert caught.value.mistake is Mistake.ARGS


def test_an_await():
    """The reserved await waits for its task, or for a group under the key that the result of a spawn has for it."""
    assert decided(calls_tools(("_await_task", {"task_id": "t-1"}))) == AwaitTask("t-1")
    assert decided(calls_tools(("_await_task", {"group_id": "research"}))) == AwaitTask("research")


@each_row("args", [b"", b"{}", b'{"task_id": "t", "group_id": "g"}', b'{"task_id": ""}', b'{"task_id": 1}', b"{oops"])
def test_an_await_of_nothing(args):
    """Without the id of a task there is nothing to wait for."""
    with pytest.raises(UnusableCallError, match="_await_task"):
        project(calls_tools(("_await_task", args)), is_parallel=True)


def test_the_index_of_a_call_is_not_its_id():
    """Calls are taken in the order of the answer and keep the ids that the provider gave."""
    calls = (ToolCallStructured("x", "a", b"{}", 5), ToolCallStructured("", "b", b"{}", 2))
    decision = decided(CompleteResponse("", calls))
    assert [branch.call_id for branch in decision.branches] == ["x", ""]


@each_row("most, at_once", [(50, 50), (80, 50), (3, 3), (2, 2), (1, 1), (0, 1)], ids=str)
def test_no_more_at_once_than_may_be(most, at_once):
    """What is over the limit, or over what the runtime runs side by side, waits for later steps in its order."""
    answer = calls_tools(*((f"t{number}", {}) for number in range(53)))
    projected = project(answer, is_parallel=True, most_parallel=most)
    decision = projected.decision
    made = decision.branches if isinstance(decision, CallParallel) else (decision,)
    assert len(made) == at_once
    assert [call.tool for call in made] + [call.name for call in projected.pending] == [f"t{n}" for n in range(53)]


@each_row("why", ["length", "max_tokens", "MAX_TOKENS", "max_output_tokens", "content_filter"])
def test_an_answer_without_its_end(why):
    """It is the answer all the same, and says that it was cut short; one that ended by itself does not."""
    cut = decided(CompleteResponse("the ans", finish_reason=why))
    assert (cut.reason, cut.payload, cut.metadata["cut_short"]) == (FinishReason.GOAL, "the ans", why)
    assert "cut_short" not in decided(CompleteResponse("the answer", finish_reason="stop")).metadata
