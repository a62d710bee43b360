"""What reaches a run that lives in this process, and what it may interrupt.

Controls come through the run's inbox, background results and the deadline beside it. Between two steps they wait for
the next drain; while a step is in flight a hard cancel and the deadline cut it short, and an answer that a call in
flight waits for is handed over at once: only this run's inbox could ever deliver it.
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
from harborage.runtime.loop.pauses import Pause, PauseCoordinator, PauseState

if TYPE_CHECKING:
    from harborage.clock import Timer, Timers
    from harborage.concurrency import Crew
    from harborage.planner import BackgroundResult
    from harborage.runtime.durable.inbox import Inbox
    from harborage.runtime.durable.outbox import Outbox

_TURNS: Final = 8


class Flight(msgspec.Struct, eq=False):
    """A step in flight that can be cut short."""

    scope: CancelScope
    effect: Effect
    call: StepCall


Bridge = Callable[[ControlEvent], Coroutine[Any, Any, None] | None]
"""Hands an answer to the call that waits for it: the work to do, or None when no call waits under its token."""


class Mailbox:
    """One run's arrivals while it is carried by this process. Closed by whoever carries the run."""

    __slots__ = (
        "_background",
        "_bridge",
        "_clock",
        "_crew",
        "_deadline",
        "_expected",
        "_flights",
        "_handing",
        "_held",
        "_inbox",
        "_is_past_deadline",
        "_on_hard_cancel",
        "_parked",
        "_pauses",
        "_recalled",
        "_recheck_s",
        "_refusal",
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
        pauses: PauseCoordinator,
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
        self._bridge: Bridge | None = None
        self._on_hard_cancel: Callable[[], None] | None = None
        self._recheck_s = recheck_s
        self._background: list[BackgroundResult] = []
        self._expected = 0
        self._recalled: set[str] = set()
        self._flights: list[Flight] = []
        self._handing: dict[asyncio.Task[Any], ControlEvent] = {}
        self._parked: asyncio.Future[None] | None = None
        self._is_past_deadline = False
        self._refusal: Exception | None = None
        self.outbox: Outbox | None = None
        self.reason: Interrupt | None = None
        self.was_cancelled = False
        self.tool_calls = 0
        self._held: Hold | None = None
        self._until = deadline
        self._unlisten = inbox.on_enqueue(self._arrive)
        self._deadline: Timer | None = None
        if deadline is not None:
            self._arm(deadline)
        for control in inbox.peek():
            # It came before the run was carried here, and cuts short what an earlier process left in the middle.
            if control.type is ControlType.CANCEL:
                self._heed(control)

    @property
    def is_parked(self) -> bool:
        """Whether the run waits on a pause."""
        return self._held is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the run is parked, or a step is in flight that may take long."""
        return self._held is not None or bool(self._flights)

    @property
    def waiting(self) -> Waiting | None:
        """What the whole run waits for, with nothing else in flight; None when it is at work, or has cause to be.

        What a pause waits for ends with anything that arrives. A step that waits is ended by few controls, and by none
        of the outcomes of background groups: the others are taken at the boundary behind it, by whichever worker has
        the run then.
        """
        if self._is_past_deadline or self._handing:
            return None
        if self.outbox is not None and self.outbox.is_busy:
            return None  # a step is about to begin: cut short now, its intent would stand there without it
        if self._held is not None:
            # While the coordinator is asked the run is at work: cut short each time, it would never settle its pause.
            if self._parked is None or self._inbox or self._background:
                return None
            return Waiting(earliest(self._held.until, self._until))
        awaited: list[Waiting] = []
        for flight in self._flights:
            rule = flight.effect.waits_for
            waiting = None if rule is None else rule(flight.call)
            if waiting is None or self.interrupt_of(flight.effect, flight.call) is not None:
                return None
            awaited.append(waiting)
        if not awaited:
            return None
        return Waiting(earliest(self._until, *(one.until for one in awaited)), next(iter(_runs(awaited)), ""))

    @property
    def has_arrivals(self) -> bool:
        """Whether something waits to be taken."""
        return bool(self._has_mail() or self._background or self._is_past_deadline)

    def connect(self, bridge: Bridge, on_hard_cancel: Callable[[], None] | None = None) -> None:
        """Hand approvals that arrive in mid step to `bridge`, and tell at once of a hard cancel."""
        self._bridge = bridge
        self._on_hard_cancel = on_hard_cancel

    def check_open(self, control: ControlEvent) -> None:
        """Refuse an answer to a run that is cancelled: nothing that it could allow happens any more.

        Raises:
            RunCancelledError: it is.
        """
        if self.was_cancelled and control.type in ANSWERS:
            raise RunCancelledError(type=str(control.type), run=self._inbox.identity)

    def refuse(self, error: Exception) -> None:
        """Let the run go no further than its next boundary, where `take` raises this."""
        self._refusal = error
        self._wake()

    def take(self) -> Arrivals:
        """All that has arrived; `NOTHING` itself when that is nothing.

        Raises:
            Exception: what `refuse` was given.
        """
        if self._refusal is not None:
            raise self._refusal
        if not (self._has_mail() or self._background or self._is_past_deadline):
            return NOTHING
        background, self._background = tuple(self._background), []
        is_past, self._is_past_deadline = self._is_past_deadline, False
        controls = self._inbox.take(self._is_mine) if self._handing else self._inbox.drain()
        if self._recalled:
            # One that overtook others on their way to a gate is sent again with them, and was taken before.
            controls = [one for one in controls if one.event_id not in self._recalled]
            if not (controls or background or is_past):
                return NOTHING
        return Arrivals(controls=tuple(controls), background=background, is_past_deadline=is_past)

    def _has_mail(self) -> bool:
        if self._refusal is not None:
            return True
        return bool(self._inbox) and (not self._handing or any(map(self._is_mine, self._inbox.peek())))

    def _is_mine(self, control: ControlEvent) -> bool:
        """Whether a queued control is for the loop, and not on its way to a gate."""
        return not any(control is handed for handed in self._handing.values())

    def recall(self, controls: Iterable[ControlEvent]) -> None:
        """Heed what was taken before this process carried the run: a soft cancel still forbids mere waiting, and what
        comes once more is no news."""
        for control in controls:
            self.was_cancelled = self.was_cancelled or control.type is ControlType.CANCEL
            if control.event_id:
                self._recalled.add(control.event_id)

    @property
    def is_expecting(self) -> bool:
        """Whether the outcome of a background group may come at any time."""
        return self._expected > 0

    def expect(self) -> None:
        """The outcome of a background group will come, or `deliver(None)` if it cannot."""
        self._expected += 1

    async def let_arrive(self) -> None:
        """Let others run until something has arrived, or for a few turns of the event loop: reading the outcome of a
        group that has ended takes that long."""
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

    def interrupt_of(self, effect: Effect, call: StepCall) -> Interrupt | None:
        """What cuts a step in flight: a hard cancel or deadline that has come; where it only waits a soft cancel, too,
        or a pause that was asked for."""
        if effect.is_interruptible and self.reason is not None:
            return self.reason
        if self.was_cancelled and effect.yields(call):
            return Interrupt.SOFT_CANCEL
        return Interrupt.PAUSE if effect.yields_to_pause and self._is_to_pause() else None

    def bar_of(self, effect: Effect, call: StepCall) -> Interrupt | None:
        """What keeps a step from beginning: what would cut it, and a cancel of either kind where it acts."""
        reason = self.interrupt_of(effect, call)
        if reason is None and effect.acts:
            reason = self.reason
            if reason is None and self.was_cancelled:
                reason = Interrupt.SOFT_CANCEL
        return reason

    def _is_to_pause(self) -> bool:
        """Whether the run is to be paused at its next boundary."""
        return any(
            control.type is ControlType.PAUSE and control.event_id not in self._recalled
            for control in self._inbox.peek()
        )

    def enter(self, scope: CancelScope, effect: Effect, call: StepCall) -> Flight:
        """Register a step in flight; give what you got back to `leave`."""
        flight = Flight(scope, effect, call)
        self._flights.append(flight)
        return flight

    def begin_wait(self) -> None:
        """A step in flight only waits from here on: it is cut short if what has come forbids that."""
        if self.was_cancelled:
            self._interrupt(Interrupt.SOFT_CANCEL)

    def leave(self, flight: Flight) -> None:
        """The step is no longer in flight."""
        self._flights.remove(flight)

    async def park(self, hold: Hold) -> Woken:
        """Wait for a control, the settling of the pause, its deadline or the run's; costs one future and two timers.

        The coordinator is asked again every so often, so that a pause which another process settled wakes the run too.
        """
        told: list[Pause] = []

        def settled(pause: Pause) -> None:
            told.append(pause)
            self._wake()

        unlisten = self._pauses.on_resolved(hold.token, settled)
        self._held = hold
        try:
            while True:
                if self._is_past_deadline:
                    return Woken(is_past_deadline=True, at=self._clock.now())
                told.clear()
                pause = await self._pauses.expire(hold.token)
                if pause.state is PauseState.RESUMED:
                    return woken_by(pause)
                if told:
                    continue  # settled since the store looked, when there was nobody to wake yet
                self._held = held = Hold(hold.token, earliest(hold.until, pause.deadline))
                if self._has_mail() or self._background:
                    return Woken(at=self._clock.now())
                await self._doze(held.until)
        finally:
            self._held = None
            unlisten()

    async def _doze(self, until: datetime | None) -> None:
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

    def offer(self) -> None:
        """A call waits for an answer: hand over those that came before it did, when the run was not carried here."""
        if self.outbox is not None:
            self.outbox.start_flush()
        for control in self._inbox.peek():
            if control.type in ANSWERS and self._is_mine(control):
                self._hand_over(control)

    async def handed_over(self) -> None:
        """Wait until every approval that was handed to its gate has been applied, or has failed."""
        while self._handing:
            await asyncio.wait(set(self._handing))

    def close(self) -> None:
        """Stop listening, and let go of whatever knows of this; the inbox itself belongs to its registry."""
        outbox, self.outbox = self.outbox, None
        if outbox is not None:
            outbox.close()
        self._bridge = self._on_hard_cancel = None
        self._unlisten()
        if self._deadline is not None:
            self._deadline.cancel()

    def _arrive(self, control: ControlEvent) -> None:
        match control.type:
            case ControlType.CANCEL:
                self._heed(control)
            case ControlType.PAUSE:
                self._interrupt(Interrupt.PAUSE)
            case _ if control.type in ANSWERS and self._hand_over(control):
                return
            case _:
                pass
        self._wake()

    def _heed(self, cancel: ControlEvent) -> None:
        self.was_cancelled = True
        is_hard = (cancel.payload or {}).get("hard") is True
        self._interrupt(Interrupt.HARD_CANCEL if is_hard else Interrupt.SOFT_CANCEL)
        if is_hard and self._on_hard_cancel is not None:
            self._on_hard_cancel()

    def _hand_over(self, control: ControlEvent) -> bool:
        # The call that waits at its gate is being cut short: allowed now, it would not be made.
        work = self._bridge(control) if self._bridge is not None and not self.was_cancelled else None
        if work is None:
            return False
        # Until it is done the control stays where it is: should the process die meanwhile, it was not taken.
        task = self._crew.start(self._see_through(work, control), "approval")
        self._handing[task] = control
        task.add_done_callback(partial(self._handed, work))
        return True

    async def _see_through(self, work: Coroutine[Any, Any, None], control: ControlEvent) -> None:
        await work
        # No commit comes between: one that kept the outcome without the control would have it told once more.
        if self.outbox is not None and (buffer := self.outbox.event_buffer) is not None:
            buffer.consume(control)

    def _handed(self, work: Coroutine[Any, Any, None], task: asyncio.Task[Any]) -> None:
        work.close()  # cut short before it began, it would be reported as forgotten
        control = self._handing.pop(task)
        if not task.cancelled():
            with suppress(InboxNotFoundError):  # the run is over
                self._inbox.take(lambda queued: queued is control)

    def _interrupt(self, reason: Interrupt) -> None:
        for_all = reason in {Interrupt.HARD_CANCEL, Interrupt.DEADLINE}
        if for_all and self.reason is None:
            self.reason = reason
        for flight in self._flights:
            if self.interrupt_of(flight.effect, flight.call) is not None:
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
    """The first of these times; None when there is none."""
    return min((time for time in times if time is not None), default=None)


def _runs(awaited: Iterable[Waiting]) -> Iterable[str]:
    return (one.run_id for one in awaited if one.run_id)


def woken_by(pause: Pause) -> Woken:
    """What a settled pause tells the run that was parked on it."""
    return Woken(decision=pause.decision, payload=pause.payload, at=pause.resumed_at)
