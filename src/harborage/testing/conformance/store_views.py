"""Scenarios of the store suite: lists, counts and pages, each within the identity that they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from harborage.store import (
    LIVE,
    Change,
    Commit,
    EventCountQuery,
    EventQuery,
    NewEvent,
    NewPause,
    Orphan,
    RunQuery,
    Status,
    Store,
)
from harborage.testing.conformance.checks import expect_equal
from harborage.testing.conformance.store_bench import ME, OTHERS, StoreBench, finish, row, start, step

MINE = RunQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id)


async def found(store: Store, query: RunQuery) -> list[str]:
    """Return the ids of the runs that a query finds."""
    return [found.run_id for found in (await store.runs(query)).rows]


async def populate(bench: StoreBench) -> None:
    """Runs of four sessions: of each one live, one complete and one failed; a moment lies between any two."""
    store = bench.store
    await store.join("one")
    for number, who in enumerate((ME, *OTHERS)):
        for name, status in (("live", None), ("done", Status.COMPLETE), ("bad", Status.FAILED)):
            run_id = f"{name}{number}"
            lease = await start(
                store, run_id, who=who, worker="one", agent=f"agent{number % 2}", kind="foreground", goal=f"Say {name}"
            )
            if status is not None:
                await store.commit(step(lease, 1, b"end", change=Change(status=status, reason="code")))
            bench.later(1)


async def lists_stay_within_their_identity(bench: StoreBench) -> None:
    """Each part of an identity that a query names narrows it; newest come first."""
    await populate(bench)
    store = bench.store
    expect_equal(await found(store, MINE), ["bad0", "done0", "live0"], "of a session")
    expect_equal(
        await found(store, RunQuery(tenant=ME.tenant_id, user=ME.user_id)),
        ["bad3", "done3", "live3", "bad0", "done0", "live0"],
        "of a user",
    )
    expect_equal(len(await found(store, RunQuery(tenant=ME.tenant_id))), 9, "of a tenant")
    expect_equal(len(await found(store, RunQuery())), 12, "of all tenants")
    unknown = RunQuery(tenant=ME.tenant_id, user=ME.user_id, session="unknown")
    expect_equal(await found(store, unknown), [], "of a session that is not there")


def narrow() -> Iterator[tuple[RunQuery, list[str]]]:
    """Yield queries within one session, and the runs they find."""
    yield replace(MINE, statuses=(Status.FAILED,)), ["bad0"]
    yield replace(MINE, statuses=(Status.COMPLETE, Status.PENDING)), ["done0", "live0"]
    yield replace(MINE, reasons=("code",)), ["bad0"]
    yield replace(MINE, reasons=("other",)), []
    yield replace(MINE, kinds=("background",)), []
    yield replace(MINE, agent="agent1"), []
    yield replace(MINE, agent="agent0", text="SAY D"), ["done0"]
    yield replace(MINE, run_ids=("live0", "live1")), ["live0"]
    yield RunQuery(tenant=ME.tenant_id, statuses=(Status.PENDING,), oldest_first=True), ["live0", "live2", "live3"]
    yield RunQuery(tenant=ME.tenant_id, user=ME.user_id, statuses=(Status.FAILED,)), ["bad3", "bad0"]
    yield RunQuery(tenant=ME.tenant_id, agent="agent1"), ["bad3", "done3", "live3"]


async def filters_narrow_a_list(bench: StoreBench) -> None:
    """A list finds what fits all of its filters, and a count says how many those are."""
    await populate(bench)
    for query, wanted in narrow():
        expect_equal(await found(bench.store, query), wanted, f"{query}")
        counts = await bench.store.count_runs(query)
        expect_equal((counts.total, counts.is_capped), (len(wanted), False), f"the count of {query}")
    made = (await row(bench.store, "done0")).created_at
    expect_equal(await found(bench.store, replace(MINE, since=made)), ["bad0", "done0"], "since")
    expect_equal(await found(bench.store, replace(MINE, until=made)), ["done0", "live0"], "until")
    by_status = (await bench.store.count_runs(RunQuery(tenant=ME.tenant_id))).by_status
    expect_equal((by_status[Status.PENDING], by_status[Status.CANCELLED]), (3, 0), "counts by status")


async def pages_go_through_a_list_once(bench: StoreBench) -> None:
    """Page by page a list gives every run once, in its order, also while runs are added."""
    await populate(bench)
    store = bench.store
    for oldest_first in (False, True):
        query = RunQuery(tenant=ME.tenant_id, oldest_first=oldest_first, limit=4)
        whole = await found(store, replace(query, limit=100))
        seen: list[str] = []
        while True:
            page = await store.runs(query)
            seen += [one.run_id for one in page.rows]
            if page.cursor is None:
                break
            query = replace(query, after=page.cursor)
            if not oldest_first:
                await start(store, f"more{len(seen)}")
        expect_equal(seen, whole, f"the pages, oldest first: {oldest_first}")


async def runs_below_others_are_found(bench: StoreBench) -> None:
    """By one parent, or by several at once, each run once; with other filters, too."""
    store = bench.store
    for run_id, parent in (("a", "p"), ("b", "q"), ("c", "p"), ("d", "r"), ("e", "")):
        await start(store, run_id, parent=parent)
        bench.later(1)
    await start(store, "foreign", who=OTHERS[0], parent="p")
    both = replace(MINE, parents=("p", "q", "unknown"), oldest_first=True)
    expect_equal(await found(store, both), ["a", "b", "c"], "below two runs")
    expect_equal(await found(store, replace(MINE, parent="p")), ["c", "a"], "below one run")
    expect_equal(await found(store, RunQuery(parents=("p", "p"))), ["foreign", "c", "a"], "of any session")
    expect_equal(await found(store, replace(both, run_ids=("b", "d"))), ["b"], "among some runs")
    expect_equal(await found(store, replace(both, parent="q")), ["b"], "below the one and among several")
    await store.join("one")
    await finish(store, (await store.claim("one", limit=1))[0].row.lease)
    expect_equal(await found(store, replace(both, statuses=LIVE)), ["b", "c"], "those that have not ended")
    pages = await store.runs(replace(both, limit=2))
    rest = await store.runs(replace(both, limit=2, after=pages.cursor))
    expect_equal([row.run_id for row in (*pages.rows, *rest.rows)], ["a", "b", "c"], "page by page")


async def events_are_filtered(bench: StoreBench) -> None:
    """Events of a session, a tenant, a run, a type and a time."""
    store = bench.store
    for number, who in enumerate((ME, *OTHERS)):
        events = tuple(NewEvent(type=kind, data=b"{}", run_id=f"r{number}", at=number * 100 + 1) for kind in "ab")
        await store.commit(Commit(who=who, events=events))

    async def runs(query: EventQuery) -> list[str]:
        return [f"{event.type}{event.run_id}" for event in await store.events(query)]

    expect_equal(await runs(EventQuery(tenant=ME.tenant_id, types=("a",))), ["ar0", "ar2", "ar3"], "of a tenant")
    mine = EventQuery(tenant=ME.tenant_id, user=ME.user_id, session=ME.session_id)
    expect_equal(await runs(mine), ["ar0", "br0"], "of a session")
    expect_equal(await runs(replace(mine, run_ids=("r1",))), [], "of a run that is not in it")
    expect_equal(await runs(EventQuery(run_ids=("r1",))), ["ar1", "br1"], "of a run")
    expect_equal(await runs(EventQuery(since=101, until=201)), ["ar1", "br1", "ar2", "br2"], "of a time")


async def events_are_counted(bench: StoreBench) -> None:
    """By slot and type, within sessions, runs, types and a time whose end is not included."""
    store = bench.store
    for who in (ME, *OTHERS):
        events = tuple(
            NewEvent(type=kind, data=b"{}", run_id=kind * 2, at=at)
            for at in (1_000, 1_001, 1_999, 2_000)
            for kind in "ab"
        )
        await store.commit(Commit(who=who, events=events))
    mine = EventCountQuery(
        tenants=(ME.tenant_id,),
        users=(ME.user_id, "nobody"),
        sessions=(ME.session_id,),
        since=1_001,
        until=2_001,
        start=1_000_000,
        bucket=500_000,
    )

    async def counts(query: EventCountQuery) -> list[tuple[int, str, int]]:
        return [(slot, kind, events) for slot, kind, events in await store.count_events(query)]

    each = [(0, "a", 1), (0, "b", 1), (1, "a", 1), (1, "b", 1), (2, "a", 1), (2, "b", 1)]
    expect_equal(await counts(mine), each, "of a session")
    expect_equal(await counts(replace(mine, until=2_000)), each[:4], "without its end")
    expect_equal(await counts(replace(mine, types=("b",), run_ids=("bb", "x"))), each[1::2], "of a type and a run")
    expect_equal(await counts(replace(mine, run_ids=("aa",), types=("b",))), [], "of a run that has none of the type")
    expect_equal(await counts(replace(mine, bucket=10**15)), [(0, "a", 3), (0, "b", 3)], "in one slot")
    everyone = (ME, *OTHERS)
    wide = replace(
        mine,
        tenants=tuple(who.tenant_id for who in everyone),
        users=tuple(who.user_id for who in everyone),
        sessions=tuple(who.session_id for who in everyone),
        bucket=10**15,
    )
    expect_equal(await counts(wide), [(0, "a", 3 * len(everyone)), (0, "b", 3 * len(everyone))], "of all")
    expect_equal(await counts(replace(wide, users=("nobody",))), [], "of a user that is not there")
    told = (
        (b'{"of":"\xc3\xa9","x":1}', "task.a"),
        (b'{"of":"\xc3\xa9e"}', "task.a"),
        (b'{"of":"\xc3\xa9"}', "a"),
        (b"{", "task.a"),
    )
    inside = tuple(NewEvent(type=kind, data=data, at=5_000) for data, kind in told)
    await store.commit(Commit(who=ME, events=inside))
    late = replace(mine, since=5_000, until=5_001, bucket=10**15, run_ids=("x",), task_heads=('{"of":"é"', '{"of":"%"'))
    expect_equal(await counts(late), [(0, "task.a", 1)], "of a task that is named in its data alone")


async def orphans_are_found(bench: StoreBench) -> None:
    """A paused run without an open pause, and a live child of a run that has ended, are found; others are not."""
    store = bench.store
    await store.join("one")
    park = Change(status=Status.PAUSED, release=True)
    for run_id, opens in (("asks", True), ("stuck", False)):
        lease = await start(store, run_id, worker="one")
        pauses = (NewPause(token="t", run_id=run_id, who=ME, reason="await_input"),) if opens else ()
        await store.commit(step(lease, 1, b"p", opens=pauses, change=park))
    parent = await start(store, "parent", worker="one")
    await start(store, "child", parent="parent", root="parent")
    await start(store, "free", parent="parent", root="parent", is_cascading=False)
    expect_equal(
        await store.orphans(), [Orphan(kind="paused_for_nothing", subject="stuck", run_id="stuck")], "while it lives"
    )
    await finish(store, parent)
    kinds = {(one.kind, one.subject) for one in await store.orphans()}
    expect_equal(kinds, {("paused_for_nothing", "stuck"), ("parent_ended", "child")}, "after the parent's end")


SCENARIOS = (
    lists_stay_within_their_identity,
    filters_narrow_a_list,
    pages_go_through_a_list_once,
    runs_below_others_are_found,
    events_are_filtered,
    events_are_counted,
    orphans_are_found,
)
