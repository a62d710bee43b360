"""`tools.*`: the tools of all served agents, how they were used, and what an admin may change of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import UNSET

from harborage.events import AdminToolActionPayload, Event, EventType, Triple
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire.common import NO_TIME
from harborage.protocol.wire.tools import (
    ApprovalPolicySet,
    ListTools,
    OAuthRevoked,
    SetApprovalPolicy,
    SizeBucket,
    ToolAggregates,
    ToolContent,
    ToolDescribed,
    ToolFilterParts,
    ToolMeasured,
    ToolMetrics,
    ToolNamed,
    ToolRow,
    ToolsListed,
)
from harborage.runtime.effects.approval.operator import ToolApproval
from harborage.server.families.paging import checked_page, cut_page, page_count
from harborage.server.families.tool_usage import Rate, last_used, rates, result_sizes
from harborage.server.services import Endpoint
from harborage.tools.enums import SideEffect, Transport

if TYPE_CHECKING:
    from harborage.runtime.effects.agent_parts import AgentParts
    from harborage.server.services import Call
    from harborage.tools import Tool, ToolDescriptor

SCOPES: Final = ("agent", "tenant")
TRANSPORTS: Final[Mapping[Transport, str]] = {
    Transport.INPROCESS: "in-proc",
    Transport.HTTP: "HTTP",
    Transport.MCP: "MCP",
    Transport.A2A: "A2A",
    Transport.FLOW: "flow",
}
OAUTH_STATUSES: Final = ("Bound", "Required", "Expired", "n/a")
APPROVAL_POLICIES: Final = ("auto", "gated", "denied")
RELIABILITY_TIERS: Final = ("standard", "guarded", "external")
WINDOWS: Final[Mapping[str, timedelta]] = {
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
}

_SMALLEST_BUCKET: Final = 256
_BUCKET_FACTOR: Final = 4
_ALL: Final = ToolFilterParts()
_DEGRADED: Final = 0.1
_OFFLINE_CALLS: Final = 5


class _Offered(NamedTuple):
    """A tool, and the first agent that has it."""

    agent: AgentParts
    descriptor: ToolDescriptor

    @property
    def tool(self) -> Tool:
        return self.descriptor.tool


async def list_tools(call: Call, asked: ListTools) -> ToolsListed:
    """Return one page of the tools that the caller may see, deferred ones too."""
    page, page_size = checked_page(asked.page, asked.page_size)
    is_narrowed = asked.filter != _ALL
    if is_narrowed:
        _check_filter(asked.filter)
    offered = _offered(call)
    used = await last_used(call, offered)
    decided = await call.parts.approvals.load(call.who.tenant_id)
    found = [_row(name, offered[name], used, decided) for name in sorted(offered)]
    if is_narrowed:
        found = [row for row in found if _is_found(row, asked.filter)]
    return ToolsListed(
        tools=cut_page(found, page, page_size),
        page=page,
        page_size=page_size,
        page_count=max(1, page_count(len(found), page_size)),
        total_rows=len(found),
        aggregates=ToolAggregates(
            total=len(found),
            active=sum(row.last_used_at != NO_TIME for row in found),
            pending_approval=sum(row.approval_policy == "gated" for row in found),
            awaiting_oauth=sum(row.oauth_status in ("Required", "Expired") for row in found),
        ),
    )


async def get_tool(call: Call, asked: ToolNamed) -> ToolRow:
    """Return one tool."""
    one = _find(call, asked.id)
    return await _shown(call, asked.id, one)


async def describe_tool(call: Call, asked: ToolNamed) -> ToolDescribed:
    """Return one tool with its schemas and its limits."""
    one = _find(call, asked.id)
    tool, policy = one.tool, one.descriptor.policy
    return ToolDescribed(
        tool=await _shown(call, asked.id, one),
        side_effect=str(tool.side_effects),
        args_schema=_schema(tool.args_schema),
        out_schema=_schema(tool.out_schema),
        examples=[example.description for example in tool.examples],
        auth_scopes=list(tool.auth_scopes),
        oauth_binding_scope="",
        retry_attempts=policy.max_retries,
        timeout_ms=0 if policy.timeout_s is None else round(policy.timeout_s * 1_000),
        loading_mode=str(tool.loading),
        display_modes={},
        unavailable_reason=one.descriptor.unavailable or UNSET,
    )


async def measure_tool(call: Call, asked: ToolMetrics) -> ToolMeasured:
    """Return how the calls of a tool ended."""
    _check_id(call, asked.id)
    window = asked.window or "1h"
    if window not in WINDOWS:
        raise ProtocolError(Code.INVALID_REQUEST, f"tools.metrics: window is one of {', '.join(WINDOWS)}")
    one = _find(call, asked.id)
    counted = await rates(call, asked.id, WINDOWS.values(), call.services.clock.now())
    by_window = dict(zip(WINDOWS, counted, strict=True))
    return ToolMeasured(
        id=asked.id,
        window=window,
        error_rate_1h=by_window["1h"].error_rate,
        error_rate_24h=by_window["24h"].error_rate,
        error_rate_7d=by_window["7d"].error_rate,
        invocations=by_window[window].calls,
        failures=by_window[window].failures,
        status="Offline" if one.descriptor.unavailable else _status(by_window["1h"]),
    )


async def content_stats(call: Call, asked: ToolNamed) -> ToolContent:
    """Return how large the results of a tool were."""
    one = _find(call, asked.id)
    threshold = one.agent.options.heavy_threshold
    sizes = await result_sizes(call, asked.id)
    return ToolContent(
        id=asked.id,
        histogram=_histogram(sizes, threshold),
        heavy_threshold_bytes=threshold,
        heavy_count=sum(size >= threshold for size in sizes),
        negotiated_display={},
    )


async def set_approval_policy(call: Call, asked: SetApprovalPolicy) -> ApprovalPolicySet:
    """Decide for the caller's tenant whether a person is asked about the calls of a tool, or whether it is called.

    What the agent says itself is left to it again. It counts at once for calls that are not under way.
    """
    call.require(TokenScope.ADMIN, code=Code.IDENTITY_SCOPE_REQUIRED)
    _check_id(call, asked.id)
    if asked.policy not in APPROVAL_POLICIES:
        text = f"tools.set_approval_policy: policy is one of {', '.join(APPROVAL_POLICIES)}"
        raise ProtocolError(Code.INVALID_REQUEST, text)
    one = _find(call, asked.id)
    policy = None if asked.policy == _own_policy(asked.id, one) else ToolApproval(asked.policy)
    await call.parts.approvals.set(call.who.tenant_id, asked.id, policy)
    await audit_action(call, asked.id)
    return ApprovalPolicySet(id=asked.id, policy=asked.policy)


async def revoke_oauth(call: Call, asked: ToolNamed) -> OAuthRevoked:
    """End the sign-ins of a tool; there are none, because no tool of this server signs in."""
    call.require(TokenScope.ADMIN, code=Code.IDENTITY_SCOPE_REQUIRED)
    _find(call, asked.id)
    await audit_action(call, asked.id)
    return OAuthRevoked(id=asked.id, revoked_count=0)


async def audit_action(call: Call, tool: str) -> None:
    """Publish that an admin has acted on a tool."""
    payload = AdminToolActionPayload(Triple.of(call.caller.who), call.method.name, tool)
    await call.parts.bus.publish(Event(EventType.AUDIT_ADMIN_SCOPE_USED, call.caller.who.with_run(""), payload))


def _offered(call: Call) -> dict[str, _Offered]:
    """Return by name the tools of all agents that the caller may see."""
    offered: dict[str, _Offered] = {}
    for agent in call.parts.agents:
        for descriptor in agent.catalog.descriptors:
            if descriptor.tool.is_granted(agent.options.granted_scopes):
                offered.setdefault(descriptor.tool.name, _Offered(agent, descriptor))
    return offered


def _check_id(call: Call, id: str) -> None:
    if not id.strip():
        raise ProtocolError(Code.INVALID_REQUEST, f"{call.method.name}: id is empty")


def _find(call: Call, id: str) -> _Offered:
    """Return the tool of this name.

    Raises:
        ProtocolError: `invalid_request`: the name is blank; `not_found`: there is no such tool.
    """
    _check_id(call, id)
    found = _offered(call).get(id)
    if found is None:
        raise ProtocolError(Code.NOT_FOUND, f"no tool {id!r} is served here; tools.list shows those that are")
    return found


def _own_policy(name: str, one: _Offered) -> str:
    """Return what the agent of a tool says of its calls."""
    return "gated" if name in one.agent.gates else "auto"


async def _shown(call: Call, name: str, one: _Offered) -> ToolRow:
    decided = await call.parts.approvals.load(call.who.tenant_id)
    return _row(name, one, await last_used(call, (name,)), decided)


def _row(name: str, one: _Offered, used: Mapping[str, datetime], decided: Mapping[str, ToolApproval]) -> ToolRow:
    tool = one.tool
    is_of_agent = tool.transport in (Transport.MCP, Transport.A2A) or bool(tool.source)
    return ToolRow(
        id=name,
        name=name,
        version="",
        description=tool.description,
        scope="agent" if is_of_agent else "tenant",
        transport=TRANSPORTS[tool.transport],
        oauth_status="n/a",
        approval_policy=str(decided.get(name) or _own_policy(name, one)),
        reliability_tier=_tier(tool.side_effects),
        owner=one.agent.name,
        last_used_at=used.get(name, NO_TIME),
    )


def _tier(effects: SideEffect) -> str:
    match effects:
        case SideEffect.WRITE | SideEffect.STATEFUL:
            return "guarded"
        case SideEffect.EXTERNAL:
            return "external"
        case SideEffect.PURE | SideEffect.READ:
            return "standard"


def _schema(schema: Mapping[str, object]) -> str:
    return msgspec.json.encode(schema).decode() if schema else ""


def _check_filter(filter: ToolFilterParts) -> None:
    """Accept a filter whose values exist.

    Raises:
        ProtocolError: `invalid_request`.
    """
    checks: tuple[tuple[str, Iterable[str], Iterable[str]], ...] = (
        ("scopes", filter.scopes, SCOPES),
        ("transports", filter.transports, TRANSPORTS.values()),
        ("oauth_statuses", filter.oauth_statuses, OAUTH_STATUSES),
        ("approval_policies", filter.approval_policies, APPROVAL_POLICIES),
        ("reliability_tiers", filter.reliability_tiers, RELIABILITY_TIERS),
    )
    for name, given, known in checks:
        if not set(given).issubset(known):
            text = f"tools.list: {name}: no such value; there are {', '.join(known)}"
            raise ProtocolError(Code.INVALID_REQUEST, text)


def _is_found(row: ToolRow, filter: ToolFilterParts) -> bool:
    return (
        row.scope in (filter.scopes or (row.scope,))
        and row.transport in (filter.transports or (row.transport,))
        and row.oauth_status in (filter.oauth_statuses or (row.oauth_status,))
        and row.approval_policy in (filter.approval_policies or (row.approval_policy,))
        and row.reliability_tier in (filter.reliability_tiers or (row.reliability_tier,))
        and filter.search.lower() in f"{row.name}\n{row.version}".lower()
    )


def _status(hour: Rate) -> str:
    """Return how a tool does, by its calls of the last hour."""
    if hour.calls >= _OFFLINE_CALLS and hour.failures == hour.calls:
        return "Offline"
    return "Degraded" if hour.error_rate >= _DEGRADED else "Healthy"


def _histogram(sizes: Iterable[int], threshold: int) -> list[SizeBucket]:
    """Return counts of sizes between bounds that grow fourfold, up to the first that holds all and the threshold."""
    sizes = list(sizes)
    bounds = [_SMALLEST_BUCKET]
    while bounds[-1] < max(threshold, *sizes, 0):
        bounds.append(bounds[-1] * _BUCKET_FACTOR)
    counts = Counter(next(bound for bound in bounds if size <= bound) for size in sizes)
    return [SizeBucket(max_bytes=bound, count=counts[bound]) for bound in bounds]


ENDPOINTS: Final = {
    "tools.list": Endpoint(ListTools, ToolsListed, list_tools),
    "tools.get": Endpoint(ToolNamed, ToolRow, get_tool),
    "tools.describe": Endpoint(ToolNamed, ToolDescribed, describe_tool),
    "tools.metrics": Endpoint(ToolMetrics, ToolMeasured, measure_tool),
    "tools.content_stats": Endpoint(ToolNamed, ToolContent, content_stats),
    "tools.set_approval_policy": Endpoint(SetApprovalPolicy, ApprovalPolicySet, set_approval_policy),
    "tools.revoke_oauth": Endpoint(ToolNamed, OAuthRevoked, revoke_oauth),
}
