"""A database in Postgres is opened whole or not at all, and what it refuses is said in words of our own."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import pytest

from harborage.clock import SYSTEM_CLOCK
from harborage.errors import HarborageError, MissingExtraError
from harborage.identity import Quadruple
from harborage.state import StateConfig, StateRecord, open_state
from harborage.state.errors import (
    DatabaseError,
    DatabaseReadOnlyError,
    DatabaseUnreachableError,
    MigrationChangedError,
    SchemaNewerError,
    StoreClosedError,
)
from harborage.state.postgres import Database, PostgresStateStore, driver, open_postgres
from harborage.state.storage import open_storage
from harborage.store import Change, Commit, NewRun, RunQuery
from harborage.store.errors import EntryDamagedError
from harborage.testing.conformance.store_bench import ME, row, start, step
from tests.kit.tables import each_row

WHO = Quadruple("tenant", "user", "session", "run")
OPEN = """
import asyncio, sys
from harborage.state.storage import open_storage
from harborage.store import EventQuery
async def main():
    async with await open_storage(sys.argv[1]) as storage:
        print(len(await storage.store.events(EventQuery())))
asyncio.run(main())
"""


async def test_a_url_opens_it(place: Any) -> None:
    """Either spelling of the scheme opens a storage, and the table of drivers a record store."""
    for url in (place.url, place.url.replace("postgres://", "postgresql://")):
        async with await open_storage(url) as storage:
            assert (await storage.store.runs(RunQuery())).rows == []
    store = await open_state(StateConfig("postgres", place.url))
    assert isinstance(store, PostgresStateStore)
    await store.aclose()


async def test_a_process_frozen_in_a_transaction_loses_it(place: Any) -> None:
    """Its locks would keep everybody else from carrying its runs on."""
    database = await Database.open(place.url)
    assert await database.fetchval("show idle_in_transaction_session_timeout") == "10s"
    await database.aclose()


async def test_several_processes_may_start_at_once(place: Any) -> None:
    """Whoever comes first applies the migrations, the others wait for it, and each is applied once."""
    pipe = asyncio.subprocess.PIPE
    starting = [
        asyncio.create_subprocess_exec(sys.executable, "-c", OPEN, place.url, stdout=pipe, stderr=pipe)
        for _ in range(3)
    ]
    processes = await asyncio.gather(*starting)
    said = await asyncio.gather(*(process.communicate() for process in processes))
    assert [out.strip() for out, _ in said] == [b"0"] * 3, said
    storages = await asyncio.gather(*(place.open() for _ in range(4)))
    assert (await storages[0].store.runs(RunQuery())).rows == []
    numbers = await place.admin.fetch("select number from harborage_migrations order by number")
    assert [row["number"] for row in numbers] == list(range(1, len(numbers) + 1))


async def test_several_storages_start_at_once_in_one_process(place: Any) -> None:
    """The same within one process, on connections of their own."""
    storages = await asyncio.gather(*(place.open() for _ in range(5)))
    await start(storages[0].store, "r")
    assert [len((await one.store.runs(RunQuery())).rows) for one in storages] == [1] * 5


async def test_a_newer_database_is_left_alone(place: Any) -> None:
    """Tables of a version that this package does not know are refused, and say so."""
    await place.open()
    await place.admin.execute("insert into harborage_migrations (number, name, checksum) values (999, 'later', 'x')")
    with pytest.raises(SchemaNewerError, match=r"version 999.*upgrade this package"):
        await place.open()


async def test_a_changed_migration_is_refused(place: Any) -> None:
    """A migration that was applied as another text is named."""
    await place.open()
    await place.admin.execute("update harborage_migrations set checksum = 'x' where number = 1")
    with pytest.raises(MigrationChangedError, match="migration 0001_init"):
        await place.open()


async def test_a_failed_migration_leaves_nothing(place: Any) -> None:
    """Where a migration cannot be applied nothing of it stays, and it is tried again the next time."""
    await place.admin.execute("create table harborage_events (mine integer)")
    with pytest.raises(DatabaseError, match="harborage_events"):
        await place.open()
    tables = await place.admin.fetch("select tablename from pg_tables where schemaname = $1", place.schema)
    assert [row["tablename"] for row in tables] == ["harborage_events"]
    await place.admin.execute("drop table harborage_events")
    await place.open()


async def refused(url: str) -> str:
    """What is said of a url that opens nothing."""
    with pytest.raises(HarborageError) as caught:
        await open_postgres(url, SYSTEM_CLOCK)
    assert "secret" not in str(caught.value)
    return f"{type(caught.value).__name__}: {caught.value}"


async def test_a_refused_login_is_an_error_without_the_password(server: Any) -> None:
    """A wrong password, user, database, port and search path are clear errors that name the database."""
    good = server.url
    port = server.port
    wrong = good.replace(server.password, "secret")
    assert "DatabaseUnreachableError: postgres://harborage@127.0.0.1" in await refused(wrong)
    assert "password authentication failed" in await refused(wrong)
    assert '"nobody"' in await refused(f"postgres://nobody:secret@127.0.0.1:{port}/postgres")
    assert '"nowhere" does not exist' in await refused(good.replace("/postgres", "/nowhere"))
    assert "DatabaseUnreachableError" in await refused("postgres://u:secret@127.0.0.1:1/postgres")
    assert "search path" in await refused(server.url_with(search_path="nowhere"))


@each_row(
    "url",
    [
        "postgres://u:secret@127.0.0.1:port/db",
        "postgres://u:secret@[::1/db",
        "postgres://u:secret@127.0.0.1/db?sslmode=sometimes",
        "postgres://u:secret@127.0.0.1:99999999/db",
        "postgres://u:p@s:secret@127.0.0.1/db",
    ],
)
async def test_a_url_that_cannot_be_read_is_refused(url: str) -> None:
    """What is wrong with it is said without quoting it."""
    assert "StorageUrlError" in await refused(url)


async def test_a_database_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening has a time limit, and says that it was it."""
    monkeypatch.setattr("harborage.state.postgres.database._OPENING_S", 0.2)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert "did not answer" in await refused(f"postgres://u:secret@127.0.0.1:{port}/db")


async def test_without_the_extra_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is imported when a database is opened, and named by its extra when it is missing."""

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(driver, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"pip install 'harborage\[postgres\]'"):
        await open_storage("postgres://127.0.0.1/db")


async def test_a_database_that_may_only_be_read_is_read(place: Any) -> None:
    """Reading works, writing is refused, with the run's name, and nothing is changed."""
    storage = await place.open()
    lease = await start(storage.store, "r", worker="worker")
    reading = place.keep(await open_postgres(f"{place.url}&default_transaction_read_only=on", SYSTEM_CLOCK))
    assert await reading.store.entries("r") == [b"started"]
    with pytest.raises(DatabaseReadOnlyError, match=r"read-only transaction.*\(run r\)"):
        await reading.store.commit(step(lease, 1, b"2"))
    with pytest.raises(DatabaseReadOnlyError):
        await reading.state.save(StateRecord("event", WHO, "kind"))
    assert await storage.store.entries("r") == [b"started"]


async def test_text_that_postgres_refuses_is_kept_where_people_write_it(place: Any) -> None:
    r"""A goal and a reason may hold NUL and backslashes; a name may not hold NUL, and that is said."""
    storage = await place.open()
    odd = "a\0b\\0c\\\\ \\ \0"
    lease = await start(storage.store, "r", worker="worker", goal=odd, description=odd)
    await storage.store.commit(step(lease, 1, change=Change(reason=odd, blocked=odd, release=True)))
    found = await row(storage.store, "r")
    assert (found.about, found.description, found.reason, found.blocked) == (odd,) * 4
    for name in ("a\0b", "a\ud800b"):
        with pytest.raises(DatabaseError, match="NUL"):
            await storage.state.save(StateRecord("event", Quadruple(name, "user", "session", ""), "kind"))
    with pytest.raises(DatabaseError, match="64 bits"):
        await storage.state.save(StateRecord("event", WHO, "kind", version=2**70))


async def test_an_entry_that_was_damaged_is_noticed(place: Any) -> None:
    """An entry that is not what was kept is refused with its run and place; other runs are read."""
    storage = await place.open()
    for name in ("r", "s"):
        new = NewRun(run_id=name, who=ME, entries=(b"0", b"1", b"2"))
        await storage.store.commit(Commit(starts=(new,)))
    await place.admin.execute("update harborage_journal set data = 'x' where position = 2 and run = 1")
    with pytest.raises(EntryDamagedError, match="run r, entry 1"):
        await storage.store.entries("r")
    assert await storage.store.entries("r", after=2) == [b"2"]
    assert len(await storage.store.entries("s")) == 3


async def test_a_closed_database_says_so(place: Any) -> None:
    """Calls on a closed database, and those that closing cut off, are refused as closed."""
    database = await Database.open(place.url)
    waiting = [database.fetch("select pg_sleep(60)") for _ in range(3)]

    async def close() -> None:
        query = "select count(*) = 3 from pg_stat_activity where query like 'select pg_sleep%' and state = 'active'"
        await place.has_come(query)
        database._is_closed = True
        database._pool.terminate()

    results, _ = await asyncio.gather(asyncio.gather(*waiting, return_exceptions=True), close())
    assert [type(one) for one in results] == [StoreClosedError] * 3
    with pytest.raises(StoreClosedError):
        await database.fetch("select 1")
    await database.aclose()


async def test_many_callers_share_few_connections(place: Any) -> None:
    """A thousand callers at once are served by at most 25 connections."""
    storage = await place.open()
    await asyncio.gather(*(storage.store.runs(RunQuery(run_ids=(str(index),))) for index in range(1000)))
    query = "select count(*) from pg_stat_activity where application_name = $1"
    assert 1 <= await place.admin.fetchval(query, place.schema) <= 25


async def test_a_full_server_is_said(place: Any) -> None:
    """Too many connections on the server's side are a clear error, not a hang."""
    database = await Database.open(place.url)
    most = int(await place.admin.fetchval("show max_connections"))
    tries = await asyncio.gather(*(database.connect() for _ in range(most + 1)), return_exceptions=True)
    failures = [one for one in tries if isinstance(one, Exception)]
    for connection in tries:
        if not isinstance(connection, BaseException):
            connection.terminate()
    assert failures
    assert {type(one) for one in failures} == {DatabaseUnreachableError}
    assert "too many" in str(failures[0])
    await database.aclose()
