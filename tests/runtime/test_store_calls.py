"""How often a run calls its store: counted over a store that counts, whatever the run's length."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harborage import CallTool, Identity, Runtime, SideEffect, tool
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.run import Run
from harborage.state import Storage, open_storage
from harborage.store import EventQuery
from harborage.testing.clock import FakeClock
from tests.kit.pauses import wait_for_approval
from tests.kit.planners import DONE, StepPlanner

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
POLLS = {"claim", "unread", "next_due", "look", "controls_of"}
"""What a worker asks for all of its runs together, when it likes."""


class Counted:
    """A store that counts its calls by name."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        if name == "commit_now":
            raise AttributeError(name)  # a commit without an await would not be counted
        found = getattr(self.store, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return await found(*args, **options)

        return call

    @property
    def of_run(self) -> dict[str, int]:
        """The calls since the last reset, without those of a worker for all of its runs."""
        return {name: count for name, count in self.calls.items() if name not in POLLS}


@tool(effects=SideEffect.WRITE)
async def act() -> str:
    """Act."""
    return "done"


@pytest.fixture(params=["memory:", "sqlite:"])
async def counted(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A storage whose store counts."""
    url = f"{request.param}{tmp_path / 'runs.db' if request.param == 'sqlite:' else ''}"
    async with await open_storage(url) as storage:
        storage.store = Counted(storage.store)
        yield storage


async def calls_of(storage: Storage, steps: int, *, is_approved: bool = False) -> dict[str, int]:
    """The calls for one run of so many tool steps, in a session that is open."""
    store: Any = storage.store
    options: Any = {"tools": [act], "storage": storage, "approvals": {"act": AlwaysDeny()} if is_approved else None}

    async def finish(run: Run) -> None:
        if is_approved:
            await run.approve(await wait_for_approval(run))
        await run.finished()

    options["clock"] = FakeClock()  # events that wait for entries are not stored alone, however slow the machine is
    async with Runtime(planner=StepPlanner(*[CallTool("act")] * steps, DONE), **options) as rt, asyncio.timeout(20):
        await finish(await rt.start("first", who=ME))
        store.calls.clear()
        await finish(await rt.start("second", who=ME))
        return dict(store.of_run)


@pytest.mark.parametrize("steps", [0, 1, 3, 12])
async def test_a_run_is_two_commits_and_two_for_each_step(counted: Storage, steps: int) -> None:
    """Its start and its end; the intent and the outcome of each call. Beside them its caller reads the result once."""
    found = await calls_of(counted, steps)
    assert found.pop("commit") == 2 + 2 * steps
    assert found in ({"runs": 1}, {})


async def test_a_call_that_takes_long_is_no_commit_more(counted: Storage) -> None:
    """The event that says it is made is in the commit of its intent, on disk before the tool begins."""
    clock, made = FakeClock(), list[int]()
    store: Any = counted.store

    @tool(effects=SideEffect.WRITE)
    async def slow() -> str:
        """Take a second."""
        made.append(len(await store.store.events(EventQuery(tenant="t", types=("tool.invoked",)))))
        await clock.run_for(1)
        return "done"

    planner = StepPlanner(CallTool("slow"), CallTool("slow"), DONE)
    async with Runtime(planner=planner, tools=[slow], storage=counted, clock=clock) as rt, asyncio.timeout(20):
        await rt.sessions.ensure_open(ME)
        store.calls.clear()
        await (await rt.start("one", who=ME)).finished()
        assert store.of_run["commit"] == 2 + 2 * 2
    assert made == [1, 2]


async def test_an_approval_is_two_commits_more(counted: Storage) -> None:
    """Its request with the pause, and the answer that is sent; the pause is resolved with the intent of the call."""
    found = await calls_of(counted, 1, is_approved=True)
    assert found["commit"] == 2 + 2 + 2
