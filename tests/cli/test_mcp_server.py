"""`harborage mcp-server` as a process that the official MCP client starts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult

from harborage.cli.main import main
from tests.cli.conftest import DEADLINE_S
from tests.kit.forked import command_line

pytestmark = pytest.mark.anyio

CLERK = """
    from harborage import Agent, CallTool, Finish, FinishReason, tool

    print("the agent's file is read")

    @tool(effects="write", approval="always")
    async def order(item: str) -> str:
        \"\"\"Order something.\"\"\"
        print("ordering")
        return f"ordered {item}"

    class Clerk:
        async def next(self, run):
            steps = run.trajectory.steps
            return Finish(FinishReason.GOAL, "done") if steps else CallTool("order", item="tea")

    agent = Agent("clerk", planner=Clerk(), tools=[order])
"""


def started(folder: Path) -> StdioServerParameters:
    """How the client starts the command in a folder with an agent."""
    (folder / "agent.py").write_text(dedent(CLERK), "utf-8")
    command, *words = command_line("mcp-server", "agent.py")
    return StdioServerParameters(command=command, args=words, cwd=folder)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_runs_an_agent_and_is_asked_for_approval(mode: Any, tmp_path: Path) -> None:
    """What the agent's file prints does not disturb the protocol."""
    asked: list[str] = []

    async def elicit(_: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"approved": True})

    async with asyncio.timeout(DEADLINE_S):
        async with Client(
            started(tmp_path), mode=mode, elicitation_callback=elicit, read_timeout_seconds=DEADLINE_S
        ) as client:
            result = await client.call_tool("run_clerk", {"goal": "order tea"})
            assert (result.structured_content["status"], result.structured_content["output"]) == ("completed", "done")
            assert "order" in asked[0]


async def test_a_run_that_waits_is_there_at_the_next_start(tmp_path: Path) -> None:
    """Another client answers what the one before was told."""
    async with asyncio.timeout(DEADLINE_S):
        async with Client(started(tmp_path), read_timeout_seconds=DEADLINE_S) as client:
            seen = (await client.call_tool("run_clerk", {"goal": "order tea"})).structured_content
            assert seen["status"] == "waiting"
        async with Client(started(tmp_path), read_timeout_seconds=DEADLINE_S) as client:
            done = await client.call_tool("answer_run", {"run_id": seen["run_id"], "approved": True})
            assert done.structured_content["output"] == "done"


def test_a_session_has_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    """An empty one is wrong use."""
    assert main(["mcp-server", "--session", " "]) == 2
    assert "--session is empty" in capsys.readouterr().err
