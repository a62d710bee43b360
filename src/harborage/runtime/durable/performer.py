"""Performing the steps of a run in this process: the intent, the work, and the outcome, each recorded in its order.

What interrupts a step comes from the run's mailbox, and where it goes on record is the outbox's to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from harborage.concurrency import STOP, CancelScope, is_cancelled, take_back
from harborage.crashes import is_order_to_stop
from harborage.errors import error_text
from harborage.runtime.durable import journal
from harborage.runtime.durable.engine import RecordRefusedError, RunLeftError, StepCrashedError, StrayCancellationError
from harborage.runtime.durable.journal import kept_text, raw
from harborage.runtime.durable.steps import (
    Act,
    Answer,
    Cut,
    Done,
    Effect,
    EffectTable,
    Failed,
    Recovery,
    StepCall,
    StepPutOffError,
    Think,
    Waiting,
)
from harborage.runtime.loop.arrivals import Interrupt

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.runtime.durable.mailbox import Mailbox
    from harborage.runtime.durable.outbox import Outbox

_UNINTERRUPTED: Final = nullcontext()


class LocalPerformer:
    """Performs the steps of one run, or of one branch of it, one after the other, in the task that executes it.

    `is_stopping` says whether the host stops its runs: where it is given, only the host may cancel the task that runs
    this one. An effect that raises one of `refusals` has not failed: its run stops at its last recorded step until that
    is repaired.
    """

    def __init__(
        self,
        run_id: str,
        effects: EffectTable,
        mailbox: Mailbox,
        outbox: Outbox,
        *,
        clock: Timers,
        is_stopping: Callable[[], bool] | None = None,
        refusals: tuple[type[Exception], ...] = (),
    ) -> None:
        self._run_id = run_id
        self._effects = effects
        self._mailbox = mailbox
        self._outbox = outbox
        self._clock = clock
        self._is_stopping = is_stopping
        self._refusals = refusals
        self._scope: CancelScope | None = None
        self._task: asyncio.Task[Any] | None = None
        self._was_stopped = False
        self._stamp: datetime | None = None

    def branch(self) -> LocalPerformer:
        """The performer of a parallel branch of the run."""
        # Not copy.copy, which costs ten times this, and a fan-out makes one for each of its branches.
        branch = object.__new__(LocalPerformer)
        branch.__dict__.update(self.__dict__)
        branch._scope = branch._task = branch._stamp = None
        branch._is_stopping = None  # a branch is cancelled by its siblings, too
        return branch

    async def perform(self, call: StepCall) -> Answer:
        effect, outbox = self._effects.find(call.name), self._outbox
        answer: Answer | None = None
        intent = b""
        if call.begun:
            answer, call = await self._take_up(call, effect)
        if answer is None:
            if effect.commits and outbox.write is not None:
                self._note_intent(call)
            elif effect.is_intended or effect.commits:
                intent = self._note_intent(call)
                if not outbox.flush_now() and not effect.flushes_intent:
                    await self._flush_intent(intent)
            elif not effect.only_thinks and (effect.waits_for is not None or outbox.is_behind):
                await outbox.flush()  # what a step does, or waits for, is about what led to it
            try:
                answer = await self._work(call, effect)
            except BaseException:
                outbox.withdraw(intent)  # one that its effect has not flushed announces what does not happen
                raise
        if type(answer) is Done:
            self._stamp = now = self._clock.now()
            outbox.note(journal.Done(at=now, position=call.position, name=call.name, result=answer.result))
            if type(effect) is Act:
                await self._follow(call, effect, answer.result)
            elif effect.is_kept_at_once and not effect.commits and not outbox.flush_now():
                await outbox.flush()
            if self._was_stopped:  # the step finished although its host stops: its run goes no further here
                raise asyncio.CancelledError
            return answer
        match answer:
            case Failed(error):
                self._note_failure(call, error)
            case Cut(reason):
                outbox.note(journal.Cut(at=self._clock.now(), position=call.position, name=call.name, reason=reason))
            case Waiting():
                await self._put_off(call, answer)
        return answer

    async def _take_up(self, call: StepCall, effect: Effect) -> tuple[Answer | None, StepCall]:
        """The outcome of a step that had begun, here or in a process that is gone, or None; and the step to perform."""
        if effect.cut is not None:
            effect.cut(call)  # in the process that is gone; it may come to nothing here, too
        if type(effect) is Think:
            return self._give_way(), call
        if type(effect) is not Act:
            return None, call
        return await self._resolve_interrupted(call, effect), replace(call, begun=0, since=None)

    def _note_intent(self, call: StepCall) -> bytes:
        # Nothing but the program itself ran since the last answer, so its time is the time of this question.
        at = self._stamp or self._clock.now()
        begun = journal.Begun(at=at, position=call.position, name=call.name, key=call.key, payload=call.payload)
        return self._outbox.note(begun)

    async def _flush_intent(self, intent: bytes) -> None:
        try:
            await self._outbox.flush()
        except BaseException:
            self._outbox.withdraw(intent)  # stored later, it would look like an interrupted step
            raise

    async def _follow(self, call: StepCall, effect: Act, result: Any) -> None:
        """Store the outcome of an act, and do what follows it.

        Raises:
            RecordRefusedError: what follows could not be done; failing the run for this would be an end that its record
                does not lead to.
        """
        if not self._outbox.flush_now():
            if effect.may_repeat is None or effect.may_repeat(call):
                self._outbox.flush_soon()
            else:
                await self._outbox.flush()
        if effect.after is None:
            return
        try:
            if (following := effect.after(call, result)) is not None:
                await following
        except self._refusals as error:
            raise RecordRefusedError(self._run_id, error_text(error)) from error

    async def _work(self, call: StepCall, effect: Effect) -> Answer:
        """What a step gave, unless something cut it short or kept it from beginning."""
        mailbox = self._mailbox
        reason = mailbox.find_start_blocker(effect, call)
        if reason is None:
            task = self._task or self._own_task()
            before = task.cancelling()
            scope = self._scope
            assert scope is not None
            # What a step asks of its own scope may come behind its end, when only what nothing interrupts is begun.
            with scope.renew() if effect.is_interruptible else _UNINTERRUPTED:
                flight = mailbox.enter(scope, effect, call) if effect.is_interruptible else None
                try:
                    result = await effect.run(call)
                except BaseException as error:
                    if (answer := await self._failed(call, effect, error, before)) is None:
                        raise
                    try:
                        return answer
                    finally:
                        del answer  # the traceback of its error holds this frame
                finally:
                    if flight is not None:
                        mailbox.leave(flight)
                if task.cancelling() > before:
                    await self._clear(effect, call, before)
                    self._was_stopped = self._is_stopping is not None and self._is_stopping()
                return Done(result)
            reason = mailbox.find_interrupt(effect, call) or Interrupt.SOFT_CANCEL
        if effect.cut is not None:
            effect.cut(call)
        return Cut(reason)

    async def _failed(self, call: StepCall, effect: Effect, error: BaseException, before: int) -> Answer | None:
        """What came of a step that raised; None where the run is to stop.

        Raises:
            RecordRefusedError: what it did cannot be recorded.
        """
        task = self._task or self._own_task()
        failure = self._failure_of(call, effect, error)
        try:
            if failure is None:
                return None
            if type(effect) is Think and isinstance(failure, StepPutOffError):
                return Waiting(failure.until, reason=failure.reason)
            if isinstance(failure, self._refusals):
                raise RecordRefusedError(self._run_id, error_text(failure)) from failure
            if task.cancelling() > before:
                await self._clear(effect, call, before)
            if isinstance(failure, StrayCancellationError):
                if self._is_interrupted(effect, call):
                    return None
                if effect.self_cancelled is not None:
                    return Done(effect.self_cancelled(call))
            if failure is not error:
                failure.__cause__ = error
            return Failed(failure)
        finally:
            del failure  # its traceback may hold this frame

    async def _put_off(self, call: StepCall, answer: Waiting) -> None:
        """Record an attempt that failed: how many there were, and since when, is read off these entries."""
        why = raw({"until": answer.until, "reason": answer.reason})
        at = self._clock.now()
        self._outbox.note(journal.Begun(at=at, position=call.position, name=call.name, key=call.key, payload=why))
        await self._outbox.flush()

    def _give_way(self) -> Answer | None:
        """Give up a step that was put off where something has arrived meanwhile, which comes first."""
        return Cut(Interrupt.ARRIVAL) if self._mailbox.has_arrivals else None

    async def _resolve_interrupted(self, interrupted: StepCall, effect: Act) -> Answer | None:
        """Return the outcome of an interrupted step; None if it must be run again."""
        recovery = self._recovery_of(interrupted, effect)
        if recovery is Recovery.UNKNOWN and effect.unknown is not None:
            return Done(effect.unknown(interrupted))
        if recovery is not Recovery.RESOLVE or effect.resolve is None:
            return None
        await self._outbox.flush()  # an answer of a person may take days
        answer = await self._work(interrupted, replace(effect, run=effect.resolve, yields_to_cancel=_always))
        match answer:
            case Cut(Interrupt.SOFT_CANCEL) if effect.unknown is not None:
                return Done(effect.unknown(interrupted))  # no answer is needed, and the call may have acted
            case Done(Recovery.RETRY):
                return None
            case _:
                return answer

    def _recovery_of(self, interrupted: StepCall, effect: Act) -> Recovery:
        if (
            effect.unknown is not None
            and self._mailbox.find_start_blocker(effect, interrupted) is Interrupt.SOFT_CANCEL
        ):
            return Recovery.UNKNOWN  # it is not retried, and it may have acted
        return Recovery.RETRY if effect.recover is None else effect.recover(interrupted)

    def _own_task(self) -> asyncio.Task[Any]:
        """The task that executes this run, or this branch of it; each of its steps is taken in the same scope."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a run's steps are taken inside a task")
        self._task, self._scope = task, CancelScope(owner=task)
        return task

    def _failure_of(self, call: StepCall, effect: Effect, error: BaseException) -> Exception | None:
        """What a step that raised has failed with; None when the run itself was asked to stop."""
        match error:
            case asyncio.CancelledError():
                is_meant = self._is_stopping is None or self._is_interrupted(effect, call)
                return None if is_meant and is_cancelled() else StrayCancellationError(call.name)
            case RunLeftError():
                return None if error.run_id == self._run_id else error
            case Exception():
                return error
            case _:
                return None if is_order_to_stop(error, self._task) else StepCrashedError(call.name, error)

    async def _clear(self, effect: Effect, call: StepCall, before: int) -> None:
        """Take back requests to stop that only a step made and left open."""
        if self._is_interrupted(effect, call):
            return
        take_back(before)
        try:
            await asyncio.sleep(0)  # up to Python 3.12 one of them comes all the same, at the next await
        except asyncio.CancelledError:
            if (task := self._task or self._own_task()).cancelling() > before:
                task.cancel(STOP)  # this one is its host's, which stopped the run at the same moment

    def _is_interrupted(self, effect: Effect, call: StepCall) -> bool:
        is_stopping = self._is_stopping is not None and self._is_stopping()
        return is_stopping or self._mailbox.find_interrupt(effect, call) is not None

    def _note_failure(self, call: StepCall, error: Exception) -> None:
        at, kind = self._clock.now(), type(error).__name__
        notes, text = getattr(error, "for_record", None), kept_text(error)
        failed = journal.Failed(at=at, position=call.position, name=call.name, error=kind, message=text, notes=notes)
        self._outbox.note(failed)


def _always(_: StepCall) -> bool:
    return True
