"""One connection to a server of the protocol: where it is, who asks, time limits, and what is sent again.

Only what may happen twice is sent twice: reads, and what carries an id that makes the second time the first one. Every
request ends: there is a limit for each piece of an answer, for the whole of it, and for all attempts together.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from harborage.client.errors import RemoteError, RemoteUnreachableError, raised, read_refusal
from harborage.clock import SYSTEM_CLOCK, Timers, dice
from harborage.errors import HarborageError, InvalidOptionError, at_least
from harborage.protocol.errors import Code
from harborage.protocol.methods import ALL_METHODS

if TYPE_CHECKING:
    import httpx2

    from harborage.identity import Identity

T = TypeVar("T")

Token = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or a function that gives one that has not expired."""

SESSION_HEADER: Final = "X-Harbor-Session"
_JSON: Final = {"Content-Type": "application/json"}
PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses of a server, or of a proxy before it, that may be over in a moment."""
_REFUSED: Final = 300
_UNAUTHORIZED: Final = 401
_LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a client waits, in seconds. `connect` and `idle` limit one attempt, `request` the whole of it.

    `total` limits all attempts of one request, and how long a stream tries to come back. Between attempts it waits from
    `first_pause` on, twice as long each time, up to `longest_pause`, less a random part of up to one half. A stream is
    opened again when it was silent for `stream_idle`; servers send a sign of life every 15 s.
    """

    connect: float = 5
    idle: float = 30
    request: float = 60
    total: float = 60
    attempts: int = 6
    first_pause: float = 0.1
    longest_pause: float = 5
    stream_idle: float = 45

    def __post_init__(self) -> None:
        for name in ("connect", "idle", "request", "total", "first_pause", "longest_pause", "stream_idle"):
            at_least(0.001, getattr(self, name), name)
        at_least(1, self.attempts, "attempts", is_whole=True)

    def pause(self, failures: int) -> float:
        """Return how long to wait after so many failures in a row."""
        whole = min(self.longest_pause, self.first_pause * 2.0 ** min(failures - 1, 30))
        return whole * (1 - dice() / 2)


class Connection:
    """Speaks the protocol with the servers at `urls`: with one of them, and with the next when that does not answer.

    Raises:
        InvalidOptionError: a url is none.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        token: Token = "",
        headers: Mapping[str, str] = {},
        patience: Patience = Patience(),  # noqa: B008 - a frozen value
        clock: Timers = SYSTEM_CLOCK,
    ) -> None:
        self._urls = [checked_url(url) for url in ([urls] if isinstance(urls, str) else urls)]
        if not self._urls:
            raise InvalidOptionError("url", urls, "the address of a server, such as 'http://127.0.0.1:18080'")
        if not (isinstance(token, str) or callable(token)):
            raise InvalidOptionError("token", "…", "a text, or a function that gives one")
        self._token = token
        self._headers = dict(headers)
        self.patience = patience
        self.clock = clock
        self._at = 0
        self._http: httpx2.AsyncClient | None = None

    @property
    def url(self) -> str:
        """The server that is asked now."""
        return self._urls[self._at]

    async def aclose(self) -> None:
        """Close all connections. Closing twice does nothing; the next request opens new ones."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def token(self) -> str:
        """Return the bearer token of the next request; "" where none was given."""
        given = self._token if isinstance(self._token, str) else self._token()
        found = await given if inspect.isawaitable(given) else given
        return str(found).strip()

    async def ask(
        self, method: str, body: Mapping[str, Any], answer: type[T], *, who: Identity | None = None, run_id: str = ""
    ) -> T:
        """Return the answer to a method of the protocol, as `answer`; keys that this client does not know are skipped.

        `who` is whose it is: the session goes into the header. `run_id` names the run in an error. The request must be
        one that may happen twice: it is sent again when no answer came.

        Raises:
            RemoteUnreachableError: no server answered.
            RemoteError: the server refused, or its answer cannot be read.
            HarborageError: the local error that means what the server refused.
        """
        raw = await self.post(method, body, who=who, run_id=run_id)
        try:
            return msgspec.json.decode(raw or b"{}", type=answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            text = f"{method}: the answer has another shape: {error}"
            raise RemoteError(Code.RUNTIME_ERROR, 200, text) from error

    async def post(
        self, method: str, body: Mapping[str, Any], *, who: Identity | None = None, run_id: str = ""
    ) -> bytes:
        """Return the body of the answer to a method.

        Raises:
            HarborageError: as of `ask`.
        """
        path, content = ALL_METHODS[method].path, msgspec.json.encode(body)
        return await self._repeat(lambda until: self._once(path, content, who, until), run_id)

    async def fetch(self, url: str) -> bytes:
        """Return what is behind a link that a server gave; it carries its own permission, so no token is sent along.

        Raises:
            HarborageError: as of `ask`.
        """
        return await self._repeat(lambda until: self._get(url, until), "")

    async def _repeat(self, attempt_once: Callable[[float], Awaitable[tuple[int, bytes]]], run_id: str) -> bytes:
        until = self.clock.monotonic() + self.patience.total
        attempt, may_pass = 0, True
        while True:
            attempt += 1
            failed: HarborageError
            try:
                status, found = await attempt_once(until)
            except _UnansweredError as error:
                failed = RemoteUnreachableError(self.url, str(error), attempt)
                failed.__cause__ = error.__cause__
                self.turn()
            else:
                if status < _REFUSED:
                    return found
                failed = raised(read_refusal(status, found), run_id)
                may_pass = status in PASSING or (status == _UNAUTHORIZED and attempt == 1 and self.has_fresh_tokens)
            pause = self.patience.pause(attempt)
            if not may_pass or attempt >= self.patience.attempts or self.clock.monotonic() + pause >= until:
                raise failed
            await asyncio.sleep(pause)

    @property
    def has_fresh_tokens(self) -> bool:
        """Whether another token may be had than the one that was refused."""
        return not isinstance(self._token, str)

    async def _once(self, path: str, content: bytes, who: Identity | None, until: float) -> tuple[int, bytes]:
        headers = {**await self.headers(who), **_JSON}
        return await self._answered(self.http.post(self.url + path, content=content, headers=headers), until)

    async def _get(self, url: str, until: float) -> tuple[int, bytes]:
        return await self._answered(self.http.get(url), until)

    async def _answered(self, response: Awaitable[httpx2.Response], until: float) -> tuple[int, bytes]:
        import httpx2

        left = max(0.001, until - self.clock.monotonic())
        try:
            async with asyncio.timeout(min(self.patience.request, left)):
                answered = await response
                return answered.status_code, answered.content
        except (httpx2.HTTPError, httpx2.StreamError, TimeoutError) as error:
            raise _UnansweredError(reason_of(error)) from error

    async def headers(self, who: Identity | None) -> dict[str, str]:
        """Return the headers of a request for `who`, its token included."""
        found = dict(self._headers)
        if token := await self.token():
            found["Authorization"] = f"Bearer {token}"
        if who is not None:
            found[SESSION_HEADER] = who.session_id
        return found

    @asynccontextmanager
    async def stream(
        self, params: Sequence[tuple[str, str]], *, who: Identity | None, last_event_id: str
    ) -> AsyncIterator[httpx2.Response]:
        """Open the stream of events once; its body is read as it comes.

        Raises:
            RemoteUnreachableError: the server did not answer.
            HarborageError: it refused, as of `ask`; its cause is the RemoteError with the status.
        """
        import httpx2

        headers = {**await self.headers(who), "Accept": "text/event-stream", "Accept-Encoding": "identity"}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        request = self.http.build_request(
            "GET",
            self.url + ALL_METHODS["events.subscribe"].path,
            params=list(params),
            headers=headers,
            timeout=self._timeout(self.patience.stream_idle),
        )
        try:
            async with asyncio.timeout(self.patience.request):
                response = await self.http.send(request, stream=True)
        except (httpx2.HTTPError, httpx2.StreamError, TimeoutError) as error:
            raise RemoteUnreachableError(self.url, reason_of(error), 1) from error
        try:
            if response.status_code != 200:
                raise raised(read_refusal(response.status_code, await response.aread()))
            yield response
        finally:
            await response.aclose()

    def turn(self) -> None:
        """Ask the next server from now on."""
        self._at = (self._at + 1) % len(self._urls)

    @property
    def http(self) -> httpx2.AsyncClient:
        """The pool of connections; opened by the first request."""
        if self._http is None:
            import httpx2

            hosts = [urlsplit(url) for url in self._urls]
            self._http = httpx2.AsyncClient(
                timeout=self._timeout(self.patience.idle),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=30),
                # Reading the system's certificates takes longer than a whole call to a server that needs none.
                verify=any(host.scheme == "https" for host in hosts),
                # A proxy that the environment names cannot reach a server on this machine.
                trust_env=not all(host.hostname in _LOCAL_HOSTS for host in hosts),
                follow_redirects=False,
            )
        return self._http

    def _timeout(self, idle: float) -> httpx2.Timeout:
        import httpx2

        return httpx2.Timeout(idle, connect=self.patience.connect, write=self.patience.idle)


class _UnansweredError(Exception):
    """An attempt brought no answer."""


def reason_of(error: BaseException) -> str:
    """Return why an attempt failed, in a few words."""
    return f"{type(error).__name__}{f': {error}' if str(error) else ''}"


def checked_url(url: str) -> str:
    """Return the address of a server without the slash at its end.

    Raises:
        InvalidOptionError: it is no http or https url.
    """
    expected = "an http or https url, such as 'http://127.0.0.1:18080'"
    if not isinstance(url, str):
        raise InvalidOptionError("url", url, expected)
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise InvalidOptionError("url", url, expected) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or port == 0:
        raise InvalidOptionError("url", url, expected)
    if parts.username or parts.password:
        raise InvalidOptionError("url", parts.hostname, "an url without a password; pass token=")
    return url.strip().rstrip("/")
