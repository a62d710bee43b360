"""What the model is told when its run comes near a limit: what is left, and to come to an end. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from harborage.planner.context import Budget

__all__ = ["near_limit"]

_LAST_STEPS: Final = 3
_LAST_SHARE: Final = 0.2
_LAST_SECONDS: Final = 60.0
_MICRO: Final = 1_000_000


def near_limit(budget: Budget, now: datetime) -> str:
    """What is left of each limit that is nearly reached, with what to do about it; empty far from all limits.

    Near are the last three steps, the last fifth of tokens, tool calls and cost, and the last minute.
    """
    left = ", ".join(_left(budget, now))
    if not left:
        return ""
    return (
        f"This run is near its limit: {left} left. At the limit it is ended without an answer. Give your final answer "
        "now from what you have; call a tool only if there is no answer without it."
    )


def _left(budget: Budget, now: datetime) -> Iterator[str]:
    if 0 <= budget.hop_budget <= _LAST_STEPS:
        yield _counted(budget.hop_budget, "step") + (" (this one included)" if budget.hop_budget else "")
    if _is_near(budget.call_cap, budget.calls_made):
        yield _counted(max(0, budget.call_cap - budget.calls_made), "tool call")
    if _is_near(budget.token_cap, budget.tokens_spent):
        yield _counted(max(0, budget.token_cap - budget.tokens_spent), "token")
    if _is_near(budget.cost_cap, budget.cost_spent):
        yield f"${max(0, budget.cost_cap - budget.cost_spent) / _MICRO:.4f} of ${budget.cost_cap / _MICRO:.4f}"
    if budget.deadline is not None:
        seconds = (budget.deadline - now).total_seconds()
        if seconds <= _LAST_SECONDS:
            yield _counted(max(0, int(seconds)), "second")


def _is_near(cap: int, spent: int) -> bool:
    return cap > 0 and cap - spent <= cap * _LAST_SHARE


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
