"""`harborage doctor`: what is live is looked at, and with `--all` everything that is stored."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from harborage.cli.main import main
from harborage.identity import Identity
from harborage.planner import Finish, FinishReason
from harborage.runtime.host import Runtime
from harborage.state.storage import open_storage
from harborage.testing.planners import ScriptedPlanner

ME = Identity("local", "me", "s1")


async def _run(path: Path) -> None:
    async with (
        await open_storage(str(path)) as storage,
        Runtime(planner=ScriptedPlanner([Finish(FinishReason.GOAL)]), storage=storage) as runtime,
    ):
        await (await runtime.start("go", who=ME)).finished()
        await runtime.sessions.close(ME, "done")


def test_all_that_is_stored_is_checked_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An entry that is not what was kept is named with its run and the remedy; without --all no ended run is read."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ".harborage" / "harborage.db"
    asyncio.run(_run(path))
    assert main(["doctor", "--all"]) == 0
    assert "whole, its tables are those of this version" in capsys.readouterr().out
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE harborage_journal SET crc = crc + 1 WHERE position = 1")
    ((run_id,),) = connection.execute("SELECT run_id FROM harborage_runs").fetchall()
    connection.close()
    assert main(["doctor"]) == 0
    assert run_id not in capsys.readouterr().out
    assert main(["doctor", "--all"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert f"run {run_id}, entry 0: it is not there, or not what was kept" in output
    assert "restore a copy that is whole" in output
