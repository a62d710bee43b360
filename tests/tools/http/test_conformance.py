"""HTTP tools keep what every transport of tools promises."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from harborage.identity import Identity
from harborage.testing.conformance.tools import (
    PEER_TOOLS,
    SCENARIOS,
    Ability,
    Peer,
    PeerError,
    Scenario,
    check,
)
from harborage.tools import ErrorClass, OpenAPI, ToolDescriptor
from harborage.tools.sources import OpenSource, SourceServices
from tests.kit.http_peer import Cut, Request, Response, Served, peer

pytestmark = pytest.mark.anyio


def document() -> dict[str, Any]:
    """The tools of the suite as an OpenAPI document."""
    paths: dict[str, Any] = {}
    for tool in PEER_TOOLS:
        is_read = not tool.has_effects
        operation: dict[str, Any] = {"operationId": tool.name, "description": tool.description}
        if tool.name == "echo":
            operation["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": {"type": "object", **tool.args_schema}}},
            }
        paths[f"/{tool.name}"] = {"get" if is_read and tool.name != "echo" else "post": operation}
    return {"openapi": "3.1.0", "paths": paths}


class Bench:
    """OpenAPI tools beside a server of them."""

    without: frozenset[Ability] = frozenset()

    def __init__(self, suite: Peer) -> None:
        self.peer = suite
        self.tools: Sequence[ToolDescriptor[Any]] = ()
        self._stack = AsyncExitStack()
        self._served: Served | None = None
        self._server = AsyncExitStack()

    async def open(self) -> Bench:
        served = self._served = await self._server.enter_async_context(peer(self.answer))
        source = OpenAPI(
            document(), name="p", base_url=served.url, rename={f"p_{one.name}": one.name for one in PEER_TOOLS}
        )
        opened: OpenSource = source.open(SourceServices())
        self._stack.push_async_callback(opened.aclose)
        self.tools = await opened.list_tools(Identity("t", "u", "s").with_run("r"))
        return self

    async def answer(self, request: Request) -> Response | Cut:
        args = request.query | (request.json if request.body else {})
        try:
            value = await self.peer.call(request.path[1:], args, request.headers.get("idempotency-key", ""))
        except PeerError as error:
            status = 400 if error.error_class is ErrorClass.PERMANENT else 503
            return Response(status, msgspec.json.encode({"error": str(error)}))
        return Response(200, value)

    async def disconnect(self) -> None:
        if self._served is not None:
            self._served.drop()
        await self._server.aclose()

    async def aclose(self) -> None:
        await self._stack.aclose()
        await self._server.aclose()


async def open_bench() -> Bench:
    return await Bench(Peer()).open()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
async def test_every_promise_of_a_transport_is_kept(scenario: Scenario) -> None:
    """One test for each scenario of the suite."""
    async with asyncio.timeout(60):
        await check(scenario, open_bench)
