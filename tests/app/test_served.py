"""The program of a server: code that would hold the server up, or end it, is found in a process of its own."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from harborage.app.served import PROBE, Program
from harborage.app.site import Site
from harborage.app.target import TargetError
from harborage.identity import Identity
from harborage.server.services import ServerOptions
from tests.kit.wire import HeaderGate, Wire

pytestmark = pytest.mark.anyio

GOOD = "from harborage import Agent\nagent = Agent('clerk', model='mock:x')\n"
HANGS = f"import threading\n{GOOD}threading.Event().wait()\n"
ENDS = f"import os\n{GOOD}os._exit(9)\n"


def program(folder: Path, source: str) -> Program:
    """A program of one file."""
    path = folder / "clerk.py"
    path.write_text(source, "utf-8")
    return Program(str(path), folder)


@pytest.mark.parametrize("source", [GOOD, "raise ValueError('no')", "this is no Python", "raise SystemExit(2)"])
async def test_what_loads_or_fails_with_an_error_passes(tmp_path: Path, source: str) -> None:
    """The error is that of loading it, which tells where it is."""
    await program(tmp_path, source).probe()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no alarms")
async def test_code_that_hangs_ends_also_when_its_server_was_killed(tmp_path: Path) -> None:
    """The process that tries it has a limit of its own."""
    (tmp_path / "clerk.py").write_text(HANGS, "utf-8")
    words = (sys.executable, "-c", PROBE, str(tmp_path / "clerk.py"), str(tmp_path), "1")
    process = await asyncio.create_subprocess_exec(*words, cwd=tmp_path)
    try:
        async with asyncio.timeout(60):
            assert await process.wait() == -signal.SIGALRM
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_standard_assistant_needs_no_probe(tmp_path: Path) -> None:
    """It is ours, and has no file."""
    await Program("", tmp_path).probe()


async def test_code_that_hangs_as_it_is_loaded_is_refused(tmp_path: Path) -> None:
    """The text says what to do; nothing of it is left behind."""
    with pytest.raises(TargetError, match="not loaded within 0.5 s.*__main__"):
        await program(tmp_path, HANGS).probe(0.5)


async def test_code_that_ends_its_process_is_refused(tmp_path: Path) -> None:
    """The server would have ended with it."""
    with pytest.raises(TargetError, match="ends the process.*exit code 9"):
        await program(tmp_path, ENDS).probe()


@pytest.mark.parametrize("source", [HANGS, ENDS])
async def test_the_code_before_keeps_serving(tmp_path: Path, source: str) -> None:
    """A reload of such code fails, and requests are answered as before."""
    served = program(tmp_path, GOOD)
    site = Site(
        served.load,
        storage_of=lambda _: "memory:",
        make_gate=lambda redactor, bus: HeaderGate(),
        options=ServerOptions(),
        probe=lambda: served.probe(5),
    )
    async with site:
        program(tmp_path, source)
        with pytest.raises(TargetError):
            await site.reload(tmp_path / "clerk.py", Identity("dev", "dev", "dev"))
        answer = await Wire(site.server).post("agents.list")
        assert [one["name"] for one in answer.json["agents"]] == ["clerk"]
