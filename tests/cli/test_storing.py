"""Which database a command means, and what it says when there is none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harborage.cli.place import storage_url
from harborage.cli.storing import NoDatabaseError, carry_out, kept_runs
from harborage.errors import HarborageError
from harborage.runtime.history import ForkError
from harborage.state.storage import open_storage
from tests.kit.kept import rows_of

pytestmark = pytest.mark.anyio


def test_the_option_comes_first() -> None:
    """Then the environment, then the project's own file; blanks say nothing."""
    environ = {"HARBORAGE_STORAGE": "postgres://x"}
    assert storage_url("sqlite:a.db", environ) == "sqlite:a.db"
    assert storage_url(" ", environ) == "postgres://x"
    assert storage_url("", {"HARBORAGE_STORAGE": " "}) == "sqlite:.harborage/harborage.db"


@pytest.mark.parametrize("url", ["sqlite:{}/none.db", "{}/none.db"])
async def test_a_database_is_not_made_by_looking(tmp_path: Path, url: str) -> None:
    """A file that is not there is an error, and is not there afterwards."""
    with pytest.raises(NoDatabaseError, match=r"there is no database .*none\.db: 'harborage run "):
        async with kept_runs(url.format(tmp_path)):
            pass
    assert not (tmp_path / "none.db").exists()


async def test_memory_keeps_nothing() -> None:
    """What a process kept there ended with it."""
    with pytest.raises(NoDatabaseError, match="memory: keeps nothing"):
        async with kept_runs("memory:"):
            pass


async def test_a_database_that_is_there_is_opened(tmp_path: Path) -> None:
    """By its url or its path."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    await (await open_storage(url)).aclose()
    for way in (url, str(tmp_path / "runs.db")):
        async with kept_runs(way) as storage:
            assert await rows_of(storage.store) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HarborageError("it\nbroke"), 1),
        (ForkError("no such step"), 2),
        (NoDatabaseError("x", "none"), 2),
        (OSError("no room\x1b[2J"), 1),
    ],
)
def test_what_goes_wrong_is_a_line(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """And an exit code: 2 for wrong use, else 1; with `debug` also where it came from. Nothing moves the cursor."""

    async def fail() -> int:
        raise error

    assert carry_out(fail) == code
    said = capsys.readouterr().err
    assert said.startswith("harborage: ")
    assert said.count("\n") == 1
    assert ("--debug" in said) == (not isinstance(error, HarborageError))
    assert carry_out(fail, debug=True) == code
    traced = capsys.readouterr().err
    assert traced.startswith("Traceback")
    assert traced.endswith(said.replace(" (--debug shows where)", ""))
    assert "\x1b" not in said + traced


def test_an_interrupt_has_its_code() -> None:
    """As for every command."""

    async def stop() -> int:
        raise KeyboardInterrupt

    assert carry_out(stop) == 130


def test_work_gives_the_code() -> None:
    """What the work returns is the exit code."""

    async def work() -> int:
        await asyncio.sleep(0)
        return 3

    assert carry_out(work) == 3
