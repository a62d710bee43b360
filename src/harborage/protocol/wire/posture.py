"""The messages of the posture methods: what a server is, whether its parts work, what it counts, how it is set."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from harborage.protocol.wire.common import Answer


class RuntimeInfo(Answer, frozen=True, kw_only=True):
    """The answer to `runtime.info`."""

    instance_id: str
    display_name: str | UnsetType = UNSET
    build_version: str
    build_commit: str
    build_date: str | UnsetType = UNSET
    build_go_version: str
    """The version of the language that the server is written in; the key is that of older clients."""
    capabilities: list[str]
    uptime_seconds: int


class SubsystemHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one part stands: `ready`, `degraded` or `unavailable`."""

    subsystem: str
    status: str
    detail: str = ""


class RuntimeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `runtime.health`."""

    subsystems: list[SubsystemHealth]


class RuntimeCounters(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `runtime.counters`. `snapshot_at` is in unix milliseconds."""

    events_per_second: float
    tasks_running: int
    background_jobs_active: int
    mcp_connections_healthy: int
    sessions_active: int
    snapshot_at: int


class SubsystemDriver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """By which driver one part is kept."""

    subsystem: str
    driver: str
    mode: str = ""


class RuntimeDrivers(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `runtime.drivers`."""

    subsystems: list[SubsystemDriver]


class MetricValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A counter or a gauge."""

    name: str
    value: float
    labels: dict[str, str] = {}


class HistogramBucket(msgspec.Struct, frozen=True, kw_only=True):
    """How many values were at most `upper_bound`."""

    upper_bound: float
    count: int


class Histogram(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A distribution of values."""

    name: str
    count: int
    sum: float
    buckets: list[HistogramBucket] = []
    labels: dict[str, str] = {}


class MetricsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `metrics.snapshot`. `snapshot_at` is in unix milliseconds."""

    counters: list[MetricValue]
    histograms: list[Histogram]
    gauges: list[MetricValue]
    snapshot_at: int


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket of requests: what it holds, and what flows back in each interval."""

    capacity: int
    refill_tokens: int
    refill_interval_ms: int


class IdentityTier(msgspec.Struct, frozen=True, kw_only=True):
    """What the principals of one tier may use."""

    budget_ceiling_usd: float
    max_tokens: int
    rate_limit: RateLimit


class GovernancePosture(Answer, frozen=True, kw_only=True):
    """The answer to `governance.posture`. `tiers` says the same as `identity_tiers`, as a list."""

    default_tier: str
    resolved_tier: str
    identity_tiers: dict[str, IdentityTier]
    tiers: list[dict[str, Any]]


class ModelPosture(Answer, frozen=True, kw_only=True):
    """The answer to `llm.posture`."""

    provider: str
    model: str
    region: str
    mock_mode: bool


class TopologyNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of an engine's graph; `kind` is `inlet`, `node` or `outlet`."""

    name: str
    kind: str


class TopologyEdge(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """A channel of an engine's graph, and how full it is."""

    source: str
    target: str
    queue_depth: int
    queue_capacity: int


class TopologySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `topology.snapshot`."""

    engine_id: str
    occurred_at: str
    nodes: list[TopologyNode]
    edges: list[TopologyEdge]
