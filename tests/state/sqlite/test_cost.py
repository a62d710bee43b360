"""What a call costs does not grow with what is kept: told by SQLite's own counters and plans, never by a stopwatch."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import apsw
import pytest

from harborage.identity import Quadruple
from harborage.state.runs import Lease, RunFilter, Stand, Standing, Write
from harborage.state.sqlite import Database, storage_of
from harborage.state.sqlite.connection import statements
from harborage.state.storage import Storage
from harborage.testing.conformance.storage_bench import a_record, begin, digest

OpenDatabase = Callable[..., Awaitable[Database]]

FILES = ("events", "queue", "records", "runs", "schema")
EVERY = [(file, name, sql) for file in FILES for name, sql in statements(file).items()]
# Tables of a row for each process, each migration and each counter.
SMALL = ("harborage_workers", "harborage_migrations", "harborage_counters", "sqlite_schema")

# What walks a whole index that holds nothing but the rows that are wanted, or sorts nothing but those.
WHOLE = {
    "ready": ["SCAN harborage_standings USING INDEX harborage_standings_ready"],
    "free_strays": ["SCAN harborage_standings USING INDEX harborage_standings_owner"],
    "arrived": ["USE TEMP B-TREE FOR ORDER BY"],
}

# Made when a row cannot be read, and then for that row.
FOR_DAMAGE = frozenset({"salvage", "sent", "block"})


@pytest.fixture
async def database(open_database: OpenDatabase) -> Database:
    """A database."""
    return await open_database()


@pytest.fixture
async def storage(database: Database) -> Storage:
    """The storage over it."""
    return storage_of(database)


def scans(plan: list[str]) -> list[str]:
    """The steps of a plan that look at all rows of a table or an index, or sort."""
    found = [step for step in plan if re.match(r"SCAN (?!.*VIRTUAL)|USE TEMP B-TREE", step)]
    return [step for step in found if not any(name in step for name in SMALL) and "CONSTANT ROW" not in step]


@pytest.mark.parametrize(("file", "name", "sql"), EVERY, ids=[f"{file}.{name}" for file, name, _ in EVERY])
async def test_every_statement_finds_its_rows_by_an_index(database: Database, file: str, name: str, sql: str) -> None:
    """No statement scans a table that grows."""
    if name in {"create_migrations", *FOR_DAMAGE}:
        return
    names = dict.fromkeys(re.findall(r":(\w+)", sql))
    plan = await database.read(lambda tx: list(tx.execute(f"EXPLAIN QUERY PLAN {sql}", tuple("" for _ in names))))
    assert scans([step for *_, step in plan]) == WHOLE.get(name, [])


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


async def lengthen(storage: Storage, lease: Lease, entries: int) -> None:
    """Add entries to a run."""
    for _ in range(entries // 500):
        await storage.runs.append(lease, Write(entries=[b"x" * 50] * 500))


async def test_a_step_costs_the_same_at_any_length(storage: Storage, steps: Steps) -> None:
    """Appending entries, bodies and controls takes the same steps in a run of ten entries as in one of ten thousand."""
    await begin(storage, "r")
    (claim,) = await storage.queue.claim("worker")
    body = b"b" * 9000
    write = Write(entries=[b"one", b"two"], bodies={digest(body): body}, taken=1)
    await storage.runs.append(claim.lease, write)
    early = await steps.of(storage.runs.append(claim.lease, write))
    await lengthen(storage, claim.lease, 10_000)
    assert await steps.of(storage.runs.append(claim.lease, write)) == early
    assert early < 400


async def test_the_tail_of_a_run_is_read_alone(storage: Storage, steps: Steps) -> None:
    """Reading behind an entry costs what is behind it, not what is before."""
    await begin(storage, "r")
    (claim,) = await storage.queue.claim("worker")
    early = await steps.of(storage.runs.read("r"))
    await lengthen(storage, claim.lease, 5_000)
    assert await steps.of(storage.runs.read("r", after=5_000)) == early


async def crowd(storage: Storage, number: int) -> None:
    """Runs of other owners that stand in every way but ready, with controls that nobody takes."""
    for index in range(number):
        stand = (Stand.PARKED, Stand.BLOCKED, Stand.FINISHED, Stand.FAILED)[index % 4]
        who = Quadruple("other", f"user {index}", f"session {index}", "run")
        standing = Standing(stand=stand, waits_for="nobody" if index % 8 else "")
        await storage.runs.create(a_record(f"o{number}-{index}", who, agent="other"), Write(standing=standing))


async def test_other_runs_cost_nothing(storage: Storage, steps: Steps) -> None:
    """Claims, lists, controls and wakes take the same steps beside a dozen runs and beside hundreds."""

    async def all_calls(turn: str) -> dict[str, int]:
        who = Quadruple("tenant", "user", "session", "run")
        mine = {"tenant": "tenant", "user": "user", "session": "session"}
        await storage.runs.create(a_record(turn, who, agent="mine"), Write(standing=Standing(stand=Stand.PARKED)))
        cost = {
            "send": await steps.of(storage.queue.send(turn, "event", b"")),
            "claim": await steps.of(storage.queue.claim("worker", agent="mine")),
            "arrived": await steps.of(storage.queue.arrived("worker")),
            "list": await steps.of(storage.runs.list(RunFilter(**mine, agent="mine"))),
            "list by stand": await steps.of(storage.runs.list(RunFilter(stands=(Stand.PARKED,), tenant="tenant"))),
            "list by agent": await steps.of(storage.runs.list(RunFilter(agent="mine"))),
            "next wake": await steps.of(storage.queue.next_wake()),
            "wake": await steps.of(storage.queue.wake(turn)),
        }
        cost["forget"] = await steps.of(storage.runs.forget(turn))
        return cost

    await crowd(storage, 12)
    await all_calls("warm")
    few = await all_calls("few")
    await crowd(storage, 400)
    assert await all_calls("many") == few
