"""The events that a running run publishes: stored by the commits of its entries, and delivered to subscribers after.

So no event is delivered of an entry that was not stored, and none is missing. The events of a refused commit are
dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from harborage.errors import HarborageError, error_reason
from harborage.events import Event, LLMCostRecordedPayload
from harborage.runtime.durable.journal import Record
from harborage.store import NewEvent

if TYPE_CHECKING:
    from harborage.events import RecordBus
    from harborage.identity import Quadruple
    from harborage.runtime.loop.controls import ControlEvent
    from harborage.store import Committed


_MICRO: Final = 1_000_000
_CURRENCY: Final = "USD"

_log = logging.getLogger(__name__)


class BufferedEvent(msgspec.Struct, frozen=True):
    """A published event, and the form in which it is stored; `consumes` is the number of the control whose outcome it
    is, 0 for none."""

    event: Event
    data: NewEvent
    consumes: int = 0


class Used(NamedTuple):
    """What calls of a model used: tokens, and millionths of a US dollar."""

    tokens: int = 0
    cost: int = 0

    def plus(self, other: Used) -> Used:
        """Return the sum of both."""
        return Used(self.tokens + other.tokens, self.cost + other.cost)


NOTHING_USED: Final = Used()


def used_in(events: Iterable[BufferedEvent]) -> Used:
    """Add up the model calls in these events. A price in another currency is not counted."""
    tokens = cost = 0
    for one in events:
        payload = one.event.payload
        if isinstance(payload, LLMCostRecordedPayload):
            used = payload.usage
            tokens += used.total_tokens or used.prompt_tokens + used.completion_tokens
            if payload.cost.currency == _CURRENCY:
                cost += round(payload.cost.total_cost * _MICRO)
    return Used(max(0, tokens), max(0, cost))


class RunEventBuffer:
    """The events of one running run that are not stored yet, in the order in which they were published.

    `on_added` is called for each new event, `on_flush_needed` when they should be stored now. Events of a step whose
    outcome is not recorded yet can be held back until it is. `hand_out` returns the number of a control that was
    delivered to the run, which these events have to consume from then on; 0 for any other. `used` is what calls of a
    model used that no event tells of, as far as no commit has stored it.
    """

    __slots__ = ("_bus", "_end", "_hand_out", "_held", "_waiting", "on_added", "on_flush_needed", "used")

    def __init__(self, bus: RecordBus, who: Quadruple, hand_out: Callable[[ControlEvent], int]) -> None:
        self._bus = bus
        self._hand_out = hand_out
        self._waiting: list[BufferedEvent] = []
        self._held = 0
        self.used = NOTHING_USED
        self.on_added: Callable[[], None] | None = None
        self.on_flush_needed: Callable[[], None] | None = None
        self._end = bus.attach_run(who, self)

    def __len__(self) -> int:
        """Return how many may be stored now."""
        return len(self._waiting) - self._held

    def add(self, event: Event, data: NewEvent) -> None:
        self._waiting.append(BufferedEvent(event, data))
        if self.on_added is not None:
            self.on_added()

    def add_usage(self, tokens: int, cost: int) -> None:
        self.used = self.used.plus(Used(max(0, tokens), max(0, cost)))

    def usage_stored(self, stored: Used) -> None:
        """Forget what a commit has stored of `used`."""
        self.used = Used(self.used.tokens - stored.tokens, self.used.cost - stored.cost)

    def consume(self, control: ControlEvent) -> None:
        """Mark the last event as the outcome of this control: the commit that stores it consumes the control.

        If the event is dropped, the control is not consumed, and the worker that resumes the run publishes its outcome.
        """
        if self._waiting and not self._waiting[-1].consumes and (number := self._hand_out(control)):
            self._waiting[-1] = replace(self._waiting[-1], consumes=number)

    def flush_soon(self) -> None:
        if self._waiting and self.on_flush_needed is not None:
            self.on_flush_needed()

    def hold(self, is_due: bool) -> None:
        """Hold the last event back if `is_due`, or if one before it is held."""
        if is_due or self._held:
            self._held += 1

    @property
    def is_holding(self) -> bool:
        """Whether events are held back, because the outcome of their step is not recorded yet."""
        return self._held > 0

    def release_held(self) -> None:
        """Release the held events: the outcome of their step is recorded with the next commit."""
        self._held = 0

    def take_ready(self) -> tuple[BufferedEvent, ...]:
        """Remove and return the events that may be stored now, to be stored by one commit."""
        count = len(self)
        ready = tuple(self._waiting[:count])
        del self._waiting[:count]
        return ready

    def put_back(self, events: tuple[BufferedEvent, ...]) -> None:
        """Put back events that were not stored, before those that were published since."""
        self._waiting[:0] = events

    def discard(self) -> None:
        """Drop all events: they belong to entries that were not stored."""
        self._waiting.clear()
        self._held = 0

    def discard_held(self) -> None:
        """Drop the held events: their step has no outcome, and is repeated."""
        del self._waiting[len(self) :]
        self._held = 0

    def deliver(self, events: tuple[BufferedEvent, ...], done: Committed) -> None:
        """Deliver to subscribers the events that a commit has stored."""
        if events:
            self._bus.deliver([one.event for one in events], done)

    def close(self) -> None:
        """Store the remaining events without entries; later ones go to the bus directly. Closing twice does nothing.

        An outcome whose control is not consumed is dropped: the worker that resumes the run publishes it.
        """
        end, self._end = self._end, _do_nothing  # `end` calls `close` again
        end()
        self.on_added = self.on_flush_needed = None
        try:
            self._bus.write([(one.event, one.data) for one in self.take_ready() if not one.consumes])
        except HarborageError as error:
            _log.warning("events: the last events of a run could not be stored: %s", error_reason(error))


def _do_nothing() -> None:
    """Stand for an end that was called already."""


class PublishingRecord(Record, Protocol):
    """A record that stores the run's events together with its entries."""

    @property
    def event_buffer(self) -> RunEventBuffer | None:
        """The events that are not stored yet; None if the bus stores them itself."""
        ...

    def flush_events(self) -> asyncio.Task[None]:
        """Start to store the events without entries; the commit completes even if the run is cut short.

        The task raises RunTakenError or RecordRefusedError if they are not stored.
        """
        ...
