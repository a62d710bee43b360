"""The block `llm` of a configuration as the snapshot that a model's client is opened with."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.llm.client import ReasoningEffort
from harborage.llm.config import ConfigSnapshot, CorrectionsProfile, TransportPolicy
from harborage.llm.config import CostOverrides as LLMCostOverrides
from harborage.llm.config import ModelProfile as LLMModelProfile
from harborage.llm.providers import PROVIDERS, ModelRef, config_for, profile_for

if TYPE_CHECKING:
    from harborage.config.values import LLM, Corrections, CustomProvider, ModelProfile, NetworkDefaults

_NONE = timedelta()
_ALIASES = {"gemini": "google"}


class ModelBlockError(Exception):
    """The block names what this version does not have. `key` is the key below `llm`, `hint` the way out."""

    def __init__(self, key: str, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.key = key
        self.reason = reason
        self.hint = hint


def model_of(llm: LLM, *, environ: Mapping[str, str], folder: FilePath) -> ConfigSnapshot:
    """Return how the model of agents that name none is opened; the key is read from where its reference leads.

    Raises:
        ModelBlockError: there is no such provider here.
        SecretMissingError: the key is missing.
    """
    profiles = {name: _profile(profile) for name, profile in llm.model_profiles.items()}
    if llm.driver == "mock":
        profiles = {**config_for(ModelRef("mock", "mock"), environ={}).profiles, **profiles}
        return _snapshot(llm, llm.network_defaults, driver="mock", provider="mock", model="mock", profiles=profiles)
    custom = next((one for one in llm.custom_providers if one.name == llm.provider), None)
    if custom is not None:
        return _of_custom(llm, custom, profiles, environ, folder)
    provider = PROVIDERS.get(_ALIASES.get(llm.provider, llm.provider))
    if provider is None:
        hint = "declare it in llm.custom_providers, with its base_url"
        raise ModelBlockError("provider", f"there is no driver for {llm.provider} in this version", hint)
    if llm.model not in profiles:
        profiles[llm.model] = profile_for(llm.model, provider.name)
    return _snapshot(
        llm,
        llm.network_defaults,
        driver=provider.driver,
        provider=provider.name,
        model=llm.model,
        base_url=llm.base_url or provider.base_url,
        api_key=llm.api_key.reveal(environ, folder=folder),
        profiles=profiles,
    )


def _of_custom(
    llm: LLM,
    custom: CustomProvider,
    profiles: dict[str, LLMModelProfile],
    environ: Mapping[str, str],
    folder: FilePath,
) -> ConfigSnapshot:
    if llm.model not in custom.models:
        known = ", ".join(custom.models)
        raise ModelBlockError("model", f"is none of the models of {custom.name}", f"use one of {known}")
    if llm.model not in profiles:
        profiles[llm.model] = profile_for(llm.model)
    key = llm.api_key.reveal(environ, folder=folder) if llm.api_key else f"env.{custom.api_key_env_var}"
    return _snapshot(
        llm,
        _over(custom, llm.network_defaults),
        driver="openai_compat",
        provider=custom.name,
        model=llm.model,
        base_url=llm.base_url or custom.base_url,
        api_key=key,
        profiles=profiles,
    )


def _over(own: NetworkDefaults, shared: NetworkDefaults) -> NetworkDefaults:
    """The network settings of one provider: its own, and the shared ones where it has none."""
    names = shared.__struct_fields__
    return replace(shared, **{name: value for name in names if (value := getattr(own, name))})


def _snapshot(llm: LLM, network: NetworkDefaults, **fields: object) -> ConfigSnapshot:
    usual = TransportPolicy()
    transport = replace(
        usual,
        max_retries=network.max_retries or usual.max_retries,
        base_s=network.retry_backoff_initial.total_seconds() or usual.base_s,
        max_s=network.retry_backoff_max.total_seconds() or usual.max_s,
    )
    timeout = network.timeout if network.timeout > _NONE else llm.timeout
    return ConfigSnapshot(
        timeout_s=timeout.total_seconds() or None,
        context_window_reserve=llm.context_window_reserve,
        transport=transport,
        disable_corrections=llm.corrections.enabled is False,
        **fields,  # type: ignore[arg-type] # those of a snapshot
    )


def _profile(profile: ModelProfile) -> LLMModelProfile:
    prices = profile.cost_overrides
    return LLMModelProfile(
        context_window_tokens=profile.context_window_tokens,
        default_max_tokens=profile.default_max_tokens,
        json_schema_mode=profile.json_schema_mode,
        max_retries=profile.max_retries,
        token_estimator=profile.token_estimator,
        reasoning_effort=ReasoningEffort(profile.reasoning_effort),
        corrections=None if profile.corrections is None else _corrections(profile.corrections),
        cost_overrides=None
        if prices is None
        else LLMCostOverrides(
            input_per_million=prices.input_per_1m_tokens,
            output_per_million=prices.output_per_1m_tokens,
            currency=prices.currency,
        ),
    )


def _corrections(corrections: Corrections) -> CorrectionsProfile:
    return CorrectionsProfile(
        message_ordering=corrections.message_ordering,
        schema_sanitising=corrections.schema_mode,
        reasoning_routing=corrections.reasoning_effort_routing,
        response_shape=corrections.response_format_shape,
        usage_backfill=corrections.usage_backfill_enabled,
    )
