"""Runs as tasks of the Model Context Protocol, for clients that declare the extension of it (revision 2026-07-28).

A call of an agent then answers at once with a task, whose id is that of the run; the client asks how it stands, sends
what a person answers, and cancels. The library has no part of its own for this, so results are plain data.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from harborage.errors import NotFoundError
from harborage.runtime.durable.engine import RunEndedError
from harborage.runtime.durable.pauses.errors import PauseError
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


def takes_tasks(context: Any, modern: Any) -> bool:
    """Whether the client of a request takes a task in place of a result."""
    capabilities = context.session.client_capabilities
    declared = None if capabilities is None else capabilities.extensions
    return context.protocol_version in modern and EXTENSION in (declared or {})


class McpTasks:
    """Answers `tasks/get`, `tasks/update` and `tasks/cancel` for one caller.

    `result_of` makes the result of a call of a run that has ended, `form_of` the form of a question, and `take` answers
    one as a person said.
    """

    def __init__(
        self,
        desk: Desk,
        *,
        result_of: Callable[[RunView], Any],
        form_of: Callable[[Question], Any],
        take: Callable[[Run[Any], Question, Any], Awaitable[bool]],
    ) -> None:
        self._types: Any = import_module("mcp_types")
        self._errors: Any = import_module("mcp.shared.exceptions")
        self._desk = desk
        self._result_of = result_of
        self._form_of = form_of
        self._take = take

    def add_to(self, server: Any) -> None:
        """Serve the methods, and say so to clients."""
        create_model: Any = import_module("pydantic").create_model
        params = self._types.GetTaskRequestParams
        mapping: Any = dict
        responses = mapping[str, self._types.ElicitResult]
        update = create_model("UpdateTaskRequestParams", __base__=params, input_responses=(responses, {}))
        server.extensions[EXTENSION] = {}
        for method, kind, handler in (
            ("tasks/get", params, self._get),
            ("tasks/update", update, self._update),
            ("tasks/cancel", params, self._cancel),
        ):
            server.add_request_handler(method, kind, handler)

    async def created(self, run: Run[Any]) -> dict[str, Any]:
        """Return a run as the answer to the call that started it."""
        view = await self._desk.view(run)
        return {"resultType": "task", **await self._task(run, _STATUSES[view.status])}

    async def _get(self, context: Any, params: Any) -> dict[str, Any]:
        run = await self._run(params.task_id)
        view = await self._desk.view(run)
        if view.status in ("completed", "failed"):
            result = self._result_of(view).model_dump(by_alias=True, mode="json", exclude_none=True)
            return {**await self._task(run, _STATUSES[view.status]), "result": result}
        if view.status == "waiting" and _can_ask(context):
            questions = await open_questions(run)
            asked = {one.token: self._request(one) for one in questions}
            if asked:
                return {**await self._task(run, "input_required"), "inputRequests": asked}
        told = {"statusMessage": view.next} if view.status == "waiting" else {}
        return {**await self._task(run, _STATUSES[view.status]), **told}

    async def _update(self, _: Any, params: Any) -> dict[str, Any]:
        run = await self._run(params.task_id)
        for token, said in params.input_responses.items():
            try:
                await self._take(run, await self._desk.question(run, token), said)
            except (NotFoundError, PauseError, AnsweredBeforeError):
                continue  # what nobody asked, or somebody else has answered, is no error of the client
            except AnswerUnfitError as error:
                raise self._errors.MCPError(self._types.INVALID_PARAMS, str(error)) from error
        return {}

    async def _cancel(self, _: Any, params: Any) -> dict[str, Any]:
        run = await self._run(params.task_id)
        with suppress(RunEndedError):
            await run.cancel(hard=True)
        return {}

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

    def _request(self, question: Question) -> dict[str, Any]:
        made = self._types.ElicitRequest(params=self._form_of(question))
        dumped: dict[str, Any] = made.model_dump(by_alias=True, mode="json", exclude_none=True)
        return dumped


def _can_ask(context: Any) -> bool:
    capabilities = context.session.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None
