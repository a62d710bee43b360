"""Servers at an address: who calls, what is refused, how much is read, and a session that the server has lost."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest

from harborage.secrets import secret
from harborage.tools.auth import Bearer
from harborage.tools.mcp.errors import MCPAuthError, MCPRequestError
from harborage.tools.mcp.values import ConnectionState
from harborage.tools.sources import SourceServices, ToolLimits
from tests.kit.mcp_peers import listed, node_server, server_of
from tests.kit.sockets import serving
from tests.tools.mcp.conftest import Open

pytestmark = pytest.mark.anyio

TOKEN = "canary-token-4c81"
WITHIN_S = 30


class Door:
    """Lets requests with the token in to a server, while it is open."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.is_open = True
        self.seen: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        self.seen.append(headers.get("authorization", ""))
        if self.is_open and headers.get("authorization") == f"Bearer {TOKEN}":
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]})
        await send({"type": "http.response.body", "body": f"no: {self.seen[-1]}".encode()})


@asynccontextmanager
async def behind_a_door(**options: Any) -> AsyncIterator[tuple[str, Door]]:
    async def on_call(tool: str, args: Any, meta: Any) -> Any:
        text = "x" * args.get("bytes", 1)
        return types.CallToolResult(content=[types.TextContent(text=text)])

    app = server_of([listed("say")], on_call).streamable_http_app(**options)
    door = Door(app)
    async with app.router.lifespan_context(app), serving(door) as url:
        yield f"{url}/mcp", door


async def test_the_token_goes_with_each_request_and_a_401_is_no_effect(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that lets the caller in no more has done nothing; no text of it holds the token."""
    monkeypatch.setenv("CRM_TOKEN", TOKEN)
    async with asyncio.timeout(WITHIN_S), behind_a_door() as (url, door):
        async with opened("crm", url=url, auth=Bearer(secret("env:CRM_TOKEN"))) as server:
            assert await server.call("crm_say") == "x"
            assert set(door.seen) == {f"Bearer {TOKEN}"}
            door.is_open = False
            with pytest.raises(MCPAuthError, match="401") as refused:
                await server.call("crm_say")
            assert refused.value.had_no_effect
            assert TOKEN not in str(refused.value)
        async with opened("crm", url=url, auth=Bearer(secret("env:CRM_TOKEN"))) as server:
            with pytest.raises(MCPAuthError):
                await server.tools()
            assert server.source.status.state is ConnectionState.AUTH_PENDING


@pytest.mark.parametrize("json_response", [True, False])
async def test_an_answer_that_is_too_large_is_refused(
    opened: Open, monkeypatch: pytest.MonkeyPatch, json_response: bool
) -> None:
    """It is not read to its end, and the next call is served."""
    monkeypatch.setenv("CRM_TOKEN", TOKEN)
    services = SourceServices(limits=ToolLimits(result_bytes=50_000))
    auth = Bearer(secret("env:CRM_TOKEN"))
    async with (
        asyncio.timeout(WITHIN_S),
        behind_a_door(json_response=json_response) as (url, _),
        opened("crm", services, url=url, auth=auth) as server,
    ):
        with pytest.raises(Exception, match="crm") as refused:
            await server.call("crm_say", b'{"bytes": 200000}')
        if json_response:
            assert isinstance(refused.value, MCPRequestError)
            assert "50,000 bytes" in str(refused.value)
        assert await server.call("crm_say") == "x"


async def test_a_session_that_the_server_has_lost_is_made_anew(opened: Open) -> None:
    """A server of the older protocol that was restarted refused the call before any effect; it is made once more."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["env", f"PORT={port}", *node_server("everything", "streamableHttp")]
    async with asyncio.timeout(60):
        first = await started(command, port)
        async with opened("all", url=f"http://127.0.0.1:{port}/mcp") as server:
            assert await server.call("all_get-sum", b'{"a": 2, "b": 3}') == "The sum of 2 and 3 is 5."
            await ended(first)
            second = await started(command, port)
            try:
                assert await server.call("all_get-sum", b'{"a": 2, "b": 4}') == "The sum of 2 and 4 is 6."
            finally:
                await ended(second)


async def started(command: list[str], port: int) -> asyncio.subprocess.Process:
    """A server that listens."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    for _ in range(400):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return process
    raise AssertionError("the server does not listen")


async def ended(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()
