"""The configuration of a client: one frozen snapshot, the profile of its model, its parts, and the drivers it can name.

Values only: naming a driver imports nothing, `configure` checks the settings, and `opening` builds the chain. A profile
comes from the operator, or from the table of known models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec.structs import force_setattr

from harborage.artifacts import ArtifactStore
from harborage.clock import SYSTEM_CLOCK, Timers, dice
from harborage.drivers import DriverTable
from harborage.errors import one_of
from harborage.events import EventBus
from harborage.llm.client import LLMClient, ReasoningEffort

if TYPE_CHECKING:
    from harborage.llm.client import CompleteRequest, CompleteResponse


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
    request with tools fail before it is sent. `temperature` is that of requests without one.

    Raises:
        InvalidOptionError: there is no such reasoning effort.
    """

    context_window_tokens: int
    default_max_tokens: int | None = None
    temperature: float | None = None
    output_mode: str = OutputMode.UNSET
    json_schema_mode: str = ""
    max_retries: int | None = None
    token_estimator: str = ""
    reasoning_effort: ReasoningEffort = ReasoningEffort.UNSET
    corrections: CorrectionsProfile | None = None
    cost_overrides: CostOverrides | None = None
    inline_limit_bytes: int | None = None
    supports_tools: bool = True

    def __post_init__(self) -> None:
        force_setattr(self, "reasoning_effort", one_of(ReasoningEffort, self.reasoning_effort, "reasoning_effort"))


class TransportPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how patiently a call whose failure is safe to repeat is made again.

    `max_retries` counts calls after the first. Waits are in seconds: `base_s` doubled each time, at most `max_s`, with
    jitter; a provider's own `Retry-After` wins, and one longer than `max_retry_after_s` fails the call at once.
    `first_byte_timeout_s` and `idle_timeout_s` bound the wait for the answer to begin and for its next piece.
    """

    max_retries: int = 2
    base_s: float = 0.5
    max_s: float = 8.0
    max_retry_after_s: float = 60.0
    connect_timeout_s: float = 10.0
    first_byte_timeout_s: float = 120.0
    idle_timeout_s: float = 60.0


class ConfigSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The LLM section of a configuration, as it was when the client was opened.

    `driver` names the code that calls the provider, `provider` the service, `model` the model of a request without one.
    `api_key` is a key itself or `env.NAME`; empty lets the driver read the provider's usual variable. `timeout_s`
    bounds a call whose caller has no deadline. `context_window_reserve` is the share of the window kept for the answer
    (None: 0.05), `heavy_output_threshold` the bytes from which content is heavy (None: 32,768). `profiles` are by exact
    model name. Safety has no switch.
    """

    driver: str = ""
    provider: str = ""
    model: str = ""
    api_key: str = ""
    base_url: str = ""
    headers: Mapping[str, str] = {}
    timeout_s: float | None = None
    context_window_reserve: float | None = None
    heavy_output_threshold: int | None = None
    profiles: Mapping[str, ModelProfile] = {}
    transport: TransportPolicy = TransportPolicy()
    extra: Mapping[str, Any] = {}
    disable_governance: bool = False
    disable_retry: bool = False
    disable_downgrade: bool = False
    disable_corrections: bool = False

    def __repr__(self) -> str:
        """Without keys: a snapshot ends up in logs."""
        return f"ConfigSnapshot(driver={self.driver!r}, provider={self.provider!r}, model={self.model!r})"


class Deps(msgspec.Struct, frozen=True, kw_only=True):
    """The parts a client works with: the store of heavy content, the bus of its events, the clock, the dice of backoff.

    `governance` may refuse calls and learns what they took; None lets every call pass.
    """

    artifacts: ArtifactStore | None
    bus: EventBus | None
    clock: Timers = SYSTEM_CLOCK
    random: Callable[[], float] = dice
    governance: Governor | None = None


DriverFactory: TypeAlias = Callable[[ConfigSnapshot, Deps], LLMClient]
"""Builds the driver at the bottom of a chain. It checks its key and its extra here, before any call."""


@runtime_checkable
class Governor(Protocol):
    """A budget or a policy: refuses calls, and learns what they took, many at once. It reads the ambient identity."""

    async def pre_call(self, request: CompleteRequest) -> None:
        """Return when the call may be made; an exception is raised in its place, and nothing is sent."""
        ...

    async def post_call(self, request: CompleteRequest, response: CompleteResponse) -> None:
        """Take note of a call that succeeded. An exception is logged and changes nothing."""
        ...


LLM_DRIVERS: Final[DriverTable[DriverFactory]] = DriverTable(
    "llm",
    {
        "any": "harborage.llm.pydantic_ai:make",
        "anthropic": "harborage.llm.anthropic:make",
        "cassette": "harborage.llm.cassette:make",
        "google": "harborage.llm.google:make",
        "local": "harborage.llm.local:make",
        "mock": "harborage.llm.mock:make",
        "openai": "harborage.llm.openai_responses:make",
        "openai_compat": "harborage.llm.openai_compat:make",
        "scripted": "harborage.llm.scripted:make",
    },
)

UNMETERED: Final = frozenset({"mock", "scripted"})
"""Drivers that make answers up: their cost is not recorded."""
