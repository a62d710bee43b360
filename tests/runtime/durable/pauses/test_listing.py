"""Which pauses a caller may list, which match, and how they fall into pages."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.identity import AdminScopeRequiredError, Identity, Quadruple
from harborage.runtime.durable.pauses.listing import (
    build_queries,
    includes_resolved,
    is_same_triple,
    iterate_pauses,
    may_act,
    narrow_to_caller,
    read_page,
    select_tenants,
    validate_page,
)
from harborage.runtime.durable.pauses.rows import encode_open_pause, encode_resolution
from harborage.runtime.pauses import (
    CrossTenantScopeError,
    InvalidPageError,
    Pause,
    PauseDecision,
    PauseFilter,
    PauseReason,
    PauseState,
)
from harborage.store import Commit, PauseQuery, PauseStatus, SettlePause
from harborage.store.memory import MemoryStore
from tests.kit.tables import each_row

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANN = Quadruple("acme", "ann", "s1", "r1")


def a_pause(token: str = "T", *, at: datetime = NOON, owner: Quadruple = ANN) -> Pause:
    """An open pause."""
    return Pause(token=token, reason=PauseReason.AWAIT_INPUT, state=PauseState.PAUSED, identity=owner, paused_at=at)


NO_SCOPES: frozenset[str] = frozenset()
ADMIN = frozenset({"admin"})


@each_row(
    "caller, is_same",
    [
        (Quadruple("acme", "ann", "s1", "r2"), True),
        (Identity("acme", "ann", "s1"), True),
        (Quadruple("evil", "ann", "s1", "r1"), False),
        (Quadruple("acme", "bob", "s1", "r1"), False),
        (Quadruple("acme", "ann", "s2", "r1"), False),
    ],
)
def test_the_run_does_not_count(caller: Identity | Quadruple, is_same: bool) -> None:
    """Tenant, user and session isolate; the run only labels."""
    assert is_same_triple(caller, ANN) is is_same


@each_row(
    "caller, scopes, may",
    [
        (ANN, None, True),
        (Quadruple("acme", "bob", "s9"), None, False),
        (Quadruple("acme", "bob", "s9"), frozenset({"console:fleet"}), False),
        (Quadruple("acme", "bob", "s9"), ADMIN, True),
        (Quadruple("evil", "ann", "s1"), ADMIN, False),
    ],
)
def test_owner_and_tenant_admin_may_act(caller: Quadruple, scopes: frozenset[str] | None, may: bool) -> None:
    """The admin scope reaches across users of one tenant and never across tenants."""
    assert may_act(caller, scopes, ANN) is may


@each_row("page, size, bounds", [(0, 0, (1, 50)), (3, 0, (3, 50)), (0, 7, (1, 7)), (1, 200, (1, 200))])
def test_zero_means_the_default(page: int, size: int, bounds: tuple[int, int]) -> None:
    """The first page, fifty rows; two hundred at most."""
    assert validate_page(page, size) == bounds


@each_row("page, size", [(-1, 0), (0, -1), (1, 201)])
def test_a_page_out_of_range_is_refused(page: int, size: int) -> None:
    """The error carries both numbers."""
    with pytest.raises(InvalidPageError) as caught:
        validate_page(page, size)
    assert (caught.value.page, caught.value.page_size) == (page, size)


def test_without_a_named_tenant_the_callers_own_is_listed() -> None:
    """Naming one's own tenant is the same as naming none."""
    assert select_tenants(PauseFilter(), ANN, NO_SCOPES) == ("acme",)
    assert select_tenants(PauseFilter(tenants=("acme", "acme")), ANN, NO_SCOPES) == ("acme",)


@pytest.mark.parametrize("tenants", [("evil",), ("acme", "evil")])
def test_another_tenant_needs_the_admin_scope(tenants: tuple[str, ...]) -> None:
    """One foreign name among one's own is refused too."""
    with pytest.raises(CrossTenantScopeError):
        select_tenants(PauseFilter(tenants=tenants), ANN, frozenset({"console:fleet"}))
    assert select_tenants(PauseFilter(tenants=tenants), ANN, ADMIN) == tenants


def test_a_filter_is_narrowed_to_the_callers_own() -> None:
    """Unless it is an admin; whatever else it says stays."""
    wanted = PauseFilter(sessions=("s9",))
    assert narrow_to_caller(wanted, ANN, NO_SCOPES) == PauseFilter(sessions=("s9",), users=("ann",))
    assert narrow_to_caller(wanted, ANN, ADMIN) == wanted
    with pytest.raises(AdminScopeRequiredError):
        narrow_to_caller(PauseFilter(users=("bob",)), ANN, frozenset({"console:fleet"}))


async def found(filter: PauseFilter, *pauses: Pause) -> list[str]:
    """The tokens that the queries of a filter find among these pauses of Ann's tenant."""
    store = MemoryStore()
    await store.commit(Commit(opens=tuple(encode_open_pause(pause) for pause in pauses)))
    changes = [encode_resolution(pause, PauseStatus.ANSWERED, None) for pause in pauses if not pause.is_paused]
    await store.commit(Commit(settles=tuple(changes)))
    rows, total = await read_page(store, build_queries(filter, ("acme",)), 1, 200)
    assert total == len(rows)
    return [row.token for row in rows]


async def test_an_empty_filter_finds_every_open_pause() -> None:
    """Open pauses of all users by default; resolved ones only if the filter includes them."""
    bobs = a_pause(owner=Quadruple("acme", "bob", "s7"))
    assert await found(PauseFilter(), bobs) == ["T"]
    assert await found(PauseFilter(), bobs.resolve(PauseDecision.RESUME, None, NOON)) == []
    assert await found(PauseFilter(), a_pause(owner=Quadruple("evil", "ann", "s1"))) == []


@pytest.mark.parametrize(
    ("filter", "matches"),
    [
        (PauseFilter(users=("ann", "bob")), True),
        (PauseFilter(users=("ann", "ann"), sessions=("s1", "s1")), True),
        (PauseFilter(users=("bob",)), False),
        (PauseFilter(sessions=("s1",)), True),
        (PauseFilter(sessions=("s2",)), False),
        (PauseFilter(runs=("r1",)), True),
        (PauseFilter(runs=("r2",)), False),
        (PauseFilter(reasons=(PauseReason.AWAIT_INPUT,)), True),
        (PauseFilter(reasons=(PauseReason.EXTERNAL_EVENT,)), False),
        (PauseFilter(states=(PauseState.RESUMED,)), False),
        (PauseFilter(states=(PauseState.RESUMED, PauseState.PAUSED)), True),
        (PauseFilter(since=NOON, until=NOON), True),
        (PauseFilter(since=NOON + timedelta(microseconds=1)), False),
        (PauseFilter(until=NOON - timedelta(microseconds=1)), False),
    ],
)
async def test_every_part_of_a_filter_narrows(filter: PauseFilter, matches: bool) -> None:
    """Bounds on time are inclusive on both sides, and no pause is found twice."""
    assert await found(filter, a_pause()) == (["T"] if matches else [])


async def test_both_states_find_open_and_resolved_pauses() -> None:
    """Each state alone finds its own."""
    pauses = a_pause("open"), a_pause("done").resolve(PauseDecision.RESUME, None, NOON)
    assert await found(PauseFilter(states=(PauseState.PAUSED,)), *pauses) == ["open"]
    assert await found(PauseFilter(states=(PauseState.RESUMED,)), *pauses) == ["done"]
    assert sorted(await found(PauseFilter(states=tuple(PauseState)), *pauses)) == ["done", "open"]


def test_resolved_pauses_are_wanted_only_when_named() -> None:
    """A filter without states asks for open pauses."""
    assert not includes_resolved(PauseFilter())
    assert includes_resolved(PauseFilter(states=(PauseState.PAUSED, PauseState.RESUMED)))


async def test_the_newest_comes_first_and_of_equally_old_ones_the_last() -> None:
    """The order is total, so pages never overlap."""
    pauses = a_pause("Z", at=NOON - timedelta(hours=1)), a_pause("B"), a_pause("A")
    assert await found(PauseFilter(), *pauses) == ["A", "B", "Z"]


async def test_a_page_past_the_end_is_empty() -> None:
    """It still says how many there are."""
    store = MemoryStore()
    await store.commit(Commit(opens=tuple(encode_open_pause(a_pause(token)) for token in "ABC")))
    queries = build_queries(PauseFilter(), ("acme",))
    assert await read_page(store, queries, 9, 2) == ([], 3)
    assert await read_page(store, build_queries(PauseFilter(), ("other",)), 1, 50) == ([], 0)


@given(st.integers(0, 30), st.integers(1, 7), st.randoms())
def test_the_pages_together_are_the_whole_list(count: int, size: int, random: Any) -> None:
    """No pause is left out or comes twice, for any owners and any order of opening."""
    whose = [Quadruple("acme", user, "s1") for user in ("ann", "bob")] + [Quadruple("other", "cy", "s2")]
    pauses = [a_pause(f"{n:02}", at=NOON + timedelta(seconds=n // 3), owner=whose[n % 3]) for n in range(count)]
    random.shuffle(pauses)

    async def look() -> tuple[list[str], list[str], int]:
        store = MemoryStore()
        await store.commit(Commit(opens=tuple(map(encode_open_pause, pauses))))
        queries = build_queries(PauseFilter(users=("ann", "bob", "cy")), ("acme", "other"))
        whole, total = await read_page(store, queries, 1, 200)
        pages = [(await read_page(store, queries, number, size))[0] for number in range(1, count + 2)]
        return [row.token for row in whole], [row.token for page in pages for row in page], total

    whole, paged, total = asyncio.run(look())
    assert (paged, total, sorted(whole)) == (whole, count, sorted(pause.token for pause in pauses))
    opened = {pause.token: pause.paused_at for pause in pauses}
    assert [opened[token] for token in whole] == sorted(opened.values(), reverse=True)


async def test_every_pause_is_found_though_some_are_resolved_meanwhile() -> None:
    """Of more than one page of the store none is left out, and none comes twice."""
    store = MemoryStore()
    await store.commit(Commit(opens=tuple(encode_open_pause(a_pause(f"{n:04}")) for n in range(1_200))))
    seen: list[str] = []
    async for row in iterate_pauses(store, PauseQuery(statuses=(PauseStatus.OPEN,))):
        seen.append(row.token)
        await store.commit(Commit(settles=(SettlePause(token=row.token, status=PauseStatus.EXPIRED),)))
    assert sorted(seen) == [f"{n:04}" for n in range(1_200)]
