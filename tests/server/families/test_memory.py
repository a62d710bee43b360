"""`memory.*` over a served runtime: whose memory is seen, what an item says, and where a large value goes."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harborage import Agent
from harborage.artifacts import ArtifactScope
from harborage.events import Event, EventType, MemoryRecoveryDroppedPayload
from harborage.identity import Identity
from harborage.memory import Turn, TurnDigest
from harborage.server.services import ServerOptions
from harborage.testing.llm import ScriptedLLM, says
from tests.kit.serving import STORAGES, Served, serving
from tests.kit.wire import ADA, BEN, EVE

pytestmark = pytest.mark.anyio

ADA_TOO = Identity("acme", "ada", "s-9")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ITEM = {
    "key",
    "strategy",
    "scope",
    "identity",
    "created_at",
    "last_updated_at",
    "expires_at",
    "size_bytes",
    "driver",
}


@pytest.fixture(params=STORAGES)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    """A server of two agents that remember, to which a value is heavy from 500 bytes on."""
    agents = [Agent(name, model=ScriptedLLM([says("hello")]), memory="truncation") for name in ("one", "two")]
    options = ServerOptions(heavy_bytes=500)
    async with serving(agents, storage=request.param, folder=tmp_path, options=options) as one:
        yield one


async def remember(served: Served, text: str, who: Identity = ADA, at: datetime | None = NOON, **parts: Any) -> None:
    """Remember a turn of a session that is known."""
    await served.rt.sessions.visit(who)
    assert served.rt.memory is not None
    turn = Turn(user_message=text, assistant_response=f"re {text}", at=at, **parts)
    await served.rt.memory.add_turn(who, turn)


async def answer(served: Served, verb: str, body: Any = None, **options: Any) -> Any:
    """The body of an answer that is no refusal."""
    reply = await served.wire.post(f"memory.{verb}", body, **options)
    assert reply.status == 200, reply.body
    return reply.json


async def texts(served: Served, body: Any = None, **options: Any) -> list[str]:
    """What the user said in each item of a list."""
    items = (await answer(served, "list", body, **options))["items"]
    details = [await answer(served, "get", {"key": item["key"]}, scopes=("admin",)) for item in items]
    return [msgspec.json.decode(base64.b64decode(one["detail"]["value"]))["user_message"] for one in details]


async def test_nothing_is_an_empty_page_without_a_null(served: Served) -> None:
    """Every count is there."""
    aggregates = {"total": 0, "expiring_in_1h": 0, "identity_rejected_24h": 0, "recovery_dropped_24h": 0}
    assert await answer(served, "list", {"filter": None, "identity": {}}) == {
        "items": [],
        "page": 1,
        "page_size": 50,
        "page_count": 0,
        "total_rows": 0,
        "aggregates": aggregates,
        "protocol_version": "0.1.0",
    }
    health = await answer(served, "health")
    drivers = health["aggregate"].pop("driver_by_scope")
    assert health == {"aggregate": aggregates, "protocol_version": "0.1.0"}
    assert drivers == {"session": "sqlite" if served.rt.artifacts.__class__.__name__[0] == "F" else "inmem"}


async def test_a_turn_of_a_run_is_an_item(served: Served) -> None:
    """Both agents remember in the same place, so it is there once."""
    await (await served.rt.start("one", "hi", who=ADA, remembers=True)).result()
    listed = await answer(served, "list")
    (item,) = listed["items"]
    assert set(item) == ITEM
    assert (item["strategy"], item["scope"], item["expires_at"]) == ("truncation", "session", "0001-01-01T00:00:00Z")
    assert item["identity"] == {"tenant": "acme", "user": "ada", "session": "s-1"}
    assert item["key"].startswith("mem_")
    assert len(item["key"]) == 20
    assert listed["aggregates"]["total"] == (await answer(served, "health"))["aggregate"]["total"] == 1
    shown = await answer(served, "get", {"key": item["key"]})
    assert set(shown) == {"detail", "protocol_version"}
    assert set(shown["detail"]) == {"item", "value", "metadata"}
    assert shown["detail"]["item"] == item
    value = base64.b64decode(shown["detail"]["value"])
    assert len(value) == item["size_bytes"]
    decoded = msgspec.json.decode(value)
    assert (decoded["user_message"], decoded["assistant_response"]) == ("hi", "hello")
    assert "timestamp" in decoded


async def test_a_value_has_the_digest_and_the_artifacts(served: Served) -> None:
    """Where the turn has them."""
    await remember(served, "a", digest=TurnDigest(tools_invoked=("look",)), hidden_refs=("x_1",))
    key = (await answer(served, "list"))["items"][0]["key"]
    value = base64.b64decode((await answer(served, "get", {"key": key}))["detail"]["value"])
    decoded = msgspec.json.decode(value)
    assert decoded["trajectory_digest"]["tools_invoked"] == ["look"]
    assert decoded["artifacts_hidden_refs"] == ["x_1"]


async def test_a_heavy_value_is_an_artifact_of_its_session(served: Served) -> None:
    """The row says so, and the detail has a reference in place of the value."""
    await remember(served, "x" * 600)
    (item,) = (await answer(served, "list"))["items"]
    assert item["heavy_content"] is True
    detail = (await answer(served, "get", {"key": item["key"]}))["detail"]
    assert set(detail) == {"item", "value_artifact", "metadata"}
    ref = detail["value_artifact"]
    assert ref["id"].startswith("memory_value_")
    data = await served.rt.artifacts.get(ArtifactScope.of(ADA), ref["id"])
    assert data is not None
    assert len(data) == item["size_bytes"]


async def fill(served: Served) -> None:
    """One turn of each principal, and one of ada's other session; the last is the newest."""
    for hours, who in enumerate((ADA, ADA_TOO, BEN, EVE)):
        await remember(served, who.session_id, who, NOON + timedelta(hours=hours))


@pytest.mark.parametrize(
    ("filter", "scopes", "expected"),
    [
        ({}, (), ["s-9", "s-1"]),
        ({"session_ids": ["s-9", "s-2"]}, (), ["s-9"]),
        ({"user_ids": ["ben"]}, (), []),
        ({"user_ids": ["ben", "ada"]}, (), ["s-9", "s-1"]),
        ({"tenant_ids": ["acme"]}, (), ["s-9", "s-1"]),
        ({}, ("console:fleet",), ["s-2", "s-9", "s-1"]),
        ({"session_ids": ["s-2"]}, ("console:fleet",), ["s-2"]),
        ({"user_ids": ["ben"]}, ("admin",), ["s-2"]),
        ({"tenant_ids": ["rival"]}, ("console:fleet",), ["s-3"]),
        ({"tenant_ids": ["rival", "acme"]}, ("admin",), ["s-3", "s-2", "s-9", "s-1"]),
    ],
)
async def test_whose_memory_is_listed(served: Served, filter: Any, scopes: tuple[str, ...], expected: Any) -> None:
    """Without a scope the caller's own of all sessions; others are left out. Reads of other tenants are audited."""
    await fill(served)
    listed = await answer(served, "list", {"filter": filter}, scopes=scopes)
    assert [item["identity"]["session"] for item in listed["items"]] == expected
    assert listed["aggregates"]["total"] == listed["total_rows"] == len(expected)
    audited = await served.events("audit.admin_scope_used")
    assert [one["Method"] for one in audited] == ["memory.list"] * ("rival" in filter.get("tenant_ids", ()))


async def test_a_key_of_another_user_or_tenant_is_unknown(served: Served) -> None:
    """With a scope those of the own tenant are found."""
    await fill(served)
    keys = {}
    for who in (ADA, BEN, EVE):
        items = (await answer(served, "list", who=who))["items"]
        keys[who.user_id] = next(one["key"] for one in items if one["identity"]["session"] == who.session_id)
    for user, scopes, status in (
        ("ada", (), 200),
        ("ben", (), 404),
        ("ben", ("console:fleet",), 200),
        ("eve", (), 404),
        ("eve", ("admin",), 404),
    ):
        reply = await served.wire.post("memory.get", {"key": keys[user]}, scopes=scopes)
        assert reply.status == status, (user, scopes)


@pytest.mark.parametrize(
    ("verb", "body", "status", "code"),
    [
        ("list", {"what": 1}, 400, "invalid_request"),
        ("list", {"page": -1}, 400, "invalid_request"),
        ("list", {"page_size": 201}, 400, "invalid_request"),
        ("list", {"filter": {"strategies": ["nobody"]}}, 400, "invalid_request"),
        ("list", {"filter": {"scopes": ["project"]}}, 400, "invalid_request"),
        ("list", {"filter": {"drivers": ["redis"]}}, 400, "invalid_request"),
        ("list", {"filter": {"tenant_ids": ["rival"]}, "page": -1}, 403, "identity_scope_required"),
        ("list", {"identity": {"user": "ben"}}, 401, "identity_required"),
        ("get", {}, 400, "invalid_request"),
        ("get", {"key": " "}, 400, "invalid_request"),
        ("get", {"key": "mem_0000000000000000"}, 404, "not_found"),
        ("health", {"key": "x"}, 400, "invalid_request"),
    ],
)
async def test_refusals(served: Served, verb: str, body: Any, status: int, code: str) -> None:
    """The scope comes before the values, and those before existence."""
    reply = await served.wire.post(f"memory.{verb}", body)
    assert (reply.status, reply.code) == (status, code)


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"strategies": ["truncation", "none"]}, ["banana", "apple"]),
        ({"strategies": ["rolling_summary"]}, []),
        ({"scopes": ["session", "user"]}, ["banana", "apple"]),
        ({"scopes": ["tenant"]}, []),
        ({"drivers": ["postgres"]}, []),
        ({"drivers": ["inmem", "sqlite"]}, ["banana", "apple"]),
        ({"agent_ids": ["one"]}, []),
        ({"has_ttl_expiring": True}, []),
        ({"has_ttl_expiring": False}, ["banana", "apple"]),
        ({"content_search": "RE APP"}, ["apple"]),
        ({"content_search": "nobody"}, []),
    ],
)
async def test_filters(served: Served, filter: Any, expected: list[str]) -> None:
    """Lists are any-of; nothing is of one agent, or ends by itself."""
    await remember(served, "apple")
    await remember(served, "banana", at=NOON + timedelta(minutes=1))
    assert await texts(served, {"filter": filter}) == expected


async def test_pages(served: Served) -> None:
    """Newest first; a page behind the last is empty and says how many there are."""
    for n in range(5):
        await remember(served, str(n), at=NOON + timedelta(minutes=n))
    for page, expected in ((0, ["4", "3"]), (2, ["2", "1"]), (3, ["0"]), (4, [])):
        assert await texts(served, {"page": page, "page_size": 2}) == expected
    listed = await answer(served, "list", {"page": 9, "page_size": 2})
    assert (listed["page"], listed["page_count"], listed["total_rows"]) == (9, 3, 5)


async def test_turns_of_one_moment_have_keys_of_their_own_that_stay(served: Served) -> None:
    """A key is the same when others come or go."""
    for text in ("a", "b"):
        await remember(served, text)
    await remember(served, "c", at=None)
    before = {item["key"] for item in (await answer(served, "list"))["items"]}
    assert len(before) == 3
    await remember(served, "d", at=NOON + timedelta(hours=1))
    assert before < {item["key"] for item in (await answer(served, "list"))["items"]}


async def test_what_went_wrong_is_counted_for_the_tenant(served: Served) -> None:
    """Within a day; what happened in another tenant counts for nothing."""
    old = datetime.now(UTC) - timedelta(hours=25)
    for who, at in ((ADA, None), (BEN, None), (EVE, None), (ADA, old)):
        await served.rt.bus.publish(
            Event(EventType.MEMORY_RECOVERY_DROPPED, who.with_run(""), MemoryRecoveryDroppedPayload(), at)
        )
    assert (await answer(served, "health"))["aggregate"]["recovery_dropped_24h"] == 2
    assert (await answer(served, "list", who=EVE))["aggregates"]["recovery_dropped_24h"] == 1


async def test_agents_that_remember_nothing_have_an_empty_list() -> None:
    """It is no error."""
    async with serving() as served:
        await served.rt.sessions.visit(ADA)
        assert (await answer(served, "list"))["items"] == []
        assert (await answer(served, "health"))["aggregate"]["total"] == 0
