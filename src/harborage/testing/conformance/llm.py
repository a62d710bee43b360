"""What every driver of a model provider must do. Pass a function that opens a bench:

    async def open_bench():
        return await ProviderBench.open(make, MyServer(), lambda url: ConfigSnapshot(base_url=url, api_key=KEY, …))

    await run_conformance(open_bench)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_bench)`.
`MyServer` is a `ModelServer`: it speaks the provider's protocol on loopback and does what its script says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from harborage.testing.conformance.checks import check_scenario, run_scenarios
from harborage.testing.conformance.llm_answers import ANSWERS
from harborage.testing.conformance.llm_bench import KEY as KEY
from harborage.testing.conformance.llm_bench import Ability as Ability
from harborage.testing.conformance.llm_bench import ModelServer as ModelServer
from harborage.testing.conformance.llm_bench import ProviderBench as ProviderBench
from harborage.testing.conformance.llm_faults import FAULTS

OpenBench: TypeAlias = Callable[[], Awaitable[ProviderBench]]
Scenario: TypeAlias = Callable[[ProviderBench], Awaitable[None]]

SCENARIOS: tuple[Scenario, ...] = (*ANSWERS, *FAULTS)


async def check(scenario: Scenario, open_bench: OpenBench) -> None:
    """Run one scenario on a fresh bench, close it, and check that no task and no connection is left.

    Raises:
        ConformanceError: the driver breaks a promise.
    """
    await check_scenario(scenario, open_bench)


async def run_conformance(open_bench: OpenBench) -> None:
    """Run every scenario, each on a fresh bench.

    Raises:
        ExceptionGroup: the broken promises, one error a scenario.
    """
    await run_scenarios(SCENARIOS, open_bench)
