"""The one order of checks of every POST, and the call of the method's endpoint.

Path and verb are the router's; then the token, the method, the cap of the body, its JSON and fields, the identity in
it, and from there the endpoint: scope, values, whether the thing is there, what the driver can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from starlette._utils import get_route_path
from starlette.requests import ClientDisconnect, Request

from harborage.errors import error_summary
from harborage.events import Event, EventType, ImpersonationPayload, Principal
from harborage.identity import IdentityRequiredError
from harborage.protocol.decoding import parse_body, read_request
from harborage.protocol.errors import Code, ErrorBody, ProtocolError
from harborage.protocol.methods import ALL_METHODS, CONTROL_PATH, IdentityRule, Method
from harborage.protocol.wire.common import IdentityScope
from harborage.server.http import CLOSE, NO_HEADERS, PeerTooSlowError, read_body, send_json
from harborage.server.identity import check_identity, check_impersonation, claimed_identity, is_impersonation
from harborage.server.services import Call, Caller, Endpoints, Services

if TYPE_CHECKING:
    import msgspec
    from starlette.types import Receive, Scope, Send

    from harborage.server.auth.gate import Gate
    from harborage.server.http import Headers

_NOBODY: Final = IdentityScope()
_CONTROL_PREFIX: Final = CONTROL_PATH.partition("{")[0]


class Dispatcher:
    """Answers the methods of `endpoints`."""

    def __init__(self, services: Services, gate: Gate, endpoints: Endpoints) -> None:
        self._services = services
        self._gate = gate
        self._endpoints = endpoints
        self._by_path = {method.path: method for method in ALL_METHODS.values() if method.verb == "POST"}

    def knows(self, path: str) -> bool:
        """Whether a path is that of a method, which is answered without looking at other routes."""
        return path in self._by_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a POST; a refusal and a failure are answers, too."""
        request, headers = Request(scope, receive), NO_HEADERS
        try:
            answer, headers = await self._run(request)
            status = 200
        except ProtocolError as error:
            answer, status = error.body, error.status
        except PeerTooSlowError:
            answer, status = ErrorBody(Code.INVALID_REQUEST, "invalid request: the body did not arrive in time"), 400
            headers = CLOSE
        except ClientDisconnect:
            return
        except IdentityRequiredError as error:
            answer, status = ErrorBody(Code.IDENTITY_REQUIRED, str(error)), 401
        except Exception as error:
            self._services.logger.error("%s failed: %s", scope["path"], type(error).__name__, exc_info=error)
            answer, status = ErrorBody(Code.RUNTIME_ERROR, "the server failed; its log says why"), 500
        await send_json(send, answer, status, headers)

    async def _run(self, request: Request) -> tuple[msgspec.Struct, Headers]:
        caller = await self._gate.verify(request)
        method = self._method(get_route_path(request.scope))
        endpoint = self._endpoints[method.name]
        body = await read_body(request, method.body_cap, self._services)
        if not body.strip() and not method.needs_body:
            body = b"{}"
        fields = parse_body(body)
        asked = read_request(fields, endpoint.request, refuses_unknown_fields=method.refuses_unknown_fields)
        identity = getattr(asked, "identity", _NOBODY)
        if caller.trusts_body and method.path.startswith(_CONTROL_PREFIX):
            caller = replace(caller, who=claimed_identity(caller.who, identity, getattr(asked, "scope", None)))
        call = Call(
            method=method,
            caller=caller,
            who=caller.who,
            services=self._services,
            asked=identity,
            request=request,
        )
        if method.identity is IdentityRule.EXACT and is_impersonation(identity):
            return await self._run_as(call, identity, caller, asked), endpoint.headers
        check_identity(method.identity, identity, caller.who)
        return await endpoint.run(call, asked), endpoint.headers

    def _method(self, path: str) -> Method:
        """Return the method of a path that this server offers.

        Raises:
            ProtocolError: `unknown_method`, or `invalid_request` for one that has another path.
        """
        method = self._by_path.get(path)
        if method is not None:
            endpoint = self._endpoints.get(method.name)
            if endpoint is not None and endpoint.is_offered(self._services):
                return method
        elif path.startswith(_CONTROL_PREFIX):
            elsewhere = ALL_METHODS.get(path.removeprefix(_CONTROL_PREFIX))
            if elsewhere is not None:
                raise ProtocolError(
                    Code.INVALID_REQUEST, f"{elsewhere.name} is served at {elsewhere.verb} {elsewhere.path}"
                )
        raise ProtocolError(Code.UNKNOWN_METHOD, "this server has no such method")

    async def _run_as(
        self, call: Call, identity: IdentityScope, caller: Caller, asked: msgspec.Struct
    ) -> msgspec.Struct:
        """Run a call as the principal that an admin impersonates, and record who did it."""
        target = check_impersonation(identity, caller)
        acting = replace(call, who=target, actor=caller.who)
        answer: msgspec.Struct = await self._endpoints[call.method.name].run(acting, asked)
        actor = Principal.of(caller.who)
        payload = ImpersonationPayload(actor, actor, Principal.of(target), call.method.name)
        try:
            await call.parts.bus.publish(Event(EventType.AUDIT_ADMIN_SCOPE_USED, target.with_run(""), payload))
        except Exception as error:  # noqa: BLE001 - the action is done, whatever its audit raises
            self._services.logger.error("the audit of an impersonation was not published: %s", error_summary(error))
        return answer
