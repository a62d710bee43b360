"""When a history has outgrown its budget, a summary takes its place in the prompt; the steps themselves stay.

The runner keeps nothing between calls and serves any number of runs. It never carries on silently: a summary that
could not be made is an event and an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from harborage.callables import require_async, require_sync
from harborage.errors import error_text
from harborage.events import EventType, TrajectoryCompressedPayload, TrajectoryCompressionFailedPayload
from harborage.identity import missing_parts
from harborage.planner.cancellation import raise_if_cancelled
from harborage.planner.emission import clipped, publish
from harborage.planner.errors import EmptySummaryError, IdentityMissingError, InvalidConfigError, NilTrajectoryError
from harborage.planner.trajectory import Trajectory, TrajectorySummary

if TYPE_CHECKING:
    from harborage.planner.context import RunContext

__all__ = ["CompressionRunner", "Summariser", "TokenEstimator", "default_token_estimator", "stamp"]

TokenEstimator: TypeAlias = Callable[[Trajectory | None], int]
"""How many tokens a history takes in a prompt, roughly."""


@runtime_checkable
class Summariser(Protocol):
    """Turns a history into a summary. Safe for concurrent runs."""

    async def summarise(self, run: RunContext, trajectory: Trajectory) -> TrajectorySummary | None:
        """A summary of the whole history; where `trajectory.summary` is set, it stands for the first
        `trajectory.steps_summarised` steps.

        Raises:
            Exception: no summary could be made. Never: returns None, which is a breach that ends in EmptySummaryError.
        """
        ...


def default_token_estimator(trajectory: Trajectory | None) -> int:
    """A quarter of the serialised bytes, plus one. A step is measured once, however often this is asked.

    Raises:
        NilTrajectoryError: there is no history to measure.
        UnserializableError: a value in it cannot become JSON.
    """
    if trajectory is None:
        raise NilTrajectoryError
    return trajectory.serialized_size() // 4 + 1


class CompressionRunner:
    """Summarises a history that has outgrown the run's token budget, once unless it is asked to do so again.

    Raises:
        InvalidConfigError: there is no summariser.
        CallbackKindError: the summariser is not async, or the estimator is.
    """

    def __init__(self, summariser: Summariser, *, token_estimator: TokenEstimator | None = None) -> None:
        if summariser is None:
            raise InvalidConfigError("CompressionRunner needs a summariser; leave the runner out to never compress")
        require_async(summariser.summarise, "summariser.summarise")
        require_sync(token_estimator, "token_estimator")
        self._summariser = summariser
        self._estimator = default_token_estimator if token_estimator is None else token_estimator

    async def maybe_compress(self, run: RunContext, trajectory: Trajectory | None, *, again: bool = False) -> None:
        """Stamp `trajectory.summary` if the history is larger than `run.budget.token_budget`.

        A history that has a summary is left alone. With `again` it is summarised anew once the steps after the summary
        outgrow the budget by themselves.

        Raises:
            asyncio.CancelledError: the caller was cancelled; reported first.
            IdentityMissingError: a part of the run's identity is empty.
            NilTrajectoryError: there is no trajectory.
            EmptySummaryError: the summariser returned None; told as `trajectory.compression_failed`.
            Exception: what the estimator or the summariser raised, with a note; told in the same way.
        """
        known = _checked(run, trajectory)
        if known.summary is not None and not (again and len(known.steps) > known.steps_summarised):
            return
        estimate = self._estimate(run, known)
        if run.budget.token_budget <= 0 or estimate <= run.budget.token_budget:
            return
        await self._compress(run, known, estimate)

    async def compress(self, run: RunContext, trajectory: Trajectory | None) -> None:
        """Stamp a new `trajectory.summary` whatever the budget: for a history that a model has found too long.

        Raises:
            Exception: as for `maybe_compress`.
        """
        known = _checked(run, trajectory)
        await self._compress(run, known, self._estimate(run, known))

    async def _compress(self, run: RunContext, trajectory: Trajectory, estimate: int) -> None:
        stamp(run, trajectory, await self._summarise(run, trajectory, estimate), estimate)

    def _estimate(self, run: RunContext, trajectory: Trajectory) -> int:
        """The tokens of the history, or of what came after its summary."""
        try:
            if trajectory.summary is None:
                return self._estimator(trajectory)
            if self._estimator is default_token_estimator:
                return trajectory.recent_size() // 4 + 1
            return self._estimator(trajectory.recent())
        except Exception as error:
            _tell_failure(run, trajectory, 0, "estimator_error", error_text(error))
            error.add_note("while estimating the size of the trajectory")
            raise

    async def _summarise(self, run: RunContext, trajectory: Trajectory, estimate: int) -> TrajectorySummary:
        try:
            summary = await self._summariser.summarise(run, trajectory)
        except Exception as error:
            _tell_failure(run, trajectory, estimate, "summariser_error", error_text(error))
            error.add_note("while summarising the trajectory")
            raise
        if summary is None:
            empty = EmptySummaryError()
            _tell_failure(run, trajectory, estimate, "empty_summary", str(empty))
            raise empty
        return summary


def stamp(run: RunContext, trajectory: Trajectory, summary: TrajectorySummary, estimate: int) -> None:
    """Let `summary` stand for all steps so far, and tell of it. `estimate` is the size that the history had."""
    before = len(trajectory.steps)
    trajectory.summarise(summary)
    compressed = TrajectoryCompressedPayload(
        identity=run.quadruple,
        steps_before=before,
        steps_after=len(trajectory.steps),
        token_estimate=estimate,
        occurred_at=run.now(),
    )
    publish(run, EventType.TRAJECTORY_COMPRESSED, compressed)


def _checked(run: RunContext, trajectory: Trajectory | None) -> Trajectory:
    raise_if_cancelled()
    missing = missing_parts(run.quadruple, run=True)
    if missing:
        raise IdentityMissingError(f"compression needs the run's whole identity; empty: {', '.join(missing)}")
    if trajectory is None:
        raise NilTrajectoryError
    return trajectory


def _tell_failure(run: RunContext, trajectory: Trajectory, estimate: int, code: str, message: str) -> None:
    failed = TrajectoryCompressionFailedPayload(
        identity=run.quadruple,
        steps_observed=len(trajectory.steps),
        token_estimate=estimate,
        error_code=code,
        error_message=clipped(message),
        occurred_at=run.now(),
    )
    publish(run, EventType.TRAJECTORY_COMPRESSION_FAILED, failed)
