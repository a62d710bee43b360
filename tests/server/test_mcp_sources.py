"""`mcp.servers.*` over the servers that the agents of a runtime name."""

from __future__ import annotations

from typing import Any

import pytest

from harborage import Agent
from harborage.testing import script
from harborage.tools.mcp.options import MCP
from tests.kit.mcp_peers import python_server
from tests.kit.serving import Served, serving

pytestmark = pytest.mark.anyio


async def answer(served: Served, verb: str, body: Any = None) -> Any:
    """The body of an answer that is no refusal."""
    reply = await served.wire.post(f"mcp.servers.{verb}", body, scopes=("admin",))
    assert reply.status == 200, reply.body
    return reply.json


async def test_the_servers_of_agents_are_shown() -> None:
    """Before a run it is offline and then connected to when it is looked at; afterwards all verbs have what it is."""
    server = MCP("plain", command=python_server("plain"), connections=2)
    agents = [Agent(name, tools=[server], model=script("Done.")) for name in ("one", "other")]
    async with serving(agents) as served:
        (row,) = (await answer(served, "list"))["servers"]
        assert (row["name"], row["transport"], row["state"], row["tool_count"]) == ("plain", "stdio", "offline", 0)
        found = await answer(served, "get", {"name": "plain"})
        assert found["server"]["state"] == "online"
        assert found["server"]["tool_count"] > 5
        assert found["tool_policy"]["concurrency_cap"] == 2
        assert (await answer(served, "probe", {"name": "plain"}))["ok"] is True
        discovered = await answer(served, "refresh_discovery", {"name": "plain"})
        assert discovered["tool_count"] == found["server"]["tool_count"]
        assert len((await answer(served, "health", {"name": "plain"}))["handshake_latency_buckets"]) == 1
        assert (await answer(served, "resources", {"name": "plain"}))["resources"] == []
        await answer(served, "set_raw_html_trust", {"name": "plain", "trusted": True})
        assert (await answer(served, "list"))["servers"][0]["raw_html_trusted"] is True
        counters = await served.wire.post("runtime.counters", None)
        assert counters.json["mcp_connections_healthy"] == 1


async def test_a_server_that_is_not_there_is_an_answer() -> None:
    """A probe says why, and looking at it does not fail."""
    agent = Agent("one", tools=[MCP("gone", command=["no-such-program"])], model=script("Done."))
    async with serving([agent]) as served:
        probed = await answer(served, "probe", {"name": "gone"})
        assert probed["ok"] is False
        assert "no-such-program" in probed["error"]
        assert (await answer(served, "get", {"name": "gone"}))["server"]["state"] == "error"
        refused = await served.wire.post("mcp.servers.refresh_binding", {"name": "gone"}, scopes=("admin",))
        assert refused.code == "invalid_request"
