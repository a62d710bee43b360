"""A runtime that is closed with a grace hands its runs over: steps in flight end here, the rest happens elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, Identity, tool
from harborage.runtime.host import Runtime
from harborage.runtime.run import Run
from harborage.testing import call, script
from harborage.testing.clock import settle

ADA = Identity("acme", "ada", "s-1")
WITHIN_S = 30


class Desk:
    """What the tools of both runtimes share: which calls were begun, and what lets them end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.begins = asyncio.Event()
        self.may_end = asyncio.Event()

    def runtime(self, name: str, url: str, *lines: Any) -> Runtime:
        """A runtime whose calls are noted under `name`, and whose model says these lines."""

        @tool(effects="write")
        async def order(item: str) -> str:
            """Order something."""
            self.begun.append(f"{name}:{item}")
            self.begins.set()
            await self.may_end.wait()
            return "ordered"

        return Runtime([Agent("clerk", model=script(*lines), tools=[order])], storage=url)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database of one test."""
    return f"sqlite:{tmp_path}/runs.db"


async def result_of(runtime: Runtime, run: Run) -> str:
    """The output of a run, read by another runtime than the one that started it."""
    async with asyncio.timeout(WITHIN_S):
        return str((await runtime.get(run.id, who=ADA).result()).output)


async def test_a_call_in_flight_ends_here_and_the_next_step_happens_elsewhere(url: str) -> None:
    """Nothing is done twice, and nothing is unknown: the other runtime begins with the next call."""
    desk = Desk()
    first = desk.runtime("first", url, call("order", item="tea"), call("order", item="late"))
    second = desk.runtime("second", url, call("order", item="rice"), "Done.")
    async with asyncio.timeout(WITHIN_S):
        async with first:
            run = await first.start("order", who=ADA)
            await desk.begins.wait()
            async with second:
                closing = asyncio.create_task(first.aclose(grace=20))
                await settle()
                assert not closing.done()
                desk.may_end.set()
                await closing
                assert await result_of(second, run) == "Done."
        assert desk.begun == ["first:tea", "second:rice"]


async def test_a_call_that_does_not_end_within_the_grace_is_cut(url: str) -> None:
    """The runtime closes all the same; what is known of the call is told to the planner, and it is not made again."""
    desk = Desk()
    first = desk.runtime("first", url, call("order", item="tea"))
    async with asyncio.timeout(WITHIN_S):
        async with first:
            run = await first.start("order", who=ADA)
            await desk.begins.wait()
            await first.aclose(grace=0.05)
        desk.may_end.set()
        async with desk.runtime("second", url, "I do not know.") as second:
            result = await second.get(run.id, who=ADA).result()
            assert desk.begun == ["first:tea"]
            assert "unknown" in str(result.messages)


async def test_a_run_that_waits_for_a_person_is_parked_at_once(url: str) -> None:
    """The grace is for work; a question needs no process, and is answered at the next runtime."""

    @tool(effects="write", approval="always")
    async def order() -> str:
        """Order something."""
        return "ordered"

    def runtime(*lines: Any) -> Runtime:
        return Runtime([Agent("clerk", model=script(*lines), tools=[order])], storage=url)

    async with asyncio.timeout(WITHIN_S):
        async with runtime(call("order")) as first:
            run = await first.start("order", who=ADA)
            await run.wait_pending()
            await first.aclose(grace=25)
        async with runtime("Done.") as second:
            await second.get(run.id, who=ADA).approve()
            assert await result_of(second, run) == "Done."


async def test_a_runtime_without_storage_closes_at_once() -> None:
    """Its runs end with it, so there is nobody to hand them to."""
    desk = Desk()
    model = script("Done.")
    async with asyncio.timeout(WITHIN_S), Runtime([Agent("clerk", model=model)]) as runtime:
        await runtime.aclose(grace=25)
    assert desk.begun == []
