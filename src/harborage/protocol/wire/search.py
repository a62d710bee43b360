"""The messages of `search.*`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from harborage.protocol.wire.common import Answer, ArtifactReference, Request


class SearchFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Whose things are looked for, and of which time; what is empty narrows nothing."""

    tenant_ids: list[str] = []
    user_ids: list[str] = []
    session_ids: list[str] = []
    since: datetime | None = None
    until: datetime | None = None


class Facet(msgspec.Struct, frozen=True, kw_only=True):
    """A property that the found things of one index must have, such as `tasks.status`."""

    key: str = ""
    value: str = ""


class SearchRequest(Request, frozen=True, kw_only=True):
    """The request of every method of the family."""

    query: str = ""
    indexes: tuple[str, ...] = ()
    filter: SearchFilter = SearchFilter()
    facets: tuple[Facet, ...] = ()
    page: int = 0
    page_size: int = 0


class SearchRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was found; artifacts have no time."""

    index: str
    id: str
    tenant_id: str
    user_id: str
    session_id: str
    run_id: str = ""
    occurred_at: datetime
    preview: str = ""
    ref: ArtifactReference | None = None
    facets: dict[str, str] = {}


class SearchPage(Answer, frozen=True, kw_only=True):
    """The answer of every method of the family."""

    rows: list[SearchRow]
    page: int
    page_size: int
    page_count: int
    total_count: int
    has_more: bool
