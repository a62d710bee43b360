"""Making a call again whose failure is safe to repeat: overload, rate limits, broken connections.

Which failures these are is the error's own word (`retry`). How long to wait is arithmetic over the policy; time and
dice are the caller's.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

from harborage.clock import sleep
from harborage.llm.chain.attempts import Attempts
from harborage.llm.chain.layer import Layer
from harborage.llm.errors import ProviderError, Retry

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest, CompleteResponse
    from harborage.llm.config import TransportPolicy

__all__ = ["Resilient", "backoff_s", "wait_s"]

_log = logging.getLogger(__name__)

_MOST_DOUBLINGS: Final = 62


class Resilient(Layer):
    """Repeats a call as often and as patiently as `cfg.transport` allows; the last failure is passed on as it is."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self._check_open()
        policy = self._cfg.transport
        if policy.max_retries <= 0:
            return await self._inner.complete(request)
        retries = 0
        with Attempts(request) as attempts:
            while True:
                try:
                    return await self._inner.complete(attempts.begin(request))
                except ProviderError as error:
                    wait = wait_s(policy, error, retries, self._deps.random()) if retries < policy.max_retries else None
                    if wait is None or self._is_too_late(request, wait):
                        raise
                    retries += 1
                    _tell(error, retries, policy.max_retries, wait)
                await sleep(self._deps.clock, wait)

    def _is_too_late(self, request: CompleteRequest, wait: float) -> bool:
        """Whether the caller will have gone by then; it learns of the failure now instead."""
        deadline = request.deadline
        return deadline is not None and (deadline - self._deps.clock.now()).total_seconds() <= wait


def wait_s(policy: TransportPolicy, error: ProviderError, retries: int, dice: float) -> float | None:
    """Seconds to wait before the call is made again; None when it must not be.

    What the provider asks for counts, and if that is longer than the policy bears there is no repeat. `dice` is in
    [0, 1); `retries` counts the repeats so far.
    """
    if error.retry != Retry.SAFE:
        return None
    asked = error.retry_after_s
    if asked is None or math.isnan(asked):
        return backoff_s(policy, retries, dice)
    return None if asked > policy.max_retry_after_s else max(0.0, asked)


def backoff_s(policy: TransportPolicy, retries: int, dice: float) -> float:
    """Between half and the whole of the wait: the base doubled with each repeat, at most the maximum."""
    whole = min(policy.max_s, policy.base_s * 2.0 ** min(retries, _MOST_DOUBLINGS))
    return max(0.0, whole) * (0.5 + 0.5 * dice)


def _tell(error: ProviderError, retry: int, most: int, wait: float) -> None:
    note = {"action": "llm.repeat", "provider": error.provider, "model": error.model, "status": error.status}
    whose = error.provider or "llm"
    text = "%s: %s; asked again in %.1f s (%d of %d)"
    _log.warning(text, whose, type(error).__name__, wait, retry, most, extra=note)
