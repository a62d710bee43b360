"""What every planner must do, as a pack that a planner's author runs against their own:

    report = await run_conformance(Harness(planner=MyPlanner, capabilities=Capabilities.HONOURS_CANCEL_CONTROL))

or one test a scenario: `@pytest.mark.parametrize("scenario", Scenario)` and `await run_scenario(scenario, harness)`.
It needs no test framework and, like every planner, nothing of the runtime.
"""

from __future__ import annotations

from harborage.planner.conformance.harness import (
    DETERMINISTIC_CAPABILITIES,
    REACT_CAPABILITIES,
    Canned,
    Capabilities,
    ConformanceFailedError,
    ConformanceReport,
    Failed,
    Harness,
    Outcome,
    Passed,
    PromiseBrokenError,
    Skipped,
    default_context,
)
from harborage.planner.conformance.scenarios import (
    MAX_PAYLOAD_BYTES,
    MAX_PAYLOAD_DEPTH,
    MAX_PAYLOAD_KEYS,
    Scenario,
    payload_depth,
    payload_keys,
    run_conformance,
    run_scenario,
)

__all__ = [
    "DETERMINISTIC_CAPABILITIES",
    "MAX_PAYLOAD_BYTES",
    "MAX_PAYLOAD_DEPTH",
    "MAX_PAYLOAD_KEYS",
    "REACT_CAPABILITIES",
    "Canned",
    "Capabilities",
    "ConformanceFailedError",
    "ConformanceReport",
    "Failed",
    "Harness",
    "Outcome",
    "Passed",
    "PromiseBrokenError",
    "Scenario",
    "Skipped",
    "default_context",
    "payload_depth",
    "payload_keys",
    "run_conformance",
    "run_scenario",
]
