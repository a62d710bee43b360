"""Stores that fail, and callers that go away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from harborage.identity import Quadruple
from harborage.runtime.pauses import (
    AlreadyResumedError,
    Coordinator,
    PauseDecision,
    PauseNotFoundError,
    PauseRequest,
)
from harborage.state.errors import DatabaseError
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder

Asking = Callable[..., PauseRequest]
Starting = Callable[..., Coordinator]

IN_AN_HOUR = timedelta(hours=1)


@pytest.mark.parametrize("key", ["", "k"])
async def test_a_request_that_cannot_be_kept_is_no_pause(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple, recorder: EventRecorder, key: str
) -> None:
    """Nothing of it can be found, and no event was published; asked again it opens."""
    coordinator = durable()
    store.is_refusing = True
    with pytest.raises(DatabaseError):
        await coordinator.request(asking(key=key))
    store.is_refusing = False
    assert recorder.types == []
    assert await store.rows() == []
    assert (await coordinator.request(asking(key=key))).is_paused


async def test_a_request_that_is_cancelled_is_taken_back(durable: Starting, asking: Asking, store: Any) -> None:
    """A caller that went away before the store wrote has opened nothing."""
    store.stop = asyncio.Event()
    task = asyncio.create_task(durable().request(asking()))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.rows() == []


async def test_an_answer_that_cannot_be_kept_leaves_the_pause_open(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple, recorder: EventRecorder
) -> None:
    """The store refused, so the pause stays open and takes the next answer."""
    coordinator = durable()
    pause = await coordinator.request(asking())
    store.is_refusing = True
    with pytest.raises(DatabaseError):
        await coordinator.resume(pause.token, PauseDecision.APPROVE, who=owner)
    assert recorder.types == ["pause.requested"]
    store.is_refusing = False
    assert (await coordinator.resume(pause.token, PauseDecision.REJECT, who=owner)).decision is PauseDecision.REJECT


async def test_a_pause_resolved_elsewhere_is_not_resolved_here(
    durable: Starting, asking: Asking, owner: Quadruple
) -> None:
    """The coordinator that opened it keeps no copy beside the store."""
    first = durable()
    pause = await first.request(asking())
    await durable().resume(pause.token, PauseDecision.APPROVE, who=owner)
    with pytest.raises(AlreadyResumedError, match=r"approve by ann at"):
        await first.resume(pause.token, PauseDecision.REJECT, who=owner)
    assert (await first.status(pause.token)).decision is PauseDecision.APPROVE
    assert (await first.list(who=owner)).total == 0


@pytest.mark.parametrize("verb", ["resume", "expire", "withdraw"])
async def test_an_answer_in_between_is_respected(
    durable: Starting,
    asking: Asking,
    store: Any,
    owner: Quadruple,
    clock: FakeClock,
    recorder: EventRecorder,
    verb: str,
) -> None:
    """Read as open, resolved by another, then resolved here: the other one's decision holds in every verb."""
    coordinator, seen = durable(), list[Any]()
    pause = await coordinator.request(asking(deadline=clock.now() + IN_AN_HOUR))
    coordinator.on_resolved(pause.token, seen.append)
    store.stop = hold = asyncio.Event()
    if verb == "expire":
        clock.advance(3600)
    verbs: dict[str, Callable[[], Any]] = {
        "resume": lambda: coordinator.resume(pause.token, PauseDecision.REJECT, who=owner),
        "expire": lambda: coordinator.expire(pause.token),
        "withdraw": lambda: coordinator.withdraw(pause.token, who=owner),
    }
    task = asyncio.create_task(verbs[verb]())
    await settle()
    store.stop = None
    await durable(clock=FakeClock()).resume(pause.token, PauseDecision.APPROVE, who=owner)
    hold.set()
    if verb == "resume":
        with pytest.raises(AlreadyResumedError, match="approve by ann at"):
            await task
    elif verb == "expire":
        assert (await task).decision is PauseDecision.APPROVE
    else:
        assert await task is False
    assert (await coordinator.status(pause.token)).decision is PauseDecision.APPROVE
    assert [resolved.decision for resolved in seen] == [PauseDecision.APPROVE]
    assert recorder.types.count("pause.resumed") == 1


async def test_a_pause_that_is_gone_is_not_found(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple
) -> None:
    """The store was emptied: no coordinator has another copy, and a resumed run asks again."""
    first = durable()
    pause = await first.request(asking(key="k"))
    store._tables.pauses.delete_of(owner.run_id)
    with pytest.raises(PauseNotFoundError):
        await first.status(pause.token)
    with pytest.raises(PauseNotFoundError):
        await first.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert (await first.list(who=owner)).total == 0
    again = await first.request(asking(key="k", payload={"n": 2}))
    assert (again.token, again.payload) == (pause.token, {"n": 2})
