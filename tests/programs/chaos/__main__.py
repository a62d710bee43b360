"""`python -m tests.programs.chaos`: real processes and real kills; what breaks is named, and how to see it again.

Stories by seed are the default; `--soak` plays one long one and watches many
principals and readers side by side, `--takeovers` measures how soon a run goes on,
`--attacks` kills, freezes, starves, floods and damages, each with its verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from harborage.clock import SYSTEM_CLOCK
from harborage.identity import Identity
from harborage.runtime.host import Runtime
from harborage.tools import tool
from tests.kit.isolation.canary import watch
from tests.programs.chaos.attacks import ATTACKS, LEASE_S, attack
from tests.programs.chaos.databases import Databases, open_at
from tests.programs.chaos.disconnects import FamilyPlanner, disconnects, stroll
from tests.programs.chaos.forkserver import ForkServer
from tests.programs.chaos.soak import soak
from tests.programs.chaos.story import Outcome, play, takeovers

# With the 2,000 runs of a whole soak: 10,000 operations, and 1,000 readers that leave.
_PRINCIPALS = 50
_OPERATIONS_A_RUN = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 when something was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many stories to play (200)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--jobs", type=int, default=4, help="how many at once (4)")
    parser.add_argument("--storage", default="sqlite", help="sqlite, postgres, or the url of a Postgres (sqlite)")
    parser.add_argument("--soak", type=int, metavar="RUNS", help="play one long story of so many runs")
    parser.add_argument("--takeovers", type=int, metavar="KILLS", help="measure how soon others carry a run on")
    parser.add_argument("--attacks", type=int, metavar="RUNS", help="carry out every attack on so many runs each")
    asked = parser.parse_args(arguments)
    with Databases(asked.storage) as databases, ForkServer() as forkserver:
        if asked.soak:
            return asyncio.run(_soak(asked.soak, asked.start, databases, forkserver))
        if asked.takeovers:
            return asyncio.run(_takeovers(asked.takeovers, databases, forkserver))
        if asked.attacks:
            return asyncio.run(_attacks(asked.attacks, asked.start, databases, forkserver))
        seeds = range(asked.start, asked.start + asked.seeds)
        return asyncio.run(_Stories(databases, forkserver, asked.storage).play_all(seeds, max(1, asked.jobs)))


class _Stories:
    def __init__(self, databases: Databases, forkserver: ForkServer, storage: str) -> None:
        self._places = databases
        self._forkserver = forkserver
        self._option = "" if storage == "sqlite" else f" --storage {storage}"
        self._outcomes: list[Outcome] = []

    async def play_all(self, seeds: range, jobs: int) -> int:
        began = time.monotonic()
        left = list(reversed(seeds))

        async def player() -> None:
            while left:
                self._outcomes.append(await self._play(left.pop()))

        async with asyncio.TaskGroup() as group:
            for _ in range(jobs):
                group.create_task(player())
        outcomes = self._outcomes
        failed = sum(bool(one.broken) for one in outcomes)
        moments = sum((one.moments for one in outcomes), Counter[str]())
        _say(
            f"{len(outcomes)} stories, {sum(one.runs for one in outcomes)} runs, {sum(one.deaths for one in outcomes)} "
            f"kills, {len(moments)} kinds of moments, {sum(one.settled for one in outcomes)} groups ended late: "
            f"{failed} stories failed; {time.monotonic() - began:.0f} s"
        )
        _say("killed " + ", ".join(f"{name} {times}" for name, times in sorted(moments.items())))
        return 1 if failed else 0

    async def _play(self, seed: int) -> Outcome:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            async with self._places.fresh(f"seed_{seed}", folder) as database:
                outcome = await play(seed, database, folder, self._forkserver)
        for line in outcome.broken:
            _say(f"seed {seed}: {line}")
        if outcome.broken:
            _say(f"  again: python -m tests.programs.chaos --seeds 1 --start {seed}{self._option}")
        return outcome


async def _attacks(runs: int, seed: int, databases: Databases, forkserver: ForkServer) -> int:
    is_broken = False
    for number, name in enumerate(ATTACKS):
        with tempfile.TemporaryDirectory() as folder:
            async with databases.fresh(f"attack_{number}", Path(folder), lease_s=LEASE_S) as database:
                outcome = await attack(name, runs, database, forkserver, seed=seed)
        for line in outcome.broken:
            _say(f"{name}: {line}")
        _say(outcome.line())
        is_broken = is_broken or bool(outcome.broken)
    return 1 if is_broken else 0


async def _soak(runs: int, seed: int, databases: Databases, forkserver: ForkServer) -> int:
    with tempfile.TemporaryDirectory() as name:
        async with databases.fresh("soak", Path(name)) as database:
            outcome = await soak(runs, database, Path(name), forkserver, seed=seed)
        crowd = await _crowd(runs, seed, databases, Path(name))
    for line in (*outcome.broken, *crowd):
        _say(line)
    _say(outcome.line())
    return 1 if outcome.broken or crowd else 0


async def _crowd(runs: int, seed: int, databases: Databases, folder: Path) -> list[str]:
    """What goes wrong among many principals, and for readers that come and go."""
    leaks: list[str] = []
    async with (
        databases.fresh("canary", folder / "canary") as database,
        await open_at(database, SYSTEM_CLOCK) as kept,
    ):
        for where, storage in (("in memory", None), ("over the storage", kept)):
            watched = await watch(storage, principals=_PRINCIPALS, operations=runs * _OPERATIONS_A_RUN, seed=seed)
            shown, strange = sum(watched.shown.values()), len(watched.leaks)
            _say(f"{_PRINCIPALS} principals {where} saw {shown} answers; {strange} were another's")
            leaks += watched.leaks
    async with (
        databases.fresh("readers", folder / "readers") as database,
        await open_at(database, SYSTEM_CLOCK) as storage,
        Runtime(planner=FamilyPlanner(), tools=[tool(stroll)], storage=storage) as runtime,
    ):
        left = await disconnects(runtime, max(1, runs // 2), seed=seed, who=Identity("t", "u", "s"))
    _say(f"{left.connections} readers came and went: {left.events} events of {left.runs} families, {left.gaps} gaps")
    return [*leaks, *left.broken]


async def _takeovers(kills: int, databases: Databases, forkserver: ForkServer) -> int:
    with tempfile.TemporaryDirectory() as name:
        async with databases.fresh("takeovers", Path(name)) as database:
            took = sorted(await takeovers(kills, database, forkserver))
    slow = took[int(len(took) * 0.95)]
    _say(f"{len(took)} takeovers: p50 {statistics.median(took):.3f} s, p95 {slow:.3f} s, slowest {took[-1]:.3f} s")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
