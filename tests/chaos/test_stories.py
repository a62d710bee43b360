"""Stories of real processes that are killed wherever a seed says; `make chaos` plays hundreds of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.programs.chaos.forkserver import ForkServer
from tests.programs.chaos.places import Place, Places
from tests.programs.chaos.soak import soak
from tests.programs.chaos.stage import Stage, until
from tests.programs.chaos.story import play
from tests.programs.chaos.takeovers import takeovers
from tests.programs.chaos.verdict import verdict

pytestmark = pytest.mark.anyio
OpenPlace = Callable[..., AbstractAsyncContextManager[Place]]
OpenStage = Callable[..., AbstractAsyncContextManager[Stage]]

KEYED = json.dumps({"plan": [["keyed", "it"]]})
WRITE = json.dumps({"plan": [["write", "it"]]})


@pytest.mark.parametrize("seed", [26, 61])
async def test_a_story_keeps_every_promise(
    seed: int, open_place: OpenPlace, tmp_path: Path, forkserver: ForkServer
) -> None:
    """Killed wherever the seed says, every run ends: no effect is lost or doubled, no model asked without need."""
    async with open_place(lease_s=1.0) as place:
        told = await play(seed, place, tmp_path, forkserver, most_deaths=3)
    assert told.broken == []
    assert told.deaths > 0


async def killed_after_the_act(stage: Stage, *, forgets_keys: bool) -> list[str]:
    """What is broken when a process dies in the moment after its tool acted, and before anybody knows."""
    held = stage.service.hold("it")
    process = stage.start("killed", forgets_keys=forgets_keys)
    await held.reached()
    await stage.run()
    await process.kill()
    stage.start("next", forgets_keys=forgets_keys)
    await until(stage.is_over)
    return await verdict(stage, approved=(), faults=1)


async def test_a_keyed_call_is_repeated_under_its_key(open_stage: OpenStage) -> None:
    """A call that acted before its process died is made again, and under the same key it acts once."""
    async with open_stage(KEYED, lease_s=1.0) as stage:
        assert await killed_after_the_act(stage, forgets_keys=False) == []
        assert [process for _, process in stage.service.calls] == ["killed", "killed", "next", "next"]


async def test_a_tool_that_ignores_its_key_is_found_out(forkserver: ForkServer, sqlite: Places, tmp_path: Path) -> None:
    """The checks see an effect that was doubled because a tool did not hand on its key."""
    async with sqlite.fresh("keyless", tmp_path) as place, Stage(place, forkserver, [KEYED]) as stage:
        broken = await killed_after_the_act(stage, forgets_keys=True)
        (record,) = await stage.records()
    assert broken == [f"run {record.run_id[-6:]}: keyed it was done 2 times"]


async def test_a_lost_effect_and_a_model_asked_too_often_are_found_out(
    forkserver: ForkServer, sqlite: Places, tmp_path: Path
) -> None:
    """The checks see a keyed call that is missing outside, and model calls that no crash explains."""
    async with sqlite.fresh("lost", tmp_path) as place, Stage(place, forkserver, [KEYED]) as stage:
        stage.start("one")
        await until(stage.is_over)
        (record,) = await stage.records()
        assert await verdict(stage, approved=(), faults=0) == []
        stage.service.acts.clear()
        stage.service.asked[record.run_id, 0] += 1
        broken = await verdict(stage, approved=(), faults=0)
    assert any("keyed it was lost" in one for one in broken)
    assert any("asked 1 times too often" in one for one in broken)


async def test_an_unkeyed_call_becomes_unknown(open_stage: OpenStage) -> None:
    """A call that has effects and no key, and acted before its process died, is not made again: it is unknown."""
    async with open_stage(WRITE, lease_s=1.0) as stage:
        assert await killed_after_the_act(stage, forgets_keys=False) == []
        assert [act.what for act in stage.service.acts] == ["it"]
        finish = await stage.desk.result((await stage.run()).run_id)
        assert isinstance(finish.payload, dict)
        (seen,) = finish.payload["seen"]
        assert "unknown" in seen["error"]


async def test_a_soak_ends_with_every_run_held(forkserver: ForkServer, sqlite: Places, tmp_path: Path) -> None:
    """After kills, controls and lost clients each run has ended, or it is known who or what moves it on."""
    async with sqlite.fresh("soak", tmp_path) as place:
        told = await soak(15, place, tmp_path, forkserver)
    assert told.broken == []
    assert told.runs >= 15
    assert told.deaths > 0


async def test_a_run_goes_on_where_its_process_died(forkserver: ForkServer, sqlite: Places, tmp_path: Path) -> None:
    """A process that is there already makes the call again that the killed one was in the middle of."""
    async with sqlite.fresh("takeovers", tmp_path) as place:
        assert len(await takeovers(3, place, forkserver)) == 3
