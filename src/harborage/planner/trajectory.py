"""A run's history as its planner sees it: append-only steps, the controls that arrived, and the summary of old steps.

Serialising never drops a value: one that cannot become JSON is an error with its path. Live objects stay outside; the
trajectory holds only the names of their handles. Steps are appended and never changed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, Self, TypeAlias, TypeVar

import msgspec
from msgspec.structs import force_setattr

from harborage import codec
from harborage.codec import UnserializableError
from harborage.planner.decisions import DECISION_KINDS, Decision, SourceKind
from harborage.planner.errors import TrajectoryCorruptError

HandleID: TypeAlias = str
"""The name of a live object that a handle registry holds."""

UNSET_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)
"""The time that means "not set"; it is written as `0001-01-01T00:00:00Z`."""


def _unset_time() -> datetime:
    return UNSET_TIME


class ToolContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Data for tools that the model never sees: JSON values, and the names of live handles."""

    serializable: dict[str, Any] = {}
    handles: tuple[HandleID, ...] = ()

    def __post_init__(self) -> None:
        if self.serializable is None:
            force_setattr(self, "serializable", {})
        if not isinstance(self.handles, tuple):
            force_setattr(self, "handles", tuple(self.handles or ()))


INVALID_ARGS_CODE: Final = "invalid_args"
"""The code of a call whose arguments its tool does not take."""


class FailureRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Why a step failed, and after how many attempts."""

    code: str
    message: str = ""
    attempts: int = 0


class StreamChunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of a streamed output."""

    at: datetime
    data: bytes
    final: bool = False


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step: the decision and its outcome.

    `observation` is raw, `llm_observation` is the form for the model and wins where both are there. `reasoning_trace`
    is the model's reasoning, `assistant_preamble` the prose that came with its tool calls. `error` says why there is no
    result: the tool failed or was refused, or the decision could not be applied; `failure` is set as well where the
    kind is known. A parallel call has an error for each branch, in the observation. `statuses` says of each call how it
    ended, such as `rejected` or `unknown`; it is empty where all are done.
    """

    action: Any = None
    reasoning_trace: str = ""
    assistant_preamble: str = ""
    observation: Any = None
    llm_observation: Any = None
    error: str = ""
    failure: FailureRecord | None = None
    streams: dict[str, list[StreamChunk]] = {}
    # A default made by a function is never left out of the JSON: the key must always be there.
    started_at: datetime = msgspec.field(default_factory=_unset_time)
    latency_ms: int = 0
    token_estimate: int = 0
    statuses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.started_at is None:
            force_setattr(self, "started_at", UNSET_TIME)


class TrajectorySummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The text that a prompt shows in place of the steps that were compressed."""

    goals: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    last_output_digest: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for field in ("goals", "facts", "pending"):
            force_setattr(self, field, tuple(getattr(self, field) or ()))


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where something the run relied on came from."""

    kind: SourceKind
    ref: str


class SteeringInjection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A control that changed what the planner saw. `at_step` is how many steps there were when it arrived."""

    kind: str
    payload: dict[str, Any] = {}
    at_step: int

    def __post_init__(self) -> None:
        if self.payload is None:
            force_setattr(self, "payload", {})


class BackgroundMemberOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one task of a background group ended. A heavy `result` is a summary, and `result_ref` its artifact."""

    task_id: str
    status: str
    result: Any = None
    result_ref: str = ""
    error_code: str = ""
    error_message: str = ""


class BackgroundResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A background group that has ended, as the planner sees it."""

    group_id: str
    status: str
    resolved_at: datetime
    members: tuple[BackgroundMemberOutcome, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.members, tuple):
            force_setattr(self, "members", tuple(self.members or ()))


class ResumeHint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The run was just resumed from a pause, with this answer."""

    pause_token: str
    resumed_at: datetime = msgspec.field(default_factory=_unset_time)
    resume_payload: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.resumed_at is None:
            force_setattr(self, "resumed_at", UNSET_TIME)
        if self.resume_payload is None:
            force_setattr(self, "resume_payload", {})


T = TypeVar("T")


def memoize_on(trajectory: Trajectory | None, name: str, make: Callable[[], T]) -> T:
    """Return the object that is memoized on `trajectory` under `name`, made at its first use or without a trajectory.

    Planners and prompt builders store here what they derived from a history, so that no step reads the whole history
    again and they hold no state of a run themselves. The object is no part of the trajectory's value: it is not
    compared, copied or serialised, and may be lost at any time.
    """
    if trajectory is None:
        return make()
    beside = vars(trajectory)
    found: T | None = beside.get(name)
    if found is None:
        found = beside[name] = make()
    return found


class StepCursor:
    """How far an append-only list of steps has been read, from index `first` on."""

    __slots__ = ("_last", "_steps", "count", "first")

    def __init__(self) -> None:
        self._steps: list[Step] | None = None
        self._last: Step | None = None
        self.first = 0
        self.count = 0

    def follows(self, steps: list[Step], first: int = 0) -> bool:
        """Whether `steps` is the list that was read so far, and every step that was read is still in it."""
        if self._steps is not steps or self.first != first or self.count > len(steps):
            return False
        return self.count <= first or steps[self.count - 1] is self._last

    def restart(self, steps: list[Step], first: int = 0) -> None:
        """Start reading `steps` at index `first`."""
        self._steps, self._last = steps, None
        self.first = self.count = min(first, len(steps))

    def advance(self) -> None:
        """Count the next step as read."""
        assert self._steps is not None
        self._last = self._steps[self.count]
        self.count += 1


class _StepSizes:
    """How many bytes each step takes in the serialised form, so that a finished step is measured once."""

    __slots__ = ("_cursor", "_upto")

    def __init__(self) -> None:
        self._cursor = StepCursor()
        self._upto: list[int] = [0]

    def between(self, steps: list[Step], first: int) -> int:
        """Return the bytes of `steps[first:]`, without the commas between them.

        Raises:
            UnserializableError: a step that was not measured before cannot become JSON.
        """
        if not self._cursor.follows(steps):
            self._cursor.restart(steps)
            self._upto = [0]
        for index in range(self._cursor.count, len(steps)):
            self._upto.append(self._upto[-1] + len(_encode_step(steps[index], index)))
            self._cursor.advance()
        return self._upto[-1] - self._upto[min(first, len(steps))]


class Trajectory(msgspec.Struct, kw_only=True, omit_defaults=True, dict=True):
    """One run's history. Append to `steps` and the other lists; never change what is in them.

    `summary` covers the first `steps_summarised` steps; a history that is made with a summary and without that number
    is covered whole.
    """

    query: str = ""
    llm_context: dict[str, Any] = {}
    tool_context: ToolContext = ToolContext()
    steps: list[Step] = []
    summary: TrajectorySummary | None = None
    sources: list[Source] = []
    steering_inputs: list[SteeringInjection] = []
    background: dict[str, BackgroundResult] = {}
    resume_hint: ResumeHint | None = None
    steps_summarised: int = -1

    def __post_init__(self) -> None:
        if self.steps_summarised < 0:
            self.steps_summarised = self._default_summarised()

    def serialize(self) -> bytes:
        """Return the canonical JSON of this history: equal histories have equal bytes, also after they were read back.

        Raises:
            UnserializableError: a value cannot become JSON; `field` is its path from `Trajectory`.
        """
        # A caller who holds no trajectory may write `Trajectory.serialize(None)`; that is an error with a path too.
        if self is None:
            raise UnserializableError("Trajectory", "there is none")
        parts = self._before_steps()
        if self.steps:
            encoded = [_encode_step(step, index) for index, step in enumerate(self.steps)]
            parts.append(b'"steps":[' + b",".join(encoded) + b"]")
        parts += self._after_steps()
        return b"{" + b",".join(parts) + b"}"

    def serialized_size(self) -> int:
        """Return the length of `serialize()`, without encoding again the steps that were measured before.

        Raises:
            UnserializableError: as for `serialize`.
        """
        parts = [len(part) for part in self._before_steps()]
        if self.steps:
            parts.append(len(b'"steps":[]') + self._sizes.between(self.steps, 0) + len(self.steps) - 1)
        parts += [len(part) for part in self._after_steps()]
        return len(b"{}") + sum(parts) + len(parts) - 1

    def recent(self) -> Trajectory:
        """Return a history of only the steps that the summary does not cover."""
        return Trajectory(steps=self.steps[self.steps_summarised :])

    def recent_size(self) -> int:
        """Return the length of `recent().serialize()`, without encoding again the steps that were measured before.

        Raises:
            UnserializableError: as for `serialize`.
        """
        count = max(0, len(self.steps) - self.steps_summarised)
        empty = len(b'{"tool_context":{}}')
        if not count:
            return empty
        return empty + len(b',"steps":[]') + self._sizes.between(self.steps, self.steps_summarised) + count - 1

    def summarise(self, summary: TrajectorySummary) -> None:
        """Set `summary` to cover all steps so far. The steps themselves stay."""
        self.summary = summary
        self.steps_summarised = len(self.steps)

    @classmethod
    def deserialize(cls, data: bytes | str) -> Self:
        """Decode a history, with its decisions as the values they were. Unknown keys are ignored.

        An action that this version cannot read stays plain JSON, so that an old history still opens.

        Raises:
            TrajectoryCorruptError: `data` is empty, is no JSON, or has another shape; the message names the place.
        """
        if not data:
            raise TrajectoryCorruptError("cannot read a trajectory: there are no bytes")
        try:
            found: Self = codec.decode(data, cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TrajectoryCorruptError(f"cannot read a trajectory: {error}") from error
        for step in found.steps:
            _restore_action(step)
        return found

    @cached_property
    def _sizes(self) -> _StepSizes:
        return _StepSizes()

    def _before_steps(self) -> list[bytes]:
        parts = [_encode_member("query", self.query)] if self.query else []
        if self.llm_context:
            parts.append(_encode_member("llm_context", self.llm_context))
        return [*parts, _encode_member("tool_context", self.tool_context)]

    def _after_steps(self) -> list[bytes]:
        # A summary without content is still a summary, so it is left out only when there is none.
        parts = [] if self.summary is None else [_encode_member("summary", self.summary)]
        parts += [_encode_member(name, value) for name in _AFTER_SUMMARY if (value := getattr(self, name))]
        if self.steps_summarised != self._default_summarised():
            parts.append(_encode_member("steps_summarised", self.steps_summarised))
        return parts

    def _default_summarised(self) -> int:
        """Return `steps_summarised` of a history that does not state it."""
        return 0 if self.summary is None else len(self.steps)


_AFTER_SUMMARY: Final = (
    "sources",
    "steering_inputs",
    "background",
    "resume_hint",
)


def _encode_member(name: str, value: Any) -> bytes:
    return b'"' + name.encode() + b'":' + codec.encode_canonical(value, f"Trajectory.{name}")


def _encode_step(step: Step, index: int) -> bytes:
    return codec.encode_canonical(step, f"Trajectory.steps[{index}]")


def _restore_action(step: Step) -> None:
    """Replace the action of a decoded step by the typed decision, if it is one."""
    action = step.action
    if not isinstance(action, dict) or action.get("type") not in DECISION_KINDS:
        return
    try:
        force_setattr(step, "action", msgspec.convert(action, Decision))
    except msgspec.ValidationError:
        return
