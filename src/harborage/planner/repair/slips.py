"""What a model got wrong within one step, when that is enough, and how the run then ends without an exception."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from harborage.events import EventType, RepairExhaustedPayload
from harborage.llm import ChatMessage, CompleteRequest, Content, Role
from harborage.planner.context import publish
from harborage.planner.decisions import Finish
from harborage.planner.enums import FinishReason
from harborage.planner.errors import RepairExhaustedError

if TYPE_CHECKING:
    from harborage.planner.context import RunContext
    from harborage.planner.repair.limits import RepairLimits

__all__ = ["RepairSignals", "Slip", "Slips", "corrected", "cut", "shown_name"]

_REASON_BYTES = 256
_CHAIN_BYTES = 1024
_NAME_BYTES = 64
_ECHO_BYTES = 8 * 1024


class Slip(StrEnum):
    """The kinds of mistakes: unusable arguments, several actions where one was due, a finish without an answer."""

    ARGS = "args"
    MULTI_ACTION = "multi_action"
    FINISH = "finish"


class RepairSignals(msgspec.Struct, frozen=True):
    """What had to be repaired to get a step's decision: its arguments, several actions at once, or its finish."""

    args_repaired: bool = False
    multi_action: bool = False
    finish_repaired: bool = False


class Slips:
    """The failures of one step. Make one a step; it is never shared."""

    __slots__ = ("_limits", "attempts", "consecutive", "kinds", "reasons")

    def __init__(self, limits: RepairLimits) -> None:
        self._limits = limits
        self.attempts = 0
        self.consecutive = 0
        self.kinds: set[Slip] = set()
        self.reasons: list[str] = []

    @property
    def may_ask(self) -> bool:
        """Whether the step may call the model (again)."""
        return (
            self.attempts < self._limits.repair_attempts
            and self.consecutive < self._limits.max_consecutive_arg_failures
        )

    @property
    def signals(self) -> RepairSignals:
        """What was repaired so far."""
        return RepairSignals(
            args_repaired=Slip.ARGS in self.kinds,
            multi_action=Slip.MULTI_ACTION in self.kinds,
            finish_repaired=Slip.FINISH in self.kinds,
        )

    def note(self, reason: str, kind: Slip = Slip.ARGS) -> None:
        """Take in one failed attempt; several actions at once do not count as a failure over arguments."""
        self.reasons.append(cut(reason, _REASON_BYTES))
        self.kinds.add(kind)
        if kind is not Slip.MULTI_ACTION:
            self.consecutive += 1

    def give_up(self, run: RunContext) -> Finish:
        """The finish of a run whose model could not be brought to a usable answer; it is announced once."""
        exhausted = RepairExhaustedPayload(
            identity=run.quadruple,
            attempts=self.attempts,
            consecutive_arg_failures=self.consecutive,
            reasons=tuple(self.reasons),
            occurred_at=run.now(),
        )
        publish(run, EventType.PLANNER_REPAIR_EXHAUSTED, exhausted)
        return Finish(
            FinishReason.NO_PATH,
            None,
            {
                "followup": True,
                "repair_attempts": self.attempts,
                "repair_consecutive_arg_failures": self.consecutive,
                "repair_chain": cut("; ".join(self.reasons), _CHAIN_BYTES),
                "repair_error": str(RepairExhaustedError()),
            },
        )


def corrected(original: CompleteRequest, said: str, correction: str) -> CompleteRequest:
    """The original request with the model's bad answer and what was wrong with it behind it.

    Corrections do not pile up: each one starts from the original again. Blanks are not repeated, because providers
    refuse a message that shows nothing, and of a long answer its beginning is enough to know it again.
    """
    echo = [ChatMessage(Role.ASSISTANT, Content(text=cut(said, _ECHO_BYTES)))] if said.strip() else []
    return replace(original, messages=(*original.messages, *echo, ChatMessage(Role.USER, Content(text=correction))))


def cut(text: str, limit: int) -> str:
    """`text`, or its first `limit` bytes of UTF-8 and an ellipsis; never half a character."""
    encoded = text.encode("utf-8", "replace")
    return encoded.decode() if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore") + "…"


def shown_name(tool: str) -> str:
    """A tool's name as the model wrote it, made safe for one line of a message."""
    plain = "".join(character if character.isprintable() else " " for character in tool)
    return cut(plain, _NAME_BYTES) if plain.strip() else "<empty>"
