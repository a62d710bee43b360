"""How long it takes until a run goes on in another process, after the one that carried it was killed in mid call."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from typing import TYPE_CHECKING

from tests.programs.chaos.stage import PATIENCE_S, Stage, until

if TYPE_CHECKING:
    from tests.programs.chaos.forkserver import ForkServer
    from tests.programs.chaos.places import Place

__all__ = ["takeovers"]


async def takeovers(kills: int, place: Place, forkserver: ForkServer) -> list[float]:
    """Seconds from each kill to the moment at which a process that was there already asks for the same call again."""
    took: list[float] = []
    names = [f"k{number}" for number in range(kills)]
    async with Stage(place, forkserver, [json.dumps({"plan": [["keyed", name] for name in names]})]) as stage:
        processes = {name: stage.start(name) for name in ("a", "b")}
        async with asyncio.timeout(PATIENCE_S * kills):
            for name in names:
                carrier = await stage.service.hold(name).reached()
                await stage.run()
                # The next to take over must have started by then.
                fresh = f"after {name}"
                processes[fresh] = stage.start(fresh)
                await until(partial(_is_present, stage, fresh))
                again = stage.service.hold(name)
                began = time.monotonic()
                await processes.pop(carrier).kill()
                await again.reached()
                took.append(time.monotonic() - began)
                again.release()
    return took


async def _is_present(stage: Stage, name: str) -> bool:
    return name in stage.service.present
