"""Files are watched by their times: what counts as a change, and what is left out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harborage.app.watching import changed, changes, snapshot
from harborage.testing.clock import FakeClock

WITHIN_S = 20


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with the files of a small program."""
    (tmp_path / "agent.py").write_text("agent = 1\n", "utf-8")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "clock.py").write_text("now = 1\n", "utf-8")
    return tmp_path


def test_a_written_an_added_and_a_removed_file_have_changed(program: Path) -> None:
    """Each is named."""
    before = snapshot([program])
    (program / "agent.py").write_text("agent = 22\n", "utf-8")
    (program / "new.yaml").write_text("a: 1\n", "utf-8")
    (program / "tools" / "clock.py").unlink()
    found = changed(before, snapshot([program]))
    assert [path.name for path in found] == ["agent.py", "new.yaml", "clock.py"]


@pytest.mark.parametrize(
    "name", ["run.sqlite", "run.db", "run.db-wal", "run.db-shm", "x-journal", ".git/a.py", "node_modules/a.py"]
)
def test_what_is_no_part_of_the_program_is_left_out(program: Path, name: str) -> None:
    """Databases are written while it runs; what lies in hidden folders is a tool's."""
    before = snapshot([program])
    (program / name).parent.mkdir(exist_ok=True)
    (program / name).write_text("x", "utf-8")
    assert changed(before, snapshot([program])) == []


def test_a_change_of_permissions_is_none(program: Path) -> None:
    """The code is the same."""
    before = snapshot([program])
    os.chmod(program / "agent.py", 0o600)
    assert changed(before, snapshot([program])) == []


def test_a_root_that_is_missing_has_no_files(program: Path) -> None:
    """It may come later; a root may be a single file."""
    assert snapshot([program / "nowhere"]) == {}
    assert list(snapshot([program / "agent.py"])) == [program / "agent.py"]


async def test_changes_are_told_once_the_folder_is_quiet(program: Path) -> None:
    """An editor that writes in two goes causes one reload."""
    clock = FakeClock()
    told = changes([program], clock)
    first = asyncio.create_task(anext(told))
    await _until(lambda: clock.armed > 0)
    (program / "agent.py").write_text("agent = 333\n", "utf-8")
    clock.advance(0.25)
    await _until(lambda: clock.armed > 0)
    (program / "tools" / "clock.py").write_text("now = 4444\n", "utf-8")
    while not first.done():
        clock.advance(0.25)
        await _until(lambda: clock.armed > 0 or first.done())
    assert [path.name for path in await first] == ["agent.py", "clock.py"]
    await told.aclose()


async def _until(is_so: Callable[[], bool]) -> None:
    """Let the files be looked at, in their thread, until something is so."""
    async with asyncio.timeout(WITHIN_S):
        while not is_so():
            await asyncio.to_thread(lambda: None)
