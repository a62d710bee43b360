"""`start` and the nine controls over a served runtime: the order of their checks, whose runs they reach, once each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harborage import Agent, tool
from harborage.events import Filter
from harborage.identity import Identity
from harborage.protocol.methods import CONTROLS
from harborage.runtime.loop.limits import Limits
from harborage.testing.events import EventRecorder
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from tests.kit.serving import STORAGES, Served, serving, talker
from tests.kit.wire import ADA, BEN, EVE

pytestmark = pytest.mark.anyio

WITHIN_S = 20.0
SAME_SESSION = Identity("acme", "ben", "s-1")
OTHERS = (BEN, EVE, SAME_SESSION, Identity("rival", "ada", "s-1"), Identity("acme", "ada", "s-9"))
ADMIN_ONLY = "prioritize"
WEAK = ("inject_context", "user_message")
VALID: dict[str, Any] = {
    "redirect": {"goal": "sell"},
    "prioritize": {"priority": 3},
    "user_message": {"message": "hi"},
    "inject_context": {"a": 1},
}


@tool(effects="external", approval="always")
async def order(item: str, count: int, api_key: str = "") -> str:
    """Order goods."""
    return f"{count} {item} {api_key}".strip()


def buyer(*arguments: dict[str, Any], name: str = "buyer") -> Agent[Any, Any]:
    """An agent that orders, each order in its own step, and then ends."""
    turns = [calls_tools(("order", one)) for one in arguments or ({"item": "tea", "count": 20},)]
    return Agent(name, model=ScriptedLLM([*turns, says("done")]), tools=[order])


@pytest.fixture(params=STORAGES)
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    """A server of agents, of which the first one asks before it orders, and the last one twice."""
    agents = [buyer(), talker(), buyer({"item": "tea", "count": 2}, {"item": "oil", "count": 1}, name="twice")]
    async with serving(agents, storage=request.param, folder=tmp_path) as one:
        yield one


async def begin(served: Served, who: Identity = ADA, **body: Any) -> str:
    """Start a run and return its id."""
    reply = await served.wire.post("start", {"query": "buy tea", **body}, who=who)
    assert reply.status == 200, reply.body
    return str(reply.json["task_id"])


async def waits(served: Served, run_id: str, who: Identity = ADA) -> str:
    """The token of the pause for which a run waits, once it does."""
    async with asyncio.timeout(WITHIN_S):
        return (await (await served.rt.run(run_id, who=who)).wait_pending()).token


async def ended(served: Served, run_id: str, who: Identity = ADA) -> Any:
    """How a run finished."""
    async with asyncio.timeout(WITHIN_S):
        return await (await served.rt.run(run_id, who=who)).finished()


async def outcome(served: Served, event_id: str) -> dict[str, Any]:
    """What is published as the outcome of a control, once it is."""
    recorder, seen = EventRecorder(served.rt.bus, Filter.of(ADA, ("control.applied",))), 0
    try:
        async with asyncio.timeout(WITHIN_S):
            while True:
                found = [one for one in await served.events("control.applied") if one.get("EventID") == event_id]
                if found:
                    (one,) = found
                    return one
                seen += 1
                await recorder.wait_for("control.applied", seen)
    finally:
        recorder.cancel()


def to(run_id: str, payload: Any = None, *, scope: str = "owner_user", **more: Any) -> dict[str, Any]:
    """The body of a control."""
    return {"identity": {"run": run_id, "scope": scope}, "payload": payload, **more}


# ── start ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_start_answers_with_the_id_of_a_run_of_the_caller(served: Served) -> None:
    """The body may leave the identity and everything else out, as a client does that restarts."""
    for body in ({}, {"query": "", "identity": {}, "description": "again"}, {"query": None, "priority": 7}):
        reply = await served.wire.post("start", body)
        assert (reply.status, set(reply.json)) == (200, {"task_id", "reused", "protocol_version"}), reply.body
        assert reply.json["reused"] is False
        task = await served.rt.tasks.get(reply.json["task_id"], who=ADA.with_run(reply.json["task_id"]))
        assert (task.description, task.priority) == (body.get("description", ""), body.get("priority", 0))
        await waits(served, reply.json["task_id"])
    assert [one.id for one in await served.rt.sessions.list(who=ADA)] == [ADA.session_id]


async def test_a_start_without_an_agent_is_of_the_first_one(served: Served) -> None:
    """Else of the named one; one that is not served is not found, and nothing starts."""
    first, second = await begin(served), await begin(served, agent="talker")
    assert [(await (await served.rt.run(one, who=ADA)).status()).agent for one in (first, second)] == [
        "buyer",
        "talker",
    ]
    reply = await served.wire.post("start", {"query": "x", "agent": "nobody"})
    assert (reply.status, reply.code) == (404, "not_found")


async def test_a_key_starts_one_run_for_each_principal(served: Served) -> None:
    """The same request is answered alike, another one with the key is refused."""
    wanted = {"query": "buy tea", "idempotency_key": "k", "description": "d"}
    first, again = [(await served.wire.post("start", wanted)).json for _ in range(2)]
    assert (first["task_id"], first["reused"], again["reused"]) == (again["task_id"], False, True)
    named = (await served.wire.post("start", {**wanted, "agent": "buyer"})).json
    assert (named["task_id"], named["reused"]) == (first["task_id"], True)  # the first one was meant before
    for other in ({"query": "sell"}, {"agent": "talker"}, {"description": "e"}, {"priority": 1}):
        reply = await served.wire.post("start", {**wanted, **other})
        assert (reply.status, reply.code) == (400, "invalid_request"), other
    others = [(await served.wire.post("start", wanted, who=who)).json for who in OTHERS]
    assert not any(one["reused"] for one in others)
    assert len({one["task_id"] for one in others} | {first["task_id"]}) == len(OTHERS) + 1


async def test_a_start_that_cannot_be_made_says_why(served: Served) -> None:
    """By code and status, each; a closed session takes no more runs."""
    await begin(served, BEN, agent="talker")
    await served.rt.sessions.close(BEN, "over")
    table: list[tuple[Any, Identity, int, str]] = [
        (b"", ADA, 400, "invalid_request"),
        (b"[]", ADA, 400, "invalid_request"),
        ({"query": 1}, ADA, 400, "invalid_request"),
        ({"priority": 1001}, ADA, 400, "invalid_request"),
        ({"idempotency_key": "a\nb"}, ADA, 400, "invalid_request"),
        ({"input_artifact_ids": ["none_1"]}, ADA, 404, "not_found"),
        ({"identity": {"tenant": "acme", "user": "eve", "session": "s-1"}}, ADA, 401, "identity_required"),
        ({"identity": {"user": "ada"}}, ADA, 401, "identity_required"),
        ({"query": "x"}, BEN, 400, "invalid_request"),
    ]
    for body, who, status, code in table:
        reply = await served.wire.post("start", body, who=who)
        assert (reply.status, reply.code) == (status, code), (body, reply.body)
    assert (await served.wire.post("start", {"unknown": 1, "agent": "talker"})).status == 200


# ── Who may send what ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_start_may_lower_the_limits_of_its_agent_and_not_raise_them() -> None:
    """Each limit is the lower one of both; one that is no number is refused."""
    agent: Agent[Any, Any] = Agent("talker", model=ScriptedLLM([says("hello")]), limits=Limits(steps=3, tokens=500))
    async with serving([agent]) as served:
        body = {"query": "hi", "limits": {"steps": 9, "tokens": 100, "calls": 7}}
        run_id = await begin(served, **body)
        steps = (await served.wire.post("runs.steps", {"id": run_id})).json
        assert steps["run"]["limits"] == {"steps": 3, "calls": 7, "tokens": 100}
        for wrong in ({"steps": 0}, {"usd": -1}, {"seconds": True}, {"steps": "many"}, {"usd": 1}):
            reply = await served.wire.post("start", {"query": "hi", "limits": wrong})
            assert (reply.status, reply.code) == (400, "invalid_request"), wrong
        for wrong in ({"tags": {"": "x"}}, {"tags": ["x"]}, {"messages": [{"role": "nobody"}]}):
            reply = await served.wire.post("start", {"query": "hi", **wrong})
            assert (reply.status, reply.code) == (400, "invalid_request"), wrong


async def test_each_control_needs_its_scope_asked_for_and_given(served: Served) -> None:
    """The lower of what the body asks for and what the token gives counts; a refusal is announced as it was asked."""
    run_id = await begin(served)
    await waits(served, run_id)
    refused = 0
    for method in CONTROLS:
        least = 0 if method in WEAK else 2 if method == ADMIN_ONLY else 1
        for asked, rank in (("", -1), ("root", -1), ("session_user", 0), ("owner_user", 1), ("admin", 2)):
            for scopes in ((), ("console:fleet",), ("admin",)):
                is_allowed = min(rank, 2 if "admin" in scopes else 1) >= least
                if is_allowed and method in {"cancel", "pause", "approve", "reject", "resume"}:
                    continue  # they change what the next ones find; their turn comes below
                reply = await served.wire.post(method, to(run_id, VALID.get(method), scope=asked), scopes=scopes)
                case = (method, asked, scopes, reply.body)
                if is_allowed:
                    wanted = {"accepted": True, "method": method, "protocol_version": "0.1.0"}
                    assert (reply.status, reply.json) == (200, wanted), case
                else:
                    refused += 1
                    assert (reply.status, reply.code) == (403, "scope_mismatch"), case
    rejected = await served.events("control.rejected", ADA)
    assert len(rejected) == refused
    assert {one["Reason"] for one in rejected} == {"scope_mismatch"}
    assert {one["CallerScope"] for one in rejected} == {"", "session_user", "owner_user", "admin"}
    assert {one["Type"] for one in rejected} == {method.upper() for method in CONTROLS}
    assert all(one["By"] == {"TenantID": "acme", "UserID": "ada", "SessionID": "s-1"} for one in rejected)


async def test_the_checks_of_a_control_come_in_their_order(served: Served) -> None:
    """Each body breaks all that follows, too: the run id, the scope, the payload, and whether there is such a run."""
    deep: Any = 1
    for _ in range(7):
        deep = {"a": deep}
    for method in CONTROLS:
        table: list[tuple[Any, int, str]] = [
            (to("", deep, scope="root"), 401, "identity_required"),
            (to("  ", deep, scope="root"), 401, "identity_required"),
            (to("none", deep, scope="root"), 403, "scope_mismatch"),
            (to("none", deep, scope="admin"), 422, "payload_invalid"),
            (to("none", {"a": "x" * 4097}, scope="admin"), 422, "payload_invalid"),
            (to("none", {"a": [0] * 51}, scope="admin"), 422, "payload_invalid"),
            (to("none", {str(at): 0 for at in range(65)}, scope="admin"), 422, "payload_invalid"),
            (to("none", VALID.get(method), scope="admin"), 404, "not_found"),
            ({"payload": [1]}, 400, "invalid_request"),
            (b"", 400, "invalid_request"),
            (to("none", scope="admin", event_id="x" * 201), 400, "invalid_request"),
            (to("none", scope="admin", event_id="task-cancelled/none"), 400, "invalid_request"),
        ]
        for body, status, code in table:
            reply = await served.wire.post(method, body, scopes=("admin",))
            assert (reply.status, reply.code) == (status, code), (method, body, reply.body)
    rejected = await served.events("control.rejected", ADA)
    assert [one["Reason"] for one in rejected] == ["scope_mismatch", *["payload_invalid"] * 4] * len(CONTROLS)


async def test_answers_are_checked_before_they_are_sent(served: Served) -> None:
    """Nothing that a client sends is taken for something else; the pause stays open."""
    run_id = await begin(served)
    token = await waits(served, run_id)
    for method, payload in (
        ("approve", {"args": {"count": 1}, "args_patch": {"count": 1}}),
        ("approve", {"args": [1]}),
        ("approve", {"args_patch": "x"}),
        ("approve", {"remember": "forever"}),
        ("approve", {"token": 7}),
        ("reject", {"token": []}),
        ("resume", {"token": {}}),
    ):
        reply = await served.wire.post(method, to(run_id, payload))
        assert (reply.status, reply.code) == (422, "payload_invalid"), (method, payload)
    assert await waits(served, run_id) == token


async def test_no_other_principal_reaches_a_run(served: Served) -> None:
    """Whatever the control and the token's scopes, also under a session of the same name: it is not found."""
    run_id = await begin(served)
    token = await waits(served, run_id)
    for who in OTHERS:
        for method in CONTROLS:
            body = to(run_id, {**VALID.get(method, {}), "token": token}, scope="admin", event_id="e")
            reply = await served.wire.post(method, body, who=who, scopes=("admin", "console:fleet"))
            assert (reply.status, reply.code) == (404, "not_found"), (who, method)
    assert await waits(served, run_id) == token
    assert not await served.events("control.received")


async def test_an_admin_acts_for_another_principal_and_is_named(served: Served) -> None:
    """Events of the control name the actor, and the impersonation is audited."""
    run_id = await begin(served, BEN)
    await waits(served, run_id, BEN)
    ada, ben = ({"tenant": "acme", "user": who.user_id, "session": who.session_id} for who in (ADA, BEN))
    identity = {**ben, "actor": ada, "requester": ada, "impersonating": ben, "run": run_id, "scope": "owner_user"}
    body = {"identity": identity, "event_id": "e"}
    assert (await served.wire.post("approve", body)).status == 403
    assert (await served.wire.post("approve", body, scopes=("admin",))).status == 200
    await ended(served, run_id, BEN)
    by = {"TenantID": "acme", "UserID": "ada", "SessionID": "s-1"}
    for kind in ("control.received", "control.applied", "pause.resumed", "tool.approved"):
        (event,) = await served.events(kind, BEN)
        assert (event["By"], event["EventID"]) == (by, "e"), kind
    (audited,) = await served.events("audit.admin_scope_used", BEN)
    assert (audited["Method"], audited["Reason"]) == ("approve", "impersonation")


# ── Once ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_control_counts_once_under_its_event_id(served: Served) -> None:
    """Sent again while it waits, once it was applied, and after the run has ended: it is answered alike."""
    run_id = await begin(served)
    await waits(served, run_id)
    for _ in range(3):
        assert (await served.wire.post("user_message", to(run_id, {"message": "hi"}, event_id="m"))).status == 200
    for _ in range(3):
        assert (await served.wire.post("approve", to(run_id, event_id="a"))).status == 200
    await ended(served, run_id)
    for method, event_id in (("approve", "a"), ("user_message", "m")):
        assert (await served.wire.post(method, to(run_id, event_id=event_id))).status == 200
    assert (await served.wire.post("approve", to(run_id, event_id="b"))).status == 404
    applied = [(one["Type"], one["EventID"], one["Outcome"]) for one in await served.events("control.applied")]
    assert sorted(applied) == [("APPROVE", "a", "applied"), ("USER_MESSAGE", "m", "applied")]


async def test_of_two_approvals_the_first_one_counts(served: Served) -> None:
    """One `pause.resumed`, with its sender and event id; the other is published as one that came too late."""
    run_id = await begin(served, agent="twice")
    token = await waits(served, run_id)
    replies = [await served.wire.post("approve", to(run_id, {"token": token}, event_id=one)) for one in ("a", "b")]
    assert [reply.status for reply in replies] == [200, 200]
    assert (await outcome(served, "a"))["Outcome"] == "applied"
    late = await outcome(served, "b")
    assert (late["Outcome"], late["Err"]) == ("failed", "already_resumed")
    (resumed,) = await served.events("pause.resumed")
    assert (resumed["Token"], resumed["Decision"], resumed["EventID"]) == (token, "approve", "a")
    assert resumed["By"] == {"TenantID": "acme", "UserID": "ada", "SessionID": "s-1"}
    assert not await served.events("control.rejected")


async def test_an_answer_that_fits_no_pause_is_accepted_and_fails(served: Served) -> None:
    """Acceptance means queued only: what came of it is an event."""
    run_id = await begin(served, agent="talker")
    other = await begin(served)
    foreign = await waits(served, other)
    table = (("nothing", {"token": "none"}, "pause_not_found"), ("foreign", {"token": foreign}, "pause_not_found"))
    second = await begin(served)
    await waits(served, second)
    for event_id, payload, err in table:
        assert (await served.wire.post("approve", to(second, payload, event_id=event_id))).status == 200
        assert (await outcome(served, event_id))["Err"] == err
    await ended(served, run_id)
    assert (await served.wire.post("approve", to(run_id))).status == 404


async def test_an_answer_without_a_token_is_for_the_only_pause(served: Served) -> None:
    """Approved, rejected with a reason, and cancelled."""
    for method, payload, wanted in (
        ("approve", None, "20 tea"),
        ("approve", {"args": {"item": "oil", "count": 1}}, "1 oil"),
        ("reject", {"reason": "too much"}, "too much"),
    ):
        run_id = await begin(served)
        await waits(served, run_id)
        assert (await served.wire.post(method, to(run_id, payload))).status == 200
        await ended(served, run_id)
        run = await served.rt.run(run_id, who=ADA)
        assert wanted in b"".join(await run.history()).decode(), method


# ── Sessions ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_cancel_of_the_session_ends_its_foreground_runs(served: Served) -> None:
    """Named as the run; those of other principals go on, and nothing but a cancel takes a session's name."""
    mine = [await begin(served) for _ in range(3)]
    theirs = [(who, await begin(served, who)) for who in OTHERS]
    for who, one in [*((ADA, one) for one in mine), *theirs]:
        await waits(served, one, who)
    assert (await served.wire.post("pause", to("s-1"))).status == 404
    assert (await served.wire.post("cancel", to("s-2"))).status == 404
    for _ in range(2):
        assert (await served.wire.post("cancel", to("s-1", {"hard": True}, event_id="c"))).status == 200
        for one in mine:
            await ended(served, one)
    assert (await served.wire.post("cancel", to("s-1", event_id="d"))).status == 404
    applied = await served.events("control.applied")
    assert [(one["Type"], one["EventID"]) for one in applied] == [("CANCEL", "c")] * 3
    for who, one in theirs:
        assert await waits(served, one, who)


# ── Over a restart ──────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def reopened(folder: Path) -> AsyncIterator[Served]:
    """A server over what an earlier one left."""
    async with serving(
        [buyer({"item": "tea", "count": 20}, {"item": "oil", "count": 2})], storage="sqlite", folder=folder
    ) as one:
        yield one


async def test_an_approval_counts_over_a_restart(tmp_path: Path) -> None:
    """The run waits for another process, which gets the answer once, whichever process is asked again."""
    async with reopened(tmp_path) as served:
        run_id = await begin(served)
        await waits(served, run_id)
    async with reopened(tmp_path) as served:
        token = await waits(served, run_id)
        assert (await served.wire.post("approve", to(run_id, event_id="a"))).status == 200
        assert (await outcome(served, "a"))["Outcome"] == "applied"
        assert await waits(served, run_id) != token
    async with reopened(tmp_path) as served:
        await waits(served, run_id)
        assert (await served.wire.post("approve", to(run_id, event_id="a"))).status == 200
        assert len(await (await served.rt.run(run_id, who=ADA)).waiting()) == 1  # not for the next one
        assert (await served.wire.post("approve", to(run_id, {"token": token}, event_id="b"))).status == 200
        assert (await outcome(served, "b"))["Err"] == "already_resumed"
        resumed = await served.events("pause.resumed")
        assert [one["EventID"] for one in resumed] == ["a"]
        assert msgspec.json.encode(resumed[0]["By"]) == b'{"TenantID":"acme","UserID":"ada","SessionID":"s-1"}'
