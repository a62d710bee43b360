"""OpenAI's Responses API, through the official library.

Nothing is stored with the provider: every call carries its whole history. Install with the `openai` extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.llm.keys import resolve_key
from harborage.llm.openai_responses.reading import Reading
from harborage.llm.openai_responses.request import body_of
from harborage.llm.sdk.driver import StainlessDriver, http_client, http_timeout, import_sdk
from harborage.llm.streaming import AnswerBuilder

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest, CompleteResponse
    from harborage.llm.config import ConfigSnapshot, Deps

__all__ = ["OpenAIResponsesDriver", "make"]

_KEY = "OPENAI_API_KEY"


class OpenAIResponsesDriver(StainlessDriver):
    """One connection pool to the Responses API; the API has no stop sequences, so `stops` is not sent."""

    async def _call(self, request: CompleteRequest, model: str) -> CompleteResponse:
        length = self._length_of(request, model)
        body = body_of(request, model, provider=self._provider, max_tokens=length)
        with AnswerBuilder(request, provider=self._provider, model=model) as answer:
            reading = Reading(answer, self._broke_off, self._malformed, model=model)
            async with self._posted("/responses", body, model) as response:
                if request.stream:
                    await self._read(response, model, reading.event)
                else:
                    reading.response(await self._whole(response, model))
            return answer.answer()


def make(cfg: ConfigSnapshot, deps: Deps) -> OpenAIResponsesDriver:
    """A driver for the Responses API.

    Raises:
        MissingExtraError: the `openai` extra is not installed.
        MissingAPIKeyError: there is no key.
    """
    openai = import_sdk("openai", extra="openai", what="the OpenAI Responses driver")
    key = resolve_key(cfg, _KEY)
    client = openai.AsyncOpenAI(
        api_key=key,
        base_url=cfg.base_url or None,
        max_retries=0,
        timeout=http_timeout(cfg),
        default_headers=dict(cfg.headers),
        http_client=http_client(cfg),
    )
    return OpenAIResponsesDriver(cfg, deps, sdk=openai, client=client, provider="openai", key=(_KEY, key))
