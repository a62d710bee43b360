"""What tests of agents share: storages of both kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.postgres_fixtures import server

__all__ = ["server", "storage"]


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a storage that outlives its runtime."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'runs.db'}"
    url: str = request.getfixturevalue("server").url
    return url
