"""The messages of `tools.*`."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from harborage.protocol.wire.common import Request


class ToolFilterParts(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools; each list is any-of, `search` a part of name or version."""

    scopes: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    oauth_statuses: tuple[str, ...] = ()
    approval_policies: tuple[str, ...] = ()
    reliability_tiers: tuple[str, ...] = ()
    search: str = ""


class ListTools(Request, frozen=True, kw_only=True):
    """`tools.list`; `page` 0 is 1, `page_size` 0 is 50."""

    filter: ToolFilterParts = ToolFilterParts()
    page: int = 0
    page_size: int = 0


class ToolNamed(Request, frozen=True, kw_only=True):
    """A request about one tool; its id is its name."""

    id: str = ""


class ToolMetrics(ToolNamed, frozen=True, kw_only=True):
    """`tools.metrics`; `window` is 1h, 24h or 7d, blank is 1h."""

    window: str = ""


class SetApprovalPolicy(ToolNamed, frozen=True, kw_only=True):
    """`tools.set_approval_policy`; `policy` is auto, gated or denied."""

    policy: str = ""


class ToolRow(msgspec.Struct, frozen=True, kw_only=True):
    """One tool. `last_used_at` is when the caller, or anybody whose rows the caller may see, called it last."""

    id: str
    name: str
    version: str
    description: str
    scope: str
    transport: str
    oauth_status: str
    approval_policy: str
    reliability_tier: str
    owner: str
    last_used_at: datetime


class ToolAggregates(msgspec.Struct, frozen=True, kw_only=True):
    """How many tools a filter finds, and of them: those that were used, that are gated, that wait for a sign-in."""

    total: int
    active: int
    pending_approval: int
    awaiting_oauth: int


class ToolsListed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `tools.list`, by name."""

    tools: list[ToolRow]
    page: int
    page_size: int
    page_count: int
    total_rows: int
    aggregates: ToolAggregates


class ToolDescribed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `tools.describe`. Schemas are JSON as text, "" for none; `timeout_ms` 0 sets no deadline.

    `unavailable_reason` says of a tool that no run is offered why it is not.
    """

    tool: ToolRow
    side_effect: str
    args_schema: str
    out_schema: str
    examples: list[str]
    auth_scopes: list[str]
    oauth_binding_scope: str
    retry_attempts: int
    timeout_ms: int
    loading_mode: str
    display_modes: dict[str, str]
    unavailable_reason: str | UnsetType = UNSET


class ToolMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `tools.metrics`; rates are from 0 to 1, the counts are those of the window."""

    id: str
    window: str
    error_rate_1h: float
    error_rate_24h: float
    error_rate_7d: float
    invocations: int
    failures: int
    status: str


class SizeBucket(msgspec.Struct, frozen=True, kw_only=True):
    """How many results were larger than the bucket before and at most this large, in bytes."""

    max_bytes: int
    count: int


class ToolContent(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `tools.content_stats`."""

    id: str
    histogram: list[SizeBucket]
    heavy_threshold_bytes: int
    heavy_count: int
    negotiated_display: dict[str, str]


class ApprovalPolicySet(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `tools.set_approval_policy`."""

    id: str
    policy: str


class OAuthRevoked(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `tools.revoke_oauth`."""

    id: str
    revoked_count: int
