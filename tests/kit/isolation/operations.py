"""What the principals do: every method that takes an identity, with ids of their own and with ids of others.

An operation gives what its caller was shown. `USER` says that a caller may see its own values of all its sessions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from harborage.artifacts import ArtifactScope
from harborage.events import ClientFilter, Cursor, Filter, aggregate, bus_filter, selects
from harborage.identity import Identity
from harborage.ids import new_id
from harborage.planner import PauseReason
from harborage.runtime.pauses import PauseDecision, PauseFilter, PauseRequest
from harborage.sessions import SessionFilter
from harborage.state.store import StateRecord
from harborage.store import EventQuery, RunQuery
from harborage.tasks import GroupRequest, SpawnToolRequest, TaskFailure
from harborage.tasks.listing import IdentityMatch, TaskListFilter, TaskListing, TaskListRequest
from tests.kit.isolation.tenants import Tenants

Act: TypeAlias = Callable[[Tenants, Identity], Awaitable[Any]]
KINDS = ("notes", "plans")
"""The kinds of the records that principals keep."""
_NOBODY: frozenset[str] = frozenset()


class Operation(NamedTuple):
    """One thing to do. `changes` names the kind of id that it changes; `is_users` widens what may be seen."""

    act: Act
    changes: str = ""
    is_users: bool = False


# ── state ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _save(tenants: Tenants, me: Identity) -> None:
    run, kind = tenants.luck.choice(("", "r")), tenants.luck.choice(KINDS)
    event_id, data = new_id(), tenants.value(me).encode()
    if tenants.storage is not None:
        await tenants.storage.state.save(
            StateRecord(event_id=event_id, identity=me.with_run(run), kind=kind, data=data)
        )
        tenants.note("event id", me, event_id)


async def _load(tenants: Tenants, me: Identity) -> Any:
    run, kind = tenants.luck.choice(("", "r")), tenants.luck.choice(KINDS)
    return tenants.storage and await tenants.storage.state.load(me.with_run(run), kind)


async def _load_by_event(tenants: Tenants, me: Identity) -> Any:
    event_id = tenants.any_id("event id")
    return tenants.storage and await tenants.storage.state.load_by_event_id(event_id, who=me)


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _told(tenants: Tenants, me: Identity) -> Any:
    with tenants.runtime.bus.subscribe(Filter.of(me)) as reader:
        for who in (tenants.anybody(), me, tenants.anybody()):
            await tenants.tell(who)
        return reader.drain()


async def _replayed(tenants: Tenants, me: Identity) -> Any:
    session = tenants.luck.choice(("", me.session_id))
    return (await tenants.runtime.bus.replay(Cursor(session, 0), Filter.of(me)))[-20:]


def _query(tenants: Tenants, me: Identity) -> ClientFilter:
    other = tenants.anybody()
    return ClientFilter(
        tenant_ids=tenants.luck.choice(((), (me.tenant_id,), (other.tenant_id,))),
        user_ids=tenants.luck.choice(((), (me.user_id,), (other.user_id,))),
        session_ids=tenants.luck.choice(((), (me.session_id,))),
    )


async def _queried(tenants: Tenants, me: Identity) -> Any:
    query = _query(tenants, me)
    allowed = bus_filter(query, me, _NOBODY)
    found = await tenants.runtime.bus.replay(Cursor(allowed.session, 0), allowed)
    return [event for event in found if selects(query, me, event)][-20:]


async def _counted(tenants: Tenants, me: Identity) -> Any:
    window = timedelta(hours=1)
    await aggregate(tenants.runtime.bus, _query(tenants, me), window=window, bucket=window, who=me, scopes=_NOBODY)


async def _logged(tenants: Tenants, me: Identity) -> Any:
    mine = EventQuery(tenant=me.tenant_id, user=me.user_id, session=me.session_id, newest_first=True, limit=20)
    return tenants.storage and await tenants.storage.store.events(mine)


# ── artifacts ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def _put(tenants: Tenants, me: Identity) -> Any:
    task = tenants.luck.choice(("", "t"))
    ref = await tenants.runtime.artifacts.put_text(
        ArtifactScope.of(me, task), tenants.value(me), filename=tenants.value(me)
    )
    tenants.note("artifact", me, ref.id)
    return ref


def _scope(tenants: Tenants, me: Identity) -> ArtifactScope:
    return ArtifactScope.of(me, tenants.luck.choice(("", "t")))


async def _get(tenants: Tenants, me: Identity) -> Any:
    return await tenants.runtime.artifacts.get(_scope(tenants, me), tenants.any_id("artifact"))


async def _get_ref(tenants: Tenants, me: Identity) -> Any:
    return await tenants.runtime.artifacts.get_ref(_scope(tenants, me), tenants.any_id("artifact"))


async def _list_artifacts(tenants: Tenants, me: Identity) -> Any:
    return await tenants.runtime.artifacts.list(ArtifactScope.of(me))


async def _delete_artifact(tenants: Tenants, me: Identity) -> Any:
    return tenants.luck.random() < 0.2 and await tenants.runtime.artifacts.delete(
        _scope(tenants, me), tenants.any_id("artifact")
    )


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _spawn(tenants: Tenants, me: Identity) -> None:
    value = tenants.value(me)
    request = SpawnToolRequest(identity=me.with_run(""), tool_name="t", description=value, idempotency_key=value)
    tenants.note("task", me, (await tenants.runtime.tasks.spawn_tool(request)).id)


def _on_task(method: str, *more: Any) -> Act:
    async def act(tenants: Tenants, me: Identity) -> Any:
        return await getattr(tenants.runtime.tasks, method)(tenants.any_id("task"), *more, who=me)

    return act


async def _list_tasks(tenants: Tenants, me: Identity) -> Any:
    return await tenants.runtime.tasks.list(me)


async def _page_tasks(tenants: Tenants, me: Identity) -> Any:
    other = tenants.anybody()
    match = IdentityMatch(*tenants.luck.choice(((), (other.tenant_id,), (other.tenant_id, other.user_id))))
    request = TaskListRequest(filter=TaskListFilter(identities=(match,)), page_size=20)
    listing: Any = TaskListing(tenants.runtime.tasks, bus=tenants.runtime.bus)  # type: ignore[arg-type]
    return await listing.list(request, who=me, scopes=_NOBODY)


async def _show_task(tenants: Tenants, me: Identity) -> Any:
    listing: Any = TaskListing(tenants.runtime.tasks, bus=tenants.runtime.bus)  # type: ignore[arg-type]
    return await listing.get(tenants.any_id("task"), who=me)


async def _open_group(tenants: Tenants, me: Identity) -> Any:
    request = GroupRequest(session=me, description=tenants.value(me))
    group = await tenants.runtime.tasks.resolve_or_create_group(request, who=me)
    tenants.note("group", me, group.id)
    return group


def _on_group(method: str) -> Act:
    async def act(tenants: Tenants, me: Identity) -> Any:
        return await getattr(tenants.runtime.tasks, method)(tenants.any_id("group"), who=me)

    return act


# ── pauses ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _pause(tenants: Tenants, me: Identity) -> Any:
    request = PauseRequest(identity=me, reason=PauseReason.AWAIT_INPUT, payload={"q": tenants.value(me)})
    pause = await tenants.runtime.pauses.request(request)
    tenants.note("pause", me, pause.token)
    return pause


async def _status(tenants: Tenants, me: Identity) -> Any:
    return await tenants.runtime.pauses.status(tenants.any_id("pause"), who=me)


async def _answer(tenants: Tenants, me: Identity) -> Any:
    answer = {"a": tenants.value(me)}
    return await tenants.runtime.pauses.resume(tenants.any_id("pause"), PauseDecision.RESUME, answer, who=me)


async def _list_pauses(tenants: Tenants, me: Identity) -> Any:
    other = tenants.anybody()
    wanted = PauseFilter(
        tenants=tenants.luck.choice(((), (other.tenant_id,))),
        users=tenants.luck.choice(((), (me.user_id,), (other.user_id,))),
        sessions=tenants.luck.choice(((), (other.session_id,))),
    )
    return (await tenants.runtime.pauses.list(wanted, who=me, scopes=_NOBODY)).rows


# ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _visit(tenants: Tenants, me: Identity) -> Any:
    return await tenants.runtime.sessions.visit(me)


async def _get_session(tenants: Tenants, me: Identity) -> Any:
    return await tenants.runtime.sessions.get(tenants.anybody().session_id, who=me)


async def _list_sessions(tenants: Tenants, me: Identity) -> Any:
    other = tenants.anybody()
    wanted = SessionFilter(
        tenants=tenants.luck.choice(((), (other.tenant_id,))), users=tenants.luck.choice(((), (other.user_id,)))
    )
    return await tenants.runtime.sessions.list(wanted, who=me, scopes=_NOBODY)


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _start(tenants: Tenants, me: Identity) -> Any:
    if len(tenants.known.get("run", ())) >= 2 * len(tenants.principals) and tenants.luck.random() < 0.98:
        return None
    if len(tenants.known.get("run", ())) % 2:
        run = await tenants.runtime.session("", who=me).start(tenants.value(me))
    else:
        run = await tenants.runtime.start(tenants.value(me), who=me)
    tenants.note("run", me, run.id)
    return await run.finished()


async def _show_run(tenants: Tenants, me: Identity) -> Any:
    run = await tenants.runtime.run(tenants.any_id("run"), who=me)
    return [await run.status(), await run.history(), await run.waiting(), await run.finished()]


async def _read_run(tenants: Tenants, me: Identity) -> Any:
    run = await tenants.runtime.run(tenants.any_id("run"), who=me)
    return [event async for event in run.events()]


async def _steer_run(tenants: Tenants, me: Identity) -> Any:
    return await tenants.runtime.get(tenants.any_id("run"), who=me).message(tenants.value(me))


async def _list_runs(tenants: Tenants, me: Identity) -> Any:
    runtime = tenants.runtime
    opened, _ = await runtime.pauses.list_open(me)
    return [*await runtime.runs(who=me), *await runtime.pending(who=me), *opened]


async def _kept_runs(tenants: Tenants, me: Identity) -> Any:
    wanted = RunQuery(tenant=me.tenant_id, user=me.user_id, session=me.session_id)
    return tenants.storage and (await tenants.storage.store.runs(wanted)).rows


async def _controls(tenants: Tenants, me: Identity) -> Any:
    return tenants.runtime.control_history(who=me)


OPERATIONS: dict[str, Operation] = {
    "state.save": Operation(_save),
    "state.load": Operation(_load),
    "state.load_by_event_id": Operation(_load_by_event),
    "bus.subscribe": Operation(_told),
    "bus.replay": Operation(_replayed),
    "events.query": Operation(_queried),
    "events.aggregate": Operation(_counted),
    "events.kept": Operation(_logged),
    "artifacts.put": Operation(_put),
    "artifacts.get": Operation(_get),
    "artifacts.get_ref": Operation(_get_ref),
    "artifacts.list": Operation(_list_artifacts),
    "artifacts.delete": Operation(_delete_artifact, "artifact"),
    "tasks.spawn": Operation(_spawn),
    "tasks.get": Operation(_on_task("get")),
    "tasks.list": Operation(_list_tasks),
    "tasks.page": Operation(_page_tasks),
    "tasks.show": Operation(_show_task),
    "tasks.cancel": Operation(_on_task("cancel", "why"), "task"),
    "tasks.prioritize": Operation(_on_task("prioritize", 7), "task"),
    "tasks.increment_tool_count": Operation(_on_task("increment_tool_count"), "task"),
    "tasks.mark_running": Operation(_on_task("mark_running"), "task"),
    "tasks.mark_complete": Operation(_on_task("mark_complete", b"{}"), "task"),
    "tasks.mark_failed": Operation(_on_task("mark_failed", TaskFailure("code", "why")), "task"),
    "groups.open": Operation(_open_group),
    "groups.get": Operation(_on_group("group")),
    "groups.seal": Operation(_on_group("seal_group"), "group"),
    "pauses.request": Operation(_pause),
    "pauses.status": Operation(_status),
    "pauses.resume": Operation(_answer, "pause"),
    "pauses.list": Operation(_list_pauses, is_users=True),
    "sessions.visit": Operation(_visit),
    "sessions.get": Operation(_get_session),
    "sessions.list": Operation(_list_sessions, is_users=True),
    "runs.start": Operation(_start),
    "runs.show": Operation(_show_run),
    "runs.events": Operation(_read_run),
    "runs.steer": Operation(_steer_run, "run"),
    "runs.list": Operation(_list_runs),
    "runs.kept": Operation(_kept_runs),
    "runs.controls": Operation(_controls),
}
"""By name, what a principal can do whose answers show values; `checked` has the others."""
