"""Who may see which events: the filter of a subscription or replay, as pure functions.

A filter names one whole session, or is an admin's and sees all. `aggregation` turns the filter that a client sends
(lists of tenants, users, sessions, a time range) into such a filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import force_setattr

from harborage.errors import names_of
from harborage.events.errors import IdentityScopeRequiredError
from harborage.identity import Identity, Quadruple

if TYPE_CHECKING:
    from harborage.events.event import Event


class Filter(msgspec.Struct, frozen=True):
    """Which events to deliver: those of one session, of one run in it, or (admin) of every session; no types = all.

    Raises:
        InvalidOptionError: `types` is one text, whose letters would count as types.
    """

    tenant: str = ""
    user: str = ""
    session: str = ""
    run: str = ""
    types: tuple[str, ...] = ()
    admin: bool = False

    def __post_init__(self) -> None:
        if type(self.types) is not tuple:
            force_setattr(self, "types", names_of(self.types, "types"))

    @classmethod
    def of(cls, who: Identity | Quadruple, types: tuple[str, ...] = ()) -> Filter:
        """Return the filter for the events of the session of `who`, or of its run when `who` names one."""
        run = who.run_id if isinstance(who, Quadruple) else ""
        return cls(who.tenant_id, who.user_id, who.session_id, run, types)

    @property
    def identity(self) -> Quadruple:
        """The triple this filter names, as an envelope identity; empty for a pure admin filter."""
        return Quadruple(self.tenant, self.user, self.session)


class Cursor(msgspec.Struct, frozen=True):
    """A position in the stream of a session: the sequence of the last event seen, 0 for none."""

    session_id: str = ""
    sequence: int = 0


def require_scope(filter: Filter) -> None:
    """Accept an admin filter, or one that names a whole session.

    Raises:
        IdentityScopeRequiredError: tenant, user or session is missing.
    """
    if not (filter.admin or (filter.tenant and filter.user and filter.session)):
        raise IdentityScopeRequiredError()


def matches(filter: Filter, event: Event) -> bool:
    """Return whether `event` matches `filter`. An admin filter narrows by type alone."""
    if filter.types and event.type not in filter.types:
        return False
    if filter.admin:
        return True
    who = event.identity
    return (
        who.session_id == filter.session
        and who.user_id == filter.user
        and who.tenant_id == filter.tenant
        and (not filter.run or who.run_id == filter.run)
    )
