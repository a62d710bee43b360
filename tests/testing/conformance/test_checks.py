"""The runner of the suites reports every broken promise, by name, and never takes a leak for a success."""

from __future__ import annotations

import asyncio

import pytest

from harborage.errors import HarborageError
from harborage.testing.conformance.checks import (
    ConformanceError,
    check_scenario,
    expect,
    expect_equal,
    expect_raises,
    run_scenarios,
)


class Thing:
    """A driver that only knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1


async def open_thing() -> Thing:
    """A fresh driver."""
    return Thing()


async def fine(thing: Thing) -> None:
    """Nothing is wrong."""
    expect(thing.closed == 0, "a fresh driver is open")


async def wrong(thing: Thing) -> None:
    """Something is wrong."""
    expect_equal(1, 2, "one")


async def broken(thing: Thing) -> None:
    """The driver itself fails."""
    raise RuntimeError("driver bug")


def test_expectations_say_what_was_promised() -> None:
    """What holds passes; what does not says what was wanted and what came."""
    expect(True, "fine")
    expect_equal([1], [1], "fine")
    with pytest.raises(ConformanceError, match="it should rain"):
        expect(False, "it should rain")
    with pytest.raises(ConformanceError, match="drops: got 1, expected 2"):
        expect_equal(1, 2, "drops")


def test_a_broken_promise_is_an_assertion_and_an_error_of_the_house() -> None:
    """Test runners show it as a failure, and callers can catch it with everything else."""
    assert issubclass(ConformanceError, AssertionError)
    assert issubclass(ConformanceError, HarborageError)


def test_long_values_are_cut() -> None:
    """A megabyte of bytes does not fill the screen."""
    with pytest.raises(ConformanceError) as caught:
        expect_equal(b"x" * 1_000_000, b"", "content")
    assert len(str(caught.value)) < 400


async def test_an_expected_error_must_come() -> None:
    """The right error passes; another one, or none, does not."""

    async def raise_key_error() -> None:
        raise KeyError("k")

    await expect_raises(LookupError, raise_key_error(), "a subclass will do")
    with pytest.raises(ConformanceError, match="a: raised KeyError, expected ValueError") as caught:
        await expect_raises(ValueError, raise_key_error(), "a")
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(ConformanceError, match="b: returned None, expected ValueError"):
        await expect_raises(ValueError, asyncio.sleep(0), "b")


async def test_a_cancelled_check_is_cancelled() -> None:
    """A cancellation is never taken for a wrong error."""

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await expect_raises(ValueError, cancelled(), "a")


async def test_a_driver_is_closed_after_each_scenario() -> None:
    """Whether the scenario passes or fails, its driver is closed once, by the check."""
    opened: list[Thing] = []

    async def open_seen() -> Thing:
        opened.append(Thing())
        return opened[-1]

    await check_scenario(fine, open_seen)
    with pytest.raises(ConformanceError):
        await check_scenario(wrong, open_seen)
    assert [thing.closed for thing in opened] == [1, 1]


async def test_a_task_left_running_is_a_broken_promise() -> None:
    """A driver that starts a worker and does not end it on close is named for it."""
    started: list[asyncio.Task[None]] = []

    async def leak(thing: Thing) -> None:
        started.append(asyncio.create_task(asyncio.sleep(3600), name="worker"))

    with pytest.raises(ConformanceError, match=r"tasks that a closed driver leaves running: got \['worker'\]"):
        await check_scenario(leak, open_thing)
    started[0].cancel()


async def test_every_failure_is_reported_with_its_scenario() -> None:
    """One run shows all that is wrong: each error carries the name and the promise of its scenario."""
    with pytest.raises(ExceptionGroup, match="2 of 3 scenarios failed") as caught:
        await run_scenarios([wrong, fine, broken], open_thing)
    first, second = caught.value.exceptions
    assert isinstance(first, ConformanceError)
    assert first.__notes__ == ["scenario wrong: Something is wrong."]
    assert isinstance(second, RuntimeError)
    assert second.__notes__ == ["scenario broken: The driver itself fails."]


async def test_a_driver_without_fault_passes() -> None:
    """No failure, no error."""
    await run_scenarios([fine, fine], open_thing)
