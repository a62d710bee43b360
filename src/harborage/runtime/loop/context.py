"""Context providers: who may add to what a run's planner is shown, and the values that travel between them.

A provider is asked once a run, before its first step; its answer is recorded, so a run that is resumed, forked or
replayed has the same context without asking again. This file has values, the port, and how answers are put together.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec.structs import force_setattr, replace

from harborage.artifacts import ArtifactStore
from harborage.errors import HarborageError, one_of
from harborage.identity import Quadruple
from harborage.planner import (
    BudgetHints,
    MemoryBlocks,
    PlanningHints,
    PlanningNudges,
    ReasoningReplayMode,
    RunContext,
    ToolCatalogView,
    ToolContext,
)

if TYPE_CHECKING:
    from harborage.memory import Memory, MemoryStrategy, SessionMemory


class ContextProviderError(HarborageError):
    """A context provider, or what it was asked to give, cannot be used; the text names the provider and the fix."""


class ContextUnavailableError(HarborageError):
    """A context provider that a run cannot do without gave nothing, so the run failed before its first step."""


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a provider adds to the context of a run's planner; the fields mean what they mean in `RunContext`.

    `instructions` are for this run alone, beside those of its agent; a planner that has no prompt does not read them.
    Everything but `handles` is recorded, so it must have a JSON form. `handles` are live objects for the run's tools
    (`CallContext.handle(name)`): they stay in this process until the run ends here, and no other run reaches them.
    """

    memory_blocks: MemoryBlocks | None = None
    skills_context: Sequence[Any] = ()
    llm_context: Mapping[str, Any] = {}
    hints: PlanningNudges | None = None
    planning_hints: PlanningHints | None = None
    reasoning_replay: ReasoningReplayMode | None = None
    tool_context: ToolContext = ToolContext()
    handles: Mapping[str, Any] = {}
    instructions: str = ""

    def __post_init__(self) -> None:
        if self.reasoning_replay is not None:
            mode = one_of(ReasoningReplayMode, self.reasoning_replay, "reasoning_replay")
            force_setattr(self, "reasoning_replay", mode)


class ContextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a provider is asked about. `who` is its whole identity; only what that identity may see is given.

    `query` is what the run was asked first, `goal` what it aims at. A child was spawned by another run; a rehearsal
    must change nothing outside itself. `catalog` shows the tools that the run may call.
    """

    who: Quadruple
    goal: str
    query: str = ""
    is_child: bool = False
    is_rehearsal: bool = False
    catalog: ToolCatalogView | None = None
    artifacts: ArtifactStore | None = None


@runtime_checkable
class ContextProvider(Protocol):
    """Adds to the context of runs. One instance serves many runs at once."""

    async def provide(self, run: ContextRequest) -> Context | None:
        """What the run's planner shall be shown; None for nothing.

        Raises:
            Exception: it cannot say. The run goes on without it, or fails if its source is required.
        """
        ...


class ContextSource(msgspec.Struct, frozen=True, kw_only=True):
    """A provider, and what may be expected of it.

    `name` is how events and errors call it (default: its class); names are unique in a runtime. It has `timeout_s`
    seconds and may give `max_bytes` of JSON (0: any number). Without a required source a run fails; without any other
    it goes on, and a `runtime.warning` event says so.

    Raises:
        ContextProviderError: what is given is no provider, or a limit makes no sense.
    """

    provider: ContextProvider
    name: str = ""
    is_required: bool = False
    timeout_s: float = 10.0
    max_bytes: int = 64 * 1024

    def __post_init__(self) -> None:
        kind = type(self.provider).__name__
        provide = getattr(self.provider, "provide", None)
        if isinstance(self.provider, type) or not callable(provide):
            raise ContextProviderError(f"{kind} is no context provider: it needs `async def provide(self, run)`")
        if inspect.isroutine(provide) and not inspect.iscoroutinefunction(provide):
            raise ContextProviderError(f"{kind}.provide is not async: write `async def provide(self, run)`")
        if not self.timeout_s > 0 or self.max_bytes < 0:
            raise ContextProviderError(f"the context source {self.name or kind} needs timeout_s > 0 and max_bytes >= 0")
        if not self.name:
            force_setattr(self, "name", kind)


ProviderChoice: TypeAlias = ContextProvider | ContextSource


def sources_of(given: Iterable[ProviderChoice]) -> tuple[ContextSource, ...]:
    """The sources that these are; a bare provider has the default limits.

    Raises:
        ContextProviderError: one is no provider, or two have one name.
    """
    if isinstance(given, ContextSource) or not isinstance(given, Iterable):
        raise ContextProviderError("context takes a list of providers: write context=[provider]")
    sources = tuple(one if isinstance(one, ContextSource) else ContextSource(provider=one) for one in given)
    names = [one.name for one in sources]
    for name in names:
        if names.count(name) > 1:
            raise ContextProviderError(f"two context providers are called {name!r}: give one ContextSource(name=…)")
    return sources


def memory_of(
    choice: Memory | MemoryStrategy | str | SessionMemory | None, *, has_model: bool
) -> Memory | SessionMemory | None:
    """How sessions remember, as the parameter of a runtime says it; a string names a strategy.

    Raises:
        InvalidOptionError: no such strategy, or one whose summaries nothing could make.
    """
    if choice is None:
        return None
    from harborage.errors import InvalidOptionError
    from harborage.memory import Memory, MemoryStrategy, SessionMemory

    if isinstance(choice, SessionMemory):
        return choice
    memory = choice if isinstance(choice, Memory) else Memory(strategy=choice)
    if memory.strategy is MemoryStrategy.ROLLING_SUMMARY and not has_model:
        raise InvalidOptionError(
            "memory",
            choice,
            message="memory strategy rolling_summary needs a model for its summaries: give model=…, use strategy "
            "'truncation', or pass a SessionMemory with a summariser of your own",
        )
    return memory


def merged(named: Sequence[tuple[str, Context]]) -> Context:
    """One context out of those of several providers, in their order.

    Where two give the same memory tier, it becomes an object with one member a provider. Skills are joined, hints
    add up and the strictest limit counts; of other single values the later one wins.
    """
    if len(named) == 1:
        return named[0][1]
    given = [context for _, context in named]
    blocks = [(name, one.memory_blocks) for name, one in named if one.memory_blocks is not None]
    tiers = {
        tier: _tier([(name, value) for name, block in blocks if (value := getattr(block, tier)) is not None])
        for tier in MemoryBlocks.__struct_fields__
    }
    return Context(
        memory_blocks=MemoryBlocks(**tiers) if blocks else None,
        skills_context=tuple(skill for one in given for skill in one.skills_context),
        llm_context={key: value for one in given for key, value in one.llm_context.items()},
        hints=_nudges([one.hints for one in given if one.hints is not None]),
        planning_hints=_hints([one.planning_hints for one in given if one.planning_hints is not None]),
        reasoning_replay=_last([one.reasoning_replay for one in given if one.reasoning_replay is not None]),
        tool_context=ToolContext(
            serializable={key: value for one in given for key, value in one.tool_context.serializable.items()},
            handles=_unique(handle for one in given for handle in one.tool_context.handles),
        ),
        handles={name: value for one in given for name, value in one.handles.items()},
        instructions="\n\n".join(one.instructions for one in given if one.instructions),
    )


def apply_context(base: RunContext, context: Context, *, max_skills: int) -> None:
    """Write a run's context into the template of its step contexts, once. The operator's hints there stay in force.

    Of its skills the first `max_skills` count.
    """
    base.memory_blocks = context.memory_blocks
    base.skills_context = tuple(context.skills_context)[:max_skills]
    base.llm_context = context.llm_context
    base.planning_hints = _hints([one for one in (base.planning_hints, context.planning_hints) if one is not None])
    base.reasoning_replay = context.reasoning_replay
    base.tool_context = context.tool_context
    if context.hints is not None:
        base.hints = context.hints
    add_instructions(base, context.instructions)


def add_instructions(base: RunContext, text: str) -> None:
    """Add instructions to those of a run, once: a resumed run gets them again."""
    if text and text not in base.instructions:
        base.instructions = f"{base.instructions}\n\n{text}" if base.instructions else text


def _tier(values: Sequence[tuple[str, Any]]) -> Any:
    match values:
        case []:
            return None
        case [(_, value)]:
            return value
        case _:
            return dict(values)


_NO_LIMIT: Final = 0


def _nudges(given: Sequence[PlanningNudges]) -> PlanningNudges | None:
    if not given:
        return None
    return PlanningNudges(
        max_parallel=min((one.max_parallel for one in given if one.max_parallel > 0), default=_NO_LIMIT),
        prefer_transport=_last([one.prefer_transport for one in given if one.prefer_transport]) or "",
    )


def _hints(given: Sequence[PlanningHints]) -> PlanningHints | None:
    if len(given) < 2:
        return given[0] if given else None
    budgets = [one.budget for one in given if one.budget is not None]
    lowest = {
        field: min((value for one in budgets if (value := getattr(one, field)) is not None), default=None)
        for field in BudgetHints.__struct_fields__
    }
    return PlanningHints(
        constraints="\n".join(one.constraints.strip() for one in given if one.constraints.strip()),
        preferred_order=next((one.preferred_order for one in reversed(given) if one.preferred_order), ()),
        parallel_groups=tuple(group for one in given for group in one.parallel_groups),
        disallow_tools=_unique(tool for one in given for tool in one.disallow_tools),
        preferred_tools=_unique(tool for one in given for tool in one.preferred_tools),
        budget=BudgetHints(**lowest) if budgets else None,
    )


def _last(values: Sequence[Any]) -> Any:
    return values[-1] if values else None


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def without_handles(context: Context, run_id: str) -> Context:
    """The context as it is recorded: of its live objects the names, which only that run knows."""
    if not context.handles:
        return context
    named = context.tool_context
    handles = _unique((*named.handles, *(handle_of(run_id, name) for name in context.handles)))
    return replace(context, tool_context=replace(named, handles=handles), handles={})


def handle_of(run_id: str, name: str) -> str:
    """The name of a run's own live object in the registry of the process."""
    return f"{run_id}/{name}"
