"""The faults of a simulation and their chances, drawn from the seed.

A fault strikes at a named point: before or after a call of a store, a tool or a model. Each kind has a limit, so that
every story comes to an end.
"""

from __future__ import annotations

import random
from collections import Counter

import msgspec


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """The chance of each fault at each point, and the most of each in a story.

    `crash` ends the process at once; `freeze` stops it for up to `freeze_s`; `refuse` lets a store refuse a call, with
    nothing written; `lose` lets a tool or a model fail, having acted or not; `slow` lets an answer take up to `slow_s`.
    `skew_s` is how far the clocks of two processes may be apart.
    """

    crash: float = 0.0
    freeze: float = 0.0
    refuse: float = 0.0
    lose: float = 0.0
    slow: float = 0.0
    freeze_s: float = 100.0
    slow_s: float = 5.0
    skew_s: float = 0.0
    most_crashes: int = 6
    most_freezes: int = 2
    most_refusals: int = 10
    most_losses: int = 10
    most_delays: int = 60


NO_FAULTS = Faults()


def draw_faults(chance: random.Random) -> Faults:
    """Return faults for one story: each kind is absent, rare or frequent, so that rare mixtures come up, too."""
    crash, freeze, refuse, lose, slow = (_seldom_or_often(chance) if chance.random() < 0.6 else 0.0 for _ in range(5))
    return Faults(
        # Most promises are about processes that die.
        crash=_seldom_or_often(chance) if chance.random() < 0.5 else crash,
        freeze=freeze,
        refuse=refuse,
        lose=lose,
        slow=slow,
        freeze_s=chance.choice((1.0, 30.0, 100.0)),
        slow_s=chance.choice((0.01, 1.0, 40.0)),
        skew_s=chance.choice((0.0, 0.0, 0.05, 3.0)),
        most_crashes=chance.choice((1, 2, 4, 8)),
    )


def _seldom_or_often(chance: random.Random) -> float:
    return float(10 ** chance.uniform(-2.7, -0.9))


class FaultInjector:
    """Decides at each point whether a fault strikes, and counts those that did."""

    def __init__(self, faults: Faults, chance: random.Random) -> None:
        self.faults = faults
        self.struck: Counter[str] = Counter()
        self.is_calm = False
        self._chance = chance

    def strikes(self, kind: str) -> bool:
        """Return whether a fault of this kind happens now; never while `is_calm`."""
        likely: float = 0.0 if self.is_calm else getattr(self.faults, kind)
        if not likely or self._chance.random() >= likely or self.struck[kind] >= self._most(kind):
            return False
        self.struck[kind] += 1
        return True

    def up_to(self, most: float) -> float:
        """Return a length of time: mostly short, at times nearly `most`."""
        return most * self._chance.random() ** 3

    def _most(self, kind: str) -> float:
        match kind:
            case "crash":
                return self.faults.most_crashes
            case "freeze":
                return self.faults.most_freezes
            case "refuse":
                return self.faults.most_refusals
            case "lose":
                return self.faults.most_losses
            case _:
                return self.faults.most_delays
