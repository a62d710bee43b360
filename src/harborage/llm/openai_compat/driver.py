"""Chat Completions over plain HTTP: one driver for every server that speaks it, without a client library."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from harborage import codec
from harborage.identity import effective_quadruple
from harborage.llm.errors import (
    ClientClosedError,
    IdentityMissingError,
    InvalidConfigError,
    MalformedAnswerError,
    ProviderTimeoutError,
)
from harborage.llm.http_errors import Refusal, error_from_status, error_in_stream
from harborage.llm.openai_compat.body import request_body
from harborage.llm.openai_compat.connections import Connections, Server
from harborage.llm.openai_compat.events import EventSplitter
from harborage.llm.openai_compat.reader import AnswerReader
from harborage.llm.sdk.waits import Waits
from harborage.llm.streaming import AnswerBuilder

if TYPE_CHECKING:
    import httpx2

    from harborage.llm.client import CompleteRequest, CompleteResponse
    from harborage.llm.config import ConfigSnapshot, Deps

__all__ = ["OpenAICompatDriver"]

_MEGABYTE = 1024 * 1024
_LONGEST_EVENT = 16 * _MEGABYTE
_LONGEST_ANSWER = 64 * _MEGABYTE
_LONGEST_REFUSAL = _MEGABYTE


class OpenAICompatDriver:
    """One service that speaks Chat Completions. Serves any number of calls at once and keeps nothing of any of them."""

    def __init__(self, server: Server, cfg: ConfigSnapshot, deps: Deps) -> None:
        self._server = server
        self._cfg = cfg
        waits = Waits(cfg.transport, deps, provider=server.provider)
        self._connections = Connections(server, waits, connect_timeout_s=cfg.transport.connect_timeout_s)
        self._is_closed = False

    def __repr__(self) -> str:
        return f"OpenAICompatDriver({self._server!r})"

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        """The server's answer. The listeners hear `done` exactly once, whatever happens.

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
            reader = AnswerReader(
                answer, lambda body: self._failed(body, model), provider=self._server.provider, model=model
            )
            await self._call(self._body(request, model), reader, answer, model)
            reader.end()
            return answer.answer()

    async def close(self) -> None:
        """Refuse further calls and give back the connections. Closing twice does nothing."""
        self._is_closed = True
        await self._connections.close()

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

    async def _call(self, body: bytes, reader: AnswerReader, answer: AnswerBuilder, model: str) -> None:
        import httpx2

        from harborage.llm.openai_compat.faults import fault_of

        try:
            async with self._connections.posted(body, model) as response:
                await self._read(response, reader, model)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ProviderTimeoutError) as error:
            # What comes behind the end of an answer is only its bill.
            if answer.has_finished:
                return
            if isinstance(error, ProviderTimeoutError):
                raise
            server = self._server
            raise fault_of(error, provider=server.provider, model=model, address=server.base_url) from error

    async def _read(self, response: httpx2.Response, reader: AnswerReader, model: str) -> None:
        """The whole body, into the reader; what it is, its status and its type say."""
        kind = response.headers.get("content-type", "").lower()
        if not response.is_success:
            raise self._refused(response, await self._whole(response, _LONGEST_REFUSAL, model), model)
        if "html" in kind:
            text = f"{self._server.provider}: {self._server.base_url} answers with a web page; check llm.base_url"
            raise MalformedAnswerError(text, provider=self._server.provider, model=model)
        if "json" in kind:
            reader.take_whole(await self._whole(response, _LONGEST_ANSWER, model))
        else:
            await self._stream(response, reader, model)

    async def _stream(self, response: httpx2.Response, reader: AnswerReader, model: str) -> None:
        splitter = EventSplitter()
        async with self._pieces(response, model) as (source, pieces):
            async for piece in pieces:
                for data in splitter.feed(piece):
                    if data and reader.take(data):
                        await self._connections.drain(source)
                        return
                if len(splitter) > _LONGEST_EVENT:
                    raise self._too_long(_LONGEST_EVENT, model)
        if data := splitter.rest():
            reader.take_last(data)

    async def _whole(self, response: httpx2.Response, limit: int, model: str) -> bytes:
        """The body in one piece, up to `limit` bytes; of a refusal that is longer, the beginning."""
        body = bytearray()
        async with self._pieces(response, model) as (_, pieces):
            async for piece in pieces:
                body += piece
                if len(body) > limit:
                    if not response.is_success:
                        break
                    raise self._too_long(limit, model)
        return bytes(body)

    @asynccontextmanager
    async def _pieces(
        self, response: httpx2.Response, model: str
    ) -> AsyncIterator[tuple[AsyncIterator[bytes], AsyncIterator[bytes]]]:
        """The body as it comes, without and with an end to the waiting for it; both are finished behind the block."""
        async with (
            aclosing(response.aiter_bytes()) as source,
            aclosing(self._connections.pieces(source, model)) as pieces,
        ):
            yield source, pieces

    def _too_long(self, limit: int, model: str) -> MalformedAnswerError:
        text = f"{self._server.provider}: more than {limit:,} bytes of an answer, and no end to them"
        return MalformedAnswerError(text, provider=self._server.provider, model=model)

    def _refused(self, response: httpx2.Response, body: bytes, model: str) -> Refusal:
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

    def _failed(self, body: bytes, model: str) -> Refusal:
        server = self._server
        return error_in_stream(
            body, provider=server.provider, model=model, key_variable=server.key_variable, secret=server.key
        )
