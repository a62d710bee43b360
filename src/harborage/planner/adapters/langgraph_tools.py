"""The parts of a compiled langgraph agent: whether it can be stopped between its turns, and its tools for this runtime.

The graph is read once, when it is adapted. The tools keep their schemas, and their bodies call the agent's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.planner.adapters.base import AdapterToolError, AdapterUnsupportedError, import_framework
from harborage.tools import CallContext, Tool, ToolBody, ToolInvalidArgsError, ToolResult
from harborage.tools.errors import json_path

if TYPE_CHECKING:
    from harborage.identity import Quadruple

TOOLS: Final = "tools"

_NAME: Final = "langgraph"
_HOOKS: Final = frozenset({"pre_model_hook", "post_model_hook", "generate_structured_response"})
_MIDDLEWARE: Final = (".before_model", ".after_model", ".after_agent")
_STATE: Final = frozenset(
    {"messages", "structured_response", "jump_to", "remaining_steps", "is_last_step", "llm_input_messages"}
)


class GraphShape(msgspec.Struct, frozen=True, kw_only=True):
    """A graph that can be cut into steps: its model node, its tools node if it has one, and the tools that end a run.

    With `needs_all_direct` a run ends only when every call of a turn is of such a tool.
    """

    model: str
    tools: Any = None
    direct: frozenset[str] = frozenset()
    needs_all_direct: bool = True

    @property
    def by_name(self) -> Mapping[str, Any]:
        """The tools of the agent by name."""
        found: Mapping[str, Any] = {} if self.tools is None else self.tools.tools_by_name
        return found


def read_shape(graph: Any) -> GraphShape:
    """Read the shape of a prebuilt agent.

    Raises:
        AdapterUnsupportedError: the graph is no prebuilt agent, or holds a part that cannot be cut into steps.
    """
    nodes = _read_nodes(graph)
    model = next((name for name in ("model", "agent") if name in nodes), "")
    prebuilt = import_framework("langgraph.prebuilt", "langgraph")
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
    return GraphShape(model=model, tools=tools, direct=direct, needs_all_direct=model == "model")


def _read_nodes(graph: Any) -> dict[str, Any]:
    state = import_framework("langgraph.graph.state", "langgraph")
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
        why = "the runtime cannot hold, record or repeat a node beside the model and its tools; make it a tool"
        raise AdapterUnsupportedError(_NAME, f"the node {name!r}", why)


def _check_state(graph: Any) -> None:
    managed = set(getattr(graph.builder, "managed", ()))
    others = sorted(set(graph.builder.channels) - _STATE - managed)
    if others:
        why = "a planner keeps nothing, so only messages come back at the next step; keep it in a tool or the context"
        raise AdapterUnsupportedError(_NAME, f"the state {', '.join(others)}", why)


def _check_tools(node: Any) -> None:
    if getattr(node, "_wrap_tool_call", None) is not None or getattr(node, "_awrap_tool_call", None) is not None:
        why = "the runtime calls the tools, so the wrapper would not be asked; use a tool policy or an approval"
        raise AdapterUnsupportedError(_NAME, "a middleware that wraps tool calls", why)
    for name, injected in getattr(node, "_injected_args", {}).items():
        if injected.state:
            why = "it reads the graph's state, which is not there when the runtime calls it; make it an argument"
            raise AdapterUnsupportedError(_NAME, f"the tool {name!r}", why)


class AgentTools:
    """Calls an agent's tools the way its tools node does."""

    def __init__(self, shape: GraphShape, context_for: Callable[[Quadruple], Any], config: dict[str, Any]) -> None:
        self._shape = shape
        self._context_for = context_for
        self._config = config
        self._prebuilt = import_framework("langgraph.prebuilt", "langgraph")
        self._core = import_framework("pydantic_core", "langgraph")

    def list(self) -> Sequence[tuple[Tool, ToolBody]]:
        """Return every tool of the agent with its body."""
        return [(_describe_tool(tool), self._body(tool)) for tool in self._shape.by_name.values()]

    def _body(self, tool: Any) -> ToolBody:
        async def call(args: bytes, context: CallContext) -> ToolResult:
            config = {**self._config, "configurable": {"thread_id": context.who.run_id}}
            wanted = {"name": tool.name, "args": _parse_object(args), "id": _call_id(context), "type": "tool_call"}
            try:
                answer = await tool.ainvoke(self._inject(wanted, context, config, tool), config)
            except self._core.ValidationError as error:
                problems = error.errors(include_input=False, include_url=False)
                raise ToolInvalidArgsError(
                    "; ".join(f"{json_path(one['loc'])}: {one['msg']}" for one in problems)
                ) from error
            return self._result(tool.name, answer)

        return call

    def _inject(self, call: dict[str, Any], context: CallContext, config: dict[str, Any], tool: Any) -> Any:
        """Return the call with the arguments that the framework injects, in place of any that the model wrote."""
        runtime = self._prebuilt.ToolRuntime(
            state=_NoState(),
            context=self._context_for(context.who),
            config=config,
            stream_writer=_discard,
            tool_call_id=call["id"],
            store=None,
            tools=list(self._shape.by_name.values()),
        )
        return self._shape.tools._inject_tool_args(call, runtime, tool)

    def _result(self, name: str, answer: Any) -> ToolResult:
        if getattr(answer, "type", "") != "tool":
            raise AdapterToolError(
                f"tool {name!r} gave a {type(answer).__name__}, which steers the graph it was written for; "
                "it has run, but its result was not used: return a value instead"
            )
        content = answer.content if isinstance(answer.content, str) else self._core.to_jsonable_python(answer.content)
        if answer.status == "error":
            raise AdapterToolError(get_text(answer) or f"tool {name!r} failed")
        artifact = answer.artifact
        return ToolResult(content, None if artifact is None else {"artifact": self._core.to_jsonable_python(artifact)})


def get_text(message: Any) -> str:
    """Return the text in a langchain message."""
    if isinstance(message.content, str):
        return message.content
    return "".join(block if isinstance(block, str) else block.get("text", "") for block in message.content)


class _NoState(dict[str, Any]):
    """Takes the place of the graph's state, which does not exist when the runtime calls a tool."""

    def __missing__(self, key: str) -> Any:
        raise AdapterToolError(f"the tool reads {key!r} of the graph's state, which the runtime does not have")

    def get(self, key: str, default: Any = None) -> Any:
        return self[key]


def _discard(piece: Any) -> None:
    """Drop what a tool streams."""


def _describe_tool(tool: Any) -> Tool:
    functions = import_framework("langchain_core.utils.function_calling", "langgraph")
    described = functions.convert_to_openai_tool(tool)["function"]
    return Tool(
        tool.name,
        description=described.get("description", ""),
        args_schema=described.get("parameters", {}),
        source=_NAME,
    )


def _parse_object(args: bytes) -> dict[str, Any]:
    try:
        given = codec.decode(args) if args.strip() else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ToolInvalidArgsError("the arguments are no JSON") from error
    if not isinstance(given, dict):
        raise ToolInvalidArgsError("the arguments are no object")
    return given


def _call_id(context: CallContext) -> str:
    return context.call_id or context.idempotency_key or "call"
