"""One task in detail: its session and parent, and what its record says of cost, reasoning and where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harborage.concurrency import together
from harborage.errors import error_reason
from harborage.protocol.wire.tasks import (
    ParentSession,
    ParentTask,
    PlannerSnapshot,
    StepCost,
    TaskCost,
    TaskDetail,
    Trajectory,
    TrajectoryStep,
)
from harborage.runtime.durable.reader import UNREADABLE
from harborage.runtime.history.builder import build_history
from harborage.runtime.history.reading import read_run
from harborage.server.families.task_rows import MICRO, open_pauses, show_task
from harborage.server.served import agent_id
from harborage.store import RunQuery, SessionListQuery, SessionState
from harborage.store.times import moment
from harborage.tasks import TaskKind
from harborage.tasks.rows import task_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harborage.protocol.wire.tasks import TaskRow
    from harborage.runtime.history.model import RunHistory, StepTaken
    from harborage.server.services import Call
    from harborage.store import PauseRow, RunRow

_CURRENCY: Final = "USD"


async def describe_task(call: Call, row: RunRow) -> TaskDetail:
    """Return the detail of a whole row."""
    asked, session, parent, history = await together(
        open_pauses(call.parts.store, [row]), _session(call, row), _parent(call, row), _history(call, row)
    )
    task, pauses = task_of(row), asked.get(row.run_id, [])
    shown = show_task(row, pauses, (task.description, task.query))
    return TaskDetail(
        task=shown,
        parent_session=session,
        parent_task=parent,
        cost=_cost(row, history),
        planner_snapshot=_snapshot(row, shown, pauses, history),
        result_inline="" if task.result is None else task.result.decode(),
        trajectory=_trajectory(history),
    )


async def _session(call: Call, row: RunRow) -> ParentSession:
    """The session of a run, as far as one was opened."""
    who = row.who
    query = SessionListQuery(tenants=(who.tenant_id,), users=(who.user_id,), sessions=(who.session_id,), limit=1)
    found = await call.parts.store.list_sessions(query)
    if not found:
        return ParentSession(
            session_id=who.session_id,
            agent_name=agent_id(row.agent),
            status=SessionState.RUNNING,
            started_at=moment(row.created_at),
            latest_event_at=moment(row.updated_at),
        )
    (session,) = found
    return ParentSession(
        session_id=who.session_id,
        agent_name=agent_id(session.agent),
        status=session.state,
        started_at=moment(session.row.opened_at),
        latest_event_at=moment(session.row.seen_at),
    )


async def _parent(call: Call, row: RunRow) -> ParentTask | None:
    if not row.parent:
        return None
    store, who = call.parts.store, row.who
    rows = (await store.runs(RunQuery(tenant=who.tenant_id, user=who.user_id, run_ids=(row.parent,), limit=1))).rows
    if not rows:
        return None
    asked = await open_pauses(store, rows)
    shown = show_task(rows[0], asked.get(row.parent, ()))
    return ParentTask(task_id=shown.id, kind=shown.kind or TaskKind.FOREGROUND, status=shown.status)


async def _history(call: Call, row: RunRow) -> RunHistory | None:
    """What the record of a run says; None where there is none, and where it cannot be read, which is logged."""
    try:
        record = await read_run(call.parts.store, row.run_id)
        return build_history(record) if record else None
    except UNREADABLE as error:
        call.services.logger.warning("run %s is shown without its record: %s", row.run_id, error_reason(error))
        return None


def _cost(row: RunRow, history: RunHistory | None) -> TaskCost:
    """What the row counts, else what the record does: a program's own model says nothing of its price while it runs."""
    steps = () if history is None else history.steps
    per_step = [_step_cost(step) for step in steps]
    prompt = 0 if history is None else history.totals.prompt_tokens
    output = 0 if history is None else history.totals.completion_tokens
    recorded = 0.0 if history is None else history.totals.cost.get(_CURRENCY, 0.0)
    return TaskCost(
        total_tokens=row.tokens or prompt + output,
        prompt_tokens=prompt,
        output_tokens=output,
        usd=row.cost / MICRO if row.cost else recorded,
        per_step=[one for one in per_step if one.tokens or one.usd],
    )


def _step_cost(step: StepTaken) -> StepCost:
    answers = [one.answer for one in step.asked if one.answer is not None]
    tokens = sum(
        int(answer.usage.get("prompt_tokens", 0)) + int(answer.usage.get("completion_tokens", 0)) for answer in answers
    )
    prices = [answer.cost for answer in answers if str(answer.cost.get("currency") or _CURRENCY) == _CURRENCY]
    usd = sum(float(price.get("total_cost", 0.0)) for price in prices)
    return StepCost(step_index=step.number - 1, tokens=tokens, usd=usd)


def _snapshot(
    row: RunRow, shown: TaskRow, pauses: Sequence[PauseRow], history: RunHistory | None
) -> PlannerSnapshot | None:
    """Where a run that goes on stands: at which pause, or behind which entry of its record."""
    if row.status.is_final or history is None:
        return None
    steps = len(history.steps)
    waits = ", ".join(sorted({pause.reason for pause in pauses}))
    summary = f"{steps} {'step' if steps == 1 else 'steps'}, {shown.condition or shown.status}"
    return PlannerSnapshot(
        checkpoint_id=pauses[0].token if pauses else f"{row.run_id}:{row.position}",
        summary=f"{summary}: {waits}" if waits else summary,
    )


def _trajectory(history: RunHistory | None) -> Trajectory | None:
    """The steps that have a reasoning, under their own indexes; None where none has."""
    steps = () if history is None else history.steps
    found = [
        TrajectoryStep(index=step.number - 1, reasoning_trace=step.reasoning)
        for step in steps
        if step.reasoning.strip()
    ]
    return Trajectory(steps=found) if found else None
