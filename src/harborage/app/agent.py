"""An agent as a program describes it: its model or planner, its tools, the type of its output, its limits.

An agent is a value. `run`, `start` and `stream` are for scripts, which need no runtime of their own and no identity; a
service gives its agents to `Runtime([…])`, and says for whom each run is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypedDict, Unpack, overload

import msgspec
from typing_extensions import TypeForm, TypeVar

from harborage.app.agent_options import (
    MEANT,
    MEANT_FOR_A_RUN,
    ApprovalChoice,
    check_name,
    checked_capabilities,
    checked_instructions,
    deps_type,
    instructions_of,
    policy_of,
    read_as,
    split_tools,
    tools_of,
)
from harborage.app.sub_agents import Called, checked_agents, setups_below, setups_of_tools
from harborage.callables import require_async, require_sync
from harborage.errors import InvalidOptionError, known_options
from harborage.llm.model import check_model
from harborage.runtime.effects.agent_setup import AgentSetup, SubAgentSetup
from harborage.runtime.effects.model import ModelChoice, PlannerChoice, ReasonerConfig, choose_reasoner
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.loop.context import ProviderChoice, memory_of, sources_of
from harborage.runtime.loop.sub_agents import Way

if TYPE_CHECKING:
    from harborage.artifacts.media import Goal
    from harborage.identity import Identity
    from harborage.memory import Memory, MemoryStrategy
    from harborage.runtime.chat import Busy, Chat
    from harborage.runtime.loop.capabilities import AgentContext, Capability, InstructionsFunction
    from harborage.runtime.loop.limits import Limits
    from harborage.runtime.messages import Message
    from harborage.runtime.outputs import OutputType
    from harborage.runtime.result import Result
    from harborage.runtime.run import Run
    from harborage.tools import ToolDescriptor
    from harborage.tools.sources import ToolSource
from harborage.tools.typed import IN_WORKFLOW

DepsT_contra = TypeVar("DepsT_contra", contravariant=True, default=None)
OutT = TypeVar("OutT", default=str)


class Change(msgspec.Struct, frozen=True):
    """A text before and after a call. `field` is the argument with the new text, `objection` why the call will fail."""

    field: str
    before: str
    after: str
    objection: str = ""


Preview: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Change | None]]
"""Returns what a call with these arguments would change; None when there is nothing to compare with. Never: acts."""


class RunChoices(TypedDict, total=False):
    """What one run of an agent may set. `who` is the local user where it is left out, in a session of its own.

    `model` and `tools` stand in the place of the agent's. A run with the `key` of an earlier one is that run: a later
    program that starts it again gets its handle. `tags` mark it for lists. `messages` are what was said before, such
    as those of a result: the run goes on from there.
    """

    who: Identity
    limits: Limits
    model: ModelChoice
    tools: Sequence[ToolDescriptor[Any] | ToolSource]
    key: str
    tags: Mapping[str, str]
    messages: Sequence[Message]


class Agent(Generic[DepsT_contra, OutT]):
    """An agent: `Agent("support", model="openai:gpt-5", instructions="Be brief.", tools=[refund], output=Answer)`.

    Without a model or a planner it takes the best model that the machine has, and `run` says which. `output` is the
    type of its answer: a dataclass, a msgspec or pydantic model, a TypedDict, a union, a list, a `Literal`, or
    `json_schema({…})`; an answer of another form is asked for again. `deps` is the type of what the tools depend on,
    such as a database of the caller: `run(…, deps=shop)` gives it, `CallContext[Shop].deps` has it. `instructions`
    may be a function of the `AgentContext`, async or not, which is asked once when a run begins. `limits` are those
    of each run, its children included; `approvals` says which calls a person must approve: "never", "writes", "always",
    a policy, or one of these for each tool; a tool that asks for approval itself is asked about, too, unless it is
    named here. `capabilities` bring tools, instructions and hooks around its calls. `context` are providers that add to
    the planner's context, `memory` is how a session remembers its earlier runs. `agents` are those that it may call:
    each call is a run of its own, with its own tools and limits, within those of this one; `agent.background()` works
    meanwhile, to `agent.handoff()` the conversation is handed over. `previews` show the approver what a call would
    change, by the tool's name. `check` is called before the first run in a terminal, and raises `AgentNotReadyError`
    when the agent cannot work on this machine.

    Raises:
        InvalidOptionError: a value is none of these; the text names it and the fix.
        UnknownOptionError: there is no such option; the text says which one may be meant.
        UnsupportedTypeError: `output` is no type, or one without a JSON form.
        CallbackKindError: a callback is async and must not be, or must be and is not.
    """

    if not TYPE_CHECKING:  # checkers refuse such names by themselves

        def __new__(cls, *_given: Any, **options: Any) -> Self:
            known_options(options, (name for name in cls.__slots__ if not name.startswith("_")), MEANT)
            return super().__new__(cls)

    __slots__ = (
        "__weakref__",
        "_output_type",
        "_sources",
        "agents",
        "approvals",
        "capabilities",
        "check",
        "context",
        "deps",
        "description",
        "instructions",
        "limits",
        "memory",
        "model",
        "name",
        "options",
        "output",
        "planner",
        "previews",
        "tools",
    )

    def __init__(
        self,
        name: str,
        *,
        model: ModelChoice | None = None,
        planner: PlannerChoice | None = None,
        instructions: str | Callable[[AgentContext[DepsT_contra]], str | Awaitable[str]] = "",
        tools: Sequence[ToolDescriptor[DepsT_contra] | ToolSource] = (),
        agents: Sequence[Agent[Any, Any] | Called] = (),
        output: TypeForm[OutT] = str,  # type: ignore[assignment] # the default of the type variable
        deps: TypeForm[DepsT_contra] = NoneType,  # type: ignore[assignment] # as above
        limits: Limits | None = None,
        approvals: ApprovalChoice | None = None,
        capabilities: Sequence[Capability] = (),
        memory: Memory | MemoryStrategy | str | None = None,
        context: Sequence[ProviderChoice] = (),
        description: str = "",
        previews: Mapping[str, Preview] = {},
        options: RuntimeOptions = RuntimeOptions(),  # noqa: B008 - a frozen value
        check: Callable[[], None] | None = None,
    ) -> None:
        check_name(name)
        require_sync(check, "check")
        if model is not None:
            check_model(model)
        for tool, preview in previews.items():
            require_async(preview, f"previews[{tool!r}]")
        accepted, sources = split_tools(tools)
        given: dict[str, Any] = {
            "name": name,
            "model": tuple(model) if isinstance(model, list) else model,
            "planner": planner,
            "instructions": checked_instructions(instructions, planner),
            "tools": accepted,
            "_sources": sources,
            "capabilities": (guards := checked_capabilities(capabilities, accepted, planner)),
            "agents": checked_agents(agents, (*accepted, *tools_of(guards)), output),
            "output": output,
            "deps": deps_type(deps),
            "limits": limits,
            "approvals": approvals,
            "memory": memory,
            "context": tuple(context),
            "description": description,
            "previews": previews,
            "options": options,
            "check": check,
            "_output_type": read_as(output),
        }
        for field, value in given.items():
            object.__setattr__(self, field, value)
        policy_of(approvals)
        memory_of(memory, has_model=True)
        options.limits.replaced(limits)

    name: str
    model: ModelChoice | None
    planner: PlannerChoice | None
    instructions: str | InstructionsFunction
    tools: tuple[ToolDescriptor[Any], ...]
    agents: tuple[Called, ...]
    output: TypeForm[OutT]
    deps: Any
    limits: Limits | None
    approvals: ApprovalChoice | None
    capabilities: tuple[Capability, ...]
    memory: Memory | MemoryStrategy | str | None
    context: tuple[ProviderChoice, ...]
    description: str
    previews: Mapping[str, Preview]
    options: RuntimeOptions
    check: Callable[[], None] | None
    _output_type: OutputType[OutT] | None
    _sources: tuple[ToolSource, ...]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an agent does not change; agent.replace({name}=…) returns another one")

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"

    def replace(self, **changes: Any) -> Agent[DepsT_contra, OutT]:
        """Return the same agent with other options.

        Raises:
            UnknownOptionError: there is no such option.
        """
        known = [name for name in self.__slots__ if not name.startswith("_")]
        known_options(changes, known, MEANT)
        options = {name: getattr(self, name) for name in known} | {"tools": (*self.tools, *self._sources)} | changes
        return Agent(options.pop("name"), **options)

    @property
    def tool_sources(self) -> tuple[ToolSource, ...]:
        """Where tools of it come from that are no functions, such as servers and documents."""
        return self._sources

    @property
    def wants_model(self) -> bool:
        """Whether it decides by a model, and names none."""
        return self.model is None and self.planner is None

    def setup(self) -> AgentSetup:
        """What a runtime opens for this agent.

        Raises:
            InvalidOptionError: its options do not fit together.
        """
        answer = self._output_type
        said, asked = ("", self.instructions) if callable(self.instructions) else (self.instructions, None)
        reasoner = choose_reasoner(self.planner, self.model, instructions_of(said, self.capabilities))
        if answer is not None and isinstance(reasoner, ReasonerConfig):
            config = msgspec.structs.replace(reasoner.config, answer=answer)
            reasoner = msgspec.structs.replace(reasoner, config=config)
        limits, has_model = self.options.limits.replaced(self.limits), isinstance(reasoner, ReasonerConfig)
        steps = self.options.max_steps if limits.steps is None else max(limits.steps, self.options.max_steps)
        return AgentSetup(
            name=self.name,
            reasoner=reasoner,
            tools=(*self.tools, *tools_of(self.capabilities)),
            tool_sources=self._sources,
            approvals=policy_of(self.approvals),
            options=msgspec.structs.replace(self.options, limits=limits, max_steps=steps),
            context=sources_of(self.context),
            memory=memory_of("truncation" if self.memory is None else self.memory, has_model=has_model),
            remembers=self.memory is not None,
            value=self,
            decode=answer,
            deps=self.deps,
            capabilities=self.capabilities,
            instructions=asked,
            agents=(*(below := setups_below(self.agents, self.model)), *self._of_tools(below)),
        )

    def _of_tools(self, below: Sequence[SubAgentSetup]) -> tuple[SubAgentSetup, ...]:
        tools = (*self.tools, *tools_of(self.capabilities))
        return setups_of_tools(self, Agent, tools, self.model, [one.setup.name for one in below])

    def background(self) -> Called:
        """This agent as one that works while its caller goes on: `agents=[researcher.background()]`.

        Its answer is given to the caller, who ends after it.
        """
        return Called(self, Way.BACKGROUND)

    def handoff(self) -> Called:
        """This agent as one to which its caller hands the conversation over: `agents=[billing.handoff()]`.

        It sees the conversation of the session, and its answer is that of the caller.
        """
        return Called(self, Way.HANDOFF)

    @overload
    async def run(self: Agent[None, OutT], goal: Goal, **choices: Unpack[RunChoices]) -> Result[OutT]: ...

    @overload
    async def run(self, goal: Goal, *, deps: DepsT_contra, **choices: Unpack[RunChoices]) -> Result[OutT]: ...

    async def run(self, goal: Goal, *, deps: Any = None, **choices: Unpack[RunChoices]) -> Result[OutT]:
        """Run the agent to its goal; return what it gave.

        `deps` is what its tools get as `CallContext.deps`, of the type that the agent declares; it is never recorded.

        Raises:
            RunFailedError: the run ended without reaching its goal; `reason` says why.
            AgentNotReadyError: it names no model, and this machine has none.
            Exception: as of `Runtime.start`.
        """
        from harborage.app.scripts import run_to_result  # loaded by programs without a runtime of their own

        return await run_to_result(await self._started(goal, deps, choices))

    @overload
    async def start(self: Agent[None, OutT], goal: Goal, **choices: Unpack[RunChoices]) -> Run[OutT]: ...

    @overload
    async def start(self, goal: Goal, *, deps: DepsT_contra, **choices: Unpack[RunChoices]) -> Run[OutT]: ...

    async def start(self, goal: Goal, *, deps: Any = None, **choices: Unpack[RunChoices]) -> Run[OutT]:
        """Start a run of the agent; return the handle that watches and steers it.

        Raises:
            Exception: as of `run`.
        """
        return await self._started(goal, deps, choices)

    @overload
    def stream(
        self: Agent[None, OutT], goal: Goal, **choices: Unpack[RunChoices]
    ) -> AbstractAsyncContextManager[Run[OutT]]: ...

    @overload
    def stream(
        self, goal: Goal, *, deps: DepsT_contra, **choices: Unpack[RunChoices]
    ) -> AbstractAsyncContextManager[Run[OutT]]: ...

    @asynccontextmanager
    async def stream(self, goal: Goal, *, deps: Any = None, **choices: Unpack[RunChoices]) -> AsyncIterator[Run[OutT]]:
        """Start a run for a block that watches it; leaving the block stops looking, not the run."""
        yield await self._started(goal, deps, choices)

    @overload
    def session(self: Agent[None, OutT], id: str, *, busy: Busy | str = "wait") -> Chat[OutT]: ...

    @overload
    def session(self, id: str, *, deps: DepsT_contra, busy: Busy | str = "wait") -> Chat[OutT]: ...

    def session(self, id: str, *, deps: Any = None, busy: Busy | str = "wait") -> Chat[OutT]:
        """Return the conversation of the local user in the session `id`; it goes on where it was left.

        A message that comes while the one before is being answered waits in turn; with `busy="refuse"` it is refused.
        In a service, `Runtime.session` says whose it is.

        Raises:
            InvalidOptionError: `id` is no text, or `busy` is neither.
        """
        from harborage.app.scripts import chat  # loaded by programs without a runtime of their own

        return chat(self, id, busy, deps)

    @overload
    def run_sync(self: Agent[None, OutT], goal: Goal, **choices: Unpack[RunChoices]) -> Result[OutT]: ...

    @overload
    def run_sync(self, goal: Goal, *, deps: DepsT_contra, **choices: Unpack[RunChoices]) -> Result[OutT]: ...

    def run_sync(self, goal: Goal, *, deps: Any = None, **choices: Unpack[RunChoices]) -> Result[OutT]:
        """The same as `run`, for programs that are not async; it also works where an event loop runs already.

        Raises:
            Exception: as of `run`.
        """
        from harborage.app.scripts import (  # loaded by programs without a runtime of their own
            run_blocking,
            run_to_result,
        )

        async def run() -> Result[OutT]:
            return await run_to_result(await self._started(goal, deps, choices))

        return run_blocking(run)

    async def _started(self, goal: Goal, deps: Any, choices: RunChoices) -> Run[OutT]:
        from harborage.app.scripts import start_run  # loaded by programs without a runtime of their own

        if workflow := IN_WORKFLOW.get():
            text = f"the workflow {workflow!r} runs an agent by await ctx.run({self.name}, …), which records it"
            raise InvalidOptionError("run", self.name, message=text)
        known_options(choices, RunChoices.__annotations__, MEANT_FOR_A_RUN)
        return await start_run(self, goal, deps=deps, **choices)


class RecordedAs(Generic[OutT]):
    """An agent whose runs are recorded under another name, such as one that says where it is found again."""

    def __init__(self, agent: Agent[Any, OutT], name: str) -> None:
        self.agent = agent
        self._name = name or agent.name

    @property
    def name(self) -> str:
        """The agent's own name."""
        return self.agent.name

    @property
    def output(self) -> TypeForm[OutT]:
        """The type of the agent's output."""
        return self.agent.output

    def setup(self) -> AgentSetup:
        """What a runtime opens for the agent."""
        return msgspec.structs.replace(self.agent.setup(), name=self._name, value=self)
