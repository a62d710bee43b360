"""How a change of tasks becomes true: one commit of the store, and the events that say so.

On a bus over the same store the events are part of the commit. On any other one they are published once the store has
accepted the commit: in memory before anything has changed, so that an event which cannot be published fails the
change; elsewhere after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec.structs import replace

from harborage.events import RecordBus
from harborage.store.port import commit_now_of

if TYPE_CHECKING:
    from harborage.events import Event, EventBus
    from harborage.store import Commit, Committed, RunRow, SendControl, Store
    from harborage.tasks.model import Task

Launch: TypeAlias = "Callable[[Task, Commit, Callable[[], None] | None], Awaitable[Committed]]"
"""Starts the run of a new task: it puts what the run needs into the commit, and commits it.

The last argument, if any, is called once the commit is accepted and before anything has changed; only a store in memory
is given one.
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

    async def commit(
        self, commit: Commit, events: Sequence[Event], *, task: Task | None = None, launch: Launch | None = None
    ) -> Committed:
        """Make a change true, and say so; with `launch` that is given the commit, for the run of `task`.

        Raises:
            CommitRefusedError, RowNotFoundError: a condition does not hold; nothing has changed.
            Exception: what the bus raised. On a bus that is neither over this store, nor beside one in memory, the
                change is true by then.
        """
        if self._record_bus is not None and events:
            prepared = [self._record_bus.prepare(event) for event in events]
            session = events[0].identity.identity
            done = await self._send(
                replace(commit, who=session, events=tuple(data for _, data in prepared)), None, task, launch
            )
            self._record_bus.deliver([event for event, _ in prepared], done)
            return done
        if self._commit_now is not None:
            return await self._send(commit, lambda: self._publish_now(events), task, launch)
        done = await self._send(commit, None, task, launch)
        for event in events:
            await self._bus.publish(event)
        return done

    async def _send(
        self, commit: Commit, accepted: Callable[[], None] | None, task: Task | None, launch: Launch | None
    ) -> Committed:
        if launch is not None and task is not None:
            return await launch(task, commit, accepted)
        if accepted is not None and self._commit_now is not None:
            return self._commit_now(commit, accepted)
        return await self._store.commit(commit)

    def _publish_now(self, events: Sequence[Event]) -> None:
        for event in events:
            self._bus.publish_nowait(event)
