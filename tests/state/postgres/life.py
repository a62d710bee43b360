"""One worker in a process of its own, for tests that freeze or kill it: `python life.py URL WORKER LEASE_S`.

It keeps its worker alive, claims what is ready and prints the ids; then, for each line it reads, it appends that line
to its first run and prints `kept`, or the name of the error.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from harborage.errors import HarborageError
from harborage.state.postgres import Database, PostgresRuns
from harborage.state.runs import Claim, Write


async def live(url: str, worker: str, lease_s: float) -> None:
    """Be the worker until the input ends."""
    database = await Database.open(url)
    runs = PostgresRuns(database, lease=timedelta(seconds=lease_s))
    async with asyncio.TaskGroup() as group:
        sign = group.create_task(runs.keep_alive(worker))
        await asyncio.sleep(0)
        claims = await runs.claim(worker)
        print(*[claim.record.run_id for claim in claims], flush=True)
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            print(await said(runs, claims[0], line), flush=True)
        sign.cancel()
    await runs.aclose()
    await database.aclose()


async def said(runs: PostgresRuns, claim: Claim, line: str) -> str:
    """What became of the line."""
    try:
        await runs.append(claim.lease, Write(entries=[line.encode()]))
    except HarborageError as error:
        return type(error).__name__
    return "kept"


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], sys.argv[2], float(sys.argv[3])))
