"""Runs a pydantic-ai agent as a planner: its own instructions, model, output type and tools, one turn a step.

The agent's graph is walked up to the model's answer and no further: no tool of it is called here, only its output is
validated. As tools of this runtime, its functions are called by the framework with its `RunContext`; the runtime
decides when, how often and whether. The framework is imported when an agent is adapted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.callables import require_sync
from harborage.llm import ChatMessage, ImagePart, Role
from harborage.planner.adapters.base import (
    Adapted,
    AdapterToolError,
    AdapterUnsupportedError,
    ChunkStream,
    GatePolicy,
    OneTurnPlanner,
    Turn,
    TurnUsage,
    always_ask,
    build_messages,
    convert_content,
    import_framework,
    make_adapted,
    make_finish,
    render_stub,
    render_text,
)
from harborage.planner.decisions import CallParallel, CallTool
from harborage.tools import CallContext, Loading, Tool, ToolBody, ToolInvalidArgsError, ToolResult
from harborage.tools.errors import json_path

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.planner.context import RunContext
    from harborage.tools import ToolOptions

_NAME = "pydantic_ai"


class AgentTools(msgspec.Struct, frozen=True):
    """The tools of an agent with their bodies, and the names of those that ask for approval."""

    bodies: Sequence[tuple[Tool, ToolBody]] = ()
    held: frozenset[str] = frozenset()


def read_tools(agent: Any, deps_for: Callable[[Quadruple], Any], deps: Any, model: Any) -> AgentTools:
    """Read the function tools of an agent.

    Raises:
        AdapterUnsupportedError: a toolset is no set of functions, a tool loads late or is run elsewhere, or the
            provider runs tools of its own.
    """
    _refuse_native_tools(agent)
    calls = _Calls(agent, deps_for, model)
    tools: list[tuple[Tool, ToolBody]] = []
    held: set[str] = set()
    for toolset in agent.toolsets:
        asks = _asks_for_approval(toolset)
        for name, found in _list_tools(toolset, calls.make_context(deps)).items():
            definition = found.tool_def
            _refuse_kind(definition)
            tools.append((_describe_tool(definition), calls.body(toolset, name)))
            if asks or definition.kind == "unapproved":
                held.add(name)
    return AgentTools(tools, frozenset(held))


def _refuse_native_tools(agent: Any) -> None:
    for native in agent.root_capability.get_native_tools():
        if not getattr(native, "optional", False):
            what = f"the provider's own tool {getattr(native, 'kind', type(native).__name__)!r}"
            why = "the provider runs it, so the runtime cannot hold, record or repeat it; use a function tool"
            raise AdapterUnsupportedError(_NAME, what, why)


def _asks_for_approval(toolset: Any) -> bool:
    """Whether calls of this toolset ask for approval.

    Raises:
        AdapterUnsupportedError: it holds something that is no set of functions.
    """
    sets = import_framework("pydantic_ai.toolsets", "pydantic-ai")
    leaves: list[Any] = []
    toolset.apply(leaves.append)
    for leaf in leaves:
        if not isinstance(leaf, sets.FunctionToolset):
            why = "its tools are known only once a run has begun; give them to the runtime as tools of its own"
            raise AdapterUnsupportedError(_NAME, f"the toolset {leaf.label}", why)
    while isinstance(toolset, sets.WrapperToolset):
        if isinstance(toolset, sets.ApprovalRequiredToolset):
            return True
        toolset = toolset.wrapped
    return False


def _list_tools(toolset: Any, context: Any) -> dict[str, Any]:
    """Return the tools of a set of functions by name.

    Raises:
        AdapterUnsupportedError: listing them waits, because a function that prepares one of them does.
    """
    listing: Coroutine[Any, Any, dict[str, Any]] = toolset.get_tools(context)
    try:
        listing.send(None)
    except StopIteration as done:
        found: dict[str, Any] = done.value
        return found
    listing.close()
    why = "one of its tools is prepared by something that waits; prepare it without waiting"
    raise AdapterUnsupportedError(_NAME, f"the toolset {toolset.label}", why)


def _refuse_kind(definition: Any) -> None:
    what = f"the tool {definition.name!r}"
    if definition.kind == "external":
        why = "it is run outside of the framework; give the runtime a tool of that name instead"
        raise AdapterUnsupportedError(_NAME, what, why)
    if definition.defer_loading:
        why = f"it loads late; use Harborage's tool_search with loading={Loading.DEFERRED.value!r} for that"
        raise AdapterUnsupportedError(_NAME, what, why)


def _describe_tool(definition: Any) -> Tool:
    return Tool(
        definition.name,
        description=definition.description or "",
        args_schema=definition.parameters_json_schema,
        source=_NAME,
    )


class _Calls:
    """Calls an agent's functions the way the framework does."""

    def __init__(self, agent: Any, deps_for: Callable[[Quadruple], Any], model: Any) -> None:
        self._agent = agent
        self._deps_for = deps_for
        self._chosen = model
        self._ai = import_framework("pydantic_ai", "pydantic-ai")
        self._errors = import_framework("pydantic_ai.exceptions", "pydantic-ai")
        self._core = import_framework("pydantic_core", "pydantic-ai")

    @functools.cached_property
    def _model(self) -> Any:
        """The model that a tool may read in its context, made only when a tool reads it."""
        models = import_framework("pydantic_ai.models", "pydantic-ai")
        chosen = self._chosen or self._agent.model
        return models.infer_model(chosen) if isinstance(chosen, str) else chosen

    def make_context(self, deps: Any, *, name: str | None = None, call: CallContext | None = None) -> Any:
        return self._ai.RunContext(
            deps=deps,
            model=None if call is None else self._model,
            usage=self._ai.RunUsage(),
            agent=self._agent,
            run_id=None if call is None else call.who.run_id,
            tool_name=name,
            tool_call_id=None if call is None else call.call_id,
            tool_call_approved=call is not None,
        )

    def body(self, toolset: Any, name: str) -> ToolBody:
        async def call(args: bytes, context: CallContext) -> ToolResult:
            inside = self.make_context(self._deps_for(context.who), name=name, call=context)
            tool = (await toolset.get_tools(inside)).get(name)
            if tool is None:
                raise AdapterToolError(f"tool {name!r} is hidden from this run by its agent")
            try:
                given = await self._validate(tool, args, inside)
                return self._result(await toolset.call_tool(name, given, inside, tool))
            except (self._errors.ModelRetry, self._errors.ToolFailed) as error:
                raise AdapterToolError(str(error) or type(error).__name__) from error
            except (self._errors.CallDeferred, self._errors.ApprovalRequired) as error:
                what = "left to another system" if isinstance(error, self._errors.CallDeferred) else "held for approval"
                raise AdapterToolError(
                    f"tool {name!r} asked in mid call to be {what}, which only its own framework can do; "
                    "declare the tool with requires_approval=True, or pause the run instead"
                ) from error

        return call

    async def _validate(self, tool: Any, args: bytes, context: Any) -> dict[str, Any]:
        try:
            given: dict[str, Any] = tool.args_validator.validate_json(args or b"{}")
        except self._core.ValidationError as error:
            # The input is left out: arguments may hold what a log must not.
            problems = error.errors(include_input=False, include_url=False)
            text = "; ".join(problem["msg"] for problem in problems)
            raise ToolInvalidArgsError(text, json_path(problems[0]["loc"])) from error
        if tool.args_validator_func is not None:
            checked = tool.args_validator_func(context, **given)
            if hasattr(checked, "__await__"):
                await checked
        return given

    def _result(self, value: Any) -> ToolResult:
        if not isinstance(value, self._ai.ToolReturn):
            return ToolResult(self._plain(value))
        shown = self._plain(value.return_value)
        if value.content is not None:
            # The framework shows this beside the result; here the model is shown the result alone.
            shown = {"result": shown, "content": self._plain(value.content)}
        return ToolResult(shown, None if value.metadata is None else {"metadata": self._plain(value.metadata)})

    def _plain(self, value: Any) -> Any:
        return value if isinstance(value, str) else self._core.to_jsonable_python(value)


def adapt_pydantic_ai(
    agent: Any,
    *,
    deps: Any = None,
    deps_for: Callable[[Quadruple], Any] | None = None,
    model: Any = None,
    usage_limits: Any = None,
    tool_options: Mapping[str, ToolOptions] | None = None,
) -> Adapted:
    """Adapt a `pydantic_ai.Agent`.

    `deps` are the agent's dependencies, the same for every run; `deps_for` makes them for one run instead. `model`
    stands in for the agent's own. `usage_limits` see the run's requests and tool calls so far, but only the tokens of
    one step. `tool_options` say what the framework does not, such as side effects, by tool.

    Raises:
        MissingExtraError: pydantic-ai is not installed.
        AdapterUnsupportedError: a part of the agent cannot be cut into steps; the message names it.
        InvalidConfigError: `tool_options` name a tool that the agent does not have.
    """
    import_framework("pydantic_ai", "pydantic-ai")
    require_sync(deps_for, "deps_for")
    given = (lambda who: deps) if deps_for is None else deps_for
    tools = read_tools(agent, given, deps, model)
    policies: dict[str, GatePolicy] = dict.fromkeys(tools.held, always_ask)
    turns = _Turns(agent, given, model, usage_limits, tools)
    return make_adapted(OneTurnPlanner(_NAME, turns.take), tools.bodies, policies, tool_options)


class _Turns:
    """Takes turns with one agent."""

    def __init__(
        self, agent: Any, deps_for: Callable[[Quadruple], Any], model: Any, usage_limits: Any, tools: AgentTools
    ) -> None:
        self._agent = agent
        self._deps_for = deps_for
        self._model = model
        self._limits = usage_limits
        self._own = frozenset(tool.name for tool, _ in tools.bodies)
        self._ai = import_framework("pydantic_ai", "pydantic-ai")
        self._capabilities = import_framework("pydantic_ai.capabilities", "pydantic-ai")

    async def take(self, run: RunContext, chunks: ChunkStream) -> Turn:
        usage: list[TurnUsage] = []
        async with self._agent.iter(
            message_history=to_history(build_messages(run)),
            deps=self._deps_for(run.quadruple),
            model=self._model,
            usage=self._count_usage(run),
            usage_limits=self._ai.UsageLimits(request_limit=None) if self._limits is None else self._limits,
            toolsets=self._foreign_toolsets(run),
            capabilities=[self._capabilities.ReinjectSystemPrompt(), self._hide_forbidden(run)],
            infer_name=False,
        ) as graph:
            node = graph.next_node
            while True:
                node = await self._advance_to_answer(graph, node, chunks)
                usage.append(_read_usage(node.model_response))
                turn = await self._judge(graph, node, usage)
                if isinstance(turn, Turn):
                    return turn
                node = turn
                chunks.restart()

    async def _advance_to_answer(self, graph: Any, node: Any, chunks: ChunkStream) -> Any:
        """Walk to the node that holds the model's answer; none of its calls has been made."""
        while not self._ai.Agent.is_call_tools_node(node):
            if chunks and self._ai.Agent.is_model_request_node(node) and _can_stream(graph.ctx.deps.model):
                async with node.stream(graph.ctx) as stream:
                    async for event in stream:
                        _pass_on(event, chunks)
            node = await graph.next(node)
        return node

    async def _judge(self, graph: Any, node: Any, usage: Sequence[TurnUsage]) -> Any:
        """Return the turn that an answer means, or the node that asks the model again for a valid output.

        Only output is processed here. Calls of function tools are removed before the framework could make them.
        """
        response = node.model_response
        calls = [part for part in response.tool_calls if not _is_output(graph, part)]
        has_output = len(calls) < len(response.tool_calls)
        asked = Turn(
            calls=[CallTool(call.tool_name, call.args_as_json_str().encode(), call.tool_call_id) for call in calls],
            text=response.text or "",
            reasoning=response.thinking or "",
            usage=tuple(usage),
        )
        if calls:
            # With any other strategy the framework, too, makes the calls that come beside an output.
            if not has_output or self._agent.end_strategy != "early":
                return asked
            removed = {id(call) for call in calls}
            node.model_response = replace(response, parts=[part for part in response.parts if id(part) not in removed])
        after = await graph.next(node)
        if self._ai.Agent.is_end_node(after):
            finish = make_finish(_to_plain(after.data.output), _NAME)
            return Turn(finish=finish, text=asked.text, reasoning=asked.reasoning, usage=asked.usage)
        return asked if calls else after

    def _count_usage(self, run: RunContext) -> Any:
        """Return what the run's steps so far count as in the framework's limits."""
        if self._limits is None or run.trajectory is None:
            return None
        steps = run.trajectory.steps
        calls = sum(len(s.action.branches) if isinstance(s.action, CallParallel) else 1 for s in steps)
        return self._ai.RunUsage(requests=len(steps), tool_calls=calls)

    def _foreign_toolsets(self, run: RunContext) -> Any:
        """Return the tools that this run may call and the agent does not have."""
        if run.catalog is None:
            return None
        definitions = [
            self._ai.ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=tool.args_schema or {"type": "object"},
            )
            for tool in run.catalog.list()
            if tool.name not in self._own
        ]
        return [self._ai.ExternalToolset(definitions)] if definitions else None

    def _hide_forbidden(self, run: RunContext) -> Any:
        """Return the capability that hides from the model the agent's tools that this run may not call."""
        own, catalog = self._own, run.catalog

        def select_visible(context: Any, definitions: list[Any]) -> list[Any]:
            if catalog is None:
                return definitions
            return [one for one in definitions if one.name not in own or catalog.resolve(one.name) is not None]

        return self._capabilities.PrepareTools(select_visible)


def _is_output(graph: Any, part: Any) -> bool:
    definition = graph.ctx.deps.tool_manager.get_tool_def(part.tool_name)
    return definition is not None and definition.kind == "output"


def _can_stream(model: Any) -> bool:
    """Whether a model can stream; the framework itself finds out only by an error in the middle of the step."""
    models = import_framework("pydantic_ai.models", "pydantic-ai")
    wrapped = getattr(model, "wrapped", None)
    if isinstance(wrapped, models.Model):
        return _can_stream(wrapped)
    is_function = hasattr(model, "stream_function")
    return type(model).request_stream is not models.Model.request_stream and not (
        is_function and model.stream_function is None
    )


def _pass_on(event: Any, chunks: ChunkStream) -> None:
    """Pass on a streamed piece of text or reasoning; pieces of calls are not passed on."""
    match getattr(event, "event_kind", ""):
        case "part_start":
            piece, kind = getattr(event.part, "content", None), event.part.part_kind
        case "part_delta":
            piece, kind = getattr(event.delta, "content_delta", None), event.delta.part_delta_kind
        case _:
            return
    if not isinstance(piece, str):
        return
    if kind == "text":
        chunks.add_text(piece)
    elif kind == "thinking":
        chunks.add_reasoning(piece)


def _to_plain(output: Any) -> Any:
    """Return the agent's output as JSON values, which a journal can keep."""
    if isinstance(output, str) or output is None:
        return output
    return import_framework("pydantic_core", "pydantic-ai").to_jsonable_python(output)


def _read_usage(response: Any) -> TurnUsage:
    usage = response.usage
    cost = getattr(usage, "cost", None)
    return TurnUsage(
        model=response.model_name or "",
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=int(usage.details.get("reasoning_tokens", 0) or 0),
        cost=None if cost is None else float(cost),
    )


def to_history(messages: Sequence[ChatMessage]) -> list[Any]:
    """Return one pydantic-ai message for each chat message; the framework joins those that belong together."""
    kinds = import_framework("pydantic_ai.messages", "pydantic-ai")
    return [_as_message(message, kinds) for message in messages]


def _as_message(message: ChatMessage, kinds: Any) -> Any:
    match message.role:
        case Role.ASSISTANT:
            return _response(message, kinds)
        case Role.TOOL:
            part = kinds.ToolReturnPart(
                message.name or "", render_text(message), tool_call_id=message.tool_call_id or ""
            )
            return kinds.ModelRequest(parts=[part])
        case _:
            return kinds.ModelRequest(
                parts=[kinds.UserPromptPart(convert_content(message, lambda part: _user_part(part, kinds)))]
            )


def _response(message: ChatMessage, kinds: Any) -> Any:
    text = render_text(message)
    parts: list[Any] = [kinds.TextPart(text)] if text else []
    parts += [
        kinds.ToolCallPart(call.name, call.args.decode("utf-8", "replace"), tool_call_id=call.id)
        for call in message.tool_calls
    ]
    return kinds.ModelResponse(parts=parts)


def _user_part(part: Any, kinds: Any) -> Any:
    match part:
        case ImagePart(data_url=data_url) if data_url:
            return kinds.BinaryContent.from_data_uri(data_url)
        case ImagePart(url=url) if url:
            return kinds.ImageUrl(url)
        case _:
            return render_stub(part)
