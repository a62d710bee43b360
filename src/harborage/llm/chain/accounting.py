"""The two layers that may refuse a call before it is sent, and learn afterwards what it took.

`Governed` asks the governor that the caller configured. `Accounted` draws on the ambient account: each attempt is
reserved before it is sent and settled afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from harborage.llm.account import CallEstimate, PriceUnknownError, accounting, current_account
from harborage.llm.chain.conversation import message_tokens, read_conversation, tokens_beside_messages
from harborage.llm.chain.layer import Layer
from harborage.llm.client import ChatMessage, CompleteRequest, CompleteResponse, Cost, LLMClient, Usage
from harborage.llm.errors import IncompleteAnswerError, LLMError, MalformedAnswerError, ProviderTimeoutError
from harborage.llm.prices import in_dollars

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot, Deps


_log = logging.getLogger(__name__)

_LONGEST_ANSWER: Final = 4096
_MAY_BE_CHARGED: Final = (IncompleteAnswerError, MalformedAnswerError, ProviderTimeoutError)

PriceOf = Callable[[str, Usage], Cost | None]
"""Returns what a model's usage costs; None where that is not known."""


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
                answer = await self._inner.complete(request)
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
