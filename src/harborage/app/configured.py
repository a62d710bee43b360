"""From a configuration and the agents of a program to what a server is made of.

Nothing is opened here. What the configuration asks for and this version cannot do is refused, with its place in the
file, before anything starts; keys without an effect are named in `notices`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from harborage.app.agent import Agent
from harborage.app.configured_model import ModelBlockError, model_of
from harborage.app.configured_tools import limits_of, tool_sources, with_sources
from harborage.config.findings import Finding, InvalidConfigurationError, Notice, semantic_finding
from harborage.config.values import Config, HotReload
from harborage.memory import Memory as SessionMemoryOptions
from harborage.planner import OperatorPlannerConfig, OperatorPlanningHints
from harborage.runtime.effects.model import is_own_planner
from harborage.runtime.effects.options import RuntimeOptions, with_operator
from harborage.runtime.host import Runtime
from harborage.secrets import Secret, SecretMissingError
from harborage.server.services import MAX_ARTIFACT_BYTES, ServerOptions
from harborage.sessions import SessionPolicy

if TYPE_CHECKING:
    from harborage.app.agent import Agent
    from harborage.config.keys import Path
    from harborage.config.loader import Loaded
    from harborage.config.values import Config, HotReload
    from harborage.llm.config import ConfigSnapshot
    from harborage.tools.sources import ToolSource

_NONE: Final = timedelta()
_LEAST_KEEPALIVE_S: Final = 0.001
_ABSENT_TOOLS: Final = ("skill_get", "skill_search")


class Verifying(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are verified; `jwks_file` is an absolute path, or empty."""

    algorithms: tuple[str, ...]
    issuer: str
    audience: str
    jwks_url: str = ""
    jwks_file: str = ""


class Logging(msgspec.Struct, frozen=True, kw_only=True):
    """How a server logs."""

    level: str = "info"
    format: str = "json"
    service: str = "harbor"


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is made of: agents with the models and limits of the configuration, and its options.

    `storage` is the url of the storage and may hold a password, so it is in no repr. `host` and `port` are where it
    listens, `grace` is how long requests may go on when it stops.
    """

    agents: tuple[Agent[Any, Any], ...]
    options: RuntimeOptions
    storage: str
    server: ServerOptions
    verifying: Verifying
    logging: Logging
    host: str
    port: int
    grace: timedelta
    hot_reload: HotReload
    notices: tuple[Notice, ...] = ()

    def __repr__(self) -> str:
        names = ", ".join(agent.name for agent in self.agents)
        return f"Deployment(agents=[{names}], host={self.host!r}, port={self.port})"

    def runtime(self) -> Runtime:
        """Return the runtime of the agents over the storage, not yet entered."""
        return Runtime(self.agents, options=self.options, storage=self.storage)


def configured(
    loaded: Loaded, agents: Sequence[Agent[Any, Any]], *, environ: Mapping[str, str] = os.environ
) -> Deployment:
    """Return what a server of these agents is made of.

    Agents keep what they set themselves, such as a model, a planner or a memory; keys that the configuration does not
    set change nothing in their options.

    Raises:
        InvalidConfigurationError: it asks for what this version cannot do, or a secret is missing; `findings` has
            everything.
    """
    config = loaded.config
    sources, unusable = tool_sources(loaded)
    findings = [*_refused(loaded), *_unfitting(loaded, agents), *unusable]
    needs_model = any(lacks_model(agent) for agent in agents)
    model = _attempt(findings, loaded, lambda: _model(loaded, environ), ("llm", "api_key")) if needs_model else None
    storage = _attempt(findings, loaded, lambda: _storage_url(loaded, environ), ("state", "dsn"))
    if findings:
        raise InvalidConfigurationError(findings)
    section = _planner(loaded)
    base = agents[0].options if len(agents) == 1 else RuntimeOptions()
    host, _, port = config.server.bind_addr.rpartition(":")
    return Deployment(
        agents=tuple(_agent(agent, loaded, section, model, sources) for agent in agents),
        options=_options(base, loaded, section),
        storage=storage or "memory:",
        server=server_options(config, is_mock=needs_model and config.llm.driver == "mock"),
        verifying=verifying(loaded),
        logging=Logging(
            level=config.telemetry.log_level,
            format=config.telemetry.log_format,
            service=config.telemetry.service_name,
        ),
        host=host.strip("[]"),
        port=int(port),
        grace=config.server.shutdown_grace_period,
        hot_reload=config.cli.dev_hot_reload,
        notices=(*loaded.notices, *_unused_planner(loaded, agents)),
    )


def server_options(config: Config, *, is_mock: bool = False) -> ServerOptions:
    """Return the options of a server, as a configuration says; those that reload are among them."""
    keepalive = config.events.keepalive_interval.total_seconds()
    size = config.protocol.max_request_bytes
    heavy = config.artifacts.heavy_output_threshold_bytes
    usual = ServerOptions()
    return ServerOptions(
        origins=tuple(one.rstrip("/") for one in config.server.allowed_origins if "*" not in one),
        any_origin=config.server.cors_dev_allow_any,
        base_url=config.server.public_url,
        max_artifact_bytes=size if size > 0 else MAX_ARTIFACT_BYTES,
        keepalive=max(_LEAST_KEEPALIVE_S, keepalive) if keepalive > 0 else usual.keepalive,
        heavy_bytes=heavy or usual.heavy_bytes,
        is_mock=is_mock,
    )


def verifying(loaded: Loaded) -> Verifying:
    """Return how tokens are verified, as a configuration says."""
    identity = loaded.config.identity
    return Verifying(
        algorithms=identity.jwt_algorithms,
        issuer=identity.issuer,
        audience=identity.audience,
        jwks_url=identity.jwks_url,
        jwks_file=str((loaded.folder / identity.jwks_file).absolute()) if identity.jwks_file else "",
    )


# ── What this version cannot do ─────────────────────────────────────────────────────────────────────────────────────


def _finding(loaded: Loaded, path: Path, reason: str, hint: str = "") -> Finding:
    return semantic_finding(loaded.file, loaded.origin(path), path, reason, hint=hint)


def _refused(loaded: Loaded) -> Iterator[Finding]:
    """Keys that would promise what nothing keeps."""
    for notice in loaded.fatal_notices():
        yield _finding(loaded, notice.key, "has no effect in this version", "leave it out")


def _unfitting(loaded: Loaded, agents: Sequence[Agent[Any, Any]]) -> Iterator[Finding]:
    """What stands in the configuration and does not fit the agents, or what there is."""
    config = loaded.config
    for name in ("artifacts", "memory"):
        block = getattr(config, name)
        if (name, "driver") not in loaded.given or block.driver in {"inmem", "fs"}:
            continue
        if block.driver != config.state.driver or block.dsn != config.state.dsn:
            hint = "give it the driver and the dsn of state, or leave its block out"
            yield _finding(loaded, (name, "driver"), "must be kept where the state is, in this version", hint)
    for index, tool in enumerate(config.tools.built_in):
        if tool in _ABSENT_TOOLS:
            yield _finding(loaded, ("tools", "built_in", index), f"{tool} is not in this version", "leave it out")
    known = {tool.tool.name for agent in agents for tool in agent.tools}
    for index, one in enumerate(config.tools.custom):
        if one.name not in known:
            hint = f"write it as a @tool function, and name it in tools=[…] of an agent: {', '.join(sorted(known))}"
            yield _finding(loaded, ("tools", "custom", index, "name"), f"no agent has a tool {one.name}", hint)
    dsn = config.state.dsn
    if config.state.driver == "inmem" and dsn:
        yield _finding(loaded, ("state", "dsn"), "means nothing to the driver inmem", "driver: sqlite or postgres")


def _attempt(findings: list[Finding], loaded: Loaded, make: Any, path: Path) -> Any:
    """What `make` returns; what it misses becomes a finding."""
    try:
        return make()
    except ModelBlockError as error:
        findings.append(_finding(loaded, ("llm", error.key), error.reason, error.hint))
    except SecretMissingError as error:
        findings.append(_finding(loaded, path, str(error)))
    return None


def _unused_planner(loaded: Loaded, agents: Sequence[Agent[Any, Any]]) -> Iterator[Notice]:
    """A notice when no agent takes what the configuration says of the planner."""
    if any(agent.planner is None for agent in agents) or not any(path[0] == "planner" for path in loaded.given):
        return
    text = "planner has no effect: each agent brings its own planner"
    yield Notice(path="planner", message=text, key=("planner",))


# ── What it does ────────────────────────────────────────────────────────────────────────────────────────────────────


def lacks_model(agent: Agent[Any, Any]) -> bool:
    return agent.model is None and not is_own_planner(agent.planner)


def _model(loaded: Loaded, environ: Mapping[str, str]) -> ConfigSnapshot:
    return model_of(loaded.config.llm, environ=environ, folder=loaded.folder)


def _storage_url(loaded: Loaded, environ: Mapping[str, str]) -> str:
    """The url of the storage; a file is relative to the folder of the configuration."""
    state = loaded.config.state
    dsn = _revealed(state.dsn, loaded, environ)
    match state.driver:
        case "sqlite" if dsn in {":memory:", "memory:"}:
            return "memory:"
        case "sqlite":
            path = dsn.removeprefix("sqlite:")
            return f"sqlite:{(loaded.folder / path).absolute()}"
        case "postgres" if dsn.startswith(("postgres://", "postgresql://")):
            return dsn
        case "postgres":
            raise SecretMissingError("of state.dsn", "write it as postgres://USER:PASSWORD@HOST/DATABASE")
        case _:
            return "memory:"


def _revealed(secret: Secret, loaded: Loaded, environ: Mapping[str, str]) -> str:
    return secret.reveal(environ, folder=loaded.folder)


def _planner(loaded: Loaded) -> OperatorPlannerConfig:
    planner, hints = loaded.config.planner, loaded.config.planner.planning_hints
    extra = dict(planner.extra)
    if ("governance", "repair_attempts") in loaded.given:
        extra["repair_attempts"] = loaded.config.governance.repair_attempts
    return OperatorPlannerConfig(
        driver=planner.driver,
        max_steps=planner.max_steps,
        extra_guidance=planner.extra_guidance,
        reasoning_replay=planner.reasoning_replay,
        max_tool_examples_per_tool=planner.max_tool_examples_per_tool,
        parallel_tool_calls=planner.parallel_tool_calls,
        skills_context_max=planner.skills_context_max,
        absolute_max_spawn_depth=planner.absolute_max_spawn_depth,
        planning_hints=OperatorPlanningHints(constraints=hints.constraints, preferred_tools=[*hints.preferred_tools]),
        extra=extra,
    )


def _agent(
    agent: Agent[Any, Any],
    loaded: Loaded,
    section: OperatorPlannerConfig,
    model: ConfigSnapshot | None,
    sources: list[ToolSource],
) -> Agent[Any, Any]:
    memory = loaded.config.memory
    changes: dict[str, Any] = {"options": _options(agent.options, loaded, section), **with_sources(agent, sources)}
    if model is not None and lacks_model(agent):
        changes["model"] = model
    if agent.planner is None:
        changes["planner"] = section
    if agent.memory is None and memory.strategy != "none":
        changes["memory"] = SessionMemoryOptions(
            strategy=memory.strategy, tokens=memory.budget_tokens, backlog=memory.recovery_backlog_max
        )
    return agent.replace(**changes)


def _options(base: RuntimeOptions, loaded: Loaded, section: OperatorPlannerConfig) -> RuntimeOptions:
    config, given = loaded.config, loaded.given
    sessions, artifacts = config.sessions, config.artifacts
    changes: dict[str, Any] = {}
    if any(path[0] == "sessions" for path in given):
        changes["session_policy"] = SessionPolicy(
            idle_ttl=sessions.idle_ttl, hard_cap=sessions.hard_cap, sweep_interval=sessions.sweep_interval
        )
    if ("artifacts", "driver") in given:
        is_own = artifacts.driver in {"inmem", "fs"}
        changes["artifact_driver"] = artifacts.driver if is_own else ""
        changes["artifact_root"] = str((loaded.folder / artifacts.fs_root).absolute()) if artifacts.fs_root else ""
    if ("artifacts", "heavy_output_threshold_bytes") in given and artifacts.heavy_output_threshold_bytes:
        changes["heavy_threshold"] = artifacts.heavy_output_threshold_bytes
    if config.tools.built_in:
        changes["built_in"] = tuple(dict.fromkeys((*base.built_in, *config.tools.built_in)))
    if any(path[:2] == ("tools", "limits") for path in given):
        changes["tool_limits"] = limits_of(loaded)
    if config.tools.allow_hosts:
        changes["allow_hosts"] = tuple(dict.fromkeys((*base.allow_hosts, *config.tools.allow_hosts)))
    if config.tools.granted_scopes:
        changes["granted_scopes"] = base.granted_scopes | frozenset(config.tools.granted_scopes)
    return with_operator(replace(base, **changes), section)
