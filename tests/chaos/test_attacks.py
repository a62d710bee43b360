"""Attacks end with nothing lost, doubled or stuck; `make attack` carries all of them out on many runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from tests.programs.chaos.attacks import ATTACKS, LEASE_S, attack
from tests.programs.chaos.databases import Database
from tests.programs.chaos.forkserver import ForkServer

pytestmark = pytest.mark.anyio
OpenDatabase = Callable[..., AbstractAsyncContextManager[Database]]

QUICK = ("controls that cannot be read", "a flood of controls", "a race of approvers")


@pytest.mark.parametrize("name", QUICK)
async def test_an_attack_breaks_nothing(name: str, open_database: OpenDatabase, forkserver: ForkServer) -> None:
    """Every run ends, or is blocked with a reason that names what cannot be read."""
    assert name in ATTACKS
    async with open_database(lease_s=LEASE_S) as database:
        outcome = await attack(name, 3, database, forkserver)
    assert outcome.broken == []
    assert outcome.runs == 3
    assert outcome.faults + outcome.sent > 0
