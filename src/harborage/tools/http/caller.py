"""Calls of operations: sent once for each attempt, read up to a limit, with errors that say what is known.

This file loads the HTTP client, so it is imported with the first call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urljoin

import httpx2
import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.artifacts.values import ArtifactScope
from harborage.secrets import SecretMissingError, SecretReader
from harborage.tools.auth import ApiKey, Bearer, CookieAuth
from harborage.tools.enums import ErrorClass
from harborage.tools.errors import (
    AddressRefusedError,
    AuthMissingError,
    ToolInvalidArgsError,
    ToolUnansweredError,
)
from harborage.tools.guard import AddressGuard, GuardedTransport, discreetly
from harborage.tools.http.errors import HTTPAnswerError, PeerUnreachableError
from harborage.tools.http.paging import Pages
from harborage.tools.http.request import Prepared, prepare
from harborage.tools.http.response import ENCODINGS, Answer, error_of, read_body, value_of
from harborage.tools.model import CallContext, ToolResult

if TYPE_CHECKING:
    from harborage.tools.http.operation import Operation
    from harborage.tools.http.values import Auth
    from harborage.tools.sources import SourceServices

_TIMEOUT_S: Final = 60.0
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_NEVER_OPENED: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_AGENT: Final = "harborage"


class Caller:
    """Calls the operations of one source. `headers` are the operator's own, whose values may be secret.

    `guard` judges every address that the operator did not write.
    """

    def __init__(
        self,
        services: SourceServices,
        guard: AddressGuard,
        *,
        auth: Auth | None,
        headers: Mapping[str, Any],
        secrets: SecretReader,
    ) -> None:
        self._services = services
        self._limits = services.limits
        self._auth = auth
        self._headers = headers
        self._secrets = secrets
        self._reads = self._client(guard, keeps=True)
        # A request with effects is never sent over a connection that may just have been closed by the peer.
        self._writes = self._client(guard, keeps=False)

    def _client(self, guard: AddressGuard, *, keeps: bool) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=GuardedTransport(guard, keeps=keeps), trust_env=False, follow_redirects=False, timeout=_TIMEOUT_S
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._reads.aclose()
        await self._writes.aclose()

    async def call(self, operation: Operation, args: bytes, call: CallContext[Any]) -> ToolResult:
        """Return the result of a call.

        Raises:
            ToolInvalidArgsError: the arguments do not fit, or the peer refused them.
            AuthMissingError, AddressRefusedError, PeerUnreachableError: nothing was sent.
            ToolUnansweredError: it was sent and not answered.
            HTTPStatusError, HTTPAnswerError: the answer is no success, or cannot be read.
        """
        given = _decoded(args)
        if operation.paging is None:
            answer = await self._answer(operation, prepare(operation, given), call)
            return ToolResult(value_of(answer, self._secrets, operation.name), _meta(answer))
        return await self._all_pages(operation, given, call)

    async def _all_pages(self, operation: Operation, given: dict[str, Any], call: CallContext[Any]) -> ToolResult:
        assert operation.paging is not None
        pages = Pages(operation.paging, given)
        prepared = prepare(operation, given)
        left = self._limits.result_bytes
        while True:
            answer = await self._answer(operation, prepared, call, most=left)
            left -= len(answer.body)
            pages.add(value_of(answer, self._secrets, operation.name), answer.headers)
            if not pages.has_next or pages.count >= self._limits.http_pages:
                return ToolResult(pages.value, _meta(answer) | pages.meta)
            prepared = self._next(operation, prepared, pages)

    def _next(self, operation: Operation, before: Prepared, pages: Pages) -> Prepared:
        if pages.link:
            return replace(before, url=urljoin(before.url, pages.link))
        return prepare(operation, pages.next_args)

    async def _answer(
        self, operation: Operation, prepared: Prepared, call: CallContext[Any], *, most: int | None = None
    ) -> Answer:
        most = self._limits.result_bytes if most is None else most
        home = _origin(_home_of(operation, prepared))
        for _ in range(self._limits.redirects + 1):
            request = await self._request(operation, prepared, call, is_home=_origin(prepared.url) == home)
            answer = await self._send(operation, request, most)
            location = answer.headers.get("location", "")
            if answer.status not in _REDIRECTS or prepared.method not in ("GET", "HEAD") or not location:
                break
            prepared = replace(prepared, url=urljoin(prepared.url, location))
        else:
            raise HTTPAnswerError(f"{operation.name}: more than {self._limits.redirects} redirects")
        if 200 <= answer.status < 300:
            return answer
        raise error_of(
            answer,
            self._secrets,
            operation.name,
            self._services.clock.now(),
            may_repeat=operation.is_repeatable,
            hint="" if operation.needs_auth and self._auth is not None else "it is called without auth",
        )

    async def _request(
        self, operation: Operation, prepared: Prepared, call: CallContext[Any], *, is_home: bool
    ) -> httpx2.Request:
        """The request, with what only the operator's own peer gets when it goes to that one."""
        headers = {"Accept": "application/json, text/*;q=0.9, */*;q=0.5", "User-Agent": _AGENT}
        headers |= {"Accept-Encoding": ENCODINGS}
        url = _read_url(prepared.url)
        if is_home:
            headers |= prepared.headers
            url = self._authenticated(operation, url, headers)
            headers |= {name: self._revealed(value) for name, value in self._headers.items()}
            if operation.key_header and call.idempotency_key:
                headers[operation.key_header] = call.idempotency_key
        if prepared.body is not None and not prepared.fields and not prepared.files:
            headers["Content-Type"] = prepared.body.media
        body = await self._body(prepared, call, headers)
        client = self._reads if operation.is_repeatable else self._writes
        return client.build_request(prepared.method, url, headers=headers, **body)

    async def _body(self, prepared: Prepared, call: CallContext[Any], headers: dict[str, str]) -> dict[str, Any]:
        if not prepared.files and not prepared.fields:
            return {} if prepared.content is None else {"content": prepared.content}
        files = [(one.field, await _load(one.artifact, one.field, call)) for one in prepared.files]
        if prepared.body is not None and len(files) == 1 and not files[0][0]:
            _, data, mime = files[0][1]
            headers["Content-Type"] = prepared.body.media if "*" not in prepared.body.media else mime
            return {"content": data}
        # A field without a file name is a plain field; so a form without files is multipart as well.
        fields = [(name, (None, value.encode(), "text/plain; charset=utf-8")) for name, value in prepared.fields]
        return {"files": [*fields, *files]}

    def _authenticated(self, operation: Operation, url: httpx2.URL, headers: dict[str, str]) -> httpx2.URL:
        match self._auth if operation.needs_auth else None:
            case Bearer(token):
                headers["Authorization"] = f"Bearer {self._revealed(token)}"
            case ApiKey(key):
                if operation.auth_query:
                    return url.copy_merge_params({operation.auth_query: self._revealed(key)})
                if operation.auth_cookie:
                    headers["Cookie"] = f"{operation.auth_cookie}={self._revealed(key)}"
                else:
                    headers[operation.auth_header] = self._revealed(key)
            case CookieAuth(name, value):
                headers["Cookie"] = f"{name}={self._revealed(value)}"
            case None:
                pass
        return url

    def _revealed(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        try:
            return self._secrets.reveal(value)
        except SecretMissingError as error:
            raise AuthMissingError(error.reference, str(error).partition("is missing: ")[2]) from error

    async def _send(self, operation: Operation, request: httpx2.Request, most: int) -> Answer:
        """Send a request, and read its answer to the end."""
        client = self._reads if operation.is_repeatable else self._writes
        status = 0
        try:
            with discreetly():
                response = await client.send(request, stream=True)
            try:
                status = response.status_code
                encoding = response.headers.get("content-encoding", "")
                body = await read_body(response.aiter_raw(), encoding, most)
            finally:
                await response.aclose()
        except AddressRefusedError:
            raise
        except httpx2.HTTPError as error:
            self._unanswered(operation, error, status)
        return Answer(status, {name.lower(): value for name, value in response.headers.items()}, body)

    def _unanswered(self, operation: Operation, error: httpx2.HTTPError, status: int) -> NoReturn:
        reason = self._secrets.mask(str(error)) or type(error).__name__
        if isinstance(error, _NEVER_OPENED):
            raise PeerUnreachableError(f"{operation.name}: the peer is not there: {reason}") from error
        is_late = isinstance(error, httpx2.TimeoutException)
        what = "no answer in time" if is_late else f"the connection was lost: {reason}"
        if status:
            what = f"status {status}, and the rest of the answer was lost: {reason}"
        kind = ErrorClass.TIMEOUT if is_late else ErrorClass.TRANSIENT
        raise ToolUnansweredError(f"{operation.name}: {what}", error_class=kind) from error


def _read_url(text: str) -> httpx2.URL:
    try:
        return httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise ToolInvalidArgsError(f"they make no address that can be sent: {str(error)[:128]}") from error


def _home_of(operation: Operation, prepared: Prepared) -> str:
    """The address whose origin is the operator's peer: that of the operation, or of what is sent where it has none."""
    return operation.base if "://" in operation.base else prepared.url


def _origin(url: str) -> tuple[str, str, int | None]:
    parsed = _read_url(url)
    return parsed.scheme, parsed.host, parsed.port


def _decoded(args: bytes) -> dict[str, Any]:
    try:
        found = codec.decode(args) if args.strip() else {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ToolInvalidArgsError("not JSON") from error
    if not isinstance(found, dict):
        raise ToolInvalidArgsError("the arguments are an object")
    return found


def _meta(answer: Answer) -> dict[str, Any]:
    return {"http.status": answer.status, "http.content_type": answer.headers.get("content-type", "")[:256]}


async def _load(artifact: str, name: str, call: CallContext[Any]) -> tuple[str, bytes, str]:
    """The name, the bytes and the type of an artifact of the session."""
    store, scope = call.artifacts, ArtifactScope.of(call.who)
    ref = None if store is None else await store.get_ref(scope, artifact)
    data = None if store is None or ref is None else await store.get(scope, artifact)
    if ref is None or data is None:
        raise ToolInvalidArgsError("there is no such artifact in this session; give an id that is listed", f"$.{name}")
    return ref.filename or "file", data, ref.mime_type or "application/octet-stream"
