"""The messages of `memory.*`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from harborage.protocol.wire.common import NO_TIME, Answer, ArtifactReference, Request, WireIdentity


class MemoryFilterParts(msgspec.Struct, frozen=True, kw_only=True):
    """Which items; each list is any-of, `content_search` a part of the value's JSON."""

    tenant_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    agent_ids: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    has_ttl_expiring: bool = False
    content_search: str = ""


class ListMemory(Request, frozen=True, kw_only=True):
    """`memory.list`; `page` 0 is 1, `page_size` 0 is 50."""

    filter: MemoryFilterParts = MemoryFilterParts()
    page: int = 0
    page_size: int = 0


class GetMemory(Request, frozen=True, kw_only=True):
    """`memory.get`."""

    key: str = ""


class MemoryHealth(Request, frozen=True, kw_only=True):
    """`memory.health`."""


class MemoryItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item that is remembered; `expires_at` is the zero time where it does not end."""

    key: str
    strategy: str
    scope: str
    identity: WireIdentity
    created_at: datetime
    last_updated_at: datetime
    expires_at: datetime = NO_TIME
    size_bytes: int
    driver: str
    agent_id: str | msgspec.UnsetType = msgspec.UNSET
    heavy_content: bool | msgspec.UnsetType = msgspec.UNSET


class MemoryAggregates(msgspec.Struct, frozen=True, kw_only=True):
    """How many items there are, and what went wrong with the memory of the tenant within a day."""

    total: int
    expiring_in_1h: int
    identity_rejected_24h: int
    recovery_dropped_24h: int


class MemoryListed(Answer, frozen=True, kw_only=True):
    """The answer of `memory.list`, newest first."""

    items: list[MemoryItem]
    page: int
    page_size: int
    page_count: int
    total_rows: int
    aggregates: MemoryAggregates


class MemoryMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an item; `ttl` is in nanoseconds, absent where it does not end."""

    ttl: int | msgspec.UnsetType = msgspec.UNSET
    strategy_config: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    related_event_ids: list[str] | msgspec.UnsetType = msgspec.UNSET


class MemoryDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An item with its value, or with a reference to it where it is large."""

    item: MemoryItem
    metadata: MemoryMetadata
    value: bytes | msgspec.UnsetType = msgspec.UNSET
    value_artifact: ArtifactReference | msgspec.UnsetType = msgspec.UNSET


class MemoryShown(Answer, frozen=True, kw_only=True):
    """The answer of `memory.get`."""

    detail: MemoryDetail


class HealthAggregate(MemoryAggregates, frozen=True, kw_only=True):
    """The same counts, and which driver keeps the items of each scope."""

    driver_by_scope: dict[str, str]


class MemoryHealthShown(Answer, frozen=True, kw_only=True):
    """The answer of `memory.health`."""

    aggregate: HealthAggregate
