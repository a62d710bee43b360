"""How pauses end without an answer, and who is woken when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from harborage.events import PauseResumedPayload
from harborage.identity import Quadruple
from harborage.planner import ToolContext, Trajectory
from harborage.runtime.pauses import (
    AlreadyResumedError,
    Coordinator,
    Pause,
    PauseDecision,
    PauseNotFoundError,
    PauseRequest,
    PauseScopeMismatchError,
    PauseState,
)
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder

Asking = Callable[..., PauseRequest]

INTRUDER = Quadruple("evil", "eve", "s6", "r6")
COLLEAGUE = Quadruple("acme", "bob", "s2")
IN_AN_HOUR = timedelta(hours=1)


def with_handle() -> Trajectory:
    """A history that needs one live object."""
    return Trajectory(tool_context=ToolContext(handles=("browser",)))


@pytest.mark.parametrize("default", [*PauseDecision])
async def test_a_pause_past_its_deadline_takes_its_default(
    coordinator: Coordinator, asking: Asking, clock: FakeClock, recorder: EventRecorder, default: PauseDecision
) -> None:
    """The decision is recorded and published like any other, and needs no identity."""
    pause = await coordinator.request(asking(deadline=clock.now() + IN_AN_HOUR, default=default))
    clock.advance(3600)
    resolved = await coordinator.expire(pause.token)
    assert (resolved.state, resolved.decision, resolved.resumed_at) == (PauseState.RESUMED, default, clock.now())
    assert recorder.payloads(PauseResumedPayload)[0].decision == default


async def test_the_default_is_a_timeout(coordinator: Coordinator, asking: Asking, clock: FakeClock) -> None:
    """By default the outcome is a timeout."""
    pause = await coordinator.request(asking(deadline=clock.now()))
    assert (await coordinator.expire(pause.token)).decision is PauseDecision.TIMEOUT


async def test_a_pause_that_is_not_due_is_left_alone(
    coordinator: Coordinator, asking: Asking, clock: FakeClock, owner: Quadruple
) -> None:
    """Before its deadline, without one, or resolved: expiring changes nothing."""
    waiting = await coordinator.request(asking(deadline=clock.now() + IN_AN_HOUR))
    endless = await coordinator.request(asking())
    answered = await coordinator.request(asking(deadline=clock.now() + timedelta(seconds=1)))
    resolved = await coordinator.resume(answered.token, PauseDecision.RESUME, who=owner)
    clock.advance(3599)
    assert await coordinator.expire(waiting.token) == waiting
    assert await coordinator.expire(endless.token) == endless
    assert await coordinator.expire(answered.token) == resolved


async def test_an_unknown_pause_cannot_expire(coordinator: Coordinator) -> None:
    """The caller learns that no run waits."""
    with pytest.raises(PauseNotFoundError):
        await coordinator.expire("no-such-token")


async def test_a_lost_handle_does_not_stop_the_deadline(
    coordinator: Coordinator, asking: Asking, clock: FakeClock
) -> None:
    """Nothing waits for ever for an object that is gone."""
    pause = await coordinator.request(asking(deadline=clock.now(), trajectory=with_handle()))
    assert (await coordinator.expire(pause.token)).decision is PauseDecision.TIMEOUT


async def test_an_answer_after_the_deadline_comes_too_late(
    coordinator: Coordinator, asking: Asking, clock: FakeClock, owner: Quadruple
) -> None:
    """The default counts, even if no process noticed the deadline before."""
    pause = await coordinator.request(asking(deadline=clock.now() + IN_AN_HOUR, default=PauseDecision.REJECT))
    clock.advance(3601)
    with pytest.raises(AlreadyResumedError):
        await coordinator.resume(pause.token, PauseDecision.APPROVE, who=owner)
    assert (await coordinator.status(pause.token)).decision is PauseDecision.REJECT


async def test_a_stranger_does_not_trigger_the_deadline(
    coordinator: Coordinator, asking: Asking, clock: FakeClock
) -> None:
    """A caller who may not resolve a pause does not resolve it by being late either."""
    pause = await coordinator.request(asking(deadline=clock.now()))
    with pytest.raises(PauseScopeMismatchError):
        await coordinator.resume(pause.token, PauseDecision.APPROVE, who=INTRUDER)
    assert (await coordinator.status(pause.token)).is_paused


async def test_an_answer_and_the_deadline_have_one_winner(
    coordinator: Coordinator, asking: Asking, clock: FakeClock, owner: Quadruple, recorder: EventRecorder
) -> None:
    """Resolved together or one after the other, there is one outcome."""
    pause = await coordinator.request(asking(deadline=clock.now()))
    answer = coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    expired, late = await asyncio.gather(coordinator.expire(pause.token), answer, return_exceptions=True)
    assert isinstance(expired, Pause)
    assert isinstance(late, AlreadyResumedError)
    assert recorder.types.count("pause.resumed") == 1


async def test_everything_that_is_due_is_resolved_at_once(
    coordinator: Coordinator, asking: Asking, clock: FakeClock
) -> None:
    """Pauses of all tenants, and only those whose deadline has passed."""
    due = [await coordinator.request(asking(deadline=clock.now(), identity=who)) for who in (COLLEAGUE, INTRUDER)]
    later = await coordinator.request(asking(deadline=clock.now() + IN_AN_HOUR))
    resolved = await coordinator.expire_due()
    assert {pause.token for pause in resolved} == {pause.token for pause in due}
    assert (await coordinator.status(later.token)).is_paused
    assert await coordinator.expire_due() == ()


async def test_a_waiter_is_woken_with_the_outcome(coordinator: Coordinator, asking: Asking, owner: Quadruple) -> None:
    """By an answer or by the deadline, once."""
    seen: list[Pause] = []
    pause = await coordinator.request(asking())
    coordinator.on_resolved(pause.token, seen.append)
    resolved = await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert seen == [resolved]


async def test_a_late_waiter_is_woken_at_once(coordinator: Coordinator, asking: Asking, owner: Quadruple) -> None:
    """The outcome is not missed."""
    seen: list[Pause] = []
    pause = await coordinator.request(asking())
    resolved = await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    coordinator.on_resolved(pause.token, seen.append)
    assert seen == [resolved]


async def test_the_event_is_published_before_any_waiter_is_woken(
    coordinator: Coordinator, asking: Asking, owner: Quadruple, recorder: EventRecorder
) -> None:
    """What a woken run publishes comes after the reason it was woken."""
    seen: list[list[str]] = []
    pause = await coordinator.request(asking())
    coordinator.on_resolved(pause.token, lambda _: seen.append(recorder.types))
    await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert seen == [["pause.requested", "pause.resumed"]]


async def test_a_wake_up_can_be_called_off(coordinator: Coordinator, asking: Asking, owner: Quadruple) -> None:
    """A run that ended is not called."""
    seen: list[Pause] = []
    pause = await coordinator.request(asking())
    coordinator.on_resolved(pause.token, seen.append)()
    await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert seen == []
