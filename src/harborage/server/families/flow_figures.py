"""What the runs of a flow come to: percentiles, rates, buckets. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from harborage.protocol.wire.common import NO_TIME
from harborage.protocol.wire.flows import BudgetConsumption, FlowBucket, FlowRow, FlowStatus

if TYPE_CHECKING:
    from harborage.server.flows import FlowRun, FlowSpec

DAY: Final = timedelta(hours=24)


def percentile(durations: Iterable[int], part: float) -> int:
    """Return the duration below which this part of them lies; 0 of none."""
    ordered = sorted(durations)
    return ordered[math.floor(part * (len(ordered) - 1))] if ordered else 0


def success_rate(runs: Iterable[FlowRun]) -> float:
    """Return the part of the ended runs that succeeded, from 0 to 1; 0 of none."""
    ended = [run for run in runs if run.status is not FlowStatus.RUNNING]
    return sum(run.status is FlowStatus.SUCCEEDED for run in ended) / len(ended) if ended else 0.0


def consumption(runs: Iterable[FlowRun]) -> BudgetConsumption:
    """Return what runs have used together."""
    runs = list(runs)
    return BudgetConsumption(
        requests_used=sum(run.requests for run in runs),
        cost_usd_used=sum(run.cost_usd for run in runs),
        tokens_used=sum(run.tokens for run in runs),
    )


def since(runs: Iterable[FlowRun], start: datetime) -> list[FlowRun]:
    """Return the runs that began at this time or later."""
    return [run for run in runs if run.started_at >= start]


def flow_row(spec: FlowSpec, runs: Sequence[FlowRun], now: datetime) -> FlowRow:
    """Return the row of a flow, over its runs, newest first."""
    recent = since(runs, now - DAY)
    durations = _durations(recent)
    return FlowRow(
        id=spec.name,
        name=spec.name,
        owner=spec.owner,
        version=spec.version,
        planner_family=spec.planner_family,
        node_count=len(spec.nodes),
        edge_count=len(spec.edges),
        runs_24h=len(recent),
        p50_latency_ms=percentile(durations, 0.5),
        p95_latency_ms=percentile(durations, 0.95),
        success_rate=success_rate(recent),
        last_run=runs[0].started_at if runs else NO_TIME,
        budget=spec.budget,
    )


def buckets(runs: Sequence[FlowRun], start: datetime, end: datetime, width: timedelta) -> list[FlowBucket]:
    """Return one bucket for each stretch of `width` between two times, empty ones, too; the last may be shorter."""
    count = math.ceil((end - start) / width)
    parts: list[list[FlowRun]] = [[] for _ in range(count)]
    for run in runs:
        if start <= run.started_at < end:
            parts[int((run.started_at - start) / width)].append(run)
    return [
        FlowBucket(
            bucket_start=start + index * width,
            runs=len(part),
            p95_latency_ms=percentile(_durations(part), 0.95),
            success_rate=success_rate(part),
            cost_usd=sum(run.cost_usd for run in part),
        )
        for index, part in enumerate(parts)
    ]


def _durations(runs: Iterable[FlowRun]) -> list[int]:
    return [took for run in runs if (took := run.duration_ms) is not None]
