"""Large results and attachments of a run are stored, and wait for the worker that resumes it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.identity import Identity
from harborage.planner import CallTool, Finish, FinishReason, PauseReason, RequestPause, RunContext
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.run import Run
from harborage.state.storage import Storage, open_storage
from harborage.testing.planners import ScriptedPlanner

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
MINE = ArtifactScope.of(ME)
HEAVY = "heavy " * 10_000
OPTIONS = RuntimeOptions(heavy_threshold=100, built_in=("artifact_fetch",))


async def dig() -> str:
    """Dig up more than anybody wants to see at once."""
    return HEAVY


def fetch(run: RunContext) -> CallTool:
    """Fetch the artifact of the heavy result by its reference."""
    return CallTool(
        "artifact_fetch", json.dumps({"ref": run.trajectory.steps[0].llm_observation["artifact_ref"]}).encode()
    )


def report(run: RunContext) -> Finish:
    """Finish with what was fetched, and what was attached."""
    found = run.trajectory.steps[-1].observation
    return Finish(FinishReason.GOAL, [found["content"], [str(view) for view in run.input_artifacts]])


SCRIPT = ScriptedPlanner([CallTool("dig", b"{}"), RequestPause(PauseReason.AWAIT_INPUT), fetch, report])


def over(storage: Storage | str, **more: Any) -> Runtime:
    """A runtime over the storage that was given no artifact store, unless `more` names one."""
    return Runtime(planner=SCRIPT, tools=[dig], storage=storage, options=more.pop("options", OPTIONS), **more)


async def waits(run: Run) -> None:
    """Return once the run waits for a person."""
    async with asyncio.timeout(30):
        while not await run.waiting():  # noqa: ASYNC110 - a pause that is kept tells nobody here
            await asyncio.sleep(0)


async def carried_on(runtime: Runtime, run_id: str) -> tuple[str, list[str]]:
    """What the run finished with, once it was answered here."""
    async with runtime as rt:
        run = await rt.run(run_id, who=ME)
        await run.resume()
        async with asyncio.timeout(30):
            text, attached = (await run.finished()).payload
    return text, attached


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
async def test_a_heavy_result_and_an_attachment_outlive_the_process(kind: str, tmp_path: Path) -> None:
    """The planner of the next process fetches the result by its reference, and is shown the attachment."""
    url = f"sqlite:{tmp_path / 'data' / 'runs.db'}"
    shared = None if kind == "sqlite" else await open_storage("memory:")
    async with over(shared or url) as first:
        note = await first.artifacts.put_text(MINE, "remember the milk", filename="note.txt")
        run = await first.start("go", who=ME, input_artifacts=[note.id])
        await waits(run)
    text, attached = await carried_on(over(shared or url), run.id)
    assert json.loads(text) == HEAVY
    assert len(attached) == 1
    assert "note.txt" in attached[0]
    if shared is not None:
        await shared.aclose()


async def test_artifacts_are_files_beside_the_database(tmp_path: Path) -> None:
    """In a folder of their own, which another process over the same database uses, too."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    async with over(url) as one, over(url) as two:
        ref = await one.artifacts.put_text(MINE, "found")
        assert await two.artifacts.get(MINE, ref.id) == b"found"
    assert [path.name for path in (tmp_path / "artifacts").rglob(ref.id)] == [ref.id]


async def test_what_is_given_or_named_comes_first(tmp_path: Path) -> None:
    """A store of one's own, or a driver by name, is used instead of the folder."""
    url = f"sqlite:{tmp_path / 'runs.db'}"
    mine = MemoryArtifactStore()
    async with over(url, artifacts=mine) as rt:
        assert rt.artifacts is mine
    await mine.aclose()
    named = RuntimeOptions(artifact_driver="fs", artifact_root=str(tmp_path / "elsewhere"))
    async with over(url, options=named) as rt:
        ref = await rt.artifacts.put_text(MINE, "found")
    assert any((tmp_path / "elsewhere").rglob(ref.id))
    assert not (tmp_path / "artifacts").exists()


async def test_the_artifacts_of_an_open_storage_are_closed_with_it(tmp_path: Path) -> None:
    """Not with a runtime over it: the next one goes on with them."""
    async with await open_storage("memory:") as storage:
        async with over(storage) as rt:
            ref = await rt.artifacts.put_text(MINE, "found")
        async with over(storage) as rt:
            assert await rt.artifacts.get(MINE, ref.id) == b"found"
