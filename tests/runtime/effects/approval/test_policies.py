"""Which calls each policy asks about."""

from __future__ import annotations

import pytest

from harborage.identity import Quadruple
from harborage.runtime.approval import AlwaysApprove, AlwaysDeny, ApprovalRequest, BySideEffect, Tagged
from harborage.tools import SideEffect
from tests.kit.tables import each_row


def a_call(*tags: str, effect: SideEffect | None = None) -> ApprovalRequest:
    """A call of a tool with these tags."""
    return ApprovalRequest(tool="pay", args=b"{}", identity=Quadruple("a", "b", "c"), tags=tags, side_effects=effect)


def test_always_deny_asks_about_everything() -> None:
    """Its reason may be replaced."""
    assert AlwaysDeny()(a_call()) == (True, "policy: deny-all")
    assert AlwaysDeny("money")(a_call()) == (True, "money")


def test_always_approve_asks_about_nothing() -> None:
    """Every call runs."""
    assert AlwaysApprove()(a_call("payment")) == (False, "")


@each_row(
    "required, tags, asks",
    [
        (["payment"], ["payment"], True),
        (["payment", "mail"], ["read", "mail"], True),
        (["payment"], ["Payment"], False),
        (["payment"], [], False),
        ([], ["payment"], False),
        ([], [], False),
    ],
)
def test_tagged_asks_where_a_tag_is_shared(required: list[str], tags: list[str], asks: bool) -> None:
    """Any overlap will do; without required tags nothing is asked."""
    assert Tagged(required)(a_call(*tags)) == ((True, "policy: tagged") if asks else (False, ""))


def test_tagged_says_its_own_reason() -> None:
    """The approver gets the configured text."""
    assert Tagged(["payment"], "moves money")(a_call("payment")) == (True, "moves money")


@each_row("effect", [*SideEffect])
def test_by_side_effect_asks_about_its_classes(effect: SideEffect) -> None:
    """Others pass."""
    policy = BySideEffect([SideEffect.WRITE, SideEffect.EXTERNAL])
    asks = effect in {SideEffect.WRITE, SideEffect.EXTERNAL}
    assert policy(a_call(effect=effect)) == ((True, f"policy: side effect {effect}") if asks else (False, ""))


def test_an_unknown_side_effect_is_asked_about() -> None:
    """Its effect is not known, so a person must approve it."""
    assert BySideEffect([])(a_call()) == (True, "policy: side effect unknown")
    assert BySideEffect([], "look first")(a_call()) == (True, "look first")


def test_side_effects_may_be_words() -> None:
    """Configuration has only text; a wrong word is refused at once."""
    assert BySideEffect(["write"])(a_call(effect=SideEffect.WRITE))[0]  # type: ignore[list-item]
    with pytest.raises(ValueError, match="explode"):
        BySideEffect(["explode"])  # type: ignore[list-item]
