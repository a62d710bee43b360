"""Where a kept run stands, in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harborage.cli.standing import agent_of, is_blocked, standing_of, status_of
from harborage.identity import Quadruple
from harborage.state.runs import RunRecord, Stand, Standing

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = Quadruple("acme", "ada", "s1", "r1")
RECORD = RunRecord(run_id="r1", who=WHO, goal="go", agent="a.py#1?folder=%2Fx", created_at=NOW, updated_at=NOW)


def record(stand: Stand, *, owner: str = "", fence: int = 0, reason: str = "") -> RunRecord:
    """The run, standing so."""
    standing = Standing(stand=stand, reason=reason)
    return msgspec.structs.replace(RECORD, standing=standing, owner=owner, fence=fence)


def test_a_run_that_is_carried_is_running() -> None:
    """Any other stands as it is written."""
    assert status_of(record(Stand.READY, owner="w")) == "running"
    assert [status_of(record(stand)) for stand in Stand] == [str(stand) for stand in Stand]
    assert agent_of(RECORD) == "a.py"


@pytest.mark.parametrize(
    ("stand", "owner", "told"),
    [
        (Stand.READY, "w", "carried by another process, which wrote last 5.0 s ago: followed and steered from here"),
        (Stand.PARKED, "w", "carried by another process, which wrote last 5.0 s ago: followed and steered from here"),
        (Stand.READY, "", "carried by nobody, last written 5.0 s ago; carried on here"),
        (Stand.PARKED, "", "waiting since 5.0 s; carried on here"),
        (Stand.BLOCKED, "", "blocked 5.0 s ago: why; tried again with the code of today"),
        (Stand.FINISHED, "", "ended 5.0 s ago: why"),
        (Stand.FAILED, "", "failed 5.0 s ago: why"),
    ],
)
def test_every_stand_has_its_words(stand: Stand, owner: str, told: str) -> None:
    """Who carries it, since when, and what happens now."""
    assert standing_of(record(stand, owner=owner, reason="why"), NOW + timedelta(seconds=5)) == told


def test_blocked_is_what_was_tried_and_failed() -> None:
    """Not what was blocked before, and not what is being tried."""
    assert is_blocked(record(Stand.BLOCKED, fence=2), 1)
    assert not is_blocked(record(Stand.BLOCKED, fence=1), 1)
    assert not is_blocked(record(Stand.BLOCKED, fence=2, owner="w"), 1)
    assert not is_blocked(record(Stand.READY, fence=2), 1)
