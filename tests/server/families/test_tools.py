"""`tools.*` over a served runtime: which tools are shown, how each row reads, and how their calls are counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harborage import Agent, tool
from harborage.events import Event, EventType, ToolCompletedPayload, ToolFailedPayload, ToolInvalidArgsPayload
from harborage.identity import Identity
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from harborage.tools import OpenAPI
from harborage.tools.enums import Transport
from tests.kit.serving import STORAGES, Served, serving
from tests.kit.wire import ADA, BEN, EVE

pytestmark = pytest.mark.anyio

ROW = {
    "id",
    "name",
    "version",
    "description",
    "scope",
    "transport",
    "oauth_status",
    "approval_policy",
    "reliability_tier",
    "owner",
    "last_used_at",
}
NEVER = "0001-01-01T00:00:00Z"


@tool(effects="read")
async def look(place: str) -> str:
    """Look at a place."""
    return place * 10


@tool(effects="external", approval="always")
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@tool(effects="write", source="shop")
async def note(text: str) -> None:
    """Write a note."""


@tool(effects="read", auth_scopes=("secret",))
async def peek() -> str:
    """Only for those who hold the scope."""
    return ""


@tool(effects="pure", loading="deferred", tags=("x",))
async def later() -> int:
    """Found by a search."""
    return 1


def agents() -> list[Agent[Any, Any]]:
    """Two agents that share a tool."""
    model = ScriptedLLM([says("done")], by_text={"look": [calls_tools(("look", {"place": "here"})), says("done")]})
    return [
        Agent("first", tools=[look, refund, peek], model=model),
        Agent("second", tools=[look, note, later], model=model),
    ]


@pytest.fixture(params=STORAGES)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    """A server of both agents."""
    async with serving(agents(), storage=request.param, folder=tmp_path) as one:
        yield one


async def answer(served: Served, method: str, body: Any = None, **options: Any) -> Any:
    """The body of an answer that is no refusal."""
    reply = await served.wire.post(method, body, **options)
    assert reply.status == 200, reply.body
    return reply.json


OWN = {"look", "refund", "note", "later"}


async def names(served: Served, **filter: Any) -> set[str]:
    """The tools that a filter finds, without those that every agent has."""
    return {row["name"] for row in (await answer(served, "tools.list", {"filter": filter}))["tools"]} & OWN


async def test_the_tools_of_all_agents_are_listed_once_by_name(served: Served) -> None:
    """Deferred ones, too; those are left out that need a scope which is not granted."""
    listed = await answer(served, "tools.list")
    assert set(listed) == {"tools", "page", "page_size", "page_count", "total_rows", "aggregates"}
    found = [row["name"] for row in listed["tools"]]
    assert found == sorted(set(found))
    assert set(found) >= OWN
    assert "peek" not in found
    assert all(set(row) == ROW and row["id"] == row["name"] for row in listed["tools"])
    assert listed["aggregates"] == {
        "total": listed["total_rows"],
        "active": 0,
        "pending_approval": 1,
        "awaiting_oauth": 0,
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("look", ("tenant", "in-proc", "n/a", "auto", "standard", "first")),
        ("refund", ("tenant", "in-proc", "n/a", "gated", "external", "first")),
        ("note", ("agent", "in-proc", "n/a", "auto", "guarded", "second")),
        ("later", ("tenant", "in-proc", "n/a", "auto", "standard", "second")),
    ],
)
async def test_what_a_row_says(served: Served, name: str, expected: tuple[str, ...]) -> None:
    """`get` answers the bare row, `describe` the same row nested."""
    row = await answer(served, "tools.get", {"id": name})
    keys = ("scope", "transport", "oauth_status", "approval_policy", "reliability_tier", "owner")
    assert tuple(row[key] for key in keys) == expected
    assert row["last_used_at"] == NEVER
    assert (await answer(served, "tools.describe", {"id": name}))["tool"] == row


async def test_every_transport_has_a_word() -> None:
    """A new one cannot be forgotten."""
    from harborage.server.families.tools import TRANSPORTS

    assert set(TRANSPORTS) == set(Transport)


async def test_a_description_has_no_null(served: Served) -> None:
    """Schemas are JSON as text, lists and maps are there even when they are empty."""
    described = await answer(served, "tools.describe", {"id": "look"})
    tool_row = described.pop("tool")
    assert tool_row["name"] == "look"
    schema = described.pop("args_schema")
    assert msgspec.json.decode(schema)["properties"].keys() == {"place"}
    assert isinstance(described.pop("out_schema"), str)
    assert described == {
        "side_effect": "read",
        "examples": [],
        "auth_scopes": [],
        "oauth_binding_scope": "",
        "retry_attempts": 3,
        "timeout_ms": 30_000,
        "loading_mode": "always",
        "display_modes": {},
    }
    assert (await answer(served, "tools.describe", {"id": "later"}))["loading_mode"] == "deferred"


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"scopes": ["agent"]}, {"note"}),
        ({"transports": ["MCP", "HTTP"]}, set()),
        ({"transports": ["in-proc", "MCP"]}, OWN),
        ({"oauth_statuses": ["n/a"]}, OWN),
        ({"oauth_statuses": ["Required"]}, set()),
        ({"approval_policies": ["gated"]}, {"refund"}),
        ({"approval_policies": ["denied"]}, set()),
        ({"reliability_tiers": ["guarded", "external"]}, {"note", "refund"}),
        ({"search": "LOO"}, {"look"}),
        ({"search": "o", "reliability_tiers": ["standard"]}, {"look"}),
        ({"search": None, "scopes": None}, OWN),
    ],
)
async def test_filters(served: Served, filter: Any, expected: set[str]) -> None:
    """Lists are any-of, and all parts of a filter must agree."""
    assert await names(served, **filter) == expected


@pytest.mark.parametrize(
    ("method", "body", "status", "code"),
    [
        *(
            ("tools.list", body, 400, "invalid_request")
            for body in (
                {"page": -1},
                {"page_size": -1},
                {"page_size": 201},
                {"what": 1},
                {"filter": {"scopes": ["x"]}},
                {"filter": {"transports": ["mcp"]}},
                {"filter": {"oauth_statuses": ["bound"]}},
                {"filter": {"approval_policies": ["x"]}},
                {"filter": {"reliability_tiers": ["x"]}},
            )
        ),
        *(
            row
            for method in ("tools.get", "tools.describe", "tools.metrics", "tools.content_stats")
            for row in (
                (method, {}, 400, "invalid_request"),
                (method, {"id": " "}, 400, "invalid_request"),
                (method, {"id": "nobody"}, 404, "not_found"),
                (method, {"id": "peek"}, 404, "not_found"),
            )
        ),
        ("tools.metrics", {"id": "look", "window": "2h"}, 400, "invalid_request"),
        ("tools.metrics", {"id": "nobody", "window": "2h"}, 400, "invalid_request"),
        ("tools.set_approval_policy", {}, 403, "identity_scope_required"),
        ("tools.set_approval_policy", {"id": "nobody", "policy": "x"}, 403, "identity_scope_required"),
        ("tools.revoke_oauth", {}, 403, "identity_scope_required"),
        ("tools.revoke_oauth", {"id": "nobody"}, 403, "identity_scope_required"),
    ],
)
async def test_refusals(served: Served, method: str, body: Any, status: int, code: str) -> None:
    """Values come before existence, and the scope of an admin verb before its values."""
    reply = await served.wire.post(method, body, scopes=("console:fleet",))
    assert (reply.status, reply.code) == (status, code)


async def test_pages(served: Served) -> None:
    """A page behind the last is empty; of nothing there is one page."""
    whole = [row["name"] for row in (await answer(served, "tools.list"))["tools"]]
    last = -(-len(whole) // 2)
    for page, expected in ((0, whole[:2]), (2, whole[2:4]), (last + 1, [])):
        listed = await answer(served, "tools.list", {"page": page, "page_size": 2})
        assert [row["name"] for row in listed["tools"]] == expected
        assert (listed["page"], listed["page_size"], listed["page_count"]) == (page or 1, 2, last)
    assert (await answer(served, "tools.list", {"filter": {"search": "nobody"}}))["page_count"] == 1


async def test_a_body_that_names_somebody_else_is_read_for_the_caller(served: Served) -> None:
    """The identity of a body is not looked at."""
    listed = await answer(served, "tools.list", {"identity": {"tenant": "rival", "user": "eve", "session": "x"}})
    assert listed["total_rows"] > 0


async def test_a_call_is_seen_by_its_user_and_by_readers_of_the_tenant(served: Served) -> None:
    """Nobody else learns that a tool was used."""
    run = await served.rt.start("first", "look", who=ADA)
    await run.result()
    for who, scopes, is_seen in (
        (ADA, (), True),
        (Identity("acme", "ada", "s-9"), (), True),
        (BEN, (), False),
        (BEN, ("console:fleet",), True),
        (EVE, ("admin",), False),
    ):
        row = await answer(served, "tools.get", {"id": "look"}, who=who, scopes=scopes)
        assert (row["last_used_at"] != NEVER) is is_seen, (who, scopes)
        measured = await answer(served, "tools.metrics", {"id": "look"}, who=who, scopes=scopes)
        assert measured == {
            "id": "look",
            "window": "1h",
            "error_rate_1h": 0.0,
            "error_rate_24h": 0.0,
            "error_rate_7d": 0.0,
            "invocations": int(is_seen),
            "failures": 0,
            "status": "Healthy",
        }
    assert (await answer(served, "tools.list"))["aggregates"]["active"] == 1


async def ended(served: Served, failed: bool, hours: float = 0.0, name: str = "look") -> None:
    """Let a call of ada's have ended so many hours ago."""
    from datetime import timedelta

    who, at = ADA.with_run("run"), datetime.now(UTC) - timedelta(hours=hours)
    if failed:
        await served.rt.bus.publish(
            Event(EventType.TOOL_FAILED, who, ToolFailedPayload(who, name, "inprocess", 1, "permanent"), at)
        )
    else:
        await served.rt.bus.publish(
            Event(EventType.TOOL_COMPLETED, who, ToolCompletedPayload(who, name, "inprocess", 1, 5), at)
        )


async def test_calls_are_counted_by_window(served: Served) -> None:
    """Each rate is of its own window; what another tool did counts for nothing."""
    for failed, hours in ((False, 0.5), (True, 0.5), (False, 2), (False, 2), (True, 30), (True, 200)):
        await ended(served, failed, hours)
    await ended(served, True, name="note")
    for window, counts in (("1h", (2, 1)), ("24h", (4, 1)), ("7d", (5, 2)), (None, (2, 1))):
        measured = await answer(served, "tools.metrics", {"id": "look", "window": window})
        assert (measured["window"], measured["invocations"], measured["failures"]) == (window or "1h", *counts)
        assert [measured[f"error_rate_{one}"] for one in ("1h", "24h", "7d")] == [0.5, 0.25, 0.4]
        assert measured["status"] == "Degraded"


async def test_a_tool_whose_every_call_fails_is_offline(served: Served) -> None:
    """After five in an hour; refused arguments are failures, too."""
    who = ADA.with_run("run")
    for _ in range(4):
        await ended(served, True)
    assert (await answer(served, "tools.metrics", {"id": "look"}))["status"] == "Degraded"
    body = ToolInvalidArgsPayload(who, "look", "inprocess", "no")
    await served.rt.bus.publish(Event(EventType.TOOL_INVALID_ARGS, who, body))
    assert (await answer(served, "tools.metrics", {"id": "look"}))["status"] == "Offline"


async def test_content_stats_have_no_null(served: Served) -> None:
    """Bounds are distinct and hold the threshold; nothing is negotiated here."""
    stats = await answer(served, "tools.content_stats", {"id": "look"})
    bounds = [bucket["max_bytes"] for bucket in stats.pop("histogram")]
    assert bounds == sorted(set(bounds))
    assert bounds[-1] >= stats["heavy_threshold_bytes"] > 0
    assert stats == {
        "id": "look",
        "heavy_threshold_bytes": stats["heavy_threshold_bytes"],
        "heavy_count": 0,
        "negotiated_display": {},
    }


async def test_sign_ins_are_revoked_by_an_admin(served: Served) -> None:
    """There are none, which is no error; the action is audited with its tool."""
    reply = await answer(served, "tools.revoke_oauth", {"id": "look"}, scopes=("admin",))
    assert reply == {"id": "look", "revoked_count": 0}
    (event,) = await served.events("audit.admin_scope_used")
    assert (event["Method"], event["ToolID"], event["Actor"]["UserID"]) == ("tools.revoke_oauth", "look", "ada")
    for body, code in (({}, "invalid_request"), ({"id": "nobody"}, "not_found")):
        assert (await served.wire.post("tools.revoke_oauth", body, scopes=("admin",))).code == code


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"policy": "auto"}, "invalid_request"),
        ({"id": "look"}, "invalid_request"),
        ({"id": "nobody", "policy": "sometimes"}, "invalid_request"),
        ({"id": "nobody", "policy": "auto"}, "not_found"),
    ],
)
async def test_policies_that_are_refused(served: Served, body: Any, code: str) -> None:
    """The id comes before the value, and that before existence; nothing is audited."""
    assert (await served.wire.post("tools.set_approval_policy", body, scopes=("admin",))).code == code
    assert await served.events("audit.admin_scope_used") == []


async def test_a_policy_holds_for_the_tenant_alone(served: Served) -> None:
    """It is shown, audited, and binds the runs of the tenant; what the agent says itself is left to it again."""

    async def shown(who: Identity) -> str:
        return str((await answer(served, "tools.get", {"id": "look"}, who=who))["approval_policy"])

    body = {"id": "look", "policy": "denied"}
    assert await answer(served, "tools.set_approval_policy", body, scopes=("admin",)) == body
    (event,) = await served.events("audit.admin_scope_used", ADA)
    assert (event["Method"], event["ToolID"]) == ("tools.set_approval_policy", "look")
    assert [await shown(who) for who in (ADA, BEN, EVE)] == ["denied", "denied", "auto"]
    assert await names(served, approval_policies=["denied"]) == {"look"}
    await (await served.rt.start("first", "look", who=BEN)).result()
    await (await served.rt.start("first", "look", who=EVE)).result()
    assert (await answer(served, "tools.metrics", {"id": "look"}, who=BEN))["invocations"] == 0
    assert (await answer(served, "tools.metrics", {"id": "look"}, who=EVE))["invocations"] == 1
    await answer(served, "tools.set_approval_policy", {"id": "look", "policy": "auto"}, scopes=("admin",))
    assert await served.rt.parts.approvals.load("acme") == {}


async def test_a_tool_that_no_run_is_offered_says_why() -> None:
    """It is listed for people, offline, with the reason; one that runs are offered has no such key."""
    paths = {"/a": {"get": {"operationId": "a", "security": [{"k": []}]}}, "/b": {"get": {"operationId": "b"}}}
    shop = OpenAPI({"openapi": "3.1.0", "paths": paths}, name="shop", base_url="https://shop.example")
    async with serving([Agent("clerk", model=ScriptedLLM([says("hello")]), tools=[shop])]) as served:
        described = {name: await answer(served, "tools.describe", {"id": name}) for name in ("shop_a", "shop_b")}
        measured = await answer(served, "tools.metrics", {"id": "shop_a"})
    assert described["shop_a"]["unavailable_reason"] == "it wants auth (k), which auth= does not give"
    assert "unavailable_reason" not in described["shop_b"]
    assert measured["status"] == "Offline"
