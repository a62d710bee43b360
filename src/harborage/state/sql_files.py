"""SQL as it lies in files beside the code: statements by name, and migrations by number.

A migration is applied once and never changed again: a database remembers the checksum of each one it has been through.
Nothing here opens a database.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources

import msgspec

from harborage.errors import HarborageError
from harborage.state.errors import MigrationChangedError, SchemaNewerError

_NAMED = re.compile(r"^-- name: *(\S+) *$", re.MULTILINE)
_NUMBERED = re.compile(r"^(\d{4})_(\w+)\.sql$")


class SqlFileError(HarborageError):
    """A file of SQL in this package is not as it must be; the installation is damaged."""


class Migration(msgspec.Struct, frozen=True):
    """One change of a database's tables. `checksum` is the SHA-256 of its text in hex."""

    number: int
    name: str
    sql: str
    checksum: str


def read_statements(package: str, file: str) -> Mapping[str, str]:
    """The statements of a package's file by name; each follows a line `-- name: …`.

    Raises:
        SqlFileError: the file is not there, is empty, or names a statement twice.
    """
    found: dict[str, str] = {}
    _, *parts = _NAMED.split(_read(package, file))
    for name, sql in zip(parts[::2], parts[1::2], strict=True):
        if name in found:
            raise SqlFileError(f"{package}/{file} has two statements named {name!r}")
        found[name] = sql.strip().removesuffix(";")
    if not found:
        raise SqlFileError(f"{package}/{file} holds no statement; each follows a line '-- name: …'")
    return found


def read_migrations(package: str) -> list[Migration]:
    """The migrations in a package's folder `migrations`, files named `0001_what.sql`, in order.

    Raises:
        SqlFileError: there are none, or their numbers are not 1, 2, 3, ….
    """
    folder = resources.files(package) / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    found = [_migration(package, name) for name in names]
    if not found or [one.number for one in found] != list(range(1, len(found) + 1)):
        raise SqlFileError(f"{package}/migrations: files must be numbered 0001, 0002, … without a gap; found {names}")
    return found


def pending_migrations(known: Sequence[Migration], applied: Mapping[int, str], database: str) -> list[Migration]:
    """Those of `known` that are still to be applied to a database which has been through `applied` (number: checksum).

    Raises:
        SchemaNewerError: it has been through one that is not known here.
        MigrationChangedError: it has been through another one of the same number.
    """
    for one in known:
        if applied.get(one.number, one.checksum) != one.checksum:
            raise MigrationChangedError(database, f"migration {one.number:04}_{one.name} was applied as another text")
    newer = sorted(set(applied) - {one.number for one in known})
    if newer:
        raise SchemaNewerError(database, f"its tables are of version {newer[-1]}, this package knows {len(known)}")
    return [one for one in known if one.number not in applied]


def _migration(package: str, name: str) -> Migration:
    numbered = _NUMBERED.match(name)
    if numbered is None:
        raise SqlFileError(f"{package}/migrations/{name}: a migration is named 0001_what.sql")
    sql = _read(package, f"migrations/{name}")
    return Migration(int(numbered[1]), numbered[2], sql, hashlib.sha256(sql.encode()).hexdigest())


def _read(package: str, file: str) -> str:
    try:
        return resources.files(package).joinpath(*file.split("/")).read_text("utf-8")
    except FileNotFoundError as error:
        raise SqlFileError(f"{package}/{file} is not there; install the package again") from error
