"""Lists of tasks as a person sees them: counts, pages, filters; other tenants' only for an admin, and announced."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from harborage.events import AdminTasksListedPayload, EventType, MemoryEventBus, Triple
from harborage.identity import AdminScopeRequiredError, Identity, IdentityRequiredError, Quadruple, bound
from harborage.tasks import (
    IdentityMatch,
    InProcessTaskRegistry,
    InvalidRequestError,
    SpawnRequest,
    StatusStrip,
    Task,
    TaskCost,
    TaskFailure,
    TaskKind,
    TaskListFilter,
    TaskListing,
    TaskListRequest,
    TaskNotFoundError,
    TaskStatus,
    list_page,
)
from harborage.tasks.listing import decode_cursor, encode_cursor, row_of, tenants_of
from harborage.testing.events import EventRecorder
from tests.kit.tables import each_row

START = datetime(2026, 1, 1, tzinfo=UTC)
START_NS = int(START.timestamp()) * 1_000_000_000
SECOND = 1_000_000_000
BOOM = TaskFailure("boom", "x")


def a_task(task_id: str = "t", *, at: int = 0, lasts_ms: int = 0, **fields: Any) -> Task:
    """A task that started `at` seconds after the start."""
    created = START_NS + at * SECOND
    base: dict[str, Any] = {"identity": Quadruple("t", "u", "s"), "kind": TaskKind.BACKGROUND}
    return Task(id=task_id, created_at=created, updated_at=created + lasts_ms * 1_000_000, **{**base, **fields})


TASKS = [
    a_task("pending", at=0, description="Buy MILK", priority=3),
    a_task("running", at=1, status=TaskStatus.RUNNING, kind=TaskKind.FOREGROUND, lasts_ms=10, group_id="g"),
    a_task("paused", at=2, status=TaskStatus.PAUSED, parent_task_id="pending"),
    a_task("complete", at=3, status=TaskStatus.COMPLETE, query="find milk", lasts_ms=500, result=b"1"),
    a_task("failed", at=4, status=TaskStatus.FAILED, error=BOOM, identity=Quadruple("t", "u", "s", "r")),
    a_task("cancelled", at=5, status=TaskStatus.CANCELLED, error=BOOM, identity=Quadruple("t", "v", "w")),
]


def ids(**fields: Any) -> set[str]:
    """Which of the tasks pass the filter."""
    page = list_page(TASKS, TaskListRequest(filter=TaskListFilter(**fields)))
    return {row.id for row in page.rows}


EVERY = {task.id for task in TASKS}


@each_row(
    "fields, wanted",
    [
        ({}, EVERY),
        ({"statuses": ("running", "paused")}, {"running", "paused"}),
        ({"kinds": ("foreground",)}, {"running"}),
        ({"parent_task_id": "pending"}, {"paused"}),
        ({"group_id": "g"}, {"running"}),
        ({"identities": (IdentityMatch(user_id="v"),)}, {"cancelled"}),
        ({"identities": (IdentityMatch("t", "u"), IdentityMatch(session_id="w"))}, EVERY),
        ({"identities": (IdentityMatch("t", "u", "w"),)}, set()),
        ({"since": START + timedelta(seconds=4)}, {"failed", "cancelled"}),
        ({"until": START + timedelta(seconds=1)}, {"pending", "running"}),
        ({"since": START, "until": START}, {"pending"}),
        ({"error_classes": ("boom", "other")}, {"failed"}),
        ({"latency_above_ms": 10}, {"complete"}),
        ({"latency_above_ms": 9}, {"running", "complete"}),
        ({"search": "milk"}, {"pending", "complete"}),
        ({"search": "MILK", "statuses": ("complete",)}, {"complete"}),
        ({"search": "honey"}, set()),
    ],
)
def test_filters_let_the_right_rows_through(fields: dict[str, Any], wanted: set[str]) -> None:
    """Every field of the filter narrows; bounds in time are included, a latency must be exceeded, case is ignored."""
    assert ids(**fields) == wanted


@each_row(
    "fields, field",
    [
        ({"statuses": ("running", "gone")}, "statuses"),
        ({"kinds": ("urgent",)}, "kinds"),
        ({"latency_above_ms": -1}, "latency_above_ms"),
        ({"since": START + timedelta(seconds=1), "until": START}, "since"),
    ],
)
def test_filters_that_make_no_sense_are_refused(fields: dict[str, Any], field: str) -> None:
    """An unknown word, a negative latency and a window that ends before it begins are invalid; the field is named."""
    with pytest.raises(InvalidRequestError) as caught:
        ids(**fields)
    assert caught.value.field == field


@pytest.mark.parametrize("size", [-1, 201])
def test_a_page_size_out_of_range_is_refused(size: int) -> None:
    """Pages hold 1 to 200 rows."""
    with pytest.raises(InvalidRequestError, match="page_size"):
        list_page(TASKS, TaskListRequest(page_size=size))


@each_row("asked, got", [(0, 50), (1, 1), (200, 200)])
def test_the_size_of_a_page(asked: int, got: int) -> None:
    """Zero means 50."""
    page = list_page([a_task(str(n)) for n in range(300)], TaskListRequest(page_size=asked))
    assert len(page.rows) == got


@each_row(
    "token",
    [
        "garbage",
        "%%%",
        "dGFza3M6MQ==",
        "é",
        base64.urlsafe_b64encode(b"pauses:5").decode().rstrip("="),
        base64.urlsafe_b64encode(b"tasks:-5").decode().rstrip("="),
        base64.urlsafe_b64encode(b"tasks:").decode().rstrip("="),
        base64.urlsafe_b64encode(b"tasks:1:2").decode().rstrip("="),
        base64.urlsafe_b64encode(b"tasks:01").decode().rstrip("="),
        base64.urlsafe_b64encode(b"tasks:" + b"9" * 5000).decode().rstrip("="),
        base64.urlsafe_b64encode(b"\xff").decode().rstrip("="),
    ],
)
def test_cursors_of_others_are_refused(token: str) -> None:
    """A malformed cursor, a padded one and another listing's are invalid."""
    with pytest.raises(InvalidRequestError, match="page_token"):
        list_page(TASKS, TaskListRequest(page_token=token))


@given(st.integers(0, 10**9))
def test_a_cursor_says_where_the_page_begins(offset: int) -> None:
    """A cursor is unpadded URL-safe base64 of `tasks:<offset>` and reads back as that offset."""
    token = encode_cursor(offset)
    assert "=" not in token
    assert base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)) == f"tasks:{offset}".encode()
    assert decode_cursor(token) == offset


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 7))
def test_pages_fit_together(starts: list[int], size: int) -> None:
    """Page after page gives every row once: newest start first, ties by id, and the last page has no next."""
    tasks = [a_task(f"{index:02}", at=at) for index, at in enumerate(starts)]
    rows, token = [], ""
    while True:
        page = list_page(tasks, TaskListRequest(page_size=size, page_token=token))
        rows.extend(page.rows)
        token = page.next_page_token
        if not token:
            break
        assert len(page.rows) == size
    wanted = sorted(tasks, key=lambda task: (-task.created_at, task.id))
    assert [row.id for row in rows] == [task.id for task in wanted]


def test_a_cursor_past_the_end_is_an_empty_page() -> None:
    """Rows that went away meanwhile are no error."""
    page = list_page(TASKS, TaskListRequest(page_token=encode_cursor(99)))
    assert (page.rows, page.next_page_token) == ((), "")


def test_aggregates_count_what_passes_and_the_strip_counts_all() -> None:
    """Aggregates have every status and count all filtered rows, not one page; the strip ignores the filter."""
    request = TaskListRequest(
        filter=TaskListFilter(statuses=("running", "failed")), page_size=1, include_status_strip=True
    )
    page = list_page(TASKS, request)
    assert {status: count for status, count in page.aggregates.items() if count} == {
        TaskStatus.RUNNING: 1,
        TaskStatus.FAILED: 1,
    }
    assert page.aggregates.keys() == set(TaskStatus)
    assert page.status_strip == StatusStrip(pending=1, running=1, completed=1, paused=1, failed=1)
    assert list_page(TASKS, TaskListRequest()).status_strip is None


def test_a_row_shows_its_task() -> None:
    """A row has the task's own fields, its start and last change in UTC, and its duration in whole milliseconds."""
    row = row_of(a_task("x", at=7, lasts_ms=1500, tool_count=2, background_acknowledged=True, parent_task_id="p"))
    assert row.started_at == START + timedelta(seconds=7)
    assert row.updated_at == START + timedelta(seconds=8, milliseconds=500)
    assert (row.duration_ms, row.tool_count, row.background_acknowledged) == (1500, 2, True)
    assert (row.parent_task_id, row.error_class) == ("p", "")


def test_the_error_class_is_for_failed_tasks_only() -> None:
    """A cancelled task shows none, whatever it carries."""
    shown = {task.id: row_of(task).error_class for task in TASKS}
    assert {task_id for task_id, word in shown.items() if word} == {"failed"}
    assert shown["failed"] == "boom"


def test_the_tenants_a_filter_reaches() -> None:
    """The caller's own tenant counts; blank ones do not."""
    wish = TaskListFilter(identities=(IdentityMatch("t"), IdentityMatch("other"), IdentityMatch(user_id="u")))
    assert tenants_of(Identity("t", "u", "s"), wish) == {"t", "other"}
    assert tenants_of(Identity("t", "u", "s"), TaskListFilter()) == {"t"}


pytestmark = pytest.mark.anyio

ADMIN = frozenset({"admin"})
ME = Identity("t", "u", "s")
NEIGHBOUR = Identity("t", "u", "other")
FOREIGN = Identity("other", "v", "s")
ACROSS = TaskListRequest(filter=TaskListFilter(identities=(IdentityMatch("other"), IdentityMatch("t"))))


class House:
    """A registry with one task in each of three sessions, and the listing on it."""

    def __init__(self) -> None:
        self.bus = MemoryEventBus()
        self.registry = InProcessTaskRegistry(bus=self.bus)
        self.listing = TaskListing(self.registry, bus=self.bus)
        self.ids: dict[Identity, str] = {}

    async def fill(self) -> House:
        """The house with its tasks."""
        for who in (ME, NEIGHBOUR, FOREIGN):
            request = SpawnRequest(identity=who.with_run(""), kind="background", query=who.session_id)
            self.ids[who] = (await self.registry.spawn(request)).id
        return self

    def names(self, *who: Identity) -> set[str]:
        """The ids of the tasks of these sessions."""
        return {self.ids[one] for one in who}


async def test_a_caller_sees_the_session() -> None:
    """Without a filter, and with one that stays in the tenant, only the caller's own session is shown."""
    house = await House().fill()
    for request in (
        TaskListRequest(),
        TaskListRequest(filter=TaskListFilter(identities=(IdentityMatch("t"), IdentityMatch(user_id="u")))),
    ):
        page = await house.listing.list(request, who=ME, scopes=ADMIN)
        assert {row.id for row in page.rows} == house.names(ME)
    with bound(NEIGHBOUR):
        assert {row.id for row in (await house.listing.list()).rows} == house.names(NEIGHBOUR)


async def test_other_tenants_need_the_admin_scope() -> None:
    """A filter that names another tenant is refused without the scope, and nothing is published."""
    house = await House().fill()
    events = EventRecorder(house.bus)
    for scopes in (None, frozenset({"console:fleet"})):
        with pytest.raises(AdminScopeRequiredError) as caught:
            await house.listing.list(ACROSS, who=ME, scopes=scopes)
        assert caught.value.scopes == ("admin",)
        assert "2 tenants" in str(caught.value)
    assert events.types == []


async def test_an_admin_sees_other_tenants_and_is_audited() -> None:
    """With the scope every session the filter names is shown, and the use of power is published with who and how
    far."""
    house = await House().fill()
    events = EventRecorder(house.bus)
    page = await house.listing.list(ACROSS, who=ME, scopes=ADMIN)
    assert {row.id for row in page.rows} == house.names(ME, NEIGHBOUR, FOREIGN)
    [event] = events.events
    assert event.type == EventType.AUDIT_ADMIN_SCOPE_USED
    assert event.identity == ME.with_run("")
    assert event.payload == AdminTasksListedPayload(Triple("t", "u", "s"), "tasks.list", 2)
    with bound(ME, scopes=ADMIN):
        assert len((await house.listing.list(ACROSS)).rows) == 3


async def test_an_entry_without_a_tenant_stays_in_the_callers() -> None:
    """An entry that names only a user does not reach that user's namesakes in other tenants."""
    house = await House().fill()
    request = TaskListRequest(
        filter=TaskListFilter(identities=(IdentityMatch("other", "nobody"), IdentityMatch(user_id="u")))
    )
    stranger = SpawnRequest(identity=Identity("third", "u", "s").with_run(""), kind="background")
    await house.registry.spawn(stranger)
    page = await house.listing.list(request, who=ME, scopes=ADMIN)
    assert {row.id for row in page.rows} == house.names(ME, NEIGHBOUR)


async def test_one_task_in_detail() -> None:
    """A detail has the row, the parent's row where there is one, the result, and costs that are never missing."""
    house = await House().fill()
    child = SpawnRequest(identity=ME.with_run(""), kind="background", parent_task_id=house.ids[ME])
    child_id = (await house.registry.spawn(child)).id
    await house.registry.mark_running(child_id, who=ME)
    await house.registry.mark_complete(child_id, b"[1]", who=ME)
    detail = await house.listing.get(child_id, who=ME)
    assert detail.parent is not None
    assert (detail.row.id, detail.parent.id, detail.result) == (child_id, house.ids[ME], b"[1]")
    assert detail.cost == TaskCost(per_step=())
    top = await house.listing.get(house.ids[ME], who=ME)
    assert (top.parent, top.result) == (None, None)


async def test_details_of_others_are_not_found() -> None:
    """A blank id is invalid, an unknown or foreign one not found, and a call without an identity returns nothing."""
    house = await House().fill()
    for blank in ("", "  "):
        with pytest.raises(InvalidRequestError, match="id"):
            await house.listing.get(blank, who=ME)
    for task_id in ("unknown", house.ids[NEIGHBOUR], house.ids[FOREIGN]):
        with pytest.raises(TaskNotFoundError):
            await house.listing.get(task_id, who=ME)
    with pytest.raises(IdentityRequiredError):
        await house.listing.get(house.ids[ME])
    with pytest.raises(IdentityRequiredError):
        await house.listing.list()


async def test_a_listing_without_a_bus_still_lists() -> None:
    """Without a bus no event is published; the rows are the same."""
    house = await House().fill()
    page = await TaskListing(house.registry).list(ACROSS, who=ME, scopes=ADMIN)
    assert len(page.rows) == 3
