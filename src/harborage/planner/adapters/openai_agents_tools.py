"""The tools and handoffs of openai-agents agents as tools of this runtime.

The framework validates the arguments and calls the function; when, how often and whether is the runtime's business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.planner.adapters.model import GatePolicy, always_ask, framework
from harborage.planner.adapters.openai_agents_roster import Roster, handed_over
from harborage.tools import CallContext, SideEffect, Tool, ToolBody, ToolInvalidArgsError, ToolResult

if TYPE_CHECKING:
    from harborage.identity import Quadruple

__all__ = ["Calls"]

_NAME = "openai_agents"


class Calls:
    """Calls the functions of a roster's agents the way the framework does."""

    def __init__(self, roster: Roster, context_for: Callable[[Quadruple], Any]) -> None:
        self._roster = roster
        self._context_for = context_for
        self._agents = framework("agents", "openai-agents", "the openai-agents adapter")
        self._context = framework("agents.tool_context", "openai-agents", "the openai-agents adapter")
        self._module = framework("agents.tool", "openai-agents", "the openai-agents adapter")
        self._core = framework("pydantic_core", "openai-agents", "the openai-agents adapter")

    def tools(self) -> Sequence[tuple[Tool, ToolBody]]:
        """Every function tool and every handoff of the roster."""
        functions = [(_tool(one), self._function(_outspoken(one))) for one in self._roster.tools.values()]
        handoffs = [(_handoff(one), self._handover(one)) for one in self._roster.handoffs.values()]
        return [*functions, *handoffs]

    def policies(self) -> dict[str, GatePolicy]:
        """An approval policy for each tool that asks for approval."""
        return {
            name: self._asking(tool) if callable(tool.needs_approval) else always_ask
            for name, tool in self._roster.tools.items()
            if tool.needs_approval
        }

    def _asking(self, tool: Any) -> GatePolicy:
        """The tool's own question whether this call needs approval; arguments it cannot read need it always."""

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

    def _inside(self, name: str, args: bytes, call: CallContext) -> Any:
        return self._context.ToolContext(
            context=self._context_for(call.who),
            usage=self._agents.Usage(),
            tool_name=name,
            tool_call_id=call.call_id or call.idempotency_key,
            tool_arguments=args.decode("utf-8", "replace"),
            agent=self._roster.owners[name],
        )

    def _function(self, tool: Any) -> ToolBody:
        async def call(args: bytes, context: CallContext) -> ToolResult:
            inside = self._inside(tool.name, args, context)
            try:
                value = await self._module.invoke_function_tool(
                    function_tool=tool, context=inside, arguments=inside.tool_arguments
                )
            except self._agents.ModelBehaviorError as error:
                raise ToolInvalidArgsError(str(error)) from error
            return ToolResult(value if isinstance(value, str) else self._core.to_jsonable_python(value))

        return call

    def _handover(self, handoff: Any) -> ToolBody:
        async def call(args: bytes, context: CallContext) -> ToolResult:
            inside = self._inside(handoff.tool_name, args, context)
            given = inside.tool_arguments if handoff.input_json_schema else ""
            try:
                target = await handoff.on_invoke_handoff(inside, given)
            except self._agents.ModelBehaviorError as error:
                raise ToolInvalidArgsError(str(error)) from error
            return ToolResult(handed_over(target))

        return call


def _outspoken(tool: Any) -> Any:
    """The tool with failures that are failures: by default the framework makes them texts that look like results.

    A text that the tool's author wrote for the model stays.
    """
    changes: dict[str, Any] = {}
    if tool._use_default_failure_error_function:
        changes |= {"_use_default_failure_error_function": False, "_failure_error_function": None}
    if tool.timeout_error_function is None:
        changes["timeout_behavior"] = "raise_exception"
    return dataclasses.replace(tool, **changes)


def _tool(tool: Any) -> Tool:
    return Tool(tool.name, description=tool.description, args_schema=tool.params_json_schema, source=_NAME)


def _handoff(handoff: Any) -> Tool:
    return Tool(
        handoff.tool_name,
        description=handoff.tool_description,
        args_schema=handoff.input_json_schema or {"type": "object", "properties": {}},
        source=_NAME,
        tags=("handoff",),
        side_effects=SideEffect.STATEFUL,
    )
