"""Listing the pauses of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from harborage.identity import AdminScopeRequiredError, IdentityRequiredError, Quadruple, bound
from harborage.runtime.pauses import (
    Coordinator,
    CrossTenantScopeError,
    InvalidPageError,
    PauseDecision,
    PauseFilter,
    PauseRequest,
    PauseState,
)
from harborage.testing.clock import FakeClock

Asking = Callable[..., PauseRequest]

INTRUDER = Quadruple("evil", "eve", "s6", "r6")
COLLEAGUE = Quadruple("acme", "bob", "s2")
ADMIN = frozenset({"admin"})


async def test_a_list_needs_an_identity_first(coordinator: Coordinator) -> None:
    """Identity, then page, then tenant: in this order."""
    foreign = PauseFilter(tenants=("evil",))
    with pytest.raises(IdentityRequiredError):
        await coordinator.list(foreign, page=-1)
    with pytest.raises(InvalidPageError):
        await coordinator.list(foreign, page=-1, who=COLLEAGUE)
    with pytest.raises(CrossTenantScopeError):
        await coordinator.list(foreign, who=COLLEAGUE)


async def test_a_caller_sees_its_own_open_pauses(
    coordinator: Coordinator, asking: Asking, owner: Quadruple, clock: FakeClock
) -> None:
    """Those of its other sessions too, newest first; never those of another user or tenant."""
    first = await coordinator.request(asking())
    clock.advance(1)
    second = await coordinator.request(asking(identity=replace(owner, session_id="elsewhere")))
    clock.advance(1)
    await coordinator.request(asking(identity=COLLEAGUE))
    await coordinator.request(asking(identity=INTRUDER))
    done = await coordinator.request(asking())
    await coordinator.resume(done.token, PauseDecision.RESUME, who=owner)
    with bound(owner):
        page = await coordinator.list()
    assert page.rows == (second, first)
    assert (page.page, page.page_size, page.page_count, page.total, page.truncated) == (1, 50, 1, 2, False)


async def test_pauses_of_colleagues_need_the_admin_scope(
    coordinator: Coordinator, asking: Asking, owner: Quadruple
) -> None:
    """With it the whole tenant is listed; without it naming another user is refused, alone and among others."""
    mine = await coordinator.request(asking())
    theirs = await coordinator.request(asking(identity=COLLEAGUE))
    tokens = {pause.token for pause in (await coordinator.list(who=owner, scopes=ADMIN)).rows}
    assert tokens == {mine.token, theirs.token}
    for users in ((COLLEAGUE.user_id,), (owner.user_id, COLLEAGUE.user_id)):
        with pytest.raises(AdminScopeRequiredError):
            await coordinator.list(PauseFilter(users=users), who=owner)
    assert (await coordinator.list(PauseFilter(users=(owner.user_id,)), who=owner)).rows == (mine,)


async def test_an_admin_lists_other_tenants(coordinator: Coordinator, asking: Asking) -> None:
    """The scope may be given or be ambient; without it nothing of another tenant is shown."""
    pause = await coordinator.request(asking(identity=INTRUDER))
    foreign = PauseFilter(tenants=("evil",))
    assert (await coordinator.list(foreign, who=COLLEAGUE, scopes=ADMIN)).rows == (pause,)
    with bound(COLLEAGUE.identity, scopes=ADMIN):
        assert (await coordinator.list(foreign)).rows == (pause,)
        with pytest.raises(CrossTenantScopeError):
            await coordinator.list(foreign, scopes=frozenset())


async def test_a_list_that_has_forgotten_says_so(coordinator: Coordinator, asking: Asking, owner: Quadruple) -> None:
    """Asked for resolved pauses with none remembered for the tenant, the page is marked as truncated."""
    resolved = PauseFilter(states=(PauseState.RESUMED,))
    pause = await coordinator.request(asking())
    foreign = await coordinator.request(asking(identity=INTRUDER))
    await coordinator.resume(foreign.token, PauseDecision.RESUME, who=INTRUDER)
    assert (await coordinator.list(resolved, who=owner)).truncated
    assert not (await coordinator.list(who=owner)).truncated
    await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert not (await coordinator.list(resolved, who=owner)).truncated


async def test_many_runs_pause_side_by_side(coordinator: Coordinator, asking: Asking) -> None:
    """Of 128 concurrent owners each resolves its own pause and reads its own answer."""

    async def live(n: int) -> None:
        who = Quadruple(f"tenant-{n % 8}", f"user-{n}", "s", f"run-{n}")
        pause = await coordinator.request(asking(identity=who, payload={"n": n}))
        await asyncio.sleep(0)
        resolved = await coordinator.resume(pause.token, PauseDecision.RESUME, {"answer": n}, who=who)
        assert (resolved.identity, resolved.payload) == (who, {"n": n, "answer": n})

    await asyncio.gather(*(live(n) for n in range(128)))
    for tenant in range(8):
        who = Quadruple(f"tenant-{tenant}", "u", "s")
        page = await coordinator.list(PauseFilter(states=(PauseState.RESUMED,)), who=who, scopes=ADMIN)
        assert page.total == 16


async def test_a_cancelled_request_leaves_nothing(coordinator: Coordinator, asking: Asking, owner: Quadruple) -> None:
    """A caller that was cancelled before it began has opened no pause."""
    task = asyncio.create_task(coordinator.request(asking()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await coordinator.list(who=owner)).total == 0
