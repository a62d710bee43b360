"""The callbacks that wait in this process for a pause to be resolved, and the last resolved pauses that it has read.

A resolved pause never changes again, so this cache is never out of date. No store and no clock.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

from harborage.runtime.loop.pauses import Pause

_CACHE_SIZE = 1_000

Wake = Callable[[Pause], None]

logger = logging.getLogger(__name__)


class Waiters:
    """Calls the callbacks that wait for a pause, each once."""

    def __init__(self) -> None:
        self._wakers: dict[str, list[Wake]] = {}
        self._resolved: OrderedDict[str, Pause] = OrderedDict()

    def wake(self, resolved: Pause) -> None:
        """Call every callback that waits for this pause. One that fails is logged, and does not hold up the others."""
        self._resolved[resolved.token] = resolved = resolved.without_trajectory()
        if len(self._resolved) > _CACHE_SIZE:
            self._resolved.popitem(last=False)
        for wake in self._wakers.pop(resolved.token, ()):
            _call(wake, resolved)

    def subscribe(self, token: str, wake: Wake) -> Callable[[], None]:
        """Call `wake` when the pause is resolved, at once if it was; the returned function cancels that."""
        resolved = self._resolved.get(token)
        if resolved is not None:
            _call(wake, resolved)
            return _nothing
        # Each subscriber gets its own function, so that cancelling one never cancels an equal one.
        waker: Wake = lambda resolved: wake(resolved)  # noqa: E731, PLW0108
        self._wakers.setdefault(token, []).append(waker)
        return lambda: self._unsubscribe(token, waker)

    def _unsubscribe(self, token: str, waker: Wake) -> None:
        wakers = self._wakers.get(token)
        if wakers is None or waker not in wakers:
            return
        wakers.remove(waker)
        if not wakers:
            del self._wakers[token]


def _nothing() -> None:
    """Do nothing, because the callback was called already."""


def _call(wake: Wake, pause: Pause) -> None:
    try:
        wake(pause)
    except Exception:
        logger.exception("pause %s: a wake-up failed", pause.token)
