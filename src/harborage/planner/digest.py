"""A history as text for a summary, within a number of bytes: whole where it is new, shortened where it is old. Pure.

It shows what the planner was shown: decisions, projected results, errors, and what steering brought. Raw heavy results,
the tool context and its handles are never in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.planner.decisions import (
    AwaitTask,
    CallParallel,
    CallTool,
    SpawnTask,
    decision_kind,
    parallel_observation,
)

if TYPE_CHECKING:
    from harborage.planner.trajectory import SteeringInjection, Step, Trajectory, TrajectorySummary

__all__ = ["digest"]

_GOAL_BYTES: Final = 4_000
_SUMMARY_LINE_BYTES: Final = 500
_ARGS_BYTES: Final = 400
_OUTCOME_BYTES: Final = 2_000
_INPUT_BYTES: Final = 2_000
_SHORT_BYTES: Final = 120
_HEAVY_BYTES: Final = 32_768
_LEAST_BYTES: Final = 1_000
_NOTHING: Final = "(nothing)"


def digest(trajectory: Trajectory, *, goal: str = "", limit_bytes: int) -> list[str]:
    """The lines that tell a history in about `limit_bytes`, at least in about a thousand.

    Where `trajectory.summary` is set it stands for the steps before `steps_summarised`, which are left out. When the
    rest is too long, the oldest steps are shortened first, and left out when that is not enough.
    """
    first = min(trajectory.steps_summarised, len(trajectory.steps)) if trajectory.summary is not None else 0
    head = [*_goal_lines(trajectory, goal), *_summary_lines(trajectory.summary, first)]
    left = max(_LEAST_BYTES, limit_bytes - _size(head))
    return [*head, "[Steps]", *_fitted(list(_entries(trajectory, first)), left)]


class _Entry(msgspec.Struct, frozen=True):
    """One thing that happened, told in full and told shortly."""

    full: str
    short: str


def _fitted(entries: Sequence[_Entry], limit: int) -> list[str]:
    """The entries within `limit` bytes: the oldest are shortened first, then left out; the last one always stays."""
    lines = [entry.full for entry in entries]
    size = _size(lines)
    for at, entry in enumerate(entries):
        if size <= limit:
            return lines or ["(none)"]
        size -= _size(lines[at : at + 1]) - _size([entry.short])
        lines[at] = entry.short
    dropped = 0
    while size > limit and dropped < len(lines) - 1:
        size -= _size(lines[dropped : dropped + 1])
        dropped += 1
    return [f"(the first {dropped} entries are left out)", *lines[dropped:]] if dropped else lines or ["(none)"]


def _goal_lines(trajectory: Trajectory, goal: str) -> Iterator[str]:
    wanted = goal or trajectory.query
    yield "[Goal]"
    yield _cut(wanted, _GOAL_BYTES) or "(none)"
    if trajectory.query and trajectory.query != wanted:
        yield "[First request]"
        yield _cut(trajectory.query, _GOAL_BYTES)


def _summary_lines(summary: TrajectorySummary | None, steps: int) -> Iterator[str]:
    if summary is None:
        return
    yield f"[Summary of the first {steps} steps]"
    for name in ("goals", "facts", "pending"):
        yield from (f"{name}: {_cut(line, _SUMMARY_LINE_BYTES)}" for line in getattr(summary, name))
    for name in ("last_output_digest", "note"):
        text = getattr(summary, name)
        if text:
            yield f"{name}: {_cut(text, _SUMMARY_LINE_BYTES)}"


def _entries(trajectory: Trajectory, first: int) -> Iterator[_Entry]:
    """The steps from `first` on, each after what steering brought before it."""
    # What came before the earlier summary was made is in it.
    inputs = [one for one in trajectory.steering_inputs if one.at_step >= first]
    told = 0
    for index in range(first, len(trajectory.steps)):
        while told < len(inputs) and inputs[told].at_step <= index:
            yield _steered(inputs[told])
            told += 1
        yield _step(trajectory.steps[index], index + 1)
    yield from map(_steered, inputs[told:])


def _steered(injection: SteeringInjection) -> _Entry:
    match injection.kind, injection.payload:
        case "user_message", {"message": str(message)}:
            told = f"the user said: {message}"
        case "redirect", {"goal": str(goal)}:
            told = f"the goal became: {goal}"
        case _:
            told = f"context was added: {_rendered(injection.payload)}"
    return _Entry(_cut(told, _INPUT_BYTES), _cut(told, 2 * _SHORT_BYTES))


def _step(step: Step, number: int) -> _Entry:
    deeds, outcomes = _deeds(step.action), _outcomes(step)
    bound = max(_SHORT_BYTES, 2 * _OUTCOME_BYTES // (len(outcomes) + 1))
    full = f"step {number}: {_cut(deeds, _ARGS_BYTES)}" + "".join(f"\n  -> {_cut(one, bound)}" for one in outcomes)
    seen = _cut(" | ".join(outcomes), _SHORT_BYTES)
    return _Entry(full, f"step {number}: {_cut(deeds, _SHORT_BYTES)} -> {seen}")


def _deeds(action: Any) -> str:
    match action:
        case CallTool():
            return f"{action.tool}({action.args.decode('utf-8', 'replace')})"
        case CallParallel():
            return " + ".join(map(_deeds, action.branches))
        case SpawnTask():
            return f"started a task: {action.spec.query or action.spec.description}"
        case AwaitTask():
            return f"waited for the task {action.task_id}"
        case {"type": str(kind)}:
            return kind
        case None:
            return "(no decision)"
        case _:
            return decision_kind(action)


def _outcomes(step: Step) -> list[str]:
    """What came of a step, one text for each branch of a parallel call."""
    if step.failure is not None:
        return [f"error: {step.failure.code}: {step.failure.message}"]
    if step.error:
        return [f"error: {step.error}"]
    branches = parallel_observation(step.llm_observation) or parallel_observation(step.observation)
    if branches is None:
        return [_rendered(step.observation if step.llm_observation is None else step.llm_observation)]
    return [f"error: {one.error}" if one.error else _rendered(one.value) for one in branches.branches] or [_NOTHING]


def _rendered(value: Any) -> str:
    """A value on one line; bytes, and what is heavy, by its size alone."""
    match value:
        case None:
            return _NOTHING
        case bytes() | bytearray() | memoryview():
            return f"({len(bytes(value))} bytes)"
        case str():
            text = value
        case _:
            text = _as_json(value)
    size = len(text.encode("utf-8", "replace"))
    return f"(a heavy result of {size} bytes, not shown)" if size >= _HEAVY_BYTES else " ".join(text.split())


def _as_json(value: Any) -> str:
    try:
        return codec.encode_text(value)
    except (codec.UnserializableError, RecursionError):
        return f"({type(value).__name__} without a JSON form)"


def _cut(text: str, limit: int) -> str:
    encoded = text.encode("utf-8", "replace")
    return encoded.decode() if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore") + "…"


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
