"""What the driver raises becomes errors of ours, and urls lose their passwords."""

from __future__ import annotations

import asyncpg
import pytest
from asyncpg import exceptions

from harborage.state.errors import (
    DatabaseCorruptError,
    DatabaseError,
    DatabaseFullError,
    DatabaseLockedError,
    DatabaseReadOnlyError,
    DatabaseUnreachableError,
    StorageUrlError,
)
from harborage.state.postgres.driver import Fault, address_of, fault_of, is_unique_violation
from harborage.store.errors import LeaseLostError
from tests.kit.tables import each_row


@each_row(
    "error, kind, may_pass, is_broken",
    [
        (ConnectionRefusedError("refused"), DatabaseUnreachableError, True, True),
        (TimeoutError(), DatabaseUnreachableError, False, True),
        (exceptions.ConnectionDoesNotExistError("gone"), DatabaseUnreachableError, True, True),
        (exceptions.AdminShutdownError("stopping"), DatabaseUnreachableError, True, True),
        (exceptions.CannotConnectNowError("starting"), DatabaseUnreachableError, False, False),
        (exceptions.TooManyConnectionsError("too many"), DatabaseUnreachableError, False, False),
        (exceptions.InvalidPasswordError("who"), DatabaseUnreachableError, False, False),
        (exceptions.InvalidCatalogNameError("where"), DatabaseUnreachableError, False, False),
        (asyncpg.InterfaceError("connection is closed"), DatabaseUnreachableError, True, True),
        (exceptions.DiskFullError("no space"), DatabaseFullError, False, False),
        (exceptions.ReadOnlySQLTransactionError("no"), DatabaseReadOnlyError, False, False),
        (exceptions.InsufficientPrivilegeError("no"), DatabaseReadOnlyError, False, False),
        (exceptions.DeadlockDetectedError("dead"), DatabaseLockedError, True, False),
        (exceptions.SerializationError("met"), DatabaseLockedError, True, False),
        (exceptions.LockNotAvailableError("locked"), DatabaseLockedError, False, False),
        (exceptions.QueryCanceledError("slow"), DatabaseLockedError, False, False),
        (exceptions.DataCorruptedError("bad page"), DatabaseCorruptError, False, False),
        (exceptions.IndexCorruptedError("bad page"), DatabaseCorruptError, False, False),
        (exceptions.ForeignKeyViolationError("gone"), DatabaseError, True, False),
        (exceptions.UndefinedTableError("what"), DatabaseError, False, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_of_the_driver_have_a_meaning(
    error: Exception, kind: type[DatabaseError], may_pass: bool, is_broken: bool
) -> None:
    """Each becomes one kind of error, is tried again where that can help, and says whether the answer was lost."""
    found = fault_of(error)
    assert isinstance(found, Fault)
    assert (found.kind, found.may_pass, found.is_broken) == (kind, may_pass, is_broken)
    assert str(error) in found.said


@each_row("error", [ValueError("x"), LeaseLostError("r", "w", 1), KeyError("x")])
def test_other_errors_are_left_alone(error: Exception) -> None:
    """What is not about the database stays what it is."""
    assert fault_of(error) is None


def test_values_are_not_quoted() -> None:
    """The driver quotes a value that it cannot send; the error does not."""
    found = fault_of(asyncpg.DataError("invalid input for query argument $1: 'secret'"))
    assert found is not None
    assert "secret" not in found.said
    assert "NUL" in found.said


def test_a_taken_key_is_known() -> None:
    """A unique violation is told from everything else."""
    assert is_unique_violation(exceptions.UniqueViolationError("taken"))
    assert not is_unique_violation(exceptions.CheckViolationError("no"))
    assert not is_unique_violation(ValueError())


@each_row(
    "url, address",
    [
        ("postgres://user:secret@host:5433/db?password=secret", "postgres://user@host:5433/db"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgres:///db?host=/tmp", "postgres:///db"),
        ("postgres://u%40x:s%40cret@a:1,b:2/my%20db", "postgres://u@x@a:1,b:2/my db"),
        ("postgres://user:sec@ret@host/db", "postgres://user@host/db"),
    ],
)
def test_an_address_has_no_password(url: str, address: str) -> None:
    """User, hosts and database are shown; password and options are not."""
    assert address_of(url) == address


def test_a_url_that_cannot_be_read_is_not_quoted() -> None:
    """The error says how a url looks."""
    with pytest.raises(StorageUrlError, match="postgres://USER:PASSWORD@HOST") as caught:
        address_of("postgres://u:secret@[::1/db")
    assert "secret" not in str(caught.value)
