"""What every host of runs must do. Hand in a function that makes a `HostFactory` over empty storage:

    await run_conformance(open_hosts)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_hosts)`. Where
processes share the storage the scenarios are `(*SCENARIOS, *SHARED)`.

The suite kills engines by cancelling `serve()`, or with a `Death` at a call of their storage, and lets the next one
over the same storage take over. It knows nothing of agents: its programs are written over `Durable` alone, and its
effects count what they do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from harborage.testing.conformance.checks import check_scenario, run_scenarios
from tests.kit.conformance import host_lives, host_scale, host_shared, host_steps, host_waits
from tests.kit.conformance.host_bench import HostBench, OpenHosts, open_bench

Scenario: TypeAlias = Callable[[HostBench], Awaitable[None]]

SCENARIOS: tuple[Scenario, ...] = (
    *host_steps.SCENARIOS,
    *host_waits.SCENARIOS,
    *host_lives.SCENARIOS,
    *host_scale.SCENARIOS,
)
"""What every host must do."""

SHARED: tuple[Scenario, ...] = host_shared.SCENARIOS
"""What hosts must do over a storage that several processes share."""

IN_TURNS: tuple[Scenario, ...] = (
    host_lives.a_run_that_fails_fails_the_same_way_whenever_it_dies,
    host_steps.a_run_killed_at_any_moment_comes_to_the_same_end,
)
"""Scenarios that let the process die after so many turns of the event loop: they say little of a host that waits for a
disk or a network, and are long there. The one that counts changes of the storage is for all of them."""


async def check(scenario: Scenario, open_hosts: OpenHosts) -> None:
    """Run one scenario on fresh storage.

    Raises:
        ConformanceError: the host breaks a promise.
    """
    await check_scenario(scenario, partial(open_bench, open_hosts))


async def run_conformance(open_hosts: OpenHosts, *, scenarios: Sequence[Scenario] = SCENARIOS) -> None:
    """Run these scenarios, each on fresh, empty storage.

    Raises:
        ExceptionGroup: the broken promises, one error a scenario.
    """
    await run_scenarios(scenarios, partial(open_bench, open_hosts))
