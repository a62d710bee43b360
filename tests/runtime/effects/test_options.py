"""Each option does what its name says."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harborage.artifacts import ArtifactScope
from harborage.drivers import DriverUnknownError
from harborage.identity import Identity
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
    Trajectory,
    TrajectorySummary,
)
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import RunFailedError, RunNotFoundError
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.testing.clock import settle
from harborage.testing.planners import RecordingPlanner, ScriptedPlanner
from harborage.tools import tool
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
GOAL = Finish(FinishReason.GOAL, "done")
CALL = CallTool("note", b'{"text":"a"}')
Runtimes = Callable[..., Awaitable[Any]]


@tool
async def note(text: str) -> str:
    """Note."""
    return text


def last(run: RunContext) -> Finish:
    """Finish with the last observation."""
    return Finish(FinishReason.GOAL, run.trajectory.steps[-1].observation)


async def test_max_steps(runtimes: Runtimes) -> None:
    """A run without a number of its own has the runtime's."""
    bench = await runtimes([CALL] * 9, tools=[note], max_steps=4)
    with pytest.raises(RunFailedError, match="4 steps without a finish"):
        await bench.run()


async def test_heavy_threshold(runtimes: Runtimes) -> None:
    """A result of so many bytes of JSON goes to the artifact store; a smaller one does not."""
    for size, is_heavy in ((97, False), (98, True)):
        bench = await runtimes(
            [CallTool("note", b'{"text":"%s"}' % (b"x" * size)), last], tools=[note], heavy_threshold=100
        )
        payload = (await bench.run()).payload
        every = await bench.rt.artifacts.list(ArtifactScope("t", "u", "s"))
        kept = [ref for ref in every if ref.filename == "tool-result-note.json"]
        assert (len(kept) == 1, isinstance(payload, dict)) == (is_heavy, is_heavy)
        if is_heavy:
            assert payload["artifact_ref"] == kept[0].id


async def test_max_spawn_depth(runtimes: Runtimes) -> None:
    """So many levels below the first run may be spawned; the next is refused as an observation."""

    class Digger:
        async def next(self, run: RunContext) -> Any:
            steps = run.trajectory.steps
            if not steps:
                return SpawnTask(spec=SpawnSpec(query="deeper", retain_turn=True))
            seen = steps[0].observation
            return Finish(FinishReason.GOAL, seen.get("error") or seen["result"]["answer"])

    bench = await runtimes(Digger(), max_spawn_depth=2)
    answer = (await bench.run()).payload
    assert "cannot spawn at depth 3" in answer
    assert "absolute_max_spawn_depth is 2" in answer
    assert len(await bench.rt.tasks.list(ME)) == 3


async def test_granted_scopes(runtimes: Runtimes) -> None:
    """A tool that asks for a scope is there only where it was granted."""
    secret = tool(note.function, name="secret", auth_scopes=("vault",))
    for scopes in (frozenset(), frozenset({"vault"})):
        bench = await runtimes([CallTool("secret", b'{"text":"a"}'), last], tools=[secret], granted_scopes=scopes)
        payload = (await bench.run()).payload
        assert payload == "a" if scopes else "no tool 'secret'" in payload["error"]


async def test_pause_ttl(runtimes: Runtimes) -> None:
    """A pause without an answer ends its run then."""
    bench = await runtimes([RequestPause(PauseReason.AWAIT_INPUT)], pause_ttl=timedelta(minutes=5))
    run = await bench.start()
    pause = await bench.paused(run)
    assert pause.deadline == bench.clock.now() + timedelta(minutes=5)
    await bench.clock.run_for(299)
    assert await run.waiting() != []
    await bench.clock.run_for(1)
    finish = await bench.end(run)
    assert (finish.reason, finish.metadata["steering_reason"]) == ("deadline_exceeded", "pause_timeout")


async def test_approval_ttl(runtimes: Runtimes) -> None:
    """A call without an answer is refused then, and the run continues."""
    bench = await runtimes([CALL, last], tools=[note], approvals=AlwaysDeny(), approval_ttl=timedelta(minutes=5))
    run = await bench.start()
    await bench.paused(run)
    await bench.clock.run_for(300)
    assert "no answer before" in (await bench.end(run)).payload["error"]


class Summariser:
    """Summarises, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def summarise(self, run: RunContext, trajectory: Trajectory) -> TrajectorySummary:
        if self._error is not None:
            raise self._error
        return TrajectorySummary(note="short")


@pytest.mark.parametrize("error", [None, LookupError("no model")])
async def test_token_budget(runtimes: Runtimes, error: Exception | None) -> None:
    """A longer history is summarised, as often as it must be; a model that fails does not stop the run."""
    planner = RecordingPlanner(ScriptedPlanner([CALL] * 12 + [GOAL]))
    bench = await runtimes(planner, tools=[note], token_budget=200, summariser=Summariser(error))
    await bench.run()
    upto = [one.trajectory.steps_summarised for one in planner.contexts]
    assert upto == sorted(upto)
    assert len(set(upto) - {0}) >= 2
    assert planner.contexts[-1].trajectory.summary is not None


async def test_without_a_token_budget_nothing_is_summarised(runtimes: Runtimes) -> None:
    """Even if there is a caller who could answer."""
    planner = RecordingPlanner(ScriptedPlanner([CALL] * 12 + [GOAL]))
    bench = await runtimes(planner, tools=[note], summariser=Summariser())
    await bench.run()
    assert {one.trajectory.summary for one in planner.contexts} == {None}


@pytest.mark.parametrize("is_atomic", [False, True])
async def test_is_parallel_atomic(runtimes: Runtimes, is_atomic: bool) -> None:
    """One branch that cannot be made keeps all from running, or only itself."""
    called: list[str] = []

    @tool
    async def mark(text: str) -> str:
        """Mark."""
        called.append(text)
        return text

    calls = CallParallel((CallTool("mark", b'{"text":"a"}'), CallTool("mark", b'{"text":1}'), CallTool("nope")))
    bench = await runtimes([calls, last], tools=[mark], is_parallel_atomic=is_atomic)
    payload = (await bench.run()).payload
    if is_atomic:
        assert called == []
        assert payload["error"].startswith("parallel dispatch: ")
        assert "mark" in payload["error"]
    else:
        assert called == ["a"]
        assert [(one.get("value"), "error" in one) for one in payload["branches"]] == [
            ("a", False),
            (None, True),
            (None, True),
        ]


async def test_keep_finished(runtimes: Runtimes) -> None:
    """The newest ended runs stay readable."""
    bench = await runtimes([GOAL], keep_finished=2)
    runs = []
    for _ in range(4):
        runs.append(await bench.start())
        await bench.end(runs[-1])
    await settle()
    assert [one.run_id for one in await bench.rt.runs(who=ME)] == [runs[3].id, runs[2].id]
    for asked in (runs[0].status(), runs[0].finished(), bench.rt.run(runs[0].id, who=ME)):
        with pytest.raises(RunNotFoundError, match=r"RuntimeOptions\.keep_finished: .*higher number.*a storage"):
            await asked
    with pytest.raises(RunNotFoundError) as never_was:
        await bench.rt.run("unknown", who=ME)
    with pytest.raises(RunNotFoundError) as foreign:
        await bench.rt.run(runs[3].id, who=replace(ME, user_id="another"))
    assert str(foreign.value) == str(never_was.value).replace("unknown", runs[3].id)  # nobody learns what others have


async def test_artifact_driver(tmp_path: Path) -> None:
    """Files in the folder that is named."""
    options = RuntimeOptions(artifact_driver="fs", artifact_root=str(tmp_path), heavy_threshold=10)
    async with Runtime(
        planner=ScriptedPlanner([CallTool("note", b'{"text":"a long text"}'), GOAL]), tools=[note], options=options
    ) as rt:
        await (await rt.start("g", who=ME)).finished()
    assert any(files for _, _, files in os.walk(tmp_path))


@each_row("field", ["artifact_driver", "event_driver", "redactor"])
async def test_a_driver_that_is_not_there_is_named(field: str) -> None:
    """With those that are; nothing is left open."""
    options = RuntimeOptions(**{field: "nonsense"})
    with pytest.raises(DriverUnknownError, match="nonsense"):
        async with Runtime(planner=ScriptedPlanner([GOAL]), options=options):
            pass


async def test_a_wait_for_a_task_that_is_gone_is_an_observation(runtimes: Runtimes) -> None:
    """Unknown, foreign and one's own: none of them hangs."""
    foreign = await runtimes([GOAL])
    other = await foreign.start(who=Identity("t2", "u", "s"))
    for task_id in ("nobody", other.id, "own"):
        planner = ScriptedPlanner(
            [lambda run, wanted=task_id: AwaitTask(run.quadruple.run_id if wanted == "own" else wanted), last]
        )
        bench = await runtimes(planner)
        assert "error" in (await bench.run()).payload
