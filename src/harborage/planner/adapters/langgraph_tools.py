"""The tools of a langgraph agent as tools of this runtime: their schemas, and bodies that call its own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.planner.adapters.langgraph_messages import text_of
from harborage.planner.adapters.model import AdapterToolError, framework
from harborage.tools import CallContext, Tool, ToolBody, ToolInvalidArgsError, ToolResult

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.planner.adapters.langgraph_shape import Shape

__all__ = ["Calls"]

_NAME = "langgraph"


class Calls:
    """Calls an agent's tools the way its tools node does."""

    def __init__(self, shape: Shape, context_for: Callable[[Quadruple], Any], config: dict[str, Any]) -> None:
        self._shape = shape
        self._context_for = context_for
        self._config = config
        self._prebuilt = framework("langgraph.prebuilt", "langgraph", "the langgraph adapter")
        self._core = framework("pydantic_core", "langgraph", "the langgraph adapter")

    def tools(self) -> Sequence[tuple[Tool, ToolBody]]:
        """Every tool of the agent."""
        return [(_tool(tool), self._body(tool)) for tool in self._shape.by_name.values()]

    def _body(self, tool: Any) -> ToolBody:
        async def call(args: bytes, context: CallContext) -> ToolResult:
            config = {**self._config, "configurable": {"thread_id": context.who.run_id}}
            wanted = {"name": tool.name, "args": _object(args), "id": _id(context), "type": "tool_call"}
            try:
                answer = await tool.ainvoke(self._completed(wanted, context, config, tool), config)
            except self._core.ValidationError as error:
                problems = error.errors(include_input=False, include_url=False)
                raise ToolInvalidArgsError("; ".join(f"{_path(one)}: {one['msg']}" for one in problems)) from error
            return self._result(tool.name, answer)

        return call

    def _completed(self, call: dict[str, Any], context: CallContext, config: dict[str, Any], tool: Any) -> Any:
        """The call with what the framework injects into it; what a model forged of that is taken out."""
        runtime = self._prebuilt.ToolRuntime(
            state=_NoState(),
            context=self._context_for(context.who),
            config=config,
            stream_writer=_unheard,
            tool_call_id=call["id"],
            store=None,
            tools=list(self._shape.by_name.values()),
        )
        return self._shape.tools._inject_tool_args(call, runtime, tool)

    def _result(self, name: str, answer: Any) -> ToolResult:
        if getattr(answer, "type", "") != "tool":
            raise AdapterToolError(
                f"tool {name!r} gave a {type(answer).__name__}, which steers the graph it was written for; "
                "it has run, and nothing came of it: return a value instead"
            )
        said = answer.content if isinstance(answer.content, str) else self._core.to_jsonable_python(answer.content)
        if answer.status == "error":
            raise AdapterToolError(text_of(answer) or f"tool {name!r} failed")
        artifact = answer.artifact
        return ToolResult(said, None if artifact is None else {"artifact": self._core.to_jsonable_python(artifact)})


class _NoState(dict[str, Any]):
    """Stands where a tool expects the graph's state: there is no graph around the tool when the runtime calls it."""

    def __missing__(self, key: str) -> Any:
        raise AdapterToolError(
            f"the graph's state is not there when the runtime calls a tool; nobody knows its {key!r}"
        )

    def get(self, key: str, default: Any = None) -> Any:
        return self[key]


def _unheard(piece: Any) -> None:
    """Nobody reads what a tool streams."""


def _tool(tool: Any) -> Tool:
    functions = framework("langchain_core.utils.function_calling", "langgraph", "the langgraph adapter")
    described = functions.convert_to_openai_tool(tool)["function"]
    return Tool(
        tool.name,
        description=described.get("description", ""),
        args_schema=described.get("parameters", {}),
        source=_NAME,
    )


def _object(args: bytes) -> dict[str, Any]:
    try:
        given = codec.decode(args) if args.strip() else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ToolInvalidArgsError("the arguments are no JSON") from error
    if not isinstance(given, dict):
        raise ToolInvalidArgsError("the arguments are no object")
    return given


def _id(context: CallContext) -> str:
    return context.call_id or context.idempotency_key or "call"


def _path(problem: Mapping[str, Any]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem["loc"])
