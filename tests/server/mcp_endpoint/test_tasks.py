"""Runs as tasks of MCP: the official client declares the extension, whose messages its own code sends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    CancelTaskRequest,
    CancelTaskRequestParams,
    CancelTaskResult,
    CreateTaskResult,
    ElicitRequest,
    ElicitResult,
    GetTaskPayloadRequest,
    GetTaskPayloadRequestParams,
    GetTaskRequest,
    GetTaskRequestParams,
    GetTaskResult,
    ListTasksRequest,
    ListTasksResult,
    PaginatedRequestParams,
    Request,
    Result,
    TaskMetadata,
)

from harborage import Agent, Runtime, tool
from harborage.server.mcp_endpoint.tasks import EXTENSION
from harborage.testing.llm import ScriptedLLM, calls_tools
from tests.kit.mcp_client import mcp_client, on_socket
from tests.kit.wire import BEN, EVE, WITHIN_S

pytestmark = pytest.mark.anyio


@tool(effects="external", approval="always")
async def refund(order: str, euros: int) -> str:
    """Refund an order."""
    return f"refunded {euros} for {order}"


ASKS = (calls_tools(("refund", {"order": "A-1", "euros": 5})), "Done.")


class Created(Result):
    """The answer to a call that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None


class GetTask(Request[GetTaskRequestParams, Literal["tasks/get"]]):
    """Asks how a task stands."""

    method: Literal["tasks/get"] = "tasks/get"
    params: GetTaskRequestParams
    name_param = "taskId"


class CancelTask(Request[GetTaskRequestParams, Literal["tasks/cancel"]]):
    """Cancels a task."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: GetTaskRequestParams
    name_param = "taskId"


class Answers(GetTaskRequestParams):
    """What a person answered, by the keys of the requests."""

    input_responses: dict[str, ElicitResult]


class UpdateTask(Request[Answers, Literal["tasks/update"]]):
    """Sends what a person answered."""

    method: Literal["tasks/update"] = "tasks/update"
    params: Answers
    name_param = "taskId"


class Raw(Result, extra="allow"):
    """Whatever was answered."""


async def get(session: Any, task: str) -> dict[str, Any]:
    """How a task stands, as it came."""
    request = GetTask(params=GetTaskRequestParams(task_id=task))
    async with asyncio.timeout(WITHIN_S):
        found = await session.send_request(request, Raw)
    told: dict[str, Any] = found.model_dump(by_alias=True)
    return told


async def until(session: Any, task: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """How a task stands once something is so."""
    async with asyncio.timeout(WITHIN_S):
        while not is_so(found := await get(session, task)):
            pass
    return found


async def answer(session: Any, task: str, token: str, **content: Any) -> None:
    """Answer what a task asks."""
    said = {token: ElicitResult(action="accept", content=content)}
    await session.send_request(UpdateTask(params=Answers(task_id=task, input_responses=said)), Raw)


async def cancel(session: Any, task: str) -> None:
    """Cancel a task."""
    await session.send_request(CancelTask(params=GetTaskRequestParams(task_id=task)), Raw)


class Tasks(ClientExtension):
    """Follows a task to its end; `seen` are the tasks that it was given."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.seen: list[Created] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """The answer that it takes in place of a result."""
        return (ResultClaim(result_type="task", model=Created, resolve=self._resolve),)

    async def _resolve(self, created: Created, context: ClaimContext) -> CallToolResult:
        self.seen.append(created)
        while True:
            task = await get(context.session, created.task_id)
            for token, asked in task.get("inputRequests", {}).items():
                assert ElicitRequest.model_validate(asked).params.message
                await answer(context.session, created.task_id, token, approved=True)
            if task["status"] == "completed":
                return CallToolResult.model_validate(task["result"])
            await asyncio.sleep(0)


async def never(_: Any, __: Any) -> ElicitResult:
    """A person whom nothing is asked outside of tasks."""
    raise AssertionError("asked outside of a task")


def with_tasks(tasks: Tasks) -> dict[str, Any]:
    """The options of a client that takes tasks, and can ask a person."""
    return {"mode": "auto", "extensions": [tasks], "elicitation_callback": never}


def support(*script: Any) -> Any:
    """An agent whose model says these lines."""
    return Agent("support", model=ScriptedLLM(script), tools=[refund])


async def test_a_call_becomes_a_task_and_its_question_is_answered_there() -> None:
    """The id is that of the run, which outlives the task's reader; the result is that of the call."""
    tasks = Tasks()
    async with (
        Runtime([support(*ASKS)]) as runtime,
        on_socket(runtime) as url,
        mcp_client(url, **with_tasks(tasks)) as client,
    ):
        async with asyncio.timeout(WITHIN_S):
            result = await client.call_tool("run_support", {"goal": "refund"})
        assert result.structured_content["output"] == "Done."
        (created,) = tasks.seen
        assert (created.status, created.ttl_ms) == ("working", None)
        assert result.structured_content["run_id"] == created.task_id
        done = await get(client.session, created.task_id)
        assert (done["status"], done["result"]["isError"]) == ("completed", False)
        await answer(client.session, created.task_id, "unknown", approved=True)  # nobody asked it: ignored
        await cancel(client.session, created.task_id)  # it has ended: nothing to do


async def test_a_task_can_be_cancelled_and_is_its_callers_own() -> None:
    """Others are told that there is none."""
    tasks = Tasks()
    async with (
        Runtime([support(*ASKS)]) as runtime,
        on_socket(runtime) as url,
        mcp_client(url, **with_tasks(tasks)) as client,
    ):
        created = await client.session.call_tool("run_support", {"goal": "x"}, allow_claimed=True)
        assert isinstance(created, Created)
        for who in (BEN, EVE):
            async with mcp_client(url, who, **with_tasks(Tasks())) as other:
                for attempt in (get(other.session, created.task_id), cancel(other.session, created.task_id)):
                    with pytest.raises(MCPError, match="no such task"):
                        await attempt
        await cancel(client.session, created.task_id)
        await until(client.session, created.task_id, lambda task: task["status"] == "cancelled")


async def test_a_client_without_the_extension_gets_results() -> None:
    """As before: the call waits, and the server's tasks are no concern of it."""
    async with Runtime([support("hello")]) as runtime, on_socket(runtime) as url, mcp_client(url) as client:
        result = await client.call_tool("run_support", {"goal": "hi"})
        assert result.structured_content["output"] == "hello"


async def test_a_client_that_asks_nobody_is_told_how_to_answer() -> None:
    """Its task works on, with a message; a run that fails is a result that says so."""
    tasks = Tasks()
    async with (
        Runtime([support(*ASKS)]) as runtime,
        on_socket(runtime) as url,
        mcp_client(url, mode="auto", extensions=[tasks]) as client,
    ):
        created = await client.session.call_tool("run_support", {"goal": "x"}, allow_claimed=True)
        task = await until(client.session, created.task_id, lambda task: "statusMessage" in task)
        assert (task["status"], task["statusMessage"]) == ("working", "answer_run answers it")
    async with (
        Runtime([support(RuntimeError("gone"))]) as runtime,
        on_socket(runtime) as url,
        mcp_client(url, **with_tasks(tasks)) as client,
    ):
        result = await client.call_tool("run_support", {"goal": "x"})
        assert result.is_error


# ── Before tasks were an extension ────────────────────────────────────────────────────────────────────────────────────


async def start_before(client: Any, goal: str = "x") -> Any:
    """Call the agent as a task, as the revision 2025-11-25 does."""
    params = CallToolRequestParams(name="run_support", arguments={"goal": goal}, task=TaskMetadata(ttl=60_000))
    return (await client.session.send_request(CallToolRequest(params=params), CreateTaskResult)).task


async def get_before(client: Any, task: str) -> Any:
    """How a task stands, in the words of 2025-11-25."""
    request = GetTaskRequest(params=GetTaskRequestParams(task_id=task))
    return await client.session.send_request(request, GetTaskResult)


async def test_a_call_says_itself_that_it_shall_be_a_task() -> None:
    """In 2025-11-25: the server says that it can, and the result is asked for apart."""
    async with (
        Runtime([support("hello")]) as runtime,
        on_socket(runtime) as url,
        mcp_client(url, mode="legacy") as client,
    ):
        assert client.session.protocol_version == "2025-11-25"
        assert client.server_capabilities.tasks.requests.tools.call is not None
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert tools["run_support"].execution.task_support == "optional"
        assert tools["run_status"].execution is None
        task = await start_before(client)
        request = GetTaskPayloadRequest(params=GetTaskPayloadRequestParams(task_id=task.task_id))
        async with asyncio.timeout(WITHIN_S):
            result = await client.session.send_request(request, CallToolResult)
        assert result.structured_content["output"] == "hello"
        assert result.meta["io.modelcontextprotocol/related-task"] == {"taskId": task.task_id}
        done = await get_before(client, task.task_id)
        assert (done.status, done.ttl, done.poll_interval) == ("completed", None, 1_000)
        listed = await client.session.send_request(ListTasksRequest(params=PaginatedRequestParams()), ListTasksResult)
        assert [one.task_id for one in listed.tasks] == [task.task_id]
        bad = ListTasksRequest(params=PaginatedRequestParams(cursor="x"))
        with pytest.raises(MCPError, match="cursor"):
            await client.session.send_request(bad, ListTasksResult)


async def test_a_task_of_before_can_be_answered_and_cancelled() -> None:
    """It says that it waits, and how to answer; others have no such task."""
    async with (
        Runtime([support(*ASKS)]) as runtime,
        on_socket(runtime) as url,
        mcp_client(url, mode="legacy") as client,
    ):
        first, second = await start_before(client), await start_before(client)
        async with asyncio.timeout(WITHIN_S):
            while (seen := await get_before(client, first.task_id)).status != "input_required":
                pass
        assert seen.status_message == "answer_run answers it"
        answered = await client.call_tool("answer_run", {"run_id": first.task_id, "approved": True})
        assert answered.structured_content["output"] == "Done."
        request = CancelTaskRequest(params=CancelTaskRequestParams(task_id=second.task_id))
        assert (await client.session.send_request(request, CancelTaskResult)).status == "cancelled"
        with pytest.raises(MCPError, match="has ended"):
            await client.session.send_request(request, CancelTaskResult)
        async with mcp_client(url, BEN, mode="legacy") as other:
            with pytest.raises(MCPError, match="no such task"):
                await get_before(other, first.task_id)
        params = CallToolRequestParams(name="list_runs", arguments={}, task=TaskMetadata())
        with pytest.raises(MCPError, match="only calls of an agent"):
            await client.session.send_request(CallToolRequest(params=params), CreateTaskResult)
