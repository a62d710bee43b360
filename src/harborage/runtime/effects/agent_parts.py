"""The open parts of an agent, over those that all agents of its runtime share, and how they are opened."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.artifacts import ArtifactStore
from harborage.clock import Timers
from harborage.events import EventBus, Redactor
from harborage.identity import Quadruple
from harborage.llm import Deps
from harborage.planner import HandleRegistry, Planner, RegistryAware
from harborage.runtime.durable.pauses.coordinator import Coordinator
from harborage.runtime.effects.approval.grants import Grants
from harborage.runtime.effects.approval.operator import OperatorApprovals
from harborage.runtime.effects.context_providers import ContextProviders
from harborage.runtime.effects.contexts import ContextBuilder
from harborage.runtime.effects.control_history import ControlHistory
from harborage.runtime.effects.dependencies import Dependencies
from harborage.runtime.effects.executor import CatalogToolExecutor
from harborage.runtime.effects.gates import Gates, approval_gates
from harborage.runtime.effects.hooks import Hooks
from harborage.runtime.effects.model import Reasoner, ReasonerConfig, Reasoners, name_of_model, open_reasoner
from harborage.runtime.effects.model_recording import ModelRecorder
from harborage.runtime.effects.model_settings import ModelSettings
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.effects.outages import patience_of
from harborage.runtime.effects.program import AgentProgram
from harborage.runtime.effects.sealing import Seals
from harborage.runtime.effects.services import AgentServices
from harborage.runtime.effects.table import AgentEffects
from harborage.runtime.effects.tool_listing import ToolListing
from harborage.runtime.effects.user_code import PlannerLimit
from harborage.runtime.loop.capabilities import has_model_hook
from harborage.runtime.loop.state import ControlErrors
from harborage.tasks import InProcessTaskRegistry
from harborage.tools import MemoryToolSearch, ToolCatalog, ToolDescriptor, tool
from harborage.tools.enums import ARTIFACT_FETCH
from harborage.tools.sources import Sources

if TYPE_CHECKING:
    from harborage.memory import SessionMemory
    from harborage.runtime.durable.steps import EffectTable
    from harborage.runtime.effects.agent_setup import AgentSetup
    from harborage.runtime.effects.model_hooks import ModelHooks
    from harborage.runtime.loop.sub_agents import SubAgent
    from harborage.state.store import StateStore


Closer = Callable[[], Awaitable[None]]
Admit = Callable[[Quadruple], Awaitable[None]]
"""Refuses with an error that the run spawns another, where too many are under way."""


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The open parts that all agents of a runtime share. `state` holds what is known of sessions and limits,
    `approvals` what operators decided about tools.

    `answer_type` makes of a type how answers of people become its values.

    `is_kept` says that runs outlive the process, `publishes_with_record` that events are committed with the entries of
    their run.
    """

    bus: EventBus
    artifacts: ArtifactStore
    tasks: InProcessTaskRegistry
    pauses: Coordinator
    history: ControlHistory
    state: StateStore
    approvals: OperatorApprovals
    handles: HandleRegistry
    redactor: Redactor
    clock: Timers
    logger: logging.Logger
    admit: Admit | None
    answer_type: Callable[[Any], Any] | None
    deps: Dependencies
    grants: Grants
    tool_sources: Sources
    is_kept: bool
    publishes_with_record: bool


class AgentParts(msgspec.Struct, frozen=True, kw_only=True):
    """The open parts of one agent. `setup` is what they were opened from."""

    setup: AgentSetup
    value: object
    decode: Callable[[Any], Any] | None
    deps: Any
    options: RuntimeOptions
    catalog: ToolCatalog
    gates: Gates
    hooks: tuple[str, ...]
    effects: AgentEffects
    table: EffectTable
    program: AgentProgram
    reasoners: Reasoners
    context_providers: ContextProviders
    remembers: bool
    asks_context: bool
    token_budget: int
    check_price: Callable[[], Awaitable[None]]
    sub_agents: tuple[SubAgent, ...] = ()
    is_workflow: bool = False
    model: str = ""

    @property
    def name(self) -> str:
        """Its name in the runtime; that of one that only another calls has the other's before it."""
        return self.setup.name


async def open_agent(setup: AgentSetup, shared: Shared, closers: list[Closer]) -> AgentParts:
    """Open the parts of one agent; what is to be closed with them is added to `closers`.

    Raises:
        HarborageError: tools or approvals that do not fit together, or a model that does not open.
    """
    options = setup.options
    catalog = catalog_of((*setup.tools, *(one.descriptor for one in setup.agents if not one.is_of_tool)))
    listing = ToolListing(setup.tool_sources, shared.tool_sources, catalog, clock=shared.clock, logger=shared.logger)
    recorder = ModelRecorder() if options.records_model and isinstance(setup.reasoner, ReasonerConfig) else None
    hooks = _hooks(setup, shared)
    model_hooks = _model_hooks(setup, hooks)
    settings = ModelSettings()
    open_one = partial(_open_reasoner, setup, shared, closers, recorder, model_hooks, settings=settings)
    reasoner = await open_one(setup.reasoner)
    reasoners = Reasoners(setup.reasoner, open_one, reasoner)
    gates = _gates(setup, options, shared, catalog)
    _register_built_ins(options, catalog, reasoner, shared, gates)
    gates.check_names(listing.may_have)
    closers.append(gates.aclose)
    providers = ContextProviders(
        setup.context,
        _memory(setup, shared, reasoner, closers),
        shared.handles,
        redactor=shared.redactor,
        max_skills=options.max_skills,
        clock=shared.clock,
        logger=shared.logger,
    )
    executor = _executor(setup, shared, catalog)
    limit = PlannerLimit(options.planner_timeout.total_seconds(), shared.clock)
    closers += [providers.aclose, executor.aclose, limit.aclose]
    services = _services(
        setup, shared, executor, gates=gates, recorder=recorder, providers=providers, hooks=hooks, limit=limit
    )
    effects = _effects(services, model_hooks)
    settings.attach(effects.find)
    return AgentParts(
        setup=setup,
        value=setup.value,
        decode=setup.decode,
        deps=setup.deps,
        options=options,
        catalog=catalog,
        gates=gates,
        hooks=() if hooks is None else hooks.names,
        effects=effects,
        table=effects.table(),
        program=_program(options, shared, reasoners, effects, catalog, gates, listing=listing),
        reasoners=reasoners,
        context_providers=providers,
        remembers=setup.remembers,
        asks_context=bool(setup.context),
        token_budget=reasoner.token_budget(options.token_budget),
        check_price=reasoner.check_price,
        sub_agents=tuple(one.called for one in setup.agents if not one.is_of_tool),
        is_workflow=setup.is_workflow,
        model=name_of_model(setup.reasoner.model) if isinstance(setup.reasoner, ReasonerConfig) else "",
    )


def _gates(setup: AgentSetup, options: RuntimeOptions, shared: Shared, catalog: ToolCatalog) -> Gates:
    return approval_gates(
        setup.approvals,
        catalog,
        shared.pauses,
        shared.bus,
        shared.redactor,
        ttl=options.approval_ttl,
        clock=shared.clock,
        grants=shared.grants,
        patterns=tuple(one for source in setup.tool_sources for one in getattr(source, "approval_patterns", ())),
    )


def catalog_of(tools: Iterable[ToolDescriptor | Callable[..., Any]]) -> ToolCatalog:
    """A catalog of these tools; plain functions are described by their signatures."""
    catalog = ToolCatalog(search=MemoryToolSearch())
    for one in tools:
        catalog.register(one if isinstance(one, ToolDescriptor) else tool(one))
    return catalog


async def _open_reasoner(
    setup: AgentSetup,
    shared: Shared,
    closers: list[Closer],
    recorder: ModelRecorder | None,
    model_hooks: ModelHooks | None,
    who: Planner | ReasonerConfig,
    *,
    settings: ModelSettings,
) -> Reasoner:
    """Open the planner and its model; where cost is limited the price of the model must be known."""
    reasoner = await open_reasoner(
        who,
        Deps(artifacts=shared.artifacts, bus=shared.bus, clock=shared.clock),
        closers,
        setup.summariser,
        redactor=shared.redactor,
        recorder=recorder,
        has_tools=bool(setup.tools or setup.tool_sources or setup.agents or setup.options.built_in),
        guard=None if model_hooks is None else model_hooks.wrap,
        settings=settings,
    )
    if setup.options.limits.cost is not None:
        await reasoner.check_price()
    if isinstance(reasoner.planner, RegistryAware):
        reasoner.planner.attach_registry(shared.tasks)
        closers.append(partial(_detach, reasoner.planner))
    return reasoner


async def _detach(planner: RegistryAware) -> None:
    planner.attach_registry(None)


def _register_built_ins(
    options: RuntimeOptions, catalog: ToolCatalog, reasoner: Reasoner, shared: Shared, gates: Gates
) -> None:
    names = _built_in(options, catalog, reasoner)
    if not names:
        return
    from harborage.runtime.effects.built_ins import BuiltInDeps, register_built_ins  # loaded where there is one to make

    deps = BuiltInDeps(
        artifacts=shared.artifacts,
        needs_approval=lambda name: name in gates or shared.approvals.is_forced(name),
        granted_scopes=options.granted_scopes,
        clock=shared.clock,
    )
    register_built_ins(catalog, names, deps)


def _built_in(options: RuntimeOptions, catalog: ToolCatalog, reasoner: Reasoner) -> tuple[str, ...]:
    """The built-in tools that are wanted, and the one that reads what is kept outside of prompts."""
    is_there = ARTIFACT_FETCH in options.built_in or catalog.resolve(ARTIFACT_FETCH) is not None
    return options.built_in if is_there or not reasoner.takes_tools else (*options.built_in, ARTIFACT_FETCH)


def _memory(setup: AgentSetup, shared: Shared, reasoner: Reasoner, closers: list[Closer]) -> SessionMemory | None:
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
    memory = SessionMemory(
        shared.state, shared.bus, setup.memory, summariser=summariser, clock=shared.clock, logger=shared.logger
    )
    closers.append(memory.aclose)
    return memory


def _executor(setup: AgentSetup, shared: Shared, catalog: ToolCatalog) -> CatalogToolExecutor:
    options = setup.options
    return CatalogToolExecutor(
        catalog,
        shared.artifacts,
        shared.tasks,
        heavy_threshold=options.heavy_threshold,
        logger=shared.logger,
        max_spawn_depth=options.max_spawn_depth,
        bus=shared.bus,
        clock=shared.clock,
        handles=shared.handles,
        deps=None if setup.deps is NoneType else partial(shared.deps.of, wanted=setup.deps),
        redactor=shared.redactor,
    )


def _hooks(setup: AgentSetup, shared: Shared) -> Hooks | None:
    deps = None if setup.deps is NoneType else partial(shared.deps.of, wanted=setup.deps)
    hooks = Hooks(
        setup.capabilities,
        deps=deps,
        decode=setup.decode,
        instructions=setup.instructions,
        conditions={one.tool.name: one.when for one in setup.tools if isinstance(one, ToolDescriptor) and one.when},
    )
    return hooks if hooks.names else None


def _effects(services: AgentServices, model_hooks: ModelHooks | None) -> AgentEffects:
    effects = AgentEffects(services)
    if model_hooks is not None:
        model_hooks.attach(services, effects.find)
    return effects


def _model_hooks(setup: AgentSetup, hooks: Hooks | None) -> ModelHooks | None:
    if hooks is None or not setup.asks_model_hooks or not any(map(has_model_hook, setup.capabilities)):
        return None
    from harborage.runtime.effects.model_hooks import ModelHooks  # loaded where there is one to ask

    return ModelHooks(hooks)


def _services(
    setup: AgentSetup,
    shared: Shared,
    executor: CatalogToolExecutor,
    *,
    gates: Gates,
    recorder: ModelRecorder | None,
    providers: ContextProviders,
    hooks: Hooks | None,
    limit: PlannerLimit,
) -> AgentServices:
    """The services of an agent: nothing waits for ever, nothing is lost for one bad control."""
    options = setup.options
    return AgentServices(
        pauses=shared.pauses,
        history=shared.history,
        bus=shared.bus,
        tasks=shared.tasks,
        executor=executor,
        gates=gates,
        approvals=shared.approvals,
        admit=shared.admit,
        answer_type=shared.answer_type,
        seals=Seals(shared.state),
        clock=shared.clock,
        stamp=shared.clock,
        control_errors=ControlErrors.REJECT,
        pause_ttl=options.pause_ttl,
        approval_ttl=options.approval_ttl,
        binds_answers=True,
        announces=True,
        folds=True,
        keys_pauses=True,
        is_recorded=True,
        publishes_with_record=shared.publishes_with_record,
        patience=patience_of(options.provider_patience, is_kept=shared.is_kept),
        planner_limit=limit,
        model_recorder=recorder,
        redactor=providers.redactor,
        context_providers=providers,
        has_output=setup.decode is not None,
        hooks=hooks,
        logger=shared.logger,
    )


def _program(
    options: RuntimeOptions,
    shared: Shared,
    reasoners: Reasoners,
    effects: AgentEffects,
    catalog: ToolCatalog,
    gates: Gates,
    *,
    listing: ToolListing,
) -> AgentProgram:
    reasoner = reasoners.own
    contexts = ContextBuilder(
        reasoner.planner,
        catalog,
        shared.artifacts,
        shared.bus,
        options=options,
        summariser=reasoner.summariser,
        ledgers=shared.state,
        clock=shared.clock,
        logger=shared.logger,
        hints=reasoner.hints,
        takes_pictures=reasoner.takes_pictures,
        reasoners=reasoners,
    )
    return AgentProgram(
        effects,
        contexts.describe,
        gates=gates,
        is_parallel_atomic=options.is_parallel_atomic,
        list_tools=listing.refresh if listing else None,
    )
