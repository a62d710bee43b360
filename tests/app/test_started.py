"""Which agents this user has started, and where."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from harborage.app.started import agent_place, is_started, remember_started


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
