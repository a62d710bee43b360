"""What the agents of a runtime are made of, before anything of them is opened."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, assert_never

import msgspec

from harborage.errors import InvalidOptionError
from harborage.planner import Planner, Summariser
from harborage.runtime.effects.approval.model import ApprovalPolicy
from harborage.runtime.effects.model import ModelChoice, PlannerChoice, ReasonerConfig, choose_reasoner
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.loop.capabilities import Capability, InstructionsFunction
from harborage.runtime.loop.context import ContextSource, ProviderChoice, memory_of, sources_of
from harborage.runtime.loop.sub_agents import SubAgent, Way, args_schema
from harborage.tools import CallContext, SideEffect, Tool, ToolDescriptor, ToolError, ToolResult
from harborage.tools.sources import ToolSource

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from harborage.memory import Memory, MemoryStrategy, SessionMemory

OutT_co = TypeVar("OutT_co", covariant=True)

_MOST_CHARS: Final = 64


class AgentLike(Protocol[OutT_co]):
    """An agent as a program describes it: a value that a runtime opens when it needs it."""

    def setup(self) -> AgentSetup:
        """What the agent is made of; `value` is the agent itself."""
        ...

    @property
    def output(self) -> TypeForm[OutT_co]:
        """The type of its output."""
        ...


class SubAgentSetup(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that another may call, and how. `about` says to the other what it is for.

    One that `is_of_tool` is called by the code of a tool alone; the model of the other does not see it.
    """

    setup: AgentSetup
    way: Way = Way.CALL
    about: str = ""
    is_of_tool: bool = False

    @property
    def called(self) -> SubAgent:
        """What a run of the other agent records of it."""
        return SubAgent(tool=tool_name(self.setup.name), agent=self.setup.name, way=self.way)

    @property
    def descriptor(self) -> ToolDescriptor[Any]:
        """What the other agent sees of it: a tool, whose calls the run loop answers with a run of this agent."""
        shown = Tool(
            name=self.called.tool,
            description=" ".join(text for text in (_what_a_call_does(self.way, self.setup.name), self.about) if text),
            args_schema=args_schema(self.way),
            side_effects=SideEffect.READ,  # what it does, it does by its own tools, under its own approvals
            source="agent",
        )
        return ToolDescriptor(shown, _only_in_a_run)


def _what_a_call_does(way: Way, name: str) -> str:
    match way:
        case Way.CALL:
            return f"Give the agent {name} work, and get its answer."
        case Way.BACKGROUND:
            return f"Give the agent {name} work that it does in the background; its answer comes later."
        case Way.HANDOFF:
            return f"Hand the conversation over to the agent {name}, which answers in your place."
        case _ as unreachable:
            assert_never(unreachable)


async def _only_in_a_run(args: bytes, call: CallContext[Any]) -> ToolResult:
    raise ToolError("this is an agent, not a tool: call it by itself, not inside of another tool")


def tool_name(agent: str) -> str:
    """The name under which another agent calls the agent of this name: providers allow few characters in it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", agent)[:_MOST_CHARS]


class AgentSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent is made of, before anything is opened. A runtime with a single agent may leave its name empty.

    `remembers` says whether each run has the memory of its session; otherwise only those that ask for it have it.
    `tool_sources` are tools from elsewhere, such as of a server, which are listed when a run begins.
    `value` is what described the agent, for programs that start its runs by it; `decode` makes its output of the
    payload of a finish. `deps` is the type of what its tools depend on, `agents` are those that it may call; the
    planner of one that `is_workflow` is a function with waits of its own.
    `capabilities` are asked at their hooks; their tools and instructions are among those of the agent. A
    replay asks no hooks of its model. `instructions` are asked once a run, beside those of the reasoner.
    """

    reasoner: Planner | ReasonerConfig
    name: str = ""
    tools: tuple[ToolDescriptor | Callable[..., Any], ...] = ()
    tool_sources: tuple[ToolSource, ...] = ()
    approvals: ApprovalPolicy | Mapping[str, ApprovalPolicy] | None = None
    options: RuntimeOptions = RuntimeOptions()
    summariser: Summariser | None = None
    context: tuple[ContextSource, ...] = ()
    memory: Memory | SessionMemory | None = None
    remembers: bool = True
    value: object = None
    decode: Callable[[Any], Any] | None = None
    deps: Any = NoneType
    capabilities: tuple[Capability, ...] = ()
    asks_model_hooks: bool = True
    instructions: InstructionsFunction | None = None
    agents: tuple[SubAgentSetup, ...] = ()
    is_workflow: bool = False


def only_agent(
    options: RuntimeOptions,
    *,
    planner: PlannerChoice | None,
    model: ModelChoice | None,
    instructions: str,
    tools: Iterable[ToolDescriptor | Callable[..., Any]],
    approvals: ApprovalPolicy | Mapping[str, ApprovalPolicy] | None,
    agent: str,
    summariser: Summariser | None,
    context: Iterable[ProviderChoice],
    memory: Memory | MemoryStrategy | str | SessionMemory | None,
) -> AgentSetup:
    """What the only agent of a runtime is made of.

    Raises:
        InvalidOptionError: the options do not fit together.
    """
    return AgentSetup(
        name=agent,
        reasoner=choose_reasoner(planner, model, instructions),
        tools=tuple(tools),
        approvals=approvals,
        options=options,
        summariser=summariser,
        context=sources_of(context),
        memory=memory_of(memory, has_model=model is not None),
    )


def setups_of(agents: Iterable[AgentLike[Any]], of_one: Mapping[str, object]) -> tuple[AgentSetup, ...]:
    """What the agents of a runtime are made of; `of_one` are the options that describe a single one.

    Raises:
        InvalidOptionError: there is none, one is no agent, two have the same name, or an option is of a single agent.
    """
    if isinstance(agents, str):
        raise InvalidOptionError("agents", agents, "a list of agents, such as Runtime([agent])")
    given = [name for name, value in of_one.items() if value]
    if given:
        text = f"{', '.join(given)}: say it in the agent; Runtime([…]) takes what all its agents share"
        raise InvalidOptionError(given[0], of_one[given[0]], message=text)
    setups: list[AgentSetup] = []
    for one in agents:
        make = getattr(one, "setup", None)
        if not callable(make):
            raise InvalidOptionError("agents", one, "agents, such as harborage.Agent(…)")
        setups.append(make())
    names = [one.name for one in setups]
    if not names or len(set(names)) < len(names):
        what = f"two agents are named {max(names, key=names.count)!r}" if names else "there is no agent"
        raise InvalidOptionError("agents", names, message=f"Runtime([…]): {what}; each agent needs a name of its own")
    return tuple(setups)
