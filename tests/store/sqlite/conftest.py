"""What the tests of SQLite share: an open database in a folder of its own, and programs in processes of their own."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from harborage.store.sqlite import Database

OpenDatabase = Callable[..., Awaitable[Database]]
StartProgram = Callable[..., Awaitable[Process]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database of the test lies."""
    return tmp_path / "harborage.db"


@pytest.fixture
async def open_database(path: Path) -> AsyncIterator[OpenDatabase]:
    """Opens the database, as often as asked; every one is closed at the end."""
    async with AsyncExitStack() as stack:

        async def open_one(**options: float) -> Database:
            database = await Database.open(path, **options)
            stack.push_async_callback(database.aclose)
            return database

        yield open_one


@pytest.fixture
async def start_program() -> AsyncIterator[StartProgram]:
    """Starts a program in a Python of its own, with pipes; whatever still runs at the end is killed."""
    started: list[Process] = []

    async def start(source: str, *arguments: object) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-u", "-c", source, *map(str, arguments), stdin=PIPE, stdout=PIPE
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()
