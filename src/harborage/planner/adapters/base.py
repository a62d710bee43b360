"""What all adapters share: the planner around a framework's one turn, what adapting an agent gives, and its errors.

Every adapter makes the same three things of an agent: a planner, tool descriptors and approval policies. The part of
the framework in a step is a `Turn`: the model's answer in this package's words. A run's history becomes neutral chat
messages: every call is followed by its answer, and each control comes where it arrived. The messages of finished steps
are built once and memoized on the trajectory; no planner holds state of a run. No framework is imported here.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import msgspec

from harborage.errors import MissingExtraError
from harborage.events import EventType, LLMCost, LLMCostRecordedPayload, LLMUsage
from harborage.llm import ArtifactStub, ChatMessage, Content, Role
from harborage.llm.content import Part, TextPart
from harborage.planner.context import (
    OnChunk,
    RunContext,
    effective_reasoning_replay,
    publish,
    raise_if_cancelled,
    require_identity,
)
from harborage.planner.decisions import (
    CallParallel,
    CallTool,
    ChunkKind,
    Decision,
    Finish,
    FinishReason,
    ReasoningReplayMode,
    WakeMode,
    parallel_observation,
)
from harborage.planner.errors import InvalidConfigError, PlannerError
from harborage.planner.react.blocks import render_changed_artifacts, render_context_blocks
from harborage.planner.react.tools import ARTIFACT_FETCH_TOOL_NAME, get_tool_names
from harborage.planner.react.transcript import build_history, render_summary
from harborage.planner.views import materialize_input_content
from harborage.tools import CallContext, ErrorClass, Tool, ToolBody, ToolDescriptor, ToolOptions, ToolPolicy, ToolResult
from harborage.tools.function import tool_fields

if TYPE_CHECKING:
    from harborage.planner.context import Planner
    from harborage.planner.trajectory import Step, Trajectory

GatePolicy: TypeAlias = Callable[[Any], bool | tuple[bool, str] | Awaitable[bool | tuple[bool, str]]]
"""Returns whether one call needs a person's approval; takes the request of an approval gate (`tool`, `args`, …)."""


_ONCE: Final = ToolPolicy(max_retries=0)
"""Frameworks show a failed call to the model and repeat nothing by themselves."""


class AdapterError(PlannerError):
    """An agent of another framework could not be run as a planner."""


class AdapterUnsupportedError(AdapterError):
    """This agent cannot be cut into steps. `framework` and `what` name the part; the message says what to do."""

    def __init__(self, framework: str = "", what: str = "", why: str = "") -> None:
        self.framework = framework
        self.what = what
        super().__init__(f"{framework}: {what} cannot be run one decision a step: {why}")


class AdapterToolError(AdapterError):
    """A framework's tool refused its call, or asked for something that only its own framework does."""

    error_class: ClassVar[ErrorClass] = ErrorClass.PERMANENT


class ApprovalsNotTakenError(AdapterToolError):
    """A tool that asks for approval was called by a runtime that was not given `Adapted.approvals`."""

    had_no_effect: ClassVar[bool] = True

    def __init__(self, tool: str = "") -> None:
        self.tool = tool
        super().__init__(
            f"tool {tool!r} asks for approval in its framework, and this runtime has no policy for it; "
            "pass approvals=adapted.approvals to the runtime"
        )


class ApprovalGates:
    """The approval policies of an agent's own tools, and whether a program has taken them over."""

    def __init__(self, policies: Mapping[str, GatePolicy]) -> None:
        self.policies = dict(policies)
        self.are_taken = False

    def guard(self, name: str, body: ToolBody) -> ToolBody:
        """Return `body`, made to refuse its call until a program has taken over the approvals that it needs."""
        if name not in self.policies:
            return body

        async def call(args: bytes, context: CallContext) -> ToolResult:
            if not self.are_taken:
                raise ApprovalsNotTakenError(name)
            return await body(args, context)

        return call


class Adapted:
    """An agent of another framework, ready for `Runtime(planner=…, tools=…, approvals=…)` and `Agent(…)`.

    `planner` serves any number of runs at once. `tools` are the agent's own tools; add others beside them as you like.
    """

    def __init__(self, planner: Planner, tools: Sequence[ToolDescriptor], gates: ApprovalGates) -> None:
        self.planner = planner
        self.tools = tuple(tools)
        self._gates = gates

    @property
    def approvals(self) -> dict[str, GatePolicy]:
        """An approval policy for each tool that asks for approval in its framework; empty when none does.

        Give these to the runtime, alone or beside your own. A tool that asks for approval refuses to run until this has
        been read, so that a program that forgets it opens nothing.
        """
        self._gates.are_taken = True
        return dict(self._gates.policies)


def always_ask(request: Any) -> tuple[bool, str]:
    """Require approval of every call: the policy of a tool that its framework always holds back."""
    return True, "the agent's own definition of this tool asks for approval"


def make_adapted(
    planner: Planner,
    tools: Sequence[tuple[Tool, ToolBody]],
    policies: Mapping[str, GatePolicy],
    options: Mapping[str, ToolOptions] | None,
) -> Adapted:
    """Return an adapted agent: its planner, and its tools with the program's options and behind their approvals.

    Raises:
        InvalidConfigError: `options` name a tool that the agent does not have.
    """
    given = dict(options or {})
    unknown = sorted(given.keys() - {tool.name for tool, _ in tools})
    if unknown:
        raise InvalidConfigError(f"tool_options name tools that the agent does not have: {', '.join(unknown)}")
    gates = ApprovalGates(policies)
    descriptors = [
        ToolDescriptor(
            tool=msgspec.structs.replace(tool, **{"policy": _ONCE, **tool_fields(tool.name, given.get(tool.name, {}))}),
            body=gates.guard(tool.name, body),
            approval=given.get(tool.name, {}).get("approval"),
        )
        for tool, body in tools
    ]
    return Adapted(planner, descriptors, gates)


def import_framework(module: str, extra: str) -> Any:
    """Import and return a module of the framework that `extra` installs.

    Raises:
        MissingExtraError: the framework is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A dependency that the framework itself lacks is its own error, not a missing extra.
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingExtraError(extra, f"the {extra} adapter") from error


class TurnUsage(msgspec.Struct, frozen=True):
    """The usage of one turn's model calls; `cost` is in US dollars, None where the framework knows no price."""

    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None


class Turn(msgspec.Struct, frozen=True):
    """One turn of an agent's model: the calls it asks for, or how the run ends. `text` came beside the calls."""

    calls: Sequence[CallTool] = ()
    finish: Finish | None = None
    text: str = ""
    reasoning: str = ""
    usage: Sequence[TurnUsage] = ()

    def decision(self) -> Decision:
        """Return the one decision that this turn means."""
        if self.finish is not None:
            return self.finish
        return self.calls[0] if len(self.calls) == 1 else CallParallel(tuple(self.calls))


class ChunkStream:
    """Passes on to a run's `on_chunk` what a framework streams. Without a callback it does nothing."""

    __slots__ = ("_has_reasoning", "_is_begun", "_on_chunk")

    def __init__(self, on_chunk: OnChunk | None) -> None:
        self._on_chunk = on_chunk
        self._is_begun = False
        self._has_reasoning = False

    def __bool__(self) -> bool:
        return self._on_chunk is not None

    def add_text(self, delta: str) -> None:
        """Pass on a piece of the answer's text."""
        self._pass_on(delta, ChunkKind.CONTENT)

    def add_reasoning(self, delta: str) -> None:
        """Pass on a piece of the reasoning before it."""
        self._has_reasoning = self._has_reasoning or bool(delta)
        self._pass_on(delta, ChunkKind.REASONING)

    def restart(self) -> None:
        """Void what was streamed so far: the model is asked again within the step."""
        if self._on_chunk is not None and self._is_begun:
            self._on_chunk("", False, ChunkKind.RESET)
        self._is_begun = False

    def close(self) -> None:
        """Mark the streams as done."""
        if self._on_chunk is None:
            return
        if self._has_reasoning:
            self._on_chunk("", True, ChunkKind.REASONING)
        self._on_chunk("", True, ChunkKind.CONTENT)

    def _pass_on(self, delta: str, kind: ChunkKind) -> None:
        if self._on_chunk is not None and delta:
            self._is_begun = True
            self._on_chunk(delta, False, kind)


TakeTurn: TypeAlias = Callable[[RunContext, ChunkStream], Awaitable[Turn]]
"""Lets a framework's agent take one turn on a run's history, without calling any tool."""


class OneTurnPlanner:
    """Asks a framework's agent for one turn a step. Keeps nothing about any run; serves any number at once."""

    def __init__(self, name: str, take_turn: TakeTurn) -> None:
        self.name = name
        self._take_turn = take_turn

    def wake_mode(self) -> WakeMode:
        """`push`: the runtime asks again when background work has ended."""
        return WakeMode.PUSH

    async def next(self, run: RunContext) -> Decision:
        """Return the decision for this step.

        Raises:
            asyncio.CancelledError: the caller was cancelled; the model is not called.
            IdentityMissingError: a part of the run's identity is empty.
            Exception: what the framework or its model raised, as it is.
        """
        raise_if_cancelled()
        require_identity(run, f"the {self.name} adapter")
        ended = self._ended(run)
        if ended is not None:
            return ended
        chunks = ChunkStream(run.on_chunk)
        try:
            turn = await self._take_turn(run, chunks)
        finally:
            chunks.close()
        self._report(run, turn)
        return turn.decision()

    def _ended(self, run: RunContext) -> Finish | None:
        """Return the finish of a run that ends without asking the model, else None."""
        if run.control.cancelled:
            return Finish(FinishReason.CANCELLED, None, {"steering": "cancelled", "via": self.name})
        deadline = run.budget.deadline
        if deadline is not None and run.now() >= deadline:
            return Finish(FinishReason.DEADLINE_EXCEEDED, None, {"deadline": deadline.isoformat(), "via": self.name})
        return None

    def _report(self, run: RunContext, turn: Turn) -> None:
        if run.on_reasoning is not None:
            run.on_reasoning(turn.reasoning)
        if run.on_assistant_content is not None:
            run.on_assistant_content(turn.text)
        for usage in turn.usage:
            publish(run, EventType.LLM_COST_RECORDED, _cost_payload(run, usage))


def make_finish(payload: Any, via: str, **metadata: Any) -> Finish:
    """Return the finish for an agent's final output; an empty output means that there is no path."""
    if payload is None or payload == "":
        return Finish(FinishReason.NO_PATH, None, {"followup": True, "via": via, **metadata})
    return Finish(FinishReason.GOAL, payload, {"goal_reach": True, "via": via, **metadata})


def _cost_payload(run: RunContext, usage: TurnUsage) -> LLMCostRecordedPayload:
    return LLMCostRecordedPayload(
        identity=run.quadruple,
        model=usage.model,
        cost=LLMCost(total_cost=usage.cost or 0.0),
        usage=LLMUsage(
            prompt_tokens=usage.input_tokens,
            completion_tokens=usage.output_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            total_tokens=usage.input_tokens + usage.output_tokens,
        ),
        occurred_at=run.now(),
    )


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
