"""The runs and the open questions of a session, page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Generic, TypeVar, overload

from msgspec.structs import replace

from harborage.errors import InvalidOptionError, at_least, one_of
from harborage.runtime.durable.engine import RunPhase
from harborage.runtime.durable.reader import status_of
from harborage.runtime.effects.options import checked_tags
from harborage.runtime.pending import Pending
from harborage.store import LIVE, PauseQuery, PauseStatus, RunQuery, Status
from harborage.store.tags import marks_of

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.durable.engine import RunStatus
    from harborage.runtime.effects.assembly import Assembly
    from harborage.runtime.loop.pauses import Pause
    from harborage.runtime.pending import TakesAnswers
    from harborage.store import RunRow

_MOST_ASKED: Final = 10_000
T_co = TypeVar("T_co", covariant=True)

MOST: Final = 1000
"""How many runs or questions a page has at most."""


class RunFilter(StrEnum):
    """Which runs a list has. One that waits, waits for a person, a control, another run or a time; a blocked one for
    other code."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    BLOCKED = "blocked"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ENDED: Final = {
    RunFilter.COMPLETE: (Status.COMPLETE,),
    RunFilter.FAILED: (Status.FAILED,),
    RunFilter.CANCELLED: (Status.CANCELLED,),
}
_PHASES: Final = {
    RunFilter.PENDING: RunPhase.PENDING,
    RunFilter.RUNNING: RunPhase.RUNNING,
    RunFilter.WAITING: RunPhase.PARKED,
    RunFilter.BLOCKED: RunPhase.BLOCKED,
}


class Page(Sequence[T_co], Generic[T_co]):
    """Some of a list, newest first. `next` is where the next page begins: pass it as `after`; "" after the last one."""

    def __init__(self, items: Sequence[T_co], next: str = "") -> None:
        self._items = tuple(items)
        self.next = next

    @overload
    def __getitem__(self, at: int) -> T_co: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[T_co]: ...

    def __getitem__(self, at: int | slice) -> T_co | Sequence[T_co]:
        return self._items[at]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._items)

    def __repr__(self) -> str:
        return f"Page({list(self._items)!r}, next={self.next!r})"


async def list_runs(
    parts: Assembly, who: Identity, *, status: RunFilter | str, tags: Mapping[str, str], limit: int, after: str
) -> Page[RunStatus]:
    """A page of the runs of `who`.

    Raises:
        InvalidOptionError: a value is invalid.
    """
    wanted = one_of(RunFilter, status, "runs: status") if status else None
    query = RunQuery(
        tenant=who.tenant_id,
        user=who.user_id,
        session=who.session_id,
        statuses=() if wanted is None else _ENDED.get(wanted, LIVE),
        tags=marks_of(checked_tags(tags, "runs: tags")),
        after=_place(after, "runs"),
        limit=_size(limit, "runs"),
    )
    phase = None if wanted is None else _PHASES.get(wanted)
    found: list[RunStatus] = []
    while True:
        page = await parts.store.runs(replace(query, limit=limit - len(found)))
        asking = await _asking(parts, who, page.rows)
        shown = [status_of(row, is_parked=row.run_id in asking) for row in page.rows]
        found += [one for one in shown if phase in (None, one.phase)]
        query = replace(query, after=page.cursor)
        if page.cursor is None or len(found) >= limit:
            return Page(found, _text(page.cursor))


async def _asking(parts: Assembly, who: Identity, rows: Sequence[RunRow]) -> frozenset[str]:
    """Those of the runs that ask a person something, which a worker may hold meanwhile."""
    live = tuple(row.run_id for row in rows if not row.status.is_final)
    if not live:
        return frozenset()
    query = PauseQuery(
        tenant=who.tenant_id, user=who.user_id, run_ids=live, statuses=(PauseStatus.OPEN,), limit=_MOST_ASKED
    )
    return frozenset(row.run_id for row in (await parts.store.pauses(query)).rows)


async def list_pending(
    parts: Assembly, who: Identity, *, limit: int, after: str, run_of: Callable[[Pause], TakesAnswers]
) -> Page[Pending]:
    """A page of the open questions of the runs of `who` without an answer.

    Raises:
        InvalidOptionError: a value is invalid.
    """
    pauses, cursor = await parts.pauses.list_open(who, after=_place(after, "pending"), limit=_size(limit, "pending"))
    found = [Pending(run_of(pause), pause) for pause in pauses if not pause.answering]
    return Page(found, _text(cursor))


def _size(limit: int, method: str) -> int:
    at_least(1, limit, f"{method}: limit", is_whole=True)
    if limit > MOST:
        raise InvalidOptionError(f"{method}: limit", limit, f"a number up to {MOST}; read on with after=page.next")
    return limit


def _text(place: tuple[int, int] | None) -> str:
    return "" if place is None else f"{place[0]}-{place[1]}"


def _place(after: object, method: str) -> tuple[int, int] | None:
    if after == "":
        return None
    at, _, number = after.partition("-") if isinstance(after, str) else ("", "", "")
    if not (at.isascii() and at.isdigit() and number.isascii() and number.isdigit() and len(at + number) < 36):
        raise InvalidOptionError(f"{method}: after", after, "the `next` of the page before")
    return int(at), int(number)
