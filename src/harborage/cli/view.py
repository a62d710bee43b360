"""Renders a run: its events as lines, and the header, activity and summary around them.

Pure: no terminal and no clock; every time comes with a fact. Events say that something happened; journal entries, which
`journal_view` renders, have arguments and results. A line is written once and never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.text import Text

from harborage.cli.handles import LENGTH
from harborage.cli.journal_view import RecordedEntry, RunView, View, line, render_entry, run_of
from harborage.cli.text import count, duration, money, one_line, plural, shortened, size
from harborage.events import Event, EventType, RedactedMap
from harborage.planner import ChunkKind, FinishReason, PauseReason

if TYPE_CHECKING:
    from harborage.app import ChosenModel
    from harborage.artifacts import ArtifactRef
    from harborage.cli.status import Ending
    from harborage.identity import Quadruple

Fact: TypeAlias = Event | RecordedEntry
"""An event or a journal entry."""

_STREAM_CHARS = 2000
_PAST_LINES = 12
_Renderer: TypeAlias = Callable[[View, RunView, Any, Event], list[Text]]


def render(view: View, fact: Fact) -> list[Text]:
    """Render the lines of a fact, often none, and update the view."""
    if isinstance(fact, RecordedEntry):
        return render_entry(view, fact)
    run = run_of(view, fact.identity.run_id or view.root)
    renderer = _RENDERERS.get(fact.type)
    if renderer is not None:
        return renderer(view, run, fact.payload, fact)
    return [] if fact.type in _BUILT_IN else _foreign(run, fact)


def render_past(
    view: View,
    past: Iterable[RecordedEntry],
    now: datetime,
    draw: Callable[[RecordedEntry], list[Text]] | None = None,
) -> list[Text]:
    """Render the last lines of a resumed run's journal, by `draw` if given, and update the view; its time counts from
    `now` on."""
    lines = [text for fact in past for text in (render(view, fact) if draw is None else draw(fact))]
    for run in view.runs.values():
        run.decided_steps = run.recorded_steps  # their events came before this process subscribed
    view.main.began = view.main.since = now
    if len(lines) > _PAST_LINES:
        more = f"      … {plural(len(lines) - _PAST_LINES, 'line')} before these: harborage runs show {view.root}"
        lines = [Text(more, style="dim"), *lines[-_PAST_LINES:]]
    return lines


def _foreign(run: RunView, event: Event) -> list[Text]:
    """An event type of the application, shown as it is."""
    body = event.payload.data if isinstance(event.payload, RedactedMap) else event.payload
    return [line(run, "·", "dim", (f"{event.type} ", "dim"), (shortened(body), "dim"))]


def _decided(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    run.decided_steps += 1
    run.step = max(run.step, run.decided_steps)
    run.decision = payload.decision_kind
    run.since = event.occurred_at
    lines = []
    if payload.reasoning_trace:
        lines.append(line(run, "∴", "dim", (one_line(payload.reasoning_trace), "dim italic"), tag=str(run.step)))
    if run.run_id == view.root:
        # The question about a call is shown before the entry of its decision, and so is the model's remark.
        if view.opening.strip() and run.decision != "Finish":
            run.remark_step = run.step
            lines.append(line(run, "“", "dim", one_line(view.opening), tag=str(run.step)))
        view.streaming = view.thinking = view.opening = ""
    if run.decision == "AwaitTask":
        lines.append(line(run, "…", "cyan", f"waits for {_awaited(view, run)}", tag=str(run.step)))
    return lines


def _awaited(view: View, run: RunView) -> str:
    """The tasks that the run may be waiting for; the event does not say which one it is."""
    children = [task for task in view.tasks if task.parent == run.run_id]
    names = [task.label for task in children if not task.ended] or [task.label for task in children]
    match names:
        case []:
            return "a task"
        case [name]:
            return name
        case _:
            return f"one of {', '.join(names)}"


def _planner_failed(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    # The end of the run shows why.
    return [line(run, "✗", "red", f"the planner failed: {payload.error_code}", tag=str(run.step + 1))]


def _completed(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    if payload.attempts < 2:
        return []
    return [line(run, "↻", "yellow", f"{payload.tool_name} took {payload.attempts} attempts")]


def _exhausted(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    return [line(run, "↻", "yellow", f"{payload.tool_name} failed after {plural(payload.attempts, 'attempt')}")]


def _interrupted(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    """An interrupted call that is resolved; the entry of one whose outcome is unknown says so itself."""
    match payload.outcome:
        case "repeated":
            what = "was interrupted; calling it again"
        case "known":
            what = "was interrupted and had acted"
        case _:
            return []
    by = _RESOLVED_BY.get(payload.on_unknown, "")
    return [line(run, "↻", "yellow", (payload.tool_name, "bold"), f" {what}{by}", tag=str(run.step))]


_RESOLVED_BY = MappingProxyType({"probe": ", says its probe", "pause": ", says a person"})


def _approved(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    why = f": {one_line(payload.approver_reason)}" if payload.approver_reason else ""
    return [line(run, "✓", "yellow", (payload.tool, "bold"), f" approved{why}", tag=str(run.step))]


def _rejected(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    why = f": {one_line(payload.reason)}" if payload.reason else ""
    run.rejected_tools.append(payload.tool)
    return [line(run, "✗", "yellow", (payload.tool, "bold"), f" rejected{why}", tag=str(run.step), wrap=True)]


def _spawned(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    if payload.task_id == view.root:
        return []
    task = run_of(view, payload.task_id)
    task.kind = payload.kind
    task.parent = payload.parent_task_id or ""
    return []


def _task_ended(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    run_of(view, payload.task_id).ended = str(event.type).removeprefix("task.")
    return []


def _prioritised(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    return [line(run, "»", "blue", f"priority {payload.prior_priority} → {payload.new_priority}")]


def _applied(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    control = _control_name(payload.type)
    if payload.outcome != "applied":
        return [line(run, "»", "red", f"{control} failed: {payload.err or 'no reason given'}")]
    if payload.type == "CANCEL":
        if run.is_cancel_shown:
            return []  # cancelled once more, now instead of after the next step
        run.is_cancel_shown = True
    what = _APPLIED.get(payload.type, f"{control} applied")
    return [line(run, "»", "blue", what)] if what else []


def _control_name(control: str) -> str:
    return control.lower().replace("_", " ")


# Answers are shown with the end of their question, a pause and a priority with their own events.
_APPLIED = MappingProxyType(
    {
        **dict.fromkeys(("APPROVE", "REJECT", "RESUME", "PAUSE", "PRIORITIZE"), ""),
        "INJECT_CONTEXT": "context added",
        "REDIRECT": "goal changed",
        "USER_MESSAGE": "message read",
    }
)


def _control_rejected(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    return [line(run, "»", "red", f"{_control_name(payload.type)} rejected: {payload.reason}")]


def _paused(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    if run.decision != "RequestPause" and payload.reason == PauseReason.APPROVAL_REQUIRED:
        return []  # a call that needs approval, which has an event of its own
    if run.decision != "RequestPause" and run.calls and payload.reason == PauseReason.AWAIT_INPUT:
        return []  # an interrupted call: a run is paused between its calls, never in one
    run.pause_reason = payload.reason
    run.since = event.occurred_at
    what = f"waits: {payload.reason}" if run.decision == "RequestPause" else "paused"
    return [line(run, "‖", "yellow", what, tag=str(run.step))]


def _resumed(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    if not run.pause_reason:
        return []
    run.pause_reason = ""
    run.since = event.occurred_at
    if payload.decision in {"approve", "resume"}:
        return [line(run, "▸", "yellow", "resumed", tag=str(run.step))]
    why = "not answered in time" if payload.decision == "timeout" else "rejected"
    return [line(run, "✗", "yellow", f"not resumed: {why}", tag=str(run.step))]


def _compressed(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    text = f"history of {plural(payload.steps_before, 'step')} summarised (about {payload.token_estimate:,} tokens)"
    return [line(run, "·", "dim", (text, "dim"))]


def _compression_failed(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    return [
        line(run, "!", "yellow", f"history not summarised: {payload.error_code}: {one_line(payload.error_message)}")
    ]


def _out_of_steps(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    return [line(run, "!", "yellow", f"the planner's own limit of {plural(payload.max_steps, 'step')} is reached")]


def _repaired(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    return [line(run, "↻", "yellow", f"invalid answer; asking the model again ({payload.counter}, {payload.count})")]


def _beyond_repair(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    last = f": {one_line(payload.reasons[-1])}" if payload.reasons else ""
    return [line(run, "!", "red", f"the model's answers could not be repaired{last}", wrap=True)]


def _asked_again(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    text = f"model asked again ({payload.attempt} of {payload.max_retries}): {one_line(payload.reason)}"
    return [line(run, "↻", "yellow", text)]


def _streamed(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    """A piece of what the model writes. The answer replaces the reasoning; a new attempt replaces the answer."""
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


def _paid(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    view.tokens += payload.usage.total_tokens or (payload.usage.prompt_tokens + payload.usage.completion_tokens)
    view.cost += payload.cost.total_cost
    view.currency = payload.cost.currency
    return []


def _over_budget(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    return [line(run, "!", "red", f"{str(event.type).replace('.', ': ').replace('_', ' ')}", wrap=True)]


def _said(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    body: Mapping[str, Any] = payload.data if isinstance(payload, RedactedMap) else {"message": str(payload)}
    style = "red" if event.type == EventType.RUNTIME_ERROR else "yellow"
    return [line(run, "!", style, one_line(str(body.get("message", "")), 400), wrap=True)]


def _lost(view: View, run: RunView, payload: Any, event: Event) -> list[Text]:
    return [line(run, "!", "yellow", f"{plural(payload.dropped_count, 'event')} came too fast to be shown")]


_RENDERERS: Mapping[str, _Renderer] = MappingProxyType(
    {
        EventType.BUS_DROPPED: _lost,
        EventType.CONTROL_APPLIED: _applied,
        EventType.CONTROL_REJECTED: _control_rejected,
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
        EventType.TOOL_REJECTED: _rejected,
        EventType.TRAJECTORY_COMPRESSED: _compressed,
        EventType.TRAJECTORY_COMPRESSION_FAILED: _compression_failed,
    }
)
_BUILT_IN = frozenset(map(str, EventType))


def current_activity(view: View) -> tuple[str, datetime | None]:
    """Return what the run does now, and since when."""
    run = view.main
    if run.pause_reason:
        return "paused", run.since
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


def render_header(
    name: str,
    goal: str,
    who: Quadruple,
    model: ChosenModel | None = None,
    attached: Iterable[ArtifactRef] = (),
    *,
    status: str = "",
) -> list[Text]:
    """Render the header: agent, model, goal, attached files, run and user; `status` is that of a resumed run."""
    why = f" ({model.why})" if model is not None and model.why else ""
    return [
        Text(one_line(name), style="bold"),
        *([] if model is None else [Text.assemble(("  model  ", "dim"), one_line(model.model), (why, "dim"))]),
        Text.assemble(("  goal   ", "dim"), one_line(goal, 1000)),
        *(Text.assemble(("  file   ", "dim"), one_line(ref.filename), (f" {_kind(ref)}", "dim")) for ref in attached),
        Text.assemble(("  run    ", "dim"), who.run_id, (f" for {one_line(who.user_id)}", "dim")),
        *([Text.assemble(("  status ", "dim"), one_line(status, 400))] if status else []),
        Text(),
    ]


def render_short_header(
    name: str,
    who: Quadruple,
    model: ChosenModel | None = None,
    attached: Iterable[ArtifactRef] = (),
    *,
    limit: float | None = None,
    status: str = "",
) -> list[Text]:
    """Render the header in one line: agent, run, model, user and the limit of its cost; then its files.

    `status` is that of a resumed run.
    """
    why = f" ({model.why})" if model is not None and model.why else ""
    facts = [] if model is None else [f"{one_line(model.model)}{why}"]
    facts.append(f"for {one_line(who.user_id)}")
    facts += [] if limit is None else [f"limit ${limit:,.2f}"]
    head = Text.assemble((one_line(name), "bold"), f" {who.run_id[-LENGTH:]}", (f" · {' · '.join(facts)}", "dim"))
    return [
        head,
        *(Text.assemble("  + ", one_line(ref.filename), (f", {_kind(ref)}", "dim")) for ref in attached),
        *([Text(f"  {one_line(status, 400)}", style="dim")] if status else []),
    ]


def _kind(ref: ArtifactRef) -> str:
    return f"{ref.mime_type}, {size(ref.size_bytes)}"


_ENDS = MappingProxyType(
    {
        "goal": ("✓", "bold green", "complete"),
        "cancelled": ("⊘", "bold", "cancelled"),
        "left": ("‖", "bold yellow", "left"),
        "waiting": ("◆", "bold yellow", "waiting"),
        "blocked": ("⊟", "bold red", "blocked"),
    }
)


def render_totals(view: View, seconds: float) -> str:
    """Render the totals of a run and its tasks: steps, calls, children, time, and tokens and cost where known."""
    steps = sum(run.step for run in view.runs.values())
    parts = [plural(steps, "step"), plural(view.calls, "call")]
    if view.tasks:
        parts.append(plural(len(view.tasks), "child", "children"))
    parts.append(duration(seconds))
    if view.tokens:
        parts.append(f"{count(view.tokens)} tokens")
    if paid := spent(view):
        parts.append(paid)
    return " · ".join(parts)


def spent(view: View) -> str:
    """Return what a run has cost, and of how much it may: `$0.06 of $2.00`; "" while that is nothing, or not known."""
    if view.currency not in ("", "USD"):
        return f"{view.cost:.4f} {view.currency}" if view.cost else ""
    paid = money(round(view.cost * 1_000_000))
    return f"{paid} of ${view.cost_limit:,.2f}" if paid and view.cost_limit is not None else paid


def render_summary(
    view: View,
    ending: Ending,
    seconds: float,
    artifacts: Iterable[ArtifactRef],
    *,
    is_kept: bool,
    is_folded: bool = False,
) -> list[Text]:
    """Render the summary: tasks without a shown end, artifacts, how the run ended, totals.

    `is_kept` says whether the run and its artifacts outlive the process; one that `is_folded` has more to show.
    """
    lines = [] if is_folded else [Text()]
    still = " has not ended; it is kept" if is_kept else " was still running; it stopped with this process"
    for task in view.tasks:
        if not task.is_end_shown:
            text = f" {task.ended}" if task.ended else still
            lines.append(line(view.main, "◆", "yellow", (task.label, "bold magenta"), text))
    for ref in artifacts:
        name = one_line(ref.filename or ref.id)
        kept = f" {_kind(ref)}, {ref.id}{'' if is_kept else ', in memory only'}"
        lines.append(line(view.main, "+", "green", (name, "bold"), (kept, "dim")))
    glyph, style, status = _ENDS.get(ending.reason, ("✗", "bold red", one_line(ending.reason.replace("_", " "))))
    if ending.code and ending.reason == FinishReason.GOAL:
        glyph, style, status = "!", "bold yellow", "complete, with calls rejected"
    lines.append(Text.assemble((f"{glyph} {status}", style), (f" · {render_totals(view, seconds)}", "dim")))
    if is_folded and is_kept and view.calls:
        lines.append(Text(f"  harborage runs show {view.root[-LENGTH:]}", style="dim"))
    return lines
