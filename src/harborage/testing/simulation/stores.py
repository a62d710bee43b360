"""One storage that simulated processes share: in memory, outside of them, reached over a `Wire`.

Leases expire as on a disk that several processes use: when a process dies its runs are free a moment later, when it
freezes they are free once its heartbeat is old. Every accepted write is checked once more: none may come from a worker
that has lost its lease.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from harborage.concurrency import Crew
from harborage.state.errors import DatabaseLockedError, StoreClosedError
from harborage.state.memory import MemoryStateStore
from harborage.state.storage import Storage
from harborage.store import Claimed, Commit, Committed, Lease
from harborage.store.errors import LeaseLostError
from harborage.store.memory import MemoryStore
from harborage.testing.simulation.loop import SimulationError
from harborage.testing.simulation.wire import Wire

if TYPE_CHECKING:
    from harborage.identity import Identity, Quadruple
    from harborage.state.store import StateRecord
    from harborage.store import Store
    from harborage.testing.simulation.process import Process
    from harborage.testing.simulation.simulation import Simulation

_OLD_HEARTBEAT_S: Final = 60.0
_NOTICED_S: Final = 0.2
_POLLED_S: Final = 0.1


class StaleWriteError(SimulationError):
    """A write of a worker that no longer held the lease of the run was accepted."""


class StorageServer:
    """The storage itself, outside of every process: stories read it directly, processes `connect`."""

    def __init__(self, simulation: Simulation, store: AuditedStore | None = None) -> None:
        self.simulation = simulation
        self.store = AuditedStore(simulation) if store is None else store
        self.state = MemoryStateStore(clock=simulation.clock)
        self._chance = simulation.chance("server")
        self._crew = Crew(simulation.fail)
        self._alive: set[str] = set()
        self._wires: dict[Process, list[Wire]] = {}

    def connect(self, process: Process) -> Storage:
        """Return this storage as the process reaches it."""
        wire = Wire(self.simulation, process, refusal=_refused, slowest_s=self._chance.choice((0.0, 0.001, 0.05)))
        self._wires.setdefault(process, []).append(wire)
        store = cast("Store", _Store(self, process, wire))
        return Storage(state=_State(self.state, wire), store=store)

    def mark_alive(self, worker: str) -> None:
        """Give a worker a heartbeat from now on."""
        if worker not in self._alive:
            self._alive.add(worker)
            self._start(self.store.join(worker), worker)

    def mark_gone(self, worker: str) -> None:
        """End the heartbeat of a worker: its runs are free."""
        if worker in self._alive:
            self._alive.remove(worker)
            self._start(self.store.leave(worker), worker)

    def _start(self, work: Coroutine[Any, Any, None], worker: str) -> None:
        self.simulation.context.copy().run(self._crew.start, work, f"heartbeat of {worker}")

    def follow_process(self, process: Process, worker: str) -> Callable[[], None]:
        """End and start a worker's heartbeat with its process, until the returned function is called."""
        is_followed = [True]

        def changed() -> None:
            loop = self.simulation.loop
            if process.is_dead:
                loop.call_later(self._chance.uniform(0, _NOTICED_S), mark_dead)
            elif not process.is_running:
                loop.call_later(_OLD_HEARTBEAT_S, mark_old, process.frozen_since)
            elif is_followed:
                self.mark_alive(worker)

        def mark_dead() -> None:
            # Requests of a dead process are done before other workers notice its death, or never.
            for wire in self._wires[process]:
                wire.is_cut = True
            self.mark_gone(worker)

        def mark_old(since: float | None) -> None:
            if process.frozen_since is not None and process.frozen_since == since:
                self.simulation.note(f"{process.name} has an old heartbeat")
                self.mark_gone(worker)

        process.on_change(changed)
        self.mark_alive(worker)
        return is_followed.clear

    def call_on_change(self, process: Process, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` in the process, a moment after each change of the store."""
        loop = self.simulation.loop
        waiting: list[bool] = []

        def call() -> None:
            waiting.clear()
            listener()

        def changed() -> None:
            if not waiting:
                waiting.append(True)
                loop.call_later(self._chance.uniform(0, _POLLED_S), call, context=process.context.copy())

        return self.store.on_change(changed)


class AuditedStore(MemoryStore):
    """A store that checks every accepted write of a worker against the leases that it has given."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(clock=simulation.clock)
        self._simulation = simulation
        self._leases: dict[str, Lease] = {}
        self.claims: list[Lease] = []
        self.accepted_controls: list[tuple[str, str, bytes]] = []
        self.refused_writes = 0

    async def claim(self, worker: str, *, agent: str = "", limit: int = 100) -> list[Claimed]:
        claimed = await super().claim(worker, agent=agent, limit=limit)
        for one in claimed:
            self._note(one.row.lease)
        return claimed

    async def commit(self, commit: Commit) -> Committed:
        try:
            done = await super().commit(commit)
        except LeaseLostError:
            self.refused_writes += 1
            raise
        for start in commit.starts:
            if start.worker:
                self._note(Lease(start.run_id, start.worker, 1))
        for lease in done.taken:
            self._note(lease)
        new = (send for send, is_new in zip(commit.sends, done.sent, strict=False) if is_new)
        self.accepted_controls += ((send.run_id, send.event_id, send.data) for send in new)
        if commit.guard is not None and not done.is_again:
            self._check(commit.guard.lease)
        return done

    def _note(self, lease: Lease) -> None:
        before = self._leases.get(lease.run_id)
        if before is not None and before.fence >= lease.fence:
            raise StaleWriteError(f"run {lease.run_id} was claimed with fence {lease.fence} after {before}")
        self._leases[lease.run_id] = lease
        self.claims.append(lease)

    def _check(self, lease: Lease) -> None:
        held = self._leases.get(lease.run_id)
        if held != lease:
            self._simulation.fail("fencing", StaleWriteError(f"{lease} wrote, but {held} holds the run"))


class _Store:
    """The store over a wire: every call is a request, whose answer may be late, lost or a refusal."""

    is_shared = True

    def __init__(self, server: StorageServer, process: Process, wire: Wire) -> None:
        self._server = server
        self._process = process
        self._wire = wire
        self._unfollow: dict[str, Callable[[], None]] = {}
        self._is_closed = False

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        act = getattr(self._server.store, name)
        return lambda *args, **options: self._ask(name, partial(act, *args, **options))

    async def _ask(self, what: str, act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        if self._is_closed:
            raise StoreClosedError()
        return await self._wire.ask(f"store.{what}", act)

    async def join(self, worker: str) -> None:
        await self._ask("join", _nothing)
        self._unfollow[worker] = self._server.follow_process(self._process, worker)

    async def beat(self, worker: str) -> int:
        return 0

    async def look(self, worker: str) -> None:
        if self._is_closed:
            raise StoreClosedError()

    async def leave(self, worker: str) -> None:
        self._unfollow.pop(worker)()
        self._server.mark_gone(worker)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._server.call_on_change(self._process, listener)

    async def aclose(self) -> None:
        self._is_closed = True


async def _nothing() -> None:
    return None


class _State:
    """A `StateStore` over a wire."""

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

    async def swap(self, record: StateRecord, *, after: str) -> bool:
        return bool(await self._ask(f"state.swap {_plain(record.kind)}", self._store.swap, record, after=after))

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


def _plain(kind: str) -> str:
    """Return a kind without the part that names one run."""
    return kind.partition(":")[0]


def _refused(what: str) -> Exception:
    return DatabaseLockedError("simulated", f"{what} was refused")
