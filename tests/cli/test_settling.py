"""`harborage doctor --settle`: orphans are ended, after a confirmation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harborage.cli.main import main
from harborage.events import DurableEventBus
from harborage.identity import Identity
from harborage.planner import Finish, FinishReason, PauseReason
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import Coordinator, PauseDecision, PauseRequest
from harborage.state.storage import open_storage
from harborage.testing.planners import ScriptedPlanner

Start = Callable[..., Any]
ME = Identity("local", "me", "s1")


def orphan(folder: Path) -> str:
    """An approval of a run that is over, which is what is left where the end of a run lost its own; the token."""

    async def make() -> str:
        async with await open_storage(f"sqlite:{folder / '.harborage' / 'harborage.db'}") as storage:
            async with Runtime(planner=ScriptedPlanner([Finish(FinishReason.GOAL)]), storage=storage) as runtime:
                run = await runtime.start("go", who=ME)
                await run.finished()
            bus = DurableEventBus(storage.store)
            pauses = Coordinator(bus=bus, store=storage.store)
            wanted = PauseRequest(identity=run.who, reason=PauseReason.APPROVAL_REQUIRED, payload={"tool": "publish"})
            pause = await pauses.request(wanted)
            await bus.aclose()
            return pause.token

    (folder / ".harborage").mkdir()
    return asyncio.run(make())


def decision(folder: Path, token: str) -> PauseDecision | None:
    """How the pause was settled; None while it is open."""

    async def look() -> PauseDecision | None:
        async with await open_storage(f"sqlite:{folder / '.harborage' / 'harborage.db'}") as storage:
            bus = DurableEventBus(storage.store)
            pause = await Coordinator(bus=bus, store=storage.store).status(token, who=ME)
            await bus.aclose()
            return pause.decision

    return asyncio.run(look())


def test_an_orphan_is_settled_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until then it is only shown, with the way to end it; afterwards nothing needs a person."""
    token = orphan(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert "✗ 1 orphan: no worker, timer or person will end it:" in output
    assert "its run has ended" in output
    assert "end orphans and overdue items: harborage doctor --settle" in output
    assert decision(tmp_path, token) is None
    assert main(["doctor", "--settle", "--yes"]) == 0
    assert f"✓ ended approval {token}: rejected" in capsys.readouterr().out
    assert decision(tmp_path, token) is PauseDecision.REJECT
    assert main(["doctor", "--settle", "--yes"]) == 0
    assert "orphan" not in capsys.readouterr().out


def test_in_a_terminal_it_is_asked_first(tmp_path: Path, at_terminal: Start) -> None:
    """A no leaves everything as it is."""
    token = orphan(tmp_path)
    screen = at_terminal("doctor", "--settle")
    screen.expect("End 1 of them (y/n)?")
    screen.type("n\n")
    assert screen.end() == 1
    assert decision(tmp_path, token) is None
    screen = at_terminal("doctor", "--settle")
    screen.expect("End 1 of them (y/n)?")
    screen.type("y\n")
    screen.expect(f"✓ ended approval {token}: rejected")
    assert screen.end() == 0
