"""The driver for every server that speaks OpenAI's Chat Completions, hosted or on one's own machine.

It speaks plain HTTP and needs no client library.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from harborage import codec
from harborage.llm.driver import Driver
from harborage.llm.errors import MalformedAnswerError, ProviderTimeoutError
from harborage.llm.openai_compat.connection import Connection, connection_error, endpoint, request_headers
from harborage.llm.openai_compat.request import build_body
from harborage.llm.openai_compat.response import ResponseReader
from harborage.llm.providers import PROVIDERS, resolve_key
from harborage.llm.transport import EventSplitter

if TYPE_CHECKING:
    import httpx2

    from harborage.llm.client import CompleteRequest
    from harborage.llm.config import ConfigSnapshot, Deps
    from harborage.llm.streaming import AnswerBuilder

__all__ = ["OpenAICompatDriver", "make"]

_MEGABYTE = 1024 * 1024
_LONGEST_EVENT = 16 * _MEGABYTE
_LONGEST_ANSWER = 64 * _MEGABYTE
_LONGEST_REFUSAL = _MEGABYTE


def make(cfg: ConfigSnapshot, deps: Deps) -> OpenAICompatDriver:
    """Return a driver for the configured provider; one that is not in the table needs only its `base_url`.

    Raises:
        MissingAPIKeyError: the provider takes no call without a key, and there is none; it names the variable.
        LLMConfigError: the address is missing or is none, or the key holds characters that no key has.
    """
    known = PROVIDERS.get(cfg.provider)
    variables = () if known is None else known.key_variables
    key = resolve_key(cfg, variables) if cfg.api_key.strip() or variables else ""
    base_url = cfg.base_url or ("" if known is None else known.base_url)
    return OpenAICompatDriver(cfg, deps, base_url=base_url, key=("".join(variables[:1]), key))


class OpenAICompatDriver(Driver):
    """One service that speaks Chat Completions. Serves any number of calls at once and keeps nothing of any of them."""

    def __init__(self, cfg: ConfigSnapshot, deps: Deps, *, base_url: str, key: tuple[str, str]) -> None:
        variable, secret = key
        super().__init__(cfg, deps, provider="openai_compat", variable=variable, key=secret)
        self._base_url = base_url
        headers = request_headers(secret, cfg.headers)
        self._connection = Connection(endpoint(base_url, self._provider), headers, self._timeouts, cfg.transport)

    def __repr__(self) -> str:
        """Without the key."""
        return f"OpenAICompatDriver({self._provider!r}, {self._base_url!r})"

    async def _call(self, request: CompleteRequest, model: str, answer: AnswerBuilder) -> None:
        import httpx2

        reader = ResponseReader(
            answer, lambda body: self._stream_error(body, model), provider=self._provider, model=model
        )
        length = self._max_tokens(request, model)
        body = build_body(request, model, provider=self._provider, max_tokens=length)
        try:
            async with self._connection.post(codec.encode(body, "request"), model) as response:
                await self._read(response, reader, model)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ProviderTimeoutError) as error:
            # Only the usage follows the end of an answer.
            if not answer.has_finished:
                if isinstance(error, ProviderTimeoutError):
                    raise
                raise connection_error(error, provider=self._provider, model=model, address=self._base_url) from error
        reader.end()

    async def _close(self) -> None:
        await self._connection.close()

    async def _read(self, response: httpx2.Response, reader: ResponseReader, model: str) -> None:
        """Read the whole body; the status and the content type say what it is."""
        kind = response.headers.get("content-type", "").lower()
        if not response.is_success:
            body = await self._read_body(response, _LONGEST_REFUSAL, model)
            raise self._refusal(response.status_code, body, response.headers, model)
        if "html" in kind:
            text = f"{self._provider}: {self._base_url} answers with a web page; check llm.base_url"
            raise MalformedAnswerError(text, provider=self._provider, model=model)
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
        text = f"{self._provider}: more than {limit:,} bytes of an answer, and no end to them"
        return MalformedAnswerError(text, provider=self._provider, model=model)
