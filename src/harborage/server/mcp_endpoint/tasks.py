"""Runs as tasks of the Model Context Protocol: a call of an agent answers at once with a task, which is the run.

Since the revision 2026-07-28 that is an extension, which clients declare: they ask how a task stands, send what a
person answers, and cancel. In 2025-11-25 a call says itself that it shall be a task, and its result is asked for apart.
The library has no part of its own for either, so results are plain data.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from harborage.errors import NotFoundError
from harborage.runtime.durable.engine import RunEndedError, RunFailedError
from harborage.runtime.durable.pauses.errors import PauseError
from harborage.server.mcp_endpoint.arguments import ArgumentsError
from harborage.server.open_requests import done_within
from harborage.server.questions import AnsweredBeforeError, AnswerUnfitError, open_questions
from harborage.store.times import moment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harborage.runtime.pending import Question
    from harborage.runtime.run import Run
    from harborage.server.mcp_endpoint.desk import Desk, RunView

EXTENSION: Final = "io.modelcontextprotocol/tasks"

_POLL_MS: Final = 1_000
_STATUSES: Final = {
    "running": "working",
    "waiting": "working",
    "completed": "completed",
    "failed": "completed",  # a call that failed has a result, which says so
    "cancelled": "cancelled",
}
_BEFORE: Final = "2025-11-25"
_STATUSES_BEFORE: Final = {**_STATUSES, "waiting": "input_required", "failed": "failed"}
_CAPABILITY_BEFORE: Final[dict[str, Any]] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
_RELATED: Final = "io.modelcontextprotocol/related-task"
_PAGE: Final = 50
_CANCEL_S: Final = 5.0


def takes_tasks(context: Any, params: Any, modern: Any) -> bool:
    """Whether the client of a call takes a task in place of a result."""
    if _is_before(context):
        return params.task is not None
    capabilities = context.session.client_capabilities
    declared = None if capabilities is None else capabilities.extensions
    return context.protocol_version in modern and EXTENSION in (declared or {})


class McpTasks:
    """Answers the methods of tasks for one caller.

    `result_of` makes the result of a call of a run that has ended, `form_of` the form of a question, and `take` answers
    one as a person said. `result` waits for a run, and asks the person at the client meanwhile.
    """

    def __init__(
        self,
        desk: Desk,
        *,
        result_of: Callable[[RunView], Any],
        form_of: Callable[[Question], Any],
        take: Callable[[Run[Any], Question, Any], Awaitable[bool]],
        result: Callable[[Any, Run[Any]], Awaitable[Any]],
    ) -> None:
        self._types: Any = import_module("mcp_types")
        self._errors: Any = import_module("mcp.shared.exceptions")
        self._desk = desk
        self._result_of = result_of
        self._form_of = form_of
        self._take = take
        self._result = result
        self._made: dict[Any, dict[str, Any]] = {}

    def add_to(self, server: Any) -> None:
        """Serve the methods, and say so to clients."""
        create_model: Any = import_module("pydantic").create_model
        params = self._types.GetTaskRequestParams
        mapping: Any = dict
        responses = mapping[str, self._types.ElicitResult]
        update = create_model("UpdateTaskRequestParams", __base__=params, input_responses=(responses, {}))
        server.extensions[EXTENSION] = {}
        server.middleware.append(self._around)
        for method, kind, handler in (
            ("tasks/get", params, self._get),
            ("tasks/update", update, self._update),
            ("tasks/cancel", params, self._cancel),
            ("tasks/result", params, self._wait),
            ("tasks/list", self._types.PaginatedRequestParams, self._list),
        ):
            server.add_request_handler(method, kind, handler)

    async def _around(self, context: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Add what the library leaves out in 2025-11-25: that calls can be tasks, and the task in the answer to one."""
        try:
            answer = await call_next(context)
        finally:
            task = self._made.pop(context.request_id, None)
        if not isinstance(answer, dict):
            return answer
        if task is not None:
            return {**answer, "task": task}
        if context.method == "initialize" and answer.get("protocolVersion") == _BEFORE:
            return {**answer, "capabilities": {**answer.get("capabilities", {}), "tasks": _CAPABILITY_BEFORE}}
        return answer

    async def created(self, context: Any, run: Run[Any]) -> Any:
        """Return a run as the answer to the call that started it."""
        view = await self._desk.view(run)
        if _is_before(context):
            self._made[context.request_id] = await self._task_before(run, view)
            return self._types.CallToolResult(content=[])
        return {"resultType": "task", **await self._task(run, _STATUSES[view.status])}

    async def _get(self, context: Any, params: Any) -> dict[str, Any]:
        run = await self._run(params.task_id)
        view = await self._desk.view(run)
        if _is_before(context):
            return await self._task_before(run, view)
        if view.status in ("completed", "failed"):
            result = self._result_of(view).model_dump(by_alias=True, mode="json", exclude_none=True)
            return {**await self._task(run, _STATUSES[view.status]), "result": result}
        if view.status == "waiting" and _can_ask(context):
            questions = await open_questions(run)
            asked = {one.token: self._request(one) for one in questions}
            if asked:
                return {**await self._task(run, "input_required"), "inputRequests": asked}
        fields = {"statusMessage": view.next} if view.status == "waiting" else {}
        return {**await self._task(run, _STATUSES[view.status]), **fields}

    async def _wait(self, context: Any, params: Any) -> Any:
        """Return the result of a call, once its run has ended."""
        self._only_before(context)
        run = await self._run(params.task_id)
        result = await self._result(context, run)
        if not (await run.status()).phase.is_final:
            text = "the task goes on, or waits for an answer: ask tasks/get, and call answer_run"
            raise self._errors.MCPError(self._types.INVALID_REQUEST, text)
        dumped: dict[str, Any] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return {**dumped, "_meta": {**dumped.get("_meta", {}), _RELATED: {"taskId": run.id}}}

    async def _list(self, context: Any, params: Any) -> dict[str, Any]:
        """Return the newest runs of the session, a page at a time."""
        self._only_before(context)
        try:
            rows, cursor = await self._desk.page(params.cursor or "", _PAGE)
        except ArgumentsError as error:
            raise self._errors.MCPError(self._types.INVALID_PARAMS, str(error)) from error
        runs = [await self._desk.run(one.run_id) for one in rows]
        tasks = [await self._task_before(run, await self._desk.view(run)) for run in runs]
        return {"tasks": tasks, **({"nextCursor": cursor} if cursor else {})}

    def _only_before(self, context: Any) -> None:
        if not _is_before(context):
            raise self._errors.MCPError(self._types.METHOD_NOT_FOUND, "this method is of another revision")

    async def _update(self, context: Any, params: Any) -> dict[str, Any]:
        if _is_before(context):
            raise self._errors.MCPError(self._types.METHOD_NOT_FOUND, "this method is of another revision")
        run = await self._run(params.task_id)
        for token, said in params.input_responses.items():
            try:
                await self._take(run, await self._desk.question(run, token), said)
            except (NotFoundError, PauseError, AnsweredBeforeError):
                continue  # what was not asked, or is answered already, is no error of the client
            except AnswerUnfitError as error:
                raise self._errors.MCPError(self._types.INVALID_PARAMS, str(error)) from error
        return {}

    async def _cancel(self, context: Any, params: Any) -> dict[str, Any]:
        run = await self._run(params.task_id)
        is_before = _is_before(context)
        try:
            await run.cancel(hard=True)
        except RunEndedError as error:
            if is_before:
                raise self._errors.MCPError(self._types.INVALID_PARAMS, "the task has ended") from error
            return {}
        if not is_before:
            return {}
        await done_within(_end_of(run), _CANCEL_S)
        return await self._task_before(run, await self._desk.view(run))

    async def _run(self, task: str) -> Run[Any]:
        try:
            return await self._desk.run(task)
        except NotFoundError as error:
            raise self._errors.MCPError(self._types.INVALID_PARAMS, "there is no such task of yours") from error

    async def _task(self, run: Run[Any], status: str) -> dict[str, Any]:
        row = await self._desk.row(run)
        return {
            "taskId": run.id,
            "status": status,
            "createdAt": moment(row.created_at).isoformat().replace("+00:00", "Z"),
            "lastUpdatedAt": moment(row.updated_at).isoformat().replace("+00:00", "Z"),
            "ttlMs": None,
            "pollIntervalMs": _POLL_MS,
        }

    async def _task_before(self, run: Run[Any], view: RunView) -> dict[str, Any]:
        """A task as the revision 2025-11-25 spells it."""
        fields = await self._task(run, _STATUSES_BEFORE[view.status])
        fields["ttl"], fields["pollInterval"] = fields.pop("ttlMs"), fields.pop("pollIntervalMs")
        return {**fields, **({"statusMessage": view.next} if view.next and view.status == "waiting" else {})}

    def _request(self, question: Question) -> dict[str, Any]:
        made = self._types.ElicitRequest(params=self._form_of(question))
        dumped: dict[str, Any] = made.model_dump(by_alias=True, mode="json", exclude_none=True)
        return dumped


def _is_before(context: Any) -> bool:
    """Whether a client speaks the revision in which tasks are no extension."""
    return bool(context.protocol_version == _BEFORE)


async def _end_of(run: Run[Any]) -> None:
    with suppress(RunFailedError):
        await run.finished()


def _can_ask(context: Any) -> bool:
    capabilities = context.session.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None
