"""How a run ends without another ordinary step: out of steps, cancelled, or past its deadline.

A run that is out of steps gets one more turn in which the model may only answer, so that what it found is not lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from harborage.events import EventType, MaxStepsExceededPayload
from harborage.llm import ChatMessage, CompleteRequest, CompleteResponse, Role, ToolChoice
from harborage.planner.context import publish
from harborage.planner.decisions import CallTool, Finish
from harborage.planner.enums import FinishReason
from harborage.planner.react.rendering import text_content

if TYPE_CHECKING:
    from harborage.planner.context import RunContext

__all__ = ["answer_only", "has_steps", "out_of_steps", "stopped"]

_ANSWER_NOW: Final = """\
All steps of this run are used up, and no tool is called any more. Answer now, from what you have: what you found, \
what is done, and what is still missing."""


def has_steps(run: RunContext, max_steps: int) -> bool:
    """Whether the run may take another step, by the planner's own cap and by that of the run."""
    return run.steps_left != 0 and _steps(run) < max_steps


def stopped(run: RunContext) -> Finish | None:
    """The finish of a run that was cancelled or is past its deadline, else None."""
    run_id = run.quadruple.run_id
    if run.control.cancelled:
        return Finish(FinishReason.CANCELLED, None, {"steering": "cancelled", "run_id": run_id})
    deadline = run.budget.deadline
    if deadline is not None and run.now() >= deadline:
        metadata = {"deadline": deadline.isoformat(), "run_id": run_id, "via": "react.deadlineExceeded"}
        return Finish(FinishReason.DEADLINE_EXCEEDED, None, metadata)
    return None


def answer_only(request: CompleteRequest) -> CompleteRequest:
    """The request as one that the model can only answer.

    Tools stay declared, because providers refuse a history of calls without them; none may be called.
    """
    asked = ChatMessage(Role.USER, text_content(_ANSWER_NOW))
    choice = ToolChoice.NONE if request.tools else request.tool_choice
    return replace(request, messages=(*request.messages, asked), tool_choice=choice, parallel_tool_calls=False)


def out_of_steps(run: RunContext, max_steps: int, answer: CompleteResponse | None) -> Finish:
    """Announce that the steps are used up, and finish with `no_path`; `answer` is what the model said last."""
    steps = _steps(run)
    cap = steps if run.steps_left == 0 else max_steps
    last_tool = _last_tool(run)
    exceeded = MaxStepsExceededPayload(
        identity=run.quadruple,
        max_steps=cap,
        steps_observed=steps,
        last_tool=last_tool,
        occurred_at=run.now(),
    )
    publish(run, EventType.PLANNER_MAX_STEPS_EXCEEDED, exceeded)
    metadata: dict[str, object] = {
        "max_steps_exceeded": True,
        "max_steps": cap,
        "steps_observed": steps,
        "run_id": run.quadruple.run_id,
        "via": "react.maxStepsExceeded",
    }
    if last_tool:
        metadata["last_tool"] = last_tool
    calls = _calls_not_made(run, answer)
    if calls:
        # The model asked for these and they are not made; the run must not end as if they had been.
        metadata["calls_not_made"] = calls
    text = "" if answer is None else answer.content
    return Finish(FinishReason.NO_PATH, text or None, metadata)


def _steps(run: RunContext) -> int:
    return 0 if run.trajectory is None else len(run.trajectory.steps)


def _last_tool(run: RunContext) -> str:
    steps: Sequence[Any] = () if run.trajectory is None else run.trajectory.steps
    last = steps[-1].action if steps else None
    return last.tool if isinstance(last, CallTool) else ""


def _calls_not_made(run: RunContext, answer: CompleteResponse | None) -> list[str]:
    names = [call.name for call in run.pending_tool_calls]
    return names if answer is None else names + [call.name for call in answer.tool_calls]
