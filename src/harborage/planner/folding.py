"""The summary that needs no model: the ends of a history, and the hash of every output it leaves out.

Pure arithmetic over values. It cannot fail, so it is what a run falls back on when no summary could be made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from harborage import codec
from harborage.planner.decisions import AwaitTask, CallParallel, CallTool, SpawnTask, decision_kind
from harborage.planner.trajectory import Step, Trajectory, TrajectorySummary

__all__ = ["mechanical_fold"]

_HEAD: Final = 4
_TAIL: Final = 12
_ARGS_CHARS: Final = 80
_OUTPUT_CHARS: Final = 200
_GOAL_CHARS: Final = 2_000
_MESSAGE_CHARS: Final = 500
_GOAL_KINDS: Final = frozenset({"user_message", "redirect"})


def mechanical_fold(trajectory: Trajectory) -> TrajectorySummary:
    """A summary made by counting and cutting: goals and the user's words, one line a step, tasks not yet awaited.

    It is bounded however long the history is, equal for equal histories, and builds on the summary there is. Each
    output appears with its size and hash, so that what was cut can be recognised. Never: fails.
    """
    earlier = TrajectorySummary() if trajectory.summary is None else trajectory.summary
    first = trajectory.steps_summarised if trajectory.summary is not None else 0
    return TrajectorySummary(
        goals=_ends(_unique([*earlier.goals, *_goals(trajectory, first)])),
        facts=_ends([*earlier.facts, *_facts(trajectory, first)]),
        pending=_ends(_unique(_pending(earlier.pending, trajectory.steps[first:]))),
        last_output_digest=_digest(trajectory.steps[-1]) if trajectory.steps else earlier.last_output_digest,
        note=f"Made without a model: {len(trajectory.steps)} steps; outputs are cut, each with its size and hash.",
    )


def _goals(trajectory: Trajectory, first: int) -> Iterator[str]:
    """What the run was asked for, then what it was redirected to and what the user said to it since `first`.

    A message after the last step is shown beside the summary, so it is left out here.
    """
    if trajectory.query:
        yield _cut(trajectory.query, _GOAL_CHARS)
    for injection in trajectory.steering_inputs:
        match injection.kind, injection.payload:
            case "redirect", {"goal": str(goal)} if goal and injection.at_step >= first:
                yield _cut(goal, _GOAL_CHARS)
            case "user_message", {"message": str(said)} if first <= injection.at_step < len(trajectory.steps):
                yield f"the user said: {_cut(said, _MESSAGE_CHARS)}"


def _facts(trajectory: Trajectory, first: int) -> Iterator[str]:
    """One line for each step from `first` on, each after what else steering brought before it."""
    told = [one for one in trajectory.steering_inputs if one.kind not in _GOAL_KINDS and one.at_step >= first]
    for index in range(first, len(trajectory.steps)):
        while told and told[0].at_step <= index:
            injection = told.pop(0)
            yield f"{injection.kind}: {_cut(_text(injection.payload), _MESSAGE_CHARS)}"
        yield _line(index + 1, trajectory.steps[index])


def _pending(earlier: Sequence[str], steps: Sequence[Step]) -> Iterator[str]:
    """The tasks that were started, earlier or by these steps, and that no step has awaited."""
    awaited = {step.action.task_id for step in steps if isinstance(step.action, AwaitTask)}
    ended = tuple(_started(task) for task in awaited)
    yield from (line for line in earlier if not line.startswith(ended))
    for step in steps:
        if not isinstance(step.action, SpawnTask) or not isinstance(step.observation, Mapping):
            continue
        task = step.observation.get("task_id")
        if isinstance(task, str) and task not in awaited:
            yield f"{_started(task)}{_cut(step.action.spec.query or step.action.spec.description)}"


def _started(task: str) -> str:
    return f"task {task} was started: "


def _line(number: int, step: Step) -> str:
    size, digest, text = _output(step)
    return f"step {number}: {_deed(step.action)} -> {size} bytes sha256:{digest[:12]} {_cut(text)}"


def _deed(action: Any) -> str:
    match action:
        case CallTool():
            return f"{action.tool}({_cut(action.args.decode('utf-8', 'replace'), _ARGS_CHARS)})"
        case CallParallel():
            # Each with what it was called with: a planner that cannot tell which were made makes them again.
            return f"CallParallel({', '.join(map(_deed, action.branches))})"
        case {"type": str(kind)}:
            return kind
        case _:
            return decision_kind(action)


def _digest(step: Step) -> str:
    size, digest, _ = _output(step)
    return f"sha256:{digest} ({size} bytes)"


def _output(step: Step) -> tuple[int, str, str]:
    """Size in bytes, hash and text of what the planner saw of a step."""
    seen = step.observation if step.llm_observation is None else step.llm_observation
    text = step.error if seen is None and step.error else _text(seen)
    encoded = text.encode("utf-8", "replace")
    return len(encoded), hashlib.sha256(encoded).hexdigest(), text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return codec.encode_text(value)
    except Exception:  # noqa: BLE001 - a fold must not fail; what has no JSON form is named by its type
        return f"<{type(value).__name__} without a JSON form>"


def _cut(text: str, limit: int = _OUTPUT_CHARS) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= limit else one_line[:limit] + "…"


def _unique(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _ends(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines, or their two ends around a count of those left out."""
    if len(lines) <= _HEAD + _TAIL + 1:
        return tuple(lines)
    return (*lines[:_HEAD], f"… {len(lines) - _HEAD - _TAIL} lines left out …", *lines[-_TAIL:])
