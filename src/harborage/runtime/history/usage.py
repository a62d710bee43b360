"""What the recorded model calls of a run took, summed up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harborage.runtime.history.model import CallStatus, StepTaken, Totals

if TYPE_CHECKING:
    from harborage.runtime.history.model import ModelAsked


def totals_of(steps: Sequence[StepTaken]) -> Totals:
    """Return the sums over these steps."""
    asked = usage_of(one for step in steps for one in step.asked)
    is_made = (
        call.begun_at is not None and not call.child and call.status is not CallStatus.HELD_BACK
        for step in steps
        for call in step.calls
    )
    return asked + Totals(steps=len(steps), tool_calls=sum(is_made))


def usage_of(asked: Iterable[ModelAsked]) -> Totals:
    """Return the sums over these calls of the model."""
    found = list(asked)
    answers = [one.answer for one in found if one.answer is not None]
    cost: dict[str, float] = {}
    for answer in answers:
        total = answer.cost.get("total_cost", 0.0)
        if total:
            currency = str(answer.cost.get("currency") or "USD")
            cost[currency] = cost.get(currency, 0.0) + float(total)
    return Totals(
        model_calls=len(found),
        prompt_tokens=_sum(answers, "prompt_tokens"),
        completion_tokens=_sum(answers, "completion_tokens"),
        reasoning_tokens=_sum(answers, "reasoning_tokens"),
        cached_tokens=sum(_cached(answer.usage.get("provider_extras")) for answer in answers),
        cost=cost,
    )


def _sum(answers: Iterable[Any], name: str) -> int:
    return sum(int(answer.usage.get(name, 0)) for answer in answers)


def _cached(extras: Any) -> int:
    if not isinstance(extras, Mapping) or not extras:
        return 0
    from harborage.llm.prices import cached_tokens  # loaded where a provider reports more than the usual counts

    return cached_tokens(extras)
