"""`memory.*`: what the sessions of the served agents remember."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harborage.artifacts import ArtifactScope
from harborage.errors import error_summary
from harborage.events import EventType
from harborage.memory import MemoryStrategy
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire.common import ArtifactReference, WireIdentity, time_or_none
from harborage.protocol.wire.memory import (
    GetMemory,
    HealthAggregate,
    ListMemory,
    MemoryAggregates,
    MemoryDetail,
    MemoryFilterParts,
    MemoryHealth,
    MemoryHealthShown,
    MemoryItem,
    MemoryListed,
    MemoryMetadata,
    MemoryShown,
)
from harborage.server.families.drivers import driver_name
from harborage.server.families.paging import checked_page, cut_page, page_count
from harborage.server.families.remembered import Item, remembered
from harborage.server.services import Endpoint
from harborage.store import EventQuery
from harborage.store.times import micros

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from harborage.server.services import Call

SCOPES: Final = ("session", "user", "tenant")
DRIVERS: Final = ("inmem", "sqlite", "postgres")
VALUE_NAMESPACE: Final = "memory_value"

_SCOPE: Final = "session"
_MOST_COUNTED: Final = 1_000
_DAY: Final = timedelta(hours=24)


async def list_memory(call: Call, asked: ListMemory) -> MemoryListed:
    """Return one page of the items that the caller may see, newest first."""
    tenants = tuple(dict.fromkeys(asked.filter.tenant_ids)) or (call.who.tenant_id,)
    is_foreign = tenants != (call.who.tenant_id,)
    if is_foreign:
        call.require(TokenScope.ADMIN, TokenScope.CONSOLE_FLEET, code=Code.IDENTITY_SCOPE_REQUIRED)
    page, page_size = checked_page(asked.page, asked.page_size)
    _check_filter(asked.filter)
    if is_foreign:
        await call.audit()
    found = [item for tenant in tenants for item in await _found(call, tenant, asked.filter)]
    found.sort(key=lambda item: item.key)
    found.sort(key=lambda item: time_or_none(item.at), reverse=True)
    return MemoryListed(
        items=[_shown(call, item) for item in cut_page(found, page, page_size)],
        page=page,
        page_size=page_size,
        page_count=page_count(len(found), page_size),
        total_rows=len(found),
        aggregates=await _aggregates(call, tenants, len(found)),
    )


async def get_memory(call: Call, asked: GetMemory) -> MemoryShown:
    """Return one item of the caller's tenant with its value."""
    if not asked.key.strip():
        raise ProtocolError(Code.INVALID_REQUEST, "memory.get: key is empty")
    items = await remembered(call, call.who.tenant_id, "" if call.is_scoped else call.who.user_id)
    item = next((one for one in items if one.key == asked.key), None)
    if item is None:
        raise ProtocolError(Code.NOT_FOUND, f"nothing is remembered under {asked.key!r}; memory.list shows what is")
    config = {"strategy": item.strategy, "tokens": str(item.config.tokens)}
    artifact = await _artifact(call, item)
    return MemoryShown(
        detail=MemoryDetail(
            item=_shown(call, item),
            value=item.value if artifact is None else msgspec.UNSET,
            value_artifact=msgspec.UNSET if artifact is None else artifact,
            metadata=MemoryMetadata(strategy_config=config),
        )
    )


async def show_health(call: Call, asked: MemoryHealth) -> MemoryHealthShown:
    """Return how many items the caller may see, and what went wrong."""
    items = await remembered(call, call.who.tenant_id, "" if call.is_scoped else call.who.user_id)
    counts = await _aggregates(call, (call.who.tenant_id,), len(items))
    drivers = {_SCOPE: driver_name(call.parts.state)}
    return MemoryHealthShown(aggregate=HealthAggregate(**msgspec.structs.asdict(counts), driver_by_scope=drivers))


async def _found(call: Call, tenant: str, asked: MemoryFilterParts) -> list[Item]:
    """Return the items of a tenant that a filter finds; without a scope the caller's own user's alone."""
    own = call.who.user_id
    if not call.is_scoped and asked.user_ids and own not in asked.user_ids:
        return []
    users = asked.user_ids or ("",) if call.is_scoped else (own,)
    driver = driver_name(call.parts.state)
    # No item is of one agent, of a user or tenant as a whole, or ends by itself.
    is_empty = bool(asked.agent_ids) or asked.has_ttl_expiring or _SCOPE not in (asked.scopes or (_SCOPE,))
    if is_empty or driver not in (asked.drivers or (driver,)):
        return []
    wanted = asked.content_search.lower()
    return [
        item
        for user in dict.fromkeys(users)
        for item in await remembered(call, tenant, user, asked.session_ids)
        if item.strategy in (asked.strategies or (item.strategy,)) and wanted in item.value.decode().lower()
    ]


def _check_filter(filter: MemoryFilterParts) -> None:
    """Accept a filter whose values exist.

    Raises:
        ProtocolError: `invalid_request`.
    """
    checks: tuple[tuple[str, Iterable[str], Iterable[str]], ...] = (
        ("scopes", filter.scopes, SCOPES),
        ("drivers", filter.drivers, DRIVERS),
        ("strategies", filter.strategies, tuple(map(str, MemoryStrategy))),
    )
    for name, given, known in checks:
        if not set(given).issubset(known):
            text = f"memory.list: {name}: no such value; there are {', '.join(known)}"
            raise ProtocolError(Code.INVALID_REQUEST, text)


def _is_heavy(call: Call, item: Item) -> bool:
    return len(item.value) >= call.services.options.heavy_bytes


def _shown(call: Call, item: Item) -> MemoryItem:
    at: datetime = time_or_none(item.at)
    return MemoryItem(
        key=item.key,
        strategy=item.strategy,
        scope=_SCOPE,
        identity=WireIdentity.of(item.who),
        created_at=at,
        last_updated_at=at,
        size_bytes=len(item.value),
        heavy_content=True if _is_heavy(call, item) else msgspec.UNSET,
        driver=driver_name(call.parts.state),
    )


async def _artifact(call: Call, item: Item) -> ArtifactReference | None:
    """Return a reference to the value of an item in its session, where it is large."""
    if not _is_heavy(call, item):
        return None
    ref = await call.parts.artifacts.put_bytes(
        ArtifactScope.of(item.who),
        item.value,
        mime_type="application/json",
        filename=f"{item.key}.json",
        namespace=VALUE_NAMESPACE,
        source={"source": "system", "memory_key": item.key},
    )
    return ArtifactReference.of(ref)


async def _aggregates(call: Call, tenants: Iterable[str], total: int) -> MemoryAggregates:
    tenants = tuple(tenants)
    return MemoryAggregates(
        total=total,
        expiring_in_1h=0,
        identity_rejected_24h=await _count(call, tenants, EventType.MEMORY_IDENTITY_REJECTED),
        recovery_dropped_24h=await _count(call, tenants, EventType.MEMORY_RECOVERY_DROPPED),
    )


async def _count(call: Call, tenants: Iterable[str], type: EventType) -> int:
    """Return how many events of a type there were within a day, up to a thousand; 0 where that is not known."""
    recent = EventQuery(
        types=(str(type),), since=micros(call.services.clock.now() - _DAY), newest_first=True, limit=_MOST_COUNTED
    )
    try:
        return sum([len(await call.parts.store.events(replace(recent, tenant=tenant))) for tenant in tenants])
    except Exception as error:  # noqa: BLE001 - a count must not cost the list
        call.services.logger.warning("%s was not counted: %s", type, error_summary(error))
        return 0


ENDPOINTS: Final = {
    "memory.list": Endpoint(ListMemory, MemoryListed, list_memory),
    "memory.get": Endpoint(GetMemory, MemoryShown, get_memory),
    "memory.health": Endpoint(MemoryHealth, MemoryHealthShown, show_health),
}
