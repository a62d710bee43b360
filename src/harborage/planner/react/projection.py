"""From the model's answer to the one decision it means. Pure.

A call of a reserved name is a decision about the run and must be the only call of its turn; every other call is of a
tool. A call that means no decision is an error that says what the model should do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage import codec
from harborage.llm import ResponseFormat, ResponseFormatKind
from harborage.planner.answers import AnswerFormat, AnswerInvalidError, read_answer
from harborage.planner.decisions import (
    ABSOLUTE_MAX_PARALLEL,
    AwaitTask,
    CallParallel,
    CallTool,
    Decision,
    Finish,
    FinishReason,
    SpawnSpec,
    SpawnTask,
    check_decision,
)
from harborage.planner.errors import InvalidDecisionError
from harborage.planner.react.tools import (
    AWAIT_TASK_TOOL_NAME,
    FINISH_TOOL_NAME,
    RESERVED_TOOL_NAMES,
    SPAWN_TASK_TOOL_NAME,
)
from harborage.planner.repair import Mistake
from harborage.planner.views import ToolCallDeferred

if TYPE_CHECKING:
    from harborage.llm import CompleteResponse, ToolCallStructured

_VIA: Final = "react.projectResponse"
_CUT_SHORT: Final = frozenset({"length", "max_tokens", "max_output_tokens", "content_filter"})


class UnusableCallError(InvalidDecisionError):
    """The model made a call that means no decision. `tool` names it; `mistake` is the kind of mistake."""

    def __init__(self, tool: str = "", reason: str = "", *, mistake: Mistake = Mistake.ARGS) -> None:
        self.tool = tool
        self.mistake = mistake
        super().__init__(f"{tool or 'a call without a name'}: {reason}")


class Projected(msgspec.Struct, frozen=True):
    """The decision, and the calls that are left for later steps."""

    decision: Decision
    pending: tuple[ToolCallDeferred, ...] = ()


def project(
    response: CompleteResponse,
    *,
    is_parallel: bool,
    most_parallel: int = ABSOLUTE_MAX_PARALLEL,
    answer: AnswerFormat | None = None,
) -> Projected:
    """Return the decision that the answer means. Text without a call ends the run; without either there is no path.

    Of several calls, `most_parallel` are made at once and the others wait for later steps. An answer that ends the run
    must have the form `answer`, if there is one.

    Raises:
        UnusableCallError: a reserved call is malformed, is a finish without an answer or is not alone, a call names no
            tool, or the answer has another form.
    """
    calls = response.tool_calls
    if not calls:
        return Projected(_of_form(_finish_with_text(response), answer))
    if len(calls) == 1:
        return Projected(_of_form(_to_decision(calls[0]), answer))
    for call in calls:
        if call.name in RESERVED_TOOL_NAMES:
            raise UnusableCallError(call.name, "must be the only call of its turn", mistake=Mistake.MULTI_ACTION)
    made = tuple(_to_call(call) for call in calls)
    at_once = max(1, min(most_parallel, ABSOLUTE_MAX_PARALLEL)) if is_parallel else 1
    decision = CallParallel(made[:at_once]) if at_once > 1 else made[0]
    return Projected(decision, tuple(ToolCallDeferred(call.tool, call.args, call.call_id) for call in made[at_once:]))


def _finish_with_text(response: CompleteResponse) -> Finish:
    if response.content:
        metadata = {"via": _VIA, "goal_reach": True}
        if response.finish_reason.lower() in _CUT_SHORT:
            # The answer counts, but its reader must be able to see that its end is missing.
            metadata["cut_short"] = response.finish_reason
        return Finish(FinishReason.GOAL, response.content, metadata)
    return Finish(FinishReason.NO_PATH, None, {"followup": True, "via": f"{_VIA}.empty"})


def _of_form(decision: Decision, answer: AnswerFormat | None) -> Decision:
    """The same decision; the payload of a finish that reaches the goal is the answer that its value or text means."""
    if answer is None or not isinstance(decision, Finish) or decision.reason is not FinishReason.GOAL:
        return decision
    found = decision.payload
    try:
        read = read_answer(answer, found) if isinstance(found, str) else answer.check(found)
    except AnswerInvalidError as error:
        raise UnusableCallError("the answer", f"{error}", mistake=Mistake.FINISH) from error
    return msgspec.structs.replace(decision, payload=read)


def response_format(answer: AnswerFormat) -> ResponseFormat:
    """The schema for a provider that can hold a model to one."""
    return ResponseFormat(ResponseFormatKind.JSON_SCHEMA, codec.encode(answer.schema))


def _to_decision(call: ToolCallStructured) -> Decision:
    return _RESERVED.get(call.name, _to_call)(call)


def _to_call(call: ToolCallStructured) -> CallTool:
    if not call.name:
        raise UnusableCallError("", "name the tool to call")
    return CallTool(call.name, call.args or b"{}", call.id)


def _to_finish(call: ToolCallStructured) -> Finish:
    metadata = {
        "raw_args": call.args.decode("utf-8", "replace"),
        "via": f"{_VIA}.{FINISH_TOOL_NAME}",
        "tool": FINISH_TOOL_NAME,
        "goal_reach": True,
    }
    return Finish(FinishReason.GOAL, _parse_answer(call), metadata)


def _parse_answer(call: ToolCallStructured) -> Any:
    """Return the `answer` in the arguments, of any type."""
    try:
        found = codec.decode(call.args)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnusableCallError(
            call.name, f"{_ANSWER_IN_PROSE}; its arguments: {error}", mistake=Mistake.FINISH
        ) from error
    answer = found.get("answer") if isinstance(found, dict) else None
    if answer is None:
        raise UnusableCallError(call.name, f"{_ANSWER_IN_PROSE}; it has no answer", mistake=Mistake.FINISH)
    return answer


_ANSWER_IN_PROSE: Final = "to end, write the answer as plain text without any call"


class _Spec(msgspec.Struct):
    description: str | None = None
    query: str | None = None
    priority: int | None = None
    retain_turn: bool | None = None
    fail_fast: bool | None = None


class _SpawnArgs(msgspec.Struct):
    # Models write null for what they leave out.
    kind: str | None = None
    group_id: str | None = None
    spec: _Spec | None = None


class _AwaitArgs(msgspec.Struct):
    task_id: str | None = None
    group_id: str | None = None  # as the result of a spawn calls it


def _to_spawn(call: ToolCallStructured) -> SpawnTask:
    args: _SpawnArgs = _decode_args(call, _SpawnArgs)
    spec = _Spec() if args.spec is None else args.spec
    decision = SpawnTask(
        args.kind or "background",
        SpawnSpec(
            description=spec.description or "",
            query=spec.query or "",
            priority=spec.priority or 0,
            retain_turn=bool(spec.retain_turn),
            fail_fast=bool(spec.fail_fast),
        ),
        args.group_id or "",
    )
    try:
        check_decision(decision)
    except InvalidDecisionError as error:
        raise UnusableCallError(SPAWN_TASK_TOOL_NAME, str(error)) from error
    return decision


def _to_await(call: ToolCallStructured) -> AwaitTask:
    args: _AwaitArgs = _decode_args(call, _AwaitArgs)
    target = args.task_id or args.group_id
    if not target:
        reason = "task_id is missing; use the id that the spawn returned, or the name of its group"
        raise UnusableCallError(AWAIT_TASK_TOOL_NAME, reason)
    if args.task_id and args.group_id:
        reason = "it has a task_id and a group_id; give one of them, in task_id: a group waits for all of its tasks"
        raise UnusableCallError(AWAIT_TASK_TOOL_NAME, reason)
    return AwaitTask(target)


def _decode_args(call: ToolCallStructured, type: type[msgspec.Struct]) -> Any:
    try:
        return codec.decode(call.args if call.args.strip() else b"{}", type)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnusableCallError(call.name, f"its arguments cannot be read: {error}") from error


_RESERVED: Final[Mapping[str, Callable[[ToolCallStructured], Decision]]] = {
    FINISH_TOOL_NAME: _to_finish,
    SPAWN_TASK_TOOL_NAME: _to_spawn,
    AWAIT_TASK_TOOL_NAME: _to_await,
}
