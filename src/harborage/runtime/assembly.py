"""The parts of a runtime, put together once: what was given is used, what was not is opened by its configured name.

Nothing here is of a run. The parts are closed in the reverse order of their opening; parts that were given stay their
owner's to close.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from harborage.artifacts import ArtifactConfig, ArtifactStore, open_artifacts
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.events import BUS_DRIVERS, REDACTOR_DRIVERS, EventBus
from harborage.llm import Deps
from harborage.planner import Planner, Summariser
from harborage.runtime.agent.contexts import ContextBuilder
from harborage.runtime.agent.effects import AgentEffects
from harborage.runtime.agent.ending import refuse
from harborage.runtime.agent.program import AgentProgram
from harborage.runtime.agent.services import AgentServices
from harborage.runtime.approval import ApprovalGate, ApprovalPolicy
from harborage.runtime.approvals import approval_gates
from harborage.runtime.built_ins import BuiltInDeps, register_built_ins
from harborage.runtime.dispatch.executor import CatalogToolExecutor
from harborage.runtime.engines.memory import MemoryEngine
from harborage.runtime.journal import Journal
from harborage.runtime.model import Mind, Thought, open_mind
from harborage.runtime.options import RuntimeOptions
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering.history import ControlHistory
from harborage.runtime.steering.state import ControlErrors
from harborage.tasks import RegistryParts, TaskRegistry, TasksConfig, open_tasks
from harborage.tools import MemoryToolSearch, ToolCatalog, ToolDescriptor, tool

__all__ = ["Assembly", "Setup", "assemble"]

Closer = Callable[[], Awaitable[None]]


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime is made of, before anything is opened; None stands for the configured default."""

    mind: Planner | Thought
    tools: tuple[ToolDescriptor | Callable[..., Any], ...] = ()
    approvals: ApprovalPolicy | Mapping[str, ApprovalPolicy] | None = None
    options: RuntimeOptions = RuntimeOptions()
    bus: EventBus | None = None
    artifacts: ArtifactStore | None = None
    tasks: TaskRegistry | None = None
    journal: Journal | None = None
    summariser: Summariser | None = None
    clock: Timers = SYSTEM_CLOCK
    logger: logging.Logger = logging.getLogger("harborage")


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """The open parts of a runtime. `closers` end them; call them in order."""

    bus: EventBus
    artifacts: ArtifactStore
    tasks: TaskRegistry
    pauses: Coordinator
    catalog: ToolCatalog
    gates: Mapping[str, ApprovalGate]
    history: ControlHistory
    engine: MemoryEngine
    effects: AgentEffects
    program: AgentProgram
    token_budget: int
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
    options, clock = setup.options, setup.clock
    redactor = REDACTOR_DRIVERS.factory(options.redactor)()
    artifacts = setup.artifacts
    if artifacts is None:
        artifacts = await open_artifacts(ArtifactConfig(options.artifact_driver, options.artifact_root))
        closers.append(artifacts.aclose)
    bus = setup.bus
    if bus is None:
        bus = BUS_DRIVERS.factory(options.event_driver)(redactor=redactor, clock=clock)
        closers.append(bus.aclose)
    mind = await open_mind(setup.mind, Deps(artifacts=artifacts, bus=bus, clock=clock), closers, setup.summariser)
    parts = RegistryParts(bus=bus, redactor=redactor, clock=clock)
    tasks = setup.tasks
    if tasks is None:
        tasks = await open_tasks(TasksConfig(driver=options.task_driver), parts)
        closers.append(tasks.aclose)
    pauses = Coordinator(bus=bus, clock=clock)
    gates: dict[str, ApprovalGate] = {}
    meta = BuiltInDeps(
        artifacts=artifacts, needs_approval=gates.__contains__, granted_scopes=options.granted_scopes, clock=clock
    )
    register_built_ins(catalog, options.built_in, meta)
    gates.update(approval_gates(setup.approvals, catalog, pauses, bus, redactor, ttl=options.approval_ttl, clock=clock))
    closers.extend(gate.aclose for gate in gates.values())
    executor = _executor(setup, catalog, artifacts, bus, tasks)
    closers.append(executor.aclose)
    history = ControlHistory()
    services = _services(setup, pauses=pauses, history=history, bus=bus, tasks=tasks, executor=executor, gates=gates)
    effects = AgentEffects(services)
    engine = MemoryEngine(
        pauses,
        journal=setup.journal,
        clock=clock,
        keep_finished=options.keep_finished,
        refused=partial(refuse, services),
        logger=setup.logger,
    )
    closers.append(engine.aclose)
    return Assembly(
        bus=bus,
        artifacts=artifacts,
        tasks=tasks,
        pauses=pauses,
        catalog=catalog,
        gates=gates,
        history=history,
        engine=engine,
        effects=effects,
        program=_program(setup, mind, effects, catalog, artifacts, bus, gates),
        token_budget=mind.token_budget(options.token_budget),
        closers=tuple(reversed(closers)),
    )


def _services(
    setup: Setup,
    *,
    pauses: Coordinator,
    history: ControlHistory,
    bus: EventBus,
    tasks: TaskRegistry,
    executor: CatalogToolExecutor,
    gates: Mapping[str, ApprovalGate],
) -> AgentServices:
    """The services of an assembled runtime: nothing waits for ever, nothing is lost for one bad control."""
    return AgentServices(
        pauses=pauses,
        history=history,
        bus=bus,
        tasks=tasks,
        executor=executor,
        gates=gates,
        clock=setup.clock,
        stamp=setup.clock,
        control_errors=ControlErrors.REJECT,
        pause_ttl=setup.options.pause_ttl,
        binds_answers=True,
        announces=True,
        folds=True,
        keys_pauses=True,
        logger=setup.logger,
    )


def _executor(
    setup: Setup, catalog: ToolCatalog, artifacts: ArtifactStore, bus: EventBus, tasks: TaskRegistry
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
    )


def _program(
    setup: Setup,
    mind: Mind,
    effects: AgentEffects,
    catalog: ToolCatalog,
    artifacts: ArtifactStore,
    bus: EventBus,
    gates: Mapping[str, ApprovalGate],
) -> AgentProgram:
    contexts = ContextBuilder(
        mind.planner,
        catalog,
        artifacts,
        bus,
        options=setup.options,
        summariser=mind.summariser,
        clock=setup.clock,
    )
    return AgentProgram(
        effects,
        contexts.describe,
        gated_tools=frozenset(gates),
        is_parallel_atomic=setup.options.is_parallel_atomic,
    )
