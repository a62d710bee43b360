"""Beginning, ending, forking and finding runs: part of the suite in `hosts`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.engine import RunFailedError, RunNotFoundError, RunPhase
from harborage.runtime.durable.journal import Begun, Done
from harborage.runtime.loop.arrivals import Hold
from harborage.runtime.loop.controls import ControlType
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from tests.kit.conformance.host_bench import SESSION, HostBench, control, patiently, request

if TYPE_CHECKING:
    from harborage.runtime.loop.seam import Durable, RunRequest

MANY_STEPS = 1_000
MANY_RUNS = 128
MOST_TURNS = 400


def goal(payload: Any) -> Finish:
    """A finish that holds what the run learned."""
    return Finish(FinishReason.GOAL, payload)


async def acts_and_lingers(io: Durable, asked: RunRequest) -> Finish:
    """A run that acts, lingers and acts again."""
    first = await io.step("keyed", f"{asked.goal} 1")
    await io.step("linger", None)
    return goal([first, await io.step("keyed", f"{asked.goal} 2")])


async def starting_twice_starts_once(bench: HostBench) -> None:
    """A run is started once, however often its id is: at once, in the next process before anybody serves, and after it
    has ended."""
    await bench.start("r", acts_and_lingers)
    await bench.engine.start("r", request("r", goal="another"))
    await bench.reached("r")
    await bench.boot()
    await bench.engine.start("r", request("r", goal="a third"))
    await bench.serve(acts_and_lingers)
    bench.world.open_gate()
    wanted = [["keyed", "r 1"], ["keyed", "r 2"]]
    expect_equal(await bench.payload("r"), wanted, "the finish")
    await bench.engine.start("r", request("r", goal="a fourth"))
    expect_equal(await bench.payload("r"), wanted, "the finish after another start")
    await bench.boot()
    await bench.engine.start("r", request("r", goal="a fifth"))
    expect_equal(await bench.payload("r"), wanted, "the finish in another process")
    expect_equal(bench.world.done("r", "keyed"), ["r 1", "r 2"], "what was done")
    expect_equal((await bench.engine.status("r")).goal, "r", "the goal is the first one")


async def an_unknown_run_is_not_found(bench: HostBench) -> None:
    """Result, status and history of a run that is not there say so, and so does a control for it."""
    engine = bench.engine
    await expect_raises(RunNotFoundError, engine.result("nobody"), "result")
    await expect_raises(RunNotFoundError, engine.status("nobody"), "status")
    await expect_raises(RunNotFoundError, engine.history("nobody"), "history")
    await expect_raises(RunNotFoundError, engine.send("nobody", control("nobody", ControlType.CANCEL)), "send")
    expect_equal(await engine.list(), [], "the list of runs")


async def an_ended_run_takes_no_controls(bench: HostBench) -> None:
    """What is sent to it is refused out loud; its result stays, in the next process too."""
    bench.world.open_gate()
    finish = await bench.run("r", acts_and_lingers)
    for _ in range(2):
        await expect_raises(RunNotFoundError, bench.send("r", ControlType.CANCEL), "a control for an ended run")
        expect_equal(await bench.payload("r"), finish, "the finish")
        expect_equal((await bench.engine.status("r")).phase, RunPhase.FINISHED, "the phase")
        await bench.reboot(acts_and_lingers)


async def a_run_that_raises_has_failed(bench: HostBench) -> None:
    """Its result is an error that names the run and what it raised, in the next process too."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        await io.step("keyed", 1)
        await io.step("look", 2)
        raise LookupError("there is no way")

    await bench.start("r", program)
    for _ in range(2):
        await _fails(bench, "r", "LookupError", "there is no way")
        expect_equal((await bench.engine.status("r")).phase, RunPhase.FAILED, "the phase")
        await bench.reboot(program)
    expect_equal(bench.world.done("r"), [1, 2], "what was done")
    done = [entry.name for entry in await bench.history("r") if isinstance(entry, Done)]
    expect_equal(done, ["keyed", "look"], "what it had done, in the history")


async def _fails(bench: HostBench, run_id: str, kind: str, *words: str) -> None:
    try:
        finish = await patiently(bench.engine.result(run_id), f"run {run_id!r} ends")
    except RunFailedError as error:
        text = str(error)
        wanted = (run_id, kind, *words)
        expect(error.run_id == run_id, "the error carries the id of the run")
        expect(error.error == kind, f"the error carries the class {kind}, not {error.error}")
        expect(all(word in text for word in wanted), f"the error names {wanted}: {text}")
        return
    expect(False, f"run {run_id!r} fails, instead of {finish}")


async def a_run_that_fails_fails_the_same_way_whenever_it_dies(bench: HostBench) -> None:
    """Killed after any turn of the loop, the run names the same class and text, and does not try again."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        await io.step("keyed", 1)
        await io.step("fail", "way")
        return goal(None)

    for turns in range(MOST_TURNS):
        run_id = f"r{turns}"
        await bench.start(run_id, program)
        for _ in range(turns):
            await asyncio.sleep(0)
        is_over = (await bench.engine.status(run_id)).phase.is_final
        await bench.reboot(program)
        await _fails(bench, run_id, "ValueError", "no way")
        if is_over:
            return
    expect(False, "the run ends")


async def what_cannot_be_recorded_fails_the_run(bench: HostBench) -> None:
    """A payload, or a finish, without a JSON form ends the run with an error that names the place in it."""

    async def hands_over(io: Durable, _: RunRequest) -> Finish:
        await io.step("keyed", {"here": [1, {"is": object()}]})
        return goal(None)

    async def finishes(io: Durable, _: RunRequest) -> Finish:
        await io.step("keyed", 1)
        return goal({"deep": [object()]})

    await bench.start("payload", hands_over)
    await _fails(bench, "payload", "UnserializableError", "keyed", ".here[1].is")
    expect_equal(bench.world.of("payload"), [], "what was done with the payload")
    await bench.start("finish", finishes)
    await _fails(bench, "finish", "UnserializableError", ".deep[0]")
    expect_equal(bench.world.done("finish"), [1], "what was done before")


async def runs_do_not_see_each_other(bench: HostBench) -> None:
    """Many runs at once, each with its own controls, answers and finish."""

    async def program(io: Durable, asked: RunRequest) -> Finish:
        await io.step("linger", None)
        said = [(one.payload or {})["message"] for one in (await io.drain()).controls]
        return goal([io.run_id, asked.goal, asked.who.run_id, said, await io.step("look", asked.goal)])

    ids = [f"r{index}" for index in range(MANY_RUNS)]
    await bench.reboot(program)
    for run_id in ids:
        await bench.engine.start(run_id, request(run_id))
    for run_id in ids:
        await bench.reached(run_id)
        await bench.say(run_id, f"for {run_id}")
    bench.world.open_gate()
    for run_id in ids:
        wanted = [run_id, run_id, run_id, [f"for {run_id}"], ["look", run_id]]
        expect_equal(await bench.payload(run_id), wanted, f"what {run_id} saw")
    expect_equal([status.run_id for status in await bench.engine.list()], ids, "the list, oldest first")


async def a_control_for_another_run_is_refused(bench: HostBench) -> None:
    """A control must name the run that it is sent to, whole."""
    await bench.start("r", acts_and_lingers)
    foreign = control("another", ControlType.CANCEL)
    from_far = msgspec.structs.replace(
        foreign, identity=msgspec.structs.replace(SESSION.with_run("r"), tenant_id="other")
    )
    for wrong in (foreign, from_far):
        await expect_raises(Exception, bench.engine.send("r", wrong), "a control with another identity")
    bench.world.open_gate()
    await bench.payload("r")


async def a_status_says_where_a_run_stands(bench: HostBench) -> None:
    """Pending without a worker, running, parked, finished; the list says the same."""

    async def program(io: Durable, asked: RunRequest) -> Finish:
        await io.step("linger", None)
        await io.wait(Hold(asked.goal))
        return goal(None)

    pause = await bench.pause("r")
    await bench.boot()
    await bench.engine.start("r", request("r", goal=pause.token))
    await bench.phase("r", RunPhase.PENDING)
    await bench.serve(program)
    await bench.reached("r")
    await bench.phase("r", RunPhase.RUNNING)
    bench.world.open_gate()
    await bench.phase("r", RunPhase.PARKED)
    await bench.stop()
    parked = await bench.engine.status("r")
    expect(parked.phase in (RunPhase.PENDING, RunPhase.PARKED), "a run that nobody carries does not run")
    await bench.reboot(program)
    await bench.phase("r", RunPhase.PARKED)
    await bench.hosts.pauses.resume(pause.token, "resume", who=SESSION)  # type: ignore[arg-type]
    await bench.payload("r")
    status = await bench.engine.status("r")
    expect_equal((status.who, status.phase), (SESSION.with_run("r"), RunPhase.FINISHED), "whose, and where")
    expect_equal(await bench.engine.list(), [status], "the list")


async def the_same_engine_may_be_served_again(bench: HostBench) -> None:
    """A worker that stops leaves its runs; the next one carries them on, and nothing is done twice."""
    await bench.start("r", acts_and_lingers)
    await bench.reached("r")
    await bench.serve(acts_and_lingers)
    bench.world.open_gate()
    expect_equal(await bench.payload("r"), [["keyed", "r 1"], ["keyed", "r 2"]], "the finish")
    expect_equal(bench.world.done("r", "keyed"), ["r 1", "r 2"], "what was done")


async def spawning_twice_starts_one_child(bench: HostBench) -> None:
    """A child has an id of its own: it runs once however often it is spawned, and its end can be waited for."""

    async def program(io: Durable, asked: RunRequest) -> Finish:
        if io.run_id == "child":
            return goal(await io.step("keyed", asked.goal))
        handles = [await io.spawn("child", "go"), await io.spawn("child", "go")]
        await io.step("linger", None)
        return goal([*handles, await io.join("child"), await io.join("child")])

    await bench.start("parent", program)
    await bench.reached("parent")
    await bench.phase("child", RunPhase.FINISHED)  # killed in mid step it would do it again, as it should
    await bench.reboot(program)
    bench.world.open_gate()
    ended = ["keyed", "go"]
    expect_equal(await bench.payload("parent"), ["child", "child", ended, ended], "what the parent saw")
    expect_equal(bench.world.done("child"), ["go"], "what the child did")


async def a_rollover_begins_a_new_history(bench: HostBench) -> None:
    """The run goes on under its id with what it carried; a process that takes over does not look further back, and no
    step of one history has the key of another's."""

    async def program(io: Durable, asked: RunRequest) -> Finish:
        turn = asked.max_steps
        await io.step("keyed", turn)
        await io.step("look", f"turn {turn}")
        if turn < 3:
            await io.rollover(msgspec.structs.replace(asked, max_steps=turn + 1))
        return goal([asked.goal, turn])

    for turn in (1, 2, 3):
        bench.world.hold(f"turn {turn}")
    await bench.start("r", program, max_steps=1)
    for turn in (1, 2, 3):
        await bench.did("r", "look", f"turn {turn}")
        await bench.reboot(program)
        await bench.did("r", "look", f"turn {turn}", 2)
        bench.world.let_go(f"turn {turn}")
    expect_equal(await bench.payload("r"), ["r", 3], "the finish")
    expect_equal(bench.world.done("r", "keyed"), [1, 2, 3], "what was done, once in each history")
    expect_equal(len({act.key for act in bench.world.of("r", "keyed")}), 3, "different keys")


async def a_code_change_is_taken_by_new_runs_only(bench: HostBench) -> None:
    """A run that meets a change for the first time takes it for good; one that was past the place stays on its path."""

    async def before(io: Durable, _: RunRequest) -> Finish:
        await io.step("keyed", 1)
        await io.step("linger", None)
        return goal("old path")

    async def after(io: Durable, _: RunRequest) -> Finish:
        is_new = await io.patched("a better way")
        await io.step("keyed", 1)
        await io.step("linger", None)
        return goal("new path" if is_new and await io.patched("a better way") else "old path")

    await bench.start("older", before)
    await bench.reached("older")
    await bench.reboot(after)
    await bench.engine.start("newer", request("newer"))
    for _ in range(2):
        await bench.reached("older")
        await bench.reached("newer")
        bench.world.reached("older", "linger").clear()
        bench.world.reached("newer", "linger").clear()
        await bench.reboot(after)
    bench.world.open_gate()
    expect_equal(await bench.payload("older"), "old path", "the run that was there before")
    expect_equal(await bench.payload("newer"), "new path", "the run that came after")


async def a_fork_answers_its_first_steps_from_another_run(bench: HostBench) -> None:
    """A run that is started with recorded steps does not do them again, and goes its own way afterwards."""

    async def program(io: Durable, asked: RunRequest) -> Finish:
        seen = [await io.step("keyed", at) for at in (1, 2)]
        return goal([*seen, await io.step("keyed", asked.goal), io.run_id])

    await bench.run("first", program)
    whole = await bench.engine.history("first")
    entries = await bench.history("first")
    second = next(at for at, one in enumerate(entries) if isinstance(one, Begun) and b"2" in bytes(one.payload))
    wanted: dict[str, Callable[[str], list[Any]]] = {
        "part": lambda run: [["keyed", 1], ["keyed", 2], ["keyed", run], run],
        "all": lambda run: [["keyed", 1], ["keyed", 2], ["keyed", "first"], run],
    }
    for run_id, seed in (("part", whole[:second]), ("all", whole)):
        await bench.engine.start(run_id, request(run_id), seed=seed)
        expect_equal(await bench.payload(run_id), wanted[run_id](run_id), f"the finish of the fork {run_id!r}")
        await bench.reboot(program)
        expect_equal(await bench.payload(run_id), wanted[run_id](run_id), f"the same for {run_id!r} in another process")
    expect_equal(bench.world.done("part"), [2, "part"], "what the fork of a part did itself")
    expect_equal(bench.world.done("all"), [], "what the fork of everything did itself")
    expect_equal(await bench.engine.history("first"), whole, "the history of the run that was forked")


async def a_long_history_is_carried_on(bench: HostBench) -> None:
    """A thousand steps are recorded and read back, and none of them is done again."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        total = 0
        for at in range(MANY_STEPS):
            total += (await io.step("keyed", at))[1]
        await io.step("linger", None)
        return goal(total)

    await bench.start("r", program)
    await bench.reached("r")
    await bench.reboot(program)
    bench.world.open_gate()
    expect_equal(await bench.payload("r"), sum(range(MANY_STEPS)), "the sum of all answers")
    expect_equal(bench.world.done("r", "keyed"), list(range(MANY_STEPS)), "what was done")
    done = [entry for entry in await bench.history("r") if isinstance(entry, Done) and entry.name == "keyed"]
    expect_equal(len(done), MANY_STEPS, "the steps in the history")


SCENARIOS: tuple[Callable[[HostBench], Awaitable[None]], ...] = (
    starting_twice_starts_once,
    an_unknown_run_is_not_found,
    an_ended_run_takes_no_controls,
    a_run_that_raises_has_failed,
    a_run_that_fails_fails_the_same_way_whenever_it_dies,
    what_cannot_be_recorded_fails_the_run,
    runs_do_not_see_each_other,
    a_control_for_another_run_is_refused,
    a_status_says_where_a_run_stands,
    the_same_engine_may_be_served_again,
    spawning_twice_starts_one_child,
    a_rollover_begins_a_new_history,
    a_code_change_is_taken_by_new_runs_only,
    a_fork_answers_its_first_steps_from_another_run,
    a_long_history_is_carried_on,
)
