"""`harborage runs show RUN --url URL`: what a server has recorded of one run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.cli.run_list import MARKS
from harborage.cli.server import open_server
from harborage.cli.text import duration, fit_terminal, masked, one_line, plural, printable
from harborage.client import RemoteError
from harborage.client.answers import TaskDetail
from harborage.identity import Identity
from harborage.protocol.errors import Code
from harborage.protocol.wire.common import NO_TIME

if TYPE_CHECKING:
    from harborage.protocol.wire.runs import CallRow, ControlRow, RunHeader, StepRow, StepsAnswer

_CALL_MARKS = {"done": "✓", "failed": "✗", "rejected": "⊘", "cancelled": "⊘", "unknown": "▲", "held_back": "▹"}
_MOST = 160


async def show_run(url: str, wanted: str, *, is_json: bool) -> int:
    """Show a run of a server step by step, or as far as a server shows it that keeps no record; returns the exit code.

    Raises:
        RunNotFoundError, AmbiguousRunError: it names none, or several.
    """
    async with open_server(url) as server:
        row = await server.find(wanted)
        run = server.remote.get(row.run_id, who=Identity(row.who.tenant_id, row.who.user_id, row.who.session_id))
        found: StepsAnswer | TaskDetail
        try:
            found = await run.history()
        except RemoteError as error:
            if error.code != Code.UNKNOWN_METHOD:
                raise
            found = await run.detail()
    if is_json:
        sys.stdout.write(_json(found) + "\n")
        return 0
    lines = fit_terminal((printable(line) for line in _lines(found)), sys.stdout)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _json(found: StepsAnswer | TaskDetail) -> str:
    plain: dict[str, Any] = msgspec.to_builtins(found)
    if "run" in plain:
        plain = {"header": plain["run"], "steps": plain["steps"], "controls": plain["controls"]}
    return msgspec.json.encode(masked(plain)).decode()


def _lines(found: StepsAnswer | TaskDetail) -> Iterator[str]:
    if isinstance(found, TaskDetail):
        yield from _detail(found)
        return
    yield from _header(found.run)
    controls = list(found.controls)
    for step in found.steps:
        while controls and (controls[0].step or 0) and controls[0].step <= step.step:
            yield _control(controls.pop(0))
        yield from _step(step)
    yield from map(_control, controls)


def _detail(found: TaskDetail) -> Iterator[str]:
    task = found.task
    why = f": {task.error_class}" if task.error_class not in ("", task.word) else ""
    yield f"{_mark(task.word)} {task.agent_name or 'agent'} {task.id} · {task.word}{why}"
    yield f"  {one_line(str(masked(task.query or task.description)), 400)}"
    yield f"  session {task.identity.session} · for {task.identity.user} · {duration(task.duration_ms / 1000)}"
    if found.result_inline:
        yield f"  {masked(found.result_inline)}"


def _header(run: RunHeader) -> Iterator[str]:
    word = run.condition or {"paused": "waiting"}.get(run.status, run.status)
    if run.error_class and run.error_class == "cancelled":
        word = "cancelled"
    why = f": {run.error_class}" if run.error_class and run.error_class != word else ""
    totals = run.totals
    counts = [plural(totals.steps, "step"), plural(totals.tool_calls, "call"), duration(run.active_ms / 1000)]
    tokens = totals.prompt_tokens + totals.completion_tokens
    counts += [*([f"{tokens:,} tokens"] if tokens else []), *([f"${totals.usd:.2f}"] if totals.usd else [])]
    yield f"{_mark(word)} {run.agent_name or 'agent'} {run.id} · {word}{why}"
    yield f"  {one_line(str(masked(run.goal)), 400)}"
    who = f"session {run.identity.session} · for {run.identity.user} · started {_time(run.started_at)}"
    yield f"  {f'{run.model} · ' if run.model else ''}{who}"
    yield f"  {' · '.join(counts)}"


def _step(step: StepRow) -> Iterator[str]:
    mark = {"done": "✓", "running": "◐", "waiting": "◆", "failed": "✗", "cut": "⊘"}.get(step.status, " ")
    what = masked(step.preview) if not step.calls else ""
    if step.error:
        what = f"{step.error.class_}: {masked(step.error.message)}"
    decision = step.decision or "deciding"
    yield f"{_time(step.started_at)} {mark} {step.step:<3} {decision}  {one_line(str(what), _MOST)}".rstrip()
    for call in step.calls:
        yield f"             {_call(call)}"
    for child in step.children:
        yield f"             {child.agent_name or child.kind} {child.id}: {one_line(child.description, _MOST)}"
    for wait in step.waits:
        by = f" by {wait.by.user}" if wait.by else ""
        yield f"             waited: {wait.reason}{f', {wait.decision}{by}' if wait.decision else ''}"


def _call(call: CallRow) -> str:
    end = f"  {masked(call.result_preview)}" if call.result_preview else ""
    if call.error:
        end = f"  {call.error.class_}: {masked(call.error.message)}"
    text = f"{call.tool}({masked(call.args_preview)}){end}"
    return f"{_CALL_MARKS.get(call.status, '◐')} {one_line(text, _MOST)}"


def _control(control: ControlRow) -> str:
    who = control.by.user if control.by else "someone"
    then = f" before step {control.step}" if control.step else ""
    why = f": {control.err}" if control.err else ""
    return f"{_time(control.at)} ›     {who}: {control.type.lower()} {control.outcome}{then}{why}"


def _mark(word: str) -> str:
    return MARKS[word][0] if word in MARKS else "·"


def _time(at: datetime) -> str:
    return "        " if at == NO_TIME else f"{at.astimezone():%H:%M:%S}"
