"""One run of an agent, with everything that was published meanwhile."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from harborage import Agent, Identity, tool
from harborage.events import Event, EventType, MemoryEventBus, RedactedMap, RuntimeWarningPayload
from harborage.events.durable_bus import DurableEventBus
from harborage.events.payloads.planner import PlannerFinishPayload
from harborage.identity import IdentityRequiredError, current_identity, effective_quadruple
from harborage.store.memory import MemoryStore
from harborage.testing import assert_no_leaks, assert_sequence, call, run_once, script
from harborage.testing.runs import TEST_IDENTITY, EventLog, NoTestAgentError, RunContext

pytestmark = pytest.mark.anyio

ADA, BOB = Identity("acme", "ada", "s-1"), Identity("globex", "bob", "s-2")
WARNING = EventType.RUNTIME_WARNING


def warning(run: RunContext, text: str = "") -> Event:
    """An event of a run."""
    return Event(WARNING, run.who, RuntimeWarningPayload(text))


async def shout(run: RunContext, word: str) -> str:
    """An agent that publishes two events."""
    run.bus.publish_nowait(warning(run, "one"))
    await run.bus.publish(warning(run, "two"))
    return word.upper()


async def test_a_run_gives_its_output_and_its_events() -> None:
    """It has an identity, and a run id of its own, also as what the context says."""
    seen: list[Any] = []

    async def agent(run: RunContext, word: str) -> str:
        seen.extend([current_identity(), effective_quadruple(), run.who, run.deps])
        return await shout(run, word)

    output, log, error = await run_once(agent, "hello", deps=7)
    assert (output, error) == ("HELLO", None)
    assert seen[0] == TEST_IDENTITY == Identity("harbortest", "harbortest", "harbortest")
    assert seen[1:] == [seen[1], seen[1], 7]
    assert seen[1].run_id.startswith("harbortest-run-")
    assert [event.payload.data["message"] for event in log] == ["one", "two"]
    assert log.of_run(seen[1].run_id).types == log.types
    assert len(log.of_run("another")) == 0


async def test_the_error_of_an_agent_comes_with_the_events_before_it() -> None:
    """It is not raised."""

    async def agent(run: RunContext, _: str) -> None:
        await run.bus.publish(warning(run))
        raise KeyError("order")

    output, log, error = await run_once(agent, "")
    assert (output, log.types) == (None, [WARNING])
    assert isinstance(error, KeyError)


async def test_a_cancelled_run_is_cancelled() -> None:
    """The wait of a test that gives up is not swallowed."""
    began = asyncio.Event()

    async def agent(run: RunContext, _: str) -> None:
        began.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run_once(agent, ""))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_no_event_is_lost_however_many_there_are() -> None:
    """More than a subscriber's buffer holds."""

    async def agent(run: RunContext, count: int) -> None:
        for _ in range(count):
            run.bus.publish_nowait(warning(run))

    assert len((await run_once(agent, 2_000)).log) == 2_000


@pytest.mark.parametrize("bus", [MemoryEventBus, lambda: DurableEventBus(MemoryStore())], ids=["memory", "store"])
async def test_runs_side_by_side_on_one_bus_have_run_ids_of_their_own(bus: Any) -> None:
    """The bus stays open, what the last event waits for is waited for, and two tenants do not leak."""
    shared = bus()
    first, second = await asyncio.gather(
        run_once(shout, "a", who=ADA, bus=shared), run_once(shout, "b", who=BOB, bus=shared)
    )
    runs = {event.identity.run_id for event in [*first.log, *second.log]} - {""}
    assert len(runs) == 2
    for event in second.log[-2:]:
        assert len(second.log.of_run(event.identity.run_id)) == 2
    assert_no_leaks(first.log)
    assert_no_leaks(second.log)
    await shared.publish(Event(WARNING, ADA.with_run("r"), RuntimeWarningPayload("")))
    await shared.aclose()


async def test_an_agent_of_harborage_runs_in_memory() -> None:
    """Its events are those of its run, tools included."""

    @tool(effects="read")
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    agent = Agent("adder", model=script(call("add", a=1, b=2), "3"), tools=[add])
    output, log, error = await run_once(agent, "Add", who=ADA)
    assert (output, error) == ("3", None)
    assert_sequence(log, ["session.opened", "task.spawned", "tool.invoked", "tool.completed", "task.completed"])
    assert_no_leaks(log)


async def test_what_is_no_agent_and_who_is_nobody_are_told_apart() -> None:
    """Each has an error of its own, and nothing runs."""
    with pytest.raises(NoTestAgentError):
        await run_once(None, "")  # type: ignore[arg-type]
    with pytest.raises(IdentityRequiredError, match="user_id"):
        await run_once(shout, "", who=Identity("acme", "", "s"))


def logged(*types: str) -> EventLog:
    """A log of events of these types."""
    return EventLog(Event(one, ADA.with_run("r"), None) for one in types)


@pytest.mark.parametrize("wanted", [[], ["a"], ["a", "c"], ["a", "b", "a", "c"], ["a", "a"]])
def test_a_sequence_may_have_gaps(wanted: list[str]) -> None:
    """Other events may lie anywhere."""
    assert_sequence(logged("a", "b", "a", "c"), wanted)


@pytest.mark.parametrize(
    ("wanted", "missing", "place"), [(["d"], "d", 1), (["c", "a"], "a", 2), (["a", "a", "a"], "a", 3)]
)
def test_the_first_missing_event_is_named(wanted: list[str], missing: str, place: int) -> None:
    """With its place in the sequence, and what came."""
    with pytest.raises(AssertionError, match=rf"no {missing} \(number {place} of the sequence\).*'a', 'b', 'a', 'c'"):
        assert_sequence(logged("a", "b", "a", "c"), wanted)


def test_each_leak_is_named() -> None:
    """An event of a run under another principal, and a payload of another; a blank one says nothing."""
    fine = [
        Event("a", ADA.with_run("r"), None),
        Event("b", BOB.with_run("q"), None),
        Event("c", BOB.with_run(""), None),
    ]
    assert_no_leaks([*fine, Event("d", ADA.with_run(""), None)])
    foreign = PlannerFinishPayload(identity=BOB.with_run("r"), reason="goal", occurred_at=datetime.now(UTC))
    stored = RedactedMap({"Identity": {"TenantID": "globex", "UserID": "bob", "SessionID": "s-2"}})
    blank = RedactedMap({"Identity": {"TenantID": "globex", "UserID": "", "SessionID": ""}})
    leaks = [*fine, Event("e", BOB.with_run("r"), None), Event("f", ADA.with_run("r"), foreign)]
    leaks += [Event("g", ADA.with_run("r"), stored), Event("h", ADA.with_run("r"), blank)]
    with pytest.raises(AssertionError) as raised:
        assert_no_leaks(leaks)
    _, first, second, third = str(raised.value).splitlines()
    assert first.startswith("event 4, e: run r")
    assert (second[:11], third[:11]) == ("event 5, f:", "event 6, g:")
