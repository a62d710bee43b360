"""What is wrong with a request of an AG-UI client, in the protocol's own shape: a RUN_ERROR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from harborage.errors import HarborageError, InvalidOptionError, NotFoundError, error_text
from harborage.protocol.errors import ProtocolError
from harborage.runtime.durable.engine import RunBlockedError, RunEndedError, RunFailedError
from harborage.runtime.durable.pauses.errors import AlreadyAnsweredError, AlreadyResumedError, PauseError
from harborage.runtime.loop.errors import NoOutstandingPauseError, PayloadInvalidError
from harborage.server.ag_ui.events import RunError
from harborage.server.http import PeerTooSlowError, json_response
from harborage.server.open_requests import ServerStoppingError
from harborage.server.questions import AnsweredBeforeError, AnswerUnfitError
from harborage.sessions import SessionClosedError
from harborage.tasks import IdempotencyConflictError

if TYPE_CHECKING:
    import logging


class RefusedError(HarborageError):
    """A request cannot be served: `code` names why for programs, `status` is that of the answer."""

    def __init__(self, status: int = 400, code: str = "invalid_request", message: str = "") -> None:
        self.status = status
        self.code = code
        super().__init__(message)


def refused(error: Exception, logger: logging.Logger) -> tuple[int, RunError]:
    """Return the status and the event of a failure; what nobody expected is logged, and not quoted."""
    match error:
        case RefusedError():
            return error.status, RunError(message=str(error), code=error.code)
        case ProtocolError():
            return error.status, RunError(message=error.body.message, code=str(error.body.code))
        case ServerStoppingError():
            text = "the server stops, and the run goes on; send the same request again"
            return 503, RunError(message=text, code="server_stopping")
        case PeerTooSlowError():
            return 400, RunError(message="the body did not arrive in time", code="invalid_request")
        case (
            AnsweredBeforeError()
            | AlreadyAnsweredError()
            | AlreadyResumedError()
            | RunEndedError()
            | NoOutstandingPauseError()
        ):
            return 409, RunError(message=error_text(error), code="already_answered")
        case NotFoundError() | PauseError():
            return 404, RunError(message="there is no such run or question of yours", code="not_found")
        case IdempotencyConflictError():
            return 409, RunError(message="another request has this runId; send a new one", code="run_id_taken")
        case AnswerUnfitError() | InvalidOptionError() | PayloadInvalidError() | SessionClosedError():
            return 400, RunError(message=error_text(error), code="invalid_request")
        case RunBlockedError():
            return 500, RunError(message=error_text(error), code="run_blocked")
        case RunFailedError():
            return 500, RunError(message=error_text(error), code="run_failed")
        case _:
            logger.error("a request of AG-UI failed: %s", type(error).__name__, exc_info=error)
            return 500, RunError(message="the server failed; its log says why", code="runtime_error")


def refusal(error: Exception, logger: logging.Logger) -> Response:
    """Return the answer to a request that began no stream."""
    status, event = refused(error, logger)
    return json_response(event, status)
