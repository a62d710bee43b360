"""Which pauses a caller may list, which of them match, and how they fall into pages. Pure: values in, values out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.identity import checked_scopes
from harborage.runtime.pauses.errors import CrossTenantScopeError, CrossUserScopeError, InvalidPageError
from harborage.runtime.pauses.model import Pause, PauseFilter, PausePage, PauseState, Who

if TYPE_CHECKING:
    from harborage.identity import Quadruple

__all__ = [
    "ADMIN",
    "DEFAULT_PAGE_SIZE",
    "MAX_PAGE_SIZE",
    "is_same_triple",
    "may_act",
    "owner_matches",
    "page_bounds",
    "page_of",
    "pause_matches",
    "tenants_of",
    "wants_resumed",
    "within_reach",
]

ADMIN = "admin"
DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 200


def is_same_triple(caller: Who, owner: Who) -> bool:
    """Whether both are the same tenant, user and session; the run does not count."""
    return (
        caller.tenant_id == owner.tenant_id
        and caller.user_id == owner.user_id
        and caller.session_id == owner.session_id
    )


def may_act(caller: Who, scopes: frozenset[str] | None, owner: Quadruple) -> bool:
    """Whether the caller may see and settle the owner's pause: as its owner, or as an admin of the same tenant."""
    if is_same_triple(caller, owner):
        return True
    is_admin = scopes is not None and ADMIN in checked_scopes(scopes)
    return is_admin and caller.tenant_id == owner.tenant_id


def page_bounds(page: int, page_size: int) -> tuple[int, int]:
    """Page and size with the defaults in place of zeros.

    Raises:
        InvalidPageError: either is negative, or the size is above 200.
    """
    if page < 0 or not 0 <= page_size <= MAX_PAGE_SIZE:
        raise InvalidPageError(page, page_size)
    return page or 1, page_size or DEFAULT_PAGE_SIZE


def tenants_of(filter: PauseFilter, caller: Who, scopes: frozenset[str]) -> tuple[str, ...]:
    """The tenants to look at, each once: those that the filter names, else the caller's.

    Raises:
        CrossTenantScopeError: it names another tenant and the caller is no admin.
    """
    named = tuple(dict.fromkeys(filter.tenants)) or (caller.tenant_id,)
    if named != (caller.tenant_id,) and ADMIN not in scopes:
        raise CrossTenantScopeError()
    return named


def within_reach(filter: PauseFilter, caller: Who, scopes: frozenset[str]) -> PauseFilter:
    """The filter, narrowed to the caller's own pauses unless it is an admin.

    Raises:
        CrossUserScopeError: it names another user and the caller is no admin.
    """
    if ADMIN in scopes:
        return filter
    if not set(filter.users) <= {caller.user_id}:
        raise CrossUserScopeError()
    return replace(filter, users=(caller.user_id,))


def owner_matches(owner: Quadruple, filter: PauseFilter) -> bool:
    """Whether a pause of this owner can match at all; the tenant is looked at elsewhere."""
    return (
        (not filter.users or owner.user_id in filter.users)
        and (not filter.sessions or owner.session_id in filter.sessions)
        and (not filter.runs or owner.run_id in filter.runs)
    )


def pause_matches(pause: Pause, filter: PauseFilter) -> bool:
    """Whether the pause matches every part of the filter; the tenant is looked at elsewhere."""
    return (
        pause.state in (filter.states or (PauseState.PAUSED,))
        and owner_matches(pause.identity, filter)
        and (not filter.reasons or pause.reason in filter.reasons)
        and (filter.since is None or pause.paused_at >= filter.since)
        and (filter.until is None or pause.paused_at <= filter.until)
    )


def wants_resumed(filter: PauseFilter) -> bool:
    """Whether settled pauses are asked for."""
    return PauseState.RESUMED in filter.states


def page_of(pauses: Iterable[Pause], page: int, page_size: int, *, truncated: bool = False) -> PausePage:
    """One page of these pauses, newest first and by token where two are equally old; past the end it is empty."""
    rows = sorted(pauses, key=lambda pause: pause.token)
    rows.sort(key=lambda pause: pause.paused_at, reverse=True)
    first = (page - 1) * page_size
    return PausePage(
        rows=tuple(rows[first : first + page_size]),
        page=page,
        page_size=page_size,
        page_count=-(-len(rows) // page_size),
        total=len(rows),
        truncated=truncated,
    )
