"""Costs that are invalid: missing, not a number, negative, infinite, in another currency. None counts as a dollar."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from harborage import Identity, Limits, Runtime
from harborage.artifacts.memory import MemoryArtifactStore
from harborage.events.memory_bus import MemoryEventBus
from harborage.llm import CompleteRequest, CompleteResponse, ConfigSnapshot, Cost, PriceUnknownError, Usage, accounting
from harborage.llm.account import CallEstimate
from harborage.llm.chain.accounting import Accounted, Metered
from harborage.llm.config import CostOverrides, Deps, ModelProfile
from harborage.llm.configure import check_settings, complete_settings
from harborage.llm.errors import LLMConfigError
from harborage.llm.prices import in_dollars
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

DEPS = Deps(artifacts=MemoryArtifactStore(), bus=MemoryEventBus())
USAGE = Usage(prompt_tokens=8, completion_tokens=2, total_tokens=10)
ODD: list[Any] = [
    None,
    Cost(total_cost=math.nan),
    Cost(total_cost=-1.0),
    Cost(total_cost=math.inf),
    Cost(total_cost=2.0, currency="EUR"),
    Cost(total_cost="3"),  # type: ignore[arg-type]
]


class Charges:
    """A model that says what its call cost, and what such a call costs in advance."""

    def __init__(self, cost: Any, price: Any = None, usage: Any = USAGE) -> None:
        self.calls = 0
        self._cost = cost
        self._price = price
        self._usage = usage

    def price_of(self, model: str, usage: Usage) -> Any:
        return self._price

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self.calls += 1
        return CompleteResponse("ok", cost=self._cost, usage=self._usage)

    async def close(self) -> None:
        return None


class Ledger:
    """An account that notes what it was asked for and what was settled."""

    needs_price = True

    def __init__(self) -> None:
        self.estimates: list[CallEstimate] = []
        self.settled: list[tuple[int, float]] = []

    async def reserve(self, estimate: Callable[[], CallEstimate]) -> str:
        self.estimates.append(estimate())
        return "key"

    async def settle(self, key: str, *, tokens: int, cost: float) -> None:
        self.settled.append((tokens, cost))

    def keep(self, key: str) -> None:
        raise AssertionError("the call was answered")


async def settled(client: Charges) -> Ledger:
    """The cost of one call of this client on an account."""
    ledger = Ledger()
    with accounting(ledger):
        await Accounted(client, ConfigSnapshot(), DEPS, price_of=client.price_of).complete(CompleteRequest())
    return ledger


@each_row("odd", ODD, ids=str)
async def test_an_odd_cost_of_an_answer_is_replaced_by_the_known_price(odd: Any) -> None:
    """What the provider says is no amount of dollars, so the price of the usage counts."""
    ledger = await settled(Charges(odd, Cost(total_cost=0.25)))
    assert ledger.settled == [(10, 0.25)]


@each_row("odd", ODD, ids=str)
async def test_an_odd_price_is_no_price(odd: Any) -> None:
    """It is not known what a call may come to; what the provider says afterwards counts."""
    ledger = await settled(Charges(Cost(total_cost=0.5, currency="usd"), odd))
    assert [one.cost for one in ledger.estimates] == [None]
    assert ledger.settled == [(10, 0.5)]


async def test_an_answer_without_usage_is_counted_as_it_was_reserved() -> None:
    """A client that leaves it out breaks nothing, and gets nothing for free."""
    ledger = await settled(Charges(None, Cost(total_cost=0.25), usage=None))
    assert ledger.settled == [(ledger.estimates[0].tokens, 0.25)]


@each_row("odd", ODD, ids=str)
async def test_a_cost_limit_over_an_odd_price_is_refused_before_anything_is_called(odd: Any) -> None:
    """As for a model without any price: the run could not be held to its limit."""
    client = Charges(Cost(total_cost=0.25), odd)
    async with Runtime(model=client) as rt:
        with pytest.raises(PriceUnknownError, match="needs a price in US dollars"):
            await rt.start("go", who=Identity("t", "u", "s"), limits=Limits(cost=1.0))
    assert client.calls == 0


@each_row("odd", [*ODD, Cost()], ids=str)
async def test_a_run_without_a_cost_limit_counts_an_odd_cost_as_none(odd: Any) -> None:
    """It goes on, and its tokens count."""
    client = Charges(odd)
    async with Runtime(model=client) as rt:
        run = await rt.start("go", who=Identity("t", "u", "s"), limits=Limits(tokens=1_000_000))
        assert (await asyncio.wait_for(run.finished(), 20)).payload
    assert client.calls == 1


@each_row("odd", ODD, ids=str)
async def test_what_is_metered_is_a_cost(odd: Any) -> None:
    """The answer and its event carry the known price, or none; an amount in another currency is left as it is."""
    cfg = ConfigSnapshot(
        driver="x",
        model="m",
        profiles={
            "m": ModelProfile(
                context_window_tokens=1000, cost_overrides=CostOverrides(input_per_million=1e6, output_per_million=0.0)
            )
        },
    )
    priced = await Metered(Charges(odd), cfg, DEPS).complete(CompleteRequest())
    foreign = odd is not None and odd.currency == "EUR"
    assert (priced.cost.total_cost, priced.cost.currency) == ((2.0, "EUR") if foreign else (8.0, "USD"))
    answer = await Metered(Charges(odd), ConfigSnapshot(driver="x", model="m"), DEPS).complete(CompleteRequest())
    assert answer.cost == (odd if foreign else Cost())


def test_only_an_amount_of_dollars_is_one() -> None:
    """A cost without a currency is one; its spelling does not matter."""
    assert [in_dollars(one) for one in ODD] == [None] * len(ODD)
    costs = (Cost(), Cost(total_cost=1.5), Cost(total_cost=2, currency="Usd"))
    assert [in_dollars(one) for one in costs] == [0.0, 1.5, 2.0]


@each_row("price", [math.inf, math.nan, -0.1])
async def test_an_operators_price_is_a_finite_number(price: float) -> None:
    """It is refused where it is written."""
    overrides = CostOverrides(input_per_million=price, output_per_million=1.0)
    cfg = ConfigSnapshot(
        driver="mock", model="m", profiles={"m": ModelProfile(context_window_tokens=1000, cost_overrides=overrides)}
    )
    with pytest.raises(LLMConfigError, match="input_per_million"):
        check_settings(complete_settings(cfg))
