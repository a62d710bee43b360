"""Many principals, one runtime: thousands of random calls, and a look at everything that each caller was shown."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from harborage.errors import HarborageError
from harborage.identity import Identity
from tests.kit.isolation.checked import EVERY, CrossedError
from tests.kit.isolation.tenants import Tenants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harborage.state.storage import Storage
    from tests.kit.isolation.operations import Operation

_MARK: Final = re.compile(r"canary-\d+-")
_TRIPLE: Final = re.compile(r"tenant_id='([^']*)', user_id='([^']*)', session_id='([^']*)'")
_REOPENED_EVERY: Final = 400
_MOST: Final = 1


class Watched(msgspec.Struct, kw_only=True):
    """How it went: `leaks` says who saw what of whom; `shown` counts the answers in which there was something to see,
    `refused` the calls that ended with an error, both by operation."""

    leaks: list[str] = []
    shown: Counter[str] = msgspec.field(default_factory=Counter)
    refused: Counter[str] = msgspec.field(default_factory=Counter)


async def watch(
    storage: Storage | None, *, principals: int, operations: int, seed: int = 0, about: Sequence[str] = ("",)
) -> Watched:
    """Let `principals` do so many operations in all over a storage, or in memory without one; stops at many leaks.

    The runtime is opened anew now and then, so that what is read comes from the storage, too. `about` are the words
    with which the names of the operations begin.
    """
    luck = random.Random(seed)
    tenants, watched = Tenants(principals, luck, storage), Watched()
    names = [name for name in EVERY if name.startswith(tuple(about))]
    try:
        await tenants.open()
        for turn in range(operations):
            if storage is not None and turn % _REOPENED_EVERY == _REOPENED_EVERY - 1:
                await tenants.open()
            await _one(tenants, tenants.anybody(), luck.choice(names), watched)
            if len(watched.leaks) >= _MOST:
                break
    finally:
        await tenants.aclose()
    return watched


async def _one(tenants: Tenants, me: Identity, name: str, watched: Watched) -> None:
    operation = EVERY[name]
    tenants.caller = me
    tenants.asked.clear()
    try:
        result = await operation.act(tenants, me)
    except CrossedError as error:
        watched.leaks.append(f"{name}: {me}: {error}")
        return
    except HarborageError as error:
        watched.refused[name] += 1
        shown = f"{error!r} {error}"
    else:
        shown = repr(result)
        if result and not (operation.is_users or _is_own(tenants, me, operation)):
            watched.leaks.append(f"{name}: {me} changed what is another's: {shown[:200]}")
    if _MARK.search(shown):
        watched.shown[name] += 1
    strange = sorted(_strange(tenants, me, operation, shown))
    watched.leaks += [f"{name}: {me} saw {whose}: {shown[:300]}" for whose in strange]


def _is_own(tenants: Tenants, me: Identity, operation: Operation) -> bool:
    """Whether the ids that a changing operation was given are the caller's own."""
    if not operation.changes:
        return True
    owners = {(kind, made): who for kind, known in tenants.known.items() for who, made in known}
    return all(owners.get(one, me) == me for one in tenants.asked)


def _strange(tenants: Tenants, me: Identity, operation: Operation, shown: str) -> set[str]:
    """The marks, ids and identities in what was shown that the caller may not see, and did not name."""
    mine = [who for who in tenants.principals if who == me or (operation.is_users and _is_same_user(who, me))]
    marks = set(_MARK.findall(shown)) - {tenants.marks[who] for who in mine}
    given = {made for _, made in tenants.asked}
    theirs = {made for known in tenants.known.values() for who, made in known if who not in mine and made not in given}
    triples = {Identity(*found) for found in _TRIPLE.findall(shown)}
    return (
        marks
        | {made for made in theirs if made in shown}
        | {str(who) for who in triples - set(mine) if who in tenants.marks}
    )


def _is_same_user(one: Identity, other: Identity) -> bool:
    return (one.tenant_id, one.user_id) == (other.tenant_id, other.user_id)
