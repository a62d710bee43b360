"""Where a kept run stands, in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harborage.cli.standing import agent_of, is_blocked, standing_of, status_of
from harborage.identity import Identity
from harborage.store import RunRow, Status
from harborage.store.times import micros

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROW = RunRow(
    number=1,
    run_id="r1",
    who=Identity("acme", "ada", "s1"),
    about="go",
    agent="a.py#1?folder=%2Fx",
    status=Status.RUNNING,
    created_at=micros(NOW),
    updated_at=micros(NOW),
    fence=1,
    position=3,
)
READY = msgspec.structs.replace(ROW, is_woken=True)
CARRIED = msgspec.structs.replace(ROW, owner="w")
BLOCKED = msgspec.structs.replace(ROW, blocked="why")
ENDED = msgspec.structs.replace(ROW, status=Status.COMPLETE, reason="why")
FAILED = msgspec.structs.replace(ROW, status=Status.FAILED, reason="why")
PUT_OFF = msgspec.structs.replace(ROW, reason="interrupted: provider unavailable (503)")


def test_a_run_has_a_word_for_where_it_stands() -> None:
    """One that a worker has is running, one that waits for its provider interrupted."""
    rows = {
        "ready": READY,
        "running": CARRIED,
        "parked": ROW,
        "blocked": BLOCKED,
        "finished": ENDED,
        "failed": FAILED,
        "interrupted": PUT_OFF,
    }
    assert {status_of(row): row for row in rows.values()} == rows
    assert agent_of(ROW) == "a.py"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (CARRIED, "another worker executes it, last step 5.0 s ago; followed and steered from here"),
        (READY, "interrupted 5.0 s ago; resuming here"),
        (ROW, "waiting for 5.0 s; resuming here"),
        (BLOCKED, "blocked 5.0 s ago: why; trying again with the code of today"),
        (PUT_OFF, "interrupted: provider unavailable (503), 5.0 s ago; trying again now"),
        (ENDED, "ended 5.0 s ago: why"),
        (FAILED, "failed 5.0 s ago: why"),
    ],
)
def test_every_stand_has_its_words(row: RunRow, told: str) -> None:
    """Who carries it, since when, and what happens now."""
    assert standing_of(row, NOW + timedelta(seconds=5)) == told


def test_blocked_is_what_was_tried_and_failed() -> None:
    """Not what was blocked before, and not what is being tried."""
    assert is_blocked(BLOCKED, 0)
    assert not is_blocked(BLOCKED, 1)
    assert not is_blocked(msgspec.structs.replace(BLOCKED, owner="w"), 0)
    assert not is_blocked(READY, 0)
