"""The arithmetic of reliability: defaults, waits, classes, and when a call must not be repeated."""

from __future__ import annotations

from asyncio import CancelledError
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.errors import InvalidOptionError
from harborage.identity import IdentityMissingError
from harborage.tools import (
    ErrorClass,
    OnUnknown,
    SideEffect,
    ToolError,
    ToolInvalidArgsError,
    ToolNotFoundError,
    ToolPolicy,
    ToolPolicyExhaustedError,
    ToolRejectedError,
    ToolTimeoutError,
    ValidateMode,
    classify,
)
from harborage.tools.policy import DEFAULT_POLICY, EffectivePolicy, backoff_ms, is_guarded, may_repeat, resolve_policy
from tests.kit.tables import each_row


class Spoken(Exception):
    """An error that says of itself what it is."""

    def __init__(self, error_class: object = None, had_no_effect: object = False) -> None:
        self.error_class = error_class
        self.had_no_effect = had_no_effect
        super().__init__("upstream timeout")


class Answered(Exception):
    """An error of an HTTP client, which has the status itself or in its response."""

    def __init__(self, status: int, *, is_nested: bool = False) -> None:
        if is_nested:
            self.response = SimpleNamespace(status_code=status)
        else:
            self.status_code = status
        super().__init__("timeout")


@pytest.mark.parametrize("policy", [None, ToolPolicy()])
def test_a_policy_that_says_nothing_is_the_default(policy: ToolPolicy | None) -> None:
    """Thirty seconds, three retries, 100 ms doubling up to 30 s, everything but permanent, both sides checked."""
    assert resolve_policy(policy) == DEFAULT_POLICY
    assert (DEFAULT_POLICY.timeout_s, DEFAULT_POLICY.max_retries) == (30, 3)
    assert (DEFAULT_POLICY.backoff_base_ms, DEFAULT_POLICY.backoff_mult, DEFAULT_POLICY.backoff_max_ms) == (
        100,
        2,
        30_000,
    )
    assert DEFAULT_POLICY.retry_on == {"transient", "timeout", "5xx"}
    assert (DEFAULT_POLICY.validates_in, DEFAULT_POLICY.validates_out) == (True, True)


@each_row(
    "policy, field, value",
    [
        (ToolPolicy(timeout_ms=50), "timeout_s", 0.05),
        (ToolPolicy(timeout_ms=0), "timeout_s", None),
        (ToolPolicy(max_retries=0), "max_retries", 0),
        (ToolPolicy(backoff_base_ms=0), "backoff_base_ms", 0),
        (ToolPolicy(backoff_mult=1.5), "backoff_mult", 1.5),
        (ToolPolicy(backoff_max_ms=7), "backoff_max_ms", 7),
        (ToolPolicy(retry_on=()), "retry_on", frozenset()),
        (ToolPolicy(retry_on=(ErrorClass.SERVER,)), "retry_on", {"5xx"}),
        (ToolPolicy(validate=ValidateMode.IN), "validates_out", False),
        (ToolPolicy(validate=ValidateMode.OUT), "validates_in", False),
    ],
)
def test_a_field_that_is_set_counts_and_the_others_keep_their_defaults(
    policy: ToolPolicy, field: str, value: object
) -> None:
    """Zero and empty are values: only None stands for the default."""
    resolved = resolve_policy(policy)
    assert getattr(resolved, field) == value
    others = [name for name in EffectivePolicy.__struct_fields__ if name != field]
    assert [getattr(resolved, name) for name in others] == [getattr(DEFAULT_POLICY, name) for name in others]


def test_validation_can_be_switched_off() -> None:
    """The empty mode checks neither side."""
    resolved = resolve_policy(ToolPolicy(validate=ValidateMode.NONE))
    assert not resolved.validates_in
    assert not resolved.validates_out


@each_row("retry, draw, wait", [(1, 0, 200), (1, 0.5, 205), (2, 0, 400), (3, 0, 800), (20, 0, 30_000)])
def test_the_wait_doubles_from_200_ms(retry: int, draw: float, wait: float) -> None:
    """The first retry waits about 200 ms, each further one twice as long, never more than 30 s."""
    assert backoff_ms(DEFAULT_POLICY, retry, draw) == wait


@given(
    retry=st.integers(1, 5000),
    draw=st.floats(0, 1, exclude_max=True),
    base=st.floats(0, 1e9),
    mult=st.floats(0, 1e9),
    cap=st.floats(0, 1e9),
)
def test_the_wait_is_never_negative_and_never_above_the_cap(
    retry: int, draw: float, base: float, mult: float, cap: float
) -> None:
    """No numbers make the wait negative, longer than the cap, or an error."""
    policy = resolve_policy(ToolPolicy(backoff_base_ms=base, backoff_mult=mult, backoff_max_ms=cap))
    assert 0 <= backoff_ms(policy, retry, draw) <= cap


@each_row(
    "error, expected",
    [
        (CancelledError(), "permanent"),
        (ToolInvalidArgsError("bad", "$.x"), "permanent"),
        (ToolNotFoundError("x"), "permanent"),
        (IdentityMissingError(), "permanent"),
        (ToolRejectedError("x", "no"), "permanent"),
        (ToolPolicyExhaustedError(4), "permanent"),
        (ToolTimeoutError(50), "timeout"),
        (TimeoutError(), "timeout"),
        (ConnectionResetError("timeout"), "transient"),
        (Spoken(ErrorClass.SERVER), "5xx"),
        (Spoken("permanent"), "permanent"),
        (Spoken("nonsense"), "timeout"),
        (Spoken(["permanent"]), "timeout"),
        (RuntimeError("upstream returned status 503"), "5xx"),
        (RuntimeError("got 500 from upstream"), "5xx"),
        (RuntimeError("error 502 seen"), "5xx"),
        (RuntimeError("error 503 seen"), "5xx"),
        (RuntimeError("error 504 seen"), "5xx"),
        (RuntimeError("code 501 seen"), "transient"),
        (RuntimeError("read timeout"), "timeout"),
        (RuntimeError("context deadline exceeded"), "timeout"),
        (RuntimeError("status 500: timeout"), "5xx"),
        (RuntimeError(), "transient"),
        (RuntimeError("no idea"), "transient"),
        (ValueError("upstream returned status 503"), "permanent"),
        (TypeError("timeout"), "permanent"),
        (KeyError("zz"), "permanent"),
        (AttributeError(), "permanent"),
        (ZeroDivisionError(), "permanent"),
        (FileNotFoundError(2, "timeout"), "permanent"),
        (ToolError("timeout"), "permanent"),
        (Answered(503), "5xx"),
        (Answered(429), "transient"),
        (Answered(408), "transient"),
        (Answered(425), "transient"),
        (Answered(404), "permanent"),
        (Answered(401, is_nested=True), "permanent"),
        (Answered(500, is_nested=True), "5xx"),
    ],
)
def test_a_failure_is_classed_by_its_word_then_its_type_then_its_text(error: BaseException, expected: str) -> None:
    """An error's own word and its type come before what its text mentions; what is unknown is transient."""
    assert classify(error) == expected


def test_a_fired_deadline_wins_over_everything() -> None:
    """What the attempt raised no longer matters once its deadline has fired."""
    assert classify(ToolInvalidArgsError("bad"), deadline_fired=True) == "timeout"


def test_a_deadline_error_without_a_deadline_is_permanent() -> None:
    """A TimeoutError under a policy without a deadline is somebody else's deadline."""
    assert classify(TimeoutError(), has_deadline=False) == "permanent"
    assert classify(RuntimeError("timeout"), has_deadline=False) == "timeout"


@each_row("side_effects", list(SideEffect))
def test_a_tool_is_guarded_unless_it_says_otherwise(side_effects: SideEffect) -> None:
    """One that changes nothing is not, nor one that acts once per key."""
    assert is_guarded(side_effects, is_idempotent=False) is (side_effects not in {"pure", "read"})
    assert not is_guarded(side_effects, is_idempotent=True)


@each_row(
    "error, may",
    [
        (RuntimeError("status 503"), False),
        (TimeoutError(), False),
        (ConnectionResetError(), False),
        (ConnectionRefusedError(), True),
        (Spoken(had_no_effect=True), True),
        (Spoken(had_no_effect="yes"), False),
    ],
)
def test_a_guarded_call_is_repeated_only_when_it_surely_did_nothing(error: Exception, may: bool) -> None:
    """Under the guard only an error that promises that nothing happened allows another attempt."""
    assert may_repeat(error, is_guarded=True) is may
    assert may_repeat(error, is_guarded=False)


def test_a_call_that_may_not_be_repeated_is_made_once_by_default() -> None:
    """Whatever else its policy says."""
    assert resolve_policy(None, is_repeatable=False).max_retries == 0
    assert resolve_policy(ToolPolicy(timeout_ms=5), is_repeatable=False).max_retries == 0
    assert resolve_policy(ToolPolicy(timeout_ms=5), is_repeatable=True).max_retries == 3


@each_row(
    "options, word",
    [
        ({"timeout_ms": -1}, "from 0 on"),
        ({"timeout_ms": "soon"}, "from 0 on"),
        ({"timeout_ms": True}, "from 0 on"),
        ({"timeout_ms": float("nan")}, "from 0 on"),
        ({"timeout_ms": float("inf")}, "from 0 on"),
        ({"max_retries": -5}, "a whole number from 0 on"),
        ({"max_retries": 1.5}, "a whole number"),
        ({"backoff_base_ms": -1}, "from 0 on"),
        ({"backoff_mult": -1}, "from 0 on"),
        ({"backoff_max_ms": -1}, "from 0 on"),
        ({"retry_on": ("timout",)}, "did you mean 'timeout'"),
        ({"retry_on": "timeout"}, "several values"),
        ({"validate": "bth"}, "did you mean 'both'"),
        ({"on_unknown": "retri"}, "did you mean 'retry'"),
        ({"max_retries": 2, "retry_on": ()}, "retries nothing"),
    ],
)
def test_a_policy_that_could_not_work_is_refused_where_it_is_written(options: dict[str, object], word: str) -> None:
    """By the name of the option, with what it may be."""
    with pytest.raises(InvalidOptionError, match=word) as caught:
        ToolPolicy(**options)  # type: ignore[arg-type]
    assert caught.value.option == next(iter(options))


def test_what_spells_a_value_is_that_value() -> None:
    """Plain text is as good as the enum."""
    policy = ToolPolicy(retry_on=("timeout",), validate="in", on_unknown="pause")  # type: ignore[arg-type]
    assert policy == ToolPolicy(retry_on=(ErrorClass.TIMEOUT,), validate=ValidateMode.IN, on_unknown=OnUnknown.PAUSE)
    assert all(type(one) is ErrorClass for one in policy.retry_on or ())
