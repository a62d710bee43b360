"""The agents that an agent may call: what `agents=` accepts, and what a runtime opens for each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.errors import InvalidOptionError
from harborage.planner.react.tools import RESERVED_TOOL_NAMES
from harborage.runtime.effects.agent_setup import SubAgentSetup, tool_name
from harborage.runtime.loop.sub_agents import Way
from harborage.runtime.outputs import members

if TYPE_CHECKING:
    from harborage.runtime.effects.model import ModelChoice
    from harborage.tools import ToolDescriptor


class Called(msgspec.Struct, frozen=True):
    """An agent that another may call, and how: `agents=[researcher.background()]`."""

    agent: Any
    way: Way = Way.CALL

    @property
    def name(self) -> str:
        """The agent's name."""
        name: str = self.agent.name
        return name


def checked_agents(agents: Any, tools: Sequence[ToolDescriptor[Any]], output: Any) -> tuple[Called, ...]:
    """Accept agents that can be called beside these tools.

    Raises:
        InvalidOptionError: one is no agent, has the name of another or of a tool, or would answer with another type
            than the agent that hands over to it.
    """
    if isinstance(agents, str) or not isinstance(agents, Iterable):
        raise InvalidOptionError("agents", agents, "several agents, such as [researcher]")
    taken = {one.tool.name: f"the tool {one.tool.name!r}" for one in tools}
    found: list[Called] = []
    for one in agents:
        called = one if isinstance(one, Called) else Called(one)
        if isinstance(called.agent, type) or not callable(getattr(called.agent, "setup", None)):
            raise InvalidOptionError("agents", one, "agents, such as harborage.Agent(…)")
        name = tool_name(called.name)
        if name in taken or name in RESERVED_TOOL_NAMES:
            what = taken.get(name, "a name of the runtime's own")
            text = f"agents: {called.name!r} is also {what}; give one of them another name"
            raise InvalidOptionError("agents", called.name, message=text)
        taken[name] = f"the agent {called.name!r}"
        if called.way is Way.HANDOFF:
            _check_answer(called, output)
        found.append(called)
    return tuple(found)


def setups_below(agents: Sequence[Called], model: ModelChoice | None) -> tuple[SubAgentSetup, ...]:
    """What a runtime opens for them; one without a model has that of the agent that calls it."""
    return tuple(
        SubAgentSetup(
            setup=_over(called.agent, model).setup(), way=called.way, about=getattr(called.agent, "description", "")
        )
        for called in agents
    )


def _over(agent: Any, model: ModelChoice | None) -> Any:
    has_reasoner = getattr(agent, "model", None) is not None or getattr(agent, "planner", agent) is not None
    return agent if model is None or has_reasoner else agent.replace(model=model)


def _check_answer(called: Called, output: Any) -> None:
    """Accept an agent whose every answer is one of the agent that hands over to it."""
    accepted = [*members(output), output]
    strange = [one for one in members(called.agent.output) if one not in accepted]
    if not strange or called.agent.output == output:
        return
    names = ", ".join(getattr(one, "__name__", str(one)) for one in strange)
    text = f"agents: {called.name!r} may answer with {names}; add it to the output of the agent that hands over to it"
    raise InvalidOptionError("agents", called.name, message=text)


_BEING_SET_UP: Final[ContextVar[tuple[Any, ...]]] = ContextVar("being_set_up", default=())
"""The agents whose setups are being made: a tool may run the agent that has it, which needs no second setup."""


def setups_of_tools(
    agent: Any, kind: type, tools: Sequence[ToolDescriptor[Any]], model: ModelChoice | None, taken: Sequence[str]
) -> tuple[SubAgentSetup, ...]:
    """What a runtime opens for the agents that the code of tools names, such as for `ctx.run(…)`.

    The model of the agent does not see them. Those named `taken` are there already.
    """
    outer = _BEING_SET_UP.get()
    found: dict[str, Any] = {}
    for one in tools:
        for named in () if one.function is None else named_in(one.function, (kind,)):
            if named is not agent and named not in outer and named.name not in taken:
                found.setdefault(named.name, named)
    if not found:
        return ()
    token = _BEING_SET_UP.set((*outer, agent))
    try:
        below = setups_below([Called(one) for one in found.values()], model)
    finally:
        _BEING_SET_UP.reset(token)
    return tuple(msgspec.structs.replace(one, is_of_tool=True) for one in below)


def named_in(function: Any, kinds: tuple[type, ...]) -> Iterator[Any]:
    """The values of these kinds that the code of a function names, and that of its module's functions that it calls."""
    for one in _functions_of(function):
        yield from (value for value in _values(one) if isinstance(value, kinds))


def names_in(function: Any) -> set[str]:
    """The names, of attributes too, in the code of a function and in that of its module's functions that it calls."""
    return {name for one in _functions_of(function) for name in _names(one.__code__)}


def _functions_of(function: Any) -> Iterator[FunctionType]:
    """A function, and those of its module that it calls."""
    left, seen = [getattr(function, "__func__", function)], set()
    while left:
        one = left.pop()
        if one in seen or not isinstance(one, FunctionType):
            continue
        seen.add(one)
        yield one
        left += [
            value for value in _values(one) if isinstance(value, FunctionType) and value.__module__ == one.__module__
        ]


def _values(function: FunctionType) -> Iterator[Any]:
    names = set(_names(function.__code__))
    scope: Mapping[str, Any] = function.__globals__ | dict(_closure(function))
    for name in names:
        value = scope.get(name)
        if isinstance(value, ModuleType):
            yield from (vars(value)[inner] for inner in names if inner in vars(value))
        elif value is not None:
            yield value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _closure(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # of a name that has no value yet
