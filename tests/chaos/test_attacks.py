"""Attacks end with nothing lost, doubled or stuck; `make attack` carries all of them out on many runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from tests.programs.chaos.attacks import ATTACKS, LEASE_S, attack
from tests.programs.chaos.forkserver import ForkServer
from tests.programs.chaos.places import Place

pytestmark = pytest.mark.anyio
OpenPlace = Callable[..., AbstractAsyncContextManager[Place]]

QUICK = ("controls that cannot be read", "a flood of controls", "a race of approvers")


@pytest.mark.parametrize("name", QUICK)
async def test_an_attack_breaks_nothing(name: str, open_place: OpenPlace, forkserver: ForkServer) -> None:
    """Every run ends, or is blocked with a reason that names what cannot be read."""
    assert name in ATTACKS
    async with open_place(lease_s=LEASE_S) as place:
        told = await attack(name, 3, place, forkserver)
    assert told.broken == []
    assert told.runs == 3
    assert told.faults + told.sent > 0
