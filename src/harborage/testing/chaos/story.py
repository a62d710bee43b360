"""A chaos story: processes over one SQLite file, killed at moments that the seed draws, until every run is over."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from harborage import codec
from harborage.concurrency import Crew
from harborage.runtime.durable import RunNotFoundError
from harborage.runtime.engines.stored import StoredEngine
from harborage.runtime.pauses import (
    AlreadyResumedError,
    Coordinator,
    Pause,
    PauseDecision,
    PauseNotFoundError,
    PauseReason,
)
from harborage.runtime.steering.controls import ControlEvent, ControlType, Scope
from harborage.state.runs import RunFilter, RunRecord
from harborage.state.storage import Storage, open_storage
from harborage.testing.chaos.nursery import Nursery
from harborage.testing.chaos.service import Service
from harborage.testing.chaos.worker import ME, Orders
from harborage.testing.simulation.checks import Seen, broken_promises
from harborage.testing.simulation.plans import Traits, drawn_plan

__all__ = ["Told", "play"]

_SPAN: Final = 220
_MOST_DEATHS: Final = 6
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.05


class Told(msgspec.Struct, kw_only=True):
    """How a story went: which promises were broken, how many workers died, how many runs there were."""

    seed: int
    broken: list[str] = []
    deaths: int = 0
    runs: int = 0


async def play(seed: int, folder: Path, nursery: Nursery) -> Told:
    """Play one story in an empty folder. Everything that can be drawn comes from the seed; the timing does not."""
    story = _Story(seed, folder, nursery)
    try:
        await story.live()
    finally:
        await story.aclose()
    return story.told


class _Story:
    def __init__(self, seed: int, folder: Path, nursery: Nursery) -> None:
        self.told = Told(seed=seed)
        self._chance = random.Random(f"chaos {seed}")
        self._nursery = nursery
        self._url = f"sqlite:{folder / 'runs.db'}"
        self._crew = Crew(self._failed)
        self._faults: list[BaseException] = []
        self._living: set[int] = set()
        self._approved: set[tuple[str, str]] = set()
        self._sent: list[tuple[str, str, bytes]] = []
        self._is_over = False
        traits = self._traits()
        goals = [json.dumps({"plan": drawn_plan(self._chance, traits)}) for _ in range(traits.runs)]
        self._service = Service(goals)
        self._wanted = len(goals)
        self._storage: Storage | None = None

    def _traits(self) -> Traits:
        chance = self._chance
        return Traits(
            processes=chance.choice((1, 1, 2)),
            runs=chance.choice((1, 2, 3)),
            longest=chance.choice((3, 6)),
            has_parallel=chance.random() < 0.5,
            has_approvals=chance.random() < 0.4,
            has_questions=chance.random() < 0.3,
            has_children=chance.random() < 0.3,
            messages=chance.choice((0, 0, 3)),
        )

    async def live(self) -> None:
        port = await self._service.open()
        storage = self._storage = await open_storage(self._url)
        pauses = Coordinator(store=storage.state, on_settled=lambda one: storage.queue.wake(one.identity.run_id))
        desk = StoredEngine(storage.runs, storage.queue, pauses)
        for number in range(self._chance.choice((1, 1, 2))):
            self._crew.start(self._keep_up(f"{'abc'[number]}", port, number), f"supervisor {number}")
        self._crew.start(self._answer_all(pauses, desk), "people")
        self._crew.start(self._talk(storage, desk), "somebody")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not await self._is_done(storage):
                    if self._faults:
                        raise self._faults[0]
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            self.told.broken += [f"is not over: {one}" for one in await self._records(storage)]
        self._is_over = True
        self._signal(signal.SIGTERM)
        async with asyncio.timeout(_PATIENCE_S):
            while self._living:  # noqa: ASYNC110 - each is watched by its supervisor
                await asyncio.sleep(_LOOK_S)
        await self._crew.aclose()
        await self._check(storage, pauses)

    async def aclose(self) -> None:
        self._is_over = True
        self._signal(signal.SIGKILL)
        await self._crew.aclose()
        await self._service.aclose()
        if self._storage is not None:
            await self._storage.aclose()

    # ── Workers ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _keep_up(self, letter: str, port: int, number: int) -> None:
        """Let there be another worker when one has died, the last of which lives on."""
        life = 0
        while not self._is_over:
            life += 1
            # The first of each story dies at the next moment in turn, so that many seeds see every one.
            kill_at = self.told.seed % _SPAN + 1 if life == 1 and number == 0 else self._chance.randint(1, _SPAN)
            is_last = self.told.deaths >= _MOST_DEATHS
            orders = Orders(self._url, port, f"{letter}{life}", 0 if is_last else kill_at)
            pid = self._nursery.start(orders)
            self._living.add(pid)
            if not is_last and self._chance.random() < 0.2:
                self._crew.start(self._shoot(pid, self._chance.random()), "kill -9")
            await _gone(pid)
            self._living.discard(pid)
            if not self._is_over:
                self.told.deaths += 1

    async def _shoot(self, pid: int, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if pid in self._living and not self._is_over:
            _kill(pid, signal.SIGKILL)

    def _signal(self, what: signal.Signals) -> None:
        for pid in self._living:
            _kill(pid, what)

    # ── People ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _answer_all(self, pauses: Coordinator, desk: StoredEngine) -> None:
        seen: set[str] = set()
        while not self._is_over:
            for pause in (await pauses.list(who=ME, page_size=200)).rows:
                if pause.token not in seen:
                    seen.add(pause.token)
                    await asyncio.sleep(self._chance.choice((0.0, 0.3)) * self._chance.random())
                    await self._answer(pause, pauses, desk)
            await asyncio.sleep(_LOOK_S)

    async def _answer(self, pause: Pause, pauses: Coordinator, desk: StoredEngine) -> None:
        run_id, payload = pause.identity.run_id, pause.payload or {}
        if pause.reason is PauseReason.APPROVAL_REQUIRED:
            is_yes = self._chance.random() < 0.8
            if is_yes:
                self._approved.add((run_id, payload["args_summary"]["what"]))
            kind = ControlType.APPROVE if is_yes else ControlType.REJECT
            await self._send(desk, run_id, kind, {"token": pause.token})
            return
        try:
            await pauses.resume(
                pause.token, PauseDecision.RESUME, {"answer": payload.get("question")}, who=pause.identity
            )
        except (AlreadyResumedError, PauseNotFoundError):
            return

    async def _talk(self, storage: Storage, desk: StoredEngine) -> None:
        """Somebody who says something to some run every now and then."""
        for number in range(self._chance.choice((0, 0, 4))):
            await asyncio.sleep(self._chance.random() * 0.5)
            going = [one for one in await self._records(storage) if not one.standing.stand.is_final]
            if going:
                text = {"message": f"m{number}"}
                await self._send(desk, self._chance.choice(going).run_id, ControlType.USER_MESSAGE, text)

    async def _send(self, desk: StoredEngine, run_id: str, type: ControlType, payload: dict[str, Any]) -> None:
        who = ME.with_run(run_id)
        control = ControlEvent(type, who, Scope.ADMIN, who.tenant_id, payload, f"event-{len(self._sent)}")
        self._sent.append((run_id, control.event_id, codec.encode(control)))
        try:
            await desk.send(run_id, control)
        except RunNotFoundError:
            self._sent.remove((run_id, control.event_id, codec.encode(control)))

    # ── What is left ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _records(self, storage: Storage) -> list[RunRecord]:
        return await storage.runs.list(RunFilter(), limit=1000)

    async def _is_done(self, storage: Storage) -> bool:
        if len(self._service.begun) < self._wanted:
            return False
        return all(record.standing.stand.is_final for record in await self._records(storage))

    async def _check(self, storage: Storage, pauses: Coordinator) -> None:
        records = await self._records(storage)
        self.told.runs = len(records)
        seen = Seen(
            records=records,
            runs=storage.runs,
            log=storage.events,
            pauses=pauses,
            who=ME,
            acts=self._service.acts,
            asked=self._service.asked,
            approved=self._approved,
            sent=self._sent,
            faults=self.told.deaths,
        )
        self.told.broken += await broken_promises(seen)

    def _failed(self, name: str, error: BaseException) -> None:
        self._faults.append(error)


def _kill(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it died in this very moment
        os.kill(pid, what)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _gone(pid: int) -> None:
    """Return when the process is dead."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    dead: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    loop.add_reader(handle, _resolve, dead)
    try:
        await dead
    finally:
        loop.remove_reader(handle)
        os.close(handle)
