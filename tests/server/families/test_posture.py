"""The posture methods: what a server says of itself, who may ask about another tenant, and what the answers hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, Runtime
from harborage.identity import Identity
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import ADDED_METHODS, Capability
from harborage.protocol.wire.common import Answer, Request
from harborage.server.application import Server
from harborage.server.families.posture import capabilities
from harborage.server.services import Call, Endpoint, ServerOptions
from harborage.state.errors import DatabaseLockedError
from harborage.testing.clock import FakeClock
from harborage.testing.llm import ScriptedLLM, says
from tests.kit.serving import STORAGES, Served, serving
from tests.kit.wire import ADA, BEN, EVE, HeaderGate, Wire

pytestmark = pytest.mark.anyio

ADA_TOO = Identity("acme", "ada", "s-9")
POSTURE = (
    "runtime.info",
    "runtime.health",
    "runtime.counters",
    "runtime.drivers",
    "metrics.snapshot",
    "governance.posture",
    "llm.posture",
)


@pytest.fixture(params=STORAGES)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    """A server with one agent."""
    async with serving(storage=request.param, folder=tmp_path) as one:
        yield one


async def answer(served: Served, method: str, body: Any = None, **options: Any) -> dict[str, Any]:
    """The answer to a request that is not refused."""
    reply = await served.wire.post(method, body, **options)
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json
    return found


async def test_a_server_says_what_it_is(served: Served) -> None:
    """Its version, its capabilities in order, and how long it is up in whole seconds."""
    info = await answer(served, "runtime.info")
    assert set(info) == {
        "instance_id",
        "build_version",
        "build_commit",
        "build_go_version",
        "protocol_version",
        "capabilities",
        "uptime_seconds",
    }
    assert info["protocol_version"] == "0.1.0"
    assert info["capabilities"] == sorted(info["capabilities"])
    assert {"events_subscribe", "runtime_posture", "task_control"} <= set(info["capabilities"])
    assert "topology_snapshot" not in info["capabilities"]
    assert isinstance(info["uptime_seconds"], int)


async def test_uptime_is_floored_and_never_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes back makes it 0; a part of a second does not count."""
    clock = FakeClock()
    options = ServerOptions(display_name="Blue", is_mock=True)
    async with serving(clock=clock, options=options) as served:
        clock.advance(3.9)
        info = await answer(served, "runtime.info")
        assert (info["uptime_seconds"], info["display_name"]) == (3, "Blue")
        monkeypatch.setattr(clock, "now", lambda: datetime(2020, 1, 1, tzinfo=UTC))
        assert (await answer(served, "runtime.info"))["uptime_seconds"] == 0
        assert (await answer(served, "llm.posture"))["mock_mode"] is True


async def test_added_capabilities_are_those_whose_methods_are_all_served(served: Served) -> None:
    """One method that is missing, or not offered here, leaves the capability out."""

    async def run(call: Call, asked: Request) -> Answer:
        return Answer()

    def of(capability: Capability) -> dict[str, Endpoint]:
        names = [name for name, one in ADDED_METHODS.items() if one.capability is capability]
        return {name: Endpoint(Request, Answer, run) for name in names}

    base = ["events_subscribe", "runtime_posture", "task_control"]
    services = served.server.services
    assert capabilities(services, {}) == base
    history, fork = of(Capability.RUN_HISTORY), of(Capability.RUN_FORK)
    assert capabilities(services, history) == sorted([*base, "run_history"])
    assert capabilities(services, {**history, **fork}) == sorted([*base, "run_history", "run_fork"])
    assert capabilities(services, {name: fork[name] for name in [*fork][1:]}) == base
    off = {name: Endpoint(Request, Answer, run, is_offered=lambda _: False) for name in history}
    assert capabilities(services, off) == base


async def test_health_is_what_the_parts_answer(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are ready; one that refuses or never answers is unavailable, and hides nothing of the others."""
    found = (await answer(served, "runtime.health"))["subsystems"]
    assert [one["subsystem"] for one in found] == ["state", "events", "artifacts", "memory"]
    assert {one["status"] for one in found} == {"ready"}

    async def refuses(*_: Any, **__: Any) -> Any:
        raise DatabaseLockedError("postgres://user:secret@host", "locked")

    monkeypatch.setattr(type(served.rt.parts.artifacts), "exists", refuses)
    found = (await answer(served, "runtime.health"))["subsystems"]
    assert [one["status"] for one in found] == ["ready", "ready", "unavailable", "ready"]
    assert "secret" not in str(found)

    async def hangs(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(type(served.rt.parts.artifacts), "exists", hangs)
    monkeypatch.setattr("harborage.server.families.posture._ANSWERS_WITHIN_S", 0.01)
    found = (await answer(served, "runtime.health"))["subsystems"]
    assert found[2]["detail"] == "no answer within 0.01 s"


async def test_counters_are_of_the_session_and_of_the_tenant(served: Served) -> None:
    """Tasks of the caller's session, open sessions of its tenant; closed ones and those of others do not count."""
    for who in (ADA, ADA_TOO, BEN, EVE):
        run = await served.rt.start("hello", who=who)
        await run.result()
    await served.rt.sessions.close(BEN, "done")
    found = await answer(served, "runtime.counters")
    assert found.pop("snapshot_at") > 0
    assert found.pop("events_per_second") > 0
    assert found == {
        "tasks_running": 0,
        "background_jobs_active": 0,
        "mcp_connections_healthy": 0,
        "sessions_active": 2,
    }
    foreign = await answer(served, "runtime.counters", {"identity": {"tenant": "rival"}}, scopes=("console:fleet",))
    assert foreign["sessions_active"] == 1


async def test_a_running_task_counts_where_it_runs() -> None:
    """In its own session, and not in another one of the same user."""
    begun, go = asyncio.Event(), asyncio.Event()

    class Slow:
        async def complete(self, request: Any) -> Any:
            begun.set()
            await go.wait()
            return await ScriptedLLM([says("done")]).complete(request)

        async def close(self) -> None:
            return None

    async with serving([Agent("slow", model=Slow())]) as served:
        run = await served.rt.start("hello", who=ADA)
        async with asyncio.timeout(10):
            await begun.wait()
        assert (await answer(served, "runtime.counters"))["tasks_running"] == 1
        other = ADA_TOO
        assert (await answer(served, "runtime.counters", who=other))["tasks_running"] == 0
        assert (await answer(served, "runtime.counters", who=BEN))["tasks_running"] == 0
        go.set()
        await run.result()
        assert (await answer(served, "runtime.counters"))["tasks_running"] == 0


async def test_drivers_are_named_without_their_addresses(served: Served) -> None:
    """Four subsystems, by the names of the configuration."""
    found = (await answer(served, "runtime.drivers"))["subsystems"]
    named = {one["subsystem"]: one["driver"] for one in found}
    kept = named["state"]
    assert kept in {"inmem", "sqlite"}
    assert named == {
        "state": kept,
        "artifacts": "inmem" if kept == "inmem" else "fs",
        "memory": kept,
        "events": "durable",
    }
    assert ".db" not in str(found)


async def test_metrics_name_nobody(served: Served) -> None:
    """Counters, histograms and gauges are lists, and no label tells whose they are."""
    await (await served.rt.start("hello", who=ADA)).result()
    found = await answer(served, "metrics.snapshot")
    assert set(found) == {"counters", "histograms", "gauges", "snapshot_at"}
    assert found["histograms"] == []
    values = {one["name"]: one["value"] for one in found["counters"]}
    assert values["harborage_events_total"] > 0
    labels = {key for one in [*found["counters"], *found["gauges"]] for key in one.get("labels", {})}
    assert labels == {"status"}
    gauges = {one.get("labels", {}).get("status"): one["value"] for one in found["gauges"]}
    assert gauges["complete"] == 1
    empty = await answer(served, "metrics.snapshot", who=EVE)
    assert {one["value"] for one in empty["counters"]} == {0}


async def test_limits_and_model_are_told_in_both_forms(served: Served) -> None:
    """No tiers are a map and a list that are empty; an open client has no configuration to tell of."""
    assert await answer(served, "governance.posture") == {
        "default_tier": "",
        "resolved_tier": "",
        "identity_tiers": {},
        "tiers": [],
        "protocol_version": "0.1.0",
    }
    assert await answer(served, "llm.posture") == {
        "provider": "",
        "model": "",
        "region": "",
        "mock_mode": False,
        "protocol_version": "0.1.0",
    }


async def test_a_configured_model_is_told_without_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provider, model and address; neither the key nor what is in the address for signing in."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    async with Runtime(model="openai:gpt-5", storage="memory:") as rt:
        wire = Wire(Server(rt, gate=HeaderGate()))
        found = (await wire.post("llm.posture")).json
        assert (found["provider"], found["model"]) == ("openai", "gpt-5")
        assert "secret" not in str(found)
        (agent,) = (await wire.post("agents.list")).json["agents"]
        assert (agent["id"], agent["model"], agent["planner_type"]) == ("agent", "gpt-5", "react")


@pytest.mark.parametrize("method", POSTURE)
async def test_another_tenant_needs_a_scope_and_is_audited(served: Served, method: str) -> None:
    """Without a scope it is refused and nothing is published; with either it is answered, and audited once."""
    body = {"identity": {"tenant": "rival"}}
    refused = await served.wire.post(method, body)
    assert (refused.status, refused.code) == (403, "scope_mismatch")
    assert await served.events("audit.admin_scope_used") == []
    for scope in ("admin", "console:fleet"):
        await answer(served, method, body, scopes=(scope,))
    audits = await served.events("audit.admin_scope_used", ADA)
    assert [one["Method"] for one in audits] == [method, method]
    own = {"governance.posture": "governance.posture_read_admin", "llm.posture": "llm.posture_read_admin"}
    if method in own:
        (first, _) = await served.events(own[method], ADA)
        assert (first["RequestedTenant"], first["Actor"]["UserID"]) == ("rival", "ada")


@pytest.mark.parametrize("method", POSTURE)
async def test_the_body_may_name_the_callers_own_session_only(served: Served, method: str) -> None:
    """Another user or session is 401; an empty body, nulls and unknown keys are accepted."""
    for identity in ({"user": "ben"}, {"session": "s-9"}, {"tenant": "rival", "user": "eve"}):
        refused = await served.wire.post(method, {"identity": identity}, scopes=("admin",))
        assert (refused.status, refused.code) == (401, "identity_required")
    for body in (b"", {}, {"identity": None}, {"identity": {"tenant": None}, "more": 1}):
        await answer(served, method, body)


@pytest.mark.parametrize("method", ["governance.posture", "llm.posture"])
async def test_a_read_that_cannot_be_audited_is_not_made(
    served: Served, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bus refuses the event: 500, and nothing is answered."""

    async def refuses(*_: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr(type(served.rt.parts.bus), "publish", refuses)
    reply = await served.wire.post(method, {"identity": {"tenant": "rival"}}, scopes=("admin",))
    assert (reply.status, reply.code) == (500, "runtime_error")


async def test_there_is_no_topology_where_no_engine_is_hosted(served: Served) -> None:
    """404 `unknown_method`, whatever the body and the scope."""
    for body in (None, {}, {"identity": {"tenant": "rival"}}):
        reply = await served.wire.post("topology.snapshot", body, scopes=("admin",))
        assert (reply.status, reply.code) == (404, "unknown_method")
    with pytest.raises(ProtocolError) as refused:
        raise ProtocolError(Code.UNKNOWN_METHOD)
    assert refused.value.status == 404
