"""The Model Context Protocol around a desk: lists of tools, calls, progress, and questions to the person at a client.

The library is an extra and is loaded by the first request, so it is known here by name alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.errors import HarborageError, NotFoundError, error_text
from harborage.server.mcp_endpoint.arguments import MOST_WAIT_S, AnswerRun, RunAgent, StatusOfRun, tools_of
from harborage.server.mcp_endpoint.desk import Desk, RunView, ask_text
from harborage.server.mcp_endpoint.tasks import McpTasks, takes_tasks
from harborage.server.questions import open_questions, takes_verdict

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.host import Runtime
    from harborage.runtime.pending import Question
    from harborage.runtime.run import Run
    from harborage.server.mcp_endpoint.arguments import Arguments, ToolSpec

INSTALL: Final = "the MCP endpoint needs a library: pip install 'harborage[mcp]'"
_INSTRUCTIONS: Final = (
    "Each run_… tool runs one agent. A run that is still running, or waits for a person, is named by its run_id: "
    "run_status watches it, answer_run answers it, steer_run steers it."
)
_ANSWER: Final = "answer"
_MOST_QUESTIONS: Final = 100
_SIMPLE: Final = frozenset({"string", "number", "integer", "boolean"})
_VIEW_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "run_id": {"type": "string"},
        "status": {"enum": ["running", "waiting", "completed", "failed", "cancelled"]},
        "agent": {"type": "string"},
        "output": {"description": "What the run gave."},
        "error": {"type": "string"},
        "questions": {"type": "array", "items": {"type": "object"}},
        "next": {"type": "string"},
    },
    "required": ["run_id", "status"],
}


class Spoken:
    """An MCP server for one caller. `server` is the library's, to be run over a transport."""

    def __init__(self, runtime: Runtime, who: Identity, logger: logging.Logger) -> None:
        """Raises ImportError where the library is not installed."""
        from harborage import __version__

        self._types: Any = import_module("mcp_types")
        self._errors: Any = import_module("mcp.shared.exceptions")
        self._modern: Any = import_module("mcp_types.version").MODERN_PROTOCOL_VERSIONS
        self._desk = Desk(runtime, who)
        self._logger = logger
        roots = runtime.parts.agents.roots
        self._tools = tools_of((one.name, str(getattr(one.value, "description", "") or "")) for one in roots)
        self.server: Any = import_module("mcp.server.lowlevel").Server(
            "harborage",
            version=__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        self._tasks = McpTasks(
            self._desk,
            result_of=lambda view: self._result(msgspec.to_builtins(view), is_error=view.status == "failed"),
            form_of=self._form,
            take=self._take,
            result=self._finished,
        )
        self._tasks.add_to(self.server)

    async def _list_tools(self, _: Any, __: Any) -> Any:
        return self._types.ListToolsResult(tools=[self._tool(one) for one in self._tools.values()])

    def _tool(self, spec: ToolSpec) -> Any:
        return self._types.Tool(
            name=spec.name,
            description=spec.description,
            input_schema=spec.schema,
            output_schema=None if spec.name == "list_runs" else _VIEW_SCHEMA,
            annotations=self._types.ToolAnnotations(read_only_hint=spec.is_reading),
            execution=self._types.ToolExecution(task_support="optional") if spec.agent else None,
        )

    async def _call_tool(self, context: Any, params: Any) -> Any:
        spec = self._tools.get(params.name)
        if spec is None:
            raise self._errors.MCPError(self._types.INVALID_PARAMS, "there is no tool of this name")
        try:
            return await self._answer_call(context, params, spec)
        except NotFoundError:
            return self._result("there is no such run or question of yours", is_error=True)
        except HarborageError as error:
            return self._result(error_text(error), is_error=True)
        except Exception as error:
            if isinstance(error, self._errors.MCPError):
                raise
            self._logger.error("the MCP tool %s failed: %s", spec.name, type(error).__name__, exc_info=error)
            return self._result("the server failed; its log says why", is_error=True)

    async def _answer_call(self, context: Any, params: Any, spec: ToolSpec) -> Any:
        asked, report = spec.read(params.arguments), _Progress(context)
        if takes_tasks(context, params, self._modern):
            if isinstance(asked, RunAgent):
                return await self._tasks.created(context, await self._desk.start(spec.agent, asked.goal, asked.key))
            if params.task is not None:
                raise self._errors.MCPError(self._types.METHOD_NOT_FOUND, "only calls of an agent can be tasks")
        state = params.request_state
        view: RunView | list[RunView]
        if isinstance(state, str) and state and isinstance(asked, RunAgent | StatusOfRun | AnswerRun):
            view, asks = await self._answered(params, state, report, asked.wait_seconds)
        else:
            view, asks = await self._desk.do(spec.agent, asked, report), _waits(asked)
        if isinstance(view, list):
            return self._result({"runs": msgspec.to_builtins(view)})
        if view.status == "waiting" and asks:
            return await self._ask(context, view, report)
        return self._result(msgspec.to_builtins(view), is_error=view.status == "failed")

    # ── Questions to the person at the client ─────────────────────────────────────────────────────────────────────────

    async def _ask(self, context: Any, view: RunView, report: _Progress) -> Any:
        """Ask the person at a client that can, and go on with the run; else return how to answer."""
        capabilities = context.session.client_capabilities
        if capabilities is None or capabilities.elicitation is None:
            return self._result(msgspec.to_builtins(view))
        for _ in range(_MOST_QUESTIONS):
            run = await self._desk.run(view.run_id)
            questions = await open_questions(run)
            if not questions:
                break
            form = self._form(questions[0])
            if context.protocol_version in self._modern:
                return self._types.InputRequiredResult(
                    input_requests={_ANSWER: self._types.ElicitRequest(params=form)},
                    request_state=f"{run.id}:{questions[0].token}",
                )
            if not context.session.can_send_request:
                break
            try:
                async with asyncio.timeout(MOST_WAIT_S):
                    said = await context.session.elicit_form(form.message, form.requested_schema, context.request_id)
            except TimeoutError:
                break
            if not await self._take(run, questions[0], said):
                break
            view = await self._desk.watch(run, report, MOST_WAIT_S)
            if view.status != "waiting":
                break
        return self._result(msgspec.to_builtins(view), is_error=view.status == "failed")

    async def _finished(self, context: Any, run: Run[Any]) -> Any:
        """Wait for a run, and ask the person at the client meanwhile."""
        report = _Progress(context)
        view = await self._desk.watch(run, report, MOST_WAIT_S)
        if view.status == "waiting":
            return await self._ask(context, view, report)
        return self._result(msgspec.to_builtins(view), is_error=view.status == "failed")

    def _form(self, question: Question) -> Any:
        schema = (question.pause.payload or {}).get("schema")
        if takes_verdict(question):
            fields: dict[str, Any] = {
                "approved": {"type": "boolean", "title": "Approve"},
                "reason": {"type": "string", "title": "Reason"},
            }
            required = ["approved"]
        else:
            is_simple = isinstance(schema, dict) and schema.get("type") in _SIMPLE
            fields, required = {_ANSWER: {"type": schema["type"] if is_simple and schema else "string"}}, [_ANSWER]
        return self._types.ElicitRequestFormParams(
            message=ask_text(question),
            requested_schema={"type": "object", "properties": fields, "required": required},
        )

    async def _answered(self, params: Any, state: str, report: _Progress, seconds: float) -> tuple[RunView, bool]:
        """Take what a person answered to the call that comes again, and go on with its run.

        Who said nothing is not asked again.
        """
        run_id, _, token = state.partition(":")
        run = await self._desk.run(run_id)
        question = await self._desk.question(run, token)
        said = (params.input_responses or {}).get(_ANSWER)
        if said is None or not await self._take(run, question, said):
            return await self._desk.watch(run, report, 0), False
        return await self._desk.watch(run, report, seconds), True

    async def _take(self, run: Any, question: Question, said: Any) -> bool:
        """Answer a question as a person said; return False where nothing was said, so that the run still waits."""
        action, content = said.action, dict(said.content or {})
        if action == "decline" and takes_verdict(question):
            await self._desk.answer(run, question, {"approved": False, "reason": "declined"})
            return True
        if action != "accept":
            return False
        payload = content if takes_verdict(question) else content.get(_ANSWER)
        await self._desk.answer(run, question, payload)
        return True

    def _result(self, value: Mapping[str, Any] | str, *, is_error: bool = False) -> Any:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return self._types.CallToolResult(
            content=[self._types.TextContent(type="text", text=text)],
            structured_content=None if isinstance(value, str) else dict(value),
            is_error=is_error,
        )


def _waits(asked: Arguments) -> bool:
    return isinstance(asked, RunAgent) or (isinstance(asked, StatusOfRun | AnswerRun) and asked.wait_seconds > 0)


class _Progress:
    """Tells a client what its call's run does, where it wants to know."""

    def __init__(self, context: Any) -> None:
        self._session = context.session
        self._count = 0

    async def __call__(self, message: str) -> None:
        self._count += 1
        await self._session.report_progress(self._count, None, message)
