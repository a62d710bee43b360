"""Harborage simulated with itself: one story a seed, with everything in it drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from harborage.testing.simulation.checks import check
from harborage.testing.simulation.faults import Faults, drawn_faults
from harborage.testing.simulation.marks import marks_of
from harborage.testing.simulation.plans import Traits, drawn_traits
from harborage.testing.simulation.simulation import Outcome, Simulation, simulate
from harborage.testing.simulation.town import Town

__all__ = ["play"]


def play(
    seed: int,
    *,
    faults: Faults | None = None,
    traits: Traits | None = None,
    town: Callable[[Simulation, Traits], Town] = Town,
    is_verbose: bool = False,
) -> Outcome:
    """How the story of `seed` goes: agents, processes, people and faults, and every promise checked at the end.

    The outcome's `result` are the marks of what came up in it; `town` makes another place for it to happen in.
    """

    async def story(simulation: Simulation) -> frozenset[str]:
        drawn = drawn_traits(simulation.chance("traits")) if traits is None else traits
        simulation.note(f"{drawn}")
        simulation.note(f"{simulation.fates.faults}")
        made = town(simulation, drawn)
        await made.live()
        seen = await made.seen()
        await check(seen)
        return await marks_of(seen, made.server.store.claims, made.server.store.turned_away)

    if faults is None:
        faults = drawn_faults(random.Random(f"{seed}/which faults"))
    return simulate(story, seed, faults=faults, is_verbose=is_verbose)
