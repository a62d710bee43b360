"""Several coordinators over one store, in every order that its delays allow: one winner, and everybody learns of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from harborage.identity import Quadruple
from harborage.runtime.pauses import (
    AlreadyResumedError,
    Coordinator,
    Pause,
    PauseDecision,
    PauseRequest,
    PauseState,
)
from harborage.state import MemoryStateStore, StateRecord
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder
from tests.kit.tables import each_row

Asking = Callable[..., PauseRequest]
Starting = Callable[..., Coordinator]

seeds = each_row("seed", range(40))


class WanderingStore(MemoryStateStore):
    """A store whose every operation takes a few turns of the loop, before and after it takes effect."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self.saved: list[int] = []
        self.loads = 0

    async def save(self, record: StateRecord) -> None:
        self.saved.append(len(record.data))
        await self._wander()
        await super().save(record)
        await self._wander()

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        self.loads += 1
        await self._wander()
        found = await super().load(identity, kind)
        await self._wander()
        return found

    async def _wander(self) -> None:
        for _ in range(self._random.randrange(6)):
            await asyncio.sleep(0)


@seeds
async def test_of_all_processes_one_settles(asking: Asking, owner: Quadruple, seed: int) -> None:
    """Answers and the deadline come in three processes at once: one decision stands, all read it, one hears of it."""
    store, clock = WanderingStore(seed), FakeClock()
    heard: list[Pause] = []
    coordinators = [Coordinator(store=store, clock=clock, on_settled=heard.append) for _ in range(3)]
    pause = await coordinators[0].request(asking(deadline=clock.now() + timedelta(seconds=1)))
    seen: list[Pause] = []
    for coordinator in coordinators:
        await coordinator.status(pause.token)
        coordinator.on_resolved(pause.token, seen.append)
    clock.advance(0.999)

    async def late(coordinator: Coordinator) -> Pause:
        clock.advance(0.001)
        return await coordinator.expire(pause.token)

    tries = [
        coordinator.resume(pause.token, PauseDecision.APPROVE, {"n": index}, who=owner)
        for index, coordinator in enumerate(coordinators * 2)
    ]
    results = await asyncio.gather(*tries, late(coordinators[seed % 3]), return_exceptions=True)
    won = [result for result in results[:-1] if isinstance(result, Pause)]
    assert sum(isinstance(result, AlreadyResumedError) for result in results[:-1]) == 6 - len(won)
    outcomes = [await coordinator.status(pause.token, fresh=True) for coordinator in coordinators]
    assert {(outcome.decision, outcome.settled_by) for outcome in outcomes} == {
        (outcomes[0].decision, outcomes[0].settled_by)
    }
    assert [result.payload for result in won] == ([outcomes[0].payload] if won else [])
    assert outcomes[0].decision is (PauseDecision.APPROVE if won else PauseDecision.TIMEOUT)
    assert [settled.token for settled in heard] == [pause.token]


@seeds
async def test_one_key_is_one_pause_for_all_processes(asking: Asking, owner: Quadruple, seed: int) -> None:
    """Two processes ask under one key at the same time, as one that lost its lease and its successor do."""
    store = WanderingStore(seed)
    first, second = Coordinator(store=store), Coordinator(store=store)
    pauses = await asyncio.gather(
        *((first, second)[n % 2].request(asking(key="k", payload={"n": n})) for n in range(6))
    )
    assert len({pause.token for pause in pauses}) == 1
    assert len({pause.payload["n"] for pause in pauses if pause.payload}) == 1
    for coordinator in (first, second, Coordinator(store=store)):
        assert (await coordinator.list(who=owner)).total == 1


@pytest.mark.parametrize("look", ["status", "expire", "list", "request"])
async def test_whoever_waits_learns_of_an_answer_given_elsewhere(
    durable: Starting, asking: Asking, owner: Quadruple, look: str
) -> None:
    """Asking the store again wakes whoever waits here, once, with the very answer."""
    first, second, seen = durable(), durable(), []
    pause = await first.request(asking(key="k"))
    first.on_resolved(pause.token, seen.append)
    await second.resume(pause.token, PauseDecision.APPROVE, {"by": "ann"}, sealed=b"for you", who=owner)
    assert (await first.status(pause.token)).is_paused
    assert (await first.expire(pause.token)).is_paused
    assert not seen
    looks: dict[str, Callable[[], Any]] = {
        "status": lambda: first.status(pause.token, fresh=True),
        "expire": lambda: first.expire(pause.token, fresh=True),
        "list": lambda: first.list(who=owner),
        "request": lambda: first.request(asking(key="k")),
    }
    await looks[look]()
    await looks[look]()
    assert [(settled.decision, settled.payload, settled.sealed) for settled in seen] == [
        (PauseDecision.APPROVE, {"by": "ann"}, b"for you")
    ]
    assert (await first.status(pause.token)).state is PauseState.RESUMED


async def test_a_fresh_look_settles_what_is_due(durable: Starting, asking: Asking, clock: FakeClock) -> None:
    """The deadline passed while the process that asked was gone; the next one to look takes the default."""
    pause = await durable().request(asking(deadline=clock.now() + timedelta(hours=1), default=PauseDecision.REJECT))
    clock.advance(7 * 24 * 3600)
    heard: list[Pause] = []
    settled = await durable(on_settled=heard.append).expire(pause.token, fresh=True)
    assert (settled.decision, settled.resumed_at) == (PauseDecision.REJECT, clock.now())
    assert heard == [settled]


async def test_a_start_settles_what_fell_due_meanwhile(
    durable: Starting, asking: Asking, clock: FakeClock, told: EventRecorder
) -> None:
    """All deadlines that passed while nothing was alive, in every tenant; the rest waits on."""
    first = durable()
    due = [
        await first.request(asking(identity=Quadruple(f"t{n % 3}", "u", f"s{n}", "r"), deadline=clock.now()))
        for n in range(9)
    ]
    later = await first.request(asking(deadline=clock.now() + timedelta(days=2)))
    clock.advance(3600)
    told.clear()
    heard: list[Pause] = []
    second = durable(on_settled=heard.append)
    settled = await second.expire_due()
    assert {pause.token for pause in settled} == {pause.token for pause in due} == {pause.token for pause in heard}
    assert told.types == ["pause.resumed"] * 9
    assert await second.expire_due() == ()
    assert (await second.status(later.token)).is_paused


async def test_a_listener_that_fails_undoes_nothing(
    durable: Starting, asking: Asking, owner: Quadruple, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; the pause is settled."""

    def fail(settled: Pause) -> None:
        raise RuntimeError("listener")

    coordinator = durable(on_settled=fail)
    pause = await coordinator.request(asking())
    assert (await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)).decision is PauseDecision.RESUME
    assert "the listener for settled pauses failed" in caplog.text


async def test_a_listener_needs_no_store(asking: Asking, owner: Quadruple) -> None:
    """It hears of pauses in memory too, after their waiters."""
    order: list[str] = []
    coordinator = Coordinator(on_settled=lambda settled: order.append("listener"))
    pause = await coordinator.request(asking())
    coordinator.on_resolved(pause.token, lambda settled: order.append("waiter"))
    await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert order == ["waiter", "listener"]


async def test_one_more_pause_costs_the_same_however_many_are_open(asking: Asking, owner: Quadruple) -> None:
    """Records stay small and few with a thousand open pauses, and all of them are found."""
    store = WanderingStore(0)
    store._random = random.Random()
    store._random.randrange = lambda stop: 0  # type: ignore[assignment]
    coordinator = Coordinator(store=store)
    for number in range(1_000):
        await coordinator.request(asking(identity=Quadruple("acme", "ann", f"s{number}", "r")))
    store.saved, store.loads = [], 0
    pause = await coordinator.request(asking())
    assert len(store.saved) <= 5
    assert max(store.saved) < 4_000
    assert store.loads <= 2
    store.saved, store.loads = [], 0
    await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert len(store.saved) <= 4
    assert store.loads <= 6
    assert (await Coordinator(store=store).list(who=owner)).total == 1_000
    await settle()
