"""What a run looks like: a fold over its events and its record into lines of text and the state of the status line.

Pure: no terminal, no clock; every time comes with what happened. Events tell that something happened, the record
(the journal) with which arguments and what came of it. Lines are written once and never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.text import Text

from harborage.cli.journal_view import Recorded, fold_entry
from harborage.cli.text import duration, one_line, plural, shortened, size
from harborage.cli.view_state import RunSeen, View, line, run_of
from harborage.events import Event, EventType, RedactedMap
from harborage.planner import ChunkKind, FinishReason, PauseReason

if TYPE_CHECKING:
    from harborage.app import ChosenModel
    from harborage.artifacts import ArtifactRef
    from harborage.cli.outcome import Ending
    from harborage.identity import Quadruple

__all__ = ["Fact", "doing", "fold", "fold_past", "header", "summary", "totals"]

Fact: TypeAlias = Event | Recorded
"""What the view is told: something happened, or something was recorded."""

_STREAM_CHARS = 2000
_PAST_LINES = 12
_Told: TypeAlias = Callable[[View, RunSeen, Any, Event], list[Text]]


def fold(view: View, fact: Fact) -> list[Text]:
    """The lines that a fact gives, often none; the view is changed to what is known now."""
    if isinstance(fact, Recorded):
        return fold_entry(view, fact)
    run = run_of(view, fact.identity.run_id or view.root)
    tell = _TELLERS.get(fact.type)
    if tell is not None:
        return tell(view, run, fact.payload, fact)
    return [] if fact.type in _BUILT_IN else _foreign(run, fact)


def fold_past(view: View, past: Iterable[Recorded], now: datetime) -> list[Text]:
    """What was before somebody began to look, in short: the last lines of it. The view is changed to where it stands.

    Only the record is there to tell it. The view's time is counted from `now` on.
    """
    lines = [text for fact in past for text in fold(view, fact)]
    for run in view.runs.values():
        run.decided = run.recorded  # what was told of these decisions was told to others
    view.main.began = view.main.since = now
    if len(lines) > _PAST_LINES:
        told = f"      … {plural(len(lines) - _PAST_LINES, 'line')} before these; harborage runs show {view.root}"
        lines = [Text(told, style="dim"), *lines[-_PAST_LINES:]]
    return lines


def _foreign(run: RunSeen, event: Event) -> list[Text]:
    """An event of the product's own, which says for itself what it is."""
    body = event.payload.data if isinstance(event.payload, RedactedMap) else event.payload
    return [line(run, "·", "dim", (f"{event.type} ", "dim"), (shortened(body), "dim"))]


def _decided(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    run.decided += 1
    run.step = max(run.step, run.decided)
    run.decision = payload.decision_kind
    run.since = event.occurred_at
    lines = []
    if payload.reasoning_trace:
        lines.append(line(run, "∴", "dim", (one_line(payload.reasoning_trace), "dim italic"), tag=str(run.step)))
    if run.run_id == view.root:
        # A call that needs approval is put to a person before its decision is on record, and with it what was said.
        if view.opening.strip() and run.decision != "Finish":
            run.remarked = run.step
            lines.append(line(run, "“", "dim", one_line(view.opening), tag=str(run.step)))
        view.streaming = view.thinking = view.opening = ""
    if run.decision == "AwaitTask":
        lines.append(line(run, "…", "cyan", f"waits for {_awaited(view, run)}", tag=str(run.step)))
    return lines


def _awaited(view: View, run: RunSeen) -> str:
    """What a run that awaits a task may be waiting for; the event does not say which one it is."""
    names = [task.label for task in view.tasks if task.parent == run.run_id and not task.ended]
    match names:
        case []:
            return "a task"
        case [name]:
            return name
        case _:
            return f"one of {', '.join(names)}"


def _planner_failed(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    # Why is told once, at the end of the run.
    return [line(run, "✗", "red", f"the planner failed: {payload.error_code}", tag=str(run.step + 1))]


def _completed(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    if payload.attempts < 2:
        return []
    return [line(run, "↻", "yellow", f"{payload.tool_name} took {payload.attempts} attempts")]


def _exhausted(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    return [line(run, "↻", "yellow", f"{payload.tool_name} was tried {plural(payload.attempts, 'time')} in vain")]


def _interrupted(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    """What became of a call whose process died; that nobody knows is told with its record."""
    match payload.outcome:
        case "repeated":
            what = "was interrupted, and is made again"
        case "known":
            what = "was interrupted, and had acted"
        case _:
            return []
    said = _SAID_BY.get(payload.on_unknown, "")
    return [line(run, "↻", "yellow", (payload.tool_name, "bold"), f" {what}{said}", tag=str(run.step))]


_SAID_BY = MappingProxyType({"probe": ", as its probe says", "pause": ", as somebody says"})


def _approved(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    why = f": {one_line(payload.approver_reason)}" if payload.approver_reason else ""
    return [line(run, "✓", "yellow", (payload.tool, "bold"), f" approved{why}", tag=str(run.step))]


def _refused(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    why = f": {one_line(payload.reason)}" if payload.reason else ""
    run.refused.append(payload.tool)
    return [line(run, "✗", "yellow", (payload.tool, "bold"), f" refused{why}", tag=str(run.step), wrap=True)]


def _spawned(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    if payload.task_id == view.root:
        return []
    task = run_of(view, payload.task_id)
    task.kind = payload.kind
    task.parent = payload.parent_task_id or ""
    return []


def _task_ended(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    run_of(view, payload.task_id).ended = str(event.type).removeprefix("task.")
    return []


def _prioritised(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    return [line(run, "»", "blue", f"priority {payload.prior_priority} → {payload.new_priority}")]


def _applied(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    if payload.outcome != "applied":
        return [line(run, "»", "red", f"{payload.type} failed: {payload.err or 'no reason given'}")]
    # What answers a question is told by the question's own end.
    answers = {"APPROVE", "REJECT", "RESUME", "PAUSE", "PRIORITIZE"}
    return [] if payload.type in answers else [line(run, "»", "blue", f"{payload.type} applied")]


def _control_refused(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    return [line(run, "»", "red", f"{payload.type} rejected: {payload.reason}")]


def _paused(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    if run.decision != "RequestPause" and payload.reason == PauseReason.APPROVAL_REQUIRED:
        return []  # a gated call, which its gate announces
    if run.decision != "RequestPause" and run.calls and payload.reason == PauseReason.AWAIT_INPUT:
        return []  # a call that was interrupted: a run is parked between its calls, and never in one
    run.held = payload.reason
    run.since = event.occurred_at
    what = f"waits: {payload.reason}" if run.decision == "RequestPause" else "parked"
    return [line(run, "‖", "yellow", what, tag=str(run.step))]


def _resumed(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    if not run.held:
        return []
    run.held = ""
    run.since = event.occurred_at
    if payload.decision in {"approve", "resume"}:
        return [line(run, "▸", "yellow", "goes on", tag=str(run.step))]
    why = "nobody answered in time" if payload.decision == "timeout" else "the answer was no"
    return [line(run, "✗", "yellow", f"does not go on: {why}", tag=str(run.step))]


def _compressed(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    text = f"history of {plural(payload.steps_before, 'step')} summarised (about {payload.token_estimate:,} tokens)"
    return [line(run, "·", "dim", (text, "dim"))]


def _compression_failed(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    return [
        line(run, "!", "yellow", f"history not summarised: {payload.error_code}: {one_line(payload.error_message)}")
    ]


def _out_of_steps(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    return [line(run, "!", "yellow", f"the planner's own limit of {plural(payload.max_steps, 'step')} is reached")]


def _repaired(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    return [line(run, "↻", "yellow", f"the model is told what was wrong ({payload.counter}, {payload.count})")]


def _beyond_repair(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    last = f": {one_line(payload.reasons[-1])}" if payload.reasons else ""
    return [line(run, "!", "red", f"the model's answers could not be repaired{last}", wrap=True)]


def _asked_again(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    text = f"model asked again ({payload.attempt} of {payload.max_retries}): {one_line(payload.reason)}"
    return [line(run, "↻", "yellow", text)]


def _streamed(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    """A piece of what the model writes. Thinking gives way to the answer; an answer that starts again to nothing."""
    if run.run_id != view.root:
        return []
    match payload.kind:
        case ChunkKind.REASONING:
            view.thinking = "" if payload.done else (view.thinking + payload.delta)[-_STREAM_CHARS:]
        case ChunkKind.RESET:
            view.streaming = view.thinking = view.opening = ""
        case _:
            view.streaming = "" if payload.done else (view.streaming + payload.delta)[-_STREAM_CHARS:]
            if len(view.opening) < _STREAM_CHARS:
                view.opening += payload.delta
    return []


def _paid(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    view.tokens += payload.usage.total_tokens or (payload.usage.prompt_tokens + payload.usage.completion_tokens)
    view.cost += payload.cost.total_cost
    view.currency = payload.cost.currency
    return []


def _over_budget(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    return [line(run, "!", "red", f"{str(event.type).replace('.', ': ').replace('_', ' ')}", wrap=True)]


def _said(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    body: Mapping[str, Any] = payload.data if isinstance(payload, RedactedMap) else {"message": str(payload)}
    style = "red" if event.type == EventType.RUNTIME_ERROR else "yellow"
    return [line(run, "!", style, one_line(str(body.get("message", "")), 400), wrap=True)]


def _lost(view: View, run: RunSeen, payload: Any, event: Event) -> list[Text]:
    return [line(run, "!", "yellow", f"{plural(payload.dropped_count, 'event')} came too fast to be shown")]


_TELLERS: Mapping[str, _Told] = MappingProxyType(
    {
        EventType.BUS_DROPPED: _lost,
        EventType.CONTROL_APPLIED: _applied,
        EventType.CONTROL_REJECTED: _control_refused,
        EventType.GOVERNANCE_BUDGET_EXCEEDED: _over_budget,
        EventType.GOVERNANCE_MAXTOKENS_EXCEEDED: _over_budget,
        EventType.GOVERNANCE_RATE_LIMITED: _over_budget,
        EventType.LLM_COMPLETION_CHUNK: _streamed,
        EventType.LLM_CONTEXT_WINDOW_EXCEEDED: _over_budget,
        EventType.LLM_COST_RECORDED: _paid,
        EventType.LLM_RETRY_WITH_FEEDBACK: _asked_again,
        EventType.PAUSE_REQUESTED: _paused,
        EventType.PAUSE_RESUMED: _resumed,
        EventType.PLANNER_DECISION: _decided,
        EventType.PLANNER_ERROR: _planner_failed,
        EventType.PLANNER_MAX_STEPS_EXCEEDED: _out_of_steps,
        EventType.PLANNER_REPAIR_EXHAUSTED: _beyond_repair,
        EventType.PLANNER_REPAIR_GUIDANCE_INJECTED: _repaired,
        EventType.RUNTIME_ERROR: _said,
        EventType.RUNTIME_WARNING: _said,
        EventType.TASK_CANCELLED: _task_ended,
        EventType.TASK_COMPLETED: _task_ended,
        EventType.TASK_FAILED: _task_ended,
        EventType.TASK_PRIORITISED: _prioritised,
        EventType.TASK_SPAWNED: _spawned,
        EventType.TOOL_APPROVED: _approved,
        EventType.TOOL_COMPLETED: _completed,
        EventType.TOOL_INTERRUPTED: _interrupted,
        EventType.TOOL_POLICY_EXHAUSTED: _exhausted,
        EventType.TOOL_REJECTED: _refused,
        EventType.TRAJECTORY_COMPRESSED: _compressed,
        EventType.TRAJECTORY_COMPRESSION_FAILED: _compression_failed,
    }
)
_BUILT_IN = frozenset(map(str, EventType))


def doing(view: View) -> tuple[str, datetime | None]:
    """What the run is doing now, and since when."""
    run = view.main
    if run.held:
        return "parked", run.since
    if run.calls:
        calls = sorted(run.calls.values(), key=lambda call: call.began)
        return f"calling {', '.join(call.tool for call in calls)}", calls[0].began
    match run.decision:
        case "AwaitTask":
            return f"waiting for {_awaited(view, run)}", run.since
        case "Finish":
            return "finishing", run.since
        case _:
            return "writing" if view.streaming else "thinking", run.since


def header(
    name: str,
    goal: str,
    who: Quadruple,
    model: ChosenModel | None = None,
    attached: Iterable[ArtifactRef] = (),
    *,
    standing: str = "",
) -> list[Text]:
    """What stands above everything: which agent does what, on which model, with which files, for whom, which run.

    `standing` is how a run stands that was begun before.
    """
    why = f" ({model.why})" if model is not None and model.why else ""
    return [
        Text(one_line(name), style="bold"),
        *([] if model is None else [Text.assemble(("  model ", "dim"), one_line(model.model), (why, "dim"))]),
        Text.assemble(("  goal  ", "dim"), one_line(goal, 1000)),
        *(Text.assemble(("  file  ", "dim"), one_line(ref.filename), (f" {_kind(ref)}", "dim")) for ref in attached),
        Text.assemble(("  run   ", "dim"), who.run_id, (f" for {one_line(who.user_id)}", "dim")),
        *([Text.assemble(("  now   ", "dim"), one_line(standing, 400))] if standing else []),
        Text(),
    ]


def _kind(ref: ArtifactRef) -> str:
    return f"{ref.mime_type}, {size(ref.size_bytes)}"


_ENDS = MappingProxyType({"goal": ("✓", "bold green"), "left": ("‖", "bold yellow"), "blocked": ("‖", "bold red")})


def totals(view: View, seconds: float) -> str:
    """The whole effort: steps, calls, time, and tokens where a model was asked."""
    steps = sum(run.step for run in view.runs.values())
    parts = [plural(steps, "step"), plural(view.calls, "call"), duration(seconds)]
    if view.tokens:
        parts.append(f"{view.tokens:,} tokens")
    if view.cost:
        parts.append(f"{view.cost:.4f} {view.currency}")
    return " · ".join(parts)


def summary(
    view: View, ending: Ending, seconds: float, artifacts: Iterable[ArtifactRef], *, is_kept: bool
) -> list[Text]:
    """What stands below everything: tasks that nobody heard of again, artifacts, how it ended.

    `is_kept` says whether the run and its artifacts outlive the program.
    """
    lines = [Text()]
    still = " is not over; it is kept" if is_kept else " was still running; it stopped with the program"
    for task in view.tasks:
        if not task.is_told:
            text = f" {task.ended}" if task.ended else still
            lines.append(line(view.main, "◆", "yellow", (task.label, "bold magenta"), text))
    for ref in artifacts:
        name = one_line(ref.filename or ref.id)
        kept = f" {_kind(ref)}, {ref.id}{'' if is_kept else ', in memory only'}"
        lines.append(line(view.main, "+", "green", (name, "bold"), (kept, "dim")))
    glyph, style = _ENDS.get(ending.reason, ("✗", "bold red"))
    reason = one_line(ending.reason.replace("_", " "))
    if ending.code and ending.reason == FinishReason.GOAL:
        glyph, style, reason = "!", "bold yellow", f"{reason}, with calls refused"
    lines.append(Text.assemble((f"{glyph} {reason}", style), (f"  {totals(view, seconds)}", "dim")))
    return lines
