"""`agents.*` over a served runtime: what is said of each agent, of none, and of one that is not there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, tool
from harborage.testing.llm import ScriptedLLM, says
from tests.kit.serving import STORAGES, Served, priced, serving
from tests.kit.wire import ADA, BEN, EVE

pytestmark = pytest.mark.anyio

ROW = {
    "id",
    "name",
    "description",
    "incarnation",
    "version_hash",
    "owner",
    "status",
    "health",
    "hosting",
    "planner_type",
    "model",
    "tools_count",
    "mcp_count",
    "registered_at",
    "updated_at",
}
OF_ONE = ("get", "tools", "memory", "governance", "skills", "permissions")


@tool
async def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


@pytest.fixture(params=STORAGES)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    """A server with two agents, of which the second in the alphabet is served first."""
    model = ScriptedLLM([priced(says("hello"), 0.25)])
    agents = [
        Agent("writer", model=model, tools=[weather], memory="truncation"),
        Agent("critic", model=ScriptedLLM([says("bad")]), memory="none"),
    ]
    async with serving(agents, storage=request.param, folder=tmp_path) as one:
        yield one


async def answer(served: Served, method: str, body: Any = None, **options: Any) -> dict[str, Any]:
    """The answer to a request that is not refused."""
    reply = await served.wire.post(method, body, **options)
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json
    return found


async def test_every_principal_sees_the_served_agents(served: Served) -> None:
    """The first served one first; each row has all its keys, and times of whole seconds."""
    for who in (ADA, BEN, EVE):
        found = await answer(served, "agents.list", {}, who=who)
        assert set(found) == {"agents", "page", "page_size", "page_count", "total_rows", "aggregates"}
        assert [row["name"] for row in found["agents"]] == ["writer", "critic"]
        assert {frozenset(row) for row in found["agents"]} == {frozenset(ROW)}
        assert found["aggregates"] == {"total": 2, "active": 2, "paused": 0, "drained": 0}
        assert (found["page"], found["page_size"], found["page_count"], found["total_rows"]) == (1, 50, 1, 2)
    writer, critic = found["agents"]
    assert (writer["status"], writer["health"], writer["hosting"]) == ("active", "Healthy", "local")
    assert (writer["planner_type"], writer["description"], writer["tools_count"]) == ("react", "", 2)
    assert writer["version_hash"] != critic["version_hash"]
    assert "." not in writer["registered_at"]
    assert writer["registered_at"].endswith("Z")


@pytest.mark.parametrize(
    ("filter", "names"),
    [
        ({}, ["writer", "critic"]),
        ({"status": [], "planner_type": None, "search": None}, ["writer", "critic"]),
        ({"status": ["active", "paused"]}, ["writer", "critic"]),
        ({"status": ["drained"]}, []),
        ({"planner_type": ["react"]}, ["writer", "critic"]),
        ({"planner_type": ["graph"]}, []),
        ({"search": "WRIT"}, ["writer"]),
        ({"search": "nobody"}, []),
    ],
)
async def test_a_filter_narrows_the_list(served: Served, filter: dict[str, Any], names: list[str]) -> None:
    """Status, kind of planner and text; the counts are of what passes, and an empty list has one page."""
    found = await answer(served, "agents.list", {"filter": filter})
    assert [row["name"] for row in found["agents"]] == names
    assert (found["aggregates"]["total"], found["total_rows"], found["page_count"]) == (len(names), len(names), 1)


async def test_pages_are_cut(served: Served) -> None:
    """A page beyond the last is empty; sizes out of range, and unknown statuses and fields are refused."""
    second = await answer(served, "agents.list", {"page": 2, "page_size": 1})
    assert ([row["name"] for row in second["agents"]], second["page_count"]) == (["critic"], 2)
    assert (await answer(served, "agents.list", {"page": 9}))["agents"] == []
    assert (await answer(served, "agents.list", {"page_size": 200}))["page_size"] == 200
    for body in ({"page_size": 201}, {"page_size": -1}, {"page": -1}, {"filter": {"status": ["x"]}}, {"more": 1}):
        reply = await served.wire.post("agents.list", body)
        assert (reply.status, reply.code) == (400, "invalid_request"), body


async def test_an_agent_in_detail(served: Served) -> None:
    """Each of the six questions has an answer, also where nothing is set; lists are empty, never absent."""
    got = await answer(served, "agents.get", {"id": "writer"})
    assert set(got) == {"agent", "config"}
    assert got["agent"]["description"] == "writer"
    assert got["config"] == {"planner_type": "react", "model": "", "max_steps": 64}
    tools = await answer(served, "agents.tools", {"id": "writer"})
    assert tools["agent_id"] == "writer"
    names = {one["tool_name"] for one in tools["bindings"]}
    assert names == {"weather", "artifact_fetch"}
    assert {frozenset(one) for one in tools["bindings"]} == {
        frozenset({"tool_id", "tool_name", "transport", "auth_status"})
    }
    assert {one["transport"] for one in tools["bindings"]} == {"in-proc"}
    assert await answer(served, "agents.memory", {"id": "writer"}) == {
        "agent_id": "writer",
        "binding": {"strategy_id": "truncation", "ttl_seconds": 0, "scope": "session"},
    }
    assert (await answer(served, "agents.memory", {"id": "critic"}))["binding"]["strategy_id"] == "none"
    assert await answer(served, "agents.governance", {"id": "critic"}) == {
        "agent_id": "critic",
        "governance": {"ceilings": [], "rate_limits": []},
    }
    assert await answer(served, "agents.skills", {"id": "critic"}) == {"agent_id": "critic", "skills": []}
    permissions = await answer(served, "agents.permissions", {"id": "critic"})
    assert (permissions["agent_id"], permissions["permissions"]["model"]) == ("critic", "implicit")
    assert permissions["permissions"]["description"]


@pytest.mark.parametrize("verb", OF_ONE)
async def test_a_blank_id_is_bad_and_an_unknown_one_is_not_found(served: Served, verb: str) -> None:
    """Blank, missing and null are 400; any other id that is not served is 404."""
    for body in (None, {}, {"id": ""}, {"id": "  "}, {"id": None}):
        reply = await served.wire.post(f"agents.{verb}", body)
        assert (reply.status, reply.code) == (400, "invalid_request")
    reply = await served.wire.post(f"agents.{verb}", {"id": "nobody"})
    assert (reply.status, reply.code) == (404, "not_found")


async def test_metrics_are_of_the_callers_own_runs(served: Served) -> None:
    """What other users' runs used is not in them."""
    await (await served.rt.start("writer", "hello", who=ADA)).result()
    found = await answer(served, "agents.metrics")
    assert set(found) == {"metrics"}
    mine = found["metrics"]
    assert (mine["active_agents"], mine["running_tasks"]) == (2, 0)
    assert (mine["total_tokens"], mine["total_cost_usd"]) == (15, 0.25)
    for who in (BEN, EVE):
        assert (await answer(served, "agents.metrics", who=who))["metrics"]["total_tokens"] == 0
    again = await answer(served, "agents.metrics", {"identity": {"tenant": "rival", "user": "eve"}}, who=BEN)
    assert again["metrics"]["total_tokens"] == 0


async def test_an_agent_that_says_nothing_of_memory_shows_none() -> None:
    """Runs that a client starts are not remembered."""
    async with serving([Agent("plain", model=ScriptedLLM([says("hello")]))]) as served:
        assert (await answer(served, "agents.memory", {"id": "plain"}))["binding"]["strategy_id"] == "none"
