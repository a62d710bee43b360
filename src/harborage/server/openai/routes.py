"""The routes of this package: who asks, what fails, and the models that are the agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from harborage.server.http import json_response
from harborage.server.open_requests import ClientGoneError, OpenRequests, frame
from harborage.server.openai.chat import Chat
from harborage.server.openai.errors import RequestRefusedError, refusal_of
from harborage.server.openai.requests import read_fields
from harborage.server.openai.responses import Responses

if TYPE_CHECKING:
    from harborage.server.auth.gate import Gate
    from harborage.server.services import Services

_Handler = Callable[[Request], Awaitable[Response]]
OWNER: Final = "harborage"


class OpenAIRoutes:
    """Serves the paths of OpenAI's clients. They are no methods of the protocol, and errors have another shape."""

    def __init__(self, services: Services, gate: Gate) -> None:
        self._services = services
        self._gate = gate
        self.requests = OpenRequests(services, self._last_frame)
        self._chat = Chat(services, self.requests)
        self._responses = Responses(services, self.requests)

    def _last_frame(self, error: Exception) -> bytes:
        return frame(refusal_of(error, self._services.logger).body, "error") + b"data: [DONE]\n\n"

    def drain(self) -> None:
        """End the requests that wait for a run; the runs go on."""
        self.requests.drain()

    def routes(self) -> list[Route]:
        """The routes, for a server."""
        return [
            Route("/v1/models", self._guarded(self._models), methods=["GET"]),
            Route("/v1/models/{name:path}", self._guarded(self._model), methods=["GET"]),
            Route("/v1/chat/completions", self._guarded(self._complete), methods=["POST"]),
            Route("/v1/responses", self._guarded(self._respond), methods=["POST"]),
            Route("/v1/responses/{id}", self._guarded(self._response), methods=["GET", "DELETE"]),
            Route("/v1/responses/{id}/cancel", self._guarded(self._cancel), methods=["POST"]),
        ]

    def _guarded(self, handler: _Handler) -> _Handler:
        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except (ClientGoneError, ClientDisconnect):
                return Response(status_code=400)  # nobody reads it
            except Exception as error:  # noqa: BLE001 - every failure is answered, and logged where nobody expected it
                return refusal_of(error, self._services.logger).response()

        return answer

    async def _models(self, request: Request) -> Response:
        await self._gate.verify(request)
        return json_response({"object": "list", "data": [self._described(name) for name in self._names()]})

    async def _model(self, request: Request) -> Response:
        await self._gate.verify(request)
        name = str(request.path_params["name"])
        if name not in self._names():
            raise RequestRefusedError(
                404, "no agent of this name is served here", code="model_not_found", param="model"
            )
        return json_response(self._described(name))

    def _names(self) -> list[str]:
        return [one.name for one in self._services.parts.agents.roots]

    def _described(self, name: str) -> dict[str, Any]:
        created = int(self._services.started_at.timestamp())
        return {"id": name, "object": "model", "created": created, "owned_by": OWNER}

    async def _complete(self, request: Request) -> Response:
        caller, fields = await read_fields(self._services, self._gate, request)
        return await self._chat.complete(request, caller, fields)

    async def _respond(self, request: Request) -> Response:
        caller, fields = await read_fields(self._services, self._gate, request)
        return await self._responses.create(request, caller, fields)

    async def _response(self, request: Request) -> Response:
        caller = await self._gate.verify(request)
        if request.method == "DELETE":
            text = "a response is the record of a run, and is not deleted; POST …/cancel ends one that goes on"
            raise RequestRefusedError(405, text, code="method_not_allowed")
        return await self._responses.retrieve(request, caller, str(request.path_params["id"]))

    async def _cancel(self, request: Request) -> Response:
        caller = await self._gate.verify(request)
        return await self._responses.cancel(caller, str(request.path_params["id"]))
