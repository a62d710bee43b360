"""Whether a storage is in order."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from harborage.app.checkup import check_storage
from harborage.state.storage import open_storage

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database(tmp_path: Path) -> Path:
    """A database with tables and nothing else."""
    path = tmp_path / "runs.db"
    await (await open_storage(str(path))).aclose()
    return path


async def test_a_whole_database_is_well(database: Path) -> None:
    """It is opened, written and read through."""
    (found,) = await check_storage(str(database), database)
    assert found.is_well
    assert found.told == f"{database}: whole, its tables are those of this version"


async def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    """With what to do about it."""
    path = tmp_path / "runs.db"
    path.write_bytes(b"no database" * 100)
    (found,) = await check_storage(str(path), path)
    assert not found.is_well
    assert "bring back a copy that is whole" in found.told


async def test_a_newer_database_is_told(database: Path) -> None:
    """It is left as it is."""
    connection = apsw.Connection(str(database))
    connection.execute("INSERT INTO harborage_migrations (number, name, checksum) VALUES (999, 'later', 'x')")
    connection.close()
    (found,) = await check_storage(str(database), database)
    assert not found.is_well
    assert "upgrade this package" in found.told


async def test_damage_inside_is_found(database: Path) -> None:
    """SQLite reads every page and index, also those that nobody has asked for."""
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_schema SET rootpage = 2 WHERE type = 'index'")
    connection.close()
    (found,) = await check_storage(str(database), database)
    assert not found.is_well


async def test_a_storage_without_a_file_answers() -> None:
    """Of a server nothing but that can be known."""
    (found,) = await check_storage("memory:", None)
    assert found.is_well
