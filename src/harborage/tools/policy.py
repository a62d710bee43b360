"""The arithmetic of reliability: what a policy means, how long to wait, what a failure says about the next attempt.

Everything here is a pure function over values; `invoke` does the waiting and the calling.
"""

from __future__ import annotations

from asyncio import CancelledError

import msgspec

from harborage.identity import IdentityError
from harborage.tools.enums import ErrorClass, OnUnknown, SideEffect, ValidateMode
from harborage.tools.errors import ToolInvalidArgsError, ToolNotFoundError

__all__ = [
    "DEFAULT_POLICY",
    "EffectivePolicy",
    "ToolPolicy",
    "backoff_ms",
    "classify",
    "is_guarded",
    "may_repeat",
    "resolve",
]


class ToolPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How hard to try. `None` in a field means its default, so zero and empty are values of their own.

    `timeout_ms` is the deadline of one attempt (30 000; 0 sets none). `max_retries` counts the attempts after the
    first (3; 0 tries once). The wait before retry k is `backoff_base_ms` (100) times `backoff_mult` (2) to the power
    k, plus up to a tenth of the base, at most `backoff_max_ms` (30 000). `retry_on` lists the classes that are tried
    again (transient, timeout, 5xx; empty retries nothing). `validate` says what is checked (both). `on_unknown` says
    what becomes of a call whose process died in the middle of it (retry what changes nothing or acts once per key,
    report the rest to the planner).
    """

    timeout_ms: float | None = None
    max_retries: int | None = None
    backoff_base_ms: float | None = None
    backoff_mult: float | None = None
    backoff_max_ms: float | None = None
    retry_on: tuple[ErrorClass, ...] | None = None
    validate: ValidateMode | None = None
    on_unknown: OnUnknown | None = None


class EffectivePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy with every default filled in, in the form the hot path reads. `timeout_s` None sets no deadline."""

    timeout_s: float | None = 30.0
    max_retries: int = 3
    backoff_base_ms: float = 100
    backoff_mult: float = 2
    backoff_max_ms: float = 30_000
    retry_on: frozenset[ErrorClass] = frozenset({ErrorClass.TRANSIENT, ErrorClass.TIMEOUT, ErrorClass.SERVER})
    validates_in: bool = True
    validates_out: bool = True


DEFAULT_POLICY = EffectivePolicy()


def resolve(policy: ToolPolicy | None) -> EffectivePolicy:
    """What `policy` comes to once its defaults are filled in. Negative numbers count as zero."""
    if policy is None or policy == ToolPolicy():
        return DEFAULT_POLICY
    default = DEFAULT_POLICY
    timeout_s = default.timeout_s if policy.timeout_ms is None else policy.timeout_ms / 1000
    validate = ValidateMode.BOTH if policy.validate is None else policy.validate
    return EffectivePolicy(
        timeout_s=timeout_s if timeout_s and timeout_s > 0 else None,
        max_retries=int(_or_default(policy.max_retries, default.max_retries)),
        backoff_base_ms=_or_default(policy.backoff_base_ms, default.backoff_base_ms),
        backoff_mult=_or_default(policy.backoff_mult, default.backoff_mult),
        backoff_max_ms=_or_default(policy.backoff_max_ms, default.backoff_max_ms),
        retry_on=default.retry_on if policy.retry_on is None else frozenset(policy.retry_on),
        validates_in=validate in (ValidateMode.BOTH, ValidateMode.IN),
        validates_out=validate in (ValidateMode.BOTH, ValidateMode.OUT),
    )


def _or_default(value: float | None, default: float) -> float:
    return default if value is None else max(0, value)


def backoff_ms(policy: EffectivePolicy, retry: int, draw: float) -> float:
    """How long to wait before retry `retry` (the first is 1), for a `draw` from [0, 1)."""
    try:
        wait = policy.backoff_base_ms * policy.backoff_mult**retry
    except OverflowError:
        return policy.backoff_max_ms
    return min(wait + draw * 0.1 * policy.backoff_base_ms, policy.backoff_max_ms)


_PERMANENT = (CancelledError, ToolInvalidArgsError, ToolNotFoundError, IdentityError)
_CLASSES = frozenset(ErrorClass)
_SERVER_SIGNS = ("status 5", " 500 ", " 502 ", " 503 ", " 504 ")
_TIMEOUT_SIGNS = ("timeout", "deadline exceeded")


def classify(error: BaseException, *, has_deadline: bool = True, deadline_fired: bool = False) -> ErrorClass:
    """What kind of failure `error` is: its own word (`error_class`) and its type first, its text last.

    A TimeoutError under a policy that sets no deadline is permanent: whoever set that deadline gave up for good.
    """
    if deadline_fired:
        return ErrorClass.TIMEOUT
    if isinstance(error, _PERMANENT):
        return ErrorClass.PERMANENT
    said = getattr(error, "error_class", None)
    if isinstance(said, str) and said in _CLASSES:
        return ErrorClass(said)
    if isinstance(error, TimeoutError):
        return ErrorClass.TIMEOUT if has_deadline else ErrorClass.PERMANENT
    if isinstance(error, ConnectionError):
        return ErrorClass.TRANSIENT
    return _class_of_text(str(error))


def _class_of_text(text: str) -> ErrorClass:
    text = text.lower()
    if any(sign in text for sign in _SERVER_SIGNS):
        return ErrorClass.SERVER
    if any(sign in text for sign in _TIMEOUT_SIGNS):
        return ErrorClass.TIMEOUT
    return ErrorClass.TRANSIENT


def is_guarded(side_effects: SideEffect, is_idempotent: bool) -> bool:
    """Whether a call that failed in an unknown state may not be repeated: it writes or reaches out, and has no key.

    A tool that says nothing is `stateful` and is retried by the policy alone; declaring `write` or `external` asks
    for the guard, and `idempotent=True` lifts it.
    """
    return side_effects in (SideEffect.WRITE, SideEffect.EXTERNAL) and not is_idempotent


def may_repeat(error: BaseException, *, is_guarded: bool) -> bool:
    """Whether trying again cannot act twice: always without the guard, else only when the call surely did nothing."""
    if not is_guarded:
        return True
    return isinstance(error, ConnectionRefusedError) or getattr(error, "had_no_effect", False) is True
