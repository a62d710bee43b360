"""No statement of the store in Postgres reads a whole table: each finds its rows by an index."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import pytest

from harborage.state.postgres.database import Database, Work
from harborage.store.postgres import PostgresStore, audit
from harborage.store.postgres.statements import SQL, bound
from tests.kit.store_questions import RUNS, TENANTS, USERS, ask_everything

T = TypeVar("T")

LARGE = {
    "harborage_runs",
    "harborage_journal",
    "harborage_events",
    "harborage_pauses",
    "harborage_controls",
    "harborage_groups",
    "harborage_bodies",
    "harborage_run_bodies",
}
PARTIAL = {
    "ready",
    "due",
    "owner",
    "inbox",
    "blocked",
    "parent",
    "group",
    "awaits",
    "idem",
    "live",
    "bad",
    "failed",
    "open",
}
# The plan of every statement, also of those in functions, is sent to the client.
PLAN_LOGGING = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
    "client_min_messages": "log",
}
FILL = f"""
insert into harborage_sessions (tenant, "user", session, opened_at, seen_at)
select 't' || number % {TENANTS}, 'u' || number / {TENANTS} % {USERS}, 's' || number / {TENANTS * USERS}, number, number
from generate_series(0, {TENANTS * USERS * 2 - 1}) as number order by number;

insert into harborage_runs (
  run_id, session, tenant, "user", agent, parent, kind, priority, status, description, about, created_at, updated_at,
  wake_at, position, fence, woken, fingerprint, cascades, notifies, retains_turn
)
select
  'r' || number, number % {TENANTS * USERS * 2} + 1, 't' || number % {TENANTS}, 'u' || number / {TENANTS} % {USERS},
  'a' || number % 7, case when number % 50 = 3 then 'r' || number / 50 end, 'foreground', 0,
  case when number % 100 = 0 then 2 when number % 100 = 1 then 4 else 3 end, '', 'goal', number, number + 10,
  case when number % 400 = 0 then number end, 3, 1, number % 4000 = 0, '', true, false, false
from generate_series(1, {RUNS}) as number;

insert into harborage_journal (run, position, crc, data)
select number / 3 + 1, number % 3 + 1, 3421780262, '123456789' from generate_series(0, {RUNS * 3 - 1}) as number;

insert into harborage_events (sequence, session, place, run, type, at, crc, data)
select
  nextval('harborage_sequence'), number % {TENANTS * USERS * 2} + 1, number / {TENANTS * USERS * 2} + 1,
  'r' || number % {RUNS}, 'a', number, 3421780262, '123456789'
from generate_series(0, {RUNS * 3 - 1}) as number;

insert into harborage_pauses (token, run, session, tenant, "user", reason, status, opened_at, data)
select
  'p' || run.num, run.run_id, run.session, run.tenant, run."user", 'await_input',
  case when run.status = 2 then 'open' else 'approved' end, run.created_at, ''
from harborage_runs as run where run.num % 4 = 0;

insert into harborage_groups (
  session, group_id, owner, retains_turn, fails_fast, description, status, members, open_members, created_at
)
select
  number % {TENANTS * USERS * 2} + 1, 'g' || number / {TENANTS * USERS * 2}, '', false, false, '',
  case when number % 100 = 0 then 'open' else 'completed' end, 1, 1, number
from generate_series(1, {RUNS}) as number;

insert into harborage_bodies (digest, data) select 'd' || number, '' from generate_series(1, {RUNS}) as number;

insert into harborage_run_bodies (run, body) select num, num from harborage_bodies;

insert into harborage_patches (session, patch_id, decision, created_at)
select number % {TENANTS * USERS * 2} + 1, 'p' || number, '', 1 from generate_series(1, {RUNS}) as number;

insert into harborage_controls (run, event_id, type, sent_at, consumed, data)
select number % {RUNS} + 1, 'e' || number, 'PAUSE', number, case when number % 100 > 0 then 1 end, ''
from generate_series(1, {RUNS}) as number;
"""


class Plan(NamedTuple):
    """A statement, as it was carried out, and its plan."""

    text: str
    top: dict[str, Any]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of everything that is asked of a store from now on."""
    found: list[Plan] = []
    run = Database.run

    def hear(_: Any, message: Any) -> None:
        if (start := message.message.find("{")) > 0 and "plan:" in message.message[:start]:
            published = json.loads(message.message[start:])
            found.append(Plan(published["Query Text"], published["Plan"]))

    async def run_and_hear(self: Database, work: Work[T], **options: Any) -> T:
        async def received(connection: Any, is_again: bool) -> T:
            connection.add_log_listener(hear)
            try:
                return await work(connection, is_again)
            finally:
                connection.remove_log_listener(hear)

        return await run(self, received, **options)

    monkeypatch.setattr(Database, "run", run_and_hear)
    return found


@pytest.fixture
async def asked(place: Any, plans: list[Plan]) -> list[Plan]:
    """What a store does over tables that are full, plan by plan."""
    await (await place.open()).aclose()
    await place.admin.execute(FILL)
    for table in await place.admin.fetch("select tablename from pg_tables where schemaname = $1", place.schema):
        await place.admin.execute(f"analyze {table['tablename']}")
    url = place.server.url_with(search_path=place.schema, application_name=place.schema, **PLAN_LOGGING)
    plans.clear()
    await ask_everything(place.keep(await PostgresStore.open(url)))
    return plans


def nodes(plan: dict[str, Any], above: tuple[dict[str, Any], ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The nodes of a plan, each with those above it."""
    yield plan, above
    for below in plan.get("Plans", ()):
        yield from nodes(below, (*above, plan))


def whole_tables(plan: dict[str, Any]) -> Iterator[str]:
    """What a plan reads from end to end: a table, or an index of all its rows that no limit cuts short."""
    for node, above in nodes(plan):
        table, index = node.get("Relation Name"), node.get("Index Name", "")
        if node["Node Type"] == "Seq Scan" and table in LARGE:
            yield f"the whole of {table}"
        is_partial = index.rpartition("_")[2] in PARTIAL
        is_page = any(one["Node Type"] == "Limit" for one in above)
        is_sorted = any(one["Node Type"] in {"Sort", "Incremental Sort"} for one in above)
        if index and "Index Cond" not in node and not is_partial and (is_sorted or not is_page):
            yield f"all of {index}"


async def test_every_statement_finds_its_rows_by_an_index(asked: list[Plan]) -> None:
    """Neither a statement, nor one of those inside a function, reads a large table from end to end."""
    found = {f"{what}: {plan.text}" for plan in asked for what in whole_tables(plan.top)}
    assert not found, "\n\n".join(sorted(found))


async def test_every_statement_was_asked(asked: list[Plan]) -> None:
    """Each statement of the files, and each piece of one, was part of what was looked at."""
    said = [_plain(plan.text) for plan in asked]
    texts = [*SQL.items(), *audit.SQL.items()]
    sent = [(name, bound(text, dict.fromkeys(re.findall(r":([a-z_]+)", text)))[0]) for name, text in texts]
    pieces = [(name, re.split(r"\$\d+", _plain(text))) for name, text in sent]
    unseen = [
        name
        for name, parts in pieces
        if not any(re.search(r"\$\d+".join(map(re.escape, parts)), text) for text in said)
    ]
    elsewhere = {"lock", "unlock", "is_locked_here"}  # the locks of workers have a connection of their own
    seldom = {"block", "bury", "forget_writers"}  # a damaged journal, a worker that died, the end of a store
    of_damage = {"first_entry"}
    assert set(unseen) == elsewhere | seldom | of_damage


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("select * from harborage_runs where about = 'goal'", "the whole of harborage_runs"),
        ("select * from harborage_runs where updated_at > 5 order by created_at, num", "harborage_runs"),
        ("select max(at) from harborage_events", "the whole of harborage_events"),
    ],
)
async def test_a_statement_without_an_index_is_seen(place: Any, statement: str, what: str) -> None:
    """What the test above looks for is found where it is."""
    await (await place.open()).aclose()
    await place.admin.execute(FILL)
    await place.admin.execute("analyze")
    (line,) = await place.admin.fetchrow(f"explain (format json) {statement}")
    assert any(what in one for one in whole_tables(json.loads(line)[0]["Plan"]))


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
