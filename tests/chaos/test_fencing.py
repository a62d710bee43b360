"""Two real processes over one storage: a run is carried by one of them at a time, and a late one writes nothing."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from harborage.runtime.durable.journal import Ended, decode_entries
from harborage.store import Status
from tests.programs.chaos.cluster import PATIENCE_S, Cluster, until
from tests.programs.chaos.verdict import verdict

pytestmark = pytest.mark.anyio
OpenCluster = Callable[..., AbstractAsyncContextManager[Cluster]]

LEASE_S = 3.0
LONG_LEASE_S = 60.0


async def received(cluster: Cluster, is_so: Callable[[], bool]) -> None:
    """Return when it is so; only what the service hears of can make it so."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            cluster.service.has_reported.clear()
            await cluster.service.has_reported.wait()


async def test_a_frozen_process_that_thaws_cannot_write(open_cluster: OpenCluster) -> None:
    """Frozen in mid call until its lease is lost, a process comes back to a run that another carries: what it wants to
    record is refused, the effect stays one, and the run has one end."""
    goal = json.dumps({"plan": [["keyed", "first"], ["keyed", "second"], ["keyed", "third"]]})
    async with open_cluster(goal, lease_s=LEASE_S) as cluster:
        first, second = cluster.service.hold("first"), cluster.service.hold("second")
        frozen = cluster.start("frozen")
        assert await first.reached() == "frozen"
        before = await cluster.run()
        cluster.start("other")
        await cluster.freeze(frozen)
        assert await second.reached() == "other"
        carried = await cluster.run()
        assert carried.fence > before.fence
        assert carried.owner not in {"", before.owner}

        frozen.send(signal.SIGCONT)
        first.release()
        await received(cluster, lambda: (carried.run_id, "frozen") in cluster.service.lost)
        meanwhile = await cluster.run()
        assert (meanwhile.owner, meanwhile.fence) == (carried.owner, carried.fence)
        assert meanwhile.position == carried.position

        second.release()
        await until(cluster.is_over)
        acts = [(act.what, act.process) for act in cluster.service.acts]
        assert acts == [("first", "frozen"), ("second", "other"), ("third", "other")]
        entries = decode_entries(await cluster.storage.store.entries(carried.run_id), carried.run_id)
        assert [type(entry) for entry in entries].count(Ended) == 1
        assert await verdict(cluster, approved=(), faults=1) == []


async def has_begun(cluster: Cluster, count: int) -> bool:
    """Whether so many runs are known to have begun."""
    return len(cluster.service.begun) == count


async def test_one_process_carries_a_run_at_a_time(open_cluster: OpenCluster) -> None:
    """Of two processes that both live, each carries runs, and what is asked for a run comes from one of them.

    The first stands still in the middle of its first run until the second has one, too.
    """
    rest = [["keyed", "k2"], ["all", [["write", "w3"], ["read", "r4"]]], ["keyed", "k5"]]
    goals = [json.dumps({"plan": [["keyed", f"first of {number}"], *rest]}) for number in range(8)]
    async with open_cluster(*goals, lease_s=LONG_LEASE_S, delay_s=0.01) as cluster:
        held = [cluster.service.hold(f"first of {number}") for number in (0, 1)]
        cluster.service.limit = 1
        one = cluster.start("one")
        assert await held[0].reached() == "one"
        await until(lambda: has_begun(cluster, 1))
        await cluster.freeze(one)
        cluster.service.limit = 2
        cluster.start("two")
        assert await held[1].reached() == "two"
        one.send(signal.SIGCONT)
        cluster.service.limit = len(goals)
        for answer in held:
            answer.release()
        owners: dict[tuple[str, int], set[str]] = {}

        async def is_over() -> bool:
            for record in await cluster.records():
                if record.owner:
                    owners.setdefault((record.run_id, record.fence), set()).add(record.owner)
            return await cluster.is_over()

        await until(is_over)
        assert cluster.service.overlaps == []
        records = await cluster.records()
        assert {record.status for record in records} == {Status.COMPLETE}
        assert all(len(cluster.service.carriers(record.run_id)) == 1 for record in records)
        assert {process for _, process in cluster.service.calls} == {"one", "two"}
        assert all(len(names) == 1 for names in owners.values())
        assert await verdict(cluster, approved=(), faults=0) == []
