"""What every store of record must do. Pass a function that opens a `StoreBench` over a fresh store:

    await run_conformance(open_bench)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_bench)`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

from harborage.state.errors import StoreClosedError
from harborage.store import (
    Commit,
    EventCountQuery,
    EventQuery,
    GroupQuery,
    PauseQuery,
    RunQuery,
    SessionListQuery,
    SessionQuery,
    Store,
)
from harborage.testing.conformance import (
    store_commits,
    store_groups,
    store_lists,
    store_pauses,
    store_queue,
    store_records,
    store_sessions,
    store_tasks,
    store_views,
)
from harborage.testing.conformance.checks import check_scenario, expect_raises, run_scenarios
from harborage.testing.conformance.store_bench import ME, OpenStoreBench, StoreBench

Scenario: TypeAlias = Callable[[StoreBench], Awaitable[None]]


def calls(store: Store) -> Iterator[tuple[str, Awaitable[object]]]:
    """Each call of the port once, by name."""
    yield "commit", store.commit(Commit())
    yield "entries", store.entries("r")
    yield "body", store.body("r", "digest")
    yield "controls", store.controls("r")
    yield "controls_of", store.controls_of({"r": 0})
    yield "join", store.join("one")
    yield "beat", store.beat("one")
    yield "look", store.look("one")
    yield "claim", store.claim("one")
    yield "unread", store.unread("one")
    yield "next_due", store.next_due()
    yield "runs", store.runs(RunQuery())
    yield "count_runs", store.count_runs(RunQuery())
    yield "total_runs", store.total_runs(RunQuery())
    yield "pauses", store.pauses(PauseQuery())
    yield "count_pauses", store.count_pauses(PauseQuery())
    yield "events", store.events(EventQuery())
    none: tuple[str, ...] = ("",)
    counted = EventCountQuery(tenants=none, users=none, sessions=none, since=0, until=1, start=0, bucket=1)
    yield "count_events", store.count_events(counted)
    yield "sessions", store.sessions(SessionQuery())
    yield "total_events", store.total_events(EventQuery())
    yield "list_sessions", store.list_sessions(SessionListQuery())
    yield "count_sessions", store.count_sessions(SessionListQuery())
    yield "groups", store.groups(GroupQuery())
    yield "group", store.group("g", who=ME)
    yield "orphans", store.orphans()
    yield "open_session", store.open_session(ME)
    yield "touch_session", store.touch_session(ME)
    yield "close_session", store.close_session(ME, "")
    yield "unblock", store.unblock(["r"])
    yield "delete", store.delete(["r"])
    yield "drop_pauses", store.drop_pauses(0)
    yield "patch", store.patch("p", who=ME)


async def a_closed_store_says_so(bench: StoreBench) -> None:
    """After close every call is refused as closed; closing twice is fine."""
    for _ in range(2):
        await bench.store.aclose()
    for name, call in calls(bench.store):
        await expect_raises(StoreClosedError, call, f"{name} after close")


SCENARIOS: tuple[Scenario, ...] = (
    *store_commits.SCENARIOS,
    *store_groups.SCENARIOS,
    *store_lists.SCENARIOS,
    *store_pauses.SCENARIOS,
    *store_queue.SCENARIOS,
    *store_records.SCENARIOS,
    *store_sessions.SCENARIOS,
    *store_tasks.SCENARIOS,
    *store_views.SCENARIOS,
    a_closed_store_says_so,
)


async def check(scenario: Scenario, open_bench: OpenStoreBench) -> None:
    """Run one scenario against a fresh store.

    Raises:
        ConformanceError: the store breaks a promise.
    """
    await check_scenario(scenario, open_bench)


async def run_conformance(open_bench: OpenStoreBench) -> None:
    """Run every scenario, each against a fresh store.

    Raises:
        ExceptionGroup: one error for each promise that is broken.
    """
    await run_scenarios(SCENARIOS, open_bench)
