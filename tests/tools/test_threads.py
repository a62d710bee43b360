"""Threads of synchronous tools: as many as allowed, none joined at exit, and what holds them is named."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading

import pytest

from harborage.tools.threads import ThreadsExhaustedError, ToolThreads, run_in_thread

pytestmark = pytest.mark.anyio

WORD = contextvars.ContextVar("word", default="unset")


async def test_calls_run_side_by_side_with_the_callers_context() -> None:
    """Values and errors come back; threads are reused, and end when they have had no work for a while."""
    threads = ToolThreads(8, idle_s=0.01)
    WORD.set("mine")
    together = threading.Barrier(8, timeout=10)

    def meet() -> str:
        together.wait()
        return WORD.get()

    def fail() -> None:
        raise LookupError("no")

    for _ in range(3):
        assert await asyncio.gather(*(run_in_thread("meet", meet, threads) for _ in range(8))) == ["mine"] * 8
    with pytest.raises(LookupError, match="no"):
        await run_in_thread("fail", fail, threads)
    assert threads.running == ()


async def test_calls_beyond_the_threads_wait_and_the_log_names_what_runs(caplog: pytest.LogCaptureFixture) -> None:
    """Once for all that wait; a call that is given up while it waits never runs, the others do."""
    threads, release, ran = ToolThreads(2, idle_s=0.01), threading.Event(), list[str]()
    held = [asyncio.create_task(run_in_thread("hold", release.wait, threads)) for _ in range(2)]
    await _until_running(threads, 2)
    waiting = [asyncio.create_task(run_in_thread(name, lambda name=name: ran.append(name), threads)) for name in "abc"]
    await asyncio.sleep(0)
    assert caplog.messages == [
        "the call of 'a' waits: all 2 threads for synchronous tools run others (hold); make these tools async"
    ]
    waiting[1].cancel()
    await asyncio.wait({waiting[1]})
    release.set()
    await asyncio.gather(*held, waiting[0], waiting[2])
    assert sorted(ran) == ["a", "c"]


async def test_a_call_is_refused_when_every_thread_is_held_by_a_call_that_was_given_up() -> None:
    """At once and by name, instead of waiting for what may never end; one that ends makes room again."""
    threads, release = ToolThreads(2, idle_s=0.01), threading.Event()
    held = [asyncio.create_task(run_in_thread(name, release.wait, threads)) for name in ("slow", "hung")]
    await _until_running(threads, 2)
    for task in held:
        task.cancel()
    await asyncio.wait(held)
    with pytest.raises(ThreadsExhaustedError, match="hung, slow"):
        await run_in_thread("next", str, threads)
    release.set()
    await _until_running(threads, 0)
    assert await run_in_thread("next", str, threads) == ""


HANGS = """
import asyncio, threading
from harborage import CallTool, Finish, FinishReason, Identity, Runtime, tool
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import ToolPolicy

@tool(policy=ToolPolicy(timeout_ms=50, max_retries=0))
def hang() -> str:
    "Never ends."
    threading.Event().wait()

async def main():
    last = lambda run: Finish(FinishReason.GOAL, run.trajectory.steps[0].observation)
    planner = ScriptedPlanner([CallTool("hang"), last])
    async with Runtime(planner=planner, tools=[hang]) as runtime:
        run = await runtime.start("g", who=Identity("t", "u", "s"))
        print((await run.finished()).payload)

asyncio.run(main())
"""


def test_a_process_ends_although_a_tool_hangs_in_its_thread() -> None:
    """The call fails at its timeout, the runtime closes, `asyncio.run` returns and the process is gone."""
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=30, check=True)
    assert "50 ms" in done.stdout


async def _until_running(threads: ToolThreads, count: int) -> None:
    async with asyncio.timeout(10):
        while len(threads.running) != count:  # noqa: ASYNC110 - threads set no event of the loop
            await asyncio.sleep(0.001)
