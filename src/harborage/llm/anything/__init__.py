"""The models that pydantic-ai knows and nothing here does: a bridge over its direct interface.

Model strings are its own, such as `any:cohere:command-r-plus`. Install with the `any` extra, and with whatever extra
of pydantic-ai the provider needs.
"""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from harborage import codec
from harborage.llm.anything.reading import answer_of, take_event
from harborage.llm.anything.request import Asked, Words, asked_of
from harborage.llm.errors import (
    ConnectionFailedError,
    IncompleteAnswerError,
    InvalidConfigError,
    InvalidJSONSchemaError,
    LLMError,
    MalformedAnswerError,
    ProviderTimeoutError,
)
from harborage.llm.keys import resolve_key
from harborage.llm.sdk.driver import SDKDriver, import_sdk
from harborage.llm.sdk.waits import Paced
from harborage.llm.streaming import AnswerBuilder

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest, CompleteResponse
    from harborage.llm.config import ConfigSnapshot, Deps

__all__ = ["AnythingDriver", "make"]

_PREFIX = "any:"


class AnythingDriver(SDKDriver):
    """A bridge to pydantic-ai; each model it is asked for is made once and kept."""

    def __init__(self, cfg: ConfigSnapshot, deps: Deps, *, words: Words, key: str) -> None:
        super().__init__(cfg, deps, provider="any", variable="", key=key)
        self._words = words
        self._models: dict[str, Any] = {}

    async def _call(self, request: CompleteRequest, model: str) -> CompleteResponse:
        bridge = self._model(self._name(model))
        length = self._length_of(request, model)
        asked = asked_of(request, self._words, provider=self._provider, max_tokens=length)
        with AnswerBuilder(request, provider=self._provider, model=model) as answer:
            if request.stream:
                await self._streamed(bridge, asked, answer, model)
            else:
                direct = self._words.direct
                calling = direct.model_request(
                    bridge, asked.messages, model_settings=asked.settings, model_request_parameters=asked.parameters
                )
                answer_of(await self._waits.first(calling, model), answer)
            return answer.answer()

    async def _streamed(self, bridge: Any, asked: Asked, answer: AnswerBuilder, model: str) -> None:
        streaming = self._words.direct.model_request_stream(
            bridge, asked.messages, model_settings=asked.settings, model_request_parameters=asked.parameters
        )
        async with AsyncExitStack() as stack:
            stream = await self._waits.first(stack.enter_async_context(streaming), model)
            async for event in Paced(aiter(stream), self._waits, model):
                take_event(event, answer)
            answer_of(stream.get(), answer, is_streamed=True)

    def _name(self, model: str) -> str:
        """The library's name of a model; one that names no provider is the configured provider's."""
        name = model.removeprefix(_PREFIX)
        provider, colon, _ = self._cfg.model.removeprefix(_PREFIX).partition(":")
        provider = provider if colon else self._cfg.provider
        return name if ":" in name or provider in ("", "any") else f"{provider}:{name}"

    def _model(self, name: str) -> Any:
        """pydantic-ai's model of this name, with our key and address where the configuration has them."""
        made = self._models.get(name)
        if made is None:
            models = self._words.models
            made = self._models[name] = models.infer_model(name, provider_factory=self._provider_of)
        return made

    def _provider_of(self, name: str) -> Any:
        try:
            cls = self._words.providers.infer_provider_class(name)
        except ValueError as error:
            raise InvalidConfigError(f"pydantic-ai knows no provider {name!r}; write any:PROVIDER:MODEL") from error
        wanted = {"api_key": self._key, "base_url": self._cfg.base_url}
        known = inspect.signature(cls.__init__).parameters
        given = {option: value for option, value in wanted.items() if value and option in known}
        return cls(**given) if given else self._words.providers.infer_provider(name)

    async def _close(self) -> None:
        models, self._models = self._models, {}
        for model in models.values():
            # Its clients are closed by whoever leaves last; entering makes us that one.
            async with model:
                pass

    def _translated(self, error: Exception, model: str) -> Exception | None:
        if isinstance(error, LLMError):
            return None
        exceptions = self._words.exceptions
        if isinstance(error, ImportError):
            # It names what has to be installed for the provider.
            return InvalidConfigError(f"{self._provider}: {error}")
        if isinstance(error, exceptions.ModelHTTPError):
            body = codec.encode({"error": error.body} if isinstance(error.body, dict) else error.body, "the refusal")
            return self._refused(error.status_code, body, error.headers or {}, model)
        if isinstance(error, (exceptions.ModelTimeoutError, exceptions.ModelRequestTimeout)):
            return ProviderTimeoutError(f"{self._provider}: no answer in time", provider=self._provider, model=model)
        if isinstance(error, exceptions.ModelConnectionError):
            cause = type(error.__cause__).__name__ if error.__cause__ is not None else "unknown"
            return ConnectionFailedError(
                f"{self._provider}: the connection failed ({cause})", provider=self._provider, model=model
            )
        if isinstance(error, exceptions.ModelAPIError) and isinstance(error.__cause__, ValueError):
            return self._malformed(error.message.encode(), model)
        if isinstance(error, exceptions.ModelAPIError):
            return self._broke_off(codec.encode({"error": {"message": error.message}}), model)
        if isinstance(error, exceptions.UnexpectedModelBehavior) and "ended without" in str(error):
            return IncompleteAnswerError(
                f"{self._provider}: the answer ended without a word", provider=self._provider, model=model
            )
        if isinstance(error, exceptions.UnexpectedModelBehavior):
            return MalformedAnswerError(
                f"{self._provider}: {type(error).__name__}", provider=self._provider, model=model
            )
        if isinstance(error, exceptions.UserError):
            is_about_schema = "structured output" in str(error)
            return (InvalidJSONSchemaError if is_about_schema else InvalidConfigError)(f"{self._provider}: {error}")
        return super()._translated(error, model)


def make(cfg: ConfigSnapshot, deps: Deps) -> AnythingDriver:
    """A bridge to pydantic-ai. Without a key of ours each of its providers looks for its own.

    Raises:
        MissingExtraError: the `any` extra is not installed.
        MissingAPIKeyError: the configuration names a variable, and that one is empty.
    """

    def part(name: str) -> Any:
        return import_sdk(f"pydantic_ai.{name}", extra="any", what="the pydantic-ai bridge")

    words = Words(
        direct=part("direct"),
        exceptions=part("exceptions"),
        messages=part("messages"),
        models=part("models"),
        output=part("output"),
        providers=part("providers"),
        tools=part("tools"),
    )
    return AnythingDriver(cfg, deps, words=words, key=resolve_key(cfg) if cfg.api_key else "")
