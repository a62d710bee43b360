"""The pack: every scenario by its name, run one by one on fresh parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from harborage.planner.conformance import scenarios
from harborage.planner.conformance.harness import (
    Bench,
    ConformanceFailedError,
    ConformanceReport,
    Failed,
    Outcome,
    Passed,
    ScenarioSkipped,
    Skipped,
)
from harborage.planner.conformance.scenarios import the_planner_is_woken

if TYPE_CHECKING:
    from harborage.planner.conformance.harness import Harness


class Scenario(StrEnum):
    """The names of the scenarios, in the order they run."""

    SANITY = "Sanity_NextReturnsDecision"
    WAKE_MODE = "WakeMode_Declared"
    SEALED = "Sealed_DecisionSum"
    TOP_PROMPTS = "TopPrompts_LLMRoundTrip"
    MALFORMED = "MalformedLLM_Salvage"
    PARALLEL = "ParallelCall_Atomicity"
    WAKE_ROUND_TRIP = "WakeMode_RoundTrip"
    BUDGET = "BudgetAware_FinishDeadlineExceeded"
    PAUSE_PAYLOAD = "PausePayload_BoundsRespected"
    STEERING = "Steering_DrainBetweenSteps"
    CONCURRENT_REUSE = "ConcurrentReuse"


_Promise: TypeAlias = Callable[[Bench], Awaitable[None]]

_PROMISES: Final[Mapping[Scenario, _Promise]] = {
    Scenario.SANITY: scenarios.next_returns_a_decision,
    Scenario.WAKE_MODE: scenarios.the_wake_mode_is_declared,
    Scenario.SEALED: scenarios.the_decision_is_one_of_six,
    Scenario.TOP_PROMPTS: scenarios.canned_answers_become_decisions,
    Scenario.MALFORMED: scenarios.garbage_is_survived,
    Scenario.PARALLEL: scenarios.parallel_calls_are_whole,
    Scenario.WAKE_ROUND_TRIP: the_planner_is_woken,
    Scenario.BUDGET: scenarios.an_overdue_run_gets_an_answer,
    Scenario.PAUSE_PAYLOAD: scenarios.pause_payloads_keep_their_bounds,
    Scenario.STEERING: scenarios.cancelled_runs_finish_as_cancelled,
    Scenario.CONCURRENT_REUSE: scenarios.one_instance_serves_many_runs,
}


async def run_conformance(harness: Harness) -> ConformanceReport:
    """The outcome of every scenario for this planner, each passed, or skipped for a reason that is stated.

    Raises:
        ConformanceFailedError: scenarios failed; it names every one of them.
    """
    report = ConformanceReport({str(scenario): await run_scenario(scenario, harness) for scenario in Scenario})
    errors = [outcome.error for outcome in report.outcomes.values() if isinstance(outcome, Failed)]
    if errors:
        raise ConformanceFailedError(report) from ExceptionGroup("broken promises", errors)
    return report


async def run_scenario(scenario: Scenario | str, harness: Harness) -> Outcome:
    """The outcome of one scenario. Never: raises for what the planner does; that is an outcome."""
    promise = _PROMISES[Scenario(scenario)]
    limit = asyncio.timeout(harness.limit_s)
    try:
        async with limit, Bench(harness) as bench:
            await promise(bench)
    except ScenarioSkipped as skipped:
        return Skipped(skipped.reason)
    except Exception as error:  # noqa: BLE001 - it is the outcome
        if limit.expired():
            return Failed(f"not over after {harness.limit_s} s", error)
        return Failed(f"{type(error).__name__}: {str(error) or 'no message'}", error)
    return Passed()
