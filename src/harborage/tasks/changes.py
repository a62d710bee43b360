"""How a change of tasks becomes true: one commit of the store, and the events that say so.

On a bus over the same store the events are part of the commit. On any other one they are published once the store has
accepted the commit: in memory before anything has changed, so that an event which cannot be published fails the
change; elsewhere after it. A group ends in the commit of its last member, so that no process dies between the two.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from harborage.errors import error_reason
from harborage.events import Event, RecordBus
from harborage.identity import Quadruple
from harborage.store import ChangeGroup, Status
from harborage.store.port import commit_now_of
from harborage.tasks.model import GroupCompletion
from harborage.tasks.rows import member_of

if TYPE_CHECKING:
    from harborage.events import EventBus
    from harborage.events.bus import RunWriter
    from harborage.store import Change, Commit, Committed, GroupLeft, NewEvent, RunRow, SendControl, Store
    from harborage.tasks.model import MemberOutcome, Task


class EndedRun(msgspec.Struct, frozen=True):
    """A run that ends so: `parent` is the run that started it, `outcome` what its row is ended with."""

    who: Quadruple
    group: str
    parent: str
    status: Status
    outcome: bytes

    @classmethod
    def of(cls, who: Quadruple, change: Change, *, group: str, parent: str) -> EndedRun:
        """The run whose row is ended with this change."""
        assert change.status is not None
        return cls(who, group, parent, change.status, change.outcome or b"")

    @property
    def member(self) -> MemberOutcome:
        """How it ended as a member of its group."""
        return member_of(self.who.run_id, self.status, self.outcome)


class Closing(msgspec.Struct, frozen=True):
    """What ends a group with its last member: the change, the event that says so, and how the group has ended then."""

    change: ChangeGroup
    event: Event
    completion: GroupCompletion


class RunEnds(Protocol):
    """What a host asks of the tasks of its runs when one ends."""

    async def closing(self, end: EndedRun, *, is_refused: bool) -> Closing | None:
        """What ends the run's group in the commit that ends the run; None where the group goes on.

        It may be a guess: the store refuses one that is wrong, and then it is asked for once more, as `is_refused`.

        Raises:
            HarborageError: the group cannot be looked at; it is ended after the run.
        """
        ...

    def ended(self, end: EndedRun, left: GroupLeft | None, closing: Closing | None) -> Coroutine[Any, Any, None] | None:
        """What follows from the end, which has been recorded with that; None where nothing does."""
        ...


_log = logging.getLogger(__name__)

Launch: TypeAlias = "Callable[[Task, Commit, Callable[[], None] | None, RunWriter | None], Awaitable[Committed]]"
"""Starts the run of a new task: it puts what the run needs into the commit, and commits it.

The third argument, if any, is called once the commit is accepted and before anything has changed; only a store in
memory is given one. The last is how the run that spawns the task commits, if one does.
"""


class Runs(Protocol):
    """What a registry knows of the runs of its tasks, where a host executes them. Without `launch` a task that is
    spawned has none."""

    @property
    def launch(self) -> Launch | None: ...

    def cancellation(self, row: RunRow, reason: str, *, is_cascaded: bool) -> SendControl:
        """The control that ends a run because its task is cancelled."""
        ...


class Changes:
    """Commits changes of one store, with their events on one bus."""

    def __init__(self, store: Store, bus: EventBus) -> None:
        self._store = store
        self._bus = bus
        self._record_bus = bus if isinstance(bus, RecordBus) and bus.store is store else None
        self._commit_now = commit_now_of(store)

    @property
    def is_recorded(self) -> bool:
        """Whether events are part of the commits of their changes."""
        return self._record_bus is not None

    async def commit_end(self, commit: Commit, event: Event, closing: Closing | None) -> Committed:
        """Make the end of a task true with that of its group, and say so; `left` says whether the group has ended.

        Raises:
            as `commit`, but that the event of the group's end is refused is none: the group is ended later.
        """
        if closing is None or self._record_bus is None:
            return await self.commit(commit, [event])
        prepared = [self._record_bus.prepare(event)]
        try:
            prepared.append(self._record_bus.prepare(closing.event))
        except Exception as error:  # noqa: BLE001 - whatever the bus raises
            _log.warning("group %s is ended later: %s", closing.completion.group_id, error_reason(error))
        else:
            commit = replace(commit, groups=(closing.change,))
        return await self._record(self._record_bus, commit, prepared, None, None)

    async def commit(
        self,
        commit: Commit,
        events: Sequence[Event],
        *,
        task: Task | None = None,
        launch: Launch | None = None,
        write: RunWriter | None = None,
    ) -> Committed:
        """Make a change true, and say so; with `launch` that is given the commit, for the run of `task`.

        With `write` a run makes the change: it is committed as that run commits.

        Raises:
            CommitRefusedError, RowNotFoundError: a condition does not hold; nothing has changed.
            Exception: what the bus raised. On a bus that is neither over this store, nor beside one in memory, the
                change is true by then.
        """
        if self._record_bus is not None and events:
            prepared = [self._record_bus.prepare(event) for event in events]
            if write is not None:
                return await self._send(commit, None, task, launch, partial(write, events=prepared))
            return await self._record(self._record_bus, commit, prepared, task, launch)
        if self._commit_now is not None:
            return await self._send(commit, lambda: self._publish_now(events), task, launch, write)
        done = await self._send(commit, None, task, launch, write)
        for event in events:
            await self._bus.publish(event)
        return done

    async def _record(
        self,
        bus: RecordBus,
        commit: Commit,
        prepared: Sequence[tuple[Event, NewEvent]],
        task: Task | None,
        launch: Launch | None,
    ) -> Committed:
        session = prepared[0][0].identity.identity
        kept = replace(commit, who=session, events=tuple(data for _, data in prepared))
        done = await self._send(kept, None, task, launch)
        bus.deliver([event for event, _ in prepared], done)
        return done

    async def _send(
        self,
        commit: Commit,
        accepted: Callable[[], None] | None,
        task: Task | None,
        launch: Launch | None,
        write: RunWriter | None = None,
    ) -> Committed:
        if launch is not None and task is not None:
            return await launch(task, commit, accepted, write)
        if write is not None:
            return await write(commit, accepted=accepted)
        if accepted is not None and self._commit_now is not None:
            return self._commit_now(commit, accepted)
        return await self._store.commit(commit)

    def _publish_now(self, events: Sequence[Event]) -> None:
        for event in events:
            self._bus.publish_nowait(event)
