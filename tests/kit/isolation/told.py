"""What a request to a server came to, and how it is held against the record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tests.kit.isolation.served import Reach, ServedTenants

if TYPE_CHECKING:
    from harborage.identity import Identity
    from tests.kit.wire import Reply


class Told(NamedTuple):
    """What came of a request. `text` is all that the caller was shown, `reach` whose things may be in it; `writes` says
    in whose record it may leave something, `audit` which event it must leave in the caller's own; `wrong` says what
    else must not be."""

    status: int
    text: str
    reach: Reach = Reach.SESSION
    writes: Reach = Reach.SESSION
    wrong: str = ""
    audit: str = ""


Request: TypeAlias = Callable[[ServedTenants], Awaitable[Told]]


def told(reply: Reply, reach: Reach = Reach.SESSION, **more: Any) -> Told:
    """What an answer showed."""
    return Told(reply.status, reply.body.decode(), reach, **more)


def must_be_refused(reply: Reply, what: str) -> str:
    """Say so where a request for what is another's was accepted."""
    return "" if reply.status in (401, 403, 404) else f"{what}: {reply.status}"


def differs(what: str, got: Any, expected: Any) -> str:
    """Say so where a count is not that of the record."""
    return "" if got == expected else f"{what} is {got}, in the record {expected}"


def audited(is_foreign: bool) -> str:
    """The event that a read beyond the own tenant leaves."""
    return "audit.admin_scope_used" if is_foreign else ""


def unasked(rows: Iterable[Mapping[str, Any]], asked: Mapping[str, Any]) -> str:
    """Say so where a row is of another tenant, user or session than the filter names."""
    for row in rows:
        for part in ("tenant", "user", "session"):
            wanted, got = asked.get(f"{part}_ids"), row.get(part, row.get(f"{part}_id"))
            if wanted and got not in wanted:
                return f"a row of the {part} {got}, which the filter does not name"
    return ""


def named(who: Identity) -> dict[str, str]:
    """An identity as bodies name it."""
    return {"tenant": who.tenant_id, "user": who.user_id, "session": who.session_id}


def wide(tenants: ServedTenants, fleet: Reach, admin: Reach, own: Reach = Reach.SESSION) -> Reach:
    """How far the caller's token reaches."""
    return admin if tenants.is_admin else fleet if tenants.is_scoped else own


def owner_of(tenants: ServedTenants, kind: str, made: str) -> Identity:
    """Whose a thing is."""
    return next((who for who, one in tenants.known.get(kind, ()) if one == made), tenants.caller)
