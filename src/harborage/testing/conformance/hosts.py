"""What every host of runs must do. Hand in a function that makes a `HostFactory` over empty storage:

    await run_conformance(open_hosts)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_hosts)`.

The suite kills engines by cancelling `serve()` and lets the next one over the same storage take over. It knows nothing
of agents: its programs are written over `Durable` alone, and its effects count what they do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from harborage.testing.conformance import host_lives, host_steps, host_waits
from harborage.testing.conformance.checks import check_scenario, run_scenarios
from harborage.testing.conformance.host_bench import HostBench, HostFactory, OpenHosts, open_bench

__all__ = ["SCENARIOS", "HostFactory", "OpenHosts", "Scenario", "check", "run_conformance"]

Scenario: TypeAlias = Callable[[HostBench], Awaitable[None]]

SCENARIOS: tuple[Scenario, ...] = (*host_steps.SCENARIOS, *host_waits.SCENARIOS, *host_lives.SCENARIOS)


async def check(scenario: Scenario, open_hosts: OpenHosts) -> None:
    """Run one scenario on fresh storage.

    Raises:
        ConformanceError: the host breaks a promise.
    """
    await check_scenario(scenario, partial(open_bench, open_hosts))


async def run_conformance(open_hosts: OpenHosts) -> None:
    """Run every scenario, each on fresh, empty storage.

    Raises:
        ExceptionGroup: the broken promises, one error a scenario.
    """
    await run_scenarios(SCENARIOS, partial(open_bench, open_hosts))
