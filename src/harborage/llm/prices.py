"""The cost of a call: the rates of its model, from a price table that comes with a package and works offline.

The rates of a model are looked up once and kept; a call then takes a few multiplications. Where the provider is not
certain, or the model is not in the table, there is no cost rather than a wrong one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import ModuleType
from typing import Any, Final

import msgspec

from harborage.llm.client import Cost, Usage, is_amount

_log = logging.getLogger(__name__)


class Prices:
    """The price table for one provider: `Prices("openai")`; `base_url` is set where it is spoken to elsewhere.

    `load` reads the table, which blocks for about half a second the first time in a process; until then, and without
    the package, no model has a price.
    """

    def __init__(self, provider: str = "", *, base_url: str = "") -> None:
        self._provider = provider.lower()
        self._base_url = base_url
        self._table: ModuleType | None = None
        self._models: dict[str, _Model | None] = {}
        self.is_loaded = not _may_be_listed(self._provider, base_url)
        self.is_nearby = self._provider == "local" if not base_url else _is_near(base_url)

    def load(self) -> None:
        """Load the table. Loading twice does nothing; safe to call in a thread."""
        if self.is_loaded:
            return
        try:
            import genai_prices
        except ImportError:
            _log.info("llm: calls have no price without the package genai-prices: pip install 'harborage[prices]'")
        else:
            # The package reads its data at the first question.
            _found(genai_prices, "gpt-4o", {"provider_id": "openai"})
            self._table = genai_prices
        self.is_loaded = True

    def cost(self, model: str, usage: Usage, at: datetime) -> Cost | None:
        """Return what a call with this usage cost at that time; None when that is not known."""
        if self._table is None:
            return None
        known = self._models.get(model, _UNASKED)
        if isinstance(known, _Unasked):
            # Names come from callers, which may make up any number of them.
            if len(self._models) >= _MOST_MODELS:
                self._models.clear()
            known = self._models[model] = self._look_up(self._table, model)
        return None if known is None else cost_at(known.rates(at), usage)

    def _look_up(self, table: ModuleType, model: str) -> _Model | None:
        for name, where in _places(self._provider, self._base_url, model):
            info = _found(table, name, where)
            if info is not None:
                return _Model(info)
        _log.info("llm: the price table does not have the model %s of %s", model, self._provider or self._base_url)
        return None


class _Unasked:
    """Marks a model that was not looked up yet."""


_UNASKED: Final = _Unasked()
_MOST_MODELS: Final = 1024
_MTOK: Final = 1_000_000


class _Model:
    """A model of the table, with its rates as plain numbers. They may depend on the day and the hour."""

    __slots__ = ("_always", "_info", "_rates")

    def __init__(self, info: Any) -> None:
        self._info = info
        self._rates: dict[int, Rates] = {}
        self._always = None if isinstance(info.prices, list) else _rates(info.prices)

    def rates(self, at: datetime) -> Rates:
        if self._always is not None:
            return self._always
        # The prices live as long as the model that they belong to, so their ids tell them apart.
        prices = self._info.get_prices(at)
        rates = self._rates.get(id(prices))
        if rates is None:
            rates = self._rates[id(prices)] = _rates(prices)
        return rates


_PROVIDERS: Final[Mapping[str, str]] = {
    name: listed
    for listed, names in {
        "anthropic": ("anthropic",),
        "aws": ("aws", "bedrock"),
        "azure": ("azure",),
        "cerebras": ("cerebras",),
        "cohere": ("cohere",),
        "deepseek": ("deepseek",),
        "fireworks": ("fireworks",),
        "google": ("google", "gemini", "google-gla", "google-vertex", "vertex"),
        "groq": ("groq",),
        "mistral": ("mistral", "mistralai"),
        "moonshotai": ("moonshotai",),
        "novita": ("novita",),
        "openai": ("openai", "openai-responses", "openai-chat"),
        "openrouter": ("openrouter",),
        "perplexity": ("perplexity",),
        "together": ("together", "togetherai"),
        "x-ai": ("xai", "x-ai", "grok"),
        "zai": ("zai", "z-ai"),
    }.items()
    for name in names
}
"""The table's name of each provider, by our name of it and by the prefixes of models."""


def _may_be_listed(provider: str, base_url: str) -> bool:
    """Return whether the table can have this provider's models, which excludes local machines and unknown services."""
    if base_url:
        return not _is_near(base_url)
    return provider in _PROVIDERS or provider in _RESELLERS


_RESELLERS: Final = ("", "any")


def _is_near(base_url: str) -> bool:
    import ipaddress  # like the parser of urls, needed only where a provider is spoken to elsewhere
    from urllib.parse import urlsplit

    host = urlsplit(base_url).hostname or ""
    if not host or host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host


def _places(provider: str, base_url: str, model: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield where to look for a model, as (its name there, its provider), best first."""
    listed = _PROVIDERS.get(provider)
    if base_url:
        yield model, {"provider_api_url": base_url}
        listed = "openrouter" if "openrouter.ai" in base_url else None
    elif listed is not None:
        yield model, {"provider_id": listed}
    # OpenRouter passes on the prices of the providers behind it; a suffix such as `:nitro` chooses other ones.
    if listed == "openrouter" and ":" not in model:
        yield from _as_prefixed(model, "/")
    elif not base_url and provider in _RESELLERS:
        yield from _as_prefixed(model, ":")
        yield from _as_prefixed(model, "/")


def _as_prefixed(model: str, separator: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a model named as `provider/model` at the provider in its name, if that one is known."""
    prefix, found, name = model.partition(separator)
    listed = _PROVIDERS.get(prefix.lower())
    if found and listed is not None:
        yield name, {"provider_id": listed}


def _found(table: ModuleType, model: str, where: Mapping[str, str]) -> Any | None:
    """Return the table's entry; None when it has none."""
    try:
        return table.calc_price(table.Usage(), model, **where).model
    except (LookupError, ValueError):
        return None


def _rates(prices: Any) -> Rates:
    return Rates(
        input=_rate(prices.input_mtok),
        cache_read=_rate(prices.cache_read_mtok),
        cache_write=_rate(prices.cache_write_mtok),
        cache_write_1h=_rate(prices.cache_write_1h_mtok),
        input_audio=_rate(prices.input_audio_mtok),
        output=_rate(prices.output_mtok),
        output_audio=_rate(prices.output_audio_mtok),
        reasoning=_rate(prices.output_reasoning_mtok),
        request=0.0 if prices.requests_kcount is None else float(prices.requests_kcount) / 1000,
    )


def _rate(price: Any) -> Rate | None:
    if price is None:
        return None
    tiers = getattr(price, "tiers", None)
    if tiers is None:
        return Rate(float(price) / _MTOK)
    return Rate(float(price.base) / _MTOK, tuple((tier.start, float(tier.price) / _MTOK) for tier in tiers))


# ── Rates ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Rate(msgspec.Struct, frozen=True, gc=False):
    """The price of one token. `tiers` are (prompt tokens, price) in rising order: above so many, all cost that."""

    base: float
    tiers: tuple[tuple[int, float], ...] = ()

    def at(self, prompt_tokens: int) -> float:
        """Return the price of one token of a call with such a prompt."""
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
    """Return the amount of a cost in US dollars, its currency where none is named.

    None for a cost that is missing, negative, not finite or in another currency.
    """
    if cost is None or (cost.currency and cost.currency.upper() != "USD"):
        return None
    amount: object = cost.total_cost  # a client that is not ours may have put anything there
    return float(amount) if is_amount(amount) else None


def cost_at(rates: Rates, usage: Usage) -> Cost | None:
    """Return what the call cost; None when the rates do not cover it, or its counts contradict each other.

    `prompt_tokens` are all tokens of the prompt, those from a cache among them; `completion_tokens` are all that the
    model wrote, its thinking among them unless the total says otherwise. `provider_extras` say how many of them
    were of a special kind.
    """
    prompt, written, reasoning = usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens
    if not (prompt or written):
        return None  # usage that was not counted is not free
    if reasoning and usage.total_tokens == prompt + written + reasoning:
        written += reasoning
    special = _special(usage.provider_extras) if usage.provider_extras else _NOTHING
    input_cost = _charge(rates.input, _inputs(rates, special), prompt, prompt)
    reasoning_rate = rates.reasoning or rates.output
    at_own_rates = [(rates.output_audio, special.get("output_audio", 0)), (reasoning_rate, reasoning)]
    output_cost = _charge(rates.output, at_own_rates, written, prompt)
    if input_cost is None or output_cost is None:
        return None
    reasoning_cost = 0.0 if reasoning_rate is None else reasoning * reasoning_rate.at(prompt)
    input_cost += rates.request
    return Cost(
        input_cost=input_cost,
        output_cost=output_cost - reasoning_cost,
        reasoning_cost=reasoning_cost,
        total_cost=input_cost + output_cost,
        currency="USD",
    )


# The names under which providers and drivers report a kind, alone or below the name of its group.
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
    """Return the special kinds of prompt tokens with their rates; tokens cached for an hour count as cached, too."""
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
    """Return the price of `tokens`, those of a special kind at its own rate; None when they cannot be priced."""
    total, plain = 0.0, tokens
    for rate, count in special:
        if rate is not None and count:
            total += count * rate.at(prompt)
            plain -= count
    if plain == 0:
        return total
    return None if plain < 0 or ordinary is None else total + plain * ordinary.at(prompt)


def cached_tokens(extras: Mapping[str, Any]) -> int:
    """Return how many tokens of a prompt its provider had cached, by the counts that it reported."""
    return _special(extras).get("cache_read", 0)


def _special(extras: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of tokens of each special kind."""
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
