"""The messages of `agents.*`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from harborage.protocol.wire.common import Request


class AgentFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which agents to list; what is empty narrows nothing."""

    status: list[str] = []
    planner_type: list[str] = []
    search: str = ""


class AgentListRequest(Request, frozen=True, kw_only=True):
    """The request of `agents.list`."""

    filter: AgentFilter = AgentFilter()
    page: int = 0
    page_size: int = 0


class AgentRequest(Request, frozen=True, kw_only=True):
    """The request of what is asked about one agent."""

    id: str = ""


class AgentRow(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as lists show it. Times are of whole seconds."""

    id: str
    name: str
    description: str
    incarnation: int
    version_hash: str
    owner: str
    status: str
    health: str
    hosting: str
    planner_type: str
    model: str
    tools_count: int
    mcp_count: int
    registered_at: datetime
    updated_at: datetime


class AgentCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many agents there are by status, over the filtered ones."""

    total: int
    active: int
    paused: int
    drained: int


class AgentPage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `agents.list`."""

    agents: list[AgentRow]
    page: int
    page_size: int
    page_count: int
    total_rows: int
    aggregates: AgentCounts


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an agent is set."""

    planner_type: str
    planner_config: dict[str, str] = {}
    model: str
    model_policy: dict[str, str] = {}
    max_steps: int


class AgentDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to `agents.get`."""

    agent: AgentRow
    config: AgentConfig
    agent_card_ref: str = ""


class ToolBinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool of an agent, and whether its user is signed in for it."""

    tool_id: str
    tool_name: str
    transport: str
    auth_status: str
    binding_scope: str = ""


class AgentTools(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `agents.tools`."""

    agent_id: str
    bindings: list[ToolBinding]


class MemoryBinding(msgspec.Struct, frozen=True, kw_only=True):
    """How the sessions of an agent remember. `ttl_seconds` is 0 where memory has no end."""

    strategy_id: str
    ttl_seconds: int
    scope: str


class AgentMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `agents.memory`."""

    agent_id: str
    binding: MemoryBinding


class TierCeiling(msgspec.Struct, frozen=True, kw_only=True):
    """What a tier may spend, and has spent."""

    tier: str
    limit_usd: float
    spend_usd: float


class TierRate(msgspec.Struct, frozen=True, kw_only=True):
    """How often a tier may ask."""

    tier: str
    requests_per_minute: int
    max_tokens: int


class GovernanceBinding(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of an agent by tier."""

    ceilings: list[TierCeiling]
    rate_limits: list[TierRate]


class AgentGovernance(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `agents.governance`."""

    agent_id: str
    governance: GovernanceBinding


class SkillBinding(msgspec.Struct, frozen=True, kw_only=True):
    """A skill of an agent."""

    skill_id: str
    name: str
    generated: bool


class AgentSkills(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `agents.skills`."""

    agent_id: str
    skills: list[SkillBinding]


class Permissions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who may start an agent."""

    model: str
    description: str
    allowed_principals: list[str] = []


class AgentPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `agents.permissions`."""

    agent_id: str
    permissions: Permissions


class AgentTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What the agents do for the caller, and what that came to."""

    active_agents: int
    running_tasks: int
    total_cost_usd: float
    total_tokens: int


class AgentMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `agents.metrics`."""

    metrics: AgentTotals
