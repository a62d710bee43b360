"""Agents and runs as the tools of an MCP server, with the official client over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from harborage import Agent, Runtime, tool
from harborage.events import PatternRedactor
from harborage.identity import Identity
from harborage.server.auth.gate import TokenGate
from harborage.server.auth.minting import development_mint, verifier_of
from harborage.testing.llm import ScriptedLLM, calls_tools
from tests.kit.mcp_client import mcp_client, on_socket
from tests.kit.wire import BEN, EVE, WITHIN_S

pytestmark = pytest.mark.anyio

OF_A_RUN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("run_status", {}),
    ("answer_run", {"approved": True}),
    ("steer_run", {"action": "cancel"}),
)
MODES = ("auto", "legacy")


@tool(effects="external", approval="always")
async def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} for {order}"


ASKS = (calls_tools(("refund", {"order": "A-1", "euros": 5})), "Done.")


@asynccontextmanager
async def serving(*script: Any) -> AsyncIterator[str]:
    """The address of a server of the agent `support`, whose model says these lines."""
    agent: Any = Agent("support", model=ScriptedLLM(script), tools=[refund])
    async with Runtime([agent], storage="memory:") as runtime, on_socket(runtime) as url:
        yield url


async def call(client: Any, name: str, **arguments: Any) -> dict[str, Any]:
    """What a tool gives; it is no error."""
    async with asyncio.timeout(WITHIN_S):
        result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    found: dict[str, Any] = result.structured_content
    return found


async def fails(client: Any, name: str, **arguments: Any) -> str:
    """The text with which a tool refuses."""
    async with asyncio.timeout(WITHIN_S):
        result = await client.call_tool(name, arguments)
    assert result.is_error, result
    return str(result.content[0].text)


def answering(answer: ElicitResult, asked: list[str]) -> dict[str, Any]:
    """The options of a client whose person answers so."""

    async def elicit(_: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return answer

    return {"elicitation_callback": elicit}


@pytest.mark.parametrize("mode", MODES)
async def test_agents_are_tools_that_give_what_a_run_gave(mode: str) -> None:
    """Each tool has a schema of its arguments; the output is structured, and a text for models."""
    async with serving("hello") as url, mcp_client(url, mode=mode) as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert set(tools) == {"run_support", "start_run", "run_status", "list_runs", "steer_run", "answer_run"}
        assert tools["run_support"].input_schema["required"] == ["goal"]
        seen = await call(client, "run_support", goal="Say hello")
        assert (seen["status"], seen["output"], seen["agent"]) == ("completed", "hello", "support")


async def test_a_client_is_told_how_a_run_goes_on() -> None:
    """Progress comes while the call hangs."""
    told: list[str] = []

    async def progress(_: float, __: float | None, message: str | None) -> None:
        told.append(message or "")

    @tool(effects="read")
    async def look() -> str:
        """Look."""
        return "seen"

    agent: Any = Agent("support", model=ScriptedLLM([calls_tools(("look", {})), "Done."]), tools=[look])
    async with Runtime([agent]) as runtime, on_socket(runtime) as url, mcp_client(url) as client:
        result = await client.call_tool("run_support", {"goal": "look"}, progress_callback=progress)
        assert result.structured_content["output"] == "Done."
        assert any("tool.invoked look" in one for one in told)


async def test_a_run_can_be_started_watched_and_answered_by_hand() -> None:
    """A client that cannot ask a person is told how to answer."""
    async with serving(*ASKS) as url, mcp_client(url) as client:
        started = await call(client, "start_run", agent="support", goal="refund", key="k")
        assert (await call(client, "start_run", agent="support", goal="refund", key="k"))["run_id"] == started["run_id"]
        seen = await call(client, "run_status", run_id=started["run_id"], wait_seconds=20)
        assert (seen["status"], seen["questions"][0]["tool"]) == ("waiting", "refund")
        assert "approved" in await fails(client, "answer_run", run_id=started["run_id"])
        done = await call(client, "answer_run", run_id=started["run_id"], approved=True)
        assert (done["status"], done["output"]) == ("completed", "Done.")
        assert [one["run_id"] for one in (await call(client, "list_runs"))["runs"]] == [started["run_id"]]


async def test_an_approval_asks_the_person_at_the_client() -> None:
    """The call goes on with the same run, and gives its end."""
    asked: list[str] = []
    yes = ElicitResult(action="accept", content={"approved": True})
    async with serving(*ASKS) as url, mcp_client(url, **answering(yes, asked)) as client:
        done = await call(client, "run_support", goal="refund")
        assert (done["status"], done["output"]) == ("completed", "Done.")
        assert len(asked) == 1
        assert "refund" in asked[0]
        assert len((await call(client, "list_runs"))["runs"]) == 1


async def test_a_person_who_says_nothing_leaves_the_run_waiting() -> None:
    """It can be answered later."""
    asked: list[str] = []
    async with serving(*ASKS) as url, mcp_client(url, **answering(ElicitResult(action="cancel"), asked)) as client:
        seen = await call(client, "run_support", goal="refund")
        assert seen["status"] == "waiting"
        assert (await call(client, "answer_run", run_id=seen["run_id"], approved=False))["status"] == "completed"


async def test_a_run_is_steered() -> None:
    """It is cancelled, also while it waits."""
    async with serving(*ASKS) as url, mcp_client(url) as client:
        seen = await call(client, "run_support", goal="refund")
        assert "needs a text" in await fails(client, "steer_run", run_id=seen["run_id"], action="redirect")
        await call(client, "steer_run", run_id=seen["run_id"], action="cancel")
        assert (await call(client, "run_status", run_id=seen["run_id"], wait_seconds=20))["status"] == "cancelled"


async def test_runs_of_others_are_not_found() -> None:
    """Neither those of another user, another tenant, nor another session."""
    async with serving(*ASKS) as url:
        async with mcp_client(url) as ada:
            seen = await call(ada, "run_support", goal="refund")
        for who in (BEN, EVE, Identity("acme", "ada", "other")):
            async with mcp_client(url, who) as other:
                for name, more in (
                    ("run_status", {}),
                    ("answer_run", {"approved": True}),
                    ("steer_run", {"action": "cancel"}),
                ):
                    assert "no such run" in await fails(other, name, run_id=seen["run_id"], **more)
                assert (await call(other, "list_runs"))["runs"] == []


async def test_what_does_not_fit_is_refused() -> None:
    """Bad arguments are results that a model can read; an unknown tool is an error of the protocol."""
    async with serving("hello") as url, mcp_client(url) as client:
        assert "goal" in await fails(client, "run_support")
        assert "wait_seconds" in await fails(client, "run_status", run_id="x", wait_seconds=10_000)
        assert "unknown" in await fails(client, "run_support", goal="x", extra=1)
        assert "no agent" in await fails(client, "start_run", agent="other", goal="x")
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("other", {})


async def test_nobody_is_refused() -> None:
    """Without a caller there is no list."""
    async with serving("hello") as url:
        with pytest.raises((MCPError, ExceptionGroup)):
            async with mcp_client(url, None) as client:
                await client.list_tools()


async def test_a_token_without_a_session_is_enough() -> None:
    """Its runs are in the session `mcp` of its user."""
    mint = development_mint()
    token, _ = mint.sign("acme", "ada")
    agent: Any = Agent("support", model=ScriptedLLM(["hello"]))
    async with Runtime([agent], storage="memory:") as runtime:
        gate = TokenGate(verifier_of(mint), redactor=PatternRedactor())
        async with on_socket(runtime, gate) as url, mcp_client(url, None, token=token) as client:
            assert (await call(client, "run_support", goal="hi"))["output"] == "hello"
        assert len(await runtime.runs(who=Identity("acme", "ada", "mcp"))) == 1
