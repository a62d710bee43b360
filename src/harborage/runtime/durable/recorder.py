"""The durable seam over a journal: answers from what was recorded, then goes on live.

A run that is carried on runs its program again from the top. Every question it asks the host has a position, and a
position that was recorded gets the recorded answer, so nothing happens twice and the run arrives where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import msgspec

from harborage import codec
from harborage.concurrency import STOP, CancelScope, Crew, is_cancelled, take_back
from harborage.crashes import is_order_to_stop
from harborage.errors import error_text
from harborage.runtime.durable.engine import (
    HistoryMismatchError,
    RecordedFailureError,
    RecordRefusedError,
    RolloverError,
    RunLeftError,
    RunPutOffError,
    StepCrashedError,
    StrayCancellationError,
)
from harborage.runtime.durable.histories import history_prefix
from harborage.runtime.durable.journal import (
    Arrived,
    Begun,
    Cut,
    Done,
    Entry,
    Failed,
    Joined,
    Patched,
    Record,
    Waited,
    kept_text,
    raw,
)
from harborage.runtime.durable.outbox import Outbox
from harborage.runtime.durable.race import race
from harborage.runtime.durable.steps import Doubt, Effect, EffectTable, StepCall, StepPutOffError
from harborage.runtime.loop.arrivals import NOTHING, Arrivals, Hold, Interrupt, StepInterruptedError, Woken
from harborage.runtime.loop.joins import BranchOutcome, Cancelled
from harborage.runtime.loop.joins import Done as BranchDone
from harborage.runtime.loop.joins import Failed as BranchFailed

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.planner import JoinSpec
    from harborage.runtime.durable.mailbox import Mailbox
    from harborage.runtime.loop.seam import Durable, RunRequest

T = TypeVar("T")
E = TypeVar("E", bound=msgspec.Struct)

_LIVE = object()
_UNINTERRUPTED = nullcontext()


class _Doubted(NamedTuple):
    """A step that had begun when its process died, and must not simply begin again."""

    call: StepCall
    doubt: Doubt


class Recorder:
    """`Durable` for one run, over a journal, a mailbox and this process's effects; without a journal it only acts.

    `history` counts the rollovers before: positions of one history never meet those of another. `is_stopping` says
    whether the host stops its runs: where it is given, nobody else may cancel the task that carries this one. An effect
    that raises one of `refusals` has not failed: its run stops at its last recorded step until that is repaired.
    """

    def __init__(
        self,
        run_id: str,
        effects: EffectTable,
        journal: Record | None,
        mailbox: Mailbox,
        *,
        clock: Timers,
        crew: Crew,
        past: Iterable[Entry] = (),
        history: int = 0,
        is_stopping: Callable[[], bool] | None = None,
        refusals: tuple[type[Exception], ...] = (),
    ) -> None:
        self._run_id = run_id
        self._is_stopping = is_stopping
        self._refusals = refusals
        self._effects = effects
        self._outbox = mailbox.outbox = Outbox(run_id, journal, crew, clock, lambda: mailbox.is_waiting)
        self.mailbox = mailbox
        self._clock = clock
        self.crew = crew
        self._prefix = history_prefix(history)
        self._count = 0
        self._scope: CancelScope | None = None
        self._task: asyncio.Task[Any] | None = None
        self._was_stopped = False
        self._stamp: datetime | None = None
        self._past: dict[str, list[Entry]] = {}
        self._patches: dict[str, bool] = {}
        for entry in past:
            if isinstance(entry, Patched):
                self._patches[entry.change] = True
            elif entry.position and entry.position.startswith(self._prefix):
                self._past.setdefault(entry.position, []).append(entry)

    @property
    def run_id(self) -> str:
        return self._run_id

    async def step(self, name: str, payload: Any) -> Any:
        effect = self._effects.find(name)
        position = self._next()
        call = StepCall(self._run_id, position, name, payload)
        result: Any = _LIVE
        if self._past:
            answer = self._recall(call, effect)
            if isinstance(answer, StepCall):
                call = answer
                self._give_way(call)
            elif type(answer) is _Doubted:
                result = await self._clear_up(answer, effect)
            elif answer is not _LIVE:
                return answer
        if result is _LIVE:
            if effect.is_intended:
                # Nothing but the program itself ran since the last answer, so its time is the time of this question.
                at = self._stamp or self._clock.now()
                begun = Begun(at=at, position=position, name=name, key=call.key, payload=payload)
                intent = self._outbox.note(begun)
                try:
                    await self._outbox.flush()
                except BaseException:
                    self._outbox.withdraw(intent)  # kept later, it would leave a step in doubt that never began
                    raise
            elif effect.waits_for is not None or (self._outbox.is_behind and not effect.only_thinks):
                await self._outbox.flush()  # what a step does, or waits for, is about what led to it
            result = await self._flown(call, effect)
            if type(result) is Interrupt:
                self._check_cut(call, result)
        self._stamp = self._clock.now()
        self._outbox.note(Done(at=self._stamp, position=position, name=name, result=result))
        if effect.is_kept_soon and (self._outbox.is_instant or effect.may_repeat is None or effect.may_repeat(call)):
            self._outbox.flush_soon()
        elif effect.is_intended or effect.after is not None:
            await self._outbox.flush()
        if effect.after is not None:
            try:
                await effect.after(call, result)
            except self._refusals as error:
                # Its outcome is recorded: failing the run for this would be an end that its record does not lead to.
                raise RecordRefusedError(self._run_id, error_text(error)) from error
        if self._was_stopped:
            raise asyncio.CancelledError  # the step finished although its host stops; its run goes no further here
        return result

    async def gather(
        self, branches: Sequence[Callable[[Durable], Awaitable[T]]], join: JoinSpec
    ) -> list[BranchOutcome[T]]:
        position = self._next()
        starts = [partial(branch, self._branch(position, index)) for index, branch in enumerate(branches)]
        joined = self._pop(position, Joined)
        if joined is not None:
            if len(joined.outcomes) != len(starts):
                raise HistoryMismatchError(
                    self._run_id, position, f"{len(joined.outcomes)} branches", f"{len(starts)} branches"
                )
            self._forget_losers(position, joined.outcomes)
            return [await _replay(start, outcome) for start, outcome in zip(starts, joined.outcomes, strict=True)]
        outcomes = await race(starts, join, clock=self._clock, stragglers=self.crew, on_outcome=_raise_if_left)
        names = [_outcome_name(one) for one in outcomes]
        # A branch that lost before it had its turn here may have begun something where the run was carried before.
        self._forget_losers(position, names)
        self._outbox.note(Joined(at=self._clock.now(), position=position, outcomes=names))
        await self._outbox.flush()
        return outcomes

    async def drain(self) -> Arrivals:
        self._count += 1
        if self._past:
            position = f"{self._prefix}{self._count}"
            entry = self._pop(position, Arrived)
            if entry is None:
                return NOTHING
            recorded: Arrivals = self._read(position, "arrived", entry.arrivals, Arrivals)
            self.mailbox.recall(recorded.controls)
            return recorded
        arrivals = self.mailbox.take()
        if arrivals is not NOTHING:
            position = f"{self._prefix}{self._count}"
            self._outbox.note(Arrived(at=self._clock.now(), position=position, arrivals=raw(arrivals)))
            await self._outbox.flush()
        return arrivals

    async def wait(self, hold: Hold) -> Woken:
        position = self._next()
        entry = self._pop(position, Waited)
        if entry is not None:
            recorded: Woken = self._read(position, "waited", entry.woken, Woken)
            return recorded
        await self._outbox.tell()
        try:
            woken = await self.mailbox.park(hold)
        except self._refusals as error:
            raise RecordRefusedError(self._run_id, error_text(error)) from error
        self._outbox.note(Waited(at=self._clock.now(), position=position, woken=raw(woken)))
        return woken

    async def spawn(self, child_id: str, spec: Any) -> Any:
        return await self.step("task.spawn", (child_id, spec))

    async def join(self, child_id: str) -> Any:
        return await self.step("task.await", child_id)

    async def rollover(self, carry: RunRequest) -> NoReturn:
        raise RolloverError(carry)

    async def patched(self, change: str) -> bool:
        known = self._patches.get(change)
        if known is None:
            known = not self._past
            self._patches[change] = known
            if known:
                self._outbox.note(Patched(at=self._clock.now(), change=change))
        return known

    async def flush(self) -> None:
        """Keep what was noted so far. Before an effect begins everything that led to it is kept."""
        await self._outbox.flush()

    async def leave(self) -> list[bytes]:
        """Hand over what was noted and is not kept, to whoever ends the run."""
        return await self._outbox.leave()

    async def settle(self) -> None:
        """Keep what was noted so far, if the record takes it, of a run that is carried no further."""
        await self._outbox.settle()

    def _next(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"

    def _branch(self, position: str, index: int) -> Recorder:
        # Not copy.copy, which costs ten times this, and a fan-out makes one for each of its branches.
        branch = object.__new__(Recorder)
        branch.__dict__.update(self.__dict__)
        branch._prefix = f"{position}.{index}."
        branch._count = 0
        branch._scope = branch._task = branch._stamp = None
        branch._is_stopping = None  # a branch is cancelled by its siblings, too
        return branch

    def _forget_losers(self, position: str, outcomes: Sequence[str]) -> None:
        losers = tuple(f"{position}.{index}." for index, outcome in enumerate(outcomes) if outcome == "cancelled")
        for recorded in [one for one in self._past if one.startswith(losers)]:
            last = self._past.pop(recorded)[-1]
            if isinstance(last, Begun):
                effect = self._effects.find(last.name)
                if effect.cut is not None:
                    effect.cut(StepCall(self._run_id, recorded, last.name, last.payload))

    def _check_cut(self, call: StepCall, answer: Any) -> None:
        if type(answer) is Interrupt:
            self._outbox.note(Cut(at=self._clock.now(), position=call.position, name=call.name, reason=answer))
            raise StepInterruptedError(call.name, answer)

    async def _flown(self, call: StepCall, effect: Effect) -> Any:
        """What a step gave, or the `Interrupt` that cut it short or kept it from beginning."""
        mailbox = self.mailbox
        reason = mailbox.bar_of(effect, call)
        if reason is None:
            task = self._task or self._own_task()
            before = task.cancelling()
            scope = self._scope
            assert scope is not None
            # What a step asks of its own scope may come behind its end, when only what nothing interrupts is begun.
            with scope.renew() if effect.is_interruptible else _UNINTERRUPTED:
                flight = mailbox.enter(scope, effect, call) if effect.is_interruptible else None
                try:
                    result = await self._ran(call, effect, before)
                except BaseException as error:  # noqa: BLE001 - raised again, or recorded as what the step failed with
                    failure = await self._failed(call, effect, error, before)
                    try:
                        if failure is None or failure is error:
                            raise
                        raise failure from error
                    finally:
                        del failure  # its traceback holds this frame
                finally:
                    if flight is not None:
                        mailbox.leave(flight)
                if task.cancelling() > before:
                    await self._clear(effect, call, before)
                    self._was_stopped = self._is_stopping is not None and self._is_stopping()
                return result
            reason = mailbox.interrupt_of(effect, call) or Interrupt.SOFT_CANCEL
        if effect.cut is not None:
            effect.cut(call)
        return reason

    async def _ran(self, call: StepCall, effect: Effect, before: int) -> Any:
        """What the effect gave, or has to say of a cancellation of its own making."""
        try:
            return await effect.run(call)
        except asyncio.CancelledError as cancelled:
            if effect.stray is None or self._failure_of(call, effect, cancelled) is None:
                raise
            await self._clear(effect, call, before)
            if self._is_interrupted(effect, call):
                raise  # its host stops, and heard of it in the same turn of the event loop, which ends
            return effect.stray(call)

    async def _failed(self, call: StepCall, effect: Effect, error: BaseException, before: int) -> Exception | None:
        """What a step that raised has failed with, recorded as its outcome; None where the run is to stop.

        Raises:
            RunPutOffError, RecordRefusedError: the step is put off, or cannot be recorded.
        """
        task = self._task or self._own_task()
        failure = self._failure_of(call, effect, error)
        if failure is None:
            return None
        if effect.may_be_put_off and isinstance(failure, StepPutOffError):
            await self._put_off(call, failure)
        if isinstance(failure, self._refusals):
            raise RecordRefusedError(self._run_id, error_text(failure)) from failure
        if task.cancelling() > before:
            await self._clear(effect, call, before)
        if isinstance(failure, StrayCancellationError) and self._is_interrupted(effect, call):
            return None
        self._note_failure(call, failure)
        return failure

    async def _put_off(self, call: StepCall, failure: StepPutOffError) -> NoReturn:
        """Record an attempt that failed: how many there were, and since when, is read off these entries."""
        why = raw({"until": failure.until, "reason": failure.reason})
        at = self._clock.now()
        self._outbox.note(Begun(at=at, position=call.position, name=call.name, key=call.key, payload=why))
        await self._outbox.flush()
        raise RunPutOffError(self._run_id, failure.until, failure.reason) from failure

    def _give_way(self, call: StepCall) -> None:
        """Give up a step that was put off where something has arrived meanwhile, which comes first.

        Raises:
            StepInterruptedError: something has.
        """
        if self.mailbox.has_arrivals:
            at = self._clock.now()
            self._outbox.note(Cut(at=at, position=call.position, name=call.name, reason=Interrupt.ARRIVAL))
            raise StepInterruptedError(call.name, Interrupt.ARRIVAL)

    def _own_task(self) -> asyncio.Task[Any]:
        """The task that carries this run, or this branch of it; each of its steps is taken in the same scope."""
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
            case Exception():
                return error
            case _:
                return None if is_order_to_stop(error, self._task) else StepCrashedError(call.name, error)

    async def _clear(self, effect: Effect, call: StepCall, before: int) -> None:
        """Take back requests to stop that a step left open and nobody else made."""
        if self._is_interrupted(effect, call):
            return
        take_back(before)
        try:
            await asyncio.sleep(0)  # up to Python 3.12 one of them comes all the same, at the next await
        except asyncio.CancelledError:
            if (task := self._task or self._own_task()).cancelling() > before:
                task.cancel(STOP)  # this one is its keeper's, who came at the same moment

    def _is_interrupted(self, effect: Effect, call: StepCall) -> bool:
        is_stopping = self._is_stopping is not None and self._is_stopping()
        return is_stopping or self.mailbox.interrupt_of(effect, call) is not None

    def _note_failure(self, call: StepCall, error: Exception) -> None:
        at, kind = self._clock.now(), type(error).__name__
        notes = getattr(error, "for_record", None)
        text = kept_text(error)
        self._outbox.note(Failed(at=at, position=call.position, name=call.name, error=kind, message=text, notes=notes))

    def _recall(self, call: StepCall, effect: Effect) -> Any:
        entries = self._past.pop(call.position, None)
        if entries is None:
            if any(recorded.startswith(f"{call.position}.") for recorded in self._past):
                raise HistoryMismatchError(self._run_id, call.position, "branches", call.name)
            return _LIVE
        last = entries[-1]
        if not isinstance(last, (Begun, Done, Failed, Cut)) or last.name != call.name:
            recorded = getattr(last, "name", type(last).__name__.lower())
            raise HistoryMismatchError(self._run_id, call.position, recorded, call.name)
        match last:
            case Done():
                answer = self._read(call.position, last.name, last.result, effect.result)
                if effect.recalled is not None:
                    effect.recalled(call, answer)
                return answer
            case Failed():
                raise RecordedFailureError(last.name, last.error, last.message)
            case Cut():
                if effect.cut is not None:
                    effect.cut(call)
                raise StepInterruptedError(last.name, Interrupt(last.reason))
            case Begun():
                if effect.cut is not None:
                    effect.cut(call)  # in the process that is gone; it may come to nothing here, too
                begun = sum(isinstance(one, Begun) for one in entries)
                if effect.may_be_put_off:
                    return msgspec.structs.replace(call, begun=begun, since=entries[0].at)
                doubted = msgspec.structs.replace(call, begun=begun)
                if effect.unknown is not None and self.mailbox.bar_of(effect, call) is Interrupt.SOFT_CANCEL:
                    return _Doubted(doubted, Doubt.ASK)  # it is not made again, and it may have acted
                doubt = Doubt.REPEAT if effect.in_doubt is None else effect.in_doubt(doubted)
                return _LIVE if doubt is Doubt.REPEAT else _Doubted(doubted, doubt)

    async def _clear_up(self, doubted: _Doubted, effect: Effect) -> Any:
        """What became of a step that had begun in a process that is gone; `_LIVE` when it is to be done again."""
        answer: Any = Doubt.REPEAT
        if doubted.doubt is Doubt.ASK and effect.unknown is not None:
            answer = effect.unknown(doubted.call)
        elif doubted.doubt is Doubt.CLEAR_UP and effect.clear_up is not None:
            await self._outbox.flush()  # a person may be asked, who takes days
            asking = msgspec.structs.replace(effect, run=effect.clear_up, yields_to_cancel=True)
            answer = await self._flown(doubted.call, asking)
            if answer is Interrupt.SOFT_CANCEL and effect.unknown is not None:
                answer = effect.unknown(doubted.call)  # it waits for an answer no more, and the call may have acted
            else:
                self._check_cut(doubted.call, answer)
        return _LIVE if answer is Doubt.REPEAT else answer

    def _read(self, position: str, name: str, recorded: msgspec.Raw, type: Any) -> Any:
        """A recorded value as the type that this code knows it by."""
        try:
            return codec.decode(bytes(recorded), type)
        except msgspec.ValidationError as error:
            asked = getattr(type, "__name__", str(type))
            raise HistoryMismatchError(self._run_id, position, f"{name} ({error_text(error)})", asked) from error

    def _pop(self, position: str, kind: type[E]) -> E | None:
        entries = self._past.pop(position, None) if self._past else None
        if entries is None:
            return None
        last = entries[-1]
        if not isinstance(last, kind):
            recorded = getattr(last, "name", type(last).__name__.lower())
            raise HistoryMismatchError(self._run_id, position, recorded, kind.__name__.lower())
        return last


def _raise_if_left(_: int, outcome: BranchOutcome[Any]) -> None:
    """End a race of which one branch can go no further: the others would wait in vain, maybe for days."""
    if isinstance(outcome, BranchFailed) and isinstance(outcome.error, RunLeftError):
        raise outcome.error


async def _replay(start: Callable[[], Awaitable[T]], outcome: str) -> BranchOutcome[T]:
    if outcome == "cancelled":
        return Cancelled()
    try:
        return BranchDone(await start())
    except (asyncio.CancelledError, RunLeftError):
        raise
    except Exception as error:  # noqa: BLE001 - a branch's failure is its outcome
        return BranchFailed(error)


def _outcome_name(outcome: BranchOutcome[Any]) -> str:
    match outcome:
        case BranchDone():
            return "done"
        case BranchFailed():
            return "failed"
        case Cancelled():
            return "cancelled"
