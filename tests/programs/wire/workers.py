"""The agents that the servers of these programs serve: `harborage serve FILE`, or in a process of a benchmark.

A run books its goal's number of seats, one a step. Whoever books keeps a ledger of files, which outlives every server:
one file for each booking, under the key of its call, so that a second call with the key finds the first.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from harborage import Agent
from harborage.planner import CallTool, Decision, Finish, FinishReason, RunContext
from harborage.tools import CallContext, tool

LEDGER = "HARBORAGE_TEST_LEDGER"
"""The variable of the environment that names the folder of the ledger."""
_TAKES_S = 0.15


class BookingPlanner:
    """Books one seat a step, as many as the goal says."""

    async def next(self, run: RunContext) -> Decision:
        """The next step of a run."""
        done = 0 if run.trajectory is None else len(run.trajectory.steps)
        if done < int(run.goal):
            return CallTool("book", b'{"seat": %d}' % done)
        return Finish(FinishReason.GOAL, f"{done} seats")


@tool(effects="external", idempotent=True)
async def book(call: CallContext, seat: int) -> str:
    """Book a seat."""
    folder = Path(os.environ[LEDGER])
    await asyncio.sleep(_TAKES_S)
    with (folder / "calls").open("a") as calls:
        calls.write(f"{call.idempotency_key} {seat}\n")
    try:
        with (folder / call.idempotency_key.replace("/", "_")).open("x") as entry:
            entry.write(f"{call.who.run_id} {seat}")
    except FileExistsError:
        return f"seat {seat} was booked before"
    return f"seat {seat} is booked"


booking = Agent("booking", planner=BookingPlanner(), tools=[book])
