"""When a join is settled and what it hands on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.planner import (
    ABSOLUTE_MAX_PARALLEL,
    CallTool,
    InvalidDecisionError,
    JoinKind,
    JoinSpec,
    ParallelCapExceededError,
    ParallelInvalidJoinError,
)
from harborage.runtime.loop.joins import (
    BranchOutcome,
    Cancelled,
    Done,
    Failed,
    is_settled,
    merge,
    normalise_join,
    successes_needed,
)
from tests.kit.tables import each_row

ALL = JoinSpec(JoinKind.ALL)
FIRST = JoinSpec(JoinKind.FIRST_SUCCESS)
FAILED = Failed(ValueError("no"))
THREE = [CallTool("a"), CallTool("b"), CallTool("c")]


def n_of(n: int) -> JoinSpec:
    return JoinSpec(JoinKind.N, n=n)


def keyed(*keys: str) -> JoinSpec:
    return JoinSpec(JoinKind.KEYED, merge_keys=keys)


# Normalising


@each_row("join", [None, JoinSpec(), ALL, JoinSpec(""), JoinSpec("all")])  # type: ignore[arg-type]
def test_no_join_means_all(join: JoinSpec | None) -> None:
    """No join, an empty one and the explicit one are the same."""
    assert normalise_join(join, THREE).kind is JoinKind.ALL


@each_row("join", [FIRST, n_of(1), n_of(3), keyed("b"), keyed("c", "a", "b")])
def test_a_valid_join_is_kept(join: JoinSpec) -> None:
    """A join that fits its branches comes back as it is."""
    assert normalise_join(join, THREE) == join


@each_row("join", [None, FIRST, n_of(50)])
def test_fifty_branches_are_allowed(join: JoinSpec | None) -> None:
    """The cap is inclusive."""
    normalise_join(join, [CallTool("a")] * ABSOLUTE_MAX_PARALLEL)


def test_fifty_one_branches_are_too_many() -> None:
    """The cap is judged before the join, and the error says how many there were."""
    with pytest.raises(ParallelCapExceededError) as caught:
        normalise_join(n_of(0), [CallTool("a")] * 51)
    assert (caught.value.branches, caught.value.cap) == (51, 50)


def test_no_branches_are_too_few() -> None:
    """An empty call is an invalid decision, whatever its join."""
    with pytest.raises(InvalidDecisionError):
        normalise_join(n_of(0), [])


@each_row("n", [0, -1, 4])
def test_a_threshold_must_be_reachable(n: int) -> None:
    """`n` lies between one and the number of branches."""
    with pytest.raises(ParallelInvalidJoinError, match="1 to 3"):
        normalise_join(n_of(n), THREE)


@each_row("n", [0, -1, 4])
def test_a_threshold_matters_to_its_own_kind_only(n: int) -> None:
    """Other kinds ignore `n`."""
    assert normalise_join(JoinSpec(JoinKind.FIRST_SUCCESS, n=n), THREE).kind is JoinKind.FIRST_SUCCESS


@each_row("kind", ["any", "ALL", "First_Success"])
def test_an_unknown_kind_is_refused(kind: str) -> None:
    """Only the four kinds are known; case matters."""
    with pytest.raises(ParallelInvalidJoinError):
        normalise_join(JoinSpec(kind), THREE)  # type: ignore[arg-type]


@each_row(
    "keys",
    [
        pytest.param((), id="no key"),
        pytest.param(("x",), id="an unknown key"),
        pytest.param(("a", "x"), id="a known and an unknown key"),
        pytest.param(("",), id="an empty key"),
        pytest.param(("a", "a"), id="a key twice"),
        pytest.param(("A",), id="another case"),
    ],
)
def test_merge_keys_must_name_branches(keys: tuple[str, ...]) -> None:
    """A keyed join needs keys, and each names some branch, once."""
    with pytest.raises(ParallelInvalidJoinError, match="merge"):
        normalise_join(keyed(*keys), THREE)


# Settling


@each_row(
    "join, outcomes, settled",
    [
        (ALL, [Done(1), FAILED, Cancelled()], True),
        (ALL, [Done(1), FAILED, None], False),
        (keyed("a"), [Done(1), Done(2), None], False),
        (keyed("a"), [Done(1), Done(2), FAILED], True),
        (FIRST, [None, None, None], False),
        (FIRST, [FAILED, Cancelled(), None], False),
        (FIRST, [None, Done(1), None], True),
        (FIRST, [FAILED, FAILED, FAILED], True),
        (n_of(2), [Done(1), None, None], False),
        (n_of(2), [Done(1), None, Done(3)], True),
        (n_of(2), [FAILED, FAILED, None], False),
        (n_of(2), [FAILED, FAILED, Done(1)], True),
    ],
)
def test_a_join_is_settled_when_nothing_can_change_it(
    join: JoinSpec, outcomes: list[BranchOutcome[int] | None], settled: bool
) -> None:
    """Enough successes settle a contest; failures alone never do while a branch still runs."""
    assert is_settled(join, outcomes) is settled


def test_a_value_that_is_none_is_a_success() -> None:
    """A branch that gave None is not mistaken for one that runs."""
    assert is_settled(FIRST, [Done(None), None])
    assert is_settled(ALL, [Done(None)])


@each_row("join, needed", [(ALL, None), (keyed("a"), None), (FIRST, 1), (n_of(2), 2)])
def test_contests_need_a_number_of_successes(join: JoinSpec, needed: int | None) -> None:
    """`first_success` is a contest for one, `n` for n; the others wait for everybody."""
    assert successes_needed(join) == needed


# Merging


def test_all_are_merged_by_index() -> None:
    """Failures and cancellations keep their place, whatever came first."""
    assert merge(ALL, [Done(1), FAILED, Cancelled()], finished=[2, 1, 0]) == [0, 1, 2]


@each_row(
    "join, outcomes, finished, merged",
    [
        (FIRST, [Done(1), FAILED, Done(3)], [1, 2, 0], [2]),
        (FIRST, [FAILED, FAILED, FAILED], [0, 1, 2], []),
        (n_of(2), [Done(1), Done(2), Done(3)], [2, 0, 1], [2, 0]),
        (n_of(2), [Cancelled(), Done(2), Done(3)], [2, 1, 0], [2, 1]),
        (n_of(3), [Done(1), FAILED, Done(3)], [2, 1, 0], [2, 0]),
        (n_of(2), [Done(1), Done(2), Done(3)], None, [0, 1]),
        (n_of(2), [Done(1), Done(2), Done(3)], [], []),
    ],
)
def test_contests_are_merged_as_they_finished(
    join: JoinSpec, outcomes: list[BranchOutcome[int]], finished: list[int] | None, merged: list[int]
) -> None:
    """The earliest successes count, no more than were asked for; fewer mean that the join was not met."""
    assert merge(join, outcomes, finished=finished) == merged


@each_row(
    "keys, calls, merged",
    [
        pytest.param("cab", ["a", "b", "c"], [2, 0, 1], id="every branch by tool"),
        pytest.param("c", ["a", "b", "c"], [2, 0, 1], id="the rest by index"),
        pytest.param(["b"], ["a", "b", "a", "b"], [1, 3, 0, 2], id="a tool that is called twice"),
        pytest.param(["2", "1"], ["a:1", "a:2", "b:3"], [1, 0, 2], id="by call id"),
        pytest.param(["b", "2"], ["a:1", "a:2", "b:3"], [2, 1, 0], id="by both"),
        pytest.param(["a", "2"], ["a:1", "a:2", "b:3"], [0, 1, 2], id="its call id wins over its tool"),
        pytest.param(["2", "a"], ["a:1", "a:2", "b:3"], [1, 0, 2], id="and the tool's other calls follow"),
        pytest.param(["b"], ["a:b", "b:c"], [0, 1], id="a call id that is a tool's name"),
    ],
)
def test_a_keyed_join_is_merged_in_order_of_its_keys(keys: str, calls: list[str], merged: list[int]) -> None:
    """Keys name branches by tool or by call id; what no key names comes after, by index."""
    branches = [CallTool(call.partition(":")[0], call_id=call.partition(":")[2]) for call in calls]
    join = normalise_join(keyed(*keys), branches)
    assert merge(join, [Done(0)] * len(branches), branches=branches) == merged


names = st.sampled_from(["a", "b", "c", ""])


@given(st.data())
def test_a_keyed_join_loses_and_doubles_no_branch(data: st.DataObject) -> None:
    """Whatever the keys, each branch has one place; named ones precede the rest, in order of their keys."""
    branches = data.draw(st.lists(st.builds(CallTool, st.sampled_from("abc"), call_id=names), min_size=1, max_size=8))
    known = sorted({b.tool for b in branches} | {b.call_id for b in branches if b.call_id})
    keys = data.draw(st.lists(st.sampled_from(known), min_size=1, unique=True))
    join = normalise_join(keyed(*keys), branches)
    order = merge(join, [Done(0)] * len(branches), branches=branches)
    assert sorted(order) == list(range(len(branches)))

    def key_of(index: int) -> int:
        branch = branches[index]
        own = [keys.index(name) for name in (branch.call_id, branch.tool) if name in keys]
        return own[0] if own else len(keys)

    assert order == sorted(order, key=lambda index: (key_of(index), index))


kinds: st.SearchStrategy[BranchOutcome[int]] = st.sampled_from([Done(1), FAILED, Cancelled()])


@given(st.lists(kinds, min_size=1, max_size=8), st.integers(1, 8), st.data())
def test_what_settled_a_join_is_what_it_merges(outcomes: list[BranchOutcome[int]], n: int, data: st.DataObject) -> None:
    """From the moment a contest is settled its result does not change, however the other branches end."""
    join = n_of(min(n, len(outcomes)))
    order = data.draw(st.permutations(range(len(outcomes))))
    known: list[BranchOutcome[int] | None] = [None] * len(outcomes)
    for place, index in enumerate(order, 1):
        known[index] = outcomes[index]
        if is_settled(join, known):
            early = [one if one is not None else Cancelled() for one in known]
            assert merge(join, early, finished=order[:place]) == merge(join, outcomes, finished=order)
            return
    raise AssertionError("a join is settled once all branches have ended")


def test_outcomes_are_distinguished_by_match() -> None:
    """The three outcomes are frozen values with positional patterns."""
    outcomes = []
    values: list[BranchOutcome[Any]] = [Done("x"), FAILED, Cancelled()]
    for outcome in values:
        match outcome:
            case Done(value):
                outcomes.append(value)
            case Failed(error):
                outcomes.append(str(error))
            case Cancelled():
                outcomes.append("cancelled")
    assert outcomes == ["x", "no", "cancelled"]
    with pytest.raises(AttributeError):
        values[0].value = 2  # type: ignore[union-attr, misc]
    assert msgspec.json.encode([values[0], values[2]]) == b'[{"type":"Done","value":"x"},{"type":"Cancelled"}]'
