"""The example runs offline from beginning to end, and waits for a person before it orders."""

from __future__ import annotations

from pathlib import Path

import pytest

from harborage import Identity
from harborage.app import load_agent, open_runtime

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).parents[2] / "examples" / "adapters" / "openai_agents_agent.py"


@pytest.mark.parametrize(("is_approved", "told"), [(True, "ordered 60 screws"), (False, "no money")])
async def test_the_example_orders_what_was_approved(is_approved: bool, told: str) -> None:
    """A yes lets the order through, and the model hears of a no."""
    async with open_runtime(load_agent(str(EXAMPLE))) as runtime:
        run = await runtime.start("Do we have enough screws?", who=Identity("tenant", "user", "session"))
        async for event in run.events():
            if event.type == "tool.approval_requested":
                token = event.payload.pause_token
                await (run.approve(token) if is_approved else run.reject("no money", token=token))
        finish = await run.finished()
    assert "There were 40 screws" in finish.payload
    assert told in finish.payload
