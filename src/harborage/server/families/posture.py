"""The posture methods: what the server is, whether its parts answer, what it counts, and how it is set."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harborage import __version__
from harborage.artifacts import ArtifactScope
from harborage.concurrency import together
from harborage.events import (
    Cursor,
    Event,
    EventType,
    Filter,
    GovernancePostureReadAdminPayload,
    LLMPostureReadAdminPayload,
    RecordBus,
    ReplayUnavailableError,
)
from harborage.identity import Identity
from harborage.protocol.methods import ADDED_METHODS, Capability, TokenScope
from harborage.protocol.wire.common import Request
from harborage.protocol.wire.mcp import ServerState
from harborage.protocol.wire.posture import (
    GovernancePosture,
    MetricsSnapshot,
    MetricValue,
    ModelPosture,
    RuntimeCounters,
    RuntimeDrivers,
    RuntimeHealth,
    RuntimeInfo,
    SubsystemDriver,
    SubsystemHealth,
    TopologySnapshot,
)
from harborage.server.families.drivers import driver_name
from harborage.server.served import model_config
from harborage.server.services import Call, Endpoint, Endpoints, Services
from harborage.store import (
    LIVE,
    EventQuery,
    RunQuery,
    SessionListQuery,
    SessionState,
    Status,
)
from harborage.tasks import TaskKind

if TYPE_CHECKING:
    from harborage.memory import SessionMemory

_ANSWERS_WITHIN_S: Final = 5.0
_UNKNOWN: Final = "unknown"
_EVENTS_A_SECOND: Final = "events_per_second"


# ── What it is ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _info(endpoints: Endpoints) -> Endpoint:
    """`runtime.info`, which names the capabilities whose methods are among `endpoints`."""

    async def info(call: Call, _: Request) -> RuntimeInfo:
        await _cross(call)
        services = call.services
        uptime = services.clock.now() - services.started_at
        return RuntimeInfo(
            instance_id=services.instance_id,
            **({"display_name": services.options.display_name} if services.options.display_name else {}),
            build_version=__version__,
            build_commit=_UNKNOWN,
            build_go_version=f"python {platform.python_version()}",
            capabilities=capabilities(services, endpoints),
            uptime_seconds=max(0, int(uptime.total_seconds())),
        )

    return Endpoint(Request, RuntimeInfo, info)


def capabilities(services: Services, endpoints: Endpoints) -> list[str]:
    """Return what this server offers that another may not, sorted: additions only where every method of theirs is."""
    every = {one.capability for one in ADDED_METHODS.values() if one.capability is not None}
    found = {Capability.EVENTS_SUBSCRIBE, Capability.RUNTIME_POSTURE, Capability.TASK_CONTROL}
    for capability in every:
        methods = [name for name, one in ADDED_METHODS.items() if one.capability is capability]
        served = [endpoints[name].is_offered(services) for name in methods if name in endpoints]
        if len(served) == len(methods) and all(served):
            found.add(capability)
    return sorted(found)


# ── Whether it works ──────────────────────────────────────────────────────────────────────────────────────────────────


async def _health(call: Call, _: Request) -> RuntimeHealth:
    """Ask each part something that finds nothing; one that does not answer in time is unavailable."""
    await _cross(call)
    probe = Identity(call.services.instance_id, "health", "health")
    asked = {
        "state": partial(_ask_store, call),
        "events": partial(_ask_bus, call, probe),
        "artifacts": partial(_ask_artifacts, call, probe),
        "memory": partial(_ask_memory, call, probe),
    }
    found = await together(*(_examine(name, ask()) for name, ask in asked.items()))
    return RuntimeHealth(subsystems=found)


async def _examine(name: str, asking: Awaitable[str]) -> SubsystemHealth:
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN_S):
            return SubsystemHealth(subsystem=name, status="ready", detail=await asking)
    except TimeoutError:
        detail = f"no answer within {_ANSWERS_WITHIN_S:g} s"
    except Exception as error:  # noqa: BLE001 - a part that raises does not answer
        detail = type(error).__name__
    return SubsystemHealth(subsystem=name, status="unavailable", detail=detail)


async def _ask_store(call: Call) -> str:
    await call.parts.store.runs(RunQuery(tenant=call.services.instance_id, limit=1))
    return ""


async def _ask_bus(call: Call, probe: Identity) -> str:
    bus = call.parts.bus
    if isinstance(bus, RecordBus):
        query = EventQuery(tenant=probe.tenant_id, user=probe.user_id, session=probe.session_id, limit=1)
        await bus.store.events(query)
        return ""
    try:
        await bus.replay(Cursor(sequence=bus.last_sequence(probe)), Filter.of(probe))
    except ReplayUnavailableError:
        return "replay is off"
    return ""


async def _ask_artifacts(call: Call, probe: Identity) -> str:
    scope = ArtifactScope(probe.tenant_id, probe.user_id, probe.session_id)
    await call.parts.artifacts.exists(scope, "health")
    return ""


async def _ask_memory(call: Call, probe: Identity) -> str:
    memories = [*_memories(call)]
    for memory in memories:
        await memory.health(probe)
    return "" if memories else "off"


def _memories(call: Call) -> Iterable[SessionMemory]:
    found = (agent.context_providers.memory for agent in call.parts.agents.roots)
    return (memory for memory in found if memory is not None)


# ── What it counts ────────────────────────────────────────────────────────────────────────────────────────────────────


async def _counters(call: Call, _: Request) -> RuntimeCounters:
    """The tasks of the caller's session, and the open sessions of the tenant."""
    tenant = await _cross(call)
    store = call.parts.store
    mine = RunQuery(tenant=tenant, user=call.who.user_id, session=call.who.session_id, statuses=LIVE)
    running, background, sessions = await together(
        store.count_runs(replace(mine, shown=(Status.RUNNING,))),
        store.count_runs(replace(mine, kinds=(TaskKind.BACKGROUND,))),
        store.count_sessions(SessionListQuery(tenants=(tenant,), states=(SessionState.RUNNING,))),
    )
    servers = await call.services.mcp.list(Identity(tenant, call.who.user_id, call.who.session_id))
    return RuntimeCounters(
        events_per_second=_events_a_second(call),
        tasks_running=running.total,
        background_jobs_active=background.total,
        mcp_connections_healthy=sum(one.state is ServerState.ONLINE for one in servers),
        sessions_active=sessions,
        snapshot_at=_now_ms(call),
    )


async def _metrics(call: Call, _: Request) -> MetricsSnapshot:
    """What the caller's own session counts, and how busy this process is; no label names a user."""
    tenant = await _cross(call)
    who = call.who
    store = call.parts.store
    mine = RunQuery(tenant=tenant, user=who.user_id, session=who.session_id)
    counts, totals, events = await together(
        store.count_runs(mine),
        store.total_runs(mine),
        store.total_events(EventQuery(tenant=tenant, user=who.user_id, session=who.session_id)),
    )
    tasks = [
        MetricValue(name="harborage_tasks", value=count, labels={"status": status.value})
        for status, count in counts.by_status.items()
    ]
    return MetricsSnapshot(
        counters=[
            MetricValue(name="harborage_events_total", value=events),
            MetricValue(name="harborage_tokens_total", value=totals.tokens),
            MetricValue(name="harborage_cost_usd_total", value=totals.cost / 1_000_000),
        ],
        histograms=[],
        gauges=[*tasks, MetricValue(name="harborage_events_per_second", value=_events_a_second(call))],
        snapshot_at=_now_ms(call),
    )


def _events_a_second(call: Call) -> float:
    """What the bus says; a bus of the program's own may not know."""
    rate: float = getattr(call.parts.bus, _EVENTS_A_SECOND, 0.0)
    return rate


def _now_ms(call: Call) -> int:
    return int(call.services.clock.now().timestamp() * 1000)


# ── How it is set ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def _drivers(call: Call, _: Request) -> RuntimeDrivers:
    await _cross(call)
    parts = call.parts
    store = driver_name(parts.store)
    strategies = sorted({str(memory.config.strategy) for memory in _memories(call)})
    found = [
        SubsystemDriver(subsystem="state", driver=store),
        SubsystemDriver(subsystem="artifacts", driver=driver_name(parts.artifacts)),
        SubsystemDriver(subsystem="memory", driver=store, mode=", ".join(strategies) or "none"),
        SubsystemDriver(subsystem="events", driver=driver_name(parts.bus)),
    ]
    return RuntimeDrivers(subsystems=found)


async def _governance(call: Call, _: Request) -> GovernancePosture:
    """The limits of principals; this runtime sets none by tier, so that there are no tiers."""
    tenant = await _cross(call)
    if tenant != call.who.tenant_id:
        payload = GovernancePostureReadAdminPayload(
            actor=call.caller.who.with_run(""), requested_tenant=tenant, occurred_at=call.services.clock.now()
        )
        await _publish(call, EventType.GOVERNANCE_POSTURE_READ_ADMIN, payload)
    return GovernancePosture(default_tier="", resolved_tier="", identity_tiers={}, tiers=[])


async def _model(call: Call, _: Request) -> ModelPosture:
    """The model of the first agent, without anything secret."""
    tenant = await _cross(call)
    if tenant != call.who.tenant_id:
        payload = LLMPostureReadAdminPayload(actor=call.caller.who.with_run(""), requested_tenant=tenant)
        await _publish(call, EventType.LLM_POSTURE_READ_ADMIN, payload)
    from harborage.llm.configure import posture  # loaded for a status page

    config = model_config(call.parts.agents.first)
    found = None if config is None else posture(config)
    return ModelPosture(
        provider="" if found is None else found.provider,
        model="" if found is None else found.model,
        region="" if found is None else found.region,
        mock_mode=call.services.options.is_mock,
    )


async def _publish(
    call: Call, type: EventType, payload: GovernancePostureReadAdminPayload | LLMPostureReadAdminPayload
) -> None:
    await call.parts.bus.publish(Event(type, call.caller.who.with_run(""), payload))


async def _cross(call: Call) -> str:
    """Return the tenant that is asked about; another than the caller's own needs a scope, and is audited.

    Raises:
        ProtocolError: `scope_mismatch`.
    """
    tenant = call.asked.tenant or call.who.tenant_id
    if tenant != call.who.tenant_id:
        call.require(TokenScope.ADMIN, TokenScope.CONSOLE_FLEET)
        await call.audit()
    return tenant


async def _topology(call: Call, _: Request) -> TopologySnapshot:
    raise NotImplementedError("no engine is hosted")


def endpoints_beside(others: Endpoints) -> dict[str, Endpoint]:
    """Return the posture methods of a server whose other methods are `others`."""
    return {
        "runtime.info": _info(others),
        "runtime.health": Endpoint(Request, RuntimeHealth, _health),
        "runtime.counters": Endpoint(Request, RuntimeCounters, _counters),
        "runtime.drivers": Endpoint(Request, RuntimeDrivers, _drivers),
        "metrics.snapshot": Endpoint(Request, MetricsSnapshot, _metrics),
        "governance.posture": Endpoint(Request, GovernancePosture, _governance),
        "llm.posture": Endpoint(Request, ModelPosture, _model),
        "topology.snapshot": Endpoint(Request, TopologySnapshot, _topology, is_offered=lambda _: False),
    }
