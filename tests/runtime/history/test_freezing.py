"""A run becomes a test: two files whose names follow from the run, without secrets, that pass in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harborage import codec
from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.identity import Identity
from harborage.llm import ChatMessage, Content, Role
from harborage.runtime.durable.model_records import Prompt
from harborage.runtime.history import build_history
from harborage.runtime.history.freezing import (
    FreezeError,
    Frozen,
    FrozenRun,
    attached_to,
    cleaner,
    freeze,
    write_frozen,
)
from harborage.runtime.host import Runtime
from harborage.testing.frozen import assert_replays, replay_frozen
from harborage.testing.llm import ScriptedLLM, calls_tools, says
from harborage.tools import SideEffect, tool

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
SECRET = "sk-abcdefghijklmnopqrstuvwxyz0123"
AGENT = """
from harborage import SideEffect, tool
from harborage.app import Agent

@tool(effects=SideEffect.READ)
async def page(number: int, api_key: str = "") -> dict[str, str]:
    '''A page.'''
    raise AssertionError("a replay calls no tool")

agent = Agent(name="reader", model="openai:gpt-5", tools=[page], instructions="WORDS")
"""


@tool(effects=SideEffect.READ)
async def page(number: int, api_key: str = "") -> dict[str, str]:
    """A page."""
    return {"text": f"page {number}", "password": "hunter2-hunter2", "note": f"the key is {SECRET}"}


def reading() -> ScriptedLLM:
    return ScriptedLLM([calls_tools(("page", {"number": 1, "api_key": SECRET}), content="let me see"), says("read")])


async def record_of(goal: str = "Read the book, please!", **fields: Any) -> list[bytes]:
    async with Runtime(model=reading(), tools=[page], instructions="Be brief.", **fields) as runtime:
        run = await runtime.start(goal, who=ME)
        await run.finished()
        return await run.history()


@pytest.fixture
async def project(tmp_path: Path) -> tuple[Path, Frozen]:
    """A folder with an agent, and a frozen run of it."""
    (tmp_path / "agent.py").write_text(AGENT.replace("WORDS", "Be brief."))
    frozen = freeze(await record_of(), agent="agent.py", root=tmp_path, out=tmp_path / "tests", environ={})
    write_frozen(frozen)
    return tmp_path, frozen


def pytest_of(folder: Path) -> subprocess.CompletedProcess[str]:
    """What plain pytest says, in a process that has no key and no plugin of ours."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "OPENAI", "HARBORAGE"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "tests"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


async def test_a_frozen_run_passes_in_a_fresh_process(project: tuple[Path, Frozen]) -> None:
    """With plain pytest, offline; and it fails, with the difference, once the agent asks for something else."""
    folder, _ = project
    passed = pytest_of(folder)
    assert passed.returncode == 0, passed.stdout
    (folder / "agent.py").write_text(AGENT.replace("WORDS", "Be very brief."))
    failed = pytest_of(folder)
    assert failed.returncode == 1
    assert "-    Be brief." in failed.stdout
    assert "+    Be very brief." in failed.stdout


async def test_the_names_follow_from_the_run(project: tuple[Path, Frozen]) -> None:
    """Frozen twice, a run gives the same files, byte for byte."""
    folder, frozen = project
    run = FrozenRun.load(frozen.run)
    name = f"read_the_book_please_{run.run_id[-6:].lower()}"
    assert (frozen.test, frozen.run) == (folder / f"tests/test_{name}.py", folder / f"tests/runs/{name}.json")
    again = freeze(run.record, agent="agent.py", root=folder, out=folder / "tests", environ={})
    assert again == frozen
    assert frozen.run.read_bytes() == frozen.run_data


async def test_nothing_is_overwritten_unasked(project: tuple[Path, Frozen]) -> None:
    """Neither file; when it is asked for, both are."""
    _, frozen = project
    frozen.run.unlink()
    frozen.test.write_text("mine")
    with pytest.raises(FreezeError, match=r"test_read_the_book_please_\w+\.py would be overwritten; --force does so"):
        write_frozen(frozen)
    assert frozen.test.read_text() == "mine"
    assert not frozen.run.exists()
    write_frozen(frozen, force=True)
    assert frozen.test.read_text() == frozen.test_text


async def test_no_secret_is_written(project: tuple[Path, Frozen]) -> None:
    """Neither in a tool's result nor in arguments, which JSON holds as base64; and the run replays without them."""
    folder, frozen = project
    text = frozen.run_data.decode()
    assert "hunter2" not in text
    assert SECRET not in text
    (call,) = build_history(FrozenRun.load(frozen.run).record).steps[0].calls
    assert codec.decode(call.args) == {"number": 1, "api_key": "***"}
    assert (await replay_frozen(frozen.run, agent="agent.py", root=folder)).is_same


async def test_what_the_environment_hides_is_hidden(tmp_path: Path) -> None:
    """The value of a variable that is called like a secret, wherever it stands."""
    frozen = freeze(
        await record_of("Say swordfish-42 twice"),
        agent="",
        root=tmp_path,
        out=tmp_path,
        environ={"DB_PASSWORD": "swordfish-42"},
    )
    assert b"swordfish-42" not in frozen.run_data
    clean = cleaner({"DB_PASSWORD": "swordfish-42"})
    prompt = Prompt((ChatMessage(Role.USER, Content(text="say swordfish-42")),))
    assert clean(prompt).messages[0].content.text == "say ***"
    assert clean(clean(prompt)) == clean(prompt)


async def test_a_run_that_goes_on_is_not_frozen(tmp_path: Path) -> None:
    """There is nothing yet that it could be held to."""
    record = await record_of()
    with pytest.raises(FreezeError, match="is still going; freeze it once it has ended"):
        freeze(record[:-1], agent="", root=tmp_path, out=tmp_path)


async def test_what_the_user_had_attached_comes_along(tmp_path: Path) -> None:
    """A picture is in the file, so that the prompt can be made again where it is not."""
    (tmp_path / "agent.py").write_text(AGENT.replace("WORDS", ""))
    async with Runtime(model=ScriptedLLM([says("a cat")]), tools=[page]) as runtime:
        scope = ArtifactScope("t", "u", "s")
        image = await runtime.artifacts.put_bytes(
            scope, b"\x89PNG" + bytes(99), mime_type="image/png", filename="c.png"
        )
        run = await runtime.start("What is it?", who=ME, input_artifacts=[image.id])
        await run.finished()
        record = await run.history()
        attached = await attached_to(record, runtime.artifacts)
        assert await attached_to(record, MemoryArtifactStore()) == []
    assert [(one.id, one.filename, len(one.data)) for one in attached] == [(image.id, "c.png", 103)]
    frozen = freeze(record, agent="agent.py", root=tmp_path, out=tmp_path, attached=attached)
    write_frozen(frozen)
    assert_replays_in(frozen, tmp_path)


def assert_replays_in(frozen: Frozen, folder: Path) -> None:
    """What the frozen test does, in a process of its own."""
    call = f"from harborage.testing.frozen import assert_replays as a; a({str(frozen.run)!r}, root={str(folder)!r})"
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "cannot read the frozen run"),
        ("{}", "is no frozen run"),
        ('{"harborage_frozen_run":9,"run_id":"r","goal":"g","entries":[]}', "its version is 9, and 1 is known"),
    ],
)
def test_a_file_that_is_none_is_an_error(tmp_path: Path, text: str | None, why: str) -> None:
    """It names the file and what is wrong with it."""
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(FreezeError, match=why):
        FrozenRun.load(path)


async def test_an_odd_goal_still_names_a_file(tmp_path: Path) -> None:
    """Quotes, line breaks and other scripts neither break the test's text nor its name."""
    frozen = freeze(await record_of('“Ünï”\n"""\\ do it'), agent="", root=tmp_path, out=tmp_path)
    compile(frozen.test_text, "test", "exec")
    assert frozen.test.name.startswith("test_n_do_it_")
    nameless = freeze(await record_of("¿?"), agent="", root=tmp_path, out=tmp_path)
    assert nameless.test.name.startswith("test_run_")


def test_a_frozen_test_shows_the_difference(tmp_path: Path) -> None:
    """`assert_replays` fails as an assertion does."""
    with pytest.raises(FreezeError):
        assert_replays(tmp_path / "nope.json")
