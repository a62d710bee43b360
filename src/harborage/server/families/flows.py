"""`flows.*`: the flows of a server, their runs, and what those came to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from harborage.artifacts import ArtifactScope
from harborage.events import Event, EventType, FlowsPageViewedPayload, FlowsRunInvokedPayload
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire.common import ArtifactReference, WireIdentity
from harborage.protocol.wire.flows import (
    DescribeFlow,
    DescribeFlowRun,
    FlowDescribed,
    FlowFilterParts,
    FlowMeasured,
    FlowRunDescribed,
    FlowRunRow,
    FlowRunsListed,
    FlowsListed,
    FlowStarted,
    FlowStatus,
    ListFlowRuns,
    ListFlows,
    MeasureFlow,
    RunFlow,
)
from harborage.server.families.flow_figures import DAY, buckets, consumption, flow_row, since
from harborage.server.families.paging import checked_page, cut_page, page_count
from harborage.server.services import Endpoint

if TYPE_CHECKING:
    from harborage.server.flows import FlowRun, FlowSpec
    from harborage.server.services import Call

OUTPUT_NAMESPACE: Final = "flow_run_output"
MAX_BUCKETS: Final = 2_000

_DAY_MS: Final = 24 * 3_600_000
_HOUR_MS: Final = 3_600_000
_LONGEST_MS: Final = 366 * _DAY_MS


async def list_flows(call: Call, asked: ListFlows) -> FlowsListed:
    """Return one page of the flows, each with what its runs of the last day came to."""
    tenants, is_foreign = _tenants(call, asked.filter.tenants)
    page, page_size = checked_page(asked.page, asked.page_size)
    await _view(call, "", is_foreign=is_foreign)
    specs = sorted(await call.services.flows.specs(), key=lambda spec: spec.name)
    found = [spec for spec in specs if _is_found(spec, asked.filter)]
    now = call.services.clock.now()
    rows = [flow_row(spec, await _runs(call, spec.name, tenants), now) for spec in cut_page(found, page, page_size)]
    return FlowsListed(
        flows=rows,
        page=page,
        page_size=page_size,
        page_count=page_count(len(found), page_size),
        total_rows=len(found),
    )


async def describe_flow(call: Call, asked: DescribeFlow) -> FlowDescribed:
    """Return one flow with its graph."""
    spec = await _find(call, asked.id, "id")
    await _view(call, spec.name)
    now = call.services.clock.now()
    runs = await _runs(call, spec.name, (call.who.tenant_id,))
    return FlowDescribed(
        flow=flow_row(spec, runs, now),
        nodes=spec.nodes,
        edges=spec.edges,
        source=spec.source or msgspec.UNSET,
        budget_consumption=consumption(since(runs, now - DAY)),
    )


async def list_flow_runs(call: Call, asked: ListFlowRuns) -> FlowRunsListed:
    """Return one page of the runs of a flow, newest first."""
    tenants, is_foreign = _tenants(call, asked.tenants)
    page, page_size = checked_page(asked.page, asked.page_size)
    spec = await _find(call, asked.flow_id, "flow_id")
    await _view(call, spec.name, is_foreign=is_foreign)
    runs = await _runs(call, spec.name, tenants)
    return FlowRunsListed(
        runs=[_row(run) for run in cut_page(runs, page, page_size)],
        page=page,
        page_size=page_size,
        page_count=page_count(len(runs), page_size),
        total_rows=len(runs),
    )


async def describe_flow_run(call: Call, asked: DescribeFlowRun) -> FlowRunDescribed:
    """Return one run of a flow with its nodes and its output."""
    if not asked.run_id.strip():
        raise ProtocolError(Code.INVALID_REQUEST, "flows.runs.describe: run_id is empty")
    run = await call.services.flows.find_run(asked.run_id)
    is_foreign = run is not None and run.who.tenant_id != call.who.tenant_id
    if run is None or (is_foreign and not call.is_admin) or not _may_see(call, run):
        raise ProtocolError(Code.NOT_FOUND, f"no run {asked.run_id!r} of a flow here")
    await _view(call, run.flow, is_foreign=is_foreign)
    output = await _output(call, run)
    return FlowRunDescribed(
        run=_row(run),
        node_states=run.nodes,
        output_preview=output if isinstance(output, str) and output else msgspec.UNSET,
        output_ref=output if isinstance(output, ArtifactReference) else msgspec.UNSET,
    )


async def run_flow(call: Call, asked: RunFlow) -> FlowStarted:
    """Start a run of a flow for the caller, who must be an admin."""
    _check_id(call, asked.flow_id, "flow_id")
    call.require(TokenScope.ADMIN)
    spec = await _find(call, asked.flow_id, "flow_id")
    run = await call.services.flows.start(spec.name, asked.inputs, call.who)
    payload = FlowsRunInvokedPayload(spec.name, run.run_id)
    await call.parts.bus.publish(Event(EventType.FLOWS_RUN_INVOKED, call.who.with_run(""), payload))
    return FlowStarted(run_id=run.run_id, status=FlowStatus.RUNNING, started_at=run.started_at)


async def measure_flow(call: Call, asked: MeasureFlow) -> FlowMeasured:
    """Return what the runs of a flow came to, bucket by bucket."""
    _check_id(call, asked.flow_id, "flow_id")
    window, bucket = asked.window_ms or _DAY_MS, asked.bucket_ms or _HOUR_MS
    if not 0 < bucket <= window <= _LONGEST_MS or window > bucket * MAX_BUCKETS:
        text = (
            f"window_ms is at most {_LONGEST_MS} and bucket_ms at most as long, for at most {MAX_BUCKETS} buckets;"
            " neither is negative"
        )
        raise ProtocolError(Code.INVALID_REQUEST, f"flows.metrics: {text}")
    spec = await _find(call, asked.flow_id, "flow_id")
    await _view(call, spec.name)
    end = call.services.clock.now()
    start = end - timedelta(milliseconds=window)
    runs = since(await _runs(call, spec.name, (call.who.tenant_id,)), start)
    return FlowMeasured(
        flow_id=spec.name,
        window_start=start,
        window_end=end,
        buckets=buckets(runs, start, end, timedelta(milliseconds=bucket)),
        budget_consumption=consumption(runs),
    )


def _tenants(call: Call, named: Sequence[str]) -> tuple[Sequence[str], bool]:
    """Return the tenants that a request is about, and whether one of them is not the caller's.

    Raises:
        ProtocolError: `identity_scope_required`: one is, and the token is no admin's.
    """
    tenants = tuple(dict.fromkeys(named)) or (call.who.tenant_id,)
    is_foreign = tenants != (call.who.tenant_id,)
    if is_foreign:
        call.require(TokenScope.ADMIN, code=Code.IDENTITY_SCOPE_REQUIRED)
    return tenants, is_foreign


def _check_id(call: Call, id: str, field: str) -> None:
    if not id.strip():
        raise ProtocolError(Code.INVALID_REQUEST, f"{call.method.name}: {field} is empty")


async def _find(call: Call, id: str, field: str) -> FlowSpec:
    """Return the flow of this id.

    Raises:
        ProtocolError: `invalid_request`: the id is blank; `not_found`: there is no such flow.
    """
    _check_id(call, id, field)
    found = next((spec for spec in await call.services.flows.specs() if spec.name == id), None)
    if found is None:
        raise ProtocolError(Code.NOT_FOUND, f"no flow {id!r} is served here; flows.list shows those that are")
    return found


async def _view(call: Call, flow: str, *, is_foreign: bool = False) -> None:
    """Publish that flows are read, and beyond the own tenant also that a scope was used for it."""
    if is_foreign:
        await call.audit()
    payload = FlowsPageViewedPayload(call.method.name, flow, is_foreign)
    await call.parts.bus.publish(Event(EventType.FLOWS_PAGE_VIEWED, call.caller.who.with_run(""), payload))


async def _runs(call: Call, flow: str, tenants: Sequence[str]) -> list[FlowRun]:
    return [run for run in await call.services.flows.runs(flow, tenants) if _may_see(call, run)]


def _may_see(call: Call, run: FlowRun) -> bool:
    """Whether a run of a tenant that the caller may read is shown: without a scope only the caller's own."""
    return call.is_scoped or run.who.user_id == call.who.user_id


def _is_found(spec: FlowSpec, filter: FlowFilterParts) -> bool:
    return spec.planner_family in (filter.planner_families or (spec.planner_family,)) and (
        filter.query.lower() in f"{spec.name}\n{spec.owner}".lower()
    )


def _row(run: FlowRun) -> FlowRunRow:
    return FlowRunRow(
        run_id=run.run_id,
        flow_id=run.flow,
        status=run.status,
        trigger=run.trigger,
        started_at=run.started_at,
        duration_ms=run.duration_ms,
        cost_usd=run.cost_usd or None,
        identity=WireIdentity.of(run.who),
        error_class=run.error_class,
    )


async def _output(call: Call, run: FlowRun) -> str | ArtifactReference:
    """Return the output of a run: as text, or as a reference to an artifact of its session where it is large."""
    if len(run.output.encode()) < call.services.options.heavy_bytes:
        return run.output
    ref = await call.parts.artifacts.put_text(
        ArtifactScope.of(run.who),
        run.output,
        mime_type="text/plain",
        filename=f"flow-run-{run.run_id}.txt",
        namespace=OUTPUT_NAMESPACE,
        source={"source": "flow", "flow": run.flow, "run_id": run.run_id},
    )
    return ArtifactReference.of(ref)


ENDPOINTS: Final = {
    "flows.list": Endpoint(ListFlows, FlowsListed, list_flows),
    "flows.describe": Endpoint(DescribeFlow, FlowDescribed, describe_flow),
    "flows.runs.list": Endpoint(ListFlowRuns, FlowRunsListed, list_flow_runs),
    "flows.runs.describe": Endpoint(DescribeFlowRun, FlowRunDescribed, describe_flow_run),
    "flows.run": Endpoint(RunFlow, FlowStarted, run_flow),
    "flows.metrics": Endpoint(MeasureFlow, FlowMeasured, measure_flow),
}
