"""What must hold when a chaos story is over: what the simulation checks, and that no effect was lost."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from harborage.app.doctor import end_orphans, list_pending
from harborage.runtime.durable.pending import GRACE, PendingKind
from harborage.store import RunRow, Status
from harborage.testing.simulation.checks import Evidence, find_broken_promises, table_disagreements
from tests.kit.stored_runs import goal_of
from tests.programs.chaos.worker import MovedClock

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.testing.simulation import ServiceCall
    from tests.programs.chaos.cluster import Cluster

LATER: Final = MovedClock(2 * GRACE.total_seconds())
"""A clock that is ahead, so that no item is too new to be ended."""


async def verdict(cluster: Cluster, *, approved: Collection[tuple[str, str]], faults: int) -> list[str]:
    """Every promise that was broken, in words; `faults` is how often an answer of a model may have been lost."""
    over = [record for record in await cluster.records() if record.status.is_final]
    sessions = defaultdict(list)
    for record in over:
        sessions[record.who].append(record)
    broken = await table_disagreements(cluster.storage.store)
    for who, records in sessions.items():
        broken += await find_broken_promises(_seen(cluster, who, records, approved, faults))
    good = [one.run_id for one in over if one.status is Status.COMPLETE and one.reason == "goal"]
    goals = {run_id: await goal_of(cluster.storage.store, run_id) for run_id in good}
    return [*broken, *_lost_effects(goals, cluster.service.acts)]


async def settled(cluster: Cluster) -> tuple[int, list[str]]:
    """End what is left once every run is over, as the upkeep of each runtime does every so often.

    Returns how many groups that ended, because a process died before it could, and in words what is broken: anything
    else that it had to end, and what waits even then.
    """
    storage = cluster.storage
    done = await end_orphans(storage, clock=LATER)
    broken = [f"had to be settled: {one.item}" for one in done if one.item.kind is not PendingKind.GROUP]
    left = await list_pending(storage, clock=LATER)
    broken += [f"still waits: {wait}" for wait in left if wait.kind is not PendingKind.SESSION]
    return len(done), broken


def _seen(
    cluster: Cluster, who: Identity, records: Sequence[RunRow], approved: Collection[tuple[str, str]], faults: int
) -> Evidence:
    """What is left of the runs of one session."""
    service, storage = cluster.service, cluster.storage
    mine = {record.run_id for record in records}
    return Evidence(
        records=records,
        store=storage.store,
        pauses=cluster.pauses,
        who=who,
        acts=[act for act in service.acts if act.run_id in mine],
        asked={one: times for one, times in service.asked.items() if one[0] in mine},
        approved=approved,
        sent=[one for one in cluster.sent if one[0] in mine],
        faults=faults,
        has_plans=True,
        spawned=mine - set(service.begun.values()),
    )


def _lost_effects(goals: Mapping[str, str], acts: Collection[ServiceCall]) -> Iterator[str]:
    """A run that reached its goal did every keyed call that it had to do, each once."""
    done = Counter((act.run_id, act.what) for act in acts if act.tool == "keyed")
    for run_id, goal in goals.items():
        for what in _due(json.loads(goal)["plan"]):
            if not done[run_id, what]:
                yield f"run {run_id[-6:]}: keyed {what} was lost"


def _due(plan: list[Any]) -> Iterator[str]:
    """The keyed calls of a plan that have to be done: of several that race, none has to."""
    for kind, what in plan:
        if kind == "keyed":
            yield what
        elif kind == "all":
            yield from (each for name, each in what if name == "keyed")
