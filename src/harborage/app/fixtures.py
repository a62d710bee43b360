"""What a development server shows before anybody has worked with it: a row of every kind, made the usual way.

Tasks are real runs on the mock model, and everything else is stored by the parts that store it otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from harborage.app.agent import Agent
from harborage.artifacts import ArtifactScope
from harborage.events import (
    Event,
    EventType,
    Payload,
    TaskFailedPayload,
    ToolCompletedPayload,
    ToolInvokedPayload,
)
from harborage.identity import Identity
from harborage.ids import new_id
from harborage.memory import Turn
from harborage.protocol.wire.flows import FlowNode, FlowStatus, FlowTrigger, NodeState, NodeType
from harborage.server.flows import FlowRun, FlowSpec
from harborage.tasks import SpawnRequest, TaskKind
from harborage.tools import tool

if TYPE_CHECKING:
    from harborage.clock import Clock
    from harborage.runtime.host import Runtime

WHO: Final = Identity("dev", "dev", "dev")
"""Whose the fixtures are: the principal of the development token."""

_MODEL: Final = "mock:mock"
_RESEARCH: Final = "dev-seed-research-agent"
_AGENTS: Final = {
    _RESEARCH: "Research agent",
    "dev-seed-triage-agent": "Triage agent",
    "dev-seed-summary-agent": "Summary agent",
}
_SESSIONS: Final = 6
_TASKS: Final = (
    (TaskKind.FOREGROUND, "Find what the tides did last spring", "Research"),
    (TaskKind.FOREGROUND, "Which reports are urgent?", "Triage"),
    (TaskKind.BACKGROUND, "Summarise the notes of the week", "Summary"),
    (TaskKind.BACKGROUND, "Index the archive", "Housekeeping"),
)
_ARTIFACTS: Final = {
    "dev-seed-notes": ("notes.txt", "The tide was high at six."),
    "dev-seed-report": ("report.txt", "Three boats were late."),
    "dev-seed-summary": ("summary.txt", "A quiet week."),
}
_TURNS: Final = (
    ("When is high tide?", "At six in the evening."),
    ("And tomorrow?", "An hour later."),
    ("Thank you.", "You are welcome."),
)
_FLOWS: Final = ("dev-seed-research-flow", "dev-seed-triage-flow")
_FLOW_TOOK: Final = timedelta(seconds=3)


def fixture_agents() -> list[Agent[Any, Any]]:
    """Return three agents on the mock model, with three tools between them."""
    tools = _tools()
    return [
        Agent(name, model=_MODEL, description=text, tools=[used], memory="truncation")
        for (name, text), used in zip(_AGENTS.items(), tools, strict=True)
    ]


def _tools() -> list[Any]:
    @tool(name="dev-seed-echo", effects="pure")
    async def echo() -> str:
        """Say what was said."""
        return "echo"

    @tool(name="dev-seed-search", effects="pure")
    async def search() -> str:
        """Search the archive."""
        return "nothing found"

    @tool(name="dev-seed-summarise", effects="pure")
    async def summarise() -> str:
        """Summarise a text."""
        return "a summary"

    return [echo, search, summarise]


async def seed(runtime: Runtime, clock: Clock) -> None:
    """Store the fixtures that are not there yet; `fixture_agents` must be among the runtime's."""
    for number in range(1, _SESSIONS + 1):
        await runtime.sessions.visit(Identity(WHO.tenant_id, WHO.user_id, f"dev-seed-session-{number}"))
    await runtime.sessions.visit(WHO)
    for number, (kind, query, description) in enumerate(_TASKS):
        await _start(runtime, kind, query, description, f"dev-seed-task-{number}")
    for namespace, (filename, text) in _ARTIFACTS.items():
        await runtime.artifacts.put_text(ArtifactScope.of(WHO), text, filename=filename, namespace=namespace)
    memory = runtime.parts.agents.get(_RESEARCH).context_providers.memory
    assert memory is not None
    for number, (asked, answered) in enumerate(_TURNS):
        turn = Turn(user_message=asked, assistant_response=answered, at=clock.now(), key=f"dev-seed-turn-{number}")
        await memory.add_turn(WHO, turn)
    for what, payload in _events(clock.now()):
        await runtime.bus.publish(Event(what, WHO.with_run(""), payload))


async def _start(runtime: Runtime, kind: TaskKind, query: str, description: str, key: str) -> None:
    if kind is TaskKind.FOREGROUND:
        await runtime.start(_RESEARCH, query, who=WHO, description=description, key=key, remembers=False)
        return
    wanted = SpawnRequest(
        identity=WHO.with_run(""), kind=kind, query=query, description=description, idempotency_key=key
    )
    await runtime.tasks.spawn(wanted)


def _events(now: datetime) -> Sequence[tuple[EventType, Payload]]:
    who, name, transport = WHO.with_run(""), "dev-seed-fs-read", "in-proc"
    return (
        (EventType.TOOL_INVOKED, ToolInvokedPayload(who, name, transport, now)),
        (EventType.TOOL_COMPLETED, ToolCompletedPayload(who, name, transport, 1, 42)),
        (EventType.TASK_FAILED, TaskFailedPayload("dev-seed-failed-task", "dev_seed_demo_failure")),
    )


class FixtureFlows:
    """Two flows of one node, with two runs each; a run that is started succeeds at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now = clock.now()
        self._runs = [
            _flow_run(flow, f"{flow}-run-{number}", now - timedelta(hours=number + 1))
            for flow in _FLOWS
            for number in range(2)
        ]

    async def specs(self) -> Sequence[FlowSpec]:
        """Return both."""
        node = FlowNode(id="work", type=NodeType.TOOL)
        return [FlowSpec(name=name, owner="dev-seed", version="v1", nodes=(node,)) for name in _FLOWS]

    async def runs(self, flow: str, tenants: Sequence[str]) -> Sequence[FlowRun]:
        """Return the runs of a flow, newest first."""
        found = [run for run in self._runs if run.flow == flow and run.who.tenant_id in tenants]
        return sorted(found, key=lambda run: run.started_at, reverse=True)

    async def find_run(self, run_id: str) -> FlowRun | None:
        """Return a run."""
        return next((run for run in self._runs if run.run_id == run_id), None)

    async def start(self, flow: str, inputs: Mapping[str, Any], who: Identity) -> FlowRun:
        """Add a run that has succeeded."""
        self._runs.append(_flow_run(flow, new_id(), self._clock.now(), who))
        return self._runs[-1]


def _flow_run(flow: str, run_id: str, at: datetime, who: Identity = WHO) -> FlowRun:
    return FlowRun(
        run_id=run_id,
        flow=flow,
        who=who,
        status=FlowStatus.SUCCEEDED,
        trigger=FlowTrigger.USER,
        started_at=at,
        ended_at=at + _FLOW_TOOK,
        nodes=(NodeState(node_id="work", status="succeeded", duration_ms=3_000),),
    )
