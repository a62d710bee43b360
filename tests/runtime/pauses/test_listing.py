"""Which pauses a caller may list, which match, and how they fall into pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.identity import Identity, Quadruple
from harborage.runtime.pauses import (
    CrossTenantScopeError,
    CrossUserScopeError,
    InvalidPageError,
    Pause,
    PauseDecision,
    PauseFilter,
    PauseReason,
    PauseState,
)
from harborage.runtime.pauses.listing import (
    is_same_triple,
    may_act,
    page_bounds,
    page_of,
    pause_matches,
    tenants_of,
    wants_resumed,
    within_reach,
)
from tests.kit.tables import each_row

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANN = Quadruple("acme", "ann", "s1", "r1")
NO_SCOPES: frozenset[str] = frozenset()
ADMIN = frozenset({"admin"})


def a_pause(token: str = "T", *, at: datetime = NOON, owner: Quadruple = ANN) -> Pause:
    """An open pause."""
    return Pause(token=token, reason=PauseReason.AWAIT_INPUT, state=PauseState.PAUSED, identity=owner, paused_at=at)


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
    assert page_bounds(page, size) == bounds


@each_row("page, size", [(-1, 0), (0, -1), (1, 201)])
def test_a_page_out_of_range_is_refused(page: int, size: int) -> None:
    """The error carries both numbers."""
    with pytest.raises(InvalidPageError) as caught:
        page_bounds(page, size)
    assert (caught.value.page, caught.value.page_size) == (page, size)


def test_without_a_named_tenant_the_callers_own_is_listed() -> None:
    """Naming one's own tenant is the same as naming none."""
    assert tenants_of(PauseFilter(), ANN, NO_SCOPES) == ("acme",)
    assert tenants_of(PauseFilter(tenants=("acme", "acme")), ANN, NO_SCOPES) == ("acme",)


@pytest.mark.parametrize("tenants", [("evil",), ("acme", "evil")])
def test_another_tenant_needs_the_admin_scope(tenants: tuple[str, ...]) -> None:
    """One foreign name among one's own is refused too."""
    with pytest.raises(CrossTenantScopeError):
        tenants_of(PauseFilter(tenants=tenants), ANN, frozenset({"console:fleet"}))
    assert tenants_of(PauseFilter(tenants=tenants), ANN, ADMIN) == tenants


def test_a_filter_is_narrowed_to_the_callers_own() -> None:
    """Unless it is an admin; whatever else it says stays."""
    wanted = PauseFilter(sessions=("s9",))
    assert within_reach(wanted, ANN, NO_SCOPES) == PauseFilter(sessions=("s9",), users=("ann",))
    assert within_reach(wanted, ANN, ADMIN) == wanted
    with pytest.raises(CrossUserScopeError):
        within_reach(PauseFilter(users=("bob",)), ANN, frozenset({"console:fleet"}))


def test_an_empty_filter_matches_every_open_pause() -> None:
    """Whose they are is looked at before; settled pauses must be asked for."""
    bobs = a_pause(owner=Quadruple("acme", "bob", "s7"))
    assert pause_matches(bobs, PauseFilter())
    assert not pause_matches(bobs.settled(PauseDecision.RESUME, None, NOON), PauseFilter())


@each_row(
    "filter, matches",
    [
        (PauseFilter(users=("ann", "bob")), True),
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
def test_every_part_of_a_filter_narrows(filter: PauseFilter, matches: bool) -> None:
    """Bounds on time are inclusive on both sides."""
    assert pause_matches(a_pause(), filter) is matches


def test_settled_pauses_are_wanted_only_when_named() -> None:
    """A filter without states asks for open pauses."""
    assert not wants_resumed(PauseFilter())
    assert wants_resumed(PauseFilter(states=(PauseState.PAUSED, PauseState.RESUMED)))


def test_the_newest_comes_first_and_ties_go_by_token() -> None:
    """The order is total, so pages never overlap."""
    old, first, second = a_pause("Z", at=NOON - timedelta(hours=1)), a_pause("A"), a_pause("B")
    assert [row.token for row in page_of([old, second, first], 1, 50).rows] == ["A", "B", "Z"]


def test_a_page_past_the_end_is_empty() -> None:
    """It still says how much there is."""
    page = page_of([a_pause("A"), a_pause("B"), a_pause("C")], 9, 2)
    assert (page.rows, page.page, page.page_size, page.page_count, page.total) == ((), 9, 2, 2, 3)


def test_nothing_to_list_has_no_pages() -> None:
    """Zero rows are zero pages."""
    assert page_of([], 1, 50).page_count == 0


@given(st.integers(0, 30), st.integers(1, 7), st.randoms())
def test_the_pages_together_are_the_whole_list(count: int, size: int, random: object) -> None:
    """Nothing is left out and nothing comes twice, in whatever order the rows arrive."""
    rows = [a_pause(f"{n:02}", at=NOON + timedelta(seconds=n // 3)) for n in range(count)]
    random.shuffle(rows)  # type: ignore[attr-defined]
    first = page_of(rows, 1, size)
    paged = [row.token for number in range(1, first.page_count + 1) for row in page_of(rows, number, size).rows]
    assert paged == [row.token for row in page_of(rows, 1, 200).rows]
    assert len(paged) == count
