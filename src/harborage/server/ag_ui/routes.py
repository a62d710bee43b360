"""`POST /v1/ag-ui` and `POST /v1/ag-ui/{agent}`: who asks, what is refused, and the stream of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from harborage.concurrency import CancelScope, Crew
from harborage.errors import error_reason
from harborage.server.ag_ui.errors import RefusedError, refusal
from harborage.server.ag_ui.events import RunError, Sent, frame
from harborage.server.ag_ui.inputs import MAX_BODY, read_input
from harborage.server.ag_ui.serving import Threads
from harborage.server.http import read_body, with_session

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from harborage.server.ag_ui.inputs import Asked
    from harborage.server.ag_ui.serving import Going
    from harborage.server.auth.gate import Gate
    from harborage.server.services import Services

_SESSION: Final = "x-harbor-session"
_NO_SESSION: Final = "ag-ui"
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_KEEPALIVE: Final = b": keep-alive\n\n"
_LEAST_KEEPALIVE_S: Final = 0.05
_SEND_S: Final = 60.0


class AgUiRoutes:
    """Serves AG-UI. Its paths are no methods of the protocol, and refusals are of its own shape."""

    def __init__(self, services: Services, gate: Gate) -> None:
        self._services = services
        self._gate = gate
        self._threads = Threads(services)
        self._open: set[CancelScope] = set()
        self._is_draining = False

    def __len__(self) -> int:
        """How many streams are open."""
        return len(self._open)

    def drain(self) -> None:
        """End every stream with a RUN_ERROR that says so; the runs go on."""
        self._is_draining = True
        for scope in tuple(self._open):
            scope.cancel()

    def routes(self) -> list[Route]:
        """The routes, for a server."""
        return [
            Route("/v1/ag-ui", self._run, methods=["POST"]),
            Route("/v1/ag-ui/{agent}", self._run, methods=["POST"]),
        ]

    async def _run(self, request: Request) -> Response:
        try:
            named = request.headers.get(_SESSION, "").strip()
            caller = await self._gate.verify(with_session(request, _NO_SESSION))
            asked = read_input(await read_body(request, MAX_BODY, self._services))
            thread = asked.input.thread_id
            if named and named != thread:
                raise RefusedError(message="threadId and the header X-Harbor-Session name two sessions; send one")
            if self._is_draining:
                raise RefusedError(503, "server_stopping", "the server stops; send the request again")
            who = replace(caller.who, session_id=thread)
            going = await self._threads.begin(request.path_params.get("agent", ""), asked, who)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except Exception as error:  # noqa: BLE001 - every failure is answered, and logged where nobody expected it
            return refusal(error, self._services.logger)
        return _Stream(self, going, asked)

    async def send(self, going: Going, asked: Asked, receive: Receive, send: Send) -> None:
        """Send the events of a run until it ends or asks, the client leaves, or the server stops."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        writer = _Writer(send)
        crew = Crew(lambda name, error: self._services.logger.debug("%s: %s", name, error_reason(error)))
        scope, is_gone, is_done = CancelScope(), asyncio.Event(), False
        self._open.add(scope)
        if self._is_draining:
            scope.cancel()
        try:
            with scope:
                crew.start(_watch(receive, scope, is_gone), "a stream of AG-UI")
                crew.start(writer.keep_alive(self._services.options.keepalive), "a stream of AG-UI")
                await writer.write_all(self._threads.stream(going, asked))
                is_done = True
        except OSError:  # also a TimeoutError: the client reads no more
            return
        finally:
            await crew.aclose()
            self._open.discard(scope)
            going.close()
        if is_gone.is_set():
            return
        if not is_done:
            text = "the server stops, and the run goes on; send the same request again"
            await writer.write(frame(RunError(message=text, code="server_stopping")))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Stream(Response):
    """The answer to a request that runs."""

    def __init__(self, routes: AgUiRoutes, going: Going, asked: Asked) -> None:
        super().__init__()
        self._routes = routes
        self._going = going
        self._asked = asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._routes.send(self._going, self._asked, receive, send)


class _Writer:
    """Writes the frames of one stream, each whole and in time."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = asyncio.Lock()

    async def write_all(self, events: AsyncGenerator[Sent, None]) -> None:
        """Write events as they come.

        Raises:
            OSError: the client is gone, or does not read.
        """
        async with aclosing(events):
            async for one in events:
                await self.write(frame(one))

    async def write(self, body: bytes) -> None:
        """Write one frame, as `write_all` does."""
        async with self._lock, asyncio.timeout(_SEND_S):
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def keep_alive(self, seconds: float) -> None:
        """Write a comment every so many seconds, so that nothing on the way ends a silent stream."""
        while True:
            await asyncio.sleep(max(seconds, _LEAST_KEEPALIVE_S))
            await self.write(_KEEPALIVE)


async def _watch(receive: Receive, scope: CancelScope, is_gone: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    is_gone.set()
    scope.cancel()
