"""Pauses that outlive their process: kept, found, listed, resolved, and gone without a trace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from harborage.codec import UnserializableError
from harborage.identity import IdentityRequiredError, Quadruple, bound
from harborage.planner import ProcessLocalHandleRegistry, ToolContext, Trajectory
from harborage.runtime.durable.pauses.coordinator import RETENTION
from harborage.runtime.durable.pauses.rows import describe_damage
from harborage.runtime.pauses import (
    AlreadyResumedError,
    CheckpointCorruptError,
    Coordinator,
    Pause,
    PauseDecision,
    PauseFilter,
    PauseNotFoundError,
    PauseReason,
    PauseRequest,
    PauseScopeMismatchError,
    PauseState,
    ToolContextLostError,
    UnsupportedFormatVersionError,
)
from harborage.store import Change, Commit, Guard, Lease, NewRun, PauseQuery, Status
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder

Asking = Callable[..., PauseRequest]
Starting = Callable[..., Coordinator]

INTRUDER = Quadruple("evil", "eve", "s6", "r6")
COLLEAGUE = Quadruple("acme", "bob", "s2")
ADMIN = frozenset({"admin"})
IN_AN_HOUR = timedelta(hours=1)


def edit(store: MemoryStore, pause: Pause, data: bytes) -> None:
    """Change what is kept behind everybody's back."""
    rows = store._tables.pauses._rows
    rows[pause.token] = replace(rows[pause.token], data=data)


async def test_a_pause_survives_its_coordinator(durable: Starting, asking: Asking, owner: Quadruple) -> None:
    """The next one shows it as it was and resolves it; the one after that can read how, and change nothing."""
    pause = await durable().request(asking(payload={"ask": "city?"}, reason=PauseReason.EXTERNAL_EVENT))
    second = durable()
    assert await second.status(pause.token) == pause
    resolved = await second.resume(pause.token, PauseDecision.RESUME, {"city": "Rome"}, who=owner)
    assert resolved.payload == {"ask": "city?", "city": "Rome"}
    assert (await second.status(pause.token)).state is PauseState.RESUMED
    third = durable()
    assert await third.status(pause.token) == resolved
    with pytest.raises(AlreadyResumedError):
        await third.resume(pause.token, PauseDecision.RESUME, who=owner)


async def test_a_pause_goes_with_its_run(durable: Starting, asking: Asking, owner: Quadruple) -> None:
    """Resolved pauses stay readable as long as their run, and are deleted with it."""
    store = MemoryStore(keep_ended=1)
    coordinator = durable(store=store)
    await store.join("one")
    pauses: dict[str, Pause] = {}
    for run_id in ("r1", "r2"):
        await store.commit(
            Commit(starts=(NewRun(run_id=run_id, who=owner.identity, entries=(b"started",), worker="one"),))
        )
        pause = await coordinator.request(asking(identity=owner.identity.with_run(run_id), key="k"))
        pauses[run_id] = await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
        assert await durable(store=store).status(pause.token) == pauses[run_id]
        guard = Guard(lease=Lease(run_id, "one", 1), position=1)
        await store.commit(Commit(guard=guard, change=Change(status=Status.COMPLETE)))
    with pytest.raises(PauseNotFoundError):
        await coordinator.status(pauses["r1"].token)
    assert await coordinator.status(pauses["r2"].token) == pauses["r2"]


async def test_a_resolved_pause_of_no_run_is_dropped_in_the_end(
    durable: Starting, asking: Asking, owner: Quadruple, clock: FakeClock
) -> None:
    """It stays readable for a long time, and is then deleted; requested again it is opened anew."""
    alone = asking(identity=owner.identity, key="k")
    pause = await durable().request(alone)
    await durable().resume(pause.token, PauseDecision.RESUME, who=owner)
    clock.advance(RETENTION.total_seconds())
    await durable().expire_due()
    assert (await durable().request(alone)).state is PauseState.RESUMED
    clock.advance(1)
    await durable().expire_due()
    with pytest.raises(PauseNotFoundError):
        await durable().status(pause.token)
    assert (await durable().request(alone)).is_paused


async def test_the_end_of_a_run_cancels_what_it_asked(durable: Starting, asking: Asking, owner: Quadruple) -> None:
    """Such an answer is refused, and the caller learns that no person decided."""
    store = MemoryStore()
    coordinator = durable(store=store)
    await store.join("one")
    await store.commit(Commit(starts=(NewRun(run_id="r1", who=owner.identity, entries=(b"started",), worker="one"),)))
    pause = await coordinator.request(asking(payload={"ask": "city?"}))
    guard = Guard(lease=Lease("r1", "one", 1), position=1)
    await store.commit(Commit(guard=guard, change=Change(status=Status.FAILED)))
    with pytest.raises(AlreadyResumedError) as caught:
        await coordinator.resume(pause.token, PauseDecision.APPROVE, who=owner)
    assert (caught.value.decision, caught.value.by) == ("reject", "")
    assert (await coordinator.status(pause.token)).payload == {"ask": "city?", "rejected": True, "reason": "run ended"}
    assert (await coordinator.list(who=owner)).total == 0


async def test_a_resolved_pause_wakes_its_run(durable: Starting, asking: Asking, owner: Quadruple) -> None:
    """In the same commit, so that the run goes on though the process that resolved it dies right after."""
    store = MemoryStore()
    await store.join("one")
    await store.commit(Commit(starts=(NewRun(run_id="r1", who=owner.identity, entries=(b"started",), worker="one"),)))
    pause = await durable(store=store).request(asking())
    guard = Guard(lease=Lease("r1", "one", 1), position=1)
    await store.commit(Commit(guard=guard, change=Change(status=Status.PAUSED, release=True)))
    assert await store.claim("one") == []
    await durable(store=store).resume(pause.token, PauseDecision.RESUME, who=owner)
    assert [claimed.row.run_id for claimed in await store.claim("one")] == ["r1"]


async def test_who_may_do_what_survives_too(durable: Starting, asking: Asking, owner: Quadruple) -> None:
    """After a restart an intruder is refused by name, and the owner, in another run, is not."""
    pause = await durable().request(asking())
    coordinator = durable()
    for verb in (coordinator.status, lambda token, who: coordinator.resume(token, PauseDecision.RESUME, who=who)):
        with pytest.raises(PauseScopeMismatchError):
            await verb(pause.token, who=INTRUDER)
    with bound(Quadruple("acme", "ann", "s1", "another-run")):
        assert (await coordinator.resume(pause.token, PauseDecision.RESUME)).identity == owner


async def test_a_live_object_is_refused_and_nothing_is_stored(durable: Starting, asking: Asking, store: Any) -> None:
    """The next clean request works."""
    coordinator = durable()
    with pytest.raises(UnserializableError):
        await coordinator.request(asking(payload={"lock": asyncio.Lock()}))
    with pytest.raises(IdentityRequiredError):
        await coordinator.request(asking(identity=Quadruple("acme", "", "s1")))
    assert await store.rows() == []
    assert (await coordinator.request(asking())).is_paused


async def test_an_edited_pause_is_refused(durable: Starting, asking: Asking, store: Any, owner: Quadruple) -> None:
    """Another format version, or bytes that are none: reading says which, in every verb."""
    pause = await durable().request(asking())
    edit(store, pause, b'{"format_version":999}')
    with pytest.raises(UnsupportedFormatVersionError):
        await durable().status(pause.token)
    edit(store, pause, b"{")
    with pytest.raises(CheckpointCorruptError):
        await durable().resume(pause.token, PauseDecision.RESUME, who=owner)


async def test_one_unreadable_pause_does_not_hide_the_others(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged and left out of every list, and named by the check for unreadable rows."""
    coordinator = durable()
    broken, sound = [await coordinator.request(asking(deadline=clock.now())) for _ in range(2)]
    edit(store, broken, b"{")
    with caplog.at_level(logging.WARNING):
        assert (await durable().list(who=owner)).rows == (sound,)
        assert await durable().list_all_open() == (sound,)
        assert [pause.token for pause in await durable().expire_due()] == [sound.token]
    assert caplog.text.count(broken.token) == 3
    rows = (await store.pauses(PauseQuery(tokens=(broken.token, sound.token)))).rows
    (flaw,) = [flaw for row in rows if (flaw := describe_damage(row))]
    assert flaw.startswith(f"run {owner.run_id}: ")
    assert broken.token in flaw


async def test_the_trajectory_survives(durable: Starting, asking: Asking, owner: Quadruple) -> None:
    """A caller that resumes after a restart gets the recorded bytes."""
    trajectory = Trajectory(query="what is a harbour?")
    pause = await durable().request(asking(trajectory=trajectory))
    assert (await durable().status(pause.token)).trajectory is None
    resolved = await durable().resume(pause.token, PauseDecision.RESUME, who=owner)
    assert resolved.trajectory == trajectory.serialize()


async def test_handles_are_looked_for_in_the_new_process(durable: Starting, asking: Asking, owner: Quadruple) -> None:
    """A handle that did not come along keeps the pause open and stored."""
    trajectory = Trajectory(tool_context=ToolContext(handles=("browser",)))
    pause = await durable().request(asking(trajectory=trajectory))
    handles = ProcessLocalHandleRegistry()
    coordinator = durable(handles=handles)
    with pytest.raises(ToolContextLostError):
        await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert (await durable().status(pause.token)).is_paused
    handles.set("browser", object())
    assert (await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)).decision is PauseDecision.RESUME


async def test_a_deadline_survives(durable: Starting, asking: Asking, clock: FakeClock) -> None:
    """One that passed while no process was alive takes its default at the next start, of every tenant."""
    first = durable()
    mine = await first.request(asking(deadline=clock.now() + IN_AN_HOUR, default=PauseDecision.REJECT))
    theirs = await first.request(asking(deadline=clock.now() + IN_AN_HOUR, identity=INTRUDER))
    later = await first.request(asking(deadline=clock.now() + timedelta(days=30)))
    clock.advance(7 * 24 * 3600)
    second = durable()
    resolved = {pause.token: pause.decision for pause in await second.expire_due()}
    assert resolved == {mine.token: PauseDecision.REJECT, theirs.token: PauseDecision.TIMEOUT}
    assert (await second.expire(later.token)).is_paused
    assert (await second.status(mine.token)).state is PauseState.RESUMED


async def test_one_that_cannot_be_resolved_does_not_keep_the_others_waiting(
    durable: Starting, asking: Asking, clock: FakeClock, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged and tried again the next time."""
    first = durable()
    for _ in range(2):
        await first.request(asking(deadline=clock.now()))
    store.is_refusing = True
    with caplog.at_level(logging.WARNING):
        assert await durable().expire_due() == ()
    assert caplog.text.count("was not resolved") == 2
    store.is_refusing = False
    assert len(await durable().expire_due()) == 2


async def test_a_new_coordinator_lists_what_an_earlier_one_left(
    durable: Starting, asking: Asking, clock: FakeClock, owner: Quadruple
) -> None:
    """Its own and the earlier ones together, newest first; never those of another tenant."""
    first = durable()
    old = await first.request(asking(payload={"n": 1}, trajectory=Trajectory(query="q")))
    await first.request(asking(identity=INTRUDER))
    done = await first.request(asking())
    await first.resume(done.token, PauseDecision.RESUME, who=owner)
    clock.advance(1)
    second = durable()
    new = await second.request(asking(identity=COLLEAGUE))
    assert (await second.list(who=owner, scopes=ADMIN)).rows == (new, old)
    assert (await second.list(PauseFilter(users=("bob",)), who=owner, scopes=ADMIN)).rows == (new,)
    assert (await second.list(PauseFilter(runs=("r1",)), who=owner)).rows == (old,)


async def test_a_pause_resolved_by_the_new_process_leaves_the_list(
    durable: Starting, asking: Asking, owner: Quadruple
) -> None:
    """It shows among the resolved ones, in every process."""
    pause = await durable().request(asking())
    second = durable()
    resolved = await second.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert (await second.list(who=owner)).total == 0
    assert (await second.list(PauseFilter(states=(PauseState.RESUMED,)), who=owner)).rows == (resolved,)
    page = await durable().list(PauseFilter(states=(PauseState.RESUMED,)), who=owner)
    assert (page.rows, page.truncated) == ((resolved,), False)


async def test_two_processes_keep_one_list(durable: Starting, asking: Asking, owner: Quadruple) -> None:
    """Concurrent requests of two coordinators over one store are all listed by a third."""
    first, second = durable(), durable()
    pauses = await asyncio.gather(*((first, second)[n % 2].request(asking()) for n in range(20)))
    listed = (await durable().list(who=owner, page_size=200)).rows
    assert {pause.token for pause in listed} == {pause.token for pause in pauses}


async def test_a_key_finds_its_pause_after_a_restart(
    durable: Starting, asking: Asking, recorder: EventRecorder, owner: Quadruple
) -> None:
    """A run that is resumed does not ask a second time, and finds the answer that was given meanwhile."""
    pause = await durable().request(asking(key="r1/7", trajectory=Trajectory(query="q")))
    second = durable()
    assert await second.request(asking(key="r1/7")) == pause
    assert recorder.types == ["pause.requested"]
    assert (await second.request(asking(key="r1/8"))).token != pause.token
    await second.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert (await second.request(asking(key="r1/7"))).state is PauseState.RESUMED
    found = await durable().request(asking(key="r1/7"))
    assert (found.token, found.state) == (pause.token, PauseState.RESUMED)
    assert recorder.types == ["pause.requested", "pause.requested", "pause.resumed"]


async def test_a_waiter_gets_an_existing_answer_at_once(durable: Starting, asking: Asking, owner: Quadruple) -> None:
    """A listener for a pause that was resolved in an earlier process is called when it asks by its key."""
    pause = await durable().request(asking(key="k"))
    await durable().resume(pause.token, PauseDecision.APPROVE, {"by": "ann"}, sealed=b"for you", who=owner)
    third, seen = durable(), list[Pause]()
    await third.request(asking(key="k"))
    third.on_resolved(pause.token, seen.append)
    assert [(resolved.decision, resolved.sealed) for resolved in seen] == [(PauseDecision.APPROVE, b"for you")]
