"""The agents of a runtime: the open parts of each over those that all agents of the runtime share.

A run names its agent, so that it gets the planner, the tools, the approvals and the memory of that one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.artifacts import ArtifactStore
from harborage.clock import Timers
from harborage.errors import InvalidOptionError
from harborage.events import EventBus, Redactor
from harborage.identity import Quadruple
from harborage.llm import Deps
from harborage.planner import HandleRegistry, RegistryAware
from harborage.runtime.durable.engine import AgentMissingError
from harborage.runtime.durable.pauses.coordinator import Coordinator
from harborage.runtime.effects.context_providers import ContextProviders
from harborage.runtime.effects.contexts import ContextBuilder
from harborage.runtime.effects.control_history import ControlHistory
from harborage.runtime.effects.dependencies import Dependencies, is_class, name_of
from harborage.runtime.effects.executor import CatalogToolExecutor
from harborage.runtime.effects.gates import Gates, approval_gates
from harborage.runtime.effects.hooks import Hooks
from harborage.runtime.effects.model import Reasoner, ReasonerConfig, open_reasoner
from harborage.runtime.effects.model_recording import ModelRecorder
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.effects.outages import patience_of
from harborage.runtime.effects.program import AgentProgram, InProcess
from harborage.runtime.effects.services import AgentServices
from harborage.runtime.effects.table import AgentEffects
from harborage.runtime.loop.capabilities import has_model_hook
from harborage.runtime.loop.state import ControlErrors
from harborage.tasks import InProcessTaskRegistry
from harborage.tools import MemoryToolSearch, ToolCatalog, ToolDescriptor, tool
from harborage.tools.enums import ARTIFACT_FETCH

if TYPE_CHECKING:
    from harborage.memory import SessionMemory
    from harborage.runtime.durable.steps import EffectTable
    from harborage.runtime.effects.agent_setup import AgentLike, AgentSetup
    from harborage.runtime.effects.model_hooks import ModelHooks
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.loop.seam import Concluded, RunRequest
    from harborage.runtime.loop.sub_agents import SubAgent
    from harborage.state.store import StateStore

_BELOW: Final = "/"
Closer = Callable[[], Awaitable[None]]
Admit = Callable[[Quadruple], Awaitable[None]]
"""Refuses with an error that the run spawns another, where too many are under way."""


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The open parts that all agents of a runtime share. `state` holds what is known of sessions and limits.

    `is_kept` says that runs outlive the process, `publishes_with_record` that events are committed with the entries of
    their run.
    """

    bus: EventBus
    artifacts: ArtifactStore
    tasks: InProcessTaskRegistry
    pauses: Coordinator
    history: ControlHistory
    state: StateStore
    handles: HandleRegistry
    redactor: Redactor
    clock: Timers
    logger: logging.Logger
    admit: Admit | None
    deps: Dependencies
    is_kept: bool
    publishes_with_record: bool


class AgentParts(msgspec.Struct, frozen=True, kw_only=True):
    """The open parts of one agent."""

    name: str
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
    context_providers: ContextProviders
    remembers: bool
    asks_context: bool
    token_budget: int
    check_price: Callable[[], Awaitable[None]]
    sub_agents: tuple[SubAgent, ...] = ()
    is_workflow: bool = False


class Agents:
    """The open agents of a runtime, by name. It is the program of their runs, and finds the effects of each.

    A single agent executes every run that its worker claims, whatever agent the run names: which runs those are the
    runtime has said already. `names` are the agents whose runs a worker claims; it is empty where one has no name.
    Those that an agent may call are opened with it, and named after it: "writer/researcher".
    """

    def __init__(self, shared: Shared) -> None:
        self.names: list[str] = []
        self._shared = shared
        self._open: dict[str, AgentParts] = {}
        self._roots: list[AgentParts] = []
        self._opening = asyncio.Lock()
        self._closers: list[Closer] = []

    async def open(self, setup: AgentSetup) -> AgentParts:
        """Open an agent, unless it is open already.

        Raises:
            InvalidOptionError: another agent has its name.
            HarborageError: it does not open.
        """
        async with self._opening:
            if (known := self._open.get(setup.name)) is not None:
                if known.value is not None and known.value is setup.value:
                    return known
                text = f"another agent named {setup.name!r} is open in this runtime; give this one another name"
                raise InvalidOptionError("agents", setup.name, message=text)
            is_all = bool(self._open) and not self.names
            opened: dict[str, AgentParts] = {}
            parts = await self._open_tree(setup, opened)
            self._open |= opened
            self._roots.append(parts)
            if not is_all:
                self.names += [name for name in self._open if name and name not in self.names]
            return parts

    async def _open_tree(self, setup: AgentSetup, opened: dict[str, AgentParts]) -> AgentParts:
        """Open an agent and those that it may call.

        Raises:
            InvalidOptionError: one of them depends on something that its runs would not be given.
            HarborageError: one does not open.
        """
        for below in setup.agents:
            self._check_deps(setup, below.setup)
        parts = opened[setup.name] = await open_agent(setup, self._shared, self._closers)
        for below in setup.agents:
            name = f"{setup.name}{_BELOW}{below.setup.name}"
            await self._open_tree(msgspec.structs.replace(below.setup, name=name, value=None), opened)
        return parts

    def _check_deps(self, parent: AgentSetup, child: AgentSetup) -> None:
        wanted = child.deps
        if wanted is NoneType or is_class(parent.deps, wanted) or self._shared.deps.has_factory(wanted):
            return
        needed = name_of(wanted)
        fix = f"give {parent.name!r} deps={needed}, too, or a factory: Runtime([…], deps={{{needed}: factory}})"
        text = f"deps: the agent {child.name!r}, which {parent.name!r} may call, needs {needed}: {fix}"
        raise InvalidOptionError("deps", wanted, message=text)

    async def aclose(self) -> None:
        """Close what was opened, the last one first."""
        while self._closers:
            await self._closers.pop()()

    def __iter__(self) -> Iterator[AgentParts]:
        return iter(self._open.values())

    @property
    def roots(self) -> Sequence[AgentParts]:
        """The agents that callers may start, without those that only others call."""
        return self._roots

    @property
    def first(self) -> AgentParts:
        """The agent that was opened first."""
        return next(iter(self))

    def of_value(self, value: object) -> AgentParts | None:
        """The open parts of an agent that a program described with this value."""
        return next((one for one in self if one.value is value), None)

    def find(self, name: str) -> AgentParts | None:
        """The agent of this name. A runtime with a single one has recorded runs of it under other names, too."""
        if (found := self._open.get(name)) is not None or len(self._roots) > 1:
            return found
        root = self.first
        below = (one for path, one in self._open.items() if one is not root and name.endswith(path[len(root.name) :]))
        return next(below, root)

    def called_by(self, parent: str, name: str) -> AgentParts:
        """The agent that runs of `parent` call by this name: one of its own, else one of the runtime.

        Raises:
            InvalidOptionError: there is none.
        """
        of_parent = self.find(parent)
        path = name if of_parent is None else f"{of_parent.name}{_BELOW}{name}"
        found = self._open.get(path) or self._open.get(name)
        if found is None:
            known = ", ".join(one.agent for one in (() if of_parent is None else of_parent.sub_agents)) or "none"
            raise InvalidOptionError("agent", name, f"an agent that {parent!r} may call: {known}")
        return found

    def get(self, name: str) -> AgentParts:
        """The same, where it must be there.

        Raises:
            AgentMissingError: the runtime has no such agent.
        """
        if (found := self.find(name)) is None:
            raise AgentMissingError(name, self._open)
        return found

    async def choose(self, agent: AgentLike[Any] | str, goal: str | None) -> tuple[AgentParts, str]:
        """The agent that a caller starts, opened when it is new, and the goal.

        Raises:
            InvalidOptionError: there is no goal, no such agent, or another of its name; or none of several is named.
        """
        known = [one.name for one in self._roots]
        if not isinstance(agent, str):
            if goal is None:
                has_agent = hasattr(agent, "setup")
                text = "start(agent, goal, who=…): the goal is missing" if has_agent else ""
                raise InvalidOptionError("start: goal", agent, "a text", message=text)
            return self.of_value(agent) or await self.open(agent.setup()), goal
        if goal is None:
            if len(known) > 1:
                text = f"say which agent starts: start(agent, goal, who=…), with one of {', '.join(known)}"
                raise InvalidOptionError("agent", known, message=text)
            return self.first, agent
        if agent not in known:
            raise InvalidOptionError("agent", agent, f"one of {', '.join(known)}")
        return self.get(agent), goal

    def of(self, agent: str) -> EffectTable:
        """The effects of the runs of an agent."""
        return self.get(agent).table

    def live(self, run_id: str) -> LiveRun | None:
        """The live side of a run that is executed here, whatever its agent; None for any other."""
        found = (parts.effects.find(run_id) for parts in self)
        return next((live for live in found if live is not None), None)

    async def program(self, io: InProcess, request: RunRequest) -> Concluded:
        """Execute a run with the program of its agent, which is given what it depends on.

        Raises:
            DependenciesMissingError: that is not here; the run is kept for a worker that has it.
            Exception: the run failed.
        """
        parts = self.get(request.agent)
        if parts.deps is NoneType:
            return await parts.program(io, request)
        async with self._shared.deps.during(request.who.run_id, parts.deps):
            return await parts.program(io, request)


async def open_agent(setup: AgentSetup, shared: Shared, closers: list[Closer]) -> AgentParts:
    """Open the parts of one agent; what is to be closed with them is added to `closers`.

    Raises:
        HarborageError: tools or approvals that do not fit together, or a model that does not open.
    """
    options = setup.options
    catalog = catalog_of((*setup.tools, *(one.descriptor for one in setup.agents)))
    recorder = ModelRecorder() if options.records_model and isinstance(setup.reasoner, ReasonerConfig) else None
    hooks = _hooks(setup, shared)
    model_hooks = _model_hooks(setup, hooks)
    reasoner = await _open_reasoner(setup, shared, closers, recorder, model_hooks)
    if isinstance(reasoner.planner, RegistryAware):
        reasoner.planner.attach_registry(shared.tasks)
        closers.append(partial(_detach, reasoner.planner))
    gates = approval_gates(
        setup.approvals,
        catalog,
        shared.pauses,
        shared.bus,
        shared.redactor,
        ttl=options.approval_ttl,
        clock=shared.clock,
    )
    _register_built_ins(options, catalog, reasoner, shared, gates)
    gates.check_names()
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
    closers += [providers.aclose, executor.aclose]
    services = _services(setup, shared, executor, gates=gates, recorder=recorder, providers=providers, hooks=hooks)
    effects = _effects(services, model_hooks)
    return AgentParts(
        name=setup.name,
        value=setup.value,
        decode=setup.decode,
        deps=setup.deps,
        options=options,
        catalog=catalog,
        gates=gates,
        hooks=() if hooks is None else hooks.names,
        effects=effects,
        table=effects.table(),
        program=_program(options, shared, reasoner, effects, catalog, gates),
        context_providers=providers,
        remembers=setup.remembers,
        asks_context=bool(setup.context),
        token_budget=reasoner.token_budget(options.token_budget),
        check_price=reasoner.check_price,
        sub_agents=tuple(one.called for one in setup.agents),
        is_workflow=setup.is_workflow,
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
) -> Reasoner:
    """Open the planner and its model; where cost is limited the price of the model must be known."""
    reasoner = await open_reasoner(
        setup.reasoner,
        Deps(artifacts=shared.artifacts, bus=shared.bus, clock=shared.clock),
        closers,
        setup.summariser,
        redactor=shared.redactor,
        recorder=recorder,
        has_tools=bool(setup.tools or setup.agents or setup.options.built_in),
        guard=None if model_hooks is None else model_hooks.wrap,
    )
    if setup.options.limits.cost is not None:
        await reasoner.check_price()
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
        needs_approval=gates.__contains__,
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
    )


def _hooks(setup: AgentSetup, shared: Shared) -> Hooks | None:
    deps = None if setup.deps is NoneType else partial(shared.deps.of, wanted=setup.deps)
    hooks = Hooks(setup.capabilities, deps=deps, decode=setup.decode, instructions=setup.instructions)
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
        admit=shared.admit,
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
    reasoner: Reasoner,
    effects: AgentEffects,
    catalog: ToolCatalog,
    gates: Gates,
) -> AgentProgram:
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
    )
    return AgentProgram(effects, contexts.describe, gates=gates, is_parallel_atomic=options.is_parallel_atomic)
