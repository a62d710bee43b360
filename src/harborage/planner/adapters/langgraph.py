"""Runs a prebuilt langgraph agent as a planner: the graph is stopped before its tools node, one turn a step.

A graph that was built freely keeps state that cannot be made again from a run's record, so it is refused. The graph is
read once, when it is adapted; the framework is imported then. The tools keep their schemas, and their bodies call the
agent's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.callables import require_sync
from harborage.llm import ChatMessage, ImagePart, Role
from harborage.planner.adapters.base import (
    Adapted,
    AdapterToolError,
    AdapterUnsupportedError,
    ChunkStream,
    OneTurnPlanner,
    Turn,
    TurnUsage,
    build_messages,
    convert_content,
    import_framework,
    list_last_results,
    make_adapted,
    make_finish,
    render_stub,
    render_text,
)
from harborage.planner.decisions import CallTool, Finish
from harborage.tools import CallContext, Tool, ToolBody, ToolInvalidArgsError, ToolResult
from harborage.tools.errors import json_path

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.planner.context import RunContext
    from harborage.tools import ToolOptions

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


_HISTORY_IDS: Final = "harborage-"


def adapt_langgraph(
    graph: Any,
    *,
    context: Any = None,
    context_for: Callable[[Quadruple], Any] | None = None,
    config: Mapping[str, Any] | None = None,
    tool_options: Mapping[str, ToolOptions] | None = None,
) -> Adapted:
    """Adapt a graph from langchain's `create_agent` or langgraph's `create_react_agent`.

    `context` is the graph's runtime context, the same for every run; `context_for` makes it for one run instead.
    `config` goes along with every call. `tool_options` say what the framework does not, such as side effects, by tool.
    The graph's own checkpointer is not used: a run's record is the runtime's journal.

    Raises:
        MissingExtraError: langgraph is not installed.
        AdapterUnsupportedError: the graph is none of the two, or a part of it cannot be cut into steps.
        InvalidConfigError: `tool_options` name a tool that the agent does not have.
    """
    import_framework("langgraph.graph.state", "langgraph")
    shape = read_shape(graph)
    require_sync(context_for, "context_for")
    given = (lambda who: context) if context_for is None else context_for
    tools = AgentTools(shape, given, dict(config or {})).list()
    turns = _Turns(graph, shape, given, dict(config or {}))
    return make_adapted(OneTurnPlanner(_NAME, turns.take), tools, {}, tool_options)


class _Turns:
    """Takes turns with one graph."""

    def __init__(
        self, graph: Any, shape: GraphShape, context_for: Callable[[Quadruple], Any], config: dict[str, Any]
    ) -> None:
        # A thread's checkpoints would bring back messages that the run's own history holds already.
        self._graph = graph.copy({"checkpointer": None})
        self._shape = shape
        self._context_for = context_for
        self._config = config

    async def take(self, run: RunContext, chunks: ChunkStream) -> Turn:
        finish = self._finish_if_answered(run)
        if finish is not None:
            return Turn(finish=finish)
        options = {
            "config": self._run_config(run.quadruple),
            "context": self._context_for(run.quadruple),
            "interrupt_before": [TOOLS] if self._shape.tools is not None else [],
        }
        state: Any = {}
        messages = {"messages": to_langchain(build_messages(run))}
        modes = ["messages", "values"] if chunks else ["values"]
        async for mode, data in self._graph.astream(messages, stream_mode=modes, **options):
            if mode == "values":
                state = data
            else:
                self._pass_on(data, chunks)
        return _read_turn(state)

    def _run_config(self, who: Quadruple) -> dict[str, Any]:
        given = self._config.get("configurable", {})
        return {**self._config, "configurable": {"thread_id": who.run_id, **given}}

    def _finish_if_answered(self, run: RunContext) -> Finish | None:
        """Return the finish of a run whose last step called a tool that answers the user by itself, else None."""
        results = list_last_results(run.trajectory)
        if not results:
            return None
        direct = [value for name, value in results if name in self._shape.direct]
        wanted = len(results) if self._shape.needs_all_direct else 1
        return make_finish(direct[0], _NAME) if len(direct) >= wanted else None

    def _pass_on(self, data: Any, chunks: ChunkStream) -> None:
        message, metadata = data
        if metadata.get("langgraph_node") == self._shape.model and message.type == "AIMessageChunk":
            chunks.add_reasoning(get_reasoning(message))
            chunks.add_text(get_text(message))


def _read_turn(state: Mapping[str, Any]) -> Turn:
    """Return what the graph's model asked for, or the answer that the graph ended with."""
    if state.get("__interrupt__"):
        why = "a node asked for an answer in mid turn; use approvals or a pause of the runtime"
        raise AdapterUnsupportedError(_NAME, "an interrupt() of the graph", why)
    new = [message for message in state["messages"] if not is_from_history(message)]
    answer = next((message for message in reversed(new) if message.type == "ai"), None)
    if answer is None:
        return Turn(finish=make_finish(None, _NAME))
    core = import_framework("pydantic_core", "langgraph")
    done = {message.tool_call_id for message in new if message.type == "tool"}
    calls = [
        CallTool(call["name"], core.to_json(call["args"]), call["id"] or "")
        for call in answer.tool_calls
        if call["id"] is None or call["id"] not in done
    ]
    structured = state.get("structured_response")
    output = get_text(answer) if structured is None else core.to_jsonable_python(structured)
    return Turn(
        calls=calls,
        finish=None if calls else make_finish(output, _NAME),
        text=get_text(answer),
        reasoning=get_reasoning(answer),
        usage=[_read_usage(message) for message in new if message.type == "ai" and message.usage_metadata],
    )


def _read_usage(message: Any) -> TurnUsage:
    usage = message.usage_metadata
    return TurnUsage(
        model=str(message.response_metadata.get("model_name", "")),
        input_tokens=usage.get("input_tokens", 0),
        output_tokens=usage.get("output_tokens", 0),
        reasoning_tokens=usage.get("output_token_details", {}).get("reasoning", 0),
    )


def to_langchain(messages: Sequence[ChatMessage]) -> list[Any]:
    """Return one langchain message for each chat message, under ids that differ from those that the graph adds."""
    kinds = import_framework("langchain_core.messages", "langgraph")
    return [_as_message(message, f"{_HISTORY_IDS}{index}", kinds) for index, message in enumerate(messages)]


def is_from_history(message: Any) -> bool:
    """Whether this message was in the history before the turn."""
    return (message.id or "").startswith(_HISTORY_IDS)


def get_reasoning(message: Any) -> str:
    """Return the reasoning in a langchain message, in whichever form its provider writes it."""
    if isinstance(message.content, str):
        return str(message.additional_kwargs.get("reasoning_content") or "")
    blocks = (block for block in message.content if isinstance(block, dict))
    return "".join(str(block.get("reasoning") or block.get("thinking") or "") for block in blocks)


def _as_message(message: ChatMessage, id: str, kinds: Any) -> Any:
    match message.role:
        case Role.ASSISTANT:
            calls = [
                {"name": call.name, "args": _args(call.args), "id": call.id, "type": "tool_call"}
                for call in message.tool_calls
            ]
            return kinds.AIMessage(render_text(message), tool_calls=calls, id=id)
        case Role.TOOL:
            return kinds.ToolMessage(
                render_text(message), tool_call_id=message.tool_call_id or "", name=message.name, id=id
            )
        case _:
            return kinds.HumanMessage(convert_content(message, _user_part), id=id)


def _args(args: bytes) -> dict[str, Any]:
    try:
        found = codec.decode(args)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"invalid_arguments": args.decode("utf-8", "replace")}
    return found if isinstance(found, dict) else {"invalid_arguments": found}


def _user_part(part: Any) -> dict[str, Any]:
    match part:
        case ImagePart(data_url=data_url) if data_url:
            head, _, data = data_url.partition(",")
            return {"type": "image", "base64": data, "mime_type": part.mime or head[5:].partition(";")[0]}
        case ImagePart(url=url) if url:
            return {"type": "image", "url": url}
        case _:
            return {"type": "text", "text": render_stub(part)}
