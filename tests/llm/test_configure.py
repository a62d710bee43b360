"""A complete and checked configuration, and what a status page may show of it, to whom."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harborage import codec
from harborage.events import EventType, LLMPostureReadAdminPayload, MemoryEventBus
from harborage.identity import AdminScopeRequiredError, IdentityRequiredError, Quadruple, bound
from harborage.llm import (
    ConfigSnapshot,
    CorrectionsProfile,
    CostOverrides,
    LLMConfigError,
    ModelProfile,
    ModelRef,
    OutputMode,
    Posture,
    PostureReader,
    ReasoningRouting,
    SchemaSanitising,
    TransportPolicy,
    config_for,
    posture,
)
from harborage.llm.configure import check_settings, complete_settings
from harborage.testing.events import EventRecorder
from tests.kit.tables import each_row


def cfg(**fields: Any) -> ConfigSnapshot:
    """A configuration of one model, `m`."""
    return ConfigSnapshot(**{"model": "m", "profiles": {"m": ModelProfile(context_window_tokens=1000)}, **fields})


def profile(**fields: Any) -> ConfigSnapshot:
    """A configuration whose one model has this profile."""
    return cfg(profiles={"m": ModelProfile(**{"context_window_tokens": 1000, **fields})})


def completed(name: str = "m", provider: str = "", **fields: Any) -> ModelProfile:
    """A profile after completion."""
    given = ModelProfile(**{"context_window_tokens": 1000, **fields})
    return complete_settings(ConfigSnapshot(provider=provider, profiles={name: given})).profiles[name]


# --- defaults -----------------------------------------------------------------------------------------------------


def test_defaults() -> None:
    """Driver, reserve, threshold, and of each profile output mode and retries."""
    full = complete_settings(cfg())
    assert (full.driver, full.context_window_reserve, full.heavy_output_threshold) == ("openai_compat", 0.05, 32_768)
    assert (full.profiles["m"].output_mode, full.profiles["m"].max_retries) == (OutputMode.PROMPTED, 1)
    assert full.profiles["m"].corrections == CorrectionsProfile()
    check_settings(full)


def test_what_was_given_is_not_changed() -> None:
    """Completing makes a copy."""
    given = cfg()
    before = codec.encode(given)
    complete_settings(given)
    assert codec.encode(given) == before


def test_zero_is_a_value() -> None:
    """No reserve and no retries can be configured."""
    full = complete_settings(
        cfg(context_window_reserve=0.0, profiles={"m": ModelProfile(context_window_tokens=1, max_retries=0)})
    )
    assert (full.context_window_reserve, full.profiles["m"].max_retries) == (0.0, 0)
    check_settings(full)


@each_row(
    "fields, mode",
    [
        ({"output_mode": "tools", "json_schema_mode": "native"}, OutputMode.TOOLS),
        ({"json_schema_mode": "native"}, OutputMode.NATIVE),
        ({}, OutputMode.PROMPTED),
    ],
)
def test_the_output_mode_has_an_older_spelling(fields: dict[str, str], mode: OutputMode) -> None:
    """The newer one wins, then the older one, then the model's name."""
    assert completed(**fields).output_mode == mode


def test_undeclared_corrections_come_from_the_name() -> None:
    """Declared ones win, empty ones included."""
    known = CorrectionsProfile(
        schema_sanitising=SchemaSanitising.OPENAI_STRICT, reasoning_routing=ReasoningRouting.THINKING_MODEL
    )
    assert completed("o1-mini").corrections == known
    assert completed("o1-mini", corrections=CorrectionsProfile()).corrections == CorrectionsProfile()


def test_a_provider_brings_driver_and_address() -> None:
    """What is set wins; another driver than the provider's own gets no address of it."""
    assert complete_settings(cfg(provider="groq")).base_url == "https://api.groq.com/openai/v1"
    assert complete_settings(cfg(provider="anthropic")).driver == "anthropic"
    assert complete_settings(cfg(provider="groq", base_url="https://x")).base_url == "https://x"
    mocked = complete_settings(cfg(provider="groq", driver="mock"))
    assert (mocked.driver, mocked.base_url) == ("mock", "")


def test_a_family_that_is_known_needs_no_profile() -> None:
    """The configured model gets what is known of it; an unknown one is not guessed, and a declared one stays."""
    full = complete_settings(ConfigSnapshot(provider="openai", model="gpt-4o"))
    assert full.profiles["gpt-4o"].context_window_tokens == 128_000
    assert not complete_settings(ConfigSnapshot(model="house")).profiles
    declared = {"gpt-4o": ModelProfile(context_window_tokens=7)}
    kept = complete_settings(ConfigSnapshot(model="gpt-4o", profiles=declared)).profiles["gpt-4o"]
    assert (kept.context_window_tokens, kept.max_retries) == (7, 1)


def test_an_operators_section_arrives_whole() -> None:
    """Corrections and prices of a profile are read from plain data like everything else."""
    section = {
        "driver": "openai_compat",
        "model": "m",
        "profiles": {
            "m": {
                "context_window_tokens": 1000,
                "corrections": {"schema_sanitising": "openai_strict", "usage_backfill": True},
                "cost_overrides": {"input_per_million": 1.5, "output_per_million": 2.5, "currency": "EUR"},
            }
        },
    }
    found = complete_settings(msgspec.convert(section, ConfigSnapshot)).profiles["m"]
    wanted = CorrectionsProfile(schema_sanitising=SchemaSanitising.OPENAI_STRICT, usage_backfill=True)
    assert found.corrections == wanted
    assert found.cost_overrides == CostOverrides(input_per_million=1.5, output_per_million=2.5, currency="EUR")


# --- checks -------------------------------------------------------------------------------------------------------


@each_row(
    "good",
    [
        ConfigSnapshot(),
        cfg(context_window_reserve=0.0),
        cfg(context_window_reserve=0.999),
        cfg(heavy_output_threshold=1),
        cfg(timeout_s=0.1),
        profile(max_retries=0),
        profile(default_max_tokens=1, inline_limit_bytes=0),
        profile(cost_overrides=CostOverrides()),
        *(profile(output_mode=mode) for mode in ("", "native", "tools", "prompted")),
        cfg(transport=TransportPolicy(max_retries=0, base_s=0.0)),
    ],
)
def test_settings_that_make_sense(good: ConfigSnapshot) -> None:
    """Unset ones do, and so do the ends of the ranges."""
    check_settings(good)
    check_settings(complete_settings(good))


@each_row(
    "bad, text",
    [
        (cfg(context_window_reserve=1.0), r"llm\.context_window_reserve is 1\.0; it must be at least 0 and below 1"),
        (cfg(context_window_reserve=-0.1), r"context_window_reserve is -0\.1"),
        (cfg(heavy_output_threshold=0), r"llm\.heavy_output_threshold is 0; it must be above 0"),
        (cfg(timeout_s=0), r"llm\.timeout_s is 0; it must be above 0"),
        (profile(context_window_tokens=0), r"llm\.profiles\['m'\]\.context_window_tokens is 0; it must be above 0"),
        (profile(max_retries=-1), r"\.max_retries is -1; it must be at least 0"),
        (profile(output_mode="json"), r"\.output_mode is 'json'; it must be one of native, tools, prompted"),
        (profile(output_mode="text"), r"\.output_mode is .*text"),
        (profile(json_schema_mode="strict"), r"\.json_schema_mode is 'strict'; it must be one of native"),
        (profile(default_max_tokens=0), r"\.default_max_tokens is 0"),
        (profile(inline_limit_bytes=-1), r"\.inline_limit_bytes is -1"),
        (profile(cost_overrides=CostOverrides(input_per_million=-1)), r"cost_overrides\.input_per_million is -1"),
        (profile(cost_overrides=CostOverrides(output_per_million=-1)), r"cost_overrides\.output_per_million is -1"),
        *(
            (profile(corrections=CorrectionsProfile(**{policy: "odd"})), rf"corrections\.{policy} is 'odd'.*one of")
            for policy in ("message_ordering", "schema_sanitising", "reasoning_routing", "response_shape")
        ),
        (cfg(transport=TransportPolicy(max_retries=-1)), r"llm\.transport\.max_retries is -1"),
        (cfg(transport=TransportPolicy(idle_timeout_s=0)), r"llm\.transport\.idle_timeout_s is 0; it must be above 0"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(bad: ConfigSnapshot, text: str) -> None:
    """The error says which it is, what it holds and what it may hold."""
    with pytest.raises(LLMConfigError, match=text):
        check_settings(complete_settings(bad))


pytestmark = pytest.mark.anyio

SECRET = "sk-very-secret-0123456789"
WHO = Quadruple("t", "u", "s", "r")
ADMIN = frozenset({"admin"})
CFG = ConfigSnapshot(
    provider="openai", model="gpt-5", api_key=SECRET, base_url=f"https://me:{SECRET}@gate/v1?k={SECRET}"
)


@each_row(
    "cfg, expected",
    [
        (CFG, Posture("openai", "gpt-5", "https://gate/v1", False)),
        (ConfigSnapshot(driver="anthropic", model="m"), Posture("anthropic", "m", "", False)),
        (ConfigSnapshot(), Posture("openai_compat", "", "", False)),
        (config_for(ModelRef("mock"), environ={}), Posture("mock", "mock", "", True)),
        (ConfigSnapshot(driver="mock", provider="openai"), Posture("openai", "", "", True)),
    ],
)
def test_a_posture(cfg: ConfigSnapshot, expected: Posture) -> None:
    """The provider, else the driver, else the default driver; the address is the region; no secret is in it."""
    assert posture(cfg) == expected
    assert SECRET not in repr(posture(cfg))


async def test_ones_own_posture() -> None:
    """Anybody may read it, and nothing is recorded."""
    bus = MemoryEventBus()
    events = EventRecorder(bus)
    reader = PostureReader(CFG, bus)
    with bound(WHO):
        assert await reader.read() == await reader.read("t") == posture(CFG)
    assert await reader.read(who=WHO) == posture(CFG)
    assert not events.events


async def test_another_tenants_posture_needs_an_admin() -> None:
    """Without the scope it is refused; with it the reading is recorded: who read, and about whom."""
    bus = MemoryEventBus()
    events = EventRecorder(bus)
    reader = PostureReader(CFG, bus)
    with bound(WHO), pytest.raises(AdminScopeRequiredError, match="'admin'"):
        await reader.read("other")
    assert not events.events
    with bound(WHO, scopes=ADMIN):
        assert await reader.read("other") == posture(CFG)
    (event,) = events.events
    assert (event.type, event.identity) == (EventType.LLM_POSTURE_READ_ADMIN, WHO)
    assert event.payload == LLMPostureReadAdminPayload(actor=WHO, requested_tenant="other")


async def test_a_reading_that_cannot_be_recorded_does_not_happen() -> None:
    """An audit that fails is not passed over."""
    bus = MemoryEventBus()
    await bus.aclose()
    with bound(WHO, scopes=ADMIN), pytest.raises(Exception, match="bus"):
        await PostureReader(CFG, bus).read("other")


async def test_an_identity_is_required() -> None:
    """Without an identity the posture is refused."""
    with pytest.raises(IdentityRequiredError):
        await PostureReader(CFG, None).read()
