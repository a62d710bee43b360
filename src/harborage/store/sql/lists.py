"""How lists and counts are asked for: statements, put together from the pieces of one dialect, and their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from harborage import codec
from harborage.store.queries import (
    EventCountQuery,
    EventQuery,
    GroupQuery,
    Page,
    PauseQuery,
    RunQuery,
    SessionListQuery,
    SessionQuery,
)
from harborage.store.rows import GroupRow, PauseRow, RunRow, SessionRow, Status
from harborage.store.sql.ways import (
    edge_of,
    event_pieces,
    group_pieces,
    listed_pieces,
    pause_pieces,
    run_ways,
    session_pieces,
    slice_of,
    statuses_of,
    widest_way,
)

if TYPE_CHECKING:
    from harborage.identity import Identity

R = TypeVar("R", RunRow, GroupRow, PauseRow, SessionRow)

Place = tuple[int, int]
"""Where a row is in the order of a list: its time and its number."""

_LAST: Final = (1 << 63) - 1
_END: Final = (_LAST, _LAST)
_BEGINNING: Final = (-_LAST, -1)


class Statement(NamedTuple):
    """A statement with names in it, and the values of these and others."""

    text: str
    values: dict[str, Any]


class Lists:
    """Puts statements together. `many` is how the dialect takes several values in the place of one."""

    def __init__(self, sql: Mapping[str, str], many: Callable[[Sequence[Any]], Any]) -> None:
        self._sql = sql
        self._many = many

    def runs(self, query: RunQuery, *begun: str) -> list[Statement]:
        """The ways to the runs of a query, which together find each run once, and up to one more than its page has."""
        order = "oldest_run" if query.oldest_first else "newest_run"
        begun = begun or (("run_rows", "run_whole", "run_from") if query.is_whole else ("run_rows", "run_from"))
        found: list[Statement] = []
        for way in run_ways(query):
            # The index of what is live is not in the order of time: there only the runs of the page are read whole.
            is_sorted = way.name == "by_live_anywhere"
            first, last = (("live_page",), ("live_paged",)) if is_sorted else ((), ())
            values = self.run_values(way.query) | {"limit": query.limit + 1}
            found.append(self._statement((*begun, *first), way.pieces, (order, *last), values))
        return found

    def run_counts(self, query: RunQuery, *ended: str) -> list[Statement]:
        """The ways to count the runs of a query by status."""
        return [
            self._statement(("run_counts",), way.pieces, ended, self.run_values(way.query)) for way in run_ways(query)
        ]

    def run_totals(self, query: RunQuery) -> list[Statement]:
        """The ways to add up the runs of a query."""
        return [self._statement(("run_totals",), way.pieces, (), self.run_values(way.query)) for way in run_ways(query)]

    def slice_end(self, query: RunQuery) -> Statement:
        """The last run that a page looks at whose query no index answers."""
        order = "oldest_end" if query.oldest_first else "newest_end"
        values = self.run_values(query) | {"limit": slice_of(query) - 1}
        return self._statement(("slice_end",), widest_way(query), (order,), values)

    def run_values(self, query: RunQuery) -> dict[str, Any]:
        """What the pieces of a query of runs name."""
        at, num = edge_of(query, _BEGINNING, _END)
        statuses = [status.code for status in statuses_of(query)]
        names = "tenant user session agent parent parents root group run_ids kinds reasons since until longer_than tags"
        return self._values(query, names) | {
            "status": statuses[0] if statuses else None,
            "statuses": self._many(statuses),
            "shown": self._many([status.code for status in query.shown]),
            "owners": codec.encode(query.owners).decode(),
            "text": query.text.lower(),
            "words": query.words.lower(),
            "word_statuses": self._many([status.code for status in Status if query.words.lower() in status.value]),
            "at": at,
            "num": num,
        }

    def pauses(
        self, query: PauseQuery, begun: Sequence[str] = ("pause_rows",), ended: Sequence[str] = ("newest_pause",)
    ) -> Statement:
        """The pauses of a query."""
        return self._statement(begun, pause_pieces(query), ended, self._pause_values(query) | _page_values(query))

    def pause_count(self, query: PauseQuery) -> Statement:
        """How many pauses a query finds."""
        return self._statement(("pause_count",), pause_pieces(query), (), self._pause_values(query))

    def _pause_values(self, query: PauseQuery) -> dict[str, Any]:
        return self._values(query, "tenant user session tokens run_ids statuses reasons since until due")

    def groups(self, query: GroupQuery) -> Statement:
        """The groups of a query."""
        values = self._values(query, "tenant user session group_ids statuses") | _page_values(query)
        return self._statement(("group_rows",), group_pieces(query), ("newest_group",), values)

    def sessions(self, query: SessionQuery, begun: str = "session_rows") -> Statement:
        """The sessions of a query."""
        values = self._values(query, "tenant user session seen_before opened_before") | _page_values(query)
        values |= {"since": query.seen_since, "until": query.seen_until}
        return self._statement((begun,), session_pieces(query), ("newest_session",), values)

    def listed(self, query: SessionListQuery, *, are_keys: bool = False) -> Statement:
        """The sessions of a query with their totals, or their numbers alone."""
        order = f"listed_{query.sort}"
        pieces = listed_pieces(query)
        if query.after is not None:
            pieces.append(f"listed_after_{query.sort}")
        ended = (order, "listed_limit") if are_keys else (order, "listed_limit", "listed_totals", order)
        begun = ("listed_keys",) if are_keys else ("listed_page", "listed_keys")
        return self._statement(begun, pieces, ended, self._listed_values(query))

    def listed_count(self, query: SessionListQuery) -> Statement:
        """How many sessions a query finds."""
        return self._statement(("listed_count",), listed_pieces(query), (), self._listed_values(query))

    def _listed_values(self, query: SessionListQuery) -> dict[str, Any]:
        values = self._values(query, "tenants users sessions states agents since until cost_above limit")
        key, name, num = query.after or (0, "", 0)
        names = {"tenant": next(iter(query.tenants), ""), "user": next(iter(query.users), "")}
        texts = {"text": query.text.lower(), "words": query.words.lower()}
        return values | names | texts | {"key": key, "name": name, "num": num}

    def events(self, query: EventQuery, begun: str = "event_rows") -> Statement:
        """The events of a query."""
        order = "newest_event" if query.newest_first else "oldest_event"
        values = self._event_values(query) | {"limit": query.limit}
        values["after"] = query.after or (_LAST if query.newest_first else 0)
        return self._statement((begun,), event_pieces(query), (order,), values)

    def event_counts(self, query: EventCountQuery) -> Statement:
        """How many events a query finds, by slot and type."""
        asked = ["event_of_runs"] if query.run_ids else []
        asked += ["event_has_types"] if query.types else []
        values = self._values(query, "tenants users sessions run_ids task_heads types since until start bucket")
        pieces = ("event_by_sessions", "event_between", *asked)
        return self._statement(("event_counts",), pieces, ("event_counted",), values)

    def event_count(self, query: EventQuery) -> Statement:
        """How many events a query finds."""
        return self._statement(("event_count",), event_pieces(query), (), self._event_values(query))

    def _event_values(self, query: EventQuery) -> dict[str, Any]:
        values = self._values(query, "tenant user session run_ids types since until")
        return values | {"text": query.text.lower()}

    def which(self, pieces: Sequence[str]) -> str:
        """All of these conditions."""
        return "\nand ".join(self._sql[piece] for piece in pieces)

    def _statement(
        self, begun: Sequence[str], pieces: Sequence[str], ended: Sequence[str], values: dict[str, Any]
    ) -> Statement:
        sql = self._sql
        parts = [*(sql[part] for part in begun), self.which(pieces), *(sql[part] for part in ended)]
        return Statement("\n".join(parts), values)

    def _values(self, query: object, names: str) -> dict[str, Any]:
        values = {name: getattr(query, name) for name in names.split()}
        return {name: self._many(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _page_values(query: PauseQuery | GroupQuery | SessionQuery) -> dict[str, Any]:
    """Behind which place a page begins, and one row more than it has, so that it is known whether there are more."""
    at, num = query.after or _END
    return {"at": at, "num": num, "limit": query.limit + 1}


def place_of(row: RunRow | GroupRow | PauseRow | SessionRow) -> Place:
    """Where a row is in its list."""
    return (row.opened_at if isinstance(row, PauseRow | SessionRow) else row.created_at), row.number


def page_of(found: Sequence[tuple[Place, R]], limit: int) -> Page[R]:
    """A page of what was found in its order, of which there is one more where there are more."""
    return Page([row for _, row in found[:limit]], found[limit - 1][0] if len(found) > limit else None)


def group_query(who: Identity, group_id: str) -> GroupQuery:
    """The group of this session with this id."""
    return GroupQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, group_ids=(group_id,))


def members_query(group: GroupRow) -> RunQuery:
    """All members of a group, as whole rows."""
    who = group.who
    return RunQuery(
        tenant=who.tenant_id,
        user=who.user_id,
        session=who.session_id,
        group=group.group_id,
        oldest_first=True,
        is_whole=True,
        limit=max(1, group.members),
    )
