"""The record of a run, which a worker writes under its lease: entries, events, consumed controls and the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from harborage.errors import HarborageError, error_reason, error_text
from harborage.identity import bound
from harborage.runtime.durable.bodies import extract_bodies
from harborage.runtime.durable.engine import RecordRefusedError, RunTakenError
from harborage.runtime.durable.event_buffer import NOTHING_USED, BufferedEvent, RunEventBuffer, Used, used_in
from harborage.runtime.durable.journal import is_outcome
from harborage.runtime.loop.controls import ControlEvent
from harborage.store import Change, Commit, Committed, Guard, RunQuery
from harborage.store.errors import (
    CommitRefusedError,
    ControlsLeftError,
    LeaseLostError,
    PauseSettledError,
    RowNotFoundError,
    RunCycleError,
    StatusConflictError,
)
from harborage.store.port import append_now_of, commit_now_of
from harborage.tasks.changes import Closing, EndedRun

if TYPE_CHECKING:
    from harborage.concurrency import Crew
    from harborage.events import Event, RecordBus
    from harborage.runtime.durable.leased_run import LeasedRun
    from harborage.store import NewEvent, SettlePause, Store
    from harborage.tasks.changes import RunEnds


Refuse: TypeAlias = Callable[[ControlEvent], None]
"""Rejects a control that arrived after its run had ended."""

_log = logging.getLogger(__name__)

_PROGRESS = Change(progress=True)
_NOTHING_CHANGED = Change()
_NO_BODIES: Mapping[str, bytes] = {}


class _Closing(msgspec.Struct, frozen=True):
    """The change that ends a group with its last member, and its event as it is stored."""

    what: Closing
    event: BufferedEvent

    @property
    def along(self) -> _Along:
        """What the commit that ends the member has to change along with it."""
        return _Along(Commit(groups=(self.what.change,)), (self.event,))


class _Along(NamedTuple):
    """Changes of other rows that a commit of the run makes, with their events as they are stored."""

    changes: Commit = Commit()
    events: tuple[BufferedEvent, ...] = ()
    accepted: Callable[[], None] | None = None


_NOTHING_ALONG = _Along()


class LeasedRecord:
    """The record of one run, written only under the lease of its worker.

    If its bus stores events in the same store, it commits the run's events too, from `opened` to `close`. `crew` owns
    the commits that must not be cut short.
    """

    def __init__(self, store: Store, run: LeasedRun, crew: Crew, bus: RecordBus | None = None) -> None:
        self._store = store
        self._run = run
        self._crew = crew
        self._bus = bus
        self._buffer: RunEventBuffer | None = None
        self._consumed: tuple[int, ...] = ()
        self._settles: tuple[SettlePause, ...] = ()
        self._uncertain_entries = self._uncertain_events = self._uncertain_settles = 0
        self._uncertain_usage = NOTHING_USED
        self._flushing: asyncio.Task[None] | None = None
        self._was_refused = False
        self._commit_now = commit_now_of(store)
        self._add_now = append_now_of(store)

    @property
    def append_now(self) -> Callable[[str, Sequence[bytes]], None] | None:
        """`append` without an await, where the store is in memory; None for every other."""
        return None if self._commit_now is None else self._append_now

    @property
    def event_buffer(self) -> RunEventBuffer | None:
        """The run's events that are not committed yet; None if its bus stores them itself."""
        return self._buffer

    def opened(self) -> AbstractContextManager[None]:
        """Buffer the run's events from now on; the block that is entered has the run's identity bound."""
        who = self._run.request.who
        if self._bus is not None and self._bus.store is self._store:
            self._buffer = RunEventBuffer(self._bus, who, self._run.hand_out)
        return bound(who)

    def close(self) -> None:
        """Buffer no more events. Those that were published with refused entries are dropped: they did not happen."""
        self._discard_refused()
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            if self._run.is_lost:
                buffer.discard()
            buffer.discard_held()
            buffer.close()

    def _discard_refused(self) -> None:
        """Drop the events of refused entries, but for those of a commit that may have succeeded."""
        if not self._was_refused:
            return
        self._settles = ()
        if self._buffer is not None:
            self._deliver_uncertain_events()
            self._buffer.discard()

    def flush_events(self) -> asyncio.Task[None]:
        """Start to commit the run's events without entries; the commit completes even if the run is cut short."""
        if self._flushing is None:
            # A control that left the inbox and is in no entry went to a running call: these events have its outcome.
            # One that leaves it before the task begins is in an entry that these events do not wait for.
            self._consumed += self._pop_consumed()
            self._flushing = self._crew.start(self._flush_events(), f"events of {self._run.lease.run_id}")
        return self._flushing

    async def _flush_events(self) -> None:
        try:
            await self._write((), {}, None)
        finally:
            self._flushing = None

    def _pop_consumed(self) -> tuple[int, ...]:
        """Return the controls that left the inbox; none while a step that may have consumed them is not recorded."""
        return () if self._buffer is not None and self._buffer.is_holding else self._run.pop_consumed()

    async def _wait_for_flush(self) -> None:
        """Wait until a running commit of events has succeeded or failed."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing])

    async def append(self, run_id: str, entries: Sequence[bytes]) -> None:
        """Add entries to the run's journal.

        Raises:
            RunTakenError, RecordRefusedError: nothing was written.
        """
        await self._wait_for_flush()
        slim, bodies = extract_bodies(entries, run_id)
        # Kept until the commit has succeeded: one that is cut short has not recorded which controls were consumed.
        self._consumed += self._pop_consumed()
        progress = self._has_progress(entries)
        await self._write(slim, bodies, _PROGRESS if progress else None)
        if progress:
            self._run.attempts = 1

    def _append_now(self, run_id: str, entries: Sequence[bytes]) -> None:
        """Append without an await. Large values stay in their entries: in memory a body of their own saves nothing."""
        assert self._commit_now is not None
        run = self._run
        is_plain = self._buffer is None and not run.sent and run.attempts <= 1 and not self._settles
        if is_plain and self._add_now is not None and self._add_now(run.lease, run.position, entries):
            run.position += len(entries)
            return
        progress = self._has_progress(entries)
        events = () if self._buffer is None else self._buffer.take_ready()
        consumed = self._pop_consumed() if run.sent else ()
        used = self._used()
        try:
            done = self._commit_now(
                self._build_commit(entries, _NO_BODIES, _PROGRESS if progress else None, consumed, events)
            )
        except LeaseLostError as error:
            run.is_lost = True
            raise RunTakenError(run_id) from error
        except HarborageError as error:
            self._put_back(events)
            self._was_refused = True
            raise RecordRefusedError(run_id, error_text(error)) from error
        run.position += len(entries)
        self._settles = ()
        if progress:
            run.attempts = 1
        if self._buffer is not None:
            self._buffer.usage_stored(used)
            self._buffer.deliver(events, done)

    async def write(
        self,
        entries: Sequence[bytes],
        changes: Commit,
        events: Sequence[tuple[Event, NewEvent]],
        accepted: Callable[[], None] | None,
        *,
        can_wait: bool = False,
    ) -> Committed:
        """Add entries to the run's journal and make `changes` of other rows, in one commit under the run's lease.

        With `can_wait`, pauses that are resolved ride with the next commit instead.

        Raises:
            CommitRefusedError, RowNotFoundError: a condition of the changes does not hold; nothing was written.
            RunTakenError, RecordRefusedError: nothing was written.
        """
        if can_wait and self._buffer is not None:
            self._settles += changes.settles
            return Committed()
        await self._wait_for_flush()
        taken = self._pop_consumed()  # a control that leaves the inbox from here on is in a later entry
        try:
            if self._settles and changes.settles:
                await self._write((), {}, None)  # it may resolve the same pause, of which the first answer counts
        finally:
            self._consumed += taken
        progress = self._has_progress(entries)
        along = _Along(changes, tuple(BufferedEvent(*event) for event in events), accepted)
        if self._commit_now is None:
            slim, bodies = extract_bodies(entries, self._run.lease.run_id)
        else:
            slim, bodies = entries, _NO_BODIES
        done = await self._write(slim, bodies, _PROGRESS if progress else None, along)
        if progress:
            self._run.attempts = 1
        return done

    def _has_progress(self, entries: Sequence[bytes]) -> bool:
        """Return whether these entries are the first progress after attempts that made none."""
        return self._run.attempts > 1 and any(map(is_outcome, entries))

    async def end(
        self, entry: bytes, change: Change, refuse: Refuse | None, ends: RunEnds | None = None
    ) -> Coroutine[Any, Any, None] | None:
        """End the run; return the follow-up work of `ends`, if there is any.

        The controls that it did not consume are consumed with its end, and `refuse` rejects each: in the same commit
        if events are stored there, else after it. The group whose last member it was ends in the same way.

        Raises:
            RunTakenError, RecordRefusedError: nothing was written.
        """
        await self._wait_for_flush()
        slim, bodies = extract_bodies([*self._run.unsaved, entry], self._run.lease.run_id)
        change = replace(change, tool_calls=self._run.tool_calls)
        late: tuple[int, ...] = ()
        self._consumed += self._run.pop_consumed()
        consumed = self._consumed
        refused = 0
        end = EndedRun.of(self._run.request.who, change, group=self._run.group, parent=self._run.parent)
        closing, is_refused = await self._find_closing(end, ends, is_refused=False), False
        while True:
            self._consumed = (*consumed, *(number for number, _ in self._run.sent), *late)
            if self._buffer is not None:
                refused = self._reject_unconsumed(refused, refuse)
                self._buffer.release_held()
            try:
                along = _NOTHING_ALONG if closing is None else closing.along
                done = await self._write(slim, bodies, change, along)
            except ControlsLeftError as error:
                for control in error.controls:
                    self._run.admit(control)
                admitted = {number for number, _ in self._run.sent}
                late += tuple(
                    control.number for control in error.controls if control.number not in admitted
                )  # one that cannot be read ends with its run
            except (StatusConflictError, RowNotFoundError) as error:
                if closing is None:
                    raise RecordRefusedError(self._run.lease.run_id, error_text(error)) from error
                # The group has changed meanwhile: it is read again, and if it changes once more it ends after the run.
                closing, is_refused = None if is_refused else await self._find_closing(end, ends, is_refused=True), True
            else:
                self.close()
                self._reject_unconsumed(refused, refuse)
                left = next(iter(done.left), None)
                return None if ends is None else ends.ended(end, left, None if closing is None else closing.what)

    async def _find_closing(self, end: EndedRun, ends: RunEnds | None, *, is_refused: bool) -> _Closing | None:
        """Return the change that ends the run's group with the run, if its event can be stored in the same commit."""
        if ends is None or self._buffer is None or self._bus is None or not end.group:
            return None
        try:
            what = await ends.closing(end, is_refused=is_refused)
            return None if what is None else _Closing(what, BufferedEvent(*self._bus.prepare(what.event)))
        except HarborageError as error:
            _log.warning("group %s is ended after its last member: %s", end.group, error_reason(error))
            return None

    def _reject_unconsumed(self, since: int, refuse: Refuse | None) -> int:
        """Reject the unconsumed controls from index `since` on; return how many unconsumed controls there are."""
        left = self._run.list_unconsumed()
        if refuse is not None:
            for control in left[since:]:
                refuse(control)
        return len(left)

    async def release(self, change: Change) -> None:
        """Release the run; does nothing if the lease was lost.

        Raises:
            HarborageError: the store refused.
        """
        await self._wait_for_flush()
        self._discard_refused()
        if self._buffer is not None:
            self._buffer.discard_held()
        change = replace(change, tool_calls=self._run.tool_calls)
        try:
            # Only controls whose outcome is among these events are consumed: others that left the inbox and are in no
            # entry are for the worker that resumes the run.
            await self._commit((), {}, change, ())
        except RunCycleError:
            # The run that it waits for waits for it: it wakes at its time, and the orphan listing reports the cycle.
            await self._commit((), {}, replace(change, awaits=""), ())
        except PauseSettledError:
            # Another caller has resolved the pause: its answer counts, and the one given here is refused when the run
            # is resumed.
            self._was_refused = True
            self._discard_refused()
            await self._commit((), {}, change, ())
        except LeaseLostError:
            return

    async def _write(
        self,
        entries: Sequence[bytes],
        bodies: Mapping[str, bytes],
        change: Change | None,
        along: _Along = _NOTHING_ALONG,
    ) -> Committed:
        try:
            done = await self._commit(entries, bodies, change, self._consumed, along)
        except LeaseLostError as error:
            self._run.is_lost = True
            raise RunTakenError(self._run.lease.run_id) from error
        except (ControlsLeftError, StatusConflictError, RowNotFoundError):
            raise
        except CommitRefusedError as error:
            if along is not _NOTHING_ALONG and not self._is_of_settles(error):
                raise  # its caller knows what a condition of its changes means
            self._was_refused |= bool(entries)
            raise RecordRefusedError(self._run.lease.run_id, error_text(error)) from error
        except BaseException as error:
            self._was_refused |= bool(entries)
            if isinstance(error, HarborageError):
                raise RecordRefusedError(self._run.lease.run_id, error_text(error)) from error
            raise
        if entries:
            self._was_refused = False
        return done

    async def _commit(
        self,
        entries: Sequence[bytes],
        bodies: Mapping[str, bytes],
        change: Change | None,
        consumed: tuple[int, ...],
        along: _Along = _NOTHING_ALONG,
    ) -> Committed:
        run, buffer = self._run, self._buffer
        events, used = () if buffer is None else buffer.take_ready(), self._used()
        commit, settles = self._build_commit(entries, bodies, change, consumed, events, along), len(self._settles)
        try:
            if along.accepted is not None and self._commit_now is not None:
                done = self._commit_now(commit, along.accepted)
            else:
                done = await self._store.commit(commit)
        except asyncio.CancelledError:
            self._uncertain_entries, self._uncertain_events = len(entries), len(events)
            self._uncertain_settles, self._uncertain_usage = settles, used
            self._put_back(events)
            raise
        except LeaseLostError:
            if not self._uncertain_entries:
                raise  # the events did not happen, either
            self._put_back(events)
            if not await self._is_appended():
                raise
            # The append that was cut short has succeeded, and these entries begin with its own.
            kept, self._uncertain_entries = self._uncertain_entries, 0
            run.position += kept
            self._settles, self._uncertain_settles = self._settles[self._uncertain_settles :], 0
            self._deliver_uncertain_events()
            return await self._commit(entries[kept:], bodies, change, consumed, along)
        except Exception:
            self._put_back(events)
            raise
        self._uncertain_entries = self._uncertain_events = self._uncertain_settles = 0
        self._uncertain_usage = NOTHING_USED
        run.position += len(entries)
        self._consumed = self._consumed[len(consumed) :]
        self._settles = self._settles[settles:]
        if buffer is not None:
            buffer.usage_stored(used)
            buffer.deliver((*events, *along.events), done)
        return done

    def _used(self) -> Used:
        """Return what the run's calls of a model used that no event tells of, which the next commit adds."""
        return NOTHING_USED if self._buffer is None else self._buffer.used

    def _deliver_uncertain_events(self) -> None:
        """Deliver the events that an append which was cut short has stored; they are not stored again."""
        unsure, self._uncertain_events = self._uncertain_events, 0
        if self._buffer is not None:
            self._buffer.usage_stored(self._uncertain_usage)
            self._uncertain_usage = NOTHING_USED
            events = self._buffer.take_ready()
            self._buffer.deliver(events[:unsure], Committed())
            self._buffer.put_back(events[unsure:])

    def _put_back(self, events: tuple[BufferedEvent, ...]) -> None:
        if self._buffer is not None:
            self._buffer.put_back(events)

    def _build_commit(
        self,
        entries: Sequence[bytes],
        bodies: Mapping[str, bytes],
        change: Change | None,
        consumed: tuple[int, ...],
        events: tuple[BufferedEvent, ...],
        along: _Along = _NOTHING_ALONG,
    ) -> Commit:
        guard = Guard(lease=self._run.lease, position=self._run.position)
        if along is not _NOTHING_ALONG:
            events = (*events, *along.events)
        if any(used := used_in(events).plus(self._used())):
            change = _NOTHING_CHANGED if change is None else change
            change = replace(change, tokens=change.tokens + used.tokens, cost=change.cost + used.cost)
        commit = Commit(guard=guard, entries=tuple(entries), bodies=bodies, change=change, consumed=consumed)
        if events:
            commit = replace(
                commit,
                consumed=(*consumed, *(one.consumes for one in events if one.consumes)),
                who=self._run.request.who.identity,
                events=tuple(one.data for one in events),
            )
        if self._settles:
            commit = replace(commit, settles=self._settles)
        if along is _NOTHING_ALONG:
            return commit
        changes = along.changes
        return replace(
            commit,
            starts=changes.starts,
            moves=changes.moves,
            opens=changes.opens,
            settles=(*self._settles, *changes.settles),
            sends=changes.sends,
            groups=changes.groups,
        )

    def _is_of_settles(self, error: CommitRefusedError) -> bool:
        """Return whether a commit was refused because another caller had resolved a pause that rides with it."""
        return isinstance(error, PauseSettledError) and any(one.token == error.row.token for one in self._settles)

    async def _is_appended(self) -> bool:
        """Return whether an append that was cut short is in the journal all the same."""
        lease = self._run.lease
        rows = (await self._store.runs(RunQuery(run_ids=(lease.run_id,), limit=1))).rows
        return (
            bool(rows) and rows[0].lease == lease and rows[0].position == self._run.position + self._uncertain_entries
        )
