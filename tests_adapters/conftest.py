"""What the adapters' tests share. They run in environments of their own: `make adapters`."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Harborage runs on asyncio alone."""
    return "asyncio"
