"""From an agent's description to a running runtime."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from harborage.app import Agent, AgentNotReadyError, open_runtime
from harborage.identity import Identity
from harborage.planner import CallTool, Finish, FinishReason
from harborage.planner.finish import FinishPlanner
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.approvals import GatedToolUnknownError
from harborage.runtime.durable import RunFailedError
from harborage.runtime.options import RuntimeOptions
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import ToolDuplicateNameError

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def test_an_agent_is_a_value() -> None:
    """Frozen, comparable, and little is needed."""
    agent = Agent(name="a", planner=FinishPlanner())
    assert (agent.tools, agent.approvals, agent.options, agent.check) == ((), None, RuntimeOptions(), None)
    with pytest.raises(AttributeError):
        agent.name = "b"  # type: ignore[misc]
    assert msgspec.structs.replace(agent, name="b").name == "b"


async def test_everything_an_agent_says_is_used() -> None:
    """Planner, tools, approvals, options and logger."""
    script = [
        CallTool("add", b'{"a":1,"b":2}'),
        lambda run: Finish(FinishReason.GOAL, run.trajectory.steps[0].observation),
    ]
    logger = logging.getLogger("mine")
    agent = Agent(
        name="sum",
        planner=ScriptedPlanner(script),
        tools=[add],
        approvals={"add": AlwaysDeny()},
        options=RuntimeOptions(max_steps=2),
    )
    runtime = open_runtime(agent, logger=logger)
    assert runtime.options.max_steps == 2
    async with runtime as rt:
        run = await rt.start("g", who=ME)
        async for event in run.events():
            if event.type == "tool.approval_requested":
                await run.approve(event.payload.pause_token)
        assert (await run.result()).payload == 3


async def test_one_agent_may_be_opened_many_times() -> None:
    """Its runtimes have nothing in common."""
    agent = Agent(name="a", planner=FinishPlanner())
    async with open_runtime(agent) as one, open_runtime(agent) as two:
        run = await one.start("g", who=ME)
        await run.result()
        assert await two.runs(who=ME) == []


def test_a_check_that_fails_opens_nothing() -> None:
    """It is asked first, and its words come out."""
    asked: list[int] = []

    def check() -> None:
        asked.append(1)
        raise AgentNotReadyError("start the model server")

    with pytest.raises(AgentNotReadyError, match="start the model server"):
        open_runtime(Agent(name="a", planner=FinishPlanner(), check=check))
    assert asked == [1]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"approvals": {"nope": AlwaysDeny()}}, GatedToolUnknownError),
        ({"tools": [add, add]}, ToolDuplicateNameError),
    ],
)
async def test_parts_that_do_not_fit_are_named_when_it_opens(fields: dict[str, Any], error: type[Exception]) -> None:
    """Nothing is left open."""
    with pytest.raises(error):
        async with open_runtime(Agent(name="a", planner=FinishPlanner(), **fields)):
            pass


async def test_limits_are_the_agents_own() -> None:
    """A run that goes on for ever ends there."""
    agent = Agent(
        name="a",
        planner=ScriptedPlanner([CallTool("add", b'{"a":1,"b":2}')] * 5),
        tools=[add],
        options=RuntimeOptions(max_steps=3),
    )
    async with open_runtime(agent) as rt:
        run = await rt.start("g", who=ME)
        with pytest.raises(RunFailedError, match="3 steps"):
            await run.result()
