"""Why a request is refused, with the codes of JSON-RPC and of A2A."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harborage.artifacts import ArtifactNotFoundError
from harborage.errors import HarborageError, InvalidOptionError, NotFoundError, error_text
from harborage.events import BusClosedError, SubscriberLimitReachedError
from harborage.identity import IdentityRequiredError
from harborage.protocol.errors import ProtocolError
from harborage.runtime.durable.engine import EngineClosedError, RunBlockedError, RunEndedError, RuntimeClosedError
from harborage.runtime.durable.pauses.errors import AlreadyAnsweredError, AlreadyResumedError, PauseError
from harborage.runtime.loop.errors import NoOutstandingPauseError, RunCancelledError, SteeringError
from harborage.server.http import PeerTooSlowError
from harborage.server.open_requests import ServerStoppingError
from harborage.server.questions import AnsweredBeforeError, AnswerUnfitError
from harborage.sessions import SessionClosedError
from harborage.tasks import IdempotencyConflictError, TaskLimitError

if TYPE_CHECKING:
    import logging

PARSE: Final = -32700
INVALID_REQUEST: Final = -32600
UNKNOWN_METHOD: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
REFUSED: Final = -32000
"""Not known who asks, or a server that takes no more: the status of HTTP says which."""
TASK_NOT_FOUND: Final = -32001
NOT_CANCELABLE: Final = -32002
NO_PUSH: Final = -32003
UNSUPPORTED: Final = -32004
CONTENT_TYPE: Final = -32005
VERSION: Final = -32009

_REASONS: Final = {
    TASK_NOT_FOUND: "TASK_NOT_FOUND",
    NOT_CANCELABLE: "TASK_NOT_CANCELABLE",
    NO_PUSH: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    UNSUPPORTED: "UNSUPPORTED_OPERATION",
    CONTENT_TYPE: "CONTENT_TYPE_NOT_SUPPORTED",
    VERSION: "VERSION_NOT_SUPPORTED",
}
_NOT_FOUND: Final = "there is no such task of yours here"


class RpcError(HarborageError):
    """A request was refused; `status` is that of HTTP, which is 200 where JSON-RPC alone refuses."""

    def __init__(self, code: int = INVALID_PARAMS, message: str = "", *, status: int = 200) -> None:
        self.code = code
        self.status = status
        super().__init__(message)

    @property
    def body(self) -> dict[str, Any]:
        """What the peer reads."""
        reason = _REASONS.get(self.code)
        fields: dict[str, Any] = {"code": self.code, "message": str(self)}
        if reason is not None:
            kind = "type.googleapis.com/google.rpc.ErrorInfo"
            fields["data"] = [{"@type": kind, "reason": reason, "domain": "a2a-protocol.org"}]
        return fields


def task_not_found() -> RpcError:
    """The refusal of a task that is not there, or is another's."""
    return RpcError(TASK_NOT_FOUND, _NOT_FOUND)


def bad_params(message: str) -> RpcError:
    """The refusal of parameters that cannot be used."""
    return RpcError(INVALID_PARAMS, message)


def refusal_of(error: Exception, logger: logging.Logger) -> RpcError:
    """Return how a failure is answered; an unexpected one is logged, and nothing of it is shown."""
    if isinstance(error, RpcError):
        return error
    text = error_text(error)
    match error:
        case ProtocolError() if error.status in (401, 403):
            return RpcError(REFUSED, error.body.message, status=error.status)
        case ProtocolError():
            return bad_params(error.body.message)
        case IdentityRequiredError():
            return RpcError(REFUSED, text, status=401)
        case PeerTooSlowError():
            return RpcError(INVALID_REQUEST, "the body did not arrive in time")
        case SubscriberLimitReachedError() | TaskLimitError():
            return RpcError(REFUSED, text, status=429)
        case ServerStoppingError() | BusClosedError() | RuntimeClosedError() | EngineClosedError():
            return RpcError(REFUSED, "the server is stopping; a task that was started goes on", status=503)
        case IdempotencyConflictError():
            return bad_params("another message of this context has this messageId; send a new one")
        case RunEndedError() | RunCancelledError():
            return RpcError(UNSUPPORTED, "the task has ended; send a message without taskId, in the same context")
        case AnsweredBeforeError() | AlreadyAnsweredError() | AlreadyResumedError() | NoOutstandingPauseError():
            return bad_params("this question was answered before, or too late")
        case NotFoundError() | PauseError() if not isinstance(error, ArtifactNotFoundError):
            return task_not_found()
        case AnswerUnfitError() | InvalidOptionError() | SteeringError() | SessionClosedError():
            return bad_params(text)
        case ArtifactNotFoundError():
            return bad_params(text)
        case RunBlockedError():
            return RpcError(INTERNAL, text)
        case _:
            logger.error("a request of A2A failed: %s", type(error).__name__, exc_info=error)
            return RpcError(INTERNAL, "the server failed; its log says why")
