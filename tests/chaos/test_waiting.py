"""What waits for a person outlives every process, and time: real processes that are stopped, killed and started."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from harborage.runtime.durable.engine import RunPhase
from harborage.runtime.durable.reader import phase_of
from harborage.runtime.loop.controls import ControlType
from harborage.runtime.pauses import Pause
from tests.programs.chaos.cluster import Cluster, until
from tests.programs.chaos.verdict import verdict

pytestmark = pytest.mark.anyio
OpenCluster = Callable[..., AbstractAsyncContextManager[Cluster]]

GOAL = json.dumps({"plan": [["keyed", "before"], ["gated", "it"], ["keyed", "after"]]})
WEEK_S = timedelta(days=7).total_seconds()


async def question(cluster: Cluster) -> Pause:
    """What is asked, once it is."""

    async def is_asked() -> bool:
        return bool(await cluster.open_pauses())

    await cluster.run()
    await until(is_asked)
    (pause,) = await cluster.open_pauses()
    return pause


async def is_parked(cluster: Cluster) -> bool:
    """Whether the run has left memory."""
    (record,) = await cluster.records()
    return phase_of(record) is RunPhase.PARKED


async def test_an_approval_sent_while_nothing_is_up_is_taken(open_cluster: OpenCluster) -> None:
    """Killed while its run waits for an approval, a process is not needed for it: the next one finds the answer."""
    async with open_cluster(GOAL) as cluster:
        process = cluster.start("killed")
        pause = await question(cluster)
        await process.kill()
        await cluster.send(pause.identity, ControlType.APPROVE, {"token": pause.token})
        assert [act.what for act in cluster.service.acts] == ["before"]
        cluster.start("next")
        await until(cluster.is_over)
        assert [(act.what, act.process) for act in cluster.service.acts[1:]] == [("it", "next"), ("after", "next")]
        approved = {(pause.identity.run_id, "it")}
        assert await verdict(cluster, approved=approved, faults=1) == []


async def test_an_approval_is_good_after_seven_days(open_cluster: OpenCluster) -> None:
    """Seven days after every process was stopped, what was asked is still asked; approved, the tool runs once with the
    very arguments that were shown."""
    async with open_cluster(GOAL) as cluster:
        cluster.start("first")
        asked = await question(cluster)
        await until(lambda: is_parked(cluster))
        await cluster.stop()
        await cluster.move_clock(WEEK_S)
        cluster.start("a week later")
        pause = await question(cluster)
        assert (pause.token, pause.payload) == (asked.token, asked.payload)
        assert (cluster.now() - pause.paused_at).total_seconds() >= WEEK_S
        assert [act.what for act in cluster.service.acts] == ["before"]
        await cluster.send(pause.identity, ControlType.APPROVE, {"token": pause.token})
        await until(cluster.is_over)
        assert pause.payload is not None
        (done,) = [act for act in cluster.service.acts if act.tool == "gated"]
        assert {"what": done.what} == pause.payload["args_summary"]["args"]
        assert done.process == "a week later"
        assert await verdict(cluster, approved={(done.run_id, done.what)}, faults=0) == []
