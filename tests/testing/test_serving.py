"""A whole server for the tests of programs that speak the protocol."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from harborage import Agent, Identity, Runtime, tool
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.testing import call, script, serve

pytestmark = pytest.mark.anyio

ADA, BOB = Identity("acme", "ada", "s-1"), Identity("acme", "bob", "s-1")


@tool(effects="external", approval="always")
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


async def test_a_client_starts_and_steers_runs_of_a_server_in_the_test() -> None:
    """Each principal has a token of its own, and sees its own runs alone."""
    agent = Agent("payer", model=script(call("pay", euros=5), "Paid."), tools=[pay])
    async with Runtime([agent]) as runtime, serve(runtime) as served:
        async with served.connect(ADA) as remote, asyncio.timeout(30):
            run = await remote.start("Pay 5")
            await (await run.wait_pending()).approve()
            assert (await run.result()).output == "Paid."
        async with served.connect(BOB) as other:
            with pytest.raises(RunNotFoundError):
                await other.run(run.id, who=BOB)
        assert (await runtime.run(run.id, who=ADA)).id == run.id


async def test_a_request_without_its_token_is_refused() -> None:
    """It is the server that is deployed, not a part of it; it ends with the block."""
    agent = Agent("a", model=script("x"))
    async with Runtime([agent]) as runtime, serve(runtime) as served, httpx.AsyncClient() as client:
        url = f"{served.url}/v1/control/runtime.info"
        assert (await client.post(url, json={})).status_code == 401
        headers = {"Authorization": f"Bearer {served.token(ADA)}"}
        assert (await client.post(url, json={}, headers=headers)).status_code == 200
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.post(url, json={})
