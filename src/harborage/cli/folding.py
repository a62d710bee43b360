"""A run in few lines: a step is one row when it has ended, and what goes on is a block that is drawn again.

Parallel calls are one row, and so is a child with all that it does; what failed in them has a row of its own. Pure:
facts in, rows out. `journal_view` and `view` keep the state of the runs and render what is not folded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, assert_never, cast

import msgspec
from rich.text import Text

from harborage import codec
from harborage.app.project import Origin
from harborage.cli.block import Asked, CallLine, ChildLines, Folds, Shown, StepLines, mark_of_all, row_of, summary_of
from harborage.cli.journal_view import RecordedEntry, RunView, View, run_of
from harborage.cli.rows import INDENT, Mark, Row, brief, brief_args, prose, took
from harborage.cli.status import ending_of
from harborage.cli.text import compact, duration, masked, one_line, plural, printable
from harborage.cli.view import Fact, render
from harborage.events import Event, EventType
from harborage.planner import AwaitTask, CallParallel, CallTool, Finish, FinishReason
from harborage.runtime.durable.journal import Begun, Cut, Done, Ended, Entry, Failed, Joined, Started
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.loop.state import Planned

_TOOL: Final = "tool."
_SPAWN: Final = "task.spawn"
_KEPT_CALLS: Final = 50
_KEPT_ROWS: Final = 1_000
_CHANGES: Final = 3
_WORTH_SAYING_S: Final = 60
_MESSAGE: Final = "USER_MESSAGE"
_GAVE_UP: Final = re.compile(r"gave up after (\d+) attempts \(\w+\): (?:\w+Error: )?(.*)", re.DOTALL)
_FOLDED_EVENTS: Final = frozenset({EventType.TOOL_COMPLETED, EventType.TOOL_POLICY_EXHAUSTED})


def fold(folds: Folds, view: View, fact: Fact) -> list[Shown]:
    """Return what is to be shown of a fact for good, often nothing, and update the state."""
    shown = _entry(folds, view, fact) if isinstance(fact, RecordedEntry) else _event(folds, view, fact)
    folds.ended += [one for one in shown if isinstance(one, Row)]
    del folds.ended[:-_KEPT_ROWS]
    return shown


def _entry(folds: Folds, view: View, fact: RecordedEntry) -> list[Shown]:
    run, entry = run_of(view, fact.run_id), fact.entry
    if isinstance(entry, Started) and run.label:
        _begin_child(folds, view, run, entry)
    was_ended = run.is_end_shown
    lines: Sequence[Shown] = render(view, fact)
    if run.label:
        return _child_entry(folds, run, entry, lines, has_ended=run.is_end_shown and not was_ended)
    match entry:
        case Done(name="plan") as done:
            return _planned(folds, view, done, lines)
        case Begun(name=name) as begun if name.startswith(_TOOL):
            step = _step(folds, run.entry_step, begun.at)
            step.calls[begun.position] = _begun(folds, begun)
            return []
        case Done(name=name) | Failed(name=name) | Cut(name=name) if name.startswith(_TOOL):
            return _ended_call(folds, run, entry)
        case Joined(position=position):
            return _joined(folds, position, entry)
        case Done(name=name) if name == _SPAWN:
            return [one for one in lines if "✗" in str(one)] if lines else []
        case Ended():
            return [*_close_all(folds), *lines]
        case _:
            return list(lines)


def _event(folds: Folds, view: View, event: Event) -> list[Shown]:
    run = run_of(view, event.identity.run_id or view.root)
    payload: Any = event.payload
    match event.type:
        case EventType.TOOL_PROGRESS:
            _note_progress(folds, run, payload)
        case EventType.TOOL_APPROVAL_REQUESTED:
            asked = payload.args_summary
            args = asked["args"] if isinstance(asked, Mapping) and set(asked) == {"args", "tool"} else asked
            folds.asked[payload.pause_token] = Asked(cast("datetime", event.occurred_at), args)
        case EventType.TOOL_APPROVED:
            render(view, event)
            asked_for = folds.asked.pop(payload.pause_token, None)
            note = _approval_note(folds, payload, asked_for, cast("datetime", event.occurred_at))
            _approved(folds, payload.tool, note, asked_for)
            return []
        case EventType.TOOL_REJECTED:
            render(view, event)
            folds.asked.pop(payload.pause_token, None)
            return [_rejected(folds, run, payload)]
        case EventType.PLANNER_DECISION:
            return _decided(view, run, event)
        case EventType.CONTROL_APPLIED if payload.type == _MESSAGE and payload.outcome == "applied" and folds.sent:
            return [_read(folds.sent.pop(0), payload.step)]
        case kind if kind in _FOLDED_EVENTS:
            render(view, event)
            return []
        case _:
            pass
    return list(render(view, event))


def _decided(view: View, run: RunView, event: Event) -> list[Shown]:
    """The reasoning in short, and the remark of the model in its own words."""
    remark = view.opening
    lines = render(view, event)
    if run.label:
        return []
    is_remark = run.remark_step == run.step and bool(remark.strip()) and run.decision != "Finish"
    folded: list[Shown] = [one for one in lines if "∴" in one.plain]
    return [*folded, prose(remark)] if is_remark else folded


def _read(text: str, step: Any) -> Text:
    fate = f"applied before step {step}" if isinstance(step, int) else "applied"
    return Text.assemble(("› ", "bold"), (one_line(text, 1000), "bold"), (f"  {fate}", "dim"))


# The steps of the run itself.


def _planned(folds: Folds, view: View, done: Done, lines: Sequence[Shown]) -> list[Shown]:
    planned = codec.decode(bytes(done.result), Planned)
    shown = _close_all(folds)
    run = view.main
    if isinstance(planned.decision, CallParallel):
        lines = lines[:-1]
    if isinstance(planned.decision, AwaitTask):
        awaited = folds.children.get(planned.decision.task_id)
        _step(folds, run.recorded_steps, done.at).waits_for = awaited.name if awaited is not None else "a task"
    is_remark = bool(lines) and bool(planned.preamble)
    return [*shown, *([prose(planned.preamble)] if is_remark else lines)]


def _step(folds: Folds, number: int, at: datetime) -> StepLines:
    return folds.steps.setdefault(number, StepLines(number=number, began=at))


def _begun(folds: Folds, begun: Begun) -> CallLine:
    wanted = codec.decode(bytes(begun.payload), CallTool)
    try:
        args = codec.decode(wanted.args)
        shown = brief_args(args)
    except msgspec.DecodeError:
        args, shown = None, one_line(wanted.args.decode(errors="replace"))
    call = CallLine(tool=printable(wanted.tool, keep=""), args=shown, began=begun.at, given=masked(args))
    if waiting := folds.approved.get(wanted.tool):
        note, asked = waiting.pop(0)
        call.notes.append(f"{note}{_changes(asked, call.given)}" if note else "")
    return call


def _approved(folds: Folds, tool: str, note: str, asked: Asked | None) -> None:
    """Note an approval at its call; the journal may have told that the call began before the event told of this."""
    began = [call for step in folds.steps.values() for call in step.calls.values() if call.tool == tool]
    late = next((one for one in began if asked is not None and one.began >= asked.at and not one.notes), None)
    if late is None:
        folds.approved.setdefault(tool, []).append((note, asked.args if asked else None))
    else:
        late.notes.append(f"{note}{_changes(asked.args if asked else None, late.given)}")


def _ended_call(folds: Folds, run: RunView, entry: Entry) -> list[Shown]:
    step = next((one for one in folds.steps.values() if entry.position in one.calls), None)
    if step is None:
        step = _step(folds, run.entry_step, entry.at)
        tool = printable(str(getattr(entry, "name", ""))[len(_TOOL) :], keep="")
        step.calls[entry.position] = CallLine(tool=tool, args="", began=entry.at)
    _end(step.calls[entry.position], entry)
    return [] if "." in entry.position else _close(folds, step)


def _end(call: CallLine, entry: Entry) -> None:
    """Note what came of a call."""
    call.ended = entry.at
    match entry:
        case Done() as done:
            outcome = codec.decode(bytes(done.result), ToolOutcome)
            call.mark = _mark(outcome.status)
            call.result = brief(outcome.observation) if call.mark is Mark.DONE else _reason(call.tool, outcome.error)
        case Failed() as failed:
            call.mark, call.result = Mark.FAILED, one_line(f"{failed.error}: {failed.message}")
        case Cut() as cut:
            call.mark, call.result = Mark.REFUSED, f"cancelled: {one_line(cut.reason)}"
        case _:
            raise TypeError(f"{type(entry).__name__} ends no call")


def _reason(tool: str, error: str) -> str:
    """Why a call failed, in short: `HTTP 503, 4 attempts`."""
    why = one_line(error.removeprefix(f'tool "{tool}" invoke: '))
    gave_up = _GAVE_UP.match(why)
    return f"{gave_up[2]}, {gave_up[1]} attempts" if gave_up is not None else why


def _mark(status: OutcomeStatus) -> Mark:
    match status:
        case OutcomeStatus.DONE:
            return Mark.DONE
        case OutcomeStatus.FAILED:
            return Mark.FAILED
        case OutcomeStatus.REJECTED | OutcomeStatus.CANCELLED:
            return Mark.REFUSED
        case OutcomeStatus.UNKNOWN:
            return Mark.UNKNOWN
        case OutcomeStatus.HELD_BACK:
            return Mark.HELD_BACK
        case _ as unreachable:
            assert_never(unreachable)


def _joined(folds: Folds, position: str, joined: Joined) -> list[Shown]:
    """The end of a step with several calls; those that were no longer needed were cancelled."""
    for step in [*folds.steps.values()]:
        if any(one.startswith(f"{position}.") for one in step.calls):
            for call in step.calls.values():
                if call.mark is Mark.OPEN:
                    call.mark, call.result, call.ended = Mark.REFUSED, "cancelled: no longer needed", joined.at
            return _close(folds, step)
    return []


def _close_all(folds: Folds) -> list[Shown]:
    return [row for step in [*folds.steps.values()] for row in _close(folds, step)]


def _close(folds: Folds, step: StepLines) -> list[Shown]:
    """The rows of a step that has ended."""
    del folds.steps[step.number]
    calls, tag = [*step.calls.values()], str(step.number)
    if step.waits_for and not calls:
        return [Row(mark=Mark.DONE, tag=tag, said=f"waited for {step.waits_for}")]
    if len(calls) == 1:
        return [row_of(calls[0], tag), *_notes(calls[0])]
    if not calls:
        return []
    ended = max(call.ended or call.began for call in calls)
    head = Row(mark=mark_of_all(calls), tag=tag, said=summary_of(calls), took=took(step.began, ended))
    below = [call for call in calls if folds.is_unfolded or call.mark is not Mark.DONE or call.notes]
    return [head, *(row for call in below for row in (row_of(call), *_notes(call)))]


def _notes(call: CallLine) -> list[Shown]:
    return [Text(f"{' ' * INDENT}{note}", style="dim") for note in call.notes if note]


def _approval_note(folds: Folds, payload: Any, asked: Asked | None, at: datetime) -> str:
    by = _who(folds, payload)
    reason = f": {one_line(payload.approver_reason)}" if payload.approver_reason else ""
    waited = (at - asked.at).total_seconds() if asked is not None else 0.0
    long = f" · waited {duration(waited)}" if waited >= _WORTH_SAYING_S else ""
    return f"approved{by}{reason}{long}"


def _changes(asked: Any, args: Any) -> str:
    """Which arguments of a call an approver has changed."""
    if not isinstance(asked, Mapping) or not isinstance(args, Mapping):
        return ""
    changed = [key for key in args if key in asked and asked[key] != args[key]]
    parts = [f"{key} {one_line(compact(asked[key]), 30)} → {one_line(compact(args[key]), 30)}" for key in changed]
    more = ", …" if len(parts) > _CHANGES else ""
    return f" · {plural(len(parts), 'change')}: {', '.join(parts[:_CHANGES])}{more}" if parts else ""


def _who(folds: Folds, payload: Any) -> str:
    by = payload.by
    if by is msgspec.UNSET:
        return ""
    user = str(by.user_id)
    return " by you" if user == folds.user else f" by {one_line(user)}"


def _rejected(folds: Folds, run: RunView, payload: Any) -> Row:
    why = f": {one_line(payload.reason)}" if payload.reason else ""
    said = f"{printable(payload.tool, keep='')} rejected{_who(folds, payload)}{why}"
    return Row(mark=Mark.REFUSED, tag=str(run.step), said=f"{f'{run.label}: ' if run.label else ''}{said}")


def _note_progress(folds: Folds, run: RunView, payload: Any) -> None:
    """Show how far a call is: the words of its tool, else the numbers that it gave."""
    if run.label:
        child = folds.children.get(run.run_id)
        calls: list[CallLine] = [] if child is None else [*child.calls.values()]
    else:
        calls = [call for step in folds.steps.values() for call in step.calls.values()]
    text = payload.message if payload.message is not msgspec.UNSET else ""
    if not text and payload.done is not msgspec.UNSET:
        total = "" if payload.total is msgspec.UNSET else f" of {payload.total:g}"
        text = f"{payload.done:g}{total}"
    for call in calls:
        if call.tool == payload.tool_name and call.mark is Mark.OPEN:
            call.result = one_line(text)
            return


# Children.


def _begin_child(folds: Folds, view: View, run: RunView, started: Started) -> None:
    request = codec.decode(bytes(started.request), RunRequest)
    parent = folds.children.get(run.parent)
    name = one_line(Origin.of(request.agent).part.rpartition("/")[2] or "task", 40)
    if parent is not None:
        name = f"{parent.name} › {name}"
    tag = str(view.main.step or "") if run.parent in ("", view.root) else parent.tag if parent is not None else ""
    child = ChildLines(run_id=run.run_id, name=name, goal=one_line(request.goal), tag=tag, began=started.at)
    folds.children[run.run_id] = child
    run.label = child.title


def _child_entry(folds: Folds, run: RunView, entry: Entry, lines: Sequence[Shown], *, has_ended: bool) -> list[Shown]:
    child = folds.children.get(run.run_id)
    if child is None:
        return list(lines)
    match entry:
        case Started() | Joined() | Done(name="plan"):
            return []
        case Begun(name=name) as begun if name.startswith(_TOOL):
            child.calls[begun.position] = _begun(folds, begun)
            return []
        case Done(name=name) | Failed(name=name) | Cut(name=name) if name.startswith(_TOOL):
            call = child.calls.get(entry.position)
            if call is None:
                return []
            _end(call, entry)
            _forget_old(child)
            return [row_of(call), *_notes(call)] if folds.is_unfolded else []
        case _ if has_ended:
            return _ended_child(folds, child, run, entry)
        case _:
            return [] if isinstance(entry, Begun) else list(lines)


def _forget_old(child: ChildLines) -> None:
    """Keep a child that makes thousands of calls as small as one that makes a few."""
    while len(child.calls) > _KEPT_CALLS:
        oldest = next((key for key, call in child.calls.items() if call.mark is not Mark.OPEN), None)
        if oldest is None:
            return
        del child.calls[oldest]
        child.forgotten += 1


def _ended_child(folds: Folds, child: ChildLines, run: RunView, entry: Entry) -> list[Shown]:
    del folds.children[child.run_id]
    mark, answer = _answer(run, entry)
    said = f": {answer}" if answer else ""
    calls = [call for call in child.calls.values() if call.mark in {Mark.FAILED, Mark.UNKNOWN} or call.notes]
    rows: list[Shown] = [
        Row(mark=mark, tag=child.tag, name=child.title, said=said, took=took(child.began, entry.at)),
    ]
    if not folds.is_unfolded:
        rows += [row for call in calls for row in (row_of(call), *_notes(call))]
    return rows


def _answer(run: RunView, entry: Entry) -> tuple[Mark, str]:
    """How a child ended, and what it gave."""
    finish = run.finish
    if isinstance(entry, Ended) and entry.finish is not None:
        finish = codec.decode(bytes(entry.finish), Finish)
    if isinstance(entry, Ended) and entry.finish is None:
        return Mark.FAILED, one_line(f"{entry.error}: {entry.message}")
    if finish is None:
        return Mark.FAILED, one_line(f"{run.failure[0]}: {run.failure[1]}") if run.failure is not None else "failed"
    ending = ending_of(finish)
    if finish.reason is FinishReason.CANCELLED:
        return Mark.REFUSED, "cancelled"
    return (Mark.FAILED, ending.why) if ending.code else (Mark.DONE, one_line(ending.answer))


def layout(shown: Sequence[Shown], width: int) -> list[Text]:
    """Lay rows out for a terminal of so many columns."""
    return [one.text(width) if isinstance(one, Row) else one for one in shown]
