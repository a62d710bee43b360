"""From a configuration and agents to what a server is made of: what each key does, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harborage import Agent, Identity, tool
from harborage.app.configured import Deployment, Logging, Verifying, configured
from harborage.config import InvalidConfigurationError, read_config
from harborage.llm import ConfigSnapshot
from harborage.memory import Memory, MemoryStrategy
from harborage.planner import OperatorPlannerConfig
from harborage.planner.finish import FinishPlanner
from harborage.runtime.effects.options import RuntimeOptions
from harborage.sessions import SessionPolicy
from harborage.tools import MCP, SideEffect
from tests.kit.configurations import text_of

PASSWORD = "hunter2-canary"
REAL = {"llm.driver": "bifrost", "llm.provider": "openai", "llm.model": "gpt-5", "llm.api_key": "env:KEY"}


@tool
def look(item: str) -> str:
    """How many there are."""
    return item


def deploy(
    changes: Mapping[str, Any] = {},
    *agents: Agent[Any, Any],
    environ: Mapping[str, str] = {},
    file: str = "/srv/c.yaml",
) -> Deployment:
    """What a server is made of with these values."""
    loaded = read_config(text_of(changes), file=file)
    return configured(loaded, agents or (Agent("shop"),), environ={"KEY": "k-123", **environ})


def refused(changes: dict[str, Any], *agents: Agent[Any, Any]) -> list[str]:
    """The keys that are refused."""
    with pytest.raises(InvalidConfigurationError) as caught:
        deploy(changes, *agents)
    assert all(one.line > 0 for one in caught.value.findings)
    return [one.path for one in caught.value.findings]


def model_of(changes: dict[str, Any]) -> ConfigSnapshot:
    """The model of an agent that names none."""
    model = deploy(changes).agents[0].model
    assert isinstance(model, ConfigSnapshot)
    return model


def test_the_server_is_as_the_configuration_says() -> None:
    """Address, origins, limits, key set and logs."""
    made = deploy(
        {
            "server.bind_addr": "[::1]:9000",
            "server.public_url": "https://harbor.test",
            "server.shutdown_grace_period": "5s",
            "server.allowed_origins": ["https://a.test/"],
            "events.keepalive_interval": "1us",
            "protocol.max_request_bytes": 1000,
            "artifacts.heavy_output_threshold_bytes": 99,
            "telemetry.log_level": "debug",
            "telemetry.log_format": "text",
            "telemetry.service_name": "shop",
        }
    )
    assert (made.host, made.port, made.grace) == ("::1", 9000, timedelta(seconds=5))
    assert (made.server.origins, made.server.base_url) == (("https://a.test",), "https://harbor.test")
    assert (made.server.keepalive, made.server.max_artifact_bytes, made.server.heavy_bytes) == (0.001, 1000, 99)
    assert made.server.is_mock
    assert made.logging == Logging(level="debug", format="text", service="shop")
    assert made.verifying == Verifying(
        algorithms=("ES256",), issuer="shop", audience="harbor", jwks_file="/srv/keys.json"
    )


def test_values_of_nothing_mean_the_defaults() -> None:
    """0 bytes, no keepalive and a star for development have meanings of their own."""
    made = deploy(
        {
            "server.allowed_origins": ["*"],
            "server.cors_dev_allow_any": True,
            "events.keepalive_interval": "0s",
            "artifacts.heavy_output_threshold_bytes": 0,
        }
    ).server
    assert (made.origins, made.any_origin, made.keepalive) == ((), True, 15)
    assert (made.max_artifact_bytes, made.heavy_bytes) == (4 * 1024 * 1024, 32_768)


@pytest.mark.parametrize(
    ("changes", "url"),
    [
        ({}, "memory:"),
        ({"state.driver": "sqlite", "state.dsn": "runs.db"}, "sqlite:/srv/runs.db"),
        ({"state.driver": "sqlite", "state.dsn": "/var/runs.db"}, "sqlite:/var/runs.db"),
        ({"state.driver": "sqlite", "state.dsn": ":memory:"}, "memory:"),
        ({"state.driver": "postgres", "state.dsn": "env:DSN"}, f"postgres://a:{PASSWORD}@b/c"),
    ],
)
def test_the_storage_is_where_the_state_is(changes: dict[str, Any], url: str) -> None:
    """A file is relative to the configuration, and a password is in no repr."""
    made = deploy(changes, environ={"DSN": f"postgres://a:{PASSWORD}@b/c"})
    assert made.storage == url
    assert PASSWORD not in repr(made)


def test_agents_keep_what_they_say_themselves() -> None:
    """The configuration gives a model, a planner and a memory only to agents without one."""
    own = Agent("own", model="mock:", planner=OperatorPlannerConfig(max_steps=2), memory="truncation")
    planned = Agent("planned", planner=FinishPlanner())
    changes = {**REAL, "memory.strategy": "rolling_summary", "memory.budget_tokens": 50, "planner.max_steps": 7}
    plain, kept, finish = deploy(changes, Agent("plain"), own, planned).agents
    assert isinstance(plain.model, ConfigSnapshot)
    assert plain.memory == Memory(strategy=MemoryStrategy.ROLLING_SUMMARY, tokens=50, backlog=16)
    assert isinstance(plain.planner, OperatorPlannerConfig)
    assert plain.planner.max_steps == 7
    assert (kept.model, kept.memory, kept.planner) == (own.model, own.memory, own.planner)
    assert (finish.model, finish.planner) == (None, planned.planner)


def test_an_agent_with_a_model_needs_no_key() -> None:
    """The block llm is read for agents that name no model."""
    missing = {**REAL, "llm.api_key": "env:NOT_SET"}
    assert refused(missing) == ["llm.api_key"]
    assert deploy(missing, Agent("own", model="mock:")).server.is_mock is False


def test_options_change_only_where_the_file_says_so() -> None:
    """Options of an agent stay unless a key is set."""
    options = RuntimeOptions(heavy_threshold=5, built_in=("clock.now",), max_skills=2)
    agent = Agent("own", model="mock:", options=options)
    assert deploy({}, agent).options == options
    changed = (
        deploy(
            {
                "artifacts.heavy_output_threshold_bytes": 9,
                "tools.built_in": ["text.echo"],
                "tools.granted_scopes": ["pay"],
                "sessions.idle_ttl": "1h",
                "planner.absolute_max_spawn_depth": 2,
                "artifacts.driver": "fs",
                "artifacts.fs_root": "files",
            },
            agent,
        )
        .agents[0]
        .options
    )
    assert (changed.heavy_threshold, changed.built_in, changed.max_skills) == (9, ("clock.now", "text.echo"), 2)
    assert (changed.granted_scopes, changed.max_spawn_depth) == (frozenset({"pay"}), 2)
    assert changed.session_policy == SessionPolicy(idle_ttl=timedelta(hours=1))
    assert (changed.artifact_driver, changed.artifact_root) == ("fs", "/srv/files")


def test_the_block_of_the_model_is_applied() -> None:
    """Provider, key, times, retries, profile and corrections."""
    made = model_of(
        {
            **REAL,
            "llm.timeout": "7s",
            "llm.context_window_reserve": 0.2,
            "llm.corrections": {"enabled": False},
            "llm.network_defaults": {"max_retries": 5, "retry_backoff_initial": "1s", "retry_backoff_max": "9s"},
            "llm.model_profiles": {
                "gpt-5": {
                    "context_window_tokens": 1000,
                    "reasoning_effort": "low",
                    "cost_overrides": {"input_per_1m_tokens": 2, "output_per_1m_tokens": 3},
                    "corrections": {"schema_mode": "openai_strict", "usage_backfill_enabled": True},
                }
            },
        }
    )
    assert (made.provider, made.model, made.api_key, made.timeout_s) == ("openai", "gpt-5", "k-123", 7)
    assert (made.context_window_reserve, made.disable_corrections) == (0.2, True)
    assert (made.transport.max_retries, made.transport.base_s, made.transport.max_s) == (5, 1, 9)
    profile = made.profiles["gpt-5"]
    assert (profile.context_window_tokens, profile.reasoning_effort) == (1000, "low")
    assert profile.cost_overrides is not None
    assert (profile.cost_overrides.input_per_million, profile.cost_overrides.output_per_million) == (2, 3)
    assert profile.corrections is not None
    assert (profile.corrections.schema_sanitising, profile.corrections.usage_backfill) == ("openai_strict", True)


def test_a_custom_provider_is_spoken_to_at_its_address() -> None:
    """Its key is in its own variable, and its own network settings win."""
    own = {"name": "own", "base_url": "http://10.0.0.1/v1", "api_key_env_var": "OWN", "models": ["m"], "timeout": "3s"}
    changes = {**REAL, "llm.provider": "own", "llm.model": "m", "llm.api_key": "", "llm.custom_providers": [own]}
    made = model_of(changes)
    assert (made.driver, made.base_url, made.api_key) == ("openai_compat", "http://10.0.0.1/v1", "env.OWN")
    assert made.timeout_s == 3
    assert refused({**changes, "llm.model": "other"}) == ["llm.model"]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({**REAL, "llm.provider": "bedrock"}, "llm.provider"),
        ({"tools.flows": ["a.yaml"]}, "tools.flows"),
        ({"governance.identity_tiers": {"t": {"max_tokens": 5}}}, "governance.identity_tiers"),
        ({"tools.entries": [{"name": "look", "approval": {"policy": "deny-all"}}]}, "tools.entries"),
        ({"artifacts.driver": "sqlite", "artifacts.dsn": "other.db"}, "artifacts.driver"),
        ({"memory.driver": "sqlite", "memory.dsn": "other.db"}, "memory.driver"),
        ({"tools.built_in": ["clock.now", "skill_get"]}, "tools.built_in[1]"),
        ({"tools.custom": [{"name": "pay", "description": "d"}]}, "tools.custom[0].name"),
        ({"state.dsn": "x.db"}, "state.dsn"),
        ({"state.driver": "postgres", "state.dsn": "host=x"}, "state.dsn"),
        ({"artifacts.driver": "s3", "artifacts.s3_bucket": "b"}, "artifacts.driver"),
        ({"distributed.remote_driver": "a2a"}, "distributed.remote_driver"),
    ],
)
def test_what_this_version_cannot_do_is_refused(changes: dict[str, Any], path: str) -> None:
    """No server starts with a key that would promise what nothing keeps; the finding has its place."""
    assert path in refused(changes, Agent("shop", tools=[look]))


def test_what_is_kept_in_the_place_of_the_state_is_accepted() -> None:
    """The same driver and dsn for artifacts and memory is what happens anyway."""
    same = {"driver": "sqlite", "dsn": "runs.db"}
    made = deploy({"state": same, "artifacts": same, "memory": same, "tools.custom": []})
    assert made.options.artifact_driver == ""


def test_a_planner_block_that_nobody_takes_is_said() -> None:
    """Agents with planners of their own leave it without effect."""
    made = deploy({"planner.max_steps": 3}, Agent("a", planner=FinishPlanner()))
    assert [one.path for one in made.notices] == ["planner"]
    assert deploy({"planner.max_steps": 3}).notices == ()


async def test_the_runtime_of_a_deployment_runs_its_agents(tmp_path: Path) -> None:
    """Two agents over a database, with the model of the configuration."""
    changes = {
        "state": {"driver": "sqlite", "dsn": "runs.db"},
        "governance.repair_attempts": 2,
        "planner.max_steps": 3,
        "tools.built_in": ["clock.now"],
        "tools.custom": [{"name": "look", "description": "d"}],
    }
    made = deploy(changes, Agent("a", tools=[look]), Agent("b"), file=str(tmp_path / "c.yaml"))
    async with made.runtime() as runtime:
        run = await runtime.start("b", "Hello", who=Identity("t", "u", "s"))
        assert (await run.result()).output
    assert (tmp_path / "runs.db").exists()


def test_mcp_servers_are_tools_of_every_agent() -> None:
    """One value for all, with what the entry says; an agent keeps its own tools."""
    entry = {
        "name": "files", "command": ["npx", "server"], "env": {"TOKEN": "env:TOKEN"}, "effects": {"read_file": "read"},
        "idempotent": ["put_*"], "approve": ["write_*"], "policy": {"timeout_ms": 500},
        "tool_policies": {"put_it": {"max_attempts": 3}},
    }  # fmt: skip
    one, other = deploy({"tools.mcp_servers": [entry]}, Agent("one", tools=[look]), Agent("other")).agents
    assert [tool.tool.name for tool in one.tools] == ["look"]
    (server,) = one.tool_sources
    assert other.tool_sources[0] is server
    assert isinstance(server, MCP)
    assert (server.name, server.command, server.folder) == ("files", ("npx", "server"), "/srv")
    assert (server.approve, server.effects) == (("write_*",), {"read_file": SideEffect.READ})
    assert (server.policy.timeout_ms, server.tool_policies["put_it"].max_retries) == (500, 2)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"sampling": "allow"}, "tools.mcp_servers[0].sampling"),
        ({"pin": True}, "tools.mcp_servers[0].pin"),
        ({"url": "http://x.test"}, "tools.mcp_servers[0]"),
        ({"headers": {"X": "env:X"}}, "tools.mcp_servers[0]"),
    ],
)
def test_what_is_said_of_an_mcp_server_and_cannot_be_done_is_refused(changes: dict[str, Any], key: str) -> None:
    """With its place in the file, before anything starts."""
    assert refused({"tools.mcp_servers": [{"name": "files", "command": ["x"], **changes}]}) == [key]
