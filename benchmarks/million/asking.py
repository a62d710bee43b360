"""Each question to a store of many runs, beside the time that it may take."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from benchmarks.measure import Row
from benchmarks.million.doctor import doctor_rows
from benchmarks.million.filling import AGENT, BEGIN, BIG_SESSION, ENTRIES, EVENTS, SECOND, SMALL_USER, TENANT
from benchmarks.million.places import Place, postgres_place, sqlite_place
from benchmarks.million.timing import Ask, ms_alone, ms_beyond
from harborage.identity import Identity
from harborage.store import (
    EVENT_STEP,
    LIVE,
    Commit,
    EventQuery,
    NewRun,
    PauseQuery,
    PauseStatus,
    RunQuery,
    SessionQuery,
    Status,
    Store,
)
from tests.kit.postgres import PostgresUnavailableError

_RUNS: Final = "HARBORAGE_BENCH_RUNS"
_MILLION: Final = 1_000_000
_ASKED_MS: Final = 50.0
_CLAIM_MS: Final = 5.0
_CLAIMS: Final = 20
_HOUR: Final = 3600 * SECOND


async def million_runs() -> list[Row]:
    """Lists, filters, counts, what is pending, orphans and claims, on SQLite and, where it can be started, Postgres."""
    runs = int(os.environ.get(_RUNS, _MILLION)) // 1000 * 1000
    async with sqlite_place(runs) as place:
        rows = await _rows(f"SQLite, {runs:,} runs", place, runs)
    try:
        async with postgres_place(runs) as place:
            rows += await _rows(f"Postgres, {runs:,} runs", place, runs)
    except PostgresUnavailableError as error:
        rows.append(Row(name="on Postgres: not measured", unit="", ours=0, note=str(error)))
    return rows


async def _rows(where: str, place: Place, runs: int) -> list[Row]:
    """Of each family of questions the one that took longest, then a claim."""
    store = place.storage.store
    print(f"  {where}: filled", file=sys.stderr)
    rows: list[Row] = []
    for family, asks in _asked(store, runs).items():
        spent = {what: await ms_alone(ask) for what, ask in asks.items()}
        slowest = max(spent, key=lambda what: spent[what])
        name = f"{where}: {family}, slowest of {len(spent)}" if len(spent) > 1 else f"{where}: {family}"
        rows.append(Row(name=name, unit="ms", ours=spent[slowest], most=_ASKED_MS, note=slowest))
    rows.append(
        Row(name=f"{where}: claim, beyond a bare commit", unit="ms", ours=await _claim_ms(place), most=_CLAIM_MS)
    )
    return [*rows, *await doctor_rows(where, place)]


def _asked(store: Store, runs: int) -> dict[str, dict[str, Ask]]:
    """What is asked, by family and name."""
    return {
        "lists of runs": _each(store.runs, _lists(runs)),
        "counts of runs": _each(store.count_runs, _counts()),
        "pending and settled pauses": _each(store.pauses, _pauses()),
        "counts of pauses": _each(store.count_pauses, _pauses()),
        "events": _each(store.events, _events(runs)),
        "sessions": _each(store.sessions, _sessions()),
        "orphans": {"": store.orphans},
        "when the next run is due": {"": store.next_due},
    }


def _each(method: Callable[[Any], Awaitable[object]], queries: Mapping[str, object]) -> dict[str, Ask]:
    return {what: _of(method, query) for what, query in queries.items()}


def _of(method: Callable[[Any], Awaitable[object]], query: object) -> Ask:
    return lambda: method(query)


def _lists(runs: int) -> dict[str, RunQuery]:
    middle = BEGIN + runs // 2 * SECOND
    tenant = RunQuery(tenant=TENANT)
    user = RunQuery(tenant=TENANT, user=BIG_SESSION.user_id)
    return {
        "of all": RunQuery(),
        "of a tenant": tenant,
        "of a tenant, a page in the middle": RunQuery(tenant=TENANT, after=(middle, runs // 2)),
        "of a tenant, an hour": RunQuery(tenant=TENANT, since=middle, until=middle + _HOUR),
        "of a user": RunQuery(tenant=TENANT, user=SMALL_USER),
        "of a session": RunQuery(tenant=TENANT, user=BIG_SESSION.user_id, session=BIG_SESSION.session_id),
        "of an agent": RunQuery(tenant=TENANT, agent=AGENT),
        "of what is live": RunQuery(statuses=LIVE),
        "of a tenant, paused": RunQuery(tenant=TENANT, statuses=(Status.PAUSED,)),
        "of a tenant, failed": RunQuery(tenant=TENANT, statuses=(Status.FAILED,)),
        "of a tenant, failed for a reason that none has": RunQuery(tenant=TENANT, reasons=("none",)),
        "of a tenant, complete": RunQuery(tenant=TENANT, statuses=(Status.COMPLETE,)),
        "of a user with many, failed": RunQuery(tenant=TENANT, user=user.user, statuses=(Status.FAILED,)),
        "of failed ones of anybody": RunQuery(statuses=(Status.FAILED,)),
        "of a kind that none is of, first slice": RunQuery(tenant=TENANT, kinds=("none",)),
        "of words that none has, first slice": RunQuery(tenant=TENANT, text="no such words"),
        "of words that none has, of anybody, first slice": RunQuery(text="no such words"),
    }


def _counts() -> dict[str, RunQuery]:
    return {
        "of all": RunQuery(),
        "of a tenant": RunQuery(tenant=TENANT),
        "of an agent": RunQuery(tenant=TENANT, agent=AGENT),
        "of a user": RunQuery(tenant=TENANT, user=SMALL_USER),
        "of a user with many": RunQuery(tenant=TENANT, user=BIG_SESSION.user_id),
        "of a tenant, paused": RunQuery(tenant=TENANT, statuses=(Status.PAUSED,)),
        "of a tenant, failed": RunQuery(tenant=TENANT, statuses=(Status.FAILED,)),
        "of words that none has, first slice": RunQuery(tenant=TENANT, text="no such words"),
    }


def _pauses() -> dict[str, PauseQuery]:
    pending = (PauseStatus.OPEN,)
    return {
        "pending, of all": PauseQuery(statuses=pending),
        "pending, of a tenant": PauseQuery(tenant=TENANT, statuses=pending),
        "pending, of a user": PauseQuery(tenant=TENANT, user=BIG_SESSION.user_id, statuses=pending),
        "settled, of a tenant": PauseQuery(tenant=TENANT, statuses=(PauseStatus.APPROVED,)),
        "overdue": PauseQuery(due=BEGIN),
    }


def _events(runs: int) -> dict[str, EventQuery]:
    tenant, user, session = BIG_SESSION.tenant_id, BIG_SESSION.user_id, BIG_SESSION.session_id
    middle = runs * EVENTS // 2 * EVENT_STEP
    return {
        "of all, behind a number": EventQuery(after=middle),
        "of a tenant, newest first": EventQuery(tenant=tenant, newest_first=True),
        "of a session, behind a number": EventQuery(tenant=tenant, user=user, session=session, after=middle // 50),
    }


def _sessions() -> dict[str, SessionQuery]:
    return {
        "of all": SessionQuery(),
        "of a tenant": SessionQuery(tenant=TENANT),
        "that were opened": SessionQuery(only_opened=True),
    }


async def _claim_ms(place: Place) -> float:
    """The milliseconds of a claim beyond those of a bare commit, whose flush to the disk it has, too."""
    store = place.storage.store
    who = Identity(TENANT, BIG_SESSION.user_id, "claims")
    for number in range(_CLAIMS):
        await store.commit(Commit(starts=(NewRun(run_id=f"ready-{number}", who=who, entries=ENTRIES[:1]),)))
    await store.join("benchmark")

    async def claim() -> None:
        assert await store.claim("benchmark", limit=1)

    spent = await ms_beyond(claim, lambda: place.bare.commit(1))
    await store.leave("benchmark")
    return spent
