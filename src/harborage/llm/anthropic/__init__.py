"""Anthropic's Messages API, through the official library. Install with the `anthropic` extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.llm.anthropic.request import build_body
from harborage.llm.anthropic.response import ResponseReader
from harborage.llm.driver import StainlessDriver, http_client, http_timeout, import_sdk
from harborage.llm.providers import resolve_key

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest
    from harborage.llm.config import ConfigSnapshot, Deps
    from harborage.llm.streaming import AnswerBuilder

__all__ = ["AnthropicDriver", "make"]

_KEY = "ANTHROPIC_API_KEY"


class AnthropicDriver(StainlessDriver):
    """One connection pool to the Messages API."""

    async def _call(self, request: CompleteRequest, model: str, answer: AnswerBuilder) -> None:
        length = self._max_tokens(request, model)
        body = build_body(request, model, provider=self._provider, max_tokens=length)
        reader = ResponseReader(answer, self._stream_error, self._malformed_error, model=model)
        async with self._post("/v1/messages", body, model) as response:
            if request.stream:
                await self._read_events(response, model, reader.read_event)
            else:
                reader.read_message(await self._read_body(response, model))


def make(cfg: ConfigSnapshot, deps: Deps) -> AnthropicDriver:
    """Return a driver for the Messages API.

    Raises:
        MissingExtraError: the `anthropic` extra is not installed.
        MissingAPIKeyError: there is no key.
    """
    anthropic = import_sdk("anthropic", extra="anthropic", what="the Anthropic driver")
    key = resolve_key(cfg, _KEY)
    client = anthropic.AsyncAnthropic(
        api_key=key,
        # The library adds the version itself.
        base_url=cfg.base_url.rstrip("/").removesuffix("/v1") or None,
        max_retries=0,
        timeout=http_timeout(cfg),
        default_headers=dict(cfg.headers),
        http_client=http_client(cfg),
    )
    return AnthropicDriver(cfg, deps, sdk=anthropic, client=client, provider="anthropic", key=(_KEY, key))
