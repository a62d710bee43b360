"""What a call takes: priced and published afterwards, and refused before it is sent where the account has no more.

`Metered` adds to each answer its latency, its tokens and its price. A price is never guessed: the price that the
provider reports counts, then the prices of the operator, then the price table; without any of them the cost stays
zero. `Counted` does the same for a client that the caller opened, as far as it reports what a call took, and for
made-up answers, of which no event tells. `Governed` asks the governor that the caller configured. `Accounted` draws on
the ambient account: each attempt is reserved before it is sent and settled afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeGuard

import msgspec

from harborage.events import EventType, LLMCost, LLMCostRecordedPayload, LLMUsage, RecordBus
from harborage.llm.account import CallEstimate, PriceUnknownError, accounting, current_account, step_of
from harborage.llm.chain.conversation import (
    LIKELY,
    answer_tokens,
    memoize_on,
    message_tokens,
    read_conversation,
    tokens_beside_messages,
    tool_tokens,
)
from harborage.llm.chain.layer import Layer, caller_or_empty, publish_event
from harborage.llm.client import ChatMessage, CompleteRequest, CompleteResponse, Cost, LLMClient, Usage, is_amount
from harborage.llm.errors import IncompleteAnswerError, LLMError, MalformedAnswerError, ProviderTimeoutError
from harborage.llm.prices import Prices, in_dollars

if TYPE_CHECKING:
    from harborage.events import EventBus
    from harborage.llm.config import ConfigSnapshot, CostOverrides, Deps, ModelProfile

_MILLION: Final = 1_000_000

PriceOf = Callable[[str, Usage], Cost | None]
"""Returns what a model's usage costs; None where that is not known."""


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
            # All calls that began before the table was loaded share this, so one that is cancelled leaves it running.
            await asyncio.shield(loading)
        answer = self._with_usage(request, answer, profile, latency_ms)
        cost = self._cost(model, answer)
        if cost is not answer.cost:
            answer = msgspec.structs.replace(answer, cost=cost)
        self._record(model, profile, answer)
        return answer

    async def load_prices(self) -> None:
        """Wait until the price table is loaded."""
        loading = self._load_prices()
        if loading is not None:
            await asyncio.shield(loading)

    def price_of(self, model: str, usage: Usage) -> Cost | None:
        """Return what such a usage costs now: by the operator's prices, then by the table; None without either.

        A model on this machine or network costs nothing.
        """
        profile = self._cfg.profiles.get(model)
        if profile is not None and profile.cost_overrides is not None:
            return cost_from_overrides(usage, profile.cost_overrides)
        known = self._prices.cost(model, usage, self._deps.clock.now())
        return Cost() if known is None and self._prices.is_nearby else known

    def _load_prices(self) -> asyncio.Future[None] | None:
        """Return the loading of the price table, in a thread beside the first call; None once it is loaded."""
        if self._prices.is_loaded:
            return None
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, self._prices.load)
        return self._loading

    def _with_usage(
        self, request: CompleteRequest, answer: CompleteResponse, profile: ModelProfile | None, latency_ms: int
    ) -> CompleteResponse:
        """Return the answer with the time it took, and with estimated tokens where the profile asks for them.

        They are estimated here too, because budgets are held against the usage that is recorded here.
        """
        usage = msgspec.structs.replace(answer.usage, latency_ms=latency_ms)
        answer = msgspec.structs.replace(answer, usage=usage)
        if self._cfg.disable_corrections or profile is None or profile.corrections is None:
            return answer
        return backfill_usage(request, answer, profile.cost_overrides) if profile.corrections.usage_backfill else answer

    def _cost(self, model: str, answer: CompleteResponse) -> Cost:
        reported: Cost | None = answer.cost  # a client that is not ours may have put anything there
        if reported is not None and reported.total_cost and is_amount(reported.total_cost):
            return reported
        known = self.price_of(model, answer.usage)
        return Cost() if known is None else known

    def _record(self, model: str, profile: ModelProfile | None, answer: CompleteResponse) -> None:
        publish_cost(self._deps, model, answer, 0 if profile is None else profile.context_window_tokens)

    def is_counting_on(self, bus: EventBus | None) -> bool:
        """Return whether what a call takes is counted by this bus."""
        return self._deps.bus is bus


class Counted(Layer):
    """Counts what the answers of a client take that is not metered, in the totals of the run that calls it.

    An answer of which neither tokens nor a cost are known adds nothing. With `is_announced` an event tells of it, as of
    a metered call; without, the totals alone change.
    """

    def __init__(
        self, inner: LLMClient, cfg: ConfigSnapshot, deps: Deps, *, price_of: PriceOf, is_announced: bool
    ) -> None:
        super().__init__(inner, cfg, deps)
        self._price_of = price_of
        self.is_announced = is_announced
        self._totals = deps.bus if not is_announced and isinstance(deps.bus, RecordBus) else None

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        answer = _checked(await self._inner.complete(request))
        if self.is_announced or self._totals is not None:
            self._count(request.model or self._cfg.model, answer)
        return answer

    def is_counting_on(self, bus: EventBus | None) -> bool:
        """Return whether what a call takes is counted by this bus."""
        return self._deps.bus is bus

    def _count(self, model: str, answer: CompleteResponse) -> None:
        """Count the answer. A client that is not ours may have put anything there, which must cost no caller it."""
        usage = answer.usage if _is_usage(answer.usage) else Usage()
        cost = answer.cost if _is_cost(answer.cost) else None
        if cost is None and usage != Usage():
            cost = self._price_of(model, usage)
        if cost is None:
            cost = Cost()
        tokens = usage.total_tokens or usage.prompt_tokens + usage.completion_tokens
        if not (tokens or cost.total_cost):
            return
        if self._totals is not None:
            self._totals.add_usage(caller_or_empty(), tokens=tokens, cost=round((in_dollars(cost) or 0.0) * _MILLION))
        else:
            publish_cost(self._deps, model, msgspec.structs.replace(answer, usage=usage, cost=cost), 0)


def _is_usage(usage: object) -> TypeGuard[Usage]:
    """Return whether these are counts of tokens, none of them negative."""
    names = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "total_tokens")
    return isinstance(usage, Usage) and all(
        isinstance(count := getattr(usage, name), int) and count >= 0 for name in names
    )


def _is_cost(cost: object) -> TypeGuard[Cost]:
    return isinstance(cost, Cost) and is_amount(cost.total_cost) and cost.total_cost > 0


def publish_cost(deps: Deps, model: str, answer: CompleteResponse, window_tokens: int) -> None:
    """Publish what an answered call took, as an event of the run that made it; `window_tokens` is 0 if unknown."""
    who = caller_or_empty()
    payload = LLMCostRecordedPayload(
        identity=who,
        model=model,
        cost=_recorded_cost(answer.cost),
        usage=_recorded_usage(answer.usage),
        context_window_tokens=window_tokens,
        occurred_at=deps.clock.now(),
        step=step_of(who.run_id) or msgspec.UNSET,
    )
    publish_event(deps, EventType.LLM_COST_RECORDED, payload, who=who)


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


# ── Estimates for answers that report no usage, rough by nature ─────────────────────────────────────────────────────


def backfill_usage(
    request: CompleteRequest, response: CompleteResponse, overrides: CostOverrides | None
) -> CompleteResponse:
    """Return `response` with estimated usage if it has none, priced with `overrides` if it has no price."""
    usage = response.usage
    if usage.prompt_tokens or usage.completion_tokens or usage.total_tokens:
        return response
    prompt = sum([memoize_on(one, "llm.likely_tokens", _likely_tokens) for one in request.messages])
    prompt += tool_tokens(request.tools)
    completion = answer_tokens(response.content, response.tool_calls)
    usage = msgspec.structs.replace(
        usage, prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )
    cost = response.cost
    if not cost.total_cost and overrides is not None:
        cost = cost_from_overrides(usage, overrides)
    return msgspec.structs.replace(response, usage=usage, cost=cost)


def cost_from_overrides(usage: Usage, overrides: CostOverrides) -> Cost:
    """Return what `usage` costs at the operator's own prices."""
    prompt = usage.prompt_tokens * overrides.input_per_million / _MILLION
    completion = usage.completion_tokens * overrides.output_per_million / _MILLION
    return Cost(
        input_cost=prompt,
        output_cost=completion,
        total_cost=prompt + completion,
        currency=overrides.currency or "USD",
    )


def _likely_tokens(message: ChatMessage) -> int:
    return message_tokens(message, LIKELY)


_log = logging.getLogger(__name__)

_LONGEST_ANSWER: Final = 4096
_MAY_BE_CHARGED: Final = (IncompleteAnswerError, MalformedAnswerError, ProviderTimeoutError)


class Governed(Layer):
    """Asks the governor of `Deps` around every call; without one it passes calls on."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        governor = self._deps.governance
        if governor is None:
            return await self._inner.complete(request)
        await governor.pre_call(request)
        response = await self._inner.complete(request)
        try:
            await governor.post_call(request, response)
        except Exception as error:  # noqa: BLE001 - the answer is there and paid for
            _log.warning("llm: the governor failed after a call of %s: %s", request.model or "the model", error)
        return response


def _checked(answer: object) -> CompleteResponse:
    """The answer of a client, which may be one of the user's own."""
    if not isinstance(answer, CompleteResponse):
        raise LLMError(f"the model's client returned {type(answer).__name__}, not a CompleteResponse")
    return answer


class Accounted(Layer):
    """Reserves and settles each call with the account of the work that makes it, once however many layers there are.

    An answer without a limit of its own is estimated at 4,096 tokens. A call that a provider refused took nothing; one
    that was cut short, or whose usage is not reported or impossible, is counted as it was reserved. A cost that is no
    amount of US dollars is no price.
    """

    def __init__(
        self,
        inner: LLMClient,
        cfg: ConfigSnapshot,
        deps: Deps,
        *,
        price_of: PriceOf,
        load_prices: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(inner, cfg, deps)
        self._price_of = price_of
        self._load_prices = load_prices

    async def check_price(self, model: str = "") -> None:
        """Accept a model whose calls have a known price; zero is one.

        Raises:
            PriceUnknownError: none is known.
        """
        if self._load_prices is not None:
            await self._load_prices()
        model = model or self._cfg.model
        if in_dollars(self._price_of(model, Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2))) is None:
            raise PriceUnknownError(model)

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        account = current_account()
        if account is None:
            return await self._inner.complete(request)
        if account.needs_price and self._load_prices is not None:
            await self._load_prices()
        key = await account.reserve(partial(self._estimate, request))
        try:
            with accounting(None):
                answer = _checked(await self._inner.complete(request))
        except _MAY_BE_CHARGED:
            account.keep(key)
            raise
        except Exception:
            await account.settle(key, tokens=0, cost=0.0)
            raise
        except BaseException:
            account.keep(key)
            raise
        tokens, cost = self._taken(request, answer)
        await account.settle(key, tokens=tokens, cost=cost)
        return answer

    def _taken(self, request: CompleteRequest, answer: CompleteResponse) -> tuple[int, float]:
        """Return the tokens and the price of an answered call; the estimate where it reports no usage."""
        reported: Usage | None = answer.usage  # a client that is not ours may leave it out
        usage, cost = Usage() if reported is None else reported, in_dollars(answer.cost) or 0.0
        parts = (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
        if min(parts) < 0 or max(parts) == 0:
            estimate = self._estimate(request)
            return estimate.tokens, max(cost, estimate.cost or 0.0)
        if not cost:
            cost = in_dollars(self._price_of(request.model or self._cfg.model, usage)) or 0.0
        return max(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens), cost

    def _estimate(self, request: CompleteRequest) -> CallEstimate:
        model = request.model or self._cfg.model
        prompt = _tokens_of(request.messages) + tokens_beside_messages(request)
        answer = self._longest_answer(model, request)
        usage = Usage(prompt_tokens=prompt, completion_tokens=answer, total_tokens=prompt + answer)
        cost = in_dollars(self._price_of(model, usage))
        return CallEstimate(model=model, tokens=prompt + answer, cost=cost)

    def _longest_answer(self, model: str, request: CompleteRequest) -> int:
        if request.max_tokens is not None:
            return request.max_tokens
        profile = self._cfg.profiles.get(model)
        if profile is not None and profile.default_max_tokens is not None:
            return profile.default_max_tokens
        return _LONGEST_ANSWER


def _tokens_of(messages: Sequence[ChatMessage]) -> int:
    """Return the estimate for a conversation; a malformed one, which some clients accept, is read whole."""
    try:
        return read_conversation(messages).tokens
    except LLMError:
        return sum(map(message_tokens, messages))
