"""How a command ended: the exit code, the answer, and one line that explains it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, assert_never

import msgspec

from harborage import codec
from harborage.cli.text import masked, plural
from harborage.errors import HarborageError
from harborage.llm import LLMError
from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.engine import RunBlockedError, RunFailedError
from harborage.runtime.effects.planning import PlannerStepError

REACHED, FAILED, WRONG_USE, NOT_REACHED, EXHAUSTED, CANCELLED = 0, 1, 2, 3, 4, 130

EXIT_CODES = MappingProxyType(
    {
        REACHED: "the goal was reached",
        FAILED: "the run failed",
        WRONG_USE: "wrong use: no such agent, a bad option, an agent that cannot work here",
        NOT_REACHED: "goal not reached, calls were rejected, or the run has not ended",
        EXHAUSTED: "a limit was reached: steps, cost, time or another one",
        CANCELLED: "cancelled",
    }
)
"""Every exit code of `harborage run`, and its meaning."""

_OUT_OF_STEPS = "MaxStepsExceededError"


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `reason` is a finish reason, or `failed`, `blocked` or `left`; a run that is blocked or left
    has not ended. `answer` is for stdout, `why` for people; `is_unexplained` says that `why` may need a traceback.
    """

    code: int
    reason: str
    answer: str = ""
    why: str = ""
    payload: Any = None
    metadata: dict[str, Any] = {}
    error: str = ""
    is_unexplained: bool = False

    @property
    def message(self) -> str:
        """What went wrong, in one line."""
        return f"the run failed: {self.why}" if self.code == FAILED and self.reason == "failed" else self.why


def ending_of(result: Finish | RunFailedError | RunBlockedError) -> Ending:
    """Return the ending of a run, from its finish or from the error that it failed with or is blocked by."""
    if isinstance(result, RunBlockedError):
        return blocked(result.run_id, result.reason)
    if isinstance(result, RunFailedError):
        return _failure(result)
    return Ending(
        code=EXHAUSTED if _limit(result) else _code(result.reason),
        reason=str(result.reason),
        answer=answer_of(result.payload),
        why=_why(result),
        payload=result.payload,
        metadata=dict(result.metadata or {}),
    )


def _failure(result: RunFailedError) -> Ending:
    """The ending of a failed run; the error of a model or its provider says itself what to do about it."""
    error = result.__cause__
    if isinstance(error, PlannerStepError) and isinstance(error.__cause__, HarborageError):
        error = error.__cause__
    why = str(error or "") or str(result)
    if result.error == _OUT_OF_STEPS:
        return failed(result.error, why, EXHAUSTED)
    name = type(error).__name__ if isinstance(error, LLMError) else result.error
    return failed(name, why, FAILED, is_unexplained=not isinstance(error, LLMError))


def failed(error: str, why: str, code: int, *, is_unexplained: bool = False) -> Ending:
    """Return the ending for an error: its name, and a text that says what to do."""
    return Ending(code=code, reason="failed", error=error, why=str(masked(why)), is_unexplained=is_unexplained)


def left(run_id: str, reason: str = "") -> Ending:
    """Return the ending of a command that leaves a kept run; `reason` says why, "" when a person wants it."""
    if reason:
        why = f"{masked(reason)}; the run is kept; try again with: harborage resume {run_id}"
    else:
        why = f"the run was left; continue with: harborage resume {run_id}"
    return Ending(code=NOT_REACHED, reason="left", why=why)


def blocked(run_id: str, reason: str) -> Ending:
    """Return the ending for a run that the present code cannot resume; `reason` is where they differ."""
    return Ending(
        code=FAILED,
        reason="blocked",
        error="blocked",
        why=f"the agent's code does not fit the journal of this run: {reason}. The run is kept. With the code that it "
        f"was started with: harborage resume {run_id}; with the code of today: harborage fork {run_id} --at STEP",
    )


def with_unasked_rejections(ending: Ending, rejected: Sequence[str]) -> Ending:
    """Return the ending of a run whose calls were rejected because there was no terminal: no success for a script.

    The run's answer is kept; the ending of a run that did not reach its goal stays as it is.
    """
    if ending.code != REACHED or not rejected:
        return ending
    what = ", ".join(dict.fromkeys(rejected))
    why = f"rejected because there is no terminal to ask a person in: {what}; run in a terminal, or with --yes"
    return msgspec.structs.replace(ending, code=NOT_REACHED, why=why)


def _code(reason: FinishReason) -> int:
    match reason:
        case FinishReason.GOAL:
            return REACHED
        case FinishReason.NO_PATH | FinishReason.CONSTRAINTS_CONFLICT:
            return NOT_REACHED
        case FinishReason.DEADLINE_EXCEEDED:
            return EXHAUSTED
        case FinishReason.CANCELLED:
            return CANCELLED
        case _ as unreachable:
            assert_never(unreachable)


def answer_of(payload: Any) -> str:
    """Return the answer in a payload: text, the text under its `answer` key, else indented JSON; empty for none."""
    match payload:
        case None:
            return ""
        case str(text) | {"answer": str(text)}:
            return text
        case other:
            try:
                return msgspec.json.format(codec.encode(other, "payload"), indent=2).decode()
            except codec.UnserializableError:
                return str(other)


_WHY: Mapping[str, str] = MappingProxyType(
    {
        FinishReason.GOAL: "goal reached",
        FinishReason.NO_PATH: "the planner found no way to the goal",
        FinishReason.CONSTRAINTS_CONFLICT: "the goal conflicts with a constraint",
        FinishReason.DEADLINE_EXCEEDED: "the time limit is reached",
        FinishReason.CANCELLED: "cancelled",
        "control_reject": "its question was rejected",
        "pause_timeout": "its question was not answered in time",
        "hard_cancel": "cancelled, now",
        "cancel_while_paused": "cancelled while it was paused",
    }
)
"""Why a planner finished, or why steering ended a run, in words."""


def _limit(finish: Finish) -> str:
    """The limit that ended the run, in words; empty when none did, or the time limit."""
    metadata = finish.metadata or {}
    if metadata.get("max_steps_exceeded") is True:
        steps = metadata.get("max_steps")
        return (
            f"the limit of {plural(steps, 'step')} is reached"
            if isinstance(steps, int)
            else "the limit of steps is reached"
        )
    if metadata.get("steering_reason") != "limit" or finish.reason is not FinishReason.CONSTRAINTS_CONFLICT:
        return ""
    return str(masked(str(metadata.get("detail") or f"the limit of {metadata.get('limit')} is reached")))


def _why(finish: Finish) -> str:
    if limit := _limit(finish):
        return limit
    cause = (finish.metadata or {}).get("steering_reason")
    return _WHY[cause] if isinstance(cause, str) and cause in _WHY else _WHY[finish.reason]


def result_line(ending: Ending, run_id: str) -> bytes:
    """Return the last line of `--json`, without a line end."""
    line: dict[str, Any] = {"type": "result", "run": run_id, "reason": ending.reason, "exit_code": ending.code}
    if ending.error:
        line["error"] = {"type": ending.error, "message": ending.why}
    else:
        line |= {"answer": ending.answer, "payload": ending.payload, "metadata": ending.metadata}
        if ending.code:
            line["why"] = ending.why
    try:
        return codec.encode(line, "result")
    except codec.UnserializableError:
        return codec.encode({**line, "payload": None, "metadata": {}}, "result")
