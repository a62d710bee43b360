"""What a call cost, from a price table that comes with a package and works offline.

A model's rates are looked up once and kept; a call is then a few multiplications. Where it is not certain who serves
a model, or the model is not in the table, there is no cost rather than a wrong one.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from harborage.llm.rates import Rate, Rates, cost_at

if TYPE_CHECKING:
    from harborage.llm.client import Cost, Usage

__all__ = ["Prices"]

_log = logging.getLogger(__name__)


class Prices:
    """The price table for one provider: `Prices("openai")`; `base_url` is set where it is spoken to elsewhere.

    `load` reads the table, which takes about half a second the first time in a process and blocks; until then, and
    without the package, nothing has a price.
    """

    def __init__(self, provider: str = "", *, base_url: str = "") -> None:
        self._provider = provider.lower()
        self._base_url = base_url
        self._table: ModuleType | None = None
        self._models: dict[str, _Model | None] = {}
        self.is_loaded = not _may_be_listed(self._provider, base_url)
        self.is_nearby = self._provider == "local" if not base_url else _is_near(urlsplit(base_url).hostname or "")

    def load(self) -> None:
        """Make the table ready. Loading twice does nothing; safe to call in a thread."""
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
        """What a call with this usage cost at that time; None when that is not known."""
        if self._table is None:
            return None
        known = self._models.get(model, _UNASKED)
        if isinstance(known, _Unasked):
            # Names come from callers: a host that makes them up must not make this grow for ever.
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
    """Stands for a model that was not looked up yet."""


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
"""Our names of providers, and those with which models are prefixed, to the names of the table."""


def _may_be_listed(provider: str, base_url: str) -> bool:
    """Whether the table can have this provider's models: not those of a machine nearby, nor of an unknown service."""
    if base_url:
        return not _is_near(urlsplit(base_url).hostname or "")
    return provider in _PROVIDERS or provider in _SPEAKS_FOR_OTHERS


_SPEAKS_FOR_OTHERS: Final = ("", "any")


def _is_near(host: str) -> bool:
    if not host or host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host


def _places(provider: str, base_url: str, model: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Where to look for a model, as (its name there, whose it is), best first."""
    listed = _PROVIDERS.get(provider)
    if base_url:
        yield model, {"provider_api_url": base_url}
        listed = "openrouter" if "openrouter.ai" in base_url else None
    elif listed is not None:
        yield model, {"provider_id": listed}
    # OpenRouter passes on the prices of those it speaks for; a suffix such as `:nitro` chooses other ones.
    if listed == "openrouter" and ":" not in model:
        yield from _as_prefixed(model, "/")
    elif not base_url and provider in _SPEAKS_FOR_OTHERS:
        yield from _as_prefixed(model, ":")
        yield from _as_prefixed(model, "/")


def _as_prefixed(model: str, separator: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A model named as `provider/model` at the provider that its name says, if that one is known."""
    prefix, found, name = model.partition(separator)
    listed = _PROVIDERS.get(prefix.lower())
    if found and listed is not None:
        yield name, {"provider_id": listed}


def _found(table: ModuleType, model: str, where: Mapping[str, str]) -> Any | None:
    """The table's entry; None when it has none."""
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
