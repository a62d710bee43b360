"""Runs a prebuilt langgraph agent as a planner: the graph is stopped before its tools node, one turn a step.

A graph that was built freely keeps state that cannot be made again from a run's record, so it is refused. The framework
is imported when an agent is adapted.
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
    AdapterUnsupportedError,
    ChunkStream,
    OneTurnPlanner,
    Turn,
    TurnUsage,
    import_framework,
    make_adapted,
    make_finish,
)
from harborage.planner.adapters.langgraph_tools import TOOLS, AgentTools, GraphShape, get_text, read_shape
from harborage.planner.adapters.messages import (
    build_messages,
    convert_content,
    list_last_results,
    render_stub,
    render_text,
)
from harborage.planner.decisions import CallTool, Finish

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.planner.context import RunContext
    from harborage.tools import ToolOptions

_NAME: Final = "langgraph"
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
