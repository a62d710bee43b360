"""Whether the values of a configuration make sense: each by itself, and those that must fit together. Pure.

A broken rule is the path of the key that is to be changed, what is wrong with it, and perhaps how to repair it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from harborage.config import tool_rules
from harborage.config.checks import NATIVE_PROVIDERS, near, origin
from harborage.config.durations import spell_duration
from harborage.config.keys import Key, Named, Path, Shape, places

if TYPE_CHECKING:
    from harborage.config.values import LLM, Artifacts, Config, CustomProvider, Events, Memory, Sessions, State


class Broken(NamedTuple):
    """A rule that a value breaks."""

    path: Path
    reason: str
    hint: str = ""


def broken_rules(config: Config) -> list[Broken]:
    """Return every rule that a configuration breaks."""
    return [*_single(config), *_together(config)]


def _single(config: Config) -> Iterator[Broken]:
    skips = {("llm", "custom_providers")} if config.llm.driver == "mock" else set()
    for place in places(config):
        if place.path[:2] in skips or place.value is None:
            continue
        key, form = place.info.key, place.form
        value = place.value
        if form.choices and value not in form.choices:
            shown = ", ".join(one or '""' for one in form.choices)
            yield Broken(place.path, f"must be one of {shown}", near(str(value)[:64], filter(None, form.choices)))
        elif key.is_required and _is_empty(value):
            yield Broken(place.path, "is required", key.hint)
        elif (why := _out_of_range(value, key, form.shape)) or (key.check is not None and (why := key.check(value))):
            yield Broken(place.path, why, key.hint)


def _is_empty(value: Any) -> bool:
    return not value.strip() if isinstance(value, str) else not value


def _out_of_range(value: Any, key: Key, shape: Shape) -> str:
    if shape not in (Shape.INT, Shape.FLOAT, Shape.DURATION):
        return ""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if key.least is not None and number < key.least:
        return "must not be negative" if key.least == 0 else f"must be at least {key.least:g}"
    if key.above is not None and number <= key.above:
        return f"must be above {key.above:g}"
    if key.below is not None and number >= key.below:
        return f"must be below {key.below:g}"
    return ""


def _together(config: Config) -> Iterator[Broken]:
    yield from _server(config)
    if not config.identity.jwks_url and not config.identity.jwks_file:
        yield Broken(("identity",), "needs jwks_url or jwks_file, with the public keys of tokens")
    yield from _needs_dsn(("state",), config.state)
    yield from _llm(config.llm)
    yield from _governance(config)
    yield from _events(config.events)
    yield from _sessions(config.sessions)
    yield from _artifacts(config.artifacts)
    yield from _needs_dsn(("memory",), config.memory)
    if config.memory.facts_from_summary and not config.memory.facts:
        yield Broken(("memory", "facts_from_summary"), "needs memory.facts")
    yield from _skills(config)
    reload = config.cli.dev_hot_reload
    if reload.enabled is not False and reload.policy != "disabled" and not reload.watch_roots:
        yield Broken(("cli", "dev_hot_reload", "watch_roots"), "needs a folder, or policy: disabled")
    yield from (Broken(*one) for one in tool_rules.broken(config.tools))


def _server(config: Config) -> Iterator[Broken]:
    at: Path = ("server", "allowed_origins")
    for index, one in enumerate(config.server.allowed_origins):
        if "*" in one:
            if not config.server.cors_dev_allow_any:
                yield Broken((*at, index), "must not hold *", "for development: server.cors_dev_allow_any: true")
        elif why := origin(one):
            yield Broken((*at, index), why)


def _needs_dsn(path: Path, block: State | Memory) -> Iterator[Broken]:
    if block.driver != "inmem" and not block.dsn:
        yield Broken((*path, "dsn"), f"is required by the driver {block.driver}")


def _llm(llm: LLM) -> Iterator[Broken]:
    if llm.driver == "mock":
        return
    names = [one.name for one in llm.custom_providers]
    is_custom = llm.provider in names and bool(llm.provider)
    for name in ("provider", "model"):
        if not getattr(llm, name).strip():
            yield Broken(("llm", name), "is required", "or driver: mock, which makes answers up")
    if not is_custom:
        if not llm.api_key:
            yield Broken(("llm", "api_key"), "is required", "a reference such as env:OPENAI_API_KEY")
        if llm.timeout <= timedelta():
            yield Broken(("llm", "timeout"), "must be above 0")
    elif llm.timeout < timedelta():
        yield Broken(("llm", "timeout"), "must not be negative")
    if names and llm.provider.strip() and not is_custom and llm.provider not in NATIVE_PROVIDERS:
        hint = near(llm.provider, [*NATIVE_PROVIDERS, *names])
        yield Broken(("llm", "provider"), "is neither a known provider nor one of custom_providers", hint)
    yield from _custom_providers(llm.custom_providers)
    for name, profile in llm.model_profiles.items():
        if not name.strip():
            yield Broken(("llm", "model_profiles", Named(name)), "needs a name")
        if profile.cost_overrides is not None and not profile.cost_overrides.currency.strip():
            yield Broken(("llm", "model_profiles", Named(name), "cost_overrides", "currency"), "must not be blank")


def _custom_providers(providers: Iterable[CustomProvider]) -> Iterator[Broken]:
    seen: set[str] = set()
    for index, one in enumerate(providers):
        at: Path = ("llm", "custom_providers", index, "name")
        if one.name in NATIVE_PROVIDERS:
            yield Broken(at, f"must not be {one.name}, which is a known provider", "choose another name")
        elif one.name in seen and one.name.strip():
            yield Broken(at, f"is the second provider called {one.name}")
        seen.add(one.name)


def _governance(config: Config) -> Iterator[Broken]:
    governance = config.governance
    tier = governance.default_tier
    if tier and tier not in governance.identity_tiers:
        yield Broken(("governance", "default_tier"), "is none of identity_tiers", near(tier, governance.identity_tiers))
    for name, one in governance.identity_tiers.items():
        at: Path = ("governance", "identity_tiers", Named(name))
        if not name.strip():
            yield Broken(at, "needs a name")
        rate = one.rate_limit
        if (rate.refill_tokens > 0 or rate.refill_interval > timedelta()) and rate.capacity == 0:
            yield Broken((*at, "rate_limit", "capacity"), "must be above 0 when it is refilled")
        if rate.refill_tokens > 0 and rate.refill_interval == timedelta():
            yield Broken((*at, "rate_limit", "refill_interval"), "must be above 0 when refill_tokens is set")


def _events(events: Events) -> Iterator[Broken]:
    if events.state_driver not in {"", "inmem"} and not events.state_dsn:
        yield Broken(("events", "state_dsn"), f"is required by the driver {events.state_driver}")


def _sessions(sessions: Sessions) -> Iterator[Broken]:
    if sessions.idle_ttl > sessions.hard_cap:
        yield Broken(("sessions", "idle_ttl"), f"must be at most hard_cap, {spell_duration(sessions.hard_cap)}")
    if sessions.sweep_interval > sessions.idle_ttl:
        yield Broken(("sessions", "sweep_interval"), f"must be at most idle_ttl, {spell_duration(sessions.idle_ttl)}")


def _artifacts(artifacts: Artifacts) -> Iterator[Broken]:
    needed = {"fs": "fs_root", "sqlite": "dsn", "postgres": "dsn", "s3": "s3_bucket"}.get(artifacts.driver, "")
    if needed and _is_empty(getattr(artifacts, needed)):
        yield Broken(("artifacts", needed), f"is required by the driver {artifacts.driver}")


def _skills(config: Config) -> Iterator[Broken]:
    skills = config.skills
    if skills.driver and not skills.dsn:
        yield Broken(("skills", "dsn"), "is required by the driver localdb")
    if not skills.driver and skills.dsn:
        yield Broken(("skills", "driver"), "is required when dsn is set", "driver: localdb")
    if not skills.driver and skills.folders:
        yield Broken(("skills", "driver"), "is required when folders are set", "driver: localdb")
