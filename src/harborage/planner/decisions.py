"""The six things a planner can decide, in the planner's words, and the check that the runtime makes before it acts.

Values only. There is no seventh decision and no "do nothing": waiting for a person is `RequestPause`, waiting for work
is `AwaitTask`. In JSON a decision is an object whose `type` is the class name; `args` travel as base64, byte for byte.
Each list of words answers `FinishReason.is_valid(value)` and `value in FinishReason`. Case matters and nothing is
trimmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import EnumMeta, StrEnum
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import force_setattr

from harborage import codec
from harborage.errors import names_of
from harborage.planner.answers import AnswerSchema
from harborage.planner.errors import InvalidDecisionError


class _WordList(EnumMeta):
    """Lets `"goal" in FinishReason` ask for the wire string, which Python 3.11 refuses for plain text."""

    def __contains__(cls, value: object) -> bool:
        return isinstance(value, str) and str(value) in cls._value2member_map_


class _Words(StrEnum, metaclass=_WordList):
    @classmethod
    def is_valid(cls, value: object) -> bool:
        """Whether `value` is one of the words; the empty string and anything unknown are not."""
        return value in cls


class JoinKind(_Words):
    """How the results of parallel branches become one: all of them, the first success, by key, or `n` successes."""

    ALL = "all"
    FIRST_SUCCESS = "first_success"
    KEYED = "keyed"
    N = "n"


class FinishReason(_Words):
    """Why a run ended. Only `GOAL` is success."""

    GOAL = "goal"
    NO_PATH = "no_path"
    CANCELLED = "cancelled"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CONSTRAINTS_CONFLICT = "constraints_conflict"


class PauseReason(_Words):
    """The reason for which a run is paused."""

    APPROVAL_REQUIRED = "approval_required"
    AWAIT_INPUT = "await_input"
    EXTERNAL_EVENT = "external_event"
    CONSTRAINTS_CONFLICT = "constraints_conflict"


class WakeMode(_Words):
    """How a planner learns that background work ended: the runtime wakes it, it polls, or both."""

    PUSH = "push"
    POLL = "poll"
    HYBRID = "hybrid"


class ReasoningReplayMode(_Words):
    """Whether a step's captured reasoning goes back into the next prompt."""

    NEVER = "never"
    TEXT = "text"

    @classmethod
    def is_valid(cls, value: object) -> bool:
        """Whether configuration may hold `value`: a mode, or the empty string, which means `never`."""
        return value in cls or (isinstance(value, str) and not value)


class ChunkKind(_Words):
    """The kind of a streamed piece: the model's answer itself, or the reasoning before it.

    `RESET` has no text: the model is asked again, so the answer that was streamed so far is void.
    """

    CONTENT = "content"
    REASONING = "reasoning"
    RESET = "reset"


class SourceKind(_Words):
    """Where a fact that a run used came from."""

    TOOL = "tool"
    MEMORY = "memory"
    SKILL = "skill"
    USER_MESSAGE = "user_message"
    ARTIFACT = "artifact"


ABSOLUTE_MAX_PARALLEL: Final = 50
"""The most branches one parallel call may have, whatever the planner was nudged to."""

W = TypeVar("W", JoinKind, FinishReason, PauseReason)


def _convert_word(value: msgspec.Struct, field: str, word: str, kind: type[W]) -> None:
    """Turn a plain wire string into the enum's member; an unknown one stays, and `check_decision` refuses it."""
    if type(word) is not kind and word in kind:
        force_setattr(value, field, kind(word))


class _Calls(msgspec.StructMeta):
    """Lets a program write a call with its arguments as values; decoding does not use it."""

    def __call__(cls, tool: str, args: Any = b"{}", call_id: str = "", **named: Any) -> Any:  # noqa: N805
        if type(args) is not bytes or named:
            args = _encode_args(tool, args, named)
        return super().__call__(tool, args, call_id)


def _encode_args(tool: str, args: Any, named: dict[str, Any]) -> bytes:
    if named:
        if args != b"{}":
            raise TypeError(f"CallTool({tool!r}): pass the arguments as one value or by name, not both")
        args = named
    match args:
        case str():
            return args.encode()
        case Mapping():
            return codec.encode(dict(args), f"{tool}.args")
        case _:
            return args  # type: ignore[no-any-return]  # refused by `check_decision`, with the rest of the decision


class CallTool(msgspec.Struct, frozen=True, tag_field="type", tag="CallTool", omit_defaults=True, metaclass=_Calls):
    """Call one tool: `CallTool("search", query="tea")`, or with all arguments at once in `args`.

    `args` is a dict, or JSON text that is kept byte for byte; `call_id` is the provider's id, echoed on replay. An
    argument that is called `tool`, `args` or `call_id` itself goes into the dict.

    Raises:
        TypeError: arguments are given both ways.
        UnserializableError: an argument has no JSON form.
    """

    tool: str
    args: bytes = b"{}"
    call_id: str = ""

    if TYPE_CHECKING:

        def __init__(
            self, tool: str, args: bytes | str | Mapping[str, Any] = b"{}", call_id: str = "", **named: Any
        ) -> None: ...


class JoinSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """How branches are joined: `merge_keys` orders a keyed join, `n` is the number of successes for kind `n`."""

    kind: JoinKind = JoinKind.ALL
    merge_keys: tuple[str, ...] = ()
    n: int = 0

    def __post_init__(self) -> None:
        _convert_word(self, "kind", self.kind, JoinKind)
        if not isinstance(self.merge_keys, tuple):
            force_setattr(self, "merge_keys", names_of(self.merge_keys, "merge_keys"))


class CallParallel(msgspec.Struct, frozen=True, tag_field="type", tag="CallParallel", omit_defaults=True):
    """Call several tools at once; no `join` means all of them. Results are matched by a branch's position."""

    branches: tuple[CallTool, ...]
    join: JoinSpec | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.branches, tuple):
            force_setattr(self, "branches", tuple(self.branches))


class SpawnSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The work of a spawned task. `priority` is -1000 to 1000.

    With `retain_turn` the planner is asked again only when the task's group has ended; `fail_fast` cancels the rest of
    a fresh group when one member fails. `agent` names the sub-agent, or the agent of the runtime, whose run the task
    is; empty is the agent of the run that spawns it. `output` is the form of its answer in place of its agent's.
    """

    description: str = ""
    query: str = ""
    priority: int = 0
    retain_turn: bool = False
    fail_fast: bool = False
    agent: str = ""
    output: AnswerSchema | None = None


class SpawnTask(msgspec.Struct, frozen=True, tag_field="type", tag="SpawnTask", omit_defaults=True):
    """Start a task of `kind` `background` or `foreground`; without `group_id` it gets a group of its own.

    The same `idempotency_key` starts one task however often it is asked for; empty lets the runtime choose the key.
    """

    kind: str = "background"
    spec: SpawnSpec = SpawnSpec()
    group_id: str = ""
    idempotency_key: str = ""


class AwaitTask(msgspec.Struct, frozen=True, tag_field="type", tag="AwaitTask", omit_defaults=True):
    """Wait until a spawned task has ended."""

    task_id: str


class RequestPause(msgspec.Struct, frozen=True, tag_field="type", tag="RequestPause", omit_defaults=True):
    """Pause the run until a person or a system answers. `payload` is shown to the approver."""

    reason: PauseReason
    payload: dict[str, Any] = {}

    def __post_init__(self) -> None:
        _convert_word(self, "reason", self.reason, PauseReason)
        if self.payload is None:
            force_setattr(self, "payload", {})


class Finish(msgspec.Struct, frozen=True, tag_field="type", tag="Finish", omit_defaults=True):
    """End the run. Heavy payloads are artifact references; `metadata` says how the planner reached it."""

    reason: FinishReason
    payload: Any = None
    metadata: dict[str, Any] | None = {}

    def __post_init__(self) -> None:
        _convert_word(self, "reason", self.reason, FinishReason)


Decision: TypeAlias = CallTool | CallParallel | SpawnTask | AwaitTask | RequestPause | Finish

_SHAPES: Final = (CallTool, CallParallel, SpawnTask, AwaitTask, RequestPause, Finish)

DECISION_KINDS: Final = tuple(shape.__name__ for shape in _SHAPES)
"""The names of the six decisions, as `decision_kind` gives them."""


class ParallelBranchObservation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of one branch: a `value` or an `error`, never both. Match branches on `index`."""

    call_id: str = ""
    tool: str = ""
    index: int
    value: Any = None
    error: str = ""


class ParallelObservation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a parallel call in its step: one entry a branch, in branch order.

    `error` says why the call as a whole failed although its branches ran: too few of them succeeded.
    """

    branches: tuple[ParallelBranchObservation, ...] = ()
    error: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.branches, tuple):
            force_setattr(self, "branches", tuple(self.branches))


def parallel_observation(value: object) -> ParallelObservation | None:
    """Return `value` as a parallel observation, also from plain JSON as after a restart; None for anything else."""
    if isinstance(value, ParallelObservation):
        return value
    if not isinstance(value, dict) or "branches" not in value:
        return None
    try:
        return msgspec.convert(value, ParallelObservation)
    except msgspec.ValidationError:
        return None


def decision_kind(decision: object) -> str:
    """Return the decision's name, such as `CallTool`; `unknown` for anything that is not one of the six."""
    return type(decision).__name__ if isinstance(decision, _SHAPES) else "unknown"


def check_decision(decision: object) -> Decision:
    """Return the decision if the runtime can act on it. The parallel executor checks joins and the branch cap.

    Raises:
        InvalidDecisionError: it is not one of the six; a tool, a task or a branch list is empty; a field holds another
            type than it declares; a reason, a task kind or a priority is out of its range.
    """
    match decision:
        case CallTool():
            _check_call(decision, "CallTool")
        case CallParallel():
            if not decision.branches:
                raise InvalidDecisionError("CallParallel has no branches; name at least one tool to call")
            for index, branch in enumerate(decision.branches):
                _check_call(branch, f"CallParallel branch {index}")
            _check_type("CallParallel join", decision.join, JoinSpec | None)
        case SpawnTask():
            _check_spawn(decision)
        case AwaitTask():
            _check_type("AwaitTask task_id", decision.task_id, str | None)
            if not decision.task_id:
                raise InvalidDecisionError("AwaitTask has no task id; use the id that the spawn returned")
        case RequestPause():
            _check_word("RequestPause", decision.reason, PauseReason)
            _check_type("RequestPause payload", decision.payload, dict)
        case Finish():
            _check_word("Finish", decision.reason, FinishReason)
            _check_type("Finish metadata", decision.metadata, dict | None)
        case _:
            raise InvalidDecisionError(f"{_describe(decision)} is not a decision; return {', '.join(DECISION_KINDS)}")
    return decision


def _check_call(call: object, where: str) -> None:
    if not isinstance(call, CallTool):
        raise InvalidDecisionError(f"{where} is {_describe(call)}, not a CallTool")
    if not call.tool:
        raise InvalidDecisionError(f"{where} names no tool")
    if type(call.tool) is str and type(call.args) is bytes and type(call.call_id) is str:
        return  # nearly every decision takes this way
    _check_type(f"{where} tool", call.tool, str)
    _check_type(f"{where} args", call.args, bytes)
    _check_type(f"{where} call_id", call.call_id, str)


_SPEC_TYPES: Final = {"description": str, "query": str, "priority": int, "retain_turn": bool, "fail_fast": bool}


def _check_spawn(spawn: SpawnTask) -> None:
    if spawn.kind not in ("", "foreground", "background"):
        raise InvalidDecisionError(f"SpawnTask kind {spawn.kind!r} is unknown; use foreground or background")
    _check_type("SpawnTask spec", spawn.spec, SpawnSpec)
    _check_type("SpawnTask group_id", spawn.group_id, str)
    _check_type("SpawnTask idempotency_key", spawn.idempotency_key, str)
    for field, kind in _SPEC_TYPES.items():
        _check_type(f"SpawnTask {field}", getattr(spawn.spec, field), kind)
    if not -1000 <= spawn.spec.priority <= 1000:
        raise InvalidDecisionError(f"SpawnTask priority {spawn.spec.priority} is outside -1000 to 1000")


def _check_word(where: str, word: object, kind: type[FinishReason | PauseReason]) -> None:
    if word not in kind:
        raise InvalidDecisionError(f"{where} reason {word!r} is unknown; use one of {', '.join(kind)}")


def _check_type(what: str, value: object, kind: type | UnionType) -> None:
    if not isinstance(value, kind):
        raise InvalidDecisionError(f"{what} is {_describe(value)}; it must be {getattr(kind, '__name__', kind)}")


def _describe(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
