"""How tools were used, counted from the stored events of their calls.

Only the newest calls are looked at, up to a limit, so that a page never costs more than that, whatever the record
holds. Where events are not stored, nothing is counted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from harborage.events import EventType
from harborage.store import EventQuery
from harborage.store.times import micros, moment

if TYPE_CHECKING:
    from harborage.server.services import Call

MOST_CALLS: Final = 20_000
"""At how many of the newest events of calls a count looks."""

_PAGE: Final = 1_000
_BEGUN: Final = (EventType.TOOL_INVOKED,)
_DONE: Final = (EventType.TOOL_COMPLETED,)
_FAILED: Final = (EventType.TOOL_FAILED, EventType.TOOL_POLICY_EXHAUSTED, EventType.TOOL_INVALID_ARGS)


class _Seen(msgspec.Struct, frozen=True):
    """One event of a call."""

    type: str
    at: datetime
    payload: dict[str, Any]

    @property
    def tool(self) -> str:
        return str(self.payload.get("ToolName", ""))


class Rate(msgspec.Struct, frozen=True):
    """How many calls ended within a time, and how many of them failed."""

    calls: int = 0
    failures: int = 0

    @property
    def error_rate(self) -> float:
        """The part that failed, from 0 to 1."""
        return self.failures / self.calls if self.calls else 0.0


async def last_used(call: Call, names: Iterable[str]) -> dict[str, datetime]:
    """Return when each of these tools was called last; those that were not called are left out."""
    missing, found = set(names), dict[str, datetime]()
    async for seen in _events(call, _BEGUN):
        if not missing:
            break
        if seen.tool in missing:
            missing.remove(seen.tool)
            found[seen.tool] = seen.at
    return found


async def rates(call: Call, tool: str, windows: Iterable[timedelta], now: datetime) -> list[Rate]:
    """Return how the calls of a tool ended within each of these times before now."""
    starts = [now - window for window in windows]
    calls, failures = [0] * len(starts), [0] * len(starts)
    async for seen in _events(call, (*_DONE, *_FAILED), since=min(starts)):
        if seen.tool != tool:
            continue
        for index, start in enumerate(starts):
            if seen.at >= start:
                calls[index] += 1
                failures[index] += seen.type in _FAILED
    return [Rate(*counted) for counted in zip(calls, failures, strict=True)]


async def result_sizes(call: Call, tool: str) -> list[int]:
    """Return how large the results of a tool were, in bytes of their JSON, as far as the record has them."""
    sizes = [_size(seen.payload) async for seen in _events(call, _DONE) if seen.tool == tool]
    return [size for size in sizes if size is not None]


def _size(payload: dict[str, Any]) -> int | None:
    cut = payload.get("ResultCut")
    if isinstance(cut, dict):
        size = cut.get("Bytes")
        return size if isinstance(size, int) else None
    return len(msgspec.json.encode(payload["Result"])) if "Result" in payload else None


async def _events(call: Call, types: Iterable[EventType], since: datetime | None = None) -> AsyncIterator[_Seen]:
    """Yield the newest of these events first: the caller's own, or with a scope those of the whole tenant."""
    query = EventQuery(
        tenant=call.who.tenant_id,
        user="" if call.is_scoped else call.who.user_id,
        types=tuple(map(str, types)),
        since=micros(since),
        newest_first=True,
        limit=_PAGE,
    )
    for _ in range(MOST_CALLS // _PAGE):
        rows = await call.parts.store.events(query)
        for row in rows:
            try:
                payload = msgspec.json.decode(row.data)["payload"]
            except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
                continue  # a damaged row counts for no tool
            if isinstance(payload, dict):
                yield _Seen(row.type, moment(row.at), payload)
        if len(rows) < _PAGE:
            return
        query = replace(query, after=rows[-1].sequence)
