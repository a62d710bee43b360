"""What each answer took: its time, its tokens, its price, and the event that says so.

A price is never guessed. What the provider reports counts, then the operator's own prices, then the table; where all
of them are silent the cost stays zero.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import msgspec

from harborage.events import EventType, LLMCost, LLMCostRecordedPayload, LLMUsage
from harborage.identity import Quadruple, effective_quadruple
from harborage.llm.chain.announce import announce
from harborage.llm.chain.backfill import backfilled, overridden_cost
from harborage.llm.chain.layer import Layer
from harborage.llm.client import CompleteRequest, CompleteResponse, Cost, LLMClient, Usage
from harborage.llm.prices import Prices

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot, Deps
    from harborage.llm.profile import ModelProfile

__all__ = ["Metered"]


class Metered(Layer):
    """Completes each answer with its latency and its cost, and records both, even where the call was free."""

    def __init__(self, inner: LLMClient, cfg: ConfigSnapshot, deps: Deps, *, prices: Prices | None = None) -> None:
        super().__init__(inner, cfg, deps)
        self._prices = Prices(cfg.provider or cfg.driver, base_url=cfg.base_url) if prices is None else prices
        self._loading: asyncio.Future[None] | None = None

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        model = request.model or self._cfg.model
        profile = self._cfg.profiles.get(model)
        began = self._deps.clock.monotonic()
        loading = self._load_prices()
        answer = await self._inner.complete(request)
        latency_ms = round((self._deps.clock.monotonic() - began) * 1000)
        if loading is not None:
            # Shared by all calls that began before the table was there, so one that is cancelled leaves it running.
            await asyncio.shield(loading)
        answer = self._with_usage(request, answer, profile, latency_ms)
        cost = self._cost(model, answer)
        if cost is not answer.cost:
            answer = msgspec.structs.replace(answer, cost=cost)
        self._record(model, profile, answer)
        return answer

    async def load_prices(self) -> None:
        """Wait until the price table can be asked."""
        loading = self._load_prices()
        if loading is not None:
            await asyncio.shield(loading)

    def price_of(self, model: str, usage: Usage) -> Cost | None:
        """What such a usage costs now: the operator's prices, then the table; None when neither knows. A model on a
        machine nearby costs nothing."""
        profile = self._cfg.profiles.get(model)
        if profile is not None and profile.cost_overrides is not None:
            return overridden_cost(usage, profile.cost_overrides)
        known = self._prices.cost(model, usage, self._deps.clock.now())
        return Cost() if known is None and self._prices.is_nearby else known

    def _load_prices(self) -> asyncio.Future[None] | None:
        """The loading of the price table, in a thread beside the first call; None once it is there."""
        if self._prices.is_loaded:
            return None
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, self._prices.load)
        return self._loading

    def _with_usage(
        self, request: CompleteRequest, answer: CompleteResponse, profile: ModelProfile | None, latency_ms: int
    ) -> CompleteResponse:
        """The answer with the time it took, and with estimated tokens where the profile asks for them.

        They are estimated here too, because what is recorded here is what budgets are held against.
        """
        usage = msgspec.structs.replace(answer.usage, latency_ms=latency_ms)
        answer = msgspec.structs.replace(answer, usage=usage)
        if self._cfg.disable_corrections or profile is None or profile.corrections is None:
            return answer
        return backfilled(request, answer, profile.cost_overrides) if profile.corrections.usage_backfill else answer

    def _cost(self, model: str, answer: CompleteResponse) -> Cost:
        said: Cost | None = answer.cost  # a client of somebody else's may have put anything there
        if said is not None and said.total_cost and _is_amount(said.total_cost):
            return said
        known = self.price_of(model, answer.usage)
        return Cost() if known is None else known

    def _record(self, model: str, profile: ModelProfile | None, answer: CompleteResponse) -> None:
        who = effective_quadruple()
        if who is None:
            who = Quadruple()
        payload = LLMCostRecordedPayload(
            identity=who,
            model=model,
            cost=_recorded_cost(answer.cost),
            usage=_recorded_usage(answer.usage),
            context_window_tokens=0 if profile is None else profile.context_window_tokens,
            occurred_at=self._deps.clock.now(),
        )
        announce(self._deps, EventType.LLM_COST_RECORDED, payload, who=who)


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


def _recorded_cost(cost: Cost) -> LLMCost:
    return LLMCost(
        input_tokens_cost=cost.input_cost,
        output_tokens_cost=cost.output_cost,
        reasoning_tokens_cost=cost.reasoning_cost,
        total_cost=cost.total_cost,
        currency=cost.currency or "USD",
    )


def _recorded_usage(usage: Usage) -> LLMUsage:
    return LLMUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_tokens=usage.total_tokens,
        latency_ms=usage.latency_ms,
        provider_extras=usage.provider_extras or None,
    )
