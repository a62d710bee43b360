"""The server of the client's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.remote_host import Host, open_host


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    """The server, its client acting for Ada."""
    async with open_host(tmp_path) as opened:
        yield opened
