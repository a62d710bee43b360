"""Two runs side by side: how many leading steps they share, and what is different in the others. Pure.

Times, ids of the runs and of their children, and what the model was asked do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.planner import CallParallel, CallTool
from harborage.runtime.history.differences import Difference, DifferenceKind, value_diff
from harborage.runtime.history.render import Clean

if TYPE_CHECKING:
    from harborage.runtime.history.model import CallMade, RunHistory, StepTaken

MOST_CHANGES: Final = 50
"""How many changes of a step are named."""


class Change(msgspec.Struct, frozen=True):
    """A value that two steps do not have in common, by its path, such as `calls[0].args.count`."""

    path: str
    left: Any = msgspec.UNSET
    right: Any = msgspec.UNSET


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs: how many leading steps are alike, and the first difference, None where there is none."""

    shared: int
    difference: Difference | None
    left: tuple[dict[str, Any], ...]
    right: tuple[dict[str, Any], ...]
    clean: Clean = lambda value: value

    @property
    def steps(self) -> int:
        """How many steps the longer run has."""
        return max(len(self.left), len(self.right))

    def is_same(self, number: int) -> bool:
        """Whether both runs have step `number`, counted from 1, and it is alike."""
        index = number - 1
        return index < min(len(self.left), len(self.right)) and self.left[index] == self.right[index]

    def changes(self, number: int) -> list[Change]:
        """Return what is different in step `number`, counted from 1, its values as they may be shown."""
        index = number - 1
        left = self.left[index] if index < len(self.left) else msgspec.UNSET
        right = self.right[index] if index < len(self.right) else msgspec.UNSET
        if left is msgspec.UNSET or right is msgspec.UNSET:
            return []
        found = _changes("", _Sides(left, right), _Sides(self.clean(left), self.clean(right)))
        return [one for one, _ in zip(found, range(MOST_CHANGES), strict=False)]


class _Sides(NamedTuple):
    """A value of the one run and that of the other."""

    left: Any
    right: Any

    def at(self, key: Any) -> _Sides:
        """What stands below both, under a name or at a place."""
        return _Sides(_below(self.left, key), _below(self.right, key))


def compare_runs(left: RunHistory, right: RunHistory, *, clean: Clean = lambda value: value) -> Comparison:
    """Return two runs side by side. What they have is compared; what is shown of it, `clean` gets first, a step whole,
    because a secret may be known by the name above it."""
    one, other = (tuple(_comparable(run)) for run in (left, right))
    shared = 0
    for before, now in zip(one, other, strict=False):
        if before != now:
            break
        shared += 1
    difference = _difference(left, right, one, other, shared, clean)
    return Comparison(shared=shared, difference=difference, left=one, right=other, clean=clean)


def tail(history: RunHistory, after: int, most: int) -> RunHistory:
    """Return a history with at most this many of its steps, those after step `after`."""
    return replace(history, steps=history.steps[after : after + most])


def _comparable(run: RunHistory) -> Iterator[dict[str, Any]]:
    """The steps of a run as plain data, without what two runs never have in common."""
    ids = {run.run_id: "(this run)"}
    ids |= {child.task_id: f"(child {at})" for at, child in enumerate(run.children, 1) if child.task_id}
    for step in run.steps:
        plain = codec.to_plain(_content(step))
        text = codec.encode_text(plain)
        if any(one in text for one in ids):
            for one, name in ids.items():
                text = text.replace(one, name)
            plain = codec.decode(text)
        yield plain


def _content(step: StepTaken) -> dict[str, Any]:
    content = {
        "decision": None if step.decision is None else _decision(step.decision),
        "calls": [_call(call) for call in step.calls],
        "children": [{"kind": one.kind, "spec": one.spec, "error": one.error} for one in step.children],
        "observation": step.observation,
        "error": step.error,
        "cut": step.cut,
    }
    return {name: value for name, value in content.items() if value not in (None, "", [])}


def _decision(decision: Any) -> Any:
    match decision:
        case CallTool():
            return {"type": "CallTool", "tool": decision.tool, "args": _parsed(decision.args)}
        case CallParallel():
            return {"type": "CallParallel", "branches": [_decision(one) for one in decision.branches]}
        case _:
            return decision


def _call(call: CallMade) -> dict[str, Any]:
    seen = call.observation if call.seen is msgspec.UNSET else call.seen
    return {"tool": call.tool, "args": _parsed(call.args), "status": call.status, "result": seen, "error": call.error}


def _parsed(args: bytes | str) -> Any:
    try:
        return codec.decode(args) if args else {}
    except (msgspec.DecodeError, RecursionError):
        return args if isinstance(args, str) else args.decode("utf-8", "replace")


def _changes(path: str, raw: _Sides, shown: _Sides) -> Iterator[Change]:
    """What is different below a path, as it is shown; a value of another kind is one change."""
    if raw.left == raw.right:
        return
    match raw:
        case (dict() as left, dict() as right):
            for key in dict.fromkeys((*left, *right)):
                yield from _changes(f"{path}.{key}" if path else str(key), raw.at(key), shown.at(key))
        case (list() as left, list() as right):
            for at in range(max(len(left), len(right))):
                yield from _changes(f"{path}[{at}]", raw.at(at), shown.at(at))
        case _:
            yield Change(path, *shown)


def _below(value: Any, key: Any) -> Any:
    """What stands below a value, `UNSET` for nothing. A value that was masked whole stands for all below it."""
    match value:
        case dict():
            return value.get(key, msgspec.UNSET)
        case list():
            return value[key] if key < len(value) else msgspec.UNSET
        case _:
            return value


def _difference(
    left: RunHistory,
    right: RunHistory,
    one: tuple[dict[str, Any], ...],
    other: tuple[dict[str, Any], ...],
    shared: int,
    clean: Clean,
) -> Difference | None:
    step = shared + 1
    if shared < min(len(one), len(other)):
        return _of_step(one[shared], other[shared], step, clean)
    if len(one) != len(other):
        longer = left if len(one) > len(other) else right
        what = f"run {longer.run_id} has {abs(len(one) - len(other))} more step(s)"
        return Difference(kind=DifferenceKind.ENDING, step=step, what=what)
    before, now = _ending(left), _ending(right)
    if before == now:
        return None
    what = "the runs end in different ways"
    return Difference(kind=DifferenceKind.ENDING, step=shared, what=what, diff=value_diff(before, now, clean=clean))


def _of_step(left: dict[str, Any], right: dict[str, Any], step: int, clean: Clean) -> Difference:
    path = next(_changes("", _Sides(left, right), _Sides(left, right))).path
    kind, what = _kind(left, right)
    diff = value_diff(left, right, clean=clean)
    return Difference(kind=kind, step=step, what=what, diff=diff, path=path)


def _kind(left: dict[str, Any], right: dict[str, Any]) -> tuple[DifferenceKind, str]:
    before, now = left.get("decision"), right.get("decision")
    if (before is None) != (now is None) or left.get("error") != right.get("error"):
        return DifferenceKind.FAILURE, "the planner failed in one run, or with another error"
    if before != now:
        tools = [one.get("tool") for one in (before, now) if isinstance(one, dict)]
        if len(tools) == 2 and tools[0] and tools[0] == tools[1]:
            return DifferenceKind.ARGUMENTS, f"{tools[0]} is called with something else"
        return DifferenceKind.DECISION, "the planner decides something else"
    return DifferenceKind.STEP, "the same decision brings something else"


def _ending(run: RunHistory) -> Any:
    if not run.has_ended:
        return "goes on"
    return {"error": run.error, "message": run.message} if run.finish is None else codec.to_plain(run.finish)
