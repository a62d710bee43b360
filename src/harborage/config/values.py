"""The whole of `harborage.yaml` as frozen values: one struct for each block, one field for each key.

Names, defaults and rules are those of the file. `None` means that a key is not set where its default depends on others.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec

from harborage.config import checks
from harborage.config.keys import Effect, Key
from harborage.config.tool_values import Tools
from harborage.secrets import Secret

_s, _m, _h = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours"))
_LATER, _REFUSED = Effect.NOTED, Effect.REFUSED


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A block of keys."""


class Server(Block, frozen=True, kw_only=True):
    bind_addr: Annotated[str, Key("Where the server listens.", check=checks.host_port)] = "127.0.0.1:8080"
    public_url: Annotated[
        str,
        Key(
            "The address that browsers reach; by default http:// and bind_addr.",
            check=checks.safe_address,
        ),
    ] = ""
    shutdown_grace_period: Annotated[timedelta, Key("How long requests may go on when it stops.", above=0)] = 30 * _s
    allowed_origins: Annotated[
        tuple[str, ...], Key("The origins whose pages may call the server from a browser.", reloads=True)
    ] = ()
    cors_dev_allow_any: Annotated[bool, Key("Let every origin call it; for development alone.")] = False


class Verification(Block, frozen=True, kw_only=True):
    jwt_algorithms: Annotated[
        tuple[str, ...],
        Key(
            "The algorithms that tokens may be signed with.",
            is_required=True,
            check=checks.jwt_algorithms,
            hint="for example [ES256]",
            reloads=True,
        ),
    ] = ()
    issuer: Annotated[str, Key("Who must have issued a token (iss).", is_required=True, reloads=True)] = ""
    audience: Annotated[str, Key("For whom it must be (aud).", is_required=True, reloads=True)] = ""
    jwks_url: Annotated[str, Key("Where the public keys are fetched.", check=checks.safe_address, reloads=True)] = ""
    jwks_file: Annotated[str, Key("The file of the public keys.", reloads=True)] = ""


class Telemetry(Block, frozen=True, kw_only=True):
    log_format: Annotated[Literal["json", "text"], Key("The form of log lines.")] = "json"
    log_level: Annotated[
        Literal["debug", "info", "warn", "error"], Key("From which level on lines are logged.", reloads=True)
    ] = "info"
    otel_endpoint: Annotated[str, Key("Where traces and metrics are sent.", effect=_LATER)] = ""
    service_name: Annotated[str, Key("The name of this service in log lines.", is_required=True)] = "harbor"


class State(Block, frozen=True, kw_only=True):
    driver: Annotated[Literal["inmem", "sqlite", "postgres"], Key("What keeps runs, sessions and events.")] = "inmem"
    dsn: Annotated[Secret, Key("The file, or the address of the database.")] = Secret()


class CostOverrides(Block, frozen=True, kw_only=True):
    input_per_1m_tokens: Annotated[float, Key("Price of a million tokens that are sent.", least=0)] = 0
    output_per_1m_tokens: Annotated[float, Key("Price of a million tokens that come back.", least=0)] = 0
    reasoning_per_1m_tokens: Annotated[
        float, Key("Price of a million tokens of reasoning.", least=0, effect=_LATER)
    ] = 0
    currency: Annotated[str, Key("The currency of the prices.")] = "USD"


class Corrections(Block, frozen=True, kw_only=True):
    message_ordering: Annotated[Literal["", "system_first_strict"], Key("Where system messages go.")] = ""
    schema_mode: Annotated[Literal["", "openai_strict", "permissive"], Key("How schemas are changed.")] = ""
    reasoning_effort_routing: Annotated[Literal["", "thinking_model"], Key("How reasoning effort is sent.")] = ""
    response_format_shape: Annotated[Literal["", "json_only", "anthropic"], Key("How a schema is sent.")] = ""
    usage_backfill_enabled: Annotated[bool, Key("Estimate the tokens of answers that report none.")] = False


class ModelProfile(Block, frozen=True, kw_only=True):
    context_window_tokens: Annotated[int, Key("The size of the model's context window.", above=0)] = 0
    default_max_tokens: Annotated[int | None, Key("The longest answer, where a request says nothing.", above=0)] = None
    cost_overrides: Annotated[CostOverrides | None, Key("Prices of your own.")] = None
    json_schema_mode: Annotated[
        Literal["", "native", "tools", "prompted"], Key("How the model is made to answer in JSON.")
    ] = ""
    max_retries: Annotated[int | None, Key("Calls after the first for an answer in the right form.", least=0)] = None
    token_estimator: Annotated[str, Key("How tokens are counted before a call.")] = ""
    reasoning_effort: Annotated[
        Literal["", "off", "low", "medium", "high"], Key("How long it reasons, where a request says nothing.")
    ] = ""
    corrections: Annotated[Corrections | None, Key("What its provider needs in a request.")] = None


class CorrectionsSwitch(Block, frozen=True, kw_only=True):
    enabled: Annotated[bool | None, Key("Whether requests are corrected for their provider; true if not set.")] = None


class NetworkDefaults(Block, frozen=True, kw_only=True):
    timeout: Annotated[timedelta, Key("How long a call may take; 0 for llm.timeout.", least=0)] = timedelta()
    max_retries: Annotated[int, Key("Calls after the first that fails; 0 for the default.", least=0)] = 0
    retry_backoff_initial: Annotated[timedelta, Key("The first wait; 0 for the default.", least=0)] = timedelta()
    retry_backoff_max: Annotated[timedelta, Key("The longest wait; 0 for the default.", least=0)] = timedelta()
    concurrency: Annotated[int, Key("Calls at a time; 0 for the default.", least=0, effect=_LATER)] = 0
    buffer_size: Annotated[int, Key("Calls that may wait; 0 for the default.", least=0, effect=_LATER)] = 0


class CustomProvider(NetworkDefaults, frozen=True, kw_only=True):
    name: Annotated[str, Key("The name that llm.provider says.", check=checks.not_blank)] = ""
    base_url: Annotated[str, Key("Its address.", is_required=True, check=checks.web_address)] = ""
    api_key_env_var: Annotated[str, Key("The variable with its key.", is_required=True, check=checks.variable_name)] = (
        ""
    )
    models: Annotated[
        tuple[str, ...], Key("The models that it has.", is_required=True, check=checks.each_not_blank)
    ] = ()
    base_provider_type: Annotated[Literal["", "openai"], Key("What it speaks.")] = ""
    request_path_overrides: Annotated[dict[str, str], Key("Paths of its own.", effect=_REFUSED)] = {}


class LLM(Block, frozen=True, kw_only=True):
    driver: Annotated[Literal["", "bifrost", "mock"], Key("Real providers, or a model that makes answers up.")] = (
        "bifrost"
    )
    provider: Annotated[str, Key("The provider, or a custom one.")] = ""
    model: Annotated[str, Key("The model of agents that name none.")] = ""
    api_key: Annotated[Secret, Key("The provider's key.")] = Secret()
    base_url: Annotated[str, Key("Another address of the provider.", check=checks.web_address)] = ""
    timeout: Annotated[timedelta, Key("How long a call may take.")] = 60 * _s
    context_window_reserve: Annotated[
        float, Key("The share of the context window that is kept for the answer.", least=0, below=1)
    ] = 0.05
    model_profiles: Annotated[dict[str, ModelProfile], Key("What models can, by their names.")] = {}
    corrections: Annotated[CorrectionsSwitch, Key("Corrections of requests.")] = CorrectionsSwitch()
    custom_providers: Annotated[tuple[CustomProvider, ...], Key("Providers of your own.")] = ()
    network_defaults: Annotated[NetworkDefaults, Key("Times and retries of calls.")] = NetworkDefaults()


class RateLimit(Block, frozen=True, kw_only=True):
    capacity: Annotated[int, Key("Calls that may be made at once.", least=0)] = 0
    refill_tokens: Annotated[int, Key("Calls that each interval adds.", least=0)] = 0
    refill_interval: Annotated[timedelta, Key("That interval.", least=0)] = timedelta()


class IdentityTier(Block, frozen=True, kw_only=True):
    budget_ceiling_usd: Annotated[float, Key("US dollars that one identity may use.", least=0)] = 0
    max_tokens: Annotated[int, Key("Tokens of one call.", least=0)] = 0
    rate_limit: Annotated[RateLimit, Key("Calls in a time.")] = RateLimit()


class Governance(Block, frozen=True, kw_only=True):
    repair_attempts: Annotated[int, Key("How often an answer in a wrong form is asked for again.", least=0)] = 3
    default_tier: Annotated[str, Key("The tier of an identity without one.", effect=_REFUSED)] = ""
    identity_tiers: Annotated[dict[str, IdentityTier], Key("Budgets, by the names of tiers.", effect=_REFUSED)] = {}


class Events(Block, frozen=True, kw_only=True):
    driver: Annotated[Literal["inmem", "durable"], Key("Whether the bus keeps events itself.", effect=_LATER)] = "inmem"
    max_subscribers_per_session: Annotated[int, Key("Streams that may watch one session.", above=0, effect=_LATER)] = 16
    subscriber_buffer_size: Annotated[int, Key("Events that may wait for a slow stream.", above=0, effect=_LATER)] = 256
    idle_timeout: Annotated[timedelta, Key("When a stream that reads nothing ends.", above=0, effect=_LATER)] = 60 * _s
    drop_window: Annotated[timedelta, Key("How often lost events are reported.", above=0, effect=_LATER)] = 1 * _s
    replay_buffer_size: Annotated[
        int, Key("Events that can be read again; 0 switches that off.", least=0, effect=_LATER)
    ] = 10_000
    keepalive_interval: Annotated[
        timedelta, Key("How often a silent stream gets a sign of life; 0 for the default.")
    ] = 15 * _s
    state_driver: Annotated[
        Literal["", "inmem", "sqlite", "postgres"], Key("Another place for events.", effect=_REFUSED)
    ] = ""
    state_dsn: Annotated[Secret, Key("The address of that place.", effect=_REFUSED)] = Secret()


class Sessions(Block, frozen=True, kw_only=True):
    idle_ttl: Annotated[timedelta, Key("When an idle session is closed.", above=0)] = 24 * _h
    hard_cap: Annotated[timedelta, Key("When any session is closed.", above=0)] = 720 * _h
    sweep_interval: Annotated[timedelta, Key("How often sessions are looked at.", above=0)] = 15 * _m


class Artifacts(Block, frozen=True, kw_only=True):
    driver: Annotated[
        Literal["inmem", "fs", "sqlite", "postgres", "s3"],
        Key("What keeps files and heavy results; if it is not set, the place of the state."),
    ] = "inmem"
    fs_root: Annotated[str, Key("The folder of the driver fs.")] = ""
    dsn: Annotated[Secret, Key("The database of the drivers sqlite and postgres.")] = Secret()
    heavy_output_threshold_bytes: Annotated[
        int, Key("The size from which a result becomes an artifact; 0 for the default.", least=0)
    ] = 32_768
    s3_bucket: Annotated[str, Key("The bucket.", effect=_REFUSED)] = ""
    s3_region: Annotated[str, Key("Its region.", effect=_REFUSED)] = "us-east-1"
    s3_endpoint: Annotated[str, Key("Its address, where it is not Amazon's.", effect=_REFUSED)] = ""
    s3_prefix: Annotated[str, Key("What the names in it begin with.", effect=_REFUSED)] = ""
    s3_access_key_id: Annotated[Secret, Key("The id of its key.", effect=_REFUSED)] = Secret()
    s3_secret_access_key: Annotated[Secret, Key("Its key.", effect=_REFUSED)] = Secret()
    s3_use_path_style: Annotated[bool, Key("Whether the bucket is in the path.", effect=_REFUSED)] = False


class Tasks(Block, frozen=True, kw_only=True):
    driver: Annotated[Literal["inprocess"], Key("Where background work runs.")] = "inprocess"
    retain_turn_timeout: Annotated[timedelta, Key("How long a turn waits for its tasks.", above=0, effect=_LATER)] = (
        5 * _m
    )
    continuation_hop_limit: Annotated[int, Key("Turns that tasks may cause.", above=0, effect=_LATER)] = 8


class Distributed(Block, frozen=True, kw_only=True):
    bus_driver: Annotated[Literal["loopback"], Key("How processes tell each other of events.")] = "loopback"
    remote_driver: Annotated[Literal["loopback", "a2a"], Key("How other runtimes are reached.", effect=_REFUSED)] = (
        "loopback"
    )


class Memory(Block, frozen=True, kw_only=True):
    driver: Annotated[
        Literal["inmem", "sqlite", "postgres"],
        Key("What keeps what sessions remember; if it is not set, the place of the state."),
    ] = "inmem"
    dsn: Annotated[Secret, Key("Its file or address.")] = Secret()
    strategy: Annotated[
        Literal["none", "truncation", "rolling_summary"], Key("How agents that say nothing remember a session.")
    ] = "none"
    budget_tokens: Annotated[int, Key("The size of what is remembered; 0 for no limit.", least=0)] = 0
    recovery_backlog_max: Annotated[int, Key("Turns that wait while summaries fail.", least=0)] = 16
    facts: Annotated[
        Literal["", "user", "project", "tenant"], Key("The scope of facts that agents remember.", effect=_LATER)
    ] = ""
    facts_from_summary: Annotated[bool, Key("Whether summaries give facts.", effect=_LATER)] = False


class Skills(Block, frozen=True, kw_only=True):
    driver: Annotated[Literal["", "localdb"], Key("What keeps skills; blank switches them off.", effect=_LATER)] = ""
    dsn: Annotated[Secret, Key("Its database.", effect=_LATER)] = Secret()
    folders: Annotated[
        tuple[str, ...], Key("Folders of Agent Skills.", check=checks.each_not_blank, effect=_LATER)
    ] = ()
    strict: Annotated[bool, Key("Whether unknown fields of a skill are errors.", effect=_LATER)] = False


class Protocol(Block, frozen=True, kw_only=True):
    max_request_bytes: Annotated[
        int, Key("The largest artifact that a client may send; 0 for 4 MiB.", reloads=True)
    ] = 0


class HotReload(Block, frozen=True, kw_only=True):
    enabled: Annotated[
        bool | None, Key("Whether `dev` takes changed code at once; true if not set.", effect=_LATER)
    ] = None
    policy: Annotated[Literal["drain", "cancel", "disabled"], Key("What happens to what runs then.", effect=_LATER)] = (
        "drain"
    )
    drain_timeout: Annotated[timedelta, Key("How long it may go on.", least=0, effect=_LATER)] = 5 * _s
    watch_roots: Annotated[
        tuple[str, ...], Key("The folders that are watched.", check=checks.each_not_blank, effect=_LATER)
    ] = (".harborage/agents",)


class CLI(Block, frozen=True, kw_only=True):
    dev_hot_reload: Annotated[HotReload, Key("How `dev` takes changed code.")] = HotReload()


class PlanningHints(Block, frozen=True, kw_only=True):
    constraints: Annotated[str, Key("What a plan must keep to.")] = ""
    preferred_tools: Annotated[tuple[str, ...], Key("The tools that it should prefer.")] = ()


class Planner(Block, frozen=True, kw_only=True):
    driver: Annotated[Literal["react"], Key("The planner of agents without one.")] = "react"
    max_steps: Annotated[int, Key("Steps of a run; 0 for the planner's own limit.", least=0)] = 0
    extra_guidance: Annotated[str, Key("More instructions for every prompt.")] = ""
    reasoning_replay: Annotated[Literal["", "never", "text"], Key("Whether a model sees its reasoning again.")] = ""
    max_tool_examples_per_tool: Annotated[int, Key("Examples of a tool in a prompt; 0 for 3.", least=0)] = 0
    parallel_tool_calls: Annotated[bool | None, Key("Whether calls may be made at once; true if not set.")] = None
    skills_context_max: Annotated[int, Key("Skills in a prompt; 0 for 5.", least=0)] = 0
    absolute_max_spawn_depth: Annotated[int, Key("How deep tasks may spawn tasks; 0 for 4.", least=0)] = 0
    planning_hints: Annotated[PlanningHints, Key("Hints for every prompt.")] = PlanningHints()
    extra: Annotated[dict[str, Any], Key("Options of a planner of your own.")] = {}


class Nothing(Block, frozen=True, kw_only=True):
    """A block without keys."""


class Config(Block, frozen=True, kw_only=True):
    """A whole configuration."""

    server: Annotated[Server, Key("The server.")] = Server()
    identity: Annotated[Verification, Key("How tokens are verified.")] = Verification()
    telemetry: Annotated[Telemetry, Key("Logs, traces and metrics.")] = Telemetry()
    state: Annotated[State, Key("Where runs are kept.")] = State()
    llm: Annotated[LLM, Key("The model of agents that name none.")] = LLM()
    governance: Annotated[Governance, Key("What identities may use.")] = Governance()
    events: Annotated[Events, Key("Events and their streams.")] = Events()
    sessions: Annotated[Sessions, Key("How long sessions live.")] = Sessions()
    artifacts: Annotated[Artifacts, Key("Where files and heavy results are kept.")] = Artifacts()
    tasks: Annotated[Tasks, Key("Background work.")] = Tasks()
    distributed: Annotated[Distributed, Key("Several processes.")] = Distributed()
    memory: Annotated[Memory, Key("What sessions remember.")] = Memory()
    project: Annotated[
        str, Key("The project that scopes of facts and skills mean.", check=checks.not_blank, effect=_LATER)
    ] = "default"
    skills: Annotated[Skills, Key("Skills.")] = Skills()
    protocol: Annotated[Protocol, Key("The protocol.")] = Protocol()
    cli: Annotated[CLI, Key("The command line.")] = CLI()
    planner: Annotated[Planner, Key("The planner of agents without one.")] = Planner()
    runtime: Annotated[Nothing, Key("No key yet.")] = Nothing()
    audit: Annotated[Nothing, Key("No key yet.")] = Nothing()
    tools: Annotated[Tools, Key("Tools beside those of agents.")] = Tools()
