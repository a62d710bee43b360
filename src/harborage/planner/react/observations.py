"""What the model is shown of a step's outcome: one non-empty text for each call that was made. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harborage.planner.decisions import ParallelBranchObservation, ParallelObservation, parallel_observation
from harborage.planner.react.heavy import heavy_text
from harborage.planner.react.rendering import one_line, render_result
from harborage.planner.repair.slips import cut

if TYPE_CHECKING:
    from harborage.planner.trajectory import Step

__all__ = ["PLACEHOLDER", "branch_bodies", "branch_values", "observation_body"]

PLACEHOLDER: Final = "(no observation)"
"""Stands for an outcome that is missing or empty: a call without an answer would break the conversation."""


_ERROR_BYTES: Final = 8 * 1024


def observation_body(step: Step, *, can_fetch: bool = True) -> str:
    """The outcome of a step with one call: its failure, its error, or what was observed; else the placeholder."""
    if step.failure is not None:
        return _error(f"{step.failure.code}: {step.failure.message}" if step.failure.message else step.failure.code)
    if step.error:
        return _error(step.error)
    for seen in (step.llm_observation, step.observation):
        heavy = heavy_text(seen, can_fetch=can_fetch)
        if heavy is not None:
            return _shown(heavy)
    return _shown_value(step.observation if step.llm_observation is None else step.llm_observation)


def branch_bodies(step: Step, branches: int, *, can_fetch: bool = True) -> list[str]:
    """The outcome of each branch of a parallel call, by branch.

    A call that was aborted as a whole left no outcomes of its branches, so each of them gets that of the step.
    """
    aggregate = _aggregate(step)
    if aggregate is None:
        return [observation_body(step, can_fetch=can_fetch)] * branches
    by_index = {outcome.index: outcome for outcome in aggregate.branches}
    return [_branch_body(by_index.get(index), can_fetch) for index in range(branches)]


def branch_values(step: Step, branches: int) -> list[Any]:
    """What each branch of a parallel call returned, by branch; None for one that failed or left nothing."""
    aggregate = _aggregate(step)
    by_index = {} if aggregate is None else {outcome.index: outcome.value for outcome in aggregate.branches}
    return [by_index.get(index) for index in range(branches)]


def _aggregate(step: Step) -> ParallelObservation | None:
    return parallel_observation(step.llm_observation) or parallel_observation(step.observation)


def _branch_body(outcome: ParallelBranchObservation | None, can_fetch: bool) -> str:
    if outcome is None:
        return PLACEHOLDER
    if outcome.error:
        return _error(outcome.error)
    heavy = heavy_text(outcome.value, can_fetch=can_fetch)
    return _shown_value(outcome.value) if heavy is None else _shown(heavy)


def _error(text: str) -> str:
    return f"error: {cut(one_line(text), _ERROR_BYTES) or 'unknown'}"


def _shown_value(value: Any) -> str:
    return PLACEHOLDER if value is None else _shown(render_result(value))


def _shown(text: str) -> str:
    return text if text.strip() else PLACEHOLDER
