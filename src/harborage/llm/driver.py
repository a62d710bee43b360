"""The frame of a driver: identity, closing, time limits and errors; and what drivers over client libraries share.

A subclass makes one call. What a library or its transport raises becomes an error of the LLM edge, without its own
text around it, which may repeat a key.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
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
    LLMConfigError,
    MalformedAnswerError,
    ProviderTimeoutError,
)
from harborage.llm.http_errors import Refusal, error_from_status, error_in_stream
from harborage.llm.streaming import AnswerBuilder
from harborage.llm.transport import EventSplitter, Timeouts, open_connections

if TYPE_CHECKING:
    import httpx2

    from harborage.llm.client import CompleteRequest, CompleteResponse
    from harborage.llm.config import ConfigSnapshot, Deps

ErrorOf = Callable[[bytes, str], Exception]
"""Makes an error from a body and the model's name."""

# Libraries still bring the older of the two; both have the same classes, by the same names.
_TRANSPORTS = ("httpx2", "httpx", "httpcore2", "httpcore")


def import_sdk(module: str, *, extra: str, what: str) -> ModuleType:
    """Import a library and return it.

    Raises:
        MissingExtraError: it is not installed; names the extra that brings it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(extra, what) from error


def http_client(cfg: ConfigSnapshot) -> httpx2.AsyncClient:
    """Return the connections that a library is to use."""
    return open_connections(cfg.base_url, connect_timeout_s=cfg.transport.connect_timeout_s)


def http_timeout(cfg: ConfigSnapshot) -> httpx2.Timeout:
    """Return the limits that a library is to use beside `Timeouts`."""
    import httpx2

    return httpx2.Timeout(None, connect=cfg.transport.connect_timeout_s)


class Driver:
    """A driver of one provider; a subclass has `_call` and `_close`, and extends `_translate_error`.

    Holds nothing of a call. `key` is kept only to be cut out of the provider's messages.
    """

    def __init__(self, cfg: ConfigSnapshot, deps: Deps, *, provider: str, variable: str, key: str) -> None:
        self._cfg = cfg
        self._provider = cfg.provider or provider
        self._variable = _variable(cfg, variable)
        self._key = key
        self._timeouts = Timeouts(cfg.transport, deps, provider=self._provider)
        self._is_closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._cfg!r})"

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Return the provider's answer. The callbacks get `done` exactly once, on errors and cancellation too.

        Raises:
            ClientClosedError: the driver is closed.
            IdentityMissingError: no identity is bound.
            LLMConfigError: neither the request nor the configuration names a model.
            InvalidContentError: an attachment is broken or too large; nothing was sent.
            LLMError: the provider refused, or failed; see `llm.errors`.
        """
        model = request.model or self._cfg.model
        with AnswerBuilder(request, provider=self._provider, model=model) as answer:
            if self._is_closed:
                raise ClientClosedError()
            must_identity()
            if not model:
                raise LLMConfigError(f"{self._provider}: no model; name one in the request or in llm.model")
            if self._cfg.extra:
                request = msgspec.structs.replace(request, extra={**self._cfg.extra, **request.extra})
            try:
                await self._call(request, model, answer)
            except Exception as error:
                translated = self._translate_error(error, model)
                if translated is None:
                    raise
                # The library's own error may hold the whole refusal, key included: it must not reach a traceback.
                raise translated from None
            return answer.answer()

    async def close(self) -> None:
        """Refuse further calls and give back the connections. Closing twice does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._close()

    def _max_tokens(self, request: CompleteRequest, model: str) -> int | None:
        """Return how many tokens an answer may take; None leaves it to the provider."""
        if request.max_tokens is not None:
            return request.max_tokens
        profile = self._cfg.profiles.get(model)
        return profile.default_max_tokens if profile is not None else None

    async def _call(self, request: CompleteRequest, model: str, answer: AnswerBuilder) -> None:
        """Make the call and read what the provider sends into `answer`."""
        raise NotImplementedError

    async def _close(self) -> None:
        raise NotImplementedError

    def _translate_error(self, error: Exception, model: str) -> Exception | None:
        """Return the error of the LLM edge for `error`; None when it is one already, or one of a callback."""
        return transport_error(error, provider=self._provider, model=model)

    def _refusal(self, status: int, body: bytes, headers: Mapping[str, str], model: str) -> Refusal:
        """Return the error for a status that is not one of success."""
        return error_from_status(
            status,
            body,
            headers,
            provider=self._provider,
            model=model,
            key_variable=self._variable,
            secret=self._key,
        )

    def _malformed_error(self, body: bytes, model: str) -> MalformedAnswerError:
        """Return the error for a body that the API does not send; it names the size, as the text may be private."""
        return MalformedAnswerError(
            f"{self._provider}: {len(body)} bytes of the answer are not what its API sends",
            provider=self._provider,
            model=model,
        )

    def _stream_error(self, body: bytes, model: str) -> Refusal:
        """Return the error for a failure that is reported inside an answer."""
        return error_in_stream(
            body, provider=self._provider, model=model, key_variable=self._variable, secret=self._key
        )


def _variable(cfg: ConfigSnapshot, usual: str) -> str:
    """Return the variable that the key came from; empty where the configuration holds the key itself."""
    if cfg.api_key.startswith("env."):
        return cfg.api_key.removeprefix("env.")
    return "" if cfg.api_key else usual


def transport_error(error: BaseException, *, provider: str, model: str) -> Exception | None:
    """Return the error for a connection that failed or broke; None for any other error."""
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


class StainlessDriver(Driver):
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
    async def _post(self, path: str, body: Mapping[str, Any], model: str) -> AsyncIterator[httpx2.Response]:
        """Give the response to a request, its body unread; leaving the block closes the connection or gives it back."""
        import httpx2

        sending = self._client.post(
            path,
            cast_to=httpx2.Response,
            content=codec.encode(body, "the request"),
            stream=True,
            stream_cls=self._sdk.AsyncStream[object],
        )
        response: httpx2.Response = await self._timeouts.wait_first(sending, model)
        try:
            yield response
        finally:
            await response.aclose()

    async def _read_events(self, response: httpx2.Response, model: str, take: Callable[[bytes], bool]) -> None:
        """Pass every event of a streamed body to `take`, until it returns that the answer is whole or the body ends."""
        body = response.aiter_bytes()
        async for data in _split_events(self._timeouts.timed_body(body, model)):
            if take(data):
                await self._timeouts.drain(body)
                return

    async def _read_body(self, response: httpx2.Response, model: str) -> bytes:
        """Return the body of an answer that is not streamed."""
        return b"".join([piece async for piece in self._timeouts.timed_body(response.aiter_bytes(), model)])

    async def _close(self) -> None:
        await self._client.close()

    def _translate_error(self, error: Exception, model: str) -> Exception | None:
        if isinstance(error, self._sdk.APIStatusError):
            response = error.response
            return self._refusal(response.status_code, response.content, response.headers, model)
        if isinstance(error, self._sdk.APITimeoutError):
            return ProviderTimeoutError(
                f"{self._provider}: no connection in time", provider=self._provider, model=model
            )
        if isinstance(error, self._sdk.APIConnectionError):
            cause = type(error.__cause__).__name__ if error.__cause__ is not None else "unknown"
            return ConnectionFailedError(
                f"{self._provider}: the connection failed ({cause})", provider=self._provider, model=model
            )
        return super()._translate_error(error, model)


async def _split_events(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of each server-sent event in a body."""
    splitter = EventSplitter()
    async for piece in body:
        for data in splitter.feed(piece):
            if data:
                yield data
    if data := splitter.rest():
        yield data
