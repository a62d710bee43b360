"""`search.*` over a served runtime: what is found, whose, in which order, and what a page says of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harborage.artifacts import ArtifactScope
from harborage.identity import Identity
from harborage.server.families import search
from harborage.server.families.search_indexes import INDEXES
from tests.kit.serving import STORAGES, Served, serving
from tests.kit.wire import ADA, BEN, EVE

pytestmark = pytest.mark.anyio

ADA_TOO = Identity("acme", "ada", "s-9")
METHODS = ("search.query", *(f"search.{index}" for index in INDEXES))
ROW = {"index", "id", "tenant_id", "user_id", "session_id", "occurred_at"}


@pytest.fixture(params=STORAGES)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    """A server in which each principal has had one run and one file."""
    async with serving(storage=request.param, folder=tmp_path) as one:
        for who in (ADA, ADA_TOO, BEN, EVE):
            await (await one.rt.start(f"mark-{who.user_id} says hello", who=who)).result()
            scope = ArtifactScope(who.tenant_id, who.user_id, who.session_id)
            await one.rt.artifacts.put_text(scope, "text", filename=f"mark-{who.user_id}.txt")
        yield one


async def answer(served: Served, method: str, body: Any = None, **options: Any) -> dict[str, Any]:
    """The answer to a request that is not refused."""
    reply = await served.wire.post(method, body, **options)
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json
    return found


async def test_every_index_finds_its_own(served: Served) -> None:
    """Sessions, tasks, events and files, each with what a client reads of it."""
    found = await answer(served, "search.query", {"query": "", "page_size": 200})
    assert set(found) == {
        "rows",
        "page",
        "page_size",
        "page_count",
        "total_count",
        "has_more",
        "protocol_version",
    }
    by_index: dict[str, list[dict[str, Any]]] = {}
    for row in found["rows"]:
        by_index.setdefault(row["index"], []).append(row)
        assert set(row) >= ROW
        assert None not in row.values()
    assert {name: len(rows) for name, rows in by_index.items() if name != "events"} == {
        "sessions": 2,
        "tasks": 2,
        "artifacts": 2,
    }
    assert {row["session_id"] for row in by_index["events"]} == {"s-1"}
    assert by_index["events"][0]["id"].startswith("s-1:")
    (task, _) = by_index["tasks"]
    assert (task["facets"], task["preview"]) == (
        {"status": "complete", "kind": "foreground"},
        "mark-ada says hello",
    )
    (file, _) = by_index["artifacts"]
    assert set(file["ref"]) == {"id", "mime_type", "size_bytes", "filename", "sha256"}
    assert file["occurred_at"] == "0001-01-01T00:00:00Z"
    times = [row["occurred_at"] for row in found["rows"]]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("method", "body", "count"),
    [
        ("search.sessions", {"query": "S-9"}, 1),
        ("search.sessions", {"query": "ada"}, 2),
        ("search.sessions", {"facets": [{"key": "sessions.status", "value": "open"}]}, 2),
        ("search.sessions", {"facets": [{"key": "sessions.status", "value": "closed"}]}, 0),
        ("search.tasks", {"query": "SAYS"}, 2),
        ("search.tasks", {"query": "complete"}, 2),
        ("search.tasks", {"query": "nothing"}, 0),
        ("search.tasks", {"facets": [{"key": "tasks.status", "value": "complete"}]}, 2),
        ("search.tasks", {"facets": [{"key": "tasks.kind", "value": "background"}]}, 0),
        ("search.tasks", {"filter": {"session_ids": ["s-9"]}}, 1),
        ("search.tasks", {"filter": {"session_ids": ["s-9", "s-1", "s-2"], "user_ids": None}}, 2),
        ("search.tasks", {"filter": {"since": "2999-01-01T00:00:00Z"}}, 0),
        ("search.tasks", {"filter": {"until": "2999-01-01T00:00:00Z"}}, 2),
        ("search.events", {"facets": [{"key": "events.type", "value": "task.completed"}]}, 1),
        ("search.events", {"query": "TASK.comp", "filter": {"session_ids": ["s-9"]}}, 1),
        ("search.events", {"facets": [{"key": "events.run", "value": "nowhere"}]}, 0),
        ("search.artifacts", {"query": "MARK-ADA"}, 2),
        ("search.artifacts", {"facets": [{"key": "artifacts.mime", "value": "image/png"}]}, 0),
        ("search.artifacts", {"facets": [{"key": "artifacts.namespace", "value": "default"}]}, 2),
        ("search.query", {"indexes": ["tasks"], "query": "mark"}, 2),
        ("search.query", {"indexes": ["tasks", "artifacts", "tasks"], "query": "mark"}, 4),
        ("search.query", {"query": None, "indexes": [], "filter": None, "facets": None, "more": 1, "page": 0}, None),
    ],
    ids=str,
)
async def test_text_facets_and_filters_narrow(
    served: Served, method: str, body: dict[str, Any], count: int | None
) -> None:
    """A part of the text in any case, and what is asked for beside it; the count says how many there are."""
    found = await answer(served, method, body)
    assert (found["page"], found["page_size"]) == (1, 20)
    if count is not None:
        assert (len(found["rows"]), found["total_count"], found["page_count"]) == (count, count, 1)
        assert found["has_more"] is False


async def test_pages_are_numbered(served: Served) -> None:
    """Each row once, and an empty page behind the last; sizes and numbers out of range are refused."""
    seen = []
    for page in (1, 2, 3):
        found = await answer(served, "search.tasks", {"page": page, "page_size": 1})
        seen += [row["id"] for row in found["rows"]]
        assert (found["page_count"], found["total_count"], found["has_more"]) == (2, 2, page < 2)
    assert len(set(seen)) == len(seen) == 2
    for method in METHODS:
        for body in ({"page": -1}, {"page_size": -1}, {"page_size": 201}, {"page": 51, "page_size": 200}):
            reply = await served.wire.post(method, body)
            assert (reply.status, reply.code) == (400, "invalid_request")


@pytest.mark.parametrize(
    "body",
    [
        {"facets": [{"key": "tasks.color", "value": "red"}]},
        {"facets": [{"key": "tasks.status", "value": "waiting"}]},
        {"facets": [{"key": "sessions.status", "value": "running"}]},
        {"filter": {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}},
    ],
    ids=str,
)
async def test_bad_values_are_refused(served: Served, body: dict[str, Any]) -> None:
    """400 in every method, and an index that does not exist in that of all."""
    for method in METHODS:
        reply = await served.wire.post(method, body)
        assert (reply.status, reply.code) == (400, "invalid_request")
    reply = await served.wire.post("search.query", {"indexes": ["tasks", "people"]})
    assert (reply.status, reply.code) == (400, "invalid_request")


@pytest.mark.parametrize("method", METHODS)
async def test_scopes_reach_other_users_and_tenants(served: Served, method: str) -> None:
    """Own things without one; with one those of the tenants that are named, audited beyond the own tenant."""
    marks = ("mark-ada", "mark-ben", "mark-eve")

    async def users(scopes: tuple[str, ...] = (), **filter: Any) -> set[str]:
        body = {"filter": filter, "page_size": 200, "identity": {"tenant": "rival", "user": "eve"}}
        found = await answer(served, method, body, scopes=scopes)
        names = {row["user_id"] for row in found["rows"]}
        for name, mark in zip(("ada", "ben", "eve"), marks, strict=True):
            assert name in names or mark not in str(found)
        return names

    fleet = ("console:fleet",)
    is_one_session = method == "search.events"
    assert await users() == {"ada"}
    assert await users(user_ids=["ben"]) == await users(user_ids=["ben"], session_ids=["s-2"]) == set()
    assert await users(tenant_ids=["acme"]) == {"ada"}
    assert await users(fleet, user_ids=["ben"], session_ids=["s-2"]) == {"ben"}
    assert await users(fleet) == ({"ada"} if is_one_session else {"ada", "ben"})
    for body in ({"filter": {"tenant_ids": ["rival"]}, "page": -1}, {"filter": {"tenant_ids": ["acme", "rival"]}}):
        refused = await served.wire.post(method, body)
        assert (refused.status, refused.code) == (403, "scope_mismatch")
    assert await served.events("audit.admin_scope_used") == []
    reached = await users(("admin",), tenant_ids=["rival"], user_ids=["eve"], session_ids=["s-3"])
    assert reached == {"eve"}
    (audit,) = await served.events("audit.admin_scope_used", ADA)
    assert (audit["Method"], audit["Actor"]["UserID"]) == (method, "ada")


async def test_an_index_that_fails_is_left_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others answer; asked alone it is a failure. One that takes too long is left out, too."""

    async def refuses(*_: Any, **__: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr(type(served.rt.artifacts), "list", refuses)
    found = await answer(served, "search.query", {"query": "mark"})
    assert {row["index"] for row in found["rows"]} == {"tasks"}
    reply = await served.wire.post("search.artifacts", {"query": "mark"})
    assert (reply.status, reply.code) == (500, "runtime_error")

    async def hangs(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(type(served.rt.artifacts), "list", hangs)
    monkeypatch.setattr(search, "_ANSWERS_WITHIN_S", 0.05)
    assert (await answer(served, "search.query", {"query": "nothing at all"}))["rows"] == []


async def test_previews_are_cut_and_without_secrets(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """256 characters and an ellipsis; a very long text is referred to; a redactor that fails fails the request."""
    for goal in ("long " + "word " * 100, "huge " + "x" * 40_000, "key Bearer abcdefghijklmnopqrstuvwxyz0123456789"):
        await (await served.rt.start(goal, who=ADA)).result()

    async def one(query: str) -> dict[str, Any]:
        (row,) = (await answer(served, "search.tasks", {"query": query}))["rows"]
        found: dict[str, Any] = row
        return found

    long = await one("long word")
    assert (len(long["preview"]), long["preview"][-1]) == (257, "…")
    huge = await one("huge x")
    assert "preview" not in huge
    assert huge["ref"]["size_bytes"] == 40_005
    assert "abcdefghijklmnopqrstuvwxyz" not in (await one("key Bearer"))["preview"]

    def refuses(*_: Any) -> Any:
        raise ValueError("cannot")

    monkeypatch.setattr(type(served.rt.parts.redactor), "redact", refuses)
    reply = await served.wire.post("search.tasks", {"query": "mark"})
    assert (reply.status, reply.code) == (500, "runtime_error")
