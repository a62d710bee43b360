"""The callbacks that wait in this process for a pause to be settled, and the last settled pauses it has seen.

A settled pause never changes again, so this cache is never out of date. No store and no clock.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

from harborage.runtime.loop.pauses import Pause

_REMEMBERED = 1_000

Wake = Callable[[Pause], None]

logger = logging.getLogger(__name__)


class Waiters:
    """Calls the callbacks that wait for a pause, each once."""

    def __init__(self) -> None:
        self._wakers: dict[str, list[Wake]] = {}
        self._settled: OrderedDict[str, Pause] = OrderedDict()

    def wake(self, settled: Pause) -> None:
        """Call every callback that waits for this pause. One that fails is logged, and does not hold up the others."""
        self._settled[settled.token] = settled = settled.without_trajectory()
        if len(self._settled) > _REMEMBERED:
            self._settled.popitem(last=False)
        for wake in self._wakers.pop(settled.token, ()):
            _call(wake, settled)

    def listen(self, token: str, wake: Wake) -> Callable[[], None]:
        """Call `wake` when the pause is settled, at once if it was; the returned function cancels that."""
        settled = self._settled.get(token)
        if settled is not None:
            _call(wake, settled)
            return _nothing
        # Each listener has a function of its own, so that cancelling one never cancels an equal one.
        waker: Wake = lambda settled: wake(settled)  # noqa: E731, PLW0108
        self._wakers.setdefault(token, []).append(waker)
        return lambda: self._unlisten(token, waker)

    def _unlisten(self, token: str, waker: Wake) -> None:
        wakers = self._wakers.get(token)
        if wakers is None or waker not in wakers:
            return
        wakers.remove(waker)
        if not wakers:
            del self._wakers[token]


def _nothing() -> None:
    """Do nothing: the callback was called already."""


def _call(wake: Wake, pause: Pause) -> None:
    try:
        wake(pause)
    except Exception:
        logger.exception("pause %s: a wake-up failed", pause.token)
