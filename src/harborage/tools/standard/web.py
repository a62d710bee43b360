"""`http_get`: read a page or a document from the web, without becoming a way into the network that it runs in.

A name is looked up once, every address it has is judged, and the connection is made to the very address that was
judged, so that a second answer of the name server changes nothing. Every rule is about the numeric address that a
connection is made to, and about texts that mean such an address without looking like one. Redirects start from the
beginning. No proxies, no cookies, no credentials.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NotRequired, TypedDict
from urllib.parse import urljoin

import msgspec

from harborage.tools.addresses import Resolve, explain_refused_address, explain_refused_host, is_literal, look_up
from harborage.tools.enums import ErrorClass, SideEffect
from harborage.tools.errors import AddressRefusedError
from harborage.tools.function import tool
from harborage.tools.model import ToolDescriptor
from harborage.tools.policy import ToolPolicy
from harborage.tools.standard.errors import FetchFailedError
from harborage.tools.standard.html_text import parse_html
from harborage.tools.text import is_text_type, trim_cut_character

if TYPE_CHECKING:
    import httpx2

_MAX_URL_CHARS: Final = 2048
_MAX_PORT: Final = 1 << 16
_HEADERS: Final = {
    "Accept": "text/html, text/*;q=0.9, application/json;q=0.9, application/xml;q=0.8, */*;q=0.1",
    # Packed answers can be a thousand times their size; plain ones are what they are.
    "Accept-Encoding": "identity",
    "User-Agent": "harborage-http-get",
}
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CHARSETS: Final = ("utf", "ascii", "iso8859", "cp125", "koi8", "gb", "big5", "shift_jis", "euc", "mac")
_SHOWN_CHARS: Final = 256


class WebLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one call may take: `max_bytes` of the body, the rest is cut; `timeout_s` for all of it."""

    max_bytes: int = 512 * 1024
    timeout_s: float = 20.0
    max_redirects: int = 5


class WebPage(TypedDict):
    """The page that was read; `url` is its address after redirects."""

    url: str
    status: int
    content_type: str
    content: str
    truncated: bool
    title: NotRequired[str]


def http_get(
    *,
    allow_private: bool = False,
    limits: WebLimits = WebLimits(),  # noqa: B008 - a frozen value
    resolve: Resolve | None = None,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> ToolDescriptor:
    """Make the tool that reads a URL. `allow_private` lets it reach this machine and private networks.

    `resolve` and `transport` replace the system's name lookup and the network.
    """
    fetcher = _Fetcher(limits, allow_private, look_up if resolve is None else resolve, transport)

    async def get(url: str, raw: bool = False) -> WebPage:
        """Read a web page or a text document by its address. HTML comes as readable text with the addresses of links.

        Args:
            url: the address, beginning with http:// or https://
            raw: return HTML as it is
        """
        return await fetcher.fetch(url, raw=raw)

    return tool(
        get,
        name="http_get",
        effects=SideEffect.READ,
        tags=("standard", "network"),
        policy=ToolPolicy(timeout_ms=limits.timeout_s * 1000, max_retries=1),
        safety_notes="Whatever is written into the address reaches the server that it names.",
        source="standard",
    )


class _Answer(msgspec.Struct, frozen=True):
    """One answer: a redirect's address, or a body cut at the limit."""

    status: int
    content_type: str = ""
    location: str = ""
    body: bytes = b""
    is_cut: bool = False


class _Fetcher:
    """Reads URLs under one set of rules; keeps nothing between calls."""

    def __init__(
        self,
        limits: WebLimits,
        allow_private: bool,
        resolve: Resolve,
        transport: httpx2.AsyncBaseTransport | None,
    ) -> None:
        self._limits = limits
        self._allow_private = allow_private
        self._resolve = resolve
        self._transport = transport

    async def fetch(self, url: str, *, raw: bool) -> WebPage:
        """Return the page at `url`, or at the end of its redirects."""
        async with self._client() as client:
            for _ in range(self._limits.max_redirects + 1):
                answer = await self._request(client, url)
                if not answer.location:
                    return await _make_page(url, answer, raw=raw)
                url = urljoin(url, answer.location)
        raise FetchFailedError(f"{_clean_url(url)}: more than {self._limits.max_redirects} redirects")

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx2.AsyncClient]:
        # Costs 0.1 s once; only an agent that reads the web pays it.
        import httpx2

        async with httpx2.AsyncClient(
            transport=self._transport,
            trust_env=False,
            follow_redirects=False,
            timeout=self._limits.timeout_s,
            limits=httpx2.Limits(max_keepalive_connections=0),
        ) as client:
            yield client

    async def _request(self, client: httpx2.AsyncClient, url: str) -> _Answer:
        import httpx2

        asked = _parse_url(url)
        address = await self._choose_address(asked, url)
        request = client.build_request(
            "GET",
            asked.copy_with(host=address, fragment=None),
            headers={**_HEADERS, "Host": asked.netloc.decode("ascii")},
            # The certificate is checked for the name, although the connection goes to its address.
            extensions={"sni_hostname": asked.raw_host.decode("ascii")},
        )
        try:
            response = await client.send(request, stream=True)
            try:
                return await self._read_answer(response, url)
            finally:
                await response.aclose()
        except httpx2.TimeoutException as error:
            raise FetchFailedError(f"{_clean_url(url)}: no answer in time", error_class=ErrorClass.TIMEOUT) from error
        except httpx2.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise FetchFailedError(f"{_clean_url(url)}: {reason}", error_class=ErrorClass.TRANSIENT) from error

    async def _choose_address(self, asked: httpx2.URL, url: str) -> str:
        """Return the address to connect to: the first one of the host, if none of them is refused."""
        host = asked.raw_host.decode("ascii").strip("[]")
        reason = explain_refused_host(host, allow_private=self._allow_private)
        if reason:
            raise AddressRefusedError(_clean_url(url), reason)
        addresses = [host] if is_literal(host) else await self._look_up_all(host, asked, url)
        for address in addresses:
            reason = explain_refused_address(address, allow_private=self._allow_private)
            if reason:
                raise AddressRefusedError(_clean_url(url), reason)
        return addresses[0]

    async def _look_up_all(self, host: str, asked: httpx2.URL, url: str) -> list[str]:
        """Return all addresses of a host."""
        try:
            addresses = await self._resolve(host, asked.port or (443 if asked.scheme == "https" else 80))
        except OSError as error:
            unknown = f"{_clean_url(url)}: the name {host} is not known"
            raise FetchFailedError(unknown, error_class=ErrorClass.TRANSIENT) from error
        if not addresses:
            raise FetchFailedError(f"{_clean_url(url)}: the name {host} has no address")
        return addresses

    async def _read_answer(self, response: httpx2.Response, url: str) -> _Answer:
        status, kind = response.status_code, response.headers.get("content-type", "")
        location = response.headers.get("location", "")
        if status in _REDIRECTS and location:
            return _Answer(status, location=location)
        if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            raise FetchFailedError(f"{_clean_url(url)}: the answer is packed, though it was asked for as it is")
        if status < 300 and kind and not is_text_type(kind):
            raise FetchFailedError(f"{_clean_url(url)}: {kind[:64]} is no text, so it is not read", status=status)
        body, is_cut = await self._read_body(response)
        if status >= 300:
            raise _make_refusal(url, status, response.headers, body)
        return _Answer(status, kind, body=body, is_cut=is_cut)

    async def _read_body(self, response: httpx2.Response) -> tuple[bytes, bool]:
        """Return the body up to the limit, and whether there is more."""
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > self._limits.max_bytes:
                return bytes(body[: self._limits.max_bytes]), True
        return bytes(body), False


def _parse_url(url: str) -> httpx2.URL:
    import httpx2

    if len(url) > _MAX_URL_CHARS:
        raise AddressRefusedError(_clean_url(url), f"an address has at most {_MAX_URL_CHARS} characters")
    if "\\" in url or any(character <= " " for character in url):
        raise AddressRefusedError(_clean_url(url), "an address has no backslashes, blanks or control characters")
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise AddressRefusedError(_clean_url(url), "it is not a valid address") from error
    if parsed.scheme not in ("http", "https"):
        raise AddressRefusedError(_clean_url(url), "only http:// and https:// are read")
    if parsed.port is not None and not 0 < parsed.port < _MAX_PORT:
        raise AddressRefusedError(_clean_url(url), "its port is none")
    if parsed.userinfo:
        raise AddressRefusedError(_clean_url(url), "it has a user name or password; leave them out")
    return parsed


async def _make_page(url: str, answer: _Answer, *, raw: bool) -> WebPage:
    text = _decode_body(answer)
    page = WebPage(
        url=url, status=answer.status, content_type=answer.content_type, content=text, truncated=answer.is_cut
    )
    if "html" in answer.content_type.lower() and not raw:
        found = await asyncio.to_thread(parse_html, text, url)
        page["content"] = found.text
        if found.title:
            page["title"] = found.title
    return page


def _decode_body(answer: _Answer) -> str:
    """Decode the body in the character set that the server names, else UTF-8; invalid bytes are marked."""
    named = answer.content_type.lower().partition("charset=")[2].split(";")[0].strip(" \"'")
    try:
        name = codecs.lookup(named).name if named else "utf-8"
    except LookupError:
        name = "utf-8"
    if not name.startswith(_CHARSETS):
        name = "utf-8"
    body = trim_cut_character(answer.body) if answer.is_cut and name == "utf-8" else answer.body
    return body.decode(name, "replace").removeprefix("\ufeff")


def _make_refusal(url: str, status: int, headers: Mapping[str, str], body: bytes) -> FetchFailedError:
    """Return the error for a status that is no success, with the beginning of the server's text."""
    text = (
        " ".join(body.decode("utf-8", "replace").split())[:_SHOWN_CHARS]
        if is_text_type(headers.get("content-type", "text/plain"))
        else ""
    )
    kind = ErrorClass.PERMANENT
    if status >= 500:
        kind = ErrorClass.SERVER
    elif status == 429:
        kind = ErrorClass.TRANSIENT
    return FetchFailedError(
        f"{_clean_url(url)}: status {status}" + (f": {text}" if text else ""), status=status, error_class=kind
    )


def _clean_url(url: str) -> str:
    """Return the URL for a message: without a query, which may hold a key, and without a user or password."""
    bare = url.partition("#")[0].partition("?")[0]
    scheme, mark, rest = bare.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}"[:_SHOWN_CHARS]
