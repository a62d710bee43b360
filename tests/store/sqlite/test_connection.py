"""Where a database may lie, and how its connections are set up."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from harborage.state.errors import DatabasePlaceError
from harborage.store.sqlite import Database, connection
from harborage.store.sqlite.connection import check_place, file_system_of, is_log_lost, log_of
from tests.kit.tables import each_row

OpenDatabase = Callable[..., Awaitable[Database]]

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /srv rw - nfs4 server:/srv rw
31 30 254:1 / /srv/local rw - xfs /dev/vdb rw
32 22 0:27 / /mnt/with\040space rw - cifs //server/share rw
33 22 0:28 / /mnt/twice rw - ext4 /dev/vdc rw
34 33 0:29 / /mnt/twice rw - fuse.sshfs me@there:/ rw
35 22 0:30 / /tmp rw - tmpfs tmpfs rw
"""


@each_row(
    "folder, kind",
    [
        ("/", "ext4"),
        ("/var/data", "ext4"),
        ("/srv/me", "nfs4"),
        ("/srvx", "ext4"),
        ("/srv/local/data", "xfs"),
        ("/mnt/with space/data", "cifs"),
        ("/mnt/twice", "fuse.sshfs"),
        ("/tmp/x", "tmpfs"),
    ],
)
def test_the_innermost_mount_decides(folder: str, kind: str) -> None:
    """The file system of a folder is that of the mount closest above it, and of two on one point that of the later."""
    assert file_system_of(Path(folder), MOUNTS) == kind


def test_what_is_not_listed_is_unknown() -> None:
    """Without a mount above it nothing is known of a folder."""
    assert file_system_of(Path("/x"), "") == ""
    assert file_system_of(Path("/x"), "rubbish\n1 2 3") == ""


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "ceph", "9p", "ext4", "tmpfs", "overlay"]
)
def test_network_file_systems_are_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database on a network share is refused before it is made; local file systems are fine."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 0:1 / / rw - {kind} device rw\n")
    monkeypatch.setattr(connection, "_MOUNTS", mounts)
    if kind in {"9p", "ext4", "tmpfs", "overlay"}:
        check_place(tmp_path / "x.db")
    else:
        with pytest.raises(DatabasePlaceError, match=f"is on {kind}.*postgres://"):
            check_place(tmp_path / "x.db")


async def test_a_commit_is_on_disk(open_database: OpenDatabase) -> None:
    """Both connections write ahead and flush with every commit."""
    database = await open_database(busy_timeout_s=7)
    for ask in (database.read, database.write):
        settings = await ask(
            lambda tx: [tx.connection.pragma(name) for name in ("journal_mode", "synchronous", "busy_timeout")]
        )
        assert settings == ["wal", 2, 7000]


async def test_a_migration_is_recorded_once(open_database: OpenDatabase) -> None:
    """Opening a database again applies nothing twice."""
    for _ in range(2):
        database = await open_database()
    applied = await database.read(
        lambda tx: tx.execute("SELECT number, name, length(checksum) FROM harborage_migrations").fetchall()
    )
    assert applied == [(1, "init", 64), (2, "tags", 64), (3, "session_lists", 64)]


async def test_a_migration_that_fails_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that breaks off half-way is taken back whole; the next attempt starts from where it was."""
    known = connection.pending_migrations

    def spoilt(migrations, applied, name):  # type: ignore[no-untyped-def]
        import msgspec

        return [
            msgspec.structs.replace(one, sql=f"{one.sql}; SELECT broken") for one in known(migrations, applied, name)
        ]

    with monkeypatch.context() as patch:
        patch.setattr(connection, "pending_migrations", spoilt)
        with pytest.raises(Exception, match="broken"):
            await Database.open(path)
    database = await Database.open(path)
    assert await database.read(lambda tx: tx.execute("SELECT count(*) FROM harborage_runs").get) == 0
    await database.aclose()


async def test_a_file_says_that_it_has_a_log_while_it_is_in_use(open_database: OpenDatabase, tmp_path: Path) -> None:
    """Copied without the log it is known to lack commits; closed by its last user it is whole alone."""
    first, second = await open_database(), await open_database()
    path = first.path
    copy = tmp_path / "copy.db"
    shutil.copyfile(path, copy)
    assert is_log_lost(copy)
    assert not is_log_lost(path)
    await first.aclose()
    assert log_of(path).exists()
    shutil.copyfile(path, copy)
    assert is_log_lost(copy)
    await second.aclose()
    assert not log_of(path).exists()
    shutil.copyfile(path, copy)
    assert not is_log_lost(copy)


def test_what_is_no_database_has_lost_no_log(tmp_path: Path) -> None:
    """Neither a file that is missing, nor an empty one, nor a folder."""
    empty = tmp_path / "empty.db"
    empty.touch()
    assert not any(is_log_lost(one) for one in (tmp_path / "none.db", empty, tmp_path))
