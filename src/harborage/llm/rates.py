"""What a model's tokens cost, as plain numbers, and what a call comes to at these rates. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from harborage.llm.client import Cost, Usage

__all__ = ["Rate", "Rates", "cost_at", "in_dollars"]


class Rate(msgspec.Struct, frozen=True, gc=False):
    """The price of one token. `tiers` are (prompt tokens, price) in rising order: above so many, all cost that."""

    base: float
    tiers: tuple[tuple[int, float], ...] = ()

    def at(self, prompt_tokens: int) -> float:
        """The price of one token of a call with such a prompt."""
        price = self.base
        for start, tier in self.tiers:
            if prompt_tokens > start:
                price = tier
        return price


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """A model's prices by kind of token, in US dollars; None where a kind has no price of its own.

    A kind without a price costs what the kind it belongs to costs. `request` is added to every call.
    """

    input: Rate | None = None
    cache_read: Rate | None = None
    cache_write: Rate | None = None
    cache_write_1h: Rate | None = None
    input_audio: Rate | None = None
    output: Rate | None = None
    output_audio: Rate | None = None
    reasoning: Rate | None = None
    request: float = 0.0


def in_dollars(cost: Cost | None) -> float | None:
    """The amount of a cost in US dollars; None for what is none: missing, not a finite number, negative, or in another
    currency. Without a currency it is in dollars."""
    if cost is None or (cost.currency and cost.currency.upper() != "USD"):
        return None
    amount: object = cost.total_cost  # a client of somebody else's may have put anything there
    if not isinstance(amount, int | float) or isinstance(amount, bool) or not 0 <= amount < math.inf:
        return None
    return float(amount)


def cost_at(rates: Rates, usage: Usage) -> Cost | None:
    """What the call cost; None when the rates do not cover it, or its counts contradict each other.

    `prompt_tokens` are all tokens of the prompt, those from a cache among them; `completion_tokens` are all that the
    model wrote, its thinking among them unless the total says otherwise. How many of them were of a special kind is
    looked up in `provider_extras`.
    """
    prompt, written, thought = usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens
    if not (prompt or written):
        return None  # nothing was counted, which is not the same as nothing was used
    if thought and usage.total_tokens == prompt + written + thought:
        written += thought
    special = _special(usage.provider_extras) if usage.provider_extras else _NOTHING
    came_in = _charge(rates.input, _inputs(rates, special), prompt, prompt)
    thinking = rates.reasoning or rates.output
    at_own_rates = [(rates.output_audio, special.get("output_audio", 0)), (thinking, thought)]
    went_out = _charge(rates.output, at_own_rates, written, prompt)
    if came_in is None or went_out is None:
        return None
    thinking_cost = 0.0 if thinking is None else thought * thinking.at(prompt)
    came_in += rates.request
    return Cost(
        input_cost=came_in,
        output_cost=went_out - thinking_cost,
        reasoning_cost=thinking_cost,
        total_cost=came_in + went_out,
        currency="USD",
    )


# The names under which providers and drivers report a kind, alone or below the name of the group they put it in.
_NAMES: Final[Mapping[str, str]] = {
    "cache_read_tokens": "cache_read",
    "cached_tokens": "cache_read",
    "cache_read_input_tokens": "cache_read",
    "cached_content_token_count": "cache_read",
    "prompt_cache_hit_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
    "cache_creation_tokens": "cache_write",
    "cache_creation_input_tokens": "cache_write",
    "cache_write_1h_tokens": "cache_write_1h",
    "ephemeral_1h_input_tokens": "cache_write_1h",
    "input_audio_tokens": "input_audio",
    "prompt_tokens_details.audio_tokens": "input_audio",
    "output_audio_tokens": "output_audio",
    "completion_tokens_details.audio_tokens": "output_audio",
}
_NOTHING: Final[Mapping[str, int]] = {}


def _inputs(rates: Rates, special: Mapping[str, int]) -> list[tuple[Rate | None, int]]:
    """The special kinds of prompt tokens with their rates; what is kept for an hour is among what is kept."""
    if not special:
        return []
    hour = special.get("cache_write_1h", 0)
    kept = max(special.get("cache_write", 0), hour)
    if rates.cache_write_1h is None:
        hour = 0
    return [
        (rates.cache_read, special.get("cache_read", 0)),
        (rates.cache_write, kept - hour),
        (rates.cache_write_1h, hour),
        (rates.input_audio, special.get("input_audio", 0)),
    ]


def _charge(ordinary: Rate | None, special: list[tuple[Rate | None, int]], tokens: int, prompt: int) -> float | None:
    """The price of `tokens`, those of a special kind at its own rate; None when they cannot be priced."""
    total, plain = 0.0, tokens
    for rate, count in special:
        if rate is not None and count:
            total += count * rate.at(prompt)
            plain -= count
    if plain == 0:
        return total
    return None if plain < 0 or ordinary is None else total + plain * ordinary.at(prompt)


def _special(extras: Mapping[str, Any]) -> dict[str, int]:
    """How many tokens of each special kind there were."""
    found: dict[str, int] = {}
    for name, value in _flat(extras):
        kind = _NAMES.get(name) or _NAMES.get(name.rpartition(".")[2])
        if kind is not None and isinstance(value, int) and not isinstance(value, bool) and value > 0:
            found[kind] = max(found.get(kind, 0), value)
    return found


def _flat(extras: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in extras.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", count) for inner, count in value.items())
        else:
            yield name, value
