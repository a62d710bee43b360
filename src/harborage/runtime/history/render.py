"""A run's history as text, in lines: for a terminal, a log, or the diff of two runs. Pure.

Values are shortened, not redacted: callers who show them to others pass `clean`, which gets each value first.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, assert_never

import msgspec

from harborage import codec
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Decision,
    Finish,
    JoinKind,
    RequestPause,
    SpawnTask,
)
from harborage.runtime.history.model import CallMade, CallStatus, ControlTaken, PauseTaken, RunHistory, StepTaken

Clean = Callable[[Any], Any]

_LONGEST: Final = 160
_MARKS: Final = {
    CallStatus.DONE: "✓",
    CallStatus.FAILED: "✗",
    CallStatus.REJECTED: "✗",
    CallStatus.CANCELLED: "–",
    CallStatus.UNKNOWN: "?",
    CallStatus.CUT: "–",
    CallStatus.HELD_BACK: "–",
    CallStatus.OPEN: "…",
}


def render_history(history: RunHistory, *, clean: Clean = lambda value: value) -> list[str]:
    """Return the lines of a run, from its goal to its end."""
    lines = [
        f"run {history.run_id}  {shorten(history.goal, clean)}",
        *render_origin(history),
        f"  {render_end(history, clean)}",
    ]
    asides: list[ControlTaken | PauseTaken] = sorted([*history.controls, *history.pauses], key=_at)
    for step in history.steps:
        while asides and _at(asides[0]) <= step.decided_at and _precedes(asides[0], step):
            lines += _render_aside(asides.pop(0), clean)
        lines += render_step(step, clean=clean)
    for aside in asides:
        lines += _render_aside(aside, clean)
    return [*lines, f"  {render_totals(history)}"]


def render_step(step: StepTaken, *, clean: Clean = lambda value: value, is_timed: bool = True) -> list[str]:
    """Return the lines of one step: the decision, the text beside it, and the observations."""
    took = f"  ({step.latency_ms} ms)" if is_timed and step.latency_ms else ""
    lines = [f"{step.number:>3} {render_decision(step, clean=clean)}{took}"]
    if step.preamble and not isinstance(step.decision, Finish):
        lines.append(f"    “ {shorten(step.preamble, clean)}")
    if step.was_summarised:
        lines.append("    (earlier steps were summarised before it)")
    is_lone = isinstance(step.decision, CallTool)
    for call in step.calls:
        outcome, duration = _render_outcome(call, clean), _render_duration(call, is_timed)
        if is_lone:
            lines.append(f"    {outcome}{duration}")
        else:
            lines += [f"    ▸ {_render_call(call, clean)}{duration}", f"      {outcome}"]
    for child in step.children:
        wanted = shorten(child.spec.description or child.spec.query, clean)
        what = f"✗ {child.error}" if child.error else f"◆ {child.kind} task {child.task_id}: {wanted}"
        lines.append(f"    {what}")
    if step.observation is not None:
        lines.append(f"    → {shorten(step.observation, clean)}")
    return lines


def render_decision(step: StepTaken, *, clean: Clean = lambda value: value) -> str:
    """Return a step's decision in a line."""
    if step.error:
        return f"✗ the planner failed: {shorten(step.error, clean)}"
    if step.cut:
        return f"– the planner was cut short: {step.cut}"
    decision: Decision | None = step.decision
    match decision:
        case CallTool():
            args = decision.args.decode("utf-8", "replace")
            return _render_call(step.calls[0] if step.calls else CallMade(tool=decision.tool, args=args), clean)
        case CallParallel():
            return f"{len(decision.branches)} calls side by side{_render_join(decision)}"
        case SpawnTask():
            return f"spawn a {decision.kind} task"
        case AwaitTask():
            return f"await task {decision.task_id}"
        case RequestPause():
            payload = f": {shorten(decision.payload, clean)}" if decision.payload else ""
            return f"pause ({decision.reason}){payload}"
        case Finish():
            return f"finish ({decision.reason}): {shorten(decision.payload, clean)}"
        case None:
            return "nothing on record"
        case _ as unreachable:
            assert_never(unreachable)


def _render_join(decision: CallParallel) -> str:
    join = decision.join
    return "" if join is None or join.kind is JoinKind.ALL else f", joined by {join.kind}"


def _render_call(call: CallMade, clean: Clean) -> str:
    approved = "  approved" if _was_approved(call) else ""
    return f"{call.tool}({shorten(_parse(call.args), clean)}){approved}"


def _render_duration(call: CallMade, is_timed: bool) -> str:
    if not is_timed or call.begun_at is None or call.ended_at is None:
        return ""
    return f"  ({round((call.ended_at - call.begun_at).total_seconds() * 1000)} ms)"


def _render_outcome(call: CallMade, clean: Clean) -> str:
    mark = _MARKS[call.status]
    match call.status:
        case CallStatus.DONE:
            seen = call.observation if call.seen is msgspec.UNSET else call.seen
            return f"{mark} {shorten(seen, clean)}"
        case CallStatus.OPEN:
            return f"{mark} no outcome on record"
        case _:
            status = call.status.replace("_", " ")
            return f"{mark} {status}{f': {shorten(call.error, clean)}' if call.error else ''}"


def _was_approved(call: CallMade) -> bool:
    return call.approval_asked and not call.refusal and call.begun_at is not None


def _render_aside(aside: ControlTaken | PauseTaken, clean: Clean) -> list[str]:
    match aside:
        case ControlTaken():
            payload = f" {shorten(aside.payload, clean)}" if aside.payload else ""
            failed = f"  not applied: {aside.error}" if aside.error else ""
            return [f"  ⇒ {aside.type}{payload}{failed}"]
        case PauseTaken():
            asked = f" {shorten(aside.payload, clean)}" if aside.payload and aside.by == "steering" else ""
            answer = f" {shorten(aside.answer, clean)}" if aside.answer else ""
            resolved = f"{aside.decision}{answer}" if aside.decision else "open"
            return [f"  ‖ paused by the {aside.by} ({aside.reason}){asked}: {resolved}"]


def _at(aside: ControlTaken | PauseTaken) -> datetime:
    return aside.at if isinstance(aside, ControlTaken) else aside.resolved_at or aside.opened_at


def _precedes(aside: ControlTaken | PauseTaken, step: StepTaken) -> bool:
    return not isinstance(aside, ControlTaken) or aside.before_step <= step.number


def render_origin(history: RunHistory) -> list[str]:
    """Return what a run is besides a run of its own: a rehearsal, or a fork of another."""
    request = history.request
    if not request.forked_from:
        return ["  a rehearsal: nothing that has effects is done"] if request.is_rehearsal else []
    how = ", without effects" if request.is_rehearsal else ""
    return [f"  a fork of {request.forked_from} at step {request.forked_at}{how}"]


def render_end(history: RunHistory, clean: Clean) -> str:
    """Return when a run began, how long it took and how it ended, in a line."""
    began = f"{history.started_at:%Y-%m-%d %H:%M:%S} UTC, {history.seconds:.1f} s"
    if history.finish is not None:
        return f"{began}: finished ({history.finish.reason})"
    if history.has_ended:
        return f"{began}: failed: {shorten(f'{history.error}: {history.message}', clean)}"
    return f"{began}: has not ended"


def render_totals(history: RunHistory) -> str:
    """Return what a run used, in a line."""
    totals = history.totals
    parts = [f"{totals.steps} steps", f"{totals.tool_calls} tool calls"]
    if totals.model_calls:
        tokens = f" ({totals.prompt_tokens:,} tokens in, {totals.completion_tokens:,} out)"
        parts.append(f"{totals.model_calls} model calls{tokens if totals.prompt_tokens else ''}")
    parts += [f"{amount:.4f} {currency}" for currency, amount in sorted(totals.cost.items())]
    return " · ".join(parts)


def _parse(args: str) -> Any:
    try:
        return codec.decode(args)
    except msgspec.DecodeError:
        return args


def shorten(value: Any, clean: Clean) -> str:
    """Return a value as a line of at most 160 characters."""
    shown = clean(value)
    text = shown if isinstance(shown, str) else "" if shown is None else codec.encode_text(codec.to_plain(shown))
    line = " ".join(text[: _LONGEST * 4].split())
    return line if len(line) <= _LONGEST and len(text) <= _LONGEST * 4 else f"{line[: _LONGEST - 1]}…"
