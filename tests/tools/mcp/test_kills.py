"""Servers that are killed and connections that are cut: each call has the outcome that was promised, and acts once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, CallTool, Finish, FinishReason, Identity, Runtime
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import ToolPolicy, ToolPolicyExhaustedError
from harborage.tools.errors import ToolUnansweredError
from harborage.tools.mcp.errors import MCPUnreachableError
from harborage.tools.mcp.options import MCP
from harborage.tools.mcp.values import ConnectionState
from tests.kit.mcp_peers import at_an_address, listed, python_server, server_of
from tests.kit.sockets import CuttingProxy
from tests.tools.mcp.conftest import Open

pytestmark = pytest.mark.anyio

PLAIN = python_server("plain")
WITHIN_S = 20


def line(path: Path) -> bytes:
    return json.dumps({"path": str(path), "line": "x"}).encode()


async def step_of(server: MCP, call: CallTool) -> Any:
    """The step that a run remembers of one call."""
    steps: list[Any] = []

    def answer(run: Any) -> Finish:
        steps.extend(run.trajectory.steps)
        return Finish(FinishReason.GOAL, None)

    agent = Agent("clerk", planner=ScriptedPlanner([call, answer]), tools=[server])
    async with asyncio.timeout(WITHIN_S), Runtime([agent]) as runtime:
        run = await runtime.start(agent, "Go", who=Identity("acme", "ada", "s-1"))
        await run.finished()
    return steps[0]


async def test_a_server_that_is_killed_in_a_call_leaves_it_unknown(opened: Open, tmp_path: Path) -> None:
    """A call with effects that was sent and not answered is not sent again, and its outcome is unknown."""
    path = tmp_path / "lines"
    async with opened("plain", command=PLAIN) as server:
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(ToolUnansweredError, match="plain"):
                await server.call("plain_append_and_die", line(path))
            assert path.read_text() == "x\n"
            assert await server.call("plain_append", line(path)) == "appended"  # on a new process


async def test_what_may_be_sent_again_is_sent_again(opened: Open, tmp_path: Path) -> None:
    """A call that the operator declares idempotent is made again with the same key, as often as its policy says."""
    path = tmp_path / "lines"
    policy = {"append_and_die": ToolPolicy(max_retries=1, backoff_base_ms=1)}
    options = {"idempotent": ["append_and_die"], "tool_policies": policy}
    async with opened("plain", command=PLAIN, **options) as server:
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(ToolPolicyExhaustedError):
                await server.call("plain_append_and_die", line(path))
    assert path.read_text() == "x\nx\n"


async def test_a_neighbour_of_a_killed_call_keeps_its_answer(opened: Open, tmp_path: Path) -> None:
    """Calls with effects have a connection each: one that is cut costs the other nothing."""
    async with opened("plain", command=PLAIN) as server, asyncio.timeout(WITHIN_S):
        waiting = asyncio.create_task(server.call("plain_wait", b'{"seconds": 0.5}'))
        with pytest.raises(ToolUnansweredError):
            await server.call("plain_append_and_die", line(tmp_path / "lines"))
        assert await waiting == "waited"


async def test_a_connection_that_is_cut_over_http(opened: Open) -> None:
    """Of two calls in flight the one whose connection is cut is in doubt, and the other has its result."""
    arrived, go_on = asyncio.Event(), asyncio.Event()
    made: list[str] = []

    async def on_call(tool: str, args: Any, meta: Any) -> str:
        made.append(tool)
        arrived.set()
        await go_on.wait()
        return tool

    tools = [listed("one"), listed("other")]
    async with at_an_address(server_of(tools, on_call)) as url, asyncio.timeout(WITHIN_S):
        proxy = CuttingProxy(url.removesuffix("/mcp"))
        async with proxy.open() as outside, opened("peer", url=f"{outside}/mcp") as server:
            await server.tools()
            one = asyncio.create_task(server.call("peer_one"))
            await arrived.wait()
            arrived.clear()
            before = set(proxy._writers)
            other = asyncio.create_task(server.call("peer_other"))
            await arrived.wait()
            for writer in proxy._writers - before:
                writer.transport.abort()
            with pytest.raises(ToolUnansweredError):
                await other
            go_on.set()
            assert await one == "one"
            assert made == ["one", "other"]


async def test_a_server_that_is_gone_was_sent_nothing(opened: Open) -> None:
    """A connection that never opens says that nothing happened, and the state of the server says so, too."""
    tools = [listed("one")]

    async def on_call(tool: str, args: Any, meta: Any) -> str:
        return tool

    async with at_an_address(server_of(tools, on_call)) as url, asyncio.timeout(WITHIN_S):
        proxy = CuttingProxy(url.removesuffix("/mcp"))
        async with proxy.open() as outside, opened("peer", url=f"{outside}/mcp") as server:
            assert await server.call("peer_one") == "one"
            proxy.is_down = True
            proxy.cut()
            with pytest.raises(MCPUnreachableError):
                await server.source.discover()
            assert server.source.status.state is not ConnectionState.ONLINE
            proxy.is_down = False
            assert await server.call("peer_one") == "one"  # as soon as the backoff allows
            assert server.source.status.state is ConnectionState.ONLINE


async def test_a_cancelled_call_tells_the_server(opened: Open) -> None:
    """Who gives up is free at once, and the server stops working for them."""
    arrived, given_up = asyncio.Event(), asyncio.Event()

    async def on_call(tool: str, args: Any, meta: Any) -> str:
        arrived.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            given_up.set()
            raise
        return ""

    async with at_an_address(server_of([listed("wait")], on_call)) as url, opened("peer", url=url) as server:
        async with asyncio.timeout(WITHIN_S):
            calling = asyncio.create_task(server.call("peer_wait"))
            await arrived.wait()
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            await given_up.wait()


async def test_a_run_is_told_that_the_outcome_is_unknown(tmp_path: Path) -> None:
    """The planner sees that the call may have acted, and the run goes on."""
    server = MCP("plain", command=PLAIN)
    call = CallTool("plain_append_and_die", line(tmp_path / "lines"))
    step = await step_of(server, call)
    assert step.statuses == ("unknown",)
    assert "unknown" in step.error
    assert (tmp_path / "lines").read_text() == "x\n"
