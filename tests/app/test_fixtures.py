"""A development server with fixtures has a row of every kind, and every page of a console something to show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harborage.app.fixtures import WHO, FixtureFlows, fixture_agents, seed
from harborage.app.served import Program
from harborage.app.site import Site
from harborage.app.target import TargetError
from harborage.clock import SYSTEM_CLOCK
from harborage.server.services import ServerOptions
from tests.kit.wire import HeaderGate, Wire

WITHIN_S = 30


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    """A client of a server with fixtures, whose tasks have ended."""
    program = Program("", tmp_path, is_mock=True, besides=fixture_agents())
    site = Site(
        program.load,
        storage_of=lambda _: "memory:",
        make_gate=lambda redactor, bus: HeaderGate(),
        options=ServerOptions(is_mock=True),
        flows=FixtureFlows(SYSTEM_CLOCK),
        prepare=partial(seed, clock=SYSTEM_CLOCK),
    )
    async with site:
        client = Wire(site.server)
        async with asyncio.timeout(WITHIN_S):
            for row in (await listed(client, "tasks.list"))["rows"]:
                await site.server.services.runtime.get(row["id"], who=WHO).finished()
        yield client


async def listed(wire: Wire, method: str, body: Any = None) -> Any:
    """What a method answers to the development principal."""
    reply = await wire.post(method, {} if body is None else body, who=WHO, scopes=("admin", "console:fleet"))
    assert reply.status == 200, reply.body
    return reply.json


async def test_there_is_a_row_of_every_kind(wire: Wire) -> None:
    """With the names that end-to-end checks of consoles look for."""
    sessions = {row["session_id"]: row["status"] for row in (await listed(wire, "sessions.list"))["rows"]}
    assert {f"dev-seed-session-{number}" for number in range(1, 7)} <= sessions.keys()
    agents = [row["name"] for row in (await listed(wire, "agents.list"))["agents"]]
    assert {f"dev-seed-{kind}-agent" for kind in ("research", "triage", "summary")} <= set(agents)
    tasks = (await listed(wire, "tasks.list"))["rows"]
    assert sorted(row["kind"] for row in tasks) == ["background", "background", "foreground", "foreground"]
    assert all(row["description"] and row["query"] and row["status"] != "cancelled" for row in tasks)
    artifacts = (await listed(wire, "artifacts.list"))["rows"]
    assert sorted(row["ref"]["namespace"] for row in artifacts) == [
        "dev-seed-notes",
        "dev-seed-report",
        "dev-seed-summary",
    ]
    tools = {row["id"] for row in (await listed(wire, "tools.list"))["tools"]}
    assert {"dev-seed-echo", "dev-seed-search", "dev-seed-summarise"} <= tools
    assert len((await listed(wire, "memory.list"))["items"]) == 3
    assert (await listed(wire, "mcp.servers.list"))["servers"] == []
    assert (await listed(wire, "pause.list"))["snapshots"] == []


async def test_each_agent_answers_its_detail_calls(wire: Wire) -> None:
    """All six that a page asks at once."""
    for name in ("dev-seed-research-agent", "dev-seed-triage-agent", "dev-seed-summary-agent"):
        for verb in ("get", "tools", "memory", "governance", "skills", "permissions"):
            await listed(wire, f"agents.{verb}", {"id": name})


async def test_flows_have_a_graph_runs_and_figures(wire: Wire) -> None:
    """One that is started is there afterwards."""
    flow = "dev-seed-research-flow"
    assert len((await listed(wire, "flows.describe", {"id": flow}))["nodes"]) == 1
    assert len((await listed(wire, "flows.runs.list", {"flow_id": flow}))["runs"]) == 2
    started = (await listed(wire, "flows.run", {"flow_id": flow, "inputs": {}}))["run_id"]
    assert (await listed(wire, "flows.runs.describe", {"run_id": started}))["run"]["status"] == "succeeded"
    assert (await listed(wire, "flows.metrics", {"flow_id": flow}))["buckets"]


async def test_a_file_with_a_runtime_of_its_own_takes_no_fixtures(tmp_path: Path) -> None:
    """The error says what to name instead."""
    path = tmp_path / "service.py"
    path.write_text(
        "from harborage import Agent, Runtime\na = Agent('a', model='mock:x')\nruntime = Runtime([a])\n", "utf-8"
    )
    with pytest.raises(TargetError, match="name an agent"):
        Program(str(path), tmp_path, besides=fixture_agents()).load()
