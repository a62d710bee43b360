"""What can be asked of a store: which rows, in which order, after which cursor.

Every query begins with an identity or says that it looks at all of them; a page is in the order of its cursor, so that
a list costs the same wherever one is in it. An empty field narrows nothing.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from harborage.store.rows import GroupStatus, PauseStatus, Status

T = TypeVar("T")

COUNT_CAP: Final = 10_000
"""Up to how many rows a store counts that cannot count all of them quickly."""


class Page(NamedTuple, Generic[T]):
    """Some rows, and the cursor to go on from; None when there are no more.

    A page of what no index answers may have fewer rows than were asked for, even none, and a cursor.
    """

    rows: list[T]
    cursor: tuple[int, int] | None


class RunQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which runs, newest first; with `oldest_first` the other way round. `after` is the cursor of the page before.

    `text` is looked for in goal and description as a list shows them, whatever the case; `tags` are marks that a run
    all has. A page of a query by `text`, `tags`, `kinds`, `root`, `longer_than`, or by users, sessions, agents or final
    statuses of any tenant, looks at some thousands of runs, and its cursor goes on behind them: read on until there is
    none. `is_whole` finds rows with what was asked and the outcome, which may be large.
    """

    tenant: str = ""
    user: str = ""
    session: str = ""
    run_ids: tuple[str, ...] = ()
    statuses: tuple[Status, ...] = ()
    kinds: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    agent: str = ""
    parent: str = ""
    parents: tuple[str, ...] = ()
    root: str = ""
    group: str = ""
    since: int | None = None
    until: int | None = None
    longer_than: int = 0
    text: str = ""
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
    """Which events, in the order of their sequence, behind number `after`; with `newest_first` before it, backwards."""

    tenant: str = ""
    user: str = ""
    session: str = ""
    run_ids: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    after: int = 0
    newest_first: bool = False
    limit: int = 100


class EventCountQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to count, in slots of `bucket` nanoseconds from the moment `start` on, in nanoseconds since 1970.

    They are in one of these sessions, of one of these users of one of these tenants; `since` is included, `until` is
    not. No run ids are all runs, no types all types.
    """

    tenants: tuple[str, ...]
    users: tuple[str, ...]
    sessions: tuple[str, ...]
    run_ids: tuple[str, ...] = ()
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


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """Work that no worker, timer or person would ever move, and why; `subject` is the run, group or pause."""

    kind: str
    subject: str
    run_id: str = ""
