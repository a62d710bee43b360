"""One storage that simulated processes share: kept in memory outside of them, reached over wires.

Workers live as they do on a disk that several processes use: when a process dies its runs are free a moment later, and
when it freezes they are once its last sign of life has grown old. Everything that is accepted is looked at: no write of
a worker whose lease has passed on may get through, whatever the store itself checks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from harborage.concurrency import Crew
from harborage.state.errors import DatabaseLockedError
from harborage.state.errors import StoreClosedError as StateClosedError
from harborage.state.memory import MemoryStateStore
from harborage.state.storage import Storage
from harborage.store import Claimed, Commit, Committed, Lease
from harborage.store.errors import LeaseLostError, StoreClosedError
from harborage.store.memory import MemoryStore
from harborage.testing.simulation.loop import SimulationError
from harborage.testing.simulation.wire import Wire

if TYPE_CHECKING:
    from harborage.identity import Identity, Quadruple
    from harborage.state.store import StateRecord
    from harborage.store import Store
    from harborage.testing.simulation.process import Process
    from harborage.testing.simulation.simulation import Simulation

__all__ = ["AuditedStore", "Server", "StaleWriteError"]

_OLD_SIGN_S: Final = 60.0
_NOTICED_S: Final = 0.2
_POLLED_S: Final = 0.1


class StaleWriteError(SimulationError):
    """A write of a worker that no longer held the run was accepted."""


class Server:
    """The storage itself. Outside of every process: stories read it directly, processes `connect`."""

    def __init__(self, simulation: Simulation, store: AuditedStore | None = None) -> None:
        self.simulation = simulation
        self.store = AuditedStore(simulation) if store is None else store
        self.state = MemoryStateStore(clock=simulation.clock)
        self._chance = simulation.chance("server")
        self._keepers = Crew(simulation.fail)
        self._lives: set[str] = set()
        self._wires: dict[Process, list[Wire]] = {}

    def connect(self, process: Process) -> Storage:
        """This storage, as the process reaches it."""
        wire = Wire(self.simulation, process, refusal=_refused, slowest_s=self._chance.choice((0.0, 0.001, 0.05)))
        self._wires.setdefault(process, []).append(wire)
        store = cast("Store", _Store(self, process, wire))
        return Storage(state=_State(self.state, wire), store=store)

    def begin_life(self, worker: str) -> None:
        """A worker gives signs of life from now on."""
        if worker not in self._lives:
            self._lives.add(worker)
            self._keep(self.store.join(worker), worker)

    def end_life(self, worker: str) -> None:
        """The worker gives none any more: its runs are free."""
        if worker in self._lives:
            self._lives.remove(worker)
            self._keep(self.store.leave(worker), worker)

    def _keep(self, work: Coroutine[Any, Any, None], worker: str) -> None:
        self.simulation.context.copy().run(self._keepers.start, work, f"life of {worker}")

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

        return self.store.on_change(changed)


class AuditedStore(MemoryStore):
    """A store whose every accepted step of a worker is checked once more, against leases that are noted here."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(clock=simulation.clock)
        self._simulation = simulation
        self._leases: dict[str, Lease] = {}
        self.claims: list[Lease] = []
        self.sendings: list[tuple[str, str, bytes]] = []
        self.turned_away = 0

    async def claim(self, worker: str, *, agent: str = "", limit: int = 100) -> list[Claimed]:
        claimed = await super().claim(worker, agent=agent, limit=limit)
        for one in claimed:
            self._note(one.row.lease)
        return claimed

    async def commit(self, commit: Commit) -> Committed:
        try:
            done = await super().commit(commit)
        except LeaseLostError:
            self.turned_away += 1
            raise
        for start in commit.starts:
            if start.worker:
                self._note(Lease(start.run_id, start.worker, 1))
        for lease in done.taken:
            self._note(lease)
        news = (send for send, is_new in zip(commit.sends, done.sent, strict=False) if is_new)
        self.sendings += ((send.run_id, send.event_id, send.data) for send in news)
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
            self._simulation.fail("fencing", StaleWriteError(f"{lease} wrote; {held} holds"))


class _Store:
    """The store over a wire: every call of it is asked for, and its answer may be late, lost or a refusal."""

    is_shared = True

    def __init__(self, server: Server, process: Process, wire: Wire) -> None:
        self._server = server
        self._process = process
        self._wire = wire
        self._lives: dict[str, Callable[[], None]] = {}
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
        self._lives[worker] = self._server.watch(self._process, worker)

    async def beat(self, worker: str) -> int:
        return 0

    async def look(self, worker: str) -> None:
        if self._is_closed:
            raise StoreClosedError()

    async def leave(self, worker: str) -> None:
        self._lives.pop(worker)()
        self._server.end_life(worker)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._server.tell(self._process, listener)

    async def aclose(self) -> None:
        self._is_closed = True


async def _nothing() -> None:
    return None


class _State:
    """`StateStore` over a wire."""

    def __init__(self, store: MemoryStateStore, wire: Wire) -> None:
        self._store = store
        self._wire = wire
        self._is_closed = False

    async def _ask(self, what: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self._is_closed:
            raise StateClosedError()
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
    """A kind without what only this run's record has of it."""
    return kind.partition(":")[0]


def _refused(what: str) -> Exception:
    return DatabaseLockedError("simulated", f"{what} was refused")
