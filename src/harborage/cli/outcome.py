"""What a run's end means to whoever started the command: the exit code, the answer, one line of explanation. Pure."""

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
from harborage.runtime.agent.planning import PlannerStepError
from harborage.runtime.durable import RunBlockedError, RunFailedError

__all__ = [
    "CANCELLED",
    "EXIT_CODES",
    "FAILED",
    "WRONG_USE",
    "Ending",
    "blocked",
    "ending_of",
    "failed",
    "left",
    "result_line",
    "without_asking",
]

REACHED, FAILED, WRONG_USE, NOT_REACHED, EXHAUSTED, CANCELLED = 0, 1, 2, 3, 4, 130

EXIT_CODES = MappingProxyType(
    {
        REACHED: "the goal was reached",
        FAILED: "the run failed with an error",
        WRONG_USE: "wrong use: no such agent, a bad option, an agent that cannot work here",
        NOT_REACHED: "ended without reaching the goal, or with calls refused, or was left",
        EXHAUSTED: "out of time or steps, or at another limit",
        CANCELLED: "cancelled",
    }
)
"""Every exit code of `harborage run`, and what it says."""

_OUT_OF_STEPS = "MaxStepsExceededError"


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `reason` is a finish reason, or `failed`, `blocked` or `left`, of which only the first is an
    end of the run; `answer` is for stdout, `why` for people.

    `is_strange` when the error is one that its text does not explain.
    """

    code: int
    reason: str
    answer: str = ""
    why: str = ""
    payload: Any = None
    metadata: dict[str, Any] = {}
    error: str = ""
    is_strange: bool = False

    @property
    def told(self) -> str:
        """What went wrong, in a sentence."""
        return f"the run failed: {self.why}" if self.code == FAILED and self.reason == "failed" else self.why


def ending_of(result: Finish | RunFailedError | RunBlockedError) -> Ending:
    """What came of a run, from its finish or from the error that it failed with, or that says what it is blocked by."""
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
    """A run that failed. What a model or its provider refused says itself what to do about it."""
    error = result.__cause__
    if isinstance(error, PlannerStepError) and isinstance(error.__cause__, HarborageError):
        error = error.__cause__
    why = str(error or "") or str(result)
    if result.error == _OUT_OF_STEPS:
        return failed(result.error, why, EXHAUSTED)
    name = type(error).__name__ if isinstance(error, LLMError) else result.error
    return failed(name, why, FAILED, is_strange=not isinstance(error, LLMError))


def failed(error: str, why: str, code: int, *, is_strange: bool = False) -> Ending:
    """The ending of what went wrong: the error's name, and its text with the way out."""
    return Ending(code=code, reason="failed", error=error, why=str(masked(why)), is_strange=is_strange)


def left(run_id: str, reason: str = "") -> Ending:
    """The ending of a command whose run is not over and is kept; `reason` says why nobody waits for it here."""
    why = f"left as it stands; 'harborage resume {run_id}' goes on"
    if reason:
        why = f"{masked(reason)}; the run is kept, 'harborage resume {run_id}' tries again"
    return Ending(code=NOT_REACHED, reason="left", why=why)


def blocked(run_id: str, reason: str) -> Ending:
    """The ending of a command whose run cannot go on with the code that is there. `reason` is where they part."""
    return Ending(
        code=FAILED,
        reason="blocked",
        error="blocked",
        why=f"the agent's code does not fit what this run has done: {reason}. The run is kept; with the code that it "
        f"was started with 'harborage resume {run_id}' goes on, and 'harborage fork {run_id} --at STEP' starts anew "
        "with the code of today",
    )


def without_asking(ending: Ending, refused: Sequence[str]) -> Ending:
    """The ending of a run to which calls were refused because there was no terminal to ask at: no success for a script.

    What the run answered stays its answer; of a run that did not reach its goal the ending stays as it is.
    """
    if ending.code != REACHED or not refused:
        return ending
    what = ", ".join(dict.fromkeys(refused))
    why = f"refused without asking, because there is no terminal: {what}; run it in a terminal, or with --yes"
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
    """The answer in a finish's payload: text, the text under its `answer` key, else indented JSON; empty for none."""
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
        FinishReason.NO_PATH: "no way to the goal was found",
        FinishReason.CONSTRAINTS_CONFLICT: "the goal conflicts with what is allowed",
        FinishReason.DEADLINE_EXCEEDED: "out of time",
        FinishReason.CANCELLED: "cancelled",
        "control_reject": "what it asked for was refused",
        "pause_timeout": "nobody answered in time",
        "hard_cancel": "cancelled at once",
        "cancel_while_paused": "cancelled while it was parked",
    }
)
"""In words: why a planner finishes, and why steering ended a run."""


def _limit(finish: Finish) -> str:
    """Which limit of the run ended it, in words; empty when none did, or it was its time."""
    metadata = finish.metadata or {}
    if metadata.get("max_steps_exceeded") is True:
        steps = metadata.get("max_steps")
        return f"the limit of {plural(steps, 'step')} is reached" if isinstance(steps, int) else "out of steps"
    if metadata.get("steering_reason") != "limit" or finish.reason is not FinishReason.CONSTRAINTS_CONFLICT:
        return ""
    return str(masked(str(metadata.get("detail") or f"the run's limit of {metadata.get('limit')} is reached")))


def _why(finish: Finish) -> str:
    if limit := _limit(finish):
        return limit
    cause = (finish.metadata or {}).get("steering_reason")
    return _WHY[cause] if isinstance(cause, str) and cause in _WHY else _WHY[finish.reason]


def result_line(ending: Ending, run_id: str) -> bytes:
    """The last line for machines, as JSON without a line end."""
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
