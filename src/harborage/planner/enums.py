"""The planner's closed word lists, with their wire strings.

Each list answers `FinishReason.is_valid(value)` and `value in FinishReason`. Case matters and nothing is trimmed.
"""

from __future__ import annotations

from enum import EnumMeta, StrEnum


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
