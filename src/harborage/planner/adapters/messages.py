"""A run's history as a framework's agent needs it: neutral chat messages, and the results of its calls by tool.

Every call is followed by its answer, and each control comes where it arrived. The messages of finished steps are built
once and kept beside the trajectory; nothing is kept on a planner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from harborage import codec
from harborage.llm import ArtifactStub, ChatMessage, Content, Role
from harborage.llm.content import Part, TextPart
from harborage.planner.artifacts import materialize_input_content
from harborage.planner.context import RunContext, effective_reasoning_replay
from harborage.planner.decisions import CallParallel, CallTool, parallel_observation
from harborage.planner.enums import ReasoningReplayMode
from harborage.planner.react.blocks import background_results, changed_artifacts, context_blocks, resumed
from harborage.planner.react.replay import Replay
from harborage.planner.react.tools import ARTIFACT_FETCH_TOOL_NAME, tool_names
from harborage.planner.trajectory import memoize_on

if TYPE_CHECKING:
    from harborage.planner.trajectory import Step, Trajectory, TrajectorySummary

__all__ = [
    "conversation",
    "has_media",
    "last_results",
    "plain_text",
    "results",
    "stub_text",
]


def conversation(run: RunContext) -> list[ChatMessage]:
    """The messages before the next decision: context, the user's request, the history. None of them is a system's.

    Raises:
        MemoryBlockUnserializableError: something meant for the model cannot become JSON.
    """
    can_fetch = ARTIFACT_FETCH_TOOL_NAME in tool_names(run)
    messages = [_user(text) for text in context_blocks(run, can_fetch=can_fetch)]
    messages.append(_request(run))
    if run.trajectory is not None:
        messages += _history(run, run.trajectory, can_fetch)
    if changed := changed_artifacts(run, can_fetch=can_fetch):
        messages.append(_user(changed))
    return messages


def has_media(message: ChatMessage) -> bool:
    """Whether a message holds anything besides text, which may come in several pieces."""
    return any(not isinstance(part, TextPart) for part in message.content.parts or ())


def plain_text(message: ChatMessage) -> str:
    """What a message says, with stubs in place of everything that is no text."""
    content = message.content
    if content.parts is None:
        return content.text or ""
    return "".join(part.text if isinstance(part, TextPart) else f"\n{stub_text(part)}\n" for part in content.parts)


def stub_text(part: Part) -> str:
    """The words that stand for a part that is sent as no medium: its address, or how to read the stored artifact."""
    if isinstance(part, TextPart):
        return part.text
    stub: ArtifactStub | None = part.artifact
    if stub is not None:
        return stub.text()
    return part.url or f"(an attachment of type {part.mime or 'unknown'})"


def _request(run: RunContext) -> ChatMessage:
    """The user's first message. A redirect stands at its own place, unless a summary has swallowed that place."""
    trajectory = run.trajectory
    query = run.query or ("" if trajectory is None else trajectory.query)
    summary = None if trajectory is None else trajectory.summary
    text = (query or run.goal) if summary is None else "\n\n".join((run.goal or query, _summarised(summary)))
    return ChatMessage(
        Role.USER, materialize_input_content(text or "(no goal was given)", run.input_artifacts, run.catalog)
    )


def _history(run: RunContext, trajectory: Trajectory, can_fetch: bool) -> list[ChatMessage]:
    mode = effective_reasoning_replay(run, ReasoningReplayMode.NEVER)
    name = f"adapters.replay.{mode}.{can_fetch}"
    messages = memoize_on(trajectory, name, lambda: Replay(mode, can_fetch=can_fetch)).messages(trajectory)
    hint, now = trajectory.resume_hint, len(trajectory.steps)
    if hint is not None and not any(one.kind == "resumed" and one.at_step == now for one in trajectory.steering_inputs):
        messages.append(_user(resumed(hint.resume_payload)))
    if trajectory.background:
        members = [
            f"{codec.encode_text(name)}:{codec.encode_text(trajectory.background[name])}"
            for name in sorted(trajectory.background)
        ]
        messages.append(_user(background_results(members)))
    return messages


def _summarised(summary: TrajectorySummary) -> str:
    parts = (
        ("Goals", "; ".join(summary.goals)),
        ("Facts", "; ".join(summary.facts)),
        ("Pending", "; ".join(summary.pending)),
        ("Last output", summary.last_output_digest),
        ("Note", summary.note),
    )
    lines = [f"{label}: {text}" for label, text in parts if text.strip()]
    return "\n".join(("What earlier steps of this run came to:", *lines))


def _user(text: str) -> ChatMessage:
    return ChatMessage(Role.USER, Content(text=text))


def results(step: Step) -> Iterator[tuple[str, Any]]:
    """What the calls of a step gave, by tool, in their order; failed calls give nothing."""
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


def last_results(trajectory: Trajectory | None) -> list[tuple[str, Any]]:
    """What the last step's calls gave; nothing when somebody has said something to the run since."""
    if trajectory is None or not trajectory.steps:
        return []
    inputs = trajectory.steering_inputs
    if inputs and inputs[-1].at_step >= len(trajectory.steps):
        return []
    return list(results(trajectory.steps[-1]))
