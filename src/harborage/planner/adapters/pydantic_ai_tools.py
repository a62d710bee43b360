"""The tools of a pydantic-ai agent as tools of this runtime: their schemas, and bodies that call its own code.

The framework validates the arguments and calls the function with its `RunContext`; the runtime decides when, how often
and whether.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.planner.adapters.base import AdapterToolError, AdapterUnsupportedError, import_framework
from harborage.tools import CallContext, Loading, Tool, ToolBody, ToolInvalidArgsError, ToolResult
from harborage.tools.errors import json_path

if TYPE_CHECKING:
    from harborage.identity import Quadruple

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
