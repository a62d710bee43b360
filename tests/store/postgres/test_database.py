"""A store in Postgres is opened whole or not at all, and what the database refuses is said by name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harborage.errors import HarborageError
from harborage.state.errors import (
    DatabaseCorruptError,
    DatabaseFullError,
    DatabaseReadOnlyError,
    MigrationChangedError,
    SchemaNewerError,
)
from harborage.store import Commit, NewEvent, NewGroup, NewPause, PauseQuery, RunQuery
from harborage.store.postgres import PostgresStore
from harborage.testing.conformance.store_bench import ME, start, step


async def refused(url: str) -> str:
    """What is said of a url that opens nothing."""
    with pytest.raises(HarborageError) as caught:
        await PostgresStore.open(url)
    assert "secret" not in str(caught.value)
    return f"{type(caught.value).__name__}: {caught.value}"


async def test_a_refused_login_is_an_error_without_the_password(server: Any) -> None:
    """A wrong password, database, port or url is a clear error that names the database and says what to do."""
    good = server.url
    assert "password authentication failed" in await refused(good.replace(server.password, "secret"))
    missing = await refused(good.replace("/postgres", "/nowhere"))
    assert missing.startswith("DatabaseUnreachableError: postgres://harborage@127.0.0.1:")
    assert 'database "nowhere" does not exist; see that it is there' in missing
    closed = await refused("postgres://u:secret@127.0.0.1:1/postgres")
    assert "DatabaseUnreachableError: postgres://u@127.0.0.1:1/postgres" in closed
    assert "StorageUrlError" in await refused("postgres://u:secret@127.0.0.1:99999999/db")
    assert "search path" in await refused(server.url_with(search_path="nowhere"))


async def test_tables_of_another_version_are_left_alone(place: Any) -> None:
    """Newer tables, and those of another line of the package, are each refused by name, and nothing is changed."""
    await place.open()
    await place.admin.execute("insert into harborage_migrations (number, name, checksum) values (999, 'later', 'x')")
    with pytest.raises(SchemaNewerError, match=r"version 999.*upgrade this package"):
        await place.open()
    await place.admin.execute("update harborage_migrations set checksum = 'x' where number = 1")
    with pytest.raises(MigrationChangedError, match=r"migration 0001_init.*name another database"):
        await place.open()


async def test_several_processes_may_open_it_first(place: Any) -> None:
    """The first store makes the tables and functions, the others wait for it."""
    stores = await asyncio.gather(*(place.open() for _ in range(5)))
    await start(stores[0], "r")
    assert [len((await store.runs(RunQuery())).rows) for store in stores] == [1] * 5


async def test_a_database_that_may_only_be_read_is_read(place: Any) -> None:
    """Reading works, a commit and a claim are refused, and nothing is changed."""
    store = await place.open()
    await store.join("one")
    lease = await start(store, "r", worker="one")
    reading = place.keep(await PostgresStore.open(f"{place.url}&default_transaction_read_only=on"))
    assert await reading.entries("r") == [b"started"]
    commit = step(lease, 1, b"x", who=ME, events=(NewEvent(type="e", data=b"{}"),))
    for asked in (reading.commit(commit), reading.claim("one"), reading.join("two")):
        with pytest.raises(DatabaseReadOnlyError, match=r"postgres://harborage@127.0.0.1.*read-only transaction"):
            await asked
    assert not (await store.commit(commit)).is_again


async def test_a_full_disk_refuses_and_is_tried_again(place: Any) -> None:
    """What the database says of itself fails every commit of a batch; once it has room again it serves."""
    store = await place.open()
    await start(store, "r")
    await place.admin.execute(
        """
        create function full_disk() returns trigger language plpgsql as $$
        begin raise exception 'no space left' using errcode = '53100'; end $$;
        create trigger full_disk before insert on harborage_runs for each row execute function full_disk();
        """
    )
    published = await asyncio.gather(*(start(store, f"s{number}") for number in range(3)), return_exceptions=True)
    assert [type(one) for one in published] == [DatabaseFullError] * 3
    await place.admin.execute("drop trigger full_disk on harborage_runs")
    await start(store, "s")
    assert len((await store.runs(RunQuery())).rows) == 2


async def test_a_store_leaves_nothing_behind(place: Any) -> None:
    """A store that is closed has no row of its own left, and no connection."""
    store = await place.open()
    await store.join("one")
    await asyncio.gather(*(start(store, f"r{number}") for number in range(20)))
    await store.claim("one")
    await store.commit(Commit(wakes=("r1",)))
    await store.leave("one")
    await store.aclose()
    assert await place.admin.fetchval("select count(*) from harborage_writers") == 0
    assert await place.admin.fetchval("select count(*) from harborage_workers") == 0
    await place.has_come("select count(*) = 0 from pg_stat_activity where application_name = $1", place.schema)


async def test_a_pause_that_a_newer_version_wrote_hides_no_other(place: Any) -> None:
    """It is shown as one that cannot be read, with its run."""
    store = await place.open()
    for token in "ab":
        pause = NewPause(token=token, run_id=f"run {token}", who=ME, reason="await_input", at=ord(token))
        await store.commit(Commit(opens=(pause,)))
    await place.admin.execute("update harborage_pauses set status = 'postponed' where token = 'a'")
    found = (await store.pauses(PauseQuery())).rows
    assert [(one.run_id, one.is_damaged) for one in found] == [("run b", False), ("run a", True)]


async def test_a_status_of_a_newer_version_is_not_taken_for_another(place: Any) -> None:
    """A caller that reads such a run or group gets an error that names the row and the database."""
    store = await place.open()
    await start(store, "r")
    await store.commit(Commit(groups=(NewGroup(group_id="g", who=ME),)))
    await place.admin.execute("update harborage_runs set status = 9")
    with pytest.raises(DatabaseCorruptError, match=r"postgres://harborage@127.0.0.1.*status 9"):
        await store.runs(RunQuery())
    await place.admin.execute("update harborage_groups set status = 'merged'")
    with pytest.raises(DatabaseCorruptError, match="status merged"):
        await store.group("g", who=ME)
