"""A soak: thousands of runs over one database, with random kills, controls of every kind, and clients that are lost.

Some clients begin a run and go away, some die, some die while they await its result; some questions are never
answered. In the end every run that has not ended must be in the list of pending work (`app.doctor`).
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.app.doctor import end_orphans, list_pending
from harborage.concurrency import Crew
from harborage.runtime.durable.pending import Party, PendingItem, PendingKind
from tests.programs.chaos.cluster import PATIENCE_S, Cluster, Process, until
from tests.programs.chaos.people import ALL_CONTROLS, People
from tests.programs.chaos.verdict import LATER, verdict
from tests.programs.chaos.worker import Errand
from tests.programs.simulation.workload import Traits, drawn_plan

if TYPE_CHECKING:
    from tests.programs.chaos.databases import Database
    from tests.programs.chaos.forkserver import ForkServer

_WORKERS: Final = 3
_RUNS_A_SESSION: Final = 10
_SPAN: Final = 6_000
_LAST: Final = 12
_SHOWN: Final = 400
_FOR_A_RUN: Final = 60
_FOR_EACH: Final = 200
_MOST_AT_ONCE: Final = 30
_LOOK_S: Final = 0.1
_FORGETS: Final = 0.05
_WITH_RUNS: Final = frozenset({PendingKind.RUN, PendingKind.PAUSE, PendingKind.APPROVAL})


class Soaked(msgspec.Struct, kw_only=True):
    """How it went: `held` counts the runs that had not ended by whom they wait for, `settled` what clients that died in
    the middle of beginning a run had left and was then ended; `broken` says what must not be."""

    broken: list[str] = []
    runs: int = 0
    ended: int = 0
    deaths: int = 0
    clients: int = 0
    controls: int = 0
    held: Counter[str] = msgspec.field(default_factory=Counter)
    settled: int = 0
    took_s: float = 0.0

    def line(self) -> str:
        """All of it, in a line."""
        held = ", ".join(f"{times} wait for a {party}" for party, times in sorted(self.held.items())) or "none waits"
        return (
            f"{self.runs} runs, {self.ended} ended, {held}; {self.deaths} kills, {self.clients} clients lost, "
            f"{self.controls} controls, {self.settled} orphans settled: {len(self.broken)} broken; {self.took_s:.0f} s"
        )


async def soak(runs: int, database: Database, folder: Path, forkserver: ForkServer, *, seed: int = 0) -> Soaked:
    """Play it to the end, at an empty database."""
    chance = random.Random(f"soak {seed}")
    goals = [json.dumps({"plan": _plan(chance)}) for _ in range(runs)]
    began = time.monotonic()
    async with Cluster(database, forkserver, goals, sessions=max(1, runs // _RUNS_A_SESSION)) as cluster:
        outcome = await _Soak(cluster, chance, folder, runs).live()
    outcome.took_s = time.monotonic() - began
    return outcome


def _plan(chance: random.Random) -> list[Any]:
    traits = Traits(
        longest=4,
        has_parallel=chance.random() < 0.2,
        has_approvals=chance.random() < 0.15,
        has_questions=chance.random() < 0.15,
        has_children=chance.random() < 0.1,
    )
    return drawn_plan(chance, traits)


class _Soak:
    def __init__(self, cluster: Cluster, chance: random.Random, folder: Path, runs: int) -> None:
        self.outcome = Soaked()
        self._cluster = cluster
        self._chance = chance
        self._folder = folder
        self._runs = runs
        self._people = People(cluster, chance, forgets=_FORGETS)
        self._is_wild = True
        self._is_over = False

    async def live(self) -> Soaked:
        faults: list[BaseException] = []
        crew = Crew(lambda _, error: faults.append(error))
        cluster, people, outcome = self._cluster, self._people, self.outcome
        for number in range(_WORKERS):
            crew.start(self._keep_up("abc"[number]), f"keeper {number}")
        crew.start(people.answer_all(), "people")
        crew.start(people.talk(ALL_CONTROLS, self._runs // 2, 0.02), "somebody")
        crew.start(self._lose_clients(), "clients")
        try:
            while len(cluster.service.begun) < self._runs:
                cluster.service.is_open = len(await cluster.records(is_open=True)) < _MOST_AT_ONCE + len(
                    people.forgotten
                )
                self._raise_first(faults)
                await asyncio.sleep(_LOOK_S)
            self._is_wild = False
            await self._calm()
            await self._look()
            self._raise_first(faults)
            self._is_over = True
            await cluster.stop()
        finally:
            self._is_over = True
            await crew.aclose()
        await self._judge()
        return outcome

    def _raise_first(self, faults: list[BaseException]) -> None:
        if faults:
            raise faults[0]

    async def _calm(self) -> None:
        """Return when nothing moves any more, or should not for so long."""
        waits: list[PendingItem] = []

        async def is_calm() -> bool:
            waits[:] = await list_pending(self._cluster.storage, clock=LATER)
            return not any(self._is_moving(wait) for wait in waits)

        try:
            await until(is_calm, patience_s=PATIENCE_S)
        except TimeoutError:
            self.outcome.broken.append("there is no calm, long after the last kill")
            for wait in waits:
                if self._is_moving(wait):
                    self.outcome.broken += [repr(wait), *await self._last_entries(wait.id)]

    async def _last_entries(self, run_id: str) -> list[str]:
        """The last entries of a run's record."""
        entries = await self._cluster.storage.store.entries(run_id)
        return [f"  {entry.decode()[:_SHOWN]}" for entry in entries[-_LAST:]]

    def _is_moving(self, wait: PendingItem) -> bool:
        """Whether a run is on its way, or will be once a person answers."""
        if wait.kind is not PendingKind.RUN:
            return False
        is_forgotten = wait.id in self._people.forgotten
        if wait.on is Party.WORKER:
            # With something in its inbox for the time after the answer, a run that asks stays with its worker.
            return not (is_forgotten and wait.name)
        return wait.is_overdue or (wait.on is Party.PERSON and not is_forgotten)

    async def _look(self) -> None:
        """No run may be an orphan; of what clients died over before there was a run, nothing may be left."""
        outcome, storage = self.outcome, self._cluster.storage
        # Now that nothing moves: a pause that was open when it was looked at may have been settled before its run was.
        waits = await list_pending(storage, clock=LATER)
        runs = [wait for wait in waits if wait.kind is PendingKind.RUN]
        outcome.held = Counter(str(wait.on) for wait in runs)
        outcome.broken += [repr(wait) for wait in waits if wait.is_orphan and wait.kind in _WITH_RUNS]
        outcome.broken += [repr(wait) for wait in runs if wait.on is Party.CODE]
        outcome.settled = len(await end_orphans(storage, clock=LATER))
        left = await list_pending(storage, clock=LATER)
        outcome.broken += [f"left after it was settled: {wait}" for wait in left if wait.is_orphan]

    async def _keep_up(self, letter: str) -> None:
        """Let there be another worker when one has died."""
        life = 0
        while not self._is_over:
            life += 1
            process = self._start(f"{letter}{life}", kill_at=self._moment() if self._is_wild else 0)
            if self._is_wild and self._chance.random() < 0.25:
                delay_s = self._chance.random() * 10
                asyncio.get_running_loop().call_later(delay_s, self._shoot, process)
            await process.gone()
            self.outcome.deaths += not self._is_over

    def _moment(self) -> int:
        """When the next worker dies. Runs that wait for good are taken up by each, so they count for it."""
        span = min(_SPAN, _FOR_A_RUN * self._runs)
        return self._chance.randint(1, span + _FOR_EACH * len(self._people.forgotten))

    def _shoot(self, process: Process) -> None:
        if self._is_wild:
            process.send(signal.SIGKILL)

    async def _lose_clients(self) -> None:
        """Let clients come and begin a run each, and lose every one of them in some way."""
        number = 0
        while self._is_wild:
            number += 1
            client = self._start(f"client{number}", errand=Errand(is_client=True, stays=self._chance.random() < 0.7))
            try:
                async with asyncio.timeout(self._chance.random() * 3):
                    await client.gone()
            except TimeoutError:
                await client.kill()
                self.outcome.deaths += 1
            self.outcome.clients += 1
            await asyncio.sleep(self._chance.random())

    def _start(self, name: str, **orders: Any) -> Process:
        return self._cluster.start(name, log=str(self._folder / "log"), **orders)

    async def _judge(self) -> None:
        outcome, cluster = self.outcome, self._cluster
        records = await cluster.records()
        outcome.runs, outcome.controls = len(records), self._people.sent
        outcome.ended = sum(record.status.is_final for record in records)
        outcome.broken += await verdict(
            cluster, approved=self._people.approved, faults=outcome.deaths + len(cluster.service.lost)
        )
