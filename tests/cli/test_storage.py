"""Opening kept storage, finding runs in it, and asking before an agent is executed."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harborage.app.project import FolderGoneError
from harborage.app.target import AgentNotReadyError, TargetError
from harborage.cli.storage import NoDatabaseError, open_kept_storage, run_command, storage_url
from harborage.errors import HarborageError
from harborage.llm.account import PriceUnknownError
from harborage.runtime.durable.engine import RunEndedError, RunNotFoundError
from harborage.runtime.history import ForkError, RunPrefixError
from harborage.state.errors import StorageUrlError
from harborage.state.storage import open_storage
from tests.kit.stored_runs import rows_of

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
    with pytest.raises(NoDatabaseError, match=r"there is no database .*none\.db; the first 'harborage run' "):
        async with open_kept_storage(url.format(tmp_path)):
            pass
    assert not (tmp_path / "none.db").exists()


async def test_memory_keeps_nothing() -> None:
    """What a process kept there ended with it."""
    with pytest.raises(NoDatabaseError, match="memory: keeps nothing"):
        async with open_kept_storage("memory:"):
            pass


async def test_a_database_that_is_there_is_opened(tmp_path: Path) -> None:
    """By its url or its path."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    await (await open_storage(url)).aclose()
    for way in (url, str(tmp_path / "runs.db")):
        async with open_kept_storage(way) as storage:
            assert await rows_of(storage.store) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HarborageError("it\nbroke"), 1),
        (ForkError("no such step"), 2),
        (AgentNotReadyError("no key"), 2),
        (FolderGoneError("/gone"), 2),
        (PriceUnknownError("m"), 2),
        (RunPrefixError("01", ("0100", "0101")), 2),
        (StorageUrlError("sqlite"), 2),
        (TargetError("x", "no such file"), 2),
        (RunNotFoundError("r"), 2),
        (RunEndedError("r"), 1),
        (NoDatabaseError("x", "none"), 2),
        (OSError("no room\x1b[2J"), 1),
    ],
)
def test_what_goes_wrong_is_a_line(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """And an exit code: 2 for wrong use, else 1; with `debug` also where it came from. Nothing moves the cursor."""

    async def fail() -> int:
        raise error

    assert run_command(fail) == code
    said = capsys.readouterr().err
    assert said.startswith("harborage: ")
    assert said.count("\n") == 1
    assert ("--debug" in said) == (not isinstance(error, HarborageError))
    assert run_command(fail, debug=True) == code
    traced = capsys.readouterr().err
    assert traced.startswith("Traceback")
    assert traced.endswith(said.replace(" (--debug shows where)", ""))
    assert "\x1b" not in said + traced


def test_an_interrupt_has_its_code() -> None:
    """As for every command."""

    async def stop() -> int:
        raise KeyboardInterrupt

    assert run_command(stop) == 130


def test_work_gives_the_code() -> None:
    """What the work returns is the exit code."""

    async def work() -> int:
        await asyncio.sleep(0)
        return 3

    assert run_command(work) == 3


def ids_in(text: str) -> list[str]:
    """The run ids that a text names."""
    return re.findall(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b", text)


@pytest.fixture
def foreign(
    tmp_path: Path, at_terminal: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A project of another user, with a run that waits; this user has started nothing in it."""
    theirs = str(tmp_path_factory.mktemp("theirs"))
    maker = at_terminal("run", "agent.py", "ask", XDG_STATE_HOME=theirs)
    maker.expect("Which version?")
    maker.type("/leave\r")
    assert maker.end() == 5
    run_id = ids_in(maker.text)[-1]
    with (tmp_path / "agent.py").open("a") as agent:
        agent.write("\nopen('executed', 'a').write('x')\n")
    return tmp_path, run_id


def test_a_foreign_agent_is_not_executed_without_a_terminal(
    foreign: tuple[Path, str], in_pipe: Callable[..., Any]
) -> None:
    """The commands that would run it say its path and how to allow it, and end with 2."""
    folder, run_id = foreign
    for words in (("resume",), ("replay",), ("freeze",), ("fork", "--at", "1")):
        command = in_pipe(words[0], run_id, *words[1:])
        assert command.end() == 2, words
        assert str(folder / "agent.py") in command.err
        assert f"harborage {words[0]} {run_id} --agent" in command.err
    assert not (folder / "executed").exists()


def test_an_agent_that_is_named_on_the_command_line_is_executed(
    foreign: tuple[Path, str], in_pipe: Callable[..., Any]
) -> None:
    """A user who names it has allowed it."""
    folder, run_id = foreign
    in_pipe("replay", run_id, "--agent", "agent.py").end()
    assert (folder / "executed").exists()


def test_a_person_at_a_terminal_is_asked_and_remembered(
    foreign: tuple[Path, str], at_terminal: Callable[..., Any]
) -> None:
    """No executes nothing; yes does, and is not asked again."""
    folder, run_id = foreign
    refused = at_terminal("replay", run_id)
    refused.expect(str(folder / "agent.py"))
    refused.expect("Execute it (y/N)?")
    refused.type("\r")
    assert refused.end() == 2
    assert not (folder / "executed").exists()
    allowed = at_terminal("replay", run_id)
    allowed.expect("Execute it (y/N)?")
    allowed.type("y\r")
    allowed.end()
    assert (folder / "executed").exists()
    again = at_terminal("replay", run_id)
    again.end()
    assert "Execute it" not in again.text


def test_the_user_who_started_a_run_is_not_asked(tmp_path: Path, in_pipe: Callable[..., Any]) -> None:
    """Starting an agent is allowing it, in that folder."""
    maker = in_pipe("run", "agent.py", "ask")
    assert maker.end() == 5
    run_id = ids_in(maker.err)[-1]
    assert in_pipe("replay", run_id).end() == 0
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("copy"))
    assert in_pipe("replay", run_id, cwd=tmp_path / "copy").end() == 2


def test_standing_in_a_folder_executes_none_of_its_files(tmp_path: Path, in_pipe: Callable[..., Any]) -> None:
    """Files with the names of libraries, or of the goal's words, stay unread when the standard assistant is asked."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in ("html", "apsw", "msgspec", "json", "README", "What", "rich", "httpx2", "xllamacpp", "sitecustomize"):
        (folder / f"{name}.py").write_text("open('executed', 'a').write(__name__)\n", "utf-8")
    for words in (("What is in here?",), ("README.md", "hi"), ("README", "hi"), ("hello",)):
        in_pipe("run", "--model", "script:", *words, cwd=folder, is_new=True).end()
        assert not (folder / "executed").exists(), words
