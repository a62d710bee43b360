"""What a client asks for over the wire, turned into a bus filter: pure functions over values.

A client lists tenants, users, sessions and runs, and may bound the time. What reaches beyond the caller's own tenant,
user or session needs a scope; the bus then answers as for an admin, and `selects` narrows the answer to the lists.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import force_setattr

from harborage.errors import names_of
from harborage.events.errors import AdminScopeRequiredError
from harborage.events.filters import Filter

if TYPE_CHECKING:
    from harborage.events.event import Event
    from harborage.identity import Identity, Quadruple

__all__ = ["ADMIN_SCOPES", "EventQuery", "bus_filter", "needs_admin", "selects"]

ADMIN_SCOPES = frozenset({"admin", "console:fleet"})


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a client wants. An empty list means the caller's own; blanks are skipped.

    `since` is included, `until` is not. A run narrows only when it is the only one named.
    """

    event_types: tuple[str, ...] = ()
    tenant_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for names in ("event_types", "tenant_ids", "user_ids", "session_ids", "run_ids"):
            force_setattr(self, names, names_of(getattr(self, names), names))


def needs_admin(query: EventQuery, who: Identity | Quadruple) -> bool:
    """Whether `query` reaches beyond one session of the caller's own."""
    tenants, users, sessions = _axes(query, who)
    return tenants != {who.tenant_id} or users != {who.user_id} or len(sessions) > 1


def bus_filter(query: EventQuery, who: Identity | Quadruple, scopes: frozenset[str]) -> Filter:
    """The bus filter that lets through at least what `query` asks for; `selects` does the rest.

    Raises:
        AdminScopeRequiredError: the query needs `admin` or `console:fleet`, and `scopes` has neither.
    """
    is_admin = needs_admin(query, who)
    if is_admin and not scopes & ADMIN_SCOPES:
        raise AdminScopeRequiredError()
    tenant, user, session = (_only(axis) for axis in _axes(query, who))
    types = tuple(name for name in query.event_types if name)
    return Filter(tenant, user, session, _only(_named(query.run_ids)), types, is_admin)


def selects(query: EventQuery, who: Identity | Quadruple, event: Event) -> bool:
    """Whether `event` is on the lists of `query` and within its time."""
    tenants, users, sessions = _axes(query, who)
    run = _only(_named(query.run_ids))
    types = _named(query.event_types)
    at = event.occurred_at
    return (
        event.identity.tenant_id in tenants
        and event.identity.user_id in users
        and event.identity.session_id in sessions
        and (not run or event.identity.run_id == run)
        and (not types or event.type in types)
        and (query.since is None or (at is not None and at >= query.since))
        and (query.until is None or (at is not None and at < query.until))
    )


def _axes(query: EventQuery, who: Identity | Quadruple) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    return (
        _named(query.tenant_ids) or frozenset({who.tenant_id}),
        _named(query.user_ids) or frozenset({who.user_id}),
        _named(query.session_ids) or frozenset({who.session_id}),
    )


def _named(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name for name in names if name)


def _only(names: frozenset[str]) -> str:
    """The one name there is, else nothing."""
    return next(iter(names)) if len(names) == 1 else ""
