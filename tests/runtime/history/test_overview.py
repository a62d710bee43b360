"""What the overview of a run calls a call is what the events and the lists of pauses call it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, tool
from harborage.events import DecisionPayload
from harborage.events.payloads.control import PauseRequestedPayload
from harborage.events.payloads.tools import (
    ToolApprovalRequestedPayload,
    ToolApprovedPayload,
    ToolCompletedPayload,
    ToolFailedPayload,
    ToolInvokedPayload,
    ToolPolicyExhaustedPayload,
)
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.serving import serving
from tests.kit.wire import ADA

pytestmark = pytest.mark.anyio


@tool(effects="read")
async def look_up(order: str) -> str:
    """Look an order up."""
    return order


@tool(effects="external", approval="always")
async def hand_out(order: str) -> str:
    """Hand an order out."""
    return order


@tool(effects="read", retries=0)
async def fail() -> str:
    """Fail."""
    raise ValueError("no")


async def test_a_call_has_one_id_wherever_it_is_spoken_of(tmp_path: Path) -> None:
    """In its events, in the steps of its run, in what it waits for and in the list of pauses; each id is one call's."""
    both = calls_tools(("look_up", {"order": "1"}), ("look_up", {"order": "2"}), ("fail", {}))
    model = ScriptedLLM([both, calls_tools(("hand_out", {"order": "7"})), calls_tools(("fail", {})), says("done")])
    agent: Agent[Any, Any] = Agent("clerk", model=model, tools=[look_up, hand_out, fail])
    async with serving([agent], storage="sqlite", folder=tmp_path) as served:
        run = await served.rt.start("go", who=ADA)
        await run.wait_pending()
        (pause,) = (await served.wire.post("pause.list")).json["snapshots"]
        await run.approve()
        await run.finished()
        told = [event.payload async for event in run.events()]
        steps = (await served.wire.post("runs.steps", {"id": run.id})).json["steps"]
    shown = {(step["step"], call["call_id"], call["tool"]) for step in steps for call in step["calls"]}
    begun = {(one.step, one.call_id, one.tool_name) for one in told if isinstance(one, ToolInvokedPayload)}
    ended = [
        (one.step, one.call_id, one.tool_name)
        for one in told
        if isinstance(one, ToolCompletedPayload | ToolFailedPayload | ToolPolicyExhaustedPayload)
    ]
    assert len(shown) == 5
    assert begun == shown == set(ended)
    assert len(ended) == 5
    (approval,) = [call for call in shown if call[2] == "hand_out"]
    waits = [(step["step"], wait["call_id"]) for step in steps for wait in step["waits"]]
    spoken = [
        (one.step, one.call_id)
        for one in told
        if isinstance(one, PauseRequestedPayload | ToolApprovalRequestedPayload | ToolApprovedPayload)
    ]
    assert {approval[:2]} == {(pause["step"], pause["call_id"]), *waits, *spoken}
    assert len(spoken) == 3
    assert {one.step for one in told if isinstance(one, DecisionPayload)} == {step["step"] for step in steps}
