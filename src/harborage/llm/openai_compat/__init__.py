"""The driver for every server that speaks OpenAI's Chat Completions, hosted or on one's own machine.

It speaks plain HTTP and needs no client library.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from harborage import codec
from harborage.identity import IdentityMissingError, effective_quadruple
from harborage.llm.errors import (
    ClientClosedError,
    InvalidConfigError,
    MalformedAnswerError,
    ProviderTimeoutError,
)
from harborage.llm.http_errors import Refusal, error_from_status, error_in_stream
from harborage.llm.openai_compat.connection import Connection, Server, connection_error
from harborage.llm.openai_compat.request import request_body
from harborage.llm.openai_compat.response import ResponseReader
from harborage.llm.providers import PROVIDERS, resolve_key
from harborage.llm.streaming import AnswerBuilder
from harborage.llm.transport import EventSplitter, Timeouts

if TYPE_CHECKING:
    import httpx2

    from harborage.llm.client import CompleteRequest, CompleteResponse
    from harborage.llm.config import ConfigSnapshot, Deps

__all__ = ["OpenAICompatDriver", "Server", "make"]

_MEGABYTE = 1024 * 1024
_LONGEST_EVENT = 16 * _MEGABYTE
_LONGEST_ANSWER = 64 * _MEGABYTE
_LONGEST_REFUSAL = _MEGABYTE


def make(cfg: ConfigSnapshot, deps: Deps) -> OpenAICompatDriver:
    """Return a driver for the configured provider; one that is not in the table needs only its `base_url`.

    Raises:
        MissingAPIKeyError: the provider takes no call without a key, and there is none; it names the variable.
        InvalidConfigError: the address is missing or is none, or the key holds characters that no key has.
    """
    known = PROVIDERS.get(cfg.provider)
    variables = () if known is None else known.key_variables
    setting = cfg.api_key.strip()
    key = resolve_key(cfg, variables) if setting or variables else ""
    variable = setting.removeprefix("env.") if setting.startswith("env.") else "" if setting else "".join(variables[:1])
    server = Server(
        provider=cfg.provider or "openai_compat",
        base_url=cfg.base_url or ("" if known is None else known.base_url),
        key=key,
        key_variable=variable,
        headers=cfg.headers,
    )
    return OpenAICompatDriver(server, cfg, deps)


class OpenAICompatDriver:
    """One service that speaks Chat Completions. Serves any number of calls at once and keeps nothing of any of them."""

    def __init__(self, server: Server, cfg: ConfigSnapshot, deps: Deps) -> None:
        self._server = server
        self._cfg = cfg
        self._timeouts = Timeouts(cfg.transport, deps, provider=server.provider)
        self._connection = Connection(server, self._timeouts, connect_timeout_s=cfg.transport.connect_timeout_s)
        self._is_closed = False

    def __repr__(self) -> str:
        return f"OpenAICompatDriver({self._server!r})"

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """Return the server's answer. The callbacks get `done` exactly once, on errors and cancellation too.

        Raises:
            ClientClosedError: the driver is closed.
            IdentityMissingError: no identity is bound.
            InvalidConfigError: neither the request nor the configuration names a model, or the address is none.
            InvalidContentError: an attachment is broken or too large; nothing was sent.
            LLMError: the server refused, failed or was not reached; see `llm.errors`.
        """
        model = request.model or self._cfg.model
        with AnswerBuilder(request, provider=self._server.provider, model=model) as answer:
            self._check(model)
            reader = ResponseReader(
                answer, lambda body: self._stream_error(body, model), provider=self._server.provider, model=model
            )
            await self._call(self._body(request, model), reader, answer, model)
            reader.end()
            return answer.answer()

    async def close(self) -> None:
        """Refuse further calls and close the connections. Closing twice does nothing."""
        self._is_closed = True
        await self._connection.close()

    def _check(self, model: str) -> None:
        if self._is_closed:
            raise ClientClosedError()
        if effective_quadruple() is None:
            raise IdentityMissingError()
        if not model:
            raise InvalidConfigError(f"{self._server.provider}: no model; name one in the request or in llm.model")

    def _body(self, request: CompleteRequest, model: str) -> bytes:
        profile = self._cfg.profiles.get(model)
        body = request_body(
            request,
            provider=self._server.provider,
            model=model,
            extra=self._cfg.extra,
            default_max_tokens=None if profile is None else profile.default_max_tokens,
        )
        return codec.encode(body, "request")

    async def _call(self, body: bytes, reader: ResponseReader, answer: AnswerBuilder, model: str) -> None:
        import httpx2

        try:
            async with self._connection.post(body, model) as response:
                await self._read(response, reader, model)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ProviderTimeoutError) as error:
            # Only the usage follows the end of an answer.
            if answer.has_finished:
                return
            if isinstance(error, ProviderTimeoutError):
                raise
            server = self._server
            raise connection_error(error, provider=server.provider, model=model, address=server.base_url) from error

    async def _read(self, response: httpx2.Response, reader: ResponseReader, model: str) -> None:
        """Read the whole body; the status and the content type say what it is."""
        kind = response.headers.get("content-type", "").lower()
        if not response.is_success:
            raise self._refusal(response, await self._read_body(response, _LONGEST_REFUSAL, model), model)
        if "html" in kind:
            text = f"{self._server.provider}: {self._server.base_url} answers with a web page; check llm.base_url"
            raise MalformedAnswerError(text, provider=self._server.provider, model=model)
        if "json" in kind:
            reader.take_whole(await self._read_body(response, _LONGEST_ANSWER, model))
        else:
            await self._read_stream(response, reader, model)

    async def _read_stream(self, response: httpx2.Response, reader: ResponseReader, model: str) -> None:
        splitter = EventSplitter()
        async with self._open_body(response, model) as (body, pieces):
            async for piece in pieces:
                for data in splitter.feed(piece):
                    if data and reader.take(data):
                        await self._timeouts.drain(body)
                        return
                if len(splitter) > _LONGEST_EVENT:
                    raise self._too_long(_LONGEST_EVENT, model)
        if data := splitter.rest():
            reader.take_last(data)

    async def _read_body(self, response: httpx2.Response, limit: int, model: str) -> bytes:
        """Return the body in one piece, up to `limit` bytes; of a refusal that is longer, the beginning."""
        whole = bytearray()
        async with self._open_body(response, model) as (_, pieces):
            async for piece in pieces:
                whole += piece
                if len(whole) > limit:
                    if not response.is_success:
                        break
                    raise self._too_long(limit, model)
        return bytes(whole)

    @asynccontextmanager
    async def _open_body(
        self, response: httpx2.Response, model: str
    ) -> AsyncIterator[tuple[AsyncIterator[bytes], AsyncIterator[bytes]]]:
        """Give the body without and with time limits; both iterators are closed behind the block."""
        async with (
            aclosing(response.aiter_bytes()) as body,
            aclosing(self._timeouts.timed_body(body, model)) as pieces,
        ):
            yield body, pieces

    def _too_long(self, limit: int, model: str) -> MalformedAnswerError:
        text = f"{self._server.provider}: more than {limit:,} bytes of an answer, and no end to them"
        return MalformedAnswerError(text, provider=self._server.provider, model=model)

    def _refusal(self, response: httpx2.Response, body: bytes, model: str) -> Refusal:
        server = self._server
        return error_from_status(
            response.status_code,
            body,
            response.headers,
            provider=server.provider,
            model=model,
            key_variable=server.key_variable,
            secret=server.key,
        )

    def _stream_error(self, body: bytes, model: str) -> Refusal:
        server = self._server
        return error_in_stream(
            body, provider=server.provider, model=model, key_variable=server.key_variable, secret=server.key
        )
