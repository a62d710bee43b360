"""Runs in a store of record, as tests look at them and lay them there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harborage.runtime.durable.histories import request_of
from harborage.runtime.durable.reader import RunReader
from harborage.store import Change, Commit, Guard, Lease, NewRun, RunQuery

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.store import RunRow, Store
    from harborage.store.memory import MemoryStore


async def row_of(store: Store, run_id: str) -> RunRow:
    """The row of a run that is there."""
    (row,) = (await store.runs(RunQuery(run_ids=(run_id,)))).rows
    return row


async def rows_of(store: Store, query: RunQuery = RunQuery(limit=1000)) -> list[RunRow]:  # noqa: B008 - a frozen value
    """The rows of a query, oldest first."""
    return (await store.runs(query)).rows[:: 1 if query.oldest_first else -1]


async def keep(
    store: Store,
    who: Quadruple,
    entries: Sequence[bytes] = (),
    *,
    goal: str = "",
    agent: str = "",
    bodies: Mapping[str, bytes] = {},
    change: Change | None = None,
) -> None:
    """Keep a run with these entries: ready for any worker, or as an earlier worker left it with `change`.

    Where that ends the run, the last entry is kept with it, unless the run begins with that.
    """
    last = () if change is None or change.status is None else tuple(entries[1:][-1:])
    first = tuple(entries[: len(entries) - len(last)])
    worker = "" if change is None else "earlier"
    run = NewRun(run_id=who.run_id, who=who.identity, entries=first, goal=goal, agent=agent, worker=worker)
    await store.commit(Commit(starts=(run,), bodies=bodies))
    if change is not None:
        guard = Guard(lease=Lease(who.run_id, worker, 1), position=len(first))
        await store.commit(Commit(guard=guard, entries=last, change=change))


def rewrite(store: MemoryStore, run_id: str, entries: Sequence[bytes]) -> None:
    """Lay other entries in the place of those of a run, as other code would have written them or damage leaves them."""
    store._tables.runs[run_id].entries[:] = entries


PARKED = Change(release=True)
"""How a worker gives a run back that waits, and that nothing has woken since."""


async def goal_of(store: Store, run_id: str) -> str:
    """The whole goal that a run was started with; its row has only as much of it as lists show.

    Raises:
        EntryDamagedError, JournalCorruptError: its record is damaged, or not there.
    """
    return request_of(run_id, await RunReader(store).entries(run_id)).goal
