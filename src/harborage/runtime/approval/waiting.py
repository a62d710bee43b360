"""One call that waits at a gate: the future it awaits, its timer, and its callback at the coordinator.

No task of its own: the coordinator and the clock set the future. Decisions of other processes are found by polling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING

from harborage.runtime.approval.errors import GateClosedError
from harborage.runtime.pauses import Pause, PauseCoordinator

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers
    from harborage.runtime.approval.model import ApprovalRequest

RECHECK_S = 30.0

# A timer may fire a moment before the coordinator's clock agrees that the deadline has passed.
_LOOK_AGAIN = timedelta(milliseconds=50)


class _Signal(Enum):
    DUE = auto()
    CLOSED = auto()


class WaitingCall:
    """A call and the pause it waits for, from the moment it is made until `close`.

    `pause` is as it was opened. `is_being_answered` refuses a second answer while the first one is pending;
    `is_idle` says that nothing is under way that would be lost if the wait were broken off. `objection` says why other
    arguments than the call's own cannot be used.
    """

    def __init__(
        self,
        request: ApprovalRequest,
        pause: Pause,
        coordinator: PauseCoordinator,
        clock: Timers,
        *,
        recheck_s: float = RECHECK_S,
    ) -> None:
        self.request = request
        self.pause = pause
        self.token = pause.token
        self.is_idle = False
        self.is_being_answered = False
        self.objection: Callable[[bytes], str] | None = None
        self._recheck = timedelta(seconds=recheck_s)
        self._deadline = pause.deadline
        self._coordinator = coordinator
        self._clock = clock
        self._signal: asyncio.Future[Pause | _Signal] = asyncio.get_running_loop().create_future()
        self._timer: Timer | None = None
        self._unlisten = coordinator.on_resolved(pause.token, self._set_signal)
        self._arm(timedelta())

    def close(self) -> None:
        """Remove the callback and cancel the timer."""
        unlisten, self._unlisten = self._unlisten, _nothing
        unlisten()
        if self._timer is not None:
            self._timer.cancel()

    def turn_away(self) -> None:
        """End the wait without an answer, because the gate closes."""
        self._set_signal(_Signal.CLOSED)

    async def outcome(self) -> Pause:
        """The settled pause, settled here if its deadline passes first.

        Raises:
            GateClosedError: the gate closed first; the pause stays open.
        """
        while True:
            self.is_idle = True
            try:
                signal = await self._signal
            finally:
                self.is_idle = False
            match signal:
                case Pause():
                    return signal
                case _Signal.CLOSED:
                    raise GateClosedError()
                case _Signal.DUE:
                    self._signal = asyncio.get_running_loop().create_future()
                    pause = await self._coordinator.expire(self.token)
                    if not pause.is_paused:
                        return pause
                    self._arm(_LOOK_AGAIN)

    def _arm(self, least: timedelta) -> None:
        """Check again at the deadline, but not sooner than after `least`; and at intervals before it."""
        delay = self._recheck
        if self._deadline is not None:
            delay = min(delay, max(least, self._deadline - self._clock.now()))
        self._timer = self._clock.call_later(delay.total_seconds(), lambda: self._set_signal(_Signal.DUE))

    def _set_signal(self, signal: Pause | _Signal) -> None:
        # The first signal wins. One that comes between DUE and its handling is read from the coordinator.
        if not self._signal.done():
            self._signal.set_result(signal)


def _nothing() -> None:
    """Do nothing: the callback was removed."""
