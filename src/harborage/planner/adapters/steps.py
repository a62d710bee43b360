"""What the steps of a run gave, as a framework's own rules ask for it: by tool, failures left out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from harborage.planner.decisions import CallParallel, CallTool, parallel_observation

if TYPE_CHECKING:
    from harborage.planner.trajectory import Step, Trajectory

__all__ = ["last_results", "results"]


def results(step: Step) -> Iterator[tuple[str, Any]]:
    """What the calls of a step gave, by tool, in their order; failed calls give nothing."""
    if step.error or step.failure is not None:
        return
    seen = step.observation if step.llm_observation is None else step.llm_observation
    match step.action:
        case CallTool(tool=tool) if not (isinstance(seen, dict) and seen.keys() == {"error"}):
            yield tool, seen
        case CallParallel(branches=branches):
            joined = parallel_observation(seen)
            for outcome in () if joined is None else sorted(joined.branches, key=lambda one: one.index):
                if not outcome.error and outcome.index < len(branches):
                    yield branches[outcome.index].tool, outcome.value
        case _:
            return


def last_results(trajectory: Trajectory | None) -> list[tuple[str, Any]]:
    """What the last step's calls gave; nothing when somebody has said something to the run since."""
    if trajectory is None or not trajectory.steps:
        return []
    inputs = trajectory.steering_inputs
    if inputs and inputs[-1].at_step >= len(trajectory.steps):
        return []
    return list(results(trajectory.steps[-1]))
