"""Several engines over one storage at once: part of the suite in `hosts`, for hosts whose storage is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.engine import RunPhase
from harborage.runtime.loop.arrivals import Hold, Woken
from harborage.runtime.loop.controls import ControlType
from harborage.runtime.pauses import PauseDecision
from harborage.testing.conformance.checks import expect, expect_equal
from tests.kit.conformance.host_bench import SESSION, HostBench, control, patiently, request
from tests.kit.conformance.host_death import Death
from tests.kit.conformance.host_scale import MOST_MOMENTS, dies_or_ends
from tests.kit.conformance.host_waits import joins

if TYPE_CHECKING:
    from harborage.runtime.loop.seam import Durable, RunRequest

MANY = 40


def goal(payload: Any) -> Finish:
    """A finish that holds what the run learned."""
    return Finish(FinishReason.GOAL, payload)


async def listens(io: Durable, _: RunRequest) -> Finish:
    """A run that lingers and returns the messages it got meanwhile."""
    await io.step("keyed", 1)
    await io.step("linger", None)
    return goal([(one.payload or {}).get("message", str(one.type)) for one in (await io.drain()).controls])


async def controls_from_another_process_are_applied(bench: HostBench) -> None:
    """Any process may send; the run gets each control once and in order, and the others read how it ended."""
    await bench.start("r", listens)
    await bench.reached("r")
    other = await bench.beside()
    for text in ("one", "two"):
        await other.send("r", control("r", ControlType.USER_MESSAGE, {"message": text}))
    event = control("r", ControlType.USER_MESSAGE, {"message": "three"}, "event-1")
    sent = [await other.send("r", event), await bench.engine.send("r", event)]
    expect_equal(sent, [True, False], "whether the same event was queued by each of two processes")
    expect((await other.status("r")).phase in (RunPhase.RUNNING, RunPhase.PENDING), "the other process sees it run")
    bench.world.open_gate()
    expect_equal(await bench.payload("r"), ["one", "two", "three"], "what the run heard")
    finish = await patiently(other.result("r"), "the other process hears how the run ended")
    expect_equal(finish.payload, ["one", "two", "three"], "what the other process heard of it")
    expect_equal(await other.history("r"), await bench.engine.history("r"), "the history")


async def a_hard_cancel_from_another_process_cuts_the_step_in_flight(bench: HostBench) -> None:
    """It reaches the process that carries the run without a boundary in between."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        try:
            await io.step("linger", None)
        except Exception as error:  # noqa: BLE001 - which class, the suite for waiting says
            return goal(str(error))
        return goal("went on")

    await bench.start("r", program)
    await bench.reached("r")
    other = await bench.beside()
    await other.send("r", control("r", ControlType.CANCEL, {"hard": True}))
    expect("hard_cancel" in await bench.payload("r"), "the step was cut")


async def another_process_wakes_a_parked_run(bench: HostBench) -> None:
    """By a control, and by settling the pause; it need not carry runs itself."""

    async def program(io: Durable, asked: RunRequest) -> Finish:
        said: list[Any] = []
        while True:
            woken: Woken = await io.wait(Hold(asked.goal))
            if woken.decision is not None:
                return goal([*said, str(woken.decision)])
            said += [(one.payload or {})["message"] for one in (await io.drain()).controls]

    pause = await bench.pause("r")
    await bench.start("r", program, goal=pause.token)
    await bench.phase("r", RunPhase.PARKED)
    other = await bench.beside()
    await other.send("r", control("r", ControlType.USER_MESSAGE, {"message": "hello"}))
    await bench.drained("r", 1)
    await bench.phase("r", RunPhase.PARKED)
    await bench.hosts.pauses.resume(pause.token, PauseDecision.APPROVE, who=SESSION)
    expect_equal(await bench.payload("r"), ["hello", "approve"], "why the run woke")


async def messages_to_a_waiting_run_outlive_any_death(bench: HostBench) -> None:
    """Its process dies right before or right after each change of the storage in turn, while another process sends: the
    run hears each message once, in order, when its child has ended."""
    for point in range(1, MOST_MOMENTS):
        run_id = f"r{point}"
        bench.world.shut_gate()
        await bench.boot()
        await bench.engine.start(run_id, request(run_id))
        death, other = Death(point), await bench.beside()
        await bench.boot(death)
        await bench.serve(joins)
        for text in ("one", "two"):
            await bench.hosts.pass_time(0.3)  # a waiting run leaves memory; in a longer time the worker only polls more
            await other.send(run_id, control(run_id, ControlType.USER_MESSAGE, {"message": text}))
        await bench.hosts.pass_time(0.3)
        bench.world.open_gate()
        await dies_or_ends(bench, run_id, death)
        has_died = death.came.is_set()
        await bench.reboot(joins)
        died = f"died at moment {point} of its storage"
        expect_equal(await bench.payload(run_id), ["child ended", ["one", "two"]], f"what the run heard, {died}")
        if not has_died:
            expect(point > 2 * 5, "the run and its child begin, wait and end in some changes of the storage")
            return
    expect(False, "the run ends")


async def two_workers_carry_each_run_once(bench: HostBench) -> None:
    """One of the workers executes each run, and both read how it ended."""

    async def program(io: Durable, asked: RunRequest) -> Finish:
        return goal([await io.step("keyed", at) for at in range(3)] + [asked.goal])

    await bench.reboot(program)
    other = await bench.beside()
    await bench.serve_beside(other, program)
    ids = [f"r{index}" for index in range(MANY)]
    for index, run_id in enumerate(ids):
        await (other if index % 2 else bench.engine).start(run_id, request(run_id))
    for run_id in ids:
        wanted = [["keyed", 0], ["keyed", 1], ["keyed", 2], run_id]
        expect_equal(await bench.payload(run_id), wanted, f"the finish of {run_id}")
        expect_equal((await patiently(other.result(run_id), "the other knows")).payload, wanted, "what the other says")
        expect_equal(bench.world.done(run_id), [0, 1, 2], f"what {run_id} did")


async def when_one_of_two_workers_dies_the_other_carries_on(bench: HostBench) -> None:
    """Every run of the dead one is found and brought to its end, and what was done is not done again."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        await io.step("keyed", 1)
        await io.step("linger", None)
        return goal(await io.step("pay", 2))

    death = Death()
    await bench.boot(death)
    await bench.serve(program)
    ids = [f"r{index}" for index in range(MANY)]
    for run_id in ids[: MANY // 2]:
        await bench.engine.start(run_id, request(run_id))
        await bench.reached(run_id)
    other = await bench.beside()
    await bench.serve_beside(other, program)
    for run_id in ids[MANY // 2 :]:
        await other.start(run_id, request(run_id))
        await bench.reached(run_id)
    for run_id in ids:
        bench.world.reached(run_id, "linger").clear()
    death.strike()
    await bench.stop()
    for run_id in ids[: MANY // 2]:
        await bench.reached(run_id)  # in the other process now
    bench.world.open_gate()
    for run_id in ids:
        finish = await patiently(other.result(run_id), f"run {run_id} ends in the process that lives")
        expect_equal(finish.payload, ["pay", 2], f"the finish of {run_id}")
        expect_equal(bench.world.done(run_id, "keyed", "pay"), [1, 2], f"what {run_id} did")


SCENARIOS = (
    controls_from_another_process_are_applied,
    a_hard_cancel_from_another_process_cuts_the_step_in_flight,
    another_process_wakes_a_parked_run,
    messages_to_a_waiting_run_outlive_any_death,
    two_workers_carry_each_run_once,
    when_one_of_two_workers_dies_the_other_carries_on,
)
