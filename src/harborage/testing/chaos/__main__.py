"""`python -m harborage.testing.chaos`: play stories with real processes and real kills, and name those that fail."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harborage.testing.chaos.nursery import Nursery
from harborage.testing.chaos.story import Told, play


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 when a story failed."""
    parser = argparse.ArgumentParser(prog="python -m harborage.testing.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many stories to play (200)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--jobs", type=int, default=4, help="how many at once (4)")
    asked = parser.parse_args(arguments)
    return asyncio.run(_play_all(range(asked.start, asked.start + asked.seeds), max(1, asked.jobs)))


async def _play_all(seeds: range, jobs: int) -> int:
    began = time.monotonic()
    told: list[Told] = []
    left = list(reversed(seeds))

    async def player(nursery: Nursery) -> None:
        while left:
            told.append(await _play(left.pop(), nursery))

    with Nursery() as nursery:
        async with asyncio.TaskGroup() as group:
            for _ in range(jobs):
                group.create_task(player(nursery))
    failed = sum(bool(one.broken) for one in told)
    deaths, runs = sum(one.deaths for one in told), sum(one.runs for one in told)
    took = time.monotonic() - began
    _say(f"{len(told)} stories, {runs} runs, {deaths} kills: {failed} stories failed; {took:.0f} s")
    return 1 if failed else 0


async def _play(seed: int, nursery: Nursery) -> Told:
    with tempfile.TemporaryDirectory() as folder:
        told = await play(seed, Path(folder), nursery)
    for line in told.broken:
        _say(f"seed {seed}: {line}\n  again: python -m harborage.testing.chaos --seeds 1 --start {seed}")
    return told


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
