"""`Runtime`: the assembled parts with which a program starts runs, steers them and reads their results.

It owns what it builds and closes it in reverse order. It holds no state of a run: the engine does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload
from weakref import WeakValueDictionary

from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import Crew
from harborage.errors import error_reason, known_options, one_of
from harborage.identity import Identity, Quadruple, require_triple
from harborage.planner import HandleRegistry, OperatorPlannerConfig, Summariser
from harborage.runtime.durable.engine import (
    EngineElsewhereError,
    RunStatus,
    RuntimeClosedError,
    RuntimeOpenError,
)
from harborage.runtime.durable.reader import not_found
from harborage.runtime.effects.agent_setup import AgentLike, only_agent, setups_of
from harborage.runtime.effects.assembly import Assembly, Setup, assemble
from harborage.runtime.effects.dependencies import DepsFactory, check_factories
from harborage.runtime.effects.options import (
    RuntimeOptions,
    check_objects,
    check_parts,
    with_operator,
)
from harborage.runtime.effects.task_runs import Admission
from harborage.runtime.forks import ForksRuns
from harborage.runtime.listing import Page, RunFilter, list_pending, list_runs
from harborage.runtime.loop.controls import AppliedControl, Scope
from harborage.runtime.run import OwnerCheck, Run
from harborage.runtime.starting import RunOptions, RunStarter, abandon
from harborage.store import LIVE, RunQuery

if TYPE_CHECKING:
    from harborage.artifacts import ArtifactStore, Goal
    from harborage.events import EventBus
    from harborage.events.bus import RunWriter
    from harborage.memory import Memory, MemoryStrategy, SessionMemory
    from harborage.runtime.chat import Busy, Chat, Turns
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.runtime.effects.approval.grants import Grants
    from harborage.runtime.effects.approval.model import ApprovalPolicy
    from harborage.runtime.effects.model import ModelChoice, PlannerChoice
    from harborage.runtime.loop.context import ProviderChoice
    from harborage.runtime.loop.pauses import Pause
    from harborage.runtime.pending import Pending
    from harborage.sessions import SessionRegistry
    from harborage.state.storage import Storage
    from harborage.store import Commit, Committed
    from harborage.tasks import Task, TaskRegistry
    from harborage.tools import ToolCatalog, ToolDescriptor


T = TypeVar("T")


class Runtime(ForksRuns):
    """Runs agents: `async with Runtime(model="openai:…", tools=[…]) as rt: run = await rt.start("goal", who=…)`.

    The steps of every run, spawned tasks included, are decided by a `planner` of your own or over a `model`: a string
    such as `openai:gpt-5`, a `ConfigSnapshot`, or an open client. Over a model the reference planner decides, or the
    one that a `PlannerConfig` passed as `planner` names; `instructions` go into its prompt. A function passed as
    `planner`, or the class of a planner, is called with the open client and returns the planner over it. An
    `OperatorPlannerConfig` also sets limits of the runtime and hints for every prompt. `tools` are decorated or plain
    typed functions, or descriptors. `approvals` decides which calls a person must approve: one policy for all tools, or
    one for each tool.

    Without a `storage` everything lives in memory, as long as the runtime. With one (`sqlite:PATH`, `postgres://…`, or
    an open `Storage`) runs, their pauses and their events outlive the process: the next runtime over the same storage
    resumes them, and several may share it. `agent` is then written into the runs, and only runs of that agent are
    executed here. `bus` and `artifacts` replace single parts; the caller closes what it passes in. `summariser`
    shortens histories that exceed `options.token_budget`; over a model there is a default one. `handles` holds the live
    objects that trajectories name: a run that was paused with one continues only in a process that has it.

    `deps` says for each type that agents depend on how it is made, for runs whose caller gave none, such as those that
    another process started: `deps={Shop: open_shop}`. A factory is called with the identity of the run, and returns the
    object, a coroutine of it, or an async context manager.

    `context` are providers that add to what each run's planner is shown; they are queried once for each run, and their
    answer is recorded. `memory` shows a run the earlier turns of its session: a strategy (`truncation`,
    `rolling_summary`), or a `Memory` with limits; by default nothing is remembered.

    Raises:
        InvalidOptionError: neither a planner nor a model is passed, or both, or instructions for a planner of your own;
            or the memory strategy does not exist, or needs a summariser that is missing.
        ContextProviderError: `context` is no list of providers.
        InvalidConfigError: `planner` is no planner, or its configuration cannot be used.
        CallbackKindError: a callback is async and must not be, or must be and is not.
    """

    def __init__(
        self,
        agents: Iterable[AgentLike[Any]] | None = None,
        *,
        planner: PlannerChoice | None = None,
        model: ModelChoice | None = None,
        instructions: str = "",
        tools: Iterable[ToolDescriptor | Callable[..., Any]] = (),
        approvals: ApprovalPolicy | Mapping[str, ApprovalPolicy] | None = None,
        options: RuntimeOptions = RuntimeOptions(),  # noqa: B008 - a frozen value
        bus: EventBus | None = None,
        artifacts: ArtifactStore | None = None,
        storage: Storage | str | None = None,
        agent: str = "",
        summariser: Summariser | None = None,
        handles: HandleRegistry | None = None,
        context: Iterable[ProviderChoice] = (),
        memory: Memory | MemoryStrategy | str | SessionMemory | None = None,
        deps: Mapping[Any, DepsFactory] = {},
        clock: Timers = SYSTEM_CLOCK,
        logger: logging.Logger | None = None,
    ) -> None:
        check_parts(options, tools, agent=agent, summariser=summariser, approvals=approvals, storage=storage)
        check_factories(deps)
        check_objects(bus=bus, artifacts=artifacts, handles=handles, clock=clock, logger=logger)
        if isinstance(planner, OperatorPlannerConfig):
            options = with_operator(options, planner)
        self.options, self.deps, self.storage = options, dict(deps), storage
        of_one: dict[str, Any] = {
            "planner": planner,
            "model": model,
            "instructions": instructions,
            "tools": tools,
            "approvals": approvals,
            "agent": agent,
            "summariser": summariser,
            "context": context,
            "memory": memory,
        }
        self._setup = Setup(
            agents=(only_agent(options, **of_one),) if agents is None else setups_of(agents, of_one),
            options=options,
            bus=bus,
            artifacts=artifacts,
            storage=storage,
            deps=self.deps,
            launch=self._launch_spawned,
            admit=Admission(self._count_runs, options.max_running).admit,
            answer_type=_answer_type,
            handles=handles,
            clock=clock,
            logger=logging.getLogger("harborage") if logger is None else logger,
        )
        self._open: tuple[Assembly, Crew] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns: WeakValueDictionary[Identity, Turns] = WeakValueDictionary()

    @property
    def bus(self) -> EventBus:
        """The bus on which all events are published."""
        return self.parts.bus

    @property
    def tasks(self) -> TaskRegistry:
        """The tasks of all runs."""
        return self.parts.tasks

    @property
    def pauses(self) -> Coordinator:
        """The open pauses: what each run waits for, on whom, until when."""
        return self.parts.pauses

    @property
    def grants(self) -> Grants:
        """The approvals that are remembered: `await rt.grants.list(who=…)`, `await rt.grants.revoke(id, who=…)`."""
        return self.parts.grants

    @property
    def sessions(self) -> SessionRegistry:
        """The sessions that runs belong to; each is opened by its first run."""
        return self.parts.sessions

    @property
    def artifacts(self) -> ArtifactStore:
        """The store of heavy results and files."""
        return self.parts.artifacts

    @property
    def memory(self) -> SessionMemory | None:
        """The memory of sessions, of the first agent; None if it has none."""
        return self.parts.agents.first.context_providers.memory

    @property
    def handles(self) -> HandleRegistry:
        """The live objects of this process that the contexts of runs may name."""
        return self.parts.handles

    @property
    def catalog(self) -> ToolCatalog:
        """The tools of this runtime's first agent."""
        return self.parts.agents.first.catalog

    def keep_in(self, storage: Storage, bus: EventBus) -> None:
        """Keep runs in this storage, and publish on this bus, from the next opening on; RuntimeOpenError while open."""
        if self._open is not None:
            raise RuntimeOpenError()
        self._setup = replace(self._setup, storage=storage, bus=bus)

    async def __aenter__(self) -> Self:
        if self._open is not None:
            raise RuntimeOpenError()
        parts = await assemble(self._setup)
        crew = Crew(lambda name, error: self._setup.logger.error("%s stopped: %s", name, error_reason(error)))
        self._open, self._loop = (parts, crew), asyncio.get_running_loop()
        crew.start(parts.engine.serve(parts.agents.program, parts.agents), "engine")
        crew.start(parts.upkeep.serve(), "upkeep")
        crew.start(parts.upkeep.refresh_on_change(parts.store), "upkeep")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self, *, grace: float = 0) -> None:
        """Stop. Closing twice does nothing.

        Without a storage, runs that have not ended are abandoned, and their tasks marked `cancelled`; with one, they
        stop at their last recorded step, and the next runtime over it resumes them: steps in flight have `grace`
        seconds to end before.
        """
        if self._open is None:
            return
        (parts, crew), self._open = self._open, None
        try:
            if grace and self._setup.storage is not None:
                await parts.engine.drain(grace)
            await crew.aclose()
            if self._setup.storage is None:
                for status in await parts.engine.list():
                    if not status.phase.is_final:
                        await abandon(parts, status)
        finally:
            for close in parts.closers:
                await close()

    @overload
    async def start(self, goal: Goal, /, **options: Unpack[RunOptions]) -> Run[Any]: ...

    @overload
    async def start(self, agent: str, goal: Goal, /, **options: Unpack[RunOptions]) -> Run[Any]: ...

    @overload
    async def start(self, agent: AgentLike[T], goal: Goal, /, **options: Unpack[RunOptions]) -> Run[T]: ...

    async def start(
        self, agent: AgentLike[T] | Goal, goal: Goal | None = None, /, **options: Unpack[RunOptions]
    ) -> Run:
        """Start a run of `agent` towards `goal`; return its handle at once.

        The agent may be named, or left out for the only one of the runtime: `start("goal", who=…)`. One that the
        runtime was not made with is opened, and stays as long as the runtime.

        `deadline` is absolute, `input_artifacts` are ids of artifacts of the session, `max_steps` 0 means the runtime's
        own limit. `limits` are what the run and all that it starts may use, in place of those that the runtime sets;
        the earlier of `deadline` and `limits.seconds` counts. `context` adds to what this run's planner is shown: a
        value, or providers that are queried now. `remembers` says whether the run is shown what was said in its
        session, and is remembered in it; by default as its agent says. `scope` is what the handle may do: an owner
        steers the run, an admin also changes its priority. `deps` is what tools get as `CallContext.deps`; it is never
        recorded, and may be left to a factory. A start with the `key` of an earlier one in the session returns the
        handle of that run. `tags` mark the run for `runs`, `description` is what lists show. `messages` are what was
        said before, such as those of a result: the run goes on from there.

        Raises:
            RuntimeClosedError, EngineElsewhereError: outside `async with`, or on another event loop than that.
            IdentityRequiredError, InvalidOptionError, ValueError: a value is invalid, or the goal is empty.
            ArtifactNotFoundError: an input artifact is not in this session.
            PriceUnknownError: cost is limited, and the model has no known price.
            SessionClosedError: the session was closed.
            ContextProviderError, ContextUnavailableError: the context cannot be recorded, or a provider returned none.
            IdempotencyConflictError: a run with another goal, or of another agent, was started with the key.
            UnknownOptionError: there is no such option.
        """
        known_options(options, RunOptions.__annotations__, {})
        self._parts_here()
        begun = await self._starter.begin(agent, goal, **options)
        return self._handle(begun.who, options.get("scope", Scope.OWNER_USER), begun.since, begun.decode)

    @overload
    def session(self, agent: str, *, who: Identity, busy: Busy | str = "wait", deps: Any = None) -> Chat[Any]: ...

    @overload
    def session(
        self, agent: AgentLike[T], *, who: Identity, busy: Busy | str = "wait", deps: Any = None
    ) -> Chat[T]: ...

    def session(self, agent: AgentLike[T] | str, *, who: Identity, busy: Busy | str = "wait", deps: Any = None) -> Chat:
        """Return the conversation with `agent`, or the agent of that name, in the session of `who`.

        It goes on where it was left.

        A message that comes while the one before is being answered waits in turn; with `busy="refuse"` it is refused.

        Raises:
            IdentityRequiredError: `who` is incomplete.
            InvalidOptionError: `busy` is neither.
        """
        from harborage.runtime.chat import Chat, Turns  # loaded by the first conversation

        require_triple(who, "session")

        async def start(text: Goal, busy: Busy) -> Run:
            turns = self._turns.setdefault(who, Turns(self._parts_here().store, who))
            begin = partial(self.start, agent, text, who=who, remembers=True, deps=deps)
            return await turns.take(begin, partial(self.run, who=who), busy)

        return Chat(who.session_id, start, busy=busy)

    async def run(self, run_id: str, *, who: Identity, scope: Scope = Scope.OWNER_USER) -> Run:
        """Return a handle on a run of `who`; `scope` is what it may do, as for `start`.

        Raises:
            RunNotFoundError: no such run, or another owner's.
        """
        found = self.get(run_id, who=who, scope=scope)
        await found.status()
        return found

    def get(self, run_id: str, *, who: Identity, scope: Scope = Scope.OWNER_USER) -> Run[Any]:
        """Return a handle on a run of `who` at once: `await runtime.get(run_id, who=who).approve()`.

        Its first use looks the run up, and raises RunNotFoundError for one that is not there, or another owner's.

        Raises:
            IdentityRequiredError: `who` is incomplete.
        """
        require_triple(who, "get")
        return self._handle(who.with_run(run_id), scope, check=partial(self._check_owner, who=who))

    async def _check_owner(self, run: Run[Any], *, who: Identity) -> Callable[[Any], Any] | None:
        """What makes the output of a run of `who`.

        Raises:
            RunNotFoundError: no such run, or another owner's.
        """
        status = await self._parts_here().engine.status(run.id)
        if status.who.identity != who:
            raise not_found(run.id, self.parts.store)
        return None if (agent := self.parts.agents.find(status.agent)) is None else agent.decode

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        """Keep the runtime open while a web application runs: `FastAPI(lifespan=runtime.lifespan)`."""
        async with self:
            yield

    async def runs(
        self,
        *,
        who: Identity,
        status: RunFilter | str = "",
        tags: Mapping[str, str] = {},
        limit: int = 50,
        after: str = "",
    ) -> Page[RunStatus]:
        """Return a page of the runs of `who`, newest first: those in a status, or that were started with all `tags`.

        `after` is the `next` of the page before.

        Raises:
            InvalidOptionError: there is no such status, or another value is invalid.
        """
        require_triple(who, "runs")
        return await list_runs(self.parts, who, status=status, tags=tags, limit=limit, after=after)

    async def pending(self, *, who: Identity, limit: int = 50, after: str = "") -> Page[Pending]:
        """Return a page of what the runs of `who` ask a person, newest first; each has the methods that answer it.

        Raises:
            InvalidOptionError: a value is invalid.
        """
        require_triple(who, "pending")

        def run_of(pause: Pause) -> Run[Any]:
            return self._handle(pause.identity, Scope.OWNER_USER)

        return await list_pending(self.parts, who, limit=limit, after=after, run_of=run_of)

    def control_history(self, *, who: Identity) -> list[AppliedControl]:
        """Return the controls that were applied to the runs of this session, oldest first."""
        return self.parts.history.of(who.session_id, who=who)

    @property
    def parts(self) -> Assembly:
        """The open parts, for a server; RuntimeClosedError outside `async with`."""
        if self._open is None:
            raise RuntimeClosedError()
        return self._open[0]

    @property
    def _starter(self) -> RunStarter:
        return RunStarter(self.parts, self._setup.clock)

    def _parts_here(self) -> Assembly:
        """Return the parts, for work that only the event loop on which they were opened can do."""
        if self._open is not None and self._loop is not asyncio.get_running_loop():
            raise EngineElsewhereError()
        return self.parts

    def _handle(
        self,
        who: Quadruple,
        scope: Scope,
        since: int = 0,
        decode: Callable[[Any], Any] | None = None,
        check: OwnerCheck | None = None,
    ) -> Run[Any]:
        parts, scope = self.parts, one_of(Scope, scope, "scope")
        return Run(
            who,
            parts.engine,
            parts.bus,
            parts.pauses,
            scope=scope,
            since=since,
            tasks=parts.tasks,
            decode=decode,
            check=check,
            runtime=self,
        )

    async def _launch_spawned(
        self, task: Task, commit: Commit, accepted: Callable[[], None] | None, write: RunWriter | None
    ) -> Committed:
        return await self._starter.launch_spawned(task, commit, accepted, write)

    async def _count_runs(self, tenant: str, most: int) -> int:
        """Return how many runs of the tenant have not ended, counted up to `most`."""
        return len((await self.parts.store.runs(RunQuery(tenant=tenant, statuses=LIVE, limit=most))).rows)


def _answer_type(type: Any) -> Any:
    from harborage.runtime.outputs import output_type  # loaded by the first question of a tool

    return output_type(type)
