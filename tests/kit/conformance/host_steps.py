"""Steps, branches and what happens to them when the process dies: part of the suite in `hosts`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from harborage.concurrency import Crew
from harborage.planner import Finish, FinishReason, JoinKind, JoinSpec
from harborage.runtime.durable.engine import RunBlockedError, RunPhase
from harborage.runtime.durable.journal import Begun, Done, Failed
from harborage.runtime.loop.joins import BranchOutcome, Cancelled
from harborage.runtime.loop.joins import Done as BranchDone
from harborage.testing.conformance.checks import expect, expect_equal, expect_raises
from tests.kit.conformance.host_bench import UNKNOWN, HostBench, World

if TYPE_CHECKING:
    from harborage.runtime.loop.seam import Durable, RunRequest

ALL = JoinSpec(JoinKind.ALL)
_MOST_MOMENTS = 400
"""More turns of the loop than the errand takes on any host; reaching it means that the errand never ends."""


def goal(payload: Any) -> Finish:
    """A finish that holds what the run learned."""
    return Finish(FinishReason.GOAL, payload)


def shown(outcomes: Sequence[BranchOutcome[Any]]) -> list[Any]:
    """Branch outcomes as plain data: the value, `cancelled` or `failed`."""
    return [
        one.value if isinstance(one, BranchDone) else "cancelled" if isinstance(one, Cancelled) else "failed"
        for one in outcomes
    ]


async def branch(io: Durable, *, name: str, payload: Any) -> Any:
    """A branch of one step."""
    return await io.step(name, payload)


async def errand(io: Durable, _: RunRequest) -> Finish:
    """A run with a bit of everything that acts: plain, keyed and paid steps, alone and side by side, nested too."""
    said = [await io.step("look", 1), await io.step("keyed", 2), await io.step("pay", 3)]
    side_by_side = [
        partial(branch, name="keyed", payload=4),
        partial(branch, name="pay", payload=5),
        partial(_two_in_a_row, payload=6),
    ]
    said += shown(await io.gather(side_by_side, ALL))
    await io.drain()
    said.append(await io.step("pay", 9))
    return goal(said)


async def _two_in_a_row(io: Durable, *, payload: int) -> Any:
    first = await io.step("look", payload)
    inside = await io.gather([partial(branch, name="keyed", payload=payload + 1)], ALL)
    return [first, *shown(inside)]


ERRAND: list[list[Any]] = [
    ["look", 1],
    ["keyed", 2],
    ["pay", 3],
    ["keyed", 4],
    ["pay", 5],
    [["look", 6], ["keyed", 7]],
    ["pay", 9],
]


def check_errand(world: World, run_id: str, said: Any, when: str) -> None:
    """The errand's finish is the one it always has, and what may happen once happened at most once."""
    for got, wanted in zip(said, ERRAND, strict=True):
        is_paid = wanted[0] == "pay"
        expect(got == wanted or (is_paid and got == UNKNOWN), f"{when}: the finish says {wanted}, not {got}")
    for payload in (3, 5, 9):
        paid = world.done(run_id, "pay").count(payload)
        answer = next(one for one, wanted in zip(said, ERRAND, strict=True) if wanted == ["pay", payload])
        expect(paid <= 1, f"{when}: payment {payload} was made {paid} times")
        expect(paid == 1 or answer == UNKNOWN, f"{when}: payment {payload} was not made, and the answer hides it")
    for payload in (2, 4, 7):
        keys = {act.key for act in world.of(run_id, "keyed") if act.payload == payload}
        expect(len(keys) == 1, f"{when}: step {payload} acts under one key, not {sorted(keys)}")
    for payload in (1, 6):
        expect(payload in world.done(run_id, "look"), f"{when}: step {payload} was done")


async def a_step_runs_once_and_is_recorded(bench: HostBench) -> None:
    """A step's result is returned to the program and recorded; a resumed run does not repeat the step."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        seen = await io.step("keyed", {"at": [1, None, "ü"]})
        await io.step("linger", None)
        return goal(seen)

    await bench.start("r", program)
    await bench.reached("r")
    await bench.reboot(program)
    bench.world.open_gate()
    expect_equal(await bench.payload("r"), ["keyed", {"at": [1, None, "ü"]}], "the step's result")
    expect_equal(bench.world.done("r", "keyed"), [{"at": [1, None, "ü"]}], "what was done")
    done = [entry for entry in await bench.history("r") if isinstance(entry, Done)]
    expect_equal([entry.name for entry in done], ["keyed", "linger"], "the steps in the history")
    expect(b"\xc3\xbc" in bytes(done[0].result), "the history holds the result of the step")


async def a_failed_step_stays_failed(bench: HostBench) -> None:
    """What an effect raises reaches the program; a resumed run gets a failure again without asking the effect."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        said = "it went well"
        try:
            await io.step("fail", "way")
        except Exception as error:  # noqa: BLE001 - which class, a host need not keep
            said = str(error)
        await io.step("keyed", 1)
        await io.step("linger", None)
        return goal(said)

    await bench.start("r", program)
    await bench.reached("r")
    await bench.reboot(program)
    bench.world.open_gate()
    expect("no way" in await bench.payload("r"), "the failure says what the effect said")
    expect_equal(bench.world.done("r", "fail"), ["way"], "the calls of the failing effect")
    failed = [entry for entry in await bench.history("r") if isinstance(entry, Failed)]
    expect_equal([(one.name, one.error, one.message) for one in failed], [("fail", "ValueError", "no way")], "history")


async def a_run_killed_around_any_act_comes_to_the_same_end(bench: HostBench) -> None:
    """The process dies right before or right after each act in turn: one finish, and nothing is done twice that may not
    be."""
    for point in range(1, _MOST_MOMENTS):
        run_id = f"r{point}"
        bench.world.die_at(point)
        await bench.start(run_id, errand)
        has_died = await _dies(bench, run_id)
        bench.world.die_at(0)
        if has_died:
            await bench.reboot(errand)
        check_errand(bench.world, run_id, await bench.payload(run_id), f"died at act {point}")
        if not has_died:
            expect(point > 2 * 8, "the errand has its eight acts, each with a moment before and after it")
            return
    expect(False, "the errand ends")


async def _dies(bench: HostBench, run_id: str) -> bool:
    """Whether the process comes to its death before the run comes to its end."""
    # How the run ended is asked for later, by those who want to know.
    watchers = Crew(on_error=lambda name, error: None)
    death = watchers.start(bench.world.dying.wait(), "death")
    end = watchers.start(bench.result(run_id), "end")
    try:
        await asyncio.wait({death, end}, return_when=asyncio.FIRST_COMPLETED)
        return death.done()
    finally:
        await watchers.aclose()


async def a_run_killed_at_any_moment_comes_to_the_same_end(bench: HostBench) -> None:
    """The process dies after one turn of the loop, after two, and so on until the run is over before it."""
    for turns in range(_MOST_MOMENTS):
        run_id = f"r{turns}"
        await bench.start(run_id, errand)
        await _turn(turns)
        is_over = (await bench.engine.status(run_id)).phase.is_final
        await bench.reboot(errand)
        check_errand(bench.world, run_id, await bench.payload(run_id), f"died after {turns} turns")
        if is_over:
            return
    expect(False, "the errand ends")


async def a_run_killed_again_and_again_comes_to_its_end(bench: HostBench) -> None:
    """However often the process dies, the run gets further each time that it lives long enough to."""
    await bench.start("r", errand)
    for turns in range(_MOST_MOMENTS):
        await _turn(turns)
        if (await bench.engine.status("r")).phase.is_final:
            break
        await bench.reboot(errand)
    check_errand(bench.world, "r", await bench.payload("r"), "died many times")


async def _turn(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


async def a_step_that_had_begun_is_repeated_or_unknown(bench: HostBench) -> None:
    """What may be repeated is, under the same key; what may not is answered as unknown and not done again."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        first = await io.step("keyed" if io.run_id == "keyed" else "pay", 1)
        return goal([first, await io.step("pay", 2)])

    for run_id in ("keyed", "pay"):
        bench.world.die_at(2)
        await bench.start(run_id, program)
        expect(await _dies(bench, run_id), f"the first act of {run_id} is its last for this process")
        bench.world.die_at(0)
        begun = [entry for entry in await bench.history(run_id) if isinstance(entry, Begun)]
        expect_equal([entry.name for entry in begun], [run_id], f"the intent of {run_id}")
        await bench.reboot(program)
        await bench.result(run_id)
    keyed, paid = bench.world.of("keyed", "keyed"), bench.world.of("pay", "pay")
    expect_equal([act.payload for act in keyed], [1, 1], "the repeatable step was done again")
    expect(len({act.key for act in keyed}) == 1, "it was done again under the same key")
    expect_equal(await bench.payload("keyed"), [["keyed", 1], ["pay", 2]], "the repeated step's answer")
    expect_equal([act.payload for act in paid], [1, 2], "the other step was not done again")
    expect_equal(await bench.payload("pay"), [UNKNOWN, ["pay", 2]], "its answer is that nobody knows")


async def every_step_has_a_key_of_its_own(bench: HostBench) -> None:
    """No two steps of a run share a key, not even those of branches or of another run."""
    await bench.run("one", errand)
    await bench.run("two", errand)
    acts = [*bench.world.of("one"), *bench.world.of("two")]
    expect_equal(len({act.key for act in acts}), len(acts), "different keys")


async def positions_do_not_depend_on_who_is_first(bench: HostBench) -> None:
    """Branches have the same keys and the same order of outcomes however long each of them takes."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        return goal(shown(await io.gather([partial(_looks, payload=at) for at in (10, 20, 30)], ALL)))

    await bench.run("straight", program)
    bench.world.hold(10)
    bench.world.hold(21)
    await bench.start("crooked", program)
    await bench.did("crooked", "look", 31)
    bench.world.let_go(21)
    bench.world.let_go(10)
    expect_equal(await bench.payload("crooked"), await bench.payload("straight"), "the outcomes")
    keys = [{act.payload: act.key.removeprefix(run) for act in bench.world.of(run)} for run in ("crooked", "straight")]
    expect_equal(keys[0], keys[1], "the keys")


async def _looks(io: Durable, *, payload: int) -> Any:
    return [await io.step("look", payload), await io.step("look", payload + 1)]


async def the_winners_of_a_race_stay_the_winners(bench: HostBench) -> None:
    """Joins by first success, number and key: a resumed run gets the same outcomes, and no loser runs again."""
    joins = {
        "first": (JoinSpec(JoinKind.FIRST_SUCCESS), [20], ["cancelled", ["look", 20], "cancelled"]),
        "two": (JoinSpec(JoinKind.N, n=2), [30, 10], [["look", 10], "cancelled", ["look", 30]]),
        "keyed": (
            JoinSpec(JoinKind.KEYED, merge_keys=("b",)),
            [30, 20, 10],
            [["look", 10], ["look", 20], ["look", 30]],
        ),
    }
    for run_id, (join, order, wanted) in joins.items():
        await _race(bench, run_id, join, order)
        before = bench.world.of(run_id)
        expect_equal(await bench.payload(run_id), wanted, f"the outcomes of join {run_id!r}")
        expect_equal(
            bench.world.of(run_id, "look"), [act for act in before if act.name == "look"], "what was looked at"
        )


async def _race(bench: HostBench, run_id: str, join: JoinSpec, order: list[int]) -> None:
    """Run three branches that end in this order, then kill the process and carry the run on."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        outcomes = await io.gather([partial(branch, name="look", payload=at) for at in (10, 20, 30)], join)
        await io.step("linger", None)
        return goal(shown(outcomes))

    bench.world.shut_gate()
    for payload in (10, 20, 30):
        bench.world.hold(payload)
    await bench.start(run_id, program)
    for payload in (10, 20, 30):
        await bench.did(run_id, "look", payload)
    for payload in order:
        bench.world.let_go(payload)
        await _turn(1)
    await bench.reached(run_id)
    for payload in {10, 20, 30} - set(order):
        bench.world.let_go(payload)
    await bench.reboot(program)
    bench.world.open_gate()


async def a_failed_branch_keeps_its_place(bench: HostBench) -> None:
    """Branches that fail have their outcome in order, beside those that did not, on the way back too."""

    async def program(io: Durable, _: RunRequest) -> Finish:
        names = ("fail", "look", "fail")
        outcomes = await io.gather([partial(branch, name=name, payload=at) for at, name in enumerate(names)], ALL)
        await io.step("linger", None)
        return goal(shown(outcomes))

    await bench.start("r", program)
    await bench.reached("r")
    await bench.reboot(program)
    bench.world.open_gate()
    expect_equal(await bench.payload("r"), ["failed", ["look", 1], "failed"], "the outcomes")
    expect_equal(len(bench.world.of("r", "fail", "look")), 3, "every branch ran once")


async def code_that_asks_for_another_step_is_blocked(bench: HostBench) -> None:
    """A program that parts from the record does nothing, and the run goes on once the program it began with is back."""
    program, changed = _programs("keyed", "renamed")
    await _blocked_and_healed(bench, "alone", program, changed)
    program, changed = _programs("keyed", "renamed", in_branches=True)
    await _blocked_and_healed(bench, "branches", program, changed)


def _programs(*names: str, in_branches: bool = False) -> list[Any]:
    async def program(io: Durable, _: RunRequest, *, name: str) -> Finish:
        if in_branches:
            seen = shown(await io.gather([partial(branch, name=name, payload=1)], ALL))[0]
        else:
            seen = await io.step(name, 1)
        await io.step("linger", None)
        return goal(seen)

    return [partial(program, name=name) for name in names]


async def _blocked_and_healed(bench: HostBench, run_id: str, program: Any, changed: Any) -> None:
    bench.world.shut_gate()
    await bench.start(run_id, program)
    await bench.reached(run_id)
    before = await bench.engine.history(run_id)
    await bench.reboot(changed)
    await bench.phase(run_id, RunPhase.BLOCKED)
    reason = (await bench.engine.status(run_id)).reason
    expect("keyed" in reason and "renamed" in reason, f"the reason names both steps: {reason}")
    await expect_raises(RunBlockedError, bench.result(run_id), "the result of a blocked run")
    expect_equal(bench.world.done(run_id, "renamed"), [], "what the changed program did")
    expect_equal(await bench.engine.history(run_id), before, "the history of a blocked run")
    await bench.reboot(program)
    bench.world.open_gate()
    expect_equal(await bench.payload(run_id), ["keyed", 1], "the finish once the right code is back")
    expect_equal(bench.world.done(run_id, "keyed"), [1], "how often its step was done")


SCENARIOS = (
    a_step_runs_once_and_is_recorded,
    a_failed_step_stays_failed,
    a_run_killed_around_any_act_comes_to_the_same_end,
    a_run_killed_at_any_moment_comes_to_the_same_end,
    a_run_killed_again_and_again_comes_to_its_end,
    a_step_that_had_begun_is_repeated_or_unknown,
    every_step_has_a_key_of_its_own,
    positions_do_not_depend_on_who_is_first,
    the_winners_of_a_race_stay_the_winners,
    a_failed_branch_keeps_its_place,
    code_that_asks_for_another_step_is_blocked,
)
