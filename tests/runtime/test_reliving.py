"""What a run's handle does with its record: it forks the run, replays it and writes it as a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harborage.errors import InvalidOptionError
from harborage.identity import Identity
from harborage.llm import CompleteRequest, CompleteResponse
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.forks import start_fork
from harborage.runtime.history import ReplayError, build_history
from harborage.runtime.history.freezing import FreezeError, FrozenRun
from harborage.runtime.host import Runtime
from harborage.tasks import IdempotencyConflictError
from harborage.testing.llm import calls_tools, says
from harborage.tools import SideEffect, tool
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


class Model:
    """Writes and answers; with other instructions it answers something else."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Decide by how many calls there were."""
        text = "\n".join(message.content.text or "" for message in request.messages)
        if not any(message.tool_calls for message in request.messages):
            return calls_tools(("write", {"text": "w"}))
        return says("brief" if "Be brief" in text else "done")

    async def close(self) -> None: ...


@tool(effects=SideEffect.WRITE)
async def write(text: str) -> str:
    """Write."""
    return text


async def test_a_handle_forks_its_run() -> None:
    """With what the new run is to have; once by its key."""
    async with Runtime(model=Model(), tools=[write]) as runtime:
        run = await runtime.start("the goal", who=ME)
        await run.finished()
        fork = await run.fork(2, instructions="Be brief", key="k")
        assert (await fork.finished()).payload == "brief"
        assert (await run.fork(2, instructions="Be brief", key="k")).id == fork.id
        with pytest.raises(IdempotencyConflictError):
            await run.fork(1, key="k")
        rehearsal = await run.fork(1)
        await rehearsal.finished()
        assert build_history(await rehearsal.history()).steps[0].calls[0].status == "held_back"
        live = await run.fork(1, live=True)
        await live.finished()
        assert build_history(await live.history()).steps[0].calls[0].status == "done"


async def test_a_handle_replays_its_run() -> None:
    """Its forks, too, whose first steps were decided otherwise."""
    async with Runtime(model=Model(), tools=[write]) as runtime:
        run = await runtime.start("the goal", who=ME)
        await run.finished()
        assert (await run.replay()).is_same
        fork = await run.fork(2, model="mock:echo")
        await fork.finished()
        replayed = await fork.replay()
        assert (replayed.is_same, replayed.steps) == (True, 1)


async def test_a_handle_writes_its_run_as_a_test(tmp_path: Path) -> None:
    """The test has the name that it is given, the record lies beside it, and neither is replaced unasked."""
    async with Runtime(model=Model(), tools=[write]) as runtime:
        run = await runtime.start("the goal", who=ME)
        await run.finished()
        kept = await run.freeze(tmp_path / "test_refund.py", agent="agent.py", root=tmp_path)
        assert kept == tmp_path / "runs" / "refund.json"
        assert FrozenRun.load(kept).run_id == run.id
        assert "def test_refund()" in (tmp_path / "test_refund.py").read_text()
        with pytest.raises(FreezeError, match="would be overwritten"):
            await run.freeze(tmp_path / "test_refund.py")
        await run.freeze(tmp_path / "test_refund.py", force=True)


@each_row("name", ["refund.py", "test_refund", "test_.py", "test_a-b.py"])
async def test_a_file_that_is_no_test_is_refused(name: str, tmp_path: Path) -> None:
    """Nothing is written."""
    async with Runtime(model=Model(), tools=[write]) as runtime:
        run = await runtime.start("the goal", who=ME)
        await run.finished()
        with pytest.raises(InvalidOptionError, match="test_refund.py"):
            await run.freeze(tmp_path / name)
        assert not (tmp_path / name).exists()


async def test_a_run_that_does_not_replay_is_not_frozen(tmp_path: Path) -> None:
    """The error shows the first difference."""
    storage = f"sqlite:{tmp_path}/runs.db"
    async with Runtime(model=Model(), tools=[write], storage=storage) as runtime:
        run = await runtime.start("the goal", who=ME)
        await run.finished()
    async with Runtime(model=Model(), tools=[write], storage=storage, instructions="Be brief") as runtime:
        with pytest.raises(ReplayError, match="step 1"):
            await (await runtime.run(run.id, who=ME)).freeze(tmp_path / "test_it.py")
    assert not (tmp_path / "test_it.py").exists()


async def test_a_handle_of_another_owner_does_nothing() -> None:
    """Its first use finds no run."""
    async with Runtime(model=Model(), tools=[write]) as runtime:
        run = await runtime.start("the goal", who=ME)
        await run.finished()
        other: Any = runtime.get(run.id, who=Identity("t", "other", "s"))
        for use in (lambda: other.fork(1), other.replay, lambda: other.freeze("test_it.py")):
            with pytest.raises(RunNotFoundError):
                await use()


async def test_a_model_is_not_for_a_planner_of_ones_own() -> None:
    """The error says so, and no run is started."""
    async with Runtime(model=Model(), tools=[write]) as runtime:
        run = await runtime.start("the goal", who=ME)
        await run.finished()
        record = await run.history()

    class Planner:
        async def next(self, run: Any) -> Any: ...

    async with Runtime(planner=Planner(), tools=[write]) as runtime:
        for options in ({"model": "mock:echo"}, {"instructions": "Be brief"}):
            with pytest.raises(InvalidOptionError, match="a planner of its own"):
                await start_fork(runtime.parts, runtime._setup.clock, record, ME, 2, **options)  # type: ignore[arg-type]
