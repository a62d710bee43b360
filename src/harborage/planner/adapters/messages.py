"""A run's history as a framework's agent needs it: neutral chat messages, and the results of its calls by tool.

Every call is followed by its answer, and each control comes where it arrived. The messages of finished steps are built
once and memoized on the trajectory; no planner holds state of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from harborage.llm import ArtifactStub, ChatMessage, Content, Role
from harborage.llm.content import Part, TextPart
from harborage.planner.artifacts import materialize_input_content
from harborage.planner.context import RunContext, effective_reasoning_replay
from harborage.planner.decisions import CallParallel, CallTool, parallel_observation
from harborage.planner.enums import ReasoningReplayMode
from harborage.planner.react.blocks import (
    render_changed_artifacts,
    render_context_blocks,
)
from harborage.planner.react.tools import ARTIFACT_FETCH_TOOL_NAME, get_tool_names
from harborage.planner.react.transcript import build_history, render_summary

if TYPE_CHECKING:
    from harborage.planner.trajectory import Step, Trajectory


def build_messages(run: RunContext) -> list[ChatMessage]:
    """Return the messages before the next decision: context, the user's request, the history; no system message.

    Raises:
        MemoryBlockUnserializableError: something meant for the model cannot become JSON.
    """
    can_fetch = ARTIFACT_FETCH_TOOL_NAME in get_tool_names(run)
    messages = [_user(text) for text in render_context_blocks(run, can_fetch=can_fetch)]
    messages.append(_build_request(run))
    if run.trajectory is not None:
        mode = effective_reasoning_replay(run, ReasoningReplayMode.NEVER)
        messages += build_history(run.trajectory, mode, can_fetch=can_fetch)
    if changed := render_changed_artifacts(run, can_fetch=can_fetch):
        messages.append(_user(changed))
    return messages


def convert_content(message: ChatMessage, convert: Callable[[Part], Any]) -> Any:
    """Return a user's message as text, or with media as a list of its parts, each converted for the framework."""
    parts = message.content.parts or ()
    if all(isinstance(part, TextPart) for part in parts):
        return render_text(message)
    return [convert(part) for part in parts]


def render_text(message: ChatMessage) -> str:
    """Return the text of a message, with stubs in place of everything that is not text."""
    content = message.content
    if content.parts is None:
        return content.text or ""
    return "".join(part.text if isinstance(part, TextPart) else f"\n{render_stub(part)}\n" for part in content.parts)


def render_stub(part: Part) -> str:
    """Return the text for a part that is not sent as a medium: its address, or how to read the stored artifact."""
    if isinstance(part, TextPart):
        return part.text
    stub: ArtifactStub | None = part.artifact
    if stub is not None:
        return stub.text()
    return part.url or f"(an attachment of type {part.mime or 'unknown'})"


def _build_request(run: RunContext) -> ChatMessage:
    """Return the user's first message. A redirect comes at its own place, unless that is in the summary."""
    trajectory = run.trajectory
    query = run.query or ("" if trajectory is None else trajectory.query)
    summary = None if trajectory is None else trajectory.summary
    text = (query or run.goal) if summary is None else "\n\n".join((run.goal or query, render_summary(summary)))
    return ChatMessage(
        Role.USER, materialize_input_content(text or "(no goal was given)", run.input_artifacts, run.catalog)
    )


def _user(text: str) -> ChatMessage:
    return ChatMessage(Role.USER, Content(text=text))


def iter_results(step: Step) -> Iterator[tuple[str, Any]]:
    """Yield tool and result of each call of a step, in order; failed calls are left out."""
    if step.error or step.failure is not None:
        return
    seen = step.observation if step.llm_observation is None else step.llm_observation
    match step.action:
        case CallTool(tool=tool) if not (isinstance(seen, dict) and seen.keys() == {"error"}):
            yield tool, seen
        case CallParallel(branches=branches):
            joined = parallel_observation(seen)
            for outcome in () if joined is None else sorted(joined.branches, key=lambda one: one.index):
                if not outcome.error and outcome.index < len(branches):
                    yield branches[outcome.index].tool, outcome.value
        case _:
            return


def list_last_results(trajectory: Trajectory | None) -> list[tuple[str, Any]]:
    """Return tool and result of each call of the last step; none when a control has arrived since."""
    if trajectory is None or not trajectory.steps:
        return []
    inputs = trajectory.steering_inputs
    if inputs and inputs[-1].at_step >= len(trajectory.steps):
        return []
    return list(iter_results(trajectory.steps[-1]))
