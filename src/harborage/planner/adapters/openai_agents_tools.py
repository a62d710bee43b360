"""The agents that a run may be handed to, and their functions and handoffs as tools of this runtime.

Read once when an agent is adapted; afterwards nothing here changes. Which agent decides is a fold of the trajectory: a
handoff is a tool call like any other, so the record of a run says where it went. The framework validates the arguments
and calls the function; the runtime decides when, how often and whether.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.planner.adapters.base import (
    AdapterUnsupportedError,
    GatePolicy,
    always_ask,
    import_framework,
    iter_results,
)
from harborage.tools import CallContext, SideEffect, Tool, ToolBody, ToolInvalidArgsError, ToolResult

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.planner.trajectory import Trajectory
    from harborage.planner.views import ToolCatalogView

_NAME = "openai_agents"


class HandoffGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The agents that can be reached from `start`: their function tools, and the targets of their handoffs."""

    start: Any
    tools: Mapping[str, Any]
    owners: Mapping[str, Any]
    handoffs: Mapping[str, Any]
    targets: Mapping[str, Any]
    declarations: Mapping[int, tuple[Any, ...]]

    def current(self, trajectory: Trajectory | None) -> Any:
        """Return the agent that decides after these steps: the target of the last handoff that happened."""
        agent = self.start
        for step in () if trajectory is None else trajectory.steps:
            for name, value in iter_results(step):
                target = self.targets.get(name)
                if target is not None and value == render_handoff(target):
                    agent = target
                    break  # of several handoffs in one turn the framework follows the first
        return agent

    def declare_tools(self, agent: Any, catalog: ToolCatalogView | None) -> list[Any]:
        """Return what the model of `agent` may call in this run: the agent's own tools, then the run's others."""
        own = self.declarations[id(agent)]
        if catalog is None:
            return list(own)
        others = (tool for tool in catalog.list() if tool.name not in self.tools and tool.name not in self.handoffs)
        visible = [tool for tool in own if catalog.resolve(tool.name) is not None]
        return [*visible, *(_declare_foreign(tool) for tool in others)]


def render_handoff(agent: Any) -> dict[str, str]:
    """Return the result of a handoff to `agent`, as the framework words it."""
    return {"assistant": agent.name}


def read_handoff_graph(start: Any) -> HandoffGraph:
    """Read every agent that can be reached from `start`, with its tools and handoffs.

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
    return HandoffGraph(
        start=start,
        tools=reader.tools,
        owners=reader.owners,
        handoffs=reader.handoffs,
        targets=reader.targets,
        declarations=reader.declarations,
    )


class _Reader:
    """Collects the tools and handoffs of agents, and refuses what cannot be cut into steps."""

    def __init__(self) -> None:
        self._agents = import_framework("agents", "openai-agents")
        self.tools: dict[str, Any] = {}
        self.owners: dict[str, Any] = {}
        self.handoffs: dict[str, Any] = {}
        self.targets: dict[str, Any] = {}
        self.declarations: dict[int, tuple[Any, ...]] = {}

    def read(self, agent: Any) -> list[Any]:
        """Read one agent; return the agents that it can hand off to."""
        self._check_agent(agent)
        declared = []
        for tool in agent.tools:
            self._check_tool(tool, agent)
            self._add(self.tools, tool.name, tool, agent)
            self.owners.setdefault(tool.name, agent)
            declared.append(dataclasses.replace(tool, on_invoke_tool=_never, needs_approval=True))
        targets = []
        for one in agent.handoffs:
            handoff = one if isinstance(one, self._agents.Handoff) else self._agents.handoff(one)
            target = self._read_target(handoff, agent)
            if one is handoff:
                self._add(self.handoffs, handoff.tool_name, handoff, agent)
            self._add(self.targets, handoff.tool_name, target, agent)
            self.handoffs.setdefault(handoff.tool_name, handoff)
            self.owners.setdefault(handoff.tool_name, agent)
            declared.append(self._as_tool(handoff))
            targets.append(target)
        self.declarations[id(agent)] = tuple(declared)
        return targets

    def _add(self, known: dict[str, Any], name: str, what: Any, agent: Any) -> None:
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
            why = f"inside it {', '.join(held)} would wait for an approval that no person sees; hold this tool instead"
            raise AdapterUnsupportedError(_NAME, what, why)

    def _read_target(self, handoff: Any, agent: Any) -> Any:
        what = f"the handoff {handoff.tool_name!r} of the agent {agent.name!r}"
        if handoff.input_filter is not None or handoff.nest_handoff_history:
            raise AdapterUnsupportedError(_NAME, what, "it rewrites the history, and a run's history is its record")
        reference = getattr(handoff, "_agent_ref", None)
        target = None if reference is None else reference()
        if target is None:
            raise AdapterUnsupportedError(_NAME, what, "its target is not known before; make it with handoff(agent)")
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


def _declare_foreign(tool: Tool) -> Any:
    """Declare a tool of the runtime that no agent brought, as the framework declares tools."""
    return import_framework("agents", "openai-agents").FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.args_schema or {"type": "object", "properties": {}},
        on_invoke_tool=_never,
        strict_json_schema=False,
        needs_approval=True,
    )


async def _never(context: Any, args: str) -> Any:
    raise AssertionError("a declared tool is called by the runtime, never by the framework")


class AgentTools:
    """Calls the functions of the agents the way the framework does."""

    def __init__(self, graph: HandoffGraph, context_for: Callable[[Quadruple], Any]) -> None:
        self._graph = graph
        self._context_for = context_for
        self._agents = import_framework("agents", "openai-agents")
        self._context = import_framework("agents.tool_context", "openai-agents")
        self._module = import_framework("agents.tool", "openai-agents")
        self._core = import_framework("pydantic_core", "openai-agents")

    def list(self) -> Sequence[tuple[Tool, ToolBody]]:
        """Return every function tool and every handoff with its body."""
        functions = [
            (_describe_tool(one), self._function_body(_raise_failures(one))) for one in self._graph.tools.values()
        ]
        handoffs = [(_describe_handoff(one), self._handoff_body(one)) for one in self._graph.handoffs.values()]
        return [*functions, *handoffs]

    def policies(self) -> dict[str, GatePolicy]:
        """Return an approval policy for each tool that asks for approval."""
        return {
            name: self._policy(tool) if callable(tool.needs_approval) else always_ask
            for name, tool in self._graph.tools.items()
            if tool.needs_approval
        }

    def _policy(self, tool: Any) -> GatePolicy:
        """Return the tool's own check as a policy; a call with arguments that it cannot read always needs approval."""

        async def ask(request: Any) -> tuple[bool, str]:
            try:
                given = codec.decode(request.args)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                return True, "its arguments are no JSON"
            if not isinstance(given, dict):
                return True, "its arguments are no object"
            wrapper = self._agents.RunContextWrapper(context=self._context_for(request.identity))
            return bool(await tool.needs_approval(wrapper, given, "")), "the agent's own definition asks for approval"

        return ask

    def _tool_context(self, name: str, args: bytes, call: CallContext) -> Any:
        return self._context.ToolContext(
            context=self._context_for(call.who),
            usage=self._agents.Usage(),
            tool_name=name,
            tool_call_id=call.call_id or call.idempotency_key,
            tool_arguments=args.decode("utf-8", "replace"),
            agent=self._graph.owners[name],
        )

    def _function_body(self, tool: Any) -> ToolBody:
        async def call(args: bytes, context: CallContext) -> ToolResult:
            inside = self._tool_context(tool.name, args, context)
            try:
                value = await self._module.invoke_function_tool(
                    function_tool=tool, context=inside, arguments=inside.tool_arguments
                )
            except self._agents.ModelBehaviorError as error:
                raise ToolInvalidArgsError(str(error)) from error
            return ToolResult(value if isinstance(value, str) else self._core.to_jsonable_python(value))

        return call

    def _handoff_body(self, handoff: Any) -> ToolBody:
        async def call(args: bytes, context: CallContext) -> ToolResult:
            inside = self._tool_context(handoff.tool_name, args, context)
            given = inside.tool_arguments if handoff.input_json_schema else ""
            try:
                target = await handoff.on_invoke_handoff(inside, given)
            except self._agents.ModelBehaviorError as error:
                raise ToolInvalidArgsError(str(error)) from error
            return ToolResult(render_handoff(target))

        return call


def _raise_failures(tool: Any) -> Any:
    """Return the tool with failures that raise: by default the framework turns them into texts that look like results.

    A text that the tool's author wrote for the model stays.
    """
    changes: dict[str, Any] = {}
    if tool._use_default_failure_error_function:
        changes |= {"_use_default_failure_error_function": False, "_failure_error_function": None}
    if tool.timeout_error_function is None:
        changes["timeout_behavior"] = "raise_exception"
    return dataclasses.replace(tool, **changes)


def _describe_tool(tool: Any) -> Tool:
    return Tool(tool.name, description=tool.description, args_schema=tool.params_json_schema, source=_NAME)


def _describe_handoff(handoff: Any) -> Tool:
    return Tool(
        handoff.tool_name,
        description=handoff.tool_description,
        args_schema=handoff.input_json_schema or {"type": "object", "properties": {}},
        source=_NAME,
        tags=("handoff",),
        side_effects=SideEffect.STATEFUL,
    )
