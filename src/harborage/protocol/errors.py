"""What a refused request is answered with: eleven codes, each with its status."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from harborage.errors import HarborageError


class Code(StrEnum):
    """Why a request was refused. Clients branch on it; the message beside it is for people."""

    AUTH_REJECTED = "auth_rejected"
    IDENTITY_REQUIRED = "identity_required"
    IDENTITY_SCOPE_REQUIRED = "identity_scope_required"
    INVALID_REQUEST = "invalid_request"
    NOT_FOUND = "not_found"
    PAYLOAD_INVALID = "payload_invalid"
    PRESIGN_UNSUPPORTED = "presign_unsupported"
    REQUEST_TOO_LARGE = "request_too_large"
    RUNTIME_ERROR = "runtime_error"
    SCOPE_MISMATCH = "scope_mismatch"
    UNKNOWN_METHOD = "unknown_method"


STATUS: Final[Mapping[Code, int]] = {
    Code.AUTH_REJECTED: 401,
    Code.IDENTITY_REQUIRED: 401,
    Code.IDENTITY_SCOPE_REQUIRED: 403,
    Code.INVALID_REQUEST: 400,
    Code.NOT_FOUND: 404,
    Code.PAYLOAD_INVALID: 422,
    Code.PRESIGN_UNSUPPORTED: 501,
    Code.REQUEST_TOO_LARGE: 413,
    Code.RUNTIME_ERROR: 500,
    Code.SCOPE_MISMATCH: 403,
    Code.UNKNOWN_METHOD: 404,
}
"""The HTTP status of each code."""


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of a refusal."""

    code: str
    message: str


class ProtocolError(HarborageError):
    """A request was refused. `code` says why; `status` is its HTTP status where that is not the code's own."""

    def __init__(self, code: Code = Code.RUNTIME_ERROR, message: str = "", *, status: int = 0) -> None:
        self.code = code
        self.status = status or STATUS[code]
        super().__init__(message or str(code))

    @property
    def body(self) -> ErrorBody:
        """What the caller reads."""
        return ErrorBody(self.code, str(self))
