"""Where a kept run stands, in the words of the command line. Pure: rows in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from harborage.app.keeping import Origin
from harborage.cli.text import duration
from harborage.runtime.durable import PROVIDER_UNAVAILABLE, RunPhase
from harborage.runtime.engines.reader import phase_of
from harborage.store.times import moment

if TYPE_CHECKING:
    from harborage.store import RunRow

__all__ = ["agent_of", "is_blocked", "is_put_off", "roots", "standing_of", "status_of", "why"]


_WORDS: Final = {RunPhase.PENDING: "ready"}


def is_put_off(row: RunRow, entries: int = 0) -> bool:
    """Whether the run waits for its model's provider, which is down, and has more than so many entries."""
    is_parked = not row.status.is_final and not row.owner and not row.blocked
    return is_parked and row.position > entries and row.reason.startswith(PROVIDER_UNAVAILABLE)


def status_of(row: RunRow) -> str:
    """Where a run stands, in a word."""
    phase = phase_of(row)
    return "interrupted" if is_put_off(row) else _WORDS.get(phase, str(phase))


def agent_of(row: RunRow) -> str:
    """What names the run's agent on a command line; empty for the standard assistant."""
    return Origin.of(row.agent).target


def is_blocked(row: RunRow, fence: int) -> bool:
    """Whether the code that is there has tried to carry the run, since its lease had this fence, and could not."""
    return phase_of(row) is RunPhase.BLOCKED and row.fence > fence


def why(row: RunRow) -> str:
    """Why a run is blocked, has ended or waits; empty where nothing is to say."""
    return row.blocked or row.reason


def roots(rows: Sequence[RunRow]) -> list[RunRow]:
    """The runs that somebody started: of those of one command the first, which spawned the others."""
    found: dict[tuple[str, ...], RunRow] = {}
    for row in rows:
        who = row.who
        key = (who.tenant_id, who.user_id, who.session_id, row.agent)
        is_family = bool(Origin.of(row.agent).mark)
        found.setdefault(key if is_family else (row.run_id,), row)
    return list(found.values())


def standing_of(row: RunRow, now: datetime) -> str:
    """How a run stands that somebody comes back to, in a few words."""
    ago = duration(max(0.0, (now - moment(row.updated_at)).total_seconds()))
    match phase_of(row):
        case RunPhase.FINISHED:
            return f"ended {ago} ago: {row.reason or 'finished'}"
        case RunPhase.FAILED:
            return f"failed {ago} ago: {row.reason}"
        case RunPhase.BLOCKED:
            return f"blocked {ago} ago: {row.blocked}; trying again with the code of today"
        case RunPhase.RUNNING:
            return f"another worker executes it, last step {ago} ago; followed and steered from here"
        case _ if is_put_off(row):
            return f"{row.reason}, {ago} ago; trying again now"
        case RunPhase.PARKED:
            return f"waiting for {ago}; resuming here"
        case RunPhase.PENDING:
            return f"interrupted {ago} ago; resuming here"
