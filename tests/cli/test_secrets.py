"""What a run quotes of secrets is shown by no command, and no other user of the machine can read what is stored."""

from __future__ import annotations

import asyncio
import json
import re
import stat
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harborage.cli.main import main
from harborage.runtime.history import read_run
from harborage.runtime.history.freezing import freeze
from harborage.state.storage import open_storage

AGENT = """
from harborage import SideEffect, tool
from harborage.planner import CallTool
from harborage.app import Agent

BEARER = "abcdefghijklmnop.qrstuvwxyz"
KEY = "a-key-of-the-environment"


class Planner:
    async def next(self, run):
        calls = [
            CallTool("fetch", ('{"header": "Bearer ' + BEARER + '", "password": "' + KEY + '"}').encode()),
            CallTool("fail", b"{}"),
        ]
        done = len(run.trajectory.steps)
        if done < len(calls):
            return calls[done]
        raise RuntimeError(f"no step: Bearer {BEARER}, {KEY}")


@tool(effects=SideEffect.READ)
async def fetch(header: str, password: str) -> str:
    '''Fetch.'''
    return "x" * 40_000 if header == "heavy" else f"fetched with Bearer {BEARER} and {KEY}"


@tool(effects=SideEffect.READ)
async def fail() -> str:
    '''Fail.'''
    raise ConnectionError(f"refused: Authorization: Bearer {BEARER}; key {KEY}")


agent = Agent(name="leaky", planner=Planner(), tools=[fetch, fail])
"""
SECRETS = ("abcdefghijklmnop.qrstuvwxyz", "a-key-of-the-environment")
Typed = Callable[..., tuple[int, str]]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Types a command in the folder of an agent that quotes secrets; gives its exit code and all that it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARBORAGE_STORAGE", raising=False)
    monkeypatch.setenv("SERVICE_API_KEY", SECRETS[1])
    (tmp_path / "agent.py").write_text(AGENT)

    def call(*words: str) -> tuple[int, str]:
        if words[0] == "run":  # which takes the streams of its process
            command = [str(Path(sys.executable).with_name("harborage")), *words]
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL
            )
            return done.returncode, done.stdout + done.stderr
        capsys.readouterr()
        code = main(words)
        return code, "".join(capsys.readouterr())

    return call


def quoted(text: str) -> list[str]:
    """The lines that quote a secret."""
    return [line for line in text.splitlines() if any(secret in line for secret in SECRETS)]


def test_no_command_shows_a_secret(typed: Typed, tmp_path: Path) -> None:
    """Live or later, for people or as JSON: arguments, results, errors and goals are shown without them."""
    leaks: list[Any] = []
    goal = f"Use Bearer {SECRETS[0]} and {SECRETS[1]}"
    for words in (("run", "agent.py", goal), ("run", "agent.py", goal, "--json")):
        code, text = typed(*words)
        assert (code, "fetch" in text) == (1, True), text
        leaks += [(words, line) for line in quoted(text)]
    run_id = json.loads(typed("runs", "list", "--json", "--limit", "1")[1])["run_id"]
    for words in (
        ("runs", "list"),
        ("runs", "list", "--json"),
        ("runs", "show", run_id),
        ("runs", "show", run_id, "--json"),
        ("doctor",),
        ("doctor", "--json"),
        ("replay", run_id),
        ("replay", run_id, "--json"),
        ("fork", run_id, "--at", "2", "--json"),
        ("freeze", run_id),
    ):
        _, text = typed(*words)
        assert text, words
        leaks += [(words, line) for line in quoted(text)]
    assert not leaks, "\n".join(map(str, leaks))


def test_a_frozen_run_holds_no_secret(typed: Typed, tmp_path: Path) -> None:
    """Neither in the clear nor in the bytes of arguments, which JSON holds as base64."""
    typed("run", "agent.py", f"Use Bearer {SECRETS[0]} and {SECRETS[1]}", "--quiet")
    run_id = json.loads(typed("runs", "list", "--json", "--limit", "1")[1])["run_id"]

    async def record() -> list[bytes]:
        async with await open_storage("sqlite:.harborage/harborage.db") as storage:
            return await read_run(storage.store, run_id)

    frozen = freeze(asyncio.run(record()), agent="agent.py", root=tmp_path, out=tmp_path / "tests")
    text = frozen.run_data.decode() + frozen.test_text
    decoded = [b64decode(word + "==").decode(errors="replace") for word in re.findall(r"[A-Za-z0-9+/]{24,}", text)]
    assert quoted("\n".join([text, *decoded])) == []


def test_what_is_kept_is_its_owners_alone(typed: Typed, tmp_path: Path) -> None:
    """Folders are 0700 and files 0600, whatever the process's mask is, and those that an earlier version made, too."""
    folder = tmp_path / ".harborage"
    folder.mkdir(0o755)
    (folder / "harborage.db").touch(0o644)
    typed("run", "agent.py", "go")
    found = {path.relative_to(folder).as_posix(): path for path in [folder, *folder.rglob("*")]}
    assert {"harborage.db", "."} <= found.keys()
    modes = {name: oct(stat.S_IMODE(path.stat().st_mode)) for name, path in found.items() if name != ".gitignore"}
    assert modes == {name: "0o700" if found[name].is_dir() else "0o600" for name in modes}
