"""What every test shares: asyncio as the one backend."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Harborage runs on asyncio alone."""
    return "asyncio"
