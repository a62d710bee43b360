"""`flows.*` over a served runtime: empty by default, and the whole shape over flows that are there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harborage.artifacts import ArtifactScope
from harborage.identity import Identity
from harborage.protocol.wire.flows import (
    FlowBudget,
    FlowEdge,
    FlowNode,
    FlowStatus,
    FlowTrigger,
    NodePolicy,
    NodeState,
    NodeType,
)
from harborage.server.families.flow_figures import percentile
from harborage.server.flows import FlowRun, FlowSpec
from harborage.server.services import ServerOptions
from harborage.testing.clock import FakeClock
from tests.kit.serving import Served, serving
from tests.kit.wire import ADA, BEN, EVE

pytestmark = pytest.mark.anyio

RESEARCH = FlowSpec(
    name="research",
    owner="shop",
    version="v1",
    budget=FlowBudget(deadline_ms=5_000, cost_cap_usd=0.5),
    nodes=(
        FlowNode(id="a", type=NodeType.TOOL, descriptor="look", policy=NodePolicy(max_retries=1)),
        FlowNode(id="b", type=NodeType.SUBFLOW),
    ),
    edges=(FlowEdge(source="a", target="b"),),
)
TRIAGE = FlowSpec(name="triage", planner_family="react")
ROW = {
    "id",
    "name",
    "owner",
    "version",
    "planner_family",
    "node_count",
    "edge_count",
    "runs_24h",
    "p50_latency_ms",
    "p95_latency_ms",
    "success_rate",
    "last_run",
    "budget",
}


def a_run(run_id: str, who: Identity, now: datetime, hours: float, took_s: float | None = 3, **parts: Any) -> FlowRun:
    """A run of the flow `research` that began so many hours ago."""
    at = now - timedelta(hours=hours)
    made: dict[str, Any] = {"status": FlowStatus.SUCCEEDED, "trigger": FlowTrigger.USER, "cost_usd": 0.25}
    ended = None if took_s is None else at + timedelta(seconds=took_s)
    return FlowRun(
        run_id=run_id,
        flow="research",
        who=who,
        started_at=at,
        ended_at=ended,
        requests=1,
        tokens=10,
        **{**made, **parts},
    )


class TwoFlows:
    """Two flows, one of them with runs."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.started: list[Any] = []
        self.kept = [
            a_run("r-1", ADA, now, 1, nodes=(NodeState(node_id="a", status="succeeded", duration_ms=3),), output="ok"),
            a_run("r-2", ADA, now, 2, 1, status=FlowStatus.FAILED, error_class="permanent", output="x" * 500),
            a_run("r-3", ADA, now, 30, 9),
            a_run("r-4", BEN, now, 3, None, status=FlowStatus.RUNNING, trigger=FlowTrigger.PLANNER, cost_usd=0.0),
            a_run("r-5", EVE, now, 4),
        ]

    async def specs(self) -> Sequence[FlowSpec]:
        return [TRIAGE, RESEARCH]

    async def runs(self, flow: str, tenants: Sequence[str]) -> Sequence[FlowRun]:
        return [one for one in self.kept if one.flow == flow and one.who.tenant_id in tenants]

    async def find_run(self, run_id: str) -> FlowRun | None:
        return next((one for one in self.kept if one.run_id == run_id), None)

    async def start(self, flow: str, inputs: Mapping[str, Any], who: Identity) -> FlowRun:
        self.started.append((flow, dict(inputs), who))
        return a_run("r-new", who, self.now, 0, None, status=FlowStatus.RUNNING)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A server with two flows, to which an output is heavy from 100 bytes on."""
    clock = FakeClock()
    flows = TwoFlows(clock.now().astimezone(UTC))
    async with serving(flows=flows, clock=clock, options=ServerOptions(heavy_bytes=100)) as one:
        yield one


async def answer(served: Served, method: str, body: Any = None, **options: Any) -> Any:
    """The body of an answer that is no refusal."""
    reply = await served.wire.post(f"flows.{method}", body, **options)
    assert reply.status == 200, reply.body
    return reply.json


async def test_a_server_without_flows_has_the_whole_shape() -> None:
    """The list is empty, without a page, and every id is unknown."""
    async with serving() as served:
        assert await answer(served, "list") == {
            "flows": [],
            "page": 1,
            "page_size": 50,
            "page_count": 0,
            "total_rows": 0,
        }
        for method, key in (
            ("describe", "id"),
            ("runs.list", "flow_id"),
            ("runs.describe", "run_id"),
            ("run", "flow_id"),
            ("metrics", "flow_id"),
        ):
            reply = await served.wire.post(f"flows.{method}", {key: "nobody"}, scopes=("admin",))
            assert (reply.status, reply.code) == (404, "not_found"), method


@pytest.mark.parametrize(
    ("method", "body", "status", "code"),
    [
        ("list", {"page": -1}, 400, "invalid_request"),
        ("list", {"page_size": 201}, 400, "invalid_request"),
        ("list", {"what": 1}, 400, "invalid_request"),
        ("list", {"filter": {"tenants": ["rival"]}, "page": -1}, 403, "identity_scope_required"),
        ("list", {"filter": {"tenants": ["acme", "rival"]}}, 403, "identity_scope_required"),
        ("list", {"identity": {"tenant": "rival"}}, 401, "identity_required"),
        ("describe", {}, 400, "invalid_request"),
        ("describe", {"id": "nobody"}, 404, "not_found"),
        ("runs.list", {}, 400, "invalid_request"),
        ("runs.list", {"flow_id": "nobody", "page_size": -1}, 400, "invalid_request"),
        ("runs.list", {"flow_id": "", "tenants": ["rival"]}, 403, "identity_scope_required"),
        ("runs.list", {"flow_id": "nobody"}, 404, "not_found"),
        ("runs.describe", {}, 400, "invalid_request"),
        ("runs.describe", {"run_id": "nobody"}, 404, "not_found"),
        ("runs.describe", {"run_id": "r-5"}, 404, "not_found"),
        ("run", {}, 400, "invalid_request"),
        ("run", {"flow_id": "research"}, 403, "scope_mismatch"),
        ("run", {"flow_id": "nobody"}, 403, "scope_mismatch"),
        ("run", {"flow_id": "research", "inputs": []}, 400, "invalid_request"),
        ("metrics", {}, 400, "invalid_request"),
        ("metrics", {"flow_id": "nobody"}, 404, "not_found"),
        ("metrics", {"flow_id": "research", "window_ms": -1}, 400, "invalid_request"),
        ("metrics", {"flow_id": "research", "bucket_ms": -1}, 400, "invalid_request"),
        ("metrics", {"flow_id": "research", "window_ms": 10, "bucket_ms": 11}, 400, "invalid_request"),
        ("metrics", {"flow_id": "research", "window_ms": 60_000}, 400, "invalid_request"),
        ("metrics", {"flow_id": "research", "window_ms": 2_001, "bucket_ms": 1}, 400, "invalid_request"),
        ("metrics", {"flow_id": "research", "window_ms": 10**18, "bucket_ms": 10**17}, 400, "invalid_request"),
    ],
)
async def test_refusals(served: Served, method: str, body: Any, status: int, code: str) -> None:
    """A blank id of `run` is seen before the scope, everything else after it; a scope for reading is not enough."""
    for scopes in ((), ("console:fleet",)):
        reply = await served.wire.post(f"flows.{method}", body, scopes=scopes)
        assert (reply.status, reply.code) == (status, code)


async def test_a_flow_says_what_its_runs_came_to(served: Served) -> None:
    """Only those of the last day, and only those that the caller may see."""
    listed = await answer(served, "list")
    assert (listed["page_count"], listed["total_rows"]) == (1, 2)
    research, triage = listed["flows"]
    assert set(research) == set(triage) == ROW
    assert {key: research[key] for key in ("id", "planner_family", "node_count", "edge_count", "runs_24h")} == {
        "id": "research",
        "planner_family": "graph",
        "node_count": 2,
        "edge_count": 1,
        "runs_24h": 2,
    }
    assert (research["p50_latency_ms"], research["p95_latency_ms"], research["success_rate"]) == (1_000, 1_000, 0.5)
    assert research["budget"] == {"deadline_ms": 5_000, "cost_cap_usd": 0.5}
    assert (triage["last_run"], triage["success_rate"], triage["budget"]) == ("0001-01-01T00:00:00Z", 0.0, {})
    scoped = await answer(served, "list", scopes=("console:fleet",))
    assert scoped["flows"][0]["runs_24h"] == 3
    both = {"filter": {"tenants": ["acme", "rival"]}}
    assert (await answer(served, "list", both, scopes=("admin",)))["flows"][0]["runs_24h"] == 4
    audited = await served.events("audit.admin_scope_used")
    assert [event["Method"] for event in audited] == ["flows.list"]


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"planner_families": ["react"]}, ["triage"]),
        ({"query": "SHOP"}, ["research"]),
        ({"query": "tri"}, ["triage"]),
        ({"query": "nobody"}, []),
        (None, ["research", "triage"]),
    ],
)
async def test_filters(served: Served, filter: Any, expected: list[str]) -> None:
    """Flows come by id; the query is a part of name or owner."""
    assert [one["id"] for one in (await answer(served, "list", {"filter": filter}))["flows"]] == expected
    second = await answer(served, "list", {"filter": filter, "page": 2, "page_size": 1})
    assert [one["id"] for one in second["flows"]] == expected[1:2]


async def test_a_description_has_the_graph(served: Served) -> None:
    """What is unset is absent, at every depth."""
    described = await answer(served, "describe", {"id": "research"})
    assert set(described) == {"flow", "nodes", "edges", "budget_consumption"}
    assert described["nodes"] == [
        {"id": "a", "type": "tool", "descriptor": "look", "policy": {"max_retries": 1}},
        {"id": "b", "type": "subflow"},
    ]
    assert described["edges"] == [{"from": "a", "to": "b"}]
    assert described["budget_consumption"] == {"requests_used": 2, "cost_usd_used": 0.5, "tokens_used": 20}


async def test_runs_are_listed_newest_first_to_those_who_may_see_them(served: Served) -> None:
    """The caller's own; with a scope those of the tenant; of another one for an admin alone."""
    listed = await answer(served, "runs.list", {"flow_id": "research"})
    assert [one["run_id"] for one in listed["runs"]] == ["r-1", "r-2", "r-3"]
    assert set(listed["runs"][0]) == {
        "run_id",
        "flow_id",
        "status",
        "trigger",
        "started_at",
        "duration_ms",
        "cost_usd",
        "identity",
    }
    assert (listed["runs"][1]["status"], listed["runs"][1]["error_class"]) == ("failed", "permanent")
    scoped = await answer(served, "runs.list", {"flow_id": "research"}, scopes=("console:fleet",))
    assert "duration_ms" not in next(one for one in scoped["runs"] if one["run_id"] == "r-4")
    foreign = {"flow_id": "research", "tenants": ["rival"]}
    assert [one["run_id"] for one in (await answer(served, "runs.list", foreign, scopes=("admin",)))["runs"]] == ["r-5"]
    page = await answer(served, "runs.list", {"flow_id": "research", "page": 2, "page_size": 2})
    assert ([one["run_id"] for one in page["runs"]], page["page_count"], page["total_rows"]) == (["r-3"], 2, 3)


async def test_a_run_shows_its_output(served: Served) -> None:
    """As text, or as an artifact of its session where it is large."""
    small = await answer(served, "runs.describe", {"run_id": "r-1"})
    assert small["output_preview"] == "ok"
    assert small["node_states"] == [{"node_id": "a", "status": "succeeded", "duration_ms": 3}]
    large = await answer(served, "runs.describe", {"run_id": "r-2"})
    assert set(large) == {"run", "node_states", "output_ref"}
    ref = large["output_ref"]
    assert ref["id"].startswith("flow_run_output_")
    assert ref["mime_type"] == "text/plain"
    assert await served.rt.artifacts.get(ArtifactScope.of(ADA), ref["id"]) == b"x" * 500
    none = await answer(served, "runs.describe", {"run_id": "r-3"})
    assert set(none) == {"run", "node_states"}
    assert (await served.wire.post("flows.runs.describe", {"run_id": "r-4"})).code == "not_found"
    assert (await answer(served, "runs.describe", {"run_id": "r-4"}, scopes=("console:fleet",)))["node_states"] == []
    assert (await answer(served, "runs.describe", {"run_id": "r-5"}, scopes=("admin",)))["run"]["run_id"] == "r-5"
    assert len(await served.events("audit.admin_scope_used")) == 1


async def test_an_admin_starts_a_run(served: Served) -> None:
    """The answer says that it is running, and an event names it."""
    body = {"flow_id": "research", "inputs": {"topic": "tea"}}
    started = await answer(served, "run", body, scopes=("admin",))
    assert (set(started), started["status"]) == ({"run_id", "status", "started_at"}, "running")
    flows: Any = served.server.services.flows
    assert flows.started == [("research", {"topic": "tea"}, ADA)]
    assert await served.events("flows.run_invoked", ADA) == [{"FlowID": "research", "RunID": "r-new"}]


@pytest.mark.parametrize(
    ("asked", "count", "filled"),
    [
        ({}, 24, {20: 0, 21: 0, 22: 1, 23: 1}),
        ({"window_ms": 4 * 3_600_000, "bucket_ms": 2 * 3_600_000}, 2, {1: 2}),
        ({"window_ms": 36 * 3_600_000, "bucket_ms": 24 * 3_600_000}, 2, {0: 1, 1: 2}),
    ],
)
async def test_metrics(served: Served, asked: Any, count: int, filled: dict[int, int]) -> None:
    """One bucket for each stretch of the window, empty ones, too, oldest first."""
    measured = await answer(served, "metrics", {"flow_id": "research", **asked})
    assert set(measured) == {"flow_id", "window_start", "window_end", "buckets", "budget_consumption"}
    buckets = measured["buckets"]
    assert len(buckets) == count
    assert {index: bucket["runs"] for index, bucket in enumerate(buckets) if index in filled} == filled
    assert sum(bucket["runs"] for bucket in buckets) == sum(filled.values())
    assert set(buckets[0]) == {"bucket_start", "runs", "p95_latency_ms", "success_rate", "cost_usd"}
    assert buckets[0]["bucket_start"] == measured["window_start"]


async def test_each_read_is_announced(served: Served) -> None:
    """The event names the method and the flow, and whether another tenant was read."""
    await answer(served, "list")
    await answer(served, "describe", {"id": "triage"})
    await answer(served, "runs.list", {"flow_id": "research", "tenants": ["rival"]}, scopes=("admin",))
    assert await served.events("flows.page_viewed", ADA) == [
        {"Method": "flows.list", "FlowID": "", "AdminScoped": False},
        {"Method": "flows.describe", "FlowID": "triage", "AdminScoped": False},
        {"Method": "flows.runs.list", "FlowID": "research", "AdminScoped": True},
    ]


@pytest.mark.parametrize(
    ("durations", "half", "most"),
    [([], 0, 0), ([5], 5, 5), ([3, 1], 1, 1), ([4, 2, 3, 1], 2, 3), (list(range(101)), 50, 95)],
)
def test_percentiles(durations: list[int], half: int, most: int) -> None:
    """The one at the whole part of its share of the last place."""
    assert (percentile(durations, 0.5), percentile(durations, 0.95)) == (half, most)
