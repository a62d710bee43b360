"""Stores that fail, callers that go away, and two processes over one store."""

from __future__ import annotations

import asyncio
import logging
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
    PauseNotFoundError,
    PauseRequest,
)
from harborage.runtime.pauses.checkpoints import Checkpoints
from harborage.state import MemoryStateStore, StateError, StateRecord
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder

Asking = Callable[..., PauseRequest]
Starting = Callable[..., Coordinator]

IN_AN_HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "failing", ["pauseresume.checkpoint", "pauseresume.index", "pauseresume.locator", "pauseresume.key"]
)
async def test_a_request_that_cannot_be_kept_is_no_pause(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple, told: EventRecorder, failing: str
) -> None:
    """Whatever part failed, nothing of it can be found, and nobody was told."""
    coordinator = durable()
    store.refuses.add(f"save {failing}")
    with pytest.raises(StateError):
        await coordinator.request(asking(key="k"))
    store.refuses.clear()
    assert told.types == []
    assert store.contents <= {"pauseresume.tenants", "pauseresume.parts", "pauseresume.index"}
    for reader in (coordinator, durable()):
        assert (await reader.list(who=owner)).total == 0


async def test_a_request_that_is_cancelled_is_taken_back(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple
) -> None:
    """A caller that went away while the store was writing has opened nothing."""
    store.stops["save pauseresume.index"] = asyncio.Event()
    task = asyncio.create_task(durable().request(asking()))
    await settle()
    assert store.stops == {}
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "pauseresume.checkpoint" not in store.contents


async def test_a_clean_up_that_fails_too_is_logged(
    durable: Starting, asking: Asking, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller gets the first failure, the log the second."""
    store.refuses |= {"save pauseresume.index", "delete pauseresume.checkpoint"}
    with caplog.at_level(logging.WARNING), pytest.raises(StateError, match=r"save pauseresume\.index"):
        await durable().request(asking())
    assert "left parts of itself" in caplog.text


async def test_an_answer_that_cannot_be_kept_leaves_the_pause_open(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple, told: EventRecorder
) -> None:
    """The store refused, so nobody decided; the next answer is taken."""
    coordinator = durable()
    pause = await coordinator.request(asking())
    store.refuses.add("save pauseresume.checkpoint")
    with pytest.raises(StateError):
        await coordinator.resume(pause.token, PauseDecision.APPROVE, who=owner)
    assert told.types == ["pause.requested"]
    store.refuses.clear()
    assert (await coordinator.resume(pause.token, PauseDecision.REJECT, who=owner)).decision is PauseDecision.REJECT


async def test_an_index_that_cannot_be_cleaned_is_only_logged(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer counts all the same, and whoever lists next cleans up and finishes what was left undone."""
    coordinator = durable()
    pause = await coordinator.request(asking())
    store.refuses.add("save pauseresume.index")
    with caplog.at_level(logging.WARNING):
        await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert "index entry could not be removed" in caplog.text
    store.refuses.clear()
    seen: list[Pause] = []
    second = durable(on_settled=seen.append)
    assert (await second.list(who=owner)).total == 0
    assert [settled.token for settled in seen] == [pause.token]
    assert (await second.list(who=owner)).total == 0
    assert len(seen) == 1
    assert (await durable().status(pause.token)).decision is PauseDecision.RESUME


async def test_of_two_processes_one_settles(durable: Starting, asking: Asking, store: Any, owner: Quadruple) -> None:
    """The one that was faster had written it down, though it is not done yet; the store decides."""
    first, second = durable(), durable()
    pause = await first.request(asking())
    store.stops["save pauseresume.index"] = hold = asyncio.Event()
    winner = asyncio.create_task(first.resume(pause.token, PauseDecision.APPROVE, who=owner))
    await settle()
    assert store.stops == {}
    with pytest.raises(AlreadyResumedError):
        await second.resume(pause.token, PauseDecision.REJECT, who=owner)
    hold.set()
    assert (await winner).decision is PauseDecision.APPROVE


async def test_two_claims_of_one_pause(asking: Asking, store: Any, owner: Quadruple, clock: FakeClock) -> None:
    """The first one written counts; the same one written again is still the first."""
    one, other = Checkpoints(store), Checkpoints(store)
    pause = await Coordinator(store=store, clock=clock).request(asking())
    approved = pause.settled(PauseDecision.APPROVE, None, clock.now(), by="one")
    assert await one.claim(approved)
    assert await one.claim(approved)
    assert not await other.claim(pause.settled(PauseDecision.APPROVE, None, clock.now(), by="other"))
    assert not await other.claim(pause.settled(PauseDecision.REJECT, None, clock.now(), by="other"))


async def test_a_pause_settled_elsewhere_is_not_settled_here(
    durable: Starting, asking: Asking, owner: Quadruple
) -> None:
    """Memory still holds it as open, the store does not: the store is right."""
    first = durable()
    pause = await first.request(asking())
    await durable().resume(pause.token, PauseDecision.APPROVE, who=owner)
    with pytest.raises(AlreadyResumedError):
        await first.resume(pause.token, PauseDecision.REJECT, who=owner)
    assert (await first.status(pause.token)).decision is PauseDecision.APPROVE
    assert (await first.list(who=owner)).total == 0


async def test_a_pause_that_is_gone_is_forgotten(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple
) -> None:
    """Somebody emptied the store: what memory holds counts no more."""
    first = durable()
    pause = await first.request(asking())
    await store.delete(owner, f"pauseresume.checkpoint:{pause.token}")
    assert (await first.status(pause.token)).is_paused
    with pytest.raises(PauseNotFoundError):
        await first.status(pause.token, fresh=True)
    with pytest.raises(PauseNotFoundError):
        await first.status(pause.token)


async def test_a_settlement_that_a_crash_cut_short_is_taken_over(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple, clock: FakeClock, told: EventRecorder
) -> None:
    """The decision was written down before the crash, so it stands, and whoever waits here learns it."""
    first, seen = durable(), []
    pause = await first.request(asking(deadline=clock.now()))
    first.on_resolved(pause.token, seen.append)
    await Checkpoints(store).claim(pause.settled(PauseDecision.APPROVE, {"by": "ann"}, clock.now()))
    assert (await durable().status(pause.token)).decision is PauseDecision.APPROVE
    assert (await first.expire(pause.token)).decision is PauseDecision.APPROVE
    assert [settled.decision for settled in seen] == [PauseDecision.APPROVE]
    assert told.types.count("pause.resumed") == 1
    with pytest.raises(AlreadyResumedError):
        await first.resume(pause.token, PauseDecision.REJECT, who=owner)


class RacingStore(MemoryStateStore):
    """A store in which another process claims the pause right after it was read as open."""

    def __init__(self) -> None:
        super().__init__()
        self.claim: Callable[[], Any] | None = None

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        found = await super().load(identity, kind)
        if self.claim is not None and kind.startswith("pauseresume.checkpoint"):
            claim, self.claim = self.claim, None
            await claim()
        return found


@pytest.mark.parametrize("verb", ["resume", "expire"])
async def test_a_claim_in_between_is_respected(asking: Asking, owner: Quadruple, clock: FakeClock, verb: str) -> None:
    """Read as open, claimed by another, then settled here: the other one's decision holds in both verbs."""
    store = RacingStore()
    coordinator, other = Coordinator(store=store, clock=clock), Checkpoints(store)
    pause = await coordinator.request(asking(deadline=clock.now() + IN_AN_HOUR))
    settled = pause.settled(PauseDecision.APPROVE, None, clock.now())
    store.claim = lambda: other.claim(settled)
    if verb == "resume":
        with pytest.raises(AlreadyResumedError):
            await coordinator.resume(pause.token, PauseDecision.REJECT, who=owner)
    else:
        clock.advance(3600)
        assert (await coordinator.expire(pause.token)).decision is PauseDecision.APPROVE
    assert (await coordinator.status(pause.token)).decision is PauseDecision.APPROVE


async def test_of_many_resumes_after_a_restart_exactly_one_wins(
    durable: Starting, asking: Asking, owner: Quadruple
) -> None:
    """The pause is read from the store by all of them at once."""
    pause = await durable().request(asking())
    second = durable()
    tries = (second.resume(pause.token, PauseDecision.RESUME, {"n": n}, who=owner) for n in range(50))
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(result, Pause) for result in results) == 1
    assert sum(isinstance(result, AlreadyResumedError) for result in results) == 49
