"""The reference planner: it shows a model the goal, the tools and the history, and takes its answer as the decision.

One call of the model a step, unless the answer cannot be used and is asked for again. A run that is out of steps gets
one more turn in which the model may only answer, so that what it found is not lost. The planner keeps nothing about any
run: what a step needs is in its context, and what it worked out is beside the trajectory.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.callables import require_async, require_sync
from harborage.events import DecisionPayload, EventType, MaxStepsExceededPayload
from harborage.llm import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    LLMClient,
    Role,
    ToolCallStructured,
    ToolChoice,
)
from harborage.planner.context import publish, raise_if_cancelled, require_identity
from harborage.planner.decisions import (
    ABSOLUTE_MAX_PARALLEL,
    CallTool,
    Decision,
    Finish,
    FinishReason,
    ReasoningReplayMode,
    WakeMode,
    decision_kind,
)
from harborage.planner.errors import InvalidConfigError
from harborage.planner.react.guidance import (
    count_declarative_outcome,
    count_refused_args,
    is_declarative_action,
    is_tool_call,
    update_counters,
)
from harborage.planner.react.projection import Projected, UnusableCallError, project, response_format
from harborage.planner.react.prompt import DEFAULT_SYSTEM_PROMPT, DefaultPromptBuilder, PromptBuilder
from harborage.planner.react.tools import DEFAULT_MAX_TOOL_EXAMPLES, declare_tools, find_discovered_tools
from harborage.planner.repair import (
    DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES,
    DEFAULT_REPAIR_ATTEMPTS,
    Attempts,
    RepairLimits,
    RepairSignals,
    add_correction,
    call_model,
)
from harborage.planner.repair.attempts import reset_stream, with_stream
from harborage.planner.text import printable_name, to_content, truncate

if TYPE_CHECKING:
    from harborage.planner.answers import AnswerFormat
    from harborage.planner.config import FactoryDeps, PlannerConfig
    from harborage.planner.context import RunContext

DRIVER_NAME: Final = "react"
"""The planner's name in configuration."""

DEFAULT_MAX_STEPS: Final = 12
"""The number of steps in a history at which the planner ends the run, by default."""

_ARGS_SHOWN_BYTES: Final = 512
_NOTHING_REPAIRED: Final = RepairSignals()


class _Answer(msgspec.Struct, frozen=True):
    """The model's last answer, the decision in it, and what had to be repaired."""

    response: CompleteResponse
    projected: Projected
    repaired: RepairSignals


class _Counted(msgspec.Struct, frozen=True):
    """Which mistakes of the last step were counted: those of a declarative action, and refused arguments."""

    declarative: bool
    refused: bool


class ReActPlanner:
    """Asks a model with native tool calls for each step. One instance serves any number of runs at once.

    `max_steps` is the length of a history at which a run ends with `no_path`, after a last turn in which the model may
    only answer; a run with fewer steps of its own ends when it has used those. `repair_attempts`,
    `max_consecutive_arg_failures` and `arg_fill_enabled` limit how often the model is asked again within a step after
    an answer that means no decision; with `arg_fill_enabled=False` such an answer fails the run. `prompt_builder`
    replaces the built-in prompt, and with it `reasoning_replay`, `max_tool_examples_per_tool` and
    `system_prompt_extra`. `parallel_tool_calls=False` makes the calls of one answer one after the other.
    `system_prompt` replaces the built-in sections up to the list of tools. A model is shown the schema of `answer`, and
    asked again within a step after an answer of another form. A number that is not positive and an empty text mean the
    default.

    Raises:
        InvalidConfigError: there is no client, or the replay mode is unknown.
        CallbackKindError: the builder is async, or the client is not.
    """

    def __init__(
        self,
        client: LLMClient,
        *,
        max_steps: int = DEFAULT_MAX_STEPS,
        repair_attempts: int = DEFAULT_REPAIR_ATTEMPTS,
        max_consecutive_arg_failures: int = DEFAULT_MAX_CONSECUTIVE_ARG_FAILURES,
        arg_fill_enabled: bool = True,
        prompt_builder: PromptBuilder | None = None,
        reasoning_replay: ReasoningReplayMode | str = ReasoningReplayMode.NEVER,
        max_tool_examples_per_tool: int = DEFAULT_MAX_TOOL_EXAMPLES,
        parallel_tool_calls: bool = True,
        system_prompt: str = "",
        system_prompt_extra: str = "",
        answer: AnswerFormat | None = None,
    ) -> None:
        if client is None:
            raise InvalidConfigError("the react planner needs a model client")
        require_async(client.complete, "client.complete")
        self._client = client
        self._max_steps = max_steps if max_steps > 0 else DEFAULT_MAX_STEPS
        self._limits = RepairLimits(
            repair_attempts=repair_attempts,
            max_consecutive_arg_failures=max_consecutive_arg_failures,
            arg_fill_enabled=arg_fill_enabled,
        )
        if prompt_builder is None:
            prompt_builder = DefaultPromptBuilder(
                extra=_with_schema(system_prompt_extra, answer),
                reasoning_replay=_replay_mode(reasoning_replay),
                max_tool_examples=max_tool_examples_per_tool,
            )
        require_sync(prompt_builder.build, "prompt_builder.build")
        self._builder = prompt_builder
        self._is_parallel = parallel_tool_calls
        self._answer = answer
        self._response_format = None if answer is None else response_format(answer)
        self._system_prompt = system_prompt or DEFAULT_SYSTEM_PROMPT
        self._steps_taken = 0

    @property
    def ends_at_step_limit(self) -> bool:
        """True: when it is called once more after the last step of a run, it finishes."""
        return True

    @property
    def steps_taken(self) -> int:
        """How many decisions this instance has returned, over all runs; finishes at a limit do not count."""
        return self._steps_taken

    def wake_mode(self) -> WakeMode:
        """`push`: the runtime asks again when background work has ended, and the prompt shows the result."""
        return WakeMode.PUSH

    async def next(self, run: RunContext) -> Decision:
        """Return the decision for this step.

        Raises:
            asyncio.CancelledError: the caller was cancelled; the model is not called.
            IdentityMissingError: a part of the run's identity is empty.
            MemoryBlockUnserializableError: something meant for the prompt cannot become JSON.
            InvalidDecisionError: the answer means no decision, and repairing is switched off.
            Exception: what the model's client raised, as it is.
        """
        raise_if_cancelled()
        require_identity(run, "the react planner")
        if not has_steps_left(run, self._max_steps):
            return await self._finish_at_limit(run)
        ended = finish_if_stopped(run)
        if ended is not None:
            return ended
        was_refused = count_refused_args(run)
        counted = _Counted(count_declarative_outcome(run), was_refused)
        decision = self._take_pending_call(run, counted) if run.pending_tool_calls else await self._decide(run, counted)
        self._steps_taken += 1
        return decision

    async def _finish_at_limit(self, run: RunContext) -> Finish:
        """Return the finish of a run without steps left, with its model's last answer; a stopped run asks no model."""
        answer = None
        if finish_if_stopped(run) is None:
            answer = await call_model(run, self._client, require_answer(self._make_request(run)))
            _report(run, answer)
        return finish_at_step_limit(run, self._max_steps, answer)

    def _take_pending_call(self, run: RunContext, counted: _Counted) -> Decision:
        """Return the first call that is left from an earlier answer, without asking the model."""
        head, *rest = run.pending_tool_calls
        decision = CallTool(head.name, head.args, head.call_id)
        _update_counters(run, decision, _NOTHING_REPAIRED, counted)
        _publish_decision(run, decision, "")
        if run.on_pending_tool_calls is not None:
            run.on_pending_tool_calls(tuple(rest))
        return decision

    async def _decide(self, run: RunContext, counted: _Counted) -> Decision:
        answer = await self._ask_model(run, self._make_request(run))
        decision, response = answer.projected.decision, answer.response
        if run.on_pending_tool_calls is not None:
            run.on_pending_tool_calls(answer.projected.pending)
        _update_counters(run, decision, answer.repaired, counted)
        _publish_decision(run, decision, response.reasoning)
        _report(run, response)
        return decision

    def _make_request(self, run: RunContext) -> CompleteRequest:
        known = find_discovered_tools(run)
        shown = run
        if known:
            shown = copy.copy(run)
            shown.discovered_tools = known
        built = self._builder.build(shown, run.system_prompt or self._system_prompt)
        is_parallel = self._is_parallel and run.hints.max_parallel != 1
        form = {} if self._response_format is None else {"response_format": self._response_format}
        return with_stream(built, run.on_chunk, tools=declare_tools(shown), parallel_tool_calls=is_parallel, **form)

    async def _ask_model(self, run: RunContext, request: CompleteRequest) -> _Answer:
        """Ask the model until its answer means a decision; correct it after one that does not, within the limits."""
        attempts = Attempts(self._limits)
        asked = request
        while True:
            response = await call_model(run, self._client, asked)
            attempts.attempts += 1
            try:
                return _Answer(response, self._project(run, response), attempts.signals)
            except UnusableCallError as error:
                if not self._limits.arg_fill_enabled:
                    raise
                attempts.note(str(error), error.mistake)
                if not attempts.may_ask:
                    return _Answer(response, Projected(attempts.give_up(run)), attempts.signals)
                asked = add_correction(request, response.content, _render_correction(response, error))
                reset_stream(run)

    def _project(self, run: RunContext, response: CompleteResponse) -> Projected:
        most = run.hints.max_parallel if run.hints.max_parallel > 0 else ABSOLUTE_MAX_PARALLEL
        return project(response, is_parallel=self._is_parallel, most_parallel=most, answer=self._answer)


def make(config: PlannerConfig, deps: FactoryDeps) -> ReActPlanner:
    """A `ReActPlanner` from configuration, for the driver `react`.

    `extra` may hold `repair_attempts`, `max_consecutive_arg_failures`, `arg_fill_enabled` and `system_prompt`.

    Raises:
        InvalidConfigError: there is no model client, or `extra` holds something else or a negative number.
    """
    if deps.llm is None:
        raise InvalidConfigError("planner.driver react needs a model: configure llm, or pass FactoryDeps(llm=…)")
    return ReActPlanner(
        deps.llm,
        max_steps=config.max_steps,
        system_prompt_extra=config.extra_guidance,
        reasoning_replay=config.reasoning_replay,
        max_tool_examples_per_tool=config.max_tool_examples_per_tool,
        parallel_tool_calls=config.parallel_tool_calls is not False,
        answer=config.answer,
        **_extra_options(config.extra),
    )


_EXTRA: Final = {
    "repair_attempts": int,
    "max_consecutive_arg_failures": int,
    "arg_fill_enabled": bool,
    "system_prompt": str,
}


def _extra_options(extra: dict[str, Any]) -> dict[str, Any]:
    for name, value in extra.items():
        kind = _EXTRA.get(name)
        if kind is None:
            raise InvalidConfigError(
                f"planner.extra.{name} is no option of the react planner; it takes {', '.join(_EXTRA)}"
            )
        if type(value) is not kind:
            raise InvalidConfigError(f"planner.extra.{name} is {value!r}; it must be a {kind.__name__}")
        if type(value) is int and value < 0:
            raise InvalidConfigError(f"planner.extra.{name} is {value}; it must not be negative, 0 is the default")
    return dict(extra)


def _with_schema(guidance: str, answer: AnswerFormat | None) -> str:
    """The guidance with the form of an answer, for models that cannot be held to a schema otherwise."""
    if answer is None:
        return guidance
    return f"{guidance}\n\n{_ANSWER_FORM}\n{codec.encode_text(answer.schema)}".strip()


_ANSWER_FORM: Final = """\
When you answer instead of calling a tool, write nothing but one JSON value that matches this JSON schema:"""


def _replay_mode(configured: str) -> ReasoningReplayMode:
    if not ReasoningReplayMode.is_valid(configured):
        raise InvalidConfigError(f"reasoning_replay {configured!r} is unknown; use never or text")
    return ReasoningReplayMode(configured or ReasoningReplayMode.NEVER)


def _update_counters(run: RunContext, decision: Decision, repaired: RepairSignals, counted: _Counted) -> None:
    # The call that tries again must not reset the count of the mistakes that the last step reported.
    is_open = counted.declarative and is_declarative_action(decision)
    if not is_open and not (counted.refused and is_tool_call(decision)):
        update_counters(run.repair_counters, decision, repaired)


def _report(run: RunContext, response: CompleteResponse) -> None:
    if run.on_reasoning is not None:
        run.on_reasoning(response.reasoning)
    if run.on_assistant_content is not None:
        run.on_assistant_content(response.content)


def _publish_decision(run: RunContext, decision: Decision, reasoning: str) -> None:
    decided = DecisionPayload(
        identity=run.quadruple,
        decision_kind=decision_kind(decision),
        tool=decision.tool if isinstance(decision, CallTool) else "",
        reasoning_chars=len(reasoning),
        reasoning_trace=reasoning,
        occurred_at=run.now(),
    )
    publish(run, EventType.PLANNER_DECISION, decided)


def _render_correction(response: CompleteResponse, error: UnusableCallError) -> str:
    """Return the message to the model about an answer that could not be used."""
    if not response.tool_calls:
        return f"Your answer was not used: {error}\nAnswer again, corrected, or call a tool."
    calls = "\n".join(f"- {_render_call(call)}" for call in response.tool_calls)
    return (
        f"None of the calls of your last turn was made:\n{calls}\nThe reason: {error}\nMake your turn again, corrected."
    )


def _render_call(call: ToolCallStructured) -> str:
    return f"{printable_name(call.name)} {truncate(call.args.decode('utf-8', 'replace'), _ARGS_SHOWN_BYTES)}"


_ANSWER_NOW: Final = """\
All steps of this run are used up, and no tool is called any more. Answer now, from what you have: what you found, \
what is done, and what is still missing."""


def has_steps_left(run: RunContext, max_steps: int) -> bool:
    """Whether the run may take another step, by the planner's own cap and by that of the run."""
    return run.steps_left != 0 and _count_steps(run) < max_steps


def finish_if_stopped(run: RunContext) -> Finish | None:
    """Return the finish of a run that was cancelled or is past its deadline, else None."""
    run_id = run.quadruple.run_id
    if run.control.cancelled:
        return Finish(FinishReason.CANCELLED, None, {"steering": "cancelled", "run_id": run_id})
    deadline = run.budget.deadline
    if deadline is not None and run.now() >= deadline:
        metadata = {"deadline": deadline.isoformat(), "run_id": run_id, "via": "react.deadlineExceeded"}
        return Finish(FinishReason.DEADLINE_EXCEEDED, None, metadata)
    return None


def require_answer(request: CompleteRequest) -> CompleteRequest:
    """Return the request as one that the model can only answer.

    Tools stay declared, because providers refuse a history of calls without them, but none may be called.
    """
    asked = ChatMessage(Role.USER, to_content(_ANSWER_NOW))
    choice = ToolChoice.NONE if request.tools else request.tool_choice
    return replace(request, messages=(*request.messages, asked), tool_choice=choice, parallel_tool_calls=False)


def finish_at_step_limit(run: RunContext, max_steps: int, answer: CompleteResponse | None) -> Finish:
    """Publish that the steps are used up, and return a `no_path` finish; `answer` is the model's last one."""
    steps = _count_steps(run)
    cap = steps if run.steps_left == 0 else max_steps
    last_tool = _find_last_tool(run)
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
    calls = _list_calls_not_made(run, answer)
    if calls:
        # The model asked for these calls and they are not made; the run must not end as if they had been.
        metadata["calls_not_made"] = calls
    text = "" if answer is None else answer.content
    return Finish(FinishReason.NO_PATH, text or None, metadata)


def _count_steps(run: RunContext) -> int:
    return 0 if run.trajectory is None else len(run.trajectory.steps)


def _find_last_tool(run: RunContext) -> str:
    steps: Sequence[Any] = () if run.trajectory is None else run.trajectory.steps
    last = steps[-1].action if steps else None
    return last.tool if isinstance(last, CallTool) else ""


def _list_calls_not_made(run: RunContext, answer: CompleteResponse | None) -> list[str]:
    names = [call.name for call in run.pending_tool_calls]
    return names if answer is None else names + [call.name for call in answer.tool_calls]
