"""`agents.*`: the agents that this process serves, the first one first. Every principal sees all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from harborage import codec
from harborage.concurrency import together
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.wire.agents import (
    AgentConfig,
    AgentCounts,
    AgentDetail,
    AgentGovernance,
    AgentListRequest,
    AgentMemory,
    AgentMetrics,
    AgentPage,
    AgentPermissions,
    AgentRequest,
    AgentRow,
    AgentSkills,
    AgentTools,
    AgentTotals,
    GovernanceBinding,
    MemoryBinding,
    Permissions,
    ToolBinding,
)
from harborage.protocol.wire.common import Request
from harborage.server.families.paging import checked_page, cut_page, page_count
from harborage.server.served import agent_id, model_config, planner_type, served_agent
from harborage.server.services import Call, Endpoint
from harborage.store import RunQuery, Status
from harborage.tools import CatalogFilter, Loading, Transport

if TYPE_CHECKING:
    from harborage.runtime.effects.agent_parts import AgentParts
    from harborage.tools import Tool

_STATUSES: Final = ("active", "paused", "drained", "force_stopped", "deregistered")
_ACTIVE: Final = "active"
_HASH_CHARS: Final = 16
_WIRE_TRANSPORTS: Final = {
    Transport.INPROCESS: "in-proc",
    Transport.HTTP: "HTTP",
    Transport.MCP: "MCP",
    Transport.A2A: "A2A",
    Transport.FLOW: "flow",
}
_OPEN: Final = "Every principal of this server may start it; runs belong to who started them."


async def _list(call: Call, asked: AgentListRequest) -> AgentPage:
    wanted = asked.filter
    for status in wanted.status:
        if status not in _STATUSES:
            raise ProtocolError(Code.INVALID_REQUEST, f"filter.status: one of {', '.join(_STATUSES)}")
    page, size = checked_page(asked.page, asked.page_size)
    rows = [_row(call, agent) for agent in call.parts.agents.roots]
    found = [
        row
        for row in rows
        if row.status in (wanted.status or (row.status,))
        and row.planner_type in (wanted.planner_type or (row.planner_type,))
        and wanted.search.lower() in f"{row.name}\n{row.description}".lower()
    ]
    return AgentPage(
        agents=cut_page(found, page, size),
        page=page,
        page_size=size,
        page_count=max(1, page_count(len(found), size)),
        total_rows=len(found),
        aggregates=AgentCounts(total=len(found), active=len(found), paused=0, drained=0),
    )


async def _get(call: Call, asked: AgentRequest) -> AgentDetail:
    agent = _agent(call, asked)
    row = _row(call, agent, description=agent_id(agent.name))
    config = AgentConfig(planner_type=row.planner_type, model=row.model, max_steps=agent.options.max_steps)
    return AgentDetail(agent=row, config=config)


async def _tools(call: Call, asked: AgentRequest) -> AgentTools:
    agent = _agent(call, asked)
    bindings = [
        ToolBinding(
            tool_id=tool.name,
            tool_name=tool.name,
            transport=_WIRE_TRANSPORTS[tool.transport],
            auth_status="none",
        )
        for tool in _catalogued(agent)
    ]
    return AgentTools(agent_id=agent_id(agent.name), bindings=bindings)


async def _memory(call: Call, asked: AgentRequest) -> AgentMemory:
    agent = _agent(call, asked)
    memory = agent.context_providers.memory
    # An agent that says nothing of memory has one for conversations in this process alone: no run of a client has it.
    strategy = "none" if memory is None or not agent.remembers else str(memory.config.strategy)
    binding = MemoryBinding(strategy_id=strategy, ttl_seconds=0, scope="session")
    return AgentMemory(agent_id=agent_id(agent.name), binding=binding)


async def _governance(call: Call, asked: AgentRequest) -> AgentGovernance:
    """No limits by tier are set here: what runs of the agent may use is in its options."""
    agent = _agent(call, asked)
    return AgentGovernance(agent_id=agent_id(agent.name), governance=GovernanceBinding(ceilings=[], rate_limits=[]))


async def _skills(call: Call, asked: AgentRequest) -> AgentSkills:
    return AgentSkills(agent_id=agent_id(_agent(call, asked).name), skills=[])


async def _permissions(call: Call, asked: AgentRequest) -> AgentPermissions:
    agent = _agent(call, asked)
    return AgentPermissions(agent_id=agent_id(agent.name), permissions=Permissions(model="implicit", description=_OPEN))


async def _metrics(call: Call, _: Request) -> AgentMetrics:
    """The caller's own runs, in all sessions."""
    store = call.parts.store
    mine = RunQuery(tenant=call.who.tenant_id, user=call.who.user_id)
    running, totals = await together(store.count_runs(replace(mine, shown=(Status.RUNNING,))), store.total_runs(mine))
    found = AgentTotals(
        active_agents=len(call.parts.agents.roots),
        running_tasks=running.total,
        total_cost_usd=totals.cost / 1_000_000,
        total_tokens=totals.tokens,
    )
    return AgentMetrics(metrics=found)


def _agent(call: Call, asked: AgentRequest) -> AgentParts:
    """Return the agent that a request names.

    Raises:
        ProtocolError: `invalid_request` for a blank id, `not_found` for one that is not served.
    """
    if not asked.id.strip():
        raise ProtocolError(Code.INVALID_REQUEST, "id: which agent, as agents.list names it")
    found = served_agent(call.parts.agents, asked.id)
    if found is None:
        raise ProtocolError(Code.NOT_FOUND, "this server serves no such agent; agents.list names those there are")
    return found


def _row(call: Call, agent: AgentParts, *, description: str = "") -> AgentRow:
    config = model_config(agent)
    tools = _catalogued(agent)
    kind, model = planner_type(agent), "" if config is None else config.model
    started_at = call.services.started_at.replace(microsecond=0)
    return AgentRow(
        id=agent_id(agent.name),
        name=agent_id(agent.name),
        description=description,
        incarnation=1,
        version_hash=_hash(agent.name, kind, model, [(tool.name, tool.args_schema) for tool in tools]),
        owner="",
        status=_ACTIVE,
        health="Healthy",
        hosting="local",
        planner_type=kind,
        model=model,
        tools_count=len(tools),
        mcp_count=len({tool.source for tool in tools if tool.transport is Transport.MCP}),
        registered_at=started_at,
        updated_at=started_at,
    )


def _catalogued(agent: AgentParts) -> Sequence[Tool]:
    return agent.catalog.list(CatalogFilter(loading_modes=tuple(Loading), granted_scopes=_scopes(agent)))


def _scopes(agent: AgentParts) -> frozenset[str]:
    return agent.options.granted_scopes


def _hash(*parts: Any) -> str:
    return hashlib.sha256(codec.encode(parts, "agent")).hexdigest()[:_HASH_CHARS]


ENDPOINTS: Final[dict[str, Endpoint]] = {
    "agents.list": Endpoint(AgentListRequest, AgentPage, _list),
    "agents.get": Endpoint(AgentRequest, AgentDetail, _get),
    "agents.tools": Endpoint(AgentRequest, AgentTools, _tools),
    "agents.memory": Endpoint(AgentRequest, AgentMemory, _memory),
    "agents.governance": Endpoint(AgentRequest, AgentGovernance, _governance),
    "agents.skills": Endpoint(AgentRequest, AgentSkills, _skills),
    "agents.permissions": Endpoint(AgentRequest, AgentPermissions, _permissions),
    "agents.metrics": Endpoint(Request, AgentMetrics, _metrics),
}
