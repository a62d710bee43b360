"""Who is woken when a pause is resolved."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from harborage.identity import Quadruple
from harborage.runtime.durable.pauses.waiters import Waiters
from harborage.runtime.pauses import Pause, PauseDecision, PauseReason, PauseState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def resolved(token: str) -> Pause:
    """A pause, answered."""
    pause = Pause(
        token=token,
        reason=PauseReason.AWAIT_INPUT,
        state=PauseState.PAUSED,
        identity=Quadruple("acme", "ann", "s1", "r1"),
        paused_at=NOON,
        trajectory=b"{}",
    )
    return pause.resolve(PauseDecision.RESUME, None, NOON)


def test_listeners_are_called_once() -> None:
    """Each one, in order, without the history, and never again."""
    waiters, seen = Waiters(), list[tuple[str, str, bytes | None]]()
    waiters.subscribe("a", lambda pause: seen.append(("first", pause.token, pause.trajectory)))
    waiters.subscribe("a", lambda pause: seen.append(("second", pause.token, pause.trajectory)))
    waiters.wake(resolved("a"))
    waiters.wake(resolved("a"))
    assert seen == [("first", "a", None), ("second", "a", None)]


def test_a_listener_that_comes_late_is_called_at_once() -> None:
    """A caller that asks after the fact learns the outcome immediately."""
    waiters, seen = Waiters(), list[PauseDecision | None]()
    waiters.wake(resolved("a"))
    call_off = waiters.subscribe("a", lambda pause: seen.append(pause.decision))
    call_off()
    assert seen == [PauseDecision.RESUME]


def test_a_listener_can_be_called_off() -> None:
    """The others stay, even an equal one; calling off twice does nothing."""
    waiters, seen = Waiters(), list[str]()

    def note(pause: Pause) -> None:
        seen.append(pause.token)

    call_off = waiters.subscribe("a", note)
    waiters.subscribe("a", note)
    call_off()
    call_off()
    waiters.wake(resolved("a"))
    assert seen == ["a"]
    call_off()


def test_a_listener_that_fails_keeps_no_waiter_asleep(caplog: pytest.LogCaptureFixture) -> None:
    """Its failure is logged with the token."""
    waiters, seen = Waiters(), list[str]()

    def fail(pause: Pause) -> None:
        raise RuntimeError("broken")

    waiters.subscribe("a", fail)
    waiters.subscribe("a", lambda pause: seen.append(pause.token))
    with caplog.at_level(logging.ERROR):
        waiters.wake(resolved("a"))
    assert seen == ["a"]
    assert "pause a" in caplog.text


def test_only_so_many_resolved_pauses_are_remembered() -> None:
    """Memory does not grow with every pause there ever was, and a cancelled callback is not kept."""
    waiters, seen = Waiters(), list[str]()
    for number in range(1_001):
        waiters.subscribe(f"t{number}", lambda pause: None)()
        waiters.wake(resolved(f"t{number}"))
    for token in ("t0", "t1", "t1000"):
        waiters.subscribe(token, lambda pause: seen.append(pause.token))
    assert seen == ["t1", "t1000"]
    assert list(waiters._wakers) == ["t0"]
