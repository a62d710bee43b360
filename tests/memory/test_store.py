"""The memory of sessions over a state store: strategies, identity, summaries that fail, and what outlives a process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harborage.concurrency import CANCEL_GRACE_S
from harborage.errors import InvalidOptionError
from harborage.events import MemoryEventBus
from harborage.identity import Identity
from harborage.memory import (
    InvalidSnapshotError,
    Memory,
    MemoryClosedError,
    MemoryCorruptError,
    MemoryHealth,
    MemoryIdentityError,
    MemorySnapshot,
    MemoryStrategy,
    SessionMemory,
    Turn,
)
from harborage.state import MemoryStateStore, RecordNotFoundError, StateRecord
from harborage.state.storage import open_storage
from harborage.testing.clock import settle

pytestmark = pytest.mark.anyio

Memories = Callable[..., Awaitable[Any]]
ADA = Identity("acme", "ada", "s1")
ROLLING = Memory(tokens=0)
TRUNCATION = Memory(strategy="truncation", tokens=0)
NONE = Memory(strategy="none")
RECOVERY_S = 10


# ── Strategies ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_fifth_turn_asks_for_one_summary_of_one_turn(memories: Memories) -> None:
    """Four turns are kept as they are; with the fifth the first is summarised, in one call under the session's name."""
    bench = await memories(ROLLING)
    await bench.add(4)
    assert bench.summariser.calls == []
    await bench.add(1, first=5)
    assert bench.summariser.calls == [(ADA, "", 1)]
    patch = await bench.memory.context(ADA)
    assert (patch.summary, await bench.said()) == ("user 001", ["user 002", "user 003", "user 004", "user 005"])
    assert patch.tokens == await bench.memory.estimate_tokens(ADA) == 4 * 6 + 3
    await bench.add(1, first=6)
    assert bench.summariser.calls[1:] == [(ADA, "user 001", 1)]


async def test_truncation_keeps_the_newest_turns_that_fit(memories: Memories) -> None:
    """A budget of 10 keeps one turn of 6; no budget keeps all; a single turn that is too large leaves nothing."""
    bench = await memories(Memory(strategy="truncation", tokens=10))
    await bench.add(3)
    assert await bench.said() == ["user 003"]
    await bench.memory.add_turn(ADA, Turn(user_message="x" * 50, assistant_response="y"))
    assert await bench.said() == []
    bench = await memories(TRUNCATION)
    await bench.add(30)
    assert len(await bench.said()) == 30


async def test_none_keeps_nothing(memories: Memories) -> None:
    """Adding is a no-op, the context is empty and costs nothing, memory is always healthy; flush deletes a record."""
    bench = await memories(NONE)
    await bench.add(3)
    patch = await bench.memory.context(ADA)
    assert (patch.strategy, patch.recent_turns, patch.summary, patch.tokens) == ("none", (), "", 0)
    assert await bench.memory.estimate_tokens(ADA) == 0
    assert await bench.memory.health(ADA) is MemoryHealth.HEALTHY
    with pytest.raises(RecordNotFoundError):
        await bench.state.load(ADA.with_run(""), "memory.state")
    await bench.state.save(StateRecord("e1", ADA.with_run(""), "memory.state", b"old"))
    await bench.memory.flush(ADA)
    with pytest.raises(RecordNotFoundError):
        await bench.state.load(ADA.with_run(""), "memory.state")


async def test_a_turn_is_added_once(memories: Memories) -> None:
    """A second turn with the key of one that was added, as a repeated step brings, changes nothing."""
    for config in (TRUNCATION, ROLLING, Memory(strategy="truncation", tokens=1)):
        bench = await memories(config)
        for _ in range(3):
            await bench.memory.add_turn(ADA, Turn(user_message="hello", assistant_response="hi", key="run-1"))
        assert await bench.said() == (["hello"] if config.tokens == 0 else [])


async def test_turns_added_at_once_are_all_kept(memories: Memories) -> None:
    """Ten turns that are added at the same time are ten turns, and none is summarised twice."""
    bench = await memories(ROLLING)
    await asyncio.gather(
        *(bench.memory.add_turn(ADA, Turn(user_message=f"{n}", assistant_response="a")) for n in range(10))
    )
    patch = await bench.memory.context(ADA)
    assert sorted([*patch.summary.split(), *await bench.said()], key=int) == [f"{n}" for n in range(10)]


# ── Identity ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_equal_session_ids_of_two_tenants_or_users_are_two_memories(memories: Memories) -> None:
    """What one principal said never shows in the memory of another one, though the session has the same id."""
    bench = await memories(TRUNCATION)
    others = [Identity("other", "ada", "s1"), Identity("acme", "bob", "s1"), Identity("acme", "ada", "s2")]
    await bench.add(1)
    for other in others:
        assert await bench.said(other) == []
        await bench.add(1, who=other, first=9)
    await bench.memory.flush(others[0])
    assert [await bench.said(who) for who in (ADA, *others)] == [["user 001"], [], ["user 009"], ["user 009"]]


async def test_a_call_without_a_whole_identity_is_refused_and_announced(memories: Memories) -> None:
    """Every operation names the empty parts, and the event says `<missing>` for them; a closed memory says so first."""
    bench = await memories(TRUNCATION)
    memory = bench.memory
    turn = Turn(user_message="u", assistant_response="a")
    snapshot = MemorySnapshot(strategy=MemoryStrategy.TRUNCATION)
    operations: dict[str, Callable[[Identity], Awaitable[object]]] = {
        "add_turn": lambda who: memory.add_turn(who, turn),
        "context": memory.context,
        "estimate_tokens": memory.estimate_tokens,
        "health": memory.health,
        "flush": memory.flush,
        "snapshot": memory.snapshot,
        "restore": lambda who: memory.restore(who, snapshot),
    }
    for operation in operations.values():
        with pytest.raises(MemoryIdentityError, match=r"^tenant_id and session_id empty$"):
            await operation(Identity("", "ada", ""))
    published = [(one.identity, one.payload.operation, one.payload.reason) for one in bench.recorder.events]
    owner = Identity("<missing>", "ada", "<missing>").with_run("")
    assert published == [(owner, operation, "tenant_id and session_id empty") for operation in operations]
    await memory.aclose()
    for operation in operations.values():
        with pytest.raises(MemoryClosedError):
            await operation(Identity("", "", ""))


# ── Health ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_three_failures_in_a_row_degrade_the_summary(memories: Memories) -> None:
    """The context is then the four newest turns alone, adding asks for no summary, and each change is announced."""
    bench = await memories(ROLLING)
    await bench.add(5)
    bench.summariser.is_down = True
    await bench.add(3, first=6)
    assert await bench.memory.health(ADA) is MemoryHealth.DEGRADED
    patch = await bench.memory.context(ADA)
    assert (len(patch.recent_turns), patch.summary) == (4, "")
    assert patch.tokens == await bench.memory.estimate_tokens(ADA) == 4 * 6
    calls = len(bench.summariser.calls)
    await bench.add(2, first=9)
    assert len(bench.summariser.calls) == calls == 4
    assert bench.health_changes == [
        ("healthy", "retry", "summarizer_failed"),
        ("retry", "degraded", "retries_exhausted"),
    ]


async def test_a_success_after_a_failure_is_healthy_again(memories: Memories) -> None:
    """The next turn that overflows tries again, with what is owed and the earlier summary, and forgets the failures."""
    bench = await memories(ROLLING)
    bench.summariser.is_down = True
    await bench.add(5)
    assert await bench.memory.health(ADA) is MemoryHealth.RETRY
    bench.summariser.is_down = False
    await bench.add(1, first=6)
    assert bench.summariser.calls[-1] == (ADA, "", 2)
    assert bench.health_changes[-1] == ("retry", "healthy", "summarizer_succeeded")
    assert (await bench.memory.context(ADA)).summary == "user 001 user 002"


async def test_the_backlog_is_bounded_and_drops_the_oldest(memories: Memories) -> None:
    """Thirty turns under an outage with room for four batches leave four, and an event for each that was dropped."""
    bench = await memories(Memory(tokens=0, backlog=4))
    bench.summariser.is_down = True
    await bench.add(30)
    # The first three failures become one batch, and each of the other 23 turns that overflow one of its own.
    dropped = [one.payload.reason for one in bench.recorder.events if one.type == "memory.recovery_dropped"]
    assert dropped == ["backlog_overflow"] * 20
    bench.summariser.is_down = False
    for _ in range(4):
        assert await bench.memory.health(ADA) is MemoryHealth.DEGRADED
        await bench.clock.run_for(RECOVERY_S)
        await settle()
    assert await bench.memory.health(ADA) is MemoryHealth.HEALTHY
    assert (await bench.memory.context(ADA)).summary == "user 023 user 024 user 025 user 026"


async def test_recovery_takes_one_batch_a_tick_and_keeps_one_that_fails(memories: Memories) -> None:
    """Each attempt is announced, a failure puts the session back, and it is healthy when nothing is left."""
    bench = await memories(ROLLING)
    bench.summariser.is_down = True
    await bench.add(8)
    await bench.clock.run_for(RECOVERY_S)
    await settle()
    bench.summariser.is_down = False
    for _ in range(2):
        await bench.clock.run_for(RECOVERY_S)
        await settle()
    assert bench.health_changes[2:] == [
        ("degraded", "recovering", "recovery_loop_attempt"),
        ("recovering", "degraded", "recovery_batch_failed"),
        ("degraded", "recovering", "recovery_loop_attempt"),
        ("recovering", "degraded", "recovery_batch_drained"),
        ("degraded", "recovering", "recovery_loop_attempt"),
        ("recovering", "healthy", "recovery_loop_drained"),
    ]
    assert (await bench.memory.context(ADA)).summary == "user 001 user 002 user 003 user 004"


async def test_without_room_for_a_backlog_recovery_begins_anew(memories: Memories) -> None:
    """With a backlog of 0 what could not be summarised is dropped out loud, and the session does not stay degraded."""
    bench = await memories(Memory(tokens=0, backlog=0))
    bench.summariser.is_down = True
    await bench.add(7)
    assert await bench.memory.health(ADA) is MemoryHealth.DEGRADED
    await bench.clock.run_for(RECOVERY_S)
    await settle()
    assert await bench.memory.health(ADA) is MemoryHealth.HEALTHY


async def test_a_summariser_that_hangs_or_says_nothing_counts_as_failed(memories: Memories) -> None:
    """A turn is added after the time a summary may take at the latest; a blank summary never replaces one."""
    bench = await memories(ROLLING)
    await bench.add(4)
    bench.summariser.hangs = True
    adding = asyncio.create_task(bench.add(1, first=5))
    await settle()
    assert await bench.said() == ["user 002", "user 003", "user 004", "user 005"]  # stored, and nobody waits to read
    await bench.clock.run_for(30)
    await adding
    assert await bench.memory.health(ADA) is MemoryHealth.RETRY
    bench.summariser.hangs = False

    async def blank(*_: object) -> str:
        return "  \n"

    bench.summariser.summarise = blank
    await bench.add(1, first=6)
    assert await bench.memory.health(ADA) is MemoryHealth.RETRY
    assert (await bench.memory.context(ADA)).summary == ""


async def test_a_summariser_that_ignores_its_cancellation_is_ended(
    memories: Memories, caplog: pytest.LogCaptureFixture
) -> None:
    """Its task would keep the event loop from ending; the log names the session, and closing waits for nothing."""

    async def deaf(*_: object) -> str:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    bench = await memories(ROLLING)
    before = asyncio.all_tasks()
    await bench.add(4)
    bench.summariser.summarise = deaf
    adding = asyncio.create_task(bench.add(1, first=5))
    await settle()
    await bench.clock.run_for(30)
    await adding
    await bench.clock.run_for(CANCEL_GRACE_S)
    assert "the summariser of session s1 was abandoned: it ignored its cancellation for 0.2 s" in caplog.text
    await bench.memory.aclose()
    assert asyncio.all_tasks() <= before


async def test_a_turn_survives_the_cancellation_of_its_summary(memories: Memories) -> None:
    """Whoever adds a turn and is cancelled while it is summarised has added it; the next turn summarises both."""
    bench = await memories(ROLLING)
    await bench.add(4)
    bench.summariser.hangs = True
    adding = asyncio.create_task(bench.add(1, first=5))
    await settle()
    adding.cancel()
    await asyncio.wait([adding])
    assert adding.cancelled()
    bench.summariser.hangs = False
    await bench.add(1, first=6)
    assert bench.summariser.calls[-1] == (ADA, "", 2)
    assert await bench.memory.health(ADA) is MemoryHealth.HEALTHY


async def test_a_very_long_summary_is_cut(memories: Memories) -> None:
    """A summariser cannot make a session's record, and every later prompt, grow without end."""
    bench = await memories(ROLLING)

    async def endless(*_: object) -> str:
        return "long " * 100_000

    bench.summariser.summarise = endless
    await bench.add(5)
    summary = (await bench.memory.context(ADA)).summary
    assert len(summary) == 32_768
    assert summary.endswith("…")


# ── What is kept ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_memory_outlives_its_process(tmp_path: Path) -> None:
    """Over the same SQLite file the next memory has the same turns, summary and health, and goes on recovering."""
    url = f"sqlite:{tmp_path / 'h.db'}"

    class Broken:
        async def summarise(self, *_: object) -> str:
            raise OSError("down")

    async def opened(config: Memory, act: Callable[[SessionMemory], Awaitable[Any]]) -> Any:
        bus = MemoryEventBus()
        async with await open_storage(url) as storage:
            memory = SessionMemory(storage.state, bus, config, summariser=Broken())
            try:
                return await act(memory)
            finally:
                await memory.aclose()
                await bus.aclose()

    async def fill(memory: SessionMemory) -> list[str]:
        for n in range(8):
            await memory.add_turn(ADA, Turn(user_message=f"{n}", assistant_response="a"))
        return [turn.user_message for turn in (await memory.context(ADA)).recent_turns]

    async def read(memory: SessionMemory) -> tuple[list[str], str]:
        return [turn.user_message for turn in (await memory.context(ADA)).recent_turns], await memory.health(ADA)

    assert await opened(TRUNCATION, fill) == [f"{n}" for n in range(8)]
    assert await opened(TRUNCATION, read) == ([f"{n}" for n in range(8)], "healthy")
    assert await opened(ROLLING, read) == ([], "healthy")  # of another strategy: an empty memory
    assert await opened(ROLLING, fill) == ["4", "5", "6", "7"]
    assert await opened(ROLLING, read) == (["4", "5", "6", "7"], "degraded")


async def test_a_session_found_degraded_is_recovered(memories: Memories) -> None:
    """A new process that only reads a session which has fallen behind takes its backlog up."""
    first = await memories(ROLLING)
    first.summariser.is_down = True
    await first.add(7)
    await first.memory.aclose()
    second = await memories(ROLLING, state=first.state)
    await second.said()
    await second.clock.run_for(RECOVERY_S)
    await settle()
    assert await second.memory.health(ADA) is MemoryHealth.HEALTHY
    assert (await second.memory.context(ADA)).summary == "user 001 user 002 user 003"


async def test_a_damaged_record_is_named_and_can_be_flushed(memories: Memories) -> None:
    """An unreadable memory fails each read of that session alone, says what removes it, and is gone after a flush."""
    bench = await memories(TRUNCATION)
    for damaged in (b"{", b"[]", b'{"strategy":"truncation","turns":[1]}', b"\xff"):
        await bench.state.save(StateRecord(f"e-{damaged!r}", ADA.with_run(""), "memory.state", damaged))
        with pytest.raises(MemoryCorruptError, match=r"session 's1' cannot be read.*flush"):
            await bench.memory.context(ADA)
        with pytest.raises(MemoryCorruptError):
            await bench.add(1)
    await bench.add(1, who=Identity("acme", "ada", "s2"))
    await bench.memory.flush(ADA)
    await bench.add(1)
    assert await bench.said() == ["user 001"]


async def test_a_snapshot_brings_a_memory_back(memories: Memories) -> None:
    """It restores into any session of the same strategy, within today's budget; an empty one resets the session."""
    bench = await memories(TRUNCATION)
    await bench.add(3)
    snapshot = await bench.memory.snapshot(ADA)
    small = await memories(Memory(strategy="truncation", tokens=10))
    await small.memory.restore(ADA, snapshot)
    assert await small.said() == ["user 003"]
    await small.memory.restore(ADA, MemorySnapshot(strategy=MemoryStrategy.TRUNCATION))
    assert await small.said() == []
    rolling = await memories(ROLLING)
    await rolling.add(6)
    other = Identity("acme", "bob", "s9")
    await rolling.memory.restore(other, await rolling.memory.snapshot(ADA))
    assert await rolling.memory.context(other) == await rolling.memory.context(ADA)


async def test_a_snapshot_that_does_not_fit_is_refused(memories: Memories) -> None:
    """Another strategy outside or inside, bad JSON, and turns for `none` are refused; the memory stays as it was."""
    bench = await memories(TRUNCATION)
    await bench.add(1)
    turns = (await bench.memory.snapshot(ADA)).data
    table = {
        "strategy rolling_summary": MemorySnapshot(strategy=MemoryStrategy.ROLLING_SUMMARY),
        "cannot be read": MemorySnapshot(strategy=MemoryStrategy.TRUNCATION, data=b"{"),
        "strategy none": MemorySnapshot(strategy=MemoryStrategy.TRUNCATION, data=b'{"strategy":"none"}'),
    }
    for message, snapshot in table.items():
        with pytest.raises(InvalidSnapshotError, match=message):
            await bench.memory.restore(ADA, snapshot)
    assert await bench.said() == ["user 001"]
    none = await memories(NONE)
    data = turns.replace(b"truncation", b"none")
    with pytest.raises(InvalidSnapshotError, match="keeps none"):
        await none.memory.restore(ADA, MemorySnapshot(strategy=MemoryStrategy.NONE, data=data))


async def test_a_memory_needs_its_parts() -> None:
    """A missing store, bus or summariser is refused where the memory is made; nothing stands in for a summariser."""
    bus = MemoryEventBus()
    missing: Any = None
    for parts, config in (((missing, bus), TRUNCATION), ((MemoryStateStore(), missing), NONE)):
        with pytest.raises(InvalidOptionError, match="a state store and an event bus"):
            SessionMemory(*parts, config)
    with pytest.raises(InvalidOptionError, match="rolling_summary needs a summariser"):
        SessionMemory(MemoryStateStore(), bus, ROLLING)
    await bus.aclose()


async def test_a_bus_that_refuses_costs_no_turn(memories: Memories) -> None:
    """The store is the truth: a memory whose bus is closed goes on remembering."""
    bench = await memories(ROLLING)
    await bench.bus.aclose()
    bench.summariser.is_down = True
    await bench.add(8)
    assert await bench.memory.health(ADA) is MemoryHealth.DEGRADED
