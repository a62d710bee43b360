"""Harborage simulated with itself: one story a seed, with everything in it drawn from the seed."""

from __future__ import annotations

import random

from harborage.testing.simulation.checks import check
from harborage.testing.simulation.faults import Faults, drawn_faults
from harborage.testing.simulation.plans import Traits, drawn_traits
from harborage.testing.simulation.simulation import Outcome, Simulation, simulate
from harborage.testing.simulation.town import Town

__all__ = ["play"]


def play(seed: int, *, faults: Faults | None = None, traits: Traits | None = None, is_verbose: bool = False) -> Outcome:
    """How the story of `seed` goes: agents, processes, people and faults, and every promise checked at the end."""

    async def story(simulation: Simulation) -> None:
        drawn = traits or drawn_traits(simulation.chance("traits"))
        simulation.note(f"{drawn}")
        simulation.note(f"{simulation.fates.faults}")
        town = Town(simulation, drawn)
        await town.live()
        await check(await town.seen())

    drawn = faults or drawn_faults(random.Random(f"{seed}/which faults"))
    return simulate(story, seed, faults=drawn, is_verbose=is_verbose)
