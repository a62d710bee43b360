"""Tool policies: their defaults, the backoff between attempts, and the classes of failures.

Everything here is a pure function over values; `invoke` does the waiting and the calling.
"""

from __future__ import annotations

from asyncio import CancelledError

import msgspec
from msgspec.structs import force_setattr

from harborage.errors import InvalidOptionError, all_of, at_least, error_text, one_of
from harborage.identity import IdentityError
from harborage.tools.enums import ErrorClass, OnUnknown, SideEffect, ValidateMode
from harborage.tools.errors import ToolError, ToolInvalidArgsError, ToolNotFoundError


class ToolPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How hard to try. `None` in a field means its default, so zero and empty are values of their own.

    `timeout_ms` is the deadline of one attempt (30 000; 0 sets none). `max_retries` counts the attempts after the
    first: 3 for a tool that only reads or that is idempotent, and 0 for any other, whose second attempt might act a
    second time. The wait before retry k is `backoff_base_ms` (100) times `backoff_mult` (2) to the power
    k, plus up to a tenth of the base, at most `backoff_max_ms` (30 000). `retry_on` lists the classes that are tried
    again (transient, timeout, 5xx; empty retries nothing). `validate` says what is checked (both). `on_unknown` says
    how an interrupted call is resolved, whose worker died in it (retry what changes nothing or acts once per key,
    report the rest to the planner).

    Raises:
        InvalidOptionError: a field has a value that it cannot have, or retries are asked for that `retry_on` forbids.
    """

    timeout_ms: float | None = None
    max_retries: int | None = None
    backoff_base_ms: float | None = None
    backoff_mult: float | None = None
    backoff_max_ms: float | None = None
    retry_on: tuple[ErrorClass, ...] | None = None
    validate: ValidateMode | None = None
    on_unknown: OnUnknown | None = None

    def __post_init__(self) -> None:
        for name in ("timeout_ms", "backoff_base_ms", "backoff_mult", "backoff_max_ms"):
            if getattr(self, name) is not None:
                at_least(0, getattr(self, name), name)
        if self.max_retries is not None:
            at_least(0, self.max_retries, "max_retries", is_whole=True)
        if self.retry_on is not None:
            force_setattr(self, "retry_on", all_of(ErrorClass, self.retry_on, "retry_on"))
            if self.max_retries and not self.retry_on:
                raise InvalidOptionError("max_retries", self.max_retries, "0, for retry_on=() retries nothing")
        if self.validate is not None:
            force_setattr(self, "validate", one_of(ValidateMode, self.validate, "validate"))
        if self.on_unknown is not None:
            force_setattr(self, "on_unknown", one_of(OnUnknown, self.on_unknown, "on_unknown"))


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
_ONCE = EffectivePolicy(max_retries=0)


def resolve_policy(policy: ToolPolicy | None, *, is_repeatable: bool = True) -> EffectivePolicy:
    """Return `policy` with its defaults filled in; a call that is not repeatable is made once by default."""
    default = DEFAULT_POLICY if is_repeatable else _ONCE
    if policy is None or policy == ToolPolicy():
        return default
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
    return default if value is None else value


def backoff_ms(policy: EffectivePolicy, retry: int, draw: float) -> float:
    """Return the milliseconds to wait before retry `retry` (the first is 1), for a `draw` from [0, 1)."""
    try:
        wait = policy.backoff_base_ms * policy.backoff_mult**retry
    except OverflowError:
        return policy.backoff_max_ms
    return min(wait + draw * 0.1 * policy.backoff_base_ms, policy.backoff_max_ms)


_PERMANENT = (CancelledError, ToolInvalidArgsError, ToolNotFoundError, IdentityError)
# Mistakes of the caller or of the tool's code: the next attempt would make them again.
_MISTAKES = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    NameError,
    AssertionError,
    ArithmeticError,
    ImportError,
    NotImplementedError,
    RecursionError,
    MemoryError,
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ToolError,
)
_TRANSIENT_STATUSES = frozenset({408, 425, 429})
_CLASSES = frozenset(ErrorClass)
_SERVER_SIGNS = ("status 5", " 500 ", " 502 ", " 503 ", " 504 ")
_TIMEOUT_SIGNS = ("timeout", "deadline exceeded")


def classify(error: BaseException, *, has_deadline: bool = True, deadline_fired: bool = False) -> ErrorClass:
    """Return the class of a failure: by its own `error_class`, its type and its HTTP status, and by its text last.

    Mistakes such as a TypeError or a KeyError are always permanent, and so is a status other than 408, 425, 429 and
    5xx. A TimeoutError under a policy without a deadline is permanent: the tool itself set that deadline.
    """
    if deadline_fired:
        return ErrorClass.TIMEOUT
    if isinstance(error, _PERMANENT):
        return ErrorClass.PERMANENT
    declared = getattr(error, "error_class", None)
    if isinstance(declared, str) and declared in _CLASSES:
        return ErrorClass(declared)
    if isinstance(error, TimeoutError):
        return ErrorClass.TIMEOUT if has_deadline else ErrorClass.PERMANENT
    if isinstance(error, ConnectionError):
        return ErrorClass.TRANSIENT
    status = _find_status(error)
    if status is not None:
        return _classify_status(status)
    if isinstance(error, _MISTAKES):
        return ErrorClass.PERMANENT
    return _classify_text(error_text(error))


def _find_status(error: BaseException) -> int | None:
    """Return the HTTP status in an error of one of the usual clients."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and not isinstance(status, bool) and 400 <= status < 600:
                return status
    return None


def _classify_status(status: int) -> ErrorClass:
    if status >= 500:
        return ErrorClass.SERVER
    return ErrorClass.TRANSIENT if status in _TRANSIENT_STATUSES else ErrorClass.PERMANENT


def _classify_text(text: str) -> ErrorClass:
    text = text.lower()
    if any(sign in text for sign in _SERVER_SIGNS):
        return ErrorClass.SERVER
    if any(sign in text for sign in _TIMEOUT_SIGNS):
        return ErrorClass.TIMEOUT
    return ErrorClass.TRANSIENT


def is_guarded(side_effects: SideEffect, is_idempotent: bool) -> bool:
    """Whether a call that failed in an unknown state must not be repeated: it may act, and acts again without a key.

    A tool that declares nothing is `stateful` and guarded; declaring `pure`, `read` or `idempotent=True` lifts that.
    """
    return side_effects not in (SideEffect.PURE, SideEffect.READ) and not is_idempotent


def may_repeat(error: BaseException, *, is_guarded: bool) -> bool:
    """Whether another attempt cannot act twice: always without the guard, else when the call surely did nothing."""
    if not is_guarded:
        return True
    return isinstance(error, ConnectionRefusedError) or getattr(error, "had_no_effect", False) is True
