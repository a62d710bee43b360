"""Which agents a run may be handed to, what each of them brings, and which one decides now.

Read once when an agent is adapted; afterwards nothing here changes. Who decides is a fold of the trajectory: a handoff
is a tool call like any other, so the record of a run says where it went.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.planner.adapters.model import AdapterUnsupportedError, framework
from harborage.planner.adapters.steps import results

if TYPE_CHECKING:
    from harborage.planner.trajectory import Trajectory
    from harborage.planner.views import ToolCatalogView
    from harborage.tools import Tool

__all__ = ["Roster", "handed_over", "read_roster"]

_NAME = "openai_agents"


class Roster(msgspec.Struct, frozen=True, kw_only=True):
    """The agents that can be reached from `start`: their function tools, and their handoffs with whom they lead to."""

    start: Any
    tools: Mapping[str, Any]
    owners: Mapping[str, Any]
    handoffs: Mapping[str, Any]
    targets: Mapping[str, Any]
    declarations: Mapping[int, tuple[Any, ...]]

    def current(self, trajectory: Trajectory | None) -> Any:
        """The agent that decides after these steps: the one that the last handoff which happened led to."""
        agent = self.start
        for step in () if trajectory is None else trajectory.steps:
            for name, value in results(step):
                target = self.targets.get(name)
                if target is not None and value == handed_over(target):
                    agent = target
                    break  # of several handoffs in one turn the framework follows the first
        return agent

    def declared(self, agent: Any, catalog: ToolCatalogView | None) -> list[Any]:
        """What the model of `agent` may call in this run: the agent's own, and what else the run may call."""
        own = self.declarations[id(agent)]
        if catalog is None:
            return list(own)
        strangers = (tool for tool in catalog.list() if tool.name not in self.tools and tool.name not in self.handoffs)
        visible = [tool for tool in own if catalog.resolve(tool.name) is not None]
        return [*visible, *(_foreign(tool) for tool in strangers)]


def handed_over(agent: Any) -> dict[str, str]:
    """What a handoff to `agent` leaves in the history; the framework's own words for it."""
    return {"assistant": agent.name}


def read_roster(start: Any) -> Roster:
    """Every agent that can be reached from `start`, with its tools and handoffs.

    Raises:
        MissingExtraError: openai-agents is not installed.
        AdapterUnsupportedError: a part of an agent cannot be cut into steps.
    """
    reader = _Reader()
    waiting = [start]
    while waiting:
        agent = waiting.pop()
        if id(agent) not in reader.declarations:
            waiting += reader.read(agent)
    return Roster(
        start=start,
        tools=reader.tools,
        owners=reader.owners,
        handoffs=reader.handoffs,
        targets=reader.targets,
        declarations=reader.declarations,
    )


class _Reader:
    """Collects what agents bring, and refuses what cannot be cut."""

    def __init__(self) -> None:
        self._agents = framework("agents", "openai-agents", "the openai-agents adapter")
        self.tools: dict[str, Any] = {}
        self.owners: dict[str, Any] = {}
        self.handoffs: dict[str, Any] = {}
        self.targets: dict[str, Any] = {}
        self.declarations: dict[int, tuple[Any, ...]] = {}

    def read(self, agent: Any) -> list[Any]:
        """Take in one agent; gives the agents it can hand off to."""
        self._check_agent(agent)
        declared = []
        for tool in agent.tools:
            self._check_tool(tool, agent)
            self._note(self.tools, tool.name, tool, agent)
            self.owners.setdefault(tool.name, agent)
            declared.append(dataclasses.replace(tool, on_invoke_tool=_never, needs_approval=True))
        targets = []
        for one in agent.handoffs:
            handoff = one if isinstance(one, self._agents.Handoff) else self._agents.handoff(one)
            target = self._target(handoff, agent)
            if one is handoff:
                self._note(self.handoffs, handoff.tool_name, handoff, agent)
            self._note(self.targets, handoff.tool_name, target, agent)
            self.handoffs.setdefault(handoff.tool_name, handoff)
            self.owners.setdefault(handoff.tool_name, agent)
            declared.append(self._as_tool(handoff))
            targets.append(target)
        self.declarations[id(agent)] = tuple(declared)
        return targets

    def _note(self, known: dict[str, Any], name: str, what: Any, agent: Any) -> None:
        if known.setdefault(name, what) is not what or (known is self.tools and name in self.handoffs):
            why = f"another tool or handoff has the name {name!r}, and a runtime knows a tool by its name; rename one"
            raise AdapterUnsupportedError(_NAME, f"the agent {agent.name!r}", why)

    def _check_agent(self, agent: Any) -> None:
        what = f"the agent {agent.name!r}"
        if agent.mcp_servers:
            why = "the tools of its MCP servers are known only once they are connected; give them to the runtime"
            raise AdapterUnsupportedError(_NAME, what, why)
        if callable(agent.tool_use_behavior):
            why = "a function as tool_use_behavior looks into the framework's own results; use stop_at_tool_names"
            raise AdapterUnsupportedError(_NAME, what, why)

    def _check_tool(self, tool: Any, agent: Any) -> None:
        name = getattr(tool, "name", type(tool).__name__)
        what = f"the tool {name!r} of the agent {agent.name!r}"
        if not isinstance(tool, self._agents.FunctionTool):
            why = "it is run by the provider or by the framework's own runner, inside the turn; use a function tool"
            raise AdapterUnsupportedError(_NAME, what, why)
        if tool.tool_input_guardrails or tool.tool_output_guardrails:
            why = "its guardrails would not be asked; check in the function, or hold it with an approval policy"
            raise AdapterUnsupportedError(_NAME, what, why)
        if tool.defer_loading:
            raise AdapterUnsupportedError(_NAME, what, "it loads late; use Harborage's tool_search for that")
        inner = getattr(tool, "_agent_instance", None)
        held = [one.name for one in getattr(inner, "tools", ()) if getattr(one, "needs_approval", False)]
        if held:
            why = (
                f"inside it {', '.join(held)} would wait for an approval that nobody sees; hold the whole tool instead"
            )
            raise AdapterUnsupportedError(_NAME, what, why)

    def _target(self, handoff: Any, agent: Any) -> Any:
        what = f"the handoff {handoff.tool_name!r} of the agent {agent.name!r}"
        if handoff.input_filter is not None or handoff.nest_handoff_history:
            raise AdapterUnsupportedError(_NAME, what, "it rewrites the history, and a run's history is its record")
        reference = getattr(handoff, "_agent_ref", None)
        target = None if reference is None else reference()
        if target is None:
            raise AdapterUnsupportedError(
                _NAME, what, "whom it leads to is not known before; make it with handoff(agent)"
            )
        return target

    def _as_tool(self, handoff: Any) -> Any:
        return self._agents.FunctionTool(
            name=handoff.tool_name,
            description=handoff.tool_description,
            params_json_schema=handoff.input_json_schema or {"type": "object", "properties": {}},
            on_invoke_tool=_never,
            strict_json_schema=bool(handoff.input_json_schema) and handoff.strict_json_schema,
            is_enabled=handoff.is_enabled,
            needs_approval=True,
        )


def _foreign(tool: Tool) -> Any:
    """A tool of the runtime that no agent brought, as the framework declares tools."""
    return framework("agents", "openai-agents", "the openai-agents adapter").FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.args_schema or {"type": "object", "properties": {}},
        on_invoke_tool=_never,
        strict_json_schema=False,
        needs_approval=True,
    )


async def _never(context: Any, args: str) -> Any:
    raise AssertionError("a declared tool is called by the runtime, never by the framework")
