"""The parts of a runtime, put together once: what was given is used, what was not is opened by its configured name.

Nothing here is of a run. The parts are closed in the reverse order of their opening; parts that were given stay their
owner's to close.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.artifacts import ArtifactConfig, ArtifactStore, open_artifacts
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.events import BUS_DRIVERS, REDACTOR_DRIVERS, EventBus, RecordBus, Redactor
from harborage.planner import HandleRegistry, ProcessLocalHandleRegistry
from harborage.runtime.durable.pauses.coordinator import Coordinator
from harborage.runtime.durable.stored import StoredEngine
from harborage.runtime.durable.upkeep import Upkeep
from harborage.runtime.effects.agent_parts import Admit, Closer, Shared
from harborage.runtime.effects.agent_setup import AgentSetup
from harborage.runtime.effects.agents import Agents
from harborage.runtime.effects.approval.grants import Grants
from harborage.runtime.effects.approval.operator import OperatorApprovals
from harborage.runtime.effects.completion import failure_of, refuse
from harborage.runtime.effects.control_history import ControlHistory
from harborage.runtime.effects.dependencies import Dependencies, DepsFactory
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.effects.services import AgentServices
from harborage.runtime.effects.task_runs import TaskEnds, TaskRuns
from harborage.runtime.loop.controls import ControlEvent
from harborage.sessions import SessionRegistry
from harborage.state.store import StateConfig, StateStore, open_state
from harborage.store import LIVE, RunQuery, Store
from harborage.store.memory import MemoryStore
from harborage.tasks import InProcessTaskRegistry, TaskFailure, TaskLimits
from harborage.tasks.rows import outcome_of_failure
from harborage.tools.sources import Sources, SourceServices

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.state.storage import Storage
    from harborage.tasks.changes import Launch


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime is made of, before anything is opened; None stands for the configured default.

    With a storage, runs and all that belongs to them outlive the process; the runs of these agents, and those of none,
    are executed here. All are where one agent has no name.
    """

    agents: tuple[AgentSetup, ...]
    options: RuntimeOptions = RuntimeOptions()
    bus: EventBus | None = None
    artifacts: ArtifactStore | None = None
    storage: Storage | str | None = None
    deps: Mapping[Any, DepsFactory] = {}
    launch: Launch | None = None
    admit: Admit | None = None
    answer_type: Callable[[Any], Any] | None = None
    handles: HandleRegistry | None = None
    clock: Timers = SYSTEM_CLOCK
    logger: logging.Logger = logging.getLogger("harborage")


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """The open parts of a runtime. `closers` end them; call them in order."""

    bus: EventBus
    artifacts: ArtifactStore
    tasks: InProcessTaskRegistry
    sessions: SessionRegistry
    pauses: Coordinator
    history: ControlHistory
    engine: StoredEngine
    agents: Agents
    deps: Dependencies
    grants: Grants
    handles: HandleRegistry
    upkeep: Upkeep
    store: Store
    state: StateStore
    redactor: Redactor
    approvals: OperatorApprovals
    tool_sources: Sources
    refuse: Callable[[ControlEvent], None]
    closers: tuple[Closer, ...]


async def assemble(setup: Setup) -> Assembly:
    """Open the parts of a runtime; when one cannot be opened, those opened before it are closed again.

    Raises:
        HarborageError: tools or approvals that do not fit together, or a part that does not open.
    """
    closers: list[Closer] = []
    try:
        return await _opened(setup, closers)
    except BaseException:
        for close in reversed(closers):
            await close()
        raise


async def _opened(setup: Setup, closers: list[Closer]) -> Assembly:
    clock = setup.clock
    redactor = REDACTOR_DRIVERS.factory(setup.options.redactor)()
    storage = await _storage(setup, closers)
    store = _store(setup, storage)
    artifacts = await _artifacts(setup, storage, closers)
    bus = _bus(setup, storage, redactor, closers)
    state = await _state(closers) if storage is None else storage.state
    tasks = _tasks(setup, store, bus, redactor)
    closers.append(tasks.aclose)
    handles = ProcessLocalHandleRegistry() if setup.handles is None else setup.handles
    shared = Shared(
        bus=bus,
        artifacts=artifacts,
        tasks=tasks,
        pauses=Coordinator(bus=bus, store=store, handles=handles, clock=clock),
        history=ControlHistory(),
        state=state,
        approvals=OperatorApprovals(state, clock),
        handles=handles,
        redactor=redactor,
        clock=clock,
        logger=setup.logger,
        admit=setup.admit,
        answer_type=setup.answer_type,
        deps=Dependencies(setup.deps, setup.logger, clock),
        grants=Grants(state, clock, partial(_is_live, store)),
        tool_sources=_sources(setup, bus, artifacts, redactor),
        is_kept=storage is not None,
        publishes_with_record=_publishes_with_record(setup.storage, bus),
    )
    closers += [shared.deps.aclose, shared.tool_sources.aclose]
    agents = Agents(shared)
    closers.append(agents.aclose)
    for one in setup.agents:
        await agents.open(one)
    return _assembled(setup, storage, store, shared, agents, closers)


def _assembled(
    setup: Setup, storage: Storage | None, store: Store, shared: Shared, agents: Agents, closers: list[Closer]
) -> Assembly:
    """The engine and what looks after it, over the open agents."""
    common = AgentServices(
        pauses=shared.pauses,
        history=shared.history,
        bus=shared.bus,
        tasks=shared.tasks,
        redactor=shared.redactor,
        clock=shared.clock,
        stamp=shared.clock,
        logger=shared.logger,
    )
    refused = partial(refuse, common)
    engine = _engine(setup, store, shared, agents, refused, partial(failure_of, common))
    closers.append(engine.aclose)
    sessions = _sessions(setup, store, shared.bus, shared.history, closers)
    return Assembly(
        bus=shared.bus,
        artifacts=shared.artifacts,
        tasks=shared.tasks,
        sessions=sessions,
        pauses=shared.pauses,
        history=shared.history,
        engine=engine,
        agents=agents,
        deps=shared.deps,
        grants=shared.grants,
        handles=shared.handles,
        upkeep=_upkeep(setup, storage, shared, sessions),
        store=store,
        state=shared.state,
        redactor=shared.redactor,
        approvals=shared.approvals,
        tool_sources=shared.tool_sources,
        refuse=refused,
        closers=tuple(reversed(closers)),
    )


def _sources(setup: Setup, bus: EventBus, artifacts: ArtifactStore, redactor: Redactor) -> Sources:
    """Where tools come from, none of which is open yet."""
    services = SourceServices(
        clock=setup.clock,
        logger=setup.logger,
        limits=setup.options.tool_limits,
        allow_hosts=setup.options.allow_hosts,
        redactor=redactor,
        publish=bus.publish_nowait,
        artifacts=artifacts,
    )
    return Sources(services)


async def _is_live(store: Store, run_id: str) -> bool:
    rows = (await store.runs(RunQuery(run_ids=(run_id,), limit=1))).rows
    return bool(rows) and not rows[0].status.is_final


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


def _upkeep(setup: Setup, storage: Storage | None, shared: Shared, sessions: SessionRegistry) -> Upkeep:
    """Build the upkeep; over a storage it also ends the orphans in it."""
    sources = None
    if storage is not None:
        from harborage.runtime.durable.orphans import PendingSources  # only a storage can have orphans

        sources = PendingSources(store=storage.store, pauses=shared.pauses, tasks=shared.tasks, clock=setup.clock)
    return Upkeep(
        shared.pauses,
        sessions,
        sources=sources,
        refreshes=_looks(shared.bus, "catch_up"),
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
    shared: Shared,
    agents: Agents,
    refused: Callable[[ControlEvent], None],
    failure: Callable[[Exception], TaskFailure],
) -> StoredEngine:
    return StoredEngine(
        store,
        shared.pauses,
        agents=agents.names,
        clock=setup.clock,
        linger=setup.options.linger,
        refused=refused,
        ends=TaskEnds(shared.tasks.run_ends),
        outcome_of=lambda error: outcome_of_failure(failure(error)),
        max_unread=setup.options.max_unread_controls,
        bus=shared.bus if isinstance(shared.bus, RecordBus) else None,
        logger=setup.logger,
    )


def _publishes_with_record(storage: Storage | str | None, bus: EventBus) -> bool:
    """Whether the bus keeps its events where runs are recorded."""
    if not isinstance(bus, RecordBus) or storage is None:
        return False
    return isinstance(storage, str) or bus.store is storage.store
