"""Callers see their own session's tasks; an admin sees other tenants', and is seen doing it."""

from __future__ import annotations

import pytest

from harborage.events import AdminTasksListedPayload, EventType, MemoryEventBus, Triple
from harborage.identity import AdminScopeRequiredError, Identity, IdentityRequiredError, bound
from harborage.tasks import (
    IdentityMatch,
    InProcessTaskRegistry,
    InvalidRequestError,
    SpawnRequest,
    TaskCost,
    TaskListFilter,
    TaskListing,
    TaskListRequest,
    TaskNotFoundError,
)
from harborage.testing.events import EventRecorder

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
    """A blank id is invalid, an unknown or foreign one not found, and nobody gets nothing."""
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
    """Without a bus there is nobody to tell; the rows are the same."""
    house = await House().fill()
    page = await TaskListing(house.registry).list(ACROSS, who=ME, scopes=ADMIN)
    assert len(page.rows) == 3
