"""What the host suites share: engines that die and are replaced over one storage, and a world that counts what is done.

Part of the suite in `hosts`; an engine's author needs only `HostFactory`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from harborage import codec
from harborage.concurrency import Crew
from harborage.identity import Identity
from harborage.planner import Finish, PauseReason
from harborage.runtime.durable import steps
from harborage.runtime.durable.journal import Arrived, Entry, decode_entry
from harborage.runtime.durable.steps import Change, EffectTable, Note, Recovery, StepCall, Wait, Waiting
from harborage.runtime.loop.arrivals import Arrivals
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.loop.seam import Program, RunRequest
from harborage.runtime.pauses import Coordinator, Pause, PauseRequest
from harborage.testing.conformance.checks import ConformanceError

if TYPE_CHECKING:
    from harborage.runtime.durable.engine import Engine, RunPhase
    from tests.kit.conformance.host_death import Death

SESSION = Identity("tenant", "user", "session")
UNKNOWN = "unknown"
"""What the effect `pay` returns if it is not known whether it acted."""

_PATIENCE_S = 60.0


class HostFactory(Protocol):
    """Opens engines over one storage, which starts empty: what one engine leaves there the next one finds."""

    @property
    def pauses(self) -> Coordinator:
        """The coordinator that the engines wait on; it outlives each of them."""
        ...

    @property
    def keeps_queued_controls(self) -> bool:
        """Whether a control that no run has taken yet outlives the engine that accepted it."""
        ...

    def now(self) -> datetime:
        """The time as the engines see it."""
        ...

    async def open(self, death: Death | None = None) -> Engine:
        """A new engine, as after the process of the one before has died, or in a process of its own beside it.

        With a `death` the engine sees each part of its storage through `death.of`.
        """
        ...

    async def pass_time(self, seconds: float) -> None:
        """Return when the engines have seen that much time go by, and timers that fell due have fired."""
        ...

    async def aclose(self) -> None:
        """Close the engines that live, and the storage."""
        ...


OpenHosts: TypeAlias = Callable[[], Awaitable[HostFactory]]


class Act(NamedTuple):
    """Something an effect did to the world."""

    name: str
    payload: Any
    key: str


class World:
    """What effects act on. It lives as long as the scenario, whichever engine acts.

    `look` may be repeated at any time, `keyed` while it has no outcome, under the same key. `pay` must not: interrupted
    it returns `UNKNOWN`. `linger` waits until `open_gate` and can be interrupted; `rest` waits too, and a soft cancel
    ends it, too. `join` waits for the end of a child, and its run may leave memory meanwhile. `fail` raises.
    Every effect can be made to die before or after it acts.
    """

    def __init__(self) -> None:
        self.acts: list[tuple[str, Act]] = []
        self.dying = asyncio.Event()
        self._dies_at = 0
        self._points = 0
        self._gates = {name: asyncio.Event() for name in ("linger", "rest")}
        self._reached: dict[tuple[str, str], asyncio.Event] = {}
        self._held: dict[Any, asyncio.Event] = {}

    def of(self, run_id: str, *names: str) -> list[Act]:
        """What one run did, in order; with names, only these effects."""
        return [act for run, act in self.acts if run == run_id and (not names or act.name in names)]

    def done(self, run_id: str, *names: str) -> list[Any]:
        """The payloads of what one run did, in order."""
        return [act.payload for act in self.of(run_id, *names)]

    def die_at(self, point: int) -> None:
        """Let the process hang at the `point`-th moment before or after an act, counted from 1; 0 never."""
        self._dies_at, self._points = point, 0
        self.dying.clear()

    def open_gate(self, *names: str) -> None:
        """Let those go on that linger or rest, now and later; with names, only at these effects."""
        for name in names or self._gates:
            self._gates[name].set()

    def shut_gate(self) -> None:
        """Make those wait again that linger or rest from now on."""
        for gate in self._gates.values():
            gate.clear()

    def hold(self, payload: Any) -> None:
        """Keep `look` from answering for this payload until `let_go`."""
        self._held[payload] = asyncio.Event()

    def let_go(self, payload: Any) -> None:
        """Let `look` answer for this payload."""
        self._held.pop(payload).set()

    def reached(self, run_id: str, name: str) -> asyncio.Event:
        """Set when the run has come to this effect, in whichever engine; `clear` it to wait for the next time."""
        return self._reached.setdefault((run_id, name), asyncio.Event())

    def effects(self, engine: Engine) -> EffectTable:
        """The effects, with children that are runs of `engine`."""
        return EffectTable(
            {
                "look": Note(run=self._act),
                "renamed": Note(run=self._act),
                "keyed": Change(run=self._act),
                "pay": steps.Act(
                    run=self._act,
                    recover=lambda _: Recovery.UNKNOWN,
                    unknown=lambda _: UNKNOWN,
                    may_repeat=lambda _: False,
                ),
                "fail": Note(run=self._fail),
                "linger": Note(run=self._linger, is_interruptible=True),
                "rest": Wait(run=self._linger),
                "task.spawn": Change(run=partial(_spawn, engine)),
                "task.await": Note(run=partial(_await, engine)),
                "join": Wait(run=partial(_await, engine), waits_for=lambda call: Waiting(run_id=call.payload)),
            }
        )

    async def _act(self, call: StepCall) -> Any:
        await self._point()
        self.acts.append((call.run_id, Act(call.name, call.payload, call.key)))
        if held := self._held.get(_hashable(call.payload)):
            await held.wait()
        await self._point()
        return [call.name, call.payload]

    async def _fail(self, call: StepCall) -> None:
        self.acts.append((call.run_id, Act(call.name, call.payload, call.key)))
        raise ValueError(f"no {call.payload}")

    async def _linger(self, call: StepCall) -> str:
        self.acts.append((call.run_id, Act(call.name, call.payload, call.key)))
        self.reached(call.run_id, call.name).set()
        await self._gates[call.name].wait()
        return "went on"

    async def _point(self) -> None:
        """A moment at which a process may die; for the effect there it is the end."""
        self._points += 1
        if self._points == self._dies_at:
            self.dying.set()
            await asyncio.get_running_loop().create_future()


def _hashable(payload: Any) -> Any:
    return payload if isinstance(payload, (int, str)) else None


async def _spawn(engine: Engine, call: StepCall) -> str:
    child_id, spec = call.payload
    await engine.start(child_id, RunRequest(who=SESSION.with_run(child_id), goal=str(spec)))
    return str(child_id)


async def _await(engine: Engine, call: StepCall) -> Any:
    return (await engine.result(call.payload)).payload


class HostBench:
    """One storage, the engine that lives on it now, and short words for what scenarios do all the time."""

    def __init__(self, hosts: HostFactory) -> None:
        self.hosts = hosts
        self.world = World()
        self._engine: Engine | None = None
        self._workers: Crew | None = None
        self._others: list[Crew] = []
        self._faults: list[BaseException] = []

    @property
    def engine(self) -> Engine:
        """The engine that lives now."""
        assert self._engine is not None
        return self._engine

    async def aclose(self) -> None:
        """Stop the worker, then close the storage."""
        for workers in self._others:
            await workers.aclose()
        await self.stop()
        await self.hosts.aclose()

    async def boot(self, death: Death | None = None) -> Engine:
        """A new engine in place of the old one, without a serving worker yet."""
        await self.stop()
        self._engine = await self.hosts.open(death)
        return self._engine

    async def beside(self) -> Engine:
        """A new engine in another process, beside the one that lives."""
        return await self.hosts.open()

    async def serve_beside(self, engine: Engine, program: Program) -> None:
        """Carry runs in that process, too, from now on."""
        workers = Crew(on_error=lambda name, error: self._faults.append(error))
        workers.start(engine.serve(program, self.world.effects(engine)), "worker beside")
        self._others.append(workers)

    async def serve(self, program: Program) -> None:
        """Carry runs with `program` from now on."""
        await self.stop()
        self._workers = Crew(on_error=lambda name, error: self._faults.append(error))
        self._workers.start(self.engine.serve(program, self.world.effects(self.engine)), "worker")

    async def stop(self) -> None:
        """End the worker, wherever its runs are.

        Raises: what the worker stopped with by itself.
        """
        workers, self._workers = self._workers, None
        if workers is not None:
            await workers.aclose()
        if self._faults:
            raise self._faults.pop(0)

    async def reboot(self, program: Program) -> None:
        """The process dies and another one takes over."""
        await self.boot()
        await self.serve(program)

    async def start(self, run_id: str, program: Program, **fields: Any) -> None:
        """Start a run in a process of its own."""
        await self.reboot(program)
        await self.engine.start(run_id, request(run_id, **fields))

    async def run(self, run_id: str, program: Program, **fields: Any) -> Any:
        """Start a run and see it through; what its finish holds."""
        await self.start(run_id, program, **fields)
        return await self.payload(run_id)

    async def result(self, run_id: str) -> Finish:
        """How a run finished.

        Raises:
            ConformanceError: it does not.
        """
        finish: Finish = await patiently(self.engine.result(run_id), f"run {run_id!r} ends")
        return finish

    async def payload(self, run_id: str) -> Any:
        """What the finish of a run holds."""
        return (await self.result(run_id)).payload

    async def reached(self, run_id: str, name: str = "linger") -> None:
        """Return when the run has come to this effect."""
        await patiently(self.world.reached(run_id, name).wait(), f"run {run_id!r} comes to {name!r}")

    async def phase(self, run_id: str, *wanted: RunPhase) -> None:
        """Return when the run is in one of these phases."""

        async def is_there() -> bool:
            return (await self.engine.status(run_id)).phase in wanted

        await self.until(is_there, f"run {run_id!r} becomes {' or '.join(wanted)}")

    async def drained(self, run_id: str, count: int) -> None:
        """Return when the run has taken that many controls in all."""

        async def has_taken() -> bool:
            return await self._drained(run_id) >= count

        await self.until(has_taken, f"run {run_id!r} takes {count} controls")

    async def did(self, run_id: str, name: str, payload: Any, times: int = 1) -> None:
        """Return when the run has done this so many times."""

        async def has_done() -> bool:
            return self.world.done(run_id, name).count(payload) >= times

        await self.until(has_done, f"run {run_id!r} does {name} {payload}")

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Return once `holds` does."""

        async def look() -> None:
            while not await holds():  # noqa: ASYNC110 - an engine of another's tells nobody that it has come so far
                await asyncio.sleep(0)

        await patiently(look(), what)

    async def _drained(self, run_id: str) -> int:
        arrived = [entry.arrivals for entry in await self.history(run_id) if isinstance(entry, Arrived)]
        return sum(len(codec.decode(bytes(one), Arrivals).controls) for one in arrived)

    async def send(self, run_id: str, type: ControlType, payload: dict[str, Any] | None = None, id: str = "") -> bool:
        """Send a run a control."""
        return await self.engine.send(run_id, control(run_id, type, payload, id))

    async def say(self, run_id: str, *texts: str) -> None:
        """Send a run messages."""
        for text in texts:
            await self.send(run_id, ControlType.USER_MESSAGE, {"message": text})

    async def pause(self, run_id: str, deadline: datetime | None = None) -> Pause:
        """A pause for a run to wait on."""
        wanted = PauseRequest(identity=SESSION.with_run(run_id), reason=PauseReason.AWAIT_INPUT, deadline=deadline)
        return await self.hosts.pauses.request(wanted)

    async def history(self, run_id: str) -> list[Entry]:
        """The run's entries, read."""
        entries = await self.engine.history(run_id)
        return [decode_entry(data, run_id, index) for index, data in enumerate(entries)]


def request(run_id: str, **fields: Any) -> RunRequest:
    """What a run is started with."""
    return RunRequest(**{"who": SESSION.with_run(run_id), "goal": run_id, **fields})


def control(run_id: str, type: ControlType, payload: dict[str, Any] | None = None, id: str = "") -> ControlEvent:
    """A control for a run, from a caller that may send any."""
    who = SESSION.with_run(run_id)
    return ControlEvent(type, who, Scope.ADMIN, who.tenant_id, payload, id)


async def patiently(work: Awaitable[Any], what: str) -> Any:
    """What `work` gives.

    Raises:
        ConformanceError: it takes so long that it will never end; `what` was promised.
    """
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await work
    except TimeoutError as error:
        raise ConformanceError(what) from error


async def open_bench(open_hosts: OpenHosts) -> HostBench:
    """A bench on empty storage, with a first engine."""
    bench = HostBench(await open_hosts())
    await bench.boot()
    return bench
