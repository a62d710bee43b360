"""Stories: processes that die and freeze between two turns, ways that lose what travels, and one seed for all."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from harborage.clock import SYSTEM_CLOCK, sleep
from harborage.identity import Identity
from harborage.ids import new_id
from harborage.state.errors import DatabaseLockedError, RecordNotFoundError
from harborage.state.store import StateRecord
from harborage.testing.simulation import (
    START,
    Faults,
    Outcome,
    Process,
    ProcessDiedError,
    Simulation,
    StorageServer,
    Story,
    Wire,
    draw_faults,
    simulate,
)
from tests.programs.simulation.stories import play

ROOT = Path(__file__).resolve().parents[2]
ALWAYS = Faults(crash=1.0)
ME = Identity("t", "u", "s").with_run("r")


def published(story: Story, seed: int = 1, **options: Any) -> Outcome:
    """How it goes; what it raised is raised here."""
    outcome = simulate(story, seed, **options)
    if outcome.error is not None:
        raise outcome.error
    return outcome


async def for_ever(process: Process) -> None:
    """A process that does nothing."""
    await asyncio.get_running_loop().create_future()


def test_all_that_is_random_comes_from_the_seed() -> None:
    """Ids, random numbers and the system's clock are the same again, and others for another seed."""

    async def story(simulation: Simulation) -> Any:
        await sleep(SYSTEM_CLOCK, 90)
        ids = [new_id() for _ in range(3)]
        assert len(set(ids)) == 3
        assert SYSTEM_CLOCK.monotonic() == pytest.approx(90, abs=0.01)
        assert (SYSTEM_CLOCK.now() - START).total_seconds() == pytest.approx(90, abs=0.01)
        return ids, random.random(), simulation.chance("mine").random()

    assert published(story).result == published(story).result
    assert published(story).result != published(story, 2).result


def test_the_world_is_as_before_afterwards() -> None:
    """The clock is the machine's, and random numbers go on where they were."""

    async def story(simulation: Simulation) -> None:
        random.random()

    random.seed("before")
    wanted = [random.random() for _ in range(2)]
    random.seed("before")
    first = random.random()
    published(story)
    assert [first, random.random()] == wanted
    assert abs((SYSTEM_CLOCK.now() - START).total_seconds()) > 1
    assert new_id() != new_id()


def test_an_error_is_the_outcome() -> None:
    """With everything that was noted before it."""

    async def story(simulation: Simulation) -> None:
        simulation.note("so far so good")
        raise ValueError("no")

    outcome = simulate(story, 3)
    assert isinstance(outcome.error, ValueError)
    assert outcome.trace.splitlines() == ["    0.000000 so far so good", "ValueError: no"]


def test_death_is_no_cancellation() -> None:
    """No cleanup of a dead process ever runs, and nobody waits for one."""
    cleaned: list[str] = []

    async def main(process: Process) -> None:
        try:
            await asyncio.sleep(1)
        finally:
            cleaned.append(process.name)

    async def story(simulation: Simulation) -> None:
        dies, ends = simulation.boot("dies", main), simulation.boot("ends", main)
        await asyncio.sleep(0.5)
        dies.kill("by hand")
        await asyncio.sleep(5)
        assert dies.is_dead
        assert ends.is_dead
        assert cleaned == ["ends"]

    published(story)


def test_a_frozen_process_goes_on_as_if_nothing_had_been() -> None:
    """It finds that time has passed."""
    times: list[float] = []

    async def main(process: Process) -> None:
        while True:
            await asyncio.sleep(1)
            times.append(process.clock.monotonic())

    async def story(simulation: Simulation) -> None:
        process = simulation.boot("p", main)
        await asyncio.sleep(1.5)
        process.freeze(10)
        assert not process.is_running
        await asyncio.sleep(12)
        assert process.is_running

    published(story)
    assert times[:3] == pytest.approx([1, 11.5, 12.5], abs=0.1)


def test_a_process_that_fails_ends_the_story() -> None:
    """Nobody can catch it there."""

    async def main(process: Process) -> None:
        raise ValueError("broken")

    async def story(simulation: Simulation) -> None:
        simulation.boot("p", main)
        await asyncio.sleep(100)

    outcome = simulate(story, 1)
    assert isinstance(outcome.error, ValueError)
    assert outcome.seconds < 100


def test_work_for_a_process_dies_with_it() -> None:
    """The caller gets the error."""

    async def story(simulation: Simulation) -> None:
        process = simulation.boot("p", for_ever)
        assert await process.do(asyncio.sleep(1, "done"), "nap") == "done"
        simulation.loop.call_later(1, process.kill, "in its sleep")
        with pytest.raises(ProcessDiedError, match="before nap was done"):
            await process.do(asyncio.sleep(100), "nap")
        with pytest.raises(ProcessDiedError):
            await process.do(asyncio.sleep(0), "nap")

    published(story)


def test_a_process_may_be_asked_to_stop() -> None:
    """Then its cleanups run."""

    async def story(simulation: Simulation) -> None:
        process = simulation.boot("p", for_ever)
        await asyncio.sleep(1)
        process.stop()
        await process.ended.wait()

    assert published(story).trace.splitlines()[-1].endswith("p ends")


def test_clocks_differ_by_their_skew() -> None:
    """Those of two processes, not within one."""

    async def story(simulation: Simulation) -> Any:
        return [simulation.boot(name, for_ever).clock.now() for name in "ab"]

    first, second = published(story, faults=Faults(skew_s=3.0)).result
    assert first != second
    assert abs((first - second).total_seconds()) <= 6


class Counter:
    """Something outside that counts."""

    def __init__(self) -> None:
        self.count = 0

    async def add(self) -> int:
        self.count += 1
        return self.count

    async def fail(self) -> None:
        raise ValueError("counted out")


def test_a_wire_brings_answers_and_errors() -> None:
    """In its time."""
    counter = Counter()

    async def main(process: Process) -> None:
        wire = Wire(process.simulation, process, fastest_s=1, slowest_s=2)
        assert await wire.ask("add", counter.add) == 1
        with pytest.raises(ValueError, match="counted out"):
            await wire.ask("fail", counter.fail)

    async def story(simulation: Simulation) -> None:
        process = simulation.boot("p", main)
        await process.ended.wait()
        assert 4 <= simulation.clock.monotonic() <= 8

    published(story)


def test_what_a_cancelled_caller_asked_for_is_done_whole_or_not() -> None:
    """Nobody can tell which; over a few seeds both happen."""

    async def story(simulation: Simulation) -> int:
        counter = Counter()

        async def main(process: Process) -> None:
            wire = Wire(process.simulation, process, fastest_s=1, slowest_s=1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await wire.ask("add", counter.add)
            assert counter.count == 0
            await asyncio.sleep(2)

        await simulation.boot("p", main).ended.wait()
        return counter.count

    assert {published(story, seed).result for seed in range(20)} == {0, 1}


def test_things_are_done_in_the_order_they_were_asked() -> None:
    """However long each takes."""
    done: list[int] = []

    async def note(number: int) -> None:
        done.append(number)

    async def main(process: Process) -> None:
        wire = Wire(process.simulation, process, slowest_s=5)
        async with asyncio.TaskGroup() as group:
            for number in range(10):
                group.create_task(wire.ask("note", lambda number=number: note(number)))
                await asyncio.sleep(0.1)

    async def story(simulation: Simulation) -> None:
        await simulation.boot("p", main).ended.wait()

    published(story)
    assert done == list(range(10))


def test_faults_strike_at_points() -> None:
    """A process that crashes at its first point has asked for nothing."""
    counter = Counter()

    async def main(process: Process) -> None:
        await Wire(process.simulation, process).ask("add", counter.add)

    async def story(simulation: Simulation) -> None:
        process = simulation.boot("p", main)
        await process.ended.wait()
        assert counter.count == 0

    outcome = published(story, faults=ALWAYS)
    assert outcome.struck == {"crash": 1}
    assert "p DIES at add ▸" in outcome.trace


def test_a_refused_call_did_nothing() -> None:
    """The error is that of a locked database, and the next call may go through."""

    async def main(process: Process) -> None:
        state = StorageServer(process.simulation).connect(process).state
        record = StateRecord("e", ME, "kind", b"data")
        with pytest.raises(DatabaseLockedError):
            await state.save(record)
        with pytest.raises(RecordNotFoundError):
            await state.load(ME, "kind")
        await state.save(record)
        assert (await state.load(ME, "kind")).data == b"data"

    async def story(simulation: Simulation) -> None:
        await simulation.boot("p", main).ended.wait()

    published(story, faults=Faults(refuse=1.0, most_refusals=1))


def test_a_lost_call_was_done_or_not() -> None:
    """The caller cannot tell; over a few seeds both happen."""

    async def story(simulation: Simulation) -> int:
        counter = Counter()

        async def main(process: Process) -> None:
            wire = Wire(process.simulation, process, loss=ConnectionError)
            with pytest.raises(ConnectionError):
                await wire.ask("add", counter.add)

        await simulation.boot("p", main).ended.wait()
        return counter.count

    assert {published(story, seed, faults=Faults(lose=1.0)).result for seed in range(20)} == {0, 1}


def test_faults_have_a_budget() -> None:
    """When it is spent everything works."""

    async def main(process: Process) -> None:
        wire = Wire(process.simulation, process, loss=ConnectionError)
        lost = 0
        for _ in range(10):
            try:
                await wire.ask("add", Counter().add)
            except ConnectionError:
                lost += 1
        assert lost == 3

    async def story(simulation: Simulation) -> None:
        await simulation.boot("p", main).ended.wait()

    published(story, faults=Faults(lose=1.0, most_losses=3))


def test_drawn_faults_are_of_all_kinds() -> None:
    """Some stories have none of a kind."""
    drawn = [draw_faults(random.Random(seed)) for seed in range(50)]
    for kind in ("crash", "freeze", "refuse", "lose", "slow"):
        assert 5 < sum(getattr(faults, kind) > 0 for faults in drawn) < 50


@pytest.mark.parametrize("seed", [3, 17])
def test_a_seed_gives_one_story(seed: int) -> None:
    """Twice in one process it is the same, turn by turn."""
    first, second = play(seed), play(seed)
    assert first.notes == second.notes
    assert (first.digest, first.turns) == (second.digest, second.turns)
    assert play(seed + 1).digest != first.digest


def test_a_seed_gives_one_story_in_every_process() -> None:
    """Whatever their strings hash to, and wherever their objects lie."""

    def digest(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.programs.simulation", "--seed", "5"]
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, check=True)
        return hashlib.sha256(done.stdout).hexdigest()

    assert digest("1") == digest("2")


def test_one_story_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints what happened, what struck, and the digest."""
    from tests.programs.simulation.__main__ import main

    assert main(["--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert "a1 begins" in out
    assert play(3).digest in out
    assert main(["--seed", "3", "--verbose"]) == 0
    assert len(capsys.readouterr().out) > 2 * len(out)


def test_many_stories_name_those_that_fail(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that tells one of them alone."""
    from tests.programs.simulation import __main__ as command
    from tests.programs.simulation.stories import Played

    def many(seeds: Any, jobs: int) -> Any:
        return [Played(seed, uuid.uuid4().hex, "StuckError: it\nhangs" if seed == 8 else "") for seed in seeds]

    monkeypatch.setattr(command, "many", many)
    assert command.main(["--seeds", "10"]) == 1
    out = capsys.readouterr().out
    assert "seed 8: StuckError: it\n  alone: python -m tests.programs.simulation --seed 8\n" in out
    assert "10 stories, 1 failed" in out
