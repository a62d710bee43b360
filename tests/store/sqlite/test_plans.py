"""No statement of the store in SQLite reads a whole table: each finds its rows by an index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from harborage.store import sql
from harborage.store.sqlite import SQLiteStore
from harborage.store.sqlite.connection import repeated, statements
from harborage.store.sqlite.transactions import Transaction
from tests.kit.store_questions import RUNS, TENANTS, USERS, ask_everything

FILES = ("audit", "commits", "queue", "upkeep", "views")
SHARED_FILES = ("audit", "views")
OF_DAMAGE = frozenset(
    {
        "block",
        "event_rows_raw",
        "first_entry",
        "inboxes_raw",
        "pause_by_num",
        "pause_keys",
        "run_keys",
        "run_numbers",
        "salvage",
        "salvaged_pause",
        "salvaged_session",
        "session_keys",
        "unread_raw",
    }
)
"""Statements for rows that are damaged or gone."""
ELSEWHERE = frozenset({"bury", "tables"})
"""A worker that died, and the check of a file's pages."""
LARGE = re.compile(
    r"(SCAN|SEARCH) "
    r"(run|other|parent|entry|event|pause|control|one|body|named|harborage_(?:runs|journal|events|pauses|controls|groups|(?:run_)?bodies))\b(.*)"
)
PARTIAL = re.compile(
    r"harborage_\w+_(ready|due|owner|inbox|blocked|parent|group|awaits|idem|live|bad|failed|open|unread)\b"
)
FILL = """
WITH RECURSIVE numbers (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < {rows} - 1)
"""
SESSIONS = TENANTS * USERS * 2
TABLES = {
    f"""INSERT INTO harborage_sessions (tenant, user, session, opened_at, seen_at)
    SELECT 't' || (number % {TENANTS}), 'u' || (number / {TENANTS} % {USERS}), 's' || (number / {TENANTS * USERS}),
      number, number FROM numbers""": SESSIONS,
    f"""INSERT INTO harborage_runs (
      run_id, session, tenant, user, agent, parent, kind, priority, status, description, about, created_at,
      updated_at, wake_at, position, fence, woken, fingerprint, cascades, notifies, retains_turn
    )
    SELECT
      'r' || number, number % {SESSIONS} + 1, 't' || (number % {TENANTS}), 'u' || (number / {TENANTS} % {USERS}),
      'a' || (number % 7), CASE WHEN number % 50 = 3 THEN 'r' || (number / 50) END, 'foreground', 0,
      CASE WHEN number % 100 = 0 THEN 2 WHEN number % 100 = 1 THEN 4 ELSE 3 END, '', 'goal', number, number + 10,
      CASE WHEN number % 400 = 0 THEN number END, 3, 1, number % 4000 = 0, '', 1, 0, 0 FROM numbers""": RUNS,
    """INSERT INTO harborage_journal (run, position, crc, data)
    SELECT number / 3 + 1, number % 3 + 1, 3421780262, CAST('123456789' AS BLOB) FROM numbers""": RUNS * 3,
    f"""INSERT INTO harborage_events (session, place, run, type, at, crc, data)
    SELECT number % {SESSIONS} + 1, number / {SESSIONS} + 1, 'r' || (number % {RUNS}), 'a', number, 3421780262,
      CAST('123456789' AS BLOB) FROM numbers""": RUNS * 3,
    """INSERT INTO harborage_pauses (token, run, session, tenant, user, reason, status, opened_at, data)
    SELECT 'p' || num, run_id, session, tenant, user, 'await_input', CASE status WHEN 2 THEN 'open' ELSE 'approved' END,
      created_at, x'' FROM harborage_runs WHERE num % 4 = 0""": 1,
    f"""INSERT INTO harborage_groups (
      session, group_id, owner, retains_turn, fails_fast, description, status, members, open_members, created_at
    )
    SELECT number % {SESSIONS} + 1, 'g' || (number / {SESSIONS}), '', 0, 0, '',
      CASE WHEN number % 100 = 0 THEN 'open' ELSE 'completed' END, 1, 1, number FROM numbers""": RUNS,
    f"""INSERT INTO harborage_controls (run, event_id, type, sent_at, consumed, data)
    SELECT number % {RUNS} + 1, 'e' || number, 'PAUSE', number, CASE WHEN number % 100 > 0 THEN 1 END, x''
    FROM numbers""": RUNS,
    "INSERT INTO harborage_bodies (digest, data) SELECT 'd' || number, x'' FROM numbers": RUNS,
    "INSERT INTO harborage_run_bodies (run, body) SELECT number + 1, number + 1 FROM numbers": RUNS,
}

Asked = dict[str, Any]


@pytest.fixture(params=["analyzed", "as it is"])
async def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file whose tables are full, with and without statistics of them."""
    file = tmp_path / "runs.db"
    await (await SQLiteStore.open(file)).aclose()
    connection = apsw.Connection(str(file))
    with connection:
        for statement, rows in TABLES.items():
            connection.execute(FILL.format(rows=rows) + statement)
    if request.param == "analyzed":
        connection.execute("ANALYZE")
    connection.close()
    return file


@pytest.fixture
async def asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The statements that a store carries out there, each with values of one time."""
    found: Asked = {}
    init = Transaction.__init__

    def listen(self: Transaction, connection: apsw.Connection) -> None:
        init(self, connection)
        execute: Any = connection.execute

        def received(text: str, values: Any = ()) -> Any:
            found.setdefault(text, values)
            return execute(text, values)

        self.execute = received  # type: ignore[method-assign]

    monkeypatch.setattr(Transaction, "__init__", listen)
    store = await SQLiteStore.open(path)
    await ask_everything(store)
    await store.aclose()
    return found


def plan(connection: apsw.Connection, text: str, values: Any) -> list[str]:
    """How SQLite finds the rows of a statement, line by line."""
    return [str(detail) for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {text}", values)]


def whole_tables(text: str, lines: list[str]) -> Iterator[str]:
    """What a statement reads from end to end: a table, or an index of all its rows that no page of it cuts short."""
    is_page = "limit" in text.lower() and not any("ORDER BY" in line and "TEMP B-TREE" in line for line in lines)
    for line in lines:
        read = LARGE.search(line)
        if read is None or PARTIAL.search(line):
            continue
        verb, _, way = read.groups()
        is_from_the_beginning = verb == "SCAN" or "(rowid>?)" in way
        if "USING" not in way or (is_from_the_beginning and not is_page):
            yield line


async def test_every_statement_finds_its_rows_by_an_index(path: Path, asked: Asked) -> None:
    """No statement reads a large table from end to end, nor sorts all of it for one page."""
    connection = apsw.Connection(str(path))
    found = [
        f"{line}: {text}"
        for text, values in asked.items()
        for line in whole_tables(text, plan(connection, text, values))
    ]
    assert not found, "\n\n".join(found)


async def test_every_statement_was_asked(asked: Asked) -> None:
    """Each statement of the files, and each piece of one, was part of what was looked at."""
    said = "\n".join(asked)
    files = [*(statements(file, sql.__name__) for file in SHARED_FILES), *map(statements, FILES)]
    every = {name: text for found in files for name, text in found.items()}
    unseen = {name for name, text in every.items() if text not in said and repeated(text, 1) not in said}
    assert unseen <= ELSEWHERE | OF_DAMAGE


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM harborage_runs WHERE about = 'goal' LIMIT 1",
        "SELECT * FROM harborage_runs AS run WHERE run.num > 0 ORDER BY updated_at LIMIT 10",
        "SELECT max(at) FROM harborage_events AS event",
        "SELECT count(*) FROM harborage_pauses",
    ],
)
async def test_a_statement_without_an_index_is_seen(path: Path, statement: str) -> None:
    """What the test above looks for is found where it is."""
    assert [*whole_tables(statement, plan(apsw.Connection(str(path)), statement, ()))]
