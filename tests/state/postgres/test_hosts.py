"""A host over Postgres keeps every promise of a host: runs, controls, pauses and deadlines, whichever worker executes
them."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.state.postgres import open_postgres
from harborage.testing.clock import FakeClock
from tests.kit.conformance.host_bench import HostFactory
from tests.kit.conformance.hosts import IN_TURNS, SCENARIOS, SHARED, Scenario, check
from tests.kit.hosts import StoredHosts

PROMISES = [scenario for scenario in (*SCENARIOS, *SHARED) if scenario not in IN_TURNS]


@pytest.mark.parametrize("scenario", PROMISES, ids=lambda scenario: scenario.__name__)
async def test_a_host_over_postgres(scenario: Scenario, place: Any) -> None:
    """Every scenario of the suite, with runs that leave memory as soon as they wait."""

    async def open_hosts() -> HostFactory:
        clock = FakeClock()
        return StoredHosts(await open_postgres(place.url, clock), clock)

    await check(scenario, open_hosts)
