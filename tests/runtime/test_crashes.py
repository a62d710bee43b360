"""An agent's run whose process dies anywhere: the next one finishes it, and nothing that may happen once happens twice.

The runtime is closed after one turn of the loop, after two, and so on; another one over the same storage carries the
run on.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from harborage.events import MemoryEventBus
from harborage.identity import Identity
from harborage.planner import CallParallel, CallTool, Finish, FinishReason, RunContext, SpawnSpec, SpawnTask
from harborage.runtime.durable.journal import Begun, Done, Ended, decode_entries, encode_entry
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.state.storage import Storage
from harborage.store import Change, Commit, Guard, Status
from harborage.store.memory import MemoryStore
from harborage.tasks import InProcessTaskRegistry
from harborage.testing.clock import FakeClock, settle
from harborage.tools import CallContext, SideEffect, tool
from tests.kit.slow_store import SlowStore, storage_over
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
MOST_TURNS = 300


def call(name: str, text: str) -> CallTool:
    return CallTool(name, b'{"text":"%s"}' % text.encode())


PLAN = (
    call("read", "a"),
    call("write", "b"),
    CallParallel((call("keyed", "c"), call("write", "d"), call("read", "e"))),
    call("keyed", "f"),
    call("write", "g"),
)


class Slow(SlowStore):
    """Takes turns of the loop over everything, so that a process may die before a write, after it, and in between."""

    before = after = 1


def opened(store: type[MemoryStore]) -> Storage:
    """A storage that outlives the processes."""
    clock = FakeClock()
    return storage_over(store(clock=clock), clock)


class World:
    """What tools do, in every process; each takes a turn before and after it acts."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.written: list[str] = []
        self.keyed: dict[str, list[str]] = {}
        self.asked: list[int] = []

    async def next(self, run: RunContext) -> Any:
        assert run.trajectory is not None
        at = len(run.trajectory.steps)
        self.asked.append(at)
        await asyncio.sleep(0)
        if at < len(PLAN):
            return PLAN[at]
        return Finish(FinishReason.GOAL, [_plain(step.observation) for step in run.trajectory.steps])

    def tools(self) -> list[Any]:
        async def read(text: str) -> str:
            """Read."""
            await asyncio.sleep(0)
            self.read.append(text)
            await asyncio.sleep(0)
            return f"read {text}"

        async def write(text: str) -> str:
            """Write."""
            await asyncio.sleep(0)
            self.written.append(text)
            await asyncio.sleep(0)
            return f"wrote {text}"

        async def keyed(call: CallContext, text: str) -> str:
            """Do something under a key."""
            await asyncio.sleep(0)
            self.keyed.setdefault(call.idempotency_key, []).append(text)
            await asyncio.sleep(0)
            return f"keyed {text}"

        return [
            tool(read, effects=SideEffect.READ),
            tool(write, effects=SideEffect.WRITE),
            tool(keyed, effects=SideEffect.EXTERNAL, idempotent=True),
        ]


def _plain(observation: Any) -> Any:
    branches = observation.get("branches") if isinstance(observation, dict) else getattr(observation, "branches", None)
    if branches is None:
        return observation
    return [one.error or one.value for one in branches]


async def life(world: World, storage: Storage, run_id: str, turns: int | None) -> tuple[str, Any]:
    """One process, which starts the run or finds it and dies after so many turns: the run's id, and its finish if it
    saw that."""
    async with Runtime(planner=world, tools=world.tools(), storage=storage, clock=FakeClock()) as rt:
        run = await rt.run(run_id, who=ME) if run_id else await rt.start("g", who=ME)
        if turns is None:
            async with asyncio.timeout(10):
                return run.id, (await run.finished()).payload
        await settle(turns)
        is_over = (await run.status()).phase.is_final
        return run.id, (await run.finished()).payload if is_over else None


def check(world: World, payload: Any, deaths: int) -> None:
    """Every answer is the one it always is, or says that the outcome is unknown; what was done is what the answers
    say."""
    flat = [payload[0], payload[1], *payload[2], payload[3], payload[4]]
    wanted = ["read a", "wrote b", "keyed c", "wrote d", "read e", "keyed f", "wrote g"]
    for got, plain in zip(flat, wanted, strict=True):
        if got == plain:
            continue
        text = got["error"] if isinstance(got, dict) else got
        assert plain.startswith("wrote"), f"{plain} became {got}"
        assert "unknown" in text
    written = Counter(world.written)
    assert all(count == 1 for count in written.values()), f"written twice: {written}"
    sure = {plain[-1] for got, plain in zip(flat, wanted, strict=True) if got == plain and plain.startswith("wrote")}
    assert sure <= set(written), "an answer says that something was written which was not"
    for key, texts in world.keyed.items():
        assert len(set(texts)) == 1, f"key {key} stands for {texts}"
    assert {texts[0] for texts in world.keyed.values()} == {"c", "f"}
    assert len(world.asked) <= len(PLAN) + 1 + deaths, "at most one more call of the planner for each death"


@pytest.mark.parametrize("store", [MemoryStore, Slow])
async def test_a_process_may_die_at_any_turn(store: type[MemoryStore]) -> None:
    """Once, at each turn of the run in turn; in the middle of a write too."""
    for turns in range(MOST_TURNS):
        world = World()
        async with opened(store) as storage:
            run_id, payload = await life(world, storage, "", turns)
            deaths = 1 if payload is None else 0
            if deaths:
                _, payload = await life(world, storage, run_id, None)
        check(world, payload, deaths)
        if not deaths:
            assert turns > 20
            return
    pytest.fail("the run never ends")


@each_row("seed", range(60))
async def test_a_process_may_die_again_and_again(seed: int) -> None:
    """At turns that chance picks, until one lives long enough."""
    chance = random.Random(seed)
    world, storage = World(), opened(Slow if seed % 2 else MemoryStore)
    run_id, payload = "", None
    deaths = -1
    while payload is None:
        deaths += 1
        assert deaths < 200
        run_id, payload = await life(world, storage, run_id, chance.randint(0, 12 + deaths))
    check(world, payload, deaths)
    entries = decode_entries(await storage.store.entries(run_id), run_id)
    done = Counter(entry.position for entry in entries if isinstance(entry, Done))
    assert all(count == 1 for count in done.values())
    keys = Counter(entry.key for entry in entries if isinstance(entry, Begun) and entry.name == "tool.write")
    assert all(count == 1 for count in keys.values()), "a write was begun twice"
    await storage.aclose()


class Parent:
    """Spawns a child, then asks for input until it hears how the child ended."""

    async def next(self, run: RunContext) -> Any:
        assert run.trajectory is not None
        if run.query == "child":
            return await asyncio.get_running_loop().create_future()
        if not run.trajectory.steps:
            return SpawnTask(spec=SpawnSpec(query="child"))
        if run.trajectory.background:
            return Finish(FinishReason.GOAL, [one.status for one in run.trajectory.background.values()])
        await asyncio.sleep(0)
        return CallTool("idle")


@tool(effects=SideEffect.READ)
async def idle() -> None:
    """Idle."""


async def test_a_background_result_finds_a_run_that_was_carried_on() -> None:
    """A child that another worker ended while the parent's was down: the parent hears of its group from the next."""
    bus, storage = MemoryEventBus(), opened(MemoryStore)
    parts: dict[str, Any] = {
        "planner": Parent(),
        "tools": [idle],
        "storage": storage,
        "bus": bus,
        "options": RuntimeOptions(max_steps=10_000),
    }
    async with Runtime(**parts) as rt:
        run = await rt.start("g", who=ME)
        await settle()
    await storage.store.join("other")
    (claimed,) = [one for one in await storage.store.claim("other") if one.row.parent == run.id]
    end = encode_entry(Ended(at=datetime.now(UTC), error="lost", message="by another worker"))
    guard = Guard(lease=claimed.row.lease, position=claimed.row.position)
    await storage.store.commit(Commit(guard=guard, entries=(end,), change=Change(status=Status.FAILED, reason="lost")))
    await storage.store.leave("other")
    tasks = InProcessTaskRegistry(bus=bus, store=storage.store)
    await tasks.settle_group(claimed.row.group, who=ME)
    async with Runtime(**parts) as rt:
        async with asyncio.timeout(10):
            assert (await (await rt.run(run.id, who=ME)).finished()).payload == ["completed"]
    await tasks.aclose()
    await storage.aclose()
    await bus.aclose()
