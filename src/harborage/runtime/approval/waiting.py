"""One call that waits at a gate: the future it waits on, its timer, and its ear at the coordinator.

No task of its own: the coordinator and the clock set the future, the call awaits it. What another process decided is
found by looking again now and then.
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

__all__ = ["RECHECK_S", "WaitingCall"]

RECHECK_S = 30.0

# A timer may fire a moment before the coordinator's clock agrees that the deadline has passed.
_LOOK_AGAIN = timedelta(milliseconds=50)


class _Signal(Enum):
    DUE = auto()
    CLOSED = auto()


class WaitingCall:
    """A call and the pause it waits for, from the moment it is made until `close`.

    `pause` is as it was opened. `is_being_answered` keeps a second answer away while the first one is on its way;
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
        self._unlisten = coordinator.on_resolved(pause.token, self._tell)
        self._arm(timedelta())

    def close(self) -> None:
        """Stop listening and call the timer off; what it listened with knows of this."""
        unlisten, self._unlisten = self._unlisten, _nothing
        unlisten()
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
        """Look again at the deadline, but not sooner than after `least`; and now and then before it."""
        delay = self._recheck
        if self._deadline is not None:
            delay = min(delay, max(least, self._deadline - self._clock.now()))
        self._timer = self._clock.call_later(delay.total_seconds(), lambda: self._tell(_Signal.DUE))

    def _tell(self, signal: Pause | _Signal) -> None:
        # The first signal wins. One that comes between DUE and its handling is found by asking the coordinator.
        if not self._signal.done():
            self._signal.set_result(signal)


def _nothing() -> None:
    """Calls nothing off: it was done."""
