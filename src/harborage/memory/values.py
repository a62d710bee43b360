"""What the memory of a session holds, and how it is set: turns, a summary of older ones, strategies, sizes.

Values and arithmetic. Sizes are estimated in tokens of four bytes, so that no tokeniser is needed.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from harborage.memory.errors import MemoryConfigError

__all__ = [
    "VERBATIM_TURNS",
    "Memory",
    "MemoryHealth",
    "MemoryPatch",
    "MemorySnapshot",
    "MemoryStrategy",
    "Turn",
    "TurnDigest",
    "estimate_summary",
    "estimate_turns",
]

VERBATIM_TURNS: Final = 4
"""How many of the newest turns `rolling_summary` keeps word for word."""

_BYTES_PER_TOKEN: Final = 4


class MemoryStrategy(StrEnum):
    """What is kept of a session's earlier turns: nothing, the newest ones, or those and a summary of the rest."""

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

    `tokens` is the estimated size of what is kept, 0 for no limit. `rolling_summary` alone uses the rest: `backlog` is
    how many batches of turns wait while summaries fail, `summary_model` the model that makes them (blank: the
    runtime's own), `summary_timeout_s` how many seconds one may take.

    Raises:
        MemoryConfigError: an unknown strategy, or a negative number; the message lists what there is.
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
            raise MemoryConfigError(f"there is no memory strategy {self.strategy!r}; use one of: {known}") from None
        for field in ("tokens", "backlog"):
            value = getattr(self, field)
            if type(value) is not int or value < 0:
                raise MemoryConfigError(f"memory {field} is {value!r}; give a whole number from 0 on")
        if not self.summary_timeout_s > 0:
            raise MemoryConfigError(f"memory summary_timeout_s is {self.summary_timeout_s!r}; give a positive number")


class TurnDigest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened within a turn, in short: which tools were called, what was observed and reasoned, what was made."""

    tools_invoked: tuple[str, ...] = ()
    observations_summary: str = ""
    reasoning_summary: str = ""
    artifact_refs: tuple[str, ...] = ()


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the user said and what came back. `key` names what wrote the turn: a second one with it is not added."""

    user_message: str
    assistant_response: str
    digest: TurnDigest | None = None
    artifacts_shown: tuple[str, ...] = ()
    hidden_refs: tuple[str, ...] = ()
    at: datetime | None = None
    key: str = ""


class MemoryPatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a prompt may say of a session's earlier turns; `tokens` is its estimated size."""

    strategy: MemoryStrategy
    summary: str = ""
    recent_turns: tuple[Turn, ...] = ()
    tokens: int = 0


class MemorySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A session's memory as bytes, for `SessionMemory.restore`; empty `data` is an empty memory."""

    strategy: MemoryStrategy
    data: bytes = b""


def estimate_turns(turns: tuple[Turn, ...]) -> int:
    """The size of these turns in tokens, both sides of each, rounded up."""
    return sum(_tokens(turn.user_message) + _tokens(turn.assistant_response) for turn in turns)


def estimate_summary(summary: str) -> int:
    """The size of a summary in tokens; a blank one has none."""
    return _tokens(summary) if summary.strip() else 0


def _tokens(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN + 1
