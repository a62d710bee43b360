"""The frame of a driver over a provider's own client library: identity, closing, time limits and errors.

A subclass makes one call; whatever the library or its transport raises comes out as an error of the LLM edge, and
without the library's own text around it, which may repeat a key.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.errors import MissingExtraError
from harborage.identity import must_identity
from harborage.llm.errors import (
    ClientClosedError,
    ConnectionFailedError,
    InvalidConfigError,
    MalformedAnswerError,
    ProviderTimeoutError,
)
from harborage.llm.http_errors import Refusal, error_from_status, error_in_stream
from harborage.llm.openai_compat.events import EventSplitter
from harborage.llm.sdk.waits import Paced, Waits

if TYPE_CHECKING:
    import httpx2

    from harborage.llm.client import CompleteRequest, CompleteResponse
    from harborage.llm.config import ConfigSnapshot, Deps

__all__ = ["SDKDriver", "StainlessDriver", "http_client", "import_sdk"]

# Libraries still bring the older of the two; both have the same classes, by the same names.
_TRANSPORTS = ("httpx2", "httpx", "httpcore2", "httpcore")
_LONGEST_DRAIN_S = 0.1


def import_sdk(module: str, *, extra: str, what: str) -> ModuleType:
    """The module, imported now.

    Raises:
        MissingExtraError: it is not installed; names the extra that brings it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(extra, what) from error


def http_client(cfg: ConfigSnapshot) -> httpx2.AsyncClient:
    """The connections that a library is to use: as many as there are calls, and no time limits but for connecting.

    How long an answer may take is watched by `Waits`, on the runtime's clock.
    """
    import httpx2

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    # Reading the system's certificates takes longer than a whole call to a server that needs none of them.
    verify = not cfg.base_url.startswith("http://")
    return httpx2.AsyncClient(timeout=http_timeout(cfg), limits=limits, verify=verify)


def http_timeout(cfg: ConfigSnapshot) -> httpx2.Timeout:
    """The limits that the transport itself watches."""
    import httpx2

    return httpx2.Timeout(None, connect=cfg.transport.connect_timeout_s)


class SDKDriver:
    """A driver whose calls go through a library; a subclass has `_call` and `_close`, and may add to `_translated`.

    Holds nothing of a call. `key` is kept only to be cut out of what a provider says.
    """

    def __init__(self, cfg: ConfigSnapshot, deps: Deps, *, provider: str, variable: str, key: str) -> None:
        self._cfg = cfg
        self._provider = cfg.provider or provider
        self._variable = _variable(cfg, variable)
        self._key = key
        self._waits = Waits(cfg.transport, deps, provider=self._provider)
        self._is_closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._cfg!r})"

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """The provider's answer.

        Raises:
            ClientClosedError: the driver is closed.
            IdentityMissingError: no identity is bound.
            InvalidConfigError: neither the request nor the configuration names a model.
            LLMError: the provider refused, or failed; see `llm.errors`.
        """
        if self._is_closed:
            raise ClientClosedError()
        must_identity()
        model = request.model or self._cfg.model
        if not model:
            raise InvalidConfigError(f"{self._provider}: no model; name one in the request or in llm.model")
        if self._cfg.extra:
            request = msgspec.structs.replace(request, extra={**self._cfg.extra, **request.extra})
        try:
            return await self._call(request, model)
        except Exception as error:
            translated = self._translated(error, model)
            if translated is None:
                raise
            # The library's own error may hold the whole refusal, key included: it must not reach a traceback.
            raise translated from None

    async def close(self) -> None:
        """Refuse further calls and give back the connections. Closing twice does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._close()

    def _length_of(self, request: CompleteRequest, model: str) -> int | None:
        """How many tokens an answer may take; None leaves it to the provider."""
        if request.max_tokens is not None:
            return request.max_tokens
        profile = self._cfg.profiles.get(model)
        return profile.default_max_tokens if profile is not None else None

    async def _call(self, request: CompleteRequest, model: str) -> CompleteResponse:
        raise NotImplementedError

    async def _close(self) -> None:
        raise NotImplementedError

    def _translated(self, error: Exception, model: str) -> Exception | None:
        """The error of the LLM edge that `error` stands for; None when it is one already, or a listener's own."""
        return transport_error(error, provider=self._provider, model=model)

    def _refused(self, status: int, body: bytes, headers: Mapping[str, str], model: str) -> Refusal:
        """The error for a status that is none of success."""
        return error_from_status(
            status,
            body,
            headers,
            provider=self._provider,
            model=model,
            key_variable=self._variable,
            secret=self._key,
        )

    def _malformed(self, body: bytes, model: str) -> MalformedAnswerError:
        """The error for what is none of the API's answers; its size is told, not its text, which may be private."""
        return MalformedAnswerError(
            f"{self._provider}: {len(body)} bytes of the answer are not what its API sends",
            provider=self._provider,
            model=model,
        )

    def _broke_off(self, body: bytes, model: str) -> Refusal:
        """The error for a failure that is told inside an answer."""
        return error_in_stream(
            body, provider=self._provider, model=model, key_variable=self._variable, secret=self._key
        )


def _variable(cfg: ConfigSnapshot, usual: str) -> str:
    """The variable that the key came from; empty where the configuration holds the key itself."""
    if cfg.api_key.startswith("env."):
        return cfg.api_key.removeprefix("env.")
    return "" if cfg.api_key else usual


def transport_error(error: BaseException, *, provider: str, model: str) -> Exception | None:
    """The error for a connection that failed or broke; None for any other error."""
    names = {cls.__name__ for cls in type(error).__mro__ if cls.__module__.partition(".")[0] in _TRANSPORTS}
    if "TimeoutException" in names:
        return ProviderTimeoutError(
            f"{provider}: no connection in time ({type(error).__name__})", provider=provider, model=model
        )
    if names & {"RequestError", "NetworkError", "ProtocolError", "StreamError"} or isinstance(error, ssl.SSLError):
        return ConnectionFailedError(
            f"{provider}: the connection failed ({type(error).__name__}: {error})", provider=provider, model=model
        )
    return None


class StainlessDriver(SDKDriver):
    """A driver over one of the libraries that are generated alike: those of OpenAI and Anthropic.

    The library signs and sends the request; the answer's body is read here, at a tenth of what its typed events cost.
    """

    def __init__(
        self, cfg: ConfigSnapshot, deps: Deps, *, sdk: ModuleType, client: Any, provider: str, key: tuple[str, str]
    ) -> None:
        variable, secret = key
        super().__init__(cfg, deps, provider=provider, variable=variable, key=secret)
        self._sdk = sdk
        self._client = client

    @asynccontextmanager
    async def _posted(self, path: str, body: Mapping[str, Any], model: str) -> AsyncIterator[httpx2.Response]:
        """The response to a request, its body unread; leaving the block closes the connection or gives it back."""
        import httpx2

        sending = self._client.post(
            path,
            cast_to=httpx2.Response,
            content=codec.encode(body, "the request"),
            stream=True,
            stream_cls=self._sdk.AsyncStream[object],
        )
        response: httpx2.Response = await self._waits.first(sending, model)
        try:
            yield response
        finally:
            await response.aclose()

    async def _read(self, response: httpx2.Response, model: str, take: Callable[[bytes], bool]) -> None:
        """Hand every event of a streamed body to `take`, until it says that the answer is whole or the body ends."""
        pieces = response.aiter_bytes()
        async for data in _events_of(self._pieces(pieces, model)):
            if take(data):
                await self._drain(pieces)
                return

    async def _whole(self, response: httpx2.Response, model: str) -> bytes:
        """The body of an answer that is not streamed."""
        return b"".join([piece async for piece in self._pieces(response.aiter_bytes(), model)])

    async def _pieces(self, source: AsyncIterator[bytes], model: str) -> AsyncIterator[bytes]:
        """A body's pieces: the first may take as long as an answer may take to begin, each other as long as a pause."""
        yield await self._waits.first(anext(source, b""), model)
        async for piece in Paced(source, self._waits, model):
            yield piece

    async def _drain(self, pieces: AsyncIterator[bytes]) -> None:
        """Read what is left of a body, which lets the connection be used again; a body that goes on is given up."""
        import httpx2

        with suppress(httpx2.HTTPError, httpx2.StreamError), self._waits.scope(_LONGEST_DRAIN_S):
            async for _ in pieces:
                pass

    async def _close(self) -> None:
        await self._client.close()

    def _translated(self, error: Exception, model: str) -> Exception | None:
        if isinstance(error, self._sdk.APIStatusError):
            response = error.response
            return self._refused(response.status_code, response.content, response.headers, model)
        if isinstance(error, self._sdk.APITimeoutError):
            return ProviderTimeoutError(
                f"{self._provider}: no connection in time", provider=self._provider, model=model
            )
        if isinstance(error, self._sdk.APIConnectionError):
            cause = type(error.__cause__).__name__ if error.__cause__ is not None else "unknown"
            return ConnectionFailedError(
                f"{self._provider}: the connection failed ({cause})", provider=self._provider, model=model
            )
        return super()._translated(error, model)


async def _events_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of each server-sent event in a body that comes in `pieces`."""
    splitter = EventSplitter()
    async for piece in pieces:
        for data in splitter.feed(piece):
            if data:
                yield data
    if data := splitter.rest():
        yield data
