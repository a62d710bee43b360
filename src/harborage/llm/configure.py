"""From the name of a model to a complete and checked configuration of its client, and what a status page shows of it.

Pure. Opening a client starts with complete and checked settings; the layers of the chain rely on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.events import Event, EventBus, EventType, LLMPostureReadAdminPayload
from harborage.identity import AdminScopeRequiredError, Quadruple, current_scopes, effective_quadruple, require_triple
from harborage.llm.config import (
    CorrectionsProfile,
    MessageOrdering,
    ModelProfile,
    OutputMode,
    ReasoningRouting,
    ResponseShape,
    SchemaSanitising,
)
from harborage.llm.errors import LLMConfigError
from harborage.llm.providers import PROVIDERS, config_for, known_profile, parse_model, served_defaults

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot, TransportPolicy


def configure(model: str, *, environ: Mapping[str, str]) -> ConfigSnapshot:
    """Return the configuration of the model that `provider:model` names; keys are read from `environ`.

    Raises:
        LLMConfigError: the text names no model, or its provider's key is missing; it says what to do.
    """
    ref = parse_model(model)
    if ref.provider == "cassette":
        from harborage.llm.cassette import cassette_config  # loaded only for a cassette

        return cassette_config(ref.model, environ=environ)
    return config_for(ref, environ=environ)


# ── Settings ────────────────────────────────────────────────────────────────────────────────────────────────────────

DEFAULT_DRIVER: Final = "openai_compat"
DEFAULT_RESERVE: Final = 0.05
DEFAULT_THRESHOLD_BYTES: Final = 32_768
DEFAULT_MAX_RETRIES: Final = 1
DEFAULT_TIMEOUT_S: Final = 300.0

_CONFIGURED_MODES: Final = (OutputMode.NATIVE, OutputMode.TOOLS, OutputMode.PROMPTED)


def complete_settings(cfg: ConfigSnapshot) -> ConfigSnapshot:
    """Return `cfg` with every default filled in; a setting that is set stays, a 0 included.

    A driver or address that is not set comes from the provider. A configured model without a profile gets that of its
    family, if it is known.
    """
    provider = PROVIDERS.get(cfg.provider)
    profiles = {name: _complete_profile(name, profile, cfg.provider) for name, profile in cfg.profiles.items()}
    if cfg.model and cfg.model not in profiles:
        known = known_profile(cfg.model, cfg.provider)
        if known is not None:
            profiles[cfg.model] = _complete_profile(cfg.model, known, cfg.provider)
    reserve, threshold = cfg.context_window_reserve, cfg.heavy_output_threshold
    driver = cfg.driver or (provider.driver if provider else DEFAULT_DRIVER)
    usual_address = provider.base_url if provider and driver == provider.driver else ""
    return msgspec.structs.replace(
        cfg,
        driver=driver,
        base_url=cfg.base_url or usual_address,
        context_window_reserve=DEFAULT_RESERVE if reserve is None else reserve,
        heavy_output_threshold=DEFAULT_THRESHOLD_BYTES if threshold is None else threshold,
        profiles=profiles,
    )


def _complete_profile(name: str, profile: ModelProfile, provider: str) -> ModelProfile:
    mode, corrections = served_defaults(name, provider)
    return msgspec.structs.replace(
        profile,
        output_mode=profile.output_mode or profile.json_schema_mode or mode,
        max_retries=DEFAULT_MAX_RETRIES if profile.max_retries is None else profile.max_retries,
        corrections=corrections if profile.corrections is None else profile.corrections,
    )


def check_settings(cfg: ConfigSnapshot) -> None:
    """Accept settings that fit together; unset ones do.

    Raises:
        LLMConfigError: the first setting that does not; the text names it and its possible values.
    """
    reserve, threshold, timeout = cfg.context_window_reserve, cfg.heavy_output_threshold, cfg.timeout_s
    _require(reserve is None or 0 <= reserve < 1, "context_window_reserve", reserve, "at least 0 and below 1")
    _require(threshold is None or threshold > 0, "heavy_output_threshold", threshold, "above 0")
    for name, profile in cfg.profiles.items():
        _check_profile(profile, f"profiles[{name!r}]")
    _require(timeout is None or timeout > 0, "timeout_s", timeout, "above 0, or unset")
    _check_transport(cfg.transport)


def _check_profile(profile: ModelProfile, at: str) -> None:
    window, retries = profile.context_window_tokens, profile.max_retries
    _require(window > 0, f"{at}.context_window_tokens", window, "above 0")
    _require(retries is None or retries >= 0, f"{at}.max_retries", retries, "at least 0")
    # An unset output mode has been filled in from the older spelling, so that one is checked first.
    for field in ("json_schema_mode", "output_mode"):
        mode = getattr(profile, field)
        _require(mode == "" or mode in _CONFIGURED_MODES, f"{at}.{field}", mode, _one_of(_CONFIGURED_MODES))
    warmth = profile.temperature
    _require(warmth is None or 0 <= warmth <= 2, f"{at}.temperature", warmth, "from 0 to 2, or unset")
    most, inline = profile.default_max_tokens, profile.inline_limit_bytes
    _require(most is None or most > 0, f"{at}.default_max_tokens", most, "above 0, or unset")
    _require(inline is None or inline >= 0, f"{at}.inline_limit_bytes", inline, "at least 0, or unset")
    if profile.cost_overrides is not None:
        for field in ("input_per_million", "output_per_million"):
            price = getattr(profile.cost_overrides, field)
            _require(0 <= price < math.inf, f"{at}.cost_overrides.{field}", price, "at least 0, and finite")
    if profile.corrections is not None:
        _check_corrections(profile.corrections, f"{at}.corrections")


_POLICIES: Final = {
    "message_ordering": tuple(MessageOrdering),
    "schema_sanitising": tuple(SchemaSanitising),
    "reasoning_routing": tuple(ReasoningRouting),
    "response_shape": tuple(ResponseShape),
}


def _check_corrections(corrections: CorrectionsProfile, at: str) -> None:
    for field, known in _POLICIES.items():
        policy = getattr(corrections, field)
        _require(policy in known, f"{at}.{field}", policy, _one_of(known))


def _check_transport(transport: TransportPolicy) -> None:
    values: Mapping[str, float] = msgspec.structs.asdict(transport)
    for field, value in values.items():
        is_wait = field.endswith("timeout_s")
        fits = value > 0 if is_wait else value >= 0
        _require(fits, f"transport.{field}", value, "above 0" if is_wait else "at least 0")


def _require(holds: bool, setting: str, value: object, wanted: str) -> None:
    if not holds:
        raise LLMConfigError(f"llm.{setting} is {value!r}; it must be {wanted}")


def _one_of(values: tuple[str, ...]) -> str:
    return "one of " + ", ".join(str(value) for value in values if value)


ADMIN: Final = "admin"


class Posture(msgspec.Struct, frozen=True):
    """The provider and the model of a system, the address, and whether its answers are made up."""

    provider: str
    model: str
    region: str
    mock_mode: bool


def posture(cfg: ConfigSnapshot) -> Posture:
    """Return the posture of a configuration: the provider, else the driver; the region is the address of the server."""
    full = complete_settings(cfg)
    return Posture(
        provider=full.provider or full.driver,
        model=full.model,
        region=_public(full.base_url),
        mock_mode=full.driver == "mock",
    )


class PostureReader:
    """Gives out the posture with which the system was started."""

    def __init__(self, cfg: ConfigSnapshot, bus: EventBus | None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._posture = posture(cfg)
        self._bus = bus
        self._clock = clock

    async def read(self, tenant: str = "", *, who: Quadruple | None = None) -> Posture:
        """Return the posture to the ambient identity or to `who`; `tenant` names another tenant than its own.

        Raises:
            IdentityRequiredError: there is no identity.
            AdminScopeRequiredError: another tenant is read without the `admin` scope.
        """
        caller = effective_quadruple() if who is None else who
        require_triple(caller, "llm.posture")
        assert caller is not None
        if tenant and tenant != caller.tenant_id:
            if ADMIN not in current_scopes():
                raise AdminScopeRequiredError("llm.posture: another tenant's posture", (ADMIN,))
            await self._publish(caller, tenant)
        return self._posture

    async def _publish(self, caller: Quadruple, tenant: str) -> None:
        """Publish the reading before it happens: one that cannot be published is refused."""
        if self._bus is None:
            return
        payload = LLMPostureReadAdminPayload(actor=caller, requested_tenant=tenant)
        await self._bus.publish(Event(EventType.LLM_POSTURE_READ_ADMIN, caller, payload, self._clock.now()))


def _public(address: str) -> str:
    """Return the address without a user, a password or a query, any of which may be a secret."""
    if not address:
        return ""
    from urllib.parse import urlsplit, urlunsplit  # loaded for a status page

    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
