"""What every event log must do. Hand in a function that opens a `StorageBench` over a fresh storage:

    await run_conformance(open_bench)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_bench)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

from harborage.events.errors import LogClosedError, SequenceTakenError
from harborage.events.log import EventLog, Logged
from harborage.identity import Identity, IdentityRequiredError
from harborage.testing.conformance.checks import check_scenario, expect_equal, expect_raises, run_scenarios
from harborage.testing.conformance.storage_bench import OpenStorageBench, StorageBench

__all__ = ["SCENARIOS", "OpenStorageBench", "Scenario", "StorageBench", "check", "run_conformance"]

Scenario: TypeAlias = Callable[[StorageBench], Awaitable[None]]

ME = Identity("tenant", "user", "session")
MANY = 100
LARGE = 1024 * 1024


def line(who: Identity, *numbers: int) -> list[Logged]:
    """Events of a session under these numbers."""
    return [Logged(who, number, f"{who.session_id} {number}".encode()) for number in numbers]


async def events_come_back_in_order(bench: StorageBench) -> None:
    """Events come back by number, all of them, those behind one, or the first few."""
    log = bench.storage.events
    await log.append(line(ME, 1, 2, 3))
    await log.append(line(ME, 4))
    await log.append([])
    expect_equal(await log.read(ME), line(ME, 1, 2, 3, 4), "all events")
    expect_equal(await log.read(ME, after=2), line(ME, 3, 4), "the events behind the second")
    expect_equal(await log.read(ME, after=1, limit=2), line(ME, 2, 3), "a page")
    expect_equal(await log.read(ME, after=4), [], "the events behind the last")


async def numbers_may_be_left_out(bench: StorageBench) -> None:
    """A number that was never kept is no gap, and may be kept later; order is by number, not by time."""
    log = bench.storage.events
    await log.append(line(ME, 2, 7))
    await log.append(line(ME, 5, 3))
    expect_equal(await log.read(ME), line(ME, 2, 3, 5, 7), "the events")
    expect_equal(await log.last(ME), 7, "the highest number")


async def the_last_number_is_known(bench: StorageBench) -> None:
    """The highest number of a session is 0 before its first event."""
    log = bench.storage.events
    expect_equal(await log.last(ME), 0, "the last number of an empty session")
    await log.append(line(ME, 1, 2))
    expect_equal(await log.last(ME), 2, "the last number")


async def sessions_do_not_meet(bench: StorageBench) -> None:
    """Each session has its own numbers, however alike the names; nobody sees another's events."""
    log = bench.storage.events
    alike = (
        ME,
        Identity("other", "user", "session"),
        Identity("tenant", "other", "session"),
        Identity("tenant", "user", "other"),
        Identity("tenant", "user/session", "x"),
        Identity("tenant/user", "session", "x"),
        Identity("Tenant", "user", "session"),
        Identity(" ", "\t", "\n"),
    )
    await log.append([event for index, who in enumerate(alike) for event in line(who, 1, index + 2)])
    for index, who in enumerate(alike):
        expect_equal(await log.read(who), line(who, 1, index + 2), f"the events of {who}")
        expect_equal(await log.last(who), index + 2, f"the last number of {who}")
    await log.forget(ME)
    await log.forget(ME)
    expect_equal((await log.read(ME), await log.last(ME)), ([], 0), "a forgotten session")
    for index, who in enumerate(alike[1:], start=1):
        expect_equal(await log.read(who), line(who, 1, index + 2), f"the events of {who} after another was forgotten")


async def a_number_stands_for_one_event(bench: StorageBench) -> None:
    """Another event under a number that is taken is refused with all that came with it; the same one may come again."""
    log = bench.storage.events
    other = Identity("tenant", "user", "fresh")
    await log.append(line(ME, 1, 2))
    await log.append(line(ME, 2, 3))
    expect_equal(await log.read(ME), line(ME, 1, 2, 3), "events of which one came twice")
    for taken in (Logged(ME, 3, b"another"), Logged(ME, 9, b"x")):
        attempt = [*line(ME, 8, 9), taken, *line(other, 1)]
        await expect_raises(SequenceTakenError, log.append(attempt), f"another event {taken.sequence}")
    expect_equal(await log.read(ME), line(ME, 1, 2, 3), "the events after refused ones")
    expect_equal(await log.last(other), 0, "the session of an event that came with refused ones")


async def any_bytes_are_an_event(bench: StorageBench) -> None:
    """Nothing, zeros, what is no text, and a megabyte are kept byte for byte."""
    log = bench.storage.events
    odd = [b"", b"\x00", b"\xff\xfe\x00", bytes(range(256)) * (LARGE // 256)]
    await log.append([Logged(ME, index + 1, data) for index, data in enumerate(odd)])
    expect_equal([event.data for event in await log.read(ME)] == odd, True, "the odd events come back")


async def a_hundred_writers_at_once(bench: StorageBench) -> None:
    """A hundred concurrent writers of their own sessions, and a hundred of one, lose nothing."""
    log = bench.storage.events
    each = [Identity("tenant", "user", f"session {index}") for index in range(MANY)]

    async def write(index: int) -> None:
        for number in (1, 2, 3):
            await log.append([*line(each[index], number), *line(ME, index * 3 + number)])

    await asyncio.gather(*(write(index) for index in range(MANY)))
    for who in each:
        expect_equal(await log.read(who), line(who, 1, 2, 3), f"the events of {who.session_id}")
    expect_equal(await log.read(ME), line(ME, *range(1, MANY * 3 + 1)), "the events of the shared session")


async def one_number_has_one_winner(bench: StorageBench) -> None:
    """Of a hundred writers that want one number for events of their own, exactly one gets it."""
    log = bench.storage.events
    attempts = [log.append([Logged(ME, 1, b"%d" % index)]) for index in range(MANY)]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    expect_equal(results.count(None), 1, "writers that got the number")
    losers = [type(result) for result in results if result is not None]
    expect_equal(losers, [SequenceTakenError] * (MANY - 1), "what the others are told")
    expect_equal((await log.read(ME))[0].data, b"%d" % results.index(None), "the event that is kept")


async def a_second_connection_reads_on(bench: StorageBench) -> None:
    """Another connection sees what was written, and numbers on behind it."""
    other = (await bench.another()).events
    await bench.storage.events.append(line(ME, 1, 2))
    expect_equal((await other.last(ME), await other.read(ME)), (2, line(ME, 1, 2)), "what the other sees")
    await other.append(line(ME, 3))
    expect_equal(await bench.storage.events.read(ME, after=2), line(ME, 3), "what the first sees")
    await expect_raises(SequenceTakenError, bench.storage.events.append([Logged(ME, 3, b"x")]), "a taken number")


def calls(log: EventLog, who: Identity) -> Iterator[tuple[str, Awaitable[object]]]:
    """Each call of the port once, by name."""
    yield "append", log.append(line(who, 1))
    yield "last", log.last(who)
    yield "read", log.read(who)
    yield "forget", log.forget(who)


async def an_incomplete_identity_is_refused(bench: StorageBench) -> None:
    """Every call needs tenant, user and session."""
    for who in (Identity("", "user", "session"), Identity("tenant", "", "session"), Identity("tenant", "user", "")):
        for name, call in calls(bench.storage.events, who):
            await expect_raises(IdentityRequiredError, call, f"{name} for {who}")


async def a_closed_log_says_so(bench: StorageBench) -> None:
    """After close every call is refused as closed; closing twice is fine."""
    log = bench.storage.events
    await log.append(line(ME, 1))
    await log.aclose()
    await log.aclose()
    for name, call in calls(log, ME):
        await expect_raises(LogClosedError, call, f"{name} after close")


SCENARIOS: tuple[Scenario, ...] = (
    events_come_back_in_order,
    numbers_may_be_left_out,
    the_last_number_is_known,
    sessions_do_not_meet,
    a_number_stands_for_one_event,
    any_bytes_are_an_event,
    a_hundred_writers_at_once,
    one_number_has_one_winner,
    a_second_connection_reads_on,
    an_incomplete_identity_is_refused,
    a_closed_log_says_so,
)


async def check(scenario: Scenario, open_bench: OpenStorageBench) -> None:
    """Run one scenario against a fresh storage.

    Raises:
        ConformanceError: the log breaks a promise.
    """
    await check_scenario(scenario, open_bench)


async def run_conformance(open_bench: OpenStorageBench) -> None:
    """Run every scenario, each against a fresh, empty storage.

    Raises:
        ExceptionGroup: the broken promises, one error a scenario.
    """
    await run_scenarios(SCENARIOS, open_bench)
