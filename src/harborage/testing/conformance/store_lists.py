"""Scenarios of the store suite: lists as people see them, by shown status, by owner, by words; sessions with totals."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from harborage.identity import Identity
from harborage.store import (
    Change,
    Commit,
    EventQuery,
    NewEvent,
    NewPause,
    Owner,
    RunQuery,
    RunTotals,
    SessionListQuery,
    SessionSort,
    SessionState,
    SessionTotals,
    SettlePause,
    Status,
    Store,
)
from harborage.store.rows import PauseStatus
from harborage.testing.conformance.checks import expect_equal
from harborage.testing.conformance.store_bench import ME, OTHERS, StoreBench, start, step

MINE = RunQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id)


async def populate(bench: StoreBench) -> None:
    """One run of each kind in one session: new, at work, parked, blocked, asking two things, and three that ended."""
    store = bench.store
    await store.join("one")
    await start(store, "new", description="Buy Tea")
    for name in ("works", "parks", "blocks", "asks", "waits", "done", "bad", "crash"):
        bench.later(1)
        lease = await start(store, name, worker="one", status=Status.RUNNING, kind="background", goal=f"Goal of {name}")
        match name:
            case "parks":
                change = Change(release=True, awaits="works")
            case "blocks":
                change = Change(release=True, blocked="other code")
            case "done":
                change = Change(status=Status.COMPLETE, tokens=7, cost=9_000)
            case "bad":
                change = Change(status=Status.FAILED, reason="code", tokens=3, cost=6_000)
            case "crash":
                change = Change(status=Status.FAILED, reason="ValueError: no such thing")
            case _:
                change = Change(tokens=1, cost=1)
        await store.commit(step(lease, 1, b"step", change=change))
    opens = (
        NewPause(token="t1", run_id="asks", who=ME, reason="approval_required"),
        NewPause(token="t2", run_id="waits", who=ME, reason="await_input"),
        NewPause(token="t3", run_id="works", who=ME, reason="await_input"),
    )
    await store.commit(Commit(opens=opens))
    await store.commit(Commit(settles=(SettlePause(token="t3", status=PauseStatus.ANSWERED),)))
    await start(store, "foreign", who=OTHERS[1])


async def found(store: Store, query: RunQuery) -> list[str]:
    """The ids of the runs that a query finds, in order of their names."""
    return sorted(row.run_id for row in (await store.runs(query)).rows)


def shown() -> Iterator[tuple[RunQuery, list[str]]]:
    """Yield queries within one session, and the runs they find."""
    yield replace(MINE, shown=(Status.PAUSED,)), ["asks", "blocks", "waits"]
    yield replace(MINE, shown=(Status.RUNNING,)), ["parks", "works"]
    yield replace(MINE, shown=(Status.PENDING,)), ["new"]
    yield replace(MINE, shown=(Status.PENDING, Status.FAILED)), ["bad", "crash", "new"]
    yield replace(MINE, shown=(Status.COMPLETE,)), ["done"]
    yield replace(MINE, shown=(Status.CANCELLED,)), []
    yield RunQuery(tenant=ME.tenant_id, shown=(Status.RUNNING, Status.COMPLETE)), ["done", "parks", "works"]
    yield RunQuery(tenant=ME.tenant_id, user=ME.user_id, shown=(Status.PAUSED,)), ["asks", "blocks", "waits"]
    yield RunQuery(shown=(Status.PENDING,)), ["foreign", "new"]
    yield replace(MINE, has_approval=True), ["asks"]
    yield replace(MINE, has_approval=False, shown=(Status.PAUSED,)), ["blocks", "waits"]
    yield replace(MINE, reasons=("other",), or_crashed=True), ["crash"]
    yield replace(MINE, reasons=("code",), or_crashed=True), ["bad", "crash"]
    yield replace(MINE, reasons=("ValueError",)), []
    yield replace(MINE, words="PAUSED"), ["asks", "blocks", "waits"]
    yield replace(MINE, words="background", shown=(Status.FAILED,)), ["bad", "crash"]
    yield replace(MINE, words="buy tea"), ["new"]
    yield replace(MINE, words="goal of d"), ["done"]
    yield replace(MINE, words="orks"), ["works"]
    yield RunQuery(tenant=ME.tenant_id, owners=(Owner(ME.tenant_id, OTHERS[1].user_id),)), ["foreign"]
    yield RunQuery(tenant=ME.tenant_id, owners=(Owner("other"), Owner(ME.tenant_id, "", OTHERS[1].session_id)),
                   shown=(Status.PENDING,)), ["foreign", "new"]  # fmt: skip
    yield RunQuery(owners=(Owner(ME.tenant_id, ME.user_id, "unknown"),)), []
    yield RunQuery(owners=(Owner(OTHERS[0].tenant_id),)), []


async def runs_are_found_as_people_see_them(bench: StoreBench) -> None:
    """A run that waits for a person or is blocked is paused, any other that has begun runs; counts say the same."""
    await populate(bench)
    for query, wanted in shown():
        expect_equal(await found(bench.store, query), wanted, f"{query}")
        expect_equal((await bench.store.count_runs(query)).total, len(wanted), f"the count of {query}")


async def what_runs_used_is_added_up(bench: StoreBench) -> None:
    """Tokens and cost of a commit are added to its run, and runs are added up by a query."""
    await populate(bench)
    store = bench.store
    expect_equal(await store.total_runs(MINE), RunTotals(runs=9, tokens=13, cost=15_003), "of a session")
    bad = replace(MINE, statuses=(Status.FAILED, Status.CANCELLED))
    expect_equal(await store.total_runs(bad), RunTotals(runs=2, tokens=3, cost=6_000), "of failed runs")
    expect_equal(await store.total_runs(RunQuery(tenant="unknown")), RunTotals(), "of a tenant that is not there")


async def events_are_found_by_text(bench: StoreBench) -> None:
    """Text is looked for in type and run, whatever the case; a count is that of all pages."""
    store = bench.store
    for run_id in ("abc", "abd", "x"):
        events = (
            NewEvent(type="task.spawned", run_id=run_id, data=b"{}"),
            NewEvent(type="tool.invoked", run_id=run_id, data=b"{}"),
        )
        await store.commit(Commit(who=ME, events=events))
    mine = EventQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id, limit=2)
    for query, count in (
        (mine, 6),
        (replace(mine, text="AB"), 4),
        (replace(mine, text="tool."), 3),
        (replace(mine, text="tool.", run_ids=("abc", "x"), types=("tool.invoked",)), 2),
        (replace(mine, text="nothing"), 0),
        (replace(mine, session="unknown"), 0),
        (EventQuery(tenant=ME.tenant_id), 6),
    ):
        expect_equal(await store.total_events(query), count, f"the count of {query}")
        expect_equal(len(await store.events(replace(query, limit=100))), count, f"the events of {query}")


async def populate_sessions(bench: StoreBench) -> list[Identity]:
    """Four sessions of one user, of which two are closed, one of another user, and one that was never opened."""
    store = bench.store
    await store.join("one")
    owners = [Identity("tenant", "user", name) for name in "abcd"]
    for number, who in enumerate(owners):
        await store.open_session(who)
        bench.later(1)
        lease = await start(store, f"r{number}", who=who, worker="one", agent=f"agent{number % 2}")
        status = Status.FAILED if number == 1 else Status.COMPLETE
        change = Change(status=status, cost=(0, 50_000, 20_000, 20_000)[number], tokens=number)
        await store.commit(
            step(lease, 1, b"end", change=change, who=who, events=(NewEvent(type="task.completed", data=b"{}"),))
        )
        await start(store, f"child{number}", who=who, parent=f"r{number}", agent="child")
    await store.commit(Commit(opens=(NewPause(token="t", run_id="r2", who=owners[2], reason="await_input"),)))
    bench.later(1)
    await store.close_session(owners[3], "failed")
    await store.close_session(owners[0], "idle")
    await store.open_session(Identity("tenant", "user2", "a"))
    await start(store, "stray", who=Identity("tenant", "user", "never"))
    return owners


async def sessions_come_with_their_totals(bench: StoreBench) -> None:
    """A session says how many runs and events it had, what they used, and whether one failed or asks something."""
    owners = await populate_sessions(bench)
    mine = SessionListQuery(tenants=("tenant",), users=("user",), sort=SessionSort.STARTED_ASC)
    rows = await bench.store.list_sessions(mine)
    expect_equal([row.row.who for row in rows], owners, "the sessions")
    totals = [
        (row.agent, row.runs, row.row.events, row.tokens, row.cents, row.has_pause, row.has_failed, row.state)
        for row in rows
    ]
    wanted = [
        ("agent0", 2, 1, 0, 0, False, False, SessionState.COMPLETED),
        ("agent1", 2, 1, 1, 5, False, True, SessionState.RUNNING),
        ("agent0", 2, 1, 2, 2, True, False, SessionState.RUNNING),
        ("agent1", 2, 1, 3, 2, False, False, SessionState.FAILED),
    ]
    expect_equal(totals, wanted, "their totals")


def narrow_sessions(rows: list[SessionTotals]) -> Iterator[tuple[dict[str, object], str]]:
    """Yield what is asked for, and the sessions that it finds, last opened first."""
    yield {}, "dcba"
    yield {"states": (SessionState.RUNNING,)}, "cb"
    yield {"states": (SessionState.COMPLETED, SessionState.FAILED)}, "da"
    yield {"agents": ("agent1", "child")}, "db"
    yield {"sessions": ("a", "c", "never")}, "ca"
    yield {"has_pause": True}, "c"
    yield {"has_pause": False, "has_failed": False}, "da"
    yield {"has_failed": True}, "b"
    yield {"cost_above": 2}, "b"
    yield {"cost_above": 1}, "dcb"
    yield {"text": "AGENT1"}, "db"
    yield {"words": "idle"}, "a"
    yield {"words": "FAIL"}, "d"
    yield {"words": "user"}, "dcba"
    yield {"since": rows[1].row.opened_at}, "dcb"
    yield {"until": rows[1].row.opened_at}, "ba"
    yield {"sort": SessionSort.COST_DESC}, "bcda"
    yield {"sort": SessionSort.STARTED_ASC}, "abcd"
    yield {"sort": SessionSort.LAST_ACTIVITY_DESC}, "adcb"
    yield {"users": (), "tenants": ("other",)}, ""
    yield {"users": ("user", "user2"), "sessions": ("a",)}, "aa"
    yield {"users": (), "sessions": ("a", "b")}, "aba"


async def sessions_are_filtered_sorted_and_paged(bench: StoreBench) -> None:
    """Each filter narrows, each order holds, and page by page every session comes once; a count is of all pages."""
    await populate_sessions(bench)
    store = bench.store
    mine = SessionListQuery(tenants=("tenant",), users=("user",))
    rows = await store.list_sessions(replace(mine, sort=SessionSort.STARTED_ASC))
    for asked, wanted in narrow_sessions(rows):
        query = replace(mine, **asked)
        expect_equal(await store.count_sessions(query), len(wanted), f"the count of {asked}")
        for size in (1, 3, 100):
            expect_equal(await _paged(store, query, size), wanted, f"the sessions of {asked}, {size} a page")


async def _paged(store: Store, query: SessionListQuery, size: int) -> str:
    seen = ""
    query = replace(query, limit=size)
    while True:
        rows = await store.list_sessions(query)
        seen += "".join(row.row.who.session_id for row in rows)
        if len(rows) < size:
            return seen
        query = replace(query, after=rows[-1].place(query.sort))


SCENARIOS = (
    runs_are_found_as_people_see_them,
    what_runs_used_is_added_up,
    events_are_found_by_text,
    sessions_come_with_their_totals,
    sessions_are_filtered_sorted_and_paged,
)
