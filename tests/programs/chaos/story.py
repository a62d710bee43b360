"""A chaos story: processes over one database, killed at moments that the seed draws, until every run is over.

And how long a run stands still after such a kill, until another process goes on with it.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.concurrency import Crew
from harborage.runtime.loop.controls import ControlType
from tests.programs.chaos.cluster import PATIENCE_S, Cluster, Process, until
from tests.programs.chaos.kill_points import kinds_of
from tests.programs.chaos.people import People
from tests.programs.chaos.verdict import settled, verdict
from tests.programs.simulation.workload import Traits, drawn_plan

if TYPE_CHECKING:
    from tests.programs.chaos.databases import Database
    from tests.programs.chaos.forkserver import ForkServer

_MOST_DEATHS: Final = 6
_SPAN: Final = 220
_TIMES: Final = 6
_OTHERS: Final = frozenset({"ask", "spawn", "turn", "join"})


class Outcome(msgspec.Struct, kw_only=True):
    """How a story went: which promises were broken, how many workers died and at which moments, how many runs there
    were, how often a living worker was taken for dead, and how many groups ended late, for their processes died."""

    seed: int
    broken: list[str] = []
    deaths: int = 0
    runs: int = 0
    lost: int = 0
    settled: int = 0
    moments: Counter[str] = msgspec.field(default_factory=Counter)


async def play(
    seed: int, database: Database, folder: Path, forkserver: ForkServer, *, most_deaths: int = _MOST_DEATHS
) -> Outcome:
    """Play one story at an empty database. Everything that can be drawn comes from the seed; the timing does not.

    After so many deaths nobody dies any more, and every run has to end.
    """
    chance = random.Random(f"chaos {seed}")
    traits = _traits(chance)
    plans = [drawn_plan(chance, traits) for _ in range(traits.runs)]
    if seed % 2 == 0:
        plans = [_keyed(plan) for plan in plans]
    goals = [json.dumps({"plan": plan}) for plan in plans]
    async with Cluster(database, forkserver, goals) as cluster:
        story = _Story(seed, chance, cluster, folder, most_deaths=most_deaths)
        await story.live(messages=traits.messages)
        return story.outcome


def _traits(chance: random.Random) -> Traits:
    return Traits(
        runs=chance.choice((1, 2, 3)),
        longest=chance.choice((3, 6)),
        has_parallel=chance.random() < 0.5,
        has_approvals=chance.random() < 0.4,
        has_questions=chance.random() < 0.3,
        has_children=chance.random() < 0.3,
        messages=chance.choice((0, 0, 3)),
    )


def _keyed(plan: list[Any]) -> list[Any]:
    """The plan with keyed tools alone."""
    return [_keyed_step(kind, what) for kind, what in plan]


def _keyed_step(kind: str, what: Any) -> list[Any]:
    if kind in {"spawn", "turn"}:
        return [kind, _keyed(what)]
    if kind in _OTHERS:
        return [kind, what]
    return ["keyed", what] if isinstance(what, str) else [kind, [["keyed", each] for _, each in what]]


class _Story:
    def __init__(self, seed: int, chance: random.Random, cluster: Cluster, folder: Path, *, most_deaths: int) -> None:
        self.outcome = Outcome(seed=seed)
        self._chance = chance
        self._cluster = cluster
        self._folder = folder
        self._most_deaths = most_deaths
        self._people = People(cluster, chance)
        self._is_over = False

    async def live(self, *, messages: int) -> None:
        faults: list[BaseException] = []
        crew = Crew(lambda _, error: faults.append(error))
        keepers = [crew.start(self._keep_up(number), f"keeper {number}") for number in range(self._processes())]
        crew.start(self._people.answer_all(), "people")
        crew.start(self._people.talk((ControlType.USER_MESSAGE,), messages, 0.2), "somebody")

        async def is_done() -> bool:
            if faults:
                raise faults[0]
            return await self._cluster.is_over()

        try:
            await until(is_done)
            self._is_over = True
            await self._cluster.stop()
            await asyncio.wait(keepers)
            self.outcome.settled, self.outcome.broken = await settled(self._cluster)
        except TimeoutError:
            self._is_over = True
            self.outcome.broken += [f"is not over: {one}" for one in await self._cluster.records(is_open=True)]
        finally:
            await crew.aclose()
        await self._judge()

    def _processes(self) -> int:
        return self._chance.choice((1, 1, 2))

    async def _keep_up(self, number: int) -> None:
        """Let there be another worker when one has died, the last of which lives on."""
        life = 0
        while not self._is_over:
            life += 1
            process = self._start(f"{'abc'[number]}{life}", is_first=life == 1 and number == 0)
            await process.gone()
            if not self._is_over:
                self.outcome.deaths += 1

    def _start(self, name: str, *, is_first: bool) -> Process:
        kill_at, kill_kind = self._moment(is_first=is_first)
        is_last = self.outcome.deaths >= self._most_deaths
        process = self._cluster.start(
            name,
            kill_at=0 if is_last else kill_at,
            kill_kind=kill_kind,
            log=str(self._folder / "log"),
            deaths=str(self._folder / "deaths"),
        )
        if not is_last and self._chance.random() < 0.2:
            delay_s = self._chance.random()
            asyncio.get_running_loop().call_later(delay_s, process.send, signal.SIGKILL)
        return process

    def _moment(self, *, is_first: bool) -> tuple[int, str]:
        """When a worker dies: the first of each story at the next moment in turn, so that many seeds see every one."""
        kinds = kinds_of(self._cluster.database.url)
        if is_first:
            turn, kind = divmod(self.outcome.seed // 2, len(kinds))
            return turn % _TIMES + 1, kinds[kind]
        if self._chance.random() < 0.5:
            return self._chance.randint(1, _TIMES), self._chance.choice(kinds)
        return self._chance.randint(1, _SPAN), ""

    async def _judge(self) -> None:
        outcome, cluster = self.outcome, self._cluster
        deaths = self._folder / "deaths"
        outcome.moments = Counter(deaths.read_text().splitlines() if deaths.exists() else ())
        outcome.lost = len(cluster.service.lost)
        outcome.runs = len(await cluster.records())
        outcome.broken += await verdict(cluster, approved=self._people.approved, faults=outcome.deaths + outcome.lost)


async def takeovers(kills: int, database: Database, forkserver: ForkServer) -> list[float]:
    """Seconds from each kill to the moment at which a process that was there already asks for the same call again."""
    took: list[float] = []
    names = [f"k{number}" for number in range(kills)]
    async with Cluster(database, forkserver, [json.dumps({"plan": [["keyed", name] for name in names]})]) as cluster:
        processes = {name: cluster.start(name) for name in ("a", "b")}
        async with asyncio.timeout(PATIENCE_S * kills):
            for name in names:
                carrier = await cluster.service.hold(name).reached()
                await cluster.run()
                # The next to take over must have started by then.
                fresh = f"after {name}"
                processes[fresh] = cluster.start(fresh)
                await until(partial(_is_present, cluster, fresh))
                again = cluster.service.hold(name)
                began = time.monotonic()
                await processes.pop(carrier).kill()
                await again.reached()
                took.append(time.monotonic() - began)
                again.release()
    return took


async def _is_present(cluster: Cluster, name: str) -> bool:
    return name in cluster.service.present
