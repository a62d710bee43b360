"""`tasks.list` and `tasks.get` over a served runtime: whose tasks are seen, what a row says, pages and filters."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harborage import Agent, tool
from harborage.events import Filter
from harborage.identity import Identity
from harborage.runtime.durable.engine import RunFailedError
from harborage.store import LIVE, Change, Commit, Guard, Move, NewPause, NewRun, RunQuery, SessionQuery, Status
from harborage.store.errors import EntryDamagedError
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.serving import STORAGES, Served, priced, serving
from tests.kit.wire import ADA, BEN, EVE

pytestmark = pytest.mark.anyio

ADA_TOO = Identity("acme", "ada", "s-9")
ROW = {
    "id",
    "kind",
    "status",
    "priority",
    "identity",
    "parent_session_id",
    "description",
    "query",
    "started_at",
    "updated_at",
    "duration_ms",
    "tool_count",
    "background_acknowledged",
    "last_activity_at",
    "is_background",
    "has_pending_approval",
    "agent_name",
    "cost_usd",
}
COUNTS = {"pending": 0, "running": 0, "paused": 0, "failed": 0, "complete": 0, "cancelled": 0}


@tool(effects="external", approval="always")
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@pytest.fixture(params=STORAGES)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    """A server with one agent that answers, fails, or asks for an approval, as the goal says."""
    lines = {
        "refund": [calls_tools(("refund", {"order": "7"}), reasoning="It was late."), says("done")],
        "fail": [ValueError("secret-4711")],
    }
    model = ScriptedLLM([priced(says("hello", reasoning="Be kind."), 0.02)], by_text=lines)
    async with serving([Agent("talker", model=model, tools=[refund])], storage=request.param, folder=tmp_path) as one:
        yield one


async def put(served: Served, *run_ids: str, who: Identity = ADA, status: Status | None = None, **fields: Any) -> None:
    """Store tasks that no worker executes, one after the other."""
    for run_id in run_ids:
        row = NewRun(run_id=run_id, who=who, **{"kind": "foreground", "goal": f"goal of {run_id}", **fields})
        await served.rt.parts.store.commit(Commit(starts=(row,)))
        await asyncio.sleep(0.000_01)  # the next one starts later than this one
    if status is not None:
        await end(served, *run_ids, status=status)


async def end(served: Served, *run_ids: str, status: Status, reason: str = "code") -> None:
    """End such tasks."""
    moves = tuple(Move(run_id=one, expected=LIVE, status=status, reason=reason) for one in run_ids)
    await served.rt.parts.store.commit(Commit(moves=moves))


async def answer(served: Served, method: str, body: Any = None, **options: Any) -> dict[str, Any]:
    """The answer to a request that is not refused."""
    reply = await served.wire.post(method, body, **options)
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json
    return found


async def ids(served: Served, body: Any = None, **options: Any) -> list[str]:
    """The ids of a page."""
    return [row["id"] for row in (await answer(served, "tasks.list", body, **options))["rows"]]


async def waiting(served: Served, who: Identity = ADA) -> str:
    """Start a run that waits for an approval; its id."""
    with served.rt.bus.subscribe(Filter.of(who, ("pause.requested",))) as asked:
        run = await served.rt.start("refund", who=who)
        async with asyncio.timeout(20):
            await anext(asked)
    return run.id


# ── Rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_unknown_session_has_an_empty_list(served: Served) -> None:
    """No rows, an empty cursor, all counts 0, and no session comes of it."""
    nowhere = Identity("acme", "ada", "never")
    for body in (None, {}, {"filter": None, "cursor": None}, {"filter": {}, "cursor": {}}):
        found = await answer(served, "tasks.list", body, who=nowhere)
        assert found == {"rows": [], "cursor": {}, "aggregates": COUNTS}
    assert not (await served.rt.parts.store.sessions(SessionQuery(session="never", include_closed=True))).rows
    found = await answer(served, "tasks.list", {"include_status_counter_strip": True}, who=nowhere)
    assert found["status_counter_strip"] == {"pending": 0, "running": 0, "completed": 0, "paused": 0, "failed": 0}


async def test_a_finished_run_as_a_row_and_in_detail(served: Served) -> None:
    """Every key that is always there is there, none is null; the result is text whose answer is a string."""
    run = await served.rt.start("say hello", who=ADA, tags={"shop": "porto"})
    await run.result()
    found = await answer(served, "tasks.list")
    (row,) = found["rows"]
    assert set(row) == ROW | {"tags"}
    assert (row["id"], row["status"], row["kind"], row["query"]) == (run.id, "complete", "foreground", "say hello")
    assert row["identity"] == {"tenant": "acme", "user": "ada", "session": "s-1", "run": run.id}
    assert (row["agent_name"], row["cost_usd"], row["tags"]) == ("talker", 0.02, ["shop=porto"])
    assert found["aggregates"] == {**COUNTS, "complete": 1}
    got = await answer(served, "tasks.get", {"id": run.id})
    assert set(got) == {"task", "parent_session", "cost", "result_inline", "trajectory"}
    assert got["task"] == row
    assert msgspec.json.decode(got["result_inline"])["answer"] == "hello"
    assert got["trajectory"] == {"steps": [{"index": 0, "reasoning_trace": "Be kind."}]}
    assert got["cost"] == {
        "total_tokens": 15,
        "prompt_tokens": 10,
        "output_tokens": 5,
        "usd": 0.02,
        "per_step": [{"step_index": 0, "tokens": 15, "usd": 0.02}],
    }
    session = got["parent_session"]
    assert (session["session_id"], session["agent_name"], session["status"]) == ("s-1", "talker", "running")
    assert set(session) == {"session_id", "agent_name", "status", "started_at", "latest_event_at"}
    assert "null" not in (await served.wire.post("tasks.get", {"id": run.id})).body.decode()


async def test_a_run_that_waits_is_paused_and_one_that_failed_names_its_class(served: Served) -> None:
    """The approval shows in the row; the text of the error does not."""
    asks = await waiting(served)
    failed = await served.rt.start("fail", who=ADA)
    with pytest.raises(RunFailedError):
        await failed.result()
    rows = {row["id"]: row for row in (await answer(served, "tasks.list"))["rows"]}
    assert (rows[asks]["status"], rows[asks]["has_pending_approval"]) == ("paused", True)
    assert (rows[failed.id]["status"], rows[failed.id]["error_class"]) == ("failed", "runloop_error")
    assert "secret-4711" not in str(rows)
    got = await answer(served, "tasks.get", {"id": asks})
    assert got["planner_snapshot"]["summary"] == "1 step, paused: approval_required"
    assert got["trajectory"]["steps"] == [{"index": 0, "reasoning_trace": "It was late."}]
    assert "result_inline" not in got
    detail = await answer(served, "tasks.get", {"id": failed.id})
    assert detail["cost"]["per_step"] == []
    assert "trajectory" not in detail
    assert await ids(served, {"filter": {"has_pending_approval": True}}) == [asks]
    assert await ids(served, {"filter": {"error_classes": ["runloop_error"]}}) == [failed.id]
    assert await ids(served, {"filter": {"statuses": ["paused", "failed"]}}) == [failed.id, asks]


async def test_a_run_that_a_person_cancelled_has_failed(served: Served) -> None:
    """The board has no column for it: its class says that it was cancelled."""
    asks = await waiting(served)
    run = served.rt.get(asks, who=ADA)
    await run.cancel()
    with pytest.raises(RunFailedError):
        await run.result()
    (row,) = (await answer(served, "tasks.list"))["rows"]
    assert (row["status"], row["error_class"]) == ("failed", "cancelled")


async def test_what_no_person_is_asked_about_runs_and_what_is_blocked_is_paused(served: Served) -> None:
    """Our eight statuses as the six of a board, with the condition beside them."""
    store = served.rt.parts.store
    await store.join("w")
    for name, change in (
        ("held", Change()),
        ("timer", Change(release=True, wake_at=4 * 10**15)),
        ("child", Change(release=True, awaits="held")),
        ("left", Change(release=True, is_ready=True)),
        ("blocked", Change(release=True, blocked="other code")),
    ):
        start = NewRun(
            run_id=name, who=ADA, entries=(b"{}",), worker="w", agent="elsewhere", status=Status.RUNNING, goal=name
        )
        await store.commit(Commit(starts=(start,)))
        guard = Guard(lease=(await _lease(served, name)), position=1)
        await store.commit(Commit(guard=guard, change=change))
    await put(served, "new", "asks")
    await store.commit(Commit(opens=(NewPause(token="t", run_id="asks", who=ADA, reason="await_input"),)))
    await put(served, "cancelled", status=Status.CANCELLED)
    found = await answer(served, "tasks.list", {"include_status_counter_strip": True})
    shown = {row["id"]: (row["status"], row.get("condition")) for row in found["rows"]}
    assert shown == {
        "held": ("running", None),
        "timer": ("running", None),
        "child": ("running", None),
        "left": ("running", "interrupted"),
        "blocked": ("paused", "blocked"),
        "new": ("pending", None),
        "asks": ("paused", None),
        "cancelled": ("cancelled", None),
    }
    assert found["aggregates"] == {**COUNTS, "running": 4, "paused": 2, "pending": 1, "cancelled": 1}
    assert found["status_counter_strip"] == {"pending": 1, "running": 4, "completed": 0, "paused": 2, "failed": 0}
    for status in COUNTS:
        wanted = {one for one, (is_status, _) in shown.items() if is_status == status}
        part = await answer(served, "tasks.list", {"filter": {"statuses": [status]}})
        assert {row["id"] for row in part["rows"]} == wanted, status
        assert part["aggregates"] == {**COUNTS, status: len(wanted)}
    await store.leave("w")


async def _lease(served: Served, run_id: str) -> Any:
    return (await served.rt.parts.store.runs(RunQuery(run_ids=(run_id,)))).rows[0].lease


async def test_texts_are_whole(served: Served) -> None:
    """A long goal and a long description come as they were given, in the list and in detail."""
    long = "word " * 300
    run = await served.rt.start(long, who=ADA)
    await run.result()
    (row,) = (await answer(served, "tasks.list"))["rows"]
    assert row["query"] == (await answer(served, "tasks.get", {"id": run.id}))["task"]["query"] == long


# ── Filters and pages ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_filters_narrow_and_counts_follow(served: Served) -> None:
    """Each part of a filter alone; the strip stays the session's."""
    await put(served, "a", "b", description="Buy Tea")
    await put(served, "c", kind="background", parent="a", root="a")
    await end(served, "b", status=Status.FAILED, reason="no_path")
    rows = {row["id"]: row for row in (await answer(served, "tasks.list"))["rows"]}
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["c", "b", "a"]),
        ({"statuses": []}, ["c", "b", "a"]),
        ({"statuses": ["pending"]}, ["c", "a"]),
        ({"kinds": ["background"]}, ["c"]),
        ({"kinds": ["foreground", "background"]}, ["c", "b", "a"]),
        ({"parent_task_id": "a"}, ["c"]),
        ({"error_classes": ["no_path"]}, ["b"]),
        ({"error_classes": ["runloop_error"]}, []),
        ({"search": "buy TEA"}, ["b", "a"]),
        ({"search": "goal of c"}, ["c"]),
        ({"latency_above_ms": 60_000}, []),
        ({"has_pending_approval": False}, ["c", "b", "a"]),
        ({"has_pending_approval": True}, []),
        ({"group_id": "g"}, []),
        ({"since": rows["b"]["started_at"]}, ["c", "b"]),
        ({"until": rows["b"]["started_at"]}, ["b", "a"]),
        ({"since": None, "until": "0001-01-01T00:00:00Z", "identities": None}, ["c", "b", "a"]),
    ]
    for wish, wanted in cases:
        body = {"filter": wish, "include_status_counter_strip": True}
        found = await answer(served, "tasks.list", body)
        assert [row["id"] for row in found["rows"]] == wanted, wish
        assert sum(found["aggregates"].values()) == len(wanted), wish
        assert found["status_counter_strip"]["pending"] == 2
    assert rows["c"]["parent_task_id"] == "a"
    assert rows["c"]["is_background"] is True
    got = await answer(served, "tasks.get", {"id": "c"})
    assert got["parent_task"] == {"task_id": "a", "kind": "foreground", "status": "pending"}


@pytest.mark.parametrize(
    "body",
    [
        {"page_size": 201},
        {"page_size": -1},
        {"filter": {"statuses": ["waiting"]}},
        {"filter": {"kinds": ["other"]}},
        {"filter": {"latency_above_ms": -1}},
        {"filter": {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}},
        {"filter": {"identities": [{}] * 101}},
        {"filter": {"more": 1}},
        {"more": 1},
        {"cursor": {"next_page_token": "garbage"}},
        {"cursor": {"next_page_token": "%%%"}},
        {"cursor": {"next_page_token": "é"}},
        *(
            {"cursor": {"next_page_token": base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()}}
            for text in ("tasks:50", "tasks:x:r", "tasks:-1000:r", "tasks:1001:r", "tasks:1000:", "pauses:1000:r", "")
            if text
        ),
        {"cursor": {"next_page_token": base64.urlsafe_b64encode(b"tasks:1000:r0").decode() + "="}},
    ],
    ids=str,
)
async def test_bad_values_are_refused(served: Served, body: dict[str, Any]) -> None:
    """400 `invalid_request`, whatever of it is bad."""
    reply = await served.wire.post("tasks.list", body)
    assert (reply.status, reply.code) == (400, "invalid_request")


@pytest.mark.parametrize("size", [1, 2, 3, 200])
async def test_pages_hold_while_tasks_arrive(served: Served, size: int) -> None:
    """No task comes twice and none is skipped, whatever starts, and is deleted, between two pages."""
    names = [f"t{number:02}" for number in range(7)]
    await put(served, *names, status=Status.COMPLETE)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        found = await answer(served, "tasks.list", {"page_size": size, "cursor": cursor})
        seen += [row["id"] for row in found["rows"]]
        cursor = found["cursor"]
        if not cursor:
            break
        await put(served, f"late{len(seen)}")
        if len(seen) == 3:
            await served.rt.parts.store.delete([seen[-1]])
    assert seen == names[::-1]


async def test_a_cursor_of_another_list_is_refused(served: Served) -> None:
    """One that was given out for tasks that this list does not have."""
    for who in (ADA, ADA_TOO, BEN):
        await put(served, *(f"{who.user_id}{who.session_id}{number}" for number in range(3)), who=who)
    cursor = (await answer(served, "tasks.list", {"page_size": 1}))["cursor"]
    for who in (ADA_TOO, BEN, EVE):
        reply = await served.wire.post("tasks.list", {"cursor": cursor}, who=who)
        assert (reply.status, reply.code) == (400, "invalid_request")
    mine = {"filter": {"identities": [{"user": "ada"}]}, "cursor": cursor}
    assert len(await ids(served, mine, who=ADA_TOO)) == 2


# ── Whose ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_identities_reach_as_far_as_the_scope_does(served: Served) -> None:
    """Without a scope the own sessions, with one the own tenant, with admin others; every reach beyond is audited."""
    for who in (ADA, ADA_TOO, BEN, EVE):
        await put(served, f"{who.user_id}/{who.session_id}", who=who)

    async def seen(*identities: dict[str, str], scopes: tuple[str, ...] = ()) -> set[str]:
        return {*await ids(served, {"filter": {"identities": [*identities]}}, scopes=scopes)}

    mine, too, ben, eve = "ada/s-1", "ada/s-9", "ben/s-2", "eve/s-3"
    fleet, admin = ("console:fleet",), ("admin",)
    assert await seen() == {mine}
    assert await seen(scopes=admin) == {mine}
    for scopes in ((), fleet, admin):
        assert await seen({"session": "s-9"}, scopes=scopes) == {too}
        assert await seen({"user": "ada"}, scopes=scopes) == {mine, too}
        assert await seen({"tenant": "acme", "user": "ada", "session": "s-9"}, {"user": "ada"}, scopes=scopes) == {
            mine,
            too,
        }
    assert await seen({}) == {mine, too}
    assert await seen({"user": "ben"}) == set()
    assert await seen({"user": "ben"}, {"session": "s-2"}) == set()
    for scopes in (fleet, admin):
        assert await seen({}, scopes=scopes) == {mine, too, ben}
        assert await seen({"user": "ben"}, {"user": "ben", "session": "s-2"}, scopes=scopes) == {ben}
        assert await seen({"session": "s-2"}, scopes=scopes) == {ben}
    for scopes in ((), fleet):
        body = {"filter": {"identities": [{"tenant": "rival"}], "statuses": ["bad"]}}
        reply = await served.wire.post("tasks.list", body, scopes=scopes)
        assert (reply.status, reply.code) == (403, "scope_mismatch")
    assert await served.events("audit.admin_scope_used") == []
    assert await seen({"tenant": "rival"}, scopes=admin) == {eve}
    assert await seen({"tenant": "rival"}, {"tenant": "acme"}, scopes=admin) == {mine, too, ben, eve}
    audits = await served.events("audit.admin_scope_used", ADA)
    assert [(one["Method"], one["TenantCount"], one["Actor"]["UserID"]) for one in audits] == [
        ("tasks.list", 2, "ada"),
        ("tasks.list", 2, "ada"),
    ]


async def test_the_identity_of_the_body_is_ignored(served: Served) -> None:
    """What it names is neither used nor refused; the header's session is."""
    await put(served, "mine")
    await put(served, "other", who=ADA_TOO)
    assert await ids(served, {"identity": {"tenant": "rival", "user": "eve", "session": "s-3"}}) == ["mine"]
    assert await ids(served, {"identity": {}}, headers={"X-Harbor-Session": "s-9"}) == ["other"]
    assert await ids(served, {"identity": {}}, headers={"X-Harbor-Session": ""}) == ["mine"]


async def test_a_task_of_others_is_not_found(served: Served) -> None:
    """Another session of the user is readable; another user's with a scope; another tenant's never."""
    for who in (ADA, ADA_TOO, BEN, EVE):
        await put(served, f"of-{who.user_id}-{who.session_id}", who=who)
    for body in (None, {"id": ""}, {"id": " "}, {"id": None}):
        reply = await served.wire.post("tasks.get", body)
        assert (reply.status, reply.code) == (400, "invalid_request")

    async def status(id: str, *scopes: str) -> int:
        return (await served.wire.post("tasks.get", {"id": id}, scopes=scopes)).status

    assert await status("of-ada-s-1") == await status("of-ada-s-9") == 200
    assert await status("of-ben-s-2") == await status("of-eve-s-3") == await status("nowhere") == 404
    assert await status("of-ben-s-2", "console:fleet") == await status("of-ben-s-2", "admin") == 200
    assert await status("of-eve-s-3", "console:fleet") == await status("of-eve-s-3", "admin") == 404
    refused = await served.wire.post("tasks.get", {"id": "of-eve-s-3"})
    unknown = await served.wire.post("tasks.get", {"id": "nowhere"})
    assert refused.body == unknown.body


async def test_a_record_that_cannot_be_read_hides_no_row(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The detail comes without it, and the log says which run's it is."""
    run = await served.rt.start("say hello", who=ADA)
    await run.result()

    async def damaged(*_: Any, **__: Any) -> Any:
        raise EntryDamagedError(run.id, 2)

    monkeypatch.setattr(type(served.rt.parts.store), "entries", damaged)
    got = await answer(served, "tasks.get", {"id": run.id})
    assert (got["cost"]["usd"], got["cost"]["per_step"]) == (0.02, [])
    assert run.id in caplog.text
