"""One storage that simulated processes share: kept in memory outside of them, reached over wires.

Workers live as they do on a disk that several processes use: when a process dies its runs are free a moment later, and
when it freezes they are once its last sign of life has grown old. Everything that is accepted is looked at: no write of
a worker whose lease has passed on may get through, whatever the store itself checks.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from harborage.concurrency import Crew
from harborage.events.memory_log import MemoryEventLog
from harborage.state.errors import DatabaseLockedError, StoreClosedError
from harborage.state.memory import MemoryStateStore
from harborage.state.memory_runs import MemoryRuns
from harborage.state.runs import Claim, Lease, LeaseLostError, RunFilter, RunRecord, Sent, Standing, Write
from harborage.state.storage import Storage
from harborage.testing.simulation.loop import SimulationError
from harborage.testing.simulation.wire import Wire

if TYPE_CHECKING:
    from harborage.events.log import Logged
    from harborage.identity import Identity, Quadruple
    from harborage.state.store import StateRecord
    from harborage.testing.simulation.process import Process
    from harborage.testing.simulation.simulation import Simulation

__all__ = ["AuditedRuns", "Server", "StaleWriteError"]

_OLD_SIGN_S: Final = 60.0
_NOTICED_S: Final = 0.2
_POLLED_S: Final = 0.1


class StaleWriteError(SimulationError):
    """A write of a worker that no longer held the run was accepted."""


class Server:
    """The storage itself. Outside of every process: stories read it directly, processes `connect`."""

    def __init__(self, simulation: Simulation, runs: AuditedRuns | None = None) -> None:
        self.simulation = simulation
        self.runs = AuditedRuns(simulation) if runs is None else runs
        self.state = MemoryStateStore(clock=simulation.clock)
        self.events = MemoryEventLog()
        self._chance = simulation.chance("server")
        self._keepers = Crew(simulation.fail)
        self._lives: dict[str, asyncio.Task[Any]] = {}
        self._wires: dict[Process, list[Wire]] = {}

    def connect(self, process: Process) -> Storage:
        """This storage, as the process reaches it."""
        wire = Wire(self.simulation, process, refusal=_refused, slowest_s=self._chance.choice((0.0, 0.001, 0.05)))
        self._wires.setdefault(process, []).append(wire)
        runs = _Runs(self, process, wire)
        return Storage(state=_State(self.state, wire), runs=runs, queue=runs, events=_Events(self.events, wire))

    def begin_life(self, worker: str) -> None:
        """A worker gives signs of life from now on."""
        if worker not in self._lives:
            start = self._keepers.start
            self._lives[worker] = self.simulation.context.copy().run(
                start, self.runs.keep_alive(worker), f"life of {worker}"
            )

    def end_life(self, worker: str) -> None:
        """The worker gives none any more: its runs are free."""
        life = self._lives.pop(worker, None)
        if life is not None:
            life.cancel()

    def watch(self, process: Process, worker: str) -> Callable[[], None]:
        """Let a worker's life follow that of its process, until the result is called."""
        is_kept = [True]

        def changed() -> None:
            loop = self.simulation.loop
            if process.is_dead:
                loop.call_later(self._chance.uniform(0, _NOTICED_S), is_gone)
            elif not process.is_running:
                loop.call_later(_OLD_SIGN_S, has_grown_old, process.frozen_since)
            elif is_kept:
                self.begin_life(worker)

        def is_gone() -> None:
            # What a dead process had asked for is done before others notice that it is dead, or never.
            for wire in self._wires[process]:
                wire.is_cut = True
            self.end_life(worker)

        def has_grown_old(since: float | None) -> None:
            if process.frozen_since is not None and process.frozen_since == since:
                self.simulation.note(f"{process.name} gave no sign of life for long")
                self.end_life(worker)

        process.on_change(changed)
        self.begin_life(worker)
        return is_kept.clear

    def tell(self, process: Process, listener: Callable[[], None]) -> Callable[[], None]:
        """Tell the process of changes, a moment after they happened."""
        loop = self.simulation.loop
        waiting: list[bool] = []

        def told() -> None:
            waiting.clear()
            listener()

        def changed() -> None:
            if not waiting:
                waiting.append(True)
                loop.call_later(self._chance.uniform(0, _POLLED_S), told, context=process.context.copy())

        return self.runs.on_change(changed)


class AuditedRuns(MemoryRuns):
    """Runs whose every accepted write is checked once more, against claims that are counted here."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(clock=simulation.clock)
        self._simulation = simulation
        self._leases: dict[str, Lease] = {}
        self.claims: builtins.list[Lease] = []
        self.sendings: builtins.list[tuple[str, str, bytes]] = []
        self.turned_away = 0

    async def claim(
        self, worker: str, *, agent: str = "", limit: int = 100, blocked: bool = False, behind: str = ""
    ) -> builtins.list[Claim]:
        claims = await super().claim(worker, agent=agent, limit=limit, blocked=blocked, behind=behind)
        for record, lease in claims:
            before = self._leases.get(lease.run_id)
            if before is not None and before.fence >= lease.fence:
                raise StaleWriteError(f"run {record.run_id} was claimed with fence {lease.fence} after {before}")
            self._leases[lease.run_id] = lease
            self.claims.append(lease)
        return claims

    async def send(self, run_id: str, event_id: str, data: bytes, *, limit: int = 0) -> bool:
        is_new = await super().send(run_id, event_id, data, limit=limit)
        if is_new:
            self.sendings.append((run_id, event_id, data))
        return is_new

    async def append(self, lease: Lease, write: Write) -> None:
        try:
            await super().append(lease, write)
        except LeaseLostError:
            self.turned_away += 1
            raise
        if self._leases.get(lease.run_id) != lease:
            self._simulation.fail("fencing", StaleWriteError(f"{lease} wrote; {self._leases.get(lease.run_id)} holds"))


class _Runs:
    """`RunStore` and `RunQueue` over a wire."""

    def __init__(self, server: Server, process: Process, wire: Wire) -> None:
        self._server = server
        self._process = process
        self._runs = server.runs
        self._wire = wire
        self._lives: dict[str, Callable[[], None]] = {}
        self._is_closed = False

    async def _ask(self, what: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self._is_closed:
            raise StoreClosedError()
        return await self._wire.ask(what, partial(act, *args, **options))

    async def create(self, record: RunRecord, write: Write) -> bool:
        return bool(await self._ask("runs.create", self._runs.create, record, write))

    async def append(self, lease: Lease, write: Write) -> None:
        await self._ask("runs.append", self._runs.append, lease, write)

    async def read(self, run_id: str, *, after: int = 0) -> builtins.list[bytes]:
        found: builtins.list[bytes] = await self._ask("runs.read", self._runs.read, run_id, after=after)
        return builtins.list(found)

    async def body(self, run_id: str, digest: str) -> bytes:
        found: bytes = await self._ask("runs.body", self._runs.body, run_id, digest)
        return found

    async def list(self, filter: RunFilter, *, after: str = "", limit: int = 100) -> builtins.list[RunRecord]:
        found: builtins.list[RunRecord] = await self._ask(
            "runs.list", self._runs.list, filter, after=after, limit=limit
        )
        return found

    async def forget(self, run_id: str) -> None:
        await self._ask("runs.forget", self._runs.forget, run_id)

    async def claim(
        self, worker: str, *, agent: str = "", limit: int = 100, blocked: bool = False, behind: str = ""
    ) -> builtins.list[Claim]:
        self._live(worker)
        claims: builtins.list[Claim] = await self._ask(
            "queue.claim", self._runs.claim, worker, agent=agent, limit=limit, blocked=blocked, behind=behind
        )
        return claims

    async def release(self, lease: Lease, standing: Standing) -> None:
        await self._ask("queue.release", self._runs.release, lease, standing)

    async def send(self, run_id: str, event_id: str, data: bytes, *, limit: int = 0) -> bool:
        return bool(await self._ask("queue.send", self._runs.send, run_id, event_id, data, limit=limit))

    async def arrived(self, worker: str, *, after: int = 0) -> builtins.list[Sent]:
        found: builtins.list[Sent] = await self._ask("queue.arrived", self._runs.arrived, worker, after=after)
        return found

    async def wake(self, run_id: str) -> None:
        await self._ask("queue.wake", self._runs.wake, run_id)

    async def keep_alive(self, worker: str) -> None:
        if self._is_closed:
            raise StoreClosedError()
        self._live(worker)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._lives.pop(worker)()
            self._server.end_life(worker)

    def _live(self, worker: str) -> None:
        """A worker lives from its first sign of life or its first claim on."""
        if worker not in self._lives:
            self._lives[worker] = self._server.watch(self._process, worker)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._server.tell(self._process, listener)

    async def next_wake(self, *, agent: str = "") -> datetime | None:
        at: datetime | None = await self._ask("queue.next_wake", partial(self._runs.next_wake, agent=agent))
        return at

    async def aclose(self) -> None:
        self._is_closed = True


class _State:
    """`StateStore` over a wire."""

    def __init__(self, store: MemoryStateStore, wire: Wire) -> None:
        self._store = store
        self._wire = wire
        self._is_closed = False

    async def _ask(self, what: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self._is_closed:
            raise StoreClosedError()
        return await self._wire.ask(what, partial(act, *args, **options))

    async def save(self, record: StateRecord) -> None:
        await self._ask(f"state.save {_plain(record.kind)}", self._store.save, record)

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        found: StateRecord = await self._ask(f"state.load {_plain(kind)}", self._store.load, identity, kind)
        return found

    async def load_by_event_id(self, event_id: str, *, who: Identity | Quadruple | None = None) -> StateRecord:
        found: StateRecord = await self._ask("state.find", self._store.load_by_event_id, event_id, who=who)
        return found

    async def delete(self, identity: Quadruple, kind: str) -> None:
        await self._ask(f"state.delete {_plain(kind)}", self._store.delete, identity, kind)

    async def aclose(self) -> None:
        self._is_closed = True


class _Events:
    """`EventLog` over a wire."""

    def __init__(self, log: MemoryEventLog, wire: Wire) -> None:
        self._log = log
        self._wire = wire

    async def append(self, events: Sequence[Logged]) -> None:
        await self._wire.ask("events.append", partial(self._log.append, events))

    async def last(self, who: Identity) -> int:
        return int(await self._wire.ask("events.last", partial(self._log.last, who)))

    async def read(self, who: Identity, *, after: int = 0, limit: int = 1000) -> list[Logged]:
        found: list[Logged] = await self._wire.ask(
            "events.read", partial(self._log.read, who, after=after, limit=limit)
        )
        return found

    async def forget(self, who: Identity) -> None:
        await self._wire.ask("events.forget", partial(self._log.forget, who))

    async def aclose(self) -> None:
        """Nothing: the log is the server's."""


def _plain(kind: str) -> str:
    """A kind without what only this run's record has of it."""
    return kind.partition(":")[0]


def _refused(what: str) -> Exception:
    return DatabaseLockedError("simulated", f"{what} was refused")
