"""The port of the store of record: five small faces of one store.

`Records` writes and reads runs, `Queue` says who executes which run, `Sessions` opens and closes what runs belong to,
`Views` answers lists and counts, `Upkeep` finds what is wrong and deletes. A call whose caller is cancelled happened
whole or not at all. A closed store refuses every call with `StoreClosedError`; a database that refuses raises
`DatabaseError`, and nothing was changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from harborage.clock import Timers, sleep
from harborage.errors import error_reason
from harborage.state.errors import DatabaseError, StoreClosedError
from harborage.store.errors import StoreError

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.store.commit import Commit, Committed, NewEvent
    from harborage.store.examining import Examined, Judges, Part, Place
    from harborage.store.queries import (
        EventCount,
        EventCountQuery,
        EventQuery,
        GroupQuery,
        Orphan,
        Page,
        PauseQuery,
        RunCounts,
        RunQuery,
        RunTotals,
        SessionListQuery,
        SessionQuery,
        SessionTotals,
    )
    from harborage.store.rows import (
        ControlRow,
        EventRow,
        GroupRow,
        Lease,
        PatchRow,
        PauseRow,
        RunRow,
        SessionChange,
        SessionRow,
    )

_LOOK_S: Final = 0.1
_BEAT_S: Final = 10.0

_log = logging.getLogger(__name__)

MAX_ATTEMPTS: Final = 20
"""How often a run is claimed without progress before it is blocked."""


class Claimed(NamedTuple):
    """A run that a worker has claimed: its row as it is now, its journal, and the controls it has not consumed."""

    row: RunRow
    entries: list[bytes]
    controls: list[ControlRow]


class Records(Protocol):
    """Writes commits, and reads what one run needs."""

    async def commit(self, commit: Commit) -> Committed:
        """Apply a commit whole; it is on disk once this returns, and the same commit sent again changes nothing.

        Raises:
            CommitInvalidError: it has no meaning.
            CommitRefusedError: one of its conditions does not hold; the class says which.
            RowNotFoundError: it names a run, pause, group or patch that is not there.
        """
        ...

    async def entries(self, run_id: str, *, after: int = 0) -> list[bytes]:
        """The entries of a run's journal behind the first `after`; none for an unknown run.

        Raises:
            EntryDamagedError: one is missing, or is not what was kept.
        """
        ...

    async def body(self, run_id: str, digest: str) -> bytes:
        """The body that a run's entries name by this digest.

        Raises:
            EntryDamagedError: it is missing, or is not what was kept, or only other runs name it.
        """
        ...

    async def controls(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[ControlRow]:
        """The controls of a run behind number `after` that it has not consumed, in the order they came."""
        ...

    async def controls_of(self, after: Mapping[str, int], *, limit: int = 100) -> list[ControlRow]:
        """The same of many runs in one read: those of each behind its number in `after`, up to `limit` of each."""
        ...

    async def was_sent(self, run_id: str, event_id: str) -> bool:
        """Whether a control with this event id was sent to a run, consumed or not, also once the run has ended."""
        ...


class Queue(Protocol):
    """Says who executes which run.

    A worker is alive from `join` to `leave` for as long as it beats. When its process dies its runs are free at once;
    when it only freezes they are free once its beat has stood still for a lease, and its fence keeps it from writing.
    `is_shared` says that other processes may be workers, too; in one that is not, no sign of life is looked for.
    """

    is_shared: bool

    async def join(self, worker: str) -> None:
        """Begin to be a worker under this name.

        Raises:
            WorkerKnownError: another process works under it, or this one does already.
        """
        ...

    async def beat(self, worker: str) -> int:
        """Give the worker's sign of life, and free the runs of workers that died; how many runs became free."""
        ...

    async def look(self, worker: str) -> None:
        """Notice what other processes did, for `on_change`, and free the runs of those that died.

        It writes nothing unless one has died, so it may be called several times a second.
        """
        ...

    async def leave(self, worker: str) -> None:
        """Be a worker no longer; what it still holds is free. Nothing changes for one that never joined here."""
        ...

    async def claim(self, worker: str, *, agents: Sequence[str] = (), limit: int = 100) -> list[Claimed]:
        """Take runs that are ready, highest priority first, then oldest. With `agents` only theirs, and those of none.

        A run that was claimed too often without progress is blocked instead.
        """
        ...

    async def unread(self, worker: str) -> dict[str, int]:
        """The runs of a worker that have controls they have not consumed, each with the number of the last one."""
        ...

    async def next_due(self, *, agents: Sequence[str] = ()) -> int | None:
        """When the next run that waits for a time is ready, 0 where one is ready now; None when none ever will be."""
        ...

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` on this event loop when a run may have become ready or ended, or a control came.

        It is called at once for changes of this process, and for those of others with the next `look` of a worker of
        this process. It has no arguments: the listener looks for what is new, and may be called without need. Returns
        what ends it.
        """
        ...


class Sessions(Protocol):
    """Opens, sees and closes sessions: each call is one change, made under its condition or not at all."""

    async def open_session(
        self, who: Identity, *, context: bytes = b"{}", at: int | None = None, events: Sequence[NewEvent] = ()
    ) -> SessionChange:
        """Open a session, unless it is open, and store the `events` that say so. One that was closed stays so.

        `context` is what it is opened with, `at` when, in microseconds; None is now.
        """
        ...

    async def touch_session(self, who: Identity, *, before: int | None = None) -> SessionChange:
        """Note that a session is seen now, if it is open; with `before` only if it was last seen before that time."""
        ...

    async def close_session(self, who: Identity, reason: str, *, seen_at: int | None = None) -> SessionChange:
        """Close an open session for good; with `seen_at` only if that is still when it was last seen."""
        ...


class Views(Protocol):
    """Answers lists and counts, each by an index."""

    async def runs(self, query: RunQuery) -> Page[RunRow]:
        """The runs of a query."""
        ...

    async def count_runs(self, query: RunQuery) -> RunCounts:
        """How many runs a query finds, whatever its page."""
        ...

    async def total_runs(self, query: RunQuery) -> RunTotals:
        """What the runs of a query used together, whatever its page."""
        ...

    async def pauses(self, query: PauseQuery) -> Page[PauseRow]:
        """The pauses of a query."""
        ...

    async def count_pauses(self, query: PauseQuery) -> int:
        """How many pauses a query finds, whatever its page."""
        ...

    async def events(self, query: EventQuery) -> list[EventRow]:
        """The events of a query."""
        ...

    async def count_events(self, query: EventCountQuery) -> list[EventCount]:
        """How many events a query finds by slot and type, in this order; what there is none of is left out."""
        ...

    async def total_events(self, query: EventQuery) -> int:
        """How many events a query finds, whatever its page."""
        ...

    async def sessions(self, query: SessionQuery) -> Page[SessionRow]:
        """The sessions of a query."""
        ...

    async def list_sessions(self, query: SessionListQuery) -> list[SessionTotals]:
        """The sessions of a query with their totals; one that cannot be read has none."""
        ...

    async def count_sessions(self, query: SessionListQuery) -> int:
        """How many sessions a query finds, whatever its page."""
        ...

    async def groups(self, query: GroupQuery) -> Page[GroupRow]:
        """The groups of a query."""
        ...

    async def group(self, group_id: str, *, who: Identity) -> tuple[GroupRow, list[RunRow]]:
        """A group of this session and its members in the order they joined, as whole rows.

        Raises:
            RowNotFoundError: there is none.
        """
        ...


class Upkeep(Protocol):
    """Finds what is wrong, and deletes."""

    async def orphans(self, *, limit: int = 100) -> list[Orphan]:
        """Work that nothing would ever move.

        By kind: runs `paused_for_nothing`, live ones whose `parent_ended`, open pauses (`pause_of_ended`), and groups
        that take no more members and have no live one (`group_not_ended`; `run_id` is whose they are).
        """
        ...

    async def examine(self, part: Part, judges: Judges, after: Place) -> Examined:
        """Look at one slice of everything that is stored, behind this row: what is damaged, gone, or to be looked at.

        It changes nothing and keeps no caller waiting; `judges` are called in another thread, perhaps.
        """
        ...

    async def unblock(self, run_ids: Sequence[str]) -> int:
        """Let blocked runs be claimed again; how many there were."""
        ...

    async def delete(self, run_ids: Sequence[str]) -> int:
        """Delete ended runs with all that only they have; how many there were. Events of their sessions stay.

        A group that has ended goes with the last of its members.
        """
        ...

    async def drop_pauses(self, before: int) -> int:
        """Delete pauses that belong to no run and were settled before then, up to a thousand; how many there were.

        Those of a run are deleted with it.
        """
        ...

    async def patch(self, patch_id: str, *, who: Identity) -> PatchRow | None:
        """A patch of this session, if there is one."""
        ...


class Store(Records, Queue, Sessions, Views, Upkeep, Protocol):
    """A store of record, whole."""

    async def aclose(self) -> None:
        """Release what it holds. Closing twice does nothing."""
        ...


class CommitNow(Protocol):
    """A commit without an await; `accepted` is called once it is accepted, before anything has changed."""

    def __call__(self, commit: Commit, accepted: Callable[[], None] | None = None) -> Committed: ...


class AppendNow(Protocol):
    """Adds entries to the run of a lease, which has `position` of them, without an await; False where a commit refuses.

    So does a commit that has a guard and entries, and nothing else, at several times the cost.
    """

    def __call__(self, lease: Lease, position: int, entries: Sequence[bytes]) -> bool: ...


def append_now_of(store: Records) -> AppendNow | None:
    """The same of entries alone, of the stores that have `commit_now_of`."""
    append_now: AppendNow | None = None if commit_now_of(store) is None else getattr(store, "append_now", None)
    return append_now


def commit_now_of(store: Records) -> CommitNow | None:
    """`commit` without an await, of a store in this process's memory; None for every other.

    One that stands in front of such a store, or that has a `commit` of its own, is asked by that.
    """
    if "commit_now" not in type(store).__dict__ or "commit" in vars(store):
        return None
    commit_now: CommitNow = store.commit_now  # type: ignore[attr-defined]
    return commit_now


async def keep_alive(queue: Queue, worker: str, clock: Timers, *, joined: asyncio.Event) -> None:
    """Be this worker until cancelled, and notice what others do; what it still holds then is free.

    `joined` is set once it may claim runs. A database that refuses is asked again; a beat that does not come through
    for a lease makes others think that the worker died.

    Raises:
        WorkerKnownError: another process works under that name.
        StoreClosedError: the store was closed meanwhile.
    """
    beat_at = 0.0
    try:
        if not queue.is_shared:
            await _join(queue, worker)
            joined.set()
            await asyncio.get_running_loop().create_future()
        while True:
            try:
                if not joined.is_set():
                    await _join(queue, worker)
                    joined.set()
                    beat_at = clock.monotonic() + _BEAT_S
                elif clock.monotonic() >= beat_at:
                    beat_at = clock.monotonic() + _BEAT_S
                    await queue.beat(worker)
                await queue.look(worker)
            except DatabaseError as error:
                _log.warning("worker %s cannot give its sign of life: %s", worker, error_reason(error))
            await sleep(clock, _LOOK_S)
    finally:
        if joined.is_set():
            await _left(queue, worker)


async def _join(queue: Queue, worker: str) -> None:
    try:
        await queue.join(worker)
    except asyncio.CancelledError:
        await _left(queue, worker)  # the join may have come about all the same
        raise


async def _left(queue: Queue, worker: str) -> None:
    try:
        await queue.leave(worker)
    except (DatabaseError, StoreClosedError, StoreError) as error:
        _log.warning("worker %s left without giving its runs back; others will find them: %s", worker, error)
