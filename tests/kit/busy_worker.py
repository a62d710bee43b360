"""A process that never stops committing, for tests that kill it: `python busy_worker.py URL WORKER SEED [STATEMENTS]`.

It starts runs, steps, parks, asks, answers, sends, spawns and ends them, a dozen at a time, and carries on whatever it
can claim. For each control that is on its way for good it prints `sent RUN EVENT`, and `kept RUN COUNT` for each entry.
With a number of statements it kills itself before the next one that it would write to a file with.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
from contextlib import suppress
from itertools import count
from typing import Any

from harborage.identity import Identity
from harborage.state.errors import DatabaseError
from harborage.store import (
    Change,
    Commit,
    Guard,
    Lease,
    NewEvent,
    NewGroup,
    NewPause,
    NewRun,
    PauseQuery,
    PauseStatus,
    RunQuery,
    SendControl,
    SettlePause,
    Status,
    Store,
)
from harborage.store.errors import CommitRefusedError, ControlsLeftError, RowNotFoundError
from harborage.store.postgres import PostgresStore
from harborage.store.sqlite import SQLiteStore
from harborage.store.sqlite.transactions import Transaction

LOOPS = 12
SESSIONS = tuple(Identity("tenant", "user", f"session{number}") for number in range(3))
LIVE = (Status.PENDING, Status.RUNNING, Status.PAUSED)
ALL = RunQuery(tenant="tenant")
ALL_LIVE = RunQuery(tenant="tenant", statuses=LIVE, limit=100_000)


async def open_store(url: str) -> Store:
    """The store that a url names."""
    if url.startswith("sqlite:"):
        return await SQLiteStore.open(url.removeprefix("sqlite:"))
    return await PostgresStore.open(url)


def event(run_id: str) -> NewEvent:
    """An event of a run."""
    return NewEvent(type="e", data=b"{}", run_id=run_id)


class Busy:
    """The life of one worker."""

    def __init__(self, store: Store, worker: str, seed: int) -> None:
        self._store = store
        self._worker = worker
        self._dice = random.Random(seed)
        self._numbers = count()

    async def live(self) -> None:
        """Work until the process is killed."""
        await self._store.join(self._worker)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())
            for _ in range(LOOPS):
                group.create_task(self._loop())

    async def _beat(self) -> None:
        while True:
            with suppress(DatabaseError):  # the server is away
                await self._store.beat(self._worker)
            await asyncio.sleep(0.1)

    async def _loop(self) -> None:
        doings = (self._start, self._start, self._claim, self._claim, self._answer, self._send, self._send)
        while True:
            try:
                await self._dice.choice(doings)()
            except (CommitRefusedError, RowNotFoundError):
                continue  # another loop, or another process, was faster
            except DatabaseError:
                await asyncio.sleep(0.05)  # the server is away

    def _new_name(self) -> str:
        return f"{self._worker}-{next(self._numbers)}"

    async def _start(self) -> None:
        run_id, who = self._new_name(), self._dice.choice(SESSIONS)
        group = NewGroup(group_id=f"group-{run_id}", who=who)
        new = NewRun(run_id=run_id, who=who, entries=(b"started",), worker=self._worker)
        commit = Commit(starts=(new,), groups=(group,), who=who, events=(event(run_id), event(run_id)))
        await self._store.commit(commit)
        await self._carry(Lease(run_id, self._worker, 1), 1, who)

    async def _claim(self) -> None:
        for claimed in await self._store.claim(self._worker, limit=2):
            await self._carry(claimed.row.lease, claimed.row.position, claimed.row.who)

    async def _answer(self) -> None:
        page = await self._store.pauses(PauseQuery(tenant="tenant", statuses=(PauseStatus.OPEN,), limit=20))
        if page.rows:
            pause = self._dice.choice(page.rows)
            settle = SettlePause(token=pause.token, status=PauseStatus.ANSWERED, by=self._worker)
            take = self._dice.choice(("", self._worker))
            events = (event(pause.run_id),)
            done = await self._store.commit(Commit(settles=(settle,), take=take, who=pause.who, events=events))
            for lease in done.taken:
                (row,) = (await self._store.runs(RunQuery(run_ids=(lease.run_id,)))).rows
                await self._carry(lease, row.position, row.who)

    async def _send(self) -> None:
        live = await self._store.runs(RunQuery(tenant="tenant", statuses=LIVE, limit=20))
        if live.rows:
            row, event_id = self._dice.choice(live.rows), self._new_name()
            control = SendControl(run_id=row.run_id, event_id=event_id, type="USER_MESSAGE", data=b"{}")
            await self._store.commit(Commit(sends=(control,), who=row.who, events=(event(row.run_id),)))
            say("sent", row.run_id, event_id)

    async def _carry(self, lease: Lease, position: int, who: Identity) -> None:
        """Take some steps, and then end the run or let it wait."""
        for _ in range(self._dice.randrange(3)):
            position = await self._step(lease, position, who, b"step")
        match self._dice.randrange(4):
            case 0:
                token = f"{lease.run_id}-{position}"
                opens = (NewPause(token=token, run_id=lease.run_id, who=who, reason="await_input"),)
                seen = await self._seen(lease.run_id)
                park = Change(status=Status.PAUSED, release=True, progress=True, seen_control=seen)
                await self._step(lease, position, who, b"asks", change=park, opens=opens)
            case 1:
                child, group = f"{lease.run_id}-child{position}", f"group-{lease.run_id}"
                new = NewRun(
                    run_id=child, who=who, entries=(b"started",), parent=lease.run_id, root=lease.run_id, group=group
                )
                groups = (NewGroup(group_id=group, who=who),)
                wake_at = self._dice.choice((None, 1))
                seen = await self._seen(lease.run_id)
                park = Change(
                    status=Status.PAUSED, release=True, progress=True, awaits=child, wake_at=wake_at, seen_control=seen
                )
                await self._step(lease, position, who, b"spawns", change=park, starts=(new,), groups=groups)
            case _:
                await self._end(lease, position, who)

    async def _seen(self, run_id: str) -> int:
        """The last control that the worker looks at before it lets a run wait; now and then it does not look."""
        controls = await self._store.controls(run_id) if self._dice.randrange(2) else []
        return controls[-1].number if controls else 0

    async def _end(self, lease: Lease, position: int, who: Identity) -> None:
        status = self._dice.choice((Status.COMPLETE, Status.FAILED))
        while True:
            try:
                await self._step(lease, position, who, b"ends", change=Change(status=status, reason="x"))
            except ControlsLeftError:
                position = await self._step(lease, position, who, b"step")
                continue
            return

    async def _step(self, lease: Lease, position: int, who: Identity, entry: bytes, **more: object) -> int:
        """Commit an entry, with the answers to all that has come; returns how many entries there are then."""
        entries = [entry]
        consumed: tuple[int, ...] = ()
        if entry == b"step":
            controls = await self._store.controls(lease.run_id)
            consumed = tuple(control.number for control in controls)
            entries += [b"answers " + control.event_id.encode() for control in controls]
        commit = Commit(
            guard=Guard(lease=lease, position=position),
            entries=tuple(entries),
            consumed=consumed,
            who=who,
            events=(event(lease.run_id),),
            **more,  # type: ignore[arg-type]
        )
        await self._store.commit(commit)
        say("kept", lease.run_id, position + len(entries))
        return position + len(entries)


def die_at(statements: int) -> None:
    """Kill this process in the middle of a transaction: before it writes for the next time after so many."""
    left = count(statements, -1)
    init = Transaction.__init__

    def counting(self: Transaction, connection: Any) -> None:
        init(self, connection)
        execute: Any = connection.execute

        def counted(*given: Any) -> Any:
            if threading.current_thread().name.startswith("harborage-write") and next(left) <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return execute(*given)

        self.execute = counted  # type: ignore[assignment]

    Transaction.__init__ = counting  # type: ignore[method-assign]


def say(what: str, run_id: str, value: object) -> None:
    """Write one line for the test that started this process, at once."""
    sys.stdout.write(f"{what} {run_id} {value}\n")
    sys.stdout.flush()


async def main(url: str, worker: str, seed: int) -> None:
    """Open the store and live."""
    await Busy(await open_store(url), worker, seed).live()


if __name__ == "__main__":
    if len(sys.argv) > 4:
        die_at(int(sys.argv[4]))
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
