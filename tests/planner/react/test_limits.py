"""What the model is told near a limit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from harborage.identity import Quadruple
from harborage.planner import Budget, RunContext
from harborage.planner.react.limits import near_limit
from harborage.planner.react.prompt import DefaultPromptBuilder

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_what_is_nearly_used_up_is_named_with_what_is_left() -> None:
    """Each limit is named in its last part and not before; a run without limits is told nothing."""
    for budget, told in (
        (Budget(), ""),
        (Budget(hop_budget=4), ""),
        (Budget(hop_budget=3), "3 steps (this one included) left"),
        (Budget(hop_budget=1), "1 step (this one included) left"),
        (Budget(cost_spent=10_000_000), ""),
        (Budget(cost_cap=2_000_000, cost_spent=1_500_000), ""),
        (Budget(cost_cap=2_000_000, cost_spent=1_700_000), "$0.3000 of $2.0000 left"),
        (Budget(token_cap=1_000, tokens_spent=799), ""),
        (Budget(token_cap=1_000, tokens_spent=1_200), "0 tokens left"),
        (Budget(call_cap=5, calls_made=4), "1 tool call left"),
        (Budget(deadline=NOW + timedelta(seconds=61)), ""),
        (Budget(deadline=NOW + timedelta(seconds=60)), "60 seconds left"),
        (Budget(deadline=NOW - timedelta(seconds=1)), "0 seconds left"),
        (Budget(hop_budget=2, call_cap=5, calls_made=5), "2 steps (this one included), 0 tool calls left"),
    ):
        text = near_limit(budget, NOW)
        assert (told in text) if told else text == "", (budget, text)


def test_the_warning_is_the_last_thing_in_the_prompt() -> None:
    """Far from a limit the prompt is what it is without; near it the warning comes last, so its beginning is kept."""
    run = RunContext(quadruple=Quadruple("t", "u", "s", "r"), goal="g", clock=lambda: NOW)
    far = DefaultPromptBuilder().build(run, "").messages
    run.budget = Budget(hop_budget=2)
    near = DefaultPromptBuilder().build(run, "").messages
    assert list(near[:-1]) == list(far)
    assert "2 steps" in (near[-1].content.text or "")
