"""What goes wrong around a database is said clearly, changes nothing, and is over once its cause is gone."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import apsw
import pytest

from harborage.identity import Identity, Quadruple
from harborage.state.errors import (
    DatabaseCorruptError,
    DatabaseError,
    DatabaseFullError,
    DatabaseLockedError,
    DatabaseReadOnlyError,
    DatabaseUnreachableError,
    MigrationChangedError,
    SchemaNewerError,
)
from harborage.state.sqlite import storage_of
from harborage.state.storage import open_storage
from harborage.state.store import StateRecord
from harborage.store import Commit, NewEvent, NewRun, RunQuery
from harborage.store.errors import EntryDamagedError
from harborage.store.sqlite import Database, SQLiteStore
from harborage.store.sqlite.failures import failure
from harborage.testing.conformance.store_bench import ME, claim, row, start, step

OpenDatabase = Callable[..., Awaitable[Database]]
StartProgram = Callable[..., Awaitable[Process]]
WHO = Quadruple("tenant", "user", "session", "run")

HOLD = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute(sys.argv[2])
print("held", flush=True)
sys.stdin.readline()
connection.close()
print("free", flush=True)
"""

OPEN_AS_NOBODY = """
import asyncio, os, sys, tempfile
from harborage.store.sqlite import Database
from harborage.state.errors import DatabaseError

async def main():
    with tempfile.TemporaryDirectory() as folder:  # whatever is imported late is imported now
        await (await Database.open(folder + "/x.db")).aclose()
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        await (await Database.open(sys.argv[1])).aclose()
        print("opened")
    except DatabaseError as error:
        print(type(error).__name__, error)

asyncio.run(main())
"""

WITHIN_A_QUOTA = """
import asyncio, os, resource, sys
from harborage.state.errors import DatabaseError
from harborage.state.sqlite import storage_of
from harborage.store.sqlite import Database
from harborage.testing.conformance.store_bench import start, step

async def main():
    async with storage_of(await Database.open(sys.argv[1])) as storage:
        lease = await start(storage.store, "r", worker="worker")
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(sys.argv[1] + "-wal") + 20_000, hard))
        kept = 0
        try:
            while True:
                await storage.store.commit(step(lease, 1 + kept, b"x" * 3000))
                kept += 1
        except DatabaseError as error:
            print(type(error).__name__, error.run_id)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        await storage.store.commit(step(lease, 1 + kept, b"after"))
        entries = await storage.store.entries("r")
        print(len(entries) == kept + 2, entries[-1])

asyncio.run(main())
"""


async def say(process: Process) -> str:
    """The next line that a program says."""
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def let_go(process: Process) -> None:
    """Let a program that holds the database go on, and wait until it has let go."""
    assert process.stdin is not None
    process.stdin.write(b"\n")
    await process.stdin.drain()
    assert await say(process) == "free"


def read(path: Path) -> bytes:
    """The bytes of a file."""
    return path.read_bytes()


def write(path: Path, data: bytes) -> None:
    """Let a file hold these bytes."""
    path.write_bytes(data)


async def test_a_locked_database_is_waited_for_and_then_reported(
    open_database: OpenDatabase, start_program: StartProgram, path: Path
) -> None:
    """While another process writes, reads go on; a write that has waited long enough names file and run."""
    storage = storage_of(await open_database(busy_timeout_s=0.05))
    lease = await start(storage.store, "r", worker="worker")
    holder = await start_program(HOLD, path, "BEGIN EXCLUSIVE")
    assert await say(holder) == "held"
    writes: list[Awaitable[object]] = [
        storage.store.commit(step(lease, 1, b"x")),
        storage.state.save(StateRecord("e", WHO, "kind")),
    ]
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(result) for result in results] == [DatabaseLockedError] * 2
    error = results[0]
    assert isinstance(error, DatabaseLockedError)
    assert (error.run_id, error.database) == ("r", str(path))
    assert "(run r)" in str(error)
    assert "end the process that holds it" in str(error)
    assert await storage.store.entries("r") == [b"started"]
    await let_go(holder)
    await storage.store.commit(step(lease, 1, b"after"))
    assert await storage.store.entries("r") == [b"started", b"after"]


async def test_a_short_lock_is_waited_out(open_database: OpenDatabase, start_program: StartProgram, path: Path) -> None:
    """A write that meets another process's transaction waits for its end and is done."""
    store = SQLiteStore(await open_database(busy_timeout_s=60))
    lease = await start(store, "r", worker="worker")
    holder = await start_program(HOLD, path, "BEGIN EXCLUSIVE")
    assert await say(holder) == "held"
    async with asyncio.TaskGroup() as group:
        group.create_task(store.commit(step(lease, 1, b"x")))
        await asyncio.sleep(0)
        await let_go(holder)
    assert await store.entries("r") == [b"started", b"x"]


async def test_a_database_that_is_held_whole_cannot_be_opened(
    open_database: OpenDatabase, start_program: StartProgram, path: Path
) -> None:
    """Opening gives up on a file that another process keeps to itself, and succeeds once it is free."""
    holder = await start_program(HOLD, path, "BEGIN EXCLUSIVE")  # not in WAL mode yet: readers are kept out, too
    assert await say(holder) == "held"
    with pytest.raises(DatabaseLockedError, match=path.name):
        await open_database(busy_timeout_s=0.05)
    await let_go(holder)
    await open_database(busy_timeout_s=0.05)


async def test_a_full_disk_refuses_what_does_not_fit(open_database: OpenDatabase) -> None:
    """What does not fit is refused with an error that names the run; what fits is kept; with space all is well."""
    database = await open_database()
    store = SQLiteStore(database)
    big = await start(store, "big", worker="worker")
    small = [await start(store, f"small {index}", worker="worker") for index in range(10)]
    pages = int(str(await database.read(lambda tx: tx.connection.pragma("page_count"))))
    await database.write(lambda tx: tx.connection.pragma("max_page_count", pages + 8))
    writes = [store.commit(step(lease, 1, b"fits")) for lease in small]
    writes.insert(5, store.commit(step(big, 1, b"before", b"x" * 1024 * 1024)))
    results = await asyncio.gather(*writes, return_exceptions=True)
    (error,) = [result for result in results if isinstance(result, Exception)]
    assert isinstance(error, DatabaseFullError)
    assert error.run_id == "big"
    assert "free some space" in str(error)
    assert await store.entries("big") == [b"started"]
    for lease in small:
        assert await store.entries(lease.run_id) == [b"started", b"fits"]
    await database.write(lambda tx: tx.connection.pragma("max_page_count", 1_000_000))
    await store.commit(step(big, 1, b"x" * 1024 * 1024))
    assert len(await store.entries("big")) == 2


async def test_a_quota_is_a_full_disk(start_program: StartProgram, path: Path) -> None:
    """Where the system refuses to let a file grow, what was acknowledged stays, and with room writing goes on."""
    program = await start_program(WITHIN_A_QUOTA, path)
    assert await say(program) == "DatabaseFullError r"
    assert await say(program) == "True b'after'"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="harborage-"))
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


async def test_a_file_that_may_not_be_written_is_refused(open_folder: Path, start_program: StartProgram) -> None:
    """A read-only file is refused when it is opened, not at the first write."""
    path = open_folder / "harborage.db"
    await (await Database.open(path)).aclose()
    path.chmod(0o444)
    published = await say(await start_program(OPEN_AS_NOBODY, path))
    assert published.startswith(f"DatabaseReadOnlyError {path}: ")
    assert "give this process the right to write" in published


async def test_a_folder_that_may_not_be_written_is_refused(open_folder: Path, start_program: StartProgram) -> None:
    """Neither a new file nor a new folder can be made where this process has no right to."""
    (open_folder / "closed").mkdir(mode=0o755)
    (open_folder / "closed").chmod(0o555)
    published = await say(await start_program(OPEN_AS_NOBODY, open_folder / "closed" / "new.db"))
    assert published.startswith("DatabaseUnreachableError")
    published = await say(await start_program(OPEN_AS_NOBODY, open_folder / "closed" / "new" / "new.db"))
    assert published.startswith("DatabaseReadOnlyError")
    assert "folder cannot be made" in published


async def test_missing_folders_are_made(tmp_path: Path) -> None:
    """A database is made with every folder on its way."""
    async with await open_storage(f"sqlite:{tmp_path / 'a' / 'b' / 'harborage.db'}") as storage:
        await start(storage.store, "r")
    assert (tmp_path / "a" / "b" / "harborage.db").is_file()


async def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    """A folder in the place of the file, or a file in the place of a folder, cannot be a database."""
    with pytest.raises(DatabaseUnreachableError, match="name a file"):
        await Database.open(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DatabaseUnreachableError, match="folder cannot be made"):
        await Database.open(tmp_path / "file" / "harborage.db")


async def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    """Something else under that name is refused and keeps every byte."""
    diary = b"dear diary, " * 1000
    write(path, diary)
    with pytest.raises(DatabaseCorruptError, match="not a database"):
        await Database.open(path)
    assert read(path) == diary


async def test_an_empty_file_becomes_a_database(path: Path) -> None:
    """A file of no bytes, as a program that was killed at once leaves it, is as good as none."""
    write(path, b"")
    await (await Database.open(path)).aclose()


async def fill(path: Path) -> None:
    """Three runs whose entries lie on pages of their own."""
    async with await open_storage(str(path)) as storage:
        for run_id in ("a", "b", "c"):
            entries = tuple(f"{run_id}{index}:".encode() + b"." * 3500 for index in range(20))
            await storage.store.commit(Commit(starts=(NewRun(run_id=run_id, who=ME, entries=entries),)))


async def test_a_damaged_page_harms_its_own_runs_only(path: Path) -> None:
    """A page that is none any more is an error for the run whose entries it held; the others are read and written."""
    await fill(path)
    data = bytearray(read(path))
    page = data.index(b"b7:") // 4096 * 4096
    data[page : page + 100] = b"\xff" * 100
    write(path, data)
    async with await open_storage(str(path)) as storage:
        with pytest.raises(DatabaseCorruptError, match=r"\(run b\)") as raised:
            await storage.store.entries("b")
        assert (raised.value.database, raised.value.run_id) == (str(path), "b")
        assert "bring back a copy" in str(raised.value)
        assert len(await storage.store.entries("a")) == len(await storage.store.entries("c")) == 20
        for claimed in await claim(storage.store, "worker", "a", "c"):
            await storage.store.commit(step(claimed.row.lease, 20, b"on"))
        assert len(await storage.store.entries("a")) == 21
        assert "run b" in (await row(storage.store, "b")).blocked


async def test_a_changed_byte_is_noticed(path: Path) -> None:
    """An entry that is not what was kept is never handed out; the error names run and entry, others are unaffected."""
    await fill(path)
    data = bytearray(read(path))
    data[data.index(b"b7:") + 1000] = ord("!")
    write(path, data)
    async with await open_storage(str(path)) as storage:
        with pytest.raises(EntryDamagedError, match="run b, entry 7") as raised:
            await storage.store.entries("b")
        assert (raised.value.run_id, raised.value.entry) == ("b", 7)
        assert len(await storage.store.entries("b", after=8)) == 12
        await claim(storage.store, "worker", "a", "c")
        assert "run b, entry 7" in (await row(storage.store, "b")).blocked


def alter(path: Path, sql: str) -> None:
    """Change the file from outside."""
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


async def test_a_newer_database_is_left_alone(path: Path) -> None:
    """A database that has been through migrations of a newer package is refused and not touched."""
    await fill(path)
    alter(path, "INSERT INTO harborage_migrations (number, name, checksum) VALUES (99, 'later', 'x')")
    before = read(path)
    with pytest.raises(SchemaNewerError, match="upgrade this package"):
        await Database.open(path)
    assert read(path) == before


async def test_a_changed_migration_is_noticed(path: Path) -> None:
    """A migration whose text is not what was applied is refused by number and name."""
    await fill(path)
    alter(path, "UPDATE harborage_migrations SET checksum = 'another' WHERE number = 1")
    with pytest.raises(MigrationChangedError, match="0001_init"):
        await Database.open(path)


async def test_other_tables_are_no_hindrance(path: Path) -> None:
    """A file that another program keeps tables in may be shared: ours have names of their own."""
    alter(path, "CREATE TABLE runs (x); INSERT INTO runs VALUES (1)")
    await fill(path)
    assert apsw.Connection(str(path)).execute("SELECT x FROM runs").get == 1


async def test_each_store_says_what_the_database_says(open_database: OpenDatabase) -> None:
    """Records, runs and events fail alike when the database refuses."""
    database = await open_database()
    storage = storage_of(database)
    await database.write(lambda tx: tx.connection.pragma("query_only", True))
    writes: list[Awaitable[object]] = [
        storage.state.save(StateRecord("e", WHO, "kind")),
        start(storage.store, "r"),
        storage.store.join("worker"),
        storage.store.commit(Commit(who=Identity("t", "u", "s"), events=(NewEvent(type="x", data=b"{}"),))),
    ]
    for write in writes:
        with pytest.raises(DatabaseReadOnlyError):
            await write
    assert (await storage.store.runs(RunQuery())).rows == []


def test_only_sqlites_own_errors_are_translated() -> None:
    """An error of the work itself comes out as it is; an I/O error for want of space is a full disk."""
    mine = ValueError("mine")
    assert failure(mine, "x.db") is mine
    published = failure(apsw.IOError("disk I/O error"), "x.db", system_errno=28)
    assert isinstance(published, DatabaseFullError)
    assert isinstance(published.__cause__, apsw.IOError)
    assert isinstance(failure(apsw.IOError("disk I/O error"), "x.db", system_errno=5), DatabaseUnreachableError)
    assert type(failure(apsw.SQLError("no such table"), "x.db", run_id="r")) is DatabaseError
    assert os.strerror(28)
