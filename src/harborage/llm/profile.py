"""The profile of a model: its window, its mode of structured output, its corrections, its prices.

Values only; a profile comes from the operator, or from the table of known models.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from harborage.llm.client import ReasoningEffort


class OutputMode(StrEnum):
    """The mode of structured output; `TEXT` is the last step of a downgrade and is never configured."""

    UNSET = ""
    NATIVE = "native"
    TOOLS = "tools"
    PROMPTED = "prompted"
    TEXT = "text"


class MessageOrdering(StrEnum):
    """`SYSTEM_FIRST_STRICT` moves every system message to the front."""

    UNSET = ""
    SYSTEM_FIRST_STRICT = "system_first_strict"


class SchemaSanitising(StrEnum):
    """`OPENAI_STRICT` closes every object of a schema, `PERMISSIVE` opens it."""

    UNSET = ""
    OPENAI_STRICT = "openai_strict"
    PERMISSIVE = "permissive"


class ReasoningRouting(StrEnum):
    """`THINKING_MODEL` sends the reasoning effort among the extra fields."""

    UNSET = ""
    THINKING_MODEL = "thinking_model"


class ResponseShape(StrEnum):
    """The form in which the JSON schema of the answer is sent, where it is changed."""

    UNSET = ""
    JSON_ONLY = "json_only"
    ANTHROPIC = "anthropic"


class CorrectionsProfile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The corrections that a provider needs in a request, and in its answer."""

    message_ordering: str = MessageOrdering.UNSET
    schema_sanitising: str = SchemaSanitising.UNSET
    reasoning_routing: str = ReasoningRouting.UNSET
    response_shape: str = ResponseShape.UNSET
    usage_backfill: bool = False


class CostOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's own prices, for one million tokens, in units of `currency`."""

    input_per_million: float = 0.0
    output_per_million: float = 0.0
    currency: str = "USD"


class ModelProfile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The profile of one model. `context_window_tokens` must be set; None and "" mean the default.

    `json_schema_mode` is an older spelling of `output_mode`. `corrections` None takes those of the known model;
    an empty `CorrectionsProfile` takes none. `inline_limit_bytes` is the decoded size up to which images, audio
    and files reach this model inline instead of as a stub (None: the heavy threshold). `supports_tools` False makes a
    request with tools fail before it is sent.
    """

    context_window_tokens: int
    default_max_tokens: int | None = None
    output_mode: str = OutputMode.UNSET
    json_schema_mode: str = ""
    max_retries: int | None = None
    token_estimator: str = ""
    reasoning_effort: ReasoningEffort = ReasoningEffort.UNSET
    corrections: CorrectionsProfile | None = None
    cost_overrides: CostOverrides | None = None
    inline_limit_bytes: int | None = None
    supports_tools: bool = True
