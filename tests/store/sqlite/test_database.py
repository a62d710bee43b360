"""One database serves many callers: writes share their flush, failures stay with whom they belong, nothing is left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harborage.state.errors import StoreClosedError
from harborage.store.sqlite import Database
from harborage.store.sqlite.transactions import Transaction

OpenDatabase = Callable[..., Awaitable[Database]]
Work = Callable[[Transaction], Any]

CREATE = "CREATE TABLE IF NOT EXISTS kept (value INTEGER UNIQUE)"
INSERT = "INSERT INTO kept VALUES (?)"
VALUES = "SELECT value FROM kept ORDER BY value"


@pytest.fixture
async def database(open_database: OpenDatabase) -> Database:
    """A database with a table of numbers."""
    opened = await open_database()
    await opened.write(lambda tx: tx.execute(CREATE))
    return opened


def keep(value: int) -> Work:
    """Work that keeps a number."""
    return lambda tx: tx.execute(INSERT, (value,)) and value


async def kept(database: Database) -> list[int]:
    """The numbers that are kept."""
    return await database.read(lambda tx: [value for (value,) in tx.execute(VALUES)])


async def count_commits(database: Database) -> list[None]:
    """A list that grows with every commit."""
    commits: list[None] = []

    def hook() -> bool:
        commits.append(None)
        return False

    await database.write(lambda tx: tx.connection.set_commit_hook(hook))
    return commits


class Gate:
    """Work that holds up the writer until it is let go, so that what comes behind it piles up."""

    def __init__(self, database: Database) -> None:
        self._may_go = threading.Event()
        self.begun = threading.Event()
        self.passed = asyncio.ensure_future(database.write(self._wait))

    def _wait(self, transaction: Transaction) -> None:
        self.begun.set()
        self._may_go.wait()

    async def closed(self) -> None:
        """Wait until the writer stands at the gate."""
        await asyncio.to_thread(self.begun.wait)

    def open(self) -> None:
        """Let the writer go on."""
        self._may_go.set()


async def test_writes_that_pile_up_share_one_commit(database: Database) -> None:
    """A hundred writes that came while the writer was busy are one transaction."""
    commits = await count_commits(database)
    gate = Gate(database)
    await gate.closed()
    writes = [asyncio.ensure_future(database.write(keep(index))) for index in range(100)]
    await asyncio.sleep(0)
    commits.clear()
    gate.open()
    assert await asyncio.gather(*writes) == list(range(100))
    assert len(commits) == 2  # that of the gate, and that of all the others
    assert await kept(database) == list(range(100))


async def test_a_failure_is_its_callers_alone(database: Database) -> None:
    """Work that fails after it wrote something takes nothing else of its batch with it, and leaves nothing behind."""

    def fail(transaction: Transaction) -> None:
        transaction.execute(INSERT, (1000,))
        raise ValueError("changed its mind")

    gate = Gate(database)
    await gate.closed()
    writes = [database.write(fail if index == 5 else keep(index)) for index in range(10)]
    gate.open()
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [str(result) for result in results if isinstance(result, Exception)] == ["changed its mind"]
    assert await kept(database) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


async def test_a_failure_without_a_trace_costs_no_commit(database: Database) -> None:
    """Work that refuses before it writes, such as a write under a lost lease, leaves its batch together."""
    commits = await count_commits(database)

    def refuse(transaction: Transaction) -> None:
        raise LookupError("not held")

    gate = Gate(database)
    await gate.closed()
    writes = [database.write(refuse if index % 2 else keep(index)) for index in range(10)]
    commits.clear()
    gate.open()
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [isinstance(result, LookupError) for result in results] == [False, True] * 5
    assert len(commits) == 2  # that of the gate, and that of all the others


async def test_a_write_that_is_cancelled_while_it_waits_is_left_out(database: Database) -> None:
    """A caller that gives up before its turn has written nothing, and the writes around it are done."""
    gate = Gate(database)
    await gate.closed()
    writes = [asyncio.ensure_future(database.write(keep(index))) for index in range(3)]
    await asyncio.sleep(0)
    writes[1].cancel()
    gate.open()
    assert await writes[0] == 0
    assert await writes[2] == 2
    with pytest.raises(asyncio.CancelledError):
        await writes[1]
    assert await kept(database) == [0, 2]


async def test_a_write_that_is_cancelled_in_its_turn_is_done_whole(database: Database) -> None:
    """A caller that gives up while its write is under way gets its cancellation, the write is kept, and the next one
    follows."""
    begun, may_go = threading.Event(), threading.Event()

    def two(transaction: Transaction) -> None:
        transaction.execute(INSERT, (1,))
        begun.set()
        may_go.wait()
        transaction.execute(INSERT, (2,))

    write = asyncio.ensure_future(database.write(two))
    await asyncio.to_thread(begun.wait)
    write.cancel()
    with pytest.raises(asyncio.CancelledError):
        await write
    may_go.set()
    await database.write(keep(3))
    assert await kept(database) == [1, 2, 3]


async def test_many_event_loops_share_a_database(database: Database) -> None:
    """Callers on other event loops, in threads of their own, write and read as those of the first."""

    async def others(index: int) -> list[int]:
        await asyncio.gather(*(database.write(keep(index * 100 + turn)) for turn in range(20)))
        return [value for value in await kept(database) if value // 100 == index]

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(4) as threads:
        found = await asyncio.gather(
            *(loop.run_in_executor(threads, lambda index=index: asyncio.run(others(index))) for index in range(4))
        )
    assert found == [[index * 100 + turn for turn in range(20)] for index in range(4)]
    assert len(await kept(database)) == 80


async def test_a_closed_event_loop_disturbs_no_other(database: Database) -> None:
    """A write whose event loop ended before the answer is kept, and the writer lives on."""
    gate = Gate(database)
    await gate.closed()

    async def leave() -> None:
        asyncio.ensure_future(database.write(keep(1))).cancel()
        database.write(keep(2))
        database.on_change(lambda: None)

    await asyncio.to_thread(asyncio.run, leave())
    gate.open()
    await database.write(lambda tx: tx.notify())
    await database.write(keep(3))
    assert await kept(database) == [2, 3]


async def test_a_read_sees_one_state(database: Database) -> None:
    """Work that reads twice sees the same, whatever is written meanwhile."""
    begun, may_go = threading.Event(), threading.Event()

    def twice(transaction: Transaction) -> tuple[list[Any], list[Any]]:
        before = transaction.execute(VALUES).fetchall()
        begun.set()
        may_go.wait()
        return before, transaction.execute(VALUES).fetchall()

    reading = asyncio.ensure_future(database.read(twice))
    await asyncio.to_thread(begun.wait)
    await database.write(keep(1))
    may_go.set()
    before, after = await reading
    assert before == after == []


async def test_a_reader_cannot_write(database: Database) -> None:
    """Work that was handed in to read changes nothing, however it tries."""
    with pytest.raises(Exception, match="readonly"):
        await database.read(keep(1))
    assert await kept(database) == []


def threads_of(path: Path) -> list[str]:
    """The threads that serve the database."""
    return [thread.name for thread in threading.enumerate() if thread.name.endswith(path.name)]


async def test_a_closed_database_leaves_no_thread(path: Path) -> None:
    """Closing ends both threads, after what was asked for before; closing again, or from two sides, does nothing."""
    database = await Database.open(path)
    assert len(threads_of(path)) == 2
    await database.write(lambda tx: tx.execute(CREATE))
    writes = [asyncio.ensure_future(database.write(keep(index))) for index in range(10)]
    await asyncio.sleep(0)
    await asyncio.gather(database.aclose(), database.aclose())
    await database.aclose()
    assert await asyncio.gather(*writes) == list(range(10))
    assert threads_of(path) == []
    assert database.is_closed
    for ask in (database.write, database.read):
        with pytest.raises(StoreClosedError):
            await ask(keep(1))
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name]


async def test_a_database_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    """Whatever goes wrong while it is opened, nothing goes on running."""
    with pytest.raises(Exception, match="folder"):
        await Database.open(tmp_path)
    assert threads_of(tmp_path) == []


async def test_a_listener_is_called_after_a_notified_change(database: Database, open_database: OpenDatabase) -> None:
    """Listeners of the same process are called at once after a notified change, and those of others when they look."""
    other = await open_database()
    received = {"mine": 0, "theirs": 0}

    def hear(who: str) -> None:
        received[who] += 1

    database.on_change(lambda: hear("mine"))
    unlisten = other.on_change(lambda: hear("theirs"))
    await database.write(keep(1))
    await other.look()
    assert received == {"mine": 0, "theirs": 0}
    await database.write(lambda tx: tx.notify())
    await asyncio.sleep(0)
    assert received == {"mine": 1, "theirs": 0}
    await other.look()
    await other.look()
    await asyncio.sleep(0)
    assert received == {"mine": 1, "theirs": 1}
    unlisten()
    await database.write(lambda tx: tx.notify())
    await other.look()
    await asyncio.sleep(0)
    assert received == {"mine": 2, "theirs": 1}


async def test_a_failed_write_notifies_no_listener(database: Database) -> None:
    """Nobody is called to look for a change that was taken back."""
    received: list[None] = []
    database.on_change(lambda: received.append(None))

    def fail(transaction: Transaction) -> None:
        transaction.execute(INSERT, (1,))
        transaction.notify()
        raise ValueError("never mind")

    with pytest.raises(ValueError, match="never mind"):
        await database.write(fail)
    await asyncio.sleep(0)
    assert received == []
