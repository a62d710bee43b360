"""Many stories at once, each in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import msgspec

from harborage.testing.simulation.stories import play

__all__ = ["Played", "many", "played"]

_CHUNK = 10


class Played(msgspec.Struct, frozen=True):
    """What is told of one story among many: its digest, what it failed with, and what came up in it."""

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
