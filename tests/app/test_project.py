"""What is kept for a project: data folder, origins, sessions of commands, started agents."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from harborage.app.project import (
    DataFolderError,
    Origin,
    agent_place,
    artifact_folder,
    close_command_session,
    command_session,
    copy_artifacts,
    is_command_session,
    is_started,
    make_data_folder,
    remember_started,
)
from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.identity import Identity
from harborage.planner import Finish, FinishReason, PauseReason, RequestPause
from harborage.runtime.host import Runtime
from harborage.state.storage import open_storage
from harborage.testing.clock import settle
from harborage.testing.planners import ScriptedPlanner
from tests.kit.tables import each_row


@each_row(
    "origin",
    [
        Origin(target="agent.py", mark="01M", folder="/ä da/a#b?c&d", model="openai:gpt-5"),
        Origin(mark="01M", folder="/work"),
        Origin(target="pack.mod:make", mark="01M"),
        Origin(target="agent.py"),
        Origin(),
    ],
)
def test_what_is_written_is_read(origin: Origin) -> None:
    """Whatever folder and model are called."""
    assert Origin.of(origin.text) == origin


def test_the_target_comes_first() -> None:
    """Up to the first `#`; what a program wrote is the target alone."""
    assert Origin(target="agent.py", mark="01M", model="x").text == "agent.py#01M?model=x"
    assert Origin.of("agent.py") == Origin(target="agent.py")


def test_the_data_folder_is_made_once(tmp_path: Path) -> None:
    """With a note that keeps it out of repositories, which a person may change."""
    folder = tmp_path / "a" / ".harborage"
    make_data_folder(folder)
    assert "\n*\n" in (folder / ".gitignore").read_text()
    (folder / ".gitignore").write_text("mine")
    make_data_folder(folder)
    assert (folder / ".gitignore").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The text says what is in the way, and where else runs could go."""
    (tmp_path / ".harborage").write_text("a file")
    with pytest.raises(DataFolderError, match=r"a file has its name; repair that, .* --storage memory:"):
        make_data_folder(tmp_path / ".harborage")


def test_artifacts_lie_beside_the_database(tmp_path: Path) -> None:
    """Or, where that is a server, in the data folder."""
    assert artifact_folder(tmp_path / "x" / "runs.db", Path("/elsewhere")) == tmp_path / "x" / "artifacts"
    assert artifact_folder(None, Path("/here")) == Path("/here/.harborage/artifacts")


pytestmark = pytest.mark.anyio

MINE = Identity("local", "me", command_session("1"))
PROGRAMS = Identity("local", "me", "chat")


async def test_a_commands_session_is_closed_with_its_last_run() -> None:
    """Not while one of its runs waits, and never one that a program named."""
    planner = ScriptedPlanner([RequestPause(PauseReason.AWAIT_INPUT), Finish(FinishReason.GOAL)])
    async with await open_storage("memory:") as storage, Runtime(planner=planner, storage=storage) as runtime:
        for who, is_closed in ((MINE, True), (PROGRAMS, False)):
            run = await runtime.start("go", who=who)
            while not await run.waiting():
                await settle()
            assert not await close_command_session(runtime, storage.store, who)
            await run.resume()
            await run.finished()
            assert await close_command_session(runtime, storage.store, who) is is_closed
            assert (await runtime.sessions.get(who.session_id, who=who)).closed is is_closed
        assert [is_command_session(who.session_id) for who in (MINE, PROGRAMS)] == [True, False]


async def test_artifacts_keep_their_ids_in_another_session() -> None:
    """What was recorded of them still leads to them."""
    store = MemoryArtifactStore()
    old, new = ArtifactScope.of(MINE), ArtifactScope.of(PROGRAMS)
    ref = await store.put_bytes(old, b"data", mime_type="text/plain", filename="a.txt", namespace="notes")
    await copy_artifacts(store, MINE, PROGRAMS)
    await copy_artifacts(store, MINE, PROGRAMS)
    (found,) = await store.list(new)
    assert (found.id, found.mime_type, found.filename, found.namespace) == (ref.id, "text/plain", "a.txt", "notes")
    assert await store.get(new, ref.id) == b"data"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def test_an_agent_counts_as_started_in_its_folder_alone(tmp_path: Path, environ: dict[str, str]) -> None:
    """The same file from another folder, another file, a module and the standard assistant are asked about anew."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    assert not is_started("agent.py", here, environ=environ)
    remember_started("agent.py", here, environ=environ)
    assert is_started("agent.py", here, environ=environ)
    assert is_started("./agent.py:other", here, environ=environ)
    for target, folder in (
        ("agent.py", there),
        ("../here/agent.py", there),
        ("evil.py", here),
        ("agent", here),
        ("", here),
    ):
        assert not is_started(target, folder, environ=environ), (target, folder)
    remember_started("", here, environ=environ)
    assert is_started("", here, environ=environ)


def test_a_link_counts_as_what_it_leads_to(tmp_path: Path, environ: dict[str, str]) -> None:
    """A file that is replaced by a link to another is another agent."""
    (tmp_path / "agent.py").touch()
    remember_started("agent.py", tmp_path, environ=environ)
    (tmp_path / "agent.py").unlink()
    (tmp_path / "evil.py").touch()
    (tmp_path / "agent.py").symlink_to(tmp_path / "evil.py")
    assert not is_started("agent.py", tmp_path, environ=environ)


def test_what_is_noted_is_the_users_own_and_bounded(tmp_path: Path, environ: dict[str, str]) -> None:
    """Only the user may read it, and a thousand entries are kept, the newest."""
    for number in range(1005):
        remember_started(f"agent{number}.py", tmp_path, environ=environ)
    (file,) = (tmp_path / "state" / "harborage").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_bytes().splitlines()) == 1000
    assert not is_started("agent0.py", tmp_path, environ=environ)
    assert is_started("agent1004.py", tmp_path, environ=environ)


def test_a_state_folder_that_cannot_be_written_only_means_being_asked(tmp_path: Path) -> None:
    """Starting an agent never fails for it."""
    (tmp_path / "state").touch()
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    remember_started("agent.py", tmp_path, environ=environ)
    assert not is_started("agent.py", tmp_path, environ=environ)


def test_a_place_is_a_whole_path_a_module_or_the_assistant(tmp_path: Path) -> None:
    """It is what a person is shown before the code is executed."""
    assert agent_place("a/agent.py:x", tmp_path) == str(tmp_path.resolve() / "a" / "agent.py")
    assert agent_place("pack.agent:x", tmp_path) == "pack.agent"
    assert agent_place("", tmp_path) == "the standard assistant"
