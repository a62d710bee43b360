"""The errors of the LLM edge: what a caller did wrong, what a layer of the chain refused, what a provider answered.

    LLMError
    ├── ClientClosedError · InvalidContentError · OrphanToolCallError        the request or its client
    ├── InvalidConfigError · UnknownDriverError · UnsupportedModelError      how the client was set up
    │   └── MissingAPIKeyError · ReasoningBudgetTooLowError · UnknownModelStringError
    ├── ContextLeakError · ContextWindowExceededError                        refused before money is spent
    ├── InvalidJSONSchemaError · DowngradeExhaustedError · RetryExhaustedError · ValidationFailedError
    └── ProviderError                                                        the provider answered no, or not at all

A missing identity is the identity room's error, named here too so that a caller of a model needs one import.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Self

from harborage.errors import HarborageError
from harborage.identity import IdentityMissingError

if TYPE_CHECKING:
    from harborage.llm.client import CompleteResponse

__all__ = [
    "AuthenticationFailedError",
    "BadRequestError",
    "ClientClosedError",
    "ConnectionFailedError",
    "ContextLeakError",
    "ContextOverflowError",
    "ContextWindowExceededError",
    "DowngradeExhaustedError",
    "IdentityMissingError",
    "IncompleteAnswerError",
    "InvalidConfigError",
    "InvalidContentError",
    "InvalidJSONSchemaError",
    "LLMError",
    "MalformedAnswerError",
    "MissingAPIKeyError",
    "ModelNotFoundError",
    "OrphanToolCallError",
    "ProviderError",
    "ProviderTimeoutError",
    "ProviderUnavailableError",
    "QuotaExceededError",
    "RateLimitedError",
    "ReasoningBudgetTooLowError",
    "Retry",
    "RetryExhaustedError",
    "ToolsUnsupportedError",
    "UnknownDriverError",
    "UnknownModelStringError",
    "UnsupportedModelError",
    "ValidationFailedError",
]


class LLMError(HarborageError):
    """A call to a language model failed."""


class ClientClosedError(LLMError):
    """The LLM client is closed; open a new one to make further calls."""


class InvalidContentError(LLMError):
    """A message's content is malformed: give it a text or a list of parts, and each part its body."""


class OrphanToolCallError(LLMError):
    """A tool call has no answer, or an answer no call. The text names the message and the ids."""


class InvalidConfigError(LLMError):
    """The settings of the LLM edge do not fit together; the text names the setting and what it may hold."""


class UnknownDriverError(LLMError):
    """No LLM driver has this name. `name` is what was asked for, `known` what there is, sorted."""

    def __init__(self, name: str = "", known: tuple[str, ...] = ()) -> None:
        self.name = name
        self.known = known
        super().__init__(f"llm: unknown driver {name or '<empty>'} (registered: {', '.join(known) or '<none>'})")


class UnknownModelStringError(InvalidConfigError):
    """A model string names no provider that is known; write it as `provider:model`, such as `openai:gpt-5`."""


class UnsupportedModelError(LLMError):
    """No profile describes this model; the text tells which one to add."""


class MissingAPIKeyError(InvalidConfigError):
    """A provider's key is not set. `variable` names the environment variable; a value is never shown."""

    def __init__(self, provider: str = "", variable: str = "") -> None:
        self.provider = provider
        self.variable = variable
        where = f"set the environment variable {variable}" if variable else "set llm.api_key"
        super().__init__(f"no API key for {provider or 'the provider'}: {where}")


class ReasoningBudgetTooLowError(InvalidConfigError):
    """The reasoning effort means fewer tokens of thinking than the provider accepts."""


class ContextLeakError(LLMError):
    """Raw heavy content was about to reach a model. `site` says where, sizes are in bytes."""

    def __init__(self, site: str = "", size_bytes: int = 0, threshold: int = 0) -> None:
        self.site = site
        self.size_bytes = size_bytes
        self.threshold = threshold
        super().__init__(
            f"llm: {size_bytes} bytes of raw content at {site} reach the heavy threshold of {threshold}; "
            "store them as an artifact and send its stub"
        )


class ContextWindowExceededError(LLMError):
    """A prompt does not fit the model's window. All numbers are tokens, but `reserve`, a share."""

    def __init__(self, estimate: int = 0, window: int = 0, reserve: float = 0.0, effective: int = 0) -> None:
        self.estimate = estimate
        self.window = window
        self.reserve = reserve
        self.effective = effective
        super().__init__(
            f"llm: a prompt of about {estimate} tokens does not fit: the window is {window}, with a reserve of "
            f"{reserve:g} that leaves {effective}; shorten what was asked, set a token budget so that the history is "
            "summarised earlier, or choose a model with a larger window"
        )


class InvalidJSONSchemaError(LLMError):
    """A provider refused a schema or the mode of structured output; a weaker mode is tried."""


class DowngradeExhaustedError(LLMError):
    """Every mode of structured output was refused; the text lists mode and error of each attempt."""


class RetryExhaustedError(LLMError):
    """A validator refused every answer. `response` is the last one."""

    def __init__(self, message: str = "", response: CompleteResponse | None = None) -> None:
        self.response = response
        super().__init__(message)


class ValidationFailedError(LLMError):
    """An answer does not have the shape that was asked for."""


class Retry(StrEnum):
    """Whether the same call may be made again: `SAFE` when nothing but time stands against it."""

    NEVER = "never"
    SAFE = "safe"


class ProviderError(LLMError):
    """A provider refused a call, or failed at it.

    `provider` and `model` say whose, `status` is the HTTP status or None, `retry` whether the same call may be made
    again, `retry_after_s` how many seconds the provider asks to wait. The text never holds a key.
    """

    retry = Retry.NEVER

    def __init__(
        self,
        message: str = "",
        *,
        provider: str = "",
        model: str = "",
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.provider = provider
        self.model = model
        self.status = status
        self.retry_after_s = retry_after_s
        super().__init__(message)


class BadRequestError(ProviderError):
    """The provider does not accept the request as it is."""


class AuthenticationFailedError(ProviderError):
    """The provider does not accept the key, or the key may not use this model."""


class ModelNotFoundError(ProviderError):
    """The provider does not know the model."""


class ToolsUnsupportedError(ProviderError):
    """The model takes no native tool declarations; choose one that does, or a structured-output mode."""

    @classmethod
    def of(cls, provider: str, model: str) -> Self:
        """The error for a model whose profile says so, with the setting that says otherwise."""
        return cls(
            f"llm: {model} takes no tools: choose a model that does, or give none; if it does take them, set "
            f"llm.profiles[{model!r}].supports_tools",
            provider=provider,
            model=model,
        )


class ContextOverflowError(ProviderError):
    """The provider says that the prompt does not fit the model's window."""


class QuotaExceededError(ProviderError):
    """The account has no credit left, or has reached its limit."""


class RateLimitedError(ProviderError):
    """Too many calls in too short a time."""

    retry = Retry.SAFE


class ProviderUnavailableError(ProviderError):
    """The provider failed on its side, or is overloaded."""

    retry = Retry.SAFE


class ProviderTimeoutError(ProviderError):
    """The provider did not answer in time."""

    retry = Retry.SAFE


class ConnectionFailedError(ProviderError):
    """The provider was not reached, or the connection broke."""

    retry = Retry.SAFE


class IncompleteAnswerError(ProviderError):
    """A stream ended before the provider said that the answer is finished; what came of it is no answer."""

    retry = Retry.SAFE


class MalformedAnswerError(ProviderError):
    """The provider sent what its own API does not allow."""

    retry = Retry.SAFE
