"""Events in tests: a recorder of a bus, and a redactor that always fails."""

from __future__ import annotations

from typing import Any, TypeVar

from harborage.events import (
    AuditAdminScopeUsedPayload,
    BusDroppedPayload,
    Event,
    EventBus,
    Filter,
    Payload,
    RedactionFailedError,
)

P = TypeVar("P", bound=Payload)
_EVERYTHING = Filter(admin=True)


class EventRecorder:
    """All events of a bus since the recorder was made, in order: `recorder.types`, `recorder.payloads(...)`.

    Its own admin audit is left out. It reads the bus when a property is read, so a test that publishes more events in
    between than the subscriber buffer holds must give the bus a larger one; the recorder raises instead of losing one.
    """

    def __init__(self, bus: EventBus, filter: Filter = _EVERYTHING) -> None:
        self._subscription = bus.subscribe(filter)
        self._events: list[Event] = []
        self._awaits_audit = filter.admin

    @property
    def events(self) -> list[Event]:
        """The events so far.

        Raises:
            AssertionError: the recorder lost some.
        """
        for event in self._subscription.drain():
            self._take(event)
        return list(self._events)

    @property
    def types(self) -> list[str]:
        """The types of the events so far."""
        return [str(event.type) for event in self.events]

    def payloads(self, kind: type[P]) -> list[P]:
        """Return the payloads of one class so far."""
        return [event.payload for event in self.events if isinstance(event.payload, kind)]

    async def wait_for(self, type: str, count: int = 1) -> Event:
        """Wait for the `count`-th event of a type, and return it.

        Raises:
            AssertionError: the bus closed first.
        """
        while True:
            found = [event for event in self.events if event.type == type]
            if len(found) >= count:
                return found[count - 1]
            try:
                self._take(await anext(self._subscription.events()))
            except StopAsyncIteration:
                raise AssertionError(f"the bus closed after {len(found)} of {count} {type}") from None

    def clear(self) -> None:
        """Drop the events recorded so far."""
        self._subscription.drain()
        self._events.clear()

    def cancel(self) -> None:
        """Stop recording; the recorded events stay."""
        self._subscription.cancel()

    def _take(self, event: Event) -> None:
        payload = event.payload
        if self._awaits_audit and isinstance(payload, AuditAdminScopeUsedPayload):
            # The first audit that an admin gets is always its own.
            self._awaits_audit = False
            return
        if isinstance(payload, BusDroppedPayload) and payload.subscriber_id == self._subscription.id:
            raise AssertionError("EventRecorder lost events: raise BusConfig.subscriber_buffer_size")
        self._events.append(event)


class FailingRedactor:
    """Refuses everything."""

    def redact(self, value: Any) -> Any:
        """Never returns.

        Raises:
            RedactionFailedError: always.
        """
        raise RedactionFailedError("audit: redaction failed: this redactor refuses everything", rule="failing")
