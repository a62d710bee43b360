"""Builds a run's history from the entries of its journal. Pure; it reads entries of every earlier version.

No code of the agent is needed or executed: the journal of a run that today's code cannot resume can be shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.planner import CallParallel, CallTool, Decision, Finish, RequestPause, SpawnSpec, SpawnTask
from harborage.runtime.durable.histories import read_value
from harborage.runtime.durable.journal import (
    Arrived,
    Begun,
    Cut,
    Done,
    Ended,
    Entry,
    Failed,
    Joined,
    Patched,
    Rolled,
    Started,
    Waited,
)
from harborage.runtime.effects.run_resources import NO_TASKS
from harborage.runtime.history.model import (
    CallMade,
    CallStatus,
    ChildSpawned,
    ControlTaken,
    ModelAsked,
    PauseTaken,
    RunHistory,
    StepTaken,
)
from harborage.runtime.history.reading import Opened, Place, exchanges_in, open_record, place_of
from harborage.runtime.history.usage import totals_of
from harborage.runtime.loop.agent_calls import CHILD_OF_CALL, JOIN, TAKE_OVER, ChildOfCall, outcome_of
from harborage.runtime.loop.arrivals import Arrivals, Woken
from harborage.runtime.loop.capabilities import HookAnswer
from harborage.runtime.loop.dispatch import Approval
from harborage.runtime.loop.outcome import ToolOutcome
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.loop.state import OpenPause, Planned, Steered
from harborage.runtime.loop.workflow_waits import WAIT_STEPS
from harborage.tasks import TaskKind

_TOOL: Final = "tool."
_APPROVE: Final = "approve."
_CONFIRM: Final = "confirm."
_BEFORE, _AFTER = "hook.before_tool.", "hook.after_tool."
_ABANDONED: Final = "abandoned"


def build_history(record: Sequence[bytes]) -> RunHistory:
    """Return the history of a run, as far as it is recorded; `record` is the result of `Run.history()`.

    Raises:
        JournalCorruptError: an entry cannot be read; the text names it.
    """
    return history_of(open_record(record))


def history_of(opened: Opened) -> RunHistory:
    """Return the history of a run whose entries are decoded.

    Raises:
        JournalCorruptError: an entry cannot be read; the text names it.
    """
    builder = _HistoryBuilder(opened.run_id)
    for index, entry in enumerate(opened.entries):
        builder.add(entry, index)
    last, began = opened.entries[-1].at, opened.entries[0].at
    steps = tuple(step.build() for step in builder.steps)
    return RunHistory(
        run_id=opened.run_id,
        who=opened.request.who,
        goal=opened.request.goal,
        request=opened.request,
        started_at=began,
        ended_at=last if builder.ended is not None else None,
        seconds=(last - began).total_seconds(),
        finish=builder.finish,
        error="" if builder.ended is None else builder.ended.error,
        message="" if builder.ended is None else builder.ended.message,
        steps=steps,
        controls=tuple(builder.controls),
        pauses=tuple(builder.pauses),
        background=tuple(builder.background),
        patches=tuple(builder.patches),
        totals=totals_of(steps),
        entries=len(opened.entries),
    )


class _Step(msgspec.Struct, kw_only=True):
    """A step while its entries are added; calls are by position, since branches record concurrently."""

    step: StepTaken
    calls: dict[str, CallMade] = {}
    children: list[ChildSpawned] = []
    spawns: dict[str, SpawnSpec] = {}
    observation: Any = None
    ended_at: datetime | None = None

    def build(self) -> StepTaken:
        ordered = sorted(self.calls.values(), key=lambda call: (call.branch or 0, call.position))
        return replace(
            self.step,
            calls=tuple(ordered),
            children=tuple(self.children),
            observation=self.observation,
            ended_at=self.ended_at,
        )


class _HistoryBuilder:
    """The history as far as its entries have been added."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._where = ""
        self._planned: list[tuple[int, int]] = []
        self._applied = 0
        self._history = 0
        self.steps: list[_Step] = []
        self.controls: list[ControlTaken] = []
        self.pauses: list[PauseTaken] = []
        self.background: list[Any] = []
        self.patches: list[str] = []
        self.ended: Ended | None = None
        self.finish: Finish | None = None

    def add(self, entry: Entry, index: int) -> None:
        """Add the next entry."""
        self._where = f"run {self._run_id}, entry {index}"
        match entry:
            case Done(name="plan") | Failed(name="plan") | Cut(name="plan"):
                self._plan(entry)
            case Begun() | Done() | Failed() | Cut():
                self._stepped(entry)
            case Arrived():
                self._arrived(entry)
            case Waited():
                woken = self._read(entry.woken, Woken)
                if woken.decision is not None:
                    self._resolve("", str(woken.decision), woken.payload, woken.at or entry.at)
            case Patched():
                self.patches.append(entry.change)
            case Rolled():
                self._history += 1
                self._read(entry.carry, RunRequest)
            case Ended():
                self.ended = entry
                self.finish = None if entry.finish is None else self._read(entry.finish, Finish)
            case Joined():
                self._joined(entry)
            case Started():
                pass

    def _read(self, value: msgspec.Raw, type: Any) -> Any:
        return read_value(value, type, self._where)

    # ── The planner ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _plan(self, entry: Done | Failed | Cut) -> None:
        place = place_of(entry.position)
        step = StepTaken(
            number=len(self.steps) + 1, position=entry.position, history=place.history, decided_at=entry.at
        )
        match entry:
            case Done():
                planned = self._read(entry.result, Planned)
                step = replace(
                    step,
                    started_at=planned.started_at,
                    latency_ms=planned.latency_ms,
                    decision=planned.decision,
                    reasoning=planned.reasoning,
                    preamble=planned.preamble,
                    asked=self._asked(planned.heard),
                    was_summarised=planned.summary is not None,
                )
            case Failed():
                step = replace(step, error=f"{entry.error}: {entry.message}", asked=self._asked(entry.notes))
            case Cut():
                step = replace(step, cut=entry.reason)
        self._planned.append((place.history, place.at))
        self.steps.append(_Step(step=step, ended_at=entry.at))

    def _asked(self, heard: msgspec.Raw | None) -> tuple[ModelAsked, ...]:
        return tuple(
            ModelAsked(messages=one.asked.count, answer=one.answer, failure=one.failure)
            for one in exchanges_in(heard, self._where)
        )

    # ── Results of a decision ─────────────────────────────────────────────────────────────────────────────────────────

    def _stepped(self, entry: Begun | Done | Failed | Cut) -> None:
        match entry:
            case Done(name="steer"):
                self._steered(self._read(entry.result, list[Steered]), entry.at)
                return
            case Done(name="pause.abandon"):
                self._resolve("", _ABANDONED, None, entry.at)
                return
            case _:
                pass
        place = place_of(entry.position)
        step = self._step_at(place)
        if step is None:
            return
        if entry.name == CHILD_OF_CALL and isinstance(entry, Done):
            started = self._read(entry.result, ChildOfCall)
            child = replace(_child(None, started.handle), spec=started.spec)
            step.children += [] if child in step.children else [child]  # a call that is made again finds it there
            return
        if entry.name.startswith((_TOOL, _APPROVE, _CONFIRM, _BEFORE, _AFTER)):
            self._called(step, place, entry)
        elif entry.name in _OF_AN_AGENT and isinstance(step.step.decision, CallTool | CallParallel):
            self._agent_called(step, place, entry)
        elif entry.name in WAIT_STEPS:
            self._waited(step, place, entry)
        elif entry.name in _OF_A_STEP:
            self._acted(step, entry)
        else:
            return
        step.ended_at = entry.at

    def _joined(self, entry: Joined) -> None:
        """Mark the branches that the join did not wait for as cancelled."""
        place = place_of(entry.position)
        step = self._step_at(place)
        if step is None:
            return
        step.ended_at = entry.at
        for index, outcome in enumerate(entry.outcomes):
            if outcome == "cancelled":
                branch = place._replace(branch=index)
                key, call = _call_at(step, branch, _tool_of(step.step.decision, index))
                step.calls[key] = replace(call, status=CallStatus.CANCELLED)

    def _step_at(self, place: Place) -> _Step | None:
        """Return the step of a position: entries of one step may come after the next has begun."""
        index = bisect_left(self._planned, (place.history, place.at)) - 1
        return self.steps[index] if index >= 0 and self._planned[index][0] == place.history else None

    def _called(self, step: _Step, place: Place, entry: Begun | Done | Failed | Cut) -> None:
        prefix = next(one for one in (_TOOL, _APPROVE, _CONFIRM, _BEFORE, _AFTER) if entry.name.startswith(one))
        key, call = _call_at(step, place, entry.name.removeprefix(prefix))
        if prefix != _AFTER:
            call = replace(call, position=entry.position)
        if prefix in (_BEFORE, _AFTER):
            said = self._read(entry.result, HookAnswer) if isinstance(entry, Done) else None
            call = _hooked(call, entry, said, is_made=prefix == _AFTER)
        elif prefix != _TOOL:
            call = _approved(call, entry, self._read(entry.result, Approval) if isinstance(entry, Done) else None)
        else:
            call = self._made(call, entry)
        step.calls[key] = call

    def _made(self, call: CallMade, entry: Begun | Done | Failed | Cut) -> CallMade:
        match entry:
            case Begun():
                wanted = self._read(entry.payload, CallTool)
                attempts = call.attempts + 1
                return replace(call, args=_text(wanted.args), key=entry.key, begun_at=entry.at, attempts=attempts)
            case Done():
                outcome = self._read(entry.result, ToolOutcome)
                return replace(
                    call,
                    status=CallStatus(str(outcome.status)),
                    observation=outcome.observation,
                    seen=outcome.for_planner,
                    error=outcome.error,
                    ended_at=entry.at,
                )
            case Failed():
                error = f"{entry.error}: {entry.message}"
                return replace(call, status=CallStatus.FAILED, error=error, ended_at=entry.at)
            case Cut():
                return replace(call, status=CallStatus.CUT, error=f"cut short: {entry.reason}", ended_at=entry.at)

    def _waited(self, step: _Step, place: Place, entry: Begun | Done | Failed | Cut) -> None:
        """Add an entry of a wait of a workflow: for a time, for an answer or for a message."""
        key, call = _call_at(step, place, _called_tool(step.step.decision, place))
        call = replace(call, position=entry.position)
        match entry:
            case Done():
                value = self._read(entry.result, Any)
                call = replace(call, status=CallStatus.DONE, observation=value, ended_at=entry.at)
            case Cut():
                error = f"cut short: {entry.reason}"
                call = replace(call, status=CallStatus.CUT, error=error, ended_at=entry.at)
            case _:
                pass
        step.calls[key] = call

    def _agent_called(self, step: _Step, place: Place, entry: Begun | Done | Failed | Cut) -> None:
        """Add an entry of a call that another agent answers: its run is started, and waited for."""
        key, call = _call_at(step, place, _called_tool(step.step.decision, place))
        call = replace(call, position=call.position or entry.position)
        match entry:
            case Begun(name="task.spawn"):
                _, spawn = self._read(entry.payload, tuple[str, SpawnTask])
                step.spawns[entry.position] = spawn.spec
                call = replace(call, begun_at=call.begun_at or entry.at)
            case Done(name="task.spawn"):
                handle = self._read(entry.result, dict[str, Any])
                child = replace(_child(None, handle), spec=step.spawns.get(entry.position, SpawnSpec()))
                step.children.append(child)
                call = replace(call, child=child.task_id, begun_at=call.begun_at or entry.at)
                if child.error:
                    status = CallStatus.HELD_BACK if child.error == NO_TASKS else CallStatus.FAILED
                    call = replace(call, status=status, error=child.error, ended_at=entry.at)
                elif child.kind == TaskKind.BACKGROUND:
                    call = replace(call, status=CallStatus.DONE, observation=handle, ended_at=entry.at)
            case Done():
                outcome = outcome_of(call.tool, self._read(entry.result, Any))
                status = CallStatus(str(outcome.status))
                call = replace(
                    call, status=status, observation=outcome.observation, error=outcome.error, ended_at=entry.at
                )
            case Failed():
                error = f"{entry.error}: {entry.message}"
                call = replace(call, status=CallStatus.FAILED, error=error, ended_at=entry.at)
            case Cut():
                error = f"cut short: {entry.reason}"
                call = replace(call, status=CallStatus.CUT, error=error, ended_at=entry.at)
            case _:
                pass
        step.calls[key] = call

    def _acted(self, step: _Step, entry: Begun | Done | Failed | Cut) -> None:
        match entry:
            case Done(name="task.spawn"):
                step.children.append(_child(step.step.decision, self._read(entry.result, dict[str, Any])))
            case Done(name="task.await"):
                step.observation = self._read(entry.result, Any)
            case Done(name="dispatch"):
                step.observation = self._read(entry.result, list[Any])[0]
            case Done(name="parallel.check"):
                refusal = self._read(entry.result, str)
                step.observation = {"error": refusal} if refusal else None
            case Done(name="pause.request"):
                self._open(
                    self._read(entry.result, OpenPause),
                    "planner",
                    entry.at,
                    (step.step.decision.payload if isinstance(step.step.decision, RequestPause) else None),
                )
            case Failed():
                step.observation = {"error": f"{entry.error}: {entry.message}"}
            case Cut():
                step.observation = {"error": f"cut short: {entry.reason}"}
            case _:
                pass

    # ── Steering ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _arrived(self, entry: Arrived) -> None:
        arrivals = self._read(entry.arrivals, Arrivals)
        self.background += arrivals.background
        self._applied = len(self.controls)
        self.controls += [
            ControlTaken(
                type=control.type,
                at=entry.at,
                before_step=len(self.steps) + 1,
                payload=control.payload,
                scope=str(control.caller_scope),
                event_id=control.event_id,
                by=control.by,
            )
            for control in arrivals.controls
        ]

    def _steered(self, outcomes: list[Steered], at: datetime) -> None:
        for outcome in outcomes:
            if self._applied < len(self.controls):
                control = self.controls[self._applied]
                self.controls[self._applied] = replace(control, error=outcome.error)
                self._applied += 1
            if outcome.opened is not None:
                self._open(outcome.opened, "steering", at, outcome.control.payload)
            if outcome.resolved is not None:
                resolved_at = outcome.resolved_at or at
                self._resolve(outcome.resolved_token, str(outcome.resolved), outcome.resolved_payload, resolved_at)

    def _open(self, pause: OpenPause, by: str, at: datetime, payload: dict[str, Any] | None) -> None:
        self.pauses.append(
            PauseTaken(
                token=pause.token,
                reason=pause.reason,
                by=by,
                step=len(self.steps) + (by == "steering"),
                opened_at=at,
                deadline=pause.deadline,
                payload=payload,
            )
        )

    def _resolve(self, token: str, decision: str, answer: dict[str, Any] | None, at: datetime) -> None:
        """Record how the pause of this token was resolved; without a token, the open pause."""
        for index in range(len(self.pauses) - 1, -1, -1):
            pause = self.pauses[index]
            if not pause.decision and token in ("", pause.token):
                self.pauses[index] = replace(pause, decision=decision, answer=answer, resolved_at=at)
                return


_OF_A_STEP: Final = frozenset({"task.spawn", "task.await", "dispatch", "parallel.check", "pause.request"})
_OF_AN_AGENT: Final = frozenset({"task.spawn", "task.await", JOIN, TAKE_OVER})


def _approved(call: CallMade, entry: Begun | Done | Failed | Cut, approval: Approval | None) -> CallMade:
    call = replace(call, approval_asked=True)
    match entry:
        case Done() if approval is not None and approval.refusal:
            status = CallStatus.HELD_BACK if approval.is_held_back else CallStatus.REJECTED
            why = approval.refusal
            return replace(call, status=status, error=why, refusal=why, ended_at=entry.at)
        case Done() if approval is not None:
            return replace(call, args=_text(approval.args))
        case Failed():
            return replace(call, status=CallStatus.FAILED, error=f"{entry.error}: {entry.message}", ended_at=entry.at)
        case Cut():
            return replace(call, status=CallStatus.CUT, error=f"cut short: {entry.reason}", ended_at=entry.at)
        case _:
            return call


def _hooked(call: CallMade, entry: Begun | Done | Failed | Cut, said: HookAnswer | None, *, is_made: bool) -> CallMade:
    """The call after a hook before it, or after what it gave, was asked."""
    match entry:
        case Done() if said is not None and (why := said.refusal or said.advice):
            refused = replace(call, status=CallStatus.REJECTED, error=why, refusal=why, ended_at=entry.at)
            return replace(refused, seen={"error": why}) if is_made else refused
        case Done() if said is not None and said.value is not msgspec.UNSET:
            return replace(call, seen=said.value) if is_made else replace(call, args=_text(codec.encode(said.value)))
        case Failed():
            return replace(call, status=CallStatus.FAILED, error=f"{entry.error}: {entry.message}", ended_at=entry.at)
        case Cut():
            return replace(call, status=CallStatus.CUT, error=f"cut short: {entry.reason}", ended_at=entry.at)
        case _:
            return call


def _call_at(step: _Step, place: Place, tool: str) -> tuple[str, CallMade]:
    """Return the call of a step at this position, and its key; an approval and its call share one."""
    key = tool if place.branch is None else f"{place.at}.{place.branch}"
    known = step.calls.get(key)
    if known is None:
        wanted = _wanted(step.step.decision, place)
        args, call_id = ("", "") if wanted is None else (_text(wanted.args), wanted.call_id)
        known = CallMade(tool=tool, branch=place.branch, args=args, call_id=call_id)
    return key, known


def _tool_of(decision: Decision | None, branch: int) -> str:
    is_known = isinstance(decision, CallParallel) and branch < len(decision.branches)
    return decision.branches[branch].tool if is_known and isinstance(decision, CallParallel) else ""


def _called_tool(decision: Decision | None, place: Place) -> str:
    return decision.tool if isinstance(decision, CallTool) else _tool_of(decision, place.branch or 0)


def _wanted(decision: Decision | None, place: Place) -> CallTool | None:
    """Return the call at this position as the planner wanted it."""
    match decision:
        case CallTool():
            return decision
        case CallParallel() if place.branch is not None and place.branch < len(decision.branches):
            return decision.branches[place.branch]
        case _:
            return None


def _child(decision: Decision | None, handle: dict[str, Any]) -> ChildSpawned:
    spec = decision.spec if isinstance(decision, SpawnTask) else SpawnSpec()
    return ChildSpawned(
        task_id=str(handle.get("task_id", "")),
        kind=str(handle.get("kind", "")),
        spec=spec,
        error=str(handle.get("error", "")),
    )


def _text(args: bytes) -> str:
    return args.decode("utf-8", "replace")
