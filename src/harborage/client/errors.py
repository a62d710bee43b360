"""What a server refused, as the error that the same call raises on a local runtime.

A refusal has a code; where a local error means the same, that one is raised, from the `RemoteError` with the code, the
status and the words of the server. A code that has none is raised as that `RemoteError` itself.

    HarborageError
    ├── RemoteError                    the server refused, or answered what this client does not understand
    └── RemoteUnreachableError         no server answered within the client's patience
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from harborage.errors import HarborageError
from harborage.events import IdentityScopeRequiredError, SubscriberLimitReachedError
from harborage.identity import IdentityRequiredError
from harborage.protocol.errors import Code, ErrorBody
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.loop.errors import PayloadInvalidError, ScopeMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_SHOWN: Final = 200
_TOO_MANY: Final = 429


class RemoteError(HarborageError):
    """A server refused a request. `code` says why, `status` is the HTTP status, `message` are the server's words."""

    def __init__(self, code: str = Code.RUNTIME_ERROR, status: int = 500, message: str = "") -> None:
        self.code = str(code)
        self.status = status
        self.message = message
        super().__init__(f"{message or 'the server refused'} ({code}, HTTP {status})")


class RemoteUnreachableError(HarborageError):
    """No server answered. `url` is where it was tried, `attempts` how often."""

    def __init__(self, url: str = "", why: str = "", attempts: int = 0) -> None:
        self.url = url
        self.attempts = attempts
        tried = f" after {attempts} attempts" if attempts > 1 else ""
        super().__init__(f"no answer from {url}{tried}: {why}" if url else "")


def read_refusal(status: int, body: bytes) -> RemoteError:
    """Return what a server answered in place of a result; a body that is no refusal is shown as it is, cut."""
    try:
        said = msgspec.json.decode(body, type=ErrorBody)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = " ".join(body.decode("utf-8", "replace").split())[:_MOST_SHOWN]
        return RemoteError(Code.RUNTIME_ERROR, status, text or "the server answered without a reason")
    return RemoteError(said.code, status, said.message)


def raised(refused: RemoteError, run_id: str = "") -> HarborageError:
    """Return the local error that a refusal stands for, its cause the refusal; `run_id` is the run that was named."""
    found = _local(refused, run_id)
    if found is not refused:
        found.__cause__ = refused
    return found


def _local(refused: RemoteError, run_id: str) -> HarborageError:
    if refused.status == _TOO_MANY:
        limited = SubscriberLimitReachedError()
        limited.args = (refused.message or str(limited),)
        return limited
    if refused.code == Code.NOT_FOUND:
        return RunNotFoundError(run_id, message=refused.message) if run_id else refused
    make = _MEANING.get(refused.code)
    return refused if make is None else make(refused.message)


_MEANING: Final[dict[str, Callable[[str], HarborageError]]] = {
    Code.IDENTITY_REQUIRED: IdentityRequiredError,
    Code.IDENTITY_SCOPE_REQUIRED: IdentityScopeRequiredError,
    Code.PAYLOAD_INVALID: PayloadInvalidError,
    Code.SCOPE_MISMATCH: ScopeMismatchError,
}
