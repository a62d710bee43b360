"""One call that waits at a gate: the future it waits on, its timer, and its ear at the coordinator.

No task of its own and no polling: the coordinator and the clock set the future, the call awaits it.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from enum import Enum, auto

from harborage.clock import Timer, Timers
from harborage.runtime.approval.errors import GateClosedError
from harborage.runtime.approval.model import ApprovalRequest
from harborage.runtime.pauses import Pause, PauseCoordinator

__all__ = ["WaitingCall"]

# A timer may fire a moment before the coordinator's clock agrees that the deadline has passed.
_LOOK_AGAIN = timedelta(milliseconds=50)


class _Signal(Enum):
    DUE = auto()
    CLOSED = auto()


class WaitingCall:
    """A call and the pause it waits for, from the moment it is made until `close`.

    `edited` are the arguments that an approver puts in place of the call's own. `is_being_answered` keeps a second
    answer away while the first one is on its way.
    """

    def __init__(self, request: ApprovalRequest, pause: Pause, coordinator: PauseCoordinator, clock: Timers) -> None:
        self.request = request
        self.token = pause.token
        self.edited: bytes | None = None
        self.is_being_answered = False
        self._coordinator = coordinator
        self._clock = clock
        self._signal: asyncio.Future[Pause | _Signal] = asyncio.get_running_loop().create_future()
        self._timer: Timer | None = None
        self._unlisten = coordinator.on_resolved(pause.token, self._tell)
        if pause.deadline is not None:
            self._arm(pause.deadline - clock.now())

    def close(self) -> None:
        """Stop listening and call the timer off."""
        self._unlisten()
        if self._timer is not None:
            self._timer.cancel()

    def turn_away(self) -> None:
        """End the wait without an answer, because the gate closes."""
        self._tell(_Signal.CLOSED)

    async def outcome(self) -> Pause:
        """The settled pause, settled here if its deadline passes first.

        Raises:
            GateClosedError: the gate closed first; the pause stays open.
        """
        while True:
            signal = await self._signal
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

    def _arm(self, delay: timedelta) -> None:
        self._timer = self._clock.call_later(delay.total_seconds(), lambda: self._tell(_Signal.DUE))

    def _tell(self, signal: Pause | _Signal) -> None:
        # The first signal wins. One that comes between DUE and its handling is found by asking the coordinator.
        if not self._signal.done():
            self._signal.set_result(signal)
