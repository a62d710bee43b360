"""The messages of `flows.*`."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from harborage.protocol.wire.common import ArtifactReference, Request, WireIdentity


class NodeType(StrEnum):
    """What a node of a flow is; one that calls a function is a tool."""

    SUBFLOW = "subflow"
    TOOL = "tool"
    PAUSE_POINT = "pause_point"
    ARTIFACT_EMITTER = "artifact_emitter"


class FlowStatus(StrEnum):
    """How a run of a flow is, or how it ended."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class FlowTrigger(StrEnum):
    """Who started a run of a flow."""

    USER = "user"
    PLANNER = "planner"
    SYSTEM = "system"


class FlowFilterParts(msgspec.Struct, frozen=True, kw_only=True):
    """Which flows; `query` is a part of name or owner."""

    tenants: tuple[str, ...] = ()
    planner_families: tuple[str, ...] = ()
    query: str = ""


class ListFlows(Request, frozen=True, kw_only=True):
    """`flows.list`; `page` 0 is 1, `page_size` 0 is 50."""

    filter: FlowFilterParts = FlowFilterParts()
    page: int = 0
    page_size: int = 0


class DescribeFlow(Request, frozen=True, kw_only=True):
    """`flows.describe`."""

    id: str = ""


class ListFlowRuns(Request, frozen=True, kw_only=True):
    """`flows.runs.list`; `page` 0 is 1, `page_size` 0 is 50."""

    flow_id: str = ""
    tenants: tuple[str, ...] = ()
    page: int = 0
    page_size: int = 0


class DescribeFlowRun(Request, frozen=True, kw_only=True):
    """`flows.runs.describe`."""

    run_id: str = ""


class RunFlow(Request, frozen=True, kw_only=True):
    """`flows.run`."""

    flow_id: str = ""
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)


class MeasureFlow(Request, frozen=True, kw_only=True):
    """`flows.metrics`; in milliseconds, 0 is a day and an hour."""

    flow_id: str = ""
    window_ms: int = 0
    bucket_ms: int = 0


class FlowBudget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run of a flow may use; absent where it is not limited."""

    deadline_ms: int = 0
    request_cap: int = 0
    cost_cap_usd: float = 0.0
    token_cap: int = 0


class BudgetConsumption(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of a flow have used."""

    requests_used: int = 0
    cost_usd_used: float = 0.0
    tokens_used: int = 0


class FlowRow(msgspec.Struct, frozen=True, kw_only=True):
    """One flow, with what its runs of the last day came to; `success_rate` is from 0 to 1."""

    id: str
    name: str
    node_count: int
    edge_count: int
    runs_24h: int
    p50_latency_ms: int
    p95_latency_ms: int
    success_rate: float
    last_run: datetime
    budget: FlowBudget
    owner: str = ""
    version: str = ""
    planner_family: str = "graph"


class NodePolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of one node."""

    max_retries: int = 0
    timeout_ms: int = 0


class FlowNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a flow."""

    id: str
    type: NodeType
    descriptor: str | msgspec.UnsetType = msgspec.UNSET
    policy: NodePolicy | msgspec.UnsetType = msgspec.UNSET


class FlowEdge(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """One edge of a flow."""

    source: str
    target: str


class FlowRunRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of a flow."""

    run_id: str
    flow_id: str
    status: FlowStatus
    trigger: FlowTrigger
    started_at: datetime
    identity: WireIdentity
    duration_ms: int | None = None
    cost_usd: float | None = None
    error_class: str = ""


class NodeState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one node of a run is."""

    node_id: str
    status: str
    duration_ms: int | None = None
    retries: int = 0
    error_class: str = ""


class FlowBucket(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs came to that began within one stretch of time."""

    bucket_start: datetime
    runs: int
    p95_latency_ms: int
    success_rate: float
    cost_usd: float


class FlowsListed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `flows.list`, by id."""

    flows: list[FlowRow]
    page: int
    page_size: int
    page_count: int
    total_rows: int


class FlowDescribed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `flows.describe`."""

    flow: FlowRow
    nodes: tuple[FlowNode, ...]
    edges: tuple[FlowEdge, ...]
    budget_consumption: BudgetConsumption
    source: str | msgspec.UnsetType = msgspec.UNSET


class FlowRunsListed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `flows.runs.list`, newest first."""

    runs: list[FlowRunRow]
    page: int
    page_size: int
    page_count: int
    total_rows: int


class FlowRunDescribed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `flows.runs.describe`; a large output is an artifact."""

    run: FlowRunRow
    node_states: tuple[NodeState, ...]
    output_preview: str | msgspec.UnsetType = msgspec.UNSET
    output_ref: ArtifactReference | msgspec.UnsetType = msgspec.UNSET


class FlowStarted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `flows.run`."""

    run_id: str
    status: FlowStatus
    started_at: datetime


class FlowMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `flows.metrics`, oldest bucket first."""

    flow_id: str
    window_start: datetime
    window_end: datetime
    buckets: list[FlowBucket]
    budget_consumption: BudgetConsumption
