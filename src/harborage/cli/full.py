"""A run in full: every argument, result, message and reasoning as it is recorded, without secrets, and uncut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from harborage import codec
from harborage.planner import CallParallel, CallTool, Finish
from harborage.runtime.history.render import render_end, render_origin, render_step, render_totals

if TYPE_CHECKING:
    from harborage.runtime.history.model import CallMade, RunHistory, StepTaken

Clean: TypeAlias = Callable[[Any], Any]

_INDENT: Final = 4


def render_full(history: RunHistory, clean: Clean) -> list[str]:
    """Return the lines of a run, from its goal to its end; `clean` gets each value first."""
    lines = [f"run {history.run_id}", *_block("goal", history.goal, clean), *render_origin(history)]
    lines.append(f"  {render_end(history, clean)}")
    for control in history.controls:
        lines += [f"  ⇒ {control.type}, before step {control.before_step}", *_value(control.payload, clean)]
    for pause in history.pauses:
        lines += [f"  ‖ {pause.reason}: {pause.decision or 'open'}", *_value(pause.payload, clean)]
        lines += _block("answer", pause.answer, clean)
    for step in history.steps:
        lines += ["", *_step(step, clean)]
    return [*lines, "", f"  {render_totals(history)}"]


def _step(step: StepTaken, clean: Clean) -> Iterator[str]:
    decision = step.decision
    title = type(decision).__name__ if decision is not None else "no decision"
    yield f"{step.number:>3} {title}{f'  ({step.latency_ms} ms)' if step.latency_ms else ''}"
    yield from _block("reasoning", step.reasoning, clean)
    if not isinstance(decision, Finish):
        yield from _block("remark", step.preamble, clean)
    yield from _block("error", step.error or step.cut, clean)
    for call in step.calls:
        yield from _call(call, clean)
    for child in step.children:
        yield f"  child {child.task_id}"
        yield from _block("goal", child.spec.query or child.spec.description, clean)
    if isinstance(decision, Finish):
        yield from _block(f"finish ({decision.reason})", decision.payload, clean)
    elif not isinstance(decision, CallTool | CallParallel) and not step.children:
        yield from render_step(step, clean=clean)[1:]
    yield from _block("observation", step.observation, clean)


def _call(call: CallMade, clean: Clean) -> Iterator[str]:
    took = ""
    if call.begun_at is not None and call.ended_at is not None:
        took = f", {round((call.ended_at - call.begun_at).total_seconds() * 1000)} ms"
    again = f", {call.attempts} attempts" if call.attempts > 1 else ""
    yield f"  {call.tool}: {str(call.status).replace('_', ' ')}{took}{again}"
    yield from _block("arguments", _parsed(call.args), clean)
    if call.observation is not None:
        yield from _block("result", call.observation, clean)
    if call.seen is not msgspec.UNSET and call.seen != call.observation:
        yield from _block("shown to the model", call.seen, clean)
    yield from _block("error", call.error, clean)


def _block(name: str, value: Any, clean: Clean) -> list[str]:
    """A value below its name; none for a value that is empty."""
    return [f"  {name}", *_value(value, clean)] if value not in (None, "", {}) else []


def _value(value: Any, clean: Clean) -> list[str]:
    if value in (None, "", {}):
        return []
    shown = clean(value)
    text = shown if isinstance(shown, str) else _json(shown)
    return [f"{' ' * _INDENT}{line}".rstrip() for line in text.splitlines()]


def _json(value: Any) -> str:
    try:
        return msgspec.json.format(codec.encode(value, "value"), indent=2).decode()
    except codec.UnserializableError:
        return str(value)


def _parsed(args: str) -> Any:
    try:
        return codec.decode(args)
    except msgspec.DecodeError:
        return args
