"""A database that is held, or that may not be written, can be read all the same."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import apsw
import pytest

from harborage.app.doctor import check_storage
from harborage.cli.storage import open_kept_storage, release_expired_leases
from harborage.clock import SYSTEM_CLOCK
from harborage.state.errors import DatabaseLockedError, DatabaseReadOnlyError, MigrationError
from harborage.state.sqlite import open_to_read, storage_of
from harborage.state.storage import open_storage
from harborage.store import RunQuery, Store
from harborage.store.sqlite import Database
from harborage.testing.conformance.store_bench import start

pytestmark = pytest.mark.anyio


def contents(path: Path) -> bytes:
    """The file as it is."""
    return path.read_bytes()


async def names(store: Store) -> list[str]:
    """The runs that there are, the oldest first."""
    return [row.run_id for row in (await store.runs(RunQuery(oldest_first=True))).rows]


async def kept(path: Path) -> None:
    """Keep one run."""
    async with await open_storage(str(path)) as storage:
        await start(storage.store, "r")


async def test_a_file_is_read_without_being_changed(path: Path) -> None:
    """Its runs are listed, every write is refused, and nothing is made beside it, whether its log is there or not."""
    await kept(path)
    before = contents(path)
    async with await open_to_read(str(path), SYSTEM_CLOCK) as storage:
        assert await names(storage.store) == ["r"]
        with pytest.raises(DatabaseReadOnlyError):
            await start(storage.store, "s")
        with pytest.raises(DatabaseReadOnlyError):
            await storage.store.claim("worker")
    assert contents(path) == before
    async with await open_storage(str(path)) as writing, await open_to_read(str(path), SYSTEM_CLOCK) as storage:
        await start(writing.store, "t")
        assert await names(storage.store) == ["r", "t"]


async def test_tables_of_an_older_version_are_not_read(path: Path) -> None:
    """They would have to be changed first."""
    apsw.Connection(str(path)).execute("CREATE TABLE t (a)")
    with pytest.raises(MigrationError, match="older version, and it may not be written"):
        await open_to_read(str(path), SYSTEM_CLOCK)


async def test_commands_read_a_database_that_another_process_holds(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is kept is shown, and stderr says what could not be looked after."""
    await kept(path)
    database = await Database.open(path, busy_timeout_s=0.05)
    holder = apsw.Connection(str(path))
    holder.execute("BEGIN IMMEDIATE")
    async with storage_of(database) as storage:
        await release_expired_leases(storage)
        assert await names(storage.store) == ["r"]
    holder.close()
    said = capsys.readouterr().err
    assert "shown as it is stored" in said
    assert said.count("\n") == 1


async def test_commands_read_a_file_at_rest_that_another_process_holds(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its log is put away, so that opening it to write waits for the other process; it is opened to read instead."""
    monkeypatch.setattr(Database, "open", partial(Database.open, busy_timeout_s=0.05))
    await kept(path)
    before = contents(path)
    holder = apsw.Connection(str(path))
    holder.execute("BEGIN IMMEDIATE")
    async with open_kept_storage(str(path)) as storage:
        await release_expired_leases(storage)
        assert await names(storage.store) == ["r"]
    said = capsys.readouterr().err
    assert "shown as it is stored" in said
    assert said.count("\n") == 1
    with pytest.raises(DatabaseLockedError):
        async with open_kept_storage(str(path), writes=True):
            pass
    access, *others = await check_storage(str(path), path, is_whole=True)
    assert (access.what, access.is_ok) == ("access", False)
    assert [one.what for one in others] == ["database", "records"]
    holder.close()
    assert contents(path) == before


async def test_commands_read_a_database_that_may_not_be_written(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It is opened to read, which is said once; a command that writes is refused where it begins."""

    async def refused(url: str) -> None:
        raise DatabaseReadOnlyError(url, "the file may not be written")

    await kept(path)
    monkeypatch.setattr("harborage.state.storage.open_storage", refused)
    async with open_kept_storage(str(path)) as storage:
        await release_expired_leases(storage)
        assert await names(storage.store) == ["r"]
    said = capsys.readouterr().err
    assert "may not be written" in said
    assert "shown as it is stored" in said
    assert said.count("\n") == 1
    assert not caplog.records
    with pytest.raises(DatabaseReadOnlyError):
        async with open_kept_storage(str(path), writes=True):
            pass


async def test_doctor_reads_a_database_that_may_not_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is a finding, with what to do about it; all else is looked at as it is kept."""

    async def refused(url: str) -> None:
        raise DatabaseReadOnlyError(url, "the file may not be written")

    await kept(path)
    before = contents(path)
    monkeypatch.setattr("harborage.app.doctor.open_storage", refused)
    access, database, records = await check_storage(str(path), path, is_whole=True)
    assert (access.what, access.is_ok) == ("access", False)
    assert "give this process the right to write it" in access.detail
    assert (database.what, database.is_ok) == ("database", True)
    assert "run r" in records.detail
    assert contents(path) == before
