"""The layer over several models: the next one is asked when one is down, out of retries or out of quota."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from harborage.llm.chain.layer import Layer
from harborage.llm.chain.retry import Attempts
from harborage.llm.errors import ProviderError, QuotaExceededError, Retry

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest, CompleteResponse, LLMClient
    from harborage.llm.config import ConfigSnapshot, Deps

_log = logging.getLogger(__name__)


class Fallback(Layer):
    """Asks the first model, and the next one when its provider is down, rate-limited or out of quota.

    Each model is tried as often as its own settings say. The answer is that of the model that gave it, usage and cost
    included. A failure that another provider would repeat, such as a request that is malformed, or that the operator
    must see, such as a wrong key, is passed on; so is that of the last model.
    """

    def __init__(self, clients: Sequence[LLMClient], cfg: ConfigSnapshot, deps: Deps) -> None:
        super().__init__(clients[0], cfg, deps)
        self.clients = tuple(clients)

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        last = len(self.clients) - 1
        with Attempts(request) as attempts:
            for place, client in enumerate(self.clients):
                # A model that a request names is one of the first provider.
                asked = request if place == 0 else msgspec.structs.replace(request, model="")
                try:
                    return await client.complete(attempts.begin(asked))
                except ProviderError as error:
                    if place == last or not _is_down(error) or self._is_late(request):
                        raise
                    _log.warning("llm: %s: %s; asking the next model", error.provider or "a model", _named(error))
        raise AssertionError("unreachable: the last model answers or raises")

    def _is_late(self, request: CompleteRequest) -> bool:
        return request.deadline is not None and request.deadline <= self._deps.clock.now()

    async def close(self) -> None:
        """Refuse further calls and close the clients. Closing twice does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        for client in self.clients:
            await client.close()


def _is_down(error: ProviderError) -> bool:
    return error.retry == Retry.SAFE or isinstance(error, QuotaExceededError)


def _named(error: ProviderError) -> str:
    return type(error).__name__ if error.status is None else f"{type(error).__name__} ({error.status})"
