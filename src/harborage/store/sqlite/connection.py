"""A connection to a database file: where the file may lie, how it is opened, and how its tables come about.

Blocking: call it from a thread.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw

from harborage.state.errors import (
    DatabasePlaceError,
    DatabaseReadOnlyError,
    DatabaseUnreachableError,
    MigrationError,
)
from harborage.state.sql_files import Migration, pending_migrations, read_statements

_PACKAGE: Final = __package__
_MOUNTS: Final = Path("/proc/self/mountinfo")
# Where locks or shared memory do not reach the other machines, or are not kept at all.
_REMOTE: Final = re.compile(
    r"nfs\d*|cifs|smb\w*|afs|ceph|glusterfs|lustre|beegfs|gpfs|ocfs2|gfs2?|davfs\d*|ncpfs|coda|"
    r"fuse\.(?:sshfs|glusterfs|s3fs|rclone|gcsfuse|davfs2|ceph|juicefs|goofys|mergerfs-nfs)"
)
_RETRY_S: Final = 0.01
_CLOSING_S: Final = 1.0
_HAS_LOG: Final = b"\2\2"
_OCTAL: Final = re.compile(r"\\(\d{3})")
_NAME: Final = re.compile(r":\w+")
_ROW: Final = re.compile(r"VALUES (\([?, ]+\))")
_LINE: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)


def statements(file: str, package: str = _PACKAGE) -> dict[str, str]:
    """The statements of a file by name, without their comments, which SQLite would read again and again."""
    return {name: _LINE.sub("", sql) for name, sql in read_statements(package, f"statements/{file}.sql").items()}


def repeated(sql: str, rows: int) -> str:
    """A statement of one row of values, of so many: theirs come first, row by row, then the others, all by place."""
    return _ROW.sub(lambda row: f"VALUES {', '.join([row[1]] * rows)}", _NAME.sub("?", sql))


def check_place(path: Path) -> None:
    """Accept a path where a database may lie; its folder is made when it is missing.

    Raises:
        DatabaseUnreachableError: the folder cannot be made, or a folder has that very name.
        DatabaseReadOnlyError: the folder may not be made there.
        DatabasePlaceError: the file has a second name.
        DatabasePlaceError: locks do not work there.
    """
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
    except PermissionError as error:
        raise DatabaseReadOnlyError(str(path), f"its folder cannot be made: {error.strerror}") from error
    except OSError as error:
        raise DatabaseUnreachableError(str(path), f"its folder cannot be made: {error.strerror}") from error
    if path.is_dir():
        raise DatabaseUnreachableError(str(path), "this is a folder; name a file")
    if path.exists() and (names := path.stat().st_nlink) > 1:
        raise DatabasePlaceError(str(path), f"the file has {names} names (hard links)")
    if _MOUNTS.exists():  # Linux; elsewhere the kind of the file system is not known
        mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
        if path.resolve() in mount_points(mounts):
            raise DatabasePlaceError(str(path), "the file alone is mounted here, without the folder it lies in")
        kind = file_system_of(path.resolve().parent, mounts)
        if _REMOTE.fullmatch(kind):
            raise DatabasePlaceError(str(path), f"{path.parent} is on {kind}, where locks cannot be relied on")


def mount_points(mounts: str) -> set[Path]:
    """Where something is mounted, by the text of `/proc/self/mountinfo`."""
    return {_point(line.partition(" - ")[0]) for line in mounts.splitlines() if " - " in line}


def _point(before: str) -> Path:
    return Path(_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), before.split(" ")[4]))


def file_system_of(folder: Path, mounts: str) -> str:
    """The kind of file system that `folder` lies on, by the text of `/proc/self/mountinfo`; "" when that is unknown."""
    found, longest = "", -1
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if not after:
            continue
        point = _point(before)
        # Of two mounts on one point the later one covers the earlier.
        if folder.is_relative_to(point) and len(point.parts) >= longest:
            found, longest = after.split(" ")[0], len(point.parts)
    return found


def connect(
    path: Path, *, busy_timeout_s: float, known: Sequence[Migration] = (), is_reader: bool = False
) -> apsw.Connection:
    """A connection in which a commit is on disk once it returns; a file that is refused is left as it is.

    Raises:
        DatabaseReadOnlyError: the file may not be written.
        SchemaNewerError, MigrationChangedError: it has been through other migrations than those in `known`, if any.
        apsw.Error: whatever SQLite has against it.
    """
    # What SQLite lays beside the file gets its rights. A file that is there is not opened: closing it would let go of
    # locks that this process holds on it.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    connection = apsw.Connection(str(path))
    try:
        connection.set_busy_timeout(round(busy_timeout_s * 1000))
        if connection.readonly("main"):
            raise DatabaseReadOnlyError(str(path), "the file may not be written")
        if known:
            pending_migrations(known, _applied(connection, statements("schema")), str(path))
        _patiently(lambda: _use_wal(connection, path), busy_timeout_s)
        connection.execute("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        if is_reader:
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_read_only(path: Path, *, busy_timeout_s: float) -> apsw.Connection:
    """A connection to a file that may not be written, that lies in a folder that may not be, or that others hold.

    Raises:
        DatabaseReadOnlyError: it cannot be read either: changes beside it wait to be put in.
        apsw.Error: whatever SQLite has against it.
    """
    # Only a file that says that it has a log, and has none, needs files beside it that may not be made.
    options = "mode=ro&immutable=1" if is_log_lost(path) else "mode=ro"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        connection = apsw.Connection(f"file:{quote(str(path))}?{options}", flags=flags)
        connection.set_busy_timeout(round(busy_timeout_s * 1000))
        connection.execute("PRAGMA query_only = ON; PRAGMA schema_version").fetchall()
    except apsw.CantOpenError as error:
        raise DatabaseReadOnlyError(str(path), f"changes wait in {path.name}-wal, and may not be put in") from error
    return connection


def log_of(path: Path) -> Path:
    """The write-ahead log beside a database."""
    return path.with_name(f"{path.name}-wal")


def is_log_lost(path: Path) -> bool:
    """Whether a file says that it has a log, as it does while it is in use and after a crash, and there is none."""
    try:
        with path.open("rb") as file:
            says_so = file.read(20)[18:20] == _HAS_LOG
    except OSError:
        return False
    return says_so and not log_of(path).exists()


def stays_lost(path: Path, seconds: float = _CLOSING_S) -> bool:
    """Whether the log of a file is lost, and no process that is about to close or to open the file explains that."""
    give_up_at = time.monotonic() + seconds
    while is_log_lost(path):
        if time.monotonic() >= give_up_at:
            return True
        time.sleep(_RETRY_S)
    return False


def note_lost_log(connection: apsw.Connection, at: int) -> None:
    """Keep in the file itself that its log was lost, and when that was found, in microseconds; the first time counts.

    Whoever opens the file gives it a new log, so that nothing else says so any more.
    """
    connection.execute(statements("schema")["note_lost_log"], (at,))


def complete(path: Path) -> None:
    """Let a file say that it has no log any more, once the last process that used it has put all of it in.

    Without this a file that was copied without its log would look whole. Never: raises; another process that opens the
    file meanwhile does the same when it is done.
    """
    if log_of(path).exists():
        return
    with suppress(apsw.Error):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.pragma("journal_mode", "delete")
        finally:
            connection.close()


def check_migrated(connection: apsw.Connection, path: Path, known: list[Migration]) -> None:
    """Accept tables that are those of this version.

    Raises:
        MigrationError: they are not, and may not be changed.
    """
    if pending_migrations(known, _applied(connection, statements("schema")), str(path)):
        raise MigrationError(str(path), "its tables are of an older version, and it may not be written")


def _use_wal(connection: apsw.Connection, path: Path) -> None:
    if connection.pragma("journal_mode") != "wal" and (mode := connection.pragma("journal_mode", "wal")) != "wal":
        raise DatabaseUnreachableError(str(path), f"it stays in journal mode {mode}, and wal is needed")


def _patiently(work: Callable[[], None], seconds: float) -> None:
    """Repeat what SQLite refuses at once, without its own patience, where waiting could be a deadlock."""
    give_up_at = time.monotonic() + seconds
    while True:
        try:
            return work()
        except apsw.BusyError:
            if time.monotonic() >= give_up_at:
                raise
            time.sleep(_RETRY_S)


def migrate(connection: apsw.Connection, path: Path, known: list[Migration]) -> None:
    """Bring the tables of a database to where `known` ends; of several processes one does it, the others wait.

    Raises:
        SchemaNewerError: a newer version of this package has been here.
        MigrationChangedError: another text was applied under the number of one of `known`.
        apsw.Error: whatever SQLite has against it; nothing was changed.
    """
    sql = statements("schema")
    if not pending_migrations(known, _applied(connection, sql), str(path)):
        return
    with _transaction(connection):
        for one in pending_migrations(known, _applied(connection, sql), str(path)):
            if one.number == 1:
                connection.execute(sql["create_migrations"])
            connection.execute(one.sql)
            connection.execute(sql["keep_migration"], (one.number, one.name, one.checksum))


def _applied(connection: apsw.Connection, sql: dict[str, str]) -> dict[int, str]:
    if not connection.execute(sql["has_migrations"]).get:
        return {}
    return {int(number): str(checksum) for number, checksum in connection.execute(sql["applied_migrations"])}


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    """A block that is committed whole or not at all, and that begins by keeping all other writers out."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
