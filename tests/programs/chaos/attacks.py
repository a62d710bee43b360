"""Attacks on real processes over one database, each with a verdict: nothing lost, nothing doubled, nothing stuck.

Processes are killed in the middle of a commit and frozen past their lease, the disk is full for a while, controls
cannot be read, come in floods, and several people answer one question at once. Each attack is bounded in time.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.errors import HarborageError
from harborage.runtime.loop.controls import ControlType
from harborage.store import Commit, SendControl
from tests.programs.chaos.cluster import PATIENCE_S, Cluster, Process, until
from tests.programs.chaos.verdict import verdict

if TYPE_CHECKING:
    from harborage.runtime.pauses import Pause
    from tests.programs.chaos.databases import Database
    from tests.programs.chaos.forkserver import ForkServer

LEASE_S: Final = 1.5
"""The lease of databases under attack, so that a freeze outlasts it soon."""

_FLOOD: Final = 200
_APPROVERS: Final = 8
_UNREADABLE: Final = (b"\xff\x00", b'{"type":"TELEPORT"}', b"[" * 5_000)
_FULL_S: Final = 1.0


class Attacked(msgspec.Struct, kw_only=True):
    """How an attack went: `broken` says what must not be, `faults` how often something was done to a process."""

    name: str
    runs: int = 0
    faults: int = 0
    sent: int = 0
    broken: list[str] = []

    def line(self) -> str:
        """All of it, in a line."""
        counts = ((what, sum(what in one for one in self.broken)) for what in ("lost", "times", "stuck"))
        lost, doubled, stuck = (number for _, number in counts)
        said = f"{lost} lost, {doubled} doubled, {stuck} stuck, {len(self.broken)} broken promises"
        return f"{self.name}: {self.runs} runs, {self.faults} faults, {self.sent} controls sent: {said}"


class _Scene:
    """One attack while it lasts."""

    def __init__(self, cluster: Cluster, chance: random.Random, attacked: Attacked) -> None:
        self.cluster = cluster
        self.chance = chance
        self.attacked = attacked
        self.approved: set[tuple[str, str]] = set()
        self.blocked: dict[str, str] = {}
        self._names = 0

    def start(self, **orders: Any) -> Process:
        """One more worker."""
        self._names += 1
        return self.cluster.start(f"w{self._names}", **orders)

    async def is_over(self) -> bool:
        """Whether every wanted run was begun, and all have ended but those that must be blocked."""
        is_begun = len(self.cluster.service.begun) == self.attacked.runs
        return is_begun and {one.run_id for one in await self.cluster.records(is_open=True)} == set(self.blocked)


async def _kills(scene: _Scene) -> None:
    """Workers die around a commit, again and again; the last one lives."""
    for turn in range(10):
        kind = ("before COMMIT", "after COMMIT", "before append", "after append", "after begun")[turn % 5]
        process = scene.start(kill_at=scene.chance.randint(1, 12), kill_kind=kind)
        try:
            async with asyncio.timeout(3):
                await process.gone()
        except TimeoutError:
            await process.kill()  # it had nothing left to do, or this driver knows no such moment
        scene.attacked.faults += 1
    scene.start()


async def _freezes(scene: _Scene) -> None:
    """One of two workers is frozen for longer than its lease, and then continues."""
    workers = [scene.start(), scene.start()]
    for turn in range(4):
        frozen = workers[turn % 2]
        await asyncio.sleep(scene.chance.random() * 0.3)
        await scene.cluster.freeze(frozen)
        scene.attacked.faults += 1
        await asyncio.sleep(1.5 * LEASE_S)
        frozen.send(signal.SIGCONT)


async def _full_disk(scene: _Scene) -> None:
    """No file of the only worker may grow for a while; then there is room again."""
    worker = scene.start()
    await until(lambda: _has_acted(scene.cluster))
    for _ in range(2):
        before = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        scene.attacked.faults += 1
        await asyncio.sleep(_FULL_S)
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, before)
        await asyncio.sleep(0.2)


async def _unreadable(scene: _Scene) -> None:
    """Every third run is sent something that cannot be read: it is blocked by name, and all others go on."""
    held = [scene.cluster.service.hold(f"a{number}") for number in range(scene.attacked.runs)]
    scene.start()
    await until(lambda: _has_begun(scene))
    for number, run_id in sorted(scene.cluster.service.begun.items())[::3]:
        data = _UNREADABLE[number % len(_UNREADABLE)]
        sent = SendControl(run_id=run_id, event_id=f"unreadable {number}", type="USER_MESSAGE", data=data)
        await scene.cluster.storage.store.commit(Commit(sends=(sent,)))
        scene.blocked[run_id] = f"unreadable {number}"
        scene.attacked.faults += 1
    for one in held:
        one.release()
    await until(lambda: _are_blocked(scene))


async def _are_blocked(scene: _Scene) -> bool:
    records = {one.run_id: one for one in await scene.cluster.records()}
    return all(records[run_id].blocked for run_id in scene.blocked)


async def _flood(scene: _Scene) -> None:
    """Runs that are in the middle of a call get hundreds of messages each; every one is applied or rejected once."""
    held = [scene.cluster.service.hold(f"a{number}") for number in range(scene.attacked.runs)]
    scene.start()
    await until(lambda: _has_begun(scene))
    for number in range(_FLOOD):
        record = scene.chance.choice(await scene.cluster.records(is_open=True))
        await scene.cluster.send(record.quadruple, ControlType.USER_MESSAGE, {"message": f"m{number}"})
    for one in held:
        one.release()


async def _approvers(scene: _Scene) -> None:
    """Several people answer each question at once, some yes and some no: one answer counts."""
    for _ in range(2):
        scene.start()
    asked: set[str] = set()
    while not await scene.is_over():  # a run may be begun twice, and asks then, too
        for pause in await scene.cluster.open_pauses():
            if pause.token not in asked:
                asked.add(pause.token)
                await _answer_at_once(scene, pause)
        await asyncio.sleep(0.02)


async def _answer_at_once(scene: _Scene, pause: Pause) -> None:
    assert pause.payload is not None
    scene.approved.add((pause.identity.run_id, pause.payload["args_summary"]["args"]["what"]))
    answers = [ControlType.APPROVE, *scene.chance.choices([ControlType.APPROVE, ControlType.REJECT], k=_APPROVERS - 1)]

    async def answer(kind: ControlType) -> None:
        try:
            await scene.cluster.send(pause.identity, kind, {"token": pause.token})
        except HarborageError:
            return  # its run is over: another answer was first

    await asyncio.gather(*map(answer, answers))


async def _has_acted(cluster: Cluster) -> bool:
    return bool(cluster.service.acts)


async def _has_begun(scene: _Scene) -> bool:
    return len(scene.cluster.service.begun) == scene.attacked.runs


ATTACKS: Final[dict[str, Callable[[_Scene], Awaitable[None]]]] = {
    "kills in a commit": _kills,
    "freezes past the lease": _freezes,
    "a full disk": _full_disk,
    "controls that cannot be read": _unreadable,
    "a flood of controls": _flood,
    "a race of approvers": _approvers,
}
"""Every attack by its name."""


async def attack(name: str, runs: int, database: Database, forkserver: ForkServer, *, seed: int = 0) -> Attacked:
    """Carry an attack out at an empty database with a short lease, and judge what is left."""
    attacked = Attacked(name=name, runs=runs)
    is_asked = ATTACKS[name] is _approvers
    goals = [json.dumps({"plan": _plan(number, is_asked=is_asked)}) for number in range(runs)]
    async with Cluster(database, forkserver, goals, delay_s=0.02) as cluster:
        scene = _Scene(cluster, random.Random(f"{name} {seed}"), attacked)
        try:
            async with asyncio.timeout(2 * PATIENCE_S):
                await ATTACKS[name](scene)
                await until(scene.is_over)
        except TimeoutError:
            left = [one for one in await cluster.records(is_open=True) if one.run_id not in scene.blocked]
            attacked.broken += [f"stuck: {one.run_id}: {one}" for one in left] or ["stuck: nothing began"]
        lost = len(cluster.service.lost)
        attacked.broken += await verdict(cluster, approved=scene.approved, faults=attacked.faults + lost)
        attacked.broken += await _wrongly_blocked(scene)
        attacked.sent = len(cluster.sent)
    return attacked


async def _wrongly_blocked(scene: _Scene) -> list[str]:
    """What of the runs that must be blocked does not say why."""
    records = {one.run_id: one for one in await scene.cluster.records()}
    return [
        f"run {run_id} is {records[run_id]}, and does not name its control {event_id!r}"
        for run_id, event_id in scene.blocked.items()
        if event_id not in records[run_id].blocked
    ]


def _plan(number: int, *, is_asked: bool) -> list[Any]:
    """Calls of every kind, or one that asks first between two others."""
    if is_asked:
        return [["keyed", f"a{number}"], ["gated", f"b{number}"], ["keyed", f"c{number}"]]
    beside = [["write", f"c{number}"], ["read", f"d{number}"]]
    return [["keyed", f"a{number}"], ["write", f"b{number}"], ["all", beside], ["keyed", f"e{number}"]]
