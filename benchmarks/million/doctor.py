"""What `doctor` and `doctor --all` take of a store of many runs, and what a worker beside them notices of it."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from itertools import count
from statistics import median, quantiles
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from benchmarks.measure import Row
from benchmarks.million.filling import ENTRIES, EVENT
from benchmarks.million.places import Place
from benchmarks.million.timing import ms_alone, share
from harborage.app.doctor import check_storage
from harborage.identity import Identity
from harborage.store import Commit, Guard, Lease, NewRun, Store

_LIVE_MS: Final = 50.0
_WHOLE_S: Final = 60.0
_TIMES_SLOWER: Final = 6.0  # where nothing else runs a commit is quick, and the server shares its processors
_ALONE_S: Final = 10.0
_PAUSE_S: Final = 0.005
_SPIN_S: Final = 0.02
_COMMAND: Final = "import sys; from harborage.cli.main import main; sys.exit(main(sys.argv[1:]))"
_names: Final = count()


async def doctor_rows(where: str, place: Place) -> list[Row]:
    """A check of what is live; one of everything, in a process of its own; and commits beside it, in this one.

    Raises:
        AssertionError: it found something wrong, though nothing is.
    """
    live = await ms_alone(lambda: check_storage(place.url, place.path))
    alone = time.perf_counter() + _ALONE_S
    before, _ = await _commits(place.storage.store, lambda: time.perf_counter() < alone)
    begin = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _COMMAND, "doctor", "--all", "--json", "--storage", place.url,
        stdin=DEVNULL, stdout=PIPE,
    )  # fmt: skip
    telling = asyncio.create_task(_told(process))
    beside, shares = await _commits(place.storage.store, lambda: not telling.done())
    took = (time.perf_counter() - begin) * median(shares)
    wrong = [one for one in (await telling)["findings"] if not one["is_ok"]]
    assert not wrong, wrong
    return [
        Row(name=f"{where}: doctor", unit="ms", ours=live, most=_LIVE_MS),
        Row(name=f"{where}: doctor --all", unit="s", ours=took, most=_WHOLE_S),
        Row(
            name=f"{where}: commit beside doctor --all, 99 of 100",
            unit="ms",
            ours=_p99(beside),
            bare=_p99(before),
            limit=_TIMES_SLOWER,
            note="beside the same without",
        ),
    ]


async def _told(process: Process) -> Any:
    said, _ = await process.communicate()
    return msgspec.json.decode(said)


async def _commits(store: Store, goes_on: Callable[[], bool]) -> tuple[list[float], list[float]]:
    """The milliseconds of each commit of a run that works along, and how much of a processor there was meanwhile."""
    run_id = f"beside-{next(_names)}"
    who = Identity("beside", "doctor", run_id)
    start = NewRun(run_id=run_id, who=who, worker="benchmark", entries=ENTRIES[:1])
    await store.join("benchmark")
    await store.commit(Commit(starts=(start,), who=who))
    lease, spent, shares = Lease(run_id, "benchmark", 1), list[float](), list[float]()
    while goes_on():
        step = Commit(
            guard=Guard(lease=lease, position=len(spent) + 1),
            entries=ENTRIES[1:2],
            who=who,
            events=(replace(EVENT, run_id=run_id),),
        )
        begin = time.perf_counter()
        await store.commit(step)
        spent.append((time.perf_counter() - begin) * 1e3)
        if len(spent) % 100 == 1:
            shares.append(share(_SPIN_S))
        await asyncio.sleep(_PAUSE_S)
    await store.leave("benchmark")
    return spent, shares


def _p99(spent: list[float]) -> float:
    return quantiles(spent, n=100)[-1]
