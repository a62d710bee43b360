"""What a run publishes while it is carried: kept by the commits that keep its entries, and told to readers after them.

So nothing is told that did not happen, and nothing happens untold. What a refused commit would have kept is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from harborage.errors import HarborageError, error_reason
from harborage.runtime.durable.journal import Record

if TYPE_CHECKING:
    from harborage.events import Event, RecordBus
    from harborage.identity import Quadruple
    from harborage.runtime.loop.controls import ControlEvent
    from harborage.store import Committed, NewEvent

_log = logging.getLogger(__name__)


class BufferedEvent(NamedTuple):
    """An event that was published, and what is kept of it; `consumes` is the number of the control, if any, that had
    its outcome with this."""

    event: Event
    data: NewEvent
    consumes: int = 0


class RunEventBuffer:
    """The events of one carried run that are not kept yet, in the order in which they were published.

    `listener` hears of each that comes, `hastener` of those that are to be kept now. Those that belong to a step whose
    outcome is still to be noted can be held back until it is. `hand_out` gives the number of a control that the run
    was handed, and then counts on the news for it to be consumed; 0 for any other.
    """

    __slots__ = ("_bus", "_end", "_hand_out", "_held", "_waiting", "hastener", "listener")

    def __init__(self, bus: RecordBus, who: Quadruple, hand_out: Callable[[ControlEvent], int]) -> None:
        self._bus = bus
        self._hand_out = hand_out
        self._waiting: list[BufferedEvent] = []
        self._held = 0
        self.listener: Callable[[], None] | None = None
        self.hastener: Callable[[], None] | None = None
        self._end = bus.attach_run(who, self)

    def __len__(self) -> int:
        """How many may be kept now."""
        return len(self._waiting) - self._held

    def add(self, event: Event, data: NewEvent) -> None:
        self._waiting.append(BufferedEvent(event, data))
        if self.listener is not None:
            self.listener()

    def consume(self, control: ControlEvent) -> None:
        """What was published last is the outcome of this control: the commit that keeps it consumes the control.

        Where that is dropped the control is not consumed, so whoever goes on with the run tells of it.
        """
        if self._waiting and not self._waiting[-1].consumes and (number := self._hand_out(control)):
            self._waiting[-1] = self._waiting[-1]._replace(consumes=number)

    def flush_soon(self) -> None:
        if self._waiting and self.hastener is not None:
            self.hastener()

    def hold(self, is_due: bool) -> None:
        """Hold the last one back if that `is_due`, or if one before it is held."""
        if is_due or self._held:
            self._held += 1

    @property
    def is_holding(self) -> bool:
        """Whether some are held back: what their step did besides is not on record, either."""
        return self._held > 0

    def let_go(self) -> None:
        """The outcome is noted that those held back belong to."""
        self._held = 0

    def leave(self) -> tuple[BufferedEvent, ...]:
        """Hand over those that may be kept now, to be kept by one commit."""
        count = len(self)
        left = tuple(self._waiting[:count])
        del self._waiting[:count]
        return left

    def come_back(self, told: tuple[BufferedEvent, ...]) -> None:
        """Take back what was not kept, before what came since."""
        self._waiting[:0] = told

    def forget(self) -> None:
        """Drop all that wait: they belong to something that did not happen."""
        self._waiting.clear()
        self._held = 0

    def forget_held(self) -> None:
        """Drop those that are held back: their step has no outcome, and is taken again."""
        del self._waiting[len(self) :]
        self._held = 0

    def kept(self, told: tuple[BufferedEvent, ...], done: Committed) -> None:
        """A commit kept these: its readers are told."""
        if told:
            self._bus.deliver([one.event for one in told], done)

    def close(self) -> None:
        """The run is carried no more: what is left, and what comes, is kept by itself. Closing twice does nothing.

        An outcome whose control is not consumed is dropped: whoever goes on with the run tells of it.
        """
        end, self._end = self._end, _nothing  # it knows of this
        end()
        self.listener = self.hastener = None
        try:
            self._bus.write([(one.event, one.data) for one in self.leave() if not one.consumes])
        except HarborageError as error:
            _log.warning("events: what a run published last is not kept: %s", error_reason(error))


def _nothing() -> None:
    """Ends nothing: it was done."""


@runtime_checkable
class PublishingRecord(Record, Protocol):
    """A record that keeps what the run publishes together with its entries."""

    @property
    def news(self) -> RunEventBuffer | None:
        """What waits to be kept; None where it is kept elsewhere."""
        ...

    def tell(self) -> asyncio.Task[None]:
        """Begin to keep what was published by itself, which is done to its end though the run is cut short.

        The task raises RunTakenError or RecordRefusedError where it is not kept.
        """
        ...
