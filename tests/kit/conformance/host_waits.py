"""What reaches a run from outside: controls, pauses, deadlines and cancels. Part of the suite in `hosts`."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from harborage.planner import Finish, FinishReason, JoinKind, JoinSpec
from harborage.runtime.durable.engine import RunPhase
from harborage.runtime.durable.journal import Cut
from harborage.runtime.loop.arrivals import Arrivals, Hold, Interrupt, StepInterruptedError, Woken
from harborage.runtime.loop.controls import ControlType
from harborage.runtime.loop.seam import Durable, RunRequest
from harborage.runtime.pauses import PauseDecision
from harborage.testing.conformance.checks import expect, expect_equal
from tests.kit.conformance.host_bench import SESSION, HostBench

HARD = {"hard": True}


def goal(payload: Any) -> Finish:
    """A finish that holds what the run learned."""
    return Finish(FinishReason.GOAL, payload)


def received(arrivals: Arrivals) -> list[Any]:
    """The messages among what arrived; other controls by their type."""
    return [(one.payload or {}).get("message", str(one.type)) for one in arrivals.controls]


async def listens_twice(io: Durable, _: RunRequest) -> Finish:
    """A run that drains, acts, lingers, and drains again."""
    first = received(await io.drain())
    await io.step("keyed", 1)
    await io.step("linger", None)
    second = received(await io.drain())
    await io.step("rest", None)
    return goal([first, second])


async def what_was_drained_stays_drained(bench: HostBench) -> None:
    """A resumed run gets each batch of controls again where it got it, and newer ones only after those."""
    await bench.boot()
    await bench.engine.start("r", _request("r"))
    await bench.say("r", "one", "two")
    await bench.serve(listens_twice)
    await bench.reached("r")
    await bench.say("r", "three")
    bench.world.open_gate("linger")
    await bench.reached("r", "rest")
    await bench.reboot(listens_twice)
    await bench.say("r", "four")
    bench.world.open_gate()
    expect_equal(await bench.payload("r"), [["one", "two"], ["three"]], "what the run heard, batch by batch")


async def a_drain_never_waits(bench: HostBench) -> None:
    """With nothing there the answer is nothing, and stays nothing for a run that is resumed."""
    await bench.start("r", listens_twice)
    await bench.reached("r")
    await bench.reboot(listens_twice)
    await bench.say("r", "late")
    bench.world.open_gate()
    expect_equal(await bench.payload("r"), [[], ["late"]], "what the run heard")


async def controls_wait_for_a_worker(bench: HostBench) -> None:
    """A control that was accepted while no worker served is applied, in order, once one does."""
    await bench.boot()
    await bench.engine.start("r", _request("r"))
    await bench.say("r", "one")
    if bench.hosts.keeps_queued_controls:
        await bench.boot()
    await bench.say("r", "two")
    await bench.serve(listens_twice)
    bench.world.open_gate()
    expect_equal(await bench.payload("r"), [["one", "two"], []], "what the run heard")


async def a_control_counts_once(bench: HostBench) -> None:
    """A second control of the same event id is accepted, and not queued again."""
    await bench.start("r", listens_twice)
    await bench.reached("r")
    message = {"message": "once"}
    first = await bench.send("r", ControlType.USER_MESSAGE, message, "event-1")
    second = await bench.send("r", ControlType.USER_MESSAGE, message, "event-1")
    expect_equal((first, second), (True, False), "whether each was queued")
    bench.world.open_gate()
    expect_equal(await bench.payload("r"), [[], ["once"]], "what the run heard")


async def holds(io: Durable, token: str) -> list[Any]:
    """Wait on a pause until it is resolved; record why the run woke each time, and the messages it got."""
    seen: list[Any] = []
    while True:
        woken: Woken = await io.wait(Hold(token))
        if woken.decision is not None:
            return [*seen, str(woken.decision), woken.payload]
        if woken.is_past_deadline:
            return [*seen, "deadline"]
        seen.append(received(await io.drain()))


async def waits(io: Durable, request: RunRequest) -> Finish:
    """A run that waits on the pause that its goal names."""
    said = await holds(io, request.goal)
    await io.step("linger", None)
    return goal(said)


async def controls_wake_a_parked_run(bench: HostBench) -> None:
    """A control reaches a parked run at once, and it may park again; a resumed run hears each once."""
    pause = await bench.pause("r")
    await bench.start("r", waits, goal=pause.token)
    await bench.phase("r", RunPhase.PARKED)
    await bench.say("r", "one")
    await bench.drained("r", 1)
    await bench.reboot(waits)
    await bench.phase("r", RunPhase.PARKED)
    await bench.say("r", "two", "three")
    await bench.drained("r", 3)
    await _resolve(bench, pause.token, PauseDecision.RESUME, {"answer": 42})
    bench.world.open_gate()
    woken = [["one"], ["two", "three"], "resume", {"answer": 42}]
    expect_equal(_flat(await bench.payload("r")), _flat(woken), "why the run woke")


def _flat(said: list[Any]) -> list[Any]:
    """All messages of a run in one list; how many came at a time is up to the host."""
    return [word for one in said for word in (one if isinstance(one, list) else [one])]


async def joins(io: Durable, _: RunRequest) -> Finish:
    """A run that waits for a child of its own, which lingers, and hears only then what was sent to it."""
    if io.run_id.endswith(".child"):
        await io.step("linger", None)
        return goal("child ended")
    child = await io.spawn(f"{io.run_id}.child", None)
    try:
        ended = await io.step("join", child)
    except StepInterruptedError as cut:
        ended = str(cut.reason)
    return goal([ended, received(await io.drain())])


async def a_run_that_waits_reads_messages_afterwards(bench: HostBench) -> None:
    """They end no wait for a child; however often the run leaves memory, it hears each once, in the order they came."""
    await bench.start("r", joins)
    await bench.reached("r.child")
    for text in ("one", "two", "three"):
        await bench.say("r", text)
        await bench.hosts.pass_time(5)
    await bench.reboot(joins)
    await bench.hosts.pass_time(5)
    await bench.say("r", "four")
    bench.world.open_gate()
    expect_equal(await bench.payload("r"), ["child ended", ["one", "two", "three", "four"]], "what the run heard")


async def a_cancel_ends_a_wait_behind_messages(bench: HostBench) -> None:
    """It does not wait with them: the run goes on at once, and hears all of them in the order they came."""
    await bench.start("r", joins)
    await bench.reached("r.child")
    await bench.say("r", "one", "two")
    await bench.hosts.pass_time(5)
    await bench.send("r", ControlType.CANCEL)
    expect_equal(await bench.payload("r"), ["soft_cancel", ["one", "two", "CANCEL"]], "what the run heard")


async def a_pause_resolved_while_parked_wakes_the_run(bench: HostBench) -> None:
    """A caller needs only the token to resolve the pause; the run continues with decision and payload."""
    for decision in (PauseDecision.APPROVE, PauseDecision.REJECT, PauseDecision.RESUME):
        pause = await bench.pause(str(decision))
        await bench.start(str(decision), waits, goal=pause.token)
        await bench.phase(str(decision), RunPhase.PARKED)
        await _resolve(bench, pause.token, decision, {"by": "ann"})
        bench.world.open_gate()
        expect_equal(await bench.payload(str(decision)), [str(decision), {"by": "ann"}], "why the run woke")


async def a_pause_resolved_between_two_processes_wakes_the_run(bench: HostBench) -> None:
    """A parked run needs no process: what was decided meanwhile is there when one carries it on."""
    pause = await bench.pause("r")
    await bench.start("r", waits, goal=pause.token)
    await bench.phase("r", RunPhase.PARKED)
    await bench.stop()
    await _resolve(bench, pause.token, PauseDecision.APPROVE, {"by": "bob"})
    await bench.reboot(waits)
    bench.world.open_gate()
    expect_equal(await bench.payload("r"), ["approve", {"by": "bob"}], "why the run woke")


async def a_wait_that_ended_is_not_waited_for_again(bench: HostBench) -> None:
    """A run that went on after a pause and is resumed gets the same answer and does not park."""
    pause = await bench.pause("r")
    await bench.start("r", waits, goal=pause.token)
    await bench.phase("r", RunPhase.PARKED)
    await _resolve(bench, pause.token, PauseDecision.RESUME, {"answer": 1})
    await bench.reached("r")
    for _ in range(2):
        bench.world.reached("r", "linger").clear()
        await bench.reboot(waits)
        await bench.reached("r")
    bench.world.open_gate()
    expect_equal(await bench.payload("r"), ["resume", {"answer": 1}], "why the run woke")


async def a_pause_ends_at_its_deadline(bench: HostBench) -> None:
    """A pause without an answer takes its default at its deadline, also if no process ran at that time."""
    for run_id, dies in (("lives", False), ("dies", True)):
        deadline = bench.hosts.now() + timedelta(minutes=2)
        pause = await bench.pause(run_id, deadline)

        async def program(io: Durable, request: RunRequest) -> Finish:
            woken = await io.wait(Hold(request.goal, request.deadline))
            return goal(str(woken.decision))

        await bench.start(run_id, program, goal=pause.token)
        await bench.phase(run_id, RunPhase.PARKED)
        if dies:
            await bench.stop()
        await bench.hosts.pass_time(121)
        if dies:
            await bench.reboot(program)
        expect_equal(await bench.payload(run_id), "timeout", "how the pause was resolved")


async def a_deadline_wakes_a_parked_run(bench: HostBench) -> None:
    """A run's own deadline ends its wait, and the next drain says so too; the pause needs no answer."""

    async def program(io: Durable, request: RunRequest) -> Finish:
        said = await holds(io, request.goal)
        return goal([*said, (await io.drain()).is_past_deadline])

    pause = await bench.pause("r")
    await bench.start("r", program, goal=pause.token, deadline=bench.hosts.now() + timedelta(seconds=10))
    await bench.phase("r", RunPhase.PARKED)
    await bench.hosts.pass_time(11)
    expect_equal(await bench.payload("r"), ["deadline", True], "why the run woke, and what it drained")
    still = await bench.hosts.pauses.status(pause.token, who=SESSION)
    expect(still.is_paused or not still.resolved_by, "the pause was left, or ended with its run")


async def interrupted(io: Durable, _: RunRequest) -> Finish:
    """A run that says what cut its steps short, then lingers once more."""
    said = [await _tries(io, "linger"), await _tries(io, "linger")]
    arrived = await io.drain()
    await io.step("look", 1)
    return goal([*said, received(arrived), arrived.is_past_deadline])


async def _tries(io: Durable, name: str) -> str:
    try:
        return str(await io.step(name, None))
    except StepInterruptedError as cut:
        return str(cut.reason)


async def a_hard_cancel_cuts_the_step_in_flight(bench: HostBench) -> None:
    """It does not wait for a boundary; what follows is not begun, and the control itself is drained as usual."""
    await bench.start("r", interrupted)
    await bench.reached("r")
    await bench.send("r", ControlType.CANCEL, HARD)
    expect_equal(await bench.payload("r"), ["hard_cancel", "hard_cancel", ["CANCEL"], False], "what became of the run")
    expect_equal(len(bench.world.of("r", "linger")), 1, "steps begun after the cancel")
    cut = [entry for entry in await bench.history("r") if isinstance(entry, Cut)]
    expect_equal([(one.name, one.reason) for one in cut], [("linger", Interrupt.HARD_CANCEL)] * 2, "history")


async def a_deadline_cuts_the_step_in_flight(bench: HostBench) -> None:
    """When the run's time is up its step ends, and none begins; the drain says why."""
    await bench.start("r", interrupted, deadline=bench.hosts.now() + timedelta(seconds=5))
    await bench.reached("r")
    await bench.hosts.pass_time(6)
    expect_equal(await bench.payload("r"), ["deadline", "deadline", [], True], "what became of the run")
    expect_equal(len(bench.world.of("r", "linger")), 1, "steps begun after the deadline")


async def a_deadline_that_passed_long_ago_lets_no_step_begin(bench: HostBench) -> None:
    """A run that is taken up after its time does not linger."""
    await bench.start("r", interrupted, deadline=bench.hosts.now() - timedelta(seconds=1))
    expect_equal(await bench.payload("r"), ["deadline", "deadline", [], True], "what became of the run")
    expect_equal(bench.world.of("r", "linger"), [], "steps begun")


async def a_cut_step_stays_cut(bench: HostBench) -> None:
    """A resumed run learns again that its step was cut, and does not try it once more."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        said = await _tries(io, "linger")
        arrived = received(await io.drain())
        pause = await io.step("look", "token")
        await io.wait(Hold(token, None))
        return goal([said, arrived, pause])

    token = (await bench.pause("r")).token
    await bench.start("r", program)
    await bench.reached("r")
    await bench.send("r", ControlType.CANCEL, HARD)
    await bench.phase("r", RunPhase.PARKED)
    await bench.reboot(program)
    await _resolve(bench, token, PauseDecision.RESUME, None)
    expect_equal(await bench.payload("r"), ["hard_cancel", ["CANCEL"], ["look", "token"]], "what became of the run")
    expect_equal(len(bench.world.of("r", "linger")), 1, "how often it lingered")


async def a_soft_cancel_cuts_only_what_merely_waits(bench: HostBench) -> None:
    """A step that acts goes on; one that only waits is cut, and none that only waits begins."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        return goal([await _tries(io, "linger"), await _tries(io, "rest"), received(await io.drain())])

    await bench.start("acts", program)
    await bench.reached("acts")
    await bench.send("acts", ControlType.CANCEL)
    bench.world.open_gate()
    said = await bench.payload("acts")
    expect_equal(said, ["went on", "soft_cancel", ["CANCEL"]], "the run that acted")

    bench.world.shut_gate()
    await bench.start("waits", _rests)
    await bench.reached("waits", "rest")
    await bench.send("waits", ControlType.CANCEL)
    expect_equal(await bench.payload("waits"), ["soft_cancel", ["CANCEL"]], "the run that waited")


async def _rests(io: Durable, _: RunRequest) -> Finish:
    return goal([await _tries(io, "rest"), received(await io.drain())])


async def a_soft_cancel_is_remembered(bench: HostBench) -> None:
    """A run that was cancelled before its process died does not begin to wait in the next one."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        await io.step("linger", None)
        arrived = received(await io.drain())
        await io.step("look", 1)
        pause = await io.wait(Hold(token))
        return goal([arrived, str(pause.decision), await _tries(io, "rest")])

    token = (await bench.pause("r")).token
    await bench.start("r", program)
    await bench.reached("r")
    await bench.send("r", ControlType.CANCEL)
    bench.world.open_gate()
    await bench.phase("r", RunPhase.PARKED)
    bench.world.shut_gate()
    await bench.reboot(program)
    await _resolve(bench, token, PauseDecision.RESUME, None)
    expect_equal(await bench.payload("r"), [["CANCEL"], "resume", "soft_cancel"], "what became of the run")


async def a_hard_cancel_reaches_every_branch(bench: HostBench) -> None:
    """All branches in flight are cut; each has its outcome, and the run goes on to say so."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        outcomes = await io.gather([partial(_tries, name="linger")] * 3, JoinSpec(JoinKind.ALL))
        return goal([one.value for one in outcomes])  # type: ignore[union-attr]

    await bench.start("r", program)
    await bench.reached("r")
    await bench.send("r", ControlType.CANCEL, HARD)
    expect_equal(await bench.payload("r"), ["hard_cancel"] * 3, "what cut each branch")


async def _resolve(bench: HostBench, token: str, decision: PauseDecision, payload: dict[str, Any] | None) -> None:
    await bench.hosts.pauses.resume(token, decision, payload, who=SESSION)


def _request(run_id: str) -> RunRequest:
    return RunRequest(who=SESSION.with_run(run_id), goal=run_id)


SCENARIOS = (
    what_was_drained_stays_drained,
    a_drain_never_waits,
    controls_wait_for_a_worker,
    a_control_counts_once,
    controls_wake_a_parked_run,
    a_run_that_waits_reads_messages_afterwards,
    a_cancel_ends_a_wait_behind_messages,
    a_pause_resolved_while_parked_wakes_the_run,
    a_pause_resolved_between_two_processes_wakes_the_run,
    a_wait_that_ended_is_not_waited_for_again,
    a_pause_ends_at_its_deadline,
    a_deadline_wakes_a_parked_run,
    a_hard_cancel_cuts_the_step_in_flight,
    a_deadline_cuts_the_step_in_flight,
    a_deadline_that_passed_long_ago_lets_no_step_begin,
    a_cut_step_stays_cut,
    a_soft_cancel_cuts_only_what_merely_waits,
    a_soft_cancel_is_remembered,
    a_hard_cancel_reaches_every_branch,
)
