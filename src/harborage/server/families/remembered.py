"""What the sessions of a tenant remember, as single items with keys of their own."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.events import unix_ns
from harborage.identity import Identity
from harborage.memory import MemoryCorruptError, MemoryStrategy
from harborage.memory.state import read_state
from harborage.store import SessionQuery

if TYPE_CHECKING:
    from harborage.memory import Memory, SessionMemory, Turn
    from harborage.server.services import Call

MOST_SESSIONS: Final = 1_000
"""At how many sessions of a query it looks: those that were opened last."""

_SUMMARY: Final = "summary"
_KEY_DIGITS: Final = 16


class Item(NamedTuple):
    """One turn, or one summary; `value` is its JSON, `at` when it was remembered, None where that is unknown."""

    key: str
    who: Identity
    config: Memory
    at: datetime | None
    value: bytes

    @property
    def strategy(self) -> str:
        """How its session remembers."""
        return str(self.config.strategy)


async def remembered(call: Call, tenant: str, user: str, sessions: tuple[str, ...] = ()) -> list[Item]:
    """Return what the sessions of a tenant remember; without a `user` those of all users, each item once."""
    memories = _memories(call)
    found: dict[str, Item] = {}
    if memories:
        async for who in _sessions(call, tenant, user, sessions):
            for memory in memories:
                found |= {item.key: item for item in await _items(call, memory, who)}
    return list(found.values())


def _memories(call: Call) -> list[SessionMemory]:
    """Return the memories of the served agents, each once."""
    every = [agent.context_providers.memory for agent in call.parts.agents]
    kept = [one for one in every if one is not None and one.config.strategy is not MemoryStrategy.NONE]
    return list({id(one): one for one in kept}.values())


async def _sessions(call: Call, tenant: str, user: str, named: tuple[str, ...]) -> AsyncIterator[Identity]:
    """Yield the sessions that may remember something, closed ones, too."""
    if user and named:
        for session in dict.fromkeys(named):
            yield Identity(tenant, user, session)
        return
    query = SessionQuery(tenant=tenant, user=user, include_closed=True)
    left = MOST_SESSIONS
    while left > 0:
        page = await call.parts.store.sessions(replace(query, limit=min(left, 100)))
        for row in page.rows:
            left -= 1
            if not named or row.who.session_id in named:
                yield row.who
        if page.cursor is None:
            return
        query = replace(query, after=page.cursor)


async def _items(call: Call, memory: SessionMemory, who: Identity) -> list[Item]:
    """Return what a memory holds of a session; nothing, and a line in the log, where it cannot be read."""
    try:
        data = (await memory.snapshot(who)).data
        state = read_state(data) if data else None
    except (MemoryCorruptError, msgspec.DecodeError) as error:
        call.services.logger.warning("the memory of a session is not listed: %s", error)
        return []
    if state is None:
        return []
    items = list(_turns(memory.config, who, state.turns))
    if state.summary:
        at = state.turns[-1].at if state.turns else None
        value = codec.encode({"summary": state.summary, "timestamp": at})
        items.append(Item(_key(who, _SUMMARY, None), who, memory.config, at, value))
    return items


def _turns(config: Memory, who: Identity, turns: tuple[Turn, ...]) -> Iterator[Item]:
    """Yield one item for each turn. Its key stays the same when older turns are dropped."""
    seen: Counter[datetime | None] = Counter()
    for turn in turns:
        ordinal = str(seen[turn.at])
        seen[turn.at] += 1
        yield Item(_key(who, ordinal, turn.at), who, config, turn.at, codec.encode(_value(turn)))


def _value(turn: Turn) -> dict[str, Any]:
    value: dict[str, Any] = {
        "user_message": turn.user_message,
        "assistant_response": turn.assistant_response,
        "timestamp": turn.at,
    }
    if turn.digest is not None:
        value["trajectory_digest"] = turn.digest
    if turn.hidden_refs:
        value["artifacts_hidden_refs"] = turn.hidden_refs
    return value


def _key(who: Identity, ordinal: str, at: datetime | None) -> str:
    parts = (who.tenant_id, who.user_id, who.session_id, "", ordinal, "0" if at is None else str(unix_ns(at)))
    return f"mem_{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:_KEY_DIGITS]}"
