"""The simulated loop: time that jumps, turns drawn by chance, and no way out into the real world."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from harborage.testing.simulation import (
    DeadlockError,
    EndlessError,
    Order,
    RealWorldError,
    SimulatedLoop,
    UnhandledError,
)
from harborage.testing.simulation.loop import CURRENT_QUEUE


@pytest.fixture
def loops() -> Iterator[Any]:
    """Makes loops that are closed afterwards."""
    made: list[SimulatedLoop] = []

    def make(seed: int = 1, **options: Any) -> SimulatedLoop:
        made.append(SimulatedLoop(random.Random(seed), **options))
        return made[-1]

    yield make
    for loop in made:
        loop.close()


async def race(seen: list[int]) -> None:
    """Ten tasks that take three turns each."""

    async def walk(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            seen.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(walk(number))


def raced(loop: SimulatedLoop) -> list[int]:
    """Who came when."""
    seen: list[int] = []
    loop.run_until_complete(race(seen))
    return seen


@pytest.mark.parametrize("order", list(Order))
def test_the_same_seed_gives_the_same_turns(loops: Any, order: Order) -> None:
    """Turn by turn, whatever the order."""
    first, second = loops(7, order=order), loops(7, order=order)
    assert raced(first) == raced(second)
    assert first.digest() == second.digest()


def test_another_seed_gives_others(loops: Any) -> None:
    """Unless the order is that of a real loop."""
    assert raced(loops(1)) != raced(loops(2))
    assert raced(loops(1, order=Order.FIFO)) == raced(loops(2, order=Order.FIFO)) == list(range(10)) * 3


def test_an_uneven_order_leaves_some_behind(loops: Any) -> None:
    """Slow tasks come when the others are done, now and then before."""
    seen = raced(loops(5, order=Order.UNEVEN))
    first = [seen.index(number) for number in range(10)]
    last = [len(seen) - 1 - seen[::-1].index(number) for number in range(10)]
    assert max(first) > min(last)


def test_time_jumps_to_the_next_timer(loops: Any) -> None:
    """A day of waiting costs nothing, and timers ring in their order, at their very time."""

    async def wait(seconds: float, rung: list[float]) -> None:
        await asyncio.sleep(seconds)
        rung.append(asyncio.get_running_loop().time())

    async def main() -> list[float]:
        rung: list[float] = []
        await asyncio.gather(*(wait(seconds, rung) for seconds in (86_400, 0.25, 3)))
        return rung

    assert loops().run_until_complete(main()) == [0.25, 3, 86_400]


def test_a_turn_may_take_time(loops: Any) -> None:
    """Each one takes as long as the loop was told."""
    loop = loops(turn_us=100)
    loop.run_until_complete(race([]))
    assert loop.now_us == loop.turns * 100


def test_a_timer_that_was_called_off_never_rings(loops: Any) -> None:
    """Nor does the clock move to its time."""
    loop = loops()

    async def main() -> None:
        loop.call_later(100, pytest.fail).cancel()
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert loop.time() == 1


def test_when_all_tasks_wait_it_says_for_what(loops: Any) -> None:
    """By task, down to the function that waits."""

    async def for_nobody() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(for_nobody(), name="lonely")

    with pytest.raises(DeadlockError, match=r"lonely: .*for_nobody"):
        loops().run_until_complete(main())


def test_a_story_without_end_is_ended(loops: Any) -> None:
    """After so many turns, or so much of its own time."""

    async def spin(seconds: float) -> None:
        while True:  # noqa: ASYNC110 - to be endless is what it is for
            await asyncio.sleep(seconds)

    with pytest.raises(EndlessError, match="after 50 turns"):
        loops(most_turns=50).run_until_complete(spin(0))
    with pytest.raises(EndlessError, match="after 60 simulated seconds"):
        loops(most_s=60.0).run_until_complete(spin(1))


def test_work_for_threads_is_done_in_place(loops: Any) -> None:
    """At a turn of its own, with its failures where they are awaited."""
    here = threading.get_ident()

    async def main() -> None:
        assert await asyncio.to_thread(threading.get_ident) == here
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)

    loops().run_until_complete(main())


def test_a_real_thread_is_kept_out(loops: Any) -> None:
    """Whatever it does would come at a time that no seed decides."""
    loop, errors = loops(), []

    def intrude() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except RealWorldError as error:
            errors.append(error)

    async def main() -> None:
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()

    loop.run_until_complete(main())
    assert len(errors) == 1


def test_the_network_is_not_there(loops: Any) -> None:
    """A connection is refused as something this loop cannot do."""

    async def main() -> None:
        await asyncio.open_connection("127.0.0.1", 1)

    with pytest.raises(NotImplementedError):
        loops().run_until_complete(main())


def test_an_unhandled_error_ends_the_simulation(loops: Any) -> None:
    """A callback that raises, with what it raised as the cause."""
    loop = loops()

    async def main() -> None:
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(UnhandledError, match="division by zero") as caught:
        loop.run_until_complete(main())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_held_lane_has_no_turns(loops: Any) -> None:
    """Timers ring for it all the same: it finds them rung when it is let go."""
    loop = loops()
    queue = loop.new_queue("other")
    seen: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(loop.time())

    async def main() -> None:
        ticking = loop.context_of(queue).run(asyncio.ensure_future, tick())
        await asyncio.sleep(2.5)
        loop.hold(queue)
        await asyncio.sleep(3)
        assert seen == [1, 2]
        loop.resume(queue)
        await asyncio.sleep(1.2)
        assert seen == [1, 2, 5.5, 6.5]
        ticking.cancel()

    loop.run_until_complete(main())


def test_what_a_lane_begins_belongs_to_it(loops: Any) -> None:
    """Its tasks, and theirs."""
    loop = loops()
    queue = loop.new_queue("other")
    queues: list[Any] = []

    async def inner() -> None:
        queues.append(CURRENT_QUEUE.get())

    async def outer() -> None:
        await asyncio.gather(inner(), inner())

    async def main() -> None:
        await loop.context_of(queue).run(asyncio.ensure_future, outer())
        assert CURRENT_QUEUE.get() is None

    loop.run_until_complete(main())
    assert queues == [queue, queue]


def test_sets_of_tasks_have_an_order(loops: Any) -> None:
    """It does not depend on where the tasks lie in memory."""

    async def main() -> list[str]:
        tasks = {asyncio.ensure_future(asyncio.sleep(0)) for _ in range(50)}
        names = [task.get_name() for task in tasks]
        await asyncio.wait(tasks)
        return names

    first = loops().run_until_complete(main())
    assert first == loops().run_until_complete(main())
