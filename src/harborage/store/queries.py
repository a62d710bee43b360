"""What can be asked of a store: which rows, in which order, after which cursor.

Every query begins with an identity or says that it looks at all of them; a page is in the order of its cursor, so that
a list costs the same wherever one is in it. An empty field narrows nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from harborage.store.rows import GroupStatus, PauseStatus, SessionRow, Status

T = TypeVar("T")

COUNT_CAP: Final = 10_000
"""Up to how many rows a store counts that cannot count all of them quickly."""


class Page(NamedTuple, Generic[T]):
    """Some rows, and the cursor to go on from; None when there are no more.

    A page of what no index answers may have fewer rows than were asked for, even none, and a cursor.
    """

    rows: list[T]
    cursor: tuple[int, int] | None


class Owner(NamedTuple):
    """Whose something is; a blank user stands for all of the tenant, a blank session for all of the user."""

    tenant: str
    user: str = ""
    session: str = ""


class RunQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which runs, newest first; with `oldest_first` the other way round. `after` is the cursor of the page before.

    `text` is looked for in goal and description as a list shows them, whatever the case; `tags` are marks that a run
    all has. `words` are looked for in its id, goal, description, kind and shown status. `shown` are statuses as people
    see them: a live run that waits for a person, or that is blocked, is paused, and any other that has begun is
    running. With `or_crashed` the runs that ended with an error of their own are among those of the `reasons`. `owners`
    are those of whom a run has any; `has_approval` says whether it waits for an approval.
    A page of a query by `text`, `words`, `tags`, `kinds`, `owners`, `root`, `longer_than`, or by users, sessions,
    agents or final statuses of any tenant, looks at some thousands of runs, and its cursor goes on behind them: read on
    until there is none. `is_whole` finds rows with what was asked and the outcome, which may be large.
    """

    tenant: str = ""
    user: str = ""
    session: str = ""
    run_ids: tuple[str, ...] = ()
    owners: tuple[Owner, ...] = ()
    statuses: tuple[Status, ...] = ()
    shown: tuple[Status, ...] = ()
    kinds: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    or_crashed: bool = False
    has_approval: bool | None = None
    agent: str = ""
    parent: str = ""
    parents: tuple[str, ...] = ()
    root: str = ""
    group: str = ""
    since: int | None = None
    until: int | None = None
    longer_than: int = 0
    text: str = ""
    words: str = ""
    tags: tuple[str, ...] = ()
    only_blocked: bool = False
    oldest_first: bool = False
    is_whole: bool = False
    after: tuple[int, int] | None = None
    limit: int = 100


class GroupQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which groups, newest first. `only_empty` finds those that have had members and whose members have all ended."""

    tenant: str = ""
    user: str = ""
    session: str = ""
    group_ids: tuple[str, ...] = ()
    statuses: tuple[GroupStatus, ...] = ()
    only_empty: bool = False
    after: tuple[int, int] | None = None
    limit: int = 100


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs there are by status; with `is_capped` not all were counted, or looked at."""

    by_status: dict[Status, int]
    is_capped: bool = False

    @property
    def total(self) -> int:
        """All of them together."""
        return sum(self.by_status.values())


class RunTotals(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs a query finds, and what they used together; `cost` is in millionths of a US dollar."""

    runs: int = 0
    tokens: int = 0
    cost: int = 0


class PauseQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which pauses, newest first. `since` and `until` bound when they were opened, both included.

    `due` finds the open ones whose deadline is then or earlier.
    """

    tenant: str = ""
    user: str = ""
    session: str = ""
    tokens: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    statuses: tuple[PauseStatus, ...] = ()
    reasons: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    due: int | None = None
    after: tuple[int, int] | None = None
    limit: int = 100


class EventQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which events, in the order of their sequence, behind number `after`; with `newest_first` before it, backwards.

    `text` is looked for in type and run, whatever the case.
    """

    tenant: str = ""
    user: str = ""
    session: str = ""
    run_ids: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    text: str = ""
    after: int = 0
    newest_first: bool = False
    limit: int = 100


class EventCountQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to count, in slots of `bucket` nanoseconds from the moment `start` on, in nanoseconds since 1970.

    They are in one of these sessions, of one of these users of one of these tenants; `since` is included, `until` is
    not. No run ids are all runs, no types all types. With run ids, events `task.…` whose data begins with one of
    `task_heads` count too: they name their run in their payload alone.
    """

    tenants: tuple[str, ...]
    users: tuple[str, ...]
    sessions: tuple[str, ...]
    run_ids: tuple[str, ...] = ()
    task_heads: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    since: int
    until: int
    start: int
    bucket: int


class EventCount(NamedTuple):
    """How many events of a type a slot has; the first slot is 0."""

    slot: int
    type: str
    events: int


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which sessions, last opened first. `seen_since` and `seen_until` bound when something last happened in them.

    With `seen_before` or `opened_before` those that were last seen, or opened, before then; with both, either counts.
    `only_opened` leaves out those that were never opened, which are known by their runs or events alone.
    """

    tenant: str = ""
    user: str = ""
    session: str = ""
    seen_since: int | None = None
    seen_until: int | None = None
    seen_before: int | None = None
    opened_before: int | None = None
    only_opened: bool = False
    include_closed: bool = False
    after: tuple[int, int] | None = None
    limit: int = 100


class SessionSort(StrEnum):
    """The order of a list of sessions with their totals; those alike are in the order of their ids."""

    STARTED_DESC = "started_desc"
    STARTED_ASC = "started_asc"
    LAST_ACTIVITY_DESC = "last_activity_desc"
    COST_DESC = "cost_desc"


class SessionState(StrEnum):
    """The state of a session: it is open, or it was closed, as `failed` or for any other reason."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class SessionPlace(NamedTuple):
    """Where a session is in its list: what it is sorted by (a time, or a cost in US cents), its id and its number."""

    key: int
    session: str
    number: int


class SessionTotals(msgspec.Struct, frozen=True, kw_only=True):
    """A session and what its runs come to. `agent` is that of the run that a caller started last, `cost` is in
    millionths of a US dollar. `has_pause` says that something waits for an answer, `has_failed` that a run failed.
    """

    row: SessionRow
    agent: str = ""
    runs: int = 0
    tokens: int = 0
    cost: int = 0
    has_pause: bool = False
    has_failed: bool = False

    @property
    def state(self) -> SessionState:
        """Return its state."""
        if self.row.closed_at is None:
            return SessionState.RUNNING
        return SessionState.FAILED if self.row.close_reason == SessionState.FAILED else SessionState.COMPLETED

    @property
    def last_at(self) -> int:
        """When something last happened in it."""
        return self.row.seen_at if self.row.closed_at is None else self.row.closed_at

    @property
    def cents(self) -> int:
        """What it cost, in whole US cents."""
        return (self.cost + 5_000) // 10_000

    def place(self, sort: SessionSort) -> SessionPlace:
        """Where it is in a list of this order."""
        key = {SessionSort.LAST_ACTIVITY_DESC: self.last_at, SessionSort.COST_DESC: self.cents}
        return SessionPlace(key.get(sort, self.row.opened_at), self.row.who.session_id, self.row.number)


class SessionListQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which opened sessions, closed ones included, with their totals.

    `since` and `until` bound when they were opened, both included. `cost_above` is in US cents, and exceeded. `text` is
    looked for in the ids of session and user and in the agent, `words` in those of session, tenant and user and in the
    reason of the close; both whatever the case. `after` is the place of the last one of the page before.
    """

    tenants: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    states: tuple[SessionState, ...] = ()
    agents: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    has_pause: bool | None = None
    has_failed: bool | None = None
    cost_above: int | None = None
    text: str = ""
    words: str = ""
    sort: SessionSort = SessionSort.STARTED_DESC
    after: SessionPlace | None = None
    limit: int = 100


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """Work that no worker, timer or person would ever move, and why; `subject` is the run, group or pause."""

    kind: str
    subject: str
    run_id: str = ""
