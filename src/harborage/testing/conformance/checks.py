"""Expectations that all suites share, and a runner that reports every broken promise.

Plain `assert` is not used: it vanishes under `python -O`, and outside a test file it does not show the values.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

from harborage.errors import HarborageError

E = TypeVar("E", bound=BaseException)


class ConformanceError(HarborageError, AssertionError):
    """A driver does not do what its port promises."""


class Closable(Protocol):
    """A driver, which every suite closes."""

    async def aclose(self) -> None:
        """Release its resources."""
        ...


S = TypeVar("S", bound=Closable)
Factory: TypeAlias = Callable[[], Awaitable[S]]
Scenario: TypeAlias = Callable[[S], Awaitable[None]]


def expect(holds: bool, what: str) -> None:
    """Accept a promise that holds.

    Raises:
        ConformanceError: it does not hold; the text is `what`, the promise.
    """
    if not holds:
        raise ConformanceError(what)


def expect_equal(got: object, wanted: object, what: str) -> None:
    """Accept equal values.

    Raises:
        ConformanceError: they differ; the message shows both, cut short.
    """
    if got != wanted:
        raise ConformanceError(f"{what}: got {_short(got)}, expected {_short(wanted)}")


async def expect_raises(kind: type[E], work: Awaitable[object], what: str) -> E:
    """Return the error of work that must raise this kind of error, or one derived from it.

    Raises:
        ConformanceError: it ended well or in another error, which is the cause.
    """
    try:
        result = await work
    except kind as error:
        return error
    except Exception as error:
        raise ConformanceError(f"{what}: raised {type(error).__name__}, expected {kind.__name__}") from error
    raise ConformanceError(f"{what}: returned {_short(result)}, expected {kind.__name__}")


async def check_scenario(scenario: Scenario[S], open_driver: Factory[S]) -> None:
    """Run one scenario against a fresh driver, close it, and check that it left no task behind.

    Raises:
        ConformanceError: a promise is broken; other errors of the driver are passed on.
    """
    before = asyncio.all_tasks()
    driver = await open_driver()
    try:
        await scenario(driver)
    finally:
        await driver.aclose()
    left = sorted(task.get_name() for task in asyncio.all_tasks() - before)
    expect_equal(left, [], "tasks that a closed driver leaves running")


async def run_scenarios(scenarios: Sequence[Scenario[S]], open_driver: Factory[S]) -> None:
    """Run every scenario, each against a fresh driver.

    Raises:
        ExceptionGroup: one error a failed scenario, each with a note that names and describes the scenario.
    """
    failures: list[Exception] = []
    for scenario in scenarios:
        try:
            await check_scenario(scenario, open_driver)
        except Exception as error:  # noqa: BLE001 - raised with the others below
            error.add_note(f"scenario {_name(scenario)}: {inspect.getdoc(scenario)}")
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(scenarios)} scenarios failed", failures)


def _name(scenario: object) -> str:
    return getattr(scenario, "__name__", repr(scenario))


def _short(value: object, limit: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
