"""The guard of addresses that come from outside, and the one HTTP transport that keeps to it.

Servers of a document, redirects, metadata, cards and links are from outside; what a program or a configuration wrote
itself is not, and is visited as it is. A name is looked up once, every address that it has is judged, and the
connection is made to the very address that was judged.

This file loads the HTTP client, so it is imported where a connection is about to be made.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpcore2
import httpx2

from harborage.tools.addresses import (
    Resolve,
    explain_refused_address,
    explain_refused_host,
    is_literal,
    look_up,
)
from harborage.tools.errors import AddressRefusedError

if TYPE_CHECKING:
    import ssl

_PORTS: Final = {"http": 80, "https": 443}
_FROM_CORE: Final = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)


# What the HTTP client logs of a request: whole addresses, whose query may hold a key, and all headers of answers, which
# may repeat one.
_LOGGERS: Final = ("httpcore2.connection", "httpcore2.http11", "httpx2")
_IS_DISCREET: Final = ContextVar("is_discreet", default=False)


class _Discreet(logging.Filter):
    """Drops the lines of requests that are made discreetly; those of other users of the client stay."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _IS_DISCREET.get()


_DISCREET: Final = _Discreet()


@contextmanager
def discreetly() -> Iterator[None]:
    """A block in which the HTTP client logs nothing of what it sends and receives."""
    token = _IS_DISCREET.set(True)
    try:
        yield
    finally:
        _IS_DISCREET.reset(token)


class Place(NamedTuple):
    """A host and a port that connections are made to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def place_of(url: httpx2.URL | str) -> Place:
    """Return where a URL leads."""
    parsed = httpx2.URL(url) if isinstance(url, str) else url
    host = parsed.raw_host.decode("ascii").strip("[]").rstrip(".").lower()
    return Place(host, parsed.port or _PORTS.get(parsed.scheme, 0))


class AddressGuard:
    """Judges URLs. `trusted` are URLs of the operator's own, whose places are visited as they are.

    `allow_hosts` are the exceptions, as `host:port`, or `host` for the usual ports, with `*.` for all names below one;
    an exception that is a numeric address counts for that address alone.
    """

    def __init__(
        self, trusted: Iterable[str] = (), *, allow_hosts: Collection[str] = (), resolve: Resolve = look_up
    ) -> None:
        self._trusted = {place_of(url) for url in trusted}
        self._allowed = tuple(_parse_allowed(one) for one in allow_hosts)
        self._resolve = resolve

    @cached_property
    def certificates(self) -> ssl.SSLContext:
        """What certificates of servers are checked by; reading it takes a tenth of a second, once."""
        return httpx2.create_ssl_context(trust_env=False)

    def trusts(self, url: httpx2.URL) -> bool:
        """Whether the operator named the place of this URL."""
        return place_of(url) in self._trusted

    def check(self, url: httpx2.URL) -> None:
        """Accept a URL by its text alone.

        Raises:
            AddressRefusedError: it is none that is visited, whatever its host's addresses are.
        """
        place = place_of(url)
        if url.scheme not in _PORTS:
            raise AddressRefusedError(str(place), "only http:// and https:// are visited")
        if place in self._trusted:
            return
        if url.userinfo:
            raise AddressRefusedError(str(place), "it has a user name or password; leave them out")
        is_allowed = self._allows(place)
        reason = explain_refused_host(place.host, allow_private=is_allowed)
        if not reason and place.port not in _PORTS.values() and not is_allowed:
            reason = "its port is neither 80 nor 443"
        if reason:
            raise self._refusal(place, reason)

    async def choose(self, place: Place) -> list[str]:
        """Return the addresses that a connection may be made to, in the order in which to try them.

        Raises:
            AddressRefusedError: one of the addresses of the host is refused; none of them is visited.
            OSError: the name is not known.
        """
        is_trusted, is_allowed = place in self._trusted, self._allows(place)
        addresses = [place.host] if is_literal(place.host) else await self._resolve(place.host, place.port)
        if is_trusted or (is_allowed and is_literal(place.host)):
            return addresses
        for one in addresses:
            if reason := explain_refused_address(one, allow_private=is_allowed):
                raise self._refusal(place, reason)
        return addresses

    def _allows(self, place: Place) -> bool:
        return any(
            fnmatchcase(place.host, host) and (place.port == port if port else place.port in _PORTS.values())
            for host, port in self._allowed
        )

    def _refusal(self, place: Place, reason: str) -> AddressRefusedError:
        fix = f'if it may be visited: allow_hosts=["{place}"], or tools.allow_hosts in the configuration'
        return AddressRefusedError(str(place), f"{reason}; {fix}")


def _parse_allowed(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if colon and port.isdecimal() and (":" not in host or host.startswith("[")):
        return host.strip("[]").lower(), int(port)
    return text.strip("[]").lower(), 0


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to the addresses that the guard has judged, and looks nothing up again."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(self, host: str, port: int, *given: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        place = Place(host.strip("[]").rstrip(".").lower(), port)
        try:
            addresses = await self._guard.choose(place)
        except OSError as error:
            raise httpcore2.ConnectError(f"the name {place.host} is not known") from error
        last: Exception = httpcore2.ConnectError(f"the name {place.host} has no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, *given, **options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                last = error
        raise last

    async def connect_unix_socket(self, path: str, *given: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.ConnectError("no sockets of files are opened")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """The transport of clients that visit peers of tools: `httpx2.AsyncClient(transport=GuardedTransport(guard))`.

    It follows no redirects, and takes no proxies from the environment. With `keeps` False no connection is used twice,
    so that none can be gone when a request with effects is sent.

    Raises:
        AddressRefusedError: a request was refused, and nothing was visited.
        httpx2.HTTPError: as of httpx2's own transport.
    """

    def __init__(self, guard: AddressGuard, *, keeps: bool = True, max_connections: int = 100) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_DISCREET)
        self._guard = guard
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}
        self._make_pool = partial(
            httpcore2.AsyncConnectionPool,
            max_connections=max_connections,
            max_keepalive_connections=20 if keeps else 0,
            keepalive_expiry=5.0,
            network_backend=_GuardedBackend(guard),
        )

    def _pool(self, scheme: str) -> httpcore2.AsyncConnectionPool:
        found = self._pools.get(scheme)
        if found is None:
            context = self._guard.certificates if scheme == "https" else None
            found = self._pools[scheme] = self._make_pool(ssl_context=context)
        return found

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self._guard.check(request.url)
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        url = request.url
        asked = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx(request), discreetly():
            answer = await self._pool(url.scheme).handle_async_request(asked)
        return httpx2.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer, request),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        for pool in self._pools.values():
            await pool.aclose()


class _Body(httpx2.AsyncByteStream):
    """The body of an answer as it comes."""

    def __init__(self, answer: httpcore2.Response, request: httpx2.Request) -> None:
        self._answer = answer
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._answer.aiter_stream())
        while True:
            with _as_httpx(self._request), discreetly():
                try:
                    piece = await anext(pieces)
                except StopAsyncIteration:
                    return
            yield piece

    async def aclose(self) -> None:
        with discreetly():
            await self._answer.aclose()


@contextmanager
def _as_httpx(request: httpx2.Request) -> Iterator[None]:
    """Turn errors of the connection into those of httpx2, which has each under the same name."""
    try:
        yield
    except _FROM_CORE as error:
        kind = getattr(httpx2, type(error).__name__, httpx2.TransportError)
        raise kind(str(error), request=request) from error
