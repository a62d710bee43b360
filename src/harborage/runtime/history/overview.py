"""The steps of a run as rows: the status of each, what it waits for, whether the run goes on or has ended. Pure.

A record says what happened; that a run waits, and on whom, its row and its pauses say.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harborage.identity import Identity
from harborage.planner import AwaitTask, CallParallel, CallTool, RequestPause, SpawnTask
from harborage.runtime.durable.engine import PROVIDER_UNAVAILABLE, RunPhase
from harborage.runtime.durable.journal import JournalCorruptError
from harborage.runtime.durable.reader import is_blocked, phase_of
from harborage.runtime.history.model import CallMade, CallStatus, ControlTaken, PauseTaken, RunHistory, StepTaken
from harborage.runtime.history.reading import Place, place_of
from harborage.runtime.loop.controls import ControlType
from harborage.runtime.loop.outcome import call_id
from harborage.runtime.loop.pauses import PauseDecision
from harborage.runtime.loop.workflow_waits import SLEEP
from harborage.store import RunRow
from harborage.store.times import moment
from harborage.tasks import TaskKind

if TYPE_CHECKING:
    from harborage.runtime.loop.controls import ControlEvent
    from harborage.runtime.loop.pauses import Pause


class StepStatus(StrEnum):
    """The status of a step; a running or waiting one is the last of a run that goes on."""

    RUNNING = "running"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    CUT = "cut"


CHILD: Final = "child"
"""Why a run waits for the end of one that it started."""
TIMER: Final = "timer"
"""Why a run waits for a time: of its workflow, or the next attempt at a provider that is down."""
WORKER: Final = "worker"
"""Why a run waits that no worker executes."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What a run waits or waited for: a `reason` of pauses, or `child`, `timer`, `worker`.

    `call` is the id of the call that waits; `default` is what happens at `deadline`. `by` is who answered.
    """

    reason: str
    opened_at: datetime
    settled_at: datetime | None = None
    token: str = ""
    call: str = ""
    decision: str = ""
    by: Identity | None = None
    deadline: datetime | None = None
    default: str = ""


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step as a list shows it; `step` is None while the planner decides, or before it could begin."""

    number: int
    status: StepStatus
    step: StepTaken | None = None
    waits: tuple[Wait, ...] = ()
    started_at: datetime


class ControlOutcome(StrEnum):
    """The outcome of a control."""

    QUEUED = "queued"
    APPLIED = "applied"
    FAILED = "failed"
    REJECTED = "rejected"


class ControlRow(msgspec.Struct, frozen=True, kw_only=True):
    """A control that was sent to a run; `before_step` is 0 for one that it has not consumed. `by` is the principal who
    sent it, where that is known.

    One that answered a call at its gate was applied in that call's step.
    """

    type: str
    event_id: str
    at: datetime
    by: Identity | None = None
    outcome: ControlOutcome
    error: str = ""
    before_step: int = 0


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A run from its record, its row and its pauses. `active` is how long it did not wait."""

    history: RunHistory
    row: RunRow
    steps: tuple[StepRow, ...]
    controls: tuple[ControlRow, ...]
    active: timedelta

    @property
    def condition(self) -> str:
        """Why a run that has not ended does not move: `blocked`, `interrupted`, or ""."""
        if self.row.status.is_final:
            return ""
        if is_blocked(self.row):
            return "blocked"
        return "interrupted" if _is_interrupted(self.row) else ""


def overview(
    history: RunHistory, row: RunRow, *, pauses: Iterable[Pause] = (), queued: Iterable[ControlEvent] = ()
) -> Overview:
    """Return the run with its steps as rows; `pauses` are all of the run, `queued` the controls that it has not
    consumed."""
    known, placed = list(pauses), _Placed(history)
    waits = _waits(history, row, known, placed)
    steps = [
        StepRow(
            number=step.number,
            status=_status(step),
            step=step,
            waits=tuple(waits.pop(step.number, ())),
            started_at=step.started_at or step.decided_at,
        )
        for step in history.steps
    ]
    if not row.status.is_final:
        _add_present(steps, history, row, [one for left in waits.values() for one in left])
    return Overview(
        history=history,
        row=row,
        steps=tuple(steps),
        controls=tuple(_controls(history, row, queued, known, placed)),
        active=_active(history, row, steps),
    )


def _status(step: StepTaken) -> StepStatus:
    if step.cut:
        return StepStatus.CUT
    if step.error:
        return StepStatus.FAILED
    statuses = {call.status for call in step.calls}
    if statuses and statuses <= {CallStatus.CUT, CallStatus.CANCELLED}:
        return StepStatus.CUT
    if statuses and statuses <= {CallStatus.FAILED, CallStatus.UNKNOWN}:
        return StepStatus.FAILED
    return StepStatus.DONE


def _add_present(steps: list[StepRow], history: RunHistory, row: RunRow, waits: list[Wait]) -> None:
    """Say of a run that goes on what its last step does, and add the one that its planner decides now."""
    waits = [*waits, *_waits_of_row(row)]
    last = steps[-1] if steps else None
    if last is not None and last.step is not None and _is_open(last.step, history):
        waits = [*last.waits, *waits]
        steps[-1] = replace(last, status=_present(waits), waits=tuple(waits))
        return
    began = history.started_at if last is None or last.step is None else last.step.ended_at or last.step.decided_at
    number = len(steps) + 1
    steps.append(StepRow(number=number, status=_present(waits), waits=tuple(waits), started_at=began))


def _present(waits: Sequence[Wait]) -> StepStatus:
    return StepStatus.WAITING if any(wait.settled_at is None for wait in waits) else StepStatus.RUNNING


def _is_open(step: StepTaken, history: RunHistory) -> bool:
    """Whether a step of a run that goes on has not brought all that it was to bring."""
    if step.error or step.cut:
        return False
    match step.decision:
        case CallTool():
            return not step.calls or step.calls[0].status is CallStatus.OPEN
        case CallParallel(branches=branches):
            is_refused = step.observation is not None
            is_whole = len(step.calls) >= len(branches)
            return not is_refused and not (is_whole and all(one.status is not CallStatus.OPEN for one in step.calls))
        case SpawnTask(spec=spec):
            is_spawned = bool(step.children)
            failed = is_spawned and bool(step.children[0].error)
            return not is_spawned or (spec.retain_turn and step.observation is None and not failed)
        case AwaitTask():
            return step.observation is None
        case RequestPause():
            return any(one.by == "planner" and one.step == step.number and not one.decision for one in history.pauses)
        case _:
            return False


def _is_interrupted(row: RunRow) -> bool:
    """Whether a worker had begun the run, and none executes it now although it could go on."""
    return phase_of(row) is RunPhase.PENDING and row.position > 1


def _waits_of_row(row: RunRow) -> list[Wait]:
    """What the row of a run that goes on says it waits for."""
    since = moment(row.updated_at)
    if not row.owner and row.reason.startswith(PROVIDER_UNAVAILABLE) and row.wake_at is not None:
        return [Wait(reason=TIMER, opened_at=since, deadline=moment(row.wake_at), default="retry")]
    if is_blocked(row) or _is_interrupted(row):
        return [Wait(reason=WORKER, opened_at=since)]
    return []


# ── Waits ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _waits(history: RunHistory, row: RunRow, pauses: Iterable[Pause], placed: _Placed) -> dict[int, list[Wait]]:
    """What each step waited for, by its number; a wait before a step is that step's, also before the next one."""
    found: dict[int, list[Wait]] = {}
    known: set[str] = set()
    for pause in pauses:
        number, call = placed.of(pause)
        known.add(pause.token)
        found.setdefault(number, []).append(_of_pause(pause, call))
    for taken in history.pauses:
        if taken.token not in known:
            found.setdefault(taken.step, []).append(_of_record(taken))
    for step in history.steps:
        if own := _own_waits(step, row):
            found.setdefault(step.number, []).extend(own)
    for waits in found.values():
        waits.sort(key=lambda wait: wait.opened_at)
    return found


def _of_pause(pause: Pause, call: str) -> Wait:
    return Wait(
        reason=str(pause.reason),
        token=pause.token,
        call=call,
        opened_at=pause.paused_at,
        settled_at=pause.resumed_at,
        decision="" if pause.decision is None else str(pause.decision),
        by=_answered_by(pause),
        deadline=pause.deadline,
        default="" if pause.deadline is None else str(pause.default),
    )


def _of_record(taken: PauseTaken) -> Wait:
    return Wait(
        reason=str(taken.reason),
        token=taken.token,
        opened_at=taken.opened_at,
        settled_at=taken.resolved_at,
        decision=taken.decision,
        deadline=taken.deadline,
    )


def _own_waits(step: StepTaken, row: RunRow) -> list[Wait]:
    """The waits that are steps themselves: for another run, or for a time."""
    waits = [wait for call in step.calls if (wait := _of_call(step, call)) is not None]
    is_retained = isinstance(step.decision, SpawnTask) and step.decision.spec.retain_turn
    if isinstance(step.decision, AwaitTask) or (is_retained and step.children and not step.children[0].error):
        ended = step.ended_at if step.observation is not None else None
        waits.append(Wait(reason=CHILD, opened_at=step.decided_at, settled_at=ended or _end_of(row)))
    return waits


def _of_call(step: StepTaken, call: CallMade) -> Wait | None:
    is_background = any(one.task_id == call.child and one.kind == TaskKind.BACKGROUND for one in step.children)
    if call.tool == SLEEP:
        reason = TIMER
    elif call.child and not is_background:
        reason = CHILD
    else:
        return None
    began = call.begun_at or step.decided_at
    return Wait(reason=reason, call=call_id(step.number, call.branch), opened_at=began, settled_at=call.ended_at)


def _end_of(row: RunRow) -> datetime | None:
    return moment(row.updated_at) if row.status.is_final else None


class _Placed:
    """Finds the step of a pause: by the position in its key, by the record, or by when it was opened."""

    def __init__(self, history: RunHistory) -> None:
        self._steps = history.steps
        self._places = [(step.history, place_of(step.position).at) for step in history.steps]
        self._times = [step.decided_at for step in history.steps]
        self._taken = {pause.token: pause.step for pause in history.pauses}

    def of(self, pause: Pause) -> tuple[int, str]:
        """Return the number of the step, and the id of the call that waits, if it is one."""
        if (known := self._taken.get(pause.token)) is not None:
            return known, ""
        place = _place_in(pause.key)
        if place is None:
            return max(1, bisect_right(self._times, pause.paused_at)), ""
        at = bisect_right(self._places, (place.history, place.at)) - 1
        if at < 0:
            return 1, ""
        step = self._steps[at]
        is_call = isinstance(step.decision, CallTool | CallParallel)
        return step.number, call_id(step.number, place.branch) if is_call else ""


def _place_in(key: str) -> Place | None:
    """The position that the key of a pause ends with; None for a key of another form."""
    try:
        return place_of(key.rpartition("/")[2]) if key else None
    except JournalCorruptError:
        return None


def _active(history: RunHistory, row: RunRow, steps: Sequence[StepRow]) -> timedelta:
    """How long the run did not wait, up to its end or its last entry; waits that overlap count once."""
    end = history.started_at + timedelta(seconds=history.seconds)
    waited, until = timedelta(), history.started_at
    spans = sorted((wait.opened_at, wait.settled_at or end) for step in steps for wait in step.waits)
    for opened, settled in spans:
        start, stop = max(opened, until), min(settled, end)
        if stop > start:
            waited += stop - start
            until = stop
    return max(timedelta(), end - history.started_at - waited)


_ANSWERS: Final = {
    PauseDecision.APPROVE: ControlType.APPROVE,
    PauseDecision.REJECT: ControlType.REJECT,
    PauseDecision.RESUME: ControlType.RESUME,
}


def _controls(
    history: RunHistory, row: RunRow, queued: Iterable[ControlEvent], pauses: Sequence[Pause], placed: _Placed
) -> list[ControlRow]:
    """The controls of a run: those that it consumed, those that answered its calls, and those that it did not."""
    answers = {pause.answering: pause for pause in pauses if pause.answering and pause.resumed_at is not None}
    taken = [_of_taken(control, answers) for control in history.controls]
    known = {one.event_id for one in taken if one.event_id}
    taken += [_of_answer(pause, placed) for event_id, pause in answers.items() if event_id not in known]
    taken.sort(key=lambda one: one.at)
    known |= answers.keys()
    outcome = ControlOutcome.REJECTED if row.status.is_final else ControlOutcome.QUEUED
    for control in queued:
        if control.event_id not in known:
            at = control.enqueued_at or moment(row.updated_at)
            error = "run_ended" if row.status.is_final else ""
            taken.append(
                ControlRow(
                    type=str(control.type),
                    event_id=control.event_id,
                    at=at,
                    by=control.by,
                    outcome=outcome,
                    error=error,
                )
            )
    return taken


def _answered_by(pause: Pause) -> Identity | None:
    """Who answered a pause; of one that an earlier version settled its record has the user alone."""
    if pause.answered_by is not None or not pause.resolved_by:
        return pause.answered_by
    return replace(pause.identity.identity, user_id=pause.resolved_by)


def _of_answer(pause: Pause, placed: _Placed) -> ControlRow:
    """The control that answered a call at its gate, which is on record with the pause alone."""
    decision = PauseDecision.RESUME if pause.decision is None else pause.decision
    return ControlRow(
        type=str(_ANSWERS.get(decision, ControlType.RESUME)),
        event_id=pause.answering,
        at=pause.resumed_at or pause.paused_at,
        by=_answered_by(pause),
        outcome=ControlOutcome.APPLIED,
        before_step=placed.of(pause)[0],
    )


def _of_taken(control: ControlTaken, answers: Mapping[str, Pause]) -> ControlRow:
    pause = answers.get(control.event_id)
    return ControlRow(
        type=str(control.type),
        event_id=control.event_id,
        at=control.at,
        by=control.by or (None if pause is None else _answered_by(pause)),
        outcome=ControlOutcome.FAILED if control.error else ControlOutcome.APPLIED,
        error=control.error,
        before_step=control.before_step,
    )
