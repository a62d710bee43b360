"""One storage that simulated processes share, which outlives them: in memory, outside of them, reached over a `Wire`.

A request travels, is done at once and in one piece, and the answer travels back. The process may die or freeze before
and after; its caller may be cancelled meanwhile, and then the request was done whole or not at all. Leases expire as on
a disk that several processes use: when a process dies its runs are free a moment later, when it freezes they are free
once its heartbeat is old. Every accepted write is checked once more: none may come from a worker that has lost its
lease.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from harborage.concurrency import Crew
from harborage.state.errors import DatabaseLockedError, StoreClosedError
from harborage.state.memory import MemoryStateStore
from harborage.state.storage import Storage
from harborage.store import Claimed, Commit, Committed, Lease
from harborage.store.errors import LeaseLostError
from harborage.store.memory import MemoryStore
from harborage.testing.simulation.loop import CURRENT_QUEUE, SimulationError

if TYPE_CHECKING:
    from harborage.identity import Identity, Quadruple
    from harborage.state.store import StateRecord
    from harborage.store import Store
    from harborage.testing.simulation.process import Process
    from harborage.testing.simulation.simulation import Simulation

T = TypeVar("T")

_Act = Callable[[], Coroutine[Any, Any, Any]]


class Wire:
    """One process's connection to one service. Requests are done in the order in which they were made.

    `refusal` makes the error of a call that is refused before anything is done; `loss` that of a call whose request or
    answer is lost. Once `is_cut`, requests that still travel are dropped.
    """

    def __init__(
        self,
        simulation: Simulation,
        process: Process,
        *,
        refusal: Callable[[str], Exception] | None = None,
        loss: Callable[[str], Exception] | None = None,
        fastest_s: float = 0.0,
        slowest_s: float = 0.0,
    ) -> None:
        self._simulation = simulation
        self._process = process
        self._refusal = refusal
        self._loss = loss
        self._fastest_s = fastest_s
        self._slowest_s = slowest_s
        self._chance = simulation.chance(f"wire {simulation.number()}")
        self._requests: deque[_Request] = deque()
        self.is_cut = False

    async def ask(self, what: str, act: _Act) -> Any:
        """Run `act` at the service and return its result; `act` must not wait for anything.

        Raises:
            Exception: what `act` raised, or the refusal or loss of this call.
        """
        process, simulation = self._process, self._simulation
        if simulation.is_over:
            raise asyncio.CancelledError
        await process.point(f"{what} ▸")
        if self._refusal is not None and simulation.injector.strikes("refuse"):
            simulation.note(f"{process.name} {what} is refused")
            await self._travel()
            raise self._refusal(what)
        is_lost = self._loss is not None and simulation.injector.strikes("lose")
        is_lost_before = is_lost and self._chance.random() < 0.5
        request = _Request(self, what, None if is_lost_before else act)
        self._requests.append(request)
        simulation.loop.call_later(self._length(), self._do_next, context=_outside(simulation))
        try:
            await request.done
        except asyncio.CancelledError:
            # A request that is not done yet may be dropped or done; the caller cannot know.
            if self._chance.random() < 0.5:
                request.act = None
            raise
        await self._travel()
        await process.point(f"▸ {what}")
        if self._loss is not None and is_lost:
            simulation.note(
                f"{process.name} {what} is lost {'on the way there' if is_lost_before else 'on the way back'}"
            )
            raise self._loss(what)
        if request.error is not None:
            raise request.error
        return request.result

    def _do_next(self) -> None:
        """Do the oldest request; one of a dead process was sent before its death, or not, by chance."""
        request = self._requests.popleft()
        if self.is_cut or (self._process.is_dead and self._chance.random() < 0.5):
            request.act = None
        request.do()
        self._simulation.detail(
            f"{self._process.name} {request.what}{'' if request.error is None else f': {request.error!r}'}"
        )

    def _length(self) -> float:
        return self._chance.uniform(self._fastest_s, self._slowest_s) if self._slowest_s else 0.0

    async def _travel(self) -> None:
        if self._slowest_s:
            await asyncio.sleep(self._length())


class _Request:
    """One request; `act` is None when it is dropped."""

    def __init__(self, wire: Wire, what: str, act: _Act | None) -> None:
        self.wire = wire
        self.what = what
        self.act = act
        self.context = _outside(wire._simulation)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.result: Any = None
        self.error: Exception | None = None

    def do(self) -> None:
        act, self.act = self.act, None
        if act is not None:
            self.context.run(partial(self._do, act))
        if not self.done.done():
            self.done.set_result(None)

    def _do(self, act: _Act) -> None:
        coro = act()
        try:
            coro.send(None)
        except StopIteration as ended:
            self.result = ended.value
        except Exception as error:  # noqa: BLE001 - raised where it was asked for
            self.error = error
        else:
            coro.close()
            raise RuntimeError(f"{self.what} awaits something; a service outside of a process must act at once")


def _outside(simulation: Simulation) -> Any:
    """Return a copy of the caller's context that belongs to no process."""
    context = copy_context()
    context.run(CURRENT_QUEUE.set, simulation.loop.main)
    return context


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

    async def claim(self, worker: str, *, agents: Sequence[str] = (), limit: int = 100) -> list[Claimed]:
        claimed = await super().claim(worker, agents=agents, limit=limit)
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
