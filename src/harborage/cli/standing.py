"""Where a kept run stands, in the words of the command line. Pure: records in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from harborage.app.keeping import Origin
from harborage.cli.text import duration
from harborage.state.runs import PROVIDER_UNAVAILABLE, RunRecord, Stand

__all__ = ["agent_of", "is_blocked", "is_put_off", "roots", "standing_of", "status_of"]


def is_put_off(record: RunRecord, entries: int = 0) -> bool:
    """Whether the run waits for its model's provider, which is down, and has more than so many entries."""
    standing = record.standing
    is_parked = standing.stand is Stand.PARKED and not record.owner
    return is_parked and record.entries > entries and standing.reason.startswith(PROVIDER_UNAVAILABLE)


def status_of(record: RunRecord) -> str:
    """Where a run stands, in a word: one that is ready and has an owner is running."""
    if is_put_off(record):
        return "interrupted"
    stand = str(record.standing.stand)
    return "running" if record.standing.stand is Stand.READY and record.owner else stand


def agent_of(record: RunRecord) -> str:
    """What names the run's agent on a command line; empty for the standard assistant."""
    return Origin.of(record.agent).target


def is_blocked(record: RunRecord, fence: int) -> bool:
    """Whether the code that is there has tried to carry the run, since its lease had this fence, and could not."""
    return record.standing.stand is Stand.BLOCKED and not record.owner and record.fence > fence


def roots(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs that somebody started: of those of one command the first, which spawned the others."""
    found: dict[tuple[str, ...], RunRecord] = {}
    for record in records:
        who = record.who
        key = (who.tenant_id, who.user_id, who.session_id, record.agent)
        is_family = bool(Origin.of(record.agent).mark)
        found.setdefault(key if is_family else (record.run_id,), record)
    return list(found.values())


def standing_of(record: RunRecord, now: datetime) -> str:
    """How a run stands that somebody comes back to, in a few words."""
    ago = duration(max(0.0, (now - record.updated_at).total_seconds()))
    match record.standing.stand:
        case Stand.FINISHED:
            return f"ended {ago} ago: {record.standing.reason or 'finished'}"
        case Stand.FAILED:
            return f"failed {ago} ago: {record.standing.reason}"
        case Stand.BLOCKED:
            return f"blocked {ago} ago: {record.standing.reason}; tried again with the code of today"
        case _ if record.owner:
            return f"carried by another process, which wrote last {ago} ago: followed and steered from here"
        case Stand.PARKED if is_put_off(record):
            return f"{record.standing.reason}, {ago} ago; tried again now"
        case Stand.PARKED:
            return f"waiting since {ago}; carried on here"
        case Stand.READY:
            return f"carried by nobody, last written {ago} ago; carried on here"
