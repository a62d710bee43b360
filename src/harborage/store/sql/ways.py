"""At which index a query begins, what narrows it further, and how much a page of it looks at. Pure.

Every driver in SQL has its statements in pieces of these names: a way begins at an index (`by_…`), each condition that
is asked for narrows it (`run_has_…`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from harborage.store.queries import (
    EventQuery,
    GroupQuery,
    Page,
    PauseQuery,
    RunQuery,
    SessionListQuery,
    SessionQuery,
)
from harborage.store.rows import LIVE, PauseStatus, RunRow, Status

SLICE: Final = 20_000
"""How many runs a page looks at whose query no index answers."""

_PARTS: Final = (
    "agent", "parent", "parents", "root", "group", "tenant", "user", "session", "statuses", "kinds", "reasons", "since",
    "until", "longer_than", "text", "words", "tags", "shown", "owners",
)  # fmt: skip
_UNINDEXED: Final = ("kinds", "longer_than", "owners", "root", "tags", "text", "words")
_WIDE: Final = frozenset({"by_age", "by_tenant", "by_user", "by_agent", "by_session"})
_SAID: Final[dict[str, frozenset[str]]] = {
    "by_session": frozenset({"tenant", "user", "session"}),
    "by_user": frozenset({"tenant", "user"}),
    "by_agent": frozenset({"tenant", "agent"}),
    "by_tenant": frozenset({"tenant"}),
    "by_group": frozenset({"group"}),
    "by_group_of_session": frozenset({"group", "tenant", "user", "session"}),
    "by_parent": frozenset({"parent"}),
    "by_parents": frozenset({"parents"}),
    "by_live": frozenset({"tenant", "statuses"}),
    "by_bad": frozenset({"tenant", "user", "statuses"}),
    "by_bad_of_tenant": frozenset({"tenant", "statuses"}),
    "group_by_session": frozenset({"tenant", "user", "session"}),
    "group_by_id": frozenset({"group_ids"}),
    "group_by_user": frozenset({"tenant", "user"}),
    "group_by_tenant": frozenset({"tenant"}),
    "group_by_live": frozenset(),
    "group_by_age": frozenset(),
    "event_by_session": frozenset({"tenant", "user", "session"}),
    "pause_by_user": frozenset({"tenant", "user"}),
    "pause_by_tenant": frozenset({"tenant"}),
    "pause_by_open": frozenset({"tenant", "statuses"}),
    "pause_open_anywhere": frozenset({"statuses"}),
    "pause_by_due": frozenset({"due"}),
}
"""What of a query each piece says already."""


class Way(NamedTuple):
    """A piece to begin with, and what is asked for there."""

    name: str
    query: RunQuery

    @property
    def conditions(self) -> list[str]:
        """The pieces of what narrows it further."""
        said = _SAID.get(self.name, frozenset())
        found = [f"run_has_{name}" for name in _PARTS if name not in said and _is_asked(self.query, name)]
        if self.query.reasons and self.query.or_crashed:
            found[found.index("run_has_reasons")] = "run_has_reasons_or_crashed"
        if self.query.has_approval is not None:
            found.append("run_has_approval" if self.query.has_approval else "run_has_no_approval")
        return [*found, "by_blocked"] if self.query.only_blocked and self.query.run_ids else found

    @property
    def pieces(self) -> list[str]:
        """All of it."""
        return [self.name, *self.conditions]

    @property
    def times(self) -> list[str]:
        """Those of them that bound when a run was started."""
        return [name for name in self.conditions if name in {"run_has_since", "run_has_until"}]


def run_ways(query: RunQuery) -> list[Way]:
    """The indexes at which to begin; together they find each run once."""
    statuses, widest = statuses_of(query), _widest(query)
    if widest not in _WIDE or widest == "by_session" or not statuses or is_sliced(query):
        return [Way(widest, query)]
    if widest == "by_age":
        return [Way("by_live_anywhere" if _is_live(query) else widest, query)]
    return [Way(_way_of(status, widest, query), replace(query, statuses=(status,))) for status in statuses]


def _widest(query: RunQuery) -> str:
    """The index that leaves the fewest runs to look at, whatever their status."""
    if query.run_ids:
        return "by_run_id"
    if query.only_blocked:
        return "by_blocked"
    if query.group:
        return "by_group_of_session" if query.tenant and query.user and query.session else "by_group"
    if query.parent:
        return "by_parent"
    if query.parents:
        return "by_parents"
    if query.tenant and query.user:
        return "by_session" if query.session else "by_user"
    if query.tenant:
        return "by_agent" if query.agent else "by_tenant"
    return "by_age"


def _way_of(status: Status, widest: str, query: RunQuery) -> str:
    if status.code < Status.COMPLETE.code:
        return "by_live"
    if status is Status.COMPLETE:
        return widest  # which nearly all have
    return "by_bad" if query.user else "by_bad_of_tenant"


def statuses_of(query: RunQuery) -> tuple[Status, ...]:
    """The statuses that a query finds, each once; none for all. A reason is one of failures."""
    asked = tuple(dict.fromkeys(query.statuses))
    if not asked and query.shown:
        live = () if all(status.is_final for status in query.shown) else LIVE
        asked = (*live, *(status for status in dict.fromkeys(query.shown) if status.is_final))
    return asked or ((Status.FAILED,) if query.reasons else ())


def is_sliced(query: RunQuery) -> bool:
    """Whether no index answers the query, so that a page looks at some runs and leaves the rest to the next."""
    widest = _widest(query)
    if widest not in _WIDE:
        return False
    if any(_is_asked(query, name) for name in _UNINDEXED):
        return True
    is_narrowed = bool(query.user or query.session or query.agent or statuses_of(query))
    return widest == "by_age" and is_narrowed and not _is_live(query)


def _is_live(query: RunQuery) -> bool:
    """Whether only runs are asked for that have not ended, which are few."""
    statuses = statuses_of(query)
    return bool(statuses) and not any(status.is_final for status in statuses)


def is_counted(query: RunQuery) -> bool:
    """Whether indexes alone say how many runs there are of each status: those of a session, user, tenant, or all."""
    if _widest(query) not in _WIDE or query.reasons or any(_is_asked(query, name) for name in _UNINDEXED):
        return False
    if query.shown or query.has_approval is not None:
        return False
    names = (query.tenant, query.user, query.session, query.agent)
    given = tuple(map(bool, names))
    return given in {
        (False,) * 4,
        (True, False, False, False),
        (True, True, False, False),
        (True, True, True, False),
        (True, False, False, True),
    }


def slice_of(query: RunQuery) -> int:
    """How many runs a page of it looks at."""
    return max(SLICE, query.limit)


def edge_of(query: RunQuery, beginning: tuple[int, int], end: tuple[int, int]) -> tuple[int, int]:
    """Behind which place a page begins, in its order: after the page before, and not outside of the time asked for."""
    if query.oldest_first:
        first = beginning if query.since is None else (query.since, beginning[1])
        return first if query.after is None else max(first, query.after)
    last = end if query.until is None else (query.until, end[1])
    return last if query.after is None else min(last, query.after)


def widest_way(query: RunQuery) -> list[str]:
    """The pieces that find every run among which a query looks: of its index, and of its time."""
    way = Way(_widest(query), query)
    return [way.name, *way.times]


def runs_page(
    found: list[tuple[tuple[int, int], RunRow]], query: RunQuery, end: tuple[int, int] | None
) -> Page[RunRow]:
    """A page of what was found, in whatever order, by time and number; `end` is the last run that was looked at."""
    if end is not None:
        found = [one for one in found if (one[0] <= end if query.oldest_first else one[0] >= end)]
    found.sort(key=lambda one: one[0], reverse=not query.oldest_first)
    rows = [row for _, row in found[: query.limit]]
    return Page(rows, found[query.limit - 1][0] if len(found) > query.limit else end)


def slice_query(query: RunQuery, edge: tuple[int, int]) -> RunQuery:
    """The query, no further than this place: the time at which an index stops."""
    at, _ = edge
    if query.oldest_first:
        return replace(query, until=at if query.until is None else min(at, query.until))
    return replace(query, since=at if query.since is None else max(at, query.since))


def pause_pieces(query: PauseQuery) -> list[str]:
    """The index at which a query of pauses begins, and what narrows it further."""
    names = ("tenant", "user", "session", "run_ids", "statuses", "reasons", "since", "until", "due")
    way = _way_of_pauses(query)
    said = _SAID.get(way, frozenset())
    return [way, *(f"pause_has_{name}" for name in names if name not in said and _is_asked(query, name))]


def group_pieces(query: GroupQuery) -> list[str]:
    """The indexes at which a query of groups begins, and what narrows it further."""
    names = ("tenant", "user", "session", "group_ids", "statuses", "only_empty")
    ways = _ways_of_groups(query)
    said = frozenset[str]().union(*(_SAID[way] for way in ways))
    return [*ways, *(f"group_has_{name}" for name in names if name not in said and _is_asked(query, name))]


def _ways_of_groups(query: GroupQuery) -> list[str]:
    if query.tenant and query.user and query.session:
        return ["group_by_session", "group_by_id"] if query.group_ids else ["group_by_session"]
    if query.group_ids:
        return ["group_by_id"]
    if query.tenant and query.user:
        return ["group_by_user"]
    if query.statuses and not any(status.is_final for status in query.statuses):
        return ["group_by_live"]
    return ["group_by_tenant"] if query.tenant else ["group_by_age"]


def session_pieces(query: SessionQuery) -> list[str]:
    """The index at which a query of sessions begins, and what narrows it further."""
    asked = {
        "session_has_user": query.user and not query.tenant,
        "session_has_session": query.session and not (query.tenant and query.user),
        "session_has_since": query.seen_since is not None,
        "session_has_until": query.seen_until is not None,
        "session_is_open": not query.include_closed,
        "session_is_opened": query.only_opened,
        "session_is_left": query.seen_before is not None or query.opened_before is not None,
    }
    return [_way_of_sessions(query), *(name for name, is_asked in asked.items() if is_asked)]


def _way_of_sessions(query: SessionQuery) -> str:
    if query.tenant and query.user:
        return "session_by_name" if query.session else "session_by_user"
    if query.tenant:
        return "session_by_tenant"
    return "session_by_open" if query.only_opened and not query.include_closed else "session_by_age"


def listed_pieces(query: SessionListQuery) -> list[str]:
    """What narrows a list of sessions with their totals; one of a single principal begins at that one's sessions."""
    is_of_one = len(query.tenants) == len(query.users) == 1
    asked = {
        "listed_by_user": is_of_one,
        "listed_has_tenants": query.tenants and not is_of_one,
        "listed_has_users": query.users and not is_of_one,
        "listed_has_sessions": query.sessions,
        "listed_has_states": query.states,
        "listed_has_agents": query.agents,
        "listed_has_since": query.since is not None,
        "listed_has_until": query.until is not None,
        "listed_has_pause": query.has_pause is True,
        "listed_has_no_pause": query.has_pause is False,
        "listed_has_failed": query.has_failed is True,
        "listed_has_no_failed": query.has_failed is False,
        "listed_has_cost": query.cost_above is not None,
        "listed_has_text": query.text,
        "listed_has_words": query.words,
    }
    return ["session_is_opened", *(name for name, is_asked in asked.items() if is_asked)]


def event_pieces(query: EventQuery) -> list[str]:
    """The index at which a query of events begins, and what narrows it further."""
    names = ("tenant", "user", "session", "run_ids", "types", "since", "until", "text")
    way = "event_by_session" if query.tenant and query.user and query.session else "event_by_sequence"
    said = _SAID.get(way, frozenset())
    return [way, *(f"event_has_{name}" for name in names if name not in said and _is_asked(query, name))]


def _way_of_pauses(query: PauseQuery) -> str:
    is_open = query.statuses == (PauseStatus.OPEN,)
    if query.tokens:
        return "pause_by_token"
    if query.run_ids:
        return "pause_by_run"
    if query.due is not None:
        return "pause_by_due"
    if query.tenant and query.user:
        return "pause_by_user"
    if query.tenant:
        return "pause_by_open" if is_open else "pause_by_tenant"
    return "pause_open_anywhere" if is_open else "pause_by_age"


def _is_asked(query: RunQuery | GroupQuery | PauseQuery | EventQuery, name: str) -> bool:
    """Whether a part of the query narrows anything."""
    value = getattr(query, name)
    return value is not None and value is not False and value not in ("", ()) and (name, value) != ("longer_than", 0)
