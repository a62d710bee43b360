"""Long runs, many runs, large payloads, and what happens to runs while nothing is up: part of the suite in `hosts`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from harborage.concurrency import Crew
from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.engine import RunPhase
from harborage.runtime.loop.arrivals import Hold, Woken
from harborage.runtime.loop.controls import ControlType
from harborage.runtime.pauses import PauseDecision
from harborage.testing.conformance.checks import expect, expect_equal
from tests.kit.conformance.host_bench import SESSION, HostBench, patiently, request
from tests.kit.conformance.host_death import Death
from tests.kit.conformance.host_steps import check_errand, errand

if TYPE_CHECKING:
    from harborage.runtime.loop.seam import Durable, RunRequest

MANY_PARKED = 300
MOST_MOMENTS = 400
"""More moments of a storage than a run of the suite takes on any host; reaching it means that a run never ends."""
KEPT_APART = 8 * 1024
LARGEST = 256 * 1024 - 64
"""The size of the largest payload that any host takes, with room for what is around it."""


def goal(payload: Any) -> Finish:
    """A finish that holds what the run learned."""
    return Finish(FinishReason.GOAL, payload)


async def counts(io: Durable, _: RunRequest, *, steps: int) -> Finish:
    """A run of many steps that lingers in the middle."""
    seen = [(await io.step("keyed", at))[1] for at in range(steps // 2)]
    await io.step("linger", None)
    seen += [(await io.step("keyed", at))[1] for at in range(steps // 2, steps)]
    return goal(seen)


async def two_hundred_steps_are_taken_once(bench: HostBench) -> None:
    """One long run whose process dies in the middle: each step is done once, and answered in order."""
    program = partial(counts, steps=200)
    await bench.start("r", program)
    await bench.reached("r")
    await bench.reboot(program)
    bench.world.open_gate()
    expect_equal(await bench.payload("r"), list(range(200)), "the answers")
    expect_equal(bench.world.done("r", "keyed"), list(range(200)), "what was done")


async def fifty_runs_of_twenty_steps_are_taken_once(bench: HostBench) -> None:
    """Many runs at once, all under way when their process dies: each does each of its steps once."""
    program = partial(counts, steps=20)
    await bench.reboot(program)
    ids = [f"r{index}" for index in range(50)]
    for run_id in ids:
        await bench.engine.start(run_id, request(run_id))
    for run_id in ids:
        await bench.reached(run_id)
    await bench.reboot(program)
    bench.world.open_gate()
    for run_id in ids:
        expect_equal(await bench.payload(run_id), list(range(20)), f"the answers of {run_id}")
        expect_equal(bench.world.done(run_id, "keyed"), list(range(20)), f"what {run_id} did")


async def a_run_killed_at_any_change_of_its_storage_comes_to_the_same_end(bench: HostBench) -> None:
    """The process dies right before or right after each change of its storage in turn: one finish, and nothing is done
    twice that may not be."""
    for point in range(1, MOST_MOMENTS):
        run_id = f"r{point}"
        await bench.boot()
        await bench.engine.start(run_id, request(run_id))
        death = Death(point)
        await bench.boot(death)
        await bench.serve(errand)
        await dies_or_ends(bench, run_id, death)
        has_died = death.came.is_set()
        await bench.reboot(errand)
        check_errand(bench.world, run_id, await bench.payload(run_id), f"died at moment {point} of its storage")
        if not has_died:
            expect(point > 2 * 5, "the errand changes the storage for each of its five payments and keyed steps")
            return
    expect(False, "the errand ends")


async def dies_or_ends(bench: HostBench, run_id: str, death: Death) -> None:
    """Return when the process has come to its death, or the run to its end."""
    watchers = Crew(on_error=lambda name, error: None)  # who asks for a result of the dead is not answered
    end = watchers.start(bench.result(run_id), "end")
    dead = watchers.start(death.came.wait(), "death")
    try:
        await patiently(_first(dead, end), f"run {run_id!r} ends, or its process does")
    finally:
        await watchers.aclose()


async def _first(*tasks: asyncio.Task[Any]) -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def held(io: Durable, asked: RunRequest) -> Finish:
    """A run that waits on the pause that its goal names, and returns the messages it got."""
    await io.step("look", io.run_id)
    woken: Woken = await io.wait(Hold(asked.goal))
    if woken.decision is None:
        said = [str(one.type) for one in (await io.drain()).controls]
        return goal(said)
    return goal([str(woken.decision), woken.payload])


async def three_hundred_runs_wait(bench: HostBench) -> None:
    """Each on a pause of its own, through the death of their process; each goes on with its own answer."""
    await bench.reboot(held)
    ids = [f"r{index}" for index in range(MANY_PARKED)]
    pauses = dict(zip(ids, await asyncio.gather(*map(bench.pause, ids)), strict=True))
    await asyncio.gather(
        *(bench.engine.start(run_id, request(run_id, goal=pause.token)) for run_id, pause in pauses.items())
    )
    for run_id in pauses:
        await bench.did(run_id, "look", run_id)

    async def all_wait() -> bool:
        return {status.phase for status in await bench.engine.list()} == {RunPhase.PARKED}

    await bench.until(all_wait, "all runs are parked")
    await bench.reboot(held)
    settle = partial(bench.hosts.pauses.resume, decision=PauseDecision.RESUME, who=SESSION)
    await asyncio.gather(*(settle(pause.token, payload={"for": run_id}) for run_id, pause in pauses.items()))
    for run_id in pauses:
        expect_equal(await bench.payload(run_id), ["resume", {"for": run_id}], f"what {run_id} was told")


async def an_approval_sent_while_no_worker_is_up_is_applied(bench: HostBench) -> None:
    """The run is parked, its process is killed, a control is sent, and only then a worker serves."""
    pause = await bench.pause("r")
    await bench.start("r", held, goal=pause.token)
    await bench.phase("r", RunPhase.PARKED)
    await bench.boot()
    await bench.send("r", ControlType.APPROVE, {"token": pause.token})
    if bench.hosts.keeps_queued_controls:
        await bench.boot()
    await bench.serve(held)
    expect_equal(await bench.payload("r"), ["APPROVE"], "what the run heard")


async def code_that_changed_under_a_parked_run_blocks_it(bench: HostBench) -> None:
    """Other code does nothing with it, though it was answered meanwhile; with its own code back it goes on."""

    async def program(io: Durable, asked: RunRequest, *, name: str = "keyed") -> Finish:
        first = await io.step(name, 1)
        woken = await io.wait(Hold(asked.goal))
        return goal([first, str(woken.decision)])

    pause = await bench.pause("r")
    await bench.start("r", program, goal=pause.token)
    await bench.phase("r", RunPhase.PARKED)
    before = await bench.engine.history("r")
    await bench.stop()
    await bench.hosts.pauses.resume(pause.token, PauseDecision.APPROVE, who=SESSION)
    await bench.reboot(partial(program, name="renamed"))
    await bench.phase("r", RunPhase.BLOCKED)
    expect_equal(await bench.engine.history("r"), before, "the history of the blocked run")
    await bench.reboot(program)
    expect_equal(await bench.payload("r"), [["keyed", 1], "approve"], "the finish")
    expect_equal(bench.world.done("r"), [1], "what was done")


async def a_parent_killed_while_it_awaits_gets_the_end_of_its_child(bench: HostBench) -> None:
    """The child ends in another process than the one in which its parent began to wait."""

    async def program(io: Durable, asked: RunRequest) -> Finish:
        if io.run_id == "child":
            await io.step("linger", None)
            return goal(await io.step("keyed", asked.goal))
        return goal([await io.spawn("child", "go"), await io.join("child")])

    await bench.start("parent", program)
    await bench.reached("child")
    for _ in range(2):
        bench.world.reached("child", "linger").clear()
        await bench.reboot(program)
        await bench.reached("child")
    bench.world.open_gate()
    expect_equal(await bench.payload("parent"), ["child", ["keyed", "go"]], "what the parent saw")
    expect_equal(bench.world.done("child", "keyed"), ["go"], "what the child did")


async def payloads_up_to_the_limit_come_back_whole(bench: HostBench) -> None:
    """Empty, around the size from which they are kept apart, and as large as any may be; in letters of all kinds."""
    sizes = [0, 1, *(KEPT_APART + off for off in (-64, -2, -1, 0, 1, 64)), LARGEST]
    said = [letter * (size // len(letter.encode())) for size in sizes for letter in ("a", "ü", '"')]

    async def program(io: Durable, _: RunRequest) -> Finish:
        seen = [(await io.step("keyed", one))[1] for one in said]
        await io.step("linger", None)
        received = [(one.payload or {})["message"] for one in (await io.drain()).controls]
        return goal([[len(one) for one in seen], seen == said, received, "z" * LARGEST])

    await bench.start("r", program)
    await bench.reached("r")
    message = {"message": "m" * 4096, "more": ["x" * 4000, "y" * 4000]}
    await bench.send("r", ControlType.USER_MESSAGE, message)
    await bench.reboot(program)
    if not bench.hosts.keeps_queued_controls:
        await bench.send("r", ControlType.USER_MESSAGE, message)
    bench.world.open_gate()
    wanted = [[len(one) for one in said], True, [message["message"]], "z" * LARGEST]
    expect_equal(await bench.payload("r"), wanted, "what came back")
    expect_equal(bench.world.done("r", "keyed"), said, "what was done")


SCENARIOS = (
    two_hundred_steps_are_taken_once,
    fifty_runs_of_twenty_steps_are_taken_once,
    a_run_killed_at_any_change_of_its_storage_comes_to_the_same_end,
    three_hundred_runs_wait,
    an_approval_sent_while_no_worker_is_up_is_applied,
    code_that_changed_under_a_parked_run_blocks_it,
    a_parent_killed_while_it_awaits_gets_the_end_of_its_child,
    payloads_up_to_the_limit_come_back_whole,
)
