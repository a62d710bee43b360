"""Approvals after a restart: bound to the exact call and its principal, used once, answered in part, days later."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from harborage.events import PatternRedactor
from harborage.identity import Identity
from harborage.planner import CallParallel, CallTool, Finish, FinishReason, RunContext
from harborage.runtime.approval import (
    AlwaysDeny,
    ApprovalDecision,
    ApprovalNotFoundError,
    ApprovalScopeRequiredError,
    answer_approval,
)
from harborage.runtime.durable.engine import EngineClosedError, RunNotFoundError
from harborage.runtime.durable.journal import Done, decode_entries
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.pauses import AlreadyResumedError, Pause, PauseDecision, PauseScopeMismatchError
from harborage.runtime.run import Run
from harborage.state.storage import Storage, open_storage
from harborage.testing.clock import FakeClock
from harborage.tools import SideEffect, tool

pytestmark = pytest.mark.anyio

ADA = Identity("t", "ada", "s")
EVE = Identity("t", "eve", "s")
STRANGER = Identity("other", "ada", "s")
ADMIN = frozenset({"admin"})
WEEK_S = timedelta(days=7).total_seconds()


def pay(amount: int) -> CallTool:
    return CallTool("pay", b'{"amount":%d}' % amount, f"c{amount}")


class Payer:
    """A planner that pays once, or three times at once, and finishes with what came of it."""

    async def next(self, run: RunContext) -> Any:
        steps = run.trajectory.steps
        if not steps:
            return CallParallel((pay(1), pay(2), pay(3))) if run.goal == "many" else pay(5)
        seen = steps[0].observation
        branches = getattr(seen, "branches", None) or (seen.get("branches") if isinstance(seen, dict) else None)
        return Finish(FinishReason.GOAL, seen if branches is None else [_said(one) for one in branches])


def _said(branch: Any) -> Any:
    return (branch["error"] or branch["value"]) if isinstance(branch, dict) else (branch.error or branch.value)


class Place:
    """A database that outlives its runtimes, the clock of all of them, and what was paid."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock()
        self.paid: list[int] = []
        self._storages: list[Storage] = []

    async def open(self) -> Runtime:
        """A runtime in a process of its own; to be entered."""

        async def transfer(amount: int) -> str:
            """Pay an amount."""
            self.paid.append(amount)
            return f"paid {amount}"

        self._storages.append(await open_storage(f"sqlite:{self.path}", clock=self.clock))
        return Runtime(
            planner=Payer(),
            tools=[tool(transfer, name="pay", effects=SideEffect.EXTERNAL)],
            approvals=AlwaysDeny("money leaves the house"),
            storage=self._storages[-1],
            clock=self.clock,
            options=RuntimeOptions(linger=timedelta(0), approval_ttl=timedelta(days=30)),
        )

    async def asked(self, run: Run, count: int = 1) -> list[Pause]:
        """The calls of a run that wait, by amount, once there are so many."""
        async with asyncio.timeout(20):
            while len(pauses := await run.waiting()) != count:
                await self.clock.run_for(0.2)
        return sorted(pauses, key=lambda pause: pause.payload["args_summary"]["args"]["amount"])

    async def made(self, run: Run, count: int) -> None:
        """Return once so many calls are made and on record: a process that dies before leaves them unknown."""
        async with asyncio.timeout(20):
            while _made(await run.history()) != count:
                await self.clock.run_for(0.2)

    async def ends(self, run: Run) -> Any:
        """What a run's finish holds; meanwhile the clock goes on."""
        ending = asyncio.ensure_future(run.finished())
        async with asyncio.timeout(20):
            while not ending.done():
                await self.clock.run_for(0.2)
        return (await ending).payload

    async def aclose(self) -> None:
        for storage in self._storages:
            await storage.aclose()


def _made(history: list[bytes]) -> int:
    entries = decode_entries(history, "")
    return sum(isinstance(entry, Done) and entry.name == "tool.pay" for entry in entries)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    found = Place(tmp_path / "harborage.db")
    yield found
    await found.aclose()


async def asked_for(place: Place, goal: str = "one", count: int = 1) -> tuple[str, list[Pause]]:
    """A run whose calls wait for approval while nothing is up: its id, and what waits."""
    async with await place.open() as rt:
        run = await rt.start(goal, who=ADA)
        return run.id, await place.asked(run, count)


async def test_seven_days_later_the_call_that_was_shown_is_made_once(place: Place) -> None:
    """Everything was stopped meanwhile; what the approver sees is what the tool gets."""
    run_id, (shown,) = await asked_for(place)
    await place.clock.run_for(WEEK_S)
    async with await place.open() as rt:
        run = await rt.run(run_id, who=ADA)
        (pause,) = await place.asked(run)
        assert (pause.token, pause.payload) == (shown.token, shown.payload)
        assert pause.payload["args_summary"]["args"] == {"amount": 5}
        await run.approve(pause.token)
        assert await place.ends(run) == "paid 5"
    async with await place.open() as rt:
        assert await place.ends(await rt.run(run_id, who=ADA)) == "paid 5"
    assert place.paid == [5]


async def test_a_batch_is_answered_in_part(place: Place) -> None:
    """Each of three calls in another process: one approved, one refused, one approved with other arguments."""
    run_id, pauses = await asked_for(place, "many", 3)
    answers: list[Callable[[Run, str], Any]] = [
        lambda run, token: run.approve(token),
        lambda run, token: run.reject("too much", token=token),
        lambda run, token: run.approve(token, args={"amount": 30}),
    ]
    for left, (answer, pause) in zip((2, 1, 0), zip(answers, pauses, strict=True), strict=True):
        async with await place.open() as rt:
            run = await rt.run(run_id, who=ADA)
            assert pause.token in {one.token for one in await place.asked(run, left + 1)}
            await answer(run, pause.token)
            if left:
                await place.asked(run, left)
                await place.made(run, 1)
            else:
                said = await place.ends(run)
    assert said[0] == "paid 1"
    assert "too much" in said[1]
    assert said[2] == "paid 30"
    assert sorted(place.paid) == [1, 30]


async def test_an_answer_counts_once(place: Place) -> None:
    """A second one is refused wherever it comes from: another process, another way, after a restart."""
    run_id, (pause,) = await asked_for(place)
    async with await place.open() as rt:
        run = await rt.run(run_id, who=ADA)
        await run.approve(pause.token)
        assert await place.ends(run) == "paid 5"
    async with await place.open() as rt:
        run = await rt.run(run_id, who=ADA)
        with pytest.raises(RunNotFoundError, match="has ended"):
            await run.approve(pause.token)
        for decision in ApprovalDecision:
            with pytest.raises(ApprovalNotFoundError, match="answered"):
                await answered(rt, pause, decision, who=ADA)
        with pytest.raises(AlreadyResumedError):
            await rt.pauses.resume(pause.token, PauseDecision.APPROVE, who=ADA)
    assert place.paid == [5]


async def answered(rt: Runtime, pause: Pause, decision: ApprovalDecision, **options: Any) -> Pause:
    """Answer a call that waits nowhere right now."""
    return await answer_approval(
        rt.pauses, pause.token, decision, redactor=PatternRedactor(), **{"scopes": ADMIN, **options}
    )


async def test_an_answer_is_refused_for_another_principal(place: Place) -> None:
    """Neither another user, nor another tenant's admin, nor a caller without the scope resolves the call."""
    run_id, (pause,) = await asked_for(place)
    async with await place.open() as rt:
        for other in (EVE, STRANGER):
            with pytest.raises(RunNotFoundError):
                await rt.run(run_id, who=other)
            with pytest.raises(PauseScopeMismatchError):
                await rt.pauses.resume(pause.token, PauseDecision.APPROVE, who=other)
            forged = ControlEvent(
                ControlType.APPROVE, other.with_run(run_id), Scope.ADMIN, other.tenant_id, {"token": pause.token}
            )
            with pytest.raises(Exception, match="identity"):
                await (await rt.run(run_id, who=ADA))._engine.send(run_id, forged)
        with pytest.raises(PauseScopeMismatchError):
            await answered(rt, pause, ApprovalDecision.APPROVE, who=STRANGER)
        with pytest.raises(ApprovalScopeRequiredError):
            await answered(rt, pause, ApprovalDecision.APPROVE, who=ADA, scopes=frozenset())
        (still,) = await (await rt.run(run_id, who=ADA)).waiting()
        assert still.is_paused
        assert place.paid == []


async def test_an_approval_does_not_cover_changed_arguments(place: Place) -> None:
    """What was approved is this very call: when the record asks for another one afterwards, it is refused."""
    run_id, (pause,) = await asked_for(place)
    forge(place, run_id)
    async with await place.open() as rt:
        await answered(rt, pause, ApprovalDecision.APPROVE, who=ADA)
        said = await place.ends(await rt.run(run_id, who=ADA))
        assert "was asked for another call than this one" in said["error"]
    assert place.paid == []


def forge(place: Place, run_id: str) -> None:
    """Let the record say that the planner decided to pay a hundred times as much."""
    connection = apsw.Connection(str(place.path))
    connection.set_busy_timeout(20_000)
    where = "run = (SELECT num FROM harborage_runs WHERE run_id = ?)"
    changed = 0
    for number, data in list(connection.execute(f"SELECT num, data FROM harborage_journal WHERE {where}", (run_id,))):
        other = data.replace(b'{\\"amount\\":5}', b'{\\"amount\\":500}').replace(
            b"eyJhbW91bnQiOjV9", b"eyJhbW91bnQiOjUwMH0="
        )
        if other != data:
            changed += 1
            update = "UPDATE harborage_journal SET data = ?, crc = ? WHERE num = ?"
            connection.execute(update, (other, zlib.crc32(other), number))
    connection.close()
    assert changed


async def test_a_stale_handle_is_refused(place: Place) -> None:
    """The handle of a runtime that is closed answers nothing; the call waits on for those that live."""
    async with await place.open() as rt:
        stale = await rt.start("one", who=ADA)
        (pause,) = await place.asked(stale)
    with pytest.raises(EngineClosedError):
        await stale.approve(pause.token)
    async with await place.open() as rt:
        run = await rt.run(stale.id, who=ADA)
        assert [one.token for one in await place.asked(run)] == [pause.token]
    assert place.paid == []


async def test_a_stale_token_is_refused_while_the_run_waits_for_another(place: Place) -> None:
    """Answered once, a token does not answer the next call of the same run, in the next process neither."""
    run_id, pauses = await asked_for(place, "many", 3)
    async with await place.open() as rt:
        run = await rt.run(run_id, who=ADA)
        await run.approve(pauses[0].token)
        await place.made(run, 1)
    async with await place.open() as rt:
        run = await rt.run(run_id, who=ADA)
        with pytest.raises(ApprovalNotFoundError):
            await answered(rt, pauses[0], ApprovalDecision.APPROVE, who=ADA)
        with pytest.raises(AlreadyResumedError, match=r"was resolved before \(approve by \w+ at "):
            await run.approve(pauses[0].token)
        assert [one.token for one in await place.asked(run, 2)] == [one.token for one in pauses[1:]]
        await run.reject(token=pauses[1].token)
        await run.reject(token=pauses[2].token)
        assert (await place.ends(run))[0] == "paid 1"
    assert place.paid == [1]
