"""What must hold when a chaos story is over: what the simulation checks, and that no effect was lost."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from harborage.state.runs import RunRecord, Stand
from harborage.testing.simulation.checks import Seen, broken_promises

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.testing.chaos.stage import Stage
    from harborage.testing.simulation.world import Act

__all__ = ["verdict"]


async def verdict(stage: Stage, *, approved: Collection[tuple[str, str]], faults: int) -> list[str]:
    """Every promise that was broken, in words; `faults` is how often an answer of a model may have been lost."""
    over = [record for record in await stage.records() if record.standing.stand.is_final]
    sessions = defaultdict(list)
    for record in over:
        sessions[record.who.identity].append(record)
    broken: list[str] = []
    for who, records in sessions.items():
        broken += await broken_promises(_seen(stage, who, records, approved, faults))
    return [*broken, *_lost_effects(over, stage.service.acts)]


def _seen(
    stage: Stage, who: Identity, records: Sequence[RunRecord], approved: Collection[tuple[str, str]], faults: int
) -> Seen:
    """What is left of the runs of one session."""
    service, storage = stage.service, stage.storage
    mine = {record.run_id for record in records}
    return Seen(
        records=records,
        runs=storage.runs,
        log=storage.events,
        pauses=stage.pauses,
        who=who,
        acts=[act for act in service.acts if act.run_id in mine],
        asked={one: times for one, times in service.asked.items() if one[0] in mine},
        approved=approved,
        sent=[one for one in stage.sent if one[0] in mine],
        faults=faults,
        has_plans=True,
        spawned=mine - set(service.begun.values()),
    )


def _lost_effects(records: Collection[RunRecord], acts: Collection[Act]) -> Iterator[str]:
    """A run that reached its goal did every keyed call that it had to do, each once."""
    done = Counter((act.run_id, act.what) for act in acts if act.tool == "keyed")
    for record in records:
        if record.standing.stand is not Stand.FINISHED or record.standing.reason != "goal":
            continue
        for what in _due(json.loads(record.goal)["plan"]):
            if not done[record.run_id, what]:
                yield f"run {record.run_id[-6:]}: keyed {what} was lost"


def _due(plan: list[Any]) -> Iterator[str]:
    """The keyed calls of a plan that have to be done: of several that race, none has to."""
    for kind, what in plan:
        if kind == "keyed":
            yield what
        elif kind == "all":
            yield from (each for name, each in what if name == "keyed")
