"""`sessions.list` and `sessions.inspect` over a served runtime: whose are seen, totals, orders, pages and filters."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, tool
from harborage.artifacts import ArtifactScope
from harborage.events import Filter
from harborage.identity import Identity
from harborage.runtime.durable.engine import RunFailedError
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.serving import STORAGES, Served, priced, serving
from tests.kit.wire import ADA, BEN, EVE

pytestmark = pytest.mark.anyio

ROW = {
    "session_id",
    "status",
    "agent_id",
    "agent_name",
    "user_id",
    "tenant_id",
    "started_at",
    "last_activity_at",
    "duration",
    "tasks_count",
    "events_count",
    "total_cost_cents",
    "total_tokens",
    "has_pending_intervention",
    "has_failed_task",
    "identity",
}
SORTS = ("started_desc", "started_asc", "last_activity_desc", "cost_desc")


@tool(effects="external", approval="always")
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@pytest.fixture(params=STORAGES)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    """A server with one agent that answers, fails, or asks for an approval, as the goal says."""
    lines = {
        "refund": [calls_tools(("refund", {"order": "7"}))],
        "fail": [ValueError("secret-4711")],
        "dear": [priced(says("hello"), 0.31)],
    }
    model = ScriptedLLM([priced(says("hello"), 0.02)], by_text=lines)
    async with serving([Agent("talker", model=model, tools=[refund])], storage=request.param, folder=tmp_path) as one:
        yield one


def of(name: str, who: Identity = ADA) -> Identity:
    """Another session of the same user."""
    return Identity(who.tenant_id, who.user_id, name)


async def open_sessions(served: Served, *names: str, who: Identity = ADA) -> None:
    """Open sessions, one after the other."""
    for name in names:
        await served.rt.sessions.open(name, who=of(name, who))
        await asyncio.sleep(0.000_01)  # the next one is opened later than this one


async def answer(served: Served, method: str, body: Any = None, **options: Any) -> dict[str, Any]:
    """The answer to a request that is not refused."""
    reply = await served.wire.post(method, body, **options)
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json
    return found


async def ids(served: Served, body: Any = None, **options: Any) -> list[str]:
    """The ids of a page."""
    return [row["session_id"] for row in (await answer(served, "sessions.list", body, **options))["rows"]]


async def test_a_session_says_what_came_of_it(served: Served) -> None:
    """All its keys are there, whatever happened in it; sums are of its runs."""
    await (await served.rt.start("hello", who=ADA)).result()
    await (await served.rt.start("dear", who=ADA)).result()
    failed = await served.rt.start("fail", who=ADA)
    with pytest.raises(RunFailedError):
        await failed.result()
    with served.rt.bus.subscribe(Filter.of(ADA, ("pause.requested",))) as asked:
        await served.rt.start("refund", who=ADA)
        async with asyncio.timeout(20):
            await anext(asked)
    await open_sessions(served, "empty")
    found = await answer(served, "sessions.list", {"filter": {}, "sort": "started_asc", "cursor": "", "limit": 50})
    assert set(found) == {"rows", "next_cursor", "truncated"}
    assert (found["next_cursor"], found["truncated"]) == ("", False)
    row, empty = found["rows"]
    assert set(row) == set(empty) == ROW
    assert row["identity"] == {"tenant": "acme", "user": "ada", "session": "s-1"}
    assert (row["agent_id"], row["agent_name"], row["status"]) == ("talker", "talker", "running")
    assert (row["tasks_count"], row["total_cost_cents"], row["total_tokens"]) == (4, 33, 30)
    assert (row["has_pending_intervention"], row["has_failed_task"]) == (True, True)
    assert row["events_count"] > 10
    assert row["duration"] > 0
    assert (empty["tasks_count"], empty["total_tokens"], empty["agent_name"]) == (0, 0, "")
    assert (empty["has_pending_intervention"], empty["has_failed_task"]) == (False, False)


async def test_inspect_shows_what_was_asked_and_stored(served: Served) -> None:
    """The newest five of each, without what they hold; an empty session has empty lists."""
    with served.rt.bus.subscribe(Filter.of(ADA, ("pause.requested",))) as asked:
        await served.rt.start("refund", who=ADA)
        async with asyncio.timeout(20):
            await anext(asked)
    scope = ArtifactScope("acme", "ada", "s-1")
    for number in range(6):
        source = {"source": "user_upload", "created_at": f"2026-01-0{number + 1}T00:00:00Z"}
        await served.rt.artifacts.put_text(scope, f"text {number}", filename=f"{number}.txt", source=source)
    found = await answer(served, "sessions.inspect", {"session_id": "s-1"})
    assert set(found) == {"row", "recent_interventions", "recent_artifacts"}
    (asked_for,) = found["recent_interventions"]
    assert set(asked_for) == {"type", "reason", "outcome", "occurred_at"}
    assert (asked_for["reason"], asked_for["outcome"]) == ("approval_required", "pending")
    assert [one["filename"] for one in found["recent_artifacts"]] == [f"{n}.txt" for n in (5, 4, 3, 2, 1)]
    assert {frozenset(one) for one in found["recent_artifacts"]} == {
        frozenset({"filename", "mime", "size_bytes", "created_at"})
    }
    (listed,) = (await answer(served, "sessions.list"))["rows"]
    assert found["row"] == listed
    await open_sessions(served, "empty")
    empty = await answer(served, "sessions.inspect", {"session_id": "empty"})
    assert (empty["recent_interventions"], empty["recent_artifacts"]) == ([], [])


async def test_statuses_are_those_of_the_close(served: Served) -> None:
    """Open is running, closed as failed is failed, any other close is completed; nothing is ever paused."""
    await open_sessions(served, "open", "done", "bad")
    await served.rt.sessions.close(of("done"), "idle")
    await served.rt.sessions.close(of("bad"), "failed")
    rows = {row["session_id"]: row for row in (await answer(served, "sessions.list"))["rows"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "open": "running",
        "done": "completed",
        "bad": "failed",
    }
    assert rows["done"]["last_activity_at"] >= rows["done"]["started_at"]
    for statuses, names in (
        (["running"], ["open"]),
        (["failed", "completed"], ["bad", "done"]),
        (["paused"], []),
        (["paused", "running"], ["open"]),
        ([], ["bad", "done", "open"]),
    ):
        assert await ids(served, {"filter": {"statuses": statuses}}) == names


async def test_filters_narrow(served: Served) -> None:
    """Agent, text, time, cost, failures and questions, each alone; what is null or empty narrows nothing."""
    for name, goal in (("a", "hello"), ("b", "dear")):
        await (await served.rt.start(goal, who=of(name))).result()
    failed = await served.rt.start("fail", who=of("c"))
    with pytest.raises(RunFailedError):
        await failed.result()
    await open_sessions(served, "d")
    rows = {row["session_id"]: row for row in (await answer(served, "sessions.list"))["rows"]}
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "dcba"),
        ({"statuses": None, "started_window": None, "query": None, "cost_above_cents": None}, "dcba"),
        ({"agent_ids": ["talker"]}, "cba"),
        ({"agent_ids": ["nobody"]}, ""),
        ({"user_ids": ["ada"]}, "dcba"),
        ({"user_ids": ["ben"]}, ""),
        ({"tenant_ids": ["acme"]}, "dcba"),
        ({"has_failed_task": True}, "c"),
        ({"has_failed_task": False}, "dba"),
        ({"has_intervention": True}, ""),
        ({"has_intervention": False}, "dcba"),
        ({"cost_above_cents": 2}, "b"),
        ({"cost_above_cents": 1.5}, "ba"),
        ({"cost_above_cents": 31}, ""),
        ({"query": "TALK"}, "cba"),
        ({"query": "ada"}, "dcba"),
        ({"query": "d"}, "dcba"),
        ({"started_window": {"from": rows["b"]["started_at"]}}, "dcb"),
        ({"started_window": {"to": rows["b"]["started_at"], "from": "0001-01-01T00:00:00Z"}}, "ba"),
    ]
    for wish, names in cases:
        assert "".join(await ids(served, {"filter": wish})) == names, wish


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("size", [1, 3, 200])
async def test_pages_hold_in_every_order_while_sessions_come(served: Served, sort: str, size: int) -> None:
    """Every session that was there comes once, in its order; those alike by their ids."""
    names = [f"n{number}" for number in range(7)]
    await open_sessions(served, *names)
    for name in names[::3]:
        await (await served.rt.start("dear" if name == "n3" else "hello", who=of(name))).result()
    whole = await ids(served, {"sort": sort})
    orders = {
        "started_desc": names[::-1],
        "started_asc": names,
        "cost_desc": ["n3", "n0", "n6", "n1", "n2", "n4", "n5"],
    }
    assert whole == orders.get(sort, whole)
    assert sorted(whole) == names
    seen: list[str] = []
    cursor = ""
    while True:
        found = await answer(served, "sessions.list", {"sort": sort, "cursor": cursor, "limit": size})
        seen += [row["session_id"] for row in found["rows"]]
        cursor = found["next_cursor"]
        assert found["truncated"] is bool(cursor)
        if not cursor:
            break
        if sort == "started_desc":
            await open_sessions(served, f"late{len(seen)}")
    assert seen == whole


async def test_the_same_id_of_several_users_comes_once_for_each(served: Served) -> None:
    """Session ids are per tenant and user, so that pages across users skip none."""
    owners = [Identity("acme", f"u{number}", "default") for number in range(5)]
    for who in owners:
        await served.rt.sessions.open(who.session_id, who=who)
    for sort in SORTS:
        seen: list[str] = []
        cursor = ""
        while True:
            body = {"filter": {"tenant_ids": ["acme"]}, "sort": sort, "cursor": cursor, "limit": 2}
            found = await answer(served, "sessions.list", body, scopes=("console:fleet",))
            seen += [row["user_id"] for row in found["rows"]]
            cursor = found["next_cursor"]
            if not cursor:
                break
        assert sorted(seen) == [who.user_id for who in owners]


def token(text: str) -> str:
    """A cursor that spells `text`."""
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "body",
    [
        {"limit": 201},
        {"limit": -1},
        {"sort": "name"},
        {"filter": {"statuses": ["open"]}},
        {"filter": {"cost_above_cents": -1}},
        {"filter": {"started_window": {"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}}},
        {"filter": {"more": 1}},
        {"more": 1},
        {"cursor": "garbage"},
        {"cursor": "%"},
        {"cursor": token("1|1000|0|s-1|started_desc|1") + "="},
        {"cursor": token("2|1000|0|s-1|started_desc|1")},
        {"cursor": token("1|1000|0||started_desc|1")},
        {"cursor": token("1|1000|0|s-1|started_asc|1")},
        {"cursor": token("1|1001|0|s-1|started_desc|1")},
        {"cursor": token("1|x|0|s-1|started_desc|1")},
        {"cursor": token("1|-1000|0|s-1|started_desc|1")},
        {"cursor": token("1|1000|0|s-1")},
        {"cursor": token("tasks:1000:r")},
    ],
    ids=str,
)
async def test_bad_values_are_refused(served: Served, body: dict[str, Any]) -> None:
    """400 `invalid_request`, whatever of it is bad."""
    reply = await served.wire.post("sessions.list", body)
    assert (reply.status, reply.code) == (400, "invalid_request")


async def test_a_cursor_belongs_to_its_sort(served: Served) -> None:
    """That of one order is refused in every other; a session id may hold what separates the parts."""
    await open_sessions(served, "a|b|c", "d|started_asc|7", "e")
    for sort in SORTS:
        found = await answer(served, "sessions.list", {"sort": sort, "limit": 2})
        for other in SORTS:
            reply = await served.wire.post("sessions.list", {"sort": other, "cursor": found["next_cursor"]})
            assert reply.status == (200 if other == sort else 400)


async def test_scopes_reach_other_users_and_tenants(served: Served) -> None:
    """Own rows without one; with one all users of the tenants that are named, audited beyond the own tenant."""
    for who in (ADA, BEN, EVE):
        await served.rt.sessions.open(who.session_id, who=who)
    fleet = ("console:fleet",)

    async def seen(scopes: tuple[str, ...] = (), **filter: Any) -> set[str]:
        return {*await ids(served, {"filter": filter}, scopes=scopes)}

    assert await seen() == await seen(fleet) == await seen(("admin",)) == {"s-1"}
    assert await seen(tenant_ids=["acme"]) == {"s-1"}
    assert await seen(user_ids=["ben"]) == await seen(fleet, user_ids=["ben"]) == set()
    assert await seen(tenant_ids=["acme"], user_ids=["ben"]) == set()
    assert await seen(fleet, tenant_ids=["acme"]) == {"s-1", "s-2"}
    assert await seen(fleet, tenant_ids=["acme"], user_ids=["ben"]) == {"s-2"}
    refused = await served.wire.post("sessions.list", {"filter": {"tenant_ids": ["rival"], "statuses": ["bad"]}})
    assert (refused.status, refused.code) == (403, "scope_mismatch")
    assert await served.events("audit.admin_scope_used") == []
    assert await seen(fleet, tenant_ids=["rival"]) == {"s-3"}
    assert await seen(("admin",), tenant_ids=["rival", "acme"]) == {"s-1", "s-2", "s-3"}
    audits = await served.events("audit.admin_scope_used", ADA)
    assert [(one["Method"], one["Actor"]["UserID"]) for one in audits] == [("sessions.list", "ada")] * 2


async def test_a_session_of_others_is_not_found(served: Served) -> None:
    """Blank is 400; without a scope only the own ones are there, with one all, audited beyond the own tenant."""
    for who in (ADA, of("s-9"), BEN, EVE):
        await served.rt.sessions.open(who.session_id, who=who)
    for body in (None, {}, {"session_id": ""}, {"session_id": " "}, {"session_id": None}):
        reply = await served.wire.post("sessions.inspect", body)
        assert (reply.status, reply.code) == (400, "invalid_request")

    async def status(name: str, *scopes: str) -> int:
        return (await served.wire.post("sessions.inspect", {"session_id": name}, scopes=scopes)).status

    assert await status("s-1") == await status("s-9") == 200
    assert await status("s-2") == await status("s-3") == await status("nowhere") == 404
    assert await status("s-2", "console:fleet") == await status("s-2", "admin") == 200
    assert await served.events("audit.admin_scope_used") == []
    assert await status("s-3", "console:fleet") == 200
    assert len(await served.events("audit.admin_scope_used", ADA)) == 1
    await served.rt.sessions.open("s-1", who=of("s-1", BEN))
    found = await answer(served, "sessions.inspect", {"session_id": "s-1"}, scopes=("admin",))
    assert found["row"]["user_id"] == "ada"


@pytest.mark.parametrize("method", ["sessions.list", "sessions.inspect"])
async def test_the_identity_of_the_body_must_be_the_resolved_one(served: Served, method: str) -> None:
    """Blanks are filled; another tenant, user or session is 401, the header's session counts."""
    await open_sessions(served, "s-1", "s-9")
    body = {"session_id": "s-1"} if method == "sessions.inspect" else {}
    for identity in ({}, None, {"tenant": "acme"}, {"user": "ada", "session": "s-1"}):
        await answer(served, method, {**body, "identity": identity})
    for identity in ({"tenant": "rival"}, {"user": "ben"}, {"session": "s-9"}):
        reply = await served.wire.post(method, {**body, "identity": identity}, scopes=("admin",))
        assert (reply.status, reply.code) == (401, "identity_required")
    header = {"X-Harbor-Session": "s-9"}
    await answer(served, method, {**body, "identity": {"session": "s-9"}}, headers=header)
