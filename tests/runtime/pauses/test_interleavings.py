"""Whatever order the store answers in: one winner, one pause for a key, no row twice, nothing lost from the index."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta

from harborage.identity import Quadruple
from harborage.runtime.pauses import AlreadyResumedError, Coordinator, Pause, PauseDecision, PauseFilter, PauseRequest
from harborage.runtime.pauses.index import PauseIndex
from harborage.state import MemoryStateStore, StateRecord
from harborage.testing.clock import FakeClock
from tests.kit.tables import each_row

Asking = Callable[..., PauseRequest]

seeds = each_row("seed", range(30))


class WanderingStore(MemoryStateStore):
    """A store whose every operation takes a few turns of the loop, before and after it takes effect."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self.loaded: list[str] = []

    async def save(self, record: StateRecord) -> None:
        await self._wander()
        await super().save(record)
        await self._wander()

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        self.loaded.append(kind)
        await self._wander()
        found = await super().load(identity, kind)
        await self._wander()
        return found

    async def delete(self, identity: Quadruple, kind: str) -> None:
        await self._wander()
        await super().delete(identity, kind)
        await self._wander()

    async def _wander(self) -> None:
        for _ in range(self._random.randrange(6)):
            await asyncio.sleep(0)


@seeds
async def test_exactly_one_resume_wins(asking: Asking, owner: Quadruple, seed: int) -> None:
    """Also when the deadline passes in the middle of it."""
    store, clock = WanderingStore(seed), FakeClock()
    first = Coordinator(store=store, clock=clock)
    pause = await first.request(asking(deadline=clock.now() + timedelta(seconds=1)))
    second, seen = Coordinator(store=store, clock=clock), []
    second.on_resolved(pause.token, seen.append)

    async def expire() -> None:
        clock.advance(1)
        await second.expire(pause.token)

    tries = [second.resume(pause.token, PauseDecision.RESUME, {"n": n}, who=owner) for n in range(5)]
    results = await asyncio.gather(*tries, expire(), return_exceptions=True)
    won = [result for result in results if isinstance(result, Pause)]
    refused = [result for result in results if isinstance(result, AlreadyResumedError)]
    outcome = await second.status(pause.token)
    assert [settled.decision for settled in seen] == [outcome.decision]
    assert len(won) + len(refused) == 5
    assert [result.payload for result in won] == ([outcome.payload] if won else [])
    assert outcome.decision is (PauseDecision.RESUME if won else PauseDecision.TIMEOUT)


@seeds
async def test_one_key_is_one_pause(asking: Asking, owner: Quadruple, seed: int) -> None:
    """Five concurrent requests, one question."""
    coordinator = Coordinator(store=WanderingStore(seed))
    pauses = await asyncio.gather(*(coordinator.request(asking(key="k")) for _ in range(5)))
    assert len({pause.token for pause in pauses}) == 1
    assert (await coordinator.list(who=owner)).total == 1


@seeds
async def test_a_list_shows_each_pause_once(asking: Asking, owner: Quadruple, seed: int) -> None:
    """While pauses are opened and settled, no page holds one twice, and in the end all are accounted for."""
    store = WanderingStore(seed)
    coordinator = Coordinator(store=store)
    earlier = await Coordinator(store=store).request(asking())

    async def live() -> None:
        pause = await coordinator.request(asking())
        await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)

    async def look() -> None:
        for _ in range(4):
            rows = (await coordinator.list(PauseFilter(states=("paused", "resumed")), who=owner)).rows
            tokens = [row.token for row in rows]
            assert len(tokens) == len(set(tokens))
            assert earlier.token in tokens

    await asyncio.gather(*(live() for _ in range(6)), look())
    assert (await coordinator.list(who=owner)).rows == (earlier,)
    assert (await PauseIndex(store).entries("acme")).keys() == {earlier.token}


@seeds
async def test_the_index_loses_nothing(asking: Asking, owner: Quadruple, seed: int) -> None:
    """What two processes opened in one tenant is all found by a third, at the latest when each has looked once."""
    store = WanderingStore(seed)
    busy, other = Coordinator(store=store), Coordinator(store=store)
    requests = [(busy if n % 3 else other).request(asking()) for n in range(15)]
    opened = {pause.token for pause in await asyncio.gather(*requests)}
    for coordinator in (busy, other):
        await coordinator.list(who=owner)
    assert {row.token for row in (await Coordinator(store=store).list(who=owner)).rows} == opened


async def test_a_list_reads_only_what_it_may_show(asking: Asking) -> None:
    """Checkpoints of other users are not fetched; the index says enough."""
    store = WanderingStore(0)
    first = Coordinator(store=store)
    for user in ("ann", "bob"):
        await first.request(asking(identity=Quadruple("acme", user, "s1")))
    mine = await first.request(asking(identity=Quadruple("acme", "ann", "s1")))
    for coordinator in (Coordinator(store=store), first):
        store.loaded.clear()
        page = await coordinator.list(PauseFilter(users=("ann",)), who=mine.identity)
        assert page.total == 2
        assert sum(kind.startswith("pauseresume.checkpoint") for kind in store.loaded) == 2


async def test_a_crowd_in_one_process_takes_turns(asking: Asking, owner: Quadruple) -> None:
    """Requests of one process never collide with each other at the index, however many come at once."""
    coordinator = Coordinator(store=WanderingStore(1))
    await asyncio.gather(*(coordinator.request(asking()) for _ in range(60)))
    assert (await coordinator.list(who=owner)).total == 60


async def test_a_pause_that_goes_while_it_is_listed_is_gone() -> None:
    """Settled by another process in the middle of being listed again, it leaves nothing behind and breaks nothing."""
    owner = Quadruple("acme", "ann", "s1", "r1")
    for seed in range(20):
        index = PauseIndex(WanderingStore(seed=seed))
        await asyncio.gather(index.add("token", owner), index.remove("acme", ["token"]))
        await index.remove("acme", ["token"])
        assert await index.entries("acme") == {}
