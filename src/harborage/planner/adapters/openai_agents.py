"""Runs an openai-agents agent as a planner: one turn of its model a step, and handoffs as steps of their own.

The framework's runner makes the turn with every tool held back for approval, so it stops where a tool would be called.
The framework is imported when an agent is adapted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from harborage.callables import require_sync
from harborage.llm import ChatMessage, ImagePart, Role
from harborage.planner.adapters.base import (
    Adapted,
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
from harborage.planner.adapters.openai_agents_tools import AgentTools, HandoffGraph, read_handoff_graph
from harborage.planner.decisions import CallTool, Finish, FinishReason

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.planner.context import RunContext
    from harborage.tools import ToolOptions

_NAME: Final = "openai_agents"
_TEXT_EVENTS: Final = frozenset({"response.output_text.delta"})
_REASONING_EVENTS: Final = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


def adapt_openai_agents(
    agent: Any,
    *,
    context: Any = None,
    context_for: Callable[[Quadruple], Any] | None = None,
    run_config: Any = None,
    tool_options: Mapping[str, ToolOptions] | None = None,
) -> Adapted:
    """Adapt an `agents.Agent`, with every agent that it can hand off to.

    `context` is what the agent's functions get, the same for every run; `context_for` makes it for one run instead.
    `run_config` is the framework's own, for each turn. `tool_options` say what the framework does not, such as side
    effects, by tool. A handoff is a tool, too: calling it is a step, after which the other agent decides.

    Raises:
        MissingExtraError: openai-agents is not installed.
        AdapterUnsupportedError: a part of an agent cannot be cut into steps; the message names it.
        InvalidConfigError: `tool_options` name a tool that no agent has.
    """
    graph = read_handoff_graph(agent)
    require_sync(context_for, "context_for")
    given = (lambda who: context) if context_for is None else context_for
    tools = AgentTools(graph, given)
    turns = _Turns(graph, given, run_config)
    return make_adapted(OneTurnPlanner(_NAME, turns.take), tools.list(), tools.policies(), tool_options)


class _Turns:
    """Takes turns with one agent and those that it hands off to."""

    def __init__(self, graph: HandoffGraph, context_for: Callable[[Quadruple], Any], run_config: Any) -> None:
        self._graph = graph
        self._context_for = context_for
        self._agents = import_framework("agents", "openai-agents")
        self._config = self._agents.RunConfig() if run_config is None else run_config

    async def take(self, run: RunContext, chunks: ChunkStream) -> Turn:
        agent = self._graph.current(run.trajectory)
        finish = _finish_if_answered(agent, list_last_results(run.trajectory), self._graph)
        if finish is not None:
            return Turn(finish=finish)
        shown = self._hold_back(agent, run)
        options = {
            "context": self._context_for(run.quadruple),
            "max_turns": 1,
            "run_config": self._run_config(run),
        }
        messages = to_input_items(build_messages(run))
        try:
            if chunks:
                result = await self._run_streamed(shown, messages, options, chunks)
            else:
                result = await self._agents.Runner.run(shown, messages, **options)
        except self._agents.InputGuardrailTripwireTriggered as error:
            return _refuse(error)
        except self._agents.OutputGuardrailTripwireTriggered as error:
            return _refuse(error)
        return _read_turn(result, shown)

    async def _run_streamed(self, agent: Any, messages: list[Any], options: dict[str, Any], chunks: ChunkStream) -> Any:
        result = self._agents.Runner.run_streamed(agent, messages, **options)
        try:
            async for event in result.stream_events():
                if event.type == "raw_response_event":
                    _pass_on(event.data, chunks)
        finally:
            # The framework's turn is a task of its own; a callback that fails must not leave it behind.
            result.cancel()
        return result

    def _hold_back(self, agent: Any, run: RunContext) -> Any:
        """Return the agent as the runner sees it for this turn: no call that it asks for is made."""
        changes: dict[str, Any] = {"tools": self._graph.declare_tools(agent, run.catalog), "handoffs": []}
        if run.trajectory is not None and run.trajectory.steps:
            # The framework checks a conversation's input once, and forgets a forced choice after the first call.
            changes["input_guardrails"] = []
            if agent.reset_tool_choice and agent.model_settings.tool_choice is not None:
                changes["model_settings"] = dataclasses.replace(agent.model_settings, tool_choice=None)
        return agent.clone(tool_use_behavior="run_llm_again", **changes)

    def _run_config(self, run: RunContext) -> Any:
        if self._config.group_id:
            return self._config
        return dataclasses.replace(self._config, group_id=run.quadruple.run_id)


def _finish_if_answered(agent: Any, results: Sequence[tuple[str, Any]], graph: HandoffGraph) -> Finish | None:
    """Return the finish of a run that ends with the result of a tool, if that tool was called last, else None."""
    behavior = agent.tool_use_behavior
    own = [(name, value) for name, value in results if name not in graph.targets]
    if behavior == "stop_on_first_tool":
        found = own
    elif isinstance(behavior, Mapping):
        found = [(name, value) for name, value in own if name in behavior["stop_at_tool_names"]]
    else:
        return None
    return make_finish(found[0][1], _NAME, tool=found[0][0]) if found else None


def _read_turn(result: Any, agent: Any) -> Turn:
    response = result.raw_responses[-1]
    items = response.output
    calls = [
        CallTool(item.name, (item.arguments or "{}").encode(), item.call_id)
        for item in items
        if item.type == "function_call"
    ]
    return Turn(
        calls=calls,
        finish=None if calls else make_finish(_to_plain(result.final_output), _NAME, agent=agent.name),
        text="".join(part.text for item in items if item.type == "message" for part in item.content if _is_text(part)),
        reasoning="\n".join(part.text for item in items if item.type == "reasoning" for part in item.summary or ()),
        usage=[_read_usage(response.usage, agent)],
    )


def _is_text(part: Any) -> bool:
    return bool(part.type == "output_text")


def _refuse(error: Any) -> Turn:
    """Return the finish for a guardrail that stopped the run, which is an outcome and no fault."""
    metadata = {"guardrail": error.guardrail_result.guardrail.get_name(), "via": _NAME}
    return Turn(finish=Finish(FinishReason.CONSTRAINTS_CONFLICT, None, metadata))


def _pass_on(event: Any, chunks: ChunkStream) -> None:
    if event.type in _TEXT_EVENTS:
        chunks.add_text(event.delta)
    elif event.type in _REASONING_EVENTS:
        chunks.add_reasoning(event.delta)


def _to_plain(output: Any) -> Any:
    """Return the agent's output as JSON values, which a journal can keep."""
    if isinstance(output, str) or output is None:
        return output
    return import_framework("pydantic_core", "openai-agents").to_jsonable_python(output)


def _read_usage(usage: Any, agent: Any) -> TurnUsage:
    model = agent.model if isinstance(agent.model, str) else getattr(agent.model, "model", "")
    return TurnUsage(
        model=model if isinstance(model, str) else "",
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=getattr(usage.output_tokens_details, "reasoning_tokens", 0) or 0,
    )


def to_input_items(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return the input items for the messages: each call is an item of its own, before its answer."""
    return [item for message in messages for item in _items(message)]


def _items(message: ChatMessage) -> Iterator[dict[str, Any]]:
    match message.role:
        case Role.ASSISTANT:
            text = render_text(message)
            if text:
                yield {"role": "assistant", "content": text}
            for call in message.tool_calls:
                args = call.args.decode("utf-8", "replace")
                yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": args}
        case Role.TOOL:
            output = render_text(message)
            yield {"type": "function_call_output", "call_id": message.tool_call_id or "", "output": output}
        case _:
            yield {"role": "user", "content": convert_content(message, _user_part)}


def _user_part(part: Any) -> dict[str, Any]:
    match part:
        case ImagePart(data_url=data_url, url=url) if data_url or url:
            return {"type": "input_image", "image_url": data_url or url, "detail": part.detail or "auto"}
        case _:
            return {"type": "input_text", "text": render_stub(part)}
