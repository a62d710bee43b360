"""What a call costs does not grow with what is kept: read from SQLite's own counters and plans, never from a
stopwatch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Any

import apsw
import pytest

from harborage.identity import Identity
from harborage.state import sqlite as beside
from harborage.store import (
    Change,
    ChangeGroup,
    Commit,
    EventQuery,
    GroupQuery,
    GroupStatus,
    Lease,
    Move,
    NewEvent,
    NewGroup,
    NewPause,
    PauseQuery,
    PauseStatus,
    RunQuery,
    SettlePause,
    Status,
    Store,
)
from harborage.store.sqlite import Database, SQLiteStore
from harborage.store.sqlite.connection import statements
from harborage.testing.conformance.store_bench import ME, claim, finish, send, start, step
from tests.kit.tables import each_row

OpenDatabase = Callable[..., Awaitable[Database]]

# The statements of the stores beside the store of record; its own are looked at over tables that are filled.
EVERY = {
    **{f"records.{name}": sql for name, sql in statements("records", beside.__name__).items()},
    **{f"schema.{name}": sql for name, sql in statements("schema").items()},
}
# Tables of a row for each migration and each counter.
SMALL = ("harborage_migrations", "harborage_counters", "sqlite_schema")


@pytest.fixture
async def database(open_database: OpenDatabase) -> Database:
    """A database."""
    return await open_database()


@pytest.fixture
async def store(database: Database) -> Store:
    """The store over it."""
    return SQLiteStore(database)


def scans(plan: list[str]) -> list[str]:
    """The steps of a plan that look at all rows of a table or an index, or sort."""
    found = [step for step in plan if re.match(r"SCAN (?!.*VIRTUAL)|USE TEMP B-TREE", step)]
    return [step for step in found if not any(name in step for name in SMALL) and "CONSTANT ROW" not in step]


@each_row("name", EVERY)
async def test_every_statement_finds_its_rows_by_an_index(database: Database, name: str) -> None:
    """No statement scans a table that grows."""
    sql = EVERY[name]
    if name == "schema.create_migrations":
        return
    names = dict.fromkeys(re.findall(r":(\w+)", sql))
    plan = await database.read(lambda tx: list(tx.execute(f"EXPLAIN QUERY PLAN {sql}", tuple("" for _ in names))))
    assert scans([step for *_, step in plan]) == []


class Steps:
    """Counts the steps of SQLite's machine, and the rows it looked at in vain."""

    def __init__(self) -> None:
        self.taken = 0

    def count(self, event: dict[str, Any]) -> None:
        """What SQLite calls after each statement."""
        self.taken += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    async def of(self, call: Awaitable[object]) -> int:
        """The steps that a call takes."""
        self.taken = 0
        await call
        return self.taken


@pytest.fixture
async def steps(database: Database) -> Steps:
    """Counts what both connections do."""
    counted = Steps()
    for ask in (database.read, database.write):
        await ask(lambda tx: tx.connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, counted.count))
    return counted


async def lengthen(store: Store, lease: Lease, position: int, entries: int) -> int:
    """Add entries and events to a run; how many entries it has then."""
    events = tuple(NewEvent(type="e", data=b"x", run_id=lease.run_id) for _ in range(500))
    for _ in range(entries // 500):
        await store.commit(step(lease, position, *([b"x" * 50] * 500), who=ME, events=events))
        position += 500
    return position


async def test_a_step_costs_the_same_at_any_length(store: Store, steps: Steps) -> None:
    """A step with entries, events and a body takes the same steps in a run of ten entries as in one of ten thousand."""
    lease = await start(store, "r", worker="worker")
    body = b"b" * 9000
    more: dict[str, Any] = {
        "bodies": {hashlib.sha256(body).hexdigest(): body},
        "change": Change(progress=True, tool_calls=1),
        "who": ME,
        "events": (NewEvent(type="e", data=b"x"),),
    }
    await store.commit(step(lease, 1, b"one", b"two", **more))
    early = await steps.of(store.commit(step(lease, 3, b"one", b"two", **more)))
    position = await lengthen(store, lease, 5, 10_000)
    assert await steps.of(store.commit(step(lease, position, b"one", b"two", **more))) == early
    assert early < 550


async def test_the_tail_of_a_run_is_read_alone(store: Store, steps: Steps) -> None:
    """Reading behind an entry costs what is behind it, not what is before."""
    lease = await start(store, "r", worker="worker")
    early = await steps.of(store.entries("r"))
    position = await lengthen(store, lease, 1, 5_000)
    assert await steps.of(store.entries("r", after=position - 1)) == early


async def crowd(store: Store, number: int) -> None:
    """Runs of other owners that stand in every way but ready, with controls that nobody takes."""
    for index in range(number):
        run_id, who = f"o{number}-{index}", Identity("other", f"user {index}", f"session {index}")
        opened = (NewGroup(group_id=turn, who=who) for turn in ("few!", "many", "others"))
        await store.commit(Commit(groups=tuple(opened)))
        lease = await start(store, run_id, who=who, agent="other", worker="another", group="others")
        await send(store, run_id, "waits")
        match index % 4:
            case 0:
                change = Change(status=Status.PAUSED, blocked="a newer version wrote it", release=True)
            case 1:
                change = Change(blocked="no way on", release=True, awaits="nobody" if index % 8 else None)
            case other:
                (control,) = await store.controls(run_id)
                await store.commit(step(lease, 1, consumed=(control.number,)))
                change = Change(status=Status.COMPLETE if other == 2 else Status.FAILED)
        await store.commit(step(lease, 1, b"x", change=change, who=who, events=(NewEvent(type="e", data=b"x"),)))


async def test_other_runs_cost_nothing(store: Store, steps: Steps) -> None:
    """Claims, lists, controls, pauses and ends take the same steps beside a dozen runs and beside hundreds."""

    async def all_calls(turn: str) -> dict[str, int]:
        mine: dict[str, Any] = {"tenant": ME.tenant_id, "user": ME.user_id, "session": ME.session_id}
        pause = NewPause(token=turn, run_id=turn, who=ME, reason="await_input")
        park = Change(status=Status.PAUSED, release=True)
        answer = SettlePause(token=turn, status=PauseStatus.ANSWERED)
        await store.commit(Commit(groups=(NewGroup(group_id=turn, who=ME),)))
        await start(store, turn, agent="mine", group=turn)
        wait = Move(run_id=turn, expected=(Status.PENDING,), awaits="nobody")
        ended = ChangeGroup(group_id=turn, who=ME, expected=(GroupStatus.OPEN,), status=GroupStatus.COMPLETED)
        cost = {
            "wait": await steps.of(store.commit(Commit(moves=(wait,)))),
            "list of groups": await steps.of(store.groups(GroupQuery(**mine, limit=1))),
            "group": await steps.of(store.group(turn, who=ME)),
            "end of a group": await steps.of(store.commit(Commit(groups=(ended,)))),
        }
        cost |= {
            "claim": await steps.of(store.claim("worker", agents=["mine"])),
            "send": await steps.of(send(store, turn, "c")),
        }
        cost["unread"] = await steps.of(store.unread("worker"))
        (control,) = await store.controls(turn)
        lease = Lease(turn, "worker", 1)
        consume = step(lease, 1, b"x", consumed=(control.number,), opens=(pause,), change=park)
        cost["pause"] = await steps.of(store.commit(consume))
        cost |= {
            "list": await steps.of(store.runs(RunQuery(**mine, agent="mine"))),
            "list by status": await steps.of(store.runs(RunQuery(tenant=ME.tenant_id, statuses=(Status.PAUSED,)))),
            "list by agent": await steps.of(store.runs(RunQuery(tenant=ME.tenant_id, agent="mine"))),
            "pauses": await steps.of(store.pauses(PauseQuery(tenant=ME.tenant_id, statuses=(PauseStatus.OPEN,)))),
            "events": await steps.of(store.events(EventQuery(**mine))),
            "next due": await steps.of(store.next_due()),
            "wake": await steps.of(store.commit(Commit(wakes=(turn,)))),
            "settle": await steps.of(store.commit(Commit(settles=(answer,), take="worker"))),
        }
        cost["end"] = await steps.of(finish(store, Lease(turn, "worker", 2), 2))
        cost["delete"] = await steps.of(store.delete([turn]))
        await store.commit(Commit(wakes=(turn,)))
        return cost

    await crowd(store, 12)
    await all_calls("warm")
    await crowd(store, 13)
    few = await all_calls("few!")
    await crowd(store, 400)
    assert await all_calls("many") == few
    await claim(store, "worker")
