"""Measuring two things in turn, so that a machine whose speed drifts does so for both."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable
from statistics import median

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table: ours, the bare loop's, in `unit`; None where there is nothing to compare with.

    `limit` is how many times the bare side ours may be, `most` and `least` how
    much of the unit.
    """

    name: str
    unit: str
    ours: float
    bare: float | None = None
    limit: float | None = None
    most: float | None = None
    least: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times the bare loop, or else what the row promises at most."""
        side = self.bare or self.most
        return None if not side else self.ours / side

    @property
    def is_missed(self) -> bool:
        """Whether the row promises something that it does not keep."""
        return (
            (self.limit is not None and (self.ratio is None or self.ratio > self.limit))
            or (self.most is not None and self.ours > self.most)
            or (self.least is not None and self.ours < self.least)
        )


async def in_turn(
    ours: Callable[[], Awaitable[object]],
    bare: Callable[[], Awaitable[object]],
    *,
    rounds: int = 7,
    clock: Callable[[], float] = time.process_time,
) -> tuple[float, float]:
    """The seconds that each takes, as the median of `rounds` turns; by default seconds of CPU."""
    await ours()
    await bare()
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, seconds in zip((ours, bare), spent, strict=True):
            gc.collect()
            begin = clock()
            await work()
            seconds.append(clock() - begin)
    return median(spent[0]), median(spent[1])
