"""`pause.list` over a served runtime: whose pauses are seen, what each says, and what pages and filters do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, tool
from harborage.artifacts import ArtifactScope
from harborage.events import Filter
from harborage.identity import Identity
from harborage.planner.decisions import PauseReason
from harborage.runtime.loop.pauses import Pause, PauseDecision, PauseRequest
from harborage.server.services import ServerOptions
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.serving import STORAGES, Served, serving
from tests.kit.wire import ADA, BEN, EVE

pytestmark = pytest.mark.anyio

ADA_TOO = Identity("acme", "ada", "s-9")
KEYS = {"snapshots", "page", "page_size", "page_count", "total_rows"}
SOON = datetime.now(UTC) + timedelta(days=1)


@tool(effects="external", approval="always")
async def refund(order: str, token: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@pytest.fixture(params=STORAGES)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    """A server to which a payload is heavy from 200 bytes on."""
    async with serving(storage=request.param, folder=tmp_path, options=ServerOptions(heavy_bytes=200)) as one:
        yield one


async def ask(served: Served, who: Identity = ADA, run: str = "run-1", **options: Any) -> Pause:
    """Open a pause; without a deadline the runtime would end it, because its run is not there."""
    given = {"reason": PauseReason.AWAIT_INPUT, "deadline": SOON, **options}
    return await served.rt.pauses.request(PauseRequest(identity=who.with_run(run), **given))


async def listed(served: Served, body: Any = None, **options: Any) -> list[dict[str, Any]]:
    """The snapshots of an answer."""
    reply = await served.wire.post("pause.list", body, **options)
    assert reply.status == 200, reply.body
    rows: list[dict[str, Any]] = reply.json["snapshots"]
    assert reply.json["total_rows"] >= len(rows)
    return rows


def sessions(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Whose they are, in their order."""
    return [row["identity"]["session"] for row in rows]


async def test_an_open_pause_says_all_that_an_answer_needs(served: Served) -> None:
    """Its run is in its identity, so that a client can approve it; unset keys are absent and times are never null."""
    pause = await ask(served, payload={"question": "go?"}, deadline=SOON, default=PauseDecision.REJECT)
    reply = (await served.wire.post("pause.list")).json
    assert set(reply) == KEYS
    (row,) = reply["snapshots"]
    assert row.pop("paused_at")[:4] >= "2024"
    assert datetime.fromisoformat(row.pop("deadline")) == SOON
    assert row == {
        "token": pause.token,
        "reason": "await_input",
        "state": "paused",
        "identity": {"tenant": "acme", "user": "ada", "session": "s-1", "run": "run-1"},
        "resumed_at": "0001-01-01T00:00:00Z",
        "payload": {"question": "go?"},
        "default": "reject",
        "approvers": ["user:ada", "scope:admin"],
    }


async def test_nothing_is_an_empty_page(served: Served) -> None:
    """The list is empty, and so is the count of pages."""
    reply = (await served.wire.post("pause.list", {"identity": {}, "filter": None})).json
    assert {key: reply[key] for key in KEYS} == {
        "snapshots": [],
        "page": 1,
        "page_size": 50,
        "page_count": 0,
        "total_rows": 0,
    }


async def test_a_resumed_pause_says_how(served: Served) -> None:
    """It is listed where resumed ones are asked for; before there is one, the answer says that none is kept."""
    asked = {"filter": {"status": ["resumed"]}}
    assert (await served.wire.post("pause.list", asked)).json["truncated"] is True
    pause = await ask(served)
    await served.rt.pauses.resume(pause.token, PauseDecision.APPROVE, who=ADA.with_run("run-1"))
    assert await listed(served) == []
    reply = (await served.wire.post("pause.list", asked)).json
    (row,) = reply["snapshots"]
    assert (row["state"], row["decision"], "truncated" in reply) == ("resumed", "approve", False)
    assert row["by"] == {"tenant": "acme", "user": "ada", "session": "s-1"}
    assert not row["resumed_at"].startswith("0001")
    for other in (BEN, Identity("globex", ADA.user_id, ADA.session_id)):
        assert (await served.wire.post("pause.list", asked, who=other)).json["truncated"] is True


async def test_a_heavy_payload_goes_to_the_artifacts(served: Served) -> None:
    """The row has a reference in its place, which is found under the pause's own session, and an event tells it."""
    pause = await ask(served, payload={"text": "x" * 300})
    (row,) = await listed(served)
    assert "payload" not in row
    ref = row["payload_ref"]
    assert set(ref) == {"id", "mime_type", "size_bytes", "filename", "sha256"}
    assert ref["id"].startswith("pause_payload_")
    assert ref["mime_type"] == "application/json"
    assert await served.rt.artifacts.get(ArtifactScope.of(ADA), ref["id"]) is not None
    again = (await listed(served))[0]["payload_ref"]
    assert again == ref
    told = await served.events("pause.payload_artifact_routed", ADA)
    assert (told[0]["Token"], told[0]["ArtifactID"], told[0]["ThresholdBytes"]) == (pause.token, ref["id"], 200)


async def fill(served: Served) -> None:
    """One pause of each principal, and one of ada's other session; the last is the newest."""
    for who in (ADA, ADA_TOO, BEN, EVE):
        await ask(served, who, f"run of {who.session_id}")


@pytest.mark.parametrize(
    ("filter", "scopes", "expected"),
    [
        ({}, (), ["s-9", "s-1"]),
        ({"session_ids": ["s-9"]}, (), ["s-9"]),
        ({"user_ids": ["ben"]}, (), []),
        ({"user_ids": ["ben", "ada"]}, (), ["s-9", "s-1"]),
        ({"session_ids": ["s-2"]}, (), []),
        ({"run_ids": ["run of s-2"]}, (), []),
        ({"tenant_ids": ["acme"]}, (), ["s-9", "s-1"]),
        ({}, ("console:fleet",), ["s-2", "s-9", "s-1"]),
        ({}, ("admin",), ["s-2", "s-9", "s-1"]),
        ({"user_ids": ["ben"]}, ("console:fleet",), ["s-2"]),
        ({"run_ids": ["run of s-2", "run of s-3"]}, ("admin",), ["s-2"]),
        ({"tenant_ids": ["rival"]}, ("admin",), ["s-3"]),
        ({"tenant_ids": ["rival", "acme", "rival"]}, ("admin",), ["s-3", "s-2", "s-9", "s-1"]),
    ],
)
async def test_whose_pauses_are_listed(served: Served, filter: Any, scopes: tuple[str, ...], expected: Any) -> None:
    """Without a scope the caller's own of all sessions; others are left out. Reads of other tenants are audited."""
    await fill(served)
    assert sessions(await listed(served, {"filter": filter}, scopes=scopes)) == expected
    audited = await served.events("audit.admin_scope_used")
    assert [one["Method"] for one in audited] == ["pause.list"] * ("rival" in filter.get("tenant_ids", ()))


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"filter": {"tenant_ids": ["rival"]}, "page": -1}, 403, "identity_scope_required"),
        ({"filter": {"tenant_ids": ["acme", "rival"]}}, 403, "identity_scope_required"),
        ({"page": -1}, 400, "invalid_request"),
        ({"page_size": -1}, 400, "invalid_request"),
        ({"page_size": 201}, 400, "invalid_request"),
        ({"filter": {"status": ["open"]}}, 400, "invalid_request"),
        ({"filter": {"reasons": ["nobody"]}}, 400, "invalid_request"),
        ({"filter": {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}}, 400, "invalid_request"),
        ({"filter": {"statuses": []}}, 400, "invalid_request"),
        ({"identity": {"session": "s-9"}}, 401, "identity_required"),
    ],
)
async def test_lists_that_are_refused(served: Served, body: Any, status: int, code: str) -> None:
    """The scope comes before the values; a scope for reading is not enough for another tenant."""
    for scopes in ((), ("console:fleet",)):
        reply = await served.wire.post("pause.list", body, scopes=scopes)
        assert (reply.status, reply.code) == (status, code)


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"reasons": ["external_event"]}, ["s-9"]),
        ({"reasons": ["external_event", "await_input"]}, ["s-9", "s-1"]),
        ({"status": ["paused", "resumed"]}, ["s-9", "s-1"]),
        ({"since": "2999-01-01T00:00:00Z"}, []),
        ({"since": "0001-01-01T00:00:00Z", "until": "2999-01-01T00:00:00Z"}, ["s-9", "s-1"]),
        ({"until": "2000-01-01T00:00:00Z"}, []),
    ],
)
async def test_filters_of_a_list(served: Served, filter: Any, expected: Any) -> None:
    """Lists are any-of, times are bounds, and the zero time is none."""
    await ask(served)
    await ask(served, ADA_TOO, reason=PauseReason.EXTERNAL_EVENT)
    assert sessions(await listed(served, {"filter": filter})) == expected


async def test_pages(served: Served) -> None:
    """Newest first; a page behind the last is empty and says how many there are."""
    tokens = [(await ask(served, run=f"run-{n}")).token for n in range(5)][::-1]
    for page, expected in ((0, tokens[:2]), (1, tokens[:2]), (2, tokens[2:4]), (3, tokens[4:]), (4, [])):
        reply = (await served.wire.post("pause.list", {"page": page, "page_size": 2})).json
        assert [row["token"] for row in reply["snapshots"]] == expected
        assert (reply["page"], reply["page_size"], reply["page_count"], reply["total_rows"]) == (page or 1, 2, 3, 5)


async def test_an_approval_names_its_agent_and_shows_no_secret(tmp_path: Path) -> None:
    """What a client needs to answer is there; the arguments are as the redactor leaves them."""
    model = ScriptedLLM([calls_tools(("refund", {"order": "7", "token": "s3cret"})), says("done")])
    async with serving([Agent("shop", tools=[refund], model=model)], storage="sqlite", folder=tmp_path) as served:
        run = await served.rt.start("refund", who=ADA)
        await run.wait_pending()
        (row,) = await listed(served)
        assert (row["agent_name"], row["reason"]) == ("shop", "approval_required")
        assert row["identity"]["run"] == run.id
        assert row["payload"]["tool"] == "refund"
        assert "s3cret" not in str(row)
        invoked: list[Any] = []
        with served.rt.bus.subscribe(Filter.of(ADA, ("tool.invoked",))) as calls:
            await run.approve()
            await run.result()
            invoked += calls.drain()
        assert await listed(served) == []
        (resumed,) = await listed(served, {"filter": {"status": ["resumed"]}})
        for one in (row, resumed):
            assert (one["step"], one["call_id"], one["masked"]) == (1, invoked[0].payload.call_id, True)
            assert one["payload"]["reason"] == row["payload"]["reason"] != ""
