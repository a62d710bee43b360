"""What waits and what is reported, over Postgres: events and pauses of several processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from harborage.events import DurableEventBus, EventBus
from harborage.identity import Quadruple
from harborage.runtime.pauses import AlreadyResumedError, Coordinator, Pause, PauseDecision, PauseReason, PauseRequest
from harborage.testing.conformance import events
from harborage.testing.conformance.event_bench import BusParts, OpenBus


@pytest.mark.parametrize("scenario", events.DURABLE_SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_the_durable_bus_keeps_the_contract(scenario: events.Scenario, new_place: Callable[[], Any]) -> None:
    """Every scenario of the port's suite holds, each bus over another pool."""
    async with new_place() as place:
        storages = [await place.open() for _ in range(2)]

        async def over() -> OpenBus:
            turn = iter(range(1_000))

            async def open_bus(parts: BusParts) -> EventBus:
                store = storages[next(turn) % 2].store
                return DurableEventBus(store, redactor=parts.redactor, config=parts.config, clock=parts.clock)

            return open_bus

        await events.check(scenario, over)


async def test_of_two_processes_one_settles_a_pause(new_place: Callable[[], Any]) -> None:
    """Asked under one key by both, answered by both: one pause, one answer, and both know it."""
    owner = Quadruple("acme", "ann", "s1", "r1")
    async with new_place() as place:
        processes = [Coordinator(store=(await place.open()).store) for _ in range(2)]
        for turn in range(10):
            request = PauseRequest(identity=owner, reason=PauseReason.AWAIT_INPUT, key=f"k{turn}")
            pauses = await asyncio.gather(*(process.request(request) for process in processes * 2))
            assert len({pause.token for pause in pauses}) == 1
            tries = (
                process.resume(pauses[0].token, PauseDecision.APPROVE, {"n": index}, who=owner)
                for index, process in enumerate(processes * 2)
            )
            results = await asyncio.gather(*tries, return_exceptions=True)
            assert sum(isinstance(result, Pause) for result in results) == 1
            assert sum(isinstance(result, AlreadyResumedError) for result in results) == 3
            first, second = [await process.status(pauses[0].token) for process in processes]
            assert first == second
        assert (await processes[0].list(who=owner)).total == 0
