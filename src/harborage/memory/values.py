"""The values of a session's memory, configuration and errors: turns, a summary of older ones, strategies.

Values and arithmetic. Sizes are estimated in tokens of four bytes, so that no tokeniser is needed. Each error names the
session, and says what to do.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from harborage.errors import HarborageError, InvalidOptionError
from harborage.identity import IdentityRequiredError


class SessionMemoryError(HarborageError):
    """An operation of a session's memory failed."""


class MemoryClosedError(SessionMemoryError):
    """The memory is closed."""

    def __init__(self) -> None:
        super().__init__("the memory is closed; open a new one over the same state store")


class MemoryIdentityError(SessionMemoryError, IdentityRequiredError):
    """Memory was used without a whole identity; `missing` names the empty parts."""

    def __init__(self, missing: tuple[str, ...] = ()) -> None:
        self.missing = missing
        listed = ", ".join(missing[:-1])
        parts = f"{listed} and {missing[-1]}" if listed else "".join(missing)
        super().__init__(f"{parts} empty" if parts else "")


class MemoryHealthError(SessionMemoryError):
    """Memory cannot go from one health to the other."""

    def __init__(self, prior: str = "", new: str = "") -> None:
        self.prior = prior
        self.new = new
        super().__init__(f"memory cannot go from {prior} to {new}")


class MemoryCorruptError(SessionMemoryError):
    """The stored memory of a session cannot be read; `flush` removes it."""

    def __init__(self, session_id: str = "", reason: str = "") -> None:
        self.session_id = session_id
        super().__init__(
            f"the stored memory of session {session_id!r} cannot be read: {reason}; remove it with `flush`"
        )


class InvalidSnapshotError(SessionMemoryError):
    """A snapshot is not of this strategy, or cannot be read."""


VERBATIM_TURNS: Final = 4
"""How many of the newest turns `rolling_summary` keeps word for word."""

_BYTES_PER_TOKEN: Final = 4


class MemoryStrategy(StrEnum):
    """The part of a session's earlier turns that is kept: none, the newest ones, or those and a summary of the rest."""

    NONE = "none"
    TRUNCATION = "truncation"
    ROLLING_SUMMARY = "rolling_summary"


class MemoryHealth(StrEnum):
    """Whether summaries are being made: yes, the last one failed, they have stopped, or one is tried again."""

    HEALTHY = "healthy"
    RETRY = "retry"
    DEGRADED = "degraded"
    RECOVERING = "recovering"


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """How the sessions of a runtime remember: `Runtime(memory=Memory(tokens=8_000))`.

    `tokens` is the estimated size of the kept turns, 0 for no limit. `rolling_summary` alone uses the rest: `backlog`
    is how many batches of turns wait while summaries fail, `summary_model` the model that makes them (blank: the
    runtime's own), `summary_timeout_s` how many seconds one may take.

    Raises:
        InvalidOptionError: an unknown strategy, or a negative number; the message lists the strategies.
    """

    strategy: MemoryStrategy | str = MemoryStrategy.ROLLING_SUMMARY
    tokens: int = 8_000
    backlog: int = 16
    summary_model: str = ""
    summary_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        try:
            msgspec.structs.force_setattr(self, "strategy", MemoryStrategy(self.strategy))
        except ValueError:
            known = ", ".join(MemoryStrategy)
            text = f"there is no memory strategy {self.strategy!r}; use one of: {known}"
            raise InvalidOptionError("strategy", self.strategy, message=text) from None
        for field in ("tokens", "backlog"):
            value = getattr(self, field)
            if type(value) is not int or value < 0:
                raise InvalidOptionError(field, value, "a whole number from 0 on")
        if not self.summary_timeout_s > 0:
            raise InvalidOptionError("summary_timeout_s", self.summary_timeout_s, "a number above 0")


class TurnDigest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A turn in short: the tools that were called, their observations, the reasoning, and the new artifacts."""

    tools_invoked: tuple[str, ...] = ()
    observations_summary: str = ""
    reasoning_summary: str = ""
    artifact_refs: tuple[str, ...] = ()


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user's message and its response. `key` names the writer of the turn: a second turn with it is not added."""

    user_message: str
    assistant_response: str
    digest: TurnDigest | None = None
    artifacts_shown: tuple[str, ...] = ()
    hidden_refs: tuple[str, ...] = ()
    at: datetime | None = None
    key: str = ""


class MemoryPatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a session's memory that a prompt shows; `tokens` is its estimated size."""

    strategy: MemoryStrategy
    summary: str = ""
    recent_turns: tuple[Turn, ...] = ()
    tokens: int = 0


class MemorySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A session's memory as bytes, for `SessionMemory.restore`; empty `data` is an empty memory."""

    strategy: MemoryStrategy
    data: bytes = b""


def estimate_turns(turns: tuple[Turn, ...]) -> int:
    """Estimate the size of these turns in tokens, both sides of each, rounded up."""
    return sum(_estimate_tokens(turn.user_message) + _estimate_tokens(turn.assistant_response) for turn in turns)


def estimate_summary(summary: str) -> int:
    """Estimate the size of a summary in tokens; 0 for a blank one."""
    return _estimate_tokens(summary) if summary.strip() else 0


def _estimate_tokens(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN + 1
