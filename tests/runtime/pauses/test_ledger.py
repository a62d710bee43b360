"""What one process remembers of pauses, and whom it wakes."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from harborage.identity import Quadruple
from harborage.runtime.pauses import Pause, PauseDecision, PauseReason, PauseState
from harborage.runtime.pauses.ledger import Ledger

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_pause(token: str, *, tenant: str = "acme", key: str = "") -> Pause:
    """An open pause."""
    return Pause(
        token=token,
        reason=PauseReason.AWAIT_INPUT,
        state=PauseState.PAUSED,
        identity=Quadruple(tenant, "ann", "s1", "r1"),
        paused_at=NOON,
        key=key,
    )


def settled(pause: Pause) -> Pause:
    """The same pause, answered."""
    return pause.settled(PauseDecision.RESUME, None, NOON)


def opened(ledger: Ledger, *pauses: Pause) -> Ledger:
    """The ledger after these pauses were asked for."""
    for pause in pauses:
        ledger.open(pause, b"{}")
    return ledger


def test_the_last_settled_pauses_of_each_tenant_stay() -> None:
    """A busy tenant forgets its own oldest pause, never that of another tenant."""
    ledger = opened(Ledger(retained=2), a_pause("quiet", tenant="other"))
    ledger.settle(settled(a_pause("quiet", tenant="other")))
    for token in ("a", "b", "c"):
        opened(ledger, a_pause(token))
        ledger.settle(settled(a_pause(token)))
    assert [ledger.get(token) is not None for token in ("a", "b", "c", "quiet")] == [False, True, True, True]


def test_an_open_pause_is_never_forgotten() -> None:
    """Only settled pauses make room."""
    ledger = opened(Ledger(retained=1), a_pause("open"))
    for token in ("a", "b", "c"):
        ledger.settle(settled(a_pause(token)))
    assert ledger.get("open") is not None


def test_a_forgotten_pause_leaves_nothing() -> None:
    """Token, key and trajectory go together."""
    ledger = opened(Ledger(retained=0), a_pause("a", key="k"))
    ledger.settle(settled(a_pause("a", key="k")))
    assert ledger.get("a") is None
    assert ledger.by_key(a_pause("a").identity, "k") is None
    assert ledger.trajectory("a") is None
    assert [*ledger.of_tenant("acme")] == []
    assert ledger.tenants() == ()
    assert ledger._keys == {}


def test_a_key_stands_for_the_latest_pause() -> None:
    """Forgetting an earlier pause of the same key does not hide the one that came after."""
    ledger = opened(Ledger(retained=1), a_pause("a", key="k"))
    ledger.settle(settled(a_pause("a", key="k")))
    opened(ledger, a_pause("b", key="k"), a_pause("c"))
    ledger.settle(settled(a_pause("c")))
    found = ledger.by_key(a_pause("b").identity, "k")
    assert ledger.get("a") is None
    assert found is not None
    assert found.token == "b"


def test_a_key_belongs_to_its_owner() -> None:
    """Another identity's pause is not found under the same key."""
    ledger = opened(Ledger(), a_pause("a", key="k"))
    assert ledger.by_key(Quadruple("other", "ann", "s1", "r1"), "k") is None


def test_a_dropped_pause_is_gone() -> None:
    """One that was settled elsewhere is no longer open here."""
    ledger = opened(Ledger(), a_pause("a", key="k"))
    ledger.drop("a")
    ledger.drop("never")
    assert ledger.get("a") is None
    assert ledger.tenants() == ()


def test_the_trajectory_goes_when_the_pause_is_settled() -> None:
    """A settled pause is remembered without its history."""
    ledger = opened(Ledger(), a_pause("a"))
    assert ledger.trajectory("a") == b"{}"
    ledger.settle(settled(a_pause("a")))
    assert ledger.trajectory("a") is None


def test_listeners_are_called_once() -> None:
    """Each one, in order, and never again."""
    ledger, seen = opened(Ledger(), a_pause("a")), []
    ledger.listen("a", lambda pause: seen.append(("first", pause.token)))
    ledger.listen("a", lambda pause: seen.append(("second", pause.token)))
    ledger.settle(settled(a_pause("a")))
    ledger.wake(settled(a_pause("a")))
    ledger.wake(settled(a_pause("a")))
    assert seen == [("first", "a"), ("second", "a")]


def test_a_listener_that_comes_late_is_called_at_once() -> None:
    """Whoever asks after the fact learns the outcome immediately."""
    ledger, seen = opened(Ledger(), a_pause("a")), []
    ledger.settle(settled(a_pause("a")))
    call_off = ledger.listen("a", lambda pause: seen.append(pause.decision))
    call_off()
    assert seen == [PauseDecision.RESUME]


def test_a_listener_can_be_called_off() -> None:
    """The others stay, even an equal one; calling off twice does nothing."""
    ledger, seen = opened(Ledger(), a_pause("a")), []

    def note(pause: Pause) -> None:
        seen.append(pause.token)

    call_off = ledger.listen("a", note)
    ledger.listen("a", note)
    call_off()
    call_off()
    ledger.wake(settled(a_pause("a")))
    assert seen == ["a"]
    call_off()


def test_a_listener_that_fails_keeps_nobody_asleep(caplog: pytest.LogCaptureFixture) -> None:
    """Its failure is logged with the token."""
    ledger, seen = opened(Ledger(), a_pause("a")), []

    def fail(pause: Pause) -> None:
        raise RuntimeError("broken")

    ledger.listen("a", fail)
    ledger.listen("a", lambda pause: seen.append(pause.token))
    with caplog.at_level(logging.ERROR):
        ledger.wake(settled(a_pause("a")))
    assert seen == ["a"]
    assert "pause a" in caplog.text
