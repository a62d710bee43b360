"""What a run gave: its output, what it used, what was said, and the error of one that reached no goal."""

from __future__ import annotations

import pytest

from harborage import CallTool, Finish, FinishReason, Identity, Runtime, tool
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.messages import Message, Speaker
from tests.kit.planners import StepPlanner

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


@tool(effects="read")
async def look(item: str) -> int:
    """Look at a shelf."""
    return len(item)


@tool
async def breaks() -> int:
    """Fail."""
    raise ValueError("no shelf")


async def test_a_result_has_the_output_the_usage_and_what_was_said() -> None:
    """In order: the goal, each call and its outcome, the answer."""
    planner = StepPlanner(CallTool("look", b'{"item":"tea"}'), Finish(FinishReason.GOAL, {"tea": 3}))
    async with Runtime(planner=planner, tools=[look]) as rt:
        result = await (await rt.start("How much tea?", who=ME)).result()
    assert result.output == {"tea": 3}
    assert (result.usage.steps, result.usage.tool_calls, result.usage.tokens) == (2, 1, 0)
    assert result.messages == (
        Message(role=Speaker.USER, text="How much tea?"),
        Message(role=Speaker.ASSISTANT, tool="look", args='{"item":"tea"}'),
        Message(role=Speaker.TOOL, tool="look", text="3"),
        Message(role=Speaker.ASSISTANT, text='{"tea":3}'),
    )


async def test_a_run_without_its_goal_raises_with_the_reason_and_how_far_it_came() -> None:
    """The error has what was said and used, so that a caller can tell what happened."""
    planner = StepPlanner(CallTool("breaks", b"{}"), Finish(FinishReason.NO_PATH, "nothing found"))
    async with Runtime(planner=planner, tools=[breaks]) as rt:
        run = await rt.start("Look", who=ME)
        with pytest.raises(RunFailedError, match="no_path: nothing found") as caught:
            await run.result()
        assert (await run.finished()).reason is FinishReason.NO_PATH
    assert caught.value.reason is FinishReason.NO_PATH
    assert (caught.value.usage.tool_calls, caught.value.run_id) == (1, run.id)
    assert [message.role for message in caught.value.messages] == ["user", "assistant", "tool", "assistant"]
    assert "no shelf" in caught.value.messages[2].text
