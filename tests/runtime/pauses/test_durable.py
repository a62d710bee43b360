"""Pauses that outlive their process: kept, found, listed, settled, and gone without a trace."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from harborage.codec import UnserializableError
from harborage.identity import IdentityRequiredError, Quadruple, bound
from harborage.planner import ProcessLocalHandleRegistry, ToolContext, Trajectory
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
    PauseState,
    ScopeMismatchError,
    ToolContextLostError,
    UnsupportedFormatVersionError,
)
from harborage.runtime.pauses.coordinator import SETTLED_FOR
from harborage.runtime.pauses.index import PauseIndex, part_of
from harborage.state import IdempotencyConflictError, MemoryStateStore, StateRecord
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder

Asking = Callable[..., PauseRequest]
Starting = Callable[..., Coordinator]

INTRUDER = Quadruple("evil", "eve", "s6", "r6")
COLLEAGUE = Quadruple("acme", "bob", "s2")
ADMIN = frozenset({"admin"})
IN_AN_HOUR = timedelta(hours=1)


def kind_of(pause: Pause) -> str:
    """Where a pause's checkpoint lies among its owner's records."""
    return f"pauseresume.checkpoint:{pause.token}"


async def test_a_pause_survives_its_coordinator(durable: Starting, asking: Asking, owner: Quadruple) -> None:
    """The next one shows it as it was and settles it; the one after that can read how, and change nothing."""
    pause = await durable().request(asking(payload={"ask": "city?"}, reason=PauseReason.EXTERNAL_EVENT))
    second = durable()
    assert await second.status(pause.token) == pause
    settled = await second.resume(pause.token, PauseDecision.RESUME, {"city": "Rome"}, who=owner)
    assert settled.payload == {"ask": "city?", "city": "Rome"}
    assert (await second.status(pause.token)).state is PauseState.RESUMED
    third = durable()
    assert await third.status(pause.token) == settled
    with pytest.raises(AlreadyResumedError):
        await third.resume(pause.token, PauseDecision.RESUME, who=owner)


async def test_the_checkpoint_lies_with_its_owner(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple
) -> None:
    """Kind and event id are made of the token."""
    pause = await durable().request(asking())
    record = await store.load(owner, kind_of(pause))
    assert record.event_id == pause.token
    assert json.loads(record.data)["format_version"] == 1


async def test_a_settled_pause_is_dropped_in_the_end(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple, clock: FakeClock
) -> None:
    """It stays for whoever comes for its answer; long afterwards only empty lists are left."""
    coordinator = durable()
    pauses = [await coordinator.request(asking(key=f"k{n}")) for n in range(70)]
    for pause in pauses:
        await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    clock.advance(SETTLED_FOR.total_seconds())
    later = durable()
    await later.expire_due()
    assert (await later.request(asking(key="k0"))).state is PauseState.RESUMED
    clock.advance(1)
    await durable().expire_due()
    assert store.contents == {
        "pauseresume.index",
        "pauseresume.parts",
        "pauseresume.settled",
        "pauseresume.tenants",
    }
    with pytest.raises(PauseNotFoundError):
        await durable().status(pauses[0].token)
    assert (await durable().request(asking(key="k0"))).is_paused


async def test_who_may_do_what_survives_too(durable: Starting, asking: Asking, owner: Quadruple) -> None:
    """After a restart an intruder is refused by name, and the owner, in another run, is not."""
    pause = await durable().request(asking())
    coordinator = durable()
    for verb in (coordinator.status, lambda token, who: coordinator.resume(token, PauseDecision.RESUME, who=who)):
        with pytest.raises(ScopeMismatchError):
            await verb(pause.token, who=INTRUDER)  # type: ignore[operator]
    with bound(Quadruple("acme", "ann", "s1", "another-run")):
        assert (await coordinator.resume(pause.token, PauseDecision.RESUME)).identity == owner


async def test_a_live_object_is_refused_and_nothing_is_stored(durable: Starting, asking: Asking, store: Any) -> None:
    """The next clean request works."""
    coordinator = durable()
    with pytest.raises(UnserializableError):
        await coordinator.request(asking(payload={"lock": asyncio.Lock()}))
    with pytest.raises(IdentityRequiredError):
        await coordinator.request(asking(identity=Quadruple("acme", "", "s1")))
    assert store.contents == set()
    assert (await coordinator.request(asking())).is_paused


async def test_an_edited_checkpoint_is_refused(durable: Starting, asking: Asking, store: Any, owner: Quadruple) -> None:
    """Another format version, or bytes that are none: reading says which, in every verb."""
    pause = await durable().request(asking())
    record = await store.load(owner, kind_of(pause))
    found = {**json.loads(record.data), "format_version": 999}
    await store.save(StateRecord("edit-1", owner, kind_of(pause), json.dumps(found).encode()))
    with pytest.raises(UnsupportedFormatVersionError):
        await durable().status(pause.token)
    await store.save(StateRecord("edit-2", owner, kind_of(pause), b"{"))
    with pytest.raises(CheckpointCorruptError):
        await durable().resume(pause.token, PauseDecision.RESUME, who=owner)


async def test_one_unreadable_pause_does_not_hide_the_others(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged and left out of the list."""
    coordinator = durable()
    broken, sound = await coordinator.request(asking()), await coordinator.request(asking())
    await store.save(StateRecord("edit", owner, kind_of(broken), b"{"))
    with caplog.at_level(logging.WARNING):
        assert (await durable().list(who=owner)).rows == (sound,)
    assert broken.token in caplog.text


async def test_the_trajectory_survives(durable: Starting, asking: Asking, owner: Quadruple) -> None:
    """Whoever resumes after a restart gets the bytes that were handed in."""
    trajectory = Trajectory(query="what is a harbour?")
    pause = await durable().request(asking(trajectory=trajectory))
    assert (await durable().status(pause.token)).trajectory is None
    settled = await durable().resume(pause.token, PauseDecision.RESUME, who=owner)
    assert settled.trajectory == trajectory.serialize()


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
    settled = {pause.token: pause.decision for pause in await second.expire_due()}
    assert settled == {mine.token: PauseDecision.REJECT, theirs.token: PauseDecision.TIMEOUT}
    assert (await second.expire(later.token)).is_paused
    assert (await second.status(mine.token)).state is PauseState.RESUMED


async def test_one_that_cannot_be_settled_does_not_keep_the_others_waiting(
    durable: Starting, asking: Asking, clock: FakeClock, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged and tried again the next time."""
    first = durable()
    for _ in range(2):
        await first.request(asking(deadline=clock.now()))
    store.refuses.add("save pauseresume.checkpoint")
    with caplog.at_level(logging.WARNING):
        assert await durable().expire_due() == ()
    assert caplog.text.count("was not settled") == 2
    store.refuses.clear()
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


async def test_a_pause_settled_by_the_new_process_leaves_the_list(
    durable: Starting, asking: Asking, owner: Quadruple
) -> None:
    """It shows among the settled ones of the process that settled it."""
    pause = await durable().request(asking())
    second = durable()
    settled = await second.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert (await second.list(who=owner)).total == 0
    assert (await second.list(PauseFilter(states=(PauseState.RESUMED,)), who=owner)).rows == (settled,)
    assert (await durable().list(PauseFilter(states=(PauseState.RESUMED,)), who=owner)).truncated


async def test_two_processes_keep_one_index(durable: Starting, asking: Asking, owner: Quadruple) -> None:
    """Concurrent requests of two coordinators over one store are all listed by a third."""
    first, second = durable(), durable()
    pauses = await asyncio.gather(*((first, second)[n % 2].request(asking()) for n in range(20)))
    listed = (await durable().list(who=owner, page_size=200)).rows
    assert {pause.token for pause in listed} == {pause.token for pause in pauses}


class SlowStore(MemoryStateStore):
    """A store whose answers take a turn of the loop, so that two writers can meet."""

    async def load(self, identity: Quadruple, kind: str) -> StateRecord:
        found = await super().load(identity, kind)
        await asyncio.sleep(0)
        return found


async def test_writers_that_meet_at_the_index_both_succeed(owner: Quadruple) -> None:
    """Of two that read the same record, the second to write reads again."""
    store = SlowStore()
    one, other = PauseIndex(store), PauseIndex(store)
    part, names = part_of("first"), []
    for number in count():
        if part_of(name := f"n{number}") == part:
            names.append(name)
        if len(names) == 2:
            break
    await one.add("first", owner)
    await asyncio.gather(one.add(names[0], owner), other.add(names[1], owner), one.remove("acme", ["first"]))
    assert (await PauseIndex(store).entries("acme")).keys() == set(names)


async def test_a_writer_that_always_loses_gives_up_loudly(owner: Quadruple) -> None:
    """A store that reports a conflict for ever is not asked for ever."""

    class Conflicting(MemoryStateStore):
        async def save(self, record: StateRecord) -> None:
            if record.kind.startswith("pauseresume.index"):
                raise IdempotencyConflictError(record.event_id)
            await super().save(record)

    with pytest.raises(IdempotencyConflictError):
        await PauseIndex(Conflicting()).add("a", owner)


async def test_a_broken_index_is_named(store: Any, owner: Quadruple) -> None:
    """Neither the list nor the place of a pause is guessed."""
    index = PauseIndex(store)
    await index.add("a", owner)
    await index.locate("a", owner)
    for identity, kind in [*store._records]:
        if not kind.startswith("pauseresume.parts"):
            await store.save(StateRecord(f"edit {kind}", identity, kind, b"["))
    with pytest.raises(CheckpointCorruptError, match=r"pauseresume\.index:.. of tenant acme"):
        await index.entries("acme")
    with pytest.raises(CheckpointCorruptError, match="'a'"):
        await index.owner("a")


async def test_a_key_finds_its_pause_after_a_restart(
    durable: Starting, asking: Asking, told: EventRecorder, owner: Quadruple
) -> None:
    """A run that is carried on does not ask a second time, and finds the answer that was given meanwhile."""
    pause = await durable().request(asking(key="r1/7", trajectory=Trajectory(query="q")))
    second = durable()
    assert await second.request(asking(key="r1/7")) == pause
    assert told.types == ["pause.requested"]
    assert (await second.request(asking(key="r1/8"))).token != pause.token
    await second.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert (await second.request(asking(key="r1/7"))).state is PauseState.RESUMED
    found = await durable().request(asking(key="r1/7"))
    assert (found.token, found.state) == (pause.token, PauseState.RESUMED)
    assert told.types == ["pause.requested", "pause.requested", "pause.resumed"]


async def test_whoever_comes_for_an_answer_hears_of_it_at_once(
    durable: Starting, asking: Asking, owner: Quadruple
) -> None:
    """A listener for a pause that was settled in an earlier process is called when it asks by its key."""
    pause = await durable().request(asking(key="k"))
    await durable().resume(pause.token, PauseDecision.APPROVE, {"by": "ann"}, sealed=b"for you", who=owner)
    third, seen = durable(), []
    await third.request(asking(key="k"))
    third.on_resolved(pause.token, seen.append)
    assert [(settled.decision, settled.sealed) for settled in seen] == [(PauseDecision.APPROVE, b"for you")]


async def test_a_key_that_points_nowhere_is_asked_anew(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple
) -> None:
    """A crash between the key and the checkpoint leaves nothing to wait for; the key keeps its token."""
    pause = await durable().request(asking(key="k"))
    await store.delete(owner, kind_of(pause))
    again = await durable().request(asking(key="k", payload={"n": 2}))
    assert (again.token, again.payload) == (pause.token, {"n": 2})
    assert await durable().request(asking(key="k")) == again


async def test_an_entry_that_was_lost_is_put_back_by_its_owner(durable: Starting, asking: Asking, store: Any) -> None:
    """A late writer of another process undid it; whoever opened the pause restores it when it next looks."""
    first = durable()
    pause = await first.request(asking())
    for identity, kind in [*store._records]:
        if kind.startswith("pauseresume.index"):
            await store.delete(identity, kind)
    assert (await durable().list(who=pause.identity)).total == 0
    assert (await first.list(who=pause.identity)).rows == (pause,)
    assert (await durable().list(who=pause.identity)).rows == (pause,)


async def test_an_entry_that_leads_nowhere_is_taken_out(
    durable: Starting, asking: Asking, store: Any, owner: Quadruple
) -> None:
    """What a crash left in the index does not stay there for ever."""
    pause = await durable().request(asking())
    await store.delete(owner, kind_of(pause))
    assert (await durable().list(who=owner)).total == 0
    assert await PauseIndex(store).entries("acme") == {}
    assert await PauseIndex(store).owner(pause.token) is None
