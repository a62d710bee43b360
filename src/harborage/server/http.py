"""Requests and answers over HTTP: bodies under their cap and in time, JSON answers, refusals."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from harborage.protocol.errors import Code, ProtocolError

JSON: Final = "application/json"

_encoder: Final = msgspec.json.Encoder()


class PeerTooSlowError(Exception):
    """A body did not arrive in time; the connection is closed."""


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return an answer with a JSON body."""
    return Response(_encoder.encode(value), status, headers, JSON)


def refusal(error: ProtocolError) -> Response:
    """Return the answer to a refused request."""
    return json_response(error.body, error.status)


async def read_body(request: Request, cap: int, timeout: float) -> bytes:
    """Return the body of a request; `cap` is in bytes, `timeout` in seconds.

    A body over its cap is not kept, but read on up to twice the cap, so that its sender reads the refusal.

    Raises:
        ProtocolError: `invalid_request`: it is over its cap.
        PeerTooSlowError: it did not arrive in time.
        ClientDisconnect: the peer is gone.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > 2 * cap:
        raise _too_long(cap)
    kept, seen = bytearray(), 0
    try:
        async with asyncio.timeout(timeout):
            async for part in request.stream():
                seen += len(part)
                if seen > 2 * cap:
                    raise _too_long(cap)
                if seen <= cap:
                    kept += part
    except TimeoutError as error:
        raise PeerTooSlowError() from error
    if seen > cap:
        raise _too_long(cap)
    return bytes(kept)


def _too_long(cap: int) -> ProtocolError:
    return ProtocolError(Code.INVALID_REQUEST, f"invalid request: the body is longer than {cap} bytes")
