"""The suite of tool transports accepts one that keeps every promise, and notices one that breaks any of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from harborage.testing.conformance.checks import ConformanceError
from harborage.testing.conformance.tools import (
    PEER_TOOLS,
    SCENARIOS,
    Ability,
    Peer,
    PeerError,
    Scenario,
    check,
    run_conformance,
)
from harborage.tools import CallContext, Tool, ToolDescriptor, ToolResult, Transport, describe_tool
from harborage.tools.errors import ToolUnansweredError

pytestmark = pytest.mark.anyio

LONGEST = 1 << 20


class RefusedError(Exception):
    """The peer has failed the call; `error_class` is what it said of it."""

    def __init__(self, text: str, error_class: str) -> None:
        self.error_class = error_class
        super().__init__(text)


class Lines:
    """A transport: a connection for each call, a line of JSON there and one back."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def tools(self) -> list[ToolDescriptor]:
        return [self.described(one) for one in await self.ask({"list": True})]

    def described(self, listed: dict[str, Any]) -> ToolDescriptor:
        return describe_tool(Tool(transport=Transport.FLOW, **listed), partial(self.call, listed["name"]))

    async def call(self, name: str, args: bytes, call: CallContext) -> ToolResult:
        request = {"call": name, "args": json.loads(args), "key": call.idempotency_key}
        return ToolResult(await self.ask(request))

    async def ask(self, request: dict[str, Any]) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=LONGEST)
        try:
            writer.write(json.dumps(request).encode() + b"\n")
            line = await reader.readline()
        finally:
            writer.transport.abort()
        if not line:
            raise ToolUnansweredError("the connection was lost")
        return self.read(json.loads(line))

    def read(self, answer: dict[str, Any]) -> Any:
        if "error" in answer:
            raise RefusedError(answer["error"], answer["class"])
        return answer["value"]


class Bench:
    """The transport beside a server of its protocol."""

    without: frozenset[Ability] = frozenset()

    def __init__(self, tools: list[ToolDescriptor], peer: Peer, server: LineServer) -> None:
        self.tools = tools
        self.peer = peer
        self._server = server

    async def disconnect(self) -> None:
        await self._server.aclose()

    async def aclose(self) -> None:
        await self._server.aclose()


class LineServer:
    """Offers the tools of the suite, and hands each call to the peer until its caller hangs up."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.connections: set[asyncio.Task[None]] = set()
        self.server: asyncio.Server | None = None

    async def start(self) -> int:
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0, limit=LONGEST)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def aclose(self) -> None:
        server, self.server = self.server, None
        if server is None:
            return
        server.close()
        for one in self.connections:
            one.cancel()
        if self.connections:
            await asyncio.wait(self.connections)
        await server.wait_closed()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self.serve(reader, writer))
        self.connections.add(task)
        task.add_done_callback(partial(self.end, writer))

    def end(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        """Hang up, also on a caller whose task was cancelled before it began."""
        self.connections.discard(task)
        writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        working: asyncio.Task[Any] | None = None
        try:
            line = await reader.readline()
            if not line.endswith(b"\n"):
                return  # the caller gave up before it had asked
            working = asyncio.create_task(self.answer(json.loads(line)))
            hung_up = asyncio.create_task(reader.read())
            await asyncio.wait([working, hung_up], return_when=asyncio.FIRST_COMPLETED)
            hung_up.cancel()
            if working.done():
                writer.write(json.dumps(working.result()).encode() + b"\n")
                await writer.drain()
            with suppress(asyncio.CancelledError):
                await hung_up
        except ConnectionError:
            pass  # the caller hung up
        finally:
            if working is not None and not working.done():
                working.cancel()
                await asyncio.wait([working])

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "list" in request:
            kept = ("name", "description", "args_schema", "side_effects")
            return {"value": [{name: getattr(one, name) for name in kept} for one in PEER_TOOLS]}
        try:
            return {"value": await self.peer.call(request["call"], request["args"], request["key"])}
        except PeerError as error:
            return {"error": str(error), "class": error.error_class}


Opener = Callable[[], Any]


def opener(
    make: Callable[[int], Lines] = Lines, change: Callable[[ToolDescriptor], ToolDescriptor] | None = None
) -> Any:
    """Opens benches for a transport, with each of its tools changed."""

    async def open_bench() -> Bench:
        peer = Peer()
        server = LineServer(peer)
        tools = await make(await server.start()).tools()
        return Bench([one if change is None else change(one) for one in tools], peer, server)

    return open_bench


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_transport_keeps_its_promises(scenario: Scenario) -> None:
    """Each scenario passes for a transport over real sockets."""
    await check(scenario, opener())


def as_read(one: ToolDescriptor) -> ToolDescriptor:
    """Every tool as if it changed nothing."""
    return replace(one, tool=replace(one.tool, side_effects="read"))


def in_process(one: ToolDescriptor) -> ToolDescriptor:
    """Every tool as if it were of this process."""
    return replace(one, tool=replace(one.tool, transport=Transport.INPROCESS))


def unchecked(one: ToolDescriptor) -> ToolDescriptor:
    """Every tool without a look at its arguments."""
    return replace(one, validate_args=None)


class Keyless(Lines):
    """Leaves the key out."""

    async def call(self, name: str, args: bytes, call: CallContext) -> ToolResult:
        return await super().call(name, args, replace(call, idempotency_key=""))


class Hopeful(Lines):
    """Tries again whatever has failed, and says that all of it may pass."""

    async def ask(self, request: dict[str, Any]) -> Any:
        try:
            return await super().ask(request)
        except RefusedError as error:
            raise RefusedError(str(error), "transient") from error


class Resigned(Lines):
    """Says of no failure that it may pass."""

    def read(self, answer: dict[str, Any]) -> Any:
        return super().read({**answer, "class": "permanent"})


class Silent(Lines):
    """Keeps to itself why the peer refused."""

    def read(self, answer: dict[str, Any]) -> Any:
        return super().read({**answer, "error": "failed"} if "error" in answer else answer)


class OneAtATime(Lines):
    """Has one connection for all callers: who waits holds up the others."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.lock = asyncio.Lock()

    async def ask(self, request: dict[str, Any]) -> Any:
        async with self.lock:
            return await super().ask(request)


class Detached(Lines):
    """Goes on with a call that its caller has given up."""

    async def ask(self, request: dict[str, Any]) -> Any:
        if request.get("call") != "wait":
            return await super().ask(request)
        going_on = asyncio.ensure_future(super().ask(request))
        going_on.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(going_on)


class Promising(Lines):
    """Says of every lost connection that nothing has happened."""

    async def ask(self, request: dict[str, Any]) -> Any:
        try:
            return await super().ask(request)
        except ToolUnansweredError as error:
            error.had_no_effect = True  # type: ignore[attr-defined]
            raise


@pytest.mark.parametrize(
    ("open_bench", "promise"),
    [
        (opener(change=in_process), "says how it is reached"),
        (opener(change=as_read), "a tool that writes is declared so"),
        (opener(change=unchecked), "expected ToolInvalidArgsError"),
        (opener(Keyless), "the keys"),
        (opener(Hopeful), "a refusal"),
        (opener(Resigned), "an overload"),
        (opener(Silent), "the error says what the peer said"),
        (opener(Promising), "had an effect"),
    ],
    ids=["in-process", "harmless", "unchecked", "keyless", "hopeful", "resigned", "silent", "promising"],
)
async def test_a_broken_promise_is_found(open_bench: Opener, promise: str) -> None:
    """One error names what a transport does not do."""
    with pytest.raises(ExceptionGroup) as caught:
        await run_conformance(open_bench)
    assert any(promise in str(error) for error in caught.value.exceptions), caught.value.exceptions


@pytest.mark.parametrize(("make", "promise"), [(OneAtATime, "did not end"), (Detached, "the caller has given up")])
async def test_a_transport_that_hangs_is_found(
    make: Callable[[int], Lines], promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that ends too late, or never, is a broken promise and no test without an end."""
    monkeypatch.setattr("harborage.testing.conformance.tools._PATIENCE_S", 2.0)
    broken: list[str] = []
    for scenario in SCENARIOS:
        with suppress(ExceptionGroup):
            try:
                await check(scenario, opener(make))
            except ConformanceError as error:
                broken.append(str(error))
    assert any(promise in one for one in broken), broken


async def test_what_a_protocol_does_not_have_is_left_out() -> None:
    """A bench without keys is not asked for them."""

    async def open_bench() -> Bench:
        bench: Bench = await opener(Keyless)()
        bench.without = frozenset({Ability.KEY})
        return bench

    await run_conformance(open_bench)
