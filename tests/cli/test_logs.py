"""What is logged while a run is shown goes to whoever shows it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from harborage.cli.logs import logged
from harborage.events import ANNOUNCED

pytestmark = pytest.mark.anyio
LOG = logging.getLogger("harborage.somewhere")


async def test_warnings_are_heard_and_lesser_things_are_not() -> None:
    """A warning and an error with its cause are told, from any thread; information is not."""
    heard: list[str] = []
    with logged(heard.append):
        LOG.info("all is well")
        await asyncio.to_thread(LOG.warning, "asked again in %.1f s", 0.5)
        try:
            raise ValueError("no such thing")
        except ValueError:
            LOG.exception("it stopped")
        await asyncio.sleep(0)
    assert heard == ["asked again in 0.5 s", "it stopped: no such thing"]


async def test_what_is_an_event_as_well_is_left_to_the_event() -> None:
    """A warning that was also published is heard once, from the event."""
    heard: list[str] = []
    with logged(heard.append):
        LOG.warning("provider unavailable", extra=ANNOUNCED)
        LOG.warning("and another one")
        await asyncio.sleep(0)
    assert heard == ["and another one"]


async def test_nothing_is_heard_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    """When the block has ended its listener is gone."""
    heard: list[str] = []
    with logged(heard.append):
        pass
    LOG.warning("too late")
    await asyncio.sleep(0)
    assert heard == []
    assert logging.getLogger("harborage").handlers == []
