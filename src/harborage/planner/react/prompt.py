"""The prompt: from what a step may see to the request that goes to the model.

A builder reads the context and changes nothing in it. What earlier steps already gave is taken from beside the
trajectory instead of being made again, so building costs the same at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import is_
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from harborage import codec
from harborage.events import EventType, RepairGuidanceInjectedPayload
from harborage.llm import ChatMessage, CompleteRequest, Content, Role
from harborage.planner.artifacts import materialize_input_content
from harborage.planner.context import RunContext, effective_reasoning_replay, publish
from harborage.planner.enums import ReasoningReplayMode
from harborage.planner.react.blocks import background_results, changed_artifacts, context_blocks, resumed
from harborage.planner.react.guidance import GuidanceLine, guidance_lines
from harborage.planner.react.limits import near_limit
from harborage.planner.react.memo import kept_with
from harborage.planner.react.names import ARTIFACT_FETCH_TOOL_NAME, DEFAULT_MAX_TOOL_EXAMPLES, DEFAULT_SYSTEM_PROMPT
from harborage.planner.react.rendering import one_line, text_content
from harborage.planner.react.replay import Replay
from harborage.planner.react.sections import default_sections, planning_constraints, section
from harborage.planner.react.toolbox import toolbox_of

if TYPE_CHECKING:
    from harborage.planner.react.toolbox import Toolbox
    from harborage.planner.trajectory import BackgroundResult, Trajectory, TrajectorySummary
    from harborage.planner.views import InputArtifactView
    from harborage.tools import Tool

__all__ = ["DefaultPromptBuilder", "PromptBuilder"]

_NO_GOAL: Final = "(no goal was given)"


@runtime_checkable
class PromptBuilder(Protocol):
    """Turns a step's context into a request. One instance serves many runs at once."""

    def build(self, run: RunContext, system_prompt: str) -> CompleteRequest:
        """The request for this step, without tools and streaming, which the planner adds. The model is left unset.

        Raises:
            MemoryBlockUnserializableError: something meant for the prompt cannot become JSON. Never: changes `run`.
        """
        ...


class DefaultPromptBuilder:
    """The built-in prompt: tagged system sections, framed data, the goal, and the history as a conversation.

    `extra` is the operator's own guidance. Tools are listed by name and description, each with at most
    `max_tool_examples` of its examples; the declarations carry the schemas.
    """

    def __init__(
        self,
        *,
        extra: str = "",
        reasoning_replay: ReasoningReplayMode = ReasoningReplayMode.NEVER,
        max_tool_examples: int = DEFAULT_MAX_TOOL_EXAMPLES,
    ) -> None:
        self._extra = extra.strip()
        self._reasoning_replay = reasoning_replay
        self.max_tool_examples = max_tool_examples if max_tool_examples > 0 else DEFAULT_MAX_TOOL_EXAMPLES

    def build(self, run: RunContext, system_prompt: str) -> CompleteRequest:
        """The request for this step.

        Raises:
            MemoryBlockUnserializableError: something meant for the prompt cannot become JSON.
        """
        guidance = guidance_lines(run.repair_counters)
        tools = toolbox_of(run)
        can_fetch = ARTIFACT_FETCH_TOOL_NAME in tools.names
        messages = [self._system(run, system_prompt, guidance, tools)]
        messages += [_system(text) for text in context_blocks(run, can_fetch=can_fetch)]
        messages.append(kept_with(run.trajectory, "react.first", _First).message(run))
        if run.trajectory is not None:
            messages += self._history(run, run.trajectory, can_fetch)
        if changed := changed_artifacts(run, can_fetch=can_fetch):
            messages.append(_user(changed))
        warning = near_limit(run.budget, run.now())
        if warning:
            messages.append(_user(warning))  # last: what comes before it stays what the provider has kept
        # Told last: a prompt that could not be built was not sent.
        _announce(run, guidance)
        return CompleteRequest(messages=messages)

    def _system(self, run: RunContext, system_prompt: str, guidance: list[GuidanceLine], tools: Toolbox) -> ChatMessage:
        is_default = not system_prompt or system_prompt == DEFAULT_SYSTEM_PROMPT
        return _system_message(
            "" if is_default else system_prompt,
            run.now().date().isoformat() if is_default else "",
            tools.names,
            tools.listed(self.max_tool_examples),
            "\n\n".join(text for text in (self._extra, "\n".join(line.text for line in guidance)) if text),
            planning_constraints(run.planning_hints),
        )

    def _history(self, run: RunContext, trajectory: Trajectory, can_fetch: bool) -> list[ChatMessage]:
        mode = effective_reasoning_replay(run, self._reasoning_replay)
        name = f"react.replay.{mode}.{can_fetch}"
        messages = kept_with(trajectory, name, lambda: Replay(mode, can_fetch=can_fetch)).messages(trajectory)
        if trajectory.resume_hint is not None and not _has_noted_resume(trajectory):
            messages.append(_user(resumed(trajectory.resume_hint.resume_payload)))
        if trajectory.background:
            messages.append(kept_with(trajectory, "react.background", _Background).message(trajectory))
        return messages


@lru_cache(maxsize=64)
def _system_message(
    prompt: str, day: str, tools: frozenset[str], listed: str, said: str, constraints: str
) -> ChatMessage:
    """The first message. It is the same for most steps of most runs, which share it: it is the longest one by far."""
    parts = [prompt] if prompt else default_sections(day, tools)
    parts.append(section("available_tools", listed))
    if said:
        parts.append(section("additional_guidance", said))
    if constraints:
        parts.append(section("planning_constraints", constraints))
    return _system("\n\n".join(parts))


class _Background:
    """The message about ended background groups, made anew only when another group has ended."""

    __slots__ = ("_message", "_results")

    def __init__(self) -> None:
        self._results: tuple[BackgroundResult, ...] = ()
        self._message: ChatMessage | None = None

    def message(self, trajectory: Trajectory) -> ChatMessage:
        results = tuple(trajectory.background.values())
        if self._message is None or not _are(results, self._results):
            members = (
                f"{codec.encode_text(name)}:{codec.encode_text(trajectory.background[name])}"
                for name in sorted(trajectory.background)
            )
            self._results, self._message = results, _user(background_results(list(members)))
        return self._message


class _First:
    """The user's message: the goal, what a summary keeps of earlier steps, and what the user attached.

    It is in every request, pictures included, so it is made anew only when something in it has changed.
    """

    __slots__ = ("_artifacts", "_message", "_text", "_tools")

    def __init__(self) -> None:
        self._text = ""
        self._artifacts: Sequence[InputArtifactView] = ()
        self._tools: list[Tool] = []
        self._message: ChatMessage | None = None

    def message(self, run: RunContext) -> ChatMessage:
        text = _first_text(run)
        # What stands for a file names the tool that reads it.
        tools = run.catalog.list() if run.input_artifacts and run.catalog is not None else []
        is_known = text == self._text and _are(run.input_artifacts, self._artifacts) and _are(tools, self._tools)
        if self._message is None or not is_known:
            self._text, self._artifacts, self._tools = text, tuple(run.input_artifacts), tools
            self._message = ChatMessage(Role.USER, _first_content(text, run))
        return self._message


def _first_content(text: str, run: RunContext) -> Content:
    said = text_content(text)
    if said.parts is None:
        return materialize_input_content(text, run.input_artifacts, run.catalog)
    attached = materialize_input_content("", run.input_artifacts, run.catalog)
    return Content(parts=(*said.parts, *(attached.parts or ())))


def _first_text(run: RunContext) -> str:
    text = f"Goal:\n{run.goal or run.query or _NO_GOAL}"
    summary = None if run.trajectory is None else run.trajectory.summary
    return text if summary is None else f"{text}\n\n" + "\n".join(_summary_lines(summary))


def _summary_lines(summary: TrajectorySummary) -> list[str]:
    parts = (
        ("Goals", "; ".join(summary.goals)),
        ("Facts", "; ".join(summary.facts)),
        ("Pending", "; ".join(summary.pending)),
        ("Last output", one_line(summary.last_output_digest)),
        ("Note", one_line(summary.note)),
    )
    return ["What earlier steps of this run came to:", *(f"{label}: {text}" for label, text in parts if text)]


def _has_noted_resume(trajectory: Trajectory) -> bool:
    """Whether the answer to the last pause is in the history, where it stays after the hint is gone."""
    now = len(trajectory.steps)
    return any(one.kind == "resumed" and one.at_step == now for one in trajectory.steering_inputs)


def _are(these: Sequence[object], those: Sequence[object]) -> bool:
    """Whether both hold the very same objects."""
    return len(these) == len(those) and all(map(is_, these, those))


def _announce(run: RunContext, guidance: list[GuidanceLine]) -> None:
    for line in guidance:
        injected = RepairGuidanceInjectedPayload(
            identity=run.quadruple,
            tier=str(line.tier),
            counter=line.counter,
            count=line.count,
            occurred_at=run.now(),
        )
        publish(run, EventType.PLANNER_REPAIR_GUIDANCE_INJECTED, injected)


def _system(text: str) -> ChatMessage:
    return ChatMessage(Role.SYSTEM, text_content(text))


def _user(text: str) -> ChatMessage:
    return ChatMessage(Role.USER, text_content(text))
