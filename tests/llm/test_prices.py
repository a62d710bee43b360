"""What calls cost, from the offline price table, held against the table's own arithmetic."""

from __future__ import annotations

import builtins
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache

import genai_prices
import pytest
from genai_prices.types import ConditionalPrice, ModelInfo, ModelPrice, TieredPrices, TimeOfDateConstraint
from hypothesis import given
from hypothesis import strategies as st

from harborage.llm import Cost, Usage
from harborage.llm.prices import Prices, Rate, Rates, cost_at
from tests.kit.tables import each_row

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOME = Usage(prompt_tokens=1000, completion_tokens=500, total_tokens=1500)


def prices(provider: str = "", base_url: str = "") -> Prices:
    """A table that is ready."""
    found = Prices(provider, base_url=base_url)
    found.load()
    return found


# --- who serves the model


@each_row(
    "provider, base_url, model",
    [
        ("openai", "", "gpt-4o"),
        ("OpenAI", "", "gpt-4o"),
        ("openai-responses", "", "gpt-4o"),
        ("openai", "https://api.openai.com/v1", "gpt-4o"),
        ("", "https://api.openai.com/v1", "gpt-4o"),
        ("any", "", "openai:gpt-4o"),
        ("", "", "openai/gpt-4o"),
        ("openrouter", "", "openai/gpt-4o"),
        ("openrouter", "https://openrouter.ai/api/v1", "openai/gpt-4o"),
    ],
)
def test_the_same_model_by_many_names(provider, base_url, model):
    """A model has its provider's price, however it is named and wherever it is asked."""
    expected = genai_prices.calc_price(
        genai_prices.Usage(input_tokens=1000, output_tokens=500), "gpt-4o", provider_id="openai"
    )
    cost = prices(provider, base_url).cost(model, SOME, AT)
    assert cost is not None
    assert cost.total_cost == pytest.approx(float(expected.total_price))
    assert cost.currency == "USD"


@each_row(
    "provider, model",
    [
        ("anthropic", "claude-sonnet-4-5"),
        ("google", "gemini-2.5-pro"),
        ("gemini", "gemini-2.5-flash"),
        ("groq", "llama-3.3-70b-versatile"),
        ("mistral", "mistral-large-latest"),
        ("deepseek", "deepseek-chat"),
        ("xai", "grok-4"),
        ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
    ],
)
def test_known_models_have_a_price(provider, model):
    """The providers that Harborage knows are known to the table too, by whichever name."""
    cost = prices(provider).cost(model, SOME, AT)
    assert cost is not None
    assert cost.total_cost == pytest.approx(cost.input_cost + cost.output_cost)
    assert cost.input_cost > 0


@each_row(
    "provider, base_url, model",
    [
        ("openai", "", "gpt-99-turbo"),
        ("openai", "", ""),
        ("openai", "https://gateway.example.com/v1", "gpt-4o"),
        ("openai_compat", "", "gpt-4o"),
        ("someone", "", "gpt-4o"),
        ("", "", "gpt-4o"),
        ("", "", "someone/gpt-4o"),
        ("groq", "", "openai/gpt-4o"),
        ("openrouter", "", "openai/gpt-4o:nitro"),
        ("openrouter", "", "someone/model"),
    ],
)
def test_no_price_rather_than_a_wrong_one(provider, base_url, model):
    """An unknown model, an unknown service and a route with prices of its own have no cost."""
    assert prices(provider, base_url).cost(model, SOME, AT) is None


@each_row(
    "provider, base_url",
    [
        ("ollama", ""),
        ("local", ""),
        ("openai", "http://127.0.0.1:8080/v1"),
        ("openai", "http://localhost:1234"),
        ("vllm", "http://gpu.internal/v1"),
        ("vllm", "http://gpu:8000/v1"),
        ("vllm", "http://192.168.1.7/v1"),
        ("openai", "http://[::1]:80/v1"),
    ],
)
def test_machines_nearby_are_never_looked_up(provider, base_url):
    """What runs on one's own machines has no list price, and the table is not even read for it."""
    table = Prices(provider, base_url=base_url)
    assert table.is_loaded
    table.load()
    assert table.cost("gpt-4o", SOME, AT) is None


def test_before_loading():
    """Until the table is read nothing has a price; reading it twice does nothing."""
    table = Prices("openai")
    assert not table.is_loaded
    assert table.cost("gpt-4o", SOME, AT) is None
    table.load()
    table.load()
    assert table.is_loaded
    assert table.cost("gpt-4o", SOME, AT) is not None


def test_without_the_package(monkeypatch):
    """Where genai-prices is not installed calls have no price, and nothing fails."""
    real = builtins.__import__

    def refuse(name, *rest, **named):
        if name.startswith("genai_prices"):
            raise ModuleNotFoundError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    table = prices("openai")
    assert table.is_loaded
    assert table.cost("gpt-4o", SOME, AT) is None


def test_a_model_is_looked_up_once(monkeypatch):
    """The second call of a model asks the table nothing, whether it was found or not."""
    table = prices("openai")
    first = [table.cost(model, SOME, AT) for model in ("gpt-4o", "unheard-of")]

    def never(*_, **__):
        raise AssertionError("asked again")

    monkeypatch.setattr(genai_prices, "calc_price", never)
    assert [table.cost(model, SOME, AT) for model in ("gpt-4o", "unheard-of")] == first


def test_made_up_names_do_not_fill_the_memory():
    """However many names are asked for, a bounded number is kept, and known ones are still priced."""
    table = prices("openai")
    for number in range(3000):
        assert table.cost(f"made-up-{number}", SOME, AT) is None
    assert len(table._models) <= 1024
    assert table.cost("gpt-4o", SOME, AT) is not None


# --- the arithmetic


_TOKENS = st.integers(0, 400_000)


@given(prompt=_TOKENS, read=_TOKENS, written=_TOKENS, hour=_TOKENS, completion=_TOKENS)
@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-4o"),
        ("anthropic", "claude-sonnet-4-5"),
        ("google", "gemini-2.5-pro"),
        ("groq", "llama-3.3-70b-versatile"),
    ],
)
def test_our_arithmetic_is_the_tables(provider, model, prompt, read, written, hour, completion):
    """Cached tokens, tiers by the size of the prompt and prices without special kinds come to the table's own total."""
    written, whole = written + hour, prompt + read + written + hour
    usage = Usage(
        prompt_tokens=whole,
        completion_tokens=completion,
        total_tokens=whole + completion,
        provider_extras={"cache_read_tokens": read, "cache_write_tokens": written, "cache_write_1h_tokens": hour},
    )
    expected = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=whole,
            output_tokens=completion,
            cache_read_tokens=read,
            cache_write_tokens=written,
            cache_write_1h_tokens=hour,
        ),
        model,
        provider_id=provider,
        genai_request_timestamp=AT,
    )
    cost = _table(provider).cost(model, usage, AT)
    if not (whole or completion):
        assert cost is None
        return
    assert cost is not None
    assert cost.total_cost == pytest.approx(float(expected.total_price))
    assert cost.input_cost == pytest.approx(float(expected.input_price))
    assert cost.output_cost == pytest.approx(float(expected.output_price))


@cache
def _table(provider: str) -> Prices:
    return prices(provider)


RATES = Rates(input=Rate(2.0), cache_read=Rate(0.5), output=Rate(10.0))


@each_row(
    "extras",
    [
        {"cache_read_tokens": 4},
        {"cached_tokens": 4},
        {"cache_read_input_tokens": 4},
        {"cached_content_token_count": 4},
        {"prompt_cache_hit_tokens": 4},
        {"prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0}},
        {"cached_tokens": 4, "input_tokens_details": {"cached_tokens": 4}},
    ],
)
def test_the_names_of_cached_tokens(extras):
    """However a provider calls them, tokens read from its cache cost what such tokens cost."""
    cost = cost_at(RATES, Usage(prompt_tokens=10, provider_extras=extras))
    assert cost is not None
    assert cost.total_cost == 6 * 2.0 + 4 * 0.5


@each_row("extras", [{"cached_tokens": True}, {"cached_tokens": "4"}, {"cached_tokens": -4}, {"x": {}}])
def test_extras_that_count_nothing(extras):
    """What is no count of a known kind is charged as ordinary tokens."""
    cost = cost_at(RATES, Usage(prompt_tokens=10, provider_extras=extras))
    assert cost is not None
    assert cost.total_cost == 20.0


def test_audio():
    """Audio has its own price, going in and coming out."""
    rates = Rates(input=Rate(1.0), input_audio=Rate(3.0), output=Rate(5.0), output_audio=Rate(7.0))
    details = {"prompt_tokens_details": {"audio_tokens": 2}, "completion_tokens_details": {"audio_tokens": 3}}
    cost = cost_at(rates, Usage(prompt_tokens=10, completion_tokens=10, provider_extras=details))
    assert cost is not None
    assert (cost.input_cost, cost.output_cost) == (8 * 1.0 + 2 * 3.0, 7 * 5.0 + 3 * 7.0)


def test_thinking_is_shown_apart():
    """The thinking among the written tokens is its own share of the cost, at its own price if it has one."""
    usage = Usage(prompt_tokens=1, completion_tokens=10, reasoning_tokens=4, total_tokens=11)
    assert cost_at(RATES, usage) == Cost(2.0, 60.0, 40.0, 102.0, "USD")
    dear = Rates(input=Rate(2.0), output=Rate(10.0), reasoning=Rate(20.0))
    assert cost_at(dear, usage) == Cost(2.0, 60.0, 80.0, 142.0, "USD")


def test_thinking_beside_what_was_written():
    """Where the total says that thinking is not among the written tokens, it is charged besides."""
    usage = Usage(prompt_tokens=1, completion_tokens=10, reasoning_tokens=4, total_tokens=15)
    assert cost_at(RATES, usage) == Cost(2.0, 100.0, 40.0, 142.0, "USD")


def test_the_price_of_a_request():
    """What every request costs comes on top of the tokens."""
    cost = cost_at(Rates(input=Rate(1.0), output=Rate(1.0), request=5.0), Usage(prompt_tokens=1, completion_tokens=1))
    assert cost == Cost(6.0, 1.0, 0.0, 7.0, "USD")


@each_row(
    "rates, usage",
    [
        (RATES, Usage()),
        (RATES, Usage(prompt_tokens=1, provider_extras={"cached_tokens": 2})),
        (RATES, Usage(prompt_tokens=1, completion_tokens=1, reasoning_tokens=2, total_tokens=2)),
        (Rates(output=Rate(1.0)), Usage(prompt_tokens=1, completion_tokens=1)),
        (Rates(input=Rate(1.0)), Usage(prompt_tokens=1, completion_tokens=1)),
        (Rates(), Usage(prompt_tokens=1)),
    ],
)
def test_what_cannot_be_priced(rates, usage):
    """Without counts, with counts that contradict each other, or without a rate there is no cost."""
    assert cost_at(rates, usage) is None


def test_tiers():
    """Above a tier's start all tokens cost what the tier says; at the start they do not yet."""
    rate = Rate(1.0, ((100, 2.0), (200, 3.0)))
    assert [rate.at(tokens) for tokens in (0, 100, 101, 200, 201)] == [1.0, 1.0, 2.0, 2.0, 3.0]


def test_prices_by_the_hour(monkeypatch):
    """A model whose price depends on the hour is priced at the hour of its call."""
    night = TimeOfDateConstraint(start_time=datetime(1, 1, 1, 0).time(), end_time=datetime(1, 1, 1, 6).time())
    day, cheap = (ModelPrice(input_mtok=Decimal(price), output_mtok=Decimal(1)) for price in (10, 2))
    info = ModelInfo(id="owl", match=None, prices=[ConditionalPrice(prices=day), ConditionalPrice(night, prices=cheap)])

    class Found:
        model = info

    monkeypatch.setattr(genai_prices, "calc_price", lambda *_, **__: Found)
    table = prices("openai")
    usage = Usage(prompt_tokens=1_000_000)
    costs = [table.cost("owl", usage, AT.replace(hour=hour)) for hour in (3, 12, 3)]
    assert [cost and cost.total_cost for cost in costs] == [pytest.approx(2.0), pytest.approx(10.0), pytest.approx(2.0)]


def test_tiered_prices_are_read(monkeypatch):
    """Tiers come out of the table as prices of one token."""
    from genai_prices.types import Tier

    tiered = TieredPrices(base=Decimal(1), tiers=[Tier(start=10, price=Decimal(2))])
    info = ModelInfo(id="t", match=None, prices=ModelPrice(input_mtok=tiered, output_mtok=Decimal(1)))

    class Found:
        model = info

    monkeypatch.setattr(genai_prices, "calc_price", lambda *_, **__: Found)
    cost = prices("openai").cost("t", Usage(prompt_tokens=20), AT)
    assert cost is not None
    assert cost.total_cost == pytest.approx(20 * 2e-6)
