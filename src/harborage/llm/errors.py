"""The errors of the LLM edge: of a request or its client, of the chain that refused it, of the provider that failed.

LLMError
├── ClientClosedError · InvalidContentError · OrphanToolCallError        the request or its client
├── LLMConfigError · UnknownDriverError · UnsupportedModelError      how the client was set up
│   └── MissingAPIKeyError · ReasoningBudgetTooLowError · UnknownModelStringError
├── ContextLeakError · ContextWindowExceededError                        refused before money is spent
├── InvalidJSONSchemaError · DowngradeExhaustedError · RetryExhaustedError · ValidationFailedError
└── ProviderError                                                        the provider answered no, or not at all
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from harborage.drivers import DriverUnknownError
from harborage.errors import HarborageError, NotFoundError

if TYPE_CHECKING:
    from harborage.llm.client import CompleteResponse


class LLMError(HarborageError):
    """A call to a language model failed."""


class ClientClosedError(LLMError):
    """The LLM client is closed; open a new one to make further calls."""


class InvalidContentError(LLMError):
    """A message's content is malformed: give it a text or a list of parts, and each part its body."""


class OrphanToolCallError(LLMError):
    """A tool call has no answer, or an answer no call. The text names the message and the ids."""


class LLMConfigError(LLMError):
    """The settings of the LLM edge do not fit together; the text names the setting and its possible values."""


class UnknownDriverError(LLMError, DriverUnknownError):
    """No LLM driver has this name. `name` is the unknown one, `known` are the others, sorted."""

    def __init__(self, name: str = "", known: tuple[str, ...] = ()) -> None:
        super().__init__("llm", name, known)


class UnknownModelStringError(LLMConfigError):
    """A model string names no provider that is known; write it as `provider:model`, such as `openai:gpt-5`."""


class UnsupportedModelError(LLMError, NotFoundError):
    """No profile describes this model, which `id` names; the text names the profile to add."""

    what = "profile for the model"
    fix = "add one to llm.profiles, with its context_window_tokens"


class MissingAPIKeyError(LLMConfigError):
    """A provider's key is not set. `variable` names the environment variable; a value is never shown."""

    def __init__(self, provider: str = "", variable: str = "") -> None:
        self.provider = provider
        self.variable = variable
        where = f"set the environment variable {variable}" if variable else "set llm.api_key"
        super().__init__(f"no API key for {provider or 'the provider'}: {where}")


class ReasoningBudgetTooLowError(LLMConfigError):
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
            f"{reserve:g} that leaves {effective}; shorten the request, set a token budget so that the history is "
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
    """An answer does not have the requested shape."""


class Retry(StrEnum):
    """Whether the same call may be repeated: `SAFE` when it may succeed later."""

    NEVER = "never"
    SAFE = "safe"


class ProviderError(LLMError):
    """A provider refused a call, or failed at it.

    `status` is the HTTP status or None, `retry` whether the same call may be repeated, `retry_after_s` how many seconds
    the provider asks to wait. The text never holds a key.
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
        """Return the error for a model whose profile takes no tools; it names the setting that allows them."""
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
    """A stream ended before the provider reported the end of the answer; the part that came is no answer."""

    retry = Retry.SAFE


class MalformedAnswerError(ProviderError):
    """The provider sent what its own API does not allow."""

    retry = Retry.SAFE


ERRORS: Final[Mapping[str, type[LLMError]]] = {
    name: kind for name, kind in dict(globals()).items() if isinstance(kind, type) and issubclass(kind, LLMError)
}
"""Every error above, by the name of its class."""

Scalar: TypeAlias = str | int | float | bool | None


def record_error(error: Exception) -> tuple[str, dict[str, Scalar]]:
    """Return the name of the error's nearest class in `ERRORS`, empty without one, and its plain attributes."""
    kind = next((one.__name__ for one in type(error).__mro__ if one.__name__ in ERRORS), "")
    fields = {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | None)}
    return kind, fields


def restore_error(kind: str, message: str, fields: Mapping[str, Scalar]) -> LLMError:
    """Return an error of the class with this name, with this text and these attributes.

    Raises:
        KeyError: there is no such class.
    """
    error = ERRORS[kind].__new__(ERRORS[kind])
    HarborageError.__init__(error, message)
    if isinstance(error, ProviderError):
        ProviderError.__init__(error, message)
    vars(error).update(fields)
    return error
