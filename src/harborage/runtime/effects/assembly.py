"""The parts of a runtime, put together once: what was given is used, what was not is opened by its configured name.

Nothing here is of a run. The parts are closed in the reverse order of their opening; parts that were given stay their
owner's to close.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.artifacts import ArtifactConfig, ArtifactStore, open_artifacts
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.events import BUS_DRIVERS, REDACTOR_DRIVERS, EventBus, RecordBus, Redactor
from harborage.identity import Identity, Quadruple
from harborage.llm import Deps
from harborage.planner import HandleRegistry, Planner, ProcessLocalHandleRegistry, RegistryAware, Summariser
from harborage.runtime.durable.pauses.coordinator import Coordinator
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.durable.upkeep import Upkeep
from harborage.runtime.effects.approval.model import ApprovalPolicy
from harborage.runtime.effects.completion import refuse
from harborage.runtime.effects.context_providers import ContextProviders
from harborage.runtime.effects.contexts import ContextBuilder
from harborage.runtime.effects.control_history import ControlHistory
from harborage.runtime.effects.executor import CatalogToolExecutor
from harborage.runtime.effects.gates import Gates, approval_gates
from harborage.runtime.effects.model import Reasoner, ReasonerConfig, open_reasoner
from harborage.runtime.effects.model_recording import ModelRecorder
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.effects.outages import patience_of
from harborage.runtime.effects.program import AgentProgram
from harborage.runtime.effects.services import AgentServices
from harborage.runtime.effects.table import AgentEffects
from harborage.runtime.effects.task_runs import TaskEnds, TaskRuns
from harborage.runtime.loop.context import ContextSource
from harborage.runtime.loop.controls import ControlEvent
from harborage.runtime.loop.state import ControlErrors
from harborage.sessions import SessionRegistry
from harborage.state.store import StateConfig, open_state
from harborage.store import LIVE, RunQuery, Store
from harborage.store.memory import MemoryStore
from harborage.tasks import InProcessTaskRegistry, TaskLimits, TaskRegistry
from harborage.tasks.rows import outcome_of_failure
from harborage.tools import MemoryToolSearch, ToolCatalog, ToolDescriptor, tool
from harborage.tools.enums import ARTIFACT_FETCH

if TYPE_CHECKING:
    from harborage.memory import Memory, SessionMemory
    from harborage.state.storage import Storage
    from harborage.state.store import StateStore
    from harborage.tasks.changes import Launch

Closer = Callable[[], Awaitable[None]]
Admit = Callable[[Quadruple], Awaitable[None]]
"""Refuses with an error that the run spawns another, where too many are under way."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime is made of, before anything is opened; None stands for the configured default.

    With a storage, runs and all that belongs to them outlive the process; `agent` is then how its agent is found again.
    """

    reasoner: Planner | ReasonerConfig
    tools: tuple[ToolDescriptor | Callable[..., Any], ...] = ()
    approvals: ApprovalPolicy | Mapping[str, ApprovalPolicy] | None = None
    options: RuntimeOptions = RuntimeOptions()
    bus: EventBus | None = None
    artifacts: ArtifactStore | None = None
    storage: Storage | str | None = None
    agent: str = ""
    launch: Launch | None = None
    admit: Admit | None = None
    summariser: Summariser | None = None
    handles: HandleRegistry | None = None
    context: tuple[ContextSource, ...] = ()
    memory: Memory | SessionMemory | None = None
    clock: Timers = SYSTEM_CLOCK
    logger: logging.Logger = logging.getLogger("harborage")


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """The open parts of a runtime. `closers` end them; call them in order."""

    bus: EventBus
    artifacts: ArtifactStore
    tasks: InProcessTaskRegistry
    sessions: SessionRegistry
    pauses: Coordinator
    catalog: ToolCatalog
    gates: Gates
    history: ControlHistory
    engine: StoredEngine
    effects: AgentEffects
    program: AgentProgram
    upkeep: Upkeep
    store: Store
    refuse: Callable[[ControlEvent], None]
    context_providers: ContextProviders
    token_budget: int
    check_price: Callable[[], Awaitable[None]]
    closers: tuple[Closer, ...]


async def assemble(setup: Setup) -> Assembly:
    """Open the parts of a runtime; when one cannot be opened, those opened before it are closed again.

    Raises:
        HarborageError: tools or approvals that do not fit together, or a part that does not open.
    """
    catalog = catalog_of(setup.tools)
    closers: list[Closer] = []
    try:
        return await _opened(setup, catalog, closers)
    except BaseException:
        for close in reversed(closers):
            await close()
        raise


def catalog_of(tools: Iterable[ToolDescriptor | Callable[..., Any]]) -> ToolCatalog:
    """A catalog of these tools; plain functions are described by their signatures."""
    catalog = ToolCatalog(search=MemoryToolSearch())
    for one in tools:
        catalog.register(one if isinstance(one, ToolDescriptor) else tool(one))
    return catalog


async def _opened(setup: Setup, catalog: ToolCatalog, closers: list[Closer]) -> Assembly:
    options, clock, logger = setup.options, setup.clock, setup.logger
    redactor = REDACTOR_DRIVERS.factory(options.redactor)()
    storage = await _storage(setup, closers)
    store = _store(setup, storage)
    artifacts = await _artifacts(setup, storage, closers)
    bus = _bus(setup, storage, redactor, closers)
    recorder = ModelRecorder() if options.records_model and isinstance(setup.reasoner, ReasonerConfig) else None
    deps = Deps(artifacts=artifacts, bus=bus, clock=clock)
    reasoner = await _open_reasoner(setup, deps, closers, redactor, recorder)
    kept = await _state(closers) if storage is None else storage.state
    tasks = _tasks(setup, store, bus, redactor)
    closers.append(tasks.aclose)
    if isinstance(reasoner.planner, RegistryAware):
        reasoner.planner.attach_registry(tasks)
        closers.append(partial(_detach, reasoner.planner))
    handles = ProcessLocalHandleRegistry() if setup.handles is None else setup.handles
    pauses = Coordinator(bus=bus, store=store, handles=handles, clock=clock)
    gates = approval_gates(setup.approvals, catalog, pauses, bus, redactor, ttl=options.approval_ttl, clock=clock)
    _register_built_ins(setup, catalog, reasoner, artifacts, gates)
    gates.check_names()
    closers.extend(gate.aclose for gate in gates.all)
    memory = _memory(setup, kept, bus, reasoner, closers)
    providers = ContextProviders(
        setup.context, memory, handles, redactor=redactor, max_skills=options.max_skills, clock=clock, logger=logger
    )
    executor = _executor(setup, catalog, artifacts, bus, tasks, handles=handles)
    closers += [providers.aclose, executor.aclose]
    history = ControlHistory()
    services = _services(
        setup, pauses, history, bus, tasks, executor, gates=gates, recorder=recorder, providers=providers
    )
    effects = AgentEffects(services)
    refused = partial(refuse, services)
    engine = _engine(setup, store, pauses, refused, bus, tasks, effects)
    closers.append(engine.aclose)
    sessions = _sessions(setup, store, bus, history, closers)
    return Assembly(
        bus=bus,
        artifacts=artifacts,
        tasks=tasks,
        sessions=sessions,
        pauses=pauses,
        catalog=catalog,
        gates=gates,
        history=history,
        engine=engine,
        effects=effects,
        program=_program(setup, reasoner, effects, catalog, artifacts, bus, gates, ledgers=kept),
        upkeep=_upkeep(setup, storage, bus, tasks, pauses, sessions),
        store=store,
        refuse=refused,
        context_providers=providers,
        check_price=reasoner.check_price,
        token_budget=reasoner.token_budget(options.token_budget),
        closers=tuple(reversed(closers)),
    )


def _register_built_ins(
    setup: Setup, catalog: ToolCatalog, reasoner: Reasoner, artifacts: ArtifactStore, gates: Gates
) -> None:
    names = _built_in(setup.options, catalog, reasoner)
    if not names:
        return
    from harborage.runtime.effects.built_ins import BuiltInDeps, register_built_ins  # loaded where there is one to make

    deps = BuiltInDeps(
        artifacts=artifacts,
        needs_approval=gates.__contains__,
        granted_scopes=setup.options.granted_scopes,
        clock=setup.clock,
    )
    register_built_ins(catalog, names, deps)


def _built_in(options: RuntimeOptions, catalog: ToolCatalog, reasoner: Reasoner) -> tuple[str, ...]:
    """The built-in tools that are wanted, and the one that reads what is kept outside of prompts."""
    is_there = ARTIFACT_FETCH in options.built_in or catalog.resolve(ARTIFACT_FETCH) is not None
    return options.built_in if is_there or not reasoner.takes_tools else (*options.built_in, ARTIFACT_FETCH)


async def _storage(setup: Setup, closers: list[Closer]) -> Storage | None:
    """The storage, opened here if only its url was given."""
    if not isinstance(setup.storage, str):
        return setup.storage
    from harborage.state.storage import open_storage  # loaded where there is one to open

    storage = await open_storage(setup.storage, clock=setup.clock)
    closers.append(storage.aclose)
    return storage


async def _artifacts(setup: Setup, storage: Storage | None, closers: list[Closer]) -> ArtifactStore:
    """The artifacts, where the storage is: what a kept run names must outlive the process, too."""
    if setup.artifacts is not None:
        return setup.artifacts
    config = ArtifactConfig(setup.options.artifact_driver, setup.options.artifact_root)
    if storage is not None and not config.driver:
        if storage.artifacts is not None:
            return storage.artifacts
        if storage.artifact_folder:
            config = ArtifactConfig("fs", storage.artifact_folder)
    artifacts = await open_artifacts(config)
    closers.append(artifacts.aclose)
    return artifacts


async def _open_reasoner(
    setup: Setup, deps: Deps, closers: list[Closer], redactor: Redactor, recorder: ModelRecorder | None
) -> Reasoner:
    """Open the planner and its model; where cost is limited the price of the model must be known."""
    has_tools = bool(setup.tools or setup.options.built_in)
    reasoner = await open_reasoner(
        setup.reasoner, deps, closers, setup.summariser, redactor=redactor, recorder=recorder, has_tools=has_tools
    )
    if setup.options.limits.cost is not None:
        await reasoner.check_price()
    return reasoner


def _memory(
    setup: Setup, state: StateStore, bus: EventBus, reasoner: Reasoner, closers: list[Closer]
) -> SessionMemory | None:
    """The memory of sessions, kept where the runs are kept; None when nothing is to be remembered."""
    if setup.memory is None:
        return None
    from harborage.memory import MemoryStrategy, SessionMemory  # loaded where something is to be remembered

    if isinstance(setup.memory, SessionMemory):
        return setup.memory
    if setup.memory.strategy is MemoryStrategy.NONE:
        return None
    summariser = None
    if reasoner.client is not None:
        from harborage.llm.summariser import ModelSummariser  # loaded only for a memory with summaries

        summariser = ModelSummariser(reasoner.client, model=setup.memory.summary_model)
    memory = SessionMemory(state, bus, setup.memory, summariser=summariser, clock=setup.clock, logger=setup.logger)
    closers.append(memory.aclose)
    return memory


async def _detach(planner: RegistryAware) -> None:
    planner.attach_registry(None)


def _looks(part: object, name: str) -> list[Callable[[], Awaitable[None]]]:
    """How a part looks for what other processes did, if it can."""
    look: Callable[[], Awaitable[None]] | None = getattr(part, name, None)
    return [] if look is None else [look]


async def _state(closers: list[Closer]) -> StateStore:
    """Where what is known of sessions and limits lies that need not outlive the process."""
    state = await open_state(StateConfig())
    closers.append(state.aclose)
    return state


def _sessions(
    setup: Setup, store: Store, bus: EventBus, history: ControlHistory, closers: list[Closer]
) -> SessionRegistry:
    """The sessions, swept while the runtime is open. One in which a run goes on, anywhere, is not swept up."""
    sessions = SessionRegistry(
        store,
        bus,
        policy=setup.options.session_policy,
        is_running=partial(_is_running, store),
        on_closed=history.forget,
        clock=setup.clock,
    )
    closers.append(sessions.aclose)
    sessions.start()
    return sessions


async def _is_running(store: Store, who: Identity) -> bool:
    """Whether a run of the session goes on, or waits."""
    mine = RunQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, statuses=LIVE, limit=1)
    return bool((await store.runs(mine)).rows)


def _tasks(setup: Setup, store: Store, bus: EventBus, redactor: Redactor) -> InProcessTaskRegistry:
    """The tasks of the store, each with a run."""
    options = setup.options
    return InProcessTaskRegistry(
        bus=bus,
        redactor=redactor,
        store=store,
        clock=setup.clock,
        limits=TaskLimits(max_children=options.max_children, max_tree=options.max_tree),
        runs=TaskRuns(setup.clock, setup.launch),
    )


def _upkeep(
    setup: Setup,
    storage: Storage | None,
    bus: EventBus,
    tasks: InProcessTaskRegistry,
    pauses: Coordinator,
    sessions: SessionRegistry,
) -> Upkeep:
    """Build the upkeep; over a storage it also ends the orphans in it."""
    sources = None
    if storage is not None:
        from harborage.runtime.durable.orphans import PendingSources  # only a storage can have orphans

        sources = PendingSources(store=storage.store, pauses=pauses, tasks=tasks, clock=setup.clock)
    return Upkeep(
        pauses,
        sessions,
        sources=sources,
        refreshes=_looks(bus, "catch_up"),
        interval=setup.options.upkeep,
        clock=setup.clock,
        logger=setup.logger,
    )


def _bus(setup: Setup, storage: Storage | None, redactor: Redactor, closers: list[Closer]) -> EventBus:
    """The bus that was given, else one over the events of the storage."""
    if setup.bus is not None:
        return setup.bus
    if storage is None:
        bus = BUS_DRIVERS.factory(setup.options.event_driver)(redactor=redactor, clock=setup.clock)
    else:
        bus = BUS_DRIVERS.factory("durable")(store=storage.store, redactor=redactor, clock=setup.clock)
    closers.append(bus.aclose)
    return bus


def _store(setup: Setup, storage: Storage | None) -> Store:
    """Where runs are kept: in the storage, or in memory, where nothing has to be closed."""
    if storage is not None:
        return storage.store
    return MemoryStore(clock=setup.clock, keep_ended=setup.options.keep_finished)


def _engine(
    setup: Setup,
    store: Store,
    pauses: Coordinator,
    refused: Callable[[ControlEvent], None],
    bus: EventBus,
    tasks: InProcessTaskRegistry,
    effects: AgentEffects,
) -> StoredEngine:
    return StoredEngine(
        store,
        pauses,
        agents=(setup.agent,) if setup.agent else (),
        clock=setup.clock,
        linger=setup.options.linger,
        refused=refused,
        ends=TaskEnds(tasks.run_ends),
        outcome_of=lambda error: outcome_of_failure(effects.failure_of(error)),
        max_unread=setup.options.max_unread_controls,
        bus=bus if isinstance(bus, RecordBus) else None,
        logger=setup.logger,
    )


def _services(
    setup: Setup,
    pauses: Coordinator,
    history: ControlHistory,
    bus: EventBus,
    tasks: TaskRegistry,
    executor: CatalogToolExecutor,
    *,
    gates: Gates,
    recorder: ModelRecorder | None,
    providers: ContextProviders,
) -> AgentServices:
    """The services of an assembled runtime: nothing waits for ever, nothing is lost for one bad control."""
    return AgentServices(
        pauses=pauses,
        history=history,
        bus=bus,
        tasks=tasks,
        executor=executor,
        gates=gates,
        admit=setup.admit,
        clock=setup.clock,
        stamp=setup.clock,
        control_errors=ControlErrors.REJECT,
        pause_ttl=setup.options.pause_ttl,
        approval_ttl=setup.options.approval_ttl,
        binds_answers=True,
        announces=True,
        folds=True,
        keys_pauses=True,
        is_recorded=True,
        publishes_with_record=_publishes_with_record(setup.storage, bus),
        patience=patience_of(setup.options.provider_patience, is_kept=setup.storage is not None),
        model_recorder=recorder,
        redactor=providers.redactor,
        context_providers=providers,
        logger=setup.logger,
    )


def _publishes_with_record(storage: Storage | str | None, bus: EventBus) -> bool:
    """Whether the bus keeps its events where runs are recorded."""
    if not isinstance(bus, RecordBus) or storage is None:
        return False
    return isinstance(storage, str) or bus.store is storage.store


def _executor(
    setup: Setup,
    catalog: ToolCatalog,
    artifacts: ArtifactStore,
    bus: EventBus,
    tasks: TaskRegistry,
    *,
    handles: HandleRegistry,
) -> CatalogToolExecutor:
    return CatalogToolExecutor(
        catalog,
        artifacts,
        tasks,
        heavy_threshold=setup.options.heavy_threshold,
        logger=setup.logger,
        max_spawn_depth=setup.options.max_spawn_depth,
        bus=bus,
        clock=setup.clock,
        handles=handles,
    )


def _program(
    setup: Setup,
    reasoner: Reasoner,
    effects: AgentEffects,
    catalog: ToolCatalog,
    artifacts: ArtifactStore,
    bus: EventBus,
    gates: Gates,
    *,
    ledgers: StateStore,
) -> AgentProgram:
    contexts = ContextBuilder(
        reasoner.planner,
        catalog,
        artifacts,
        bus,
        options=setup.options,
        summariser=reasoner.summariser,
        ledgers=ledgers,
        clock=setup.clock,
        logger=setup.logger,
        hints=reasoner.hints,
    )
    return AgentProgram(
        effects,
        contexts.describe,
        gates=gates,
        is_parallel_atomic=setup.options.is_parallel_atomic,
    )
