"""What the principals ask about runs, events, and what is found of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from harborage.protocol.methods import CONTROLS
from harborage.store import LIVE, SessionQuery
from harborage.tasks import TaskKind
from tests.kit.isolation.served import Reach, ServedTenants, is_within
from tests.kit.sse import open_page

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

_DAY_NS: Final = 86_400 * 10**9


# ── Runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _start(tenants: ServedTenants) -> Told:
    me, luck = tenants.caller, tenants.luck
    if luck.random() < 0.15:
        return await _start_as(tenants)
    if luck.random() < 0.3:
        body = {"query": "goal: again", "idempotency_key": f"key-{luck.randrange(3)}"}
        reply = await tenants.post("start", body)
        if reply.status == 200 and not reply.json["reused"]:
            tenants.note("run", me, reply.json["task_id"])
    else:
        reply = await tenants.start(me, luck.choice(("look", "ask", "say")))
    await tenants.settle()
    if reply.status != 200:
        return told(reply)
    mine = await tenants.wire.post("tasks.get", {"id": reply.json["task_id"]}, who=me)
    return Told(200, f"{reply.body.decode()} {mine.body.decode()}")


async def _start_as(tenants: ServedTenants) -> Told:
    """Start a run of somebody else: by name, which nobody may, or as an admin who says so."""
    me, other = tenants.caller, tenants.other()
    identity: dict[str, Any] = named(other)
    acts, lies = tenants.luck.random() < 0.7, tenants.luck.random() < 0.3
    if acts:
        actor = named(other if lies else me)
        identity |= {"actor": actor, "requester": actor, "impersonating": named(other)}
    reply = await tenants.post("start", {"query": f"goal: {tenants.value(other)}", "identity": identity})
    may = other == me or (acts and not lies and tenants.is_admin)
    may = may and (tenants.is_admin or not acts)
    if reply.status == 200:
        tenants.note("run", other, reply.json["task_id"])
        await tenants.settle()
    wrong = "" if may else must_be_refused(reply, f"a run of {other}")
    return told(reply, Reach.ALL if may else Reach.SESSION, writes=Reach.ALL if may else Reach.SESSION, wrong=wrong)


def _control(name: str) -> Request:
    async def send(tenants: ServedTenants) -> Told:
        me, luck = tenants.caller, tenants.luck
        run_id = me.session_id if name == "cancel" and luck.random() < 0.2 else await _live_run(tenants)
        payload = {
            "user_message": {"message": tenants.value(me)},
            "inject_context": {"note": tenants.value(me)},
            "redirect": {"goal": f"goal: {tenants.value(me)}"},
            "prioritize": {"priority": 3},
            "approve": luck.choice(({}, {"remember": "always"}, {"token": tenants.any_id("pause")})),
            "reject": luck.choice(({}, {"token": tenants.any_id("pause")})),
            "resume": luck.choice(({}, {"token": tenants.any_id("pause")})),
        }.get(name, {})
        scope = "admin" if name == "prioritize" else "owner_user"
        before = {row.run_id: (row.who, row.status, row.priority) for row in await tenants.runs()}
        event_id = f"e-{luck.randrange(4)}"
        is_new = not await tenants.runtime.parts.engine.was_sent(run_id, event_id)
        body = {"identity": {"run": run_id, "scope": scope}, "payload": payload, "event_id": event_id}
        reply = await tenants.post(name, body)
        if name == "cancel" and is_new and reply.status == 200:
            tenants.ending.add(run_id)
        await tenants.settle()
        after = {row.run_id: (row.who, row.status, row.priority) for row in await tenants.runs()}
        await tenants.read_events()
        moved = [
            who
            for run, (who, *stood) in before.items()
            if who != me and who not in tenants.late() and after.get(run) != (who, *stood)
        ]
        wrong = f"a run of {moved[0]} was moved" if moved else ""
        if name == "prioritize" and not tenants.is_admin:
            wrong = wrong or must_be_refused(reply, "what an admin does")
        if run_id in before and before[run_id][0] != me:
            wrong = wrong or must_be_refused(reply, f"a control for a run of {before[run_id][0]}")
        return told(reply, wrong=wrong)

    return send


async def _live_run(tenants: ServedTenants) -> str:
    """A run that goes on, half of the time one of the caller's; any run where there is none."""
    live = [row for row in await tenants.runs() if row.status in LIVE and row.run_id not in tenants.staying]
    mine = [row for row in live if row.who == tenants.caller] if tenants.luck.random() < 0.4 else []
    if not live:
        return tenants.any_id("run")
    found = tenants.luck.choice(mine or live).run_id
    tenants.asked.append(("run", found))
    tenants.left.add(found)
    return found


async def _overrides(tenants: ServedTenants) -> Told:
    """Whoever starts the next run is answered by a model that has read this."""
    me, other = tenants.caller, tenants.other()
    parts: dict[str, Any] = {"system_prompt_override": tenants.value(me)}
    is_foreign = tenants.luck.random() < 0.3 and other.session_id != me.session_id
    if is_foreign:
        parts["session_id"] = other.session_id
    reply = await tenants.post("runs.set_overrides", {"overrides": parts})
    return told(reply, wrong=must_be_refused(reply, "overrides of another session") if is_foreign else "")


def _of_run(verb: str) -> Request:
    async def ask(tenants: ServedTenants) -> Told:
        run_id = tenants.any_id("run")
        more: dict[str, dict[str, Any]] = {
            "step": {"step": 1, "full": True},
            "fork": {"step": 1, "idempotency_key": f"fork-{tenants.luck.randrange(3)}"},
            "compare": {"other": tenants.any_id("run")},
        }
        body = {"id": run_id, **more.get(verb, {})}
        owner = owner_of(tenants, "run", run_id)
        reply = await tenants.post(f"runs.{verb}", body)
        reach = wide(tenants, Reach.TENANT, Reach.ALL)
        if verb in ("fork", "replay"):
            reach = Reach.SESSION
        if verb == "fork" and reply.status == 200:
            if not reply.json["reused"]:
                tenants.note("run", tenants.caller, reply.json["task_id"])
            await tenants.settle()
        seen = reply.status == 200 and not is_within(reach, tenants.caller, owner)
        return told(reply, reach, wrong=f"a run of {owner} was answered for" if seen else "")

    return ask


# ── Events ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _subscribe(tenants: ServedTenants) -> Told:
    """What a stream replays, and what comes live while a neighbour is busy; its last event is the caller's own."""
    me, luck, other = tenants.caller, tenants.luck, tenants.other()
    run_id = tenants.any_id("run") if luck.random() < 0.4 else ""
    tenants.left |= {run_id} - {""}
    is_wide = luck.random() < 0.2
    query = "&".join(
        ([f"run={run_id}"] if run_id else [])
        + (["children=1"] if run_id and luck.random() < 0.5 else [])
        + (["admin=1"] if is_wide else [])
    )
    if is_wide and not tenants.is_scoped:
        reply = await tenants.wire.request("GET", f"/v1/events?{query}", headers=tenants.headers())
        return told(reply, wrong=must_be_refused(reply, "the events of all"))
    options: dict[str, Any] = {"last_id": 0} if luck.random() < 0.5 else {}
    async with open_page(tenants.wire, f"?{query}", who=me, scopes=tenants.scopes, **options) as page:
        await tenants.tell(other)
        await tenants.tell(me, "" if is_wide else run_id)
        said = tenants.last_value
        text, wrong = "", ""
        while said not in text:
            frame = await page.event()
            text += frame.raw.decode()
            if run_id and not is_wide and "children" not in query:
                ids = {frame.data.get("run"), (frame.data.get("payload") or {}).get("TaskID")}
                wrong = wrong or ("" if run_id in ids else f"an event of {ids} on the stream of {run_id}")
    reach = Reach.ALL if is_wide else Reach.SESSION
    return Told(200, text, reach, Reach.ALL, wrong, audited(is_wide))


async def _aggregate(tenants: ServedTenants) -> Told:
    me, other, luck = tenants.caller, tenants.other(), tenants.luck
    await tenants.read_events()
    wanted: dict[str, Any] = {}
    if luck.random() < 0.3:
        wanted["user_ids"] = [other.user_id]
    if luck.random() < 0.3:
        wanted["session_ids"] = [other.session_id]
    if luck.random() < 0.3:
        wanted["tenant_ids"] = [other.tenant_id]
    if luck.random() < 0.1:
        wanted["user_ids"] = [me.user_id, other.user_id, "x"]
    body = {"filter": wanted, "window": _DAY_NS, "bucket": _DAY_NS}
    reply = await tenants.post("events.aggregate", body)
    needs = wanted.get("tenant_ids", [me.tenant_id]) != [me.tenant_id] or len(wanted.get("user_ids", ())) > 1
    if needs and not tenants.is_scoped:
        return told(reply, wrong=must_be_refused(reply, "the events of others"))
    if reply.status != 200:
        return told(reply)
    whose = [wanted.get(f"{part}_ids", [getattr(me, f"{part}_id")]) for part in ("tenant", "user", "session")]
    expected: dict[str, int] = {}
    for one in tenants.events:
        who = one.who
        if who.tenant_id in whose[0] and who.user_id in whose[1] and who.session_id in whose[2]:
            expected[one.type] = expected.get(one.type, 0) + 1
    got = reply.json["buckets"][0]["counts"]
    if needs:  # the read itself is an event
        for counts in (got, expected):
            counts.pop("audit.admin_scope_used", None)
    reach = Reach.ALL if tenants.is_scoped else Reach.TENANT
    return told(reply, reach, wrong=differs("the count", got, expected), audit=audited(needs))


# ── Search ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _search(index: str) -> Request:
    async def ask(tenants: ServedTenants) -> Told:
        other, luck = tenants.other(), tenants.luck
        parts = {"tenant_ids": other.tenant_id, "user_ids": other.user_id, "session_ids": other.session_id}
        wanted = {name: [one] for name, one in parts.items() if luck.random() < 0.25}
        if luck.random() < 0.3:
            both = {"tenant_ids": tenants.caller.tenant_id, "user_ids": tenants.caller.user_id}
            wanted |= {name: list(dict.fromkeys((parts[name], one))) for name, one in both.items()}
        words = luck.choice(("", tenants.marks[other], "canary", "task."))
        reply = await tenants.post(f"search.{index}", {"query": words, "filter": wanted, "page_size": 200})
        is_foreign = any(one != tenants.caller.tenant_id for one in wanted.get("tenant_ids", ()))
        wrong = must_be_refused(reply, "a search of another tenant") if is_foreign and not tenants.is_scoped else ""
        if reply.status == 200 and index != "query" and not reply.json["has_more"]:
            wrong = wrong or differs("total_count", reply.json["total_count"], len(reply.json["rows"]))
        reach = Reach.USER
        if tenants.is_scoped:
            reach = Reach.ALL if is_foreign else Reach.TENANT
        if reply.status == 200:
            wrong = wrong or unasked(reply.json["rows"], wanted)
        audit = audited(is_foreign and reply.status == 200)
        return told(reply, reach, wrong=wrong, audit=audit)

    return ask


# ── Posture ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _posture(name: str, check: Callable[[ServedTenants, Mapping[str, Any]], Awaitable[str]] | None = None) -> Request:
    async def ask(tenants: ServedTenants) -> Told:
        other, me = tenants.other(), tenants.caller
        is_foreign = tenants.luck.random() < 0.3 and other.tenant_id != me.tenant_id
        if check is not None:
            await tenants.read_events()
        identity = {"tenant": other.tenant_id} if is_foreign else {}
        reply = await tenants.post(name, {"identity": identity})
        if is_foreign and not tenants.is_scoped:
            return told(reply, wrong=must_be_refused(reply, "the posture of another tenant"))
        wrong = ""
        if check is not None and reply.status == 200 and not is_foreign:
            wrong = await check(tenants, reply.json)
        audit = audited(is_foreign)
        if is_foreign and name.endswith(".posture"):
            audit = f"{name}_read_admin"
        return told(reply, Reach.ALL if is_foreign else Reach.SESSION, wrong=wrong, audit=audit)

    return ask


async def _check_counters(tenants: ServedTenants, got: Mapping[str, Any]) -> str:
    me = tenants.caller
    mine = [row for row in await tenants.runs() if row.who == me]
    background = sum(row.status in LIVE and row.kind == TaskKind.BACKGROUND for row in mine)
    running = sum(row.status in LIVE and row.run_id in tenants.staying for row in mine)
    opened = (await tenants.runtime.parts.store.sessions(SessionQuery(only_opened=True, limit=10_000))).rows
    return (
        differs("background_jobs_active", got["background_jobs_active"], background)
        or differs("tasks_running", got["tasks_running"], running)
        or differs("sessions_active", got["sessions_active"], sum(row.who.tenant_id == me.tenant_id for row in opened))
    )


async def _check_metrics(tenants: ServedTenants, got: Mapping[str, Any]) -> str:
    mine = [row for row in await tenants.runs() if row.who == tenants.caller]
    counters = {one["name"]: one["value"] for one in got["counters"]}
    gauges = [one for one in got["gauges"] if one["name"] == "harborage_tasks"]
    return (
        differs("tasks", sum(one["value"] for one in gauges), len(mine))
        or differs("tokens", counters["harborage_tokens_total"], sum(row.tokens for row in mine))
        or differs("events", counters["harborage_events_total"], tenants.counted(Reach.SESSION))
    )


# ── Other ways to read ────────────────────────────────────────────────────────────────────────────────────────────────


async def _response(tenants: ServedTenants) -> Told:
    run_id = tenants.any_id("run")
    reply = await tenants.wire.request("GET", f"/v1/responses/{run_id}", headers=tenants.headers())
    owner = owner_of(tenants, "run", run_id)
    seen = reply.status == 200 and not is_within(Reach.USER, tenants.caller, owner)
    return told(reply, Reach.USER, wrong=f"a response of {owner} was shown" if seen else "")


def _get(path: str) -> Request:
    async def ask(tenants: ServedTenants) -> Told:
        return told(await tenants.wire.request("GET", path, headers=tenants.headers()))

    return ask


OF_RUNS: Final[dict[str, Request]] = {
    "start": _start,
    **{name: _control(name) for name in CONTROLS},
    "events.subscribe": _subscribe,
    "events.aggregate": _aggregate,
    **{f"search.{index}": _search(index) for index in ("query", "sessions", "tasks", "events", "artifacts")},
    **{
        name: _posture(name)
        for name in ("runtime.info", "runtime.health", "runtime.drivers", "governance.posture", "llm.posture")
    },
    "runtime.counters": _posture("runtime.counters", _check_counters),
    "metrics.snapshot": _posture("metrics.snapshot", _check_metrics),
    "runs.set_overrides": _overrides,
    **{f"runs.{verb}": _of_run(verb) for verb in ("steps", "step", "fork", "replay", "freeze", "compare")},
    "GET /v1/responses": _response,
    **{f"GET {path}": _get(path) for path in ("/v1/models", "/v1/openapi.json", "/readyz")},
}
"""By name."""
