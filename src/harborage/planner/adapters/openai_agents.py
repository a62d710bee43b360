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
from harborage.planner.adapters.base import Adapted, Chunks, OneTurnPlanner, Turn, Used, adapted, answered, framework
from harborage.planner.adapters.messages import conversation, has_media, last_results, plain_text, stub_text
from harborage.planner.adapters.openai_agents_tools import Calls, Roster, read_roster
from harborage.planner.decisions import CallTool, Finish
from harborage.planner.enums import FinishReason

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.planner.context import RunContext
    from harborage.tools import ToolOptions

__all__ = [
    "adapt_openai_agents",
    "as_input",
]

_NAME: Final = "openai_agents"
_SAID: Final = frozenset({"response.output_text.delta"})
_THOUGHT: Final = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})


def adapt_openai_agents(
    agent: Any,
    *,
    context: Any = None,
    context_for: Callable[[Quadruple], Any] | None = None,
    run_config: Any = None,
    tool_options: Mapping[str, ToolOptions] | None = None,
) -> Adapted:
    """An `agents.Agent`, with every agent it can hand off to, as a planner and tools.

    `context` is what the agent's functions get, the same for every run; `context_for` makes it for one run instead.
    `run_config` is the framework's own, for each turn. `tool_options` say what the framework does not, such as side
    effects, by tool. A handoff is a tool, too: calling it is a step, and from then on the other agent decides.

    Raises:
        MissingExtraError: openai-agents is not installed.
        AdapterUnsupportedError: a part of an agent cannot be cut into steps; the message names it.
        InvalidConfigError: `tool_options` name a tool that no agent has.
    """
    roster = read_roster(agent)
    require_sync(context_for, "context_for")
    given = (lambda who: context) if context_for is None else context_for
    calls = Calls(roster, given)
    turns = _Turns(roster, given, run_config)
    return adapted(OneTurnPlanner(_NAME, turns.take), calls.tools(), calls.policies(), tool_options)


class _Turns:
    """Takes turns with one agent and those it hands off to."""

    def __init__(self, roster: Roster, context_for: Callable[[Quadruple], Any], run_config: Any) -> None:
        self._roster = roster
        self._context_for = context_for
        self._agents = framework("agents", "openai-agents", "the openai-agents adapter")
        self._config = self._agents.RunConfig() if run_config is None else run_config

    async def take(self, run: RunContext, chunks: Chunks) -> Turn:
        agent = self._roster.current(run.trajectory)
        stopped = _stopped(agent, last_results(run.trajectory), self._roster)
        if stopped is not None:
            return Turn(finish=stopped)
        shown = self._shown(agent, run)
        options = {
            "context": self._context_for(run.quadruple),
            "max_turns": 1,
            "run_config": self._run_config(run),
        }
        messages = as_input(conversation(run))
        try:
            if chunks:
                result = await self._streamed(shown, messages, options, chunks)
            else:
                result = await self._agents.Runner.run(shown, messages, **options)
        except self._agents.InputGuardrailTripwireTriggered as error:
            return _refused(error)
        except self._agents.OutputGuardrailTripwireTriggered as error:
            return _refused(error)
        return _turn(result, shown)

    async def _streamed(self, agent: Any, messages: list[Any], options: dict[str, Any], chunks: Chunks) -> Any:
        result = self._agents.Runner.run_streamed(agent, messages, **options)
        try:
            async for event in result.stream_events():
                if event.type == "raw_response_event":
                    _pass_on(event.data, chunks)
        finally:
            # The framework's turn is a task of its own, which a listener that fails must not leave behind.
            result.cancel()
        return result

    def _shown(self, agent: Any, run: RunContext) -> Any:
        """The agent as the runner sees it for this turn: nothing that it asks for is carried out."""
        changes: dict[str, Any] = {"tools": self._roster.declared(agent, run.catalog), "handoffs": []}
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


def _stopped(agent: Any, results: Sequence[tuple[str, Any]], roster: Roster) -> Finish | None:
    """The finish of an agent whose run ends with a tool's result, if it was that tool that was called last."""
    behavior = agent.tool_use_behavior
    own = [(name, value) for name, value in results if name not in roster.targets]
    if behavior == "stop_on_first_tool":
        found = own
    elif isinstance(behavior, Mapping):
        found = [(name, value) for name, value in own if name in behavior["stop_at_tool_names"]]
    else:
        return None
    return answered(found[0][1], _NAME, tool=found[0][0]) if found else None


def _turn(result: Any, agent: Any) -> Turn:
    response = result.raw_responses[-1]
    items = response.output
    calls = [
        CallTool(item.name, (item.arguments or "{}").encode(), item.call_id)
        for item in items
        if item.type == "function_call"
    ]
    return Turn(
        calls=calls,
        finish=None if calls else answered(_plain(result.final_output), _NAME, agent=agent.name),
        said="".join(part.text for item in items if item.type == "message" for part in item.content if _is_text(part)),
        thought="\n".join(part.text for item in items if item.type == "reasoning" for part in item.summary or ()),
        used=[_used(response.usage, agent)],
    )


def _is_text(part: Any) -> bool:
    return bool(part.type == "output_text")


def _refused(error: Any) -> Turn:
    """What a guardrail's alarm means: the run may not go on like this, and that is an outcome, not a fault."""
    metadata = {"guardrail": error.guardrail_result.guardrail.get_name(), "via": _NAME}
    return Turn(finish=Finish(FinishReason.CONSTRAINTS_CONFLICT, None, metadata))


def _pass_on(event: Any, chunks: Chunks) -> None:
    if event.type in _SAID:
        chunks.say(event.delta)
    elif event.type in _THOUGHT:
        chunks.think(event.delta)


def _plain(output: Any) -> Any:
    """The agent's output as JSON values: what a journal can keep."""
    if isinstance(output, str) or output is None:
        return output
    return framework("pydantic_core", "openai-agents", "the openai-agents adapter").to_jsonable_python(output)


def _used(usage: Any, agent: Any) -> Used:
    model = agent.model if isinstance(agent.model, str) else getattr(agent.model, "model", "")
    return Used(
        model=model if isinstance(model, str) else "",
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=getattr(usage.output_tokens_details, "reasoning_tokens", 0) or 0,
    )


def as_input(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """The input items of a conversation: each call is an item of its own, before its answer."""
    return [item for message in messages for item in _items(message)]


def _items(message: ChatMessage) -> Iterator[dict[str, Any]]:
    match message.role:
        case Role.ASSISTANT:
            said = plain_text(message)
            if said:
                yield {"role": "assistant", "content": said}
            for call in message.tool_calls:
                args = call.args.decode("utf-8", "replace")
                yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": args}
        case Role.TOOL:
            output = plain_text(message)
            yield {"type": "function_call_output", "call_id": message.tool_call_id or "", "output": output}
        case _:
            yield {"role": "user", "content": _user_content(message)}


def _user_content(message: ChatMessage) -> Any:
    if not has_media(message):
        return plain_text(message)
    return [_user_part(part) for part in message.content.parts or ()]


def _user_part(part: Any) -> dict[str, Any]:
    match part:
        case ImagePart(data_url=data_url, url=url) if data_url or url:
            return {"type": "input_image", "image_url": data_url or url, "detail": part.detail or "auto"}
        case _:
            return {"type": "input_text", "text": stub_text(part)}
