"""A url opens everything that a process keeps, and one call closes it."""

from __future__ import annotations

import asyncio
import builtins
import subprocess
import sys
from pathlib import Path

import pytest

from harborage.clock import SYSTEM_CLOCK
from harborage.state import STORAGE_DRIVERS, MemoryStateStore, Storage, StorageUrlError, open_storage
from harborage.store.memory import MemoryStore
from harborage.testing.conformance.store_bench import start
from tests.kit.tables import each_row


async def test_memory_is_a_storage() -> None:
    """`memory:` is an empty storage of its own each time."""
    async with await open_storage("memory:") as one, await open_storage("memory:") as other:
        await start(one.store, "r")
        assert isinstance(one.store, MemoryStore)
        assert await one.store.entries("r") == [b"started"]
        assert await other.store.entries("r") == []


@pytest.mark.parametrize("form", ["sqlite:{}", "SQLite:{}", "{}"])
async def test_a_path_is_a_storage(form: str, tmp_path: Path) -> None:
    """A file is named with or without `sqlite:`, and what was kept is there when it is opened again."""
    url = form.format(tmp_path / "kept.db")
    async with await open_storage(url) as storage:
        await start(storage.store, "r")
    async with await open_storage(url) as storage:
        assert await storage.store.entries("r") == [b"started"]


async def test_a_bare_name_is_a_file_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is one from the working directory."""
    monkeypatch.chdir(tmp_path)
    async with await open_storage("data/kept.db"):
        assert (tmp_path / "data" / "kept.db").is_file()


@each_row(
    "url, says",
    [
        ("", "empty"),
        ("  ", "empty"),
        ("sqlite:", "names no file"),
        ("sqlite://data.db", "write sqlite:PATH"),
        ("sqlite:///tmp/data.db", "write sqlite:PATH"),
        ("sqlite::memory:", "memory:"),
        ("memory:somewhere", "nothing may follow"),
        ("mysql://me:secret@host/db", r"no storage is called mysql: \(there are memory, postgres, postgresql, sqlite"),
    ],
)
async def test_a_url_that_names_nothing_is_refused(url: str, says: str) -> None:
    """The error says what could have been written, and never what may be a password."""
    with pytest.raises(StorageUrlError, match=says) as raised:
        await open_storage(url)
    assert "secret" not in str(raised.value)


def test_postgres_needs_its_extra() -> None:
    """Without asyncpg the error names the extra that brings it (in a fresh interpreter: imports are for all tests)."""
    code = (
        "import asyncio, sys; sys.modules['asyncpg'] = None\n"
        "from harborage.errors import MissingExtraError\n"
        "from harborage.state import open_storage\n"
        "try: asyncio.run(open_storage('postgres://localhost/none'))\n"
        "except MissingExtraError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "harborage[postgres]" in done.stdout, done.stderr


def test_the_table_names_the_drivers_there_are() -> None:
    """Listing what can be opened costs no import."""
    assert STORAGE_DRIVERS.names() == ["memory", "postgres", "postgresql", "sqlite"]


class Part:
    """A part of a storage that notes when it is closed."""

    def __init__(self, name: str, closed: list[str], *, fails: bool = False) -> None:
        self.name = name
        self._closed = closed
        self._fails = fails

    async def aclose(self) -> None:
        self._closed.append(self.name)
        await asyncio.sleep(0)
        if self._fails:
            raise builtins.ValueError(f"{self.name} is stuck")


def storage_of_parts(closed: list[str], *, failing: str = "") -> Storage:
    """A storage of parts that note when they are closed."""
    parts = {name: Part(name, closed, fails=name == failing) for name in ("state", "store", "artifacts", "beneath")}
    return Storage(
        state=parts["state"],  # type: ignore[arg-type] # only closing matters here
        store=parts["store"],  # type: ignore[arg-type]
        artifacts=parts["artifacts"],  # type: ignore[arg-type]
        beneath=parts["beneath"],
    )


async def test_every_part_is_closed_once_and_the_ground_last() -> None:
    """Closing closes each object once, what the stores share at the end, and nothing the second time."""
    closed: list[str] = []
    storage = storage_of_parts(closed)
    await asyncio.gather(storage.aclose(), storage.aclose())
    await storage.aclose()
    assert closed == ["store", "state", "artifacts", "beneath"]


async def test_a_part_that_fails_keeps_no_other_open() -> None:
    """What cannot be closed is reported once everything else was."""
    closed: list[str] = []
    with pytest.raises(ExceptionGroup) as raised:
        await storage_of_parts(closed, failing="store").aclose()
    assert closed == ["store", "state", "artifacts", "beneath"]
    assert [str(error) for error in raised.value.exceptions] == ["store is stuck"]


async def test_a_storage_in_memory_reads_the_given_clock() -> None:
    """The clock that is handed in is that of every store."""
    storage = await open_storage("memory:", clock=SYSTEM_CLOCK)
    assert isinstance(storage.state, MemoryStateStore)
    await storage.aclose()
