"""A runtime over Postgres outlives broken connections and a server that crashes: its runs go on where they stood."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from harborage.identity import Identity
from harborage.planner import CallTool, Finish, FinishReason, RunContext
from harborage.runtime.host import Runtime
from harborage.runtime.run import Run
from harborage.state.errors import DatabaseUnreachableError
from harborage.tools import SideEffect, tool

ME = Identity("tenant", "user", "session")
PATIENCE_S = 30.0


class Till:
    """A tool that pays once, as soon as it may, and says when it is asked."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.reached = asyncio.Event()
        self.paid = 0

    def tools(self) -> list[Any]:
        async def look() -> str:
            """Look, as long as it takes."""
            self.reached.set()
            await self.gate.wait()
            return "seen"

        async def pay() -> str:
            """Pay."""
            self.paid += 1
            return "paid"

        return [tool(look, effects=SideEffect.READ), tool(pay, effects=SideEffect.WRITE)]


class Shopper:
    """A planner that looks, pays and finishes; asked again at a step it says the same."""

    async def next(self, run: RunContext) -> Any:
        steps = run.trajectory.steps
        if len(steps) < 2:
            return CallTool(("look", "pay")[len(steps)])
        return Finish(FinishReason.GOAL, steps[-1].observation)


async def end(run: Run) -> Any:
    """What a run's finish holds; while the server is away nobody can say."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return (await run.finished()).payload
            except DatabaseUnreachableError:
                await asyncio.sleep(0)


async def at_work(till: Till) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await till.reached.wait()


async def test_a_run_outlives_broken_connections(place: Any) -> None:
    """Every connection is ended in the middle of a step: the run does not notice."""
    till, storage = Till(), await place.open()
    async with Runtime(planner=Shopper(), tools=till.tools(), storage=storage) as rt:
        run = await rt.start("go", who=ME)
        await at_work(till)
        assert await place.break_connections() >= 1
        till.gate.set()
        assert await end(run) == "paid"
    assert till.paid == 1


async def test_a_run_outlives_a_server_that_crashes(place: Any, caplog: pytest.LogCaptureFixture) -> None:
    """While it is away nothing with effects begins and starting says which server is missing; then the run goes on."""
    caplog.set_level(logging.ERROR)
    till, storage = Till(), await place.open()
    async with Runtime(planner=Shopper(), tools=till.tools(), storage=storage) as rt:
        run = await rt.start("go", who=ME)
        await at_work(till)
        await asyncio.to_thread(place.server.stop, at_once=True)
        try:
            till.gate.set()
            with pytest.raises(DatabaseUnreachableError, match="postgres://harborage@127.0.0.1"):
                await rt.start("another", who=ME)
            async with asyncio.timeout(PATIENCE_S):
                while not any(run.id in line and "postgres://" in line for line in caplog.messages):  # noqa: ASYNC110
                    await asyncio.sleep(0)
            assert till.paid == 0
            assert not any(place.server.password in line for line in caplog.messages)
        finally:
            await asyncio.to_thread(place.server.start)
            await place.connect()
        assert await end(run) == "paid"
    assert till.paid == 1
