"""`POST /v1/ag-ui` and `POST /v1/ag-ui/{agent}`: who asks, what is refused, and the stream of the answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from harborage.server.ag_ui.errors import RefusedError, refusal, refused
from harborage.server.ag_ui.events import frame
from harborage.server.ag_ui.inputs import MAX_BODY, read_input
from harborage.server.ag_ui.serving import Threads
from harborage.server.http import read_body, with_session
from harborage.server.open_requests import OpenRequests, ServerStoppingError

if TYPE_CHECKING:
    from harborage.server.ag_ui.inputs import Asked
    from harborage.server.ag_ui.serving import Going
    from harborage.server.auth.gate import Gate
    from harborage.server.services import Services

_SESSION: Final = "x-harbor-session"
_NO_SESSION: Final = "ag-ui"


class AgUiRoutes:
    """Serves AG-UI. Its paths are no methods of the protocol, and refusals are of its own shape."""

    def __init__(self, services: Services, gate: Gate) -> None:
        self._services = services
        self._gate = gate
        self._threads = Threads(services)
        self.requests = OpenRequests(services, self._last_frame)

    def drain(self) -> None:
        """End every stream with a RUN_ERROR that says so; the runs go on."""
        self.requests.drain()

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
            if self.requests.is_stopping:
                raise ServerStoppingError()
            who = replace(caller.who, session_id=thread)
            going = await self._threads.begin(request.path_params.get("agent", ""), asked, who)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except Exception as error:  # noqa: BLE001 - every failure is answered, and logged where nobody expected it
            return refusal(error, self._services.logger)
        return self.requests.stream(self._frames(going, asked), close=going.close)

    async def _frames(self, going: Going, asked: Asked) -> AsyncGenerator[bytes, None]:
        """Yield the events of a run until it ends or asks."""
        async with aclosing(self._threads.stream(going, asked)) as events:
            async for one in events:
                yield frame(one)

    def _last_frame(self, error: Exception) -> bytes:
        return frame(refused(error, self._services.logger)[1])
