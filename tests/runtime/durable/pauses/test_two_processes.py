"""Several coordinators over one store, in every order that its delays allow: one winner, and everybody learns of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from harborage.events import MemoryEventBus
from harborage.identity import Quadruple
from harborage.runtime.pauses import (
    AlreadyResumedError,
    Coordinator,
    Pause,
    PauseDecision,
    PauseFilter,
    PauseRequest,
    PauseState,
)
from harborage.store import Commit, Committed, Page, PauseQuery, PauseRow
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder
from tests.kit.tables import each_row

Asking = Callable[..., PauseRequest]
Starting = Callable[..., Coordinator]

seeds = each_row("seed", range(40))


class WanderingStore(MemoryStore):
    """A store whose every operation takes a few turns of the loop, before and after it takes effect."""

    def __init__(self, seed: int, clock: FakeClock | None = None) -> None:
        super().__init__(clock=FakeClock() if clock is None else clock)
        self._random = random.Random(seed)

    async def commit(self, commit: Commit) -> Committed:
        await self._wander()
        done = await super().commit(commit)
        await self._wander()
        return done

    async def pauses(self, query: PauseQuery) -> Page[PauseRow]:
        await self._wander()
        found = await super().pauses(query)
        await self._wander()
        return found

    async def _wander(self) -> None:
        for _ in range(self._random.randrange(6)):
            await asyncio.sleep(0)


@seeds
async def test_of_all_processes_one_resolves(asking: Asking, owner: Quadruple, seed: int) -> None:
    """Answers and the deadline come in three processes at once: one decision counts, all read it, one publishes it."""
    clock = FakeClock()
    store, bus = WanderingStore(seed, clock), MemoryEventBus()
    recorder = EventRecorder(bus)
    coordinators = [Coordinator(store=store, clock=clock, bus=bus) for _ in range(3)]
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
    lost = [result for result in results[:-1] if isinstance(result, AlreadyResumedError)]
    assert len(lost) == 6 - len(won)
    outcomes = [await coordinator.status(pause.token) for coordinator in coordinators]
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert {(one.decision, one.at, one.by) for one in lost} == {
        (str(outcomes[0].decision), outcomes[0].resumed_at, outcomes[0].resolved_by)
    }
    assert [result.payload for result in won] == ([outcomes[0].payload] if won else [])
    assert outcomes[0].decision is (PauseDecision.APPROVE if won else PauseDecision.TIMEOUT)
    assert [resolved.decision for resolved in seen] == [outcomes[0].decision] * 3
    assert recorder.types == ["pause.requested", "pause.resumed"]


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


@pytest.mark.parametrize("look", ["status", "expire", "list", "request", "resume", "list_all_open"])
async def test_a_waiter_learns_of_an_answer_given_in_another_process(
    durable: Starting, asking: Asking, owner: Quadruple, look: str
) -> None:
    """Whatever the process asks of the store next wakes the waiters here, once, with the very answer."""
    first, second, seen = durable(), durable(), list[Pause]()
    pause = await first.request(asking(key="k"))
    first.on_resolved(pause.token, seen.append)
    await second.resume(pause.token, PauseDecision.APPROVE, {"by": "ann"}, sealed=b"for you", who=owner)
    assert not seen
    looks: dict[str, Callable[[], Any]] = {
        "status": lambda: first.status(pause.token),
        "expire": lambda: first.expire(pause.token),
        "list": lambda: first.list(PauseFilter(states=tuple(PauseState)), who=owner),
        "request": lambda: first.request(asking(key="k")),
        "resume": lambda: first.resume(pause.token, PauseDecision.REJECT, who=owner),
        "list_all_open": lambda: first.list_all_open(),
    }
    for _ in range(2):
        with suppress(AlreadyResumedError):
            await looks[look]()
    wanted = [] if look == "list_all_open" else [(PauseDecision.APPROVE, {"by": "ann"}, b"for you")]
    assert [(resolved.decision, resolved.payload, resolved.sealed) for resolved in seen] == wanted
    assert (await first.status(pause.token)).state is PauseState.RESUMED


async def test_another_process_resolves_what_is_due(durable: Starting, asking: Asking, clock: FakeClock) -> None:
    """The deadline passed while the process that asked was gone; the next one to look takes the default."""
    pause = await durable().request(asking(deadline=clock.now() + timedelta(hours=1), default=PauseDecision.REJECT))
    clock.advance(7 * 24 * 3600)
    resolved = await durable().expire(pause.token)
    assert (resolved.decision, resolved.resumed_at, resolved.resolved_by) == (PauseDecision.REJECT, clock.now(), "")


async def test_a_start_resolves_what_fell_due_meanwhile(
    durable: Starting, asking: Asking, clock: FakeClock, recorder: EventRecorder
) -> None:
    """All deadlines that passed while nothing was alive, in every tenant; the rest waits on."""
    first = durable()
    due = [
        await first.request(asking(identity=Quadruple(f"t{n % 3}", "u", f"s{n}", "r"), deadline=clock.now()))
        for n in range(9)
    ]
    later = await first.request(asking(deadline=clock.now() + timedelta(days=2)))
    clock.advance(3600)
    recorder.clear()
    second = durable()
    resolved = await second.expire_due()
    assert {pause.token for pause in resolved} == {pause.token for pause in due}
    assert recorder.types == ["pause.resumed"] * 9
    assert await second.expire_due() == ()
    assert (await second.status(later.token)).is_paused


@seeds
async def test_a_list_shows_each_pause_once(asking: Asking, owner: Quadruple, seed: int) -> None:
    """While pauses are opened and resolved, no page holds one twice, and in the end all are accounted for."""
    store = WanderingStore(seed)
    coordinator = Coordinator(store=store)
    earlier = await Coordinator(store=store).request(asking())

    async def live() -> None:
        pause = await coordinator.request(asking())
        await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)

    async def look() -> None:
        for _ in range(4):
            rows = (await coordinator.list(PauseFilter(states=tuple(PauseState)), who=owner)).rows
            tokens = [row.token for row in rows]
            assert len(tokens) == len(set(tokens))
            assert earlier.token in tokens

    await asyncio.gather(*(live() for _ in range(6)), look())
    assert (await coordinator.list(who=owner)).rows == (earlier,)


async def test_one_more_pause_costs_the_same_however_many_are_open(
    asking: Asking, owner: Quadruple, store: Any
) -> None:
    """Asking is one commit, answering one look and one commit, and a list of one's own one look."""
    coordinator = Coordinator(store=store)
    for number in range(1_000):
        await coordinator.request(asking(identity=Quadruple("acme", f"u{number}", "s", "r")))
    store.commits = store.reads = 0
    pause = await coordinator.request(asking(key="k"))
    assert (store.commits, store.reads) == (1, 0)
    await coordinator.list(who=owner)
    assert (store.commits, store.reads) == (1, 1)
    await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert (store.commits, store.reads) == (2, 2)
