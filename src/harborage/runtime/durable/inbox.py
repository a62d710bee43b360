"""The inbox of a run: any caller enqueues controls, and the loop that owns the run takes them out, in order.

An inbox checks controls and keeps them; it never applies one. Planners do not see it. It is used on one event loop and
needs no locks. A control that it refuses is audited by one `control.rejected` event, which has texts of our own only:
the caller's payload was refused, so none of it is quoted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum
from functools import partial

from msgspec import UNSET

from harborage import codec
from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.events import ControlRejectedPayload, Event, EventBus, EventType, Triple
from harborage.identity import Identity, IdentityError, IdentityRequiredError, Quadruple, require_quadruple
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope, check_scope
from harborage.runtime.loop.errors import (
    InboxExistsError,
    InboxNotFoundError,
    InvalidScopeError,
    PayloadInvalidError,
    ScopeMismatchError,
    SteeringError,
    UnknownControlTypeError,
)
from harborage.runtime.loop.payload import validate_payload

_TYPES = frozenset(ControlType)
_SCOPES = frozenset(Scope)


class RejectionReason(StrEnum):
    """The reason in the event of a refused control."""

    UNKNOWN_TYPE = "unknown_type"
    SCOPE_MISMATCH = "scope_mismatch"
    IDENTITY_INVALID = "identity_invalid"
    PAYLOAD_INVALID = "payload_invalid"


def rejection_reason(error: BaseException) -> RejectionReason:
    """Return the reason for `error`, or for its cause if the error itself has none."""
    link: BaseException | None = error
    while link is not None:
        match link:
            case UnknownControlTypeError():
                return RejectionReason.UNKNOWN_TYPE
            case ScopeMismatchError() | InvalidScopeError():
                return RejectionReason.SCOPE_MISMATCH
            case IdentityError():
                return RejectionReason.IDENTITY_INVALID
            case _:
                link = link.__cause__
    return RejectionReason.PAYLOAD_INVALID


async def emit_rejection(
    bus: EventBus | None,
    run_quadruple: Quadruple,
    type: ControlType | str,
    caller_scope: Scope | str,
    error: BaseException | None,
    *,
    by: Identity | None = None,
    event_id: str = "",
) -> Event:
    """Publish `control.rejected` for the run, and return the event as it was published.

    A type or scope that is not one of ours is reported as the empty string. `by` sent the control, under `event_id`.

    Raises:
        SteeringError: there is no bus, or no error to report.
        EventError: the bus refused the event; whether that fails the request is the caller's decision.
    """
    if bus is None:
        raise SteeringError("cannot report a refused control: no event bus was given")
    if error is None:
        raise SteeringError("cannot report a refused control: no error was given")
    payload = ControlRejectedPayload(
        type=str(type) if type in _TYPES else "",
        reason=str(rejection_reason(error)),
        caller_scope=str(caller_scope) if caller_scope in _SCOPES else "",
        by=UNSET if by is None else Triple.of(by),
        event_id=event_id or UNSET,
    )
    return await bus.publish(Event(type=EventType.CONTROL_REJECTED, identity=run_quadruple, payload=payload))


_logger = logging.getLogger(__name__)

_Listener = Callable[[ControlEvent], None]


class Inbox:
    """The controls that one run has not yet taken, first in first out. `InboxRegistry.open` makes one.

    Never: drops a control while the run lives, or returns one twice.
    """

    __slots__ = ("_clock", "_is_retired", "_listeners", "_queue", "_run", "_seen", "_waiters")

    def __init__(self, run: Quadruple, clock: Clock = SYSTEM_CLOCK) -> None:
        self._run = run
        self._clock = clock
        self._queue: list[ControlEvent] = []
        self._is_retired = False
        # Most runs are never steered, so these three are made at their first use.
        self._seen: set[str] | None = None
        self._waiters: list[asyncio.Future[None]] | None = None
        self._listeners: dict[object, _Listener] | None = None

    @property
    def identity(self) -> Quadruple:
        """The run that this inbox belongs to."""
        return self._run

    @property
    def is_empty(self) -> bool:
        """Whether no control is queued; a cheap check before `drain`."""
        return not self._queue

    def peek(self) -> tuple[ControlEvent, ...]:
        """Return the queued controls, oldest first, without taking them."""
        return tuple(self._queue)

    @property
    def oldest(self) -> ControlEvent | None:
        """Return the oldest queued control; None if there is none."""
        return self._queue[0] if self._queue else None

    def __len__(self) -> int:
        return len(self._queue)

    def enqueue(self, event: ControlEvent) -> bool:
        """Check a control and append it, stamped with the time; return False if its `event_id` came before.

        A duplicate is accepted, but not queued again, in any state of the first one. A refused control leaves its
        `event_id` free.

        Raises:
            IdentityRequiredError: the control's identity is incomplete, or is that of another run.
            PayloadInvalidError: `enqueued_at` is filled in already, or the payload breaks a bound.
            UnknownControlTypeError, InvalidScopeError, ScopeMismatchError: as `check_scope`.
            UnsupportedPayloadValueError: as `validate_payload`.
            InboxNotFoundError: the run has ended.
        """
        self.check(event)
        if event.event_id:
            if self._seen is None:
                self._seen = set()
            elif event.event_id in self._seen:
                return False
            self._seen.add(event.event_id)
        stamped = ControlEvent(
            type=ControlType(event.type),
            identity=self._run,
            caller_scope=Scope(event.caller_scope),
            caller_tenant=event.caller_tenant,
            # A copy: a later change of the caller's payload does not change the checked one.
            payload=None if event.payload is None else codec.to_plain(event.payload, "payload"),
            event_id=event.event_id,
            enqueued_at=self._clock.now(),
            by=event.by,
        )
        self._queue.append(stamped)
        self._wake()
        self._call_listeners(stamped)
        return True

    def admit(self, event: ControlEvent) -> None:
        """Append a control that was checked and stamped when it was sent, in this or another process.

        Raises:
            InboxNotFoundError: the run has ended.
        """
        if self._is_retired:
            raise InboxNotFoundError(run=self._run)
        self._queue.append(event)
        self._wake()
        self._call_listeners(event)

    def drain(self) -> list[ControlEvent]:
        """Take all queued controls, oldest first; the list is the caller's own.

        Raises:
            InboxNotFoundError: the run has ended.
        """
        if self._is_retired:
            raise InboxNotFoundError(run=self._run)
        if not self._queue:
            return []
        queue, self._queue = self._queue, []
        return queue

    def take(self, wanted: Callable[[ControlEvent], bool]) -> list[ControlEvent]:
        """Take the queued controls for which `wanted` is true, oldest first; the others stay, in order.

        Raises:
            InboxNotFoundError: the run has ended.
        """
        if self._is_retired:
            raise InboxNotFoundError(run=self._run)
        taken: list[ControlEvent] = []
        left: list[ControlEvent] = []
        for event in self._queue:
            (taken if wanted(event) else left).append(event)
        if taken:
            self._queue = left
        return taken

    async def wait_for_event(self) -> None:
        """Return once a control is queued, at once if one is, without taking it. Any number of callers may wait.

        Raises:
            InboxNotFoundError: the run has ended, before or meanwhile.
        """
        while not self._queue:
            if self._is_retired:
                raise InboxNotFoundError(run=self._run)
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._forget(waiter)

    def on_enqueue(self, listener: Callable[[ControlEvent], None]) -> Callable[[], None]:
        """Call `listener` with every control right after it is queued, until the returned function is called.

        A listener must not raise: the control is queued already, so its error is only logged.

        Raises:
            InboxNotFoundError: the run has ended.
        """
        if self._is_retired:
            raise InboxNotFoundError(run=self._run)
        if self._listeners is None:
            self._listeners = {}
        token = object()
        self._listeners[token] = listener
        return partial(self._unlisten, token)

    def retire(self) -> None:
        """End the inbox: queued controls are dropped, waiters get `InboxNotFoundError`. Called by its registry."""
        self._is_retired = True
        self._queue = []
        self._seen = None
        self._listeners = None
        self._wake()

    def check(self, event: ControlEvent) -> None:
        """Accept a control that could be queued; nothing is queued.

        Raises:
            Exception: as `enqueue`.
        """
        require_quadruple(event.identity, "control")
        if event.identity != self._run:
            raise IdentityRequiredError("control: its identity is that of another run; look up that run's inbox")
        if event.enqueued_at is not None:
            raise PayloadInvalidError("control: the inbox stamps enqueued_at; leave it None", bound="enqueued_at")
        check_scope(event.type, event.caller_scope, event.caller_tenant, self._run)
        validate_payload(event.payload)
        if self._is_retired:
            raise InboxNotFoundError(run=self._run)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def _forget(self, waiter: asyncio.Future[None]) -> None:
        if self._waiters is not None and waiter in self._waiters:
            self._waiters.remove(waiter)

    def _call_listeners(self, event: ControlEvent) -> None:
        for listener in tuple(self._listeners.values()) if self._listeners else ():
            try:
                listener(event)
            except Exception:
                _logger.exception("a listener of an inbox failed", extra={"action": "control.listener_failed"})

    def _unlisten(self, token: object) -> None:
        if self._listeners is not None:
            self._listeners.pop(token, None)


class InboxRegistry:
    """The live inboxes of a process, one a run, found by the run's full identity."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._inboxes: dict[Quadruple, Inbox] = {}

    def __len__(self) -> int:
        return len(self._inboxes)

    def open(self, run: Quadruple) -> Inbox:
        """Open a new inbox for `run`; end it with `retire`.

        Raises:
            IdentityRequiredError: a part of `run` is empty.
            InboxExistsError: the run has one already.
        """
        require_quadruple(run, "open an inbox")
        if run in self._inboxes:
            raise InboxExistsError(run=run)
        inbox = Inbox(run, self._clock)
        self._inboxes[run] = inbox
        return inbox

    def lookup(self, run: Quadruple) -> Inbox:
        """Return the live inbox of `run`.

        Raises:
            IdentityRequiredError: a part of `run` is empty.
            InboxNotFoundError: the run has none: it never started here, or it has ended.
        """
        require_quadruple(run, "look up an inbox")
        inbox = self._inboxes.get(run)
        if inbox is None:
            raise InboxNotFoundError(run=run)
        return inbox

    def retire(self, run: Quadruple) -> None:
        """End the inbox of `run`; its queued controls are dropped, because the run is over.

        Raises:
            IdentityRequiredError: a part of `run` is empty.
            InboxNotFoundError: the run has none; a second retire is one such case.
        """
        require_quadruple(run, "retire an inbox")
        inbox = self._inboxes.pop(run, None)
        if inbox is None:
            raise InboxNotFoundError(run=run)
        inbox.retire()
