"""`search.*`: what the sessions, tasks, events and artifacts of a principal say, by a part of their text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from harborage.concurrency import together
from harborage.errors import error_reason
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.wire.search import SearchPage, SearchRequest, SearchRow
from harborage.server.families.paging import MAX_PAGE_SIZE, cut_page, page_count
from harborage.server.families.search_indexes import INDEXES, Found, Wanted, check_facets, reach_of
from harborage.server.services import Call, Endpoint

_DEFAULT_SIZE: Final = 20
_DEEPEST: Final = 10_000
_ANSWERS_WITHIN_S: Final = 5.0


async def _search_one(index: str, call: Call, asked: SearchRequest) -> SearchPage:
    """Return one page of an index."""
    wanted, page, size = await _wanted(call, asked)
    found = await INDEXES[index](call, wanted, page * size)
    rows = cut_page(found.rows, page, size)
    return _page(rows, page, size, total=found.total, reachable=found.total)


async def _search_all(call: Call, asked: SearchRequest) -> SearchPage:
    """Return one page of several indexes together; one that fails or takes too long is left out, and logged."""
    names = tuple(dict.fromkeys(asked.indexes)) or tuple(INDEXES)
    if not set(names).issubset(INDEXES):
        raise ProtocolError(Code.INVALID_REQUEST, f"indexes: there are {', '.join(INDEXES)}")
    wanted, page, size = await _wanted(call, asked)
    most = min(page * size, MAX_PAGE_SIZE)
    parts = await together(*(_ask(call, name, INDEXES[name](call, wanted, most)) for name in names))
    rows = sorted((row for part in parts for row in part.rows), key=_newest_first)
    total = sum(part.total for part in parts)
    reachable = sum(min(part.total, MAX_PAGE_SIZE) for part in parts)
    return _page(cut_page(rows, page, size), page, size, total=total, reachable=reachable)


async def _ask(call: Call, index: str, asking: Awaitable[Found]) -> Found:
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN_S):
            return await asking
    except ProtocolError:
        raise
    except Exception as error:  # noqa: BLE001 - the other indexes answer without it
        call.services.logger.warning("search: %s is left out: %s", index, error_reason(error))
        return Found()


async def _wanted(call: Call, asked: SearchRequest) -> tuple[Wanted, int, int]:
    """Return what is looked for, and which page; scope first, then values.

    Raises:
        ProtocolError: `scope_mismatch`, `invalid_request`.
    """
    reach, is_foreign = reach_of(call, asked.filter)
    page, size = _checked_page(asked.page, asked.page_size)
    check_facets(asked.facets)
    since, until = asked.filter.since, asked.filter.until
    if since is not None and until is not None and since > until:
        raise ProtocolError(Code.INVALID_REQUEST, "filter.since: not after until")
    if is_foreign:
        await call.audit()
    return Wanted(reach, asked.query, asked.filter, asked.facets), page, size


def _checked_page(page: int, size: int) -> tuple[int, int]:
    if page < 0 or not 0 <= size <= MAX_PAGE_SIZE:
        text = f"page: from 1; page_size: from 1 to {MAX_PAGE_SIZE}, or 0 for {_DEFAULT_SIZE}"
        raise ProtocolError(Code.INVALID_REQUEST, text)
    found = page or 1, size or _DEFAULT_SIZE
    if found[0] * found[1] > _DEEPEST:
        raise ProtocolError(Code.INVALID_REQUEST, f"page: the first {_DEEPEST} rows can be read; narrow the search")
    return found


def _page(rows: Sequence[SearchRow], page: int, size: int, *, total: int, reachable: int) -> SearchPage:
    return SearchPage(
        rows=list(rows),
        page=page,
        page_size=size,
        page_count=max(1, page_count(reachable, size)),
        total_count=total,
        has_more=page * size < reachable,
    )


def _newest_first(row: SearchRow) -> tuple[float, str]:
    return -row.occurred_at.timestamp(), row.id


def _endpoint(run: Callable[[Call, SearchRequest], Awaitable[SearchPage]]) -> Endpoint:
    return Endpoint(SearchRequest, SearchPage, run)


ENDPOINTS: Final[dict[str, Endpoint]] = {
    "search.query": _endpoint(_search_all),
    **{f"search.{index}": _endpoint(partial(_search_one, index)) for index in INDEXES},
}
