"""Frozen runs as tests: `assert_replays("tests/runs/weather.json", agent="agent.py", root=…)`.

The tests that `harborage freeze` writes call this. It needs no plugin of pytest, no key and no network.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from harborage.app.agent_runtime import recorded_agent, replay_agent
from harborage.artifacts import MemoryArtifactStore
from harborage.runtime.history.freezing import FrozenRun, cleaner

if TYPE_CHECKING:
    from harborage.runtime.history import Replayed


def assert_replays(path: str | Path, *, agent: str | None = None, root: str | Path = ".") -> None:
    """Accept an agent that decides as in the frozen run in the file `path`.

    `agent` names it as on a command line in the folder `root`; None is the recorded one.

    Raises:
        AssertionError: it decides differently; the text shows the first difference.
        FreezeError: the file is no frozen run.
        TargetError: there is no such agent.
    """
    __tracebackhide__ = True  # a reader wants to see the difference, not this frame
    replayed = asyncio.run(replay_frozen(Path(path), agent=agent, root=Path(root)))
    if replayed.difference is not None:
        raise AssertionError(f"run {replayed.run_id} does not replay: {replayed.difference}")
    if not replayed.is_whole:
        raise AssertionError(f"run {replayed.run_id}: the frozen record ends before the run does")


async def replay_frozen(path: Path, *, agent: str | None = None, root: Path = Path()) -> Replayed:
    """Replay the frozen run in the file `path` and return the result."""
    frozen = FrozenRun.load(path)
    with recorded_agent(frozen.agent if agent is None else agent, root) as found:
        kept = await frozen.put_into(MemoryArtifactStore())
        return await replay_agent(found, frozen.record, artifacts=kept, clean=cleaner())
