"""Harborage simulated with itself: one story a seed, everything in it drawn from the seed, and many in parallel."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import msgspec

from harborage.testing.simulation.checks import check
from harborage.testing.simulation.simulation import Faults, Outcome, Simulation, draw_faults, simulate
from tests.programs.simulation.coverage import marks_of
from tests.programs.simulation.scenario import Scenario
from tests.programs.simulation.workload import Traits, drawn_traits

_CHUNK = 10


def play(
    seed: int,
    *,
    faults: Faults | None = None,
    traits: Traits | None = None,
    scenario: Callable[[Simulation, Traits], Scenario] = Scenario,
    is_verbose: bool = False,
) -> Outcome:
    """How the story of `seed` goes: agents, processes, people and faults, and every promise checked at the end.

    The outcome's `result` are the marks of what came up in it; `scenario` makes another one than usual.
    """

    async def story(simulation: Simulation) -> frozenset[str]:
        drawn = drawn_traits(simulation.chance("traits")) if traits is None else traits
        simulation.note(f"{drawn}")
        simulation.note(f"{simulation.injector.faults}")
        made = scenario(simulation, drawn)
        await made.live()
        evidence = await made.evidence()
        await check(evidence)
        return await marks_of(evidence, made.server.store.claims, made.server.store.refused_writes)

    if faults is None:
        faults = draw_faults(random.Random(f"{seed}/which faults"))
    return simulate(story, seed, faults=faults, is_verbose=is_verbose)


class Played(msgspec.Struct, frozen=True):
    """What is reported of one story among many: its digest, what it failed with, and what came up in it."""

    seed: int
    digest: str
    error: str
    marks: frozenset[str] = frozenset()


def played(seed: int) -> Played:
    """How one story went."""
    outcome = play(seed)
    error = "" if outcome.error is None else f"{type(outcome.error).__name__}: {outcome.error}"
    return Played(seed, outcome.digest, error, outcome.result or frozenset())


def many(seeds: Sequence[int], jobs: int) -> Iterator[Played]:
    """How these stories went, in no order; `jobs` at once, each in a process of its own."""
    if jobs <= 1:
        yield from map(played, seeds)
        return
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_all_played, chunk) for chunk in chunks]):
            yield from done.result()


def _all_played(seeds: Sequence[int]) -> list[Played]:
    return [played(seed) for seed in seeds]
