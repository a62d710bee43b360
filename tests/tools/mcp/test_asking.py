"""Servers that ask a person: the run waits, and the call goes on with the answer, in this process or another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError as ProtocolError

from harborage import Agent, Identity, Runtime
from harborage.testing import call, script
from harborage.tools.inputs import InputNeeded
from harborage.tools.mcp.asking import needed_of, why_not_asked, why_not_visited
from harborage.tools.mcp.errors import MCPRequestError
from harborage.tools.mcp.options import MCP
from harborage.tools.sources import ToolLimits
from tests.kit.mcp_peers import at_an_address, listed, python_server

pytestmark = pytest.mark.anyio

WHO = Identity("acme", "ada", "s-1")
PLAIN = python_server("plain")
WITHIN_S = 30
CANARY = "state-canary-7f3a"
SIZE = {"type": "object", "properties": {"size": {"type": "string"}}, "required": ["size"]}


class Shop:
    """A modern server whose tool asks for a size before it orders. `orders` are the sizes that were ordered."""

    def __init__(self, schema: dict[str, Any] = SIZE) -> None:
        self.orders: list[Any] = []
        self.is_forgetful = False
        self._schema = schema

    async def _list(self, ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[listed("order", "Order a shirt.")])

    async def _call(self, ctx: Any, params: types.CallToolRequestParams) -> Any:
        if not params.input_responses:
            asked = types.ElicitRequestFormParams(message="Which \x1b[31msize?", requested_schema=self._schema)
            requests: Any = {"size": types.ElicitRequest(params=asked)}
            return types.InputRequiredResult(input_requests=requests, request_state=CANARY)
        if self.is_forgetful or params.request_state != CANARY:
            raise ProtocolError(types.INVALID_PARAMS, "Invalid or expired requestState")
        answer = params.input_responses["size"]
        assert isinstance(answer, types.ElicitResult)
        if answer.action != "accept" or answer.content is None:
            return types.CallToolResult(content=[types.TextContent(text=f"not ordered: {answer.action}")])
        self.orders.append(answer.content["size"])
        return types.CallToolResult(content=[types.TextContent(text=f"ordered {answer.content['size']}")])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server: Server[Any] = Server("shop", on_list_tools=self._list, on_call_tool=self._call)
        async with at_an_address(server) as url:
            yield url


def files_of(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.rglob("*") if file.is_file()]


async def test_a_question_is_answered_by_another_process(tmp_path: Path) -> None:
    """The run waits in the store; a runtime that opens later takes the answer, and the tool runs once."""
    shop, url = Shop(), f"sqlite:{tmp_path / 'runs.db'}"
    async with asyncio.timeout(WITHIN_S), shop.open() as address:
        server = MCP("shop", url=address)
        agent = Agent("clerk", tools=[server], model=script(call("shop_order"), "Done."))
        async with Runtime([agent], storage=url) as runtime:
            run = await runtime.start(agent, "Order", who=WHO)
            pending = await run.wait_pending()
            assert "shop asks: Which size?" in pending.question
            run_id = run.id
        assert shop.orders == []
        async with Runtime([agent], storage=url) as runtime:
            run = runtime.get(run_id, who=WHO)
            pending = await run.wait_pending()
            await pending.answer({"size": "M"})
            result = await run.result()
            assert "ordered M" in str(result.messages)
    assert shop.orders == ["M"]
    assert not [file for file in files_of(tmp_path) if CANARY.encode() in file]


@pytest.mark.parametrize(("decide", "says"), [("reject", "not ordered: decline"), ("forget", "too late")])
async def test_a_refusal_is_an_answer_and_a_lost_question_an_error(decide: str, says: str) -> None:
    """The server learns that the person declined; a state that it does not know any more is said, and nothing made."""
    shop = Shop()
    async with asyncio.timeout(WITHIN_S), shop.open() as address:
        agent = Agent("clerk", tools=[MCP("shop", url=address)], model=script(call("shop_order"), "Done."))
        async with Runtime([agent]) as runtime:
            run = await runtime.start(agent, "Order", who=WHO)
            pending = await run.wait_pending()
            if decide == "reject":
                await pending.reject("no")
            else:
                shop.is_forgetful = True
                await pending.answer({"size": "M"})
            assert says in str((await run.result()).messages)
    assert shop.orders == []


async def test_a_form_that_asks_for_a_secret_is_put_to_nobody() -> None:
    """It is declined, and the model sees why."""
    shop = Shop({"type": "object", "properties": {"api_key": {"type": "string"}}})
    async with asyncio.timeout(WITHIN_S), shop.open() as address:
        agent = Agent("clerk", tools=[MCP("shop", url=address)], model=script(call("shop_order"), "Done."))
        async with Runtime([agent]) as runtime:
            run = await runtime.start(agent, "Order", who=WHO)
            result = await run.result()
    assert "asks for a secret (api_key)" in str(result.messages)


async def test_a_server_of_before_asks_on_its_connection() -> None:
    """Each of two runs that ask at once gets the answer to its own question."""
    async with asyncio.timeout(WITHIN_S):
        agents = [
            Agent(f"clerk{number}", tools=[MCP("plain", command=PLAIN)],
                  model=script(call("plain_ask", message=f"Which of {number}?"), "Done."))
            for number in range(2)
        ]  # fmt: skip
        async with Runtime(agents) as runtime:
            runs = [await runtime.start(one, "Ask", who=WHO) for one in agents]
            for number, run in enumerate(runs):
                pending = await run.wait_pending()
                assert f"Which of {number}?" in pending.question
                await pending.answer({"size": f"size {number}"})
            for number, run in enumerate(runs):
                said = str((await run.result()).messages)
                assert f"size {number}" in said
                assert f"size {1 - number}" not in said


async def test_a_question_on_a_connection_has_a_deadline() -> None:
    """When nobody answers in time, the server learns that it was cancelled."""
    server = MCP("plain", command=PLAIN, elicitation_timeout=timedelta(milliseconds=200))
    agent = Agent("clerk", tools=[server], model=script(call("plain_ask"), "Done."))
    async with asyncio.timeout(WITHIN_S), Runtime([agent]) as runtime:
        run = await runtime.start(agent, "Ask", who=WHO)
        assert "cancel" in str((await run.result()).messages)


def test_what_nobody_is_asked() -> None:
    """Forms with secrets, and addresses that no person is sent to."""
    assert why_not_asked({"properties": {"x": {"type": "string", "format": "password"}}})
    assert why_not_asked({"properties": {"accessToken": {"type": "string"}}})
    assert not why_not_asked(SIZE)
    assert why_not_visited("http://example.org/")
    assert why_not_visited("https://127.0.0.1/x")
    assert why_not_visited("javascript:alert(1)")
    assert not why_not_visited("https://example.org/pay")


def test_a_server_that_asks_without_end_is_refused() -> None:
    """Ten rounds are the most, and 64 KB are the most that is kept for it."""
    limits, state = ToolLimits(), types.InputRequiredResult(request_state="x" * 70_000)
    with pytest.raises(MCPRequestError, match="has asked 10 times"):
        needed_of(types.InputRequiredResult(request_state="x"), "shop", "order", round=11, limits=limits)
    with pytest.raises(MCPRequestError, match="65,536 bytes"):
        needed_of(state, "shop", "order", round=1, limits=limits)
    assert "canary" not in repr(InputNeeded("shop", "order", state="canary"))
