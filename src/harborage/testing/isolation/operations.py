"""What the principals do: every method that takes an identity, with ids of their own and with ids of others.

An operation gives what its caller was shown. `USER` says that a caller may see its own values of all its sessions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from harborage.artifacts import ArtifactScope
from harborage.events import Cursor, EventQuery, Filter, aggregate, bus_filter, selects
from harborage.identity import Identity
from harborage.ids import new_id
from harborage.planner import PauseReason
from harborage.runtime.pauses import PauseDecision, PauseFilter, PauseRequest
from harborage.sessions import SessionFilter
from harborage.state.store import StateRecord
from harborage.store import RunQuery
from harborage.tasks import GroupRequest, SpawnToolRequest, TaskFailure
from harborage.tasks.listing import IdentityMatch, TaskListFilter, TaskListRequest
from harborage.tasks.reading import TaskListing
from harborage.testing.isolation.town import Town

__all__ = ["KINDS", "OPERATIONS", "Operation"]

Act: TypeAlias = Callable[[Town, Identity], Awaitable[Any]]
KINDS = ("notes", "plans")
"""The kinds of the records that principals keep."""
_NOBODY: frozenset[str] = frozenset()


class Operation(NamedTuple):
    """One thing to do. `changes` names the kind of id that it changes; `is_users` widens what may be seen."""

    act: Act
    changes: str = ""
    is_users: bool = False


# ── state ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _save(town: Town, me: Identity) -> None:
    run, kind = town.luck.choice(("", "r")), town.luck.choice(KINDS)
    event_id, data = new_id(), town.value(me).encode()
    if town.storage is not None:
        await town.storage.state.save(StateRecord(event_id=event_id, identity=me.with_run(run), kind=kind, data=data))
        town.note("event id", me, event_id)


async def _load(town: Town, me: Identity) -> Any:
    run, kind = town.luck.choice(("", "r")), town.luck.choice(KINDS)
    return town.storage and await town.storage.state.load(me.with_run(run), kind)


async def _load_by_event(town: Town, me: Identity) -> Any:
    event_id = town.any_id("event id")
    return town.storage and await town.storage.state.load_by_event_id(event_id, who=me)


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _told(town: Town, me: Identity) -> Any:
    with town.runtime.bus.subscribe(Filter.of(me)) as reader:
        for who in (town.anybody(), me, town.anybody()):
            await town.tell(who)
        return reader.drain()


async def _replayed(town: Town, me: Identity) -> Any:
    session = town.luck.choice(("", me.session_id))
    return (await town.runtime.bus.replay(Cursor(session, 0), Filter.of(me)))[-20:]


def _query(town: Town, me: Identity) -> EventQuery:
    other = town.anybody()
    return EventQuery(
        tenant_ids=town.luck.choice(((), (me.tenant_id,), (other.tenant_id,))),
        user_ids=town.luck.choice(((), (me.user_id,), (other.user_id,))),
        session_ids=town.luck.choice(((), (me.session_id,))),
    )


async def _queried(town: Town, me: Identity) -> Any:
    query = _query(town, me)
    allowed = bus_filter(query, me, _NOBODY)
    found = await town.runtime.bus.replay(Cursor(allowed.session, 0), allowed)
    return [event for event in found if selects(query, me, event)][-20:]


async def _counted(town: Town, me: Identity) -> Any:
    window = timedelta(hours=1)
    await aggregate(town.runtime.bus, _query(town, me), window=window, bucket=window, who=me, scopes=_NOBODY)


async def _logged(town: Town, me: Identity) -> Any:
    return town.storage and (await town.storage.events.read(me))[-20:]


# ── artifacts ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def _put(town: Town, me: Identity) -> Any:
    task = town.luck.choice(("", "t"))
    ref = await town.runtime.artifacts.put_text(ArtifactScope.of(me, task), town.value(me), filename=town.value(me))
    town.note("artifact", me, ref.id)
    return ref


def _scope(town: Town, me: Identity) -> ArtifactScope:
    return ArtifactScope.of(me, town.luck.choice(("", "t")))


async def _get(town: Town, me: Identity) -> Any:
    return await town.runtime.artifacts.get(_scope(town, me), town.any_id("artifact"))


async def _get_ref(town: Town, me: Identity) -> Any:
    return await town.runtime.artifacts.get_ref(_scope(town, me), town.any_id("artifact"))


async def _list_artifacts(town: Town, me: Identity) -> Any:
    return await town.runtime.artifacts.list(ArtifactScope.of(me))


async def _delete_artifact(town: Town, me: Identity) -> Any:
    return town.luck.random() < 0.2 and await town.runtime.artifacts.delete(_scope(town, me), town.any_id("artifact"))


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _spawn(town: Town, me: Identity) -> None:
    value = town.value(me)
    request = SpawnToolRequest(identity=me.with_run(""), tool_name="t", description=value, idempotency_key=value)
    town.note("task", me, (await town.runtime.tasks.spawn_tool(request)).id)


def _on_task(method: str, *more: Any) -> Act:
    async def act(town: Town, me: Identity) -> Any:
        return await getattr(town.runtime.tasks, method)(town.any_id("task"), *more, who=me)

    return act


async def _list_tasks(town: Town, me: Identity) -> Any:
    return await town.runtime.tasks.list(me)


async def _page_tasks(town: Town, me: Identity) -> Any:
    other = town.anybody()
    match = IdentityMatch(*town.luck.choice(((), (other.tenant_id,), (other.tenant_id, other.user_id))))
    request = TaskListRequest(filter=TaskListFilter(identities=(match,)), page_size=20)
    listing: Any = TaskListing(town.runtime.tasks, bus=town.runtime.bus)  # type: ignore[arg-type]
    return await listing.list(request, who=me, scopes=_NOBODY)


async def _show_task(town: Town, me: Identity) -> Any:
    listing: Any = TaskListing(town.runtime.tasks, bus=town.runtime.bus)  # type: ignore[arg-type]
    return await listing.get(town.any_id("task"), who=me)


async def _open_group(town: Town, me: Identity) -> Any:
    request = GroupRequest(session=me, description=town.value(me))
    group = await town.runtime.tasks.resolve_or_create_group(request, who=me)
    town.note("group", me, group.id)
    return group


def _on_group(method: str) -> Act:
    async def act(town: Town, me: Identity) -> Any:
        return await getattr(town.runtime.tasks, method)(town.any_id("group"), who=me)

    return act


# ── pauses ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _pause(town: Town, me: Identity) -> Any:
    request = PauseRequest(identity=me, reason=PauseReason.AWAIT_INPUT, payload={"q": town.value(me)})
    pause = await town.runtime.pauses.request(request)
    town.note("pause", me, pause.token)
    return pause


async def _status(town: Town, me: Identity) -> Any:
    return await town.runtime.pauses.status(town.any_id("pause"), who=me, fresh=town.luck.random() < 0.5)


async def _answer(town: Town, me: Identity) -> Any:
    answer = {"a": town.value(me)}
    return await town.runtime.pauses.resume(town.any_id("pause"), PauseDecision.RESUME, answer, who=me)


async def _list_pauses(town: Town, me: Identity) -> Any:
    other = town.anybody()
    wanted = PauseFilter(
        tenants=town.luck.choice(((), (other.tenant_id,))),
        users=town.luck.choice(((), (me.user_id,), (other.user_id,))),
        sessions=town.luck.choice(((), (other.session_id,))),
    )
    return (await town.runtime.pauses.list(wanted, who=me, scopes=_NOBODY)).rows


# ── sessions ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _visit(town: Town, me: Identity) -> Any:
    return await town.runtime.sessions.visit(me)


async def _get_session(town: Town, me: Identity) -> Any:
    return await town.runtime.sessions.get(town.anybody().session_id, who=me)


async def _list_sessions(town: Town, me: Identity) -> Any:
    other = town.anybody()
    wanted = SessionFilter(
        tenants=town.luck.choice(((), (other.tenant_id,))), users=town.luck.choice(((), (other.user_id,)))
    )
    return await town.runtime.sessions.list(wanted, who=me, scopes=_NOBODY)


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _start(town: Town, me: Identity) -> Any:
    if len(town.known.get("run", ())) >= 2 * len(town.principals) and town.luck.random() < 0.98:
        return None
    run = await town.runtime.start(town.value(me), who=me)
    town.note("run", me, run.id)
    return await run.result()


async def _show_run(town: Town, me: Identity) -> Any:
    run = await town.runtime.run(town.any_id("run"), who=me)
    return [await run.status(), await run.history(), await run.waiting(), await run.result()]


async def _read_run(town: Town, me: Identity) -> Any:
    run = await town.runtime.run(town.any_id("run"), who=me)
    return [event async for event in run.events()]


async def _steer_run(town: Town, me: Identity) -> Any:
    return await (await town.runtime.run(town.any_id("run"), who=me)).message(town.value(me))


async def _list_runs(town: Town, me: Identity) -> Any:
    return await town.runtime.runs(who=me)


async def _kept_runs(town: Town, me: Identity) -> Any:
    wanted = RunQuery(tenant=me.tenant_id, user=me.user_id, session=me.session_id)
    return town.storage and (await town.storage.store.runs(wanted)).rows


async def _controls(town: Town, me: Identity) -> Any:
    return town.runtime.control_history(who=me)


OPERATIONS: dict[str, Operation] = {
    "state.save": Operation(_save),
    "state.load": Operation(_load),
    "state.load_by_event_id": Operation(_load_by_event),
    "bus.subscribe": Operation(_told),
    "bus.replay": Operation(_replayed),
    "events.query": Operation(_queried),
    "events.aggregate": Operation(_counted),
    "events.log": Operation(_logged),
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
"""By name, everything that a principal can do."""
