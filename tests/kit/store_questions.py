"""Everything that can be asked of a store of record and done to it, over tables that are already filled.

The rows are of `TENANTS` tenants with `USERS` users each, who have two sessions each; run number N is `r{N}`, and
belongs to the tenant, user and session that its number names in this mixed radix.
"""

from __future__ import annotations

import hashlib
from typing import Any

from msgspec.structs import replace

from harborage.identity import Identity
from harborage.store import (
    LIVE,
    Change,
    ChangeGroup,
    Commit,
    DecidePatch,
    DropAnswer,
    EventCountQuery,
    EventQuery,
    GroupQuery,
    GroupStatus,
    Guard,
    Move,
    NewEvent,
    NewGroup,
    NewPause,
    NewRun,
    Owner,
    PauseQuery,
    PauseStatus,
    RunQuery,
    SendControl,
    SessionListQuery,
    SessionPlace,
    SessionQuery,
    SessionSort,
    SessionState,
    SettlePause,
    Status,
    Store,
)
from harborage.store.errors import CommitRefusedError, StoreError
from harborage.store.examining import BEGINNING, Part
from harborage.store.tags import marks_of
from tests.kit.audited import JUDGES

TENANTS = 40
USERS = 10
ME = Identity("t1", "u1", "s1")
NEWCOMER = Identity("new", "new", "new")
RUNS = 20_000

MINE = RunQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id)
OF_USER = RunQuery(tenant=ME.tenant_id, user=ME.user_id)
OF_TENANT = RunQuery(tenant=ME.tenant_id)

BEGINNINGS = (
    MINE,
    OF_USER,
    OF_TENANT,
    RunQuery(),
    RunQuery(run_ids=("r1", "r2", "r3")),
    RunQuery(only_blocked=True),
    RunQuery(parent="r1"),
    RunQuery(parents=("r1", "r2")),
    RunQuery(run_ids=("r3",), parents=("r1", "r2")),
    replace(MINE, group="g1"),
    RunQuery(group="g1"),
    replace(OF_TENANT, agent="a1"),
    replace(OF_TENANT, statuses=(Status.PAUSED, Status.RUNNING)),
    replace(OF_USER, statuses=(Status.FAILED, Status.CANCELLED)),
    RunQuery(statuses=(Status.PAUSED,)),
)
NARROWER: tuple[dict[str, Any], ...] = (
    {},
    {"oldest_first": True},
    {"after": (1_000_000, 1_000)},
    {"statuses": (Status.PAUSED,)},
    {"kinds": ("foreground",), "reasons": ("code",), "statuses": (Status.FAILED,)},
    {"agent": "a1", "parent": "r1", "root": "r1"},
    {"since": 1_000_000, "until": 2_000_000, "longer_than": 5},
    {"text": "goal"},
    {"text": "goal", "oldest_first": True},
    {"statuses": (Status.COMPLETE, Status.CANCELLED)},
    {"session": "s1"},
    {"tags": marks_of({"shop": "porto"})},
    {"is_whole": True},
    {"shown": (Status.PAUSED, Status.COMPLETE)},
    {"shown": (Status.RUNNING,), "has_approval": True},
    {"has_approval": False},
    {"reasons": ("code",), "or_crashed": True},
    {"owners": (Owner("t1", "u1"), Owner("t1", "", "s1"))},
    {"words": "paused"},
    {"tenant": ME.tenant_id, "user": ME.user_id, "group": "g1", "only_blocked": True, "run_ids": ("r1",)},
)
PAUSES = (
    PauseQuery(tokens=("p1", "p2")),
    PauseQuery(run_ids=("r10", "r20")),
    PauseQuery(tenant=ME.tenant_id, user=ME.user_id),
    PauseQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id, run_ids=("r10",)),
    PauseQuery(tenant=ME.tenant_id, statuses=(PauseStatus.OPEN,)),
    PauseQuery(tenant=ME.tenant_id, session=ME.session_id, statuses=(PauseStatus.OPEN,)),
    PauseQuery(statuses=(PauseStatus.OPEN,)),
    PauseQuery(due=2_000_000),
    PauseQuery(due=2_000_000, tokens=("p1",)),
    PauseQuery(tenant=ME.tenant_id, reasons=("await_input",), since=1, until=2_000_000),
    PauseQuery(statuses=(PauseStatus.OPEN, PauseStatus.APPROVED), after=(1_000_000, 1_000)),
)
LIVE_GROUPS = (GroupStatus.OPEN, GroupStatus.SEALED, GroupStatus.ENDING)
GROUPS = (
    GroupQuery(),
    GroupQuery(after=(1_000_000, 1_000)),
    GroupQuery(group_ids=("g1", "g2")),
    GroupQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id),
    GroupQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id, group_ids=("g1",)),
    GroupQuery(tenant=ME.tenant_id, user=ME.user_id),
    GroupQuery(tenant=ME.tenant_id),
    GroupQuery(statuses=LIVE_GROUPS, only_empty=True),
)
EVENTS = (
    EventQuery(),
    EventQuery(newest_first=True),
    EventQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id, after=4096),
    EventQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id, newest_first=True),
    EventQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id, run_ids=("r1",), types=("a",)),
    EventQuery(tenant=ME.tenant_id, newest_first=True, since=1, until=2_000_000),
    EventQuery(tenant=ME.tenant_id, user=ME.user_id),
    EventQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id, text="task", newest_first=True),
)
COUNTED = EventCountQuery(
    tenants=(ME.tenant_id, "t2"),
    users=(ME.user_id, "u2"),
    sessions=(ME.session_id, "s0"),
    run_ids=("r1", "r2"),
    types=("a", "b"),
    since=1,
    until=2_000_000,
    start=0,
    bucket=1_000_000,
)
SESSIONS = (
    SessionQuery(),
    SessionQuery(tenant=ME.tenant_id, seen_since=1, seen_until=2_000_000_000_000_000),
    SessionQuery(tenant=ME.tenant_id, user=ME.user_id, include_closed=True),
    SessionQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id),
    SessionQuery(only_opened=True),
    SessionQuery(only_opened=True, seen_before=1_000_000, opened_before=1_000_000),
)
MY_SESSIONS = SessionListQuery(tenants=(ME.tenant_id,), users=(ME.user_id,))
LISTED: tuple[dict[str, Any], ...] = (
    {"tenants": ("t1", "t2"), "users": ("u1", "u2"), "sessions": ("s1",)},
    {"states": (SessionState.RUNNING,), "agents": ("a1",), "since": 1, "until": 2_000_000, "cost_above": 5},
    {"has_pause": True, "has_failed": False},
    {"has_pause": False, "has_failed": True},
    {"text": "s1"},
    {"words": "s1"},
    *({"sort": sort} for sort in SessionSort),
    *({"sort": sort, "after": SessionPlace(1, "s", 1)} for sort in SessionSort),
)


async def ask_everything(store: Store) -> None:
    """Call every method of the port with every kind of query and every part of a commit."""
    await _read(store)
    await _write(store)
    await _keep_up(store)


async def _read(store: Store) -> None:
    for beginning in BEGINNINGS:
        for more in NARROWER:
            await store.runs(replace(beginning, **more))
        if beginning != RunQuery():  # how many there are of all is a question about all of them
            await store.count_runs(beginning)
    await store.runs(RunQuery(statuses=LIVE))
    await store.unread("one")
    for pauses in PAUSES:
        await store.pauses(pauses)
        if pauses.after is None:
            await store.count_pauses(pauses)
    for groups in GROUPS:
        await store.groups(groups)
    for events in EVENTS:
        await store.events(events)
    await store.count_events(COUNTED)
    for sessions in SESSIONS:
        await store.sessions(sessions)
    for mine in (MINE, OF_USER, replace(OF_TENANT, statuses=LIVE)):
        await store.total_runs(mine)
    await store.total_events(EVENTS[-1])
    for fields in LISTED:
        await store.list_sessions(replace(MY_SESSIONS, **fields))
        await store.count_sessions(replace(MY_SESSIONS, **fields))
    await store.entries("r1")
    await store.controls("r1", after=1)
    await store.controls_of({"r1": 1, "r2": 0})
    await store.was_sent("r1", "event")
    for asked in (store.body("r1", "0"), store.group("g1", who=ME)):
        await _may_be_refused(asked)
    await store.patch("patch", who=ME)
    await store.next_due(agents=["a1"])
    await store.orphans()
    named = iter([("0",)])  # one entry names a body
    judges = replace(JUDGES, bodies=lambda _: next(named, ()))
    for part in Part:
        await store.examine(part, judges, BEGINNING)


async def _write(store: Store) -> None:
    await store.join("one")
    body = b"body" * 100
    digest = hashlib.sha256(body).hexdigest()
    start = NewRun(
        run_id="new",
        who=ME,
        entries=(b"1",),
        worker="one",
        parent="r1",
        root="r1",
        group="new",
        key="k",
        max_children=9,
        max_tree=9,
    )
    event = NewEvent(type="a", data=b"{}", run_id="new")
    opened = NewGroup(group_id="new", who=ME)
    await store.commit(Commit(groups=(opened,), starts=(start,), who=ME, events=(event,)))
    await _may_be_refused(store.commit(Commit(starts=(replace(start, run_id="other"),))))
    await store.commit(Commit(starts=(NewRun(run_id="root", who=ME),)))
    asks = NewPause(token="new", run_id="new", who=ME, reason="await_input")
    sends = SendControl(run_id="new", event_id="e", type="PAUSE", data=b"{}", limit=5)
    await store.commit(
        Commit(opens=(asks,), sends=(sends,), wakes=("r2",), patches=(DecidePatch(patch_id="x", who=ME),))
    )
    await store.commit(Commit(sends=(replace(sends, limit=1),), who=NEWCOMER, events=(event,)))
    answer = replace(sends, event_id="answer", answers="new")
    await store.commit(Commit(sends=(answer,)))
    await store.commit(Commit(drops=(DropAnswer(token="new", event_id="answer"),)))
    await store.unread("one")
    controls = await store.controls("new")
    (row,) = (await store.runs(RunQuery(run_ids=("new",)))).rows
    step = Commit(
        guard=Guard(lease=row.lease, position=1),
        entries=(b"2",),
        consumed=tuple(control.number for control in controls),
        bodies={digest: body},
        who=ME,
        events=(event, event),
    )
    await store.commit(step)
    await store.commit(step)
    await store.commit(Commit(guard=Guard(lease=row.lease, position=2), change=Change(awaits="")))
    waits = Change(status=Status.PAUSED, release=True, awaits="r3")
    await _may_be_refused(store.commit(Commit(guard=Guard(lease=row.lease, position=2), change=waits)))
    noted = Move(run_id="new", expected=(Status.PENDING, Status.PAUSED), awaits="r5")
    await store.commit(Commit(moves=(noted,)))
    settle = SettlePause(token="new", status=PauseStatus.APPROVED)
    await store.commit(
        Commit(settles=(settle,), take="one", patches=(DecidePatch(patch_id="x", who=ME, decision="y"),))
    )
    (row,) = (await store.runs(RunQuery(run_ids=("new",)))).rows
    for status in (GroupStatus.SEALED, GroupStatus.CANCELLED):
        change = ChangeGroup(group_id="new", who=ME, expected=(GroupStatus.OPEN, GroupStatus.SEALED), status=status)
        await store.commit(Commit(groups=(change,)))
    if not row.owner:
        (claimed,) = [one for one in await store.claim("one", limit=100_000) if one.row.run_id == "new"]
        row = claimed.row
    await store.commit(
        Commit(guard=Guard(lease=row.lease, position=2), entries=(b"3",), change=Change(status=Status.COMPLETE))
    )
    move = Move(run_id="r5", expected=tuple(Status), status=Status.FAILED, entries=(b"x",))
    await _may_be_refused(store.commit(Commit(moves=(move,))))


async def _keep_up(store: Store) -> None:
    await store.claim("one", agents=["a1"], limit=5)
    await store.unread("one")
    await store.beat("one")
    await store.look("one")
    await store.leave("one")
    await store.unblock(["r1", "r2"])
    await store.open_session(ME, context=b"{}")
    await store.touch_session(ME, before=2_000_000_000_000_000)
    await store.close_session(ME, "done", seen_at=1)
    await store.close_session(ME, "done")
    await store.drop_pauses(5)
    assert await store.delete(["new", "r1", "r2", "r3"]) > 0


async def _may_be_refused(asked: Any) -> None:
    try:
        await asked
    except (CommitRefusedError, StoreError):
        return
