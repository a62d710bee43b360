"""What a compiled graph is made of, and whether it can be stopped between its turns. Read once, when it is adapted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from harborage.planner.adapters.model import AdapterUnsupportedError, framework

__all__ = ["TOOLS", "Shape", "read_shape"]

TOOLS: Final = "tools"

_NAME: Final = "langgraph"
_HOOKS: Final = frozenset({"pre_model_hook", "post_model_hook", "generate_structured_response"})
_MIDDLEWARE: Final = (".before_model", ".after_model", ".after_agent")
_STATE: Final = frozenset(
    {"messages", "structured_response", "jump_to", "remaining_steps", "is_last_step", "llm_input_messages"}
)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A graph that can be cut: its model node, its tools node if it has tools, and which tools end a run.

    `needs_all_direct` says that every call of a turn must be of such a tool for the run to end.
    """

    model: str
    tools: Any = None
    direct: frozenset[str] = frozenset()
    needs_all_direct: bool = True

    @property
    def by_name(self) -> Mapping[str, Any]:
        """The tools of the agent."""
        found: Mapping[str, Any] = {} if self.tools is None else self.tools.tools_by_name
        return found


def read_shape(graph: Any) -> Shape:
    """The shape of a prebuilt agent.

    Raises:
        AdapterUnsupportedError: the graph is no prebuilt agent, or holds a part that cannot be cut into steps.
    """
    nodes = _nodes(graph)
    model = next((name for name in ("model", "agent") if name in nodes), "")
    prebuilt = framework("langgraph.prebuilt", "langgraph", "the langgraph adapter")
    tools = nodes[TOOLS].runnable if TOOLS in nodes else None
    if not model or not (tools is None or isinstance(tools, prebuilt.ToolNode)):
        why = "it is no prebuilt agent, so where one decision ends is not known; make it with create_agent"
        raise AdapterUnsupportedError(_NAME, "this graph", why)
    for name in nodes.keys() - {model, TOOLS}:
        _check_node(name)
    _check_state(graph)
    if tools is not None:
        _check_tools(tools)
    direct = frozenset(name for name, tool in (tools.tools_by_name if tools else {}).items() if tool.return_direct)
    return Shape(model=model, tools=tools, direct=direct, needs_all_direct=model == "model")


def _nodes(graph: Any) -> dict[str, Any]:
    state = framework("langgraph.graph.state", "langgraph", "the langgraph adapter")
    if not isinstance(graph, state.CompiledStateGraph):
        why = f"a {type(graph).__name__} is no compiled StateGraph; give what create_agent returns"
        raise AdapterUnsupportedError(_NAME, "this object", why)
    nodes: dict[str, Any] = dict(graph.builder.nodes)
    return nodes


def _check_node(name: str) -> None:
    if "HumanInTheLoop" in name:
        why = "it waits inside the graph, where a run cannot be parked; hold the tools with the runtime's approvals"
        raise AdapterUnsupportedError(_NAME, f"the node {name!r}", why)
    if name.endswith(".before_agent"):
        why = "it is meant to run once, and a graph is begun anew at each step; use before_model"
        raise AdapterUnsupportedError(_NAME, f"the node {name!r}", why)
    if name not in _HOOKS and not name.endswith(_MIDDLEWARE):
        why = (
            "a node beside the model and its tools is work that nobody here can hold, record or repeat; make it a tool"
        )
        raise AdapterUnsupportedError(_NAME, f"the node {name!r}", why)


def _check_state(graph: Any) -> None:
    managed = set(getattr(graph.builder, "managed", ()))
    others = sorted(set(graph.builder.channels) - _STATE - managed)
    if others:
        why = (
            "a planner keeps nothing, so only messages come back at the next step; keep it in a tool or in the context"
        )
        raise AdapterUnsupportedError(_NAME, f"the state {', '.join(others)}", why)


def _check_tools(node: Any) -> None:
    if getattr(node, "_wrap_tool_call", None) is not None or getattr(node, "_awrap_tool_call", None) is not None:
        why = "the runtime calls the tools, so the wrapper would not be asked; use a tool policy or an approval"
        raise AdapterUnsupportedError(_NAME, "a middleware that wraps tool calls", why)
    for name, injected in getattr(node, "_injected_args", {}).items():
        if injected.state:
            why = "it reads the graph's state, which is not there when the runtime calls it; make it an argument"
            raise AdapterUnsupportedError(_NAME, f"the tool {name!r}", why)
