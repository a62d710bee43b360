"""Runs whose tools are endpoints of a peer: doubt, waits, and what of a secret is written down anywhere."""

from __future__ import annotations

import asyncio
import base64
import logging
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
import pytest

from harborage import Agent, Identity, Runtime
from harborage.runtime.effects.options import RuntimeOptions
from harborage.secrets import secret
from harborage.testing import call, script
from harborage.testing.clock import FakeClock
from harborage.tools import HTTP, ApiKey, Bearer
from tests.kit.http_peer import Cut, Request, Response, peer

pytestmark = pytest.mark.anyio

ADA = Identity("acme", "ada", "s-1")
CANARY = "hunter2/canary+token"
WITHIN_S = 30


def snapshot(database: Path, copy: Path) -> str:
    """What a process leaves on disk that is killed now."""
    with (
        closing(apsw.Connection(str(database))) as source,
        closing(apsw.Connection(str(copy))) as target,
        target.backup("main", source, "main") as backup,
    ):
        while not backup.done:
            backup.step()
    return f"sqlite:{copy}"


def bytes_in(folder: Path) -> bytes:
    """All that the files of a folder hold."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_a_call_whose_connection_was_cut_is_unknown_and_sent_once() -> None:
    """The planner is told that nobody knows; the run goes on and ends well."""
    async with peer(lambda _request: Cut()) as served:
        note = HTTP("note", f"POST {served.url}/notes", args={"text": str})
        clerk = Agent("clerk", model=script(call("note", text="tea"), "Done."), tools=[note])
        result = await clerk.run("note tea")
        assert result.output == "Done."
        assert "whether it acted is unknown, so it is not called again" in str(result.messages)
        assert [one.json for one in served.asked] == [{"text": "tea"}]


@pytest.mark.parametrize("is_keyed", [True, False])
async def test_a_worker_that_is_killed_in_a_call_sends_it_again_only_with_a_declared_key(
    tmp_path: Path, is_keyed: bool
) -> None:
    """Another worker takes the run over: a keyed call has the key of the first, any other is unknown."""
    gate = asyncio.Event()

    async def handler(_request: Request) -> Response:
        await gate.wait()
        return Response(200, "noted")

    async with peer(handler) as served, asyncio.timeout(WITHIN_S):
        note = HTTP("note", f"POST {served.url}/notes", args={"text": str}, idempotent=is_keyed)

        def clerk(*lines: Any) -> Agent[Any, Any]:
            return Agent("clerk", model=script(*lines), tools=[note])

        database = tmp_path / "first.db"
        async with Runtime([clerk(call("note", text="tea"))], storage=f"sqlite:{database}") as first:
            run = await first.start("clerk", "note tea", who=ADA)
            await served.until(1)
            left = snapshot(database, tmp_path / "left.db")
            await run.cancel(hard=True)
        gate.set()
        async with Runtime([clerk("Done.")], storage=left) as second:
            result = await second.get(run.id, who=ADA).result()
        assert result.output == "Done."
        keys = [one.headers["idempotency-key"] for one in served.asked]
        assert len(keys) == (2 if is_keyed else 1)
        assert len({*keys}) == 1
        assert ("is unknown" in str(result.messages)) is not is_keyed


async def test_a_run_that_waits_long_for_a_peer_needs_no_memory(tmp_path: Path) -> None:
    """Two minutes that a peer asked for are a timer of the run; the call is made again then."""
    left = [Response(429, headers={"retry-after": "120"}), Response(200, {"orders": 3})]
    clock = FakeClock()
    options = RuntimeOptions(linger=timedelta())
    async with peer(lambda _request: left.pop(0)) as served, asyncio.timeout(WITHIN_S):
        orders = HTTP("orders", f"GET {served.url}/orders", effects="read")
        clerk = Agent("clerk", model=script(call("orders"), "Three."), tools=[orders])
        async with Runtime([clerk], storage=f"sqlite:{tmp_path}/runs.db", clock=clock, options=options) as runtime:
            run = await runtime.start("clerk", "how many?", who=ADA)
            await served.until(1)
            while runtime.parts.agents.live(run.id) is not None:
                clock.advance(0.001)
                await asyncio.sleep(0)
            assert len(served.asked) == 1
            clock.advance(121)
            result = await run.result()
        assert result.output == "Three."
        assert len(served.asked) == 2
        assert len({one.headers["idempotency-key"] for one in served.asked}) == 1


async def test_a_secret_is_written_down_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A peer repeats the token in every way: no event, record, prompt or log line at debug level has it."""
    monkeypatch.setenv("SHOP_TOKEN", CANARY)
    caplog.set_level(logging.DEBUG)
    encoded = base64.b64encode(f"user:{CANARY}".encode()).decode()
    forms = [CANARY, quote(CANARY, safe=""), base64.b64encode(CANARY.encode()).decode()]
    said = {"token": CANARY, "quoted": forms[1], "basic": encoded, "again": forms[2]}
    led = {"location": f"http://169.254.169.254/?token={CANARY}"}
    left = [Response(200, said), Response(400, said), Response(500, said), Response(302, headers=led)]
    async with peer(lambda _request: left.pop(0)) as served, asyncio.timeout(WITHIN_S):
        auth = Bearer(secret("env:SHOP_TOKEN"))
        key = ApiKey(secret("env:SHOP_TOKEN"), query="key")
        tools = [
            HTTP("find", f"GET {served.url}/orders/{{order}}", effects="read", auth=auth),
            HTTP("order", f"POST {served.url}/orders", auth=key),
        ]
        lines = [call("find", order="1"), call("find", order="2"), call("order"), call("find", order="3"), "Done."]
        model = script(*lines)
        storage = f"sqlite:{tmp_path}/runs.db"
        async with Runtime([Agent("clerk", model=model, tools=tools)], storage=storage) as runtime:
            run = await runtime.start("clerk", "look around", who=ADA)
            result = await run.result()
            events = [str(event) async for event in run.events()]
        assert len(served.asked) == 4
    written = bytes_in(tmp_path)
    seen = "\n".join([*events, str(result.messages), str(result), caplog.text, str(model)])
    for form in (*forms, "hunter2", encoded):
        assert form not in seen
        assert form.encode() not in written
    assert b"***" in written
