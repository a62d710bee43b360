"""Your own agent under crashes: one run of it, by processes that die and are replaced, once for each seed.

The agent is made anew for every process, over a storage that outlives them all. Its tools reach the world outside
through `Place.ask`, where processes die: before, after, and while the answer travels.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from harborage.concurrency import Crew
from harborage.errors import HarborageError
from harborage.identity import Identity
from harborage.planner import Finish
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.pauses import (
    AlreadyResumedError,
    Coordinator,
    Pause,
    PauseDecision,
    PauseNotFoundError,
    PauseReason,
)
from harborage.store import RunQuery
from harborage.testing.simulation.checks import Evidence, check, decode_finish, load_entries
from harborage.testing.simulation.loop import SimulationError, StuckError
from harborage.testing.simulation.simulation import Faults, Outcome, Simulation, draw_faults, simulate
from harborage.testing.simulation.stores import StorageServer, Wire

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.runtime.host import Runtime
    from harborage.state.storage import Storage
    from harborage.testing.simulation.process import Process

W = TypeVar("W")

Answer: TypeAlias = tuple[PauseDecision, dict[str, Any]]
"""A person's answer to a pause: the decision and its payload."""

_ME: Final = Identity("tenant", "user", "session")
_LONGEST_S: Final = 1200.0
_LAST_NOTES: Final = 30


class Place(Generic[W]):
    """The surroundings of an agent in one process. Give `storage` and `clock` to its `Runtime`.

    `outside` is the same for all processes of a story; `name` distinguishes them.
    """

    def __init__(self, process: Process, storage: Storage, wire: Wire, outside: W) -> None:
        self.storage = storage
        self.clock: Timers = process.clock
        self.outside = outside
        self.name = process.name
        self._wire = wire

    async def ask(self, what: str, act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run `act` outside of the process, at once and in one piece, and return its result; `what` names it in traces.

        Raises:
            ConnectionError: the call or its answer is lost; only where the faults allow that.
            Exception: what `act` raised.
        """
        return await self._wire.ask(what, act)


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one story: how the run finished, the world outside, and the outcome of the simulation."""

    seed: int
    finish: Finish
    outside: Any
    outcome: Outcome


class TrialFailedError(SimulationError):
    """A story broke a promise. `seed` plays it again, `outcome` has its whole trace."""

    def __init__(self, seed: int = 0, outcome: Outcome | None = None) -> None:
        self.seed = seed
        self.outcome = outcome
        notes = () if outcome is None else outcome.notes[-_LAST_NOTES:]
        error = None if outcome is None else outcome.error
        text = "\n".join([*notes, f"{type(error).__name__}: {error}"])
        super().__init__(f"the story of seed {seed} went wrong; seeds=[{seed}] plays it alone\n{text}")


def crash_test(
    agent: Callable[[Place[W]], Runtime],
    goal: str,
    *,
    outside: Callable[[], W],
    judge: Callable[[Trial], None] | None = None,
    seeds: Iterable[int] = range(100),
    faults: Faults | None = None,
    answer: Callable[[Pause], Answer | None] | None = None,
) -> list[Trial]:
    """Play one run of an agent for each seed, with crashes in it, and judge each. Not from inside a running loop.

    `outside` makes the world that a story's processes share; `judge` raises when a trial did not end well. Without
    `faults` processes crash and freeze and stores refuse, but no call of `Place.ask` is lost. `answer` gives the answer
    to a pause, or None for no answer; without it every pause is approved.

    Raises:
        TrialFailedError: at the first story in which `judge` raised, the run failed or hung, or a promise was broken.
    """
    return [
        _play(_Story(agent, goal, outside, _approve if answer is None else answer), seed, faults, judge)
        for seed in seeds
    ]


def _play(story: _Story[Any], seed: int, faults: Faults | None, judge: Callable[[Trial], None] | None) -> Trial:
    if faults is None:
        faults = replace(draw_faults(random.Random(f"{seed}/which faults")), lose=0.0)
    outcome = simulate(story.play, seed, faults=faults)
    if outcome.error is not None:
        raise TrialFailedError(seed, outcome) from outcome.error
    trial = Trial(seed=seed, finish=outcome.result[0], outside=outcome.result[1], outcome=outcome)
    judged = _judge(judge, trial)
    if judged.error is not None:
        raise TrialFailedError(seed, judged) from judged.error
    return trial


def _judge(judge: Callable[[Trial], None] | None, trial: Trial) -> Outcome:
    if judge is not None:
        try:
            judge(trial)
        except Exception as error:  # noqa: BLE001 - raised with the story
            return replace(trial.outcome, error=error)
    return trial.outcome


def _approve(pause: Pause) -> Answer:
    is_gate = pause.reason is PauseReason.APPROVAL_REQUIRED
    return (PauseDecision.APPROVE if is_gate else PauseDecision.RESUME), {}


class _Story(Generic[W]):
    """One run, the processes that execute it one after the other, and the people who answer its pauses."""

    def __init__(
        self,
        agent: Callable[[Place[W]], Runtime],
        goal: str,
        outside: Callable[[], W],
        answer: Callable[[Pause], Answer | None],
    ) -> None:
        self._agent = agent
        self._goal = goal
        self._outside = outside
        self._answer = answer
        self._is_closing = False

    async def play(self, simulation: Simulation) -> tuple[Finish, W]:
        """Play the story; return how the run finished, and the world outside."""
        self._simulation = simulation
        self._server = StorageServer(simulation)
        self._world = self._outside()
        self._chance = simulation.chance("trial")
        self._started: asyncio.Future[Runtime] = asyncio.get_running_loop().create_future()
        store = self._server.store
        self._pauses = Coordinator(store=store, clock=simulation.clock)
        self._engine = StoredEngine(store, self._pauses, clock=simulation.clock)
        self._crew = Crew(simulation.fail)
        simulation.injector.is_calm = True  # no fault strikes before the run is started
        self._crew.start(self._restart_processes(), "supervisor")
        runtime = await self._started
        run = await simulation.processes[0].do(runtime.start(self._goal, who=_ME), "begin the run")
        simulation.note(f"the run has begun: {self._goal}")
        simulation.injector.is_calm = False
        self._crew.start(self._answer_all(), "people")
        await self._end()
        return await self._finish(run.id), self._world

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(_LONGEST_S):
                while not await self._is_over():  # noqa: ASYNC110 - the storage is polled
                    await asyncio.sleep(1)
            self._is_closing = True
            async with asyncio.timeout(_LONGEST_S):
                for process in self._simulation.processes:
                    process.stop()
                    await process.ended.wait()
        except TimeoutError as error:
            raise StuckError(f"runs or processes do not end\n{self._simulation.loop.describe_pending()}") from error
        await self._crew.aclose()

    async def _finish(self, run_id: str) -> Finish:
        server = self._server
        evidence = Evidence(
            records=(await server.store.runs(RunQuery(oldest_first=True, limit=1000))).rows,
            store=server.store,
            pauses=self._pauses,
            who=_ME,
            sent=server.store.accepted_controls,
            faults=sum(self._simulation.injector.struck[kind] for kind in ("crash", "freeze", "refuse")),
        )
        await check(evidence)
        (record,) = [one for one in evidence.records if one.run_id == run_id]
        finish = decode_finish(await load_entries(evidence, record))
        assert finish is not None  # a run that failed is a broken promise
        return finish

    async def _is_over(self) -> bool:
        return all(one.status.is_final for one in (await self._server.store.runs(RunQuery(limit=1000))).rows)

    async def _restart_processes(self) -> None:
        """Boot a process, and another one a while after each death."""
        while not self._is_closing:
            process = self._simulation.boot(f"p{len(self._simulation.processes) + 1}", self._serve)
            await process.ended.wait()
            await asyncio.sleep(self._chance.choice((0.0, 1.0, 60.0)) * self._chance.random())

    async def _serve(self, process: Process) -> None:
        wire = Wire(self._simulation, process, loss=_lost, slowest_s=self._chance.choice((0.0, 0.01, 2.0)))
        place = Place(process, self._server.connect(process), wire, self._world)
        try:
            async with self._agent(place) as runtime:
                if not self._started.done():
                    self._started.set_result(runtime)
                await asyncio.get_running_loop().create_future()
        except HarborageError as error:
            process.logger.warning("this process cannot continue: %s", error)

    async def _answer_all(self) -> None:
        asked: set[str] = set()
        while not self._is_closing:
            for pause in (await self._pauses.list(who=_ME, page_size=200)).rows:
                if pause.token not in asked:
                    asked.add(pause.token)
                    self._crew.start(self._answer_pause(pause), "person")
            await asyncio.sleep(1)

    async def _answer_pause(self, pause: Pause) -> None:
        """Answer a pause after a while; no process needs to be up then."""
        answer = self._answer(pause)
        if answer is None:
            return
        await asyncio.sleep(self._chance.choice((0.0, 1.0, 100.0)) * self._chance.random())
        decision, payload = answer
        self._simulation.note(f"a person answers {decision} to {pause.payload}")
        who, run_id = pause.identity, pause.identity.run_id
        try:
            if pause.reason is PauseReason.APPROVAL_REQUIRED:
                kind = ControlType.APPROVE if decision is PauseDecision.APPROVE else ControlType.REJECT
                body = {**payload, "token": pause.token}
                await self._engine.send(run_id, ControlEvent(kind, who, Scope.ADMIN, who.tenant_id, body))
            else:
                await self._pauses.resume(pause.token, decision, payload, who=who)
        except (AlreadyResumedError, PauseNotFoundError, RunNotFoundError):
            self._simulation.note("the pause is over already")


def _lost(what: str) -> Exception:
    return ConnectionError(f"{what}: the connection broke")
