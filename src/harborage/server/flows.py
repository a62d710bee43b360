"""What the server asks about flows: the port of an engine that runs them, and the one without any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from harborage.identity import Identity
from harborage.protocol.wire.flows import FlowBudget, FlowEdge, FlowNode, FlowStatus, FlowTrigger, NodeState


class FlowSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as it is declared; its name is its id."""

    name: str
    owner: str = ""
    version: str = ""
    planner_family: str = "graph"
    budget: FlowBudget = FlowBudget()
    nodes: tuple[FlowNode, ...] = ()
    edges: tuple[FlowEdge, ...] = ()
    source: str = ""


class FlowRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a flow; `ended_at` is None while it goes on."""

    run_id: str
    flow: str
    who: Identity
    status: FlowStatus
    trigger: FlowTrigger
    started_at: datetime
    ended_at: datetime | None = None
    requests: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    error_class: str = ""
    nodes: tuple[NodeState, ...] = ()
    output: str = ""

    @property
    def duration_ms(self) -> int | None:
        """How long it took; None while it goes on."""
        return None if self.ended_at is None else round((self.ended_at - self.started_at).total_seconds() * 1_000)


class Flows(Protocol):
    """The flows of a server, and their runs. Who may see which run is decided above it."""

    async def specs(self) -> Sequence[FlowSpec]:
        """Return all flows."""
        ...

    async def runs(self, flow: str, tenants: Sequence[str]) -> Sequence[FlowRun]:
        """Return the runs of a flow in these tenants that are kept, newest first."""
        ...

    async def find_run(self, run_id: str) -> FlowRun | None:
        """Return a run of any owner."""
        ...

    async def start(self, flow: str, inputs: Mapping[str, Any], who: Identity) -> FlowRun:
        """Start a run of a flow that exists."""
        ...


class NoFlows:
    """A server without flows."""

    async def specs(self) -> Sequence[FlowSpec]:
        """Return none."""
        return ()

    async def runs(self, flow: str, tenants: Sequence[str]) -> Sequence[FlowRun]:
        """Return none."""
        return ()

    async def find_run(self, run_id: str) -> FlowRun | None:
        """Return None."""
        return None

    async def start(self, flow: str, inputs: Mapping[str, Any], who: Identity) -> FlowRun:
        """Never called: there is no flow to start."""
        raise LookupError(f"no flow {flow!r} here")
