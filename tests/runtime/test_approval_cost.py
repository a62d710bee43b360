"""What one approval asks of the store, however much else waits there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from harborage import (
    CallTool,
    Identity,
    Runtime,
    SideEffect,
    tool,
)
from harborage.events import DurableEventBus
from harborage.identity import Quadruple
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.pauses import Coordinator, PauseReason, PauseRequest
from harborage.runtime.run import Run
from harborage.state.storage import Storage, open_storage
from harborage.store import Commit
from tests.kit.pauses import wait_for_approval
from tests.kit.planners import DONE, StepPlanner

pytestmark = pytest.mark.anyio

WHO = Identity("t", "u", "s")
PAYS = StepPlanner(CallTool("pay"), DONE)


class Counted:
    """A store that counts what it is asked of single pauses; what upkeep asks of all comes when it likes."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.asked: Counter[str] = Counter()

    async def commit(self, commit: Commit) -> Any:
        for part in ("opens", "sends", "settles"):
            if getattr(commit, part):
                self.asked[part] += 1
        return await self.store.commit(commit)

    async def pauses(self, query: Any) -> Any:
        self.asked["looks"] += query.due is None and not (query.statuses and not query.tenant)
        return await self.store.pauses(query)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@tool(effects=SideEffect.WRITE)
async def pay() -> str:
    """Pay."""
    return "paid"


@pytest.fixture(params=["memory:", "sqlite:"])
def opened(request: Any, tmp_path: Path) -> Callable[[], Any]:
    async def make() -> Storage:
        """A storage whose store counts, in which two hundred others wait."""
        path = tmp_path / "runs.db" if request.param == "sqlite:" else ""
        storage = await open_storage(f"{request.param}{path}")
        others = Coordinator(store=storage.store)
        for number in range(200):
            who = Quadruple("t", f"u{number}", "s", "")
            await others.request(PauseRequest(identity=who, reason=PauseReason.AWAIT_INPUT))
        storage.store = Counted(storage.store)
        return storage

    return make


async def test_an_approval_where_the_run_is_carried(opened: Callable[[], Any]) -> None:
    """One commit opens the pause; three looks and two commits answer it: it is checked as its run's, as one after which
    the run can go on here, and as it is settled."""
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(await opened())
        runtime = Runtime(planner=PAYS, tools=[pay], approvals={"pay": AlwaysDeny()}, storage=storage)
        rt = await stack.enter_async_context(runtime)
        storage.store.asked.clear()
        run = await rt.start("pay", who=WHO)
        token = await wait_for_approval(run)
        opening = storage.store.asked - Counter(looks=storage.store.asked["looks"])
        assert opening == Counter(opens=1)
        storage.store.asked.clear()
        await run.approve(token)
        assert (await asyncio.wait_for(run.finished(), 20)).payload == "done"
        assert storage.store.asked == Counter(looks=3, sends=1, settles=1)


async def test_an_approval_while_no_worker_has_the_run(opened: Callable[[], Any]) -> None:
    """One look at what the token names, and one commit."""
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(await opened())
        async with Runtime(planner=PAYS, tools=[pay], approvals={"pay": AlwaysDeny()}, storage=storage) as rt:
            run = await rt.start("pay", who=WHO)
            token = await wait_for_approval(run)
        bus = DurableEventBus(storage.store)
        stack.push_async_callback(bus.aclose)
        pauses = Coordinator(bus=bus, store=storage.store)
        engine = StoredEngine(storage.store, pauses)
        stack.push_async_callback(engine.aclose)
        storage.store.asked.clear()
        await Run(run.who, engine, bus, pauses).approve(token)
        assert storage.store.asked == Counter(looks=1, sends=1)
