"""The messages of `mcp.servers.*`."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from harborage.protocol.wire.common import Answer, Request


class ServerState(StrEnum):
    """How the connection to an MCP server is."""

    ONLINE = "online"
    RECONNECTING = "reconnecting"
    OFFLINE = "offline"
    AUTH_PENDING = "auth_pending"
    ERROR = "error"


class ListServers(Request, frozen=True, kw_only=True):
    """`mcp.servers.list`; its filters stand beside each other. `page_size` of 0 or less is 50."""

    state: tuple[str, ...] = ()
    transport: tuple[str, ...] = ()
    has_oauth: bool | None = None
    has_recent_error: bool | None = None
    name_prefix: str = ""
    page_token: str = ""
    page_size: int = 0


class ServerNamed(Request, frozen=True, kw_only=True):
    """A request about one server."""

    name: str = ""


class BindingNamed(ServerNamed, frozen=True, kw_only=True):
    """A request about the sign-in of one principal at a server."""

    principal_id: str = ""


class SetTrust(ServerNamed, frozen=True, kw_only=True):
    """`mcp.servers.set_raw_html_trust`."""

    trusted: bool = False


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """One server, as lists show it."""

    name: str
    transport: str
    url_or_command: str
    state: ServerState
    last_discovery_at: datetime
    tool_count: int = 0
    resource_count: int = 0
    prompt_count: int = 0
    recent_latency_ms: int = 0
    error_rate_per_min: float = 0.0
    oauth_binding_count: int = 0
    raw_html_trusted: bool = False


class ToolPolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the calls to a server."""

    timeout_ms: int = 0
    max_retries: int = 0
    concurrency_cap: int = 0


class BindingCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many sign-ins there are of one scope."""

    binding_scope: str
    count: int


class ResourceView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource that a server offers."""

    uri: str
    mime_type: str = ""
    size_bytes: int = 0
    name: str = ""
    title: str = ""


class PromptArgument(msgspec.Struct, frozen=True, kw_only=True):
    """An argument of a prompt."""

    name: str
    required: bool
    description: str | msgspec.UnsetType = msgspec.UNSET


class PromptView(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that a server offers."""

    name: str
    arguments: tuple[PromptArgument, ...] = ()
    description: str | msgspec.UnsetType = msgspec.UNSET


class LatencyBucket(msgspec.Struct, frozen=True, kw_only=True):
    """How long a handshake took that began then."""

    start_ms: int
    latency_ms: int


class Reconnect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A connection that was made again."""

    occurred_at: datetime
    reason: str = ""


class BindingView(msgspec.Struct, frozen=True, kw_only=True):
    """The sign-in of one principal, without its tokens."""

    principal_id: str
    binding_scope: str
    scopes: tuple[str, ...]
    expires_at: datetime
    last_used_at: datetime


class ServersListed(Answer, frozen=True, kw_only=True):
    """The answer of `mcp.servers.list`, by name; `next_page_token` is the last name where there are more."""

    servers: list[ServerView]
    total: int
    next_page_token: str | msgspec.UnsetType = msgspec.UNSET


class ServerDescribed(Answer, frozen=True, kw_only=True):
    """The answer of `mcp.servers.get`."""

    server: ServerView
    display_modes_advertised: tuple[str, ...]
    content_shapes: tuple[str, ...]
    tool_policy: ToolPolicyView
    bindings_summary: list[BindingCount]


class ResourcesListed(Answer, frozen=True, kw_only=True):
    """The answer of `mcp.servers.resources`."""

    resources: tuple[ResourceView, ...]


class PromptsListed(Answer, frozen=True, kw_only=True):
    """The answer of `mcp.servers.prompts`."""

    prompts: tuple[PromptView, ...]


class Discovered(Answer, frozen=True, kw_only=True):
    """The answer of `mcp.servers.refresh_discovery`."""

    discovery_id: str
    tool_count: int = 0
    resource_count: int = 0
    prompt_count: int = 0


class Probed(Answer, frozen=True, kw_only=True):
    """The answer of `mcp.servers.probe`."""

    ok: bool
    latency_ms: int
    error: str | msgspec.UnsetType = msgspec.UNSET


class HealthShown(Answer, frozen=True, kw_only=True):
    """The answer of `mcp.servers.health`."""

    handshake_latency_buckets: tuple[LatencyBucket, ...]
    reconnect_history: tuple[Reconnect, ...]
    transport_error_rate: float


class BindingsListed(Answer, frozen=True, kw_only=True):
    """The answer of `mcp.servers.bindings.list`."""

    bindings: tuple[BindingView, ...]


class PolicyShown(Answer, frozen=True, kw_only=True):
    """The answer of `mcp.servers.policy`."""

    tool_policy: ToolPolicyView


class SignInBegun(Answer, frozen=True, kw_only=True):
    """The answer of `mcp.servers.refresh_binding`."""

    authorize_url: str
    state: str


class BindingRevoked(Answer, frozen=True, kw_only=True):
    """The answer of `mcp.servers.revoke_binding`."""

    revoked: bool


class TrustSet(Answer, frozen=True, kw_only=True):
    """The answer of `mcp.servers.set_raw_html_trust`."""

    name: str
    trusted: bool
