"""`POST /v1/a2a` and `POST /v1/a2a/{agent}`, and the cards: who asks, what is refused, and the stream of the answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from harborage.protocol.decoding import parse_body
from harborage.protocol.errors import ProtocolError
from harborage.server.a2a.card import CARD_PATH, PATH, card_of
from harborage.server.a2a.dialects import V03, V1, Dialect, Frames
from harborage.server.a2a.errors import (
    INVALID_REQUEST,
    PARSE,
    UNKNOWN_METHOD,
    VERSION,
    RpcError,
    bad_params,
    refusal_of,
)
from harborage.server.a2a.listing import list_tasks
from harborage.server.a2a.messages import ListParams, TaskParams, no_push, read_message, read_params
from harborage.server.a2a.tasks import Begun, Tasks
from harborage.server.http import CLOSE, PeerTooSlowError, json_response, own_address, read_body, with_session
from harborage.server.open_requests import ClientGoneError, OpenRequests, ServerStoppingError
from harborage.server.served import served_agent

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.effects.agent_parts import AgentParts
    from harborage.server.auth.gate import Gate
    from harborage.server.services import Services

MAX_BODY: Final = 8 * 1024 * 1024

_VERSION_HEADER: Final = "a2a-version"
_SESSION_HEADER: Final = "x-harbor-session"
_NO_SESSION: Final = "a2a"
"""The session of callers whose token and headers name none, until a message does."""
_CARD_HEADERS: Final = {"cache-control": "no-cache"}

_SEND: Final = "send"
_STREAM: Final = "stream"
_GET: Final = "get"
_LIST: Final = "list"
_CANCEL: Final = "cancel"
_SUBSCRIBE: Final = "subscribe"
_CARD: Final = "card"
_PUSH: Final = "push"
METHODS: Final[dict[str, tuple[Dialect, str]]] = {
    "SendMessage": (V1, _SEND),
    "SendStreamingMessage": (V1, _STREAM),
    "GetTask": (V1, _GET),
    "ListTasks": (V1, _LIST),
    "CancelTask": (V1, _CANCEL),
    "SubscribeToTask": (V1, _SUBSCRIBE),
    "GetExtendedAgentCard": (V1, _CARD),
    "CreateTaskPushNotificationConfig": (V1, _PUSH),
    "GetTaskPushNotificationConfig": (V1, _PUSH),
    "ListTaskPushNotificationConfigs": (V1, _PUSH),
    "DeleteTaskPushNotificationConfig": (V1, _PUSH),
    "message/send": (V03, _SEND),
    "message/stream": (V03, _STREAM),
    "tasks/get": (V03, _GET),
    "tasks/cancel": (V03, _CANCEL),
    "tasks/resubscribe": (V03, _SUBSCRIBE),
    "agent/getAuthenticatedExtendedCard": (V03, _CARD),
    "tasks/pushNotificationConfig/set": (V03, _PUSH),
    "tasks/pushNotificationConfig/get": (V03, _PUSH),
    "tasks/pushNotificationConfig/list": (V03, _PUSH),
    "tasks/pushNotificationConfig/delete": (V03, _PUSH),
}
"""The methods: how their version spells, and what they do."""


class _Asked(NamedTuple):
    """A request whose sender and form were checked; `session` is the one that its header names."""

    agent: AgentParts
    who: Identity
    session: str
    params: dict[str, Any]
    dialect: Dialect
    frames: Frames
    tasks: Tasks


class A2ARoutes:
    """Serves A2A. Its paths are no methods of the protocol, and refusals are those of JSON-RPC."""

    def __init__(self, services: Services, gate: Gate) -> None:
        self._services = services
        self._gate = gate
        self.requests = OpenRequests(services, lambda error: Frames(None, V1).last(self._refused(error).body))

    def drain(self) -> None:
        """End the requests that wait for a task; the tasks go on."""
        self.requests.drain()

    def routes(self) -> list[Route]:
        """The routes, for a server."""
        return [
            Route(CARD_PATH, self._card, methods=["GET"]),
            Route(f"{PATH}{CARD_PATH}", self._card, methods=["GET"]),
            Route(f"{PATH}/{{agent}}{CARD_PATH}", self._card, methods=["GET"]),
            Route(PATH, self._answer, methods=["POST"]),
            Route(f"{PATH}/{{agent}}", self._answer, methods=["POST"]),
        ]

    def _refused(self, error: Exception) -> RpcError:
        return refusal_of(error, self._services.logger)

    def _agent(self, request: Request) -> AgentParts:
        """Return the agent of a path, the first one where it names none.

        Raises:
            RpcError: none of this name is served.
        """
        agents = self._services.parts.agents
        name = request.path_params.get("agent")
        found = agents.roots[0] if name is None else served_agent(agents, name)
        if found is None:
            raise RpcError(INVALID_REQUEST, "no agent of this name is served here", status=404)
        return found

    async def _card(self, request: Request) -> Response:
        """Answer the public card of an agent, which needs no token."""
        try:
            return json_response(card_of(self._agent(request), self._base_url(request)), headers=_CARD_HEADERS)
        except Exception as error:  # noqa: BLE001 - every failure is answered, and logged where it is unexpected
            refused = self._refused(error)
            status = refused.status if refused.status != 200 else 500
            return json_response({"error": refused.body}, status)

    def _base_url(self, request: Request) -> str:
        options = self._services.options
        return options.base_url or own_address(request, options.origins)

    async def _answer(self, request: Request) -> Response:
        """Answer a request of JSON-RPC; a refusal and a failure are answers, too."""
        frames = Frames(None, V1)
        try:
            named = request.headers.get(_SESSION_HEADER, "").strip()
            caller = await self._gate.verify(request if named else with_session(request, _NO_SESSION))
            agent = self._agent(request)
            body = await read_body(request, MAX_BODY, self._services)
            call = _read_call(body)
            frames = Frames(_id_of(call), V1)
            dialect, does = _method(call, request.headers.get(_VERSION_HEADER, "").strip())
            frames = Frames(call.get("id"), dialect)
            params = _params(call, caller.who.tenant_id)
            asked = _Asked(
                agent, caller.who, named, params, dialect, frames, Tasks(self._services, self._base_url(request))
            )
            return await self._do(does, asked, request)
        except (ClientGoneError, ClientDisconnect):
            return Response(status_code=400)  # its peer is gone
        except Exception as error:  # noqa: BLE001 - every failure is answered, and logged where it is unexpected
            refused = self._refused(error)
            headers = {"www-authenticate": "Bearer"} if refused.status == 401 else {}
            headers |= CLOSE if isinstance(error, PeerTooSlowError) else {}
            return json_response(frames.error(refused.body), refused.status, headers)

    async def _do(self, does: str, asked: _Asked, request: Request) -> Response:
        agent, who, session, params, dialect, frames, tasks = asked
        if self.requests.is_stopping:
            raise ServerStoppingError()
        match does:
            case "send":
                return await self._send(asked, request)
            case "stream":
                begun = await tasks.begin(agent, read_message(params, dialect), who, session)
                return self._stream(begun, asked)
            case "subscribe":
                task = read_params(params, TaskParams).id
                return self._stream(await tasks.subscribed(agent, task, who, session), asked)
            case "get":
                task = read_params(params, TaskParams).id
                run, row = await tasks.find(agent, task, who, session)
                answer = dialect.task(await tasks.shown(run, row))
            case "cancel":
                work = tasks.cancel(agent, read_params(params, TaskParams).id, who, session)
                answer = dialect.task(await self.requests.hold(request.receive, work))
            case "list":
                listed = read_params(params, ListParams)
                if session and listed.context_id not in ("", session):
                    raise bad_params("contextId and the header X-Harbor-Session name two sessions; send one")
                answer = await list_tasks(self._services, tasks, agent, listed, who, dialect)
            case "card":
                answer = card_of(agent, self._base_url(request), is_extended=True)
            case _:
                raise no_push()
        return json_response(frames.result(answer))

    async def _send(self, asked: _Asked, request: Request) -> Response:
        """Answer a message with its task: once it ends or asks, or at once where the peer does not wait."""
        message = read_message(asked.params, asked.dialect)
        begun = await asked.tasks.begin(asked.agent, message, asked.who, asked.session)
        try:
            if message.waits:
                task = await self.requests.hold(request.receive, asked.tasks.waited(begun))
            else:
                task = await asked.tasks.stands(begun.going.run, begun.problem)
        finally:
            begun.close()
        return json_response(asked.frames.result(asked.dialect.sent(task)))

    def _stream(self, begun: Begun, asked: _Asked) -> Response:
        def last(error: Exception) -> bytes:
            return asked.frames.last(self._refused(error).body)

        async def frames_of_stream() -> AsyncGenerator[bytes, None]:
            async with aclosing(asked.tasks.updates(begun)) as updates:
                async for update in updates:
                    yield asked.frames.update(update)

        return self.requests.stream(frames_of_stream(), close=begun.close, last_frame=last)


def _read_call(body: bytes) -> dict[str, Any]:
    """Return a request of JSON-RPC.

    Raises:
        RpcError: it is none, or several.
    """
    if body.lstrip().startswith(b"["):
        raise RpcError(INVALID_REQUEST, "send one request at a time, not a batch")
    try:
        return parse_body(body)
    except ProtocolError as error:
        raise RpcError(PARSE, error.body.message) from error


def _id_of(call: dict[str, Any]) -> str | int | None:
    """Return what names a request in its answer.

    Raises:
        RpcError: it is no text and no number.
    """
    given = call.get("id")
    if isinstance(given, bool) or not isinstance(given, str | int | None):
        raise RpcError(INVALID_REQUEST, "id: a text, a whole number, or null")
    return given


def _method(call: dict[str, Any], version: str) -> tuple[Dialect, str]:
    """Return how a request is answered, and what it wants.

    Raises:
        RpcError: it is of another protocol or version, or there is no such method.
    """
    name = call.get("method")
    if call.get("jsonrpc") != "2.0" or not isinstance(name, str):
        raise RpcError(INVALID_REQUEST, 'a request has "jsonrpc": "2.0" and a method')
    found = METHODS.get(name)
    if found is None:
        raise RpcError(UNKNOWN_METHOD, "there is no such method in A2A 1.0 and 0.3")
    if version and not _is_of(version, found[0]):
        raise RpcError(VERSION, f"this method is of A2A {found[0].version}; send that in the header A2A-Version")
    return found


def _is_of(version: str, dialect: Dialect) -> bool:
    """Whether a header names the version of a dialect, or, from 1.0 on, one of the same major number."""
    parts, own = version.split("."), dialect.version.split(".")
    return parts[:1] == own[:1] and (own[0] != "0" or parts[:2] == own)


def _params(call: dict[str, Any], tenant: str) -> dict[str, Any]:
    """Return the parameters of a request.

    Raises:
        RpcError: they are no object, or name another tenant.
    """
    params = call.get("params")
    if params is None:
        return {}
    if not isinstance(params, dict):
        raise bad_params("params: an object")
    if params.get("tenant") not in (None, "", tenant):
        raise bad_params("tenant: not that of the token; leave it out")
    return params
