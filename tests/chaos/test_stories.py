"""Stories of real processes that are killed wherever a seed says; `make chaos` plays hundreds of them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from harborage.store import Commit, GroupQuery, GroupStatus, NewGroup, NewRun, Store
from tests.programs.chaos.cluster import Cluster, until
from tests.programs.chaos.databases import Database, Databases
from tests.programs.chaos.forkserver import ForkServer
from tests.programs.chaos.kill_points import STORE_CALLS
from tests.programs.chaos.soak import soak
from tests.programs.chaos.story import play, takeovers
from tests.programs.chaos.verdict import settled, verdict
from tests.programs.chaos.worker import ME

pytestmark = pytest.mark.anyio
OpenDatabase = Callable[..., AbstractAsyncContextManager[Database]]
OpenCluster = Callable[..., AbstractAsyncContextManager[Cluster]]

KEYED = json.dumps({"plan": [["keyed", "it"]]})
WRITE = json.dumps({"plan": [["write", "it"]]})


@pytest.mark.parametrize("seed", [2, 3])  # the first worker dies after its first commit
async def test_a_story_keeps_every_promise(
    seed: int, open_database: OpenDatabase, tmp_path: Path, forkserver: ForkServer
) -> None:
    """Killed wherever the seed says, every run ends: no effect is lost or doubled, no model asked without need."""
    async with open_database() as database:
        outcome = await play(seed, database, tmp_path, forkserver, most_deaths=3)
    assert outcome.broken == []
    assert outcome.deaths > 0


def test_the_calls_at_which_a_process_may_die_are_calls_of_the_store() -> None:
    """Where the store has no such call, no process would ever die at it, and nothing would say so."""
    assert len(STORE_CALLS) > 3
    assert [name for name in STORE_CALLS if not inspect.iscoroutinefunction(getattr(Store, name, None))] == []


async def killed_after_the_act(cluster: Cluster, *, forgets_keys: bool) -> list[str]:
    """What is broken when a process dies in the moment after its tool acted, and before anybody knows."""
    held = cluster.service.hold("it")
    process = cluster.start("killed", forgets_keys=forgets_keys)
    await held.reached()
    await cluster.run()
    await process.kill()
    cluster.start("next", forgets_keys=forgets_keys)
    await until(cluster.is_over)
    return await verdict(cluster, approved=(), faults=1)


async def test_a_keyed_call_is_repeated_under_its_key(open_cluster: OpenCluster) -> None:
    """A call that acted before its process died is made again, and under the same key it acts once."""
    async with open_cluster(KEYED) as cluster:
        assert await killed_after_the_act(cluster, forgets_keys=False) == []
        assert [process for _, process in cluster.service.calls] == ["killed", "killed", "next", "next"]


async def test_a_tool_that_ignores_its_key_is_found_out(
    forkserver: ForkServer, sqlite: Databases, tmp_path: Path
) -> None:
    """The checks see an effect that was doubled because a tool did not hand on its key."""
    async with sqlite.fresh("keyless", tmp_path) as database, Cluster(database, forkserver, [KEYED]) as cluster:
        broken = await killed_after_the_act(cluster, forgets_keys=True)
        (record,) = await cluster.records()
    assert broken == [f"run {record.run_id[-6:]}: keyed it was done 2 times"]


async def test_a_lost_effect_and_a_model_asked_too_often_are_found_out(
    forkserver: ForkServer, sqlite: Databases, tmp_path: Path
) -> None:
    """The checks see a keyed call that is missing outside, and model calls that no crash explains."""
    async with sqlite.fresh("lost", tmp_path) as database, Cluster(database, forkserver, [KEYED]) as cluster:
        cluster.start("one")
        await until(cluster.is_over)
        (record,) = await cluster.records()
        assert await verdict(cluster, approved=(), faults=0) == []
        cluster.service.acts.clear()
        cluster.service.asked[record.run_id, 0] += 1
        broken = await verdict(cluster, approved=(), faults=0)
    assert any("keyed it was lost" in one for one in broken)
    assert any("asked 1 times too often" in one for one in broken)


async def test_a_group_that_was_not_ended_is_ended_late_and_a_run_left_over_is_found(
    forkserver: ForkServer, sqlite: Databases, tmp_path: Path
) -> None:
    """A group whose owner is gone is only counted, since upkeep ends it; a run that still waits is a broken promise."""
    async with sqlite.fresh("left", tmp_path) as database, Cluster(database, forkserver, []) as cluster:
        store = cluster.storage.store
        await store.commit(Commit(groups=(NewGroup(group_id="group", who=ME, owner="gone"),)))
        assert await settled(cluster) == (1, [])
        (group,) = (await store.groups(GroupQuery())).rows
        assert group.status is GroupStatus.CANCELLED
        await store.commit(Commit(starts=(NewRun(run_id="run", who=ME, entries=(b"{}",)),)))
        late, broken = await settled(cluster)
    assert late == 0
    (said,) = broken
    assert said.startswith("still waits: PendingItem(")
    assert "id='run'" in said


async def test_an_unkeyed_call_becomes_unknown(open_cluster: OpenCluster) -> None:
    """A call that has effects and no key, and acted before its process died, is not made again: it is unknown."""
    async with open_cluster(WRITE) as cluster:
        assert await killed_after_the_act(cluster, forgets_keys=False) == []
        assert [act.what for act in cluster.service.acts] == ["it"]
        finish = await cluster.sender.result((await cluster.run()).run_id)
        assert isinstance(finish.payload, dict)
        (seen,) = finish.payload["seen"]
        assert "unknown" in seen["error"]


async def test_a_soak_ends_with_every_run_held(forkserver: ForkServer, sqlite: Databases, tmp_path: Path) -> None:
    """After kills, controls and lost clients each run has ended, or it is known who or what moves it on."""
    async with sqlite.fresh("soak", tmp_path) as database:
        outcome = await soak(15, database, tmp_path, forkserver)
    assert outcome.broken == []
    assert outcome.runs >= 15
    assert outcome.deaths > 0


async def test_a_run_goes_on_where_its_process_died(forkserver: ForkServer, sqlite: Databases, tmp_path: Path) -> None:
    """A process that is there already makes the call again that the killed one was in the middle of."""
    async with sqlite.fresh("takeovers", tmp_path) as database:
        assert len(await takeovers(3, database, forkserver)) == 3
