"""A server in this process, and the requests of a client to it: no socket, but every layer of the application.

`Wire.post` sends one request; `Wire.stream` reads a stream of events frame by frame. `HeaderGate` takes the caller from
headers, for tests whose subject is not the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request

from harborage.identity import Identity
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import ALL_METHODS, TokenScope
from harborage.server.services import Caller

ADA: Final = Identity("acme", "ada", "s-1")
BEN: Final = Identity("acme", "ben", "s-2")
EVE: Final = Identity("rival", "eve", "s-3")
WITHIN_S: Final = 20.0
"""After this time a test that waits has failed."""


class HeaderGate:
    """Takes the caller from the headers `x-test-caller` (tenant/user/session) and `x-test-scopes`."""

    async def verify(self, request: Request, *, allows_query: bool = False) -> Caller:
        """Return who sends a request."""
        parts = request.headers.get("x-test-caller", "").split("/")
        if len(parts) != 3:
            raise ProtocolError(Code.IDENTITY_REQUIRED, "jwt rejected: token_missing")
        session = request.headers.get("x-harbor-session", "").strip() or parts[2]
        scopes = request.headers.get("x-test-scopes", "").split()
        return Caller(Identity(parts[0], parts[1], session), frozenset(map(TokenScope, scopes)), tuple(scopes))


class Reply(NamedTuple):
    """An answer: its status, headers and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as plain data."""
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """The code of a refusal."""
        return str(self.json["code"])


def caller_headers(who: Identity, *scopes: str) -> dict[str, str]:
    """Headers by which `HeaderGate` knows a caller."""
    return {
        "x-test-caller": f"{who.tenant_id}/{who.user_id}/{who.session_id}",
        "x-test-scopes": " ".join(scopes),
    }


class Wire:
    """A client of an ASGI application."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def post(
        self,
        method: str,
        body: Any = None,
        *,
        who: Identity | None = ADA,
        scopes: tuple[str, ...] = (),
        headers: Mapping[str, str] = {},
        path: str = "",
    ) -> Reply:
        """Post to a method by its name, or to `path`; a body that is no bytes is sent as JSON, None as no body."""
        sent = {**({} if who is None else caller_headers(who, *scopes)), **headers}
        raw = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        known = ALL_METHODS.get(method)
        return await self.request("POST", path or (known.path if known else f"/v1/control/{method}"), raw, sent)

    async def request(self, verb: str, path: str, body: bytes = b"", headers: Mapping[str, str] = {}) -> Reply:
        """Send one request and return its answer."""
        async with self.open(verb, path, headers, body) as reader:
            parts = [part async for part in reader]
            return Reply(reader.status, reader.headers, b"".join(parts))

    @asynccontextmanager
    async def open(
        self, verb: str, path: str, headers: Mapping[str, str] = {}, body: bytes = b"", *, is_whole: bool = True
    ) -> AsyncIterator[Reader]:
        """Send one request and read its answer as it comes; leaving disconnects. Without `is_whole` the body stalls."""
        reader = Reader(self.app, verb, path, headers, body, is_whole=is_whole)
        try:
            yield await reader.begin()
        finally:
            await reader.aclose()


class Reader:
    """The answer to one request, part by part."""

    def __init__(
        self, app: Any, verb: str, path: str, headers: Mapping[str, str], body: bytes, *, is_whole: bool
    ) -> None:
        plain, _, query = path.partition("?")
        self.status = 0
        self.headers: dict[str, str] = {}
        self._app = app
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": verb,
            "scheme": "http",
            "path": plain,
            "raw_path": plain.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [
                *([] if "host" in headers else [(b"host", b"127.0.0.1:8000")]),
                *((name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()),
            ],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8000),
        }
        self._request: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._request.put_nowait({"type": "http.request", "body": body, "more_body": not is_whole})
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue(64)
        self._began = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> Reader:
        """Wait for the status of the answer."""
        self._task = asyncio.create_task(self._serve())
        async with asyncio.timeout(WITHIN_S):
            waiting = asyncio.create_task(self._began.wait())
            await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        if not self._began.is_set():
            await self._task  # raises what the application raised
        return self

    async def _serve(self) -> None:
        try:
            await self._app(self._scope, self._request.get, self._send)
        finally:
            await self._parts.put(None)

    async def _send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            for name, value in message.get("headers", ()):
                self.headers[name.decode().lower()] = value.decode("latin-1")
            self._began.set()
        elif message["type"] == "http.response.body":
            if message.get("body"):
                await self._parts.put(message["body"])
            if not message.get("more_body"):
                await self._parts.put(None)

    @property
    def is_empty(self) -> bool:
        """Whether no part waits to be read."""
        return self._parts.empty()

    async def part(self) -> bytes | None:
        """Return the next part of the body; None at its end."""
        async with asyncio.timeout(WITHIN_S):
            return await self._parts.get()

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> bytes:
        part = await self.part()
        if part is None:
            raise StopAsyncIteration
        return part

    async def aclose(self) -> None:
        """Disconnect, and wait until the application has noticed."""
        self._request.put_nowait({"type": "http.disconnect"})
        if self._task is None:
            return
        while not self._task.done():
            while not self._parts.empty():
                self._parts.get_nowait()
            await asyncio.wait({self._task}, timeout=0.01)
        if not self._task.cancelled():
            self._task.exception()
