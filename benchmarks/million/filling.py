"""Fills the tables of a store as an installation of some years has them, by statements of whole sets of rows.

Of every ten runs six are one tenant's, a tenth of these one user's; the others are of 99 tenants. Ten runs make a
session, but for the oldest four of a hundred, which are all in one. A twentieth of the runs asked somebody, and 3 of a
thousand still wait for the answer; 1 of a thousand waits for a time, 1 of ten thousand for a worker. Every run has
three entries and five events. SQLite and Postgres read the same statements, and every number in them follows from the
number of runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final
from zlib import crc32

from harborage.events import Event, EventType, RedactedMap
from harborage.events.rows import encode_event
from harborage.identity import Identity
from harborage.planner import Finish, FinishReason, PauseReason
from harborage.runtime.durable.journal import Ended, Patched, Started, encode_entry, raw
from harborage.runtime.durable.pauses.rows import encode_open_pause
from harborage.runtime.loop.pauses import Pause, PauseState
from harborage.runtime.loop.seam import RunRequest
from harborage.store import EVENT_STEP
from harborage.store.times import micros

TENANT: Final = "t0"
"""Whose are six of ten runs."""
BIG_SESSION: Final = Identity(TENANT, "u0", "s0")
"""Which has four of a hundred runs; its user has one of ten that are of its tenant."""
SMALL_USER: Final = "u8"
"""A user of the same tenant, with a thousandth as many."""
AGENT: Final = "a1"
"""Whose is one of eleven runs."""
BEGIN: Final = micros(datetime(2026, 1, 1, tzinfo=UTC))
"""When the first run was started; the next was a second later."""
SECOND: Final = 1_000_000
EVENTS: Final = 5

_NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
_WHO: Final = BIG_SESSION.with_run("r0")
_LATER: Final = 1 << 52
_NUMBERS: Final = "WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {last})"

ENTRIES: Final = tuple(
    encode_entry(entry)
    for entry in (
        Started(
            at=_NOW, request=raw(RunRequest(who=_WHO, goal="draft the notes of a release, and ask before it is out"))
        ),
        Patched(at=_NOW, change="the steps of a planner are numbered from one"),
        Ended(at=_NOW, finish=raw(Finish(FinishReason.GOAL, "the notes are drafted, read by a person, and published"))),
    )
)
EVENT: Final = encode_event(
    Event(EventType.TOOL_COMPLETED, _WHO, RedactedMap({"tool": "publish", "call": "1", "result": "published"}), _NOW)
)
_QUESTION: Final = encode_open_pause(
    Pause(
        token="p0",
        reason=PauseReason.APPROVAL_REQUIRED,
        state=PauseState.PAUSED,
        identity=_WHO,
        paused_at=_NOW,
        payload={"tool": "publish", "args": {"channel": "stable"}},
    )
)


def filling(runs: int, blob: Callable[[bytes], str]) -> Iterator[tuple[str, str]]:
    """What is filled, and the statement that fills it: empty tables, with so many runs, a multiple of a thousand.

    `blob` says how bytes are written in a statement.
    """
    together = runs // 25
    yield "sessions", _numbered(1 + (runs - together) // 10) + _sessions(together, blob)
    yield "runs", _numbered(runs) + _runs(together)
    yield "entries", _numbered(runs * len(ENTRIES)) + _journal(blob)
    yield "events", _numbered(runs * EVENTS) + _events(together, blob)
    yield "pauses", _pauses(blob)
    yield "groups", _groups(together)


def _numbered(rows: int) -> str:
    return _NUMBERS.format(last=rows - 1)


def _sessions(together: int, blob: Callable[[bytes], str]) -> str:
    """One of a hundred is open; the first is that of the oldest runs."""
    return f"""
INSERT INTO harborage_sessions (tenant, "user", session, opened_at, seen_at, closed_at, events, context)
SELECT
  CASE WHEN n % 10 < 6 THEN 't0' ELSE 't' || (1 + n / 10 % 99) END,
  CASE WHEN n % 100 < 6 THEN 'u0' ELSE 'u' || (1 + n % 997) END,
  's' || n, {_at(f"CASE WHEN n = 0 THEN 0 ELSE {together} + (n - 1) * 10 END")},
  {_at(f"{together} + n * 10")}, CASE WHEN n % 100 > 0 THEN {_at(f"{together} + n * 10")} END,
  CASE WHEN n = 0 THEN {together} ELSE 10 END * {EVENTS}, {blob(b"{}")}
FROM numbers ORDER BY n"""


def _runs(together: int) -> str:
    """Statuses are as the migrations number them. Every hundredth run is the child of one of its session."""
    return f"""
INSERT INTO harborage_runs (
  run_id, session, tenant, "user", agent, parent, root, grp, kind, priority, status, reason, description, about,
  created_at, updated_at, wake_at, position, fence, woken, children, tree, fingerprint, cascades, notifies,
  retains_turn, tool_count
)
SELECT
  'r' || n, session.num, session.tenant, session."user", 'a' || (n % 11),
  CASE WHEN n % 100 = 13 THEN 'r' || (n - 3) END, CASE WHEN n % 100 = 13 THEN 'r' || (n - 3) END,
  CASE WHEN n % 1000 = 24 THEN 'g' || n END,
  CASE WHEN n % 100 = 13 THEN 'background' ELSE 'foreground' END, n % 3,
  CASE
    WHEN n % 1000 IN (0, 5, 340, 680) THEN 2 WHEN n % 10000 = 1 THEN 0 WHEN n % 50 = 7 THEN 4 WHEN n % 100 = 11 THEN 5
    ELSE 3
  END,
  CASE WHEN n % 50 = 7 THEN 'tool_failed' ELSE '' END, '', 'Draft the notes of release ' || n || ', and publish them',
  {_at("n")}, {_at("n + 5")}, CASE WHEN n % 1000 = 5 THEN {_LATER} END, {len(ENTRIES)}, 1, n % 10000 = 1,
  CASE WHEN n % 100 = 10 THEN 1 ELSE 0 END, CASE WHEN n % 100 = 10 THEN 1 ELSE 0 END, '', n % 100 = 13, FALSE, FALSE, 1
FROM numbers
JOIN harborage_sessions AS session
  ON session.num = CASE WHEN n < {together} THEN 1 ELSE 2 + (n - {together}) / 10 END
ORDER BY n"""


def _journal(blob: Callable[[bytes], str]) -> str:
    return f"""
INSERT INTO harborage_journal (run, position, crc, data)
SELECT 1 + n / 3, 1 + n % 3, {_choice("n % 3", [str(crc32(data)) for data in ENTRIES])},
  {_choice("n % 3", [blob(data) for data in ENTRIES])}
FROM numbers ORDER BY n"""


def _events(together: int, blob: Callable[[bytes], str]) -> str:
    """Those of a run come one after another, at its place in its session."""
    run = f"n / {EVENTS}"
    return f"""
INSERT INTO harborage_events (sequence, session, place, run, type, at, crc, data)
SELECT
  CAST(1 + n AS bigint) * {EVENT_STEP}, CASE WHEN {run} < {together} THEN 1 ELSE 2 + ({run} - {together}) / 10 END,
  1 + n % {EVENTS} + {EVENTS} * CASE WHEN {run} < {together} THEN {run} ELSE {run} % 10 END,
  'r' || {run}, '{EVENT.type}', {_at(run)}, {crc32(EVENT.data)}, {blob(EVENT.data)}
FROM numbers ORDER BY n"""


def _pauses(blob: Callable[[bytes], str]) -> str:
    """Those of paused runs are open, and of these that wait for no time; the others were approved."""
    return f"""
INSERT INTO harborage_pauses (
  token, run, session, tenant, "user", reason, status, opened_at, settled_at, settled_by, data
)
SELECT
  'p' || num, run_id, session, tenant, "user", '{_QUESTION.reason}',
  CASE WHEN status = 2 THEN 'open' ELSE 'approved' END, created_at, CASE WHEN status <> 2 THEN updated_at END,
  CASE WHEN status <> 2 THEN "user" ELSE '' END, {blob(_QUESTION.data)}
FROM harborage_runs WHERE num % 20 = 1 ORDER BY num"""


def _groups(together: int) -> str:
    """Of one run each, which has ended."""
    return """
INSERT INTO harborage_groups (
  session, group_id, owner, retains_turn, fails_fast, description, status, members, open_members, created_at, sealed_at,
  ended_at
)
SELECT session, grp, '', FALSE, FALSE, '', 'completed', 1, 0, created_at, created_at, updated_at
FROM harborage_runs WHERE grp IS NOT NULL ORDER BY num"""


def _at(number: str) -> str:
    """When a run of this number was started."""
    return f"{BEGIN} + CAST({number} AS bigint) * {SECOND}"


def _choice(number: str, values: list[str]) -> str:
    cases = " ".join(f"WHEN {index} THEN {value}" for index, value in enumerate(values))
    return f"CASE {number} {cases} END"
