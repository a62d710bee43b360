"""SQL files are read whole, and a database that does not fit them is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harborage.state.errors import MigrationChangedError, SchemaNewerError
from harborage.state.sql_files import (
    Migration,
    SqlFileError,
    pending_migrations,
    read_migrations,
    read_statements,
)
from tests.kit.tables import each_row

KNOWN = [Migration(number, f"m{number}", f"sql {number}", f"sum {number}") for number in (1, 2, 3)]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty package that can be imported as `some_sql`."""
    folder = tmp_path / "some_sql"
    (folder / "migrations").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    import sys

    sys.modules.pop("some_sql", None)


def test_statements_are_found_by_name(package: Path) -> None:
    """Each follows its name; comments stay with it, what stands before the first name does not."""
    (package / "q.sql").write_text("-- The file.\n\n-- name: one\n-- why\nselect 1;\n\n-- name:two\nselect\n  2\n")
    assert read_statements("some_sql", "q.sql") == {"one": "-- why\nselect 1", "two": "select\n  2"}


@pytest.mark.parametrize("text", ["", "select 1;", "-- name: a\nselect 1;\n-- name: a\nselect 2;"])
def test_a_file_without_order_is_refused(package: Path, text: str) -> None:
    """No name, or one name twice, is an error that names the file."""
    (package / "q.sql").write_text(text)
    with pytest.raises(SqlFileError, match=r"some_sql/q\.sql"):
        read_statements("some_sql", "q.sql")


def test_a_missing_file_is_named(package: Path) -> None:
    """So that a broken installation can be told from a bug."""
    with pytest.raises(SqlFileError, match=r"some_sql/q\.sql is not there"):
        read_statements("some_sql", "q.sql")


def test_migrations_come_in_order(package: Path) -> None:
    """Number and name are those of the file, the checksum is that of its text; other files are left alone."""
    for name in ("0002_more", "0001_init"):
        (package / "migrations" / f"{name}.sql").write_text(f"-- {name}")
    (package / "migrations" / "README").write_text("")
    found = read_migrations("some_sql")
    assert [(one.number, one.name, one.sql) for one in found] == [
        (1, "init", "-- 0001_init"),
        (2, "more", "-- 0002_more"),
    ]
    assert found[0].checksum == hashlib.sha256(b"-- 0001_init").hexdigest()


@pytest.mark.parametrize("names", [(), ("0002_a",), ("0001_a", "0003_b"), ("0001_a", "0001_b"), ("init",)])
def test_migrations_are_numbered_without_a_gap(package: Path, names: tuple[str, ...]) -> None:
    """None at all, a gap, a number twice and a file without one are refused."""
    for name in names:
        (package / "migrations" / f"{name}.sql").write_text("")
    with pytest.raises(SqlFileError, match="some_sql/migrations"):
        read_migrations("some_sql")


@each_row("applied, numbers", [({}, [1, 2, 3]), ({1: "sum 1"}, [2, 3]), ({n: f"sum {n}" for n in (1, 2, 3)}, [])])
def test_what_is_missing_is_pending(applied: dict[int, str], numbers: list[int]) -> None:
    """What a database has been through is not applied again."""
    assert [one.number for one in pending_migrations(KNOWN, applied, "db")] == numbers


def test_a_newer_database_is_refused() -> None:
    """One that has been through more than is known says how far it is."""
    with pytest.raises(SchemaNewerError, match="db: its tables are of version 7, this package knows 3"):
        pending_migrations(KNOWN, {1: "sum 1", 7: "x"}, "db")


def test_a_changed_migration_is_refused() -> None:
    """One that was applied as another text is named."""
    with pytest.raises(MigrationChangedError, match="db: migration 0002_m2 was applied as another text"):
        pending_migrations(KNOWN, {1: "sum 1", 2: "x"}, "db")
