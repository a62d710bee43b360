"""Workers that are killed while they commit, and what must be true of their store afterwards."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from harborage.store import Change, Commit, Guard, Status, Store
from harborage.store.check import check, read
from harborage.store.errors import ControlsLeftError
from tests.kit import busy_worker

PATIENCE_S = 60.0


class Acknowledged:
    """What workers printed as committed: the controls that were sent, and how many entries each run has at least."""

    def __init__(self) -> None:
        self.sent: defaultdict[str, set[str]] = defaultdict(set)
        self.kept: defaultdict[str, int] = defaultdict(int)
        self.lines = 0

    def add(self, line: bytes) -> None:
        """Add one line of a worker; half a line, of a worker that died, is ignored."""
        if not line.endswith(b"\n"):
            return
        self.lines += 1
        what, run_id, value = line.decode().split()
        if what == "sent":
            self.sent[run_id].add(value)
        else:
            self.kept[run_id] = max(self.kept[run_id], int(value))


def consumed(entry: bytes) -> Iterable[str]:
    """The event ids of the controls that an entry of such a worker answers."""
    return [entry.decode().removeprefix("answers ")] if entry.startswith(b"answers ") else []


@asynccontextmanager
async def busy(url: str, worker: str, *numbers: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker at work, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(busy_worker.__file__)),
        url,
        worker,
        *map(str, numbers),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def read_lines(process: asyncio.subprocess.Process, acknowledged: Acknowledged, lines: int) -> None:
    """Read so many lines of a worker."""
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(lines):
            line = await process.stdout.readline()
            assert line, "the worker ended by itself"
            acknowledged.add(line)


async def work_and_die(url: str, worker: str, seed: int, acknowledged: Acknowledged, statements: int) -> None:
    """Let a worker commit to a file until it kills itself in the middle of a transaction."""
    async with busy(url, worker, seed, statements) as process, asyncio.timeout(PATIENCE_S):
        assert process.stdout is not None
        for line in (await process.stdout.read()).splitlines(keepends=True):
            acknowledged.add(line)
        assert await process.wait() == -signal.SIGKILL


async def work_and_be_killed(url: str, worker: str, seed: int, acknowledged: Acknowledged, lines: int) -> None:
    """Let a worker commit until it has said so much, and kill it then, wherever it is."""
    async with busy(url, worker, seed) as process:
        await read_lines(process, acknowledged, lines)
        process.kill()
        assert process.stdout is not None
        for line in (await process.stdout.read()).splitlines(keepends=True):
            acknowledged.add(line)
        await process.wait()


async def assert_agrees(store: Store, acknowledged: Acknowledged) -> None:
    """The tables agree, and all that a worker printed as committed is in them."""
    shown = await read(store)
    found = check(shown, consumed=consumed)
    assert not found, found
    for row in shown.runs:
        journal = shown.journals[row.run_id]
        assert isinstance(journal, list)
        answered = {event_id for entry in journal for event_id in consumed(entry)}
        unread = {control.event_id for control in shown.controls[row.run_id]}
        assert acknowledged.sent[row.run_id] <= answered | unread, row
        assert len(journal) >= acknowledged.kept[row.run_id], row
    known = {row.run_id for row in shown.runs}
    assert {run_id for run_id, count in acknowledged.kept.items() if count} <= known
    assert {run_id for run_id, sent in acknowledged.sent.items() if sent} <= known


async def finish_all(store: Store) -> None:
    """End whatever the dead have left, as the worker that comes after them."""
    await store.join("last")
    while True:
        await store.beat("last")
        for claimed in await store.claim("last"):
            guard = Guard(lease=claimed.row.lease, position=claimed.row.position)
            answers = tuple(b"answers " + control.event_id.encode() for control in claimed.controls)
            numbers = tuple(control.number for control in claimed.controls)
            end = Change(status=Status.COMPLETE)
            try:
                await store.commit(Commit(guard=guard, entries=(*answers, b"ends"), consumed=numbers, change=end))
            except ControlsLeftError:
                await store.commit(Commit(guard=guard, change=Change(release=True, is_ready=True)))
        counts = (await store.count_runs(busy_worker.ALL)).by_status
        owned = (await store.runs(busy_worker.ALL_LIVE)).rows
        if not any(row.owner or row.is_woken or row.wake_at is not None for row in owned):
            assert counts[Status.COMPLETE] > 0
            return
