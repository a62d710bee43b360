"""When a run's history is shortened, and by whom: by the runner over a model, else by arithmetic.

A history outgrows the run's own budget, or the model says that it does not fit. The steps themselves always stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.errors import HarborageError, error_reason
from harborage.llm import ContextOverflowError, ContextWindowExceededError
from harborage.planner import CompressionRunner, RunContext, Trajectory, default_token_estimator, mechanical_fold
from harborage.planner.compression import apply_summary

if TYPE_CHECKING:
    from harborage.runtime.agent.services import AgentServices


async def keep_within_budget(
    services: AgentServices, compression: CompressionRunner, context: RunContext, trajectory: Trajectory
) -> None:
    """Summarise a history that has outgrown `context.budget.token_budget`. Before its first step there is none.

    Raises:
        Exception: what compressing raised, where histories are not folded.
    """
    if services.folds and not trajectory.steps:
        return
    try:
        work = compression.maybe_compress(context, trajectory, again=services.folds)
        await services.leavable(work, "its summariser", context.quadruple)
    except Exception as error:
        if not services.folds:
            raise
        _fold(services, context, trajectory, error)


async def shortened(
    services: AgentServices, compression: CompressionRunner | None, context: RunContext, trajectory: Trajectory
) -> bool:
    """Summarise a history that the model has found too long; whether that made it shorter.

    With a token budget of 0 the runner is never asked: the history is folded, or stays as it is where none is folded.
    Where histories are not folded, it takes a runner, and happens once a run like every compression there.

    Raises:
        Exception: what compressing raised, where histories are not folded.
    """
    is_summarised = trajectory.summary is not None
    if not trajectory.steps or (is_summarised and len(trajectory.steps) <= trajectory.steps_summarised):
        return False
    if context.budget.token_budget <= 0:
        compression = None
    if not services.folds:
        if compression is None or is_summarised:
            return False
        await services.leavable(compression.compress(context, trajectory), "its summariser", context.quadruple)
        return True
    if compression is None:
        _fold(services, context, trajectory, None)
        return True
    try:
        await services.leavable(compression.compress(context, trajectory), "its summariser", context.quadruple)
    except Exception as error:  # noqa: BLE001 - logged; a fold takes the place of the summary
        _fold(services, context, trajectory, error)
    return True


def is_overflow(error: BaseException | None) -> bool:
    """Whether `error`, or what caused it, says that a prompt does not fit the model's window."""
    while error is not None:
        if isinstance(error, ContextWindowExceededError | ContextOverflowError):
            return True
        error = error.__cause__
    return False


def _fold(services: AgentServices, context: RunContext, trajectory: Trajectory, error: Exception | None) -> None:
    if error is not None:
        services.logger.warning(
            "run %s: compression failed, folding: %s", context.quadruple.run_id, error_reason(error)
        )
    try:
        estimate = default_token_estimator(trajectory)
    except HarborageError:
        estimate = 0  # nothing may keep a fold from being made
    apply_summary(context, trajectory, mechanical_fold(trajectory), estimate)
