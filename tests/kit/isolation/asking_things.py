"""What the principals ask about pauses, tasks, sessions, files, memory, tools and flows."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from harborage.identity import Identity
from harborage.protocol.methods import METHODS
from harborage.protocol.wire.common import NO_TIME
from harborage.store import LIVE, Status
from tests.kit.isolation.served import FLOW, MARK, Reach, ServedTenants, is_within

if TYPE_CHECKING:
    pass

from tests.kit.isolation.told import (
    Request,
    Told,
    audited,
    differs,
    must_be_refused,
    named,
    owner_of,
    told,
    unasked,
    wide,
)

# ── Pauses, tasks, sessions ───────────────────────────────────────────────────────────────────────────────────────────


async def _pauses(tenants: ServedTenants) -> Told:
    other, luck, me = tenants.other(), tenants.luck, tenants.caller
    wanted: dict[str, Any] = {"status": luck.choice(([], ["resumed"], ["paused", "resumed"]))}
    if luck.random() < 0.25:
        wanted["user_ids"] = [other.user_id]
    if luck.random() < 0.25:
        wanted["session_ids"] = [other.session_id]
    if luck.random() < 0.25:
        wanted["run_ids"] = [tenants.any_id("run")]
    is_foreign = luck.random() < 0.25 and other.tenant_id != me.tenant_id
    if is_foreign:
        wanted["tenant_ids"] = [other.tenant_id]
    reply = await tenants.post("pause.list", {"filter": wanted, "page_size": 200})
    if is_foreign and not tenants.is_admin:
        return told(reply, wrong=must_be_refused(reply, "the pauses of another tenant"))
    wrong = ""
    if reply.status == 200:
        wrong = differs("total_rows", reply.json["total_rows"], len(reply.json["snapshots"]))
        wrong = wrong or unasked((one["identity"] for one in reply.json["snapshots"]), wanted)
        wrong = wrong or _check_truncated(tenants, wanted, reply.json)
    reach = Reach.ALL if is_foreign else wide(tenants, Reach.TENANT, Reach.TENANT, Reach.USER)
    return told(reply, reach, wrong=wrong, audit=audited(is_foreign))


def _check_truncated(tenants: ServedTenants, wanted: Mapping[str, Any], got: Mapping[str, Any]) -> str:
    """That none is kept is said where none of the caller's own has been answered, whatever others were."""
    if tenants.is_scoped or "resumed" not in wanted["status"] or wanted.get("tenant_ids") or wanted.get("user_ids"):
        return ""
    answered = tenants.counted(Reach.USER, "pause.resumed")
    return differs("truncated", got.get("truncated", False), not answered)


async def _tasks(tenants: ServedTenants) -> Told:
    other, luck, me = tenants.other(), tenants.luck, tenants.caller
    wanted: dict[str, Any] = {}
    is_foreign = False
    if luck.random() < 0.3:
        return await _task_cursor(tenants)
    if luck.random() < 0.5:
        parts = {"tenant": other.tenant_id, "user": other.user_id, "session": other.session_id}
        wanted["identities"] = [{name: one for name, one in parts.items() if luck.random() < 0.5}]
        is_foreign = wanted["identities"][0].get("tenant", me.tenant_id) != me.tenant_id
    if luck.random() < 0.2:
        wanted["search"] = tenants.marks[other]
    reply = await tenants.post("tasks.list", {"filter": wanted, "page_size": 200, "include_status_counter_strip": True})
    if is_foreign and not tenants.is_admin:
        return told(reply, wrong=must_be_refused(reply, "the tasks of another tenant"))
    wrong = ""
    if reply.status == 200:
        got, mine = reply.json, [row for row in await tenants.runs() if row.who == me]
        if not got.get("cursor"):
            wrong = differs("aggregates", sum(got["aggregates"].values()), len(got["rows"]))
        strip = sum(got["status_counter_strip"].values())
        uncounted = sum(row.status is Status.CANCELLED for row in mine)
        wrong = wrong or differs("the strip", strip, len(mine) - uncounted)
        for one in wanted.get("identities", ()):
            named_parts = {f"{part}_ids": [value] for part, value in one.items()}
            wrong = wrong or unasked((row["identity"] for row in got["rows"]), named_parts)
    reach = Reach.SESSION
    if "identities" in wanted:
        reach = Reach.ALL if is_foreign else wide(tenants, Reach.TENANT, Reach.TENANT, Reach.USER)
    return told(reply, reach, wrong=wrong, audit=audited(is_foreign))


async def _task_cursor(tenants: ServedTenants) -> Told:
    """The place in a list of another session is none of the caller's."""
    me, body = tenants.caller, {"page_size": 1}
    reply = await tenants.post("tasks.list", body)
    if token := reply.json["cursor"].get("next_page_token"):
        tenants.note("cursor", me, token)
    if not tenants.known.get("cursor"):
        return told(reply)
    cursor = tenants.any_id("cursor")
    owner = owner_of(tenants, "cursor", cursor)
    reply = await tenants.post("tasks.list", {**body, "cursor": {"next_page_token": cursor}})
    wrong = f"a cursor of {owner}" if owner != me and reply.status == 200 else ""
    return told(reply, wrong=wrong)


async def _task(tenants: ServedTenants) -> Told:
    run_id = tenants.any_id("run")
    reply = await tenants.post("tasks.get", {"id": run_id})
    reach = wide(tenants, Reach.TENANT, Reach.TENANT, Reach.USER)
    owner = owner_of(tenants, "run", run_id)
    seen = reply.status == 200 and not is_within(reach, tenants.caller, owner)
    wrong = f"a task of {owner} was shown" if seen else ""
    if reply.status == 200 and not wrong:
        wrong = differs("its session", reply.json["parent_session"]["session_id"], owner.session_id)
        started = await _opened_at(tenants, owner)
        wrong = wrong or differs("its session's start", reply.json["parent_session"]["started_at"], started)
    return told(reply, reach, wrong=wrong)


async def _opened_at(tenants: ServedTenants, who: Identity) -> str:
    session = await tenants.runtime.sessions.get(who.session_id, who=who)
    text: str = msgspec.json.decode(msgspec.json.encode(session.opened_at))
    return text


async def _sessions(tenants: ServedTenants) -> Told:
    other, luck, me = tenants.other(), tenants.luck, tenants.caller
    await tenants.read_events()
    wanted: dict[str, Any] = {}
    if luck.random() < 0.3:
        wanted["user_ids"] = [other.user_id]
    if luck.random() < 0.3:
        wanted["query"] = luck.choice((tenants.marks[other], other.session_id))
    is_named = luck.random() < 0.3
    if is_named:
        wanted["tenant_ids"] = [other.tenant_id]
    is_foreign = is_named and other.tenant_id != me.tenant_id
    reply = await tenants.post("sessions.list", {"filter": wanted, "limit": 200})
    if is_foreign and not tenants.is_scoped:
        return told(reply, wrong=must_be_refused(reply, "the sessions of another tenant"))
    wrong = ""
    if reply.status == 200 and not is_foreign:
        wrong = await _check_sessions(tenants, reply.json["rows"]) or unasked(reply.json["rows"], wanted)
    reach = Reach.USER
    if is_named and tenants.is_scoped:
        reach = Reach.ALL if is_foreign else Reach.TENANT
    return told(reply, reach, wrong=wrong, audit=audited(is_foreign))


async def _check_sessions(tenants: ServedTenants, rows: list[dict[str, Any]]) -> str:
    runs = await tenants.runs()
    for row in rows:
        who = Identity(row["tenant_id"], row["user_id"], row["session_id"])
        mine = [run for run in runs if run.who == who]
        if wrong := differs("tasks_count", row["tasks_count"], len(mine)) or differs(
            "total_tokens", row["total_tokens"], sum(run.tokens for run in mine)
        ):
            return wrong
    return ""


async def _session(tenants: ServedTenants) -> Told:
    """Of a session that one principal alone has, or of a name that all have."""
    is_common = tenants.luck.random() < 0.3
    name = tenants.other().session_id if is_common else tenants.any_id("session")
    reply = await tenants.post("sessions.inspect", {"session_id": name})
    reach = wide(tenants, Reach.ALL, Reach.ALL, Reach.USER)
    if reply.status != 200:
        return told(reply, reach)
    wrong = differs("session_id", reply.json["row"]["session_id"], name)
    is_foreign = reply.json["row"]["tenant_id"] != tenants.caller.tenant_id
    if is_common:
        reach = Reach.USER
        me = msgspec.structs.replace(tenants.caller, session_id=name)
        files = " ".join(one["filename"] for one in reply.json["recent_artifacts"])
        wrong = wrong or differs("whose files", set(MARK.findall(files)) - {tenants.marks[me]}, set())
        asked = [one for one in tenants.events if one.who == me and one.type == "pause.requested"]
        wrong = wrong or differs("interventions", len(reply.json["recent_interventions"]), min(5, len(asked)))
    return told(reply, reach, wrong=wrong, audit=audited(is_foreign))


# ── Artifacts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _list_artifacts(tenants: ServedTenants) -> Told:
    other, luck, me = tenants.other(), tenants.luck, tenants.caller
    scope = luck.choice(({}, {"tenant": me.tenant_id}, {"tenant": other.tenant_id}, named(other), {"user": "x"}))
    if luck.random() < 0.2:
        scope = {"tenant": me.tenant_id, "session": other.session_id}
    reply = await tenants.post("artifacts.list", {"scope": scope, "limit": 1_000})
    reach, wrong = Reach.SESSION, ""
    if scope and not scope.get("session"):
        reach = wide(tenants, Reach.ALL, Reach.ALL, Reach.USER)
    elif scope and not scope.get("user"):
        reach = wide(tenants, Reach.TENANT, Reach.TENANT)
    elif scope.get("tenant", me.tenant_id) != me.tenant_id and tenants.is_scoped:
        reach = Reach.ALL
    if scope.get("tenant", me.tenant_id) != me.tenant_id and not tenants.is_scoped:
        wrong = must_be_refused(reply, "the artifacts of another tenant")
    if scope.get("session", me.session_id) != me.session_id or scope.get("user", me.user_id) != me.user_id:
        wrong = wrong or must_be_refused(reply, "the artifacts of another session")
    is_foreign = scope.get("tenant", me.tenant_id) != me.tenant_id and reply.status == 200
    return told(reply, reach, wrong=wrong, audit=audited(is_foreign))


async def _put(tenants: ServedTenants) -> Told:
    me, other, luck = tenants.caller, tenants.other(), tenants.luck
    if luck.random() < 0.5:
        return told(await tenants.upload(me))
    scope = named(other) if luck.random() < 0.5 else {**named(me), "tenant": other.tenant_id}
    body = {"scope": scope, "bytes": base64.b64encode(b"x").decode(), "opts": {"filename": "common"}}
    reply = await tenants.post("artifacts.put", body)
    is_swapped = (scope["user"], scope["session"]) != (me.user_id, me.session_id)
    if is_swapped or (scope["tenant"] != me.tenant_id and not tenants.is_admin):
        return told(reply, wrong=must_be_refused(reply, "an artifact of another"))
    return told(reply, Reach.ALL, writes=Reach.ALL, audit=audited(scope["tenant"] != me.tenant_id))


async def _get_ref(tenants: ServedTenants) -> Told:
    """A link to an artifact, what it gives out, and what it does once another's id stands in it."""
    me, other, luck = tenants.caller, tenants.other(), tenants.luck
    made, swaps = tenants.any_id("artifact"), luck.random() < 0.3
    scope = {**named(me), "tenant": other.tenant_id} if swaps else luck.choice(({}, named(other), {}))
    twin = msgspec.structs.replace(me, tenant_id=other.tenant_id)
    if swaps and (theirs := [one for who, one in tenants.known.get("artifact", ()) if who == twin]):
        made = luck.choice(theirs)
        tenants.asked.append(("artifact", made))
    reply = await tenants.post("artifacts.get_ref", {"scope": scope, "id": made})
    owner, is_foreign = owner_of(tenants, "artifact", made), scope.get("tenant", me.tenant_id) != me.tenant_id
    may = owner == me or (is_foreign and tenants.is_admin)
    if reply.status != 200:
        return told(reply)
    found = urlsplit(reply.json["url"])
    content = await tenants.wire.request("GET", f"{found.path}?{found.query}", headers=tenants.headers())
    text = f"{reply.body.decode()} {content.body.decode()}"
    wrong = "" if may else f"an artifact of {owner}"
    another = next((one for _, one in tenants.known.get("artifact", ()) if one != made), "another")
    bent = await tenants.wire.request("GET", f"/artifacts/{quote(another)}?{found.query}", headers=tenants.headers())
    wrong = wrong or must_be_refused(bent, "a link to another artifact")
    return Told(200, text, Reach.ALL if is_foreign else Reach.SESSION, wrong=wrong, audit=audited(is_foreign))


# ── Memory ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _list_memory(tenants: ServedTenants) -> Told:
    other, luck, me = tenants.other(), tenants.luck, tenants.caller
    wanted: dict[str, Any] = {}
    if luck.random() < 0.3:
        wanted["user_ids"] = [other.user_id]
    if luck.random() < 0.3:
        wanted["session_ids"] = [other.session_id]
    is_foreign = luck.random() < 0.2 and other.tenant_id != me.tenant_id
    if is_foreign:
        wanted["tenant_ids"] = [other.tenant_id]
    reply = await tenants.post("memory.list", {"filter": wanted, "page_size": 200})
    if is_foreign and not tenants.is_scoped:
        return told(reply, wrong=must_be_refused(reply, "the memory of another tenant"))
    if reply.status == 200:
        for item in reply.json["items"]:
            whose = Identity(*(item["identity"][part] for part in ("tenant", "user", "session")))
            if (whose, item["key"]) not in tenants.known.get("memory", ()):
                tenants.note("memory", whose, item["key"])
    reach = Reach.ALL if is_foreign else wide(tenants, Reach.TENANT, Reach.TENANT, Reach.USER)
    wrong = unasked((item["identity"] for item in reply.json.get("items", ())), wanted)
    return told(reply, reach, wrong=wrong, audit=audited(is_foreign))


async def _get_memory(tenants: ServedTenants) -> Told:
    reply = await tenants.post("memory.get", {"key": tenants.any_id("memory")})
    return told(reply, wide(tenants, Reach.TENANT, Reach.TENANT, Reach.USER))


async def _memory_health(tenants: ServedTenants) -> Told:
    """As many items as the list has."""
    listed = await tenants.post("memory.list", {"page_size": 1})
    reply = await tenants.post("memory.health", {})
    reach = wide(tenants, Reach.TENANT, Reach.TENANT, Reach.USER)
    expected = 0
    for who in tenants.principals:
        if is_within(reach, tenants.caller, who):
            memory = tenants.memory
            expected += len((await memory.context(who)).recent_turns)
    wrong = differs("total", reply.json["aggregate"]["total"], expected) if reply.status == 200 else ""
    if listed.status == 200:
        wrong = wrong or differs("total_rows", listed.json["total_rows"], expected)
    counted = tenants.counted(Reach.TENANT, "memory.identity_rejected")
    if reply.status == 200:
        wrong = wrong or differs("rejected", reply.json["aggregate"]["identity_rejected_24h"], counted)
    return told(reply, reach, wrong=wrong)


# ── Tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _tool(verb: str) -> Request:
    async def ask(tenants: ServedTenants) -> Told:
        name = tenants.luck.choice(("look", "refund"))
        await tenants.read_events()
        body: dict[str, Any] = {} if verb == "list" else {"id": name}
        if verb == "set_approval_policy":
            body["policy"] = tenants.luck.choice(("auto", "gated", "denied"))
            body["id"] = name = "look"
        reply = await tenants.post(f"tools.{verb}", body)
        is_for_admin = verb in ("set_approval_policy", "revoke_oauth")
        if is_for_admin and not tenants.is_admin:
            return told(reply, wrong=must_be_refused(reply, "what an admin does"))
        if verb == "set_approval_policy" and reply.status == 200:
            tenants.policies[tenants.caller.tenant_id] = body["policy"]
        reach = wide(tenants, Reach.TENANT, Reach.TENANT, Reach.USER)
        wrong = _check_tool(tenants, verb, name, reach, reply.json) if reply.status == 200 else ""
        return told(reply, reach, wrong=wrong)

    return ask


def _check_tool(tenants: ServedTenants, verb: str, name: str, reach: Reach, got: Any) -> str:
    match verb:
        case "list" | "get" | "describe":
            rows = got["tools"] if verb == "list" else [got["tool"] if verb == "describe" else got]
            return next((wrong for row in rows if (wrong := _check_tool_row(tenants, reach, row))), "")
        case "metrics":
            ends = ("tool.completed", "tool.failed", "tool.policy_exhausted", "tool.invalid_args")
            return differs("invocations", got["invocations"], tenants.counted(reach, *ends, tool=name))
        case "content_stats":
            shown = sum(one["count"] for one in got["histogram"])
            return differs("results", shown, tenants.counted(reach, "tool.completed", tool=name))
        case _:
            return ""


def _check_tool_row(tenants: ServedTenants, reach: Reach, row: Mapping[str, Any]) -> str:
    name = row["name"]
    at = [
        one.at
        for one in tenants.events
        if one.type == "tool.invoked"
        and one.payload.get("ToolName") == name
        and is_within(reach, tenants.caller, one.who)
    ]
    last = msgspec.convert(row["last_used_at"], type=datetime)
    if at:
        wrong = differs("last_used_at", round(last.timestamp() * 1e6), at[-1])
    else:
        wrong = "" if last == NO_TIME else f"{name} was used by another"
    if name == "look":
        policy = tenants.policies.get(tenants.caller.tenant_id, "auto")
        wrong = wrong or differs("the policy", row["approval_policy"], policy)
    return wrong


# ── Flows, agents, MCP, tokens ────────────────────────────────────────────────────────────────────────────────────────


def _flow(verb: str) -> Request:
    async def ask(tenants: ServedTenants) -> Told:
        other, luck, me = tenants.other(), tenants.luck, tenants.caller
        body: dict[str, Any] = {}
        is_foreign = verb in ("list", "runs.list") and luck.random() < 0.3 and other.tenant_id != me.tenant_id
        match verb:
            case "list":
                body = {"filter": {"tenants": [other.tenant_id]}} if is_foreign else {}
            case "runs.list":
                body = {"flow_id": FLOW, "page_size": 200, **({"tenants": [other.tenant_id]} if is_foreign else {})}
            case "describe":
                body = {"id": FLOW}
            case "runs.describe":
                body = {"run_id": tenants.any_id("flow run")}
            case "run":
                body = {"flow_id": FLOW, "inputs": {"text": tenants.value(me)}}
            case _:
                body = {"flow_id": FLOW}
        reply = await tenants.post(f"flows.{verb}", body)
        if (is_foreign or verb == "run") and not tenants.is_admin:
            return told(reply, wrong=must_be_refused(reply, "what an admin does"))
        reach = Reach.ALL if is_foreign else wide(tenants, Reach.TENANT, Reach.TENANT, Reach.USER)
        if verb == "runs.describe":
            reach = wide(tenants, Reach.TENANT, Reach.ALL, Reach.USER)
            owner = owner_of(tenants, "flow run", body["run_id"])
            seen = reply.status == 200 and not is_within(reach, me, owner)
            return told(reply, reach, wrong=f"a run of {owner} was shown" if seen else "")
        if verb == "run" and reply.status == 200:
            tenants.note("flow run", me, reply.json["run_id"])
        wrong = _check_flow(tenants, verb, reach, reply.json) if reply.status == 200 and not is_foreign else ""
        return told(reply, reach, wrong=wrong, audit=audited(is_foreign))

    return ask


def _check_flow(tenants: ServedTenants, verb: str, reach: Reach, got: Any) -> str:
    count = sum(is_within(reach, tenants.caller, one.who) for one in tenants.flows.kept)
    match verb:
        case "list":
            return differs("runs_24h", got["flows"][0]["runs_24h"], count)
        case "describe":
            return differs("runs_24h", got["flow"]["runs_24h"], count)
        case "runs.list":
            return differs("total_rows", got["total_rows"], count)
        case "metrics":
            return differs("requests", got["budget_consumption"]["requests_used"], count)
        case _:
            return ""


def _agent(verb: str) -> Request:
    async def ask(tenants: ServedTenants) -> Told:
        reply = await tenants.post(f"agents.{verb}", {} if verb in ("list", "metrics") else {"id": "talker"})
        wrong = ""
        if verb == "metrics" and reply.status == 200:
            mine = [row for row in await tenants.runs() if is_within(Reach.USER, tenants.caller, row.who)]
            running = sum(row.status in LIVE and row.run_id in tenants.staying for row in mine)
            wrong = differs("running_tasks", reply.json["metrics"]["running_tasks"], running)
        return told(reply, Reach.USER, wrong=wrong)

    return ask


_FOR_ADMIN: Final = {"refresh_discovery", "probe", "refresh_binding", "revoke_binding", "set_raw_html_trust"}


def _mcp(verb: str) -> Request:
    async def ask(tenants: ServedTenants) -> Told:
        other, me = tenants.other(), tenants.caller
        is_foreign = tenants.luck.random() < 0.3 and other.tenant_id != me.tenant_id
        body: dict[str, Any] = {"identity": {"tenant": other.tenant_id}} if is_foreign else {}
        if verb != "list":
            body["name"] = "mail"
        reply = await tenants.post(f"mcp.servers.{verb}", body)
        if (is_foreign and not tenants.is_scoped) or (verb in _FOR_ADMIN and not tenants.is_admin):
            return told(reply, wrong=must_be_refused(reply, "a server of another"))
        audit = audited(is_foreign and reply.status == 200)
        return told(reply, Reach.ALL if is_foreign else Reach.SESSION, audit=audit)

    return ask


async def _rotate(tenants: ServedTenants) -> Told:
    reply = await tenants.post("auth.rotate_token", {})
    if not tenants.is_admin:
        return told(reply, wrong=must_be_refused(reply, "a new token"))
    if reply.status != 200:
        return told(reply)
    middle = reply.json["new_token"].split(".")[1]
    claims = base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)).decode()
    return Told(reply.status, claims, wrong=differs("its tenant", msgspec.json.decode(claims)["user"], _user(tenants)))


def _user(tenants: ServedTenants) -> str:
    return tenants.caller.user_id


async def _topology(tenants: ServedTenants) -> Told:
    return told(await tenants.post("topology.snapshot", {"identity": {}}))


OF_THINGS: Final[dict[str, Request]] = {
    "topology.snapshot": _topology,
    "pause.list": _pauses,
    "artifacts.list": _list_artifacts,
    "artifacts.put": _put,
    "artifacts.get_ref": _get_ref,
    "memory.list": _list_memory,
    "memory.get": _get_memory,
    "memory.health": _memory_health,
    **{name: _mcp(name.removeprefix("mcp.servers.")) for name in METHODS if name.startswith("mcp.")},
    **{name: _tool(name.removeprefix("tools.")) for name in METHODS if name.startswith("tools.")},
    "tasks.list": _tasks,
    "tasks.get": _task,
    **{name: _flow(name.removeprefix("flows.")) for name in METHODS if name.startswith("flows.")},
    **{name: _agent(name.removeprefix("agents.")) for name in METHODS if name.startswith("agents.")},
    "sessions.list": _sessions,
    "sessions.inspect": _session,
    "auth.rotate_token": _rotate,
}
"""By name."""
