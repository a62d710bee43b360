"""How values of the ports become columns and come back; nothing here opens or asks a database.

Free text goes through `kept_text`, since it may hold what Postgres refuses in text; names are kept as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from harborage.identity import Quadruple
from harborage.state.runs import EntryMissingError, RunRecord, Stand, Standing, Write
from harborage.state.store import StateRecord

if TYPE_CHECKING:
    from harborage.state.postgres.driver import Row

__all__ = [
    "body_columns",
    "entries_of",
    "entry_columns",
    "kept_text",
    "read_text",
    "record_of",
    "standing_columns",
    "state_record_of",
]

_ESCAPED = re.compile(r"\\(.)")


def kept_text(text: str) -> str:
    r"""Text without NUL: it becomes `\0`, and a backslash becomes two."""
    if "\0" not in text and "\\" not in text:
        return text
    return text.replace("\\", "\\\\").replace("\0", "\\0")


def read_text(text: str) -> str:
    """What was kept by `kept_text`."""
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], text)


def entry_columns(entries: Sequence[bytes]) -> tuple[list[int], list[bytes]]:
    """Checksums and data of entries."""
    data = [bytes(entry) for entry in entries]
    return [crc32(one) for one in data], data


def body_columns(write: Write) -> tuple[list[str], list[bytes]]:
    """Digests and data of bodies; in one order everywhere, so that two writers do not lock each other."""
    digests = sorted(write.bodies)
    return digests, [bytes(write.bodies[digest]) for digest in digests]


def entries_of(run_id: str, rows: Sequence[Row], after: int) -> list[bytes]:
    """The entries in rows of `read`, which hold the run's count beside each.

    Raises:
        EntryMissingError: one is not there, or not what was kept.
    """
    if not rows:
        return []
    found = [(row["position"], row["crc"], row["data"]) for row in rows if row["position"] is not None]
    wanted = range(after + 1, max(after, rows[0]["entries"]) + 1)
    for place, entry in zip(wanted, found, strict=False):
        if entry[0] != place or crc32(entry[2]) != entry[1]:
            raise EntryMissingError(run_id=run_id, entry=place - 1)
    if len(found) != len(wanted):
        raise EntryMissingError(run_id=run_id, entry=after + min(len(found), len(wanted)))
    return [data for _, _, data in found]


def record_of(row: Row) -> RunRecord:
    """The run in a row."""
    return RunRecord(
        run_id=row["run_id"],
        who=Quadruple(row["tenant_id"], row["user_id"], row["session_id"], row["who_run_id"]),
        goal=read_text(row["goal"]),
        agent=row["agent"],
        standing=_standing_of(row),
        owner=row["owner"],
        fence=row["fence"],
        entries=row["entries"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def _standing_of(row: Row) -> Standing:
    """How the run in a row stands; a word that this version does not know blocks it, and hides no other run."""
    try:
        stand = Stand(row["stand"])
    except ValueError:
        reason = f"run {row['run_id']}: its stand {row['stand']!r} in harborage_runs is unknown here; upgrade"
        return Standing(stand=Stand.BLOCKED, reason=reason)
    reason = read_text(row["reason"])
    return Standing(stand=stand, reason=reason, wake_at=row["wake_at"], waits_for=row["waits_for"])


def standing_columns(standing: Standing | None) -> tuple[Any, ...]:
    """Stand, reason, time and run waited for; four nulls for none."""
    if standing is None:
        return (None, None, None, None)
    return (standing.stand.value, kept_text(standing.reason), standing.wake_at, standing.waits_for)


def state_record_of(row: Row, tenant_id: str, user_id: str, session_id: str) -> StateRecord:
    """The record in a row of a slot of this session."""
    who = Quadruple(tenant_id, user_id, session_id, row["run_id"])
    return StateRecord(row["event_id"], who, row["kind"], row["data"], row["version"], row["updated_at"])
