"""The durable seam over a journal: what was recorded is recalled, and the rest is performed.

A run that is continued executes its program again from the top. Every call of the seam has a position, and a position
that was recorded gets the recorded answer, so nothing happens twice and the run arrives where it was. What it takes to
perform a step is the performer's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.errors import error_text
from harborage.runtime.durable import journal
from harborage.runtime.durable.engine import (
    HistoryMismatchError,
    RecordedFailureError,
    RecordRefusedError,
    RolloverError,
    RunHandedOverError,
    RunLeftError,
    RunPutOffError,
)
from harborage.runtime.durable.histories import history_prefix
from harborage.runtime.durable.journal import Arrived, Entry, Joined, Patched, Record, Waited, raw
from harborage.runtime.durable.outbox import Outbox
from harborage.runtime.durable.performer import LocalPerformer
from harborage.runtime.durable.race import race
from harborage.runtime.durable.steps import Cut, Done, EffectTable, Failed, StepCall, Waiting
from harborage.runtime.loop.arrivals import NOTHING, Arrivals, Hold, Interrupt, StepInterruptedError, Woken
from harborage.runtime.loop.joins import BranchOutcome, Cancelled
from harborage.runtime.loop.joins import Done as BranchDone
from harborage.runtime.loop.joins import Failed as BranchFailed

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.concurrency import Crew
    from harborage.planner import JoinSpec
    from harborage.runtime.durable.mailbox import Mailbox
    from harborage.runtime.loop.seam import Durable, RunRequest

T = TypeVar("T")
E = TypeVar("E", bound=msgspec.Struct)


class Recorder:
    """`Durable` for one run, over a journal, a mailbox and this process's effects; without a journal it only acts.

    `history` counts the rollovers before: positions of one history never meet those of another. `is_stopping` and
    `refusals` are for the performer of its steps, see `LocalPerformer`. `is_draining` says at each boundary whether the
    worker is to stop: the run is left there, for another one.
    """

    def __init__(
        self,
        run_id: str,
        effects: EffectTable,
        record: Record | None,
        mailbox: Mailbox,
        *,
        clock: Timers,
        crew: Crew,
        past: Iterable[Entry] = (),
        history: int = 0,
        is_stopping: Callable[[], bool] | None = None,
        refusals: tuple[type[Exception], ...] = (),
        is_draining: Callable[[], bool] | None = None,
    ) -> None:
        self._run_id = run_id
        self._is_draining = is_draining
        self._effects = effects
        self._outbox = mailbox.outbox = Outbox(run_id, record, crew, clock, lambda: mailbox.is_waiting)
        self._performer = LocalPerformer(
            run_id, effects, mailbox, self._outbox, clock=clock, is_stopping=is_stopping, refusals=refusals
        )
        self._refusals = refusals
        self.mailbox = mailbox
        self._clock = clock
        self.crew = crew
        self._prefix = history_prefix(history)
        self._count = 0
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
        self._count += 1
        call = StepCall(self._run_id, f"{self._prefix}{self._count}", name, payload)
        if self._past:
            recalled = self._recall(call)
            if type(recalled) is not StepCall:
                return recalled
            call = recalled
        answer = await self._performer.perform(call)
        if type(answer) is Done:
            return answer.result
        match answer:
            case Failed(error):
                try:
                    raise error
                finally:
                    del answer, error  # its traceback holds this frame
            case Cut(reason):
                raise StepInterruptedError(name, reason)
            case Waiting(until, _, reason):
                raise RunPutOffError(self._run_id, until or self._clock.now(), reason)

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
        # A branch that lost before it had its turn here may have begun something on the worker before.
        self._forget_losers(position, names)
        self._outbox.note(Joined(at=self._clock.now(), position=position, outcomes=names))
        await self._outbox.flush()
        return outcomes

    async def drain(self) -> Arrivals:
        if self._is_draining is not None and self._is_draining():
            raise RunHandedOverError(self._run_id)
        self._count += 1
        if self._past:
            position = f"{self._prefix}{self._count}"
            entry = self._pop(position, Arrived)
            if entry is None:
                return NOTHING
            recorded: Arrivals = self._read(position, "arrived", entry.arrivals, Arrivals)
            self.mailbox.mark_consumed(recorded.controls)
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
        await self._outbox.flush_all()
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
        """Return what was noted and is not kept, for the end of the run."""
        return await self._outbox.take_unsaved()

    async def settle(self) -> None:
        """Keep what was noted so far, if the record takes it, of a run that goes no further here."""
        await self._outbox.try_flush()

    def _next(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"

    def _branch(self, position: str, index: int) -> Recorder:
        # Not copy.copy, which costs ten times this, and a fan-out makes one for each of its branches.
        branch = object.__new__(Recorder)
        branch.__dict__.update(self.__dict__)
        branch._prefix = f"{position}.{index}."
        branch._count = 0
        branch._performer = self._performer.branch()
        return branch

    def _forget_losers(self, position: str, outcomes: Sequence[str]) -> None:
        losers = tuple(f"{position}.{index}." for index, outcome in enumerate(outcomes) if outcome == "cancelled")
        for recorded in [one for one in self._past if one.startswith(losers)]:
            last = self._past.pop(recorded)[-1]
            if isinstance(last, journal.Begun):
                effect = self._effects.find(last.name)
                if effect.cut is not None:
                    effect.cut(StepCall(self._run_id, recorded, last.name, last.payload))

    def _recall(self, call: StepCall) -> Any:
        """The recorded result of a step; the call itself, to be performed, where none is recorded.

        Raises:
            HistoryMismatchError: another step was recorded at its position.
            RecordedFailureError, StepInterruptedError: the step failed, or was cut short.
        """
        entries = self._past.pop(call.position, None)
        if entries is None:
            if any(recorded.startswith(f"{call.position}.") for recorded in self._past):
                raise HistoryMismatchError(self._run_id, call.position, "branches", call.name)
            return call
        last = entries[-1]
        if not isinstance(last, (journal.Begun, journal.Done, journal.Failed, journal.Cut)) or last.name != call.name:
            recorded = getattr(last, "name", type(last).__name__.lower())
            raise HistoryMismatchError(self._run_id, call.position, recorded, call.name)
        effect = self._effects.find(call.name)
        match last:
            case journal.Done():
                answer = self._read(call.position, last.name, last.result, effect.result)
                if effect.recalled is not None:
                    effect.recalled(call, answer)
                return answer
            case journal.Failed():
                raise RecordedFailureError(last.name, last.error, last.message)
            case journal.Cut():
                if effect.cut is not None:
                    effect.cut(call)
                raise StepInterruptedError(last.name, Interrupt(last.reason))
            case journal.Begun():
                begun = sum(isinstance(one, journal.Begun) for one in entries)
                return replace(call, begun=begun, since=entries[0].at)

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
    """End a race of which one branch can go no further: the others would wait for nothing, maybe for days."""
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
