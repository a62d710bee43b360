"""What simulated runs set out to do, drawn from the seed. Pure: see `world.Mind` for what a plan means."""

from __future__ import annotations

import random
from itertools import count
from typing import Any, Final

import msgspec

_JOINS: Final = ("all", "all", "first_success", "n 2")


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of story this is: how much there is of everything, and what there is at all."""

    processes: int = 1
    runs: int = 1
    longest: int = 6
    linger_s: float = 1.0
    has_parallel: bool = False
    has_approvals: bool = False
    has_questions: bool = False
    has_children: bool = False
    has_large: bool = False
    messages: int = 0
    pauses: int = 0
    cancels: int = 0
    nights: int = 0
    forks: int = 0
    deadlines: float = 0.0
    token_budget: int = 0
    ttl_s: float = 60.0
    is_react: bool = False


def drawn_traits(chance: random.Random) -> Traits:
    """Some kind of story; each thing is left out of many, so that the others are seen without it."""

    def maybe(likely: float = 0.4) -> bool:
        return chance.random() < likely

    is_react = maybe(0.2)
    return Traits(
        is_react=is_react,
        processes=chance.choice((1, 1, 2, 3)),
        runs=chance.choice((1, 1, 2, 4)),
        longest=chance.choice((2, 4, 8)),
        linger_s=chance.choice((0.0, 0.1, 1.0, 600.0)),
        has_parallel=maybe(),
        has_approvals=maybe(),
        has_questions=maybe() and not is_react,
        has_children=maybe() and not is_react,
        has_large=maybe(0.1),
        messages=chance.choice((0, 0, 2, 6)),
        pauses=chance.choice((0, 0, 0, 2)),
        cancels=chance.choice((0, 0, 0, 1)),
        nights=chance.choice((0, 0, 0, 1)),
        forks=chance.choice((0, 0, 0, 0, 1)),
        deadlines=chance.choice((0.0, 0.0, 0.3)),
        token_budget=chance.choice((0, 0, 150)),
        ttl_s=chance.choice((60.0, 60.0, 7 * 86_400.0)),
    )


def drawn_plan(chance: random.Random, traits: Traits) -> list[Any]:
    """A plan of up to `traits.longest` steps; everything in it has a name of its own."""
    return _plan(chance, traits, count(1), traits.longest, depth=0)


def _plan(chance: random.Random, traits: Traits, names: count[int], longest: int, depth: int) -> list[Any]:
    plan: list[Any] = []
    spawned: list[int] = []
    for _ in range(chance.randint(1, longest)):
        kinds = ["call"] * 3
        kinds += ["parallel"] * (2 * traits.has_parallel) + ["ask"] * traits.has_questions
        if traits.has_children and depth < 2:
            kinds += ["spawn", "turn"] + ["join"] * (3 * bool(spawned))
        match chance.choice(kinds):
            case "parallel":
                calls = [_call(chance, traits, names) for _ in range(chance.randint(2, 4))]
                plan.append(["all" if traits.is_react else chance.choice(_JOINS), calls])
            case "ask":
                plan.append(["ask", f"q{next(names)}"])
            case "join":
                plan.append(["join", spawned.pop(0)])
            case "spawn" | "turn" as kind:
                plan.append([kind, _plan(chance, traits, names, 3, depth + 1)])
                if kind == "spawn":
                    spawned.append(sum(step[0] != "ask" for step in plan) - 1)
            case _:
                plan.append(_call(chance, traits, names))
    return plan


def _call(chance: random.Random, traits: Traits, names: count[int]) -> list[str]:
    kinds = ["read", "keyed", "keyed", "write", "write"]
    kinds += ["gated"] * (2 * traits.has_approvals) + ["large"] * traits.has_large
    kind = chance.choice(kinds)
    return [kind, f"{kind[0]}{next(names)}"]
