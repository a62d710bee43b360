"""What a run gave: its typed output, what it used, and what was said; and the error of a run that reached no goal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic

import msgspec
from typing_extensions import TypeVar

from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.history.builder import build_history
from harborage.runtime.history.model import RunHistory, StepTaken, Totals
from harborage.runtime.loop.apply import BEFORE_FINISH
from harborage.runtime.messages import Message, earlier_messages, messages_of

OutT_co = TypeVar("OutT_co", covariant=True, default=Any)
Read = Callable[[str], Awaitable[Sequence[bytes]]]
"""Returns the recorded entries of a run of the same tree."""

_MOST_RUNS: Final = 10_000

_MEANT: Final = {
    "data": "output",
    "final_output": "output",
    "response": "output",
    "text": "output",
    "content": "output",
    "all_messages": "messages",
    "new_messages": "messages",
    "cost": "usage.cost",
    "id": "run_id",
}
"""What names mean that other libraries use for the parts of a result."""


class Result(msgspec.Struct, Generic[OutT_co], frozen=True, kw_only=True):
    """What a run gave that reached its goal. `usage` counts the whole tree of runs, `messages` are those that
    it was started with and its own."""

    output: OutT_co
    run_id: str
    usage: Totals
    messages: tuple[Message, ...]
    steps: tuple[StepTaken, ...]
    finish: Finish

    if not TYPE_CHECKING:  # checkers refuse such names by themselves

        def __getattr__(self, name: str) -> Any:
            meant = _MEANT.get(name)
            hint = f"; did you mean .{meant}?" if meant else ""
            raise AttributeError(f"a result has no {name!r}{hint}")


async def read_result(run_id: str, finish: Finish, read: Read, decode: Callable[[Any], Any]) -> Result[Any]:
    """Return the result of a run that has finished; `decode` makes the output of the finish's payload.

    Raises:
        RunFailedError: it did not reach its goal.
        Exception: what `decode` raised.
    """
    record = await read(run_id)
    history = build_history(record)
    messages = (*earlier_messages(record), *messages_of(history, finish))
    usage = await tree_usage(history, read)
    if finish.reason is not FinishReason.GOAL:
        raise not_reached(run_id, finish, messages, usage)
    return Result(
        output=decode(finish.payload),
        run_id=run_id,
        usage=usage,
        messages=messages,
        steps=history.steps,
        finish=finish,
    )


def not_reached(run_id: str, finish: Finish, messages: Sequence[Message], usage: Totals) -> RunFailedError:
    """The error of a run that ended without reaching its goal."""
    met = finish.metadata or {}
    named = next((str(met[key]) for key in ("repair_chain", "limit", "steering_reason", "reason") if met.get(key)), "")
    if named == BEFORE_FINISH and met.get("detail"):
        named = str(met["detail"])
    said = finish.payload if isinstance(finish.payload, str) else ""
    return RunFailedError(
        run_id, str(finish.reason), named or said, reason=finish.reason, messages=tuple(messages), usage=usage
    )


async def tree_usage(history: RunHistory, read: Read) -> Totals:
    """What the run and all runs below it used."""
    total, left, seen = history.totals, [child.task_id for child in history.children], {history.run_id}
    while left and len(seen) < _MOST_RUNS:
        run_id = left.pop()
        if not run_id or run_id in seen:
            continue
        seen.add(run_id)
        if record := await read(run_id):
            child = build_history(record)
            total += child.totals
            left += [one.task_id for one in child.children]
    return total
