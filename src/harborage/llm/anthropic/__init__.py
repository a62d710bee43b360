"""Anthropic's Messages API, through the official library. Install with the `anthropic` extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.llm.anthropic.reading import Reading
from harborage.llm.anthropic.request import body_of
from harborage.llm.keys import resolve_key
from harborage.llm.sdk.driver import StainlessDriver, http_client, http_timeout, import_sdk
from harborage.llm.streaming import AnswerBuilder

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest, CompleteResponse
    from harborage.llm.config import ConfigSnapshot, Deps

__all__ = ["AnthropicDriver", "make"]

_KEY = "ANTHROPIC_API_KEY"


class AnthropicDriver(StainlessDriver):
    """One connection pool to the Messages API."""

    async def _call(self, request: CompleteRequest, model: str) -> CompleteResponse:
        length = self._length_of(request, model)
        body = body_of(request, model, provider=self._provider, max_tokens=length)
        with AnswerBuilder(request, provider=self._provider, model=model) as answer:
            reading = Reading(answer, self._broke_off, self._malformed, model=model)
            async with self._posted("/v1/messages", body, model) as response:
                if request.stream:
                    await self._read(response, model, reading.event)
                else:
                    reading.message(await self._whole(response, model))
            return answer.answer()


def make(cfg: ConfigSnapshot, deps: Deps) -> AnthropicDriver:
    """A driver for the Messages API.

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
