"""Renders journal entries as lines, with arguments and results; and the state of the view, which `view` shares. Pure.

`view` renders events. Both derive the state from what they render.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias, assert_never

import msgspec
from rich.text import Text

from harborage import codec
from harborage.cli.status import ending_of
from harborage.cli.text import arguments, duration, one_line, plural, printable, shortened, size
from harborage.planner import CallParallel, CallTool, Finish, JoinKind, JoinSpec, SpawnSpec, SpawnTask
from harborage.runtime.durable.journal import Begun, Cut, Done, Ended, Entry, Failed, Joined, Started
from harborage.runtime.loop.capabilities import HookAnswer
from harborage.runtime.loop.dispatch import Approval
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.loop.state import Planned

_TAG_WIDTH = 5


class Call(msgspec.Struct, frozen=True):
    """A tool call in flight; `tag` is its place, such as `4` or `4.2`."""

    tag: str
    tool: str
    began: datetime


class RunView(msgspec.Struct, kw_only=True):
    """The view of one run. `label` is empty for the run of the command, `t1`, `t2`, … for spawned tasks.

    `step` is the latest step; `decided_steps` counts decisions by events and `recorded_steps` by entries, and either
    may come first. `finish` is what the planner decided to end with, `failure` the error it failed with and its text.
    `pause_reason` is why it is paused, `ended` how its task ended, `spawn_spec` the latest task that it spawned.
    `is_start_shown`, `is_end_shown` and `is_cancel_shown` say which lines are written, `is_spawned` that the entry of
    its spawning came. `remark_step` is the step whose remark, `rejected_tools` the tools whose rejection was written
    before their entry came. One that `is_folded` is shown in few lines.
    """

    run_id: str
    label: str = ""
    parent: str = ""
    kind: str = ""
    spawn_spec: SpawnSpec = SpawnSpec()
    step: int = 0
    decided_steps: int = 0
    recorded_steps: int = 0
    decision: str = ""
    finish: Finish | None = None
    failure: tuple[str, str] | None = None
    calls: dict[str, Call] = msgspec.field(default_factory=dict)
    pause_reason: str = ""
    ended: str = ""
    remark_step: int = 0
    rejected_tools: list[str] = msgspec.field(default_factory=list)
    is_start_shown: bool = False
    is_spawned: bool = False
    is_end_shown: bool = False
    is_cancel_shown: bool = False
    began: datetime | None = None
    since: datetime | None = None
    is_folded: bool = False

    @property
    def entry_step(self) -> int:
        """The step of the entry that comes: entries come in their order, while events may be ahead of them."""
        return self.recorded_steps or self.step


class View(msgspec.Struct, kw_only=True):
    """The view of all runs of a session.

    `streaming` is the end of what the model writes now, `opening` its beginning, `thinking` the end of its reasoning.
    """

    root: str
    runs: dict[str, RunView]
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    currency: str = ""
    cost_limit: float | None = None
    is_folded: bool = False
    streaming: str = ""
    opening: str = ""
    thinking: str = ""

    @property
    def main(self) -> RunView:
        """The run of the command."""
        return self.runs[self.root]

    @property
    def tasks(self) -> list[RunView]:
        """The spawned tasks, in the order of their spawning."""
        return [run for run in self.runs.values() if run.label]


def new_view(root: str, began: datetime | None = None, *, is_folded: bool = False) -> View:
    """Return the view of a run before its first event; one that `is_folded` shows it in few lines."""
    run = RunView(run_id=root, began=began, since=began, is_folded=is_folded)
    return View(root=root, runs={root: run}, is_folded=is_folded)


def run_of(view: View, run_id: str) -> RunView:
    """Return the view of the run with that id; a new one is a task, and gets the next label."""
    run = view.runs.get(run_id)
    if run is None:
        run = RunView(run_id=run_id, label=f"t{len(view.runs)}", is_folded=view.is_folded)
        view.runs[run_id] = run
    return run


Part: TypeAlias = str | tuple[str, str]
"""Words, or words with a style."""


def line(run: RunView, glyph: str, style: str, *parts: Part, tag: str = "", wrap: bool = False) -> Text:
    """Return one line: the task's label, the step, a glyph and the text; cut at the screen's edge unless `wrap`.

    The text may come from a model or a tool, so control characters in it are spelled out.
    """
    text = Text() if wrap else Text(no_wrap=True, overflow="ellipsis")
    if run.is_folded:
        text.append(glyph, style).append(f" {tag:<2} " if tag else " ", "dim").append(
            f"{run.label}: " if run.label else "", "dim"
        )
    else:
        whose = f"    │ {run.label} " if run.label else ""
        text.append(whose, "dim").append(f"{tag:>{_TAG_WIDTH}} ", "dim").append(glyph, style).append(" ")
    for part in parts:
        words, look = (part, None) if isinstance(part, str) else part
        text.append(printable(words, keep=""), look)
    return text


_TOOL, _APPROVE, _CONFIRM, _BEFORE = "tool.", "approve.", "confirm.", "hook.before_tool."
_ARTIFACT_KEYS = frozenset({"id", "mime_type", "size_bytes", "filename", "sha256"})
_HEAVY_KEYS = frozenset({"size_bytes", "truncated", "artifact_ref"})


class RecordedEntry(msgspec.Struct, frozen=True):
    """A new entry of a run's journal."""

    run_id: str
    entry: Entry


def render_entry(view: View, fact: RecordedEntry) -> list[Text]:
    """Render the lines of a journal entry, often none, and update the view."""
    run = run_of(view, fact.run_id)
    match fact.entry:
        case Started() as started:
            return _started(view, run, started)
        case Begun(name=name) as begun if name.startswith(_TOOL):
            return _begun(view, run, begun)
        case Done(name="plan") as done:
            return _planned(run, codec.decode(bytes(done.result), Planned))
        case Begun(name="task.spawn", payload=payload):
            run.spawn_spec = codec.decode(bytes(payload), tuple[str, SpawnTask])[1].spec
            return []
        case Done(name="task.spawn") as done:
            return _spawned(view, run, codec.decode(bytes(done.result)))
        case Done(name=name) as done if name.startswith(_TOOL):
            return _called(run, done)
        case Done(name=name) as done if name.startswith(_APPROVE):
            return _rejected(run, name.removeprefix(_APPROVE), codec.decode(bytes(done.result), Approval))
        case Done(name=name) as done if name.startswith(_CONFIRM):
            return _rejected(run, name.removeprefix(_CONFIRM), codec.decode(bytes(done.result), Approval))
        case Done(name=name) as done if name.startswith(_BEFORE):
            said = codec.decode(bytes(done.result), HookAnswer)
            return _not_made(run, name.removeprefix(_BEFORE), said.refusal or said.advice)
        case Done(name="hook.before_finish") as done:
            return _sent_back(run, codec.decode(bytes(done.result), HookAnswer))
        case Done(name="task.end") as done if run.finish is not None:
            # Here, not with the last entry: that may come behind the next step of a run that waited for the task.
            return _finished(run, run.finish, done.at)
        case Done(name="task.fail") as done if run.failure is not None:
            return _failed(run, *run.failure, done.at)
        case Failed(name="plan") as failed:
            run.failure = (failed.error, failed.message)
            return []
        case Failed(name=name) | Cut(name=name) as stopped if name.startswith(_TOOL):
            return _stopped(run, stopped)
        case Joined() as joined:
            return _joined(run, joined)
        case Ended() as ended:
            return _ended(view, run, ended)
        case _:
            return []


def _started(view: View, run: RunView, started: Started) -> list[Text]:
    """A task may start before the entry of its spawning is written."""
    run.began = run.since = started.at
    if not run.label or run.is_start_shown:
        return []
    goal = codec.decode(bytes(started.request), RunRequest).goal
    step = view.main.step if run.parent == view.root else 0
    return [_announced(run, goal, str(step or ""))]


def _announced(run: RunView, what: str, tag: str) -> Text:
    run.is_start_shown = True
    return _task_line(run, "◆", "magenta", f" {run.kind or 'task'}: {one_line(what)}", tag)


def _begun(view: View, run: RunView, begun: Begun) -> list[Text]:
    wanted = codec.decode(bytes(begun.payload), CallTool)
    call = Call(_tag(run, begun.position), printable(wanted.tool, keep=""), begun.at)
    run.calls[begun.position] = call
    view.calls += 1
    return [line(run, "▸", "cyan", (call.tool, "bold"), f"({_arguments(wanted.args)})", tag=call.tag)]


def _arguments(args: bytes) -> str:
    try:
        return arguments(codec.decode(args))
    except msgspec.DecodeError:
        return one_line(args.decode(errors="replace"))


def _planned(run: RunView, planned: Planned) -> list[Text]:
    run.recorded_steps += 1
    if run.recorded_steps < run.step:
        return []  # recorded late: the run is further by now, and its events were shown
    run.step = run.recorded_steps
    lines = []
    run.finish = planned.decision if isinstance(planned.decision, Finish) else None
    is_answer = run.finish is not None  # shown in full at the end
    if planned.preamble and not is_answer and run.remark_step != run.step:
        lines.append(line(run, "“", "dim", one_line(planned.preamble), tag=str(run.step)))
    if isinstance(planned.decision, SpawnTask):
        run.spawn_spec = planned.decision.spec
    if isinstance(planned.decision, CallParallel):
        how = f"{plural(len(planned.decision.branches), 'call')} in parallel{_join(planned.decision.join)}"
        lines.append(line(run, "▸", "cyan", how, tag=str(run.step)))
    return lines


def _join(join: JoinSpec | None) -> str:
    if join is None:
        return ""
    match join.kind:
        case JoinKind.ALL:
            return ""
        case JoinKind.FIRST_SUCCESS:
            return ", first success wins"
        case JoinKind.KEYED:
            return f", merged by {one_line(', '.join(join.merge_keys), 60)}"
        case JoinKind.N:
            return f", {plural(join.n, 'success', 'successes')} needed"
        case _ as unreachable:
            assert_never(unreachable)


def _spawned(view: View, run: RunView, handle: Any) -> list[Text]:
    tag = str(run.entry_step)
    if not isinstance(handle, Mapping) or "task_id" not in handle:
        error = handle.get("error", handle) if isinstance(handle, Mapping) else handle
        return [line(run, "✗", "red", f"no task: {one_line(str(error), 400)}", tag=tag, wrap=True)]
    task = run_of(view, str(handle["task_id"]))
    if task.is_spawned:
        return [line(run, "◆", "magenta", (task.label, "bold magenta"), " exists already", tag=tag)]
    task.is_spawned = True
    if task.is_start_shown:
        return []
    task.kind = str(handle.get("kind", ""))
    task.parent = run.run_id
    spec = run.spawn_spec
    return [_announced(task, spec.description or spec.query or task.run_id, "" if run.label else tag)]


def _called(run: RunView, done: Done) -> list[Text]:
    outcome = codec.decode(bytes(done.result), ToolOutcome)
    call = run.calls.pop(done.position, None)
    if call is None:
        call = Call(_tag(run, done.position), done.name[len(_TOOL) :], done.at)
    run.since = done.at
    took = duration((done.at - call.began).total_seconds())
    match outcome.status:
        case OutcomeStatus.DONE:
            parts = ((f"{took}  ", "dim"), _result(outcome.observation))
            return [line(run, "✓", "green", *parts, tag=call.tag)]
        case (
            OutcomeStatus.FAILED
            | OutcomeStatus.REJECTED
            | OutcomeStatus.CANCELLED
            | OutcomeStatus.UNKNOWN
            | OutcomeStatus.HELD_BACK
        ):
            error = outcome.error.removeprefix(f'tool "{done.name[len(_TOOL) :]}" invoke: ')
            return [_failure(run, call, f"{took}  ", one_line(error, 400))]
        case _ as unreachable:
            assert_never(unreachable)


def _rejected(run: RunView, tool: str, approval: Approval) -> list[Text]:
    """A call that was rejected, unless its event was shown."""
    if not approval.refusal:
        return []
    if tool in run.rejected_tools:
        run.rejected_tools.remove(tool)
        return []
    return _not_made(run, tool, approval.refusal)


def _not_made(run: RunView, tool: str, why: str) -> list[Text]:
    """A call that was not made, unless there is no reason against it."""
    if not why:
        return []
    parts = ((printable(tool, keep=""), "bold"), f": {one_line(why, 400)}")
    return [line(run, "✗", "red", *parts, tag=str(run.recorded_steps), wrap=True)]


def _sent_back(run: RunView, said: HookAnswer) -> list[Text]:
    """An answer that a hook did not let pass as it was: the end of the run shows the one that counts."""
    if said != HookAnswer():
        run.finish = None
    if not said.advice:
        return []
    return [
        line(run, "↺", "yellow", f"sent back: {one_line(said.advice, 400)}", tag=str(run.recorded_steps), wrap=True)
    ]


def _stopped(run: RunView, stopped: Failed | Cut) -> list[Text]:
    call = run.calls.pop(stopped.position, None)
    if call is None:
        return []
    run.since = stopped.at
    why = f"cancelled: {stopped.reason}" if isinstance(stopped, Cut) else f"{stopped.error}: {stopped.message}"
    return [_failure(run, call, "", one_line(why, 400))]


def _failure(run: RunView, call: Call, took: str, why: str) -> Text:
    return line(run, "✗", "red", (took, "dim"), (call.tool, "bold"), f": {why}", tag=call.tag, wrap=True)


def _joined(run: RunView, joined: Joined) -> list[Text]:
    lines = []
    for index, outcome in enumerate(joined.outcomes):
        place = f"{joined.position}.{index}."
        for position in [one for one in run.calls if one.startswith(place)]:
            call = run.calls.pop(position)
            if outcome == "cancelled":
                lines.append(line(run, "–", "dim", (f"{call.tool} cancelled: no longer needed", "dim"), tag=call.tag))
    return lines


def _ended(view: View, run: RunView, ended: Ended) -> list[Text]:
    run.calls.clear()
    run.pause_reason = ""
    run.ended = run.ended or ("failed" if ended.finish is None else "completed")
    if ended.finish is None:
        return _failed(run, ended.error, ended.message, ended.at)
    return _finished(run, codec.decode(bytes(ended.finish), Finish), ended.at)


def _finished(run: RunView, finish: Finish, at: datetime) -> list[Text]:
    """The end of a task, once."""
    if not run.label or run.is_end_shown:
        return []
    run.is_end_shown = True
    ending = ending_of(finish)
    if ending.code:
        return [_task_line(run, "✗", "red", f" {ending.why}{_took(run, at)}")]
    answer = shortened(ending.answer)
    return [_task_line(run, "✓", "green", f" done{_took(run, at)}{': ' if answer else ''}{answer}")]


def _failed(run: RunView, error: str, message: str, at: datetime) -> list[Text]:
    """The failure of a task, once."""
    if not run.label or run.is_end_shown:
        return []
    run.is_end_shown = True
    return [_task_line(run, "✗", "red", f" failed{_took(run, at)}: {error}: {one_line(message, 400)}")]


def _took(run: RunView, at: datetime) -> str:
    return "" if run.began is None else f" {duration((at - run.began).total_seconds())}"


def _task_line(run: RunView, glyph: str, style: str, text: str, tag: str = "") -> Text:
    """A line about a task, among the lines of the run itself."""
    return line(RunView(run_id=run.run_id), glyph, style, (run.label, "bold magenta"), text, tag=tag)


def _tag(run: RunView, position: str) -> str:
    """The step of a call, and its branch if the step has several (positions are `at` or `at.branch.at`)."""
    parts = position.split(".")
    return str(run.entry_step) if len(parts) < 3 else f"{run.entry_step}.{int(parts[-2]) + 1}"


def _result(value: Any) -> str:
    """A result in short; an artifact is named instead."""
    if isinstance(value, Mapping):
        if value.keys() >= _HEAVY_KEYS:
            return f"{size(int(value['size_bytes']))}, stored as artifact {one_line(str(value['artifact_ref']))}"
        if value.keys() >= _ARTIFACT_KEYS:
            name, place = one_line(str(value["filename"] or value["id"])), one_line(str(value["id"]))
            return f"artifact {name} ({value['mime_type']}, {size(int(value['size_bytes']))}) {place}"
    return shortened(value)
