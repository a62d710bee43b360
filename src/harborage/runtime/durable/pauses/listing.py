"""Lists the pauses that a caller may see: who may see which, the queries of the store, and the page of the result.

A listed payload goes over the wire inline if it is small, otherwise as a reference to an artifact; it is neither
shortened nor redacted here.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.artifacts import ArtifactRef, ArtifactScope, ArtifactStore
from harborage.artifacts.values import candidate_ids, hash_content
from harborage.events import Event, EventBus, EventType, PausePayloadArtifactRoutedPayload
from harborage.identity import AdminScopeRequiredError, checked_scopes
from harborage.runtime.durable.pauses.errors import CrossTenantScopeError, InvalidPageError
from harborage.runtime.loop.pauses import PauseFilter, PauseState, Who
from harborage.store import PauseQuery, PauseStatus
from harborage.store.times import micros

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.runtime.loop.pauses import Pause
    from harborage.store import PauseRow, Views

ADMIN = "admin"
DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 200

RESOLVED: Final = tuple(status for status in PauseStatus if status is not PauseStatus.OPEN)
"""The statuses of pauses that will never change again."""

_ROWS_PER_QUERY: Final = 500


def is_same_triple(caller: Who, owner: Who) -> bool:
    """Return whether both are the same tenant, user and session, with any run."""
    return (
        caller.tenant_id == owner.tenant_id
        and caller.user_id == owner.user_id
        and caller.session_id == owner.session_id
    )


def may_act(caller: Who, scopes: frozenset[str] | None, owner: Quadruple) -> bool:
    """Return whether the caller may see and resolve the owner's pause: as its owner, or an admin of its tenant."""
    if is_same_triple(caller, owner):
        return True
    is_admin = scopes is not None and ADMIN in checked_scopes(scopes)
    return is_admin and caller.tenant_id == owner.tenant_id


def validate_page(page: int, page_size: int) -> tuple[int, int]:
    """Return the page number and size, with the defaults in place of zeros.

    Raises:
        InvalidPageError: either is negative, or the size is above 200.
    """
    if page < 0 or not 0 <= page_size <= MAX_PAGE_SIZE:
        raise InvalidPageError(page, page_size)
    return page or 1, page_size or DEFAULT_PAGE_SIZE


def select_tenants(filter: PauseFilter, caller: Who, scopes: frozenset[str]) -> tuple[str, ...]:
    """Return the tenants to list, each once: those that the filter names, else the caller's.

    Raises:
        CrossTenantScopeError: it names another tenant and the caller is no admin.
    """
    named = tuple(dict.fromkeys(filter.tenants)) or (caller.tenant_id,)
    if named != (caller.tenant_id,) and ADMIN not in scopes:
        raise CrossTenantScopeError("pauses.list: a list of another tenant", (ADMIN,))
    return named


def narrow_to_caller(filter: PauseFilter, caller: Who, scopes: frozenset[str]) -> PauseFilter:
    """Return the filter, narrowed to the caller's own pauses unless the caller is an admin.

    Raises:
        AdminScopeRequiredError: it names another user and the caller is no admin.
    """
    if ADMIN in scopes:
        return filter
    if not set(filter.users) <= {caller.user_id}:
        raise AdminScopeRequiredError("pauses.list: a list of another user", (ADMIN,))
    return replace(filter, users=(caller.user_id,))


def includes_resolved(filter: PauseFilter) -> bool:
    """Return whether the filter includes resolved pauses."""
    return PauseState.RESUMED in filter.states


def build_queries(filter: PauseFilter, tenants: Sequence[str]) -> list[PauseQuery]:
    """Return one query for each identity that the filter names. Together they find each pause once."""
    is_open_wanted = PauseState.PAUSED in (filter.states or (PauseState.PAUSED,))
    statuses = ((PauseStatus.OPEN,) if is_open_wanted else ()) + (RESOLVED if includes_resolved(filter) else ())
    whose = product(tenants, dict.fromkeys(filter.users) or ("",), dict.fromkeys(filter.sessions) or ("",))
    return [
        PauseQuery(
            tenant=tenant,
            user=user,
            session=session,
            run_ids=filter.runs,
            statuses=statuses,
            reasons=tuple(str(reason) for reason in filter.reasons),
            since=micros(filter.since),
            until=micros(filter.until),
        )
        for tenant, user, session in whose
    ]


async def read_page(
    store: Views, queries: Sequence[PauseQuery], page: int, page_size: int
) -> tuple[list[PauseRow], int]:
    """Return one page of the result of several queries, newest first, and the count of all; empty past the end."""
    found: list[PauseRow] = []
    total, last = 0, page * page_size
    for query in queries:
        newest = await store.pauses(replace(query, limit=min(last, _ROWS_PER_QUERY)))
        rows, cursor = newest.rows, newest.cursor
        while cursor is not None and len(rows) < last:
            more = await store.pauses(replace(query, limit=_ROWS_PER_QUERY, after=cursor))
            rows, cursor = [*rows, *more.rows], more.cursor
        total += len(rows) if cursor is None else await store.count_pauses(query)
        found += rows
    found.sort(key=lambda row: (row.opened_at, row.number), reverse=True)
    return found[last - page_size : last], total


async def iterate_pauses(store: Views, query: PauseQuery) -> AsyncIterator[PauseRow]:
    """Yield every pause that a query finds, page by page; one that is resolved meanwhile makes it skip no other."""
    cursor: tuple[int, int] | None = None
    while True:
        page = await store.pauses(replace(query, limit=_ROWS_PER_QUERY, after=cursor))
        for row in page.rows:
            yield row
        cursor = page.cursor
        if cursor is None:
            return


HEAVY_PAYLOAD_BYTES = 32_768
PAYLOAD_NAMESPACE = "pause_payload"

logger = logging.getLogger(__name__)


class ProjectedPayload(msgspec.Struct, frozen=True, kw_only=True):
    """A payload to show: either `payload` itself or `payload_ref` is set, or neither for a pause without one."""

    payload: dict[str, Any] | None = None
    payload_ref: ArtifactRef | None = None


async def project_payload(
    pause: Pause,
    artifacts: ArtifactStore | None,
    threshold: int = HEAVY_PAYLOAD_BYTES,
    *,
    bus: EventBus | None = None,
) -> ProjectedPayload:
    """Return the payload inline, or stored in the owner's session if its JSON has `threshold` bytes or more.

    The same payload is always the same artifact, which is announced when it is stored, not when it is shown again.
    Without an artifact store it stays inline.

    Raises:
        ArtifactError: the payload is heavy and the store refused it.
    """
    if pause.payload is None:
        return ProjectedPayload()
    data = codec.encode(pause.payload, "PauseRecord.payload")
    if len(data) < threshold or artifacts is None:
        return ProjectedPayload(payload=pause.payload)
    scope = ArtifactScope.of(pause.identity)
    if (known := await _find_stored(artifacts, scope, data)) is not None:
        return ProjectedPayload(payload_ref=known)
    ref = await artifacts.put_bytes(
        scope,
        data,
        mime_type="application/json",
        filename=f"pause-{pause.token}.json",
        namespace=PAYLOAD_NAMESPACE,
        source={"source": "pause", "token": pause.token},
    )
    _publish(bus, pause, ref, len(data), threshold)
    return ProjectedPayload(payload_ref=ref)


async def _find_stored(artifacts: ArtifactStore, scope: ArtifactScope, data: bytes) -> ArtifactRef | None:
    """Return the artifact that holds a payload already."""
    digest = await hash_content(data)
    for artifact_id in candidate_ids(PAYLOAD_NAMESPACE, digest):
        ref = await artifacts.get_ref(scope, artifact_id)
        if ref is None or ref.sha256 == digest:
            return ref
    return None


def _publish(bus: EventBus | None, pause: Pause, ref: ArtifactRef, size: int, threshold: int) -> None:
    if bus is None:
        return
    payload = PausePayloadArtifactRoutedPayload(
        token=pause.token, artifact_id=ref.id, payload_bytes=size, threshold_bytes=threshold
    )
    owner = msgspec.structs.replace(pause.identity, run_id="")
    try:
        bus.publish_nowait(Event(type=EventType.PAUSE_PAYLOAD_ARTIFACT_ROUTED, identity=owner, payload=payload))
    except Exception:
        logger.warning("pause %s: the artifact of its payload was not announced", pause.token, exc_info=True)
