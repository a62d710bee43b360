"""This process as a job of its shell: Ctrl-Z stops it, `fg` lets it go on. This file knows nothing of a terminal."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager

__all__ = ["Job"]


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class Job:
    """Stops this process where its shell says so, and not once the shell has said to go on: it does not say it twice.

    With make between, `fg` may come before Ctrl-Z was acted upon. Python tells both signals together then, the later
    one first; the event loop alone knows their order. So `stop` and `go_on` are for the loop's own signal handlers, and
    `told` is for a handler that is called at once. `aside` gives the terminal back for the length of the stop, `renew`
    sets it up again; while the process `is_away`, the terminal being another's, neither is done.
    """

    def __init__(
        self,
        *,
        aside: Callable[[], AbstractContextManager[object]],
        renew: Callable[[], None],
        is_away: Callable[[], bool],
        stop: Callable[[], None] = _stop,
    ) -> None:
        self._aside = aside
        self._renew = renew
        self._is_away = is_away
        self._halt = stop
        self._is_to_stop = False
        self._is_told = False

    def stop(self) -> None:
        """Ctrl-Z: stop behind all that came with it."""
        self._is_to_stop = True
        asyncio.get_running_loop().call_soon(self._stop)

    def told(self) -> None:
        """The shell says to go on, which the event loop may come to much later."""
        self._is_told = True

    def go_on(self) -> None:
        """Back in the foreground: the shell may have had its terminal although this process never stopped."""
        self._is_told = self._is_to_stop = False
        if not self._is_away():
            self._renew()

    def _stop(self) -> None:
        if self._stops and not self._is_away():
            with self._aside():
                if self._stops:  # giving the terminal back takes a while
                    self._halt()

    @property
    def _stops(self) -> bool:
        return self._is_to_stop and not self._is_told
