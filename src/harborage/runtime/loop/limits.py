"""The limits of a run and of all tasks below it, and what they have used: values and rules. Pure.

Amounts of money are micro-dollars once they are counted, each call rounded up, so that sums are exact and many cheap
calls cannot stay uncounted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from harborage.errors import InvalidOptionError

_MICRO: Final = 1_000_000
_MOST_MICRO: Final = 1 << 62


class LimitName(StrEnum):
    """What is limited."""

    STEPS = "steps"
    CALLS = "calls"
    TOKENS = "tokens"
    COST = "cost"


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run may take, all runs that it starts included; None sets no limit.

    `steps` are planner steps, `calls` tool calls, `tokens` those of all model calls, in and out, `cost` is in US
    dollars, `seconds` is the time from the start of the run, waiting included.

    Raises:
        InvalidOptionError: a limit is not a positive number.
    """

    steps: int | None = None
    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "calls", "tokens"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InvalidOptionError(name, value, "a whole number of at least 1, or nothing")
        for name in ("cost", "seconds"):
            value = getattr(self, name)
            if value is None:
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value) or value <= 0:
                raise InvalidOptionError(name, value, "a finite number above 0, or nothing")

    def replaced(self, by: Limits | None) -> Limits:
        """These limits, with those that `by` sets in their place.

        Raises:
            InvalidOptionError: `by` is neither None nor limits.
        """
        if by is None:
            return self
        if not isinstance(by, Limits):
            raise InvalidOptionError("limits", by, "harborage.Limits(steps=…, seconds=…), or None")
        given = {name: value for name in by.__struct_fields__ if (value := getattr(by, name)) is not None}
        return msgspec.structs.replace(self, **given)

    def within(self, others: Limits) -> Limits:
        """Return the lower of each limit of both; one that only one of them sets is its own."""
        both = {name: (getattr(self, name), getattr(others, name)) for name in self.__struct_fields__}
        lowest = {name: min(one for one in pair if one is not None) for name, pair in both.items() if any(pair)}
        return Limits(**lowest)

    @property
    def caps(self) -> Caps:
        """The same as the ledger counts it; time is the run's deadline."""
        cost = None if self.cost is None else micro_dollars(self.cost)
        return Caps(steps=self.steps, calls=self.calls, tokens=self.tokens, cost=cost)

    def until(self, deadline: datetime | None, now: datetime) -> datetime | None:
        """Return when a run that starts now must end: at `deadline` or after `seconds`, whichever is earlier."""
        if self.seconds is None:
            return deadline
        try:
            latest = now + timedelta(seconds=self.seconds)
        except OverflowError:
            return deadline  # longer than any clock goes
        return latest if deadline is None else min(deadline, latest)


class Spent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was taken, or is set aside. `cost` is in micro-dollars."""

    steps: int = 0
    calls: int = 0
    tokens: int = 0
    cost: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            steps=self.steps + other.steps,
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            cost=self.cost + other.cost,
        )

    @classmethod
    def sum(cls, each: Iterable[Spent]) -> Spent:
        """All of them together."""
        total = cls()
        for one in each:
            total += one
        return total


NOTHING_SPENT: Final = Spent()


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """The limits as they are counted; None sets none, and 0 leaves nothing. `cost` is in micro-dollars."""

    steps: int | None = None
    calls: int | None = None
    tokens: int | None = None
    cost: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether nothing is limited."""
        return all(cap is None for _, cap, _ in self.against(Spent()))

    def against(self, spent: Spent) -> Iterator[tuple[LimitName, int | None, int]]:
        """Each limit with its cap and what was taken of it."""
        yield LimitName.STEPS, self.steps, spent.steps
        yield LimitName.CALLS, self.calls, spent.calls
        yield LimitName.TOKENS, self.tokens, spent.tokens
        yield LimitName.COST, self.cost, spent.cost

    def used_up(self, spent: Spent) -> Reached | None:
        """The first of tokens and cost of which nothing is left, or of steps and calls of which too much was taken."""
        for name, cap, taken in self.against(spent):
            if cap is None:
                continue
            is_counted_before = name in _COUNTED_BEFORE
            if taken > cap or (taken == cap and not is_counted_before):
                return Reached(limit=name, cap=cap, spent=taken)
        return None


_COUNTED_BEFORE: Final = frozenset({LimitName.STEPS, LimitName.CALLS})
"""Limits of what is counted before it is done: exactly the cap is allowed."""


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that forbids what was to come: its name, what it allows, and what was taken without that."""

    limit: LimitName
    cap: int
    spent: int

    @property
    def text(self) -> str:
        """The limit in words."""
        match self.limit:
            case LimitName.COST:
                return f"the run's cost limit of {_dollars(self.cap)} is reached ({_dollars(self.spent)} spent)"
            case _:
                what = self.limit.removesuffix("s") if self.cap == 1 else self.limit
                return f"the run's limit of {self.cap} {what} is reached"


class Verdict(StrEnum):
    """Whether a call of a model may be made: now, after other calls have ended, or not at all."""

    ADMIT = "admit"
    WAIT = "wait"
    REFUSE = "refuse"


def judge(caps: Caps, *, spent: Spent, held: Spent, wanted: Spent) -> tuple[Verdict, Reached | None]:
    """Return whether a call that may use `wanted` may be made, while `held` is reserved for calls in flight.

    A call that fits beside all others is admitted. One that does not fit waits until they have ended; without others it
    is admitted as long as something is left. So a limit is exceeded by one call at most, and never by two calls
    of which each saw the same rest.
    """
    reached = caps.used_up(spent)
    if reached is not None:
        return Verdict.REFUSE, reached
    if _first_over(caps, spent + held + wanted) is None or held == Spent():
        return Verdict.ADMIT, None
    return Verdict.WAIT, _first_over(caps, spent + held + wanted)


def _first_over(caps: Caps, spent: Spent) -> Reached | None:
    for name, cap, taken in caps.against(spent):
        if cap is not None and taken > cap:
            return Reached(limit=name, cap=cap, spent=taken)
    return None


def micro_dollars(dollars: float) -> int:
    """The amount in whole micro-dollars, rounded up; nothing of an amount that is no number, or negative, is lost."""
    if math.isnan(dollars) or dollars <= 0:
        return 0
    return _MOST_MICRO if dollars > _MOST_MICRO / _MICRO else math.ceil(round(dollars * _MICRO, 6))


def _dollars(micro: int) -> str:
    return f"${micro / _MICRO:.6f}".rstrip("0").rstrip(".")
