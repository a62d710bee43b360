"""The agents that an agent may call: what `agents=` accepts, and what a runtime opens for each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

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
