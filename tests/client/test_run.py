"""A run on a server: started, watched, steered and read as a local one, over a real socket."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from harborage.client import RemoteRun
from harborage.errors import InvalidOptionError
from harborage.events import ControlLifecyclePayload, Event, EventType, TaskCompletedPayload
from harborage.planner import FinishReason
from harborage.runtime.durable.engine import RunEndedError, RunFailedError, RunNotFoundError, RunPhase
from harborage.runtime.loop.controls import ControlType, Scope
from harborage.runtime.loop.errors import NoOutstandingPauseError, PayloadInvalidError, ScopeMismatchError
from harborage.runtime.pauses import AlreadyResumedError, PauseNotFoundError
from harborage.store import EVENT_STEP
from tests.kit.remote_host import Host, Receipt
from tests.kit.sockets import WITHIN_S
from tests.kit.wire import ADA, BEN

pytestmark = pytest.mark.anyio


async def events_of(run: Any, **options: Any) -> list[Event]:
    """All events of a run."""
    async with asyncio.timeout(WITHIN_S):
        return [event async for event in run.events(**options)]


async def until(run: RemoteRun[Any], type: EventType) -> Event:
    """The first event of a type."""
    async with asyncio.timeout(WITHIN_S), aclosing(run.events()) as events:
        async for event in events:
            if event.type == type:
                return event
    raise AssertionError(f"no {type}")


async def test_a_run_is_started_and_read(host: Host) -> None:
    """It is started by the name of its agent, and its result is what the local handle gives."""
    run = await host.remote.start("support", "Say hello", who=ADA)
    async with asyncio.timeout(WITHIN_S):
        result = await run.result()
    local = await host.runtime.run(run.id, who=ADA)
    assert (result.output, result.run_id) == ((await local.result()).output, run.id)
    assert (await run.finished()).reason is FinishReason.GOAL
    status = await run.status()
    assert (status.phase, status.goal, status.who) == (RunPhase.FINISHED, "Say hello", ADA.with_run(run.id))


async def test_a_typed_output_is_its_type(host: Host) -> None:
    """`output=` says as what the result is read; while it grows, each value is one of the type."""
    run = await host.remote.start("clerk", "typed", who=ADA, output=Receipt)
    async with asyncio.timeout(WITHIN_S):
        assert (await run.result()).output == Receipt("7", 12)
        assert [one async for one in run.outputs()][-1] == Receipt("7", 12)


async def test_an_answer_that_is_too_large_for_a_list_is_read_whole(host: Host) -> None:
    """The server keeps it as an artifact, and the client follows the reference."""
    run = await host.remote.start("support", "a lot", who=ADA)
    typed = await host.remote.start("clerk", "much", who=ADA, output=Receipt)
    async with asyncio.timeout(WITHIN_S):
        assert (await run.result()).output == "x" * 200_000
        assert (await typed.result()).output == Receipt("y" * 200_000, 1)


async def test_events_are_those_of_the_local_handle(host: Host) -> None:
    """From the beginning to the one that ends the run, typed alike; only their numbers are those of the wire."""
    run = await host.remote.start("support", "Say hello", who=ADA)
    found = await events_of(run)
    local = await events_of(await host.runtime.run(run.id, who=ADA))
    stored = [event for event in found if event.sequence % EVENT_STEP == 0]
    assert [(one.type, one.identity, one.payload, one.occurred_at) for one in stored] == [
        (one.type, one.identity, one.payload, one.occurred_at) for one in local
    ]
    assert stored[-1].payload == TaskCompletedPayload(run.id)
    again = await events_of(run, after=stored[0].sequence)
    assert [one.sequence for one in again] == [one.sequence for one in stored[1:]]


async def test_text_is_what_the_model_writes(host: Host) -> None:
    """Pieces come while the run goes on."""
    pieces: list[str] = []
    run = await host.remote.start("support", "nothing", who=ADA)
    async with asyncio.timeout(WITHIN_S):
        pieces += [piece async for piece in run.text()]
    assert "".join(pieces) in ("Nothing.", "")  # a caller who comes late gets what is still to come


async def test_a_call_is_approved_from_elsewhere(host: Host) -> None:
    """The question has the call; an approval lets it be made, and a second one is refused with the first one's."""
    run = await host.remote.start("support", "refund", who=ADA)
    async with asyncio.timeout(WITHIN_S):
        pending = await run.wait_pending()
        assert (pending.tool, pending.args, pending.run_id) == ("refund", {"order": "7", "euros": 12}, run.id)
        assert [one.token for one in await host.remote.pending(who=ADA)] == [pending.token]
        assert [one.token for one in await run.waiting()] == [pending.token]
        assert (await run.status()).phase is RunPhase.PARKED
        assert await pending.approve(args={"order": "7", "euros": 5})
        assert (await run.result()).output == "It is done."
        with pytest.raises(AlreadyResumedError, match="approve"):
            await run.approve(pending.token)
        with pytest.raises(PauseNotFoundError):
            await run.approve("no-such-token")
    assert "refunded 5 for 7" in str((await (await host.runtime.run(run.id, who=ADA)).result()).messages)


async def test_a_call_is_rejected_with_a_reason(host: Host) -> None:
    """The only open question needs no token."""
    run = await host.remote.start("support", "refund", who=ADA)
    async with asyncio.timeout(WITHIN_S):
        await run.wait_pending()
        await run.reject("too much")
        assert (await run.result()).output == "It is done."
    assert "too much" in str((await (await host.runtime.run(run.id, who=ADA)).result()).messages)


async def test_a_run_is_cancelled_at_once(host: Host) -> None:
    """A hard cancel ends the call in flight; the error says why the run ended, and it takes no more controls."""
    run = await host.remote.start("support", "linger", who=ADA)
    await until(run, EventType.TOOL_INVOKED)
    assert await run.cancel(hard=True)
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(RunFailedError) as caught:
            await run.result()
        assert caught.value.reason is FinishReason.CANCELLED
        with pytest.raises(RunEndedError):
            await run.message("too late")
        with pytest.raises(NoOutstandingPauseError):
            await run.wait_pending()


async def test_what_became_of_a_control_is_known(host: Host) -> None:
    """One event tells the fate of one control, by its id: applied before a step, or rejected with a code."""
    run = await host.remote.start("support", "linger", who=ADA)
    await until(run, EventType.TOOL_INVOKED)
    fate = await run.send_and_wait(ControlType.CANCEL, {"hard": True}, seconds=WITHIN_S)
    assert (fate.fate, fate.control, fate.counted) == ("applied", "CANCEL", True)
    told = [
        event
        for event in await events_of(run)
        if event.type in (EventType.CONTROL_APPLIED, EventType.CONTROL_REJECTED)
        and getattr(event.payload, "event_id", "") == fate.event_id
    ]
    assert len(told) == 1
    assert isinstance(told[0].payload, ControlLifecyclePayload)


async def test_the_same_control_twice_is_one(host: Host) -> None:
    """An id that comes again is answered alike and applied once."""
    run = await host.remote.start("support", "linger", who=ADA)
    await until(run, EventType.TOOL_INVOKED)
    for _ in range(3):
        assert await run.control(ControlType.USER_MESSAGE, {"message": "hurry"}, event_id="mine")
    await run.cancel(hard=True)
    found = await events_of(run)
    assert [one.type for one in found if getattr(one.payload, "event_id", "") == "mine"].count(
        EventType.CONTROL_RECEIVED
    ) == 1


async def test_a_control_that_may_not_be_sent_is_refused(host: Host) -> None:
    """Too low a scope, a payload out of bounds, a run of somebody else, and what is no payload at all."""
    run = await host.remote.start("support", "linger", who=ADA)
    with pytest.raises(ScopeMismatchError):
        await run.prioritize(5)
    admin = host.remote.get(run.id, who=ADA, scope=Scope.ADMIN)
    with pytest.raises(ScopeMismatchError):
        await admin.prioritize(5)
    assert await (await host.client(ADA, "admin")).get(run.id, who=ADA, scope=Scope.ADMIN).prioritize(5)
    with pytest.raises(PayloadInvalidError):
        await run.message("x" * 5000)
    with pytest.raises(RunNotFoundError):
        await (await host.client(BEN)).get(run.id, who=BEN).cancel()
    with pytest.raises(InvalidOptionError):
        await run.inject("no dict")  # type: ignore[arg-type]
    await run.cancel(hard=True)


async def test_a_run_that_is_not_there_is_an_error(host: Host) -> None:
    """A handle is made at once; its first use says that there is no such run."""
    run = host.remote.get("01J00000000000000000000000", who=ADA)
    for use in (run.status, run.finished, run.result, run.cancel, lambda: events_of(run)):
        with pytest.raises(RunNotFoundError):
            await use()
