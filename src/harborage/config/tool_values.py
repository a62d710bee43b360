"""The block `tools` of `harborage.yaml` as frozen values."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec

from harborage.config import checks
from harborage.config.keys import Effect, Key
from harborage.secrets import Secret

_LATER, _REFUSED = Effect.NOTED, Effect.REFUSED
_NONE = timedelta()


class ToolBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A block of keys about tools."""


class CustomTool(ToolBlock, frozen=True, kw_only=True):
    name: Annotated[str, Key("The tool's name; an agent of the program must have it.", check=checks.not_blank)] = ""
    description: Annotated[str, Key("What it does.", check=checks.not_blank)] = ""
    input: Annotated[dict[str, str], Key("Its arguments and their types.", check=checks.tool_fields)] = {}
    output: Annotated[dict[str, str], Key("The fields of its result.", check=checks.tool_fields)] = {}


class Policy(ToolBlock, frozen=True, kw_only=True):
    max_attempts: Annotated[int, Key("Attempts in all; 0 for the default.", least=0)] = 0
    timeout_ms: Annotated[int, Key("Milliseconds of one attempt; 0 for the default.", least=0)] = 0
    backoff_base_ms: Annotated[int, Key("The first wait; 0 for the default.", least=0)] = 0
    backoff_mult: Annotated[float, Key("By what each next wait is longer; 0 for the default.", least=0)] = 0
    backoff_max_ms: Annotated[int, Key("The longest wait; 0 for the default.", least=0)] = 0
    retry_on: Annotated[tuple[str, ...], Key("What is tried again.", check=checks.retry_classes)] = ()


class OAuthUse(ToolBlock, frozen=True, kw_only=True):
    provider: Annotated[str, Key("The name of an OAuth provider.", check=checks.not_blank)] = ""
    scope: Annotated[Literal["user", "agent"], Key("Whose token is sent.")] = "user"


class Auth(ToolBlock, frozen=True, kw_only=True):
    bearer: Annotated[Secret, Key("A token that is sent as it is.")] = Secret()
    oauth: Annotated[OAuthUse | None, Key("A token that a person grants.")] = None


class DocumentAuth(Auth, frozen=True, kw_only=True):
    api_key: Annotated[Secret, Key("A key that is sent where the document says.")] = Secret()


class MCPServer(ToolBlock, frozen=True, kw_only=True):
    name: Annotated[str, Key("Its name, with which its tools begin.", check=checks.not_blank)] = ""
    transport_mode: Annotated[Literal["auto", "sse", "streamable_http", "stdio"], Key("How it is spoken to.")] = "auto"
    url: Annotated[str, Key("Its address.", check=checks.web_address)] = ""
    command: Annotated[tuple[str, ...], Key("The program that it is, with its arguments.")] = ()
    headers: Annotated[dict[str, Secret], Key("Headers of every request.")] = {}
    env: Annotated[dict[str, Secret], Key("Variables of the program.")] = {}
    keep_alive: Annotated[timedelta, Key("How often it is asked whether it lives; 0 never.", least=0)] = _NONE
    policy: Annotated[Policy, Key("How its tools are called.")] = Policy()
    tool_policies: Annotated[dict[str, Policy], Key("The same, by tool.")] = {}
    auth: Annotated[Auth | None, Key("How it knows the caller.")] = None
    effects: Annotated[dict[str, str], Key("What its tools do, by tool.", check=checks.tool_effects)] = {}
    idempotent: Annotated[tuple[str, ...], Key("Tools that may be called twice.")] = ()
    approve: Annotated[tuple[str, ...], Key("Tools that a person must approve.")] = ()
    trust_hints: Annotated[bool, Key("Whether what it says of its tools counts.")] = False
    share_identity: Annotated[bool, Key("Whether it learns who asks.")] = False
    pin: Annotated[bool, Key("Whether changed tools are refused.")] = False
    raw_html: Annotated[Literal["text", "trusted"], Key("How its pages are shown.")] = "text"
    elicitation: Annotated[bool, Key("Whether it may ask people.")] = True
    elicitation_timeout: Annotated[timedelta, Key("How long they have.", above=0)] = timedelta(minutes=5)
    sampling: Annotated[Literal["off", "ask", "allow"], Key("Whether it may use the model.")] = "off"
    sampling_tokens: Annotated[int, Key("Tokens of one such use.", above=0)] = 1000
    roots: Annotated[tuple[str, ...], Key("Folders that it is told of.", check=checks.each_not_blank)] = ()
    connections: Annotated[int, Key("Connections at a time.", least=1)] = 4
    allow_hosts: Annotated[tuple[str, ...], Key("Private hosts that it may lead to.", check=checks.allowed_host)] = ()


class OpenAPI(ToolBlock, frozen=True, kw_only=True):
    name: Annotated[str, Key("Its name, with which its tools begin.", check=checks.not_blank)] = ""
    path: Annotated[str, Key("The file of the document.", is_required=True)] = ""
    select: Annotated[tuple[str, ...], Key("The operations that become tools.", check=checks.each_not_blank)] = ()
    rename: Annotated[dict[str, str], Key("Names of tools, by operation.")] = {}
    base_url: Annotated[str, Key("Another address than that of the document.", check=checks.web_address)] = ""
    headers: Annotated[dict[str, Secret], Key("Headers of every request.")] = {}
    auth: Annotated[DocumentAuth | None, Key("How it knows the caller.")] = None
    effects: Annotated[dict[str, str], Key("What its tools do, by tool.", check=checks.tool_effects)] = {}
    idempotent: Annotated[tuple[str, ...], Key("Tools that may be called twice.")] = ()
    safe_methods: Annotated[bool, Key("Whether GET only reads.")] = False
    approve: Annotated[tuple[str, ...], Key("Tools that a person must approve.")] = ()
    pagination: Annotated[dict[str, Any], Key("How its lists go on.")] = {}
    allow_hosts: Annotated[tuple[str, ...], Key("Private hosts that it may lead to.", check=checks.allowed_host)] = ()


class A2APeer(ToolBlock, frozen=True, kw_only=True):
    url: Annotated[str, Key("Its address.", is_required=True, check=checks.web_address)] = ""
    trust_tier: Annotated[int, Key("How far it is trusted, from 1 to 5.", least=1, below=6)] = 1
    latency_tier_ms: Annotated[int, Key("How soon it usually answers.", least=0)] = 0
    agent_card_ttl: Annotated[timedelta, Key("How long its card is kept.", least=0)] = _NONE
    allow_insecure_loopback: Annotated[bool, Key("Whether it may be spoken to without encryption here.")] = False
    name: Annotated[str, Key("What its tools begin with.")] = ""
    skills: Annotated[tuple[str, ...], Key("The skills that become tools.", check=checks.each_not_blank)] = ()
    auth: Annotated[Auth | None, Key("How it knows the caller.")] = None
    share_identity: Annotated[bool, Key("Whether it learns who asks.")] = False
    callback_url: Annotated[str, Key("Where it answers later.", check=checks.safe_address)] = ""
    allow_hosts: Annotated[tuple[str, ...], Key("Private hosts that it may lead to.", check=checks.allowed_host)] = ()


class Shell(ToolBlock, frozen=True, kw_only=True):
    folder: Annotated[str, Key("The folder that it works in.", is_required=True)] = ""
    network: Annotated[bool, Key("Whether it reaches the network.")] = False
    sandbox: Annotated[Literal["auto", "none"], Key("What it is kept in.")] = "auto"
    timeout: Annotated[timedelta, Key("How long a command may take.", above=0)] = timedelta(seconds=60)
    memory: Annotated[int, Key("Bytes of memory; 0 for the default.", least=0)] = 0
    cpu: Annotated[int, Key("Seconds of processor time; 0 for the default.", least=0)] = 0
    folder_bytes: Annotated[int, Key("Bytes that its folder may hold; 0 for the default.", least=0)] = 0
    processes: Annotated[int, Key("Processes at a time; 0 for the default.", least=0)] = 0
    env: Annotated[dict[str, Secret], Key("Variables of its commands.")] = {}


class Toolkit(ToolBlock, frozen=True, kw_only=True):
    name: Annotated[str, Key("The toolkit.", check=checks.toolkits)] = ""
    folder: Annotated[str, Key("The folder that it works in.", is_required=True)] = ""


class ToolLimits(ToolBlock, frozen=True, kw_only=True):
    result_bytes: Annotated[int, Key("The largest result that is accepted.", above=0)] = 32 * 1024 * 1024
    description_bytes: Annotated[int, Key("The longest description of a tool.", above=0)] = 2048
    schema_bytes: Annotated[int, Key("The largest schema of a tool.", above=0)] = 256 * 1024
    schema_levels: Annotated[int, Key("The levels of such a schema.", above=0)] = 100
    tools_per_server: Annotated[int, Key("Tools of one server.", above=0)] = 1000
    listing_pages: Annotated[int, Key("Pages of one list of tools.", above=0)] = 100
    notifications_per_second: Annotated[int, Key("Notices of one call.", above=0)] = 10
    line_bytes: Annotated[int, Key("The longest line of a program.", above=0)] = 16 * 1024 * 1024
    elicitation_rounds: Annotated[int, Key("Questions of one call.", above=0)] = 10
    request_state_bytes: Annotated[int, Key("The state that a server may ask to keep.", above=0)] = 64 * 1024
    http_pages: Annotated[int, Key("Pages that one call follows.", above=0)] = 10
    redirects: Annotated[int, Key("Redirects that one call follows.", above=0)] = 3


class OAuthProvider(ToolBlock, frozen=True, kw_only=True):
    name: Annotated[str, Key("Its name.", check=checks.not_blank)] = ""
    driver: Annotated[Literal["oauth2"], Key("What it speaks.")] = "oauth2"
    client_id_env: Annotated[str, Key("The variable with the client's id.", check=checks.variable_name)] = ""
    client_secret_env: Annotated[str, Key("The variable with its secret.", check=checks.variable_name)] = ""
    scopes: Annotated[tuple[str, ...], Key("What is asked for.", check=checks.each_not_blank)] = ()
    auth_url: Annotated[str, Key("Where people sign in.", check=checks.safe_address)] = ""
    token_url: Annotated[str, Key("Where tokens are fetched.", check=checks.safe_address)] = ""
    redirect_url: Annotated[str, Key("Where people come back.", check=checks.safe_address)] = ""
    server_url: Annotated[str, Key("The server whose metadata leads there.", check=checks.safe_address)] = ""
    device: Annotated[bool, Key("Whether people sign in on another device.")] = False
    extra: Annotated[dict[str, str], Key("More parameters.")] = {}


class EntryApproval(ToolBlock, frozen=True, kw_only=True):
    policy: Annotated[Literal["", "deny-all", "approve-all", "tagged"], Key("Which calls need approval.")] = ""
    reason: Annotated[str, Key("What the approver is told.")] = ""
    require_tags: Annotated[tuple[str, ...], Key("The tags that need approval.", check=checks.each_not_blank)] = ()


class EntryOAuth(ToolBlock, frozen=True, kw_only=True):
    provider: Annotated[str, Key("The name of an OAuth provider.", check=checks.not_blank)] = ""
    binding_scope: Annotated[Literal["user", "agent"], Key("Whose token is sent.")] = "user"


class ToolEntry(ToolBlock, frozen=True, kw_only=True):
    name: Annotated[str, Key("The tool.", check=checks.not_blank)] = ""
    approval: Annotated[EntryApproval | None, Key("Whether its calls need approval.")] = None
    oauth: Annotated[EntryOAuth | None, Key("The token that it needs.")] = None
    loading_mode: Annotated[Literal["", "always", "deferred"], Key("Whether every prompt has it.")] = ""


class Tools(ToolBlock, frozen=True, kw_only=True):
    built_in: Annotated[tuple[str, ...], Key("Built-in tools that every agent gets.", check=checks.built_in_tools)] = ()
    custom: Annotated[tuple[CustomTool, ...], Key("Tools that the program brings.")] = ()
    http_manifests: Annotated[tuple[str, ...], Key("Files that describe HTTP tools.", check=checks.each_not_blank)] = ()
    granted_scopes: Annotated[tuple[str, ...], Key("The scopes that runs hold.", check=checks.each_not_blank)] = ()
    search_cache_dsn: Annotated[Secret, Key("Where the index of tools is kept.", effect=_LATER)] = Secret()
    mcp_servers: Annotated[tuple[MCPServer, ...], Key("MCP servers, whose tools every agent gets.")] = ()
    openapi: Annotated[tuple[OpenAPI, ...], Key("OpenAPI documents.")] = ()
    a2a_peers: Annotated[tuple[A2APeer, ...], Key("Agents of other runtimes.", effect=_REFUSED)] = ()
    flows: Annotated[tuple[str, ...], Key("Files of flows.", check=checks.each_not_blank, effect=_REFUSED)] = ()
    shell: Annotated[Shell | None, Key("A shell; not set is none.", effect=_REFUSED)] = None
    toolkits: Annotated[tuple[Toolkit, ...], Key("Toolkits.", effect=_REFUSED)] = ()
    allow_hosts: Annotated[
        tuple[str, ...],
        Key("Private hosts that tools may reach.", check=checks.allowed_host),
    ] = ()
    limits: Annotated[ToolLimits, Key("Limits of tools.")] = ToolLimits()
    oauth_providers: Annotated[tuple[OAuthProvider, ...], Key("OAuth providers.", effect=_REFUSED)] = ()
    oauth_token_kek_env: Annotated[
        str, Key("The variable with the key that seals tokens.", check=checks.variable_name, effect=_REFUSED)
    ] = ""
    entries: Annotated[tuple[ToolEntry, ...], Key("What is said of single tools.", effect=_REFUSED)] = ()
