"""Every rule of the file: each value by itself, and those that must fit together."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.config import json_schema
from harborage.config.keys import Shape, dotted, form_of, leaves
from harborage.config.values import Config
from tests.kit.configurations import found, paths, read, text_of

TIER = {"rate_limit": {"capacity": 1, "refill_tokens": 1, "refill_interval": "1s"}}
CUSTOM = {"name": "own", "base_url": "http://10.0.0.1/v1", "api_key_env_var": "OWN_KEY", "models": ["m"]}
REAL = {"llm.driver": "bifrost", "llm.provider": "openai", "llm.model": "gpt-5", "llm.api_key": "env:OPENAI_API_KEY"}
OAUTH = {"name": "git", "client_id_env": "A", "client_secret_env": "B", "server_url": "https://git.test"}
MCP = {"name": "files", "command": ["files"]}


def one(block: str, entry: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A list of tools with one entry."""
    return {f"tools.{block}": [entry | more]}


ACCEPTED: dict[str, dict[str, Any]] = {
    "the smallest": {},
    "a real provider": REAL,
    "blank driver": {**REAL, "llm.driver": ""},
    "origins": {"server.allowed_origins": ["https://a.test", "http://localhost:3000/"]},
    "any origin for development": {"server.allowed_origins": ["*"], "server.cors_dev_allow_any": True},
    "ipv6": {"server.bind_addr": "[::1]:0"},
    "public url": {"server.public_url": "https://harbor.test"},
    "public loopback": {"server.public_url": "http://localhost:8080"},
    "keys from a url": {"identity.jwks_file": "", "identity.jwks_url": "https://issuer.test/keys"},
    "sqlite": {"state.driver": "sqlite", "state.dsn": "runs.db"},
    "custom provider": {**REAL, "llm.provider": "own", "llm.api_key": "", "llm.custom_providers": [CUSTOM]},
    "no timeout for a custom one": {
        **REAL, "llm.provider": "own", "llm.timeout": "0", "llm.custom_providers": [CUSTOM],
    },
    "bad custom provider under mock": {"llm.custom_providers": [{"name": "openai"}]},
    "tier": {"governance.identity_tiers": {"free": TIER}, "governance.default_tier": "free"},
    "no replay": {"events.replay_buffer_size": 0},
    "silent keepalive": {"events.keepalive_interval": "-1s"},
    "skills": {"skills.driver": "localdb", "skills.dsn": ":memory:"},
    "no watching": {"cli.dev_hot_reload.policy": "disabled", "cli.dev_hot_reload.watch_roots": []},
    "facts": {"memory.facts": "user", "memory.facts_from_summary": True},
    "mcp": one("mcp_servers", MCP),
    "mcp read twice": one(
        "mcp_servers", MCP, effects={"look": "read"}, tool_policies={"look": {"max_attempts": 3}}
    ),
    "mcp idempotent": one(
        "mcp_servers", MCP, idempotent=["write_*"], tool_policies={"write_file": {"max_attempts": 3}}
    ),
    "mcp once": one("mcp_servers", MCP, tool_policies={"write_file": {"max_attempts": 1}}),
    "oauth": {**one("oauth_providers", OAUTH), "tools.oauth_token_kek_env": "KEK"},
    "peer": one("a2a_peers", {"url": "https://peer.test", "trust_tier": 5}),
    "peer here": one("a2a_peers", {"url": "http://localhost:1", "allow_insecure_loopback": True}),
    "entry": one("entries", {"name": "pay", "approval": {"policy": "deny-all"}}),
    "null": {"server": None, "tools.shell": None},
    "shell": {"tools.shell": {"folder": "."}},
}  # fmt: skip

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no port": ({"server.bind_addr": "localhost"}, "server.bind_addr"),
    "large port": ({"server.bind_addr": "localhost:70000"}, "server.bind_addr"),
    "plain public": ({"server.public_url": "http://harbor.test"}, "server.public_url"),
    "grace": ({"server.shutdown_grace_period": "0s"}, "server.shutdown_grace_period"),
    "star": ({"server.allowed_origins": ["*"]}, "server.allowed_origins[0]"),
    "star inside": ({"server.allowed_origins": ["https://*.x.test"]}, "server.allowed_origins[0]"),
    "path": ({"server.allowed_origins": ["https://x.test/app"]}, "server.allowed_origins[0]"),
    "query": ({"server.allowed_origins": ["https://x.test?a"]}, "server.allowed_origins[0]"),
    "fragment": ({"server.allowed_origins": ["https://x.test#a"]}, "server.allowed_origins[0]"),
    "scheme": ({"server.allowed_origins": ["ftp://x.test"]}, "server.allowed_origins[0]"),
    "hmac": ({"identity.jwt_algorithms": ["HS256"]}, "identity.jwt_algorithms"),
    "no algorithm": ({"identity.jwt_algorithms": []}, "identity.jwt_algorithms"),
    "no issuer": ({"identity.issuer": ""}, "identity.issuer"),
    "no audience": ({"identity.audience": " "}, "identity.audience"),
    "no keys": ({"identity.jwks_file": ""}, "identity"),
    "level": ({"telemetry.log_level": "warning"}, "telemetry.log_level"),
    "format": ({"telemetry.log_format": "xml"}, "telemetry.log_format"),
    "service": ({"telemetry.service_name": ""}, "telemetry.service_name"),
    "state driver": ({"state.driver": "redis"}, "state.driver"),
    "state dsn": ({"state.driver": "sqlite"}, "state.dsn"),
    "provider": ({**REAL, "llm.provider": ""}, "llm.provider"),
    "model": ({**REAL, "llm.model": ""}, "llm.model"),
    "key": ({**REAL, "llm.api_key": ""}, "llm.api_key"),
    "timeout": ({**REAL, "llm.timeout": "0s"}, "llm.timeout"),
    "reserve": ({"llm.context_window_reserve": 1}, "llm.context_window_reserve"),
    "negative reserve": ({"llm.context_window_reserve": -0.1}, "llm.context_window_reserve"),
    "window": ({"llm.model_profiles": {"m": {}}}, 'llm.model_profiles["m"].context_window_tokens'),
    "longest": (
        {"llm.model_profiles": {"m": {"context_window_tokens": 1, "default_max_tokens": 0}}},
        'llm.model_profiles["m"].default_max_tokens',
    ),
    "price": (
        {"llm.model_profiles": {"m": {"context_window_tokens": 1, "cost_overrides": {"input_per_1m_tokens": -1}}}},
        'llm.model_profiles["m"].cost_overrides.input_per_1m_tokens',
    ),
    "schema mode": (
        {"llm.model_profiles": {"m": {"context_window_tokens": 1, "json_schema_mode": "xml"}}},
        'llm.model_profiles["m"].json_schema_mode',
    ),
    "correction": (
        {"llm.model_profiles": {"m": {"context_window_tokens": 1, "corrections": {"schema_mode": "loose"}}}},
        'llm.model_profiles["m"].corrections.schema_mode',
    ),
    "native name": (
        {**REAL, "llm.custom_providers": [CUSTOM | {"name": "openai"}]}, "llm.custom_providers[0].name",
    ),
    "name twice": ({**REAL, "llm.custom_providers": [CUSTOM, CUSTOM]}, "llm.custom_providers[1].name"),
    "prefixed variable": (
        {**REAL, "llm.custom_providers": [CUSTOM | {"api_key_env_var": "env.X"}]},
        "llm.custom_providers[0].api_key_env_var",
    ),
    "no models": ({**REAL, "llm.custom_providers": [CUSTOM | {"models": []}]}, "llm.custom_providers[0].models"),
    "blank model": ({**REAL, "llm.custom_providers": [CUSTOM | {"models": [" "]}]}, "llm.custom_providers[0].models"),
    "speaks": (
        {**REAL, "llm.custom_providers": [CUSTOM | {"base_provider_type": "xml"}]},
        "llm.custom_providers[0].base_provider_type",
    ),
    "undeclared": ({**REAL, "llm.provider": "ownn", "llm.custom_providers": [CUSTOM]}, "llm.provider"),
    "network": ({"llm.network_defaults": {"concurrency": -1}}, "llm.network_defaults.concurrency"),
    "tier": ({"governance.default_tier": "gold"}, "governance.default_tier"),
    "budget": (
        {"governance.identity_tiers": {"t": {"budget_ceiling_usd": -1}}},
        'governance.identity_tiers["t"].budget_ceiling_usd',
    ),
    "capacity": (
        {"governance.identity_tiers": {"t": {"rate_limit": {"refill_tokens": 1, "refill_interval": "1s"}}}},
        'governance.identity_tiers["t"].rate_limit.capacity',
    ),
    "capacity by interval": (
        {"governance.identity_tiers": {"t": {"rate_limit": {"refill_interval": "1s"}}}},
        'governance.identity_tiers["t"].rate_limit.capacity',
    ),
    "interval": (
        {"governance.identity_tiers": {"t": {"rate_limit": {"capacity": 1, "refill_tokens": 1}}}},
        'governance.identity_tiers["t"].rate_limit.refill_interval',
    ),
    "tier name": ({"governance.identity_tiers": {" ": {}}}, 'governance.identity_tiers[" "]'),
    "event place": ({"events.state_driver": "postgres"}, "events.state_dsn"),
    "idle over cap": ({"sessions.idle_ttl": "800h"}, "sessions.idle_ttl"),
    "sweep over idle": ({"sessions.sweep_interval": "25h"}, "sessions.sweep_interval"),
    "folder": ({"artifacts.driver": "fs"}, "artifacts.fs_root"),
    "database": ({"artifacts.driver": "sqlite"}, "artifacts.dsn"),
    "bucket": ({"artifacts.driver": "s3"}, "artifacts.s3_bucket"),
    "tasks": ({"tasks.driver": "remote"}, "tasks.driver"),
    "bus": ({"distributed.bus_driver": "kafka"}, "distributed.bus_driver"),
    "strategy": ({"memory.strategy": "all"}, "memory.strategy"),
    "memory": ({"memory.driver": "postgres"}, "memory.dsn"),
    "facts": ({"memory.facts_from_summary": True}, "memory.facts_from_summary"),
    "project": ({"project": " "}, "project"),
    "skills dsn": ({"skills.driver": "localdb"}, "skills.dsn"),
    "skills driver": ({"skills.dsn": "x"}, "skills.driver"),
    "skills folders": ({"skills.folders": ["x"]}, "skills.driver"),
    "roots": ({"cli.dev_hot_reload.watch_roots": []}, "cli.dev_hot_reload.watch_roots"),
    "blank root": ({"cli.dev_hot_reload.watch_roots": [" "]}, "cli.dev_hot_reload.watch_roots"),
    "planner": ({"planner.driver": "chess"}, "planner.driver"),
    "built in": ({"tools.built_in": ["clock.nov"]}, "tools.built_in"),
    "built in twice": ({"tools.built_in": ["clock.now", "clock.now"]}, "tools.built_in"),
    "both": (
        {"tools.built_in": ["clock.now"], "tools.custom": [{"name": "clock.now", "description": "d"}]},
        "tools.custom[0].name",
    ),
    "no description": (one("custom", {"name": "look"}), "tools.custom[0].description"),
    "type": (one("custom", {"name": "a", "description": "d"}, input={"x": "date"}), "tools.custom[0].input"),
    "blank scope": ({"tools.granted_scopes": [""]}, "tools.granted_scopes"),
    "mcp mode": (one("mcp_servers", MCP, transport_mode="udp"), "tools.mcp_servers[0].transport_mode"),
    "mcp url": (one("mcp_servers", MCP, transport_mode="sse"), "tools.mcp_servers[0].url"),
    "mcp command": (
        one("mcp_servers", {"name": "a", "url": "http://x.test"}, transport_mode="stdio"),
        "tools.mcp_servers[0].command",
    ),
    "mcp neither": (one("mcp_servers", {"name": "a"}), "tools.mcp_servers[0]"),
    "mcp twice": ({"tools.mcp_servers": [MCP, MCP]}, "tools.mcp_servers[1].name"),
    "mcp again": (
        one("mcp_servers", MCP, tool_policies={"write_file": {"max_attempts": 3}}),
        'tools.mcp_servers[0].tool_policies["write_file"].max_attempts',
    ),
    "mcp all again": (one("mcp_servers", MCP, policy={"max_attempts": 2}), "tools.mcp_servers[0].policy.max_attempts"),
    "mcp effect": (one("mcp_servers", MCP, effects={"write_file": "wrte"}), "tools.mcp_servers[0].effects"),
    "mcp sampling": (one("mcp_servers", MCP, sampling=True), "tools.mcp_servers[0].sampling"),
    "mcp connections": (one("mcp_servers", MCP, connections=0), "tools.mcp_servers[0].connections"),
    "mcp retry": (one("mcp_servers", MCP, policy={"retry_on": ["4xx"]}), "tools.mcp_servers[0].policy.retry_on"),
    "mcp both keys": (
        one("mcp_servers", MCP, auth={"bearer": "x", "oauth": {"provider": "p"}}), "tools.mcp_servers[0].auth",
    ),
    "mcp provider": (
        one("mcp_servers", MCP, auth={"oauth": {"provider": "p"}}), "tools.mcp_servers[0].auth.oauth.provider",
    ),
    "host": (one("mcp_servers", MCP, allow_hosts=["x"]), "tools.mcp_servers[0].allow_hosts"),
    "openapi": (one("openapi", {"name": "a"}), "tools.openapi[0].path"),
    "tier of a peer": (one("a2a_peers", {"url": "https://x.test", "trust_tier": 6}), "tools.a2a_peers[0].trust_tier"),
    "plain peer": (one("a2a_peers", {"url": "http://x.test"}), "tools.a2a_peers[0].url"),
    "callback": (
        one("a2a_peers", {"url": "https://x.test"}, callback_url="http://x.test"), "tools.a2a_peers[0].callback_url",
    ),
    "toolkit": (one("toolkits", {"name": "cook", "folder": "."}), "tools.toolkits[0].name"),
    "kek": (one("oauth_providers", OAUTH), "tools.oauth_token_kek_env"),
    "client": (
        {
            **one("oauth_providers", {"name": "a", "auth_url": "https://x.test", "token_url": "https://x.test",
                                      "redirect_url": "https://x.test"}),
            "tools.oauth_token_kek_env": "K",
        },
        "tools.oauth_providers[0].client_id_env",
    ),
    "only a name": (one("entries", {"name": "pay"}), "tools.entries[0]"),
    "tags": (
        one("entries", {"name": "pay", "approval": {"policy": "tagged"}}), "tools.entries[0].approval.require_tags",
    ),
    "entry provider": (
        one("entries", {"name": "pay", "oauth": {"provider": "p"}}), "tools.entries[0].oauth.provider",
    ),
    "limit": ({"tools.limits": {"redirects": 0}}, "tools.limits.redirects"),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_sensible_configuration_is_accepted(name: str) -> None:
    """What keeps to every rule has no finding."""
    assert [one.message for one in found(ACCEPTED[name])] == []


@pytest.mark.parametrize("name", REFUSED)
def test_a_broken_rule_is_found_at_its_key(name: str) -> None:
    """The finding names the key that is to be changed, and where it comes from."""
    changes, path = REFUSED[name]
    named = [one for one in found(changes) if one.path == path]
    assert named, paths(changes)
    assert named[0].message.startswith(f"config.{path}: ")
    assert named[0].message.endswith("(source: harborage.yaml)")


def test_a_rule_that_is_broken_by_two_names_finds_each() -> None:
    """Every key has its own finding, and none hides another."""
    broken = {"server.bind_addr": "x", "sessions.idle_ttl": "800h", "identity.issuer": "", "project": ""}
    assert set(paths(broken)) == {"server.bind_addr", "sessions.idle_ttl", "identity.issuer", "project"}


def test_each_bound_number_is_refused_beyond_its_bound() -> None:
    """No number or duration below its least value is accepted, wherever it stands in a block."""
    tried = 0
    for path, info in leaves(Config):
        shape = form_of(info.type).shape
        if not all(isinstance(step, str) for step in path) or path[:2] == ("tools", "shell"):
            continue
        if shape not in (Shape.INT, Shape.FLOAT, Shape.DURATION) or (info.key.least is None and info.key.above is None):
            continue
        low = (info.key.least or 0) - 1 if info.key.above is None else info.key.above
        assert dotted(path) in paths({dotted(path): f"{low:g}s" if shape is Shape.DURATION else low}), path
        tried += 1
    assert tried > 30


def test_the_schema_accepts_what_the_loader_accepts() -> None:
    """No editor complains of a configuration that a server takes."""
    import jsonschema_rs
    import yaml

    check = jsonschema_rs.validator_for(json_schema())
    for name, changes in ACCEPTED.items():
        found = [error.message for error in check.iter_errors(yaml.safe_load(text_of(changes)))]
        assert found == [], name


def test_a_hint_names_the_nearest_word() -> None:
    """A mistyped choice, key or provider gets the word that was probably meant."""
    assert found({"telemetry.log_level": "wann"})[0].hint == "did you mean warn?"
    assert found({"telemetry.log_levle": "warn"})[0].hint == "did you mean log_level?"
    effect = found(one("mcp_servers", MCP, effects={"write_file": "wrte"}))[0]
    assert "did you mean write?" in effect.reason
    both = found(one("mcp_servers", MCP, tool_policies={"write_file": {"max_attempts": 3}}))[0]
    assert "idempotent" in both.hint
    assert "max_attempts: 1" in both.hint
    assert read({"telemetry.log_level": "warn"}).config.telemetry.log_level == "warn"
