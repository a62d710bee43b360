"""The openai-agents adapter keeps every promise that an adapter makes."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.testing.conformance.adapters import SCENARIOS, Scenario, check

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_it_keeps_the_contract(scenario: Scenario, open_bench: Any) -> None:
    """Every scenario of the adapters' suite holds."""
    await check(scenario, open_bench)
