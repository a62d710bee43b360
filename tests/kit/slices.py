"""Lists and counts of a store that looks at a few runs at a time, beside the same of one that looks at all."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from harborage.identity import Identity
from harborage.store import Change, Commit, NewRun, RunQuery, Status, Store
from harborage.store.tags import marks_of, text_of
from harborage.testing.conformance.store_bench import step

if TYPE_CHECKING:
    from harborage.testing.clock import FakeClock

WHOSE = (Identity("a", "u", "s"), Identity("a", "u", "t"), Identity("a", "v", "s"), Identity("b", "u", "s"))
NARROWED: tuple[dict[str, Any], ...] = (
    {},
    {"tenant": "a"},
    {"tenant": "a", "user": "u"},
    {"tenant": "a", "user": "u", "session": "s"},
    {"tenant": "a", "user": "u", "session": "nobody"},
    {"tenant": "a", "agent": "one"},
    {"tenant": "a", "user": "u", "agent": "one"},
    {"user": "u"},
    {"session": "s"},
    {"agent": "one"},
    {"agent": "nobody"},
    {"root": "run-02"},
    {"since": 1, "until": 1 << 52},
    {"until": 1},
)
"""Whose runs, and of when."""
FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"text": "NOTES"},
    {"text": "nowhere"},
    {"kinds": ("background",)},
    {"longer_than": 1 << 50},
    {"statuses": (Status.PAUSED, Status.PENDING)},
    {"statuses": (Status.FAILED,)},
    {"statuses": (Status.COMPLETE,)},
    {"statuses": (Status.COMPLETE, Status.CANCELLED, Status.RUNNING)},
    {"reasons": ("broken",)},
    {"tags": marks_of({"shop": "porto"})},
    {"tags": marks_of({"shop": "porto", "a b": "x%_\\"}), "text": "notes"},
    {"tags": marks_of({"shop": "Porto"})},
    {"reasons": ("broken",), "text": "notes"},
)
TAGS: tuple[dict[str, str], ...] = (
    {},
    {"shop": "porto"},
    {"shop": "porto", "a b": "x%_\\"},
    {"shop": "lisbon"},
)
ENDS = {
    1: Change(status=Status.COMPLETE),
    2: Change(status=Status.FAILED, reason="broken"),
    3: Change(status=Status.FAILED, reason="other"),
    4: Change(status=Status.CANCELLED),
    5: Change(status=Status.PAUSED, release=True, wake_at=1 << 50),
}


async def fill(store: Store, clock: FakeClock, runs: int = 40) -> None:
    """Keep runs of several people, in every status; several begin at the same time."""
    await store.join("worker")
    for number in range(runs):
        clock.advance(1 if number % 3 == 0 else 0)
        worker = "worker" if number % 7 in ENDS or number % 7 == 6 else ""
        start = NewRun(
            run_id=f"run-{number:02}",
            who=WHOSE[number % len(WHOSE)],
            agent="one" if number % 3 else "two",
            kind="background" if number % 5 == 0 else "foreground",
            goal="Draft the Notes" if number % 2 else "Publish",
            tags=text_of(TAGS[number % 4]),
            entries=(b"started",),
            worker=worker,
        )
        await store.commit(Commit(starts=(start,)))
        if number % 7 in ENDS:
            (row,) = (await store.runs(RunQuery(run_ids=(start.run_id,)))).rows
            await store.commit(step(row.lease, 1, b"step", change=ENDS[number % 7]))


def queries() -> list[RunQuery]:
    """Every kind of list, both ways round."""
    return [
        RunQuery(**whose, **which, oldest_first=oldest_first, limit=3)
        for whose in NARROWED
        for which in FILTERS
        for oldest_first in (False, True)
    ]


async def listed(store: Store, query: RunQuery) -> list[str]:
    """The runs of a query, page by page; each page begins behind the one before, and no run comes twice."""
    found: list[str] = []
    while True:
        page = await store.runs(query)
        found += [row.run_id for row in page.rows]
        if page.cursor is None:
            assert len(set(found)) == len(found)
            return found
        assert page.cursor != query.after
        query = replace(query, after=page.cursor)


async def check_lists(store: Store, whole: Store) -> None:
    """Compare every list and count with those of a store that looks at everything; the runs are the same."""
    for query in queries():
        expected = sorted(await listed(whole, query), reverse=not query.oldest_first)
        assert await listed(store, query) == expected, query
        counts = await store.count_runs(query)
        rows = (await whole.runs(replace(query, limit=1000))).rows
        tally = Counter(row.status for row in rows)
        if counts.is_capped:
            assert all(count <= tally[status] for status, count in counts.by_status.items()), query
        else:
            assert {status: count for status, count in counts.by_status.items() if count} == tally, query
