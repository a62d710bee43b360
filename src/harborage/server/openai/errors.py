"""Refusals in the shape that clients of OpenAI read, and what every failure of a request becomes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from harborage.artifacts import ArtifactNotFoundError
from harborage.errors import HarborageError, InvalidOptionError, NotFoundError, error_text
from harborage.events import BusClosedError, SubscriberLimitReachedError
from harborage.identity import IdentityRequiredError
from harborage.protocol.errors import Code, ProtocolError
from harborage.runtime.durable.engine import (
    EngineClosedError,
    RunBlockedError,
    RunEndedError,
    RunFailedError,
    RuntimeClosedError,
)
from harborage.runtime.durable.pauses.errors import AlreadyAnsweredError, AlreadyResumedError
from harborage.runtime.loop.errors import NoOutstandingPauseError, PayloadInvalidError, RunCancelledError
from harborage.server.http import PeerTooSlowError, json_response
from harborage.server.open_requests import ServerStoppingError
from harborage.server.questions import AnsweredBeforeError, AnswerUnfitError
from harborage.sessions import SessionClosedError
from harborage.tasks import IdempotencyConflictError, TaskLimitError

if TYPE_CHECKING:
    from starlette.responses import Response

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
_SERVER: Final = "server_error"
_AGAIN: Final = frozenset({429, 503})
_IS_STATE: Final = (
    AlreadyAnsweredError,
    AlreadyResumedError,
    NoOutstandingPauseError,
    RunCancelledError,
    RunEndedError,
    SessionClosedError,
)


class RequestRefusedError(HarborageError):
    """A request was refused. `code` says why in one word, `param` names the part of the request."""

    def __init__(self, status: int = 400, message: str = "", *, code: str = "", param: str = "") -> None:
        self.status = status
        self.code = code
        self.param = param
        super().__init__(message)

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        """What the caller reads."""
        return {
            "error": {
                "message": str(self),
                "type": _TYPES.get(self.status, _SERVER),
                "param": self.param or None,
                "code": self.code or None,
            }
        }

    def response(self) -> Response:
        """The answer; it says whether sending the request again may help, since some clients do so unasked."""
        again = "true" if self.status in _AGAIN else "false"
        headers = {"x-should-retry": again}
        if self.code == _LATE:
            headers["connection"] = "close"
        return json_response(self.body, self.status, headers)


_LATE: Final = "body_timeout"


def bad_input(message: str, param: str = "", *, code: str = "") -> RequestRefusedError:
    """The refusal of a request whose `param` cannot be used."""
    return RequestRefusedError(400, message, code=code, param=param)


def refusal_of(error: Exception, logger: logging.Logger) -> RequestRefusedError:
    """Return how a failure is answered; one that nobody expected is logged, and nothing of it is shown."""
    if isinstance(error, RequestRefusedError):
        return error
    text = error_text(error)
    match error:
        case ProtocolError():
            return RequestRefusedError(error.status, text, code=_code_of(error))
        case PeerTooSlowError():
            return bad_input("the body did not arrive in time", code=_LATE)
        case IdentityRequiredError():
            return RequestRefusedError(401, text, code=str(Code.IDENTITY_REQUIRED))
        case IdempotencyConflictError():
            return RequestRefusedError(409, text, code="idempotency_key_reused", param="Idempotency-Key")
        case SubscriberLimitReachedError() | TaskLimitError():
            return RequestRefusedError(429, text, code="rate_limit_exceeded")
        case RunFailedError():
            return RequestRefusedError(500, text, code=str(error.reason or "run_failed"))
        case RunBlockedError():
            return RequestRefusedError(500, text, code="run_blocked")
        case ServerStoppingError() | BusClosedError() | RuntimeClosedError() | EngineClosedError():
            return stopping()
        case AnswerUnfitError():
            return bad_input(text, "input")
        case AnsweredBeforeError():
            return RequestRefusedError(409, text, code="already_answered")
        case InvalidOptionError() | PayloadInvalidError() | ArtifactNotFoundError():
            return bad_input(text)
        case _ if isinstance(error, _IS_STATE):
            return RequestRefusedError(409, text, code="conflict")
        case NotFoundError():
            return RequestRefusedError(404, text, code="not_found")
        case _:
            logger.error("a request failed: %s", type(error).__name__, exc_info=error)
            return RequestRefusedError(500, "the server failed; its log says why", code="internal_error")


def stopping() -> RequestRefusedError:
    """The refusal of a request to a server that stops."""
    return RequestRefusedError(503, "the server is stopping; a run that was started goes on", code="server_stopping")


def _code_of(error: ProtocolError) -> str:
    return "invalid_api_key" if error.status == 401 and error.code is Code.AUTH_REJECTED else str(error.code)
