"""Handles: unique in the list, accepted however a person types them, and clear errors for the others."""

from __future__ import annotations

import pytest

from harborage.cli.find import AmbiguousRunError, find_named_run
from harborage.cli.handles import handles, parse_place
from harborage.identity import Identity
from harborage.ids import new_id
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.store.memory import MemoryStore
from tests.kit.stored_runs import keep

pytestmark = pytest.mark.anyio

FIRST, TWIN, OTHER = "01M84NR7QV68ZHM47011Q7TX0M", "01M84NR7QV68ZHM47022Q7TX0M", "01M84NR7QV68ZHM4700AK1VZ99"


async def stored(*ids: str) -> MemoryStore:
    store = MemoryStore()
    for run_id in ids:
        await keep(store, Identity("t", "u", "s").with_run(run_id), [])
    return store


def test_a_handle_is_as_long_as_it_must_be() -> None:
    """Six characters of the end, eight for two runs that share those; an id that is shorter is its own handle."""
    assert handles([FIRST, TWIN, OTHER, "short"]) == {
        FIRST: "11Q7TX0M",
        TWIN: "22Q7TX0M",
        OTHER: "K1VZ99",
        "short": "short",
    }


def test_handles_of_many_runs_are_unique() -> None:
    """Of runs that were started in the same moment, too."""
    assert len(set(handles([new_id() for _ in range(2000)]).values())) == 2000


def test_a_step_is_named_behind_a_slash() -> None:
    """`RUN/STEP`; without a slash it is the whole run."""
    assert parse_place(" q7tx2m/5 ") == ("q7tx2m", "5")
    assert parse_place("last") == ("last", "")


@pytest.mark.parametrize("typed", ["Q7TX0M", "q7tx0m", "q7txom", "11Q7TX0M", "ilq7txOm", FIRST, FIRST.lower()])
async def test_a_run_is_named_by_its_handle(typed: str) -> None:
    """In letters of any case, with the letters that ids do not have read as the digits they look like."""
    assert (await find_named_run(await stored(FIRST, OTHER), typed, where="db")).run_id == FIRST


async def test_last_is_the_newest_run() -> None:
    """Whatever its id is."""
    assert (await find_named_run(await stored(FIRST, TWIN, OTHER), "last", where="db")).run_id == OTHER


async def test_an_ambiguous_name_lists_the_candidates() -> None:
    """Each with a handle that names it alone, its agent, status and age."""
    with pytest.raises(
        AmbiguousRunError, match=r"'q7tx0m' could be any of 2 runs: 22Q7TX0M \(.*; 11Q7TX0M \("
    ) as caught:
        await find_named_run(await stored(FIRST, TWIN, OTHER), "q7tx0m", where="db")
    assert caught.value.found == (FIRST, TWIN)


async def test_a_mistyped_handle_says_what_is_similar() -> None:
    """And one like no other says where runs are listed."""
    store = await stored(FIRST, OTHER)
    with pytest.raises(RunNotFoundError, match="no run 'Q7TX0N' in db; did you mean Q7TX0M "):
        await find_named_run(store, "Q7TX0N", where="db")
    for typed in ("ZZZ", ""):
        with pytest.raises(RunNotFoundError, match="'harborage runs list' shows"):
            await find_named_run(store, typed, where="db")
