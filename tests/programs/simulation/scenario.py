"""The story that Harborage itself is simulated with: agents carried by processes that come and go, and people outside.

Everything is drawn from the seed: how many processes and runs there are, what the runs plan, what people say to them
and when, and what goes wrong. The story ends when every run has; `checks` then looks at what is left.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.concurrency import Crew
from harborage.errors import HarborageError
from harborage.identity import Identity
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.pauses import (
    AlreadyResumedError,
    Coordinator,
    Pause,
    PauseDecision,
    PauseNotFoundError,
    PauseReason,
)
from harborage.store import RunQuery, RunRow
from harborage.testing.simulation.checks import Evidence
from harborage.testing.simulation.loop import StuckError
from harborage.testing.simulation.stores import StorageServer, Wire
from tests.kit.stored_runs import goal_of
from tests.programs.simulation.model import Model, Shortener
from tests.programs.simulation.workload import Traits, drawn_plan
from tests.programs.simulation.world import Mind, World, tools_of

if TYPE_CHECKING:
    from harborage.runtime.run import Run
    from harborage.state.storage import Storage
    from harborage.testing.simulation.process import Process
    from harborage.testing.simulation.simulation import Simulation
    from harborage.tools import ToolDescriptor

ME: Final = Identity("tenant", "user", "session")

_LONGEST_S: Final = 1200.0
_LAST_CALL_S: Final = 120.0


class Asked(msgspec.Struct):
    """A requested run; `run_id` is known once a process has started it."""

    plan: list[Any]
    deadline: datetime | None = None
    run_id: str = ""


class Scenario:
    """One story: its storage, its outside world, its people and its processes."""

    def __init__(self, simulation: Simulation, traits: Traits, server: StorageServer | None = None) -> None:
        self.simulation = simulation
        self.traits = traits
        self.server = StorageServer(simulation) if server is None else server
        self.world = World(simulation)
        self.asked: list[Asked] = []
        self.plans: list[list[Any]] = []
        self.approved: set[tuple[str, str]] = set()
        self._chance = simulation.chance("town")  # the name of a stream of chances: another one is another story
        self._crew = Crew(simulation.fail)
        self._open: list[tuple[Process, Runtime]] = []
        self._beginning: list[Process] = []
        self.pauses = Coordinator(store=self.server.store, clock=simulation.clock)
        self.marks: set[str] = set()
        self.killed = 0
        self._forks_left = traits.forks
        self._dark_until = 0.0
        self._sender = StoredEngine(self.server.store, self.pauses, clock=simulation.clock)
        self._sent = 0
        self._is_closing = False

    async def live(self) -> None:
        """Play the whole story.

        Raises:
            StuckError: a run does not end.
        """
        traits = self.traits
        for number in range(traits.processes):
            self._crew.start(self._keep_up(number), f"supervisor {number}")
        for _ in range(traits.runs):
            self._crew.start(self._request(), "client")
        self._crew.start(self._answer_all(), "people")
        for _ in range(traits.nights):
            self._crew.start(self._night(), "night")
        for _ in range(traits.forks):
            self._crew.start(self._fork(), "somebody")
        for act, count in ((self._say, traits.messages), (self._pause, traits.pauses), (self._cancel, traits.cancels)):
            for _ in range(count):
                self._crew.start(self._later(act), "somebody")
        try:
            async with asyncio.timeout(_LONGEST_S):
                await self._all_over()
        except TimeoutError as error:
            raise StuckError(await self._standing()) from error
        await self._close()

    async def evidence(self) -> Evidence:
        """What is left of the story, for `checks`."""
        struck = self.simulation.injector.struck
        return Evidence(
            records=await self._runs(),
            store=self.server.store,
            pauses=self.pauses,
            who=ME,
            acts=self.world.acts,
            asked=self.world.asked,
            approved=self.approved,
            sent=self.server.store.accepted_controls,
            has_plans=True,
            faults=struck["crash"] + struck["freeze"] + struck["refuse"] + self.killed,
            may_fail="the connection broke" if struck["lose"] else "",
            marks=self.marks,
        )

    # ── Processes ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _keep_up(self, number: int) -> None:
        """Let there be another process a while after one has died."""
        life = 0
        while not self._is_closing:
            life += 1
            process = self.simulation.boot(f"{'abc'[number]}{life}", self._serve)
            await process.ended.wait()
            await asyncio.sleep(self._chance.choice((0.0, 0.3, 20.0)) * self._chance.random())
            await asyncio.sleep(max(0.0, self._dark_until - self.simulation.loop.time()))

    async def _night(self) -> None:
        """Let every process be dead for a while; people go on, and deadlines pass."""
        chance, loop = self._chance, self.simulation.loop
        await asyncio.sleep(chance.choice((5, 30)) * chance.random())
        is_patient = chance.random() < 0.7
        while is_patient and not await self._open_pauses():
            await asyncio.sleep(0.5)
            is_patient = loop.time() < 60
        if self._is_closing:
            return
        length_s = chance.choice((1.0, 30.0, 90.0))
        self._dark_until = loop.time() + length_s
        began = self.simulation.clock.now()
        for process in self.simulation.processes:
            self.killed += not process.is_dead
            process.kill("in the night")
        await asyncio.sleep(length_s)
        now = self.simulation.clock.now()
        waiting = await self._open_pauses()
        if any(one.deadline is not None and began < one.deadline <= now for one in waiting):
            self.marks.add("a pause ran out while nothing was up")
        if any(one.deadline is not None and began < one.deadline <= now for one in self.asked):
            self.marks.add("a run's deadline passed while nothing was up")

    def storage_of(self, process: Process) -> Storage:
        """The storage, as that process reaches it."""
        return self.server.connect(process)

    def tools_of(self, process: Process, wire: Wire) -> list[ToolDescriptor]:
        """The tools that process has."""
        return tools_of(self.world, process.name, wire)

    async def _serve(self, process: Process) -> None:
        """What a process does: it carries runs."""
        storage = self.storage_of(process)
        wire = Wire(self.simulation, process, loss=_lost, slowest_s=self._chance.choice((0.0, 0.01, 2.0)))
        is_react = self.traits.is_react
        runtime = Runtime(
            planner=None if is_react else Mind(self.world, process.name, wire),
            model=Model(self.world, process, wire, self.plans) if is_react else None,
            summariser=None if is_react else Shortener(wire),
            tools=self.tools_of(process, wire),
            approvals={"gated": AlwaysDeny()},
            storage=storage,
            clock=process.clock,
            options=RuntimeOptions(
                linger=timedelta(seconds=self.traits.linger_s),
                pause_ttl=timedelta(seconds=self.traits.ttl_s),
                approval_ttl=timedelta(seconds=self.traits.ttl_s),
                token_budget=self.traits.token_budget,
            ),
            logger=process.logger,
        )
        try:
            async with runtime:
                mine = (process, runtime)
                self._open.append(mine)
                try:
                    await asyncio.get_running_loop().create_future()
                finally:
                    self._open.remove(mine)
        except HarborageError as error:
            process.logger.warning("this process cannot go on: %s", error)

    async def _close(self) -> None:
        """Stop every process as a signal would."""
        self._is_closing = True
        self.simulation.note("everything is over")
        try:
            async with asyncio.timeout(_LAST_CALL_S):
                for process in self.simulation.processes:
                    process.stop()
                    await process.ended.wait()
        except TimeoutError as error:
            raise StuckError(f"a process does not end\n{self.simulation.loop.describe_pending()}") from error
        await self._crew.aclose()

    # ── People ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _request(self) -> None:
        """A caller that requests a run, and again if no process reports its start."""
        chance = self._chance
        await asyncio.sleep(chance.random() * 3)
        asked = Asked(drawn_plan(chance, self.traits))
        if chance.random() < self.traits.deadlines:
            asked.deadline = self.simulation.clock.now() + timedelta(seconds=chance.uniform(0.1, 60))
        self.asked.append(asked)
        while not asked.run_id:
            up = [one for one in self._open if one[0].is_running]
            if up:
                process, runtime = chance.choice(up)
                await self._begin(asked, process, runtime)
            await asyncio.sleep(1)

    async def _begin(self, asked: Asked, process: Process, runtime: Runtime) -> None:
        self.plans.append(asked.plan)
        goal = f"plan-{len(self.plans) - 1}" if self.traits.is_react else json.dumps({"plan": asked.plan})
        start = self._begun(process, partial(runtime.start, goal, who=ME, deadline=asked.deadline))
        try:
            async with asyncio.timeout(60):
                asked.run_id = (await process.do(start, "begin a run")).id
        except (HarborageError, TimeoutError) as error:
            self.simulation.note(f"{process.name} did not begin a run: {type(error).__name__}: {error}")
        else:
            self.simulation.note(f"{process.name} has begun {asked.run_id[-6:]}: {goal}")

    def _begun(self, process: Process, begin: Callable[[], Awaitable[Run]]) -> Coroutine[Any, Any, Run]:
        """The run that `process` begins. Until it has, the story is not over: frozen, it begins one for which nobody
        waits any more, and somebody must be there to carry that."""
        self._beginning.append(process)

        async def begun() -> Run:
            try:
                return await begin()
            finally:
                self._beginning.remove(process)

        return begun()

    async def _later(self, act: Callable[[str], Awaitable[None]]) -> None:
        """Do something to some run, sooner or later."""
        chance = self._chance
        await asyncio.sleep(chance.choice((0.1, 3, 30)) * chance.random())
        while not (runs := [one for one in await self._runs() if not one.status.is_final]):
            if self._is_closing or all(asked.run_id for asked in self.asked):
                return
            await asyncio.sleep(0.5)
        await act(chance.choice(runs).run_id)

    async def _say(self, run_id: str) -> None:
        """Tell a run something: mostly in words."""
        self._sent += 1
        said = f"m{self._sent}"
        match self._chance.choice(("message", "message", "context", "goal", "priority")):
            case "context":
                await self._send(run_id, ControlType.INJECT_CONTEXT, {"note": said})
            case "goal":
                goal = await goal_of(self.server.store, run_id)
                await self._send(run_id, ControlType.REDIRECT, {"goal": f"{goal} {said}"})
            case "priority":
                await self._send(run_id, ControlType.PRIORITIZE, {"priority": self._sent})
            case _:
                await self._send(run_id, ControlType.USER_MESSAGE, {"message": said})

    async def _pause(self, run_id: str) -> None:
        await self._send(run_id, ControlType.PAUSE)
        await asyncio.sleep(self._chance.uniform(0, 10))
        await self._send(run_id, ControlType.RESUME)

    async def _cancel(self, run_id: str) -> None:
        await self._send(run_id, ControlType.CANCEL, self._chance.choice((None, {"hard": True})))

    async def _send(self, run_id: str, type: ControlType, payload: dict[str, Any] | None = None) -> None:
        """Send a control; sometimes twice under one id, like a caller that got no confirmation."""
        self._sent += 1
        who = ME.with_run(run_id)
        control = ControlEvent(type, who, Scope.ADMIN, who.tenant_id, payload, f"event-{self._sent}")
        try:
            for _ in range(self._chance.choice((1, 1, 2))):
                await self._sender.send(run_id, control)
                self._mark_night(type)
                self.simulation.note(f"somebody sends {type} {payload or ''} to {run_id[-6:]}")
                await asyncio.sleep(self._chance.random() * 0.1)
        except (AlreadyResumedError, RunNotFoundError):
            self.simulation.note(f"somebody's {type} comes too late for {run_id[-6:]}")

    def _mark_night(self, type: ControlType) -> None:
        if all(process.is_dead for process in self.simulation.processes):
            self.marks.add(f"{type} sent while nothing was up")

    async def _fork(self) -> None:
        """A caller that forks an ended run at some step, and does not wait for its end."""
        chance = self._chance
        over: list[RunRow] = []
        up: list[tuple[Process, Runtime]] = []
        while not over or not up:
            await asyncio.sleep(chance.uniform(0, 5))
            over = [one for one in await self._runs() if one.status.is_final]
            up = [one for one in self._open if one[0].is_running]
        (process, runtime), parent = chance.choice(up), chance.choice(over)
        at, is_live = chance.randint(1, 4), chance.random() < 0.5
        wanted = await goal_of(self.server.store, parent.run_id)
        goal = chance.choice(("", wanted))
        start = self._begun(process, partial(runtime.fork, parent.run_id, at=at, who=ME, live=is_live, goal=goal))
        try:
            async with asyncio.timeout(60):
                fork = await process.do(start, "fork a run")
        except (HarborageError, TimeoutError) as error:
            self.simulation.note(f"{process.name} did not fork a run: {type(error).__name__}: {error}")
        else:
            self.simulation.note(f"{process.name} has begun {fork.id[-6:]}: {parent.run_id[-6:]} from step {at}")
        self._forks_left -= 1

    async def _answer_all(self) -> None:
        """People who look at what waits for them, every now and then, and answer most of it; some of it twice."""
        seen: set[str] = set()
        while not self._is_closing:
            for pause in await self._open_pauses():
                if pause.token not in seen:
                    seen.add(pause.token)
                    self._crew.start(self._answer(pause), "somebody")
            await asyncio.sleep(1 if self.simulation.loop.time() < 100 else 15)

    async def _open_pauses(self) -> Sequence[Pause]:
        return (await self.pauses.list(who=ME, page_size=200)).rows

    async def _answer(self, pause: Pause) -> None:
        chance = self._chance
        await asyncio.sleep(chance.choice((0.0, 1.0, 40.0)) * chance.random())
        if chance.random() < (0.3 if self.traits.nights else 0.1) and self.traits.ttl_s < _LONGEST_S:
            self.simulation.note(f"nobody answers {pause.token[-6:]}")
            return
        for _ in range(chance.choice((1, 1, 2))):
            await self._answer_once(pause, chance.random() < 0.8)

    async def _answer_once(self, pause: Pause, is_yes: bool) -> None:
        run_id, payload = pause.identity.run_id, pause.payload or {}
        answer = {"token": pause.token}
        if pause.reason is PauseReason.APPROVAL_REQUIRED:
            if is_yes:
                self.approved.add((run_id, payload["args_summary"]["args"]["what"]))
            await self._send(run_id, ControlType.APPROVE if is_yes else ControlType.REJECT, answer)
            return
        if "question" in payload:
            answer["answer"] = payload["question"]
        if self._chance.random() < 0.5:
            await self._send(run_id, ControlType.RESUME if is_yes else ControlType.REJECT, answer)
            return
        try:
            decision = PauseDecision.RESUME if is_yes else PauseDecision.REJECT
            await self.pauses.resume(pause.token, decision, answer, who=pause.identity)
        except (AlreadyResumedError, PauseNotFoundError):
            self.simulation.note(f"{pause.token[-6:]} had been answered")
        else:
            self.simulation.note(f"somebody answers {pause.token[-6:]} of {run_id[-6:]}: {decision}")

    # ── What is left ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _runs(self) -> list[RunRow]:
        return (await self.server.store.runs(RunQuery(oldest_first=True, limit=1000))).rows

    async def _all_over(self) -> None:
        while not await self._is_all_over():  # noqa: ASYNC110 - it is told by the storage, which is asked
            await asyncio.sleep(1)

    async def _is_all_over(self) -> bool:
        if self._forks_left or len(self.asked) < self.traits.runs or not all(asked.run_id for asked in self.asked):
            return False
        if not all(process.is_dead for process in self._beginning):
            return False
        return all(record.status.is_final for record in await self._runs())

    async def _standing(self) -> str:
        lines = [
            f"  run {one.run_id} is {one}, carried by {one.owner or 'nobody'}"
            for one in await self._runs()
            if not one.status.is_final
        ]
        lines += [f"  asked for, and not begun: {one.plan}" for one in self.asked if not one.run_id]
        return "\n".join(["not everything is over", *lines, "what waits:", self.simulation.loop.describe_pending()])


def _lost(what: str) -> Exception:
    return ConnectionError(f"{what}: the connection broke")
