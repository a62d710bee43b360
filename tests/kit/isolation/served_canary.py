"""Many principals, one server: thousands of random requests, and a look at everything that each caller was shown."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.identity import Identity
from tests.kit.isolation.requests import REQUESTS
from tests.kit.isolation.served import MARK, ServedTenants, is_within

if TYPE_CHECKING:
    from harborage.state.storage import Storage
    from tests.kit.isolation.told import Told

_SCOPES: Final = ((), (), (), (), ("console:fleet",), ("admin",))
_SHOWN: Final = 400
_KEYS: Final = (("tenant", "user", "session"), ("tenant_id", "user_id", "session_id"))


class Watched(msgspec.Struct, kw_only=True):
    """How it went: `leaks` says who was shown what of whom; `answered`, `refused` and `shown` count by request, the
    last one the answers in which there was a mark to see."""

    leaks: list[str] = []
    asked: int = 0
    answered: Counter[str] = msgspec.field(default_factory=Counter)
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    shown: Counter[str] = msgspec.field(default_factory=Counter)


async def watch_server(
    folder: Path,
    storage: Storage | None = None,
    *,
    principals: int,
    requests: int,
    seed: int = 0,
    names: Iterable[str] = REQUESTS,
    most: int = 1,
) -> Watched:
    """Let `principals` ask so many things in all of a server over a storage, or in memory without one.

    It stops at so many leaks. `names` are the requests that are made.
    """
    luck = random.Random(seed)
    tenants, watched, chosen = ServedTenants(principals, luck, folder=folder, storage=storage), Watched(), list(names)
    try:
        await tenants.open()
        await tenants.fill()
        for _ in range(requests):
            await _one(tenants, luck.choice(chosen), watched)
            if len(watched.leaks) >= most:
                break
    finally:
        await tenants.aclose()
    return watched


async def _one(tenants: ServedTenants, name: str, watched: Watched) -> None:
    tenants.caller, tenants.scopes = tenants.anybody(), tenants.luck.choice(_SCOPES)
    tenants.asked.clear()
    await tenants.read_events()
    tenants.fresh.clear()
    told = await REQUESTS[name](tenants)
    watched.asked += 1
    (watched.answered if told.status == 200 else watched.refused)[name] += 1
    if MARK.search(told.text):
        watched.shown[name] += 1
    who = f"{name}: {tenants.caller} {' '.join(tenants.scopes)}"
    watched.leaks += [f"{who}: {what}: {told.text[:_SHOWN]}" for what in await _wrongs(tenants, told)]


async def _wrongs(tenants: ServedTenants, told: Told) -> list[str]:
    me = tenants.caller
    wrong = [told.wrong] if told.wrong else []
    if told.status >= 500:
        wrong.append(f"status {told.status}")
    visible = {tenants.marks[who] for who in tenants.principals if is_within(told.reach, me, who)}
    given = {made for _, made in tenants.asked} | tenants.left
    if told.status == 200:
        wrong += [f"saw {mark}" for mark in sorted(set(MARK.findall(told.text)) - visible)]
        wrong += [f"saw {who}" for who in _strangers(tenants, told)]
    wrong += [
        f"saw {kind} {made} of {who}"
        for kind, known in tenants.known.items()
        for who, made in known
        if made in told.text and made not in given and not is_within(told.reach, me, who)
    ]
    await tenants.read_events()
    left, late = tenants.fresh, tenants.late()
    if told.audit and told.status == 200 and not any(one.who == me and one.type == told.audit for one in left):
        wrong.append(f"left no {told.audit}")
    for event in left:
        if event.who in late:
            continue
        if not is_within(told.writes, me, event.who):
            wrong.append(f"left {event.type} in the record of {event.who}")
        elif told.writes == "session" and (marks := set(MARK.findall(repr(event.payload))) - {tenants.marks.get(me)}):
            wrong.append(f"left {sorted(marks)} in its own record")
    return wrong


def _strangers(tenants: ServedTenants, told: Told) -> list[Identity]:
    """The identities in an answer that the caller may not see."""
    try:
        found = set(_identities(msgspec.json.decode(told.text)))
    except msgspec.DecodeError:
        return []
    return [who for who in found if who.tenant_id and not is_within(told.reach, tenants.caller, who)]


def _identities(value: Any) -> Iterator[Identity]:
    if isinstance(value, dict):
        for names in _KEYS:
            parts = [value.get(name) for name in names]
            if all(isinstance(part, str) for part in parts):
                yield Identity(*map(str, parts))
        for one in value.values():
            yield from _identities(one)
    elif isinstance(value, list):
        for one in value:
            yield from _identities(one)
