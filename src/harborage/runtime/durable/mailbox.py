"""What reaches a run that this worker executes, and which of it interrupts a step.

Controls come through the run's inbox; background results and the deadline come directly. Most wait for the next step
boundary. While a step is in flight, a hard cancel and the deadline interrupt it, and an answer that a call waits for is
passed to that call at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.concurrency import CancelScope
from harborage.runtime.durable.steps import Effect, StepCall, Waiting
from harborage.runtime.loop.arrivals import NOTHING, Arrivals, Hold, Interrupt, Woken
from harborage.runtime.loop.controls import ANSWERS, ControlEvent, ControlType
from harborage.runtime.loop.errors import InboxNotFoundError, RunCancelledError
from harborage.runtime.loop.pauses import Pause, PauseState

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers
    from harborage.concurrency import Crew
    from harborage.planner import BackgroundResult
    from harborage.runtime.durable.inbox import Inbox
    from harborage.runtime.durable.outbox import Outbox
    from harborage.runtime.durable.pauses.coordinator import Coordinator

_TURNS: Final = 8


class Flight(msgspec.Struct, eq=False):
    """A step in flight that can be interrupted."""

    scope: CancelScope
    effect: Effect
    call: StepCall


AnswerRouter = Callable[[ControlEvent], Coroutine[Any, Any, None] | None]
"""Returns the work of applying an answer to the call that waits for it; None if no call waits under its token."""


class Mailbox:
    """The arrivals of one run, while this worker executes it; the worker closes it."""

    __slots__ = (
        "_applying",
        "_background",
        "_clock",
        "_consumed",
        "_crew",
        "_deadline",
        "_expected",
        "_flights",
        "_hold",
        "_inbox",
        "_is_past_deadline",
        "_on_hard_cancel",
        "_parked",
        "_pauses",
        "_recheck_s",
        "_refusal",
        "_route",
        "_unlisten",
        "_until",
        "outbox",
        "reason",
        "tool_calls",
        "was_cancelled",
    )

    def __init__(
        self,
        inbox: Inbox,
        pauses: Coordinator,
        crew: Crew,
        *,
        clock: Timers,
        deadline: datetime | None = None,
        recheck_s: float = 30.0,
    ) -> None:
        self._inbox = inbox
        self._pauses = pauses
        self._crew = crew
        self._clock = clock
        self._route: AnswerRouter | None = None
        self._on_hard_cancel: Callable[[], None] | None = None
        self._recheck_s = recheck_s
        self._background: list[BackgroundResult] = []
        self._expected = 0
        self._consumed: set[str] = set()
        self._flights: list[Flight] = []
        self._applying: dict[asyncio.Task[Any], ControlEvent] = {}
        self._parked: asyncio.Future[None] | None = None
        self._is_past_deadline = False
        self._refusal: Exception | None = None
        self.outbox: Outbox | None = None
        self.reason: Interrupt | None = None
        self.was_cancelled = False
        self.tool_calls = 0
        self._hold: Hold | None = None
        self._until = deadline
        self._unlisten = inbox.on_enqueue(self._arrive)
        self._deadline: Timer | None = None
        if deadline is not None:
            self._arm(deadline)
        for control in inbox.peek():
            # It came before this worker claimed the run, and interrupts the step that an earlier worker left in flight.
            if control.type is ControlType.CANCEL:
                self._accept_cancel(control)

    @property
    def is_parked(self) -> bool:
        """Whether the run waits on a pause."""
        return self._hold is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the run is parked, or a step is in flight that may take long."""
        return self._hold is not None or bool(self._flights)

    @property
    def waiting(self) -> Waiting | None:
        """What the whole run waits for, with no other work in flight; None while it works or has something to apply.

        Any arrival ends a parked wait. Few controls and no background outcome end a step that waits; the others are
        applied at the next boundary, by the worker that executes the run then.
        """
        if self._is_past_deadline or self._applying:
            return None
        if self.outbox is not None and self.outbox.is_busy:
            return None  # a step is about to begin: a run that left now would record an intent without its step
        if self._hold is not None:
            # A run that reads its pause works: interrupted each time, it would never see that the pause was resolved.
            if self._parked is None or self._inbox or self._background:
                return None
            return Waiting(earliest(self._hold.until, self._until))
        awaited: list[Waiting] = []
        for flight in self._flights:
            rule = flight.effect.waits_for
            waiting = None if rule is None else rule(flight.call)
            if waiting is None or self.find_interrupt(flight.effect, flight.call) is not None:
                return None
            awaited.append(waiting)
        if not awaited:
            return None
        return Waiting(earliest(self._until, *(one.until for one in awaited)), next(iter(_runs(awaited)), ""))

    @property
    def has_arrivals(self) -> bool:
        """Whether `take` would return something."""
        return bool(self._has_mail() or self._background or self._is_past_deadline)

    def connect(self, route: AnswerRouter, on_hard_cancel: Callable[[], None] | None = None) -> None:
        """Pass answers that arrive while a step is in flight to `route`, and call `on_hard_cancel` on a hard cancel."""
        self._route = route
        self._on_hard_cancel = on_hard_cancel

    def check_open(self, control: ControlEvent) -> None:
        """Accept a control, unless it is an answer to a cancelled run, whose calls are not made any more.

        Raises:
            RunCancelledError: it is one.
        """
        if self.was_cancelled and control.type in ANSWERS:
            raise RunCancelledError(type=str(control.type), run=self._inbox.identity)

    def refuse(self, error: Exception) -> None:
        """Stop the run at its next step boundary, where `take` raises this error."""
        self._refusal = error
        self._wake()

    def take(self) -> Arrivals:
        """Return all arrivals since the last call; the object `NOTHING` itself if there are none.

        Raises:
            Exception: the error that `refuse` was given.
        """
        if self._refusal is not None:
            raise self._refusal
        if not (self._has_mail() or self._background or self._is_past_deadline):
            return NOTHING
        background, self._background = tuple(self._background), []
        is_past, self._is_past_deadline = self._is_past_deadline, False
        controls = self._inbox.take(self._is_for_loop) if self._applying else self._inbox.drain()
        if self._consumed:
            # A control that was consumed before earlier ones is delivered again with them.
            controls = [one for one in controls if one.event_id not in self._consumed]
            if not (controls or background or is_past):
                return NOTHING
        return Arrivals(controls=tuple(controls), background=background, is_past_deadline=is_past)

    def _has_mail(self) -> bool:
        if self._refusal is not None:
            return True
        return bool(self._inbox) and (not self._applying or any(map(self._is_for_loop, self._inbox.peek())))

    def _is_for_loop(self, control: ControlEvent) -> bool:
        """Return whether a queued control is for the loop, and not being applied to a call."""
        return not any(control is one for one in self._applying.values())

    def mark_consumed(self, controls: Iterable[ControlEvent]) -> None:
        """Note the controls that the run consumed before this worker claimed it: a cancel among them still holds, and
        one that is delivered again is dropped."""
        for control in controls:
            self.was_cancelled = self.was_cancelled or control.type is ControlType.CANCEL
            if control.event_id:
                self._consumed.add(control.event_id)

    @property
    def is_expecting(self) -> bool:
        """Whether the outcome of a background group may come at any time."""
        return self._expected > 0

    def expect(self) -> None:
        """Announce an outcome of a background group; `deliver` follows, with None if there is none."""
        self._expected += 1

    async def yield_for_arrivals(self) -> None:
        """Let other tasks run until something has arrived, for a few turns of the event loop at most.

        Reading the outcome of an ended group takes that many turns.
        """
        for _ in range(_TURNS):
            if self.has_arrivals:
                return
            await asyncio.sleep(0)

    def deliver(self, result: BackgroundResult | None) -> None:
        """Queue the outcome of a background group for the next boundary."""
        self._expected = max(0, self._expected - 1)
        if result is not None:
            self._background.append(result)
            self._wake()

    def find_interrupt(self, effect: Effect, call: StepCall) -> Interrupt | None:
        """Return why a step in flight must stop: a hard cancel or the deadline; for a step that only waits, also a soft
        cancel or a requested pause. None if it may continue."""
        if effect.is_interruptible and self.reason is not None:
            return self.reason
        if self.was_cancelled and effect.yields(call):
            return Interrupt.SOFT_CANCEL
        return Interrupt.PAUSE if effect.yields_to_pause and self._is_pause_requested() else None

    def find_start_blocker(self, effect: Effect, call: StepCall) -> Interrupt | None:
        """Return why a step must not begin, or None: what would interrupt it, or any cancel if it has effects."""
        if self.reason is None and not self.was_cancelled and not effect.yields_to_pause:
            return None  # nearly every step
        reason = self.find_interrupt(effect, call)
        if reason is None and effect.acts:
            reason = self.reason
            if reason is None and self.was_cancelled:
                reason = Interrupt.SOFT_CANCEL
        return reason

    def _is_pause_requested(self) -> bool:
        """Return whether a PAUSE waits for the next boundary."""
        return any(
            control.type is ControlType.PAUSE and control.event_id not in self._consumed
            for control in self._inbox.peek()
        )

    def enter(self, scope: CancelScope, effect: Effect, call: StepCall) -> Flight:
        """Register a step in flight; pass the result to `leave` when it has ended."""
        flight = Flight(scope, effect, call)
        self._flights.append(flight)
        return flight

    def begin_wait(self) -> None:
        """Note that a step in flight only waits from now on; a cancel that has arrived interrupts it."""
        if self.was_cancelled:
            self._interrupt(Interrupt.SOFT_CANCEL)

    def leave(self, flight: Flight) -> None:
        """Remove a step that is no longer in flight."""
        self._flights.remove(flight)

    async def park(self, hold: Hold) -> Woken:
        """Wait for a control, the answer to the pause, its deadline or the run's; costs one future and two timers.

        The pause is read again at intervals, so that an answer through another process wakes the run too.
        """
        resolved: list[Pause] = []

        def wake(pause: Pause) -> None:
            resolved.append(pause)
            self._wake()

        unlisten = self._pauses.on_resolved(hold.token, wake)
        self._hold = hold
        try:
            while True:
                if self._is_past_deadline:
                    return Woken(is_past_deadline=True, at=self._clock.now())
                resolved.clear()
                pause = await self._pauses.expire(hold.token)
                if pause.state is PauseState.RESUMED:
                    return woken_by(pause)
                if resolved:
                    continue  # resolved after the store was read, and before this task could be woken
                self._hold = held = Hold(hold.token, earliest(hold.until, pause.deadline))
                if self._has_mail() or self._background:
                    return Woken(at=self._clock.now())
                await self._sleep(held.until)
        finally:
            self._hold = None
            unlisten()

    async def _sleep(self, until: datetime | None) -> None:
        self._parked = asyncio.get_running_loop().create_future()
        delay_s = self._recheck_s
        if until is not None:
            delay_s = min(delay_s, max(0.0, (until - self._clock.now()).total_seconds()))
        timer = self._clock.call_later(delay_s, self._wake)
        try:
            if not (self._has_mail() or self._background or self._is_past_deadline):
                await self._parked
        finally:
            timer.cancel()
            self._parked = None

    async def wait_for_message(self, until: datetime | None) -> bool:
        """Wait until the user has sent the run a message that it has not read; False if the time comes first."""
        while not any(self._is_unread_message(control) for control in self._inbox.peek()):
            left_s = None if until is None else (until - self._clock.now()).total_seconds()
            if left_s is not None and left_s <= 0:
                return False
            self._parked = asyncio.get_running_loop().create_future()
            timer = None if left_s is None else self._clock.call_later(left_s, self._wake)
            try:
                await self._parked
            finally:
                self._parked = None
                if timer is not None:
                    timer.cancel()
        return True

    def _is_unread_message(self, control: ControlEvent) -> bool:
        return control.type is ControlType.USER_MESSAGE and control.event_id not in self._consumed

    def route_queued_answers(self) -> None:
        """Pass on the answers that were queued before a call waited for them; called when a call begins to wait."""
        if self.outbox is not None:
            self.outbox.start_flush()
        for control in self._inbox.peek():
            if control.type in ANSWERS and self._is_for_loop(control):
                self._apply_answer(control)

    async def wait_for_answers(self) -> None:
        """Wait until every answer that was passed to a call has been applied, or has failed."""
        while self._applying:
            await asyncio.wait(set(self._applying))

    def close(self) -> None:
        """Remove its callbacks and timers; the inbox itself stays open, and belongs to its registry."""
        outbox, self.outbox = self.outbox, None
        if outbox is not None:
            outbox.close()
        self._route = self._on_hard_cancel = None
        self._unlisten()
        if self._deadline is not None:
            self._deadline.cancel()

    def _arrive(self, control: ControlEvent) -> None:
        match control.type:
            case ControlType.CANCEL:
                self._accept_cancel(control)
            case ControlType.PAUSE:
                self._interrupt(Interrupt.PAUSE)
            case _ if control.type in ANSWERS and self._apply_answer(control):
                return
            case _:
                pass
        self._wake()

    def _accept_cancel(self, cancel: ControlEvent) -> None:
        self.was_cancelled = True
        is_hard = (cancel.payload or {}).get("hard") is True
        self._interrupt(Interrupt.HARD_CANCEL if is_hard else Interrupt.SOFT_CANCEL)
        if is_hard and self._on_hard_cancel is not None:
            self._on_hard_cancel()

    def _apply_answer(self, control: ControlEvent) -> bool:
        # After a cancel the call that waits is being interrupted: an approval would have no effect.
        work = self._route(control) if self._route is not None and not self.was_cancelled else None
        if work is None:
            return False
        # The control stays queued until it is applied, so that it is not lost if the process dies meanwhile.
        task = self._crew.start(self._finish_answer(work, control), "approval")
        self._applying[task] = control
        task.add_done_callback(partial(self._remove_answer, work))
        return True

    async def _finish_answer(self, work: Coroutine[Any, Any, None], control: ControlEvent) -> None:
        await work
        # No commit may come between: one with the outcome but without the control would have it applied again.
        if self.outbox is not None and (buffer := self.outbox.event_buffer) is not None:
            buffer.consume(control)

    def _remove_answer(self, work: Coroutine[Any, Any, None], task: asyncio.Task[Any]) -> None:
        work.close()  # a coroutine that was cancelled before it began would be reported as never awaited
        control = self._applying.pop(task)
        if not task.cancelled():
            with suppress(InboxNotFoundError):  # the run is over
                self._inbox.take(lambda queued: queued is control)

    def _interrupt(self, reason: Interrupt) -> None:
        for_all = reason in {Interrupt.HARD_CANCEL, Interrupt.DEADLINE}
        if for_all and self.reason is None:
            self.reason = reason
        for flight in self._flights:
            if self.find_interrupt(flight.effect, flight.call) is not None:
                flight.scope.cancel()

    def _arm(self, deadline: datetime) -> None:
        left_s = (deadline - self._clock.now()).total_seconds()
        if left_s > 0:
            self._deadline = self._clock.call_later(left_s, self._expire)
        else:
            # A timer would come only after the run's first steps.
            self._expire()

    def _expire(self) -> None:
        self._is_past_deadline = True
        self._interrupt(Interrupt.DEADLINE)
        self._wake()

    def _wake(self) -> None:
        if self._parked is not None and not self._parked.done():
            self._parked.set_result(None)


def earliest(*times: datetime | None) -> datetime | None:
    """Return the first of these times, None for none."""
    return min((time for time in times if time is not None), default=None)


def _runs(awaited: Iterable[Waiting]) -> Iterable[str]:
    return (one.run_id for one in awaited if one.run_id)


def woken_by(pause: Pause) -> Woken:
    """Return why a run resumes that was parked on this resolved pause."""
    return Woken(decision=pause.decision, payload=pause.payload, at=pause.resumed_at)
