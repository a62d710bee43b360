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
    Chunks,
    OneTurnPlanner,
    Turn,
    Used,
    adapted,
    answered,
    framework,
)
from harborage.planner.adapters.langgraph_tools import TOOLS, Calls, Shape, read_shape, text_of
from harborage.planner.adapters.messages import conversation, has_media, last_results, plain_text, stub_text
from harborage.planner.decisions import CallTool, Finish

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.planner.context import RunContext
    from harborage.tools import ToolOptions

__all__ = [
    "adapt_langgraph",
    "as_messages",
    "is_ours",
    "thought_of",
]

_NAME: Final = "langgraph"


def adapt_langgraph(
    graph: Any,
    *,
    context: Any = None,
    context_for: Callable[[Quadruple], Any] | None = None,
    config: Mapping[str, Any] | None = None,
    tool_options: Mapping[str, ToolOptions] | None = None,
) -> Adapted:
    """A graph from langchain's `create_agent` or langgraph's `create_react_agent` as a planner and tools.

    `context` is the graph's runtime context, the same for every run; `context_for` makes it for one run instead.
    `config` goes along with every call. `tool_options` say what the framework does not, such as side effects, by tool.
    The graph's own checkpointer is not used: a run's record is the runtime's journal.

    Raises:
        MissingExtraError: langgraph is not installed.
        AdapterUnsupportedError: the graph is none of the two, or a part of it cannot be cut into steps.
        InvalidConfigError: `tool_options` name a tool that the agent does not have.
    """
    framework("langgraph.graph.state", "langgraph", "the langgraph adapter")
    shape = read_shape(graph)
    require_sync(context_for, "context_for")
    given = (lambda who: context) if context_for is None else context_for
    calls = Calls(shape, given, dict(config or {}))
    turns = _Turns(graph, shape, given, dict(config or {}))
    return adapted(OneTurnPlanner(_NAME, turns.take), calls.tools(), {}, tool_options)


class _Turns:
    """Takes turns with one graph."""

    def __init__(
        self, graph: Any, shape: Shape, context_for: Callable[[Quadruple], Any], config: dict[str, Any]
    ) -> None:
        # A thread's checkpoints would bring back messages that the run's own history holds already.
        self._graph = graph.copy({"checkpointer": None})
        self._shape = shape
        self._context_for = context_for
        self._config = config

    async def take(self, run: RunContext, chunks: Chunks) -> Turn:
        stopped = self._stopped(run)
        if stopped is not None:
            return Turn(finish=stopped)
        options = {
            "config": self._configured(run.quadruple),
            "context": self._context_for(run.quadruple),
            "interrupt_before": [TOOLS] if self._shape.tools is not None else [],
        }
        state: Any = {}
        messages = {"messages": as_messages(conversation(run))}
        modes = ["messages", "values"] if chunks else ["values"]
        async for mode, data in self._graph.astream(messages, stream_mode=modes, **options):
            if mode == "values":
                state = data
            else:
                self._pass_on(data, chunks)
        return self._turn(state)

    def _configured(self, who: Quadruple) -> dict[str, Any]:
        given = self._config.get("configurable", {})
        return {**self._config, "configurable": {"thread_id": who.run_id, **given}}

    def _stopped(self, run: RunContext) -> Finish | None:
        """The finish of a run whose last step called a tool that answers the user by itself."""
        results = last_results(run.trajectory)
        if not results:
            return None
        direct = [value for name, value in results if name in self._shape.direct]
        wanted = len(results) if self._shape.needs_all_direct else 1
        return answered(direct[0], _NAME) if len(direct) >= wanted else None

    def _pass_on(self, data: Any, chunks: Chunks) -> None:
        message, metadata = data
        if metadata.get("langgraph_node") == self._shape.model and message.type == "AIMessageChunk":
            chunks.think(thought_of(message))
            chunks.say(text_of(message))

    def _turn(self, state: Mapping[str, Any]) -> Turn:
        if state.get("__interrupt__"):
            why = "a node asked for an answer in mid turn; use approvals or a pause of the runtime"
            raise AdapterUnsupportedError(_NAME, "an interrupt() of the graph", why)
        new = [message for message in state["messages"] if not is_ours(message)]
        said = next((message for message in reversed(new) if message.type == "ai"), None)
        if said is None:
            return Turn(finish=answered(None, _NAME))
        done = {message.tool_call_id for message in new if message.type == "tool"}
        calls = [
            CallTool(call["name"], _encoded(call["args"]), call["id"] or "")
            for call in said.tool_calls
            if call["id"] is None or call["id"] not in done
        ]
        structured = state.get("structured_response")
        return Turn(
            calls=calls,
            finish=None if calls else answered(text_of(said) if structured is None else _plain(structured), _NAME),
            said=text_of(said),
            thought=thought_of(said),
            used=[_used(message) for message in new if message.type == "ai" and message.usage_metadata],
        )


def _encoded(args: Any) -> bytes:
    core = framework("pydantic_core", "langgraph", "the langgraph adapter")
    encoded: bytes = core.to_json(args)
    return encoded


def _plain(output: Any) -> Any:
    """The agent's output as JSON values: what a journal can keep."""
    return framework("pydantic_core", "langgraph", "the langgraph adapter").to_jsonable_python(output)


def _used(message: Any) -> Used:
    usage = message.usage_metadata
    return Used(
        model=str(message.response_metadata.get("model_name", "")),
        input_tokens=usage.get("input_tokens", 0),
        output_tokens=usage.get("output_tokens", 0),
        reasoning_tokens=usage.get("output_token_details", {}).get("reasoning", 0),
    )


_OURS: Final = "harborage-"


def as_messages(messages: Sequence[ChatMessage]) -> list[Any]:
    """One message of the framework for each of ours, under ids that tell them from what the graph adds."""
    kinds = framework("langchain_core.messages", "langgraph", "the langgraph adapter")
    return [_as_message(message, f"{_OURS}{index}", kinds) for index, message in enumerate(messages)]


def is_ours(message: Any) -> bool:
    """Whether this message stood in the history before the turn."""
    return (message.id or "").startswith(_OURS)


def thought_of(message: Any) -> str:
    """The thinking in a message of the framework, however its provider writes it."""
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
            return kinds.AIMessage(plain_text(message), tool_calls=calls, id=id)
        case Role.TOOL:
            return kinds.ToolMessage(
                plain_text(message), tool_call_id=message.tool_call_id or "", name=message.name, id=id
            )
        case _:
            return kinds.HumanMessage(_user_content(message), id=id)


def _args(args: bytes) -> dict[str, Any]:
    try:
        found = codec.decode(args)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"invalid_arguments": args.decode("utf-8", "replace")}
    return found if isinstance(found, dict) else {"invalid_arguments": found}


def _user_content(message: ChatMessage) -> Any:
    if not has_media(message):
        return plain_text(message)
    return [_user_part(part) for part in message.content.parts or ()]


def _user_part(part: Any) -> dict[str, Any]:
    match part:
        case ImagePart(data_url=data_url) if data_url:
            head, _, data = data_url.partition(",")
            return {"type": "image", "base64": data, "mime_type": part.mime or head[5:].partition(";")[0]}
        case ImagePart(url=url) if url:
            return {"type": "image", "url": url}
        case _:
            return {"type": "text", "text": stub_text(part)}
