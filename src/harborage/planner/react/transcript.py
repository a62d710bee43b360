"""A history as chat messages: each call with its answer, and each control at its place.

The messages of a finished step are built once and memoized on the trajectory. Every call is answered exactly once,
directly after the message that made it, under an id that no other call of the request has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.llm import ChatMessage, Content, Role, ToolCallStructured
from harborage.planner.decisions import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    ReasoningReplayMode,
    SpawnTask,
)
from harborage.planner.react.blocks import (
    PLACEHOLDER,
    render_background_results,
    render_branches,
    render_injected_context,
    render_observation,
    render_resume_answer,
)
from harborage.planner.react.tools import (
    ARTIFACT_FETCH_TOOL_NAME,
    AWAIT_TASK_TOOL_NAME,
    SPAWN_TASK_TOOL_NAME,
    are_same,
)
from harborage.planner.text import one_line, to_content
from harborage.planner.trajectory import StepCursor, memoize_on
from harborage.planner.views import materialize_input_content, pictures_of

if TYPE_CHECKING:
    from harborage.planner.trajectory import BackgroundResult, SteeringInjection, Step, Trajectory, TrajectorySummary
    from harborage.planner.views import InputArtifactView

_log = logging.getLogger(__name__)

_REASONING_LABEL: Final = "Reasoning:"
# Members of an enum are slow to reach.
_ASSISTANT: Final = Role.ASSISTANT
_TOOL: Final = Role.TOOL


def build_history(
    trajectory: Trajectory,
    mode: ReasoningReplayMode,
    *,
    can_fetch: bool = True,
    pictures: Mapping[str, InputArtifactView] = {},
) -> list[ChatMessage]:
    """Return a history as messages, followed by the answer to the last pause and the ended background groups.

    `can_fetch` says that the model has a tool to read stored artifacts with. A result that refers to one of the
    `pictures` is followed by it.

    Raises:
        MemoryBlockUnserializableError: something in it cannot become JSON.
    """
    name = f"react.transcript.{mode}.{can_fetch}"
    transcript = memoize_on(trajectory, name, lambda: Transcript(mode, can_fetch=can_fetch))
    messages = transcript.messages(trajectory, pictures)
    if trajectory.resume_hint is not None and not _has_resume_answer(trajectory):
        answer = render_resume_answer(trajectory.resume_hint.resume_payload)
        messages.append(ChatMessage(Role.USER, to_content(answer)))
    if trajectory.background:
        messages.append(memoize_on(trajectory, "react.background", _Background).message(trajectory))
    return messages


def render_summary(summary: TrajectorySummary) -> str:
    """Return the text that takes the place of the steps that were summarised."""
    parts = (
        ("Goals", "; ".join(summary.goals)),
        ("Facts", "; ".join(summary.facts)),
        ("Pending", "; ".join(summary.pending)),
        ("Last output", one_line(summary.last_output_digest)),
        ("Note", one_line(summary.note)),
    )
    lines = (f"{label}: {text}" for label, text in parts if text)
    return "\n".join(("What earlier steps of this run came to:", *lines))


class Transcript:
    """The conversation of one trajectory, in one mode of replaying reasoning, for a model that can fetch or cannot."""

    __slots__ = ("_can_fetch", "_cursor", "_ids", "_inputs", "_is_reasoning_shown", "_messages")

    def __init__(self, mode: ReasoningReplayMode, *, can_fetch: bool = True) -> None:
        self._can_fetch = can_fetch
        self._is_reasoning_shown = mode is ReasoningReplayMode.TEXT
        self._cursor = StepCursor()
        self._messages: list[ChatMessage] = []
        self._ids: set[str] = set()
        self._inputs = 0

    def messages(self, trajectory: Trajectory, pictures: Mapping[str, InputArtifactView] = {}) -> list[ChatMessage]:
        """Return the messages of every step that no summary covers, then the controls since the last step.

        Raises:
            MemoryBlockUnserializableError: injected context cannot become JSON.
        """
        first = trajectory.steps_summarised if trajectory.summary is not None else 0
        if not self._cursor.follows(trajectory.steps, min(first, len(trajectory.steps))):
            self._restart(trajectory, first)
        inputs = trajectory.steering_inputs
        for index in range(self._cursor.count, len(trajectory.steps)):
            self._take_inputs(inputs, index)
            self._messages += self._step_messages(trajectory.steps[index], index)
            if pictures:
                self._messages += _render_pictures(trajectory.steps[index], pictures)
            self._cursor.advance()
        return [*self._messages, *(render_steering(one) for one in inputs[self._inputs :])]

    def _restart(self, trajectory: Trajectory, first: int) -> None:
        self._cursor.restart(trajectory.steps, first)
        self._messages, self._ids, self._inputs = [], set(), 0
        for one in trajectory.steering_inputs:
            # Earlier controls are in the summary.
            if one.at_step >= first:
                break
            self._inputs += 1

    def _take_inputs(self, inputs: Sequence[SteeringInjection], index: int) -> None:
        while self._inputs < len(inputs) and inputs[self._inputs].at_step <= index:
            self._messages.append(render_steering(inputs[self._inputs]))
            self._inputs += 1

    def _step_messages(self, step: Step, index: int) -> Iterable[ChatMessage]:
        match step.action:
            case CallParallel(branches=branches) if branches:
                wanted = [(call.tool, call.args, call.call_id) for call in branches]
                return self._render_calls(
                    step, index, wanted, render_branches(step, len(branches), can_fetch=self._can_fetch)
                )
            case CallTool(tool=tool, args=args, call_id=call_id):
                return self._render_calls(
                    step, index, [(tool, args, call_id)], [render_observation(step, can_fetch=self._can_fetch)]
                )
            case SpawnTask() as spawn:
                wanted = [(SPAWN_TASK_TOOL_NAME, _encode_spawn_args(spawn), "")]
                return self._render_calls(step, index, wanted, [render_observation(step, can_fetch=self._can_fetch)])
            case AwaitTask(task_id=task_id):
                wanted = [(AWAIT_TASK_TOOL_NAME, codec.encode({"task_id": task_id}), "")]
                return self._render_calls(step, index, wanted, [render_observation(step, can_fetch=self._can_fetch)])
            case None:
                return self._render_observation_alone(step)
            case other:
                return self._describe_step(step, index, other)

    def _render_calls(
        self, step: Step, index: int, wanted: Sequence[tuple[str, bytes, str]], bodies: Sequence[str]
    ) -> list[ChatMessage]:
        """The assistant's message with its calls, and one answer to each of them."""
        is_lone = len(wanted) == 1 and not isinstance(step.action, CallParallel)
        calls: list[ToolCallStructured] = []
        for at, (tool, args, call_id) in enumerate(wanted):
            own = f"react.callid.{index}" if is_lone else f"react.callid.{index}.{at}"
            calls.append(ToolCallStructured(self._unique_id(call_id, own), tool or "unnamed", _to_object(args), at))
        text = self._render_text(step)
        messages = [ChatMessage(_ASSISTANT, to_content(text) if text else Content(), tool_calls=tuple(calls))]
        for call, body in zip(calls, bodies, strict=True):
            _warn_if_missing(body, index)
            # A fetched artifact is meant to be read here; any other result of that size has leaked into the prompt.
            answer = to_content(body) if call.name == ARTIFACT_FETCH_TOOL_NAME else Content(text=body)
            messages.append(ChatMessage(_TOOL, answer, name=call.name, tool_call_id=call.id))
        return messages

    def _describe_step(self, step: Step, index: int, action: Any) -> Iterator[ChatMessage]:
        """Return a decision that is no call, and its outcome, as texts."""
        decision = codec.encode_text(_describe_decision(action))
        reasoning = self._render_reasoning(step)
        yield ChatMessage(Role.ASSISTANT, to_content(f"{reasoning}\n\n{decision}" if reasoning else decision))
        body = render_observation(step, can_fetch=self._can_fetch)
        _warn_if_missing(body, index)
        yield ChatMessage(Role.USER, Content(text=body))

    def _render_observation_alone(self, step: Step) -> Iterator[ChatMessage]:
        body = render_observation(step, can_fetch=self._can_fetch)
        if body != PLACEHOLDER:
            yield ChatMessage(Role.USER, Content(text=body))

    def _render_text(self, step: Step) -> str:
        return "\n\n".join(text for text in (step.assistant_preamble, self._render_reasoning(step)) if text.strip())

    def _render_reasoning(self, step: Step) -> str:
        if not self._is_reasoning_shown or not step.reasoning_trace.strip():
            return ""
        return f"{_REASONING_LABEL}\n{step.reasoning_trace}"

    def _unique_id(self, given: str, own: str) -> str:
        """Return an id for a call: the provider's, or an own one where there is none or another call has it."""
        chosen = given if given and given not in self._ids else own
        while chosen in self._ids:
            chosen += "+"
        self._ids.add(chosen)
        return chosen


def _render_pictures(step: Step, pictures: Mapping[str, InputArtifactView]) -> Iterator[ChatMessage]:
    """The pictures that the results of a step refer to, in a message of their own: not every provider takes them in the
    answer to a call."""
    shown = [pictures[one] for one in pictures_of(step) if one in pictures]
    if shown:
        parts = materialize_input_content(f"Returned: {', '.join(one.id for one in shown)}", shown, None)
        yield ChatMessage(Role.USER, parts)


class _Background:
    """The message about ended background groups, made again only when another group has ended."""

    __slots__ = ("_message", "_results")

    def __init__(self) -> None:
        self._results: tuple[BackgroundResult, ...] = ()
        self._message: ChatMessage | None = None

    def message(self, trajectory: Trajectory) -> ChatMessage:
        results = tuple(trajectory.background.values())
        if self._message is None or not are_same(results, self._results):
            members = (
                f"{codec.encode_text(name)}:{codec.encode_text(trajectory.background[name])}"
                for name in sorted(trajectory.background)
            )
            self._results, self._message = (
                results,
                ChatMessage(Role.USER, to_content(render_background_results(list(members)))),
            )
        return self._message


def _has_resume_answer(trajectory: Trajectory) -> bool:
    """Whether the answer to the last pause is in the history, where it stays after the hint is gone."""
    now = len(trajectory.steps)
    return any(one.kind == "resumed" and one.at_step == now for one in trajectory.steering_inputs)


def render_steering(injection: SteeringInjection) -> ChatMessage:
    """Return a control as a message of the user; a person's own words are passed on verbatim.

    Raises:
        MemoryBlockUnserializableError: injected context cannot become JSON.
    """
    return ChatMessage(Role.USER, to_content(_render_steering_text(injection)))


def _render_steering_text(injection: SteeringInjection) -> str:
    match injection.kind, injection.payload:
        case "user_message", {"message": str(message)}:
            return message if message.strip() else "(an empty message)"
        case "redirect", {"goal": str(goal)}:
            return f"The goal has changed. From here on it is:\n{goal}"
        case "resumed", answer:
            return render_resume_answer(answer)
        case _:
            return render_injected_context(injection.payload)


_NOT_A_MODELS: Final = frozenset({"agent", "output"})
"""What the runtime fills in, and a model does not, when it spawns a task."""


def _encode_spawn_args(spawn: SpawnTask) -> bytes:
    spec = {name: getattr(spawn.spec, name) for name in spawn.spec.__struct_fields__ if name not in _NOT_A_MODELS}
    group = {"group_id": spawn.group_id} if spawn.group_id else {}
    return codec.encode({"kind": spawn.kind or "background", "spec": spec, **group})


def _to_object(args: bytes) -> bytes:
    """Return the arguments as the JSON object that providers require; anything else is wrapped in one."""
    if not args.strip():
        return b"{}"
    try:
        _object.decode(args)
    except (msgspec.DecodeError, RecursionError):
        return codec.encode({"invalid_arguments": args.decode("utf-8", "replace")})
    return args


_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _describe_decision(action: Any) -> dict[str, str]:
    match action:
        case Finish():
            return {"action": "finish", "reason": str(action.reason)}
        case {"type": str(kind)}:
            return {"action": kind}
        case _:
            return {"action": type(action).__name__}


def _warn_if_missing(body: str, index: int) -> None:
    if body == PLACEHOLDER:
        note = {"action": "react.replay", "step": index}
        _log.warning("step %d has no observation; the model is shown a placeholder", index, extra=note)
