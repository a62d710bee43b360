"""Which failures mean that a provider does not take a JSON schema or its mode of structured output. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harborage.llm.errors import (
    AuthenticationFailedError,
    ClientClosedError,
    ConnectionFailedError,
    ContextLeakError,
    ContextOverflowError,
    ContextWindowExceededError,
    IncompleteAnswerError,
    InvalidConfigError,
    InvalidContentError,
    InvalidJSONSchemaError,
    MalformedAnswerError,
    ModelNotFoundError,
    OrphanToolCallError,
    ProviderTimeoutError,
    QuotaExceededError,
    RateLimitedError,
    ToolsUnsupportedError,
    UnknownDriverError,
    UnsupportedModelError,
)

__all__ = ["is_invalid_json_schema_error"]

_PHRASES: Final = (
    "json_schema",
    "json schema",
    "invalid schema",
    "schema validation",
    "response_format",
    "response format",
    "structured output",
    "json mode",
    "json_object",
)
# What these say is known by their class; a text of theirs that happens to mention JSON mode means nothing.
_OF_ANOTHER_KIND: Final = (
    AuthenticationFailedError,
    ClientClosedError,
    ConnectionFailedError,
    ContextLeakError,
    ContextOverflowError,
    ContextWindowExceededError,
    IncompleteAnswerError,
    InvalidConfigError,
    InvalidContentError,
    MalformedAnswerError,
    ModelNotFoundError,
    OrphanToolCallError,
    ProviderTimeoutError,
    QuotaExceededError,
    RateLimitedError,
    ToolsUnsupportedError,
    UnknownDriverError,
    UnsupportedModelError,
)


def is_invalid_json_schema_error(error: BaseException | None) -> bool:
    """Whether a weaker mode of structured output may help.

    It may when an `InvalidJSONSchemaError` is among the error and its causes, or the text of one of them speaks of
    schemas or modes, unless the error's class says that something else is wrong.
    """
    chain = list(_causes(error))
    if any(isinstance(one, InvalidJSONSchemaError) for one in chain):
        return True
    if any(isinstance(one, _OF_ANOTHER_KIND) for one in chain):
        return False
    return any(_speaks_of_schemas(str(one)) for one in chain)


def _speaks_of_schemas(text: str) -> bool:
    lowered = text.lower()
    return any(phrase in lowered for phrase in _PHRASES)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, what it was raised from, and so on; a chain that bites its own tail ends."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__
