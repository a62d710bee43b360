"""The time that a call takes of a machine that does nothing else, as far as it can be told on one that does."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Final, TypeAlias

Ask: TypeAlias = Callable[[], Awaitable[object]]

_ROUNDS: Final = 9
_LEAST_S: Final = 0.002
_MOST_S: Final = 0.1


async def ms_alone(ask: Ask) -> float:
    """The median milliseconds of a call, less what others took of the processors meanwhile.

    How much that is tells a loop that computes for as long, in turn with the call: the time that goes by for it, beside
    the time that it gets.
    """
    await ask()
    spent: list[float] = []
    shares: list[float] = []
    for _ in range(_ROUNDS):
        spent.append(await _seconds(ask))
        shares.append(share(min(max(spent[-1], _LEAST_S), _MOST_S)))
    return median(spent) * median(shares) * 1e3


async def ms_beyond(ask: Ask, bare: Ask) -> float:
    """The median milliseconds by which a call takes longer than the bare one in turn with it, reckoned likewise."""
    await ask()
    beyond: list[float] = []
    shares: list[float] = []
    for _ in range(_ROUNDS):
        spent = await _seconds(ask)
        beyond.append(spent - await _seconds(bare))
        shares.append(share(min(max(spent, _LEAST_S), _MOST_S)))
    return max(0.0, median(beyond)) * median(shares) * 1e3


async def _seconds(ask: Ask) -> float:
    begin = time.perf_counter()
    await ask()
    return time.perf_counter() - begin


def share(seconds: float) -> float:
    """How much of a processor this thread gets while it wants it for so long."""
    begin = time.perf_counter()
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return min(1.0, seconds / (time.perf_counter() - begin))
