"""The ledger: what runs of one tree draw from its limits, over a store that several processes share."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from harborage.clock import Timers
from harborage.identity import Quadruple
from harborage.llm import CallEstimate, LimitReachedError, PriceUnknownError
from harborage.planner import Budget
from harborage.runtime.effects.ledger import RunLedger, StepAccount
from harborage.runtime.loop.limits import Caps, Spent
from harborage.state import DatabaseError, StateRecord
from harborage.state.memory import MemoryStateStore
from harborage.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

LOG = logging.getLogger("test")
NOTHING = Spent()


def ledger(store: Any, caps: Caps, *, run: str = "root", clock: Timers | None = None) -> RunLedger:
    """The part of run `run` of the ledger of `root`, as a process opens it that takes the run up."""
    who = Quadruple("t", "u", "s", run)
    return RunLedger(who, caps, root="root", store=store, clock=clock or FakeClock(), logger=LOG)


def call(tokens: int = 10, cost: float | None = 0.0) -> CallEstimate:
    return CallEstimate(model="m", tokens=tokens, cost=cost)


async def test_a_step_is_counted_once_however_often_it_is_begun() -> None:
    """Also by another process, after the first one died in the middle of it."""
    store, caps = MemoryStateStore(), Caps(steps=2)
    first = ledger(store, caps)
    assert await first.begin_step(0, NOTHING) is None
    assert await first.begin_step(1, NOTHING) is None
    again = ledger(store, caps)
    assert await again.begin_step(1, NOTHING) is None
    assert again.budget(Budget()).hop_budget == 1
    reached = await again.begin_step(2, NOTHING)
    assert reached is not None
    assert (reached.limit, reached.cap) == ("steps", 2)


async def test_runs_of_one_tree_draw_on_the_same_limits() -> None:
    """Steps, tokens and cost of children count for all, from any process; what ended children took stays counted."""
    store, caps = MemoryStateStore(), Caps(steps=5, tokens=100, cost=1_000_000)
    root, child, other = (ledger(store, caps, run=run) for run in ("root", "child", "other"))
    for one in (root, child, other):
        assert await one.begin_step(0, NOTHING) is None
    key = await child.reserve(call(30, 0.25))
    await child.settle(key, Spent(tokens=20, cost=200_000))
    await child.close()
    assert await other.begin_step(1, NOTHING) is None
    assert await root.begin_step(1, NOTHING) is None
    shown = root.budget(Budget())
    assert (shown.hop_budget, shown.tokens_spent, shown.cost_spent, shown.cost_cap) == (1, 20, 200_000, 1_000_000)
    assert await root.begin_step(2, NOTHING) is not None


async def test_a_call_is_not_lost_and_not_counted_twice_when_its_process_dies() -> None:
    """Died before it settled: the estimate is spent. Died after: what it took is spent. Either way once."""
    store, caps = MemoryStateStore(), Caps(tokens=1_000)
    before = ledger(store, caps)
    await before.begin_step(0, NOTHING)
    settled = await before.reserve(call(100))
    await before.settle(settled, Spent(tokens=60))
    await before.reserve(call(100))
    for _ in range(2):
        after = ledger(store, caps)
        await after.begin_step(0, NOTHING)
        assert after.budget(Budget()).tokens_spent == 160
    await after.settle(settled, Spent(tokens=60))
    assert after.budget(Budget()).tokens_spent == 160


async def test_parallel_calls_that_do_not_fit_together_wait_for_each_other() -> None:
    """The second goes ahead when the first has settled for less, and is refused when nothing is left of it."""
    clock, store, caps = FakeClock(), MemoryStateStore(), Caps(tokens=100)
    first, second = (ledger(store, caps, run=run, clock=clock) for run in ("root", "child"))
    await first.begin_step(0, NOTHING)
    await second.begin_step(0, NOTHING)
    for taken, is_admitted in ((30, True), (70, False)):
        key = await first.reserve(call(80))
        waiting = asyncio.ensure_future(second.reserve(call(80)))
        await clock.run_for(1)
        assert not waiting.done()
        await first.settle(key, Spent(tokens=taken))
        await clock.run_for(1)
        if is_admitted:
            await second.settle(await waiting, NOTHING)
        else:
            with pytest.raises(LimitReachedError, match="limit of 100 tokens is reached"):
                await waiting


async def test_no_caller_waits_for_ever_for_a_call_that_never_settles() -> None:
    """After two minutes the call is refused."""
    clock, store, caps = FakeClock(), MemoryStateStore(), Caps(tokens=100)
    dead, alive = (ledger(store, caps, run=run, clock=clock) for run in ("root", "child"))
    await dead.begin_step(0, NOTHING)
    await alive.begin_step(0, NOTHING)
    await dead.reserve(call(80))
    waiting = asyncio.ensure_future(alive.reserve(call(80)))
    await clock.run_for(119)
    assert not waiting.done()
    await clock.run_for(2)
    with pytest.raises(LimitReachedError):
        await waiting
    assert alive.budget(Budget()).tokens_spent == 0


async def test_calls_of_one_step_side_by_side_share_the_rest_as_well() -> None:
    """Two calls of one planner step are in each other's way like those of two runs."""
    clock = FakeClock()
    one = ledger(MemoryStateStore(), Caps(tokens=100), clock=clock)
    await one.begin_step(0, NOTHING)
    keys = [await one.reserve(call(40)) for _ in range(2)]
    third = asyncio.ensure_future(one.reserve(call(40)))
    await clock.run_for(1)
    assert not third.done()
    await asyncio.gather(*(one.settle(key, Spent(tokens=10)) for key in keys))
    await clock.run_for(1)
    await one.settle(await third, NOTHING)
    assert one.budget(Budget()).tokens_spent == 20


async def test_a_cost_limit_does_not_hold_for_a_model_without_a_price() -> None:
    """It is refused by name instead; other limits do not ask for prices."""
    with pytest.raises(PriceUnknownError, match="cost_overrides"):
        await ledger(MemoryStateStore(), Caps(cost=5)).reserve(call(cost=None))
    await ledger(MemoryStateStore(), Caps(tokens=5)).reserve(call(1, cost=None))


async def test_the_call_after_the_last_one_allowed_is_refused_and_ends_the_run() -> None:
    """A tool call is counted once under its key, the last one allowed is made, and a step after it may still answer."""
    store, caps = MemoryStateStore(), Caps(calls=2)
    one = ledger(store, caps)
    await one.begin_step(0, NOTHING)
    assert await one.count_call("r/1") is None
    one = ledger(store, caps)  # it died in the call, which is made again under the same key
    assert await one.count_call("r/1") is None
    one.ended_call("r/1")
    assert await one.count_call("r/2") is None
    assert await one.begin_step(1, NOTHING) is None
    assert (await one.count_call("r/3")) is not None
    assert (await one.begin_step(2, NOTHING)) is not None


async def test_nothing_is_left_in_the_store_of_a_tree_that_has_ended() -> None:
    """The last run takes the ledger away, whichever it is; ending twice changes nothing."""
    store, caps = MemoryStateStore(), Caps(tokens=100)
    root, child = (ledger(store, caps, run=run) for run in ("root", "child"))
    for one in (root, child):
        await one.begin_step(0, NOTHING)
    for one in (root, child, child):
        await one.close()
    assert await ledger(store, caps).begin_step(0, Spent(tokens=3)) is None


async def test_a_ledger_that_is_new_begins_with_what_the_run_has_recorded() -> None:
    """As where the store did not outlive the process and the run's journal did."""
    one = ledger(MemoryStateStore(), Caps(tokens=100, steps=4))
    assert await one.begin_step(3, Spent(steps=3, tokens=99)) is None
    assert await one.begin_step(4, Spent(steps=4, tokens=99)) is not None


class Refusing(MemoryStateStore):
    """A store that refuses writes while `is_refusing` is set."""

    is_refusing = False

    async def save(self, record: StateRecord) -> None:
        if self.is_refusing:
            raise DatabaseError("down")
        await super().save(record)


async def test_a_store_that_refuses_costs_no_answer_and_lets_no_call_through() -> None:
    """A reservation that is not written is no permission; what a call took is written with the next change."""
    store = Refusing()
    one = ledger(store, Caps(tokens=100))
    await one.begin_step(0, NOTHING)
    account = StepAccount(one)
    key = await account.reserve(lambda: call(10))
    store.is_refusing = True
    await account.settle(key, tokens=7, cost=0.0)
    with pytest.raises(DatabaseError):
        await account.reserve(lambda: call(10))
    assert isinstance(account.fault, DatabaseError)
    store.is_refusing = False
    await one.begin_step(1, NOTHING)
    again = ledger(store, Caps(tokens=100))
    await again.begin_step(1, NOTHING)
    assert again.budget(Budget()).tokens_spent == 7
