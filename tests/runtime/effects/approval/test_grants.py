"""Approvals that are remembered: for what they hold, for whom, until when, and that they can be ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from harborage.identity import Identity, IdentityRequiredError, Quadruple
from harborage.runtime.effects.approval.grants import (
    GRANT_TIME,
    MOST_GRANTS,
    GrantNotFoundError,
    Grants,
    GrantsUnavailableError,
)
from harborage.runtime.effects.approval.model import ApprovalRequest
from harborage.runtime.loop.controls import Remember
from harborage.state.memory import MemoryStateStore
from harborage.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

WHO = Quadruple("acme", "ada", "s-1", "r-1")
CALL = ApprovalRequest(tool="pay", args=b'{"to": "eve", "n": 1}', identity=WHO)
LIKE: dict[str, tuple[ApprovalRequest, set[Remember]]] = {
    "the call itself": (CALL, {Remember.RUN, Remember.ALWAYS}),
    "the same arguments, written differently": (
        replace(CALL, args=b' { "n":1,"to":"eve"}'),
        {Remember.RUN, Remember.ALWAYS},
    ),
    "other arguments": (replace(CALL, args=b'{"to":"eve","n":2}'), {Remember.RUN}),
    "arguments that are no JSON": (replace(CALL, args=b"{"), {Remember.RUN}),
    "another tool": (replace(CALL, tool="refund"), set()),
    "a hook's question about the tool": (replace(CALL, question="sure?"), set()),
    "another run": (replace(CALL, identity=replace(WHO, run_id="r-2")), {Remember.ALWAYS}),
    "another session": (replace(CALL, identity=replace(WHO, session_id="s-2")), set()),
    "another user": (replace(CALL, identity=replace(WHO, user_id="ben")), set()),
    "another tenant": (replace(CALL, identity=replace(WHO, tenant_id="rival")), set()),
}


class Bench:
    """Grants over a state store that outlives them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.state = MemoryStateStore(clock=self.clock)
        self.ended: set[str] = set()

    def grants(self) -> Grants:
        """The grants, as another process has them."""
        return Grants(self.state, self.clock, self._is_live)

    async def _is_live(self, run_id: str) -> bool:
        return run_id not in self.ended


@pytest.fixture
def bench() -> Bench:
    """Nothing is granted yet."""
    return Bench()


async def test_a_grant_lets_pass_the_calls_that_it_was_given_for(bench: Bench) -> None:
    """By enumeration; another process knows of it."""
    for remember in Remember:
        bench = Bench()
        await bench.grants().add(CALL, remember)
        for about, (request, wanted) in LIKE.items():
            found = await bench.grants().find(request)
            assert (found is not None) is (remember in wanted), (about, remember)


async def test_a_grant_is_a_record_with_an_owner_and_an_end(bench: Bench) -> None:
    """Listed for its principal alone, with the arguments as they may be shown and who approved."""
    boss = Identity("acme", "boss", "s-7")
    await bench.grants().add(CALL, Remember.RUN, shown={"to": "***"}, by=boss)
    bench.clock.advance(1)
    await bench.grants().add(CALL, Remember.ALWAYS, shown={"text": "x" * 2_000})
    first, second = await bench.grants().list(who=WHO.identity)
    assert (first.tool, first.remember, first.run_id, first.args, first.granted_by) == (
        "pay",
        Remember.RUN,
        "r-1",
        {"to": "***"},
        boss,
    )
    assert (second.remember, second.run_id, second.args, second.granted_by) == (Remember.ALWAYS, "", None, None)
    for one in (first, second):
        assert (one.owner, one.ends_at - one.created_at) == (WHO.identity, GRANT_TIME[one.remember])
    for other in (Identity("acme", "ben", "s-1"), Identity("acme", "ada", "s-2"), Identity("rival", "ada", "s-1")):
        assert await bench.grants().list(who=other) == []
        with pytest.raises(GrantNotFoundError):
            await bench.grants().revoke(first.id, who=other)
    with pytest.raises(IdentityRequiredError):
        await bench.grants().list(who=Identity("acme", "", "s-1"))


async def test_a_grant_ends(bench: Bench) -> None:
    """With its run, at its time, or when it is revoked; it can be given again."""
    grants = bench.grants()
    for remember in Remember:
        await grants.add(CALL, remember)
        (grant,) = await grants.list(who=WHO.identity)
        await grants.revoke(grant.id, who=WHO.identity)
        assert await grants.find(CALL) is None
        with pytest.raises(GrantNotFoundError):
            await grants.revoke(grant.id, who=WHO.identity)
        await grants.add(CALL, remember)
        bench.clock.advance(GRANT_TIME[remember].total_seconds() - 1)
        assert await grants.find(CALL) is not None
        bench.clock.advance(1)
        assert await grants.find(CALL) is None
        assert await grants.list(who=WHO.identity) == []
    await grants.add(CALL, Remember.RUN)
    bench.ended.add("r-1")
    assert await grants.list(who=WHO.identity) == []


async def test_grants_are_counted_once_and_bounded(bench: Bench) -> None:
    """Given again it is one; of too many, those go that would have ended first. Concurrent ones are all kept."""
    grants = bench.grants()
    for _ in range(3):
        await grants.add(CALL, Remember.RUN)
    assert len(await grants.list(who=WHO.identity)) == 1
    calls = [replace(CALL, args=b'{"n":%d}' % n) for n in range(20)]
    await asyncio.gather(*(bench.grants().add(call, Remember.ALWAYS) for call in calls))
    assert len(await grants.list(who=WHO.identity)) == 21
    for n in range(MOST_GRANTS):
        await grants.add(replace(CALL, args=b'{"m":%d}' % n), Remember.ALWAYS)
    assert len(await grants.list(who=WHO.identity)) == MOST_GRANTS
    assert await grants.find(replace(CALL, args=b'{"m":%d}' % (MOST_GRANTS - 1))) is not None


async def test_a_store_that_cannot_keep_grants_is_named(bench: Bench) -> None:
    """Nothing is remembered in silence."""

    class Plain:
        def __init__(self, state: MemoryStateStore) -> None:
            self.load: Callable[..., Any] = state.load

    state: Any = Plain(bench.state)
    with pytest.raises(GrantsUnavailableError):
        await Grants(state, bench.clock, bench._is_live).add(CALL, Remember.RUN)
