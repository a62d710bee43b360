"""Two servers over one Postgres, one of which is killed: the clients go on at the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.postgres_fixtures import opened_or_skipped
from tests.programs.chaos.databases import Databases
from tests.programs.wire.failover import fail_over

pytestmark = pytest.mark.anyio


async def test_clients_go_on_at_the_other_server(tmp_path: Path) -> None:
    """Without a gap or a repeat in their streams, and nothing that their runs do is done twice."""
    with opened_or_skipped(Databases("postgres")) as databases:
        outcome = await fail_over(databases, tmp_path, clients=4, seats=5)
    assert outcome.broken == []
    assert (outcome.moved, outcome.bookings) == (2, 20)
