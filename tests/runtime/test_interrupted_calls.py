"""A tool call whose worker dies between intent and outcome: retried, probed, reported or answered by a person."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from harborage.events import EventType
from harborage.identity import Identity
from harborage.planner import CallTool, Finish, FinishReason, RunContext
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import Pause
from harborage.runtime.run import Run
from harborage.state.storage import Storage, open_storage
from harborage.store.sqlite import Database
from harborage.testing.clock import FakeClock, settle
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import (
    CallContext,
    OnUnknown,
    Probed,
    SideEffect,
    ToolCatalog,
    ToolDescriptor,
    ToolInvalidError,
    ToolPolicy,
    UnsupportedTypeError,
    tool,
)
from tests.kit.stored_runs import row_of
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")


def answer(run: RunContext) -> Finish:
    """Finish with what the call gave."""
    return Finish(FinishReason.GOAL, run.trajectory.steps[0].observation)


SCRIPT = ScriptedPlanner([CallTool("pay", b'{"amount":5}'), answer])


class Bank:
    """Pays, and knows what it has paid; its answers can be held back for ever."""

    def __init__(self, *, acts_first: bool = True) -> None:
        self.paid: dict[str, int] = {}
        self.calls: list[str] = []
        self.asked: list[tuple[str, int]] = []
        self.is_silent = True
        self.reached = asyncio.Event()
        self._acts_first = acts_first

    async def pay(self, call: CallContext, amount: int) -> str:
        """Pay an amount."""
        self.calls.append(call.idempotency_key)
        if self._acts_first:
            self.paid[call.idempotency_key] = amount
        if self.is_silent:
            self.reached.set()
            await asyncio.Event().wait()
        self.paid[call.idempotency_key] = amount
        return f"paid {amount}"

    async def look(self, call: CallContext, amount: int) -> Probed:
        """What has become of a payment."""
        self.asked.append((call.idempotency_key, amount))
        acted = call.idempotency_key in self.paid
        return Probed(acted, f"found {amount}" if acted else None)

    def tool(self, on_unknown: OnUnknown | None = None, **options: Any) -> ToolDescriptor:
        """The payment as a tool."""
        return tool(
            self.pay,
            effects=SideEffect.EXTERNAL,
            policy=ToolPolicy(on_unknown=on_unknown, timeout_ms=0),
            **options,
        )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def storage(clock: FakeClock) -> AsyncIterator[Storage]:
    """A storage in memory that outlives the runtimes of a test."""
    async with await open_storage("memory:", clock=clock) as opened:
        yield opened


class Process:
    """Runtimes over one storage, one after the other."""

    def __init__(self, storage: Storage, clock: FakeClock) -> None:
        self.storage = storage
        self.clock = clock

    def runtime(self, pay: ToolDescriptor | None) -> Runtime:
        return Runtime(
            planner=SCRIPT,
            tools=() if pay is None else (pay,),
            storage=self.storage,
            clock=self.clock,
            options=RuntimeOptions(linger=timedelta(0)),
        )

    async def die_in(self, bank: Bank, pay: ToolDescriptor) -> str:
        """Start a run whose process dies in the middle of its payment; the run's id."""
        async with self.runtime(pay) as rt:
            run = await rt.start("go", who=ME)
            async with asyncio.timeout(20):
                await bank.reached.wait()
        bank.is_silent = False
        bank.reached.clear()
        return run.id


@pytest.fixture
def process(storage: Storage, clock: FakeClock) -> Process:
    return Process(storage, clock)


async def end(run: Run) -> Any:
    """What the run's finish holds."""
    async with asyncio.timeout(20):
        return (await run.finished()).payload


async def asked(run: Run) -> Pause:
    """The question about a call in doubt, once it is put."""
    async with asyncio.timeout(20):
        while not (pauses := await run.waiting()):  # noqa: ASYNC110 - a pause that is kept tells nobody here
            await asyncio.sleep(0)
    return pauses[0]


async def published_outcomes(run: Run) -> list[tuple[str, str]]:
    """What was published of calls in doubt: the tool's policy, and what came of it. Each names its step and call."""
    told = [event.payload async for event in run.events() if event.type == EventType.TOOL_INTERRUPTED]
    assert all(one.step and one.call_id for one in told)
    return [(one.on_unknown, one.outcome) for one in told]


@each_row(
    "options, wanted",
    [
        ({"effects": SideEffect.READ}, OnUnknown.RETRY),
        ({"effects": SideEffect.WRITE, "idempotent": True}, OnUnknown.RETRY),
        ({"effects": SideEffect.WRITE}, OnUnknown.REPORT),
        ({}, OnUnknown.REPORT),
        ({"effects": SideEffect.READ, "policy": ToolPolicy(on_unknown=OnUnknown.PAUSE)}, OnUnknown.PAUSE),
    ],
)
def test_what_a_tool_says_when_it_says_nothing(options: Any, wanted: OnUnknown) -> None:
    """What changes nothing or acts once per key is made again, the rest is reported; a policy has the last word."""

    def act() -> None:
        """Act."""

    assert tool(act, **options).tool.on_unknown is wanted


async def test_a_keyed_call_is_made_again_under_its_key(process: Process) -> None:
    """The tool that promised to act once per key gets the same key, as argument, header and metadata."""
    bank = Bank()
    pay = bank.tool(idempotent=True)
    run_id = await process.die_in(bank, pay)
    async with process.runtime(pay) as rt:
        run = await rt.run(run_id, who=ME)
        assert await end(run) == "paid 5"
        assert await published_outcomes(run) == [("retry", "repeated")]
    assert len(bank.calls) == 2
    assert len(set(bank.calls)) == len(bank.paid) == 1


def test_a_key_travels_as_header_and_as_metadata() -> None:
    """Transports hand it on under the names that others look for; a call without a key has none."""
    call = CallContext(ME.with_run("r"), idempotency_key="r/7")
    assert call.key_headers == {"Idempotency-Key": "r/7"}
    assert call.key_meta == {"dev.harborage/idempotency-key": "r/7"}
    assert CallContext(ME.with_run("r")).key_headers == CallContext(ME.with_run("r")).key_meta == {}


async def test_a_call_may_be_made_again_because_its_tool_says_so(process: Process) -> None:
    """Without a key of its own the tool answers for that itself."""
    bank = Bank()
    pay = bank.tool(OnUnknown.RETRY)
    run_id = await process.die_in(bank, pay)
    async with process.runtime(pay) as rt:
        assert await end(await rt.run(run_id, who=ME)) == "paid 5"
    assert len(bank.calls) == 2


async def test_an_unknown_outcome_is_reported(process: Process) -> None:
    """The planner reads that the outcome is unknown, and the call is not made again."""
    bank = Bank()
    run_id = await process.die_in(bank, bank.tool())
    async with process.runtime(bank.tool()) as rt:
        run = await rt.run(run_id, who=ME)
        assert (
            'tool "pay" was interrupted when its worker died; whether it acted is unknown' in (await end(run))["error"]
        )
        assert await published_outcomes(run) == [("report", "unknown")]
    assert len(bank.calls) == 1


async def test_a_tool_that_is_gone_is_not_known_to_have_failed(process: Process) -> None:
    """It may have acted while it was there."""
    bank = Bank()
    run_id = await process.die_in(bank, bank.tool(OnUnknown.RETRY))
    async with process.runtime(None) as rt:
        assert "whether it acted is unknown" in (await end(await rt.run(run_id, who=ME)))["error"]


@pytest.mark.parametrize("acts_first", [True, False])
async def test_a_probe_finds_out(process: Process, acts_first: bool) -> None:
    """It is asked with the arguments and the key: what acted is not done again, what did not is."""
    bank = Bank(acts_first=acts_first)
    pay = bank.tool(probe=bank.look)
    assert pay.tool.on_unknown is OnUnknown.PROBE
    run_id = await process.die_in(bank, pay)
    async with process.runtime(pay) as rt:
        run = await rt.run(run_id, who=ME)
        assert await end(run) == ("found 5" if acts_first else "paid 5")
        assert await published_outcomes(run) == [("probe", "known" if acts_first else "repeated")]
    assert bank.asked == [(bank.calls[0], 5)]
    assert len(bank.calls) == (1 if acts_first else 2)
    assert len(bank.paid) == 1


async def test_a_probe_without_an_answer_leaves_the_outcome_unknown(process: Process) -> None:
    """Then the outcome is unknown, which is what the planner reads, with the reason."""

    async def shrug() -> Probed:
        """Does not know the outcome."""
        return Probed()

    async def fall() -> Probed:
        """Fails for good."""
        raise PermissionError("no access")

    async def babble() -> str:
        """Gives something else."""
        return "yes"

    for probe, why in ((shrug, "cannot tell"), (fall, "no access"), (babble, "returned str, expected Probed")):
        bank = Bank()
        pay = tool(bank.pay, effects=SideEffect.WRITE, probe=probe, policy=ToolPolicy(timeout_ms=0, max_retries=0))
        run_id = await process.die_in(bank, pay)
        async with process.runtime(pay) as rt:
            run = await rt.run(run_id, who=ME)
            assert why in (await end(run))["error"]
            assert await published_outcomes(run) == [("probe", "unknown")]
        assert len(bank.calls) == 1


def test_a_tool_to_be_probed_needs_its_probe() -> None:
    """That is said when the tool is registered, not after the first crash."""
    bank = Bank()
    with pytest.raises(ToolInvalidError, match="pass `probe=`"):
        ToolCatalog().register(bank.tool(OnUnknown.PROBE))

    async def look(receipt: str) -> Probed:
        """Look."""
        return Probed()

    with pytest.raises(UnsupportedTypeError, match="no argument receipt"):
        bank.tool(probe=look)


async def test_a_person_is_asked(process: Process) -> None:
    """The question shows the call and has a deadline; the answer is what the planner gets."""
    bank = Bank()
    pay = bank.tool(OnUnknown.PAUSE)
    run_id = await process.die_in(bank, pay)
    async with process.runtime(pay) as rt:
        run = await rt.run(run_id, who=ME)
        pause = await asked(run)
        assert pause.payload is not None
        assert (pause.payload["question"], pause.payload["tool"]) == ("unknown_outcome", "pay")
        assert pause.payload["args_summary"]["args"] == {"amount": 5}
        assert pause.payload["idempotency_key"] == bank.calls[0]
        assert pause.deadline == process.clock.now() + RuntimeOptions().approval_ttl
        await run.resume({"token": pause.token, "result": "the ledger says paid"})
        assert await end(run) == "the ledger says paid"
        assert await published_outcomes(run) == [("pause", "known")]
        assert await run.waiting() == []
    assert len(bank.calls) == 1


async def test_a_person_may_have_the_call_made_again_or_not(process: Process) -> None:
    """An approval, or saying that it did not act, repeats it under its key; a rejection leaves it unknown."""
    for say, wanted, calls in (
        (lambda run, token: run.approve(token), "paid 5", 2),
        (lambda run, token: run.resume({"token": token, "acted": False}), "paid 5", 2),
        (lambda run, token: run.resume({"token": token, "acted": True}), None, 1),
        (lambda run, token: run.reject("ask the bank", token=token), "unknown", 1),
        (lambda run, token: run.resume({"token": token}), "unknown", 1),
    ):
        bank = Bank()
        pay = bank.tool(OnUnknown.PAUSE)
        run_id = await process.die_in(bank, pay)
        async with process.runtime(pay) as rt:
            run = await rt.run(run_id, who=ME)
            await say(run, (await asked(run)).token)
            got = await end(run)
            assert wanted in got["error"] if wanted == "unknown" else got == wanted
        assert len(bank.calls) == calls
        assert len(set(bank.calls)) == 1


async def test_a_call_is_not_made_again_with_its_own_arguments_for_an_answer_that_names_others(
    process: Process,
) -> None:
    """The control fails, and the question stays open."""
    bank = Bank()
    pay = bank.tool(OnUnknown.PAUSE)
    run_id = await process.die_in(bank, pay)
    async with process.runtime(pay) as rt:
        run = await rt.run(run_id, who=ME)
        token = (await asked(run)).token
        await run.approve(token, args={"amount": 1})
        await settle()
        assert [one.token for one in await run.waiting()] == [token]
        assert len(bank.calls) == 1
        await run.reject(token=token)
        assert "unknown" in (await end(run))["error"]
        outcomes = [one.payload async for one in run.events() if one.type == EventType.CONTROL_APPLIED]
        assert [(one.outcome, one.err) for one in outcomes] == [("failed", "payload_invalid"), ("applied", "")]


async def test_the_question_outlives_processes_and_is_put_anew_after_another_crash(process: Process) -> None:
    """Asked in one process, answered in a second without anybody serving, repeated and interrupted again in a third:
    the old answer does not count for the new doubt."""
    bank = Bank()
    pay = bank.tool(OnUnknown.PAUSE)
    run_id = await process.die_in(bank, pay)
    async with process.runtime(pay) as rt:
        first = await asked(await rt.run(run_id, who=ME))
        async with asyncio.timeout(20):
            while (await row_of(process.storage.store, run_id)).owner:
                await process.clock.run_for(0.1)  # it only waits: it leaves memory
    bank.is_silent = True
    async with process.runtime(pay) as rt:
        run = await rt.run(run_id, who=ME)
        assert (await asked(run)).token == first.token
        await run.approve(first.token)
        async with asyncio.timeout(20):
            await bank.reached.wait()
    bank.is_silent = False
    async with process.runtime(pay) as rt:
        run = await rt.run(run_id, who=ME)
        second = await asked(run)
        assert second.token != first.token
        await run.reject(token=second.token)
        assert "unknown" in (await end(run))["error"]
        assert await published_outcomes(run) == [("pause", "repeated"), ("pause", "unknown")]
    assert len(bank.calls) == 2


async def test_an_unanswered_question_ends_at_its_deadline(process: Process) -> None:
    """After the time that a call may wait the outcome is unknown, and nothing waits any more."""
    bank = Bank()
    pay = bank.tool(OnUnknown.PAUSE)
    run_id = await process.die_in(bank, pay)
    async with process.runtime(pay) as rt:
        run = await rt.run(run_id, who=ME)
        await asked(run)
    await process.clock.run_for(RuntimeOptions().approval_ttl.total_seconds())
    async with process.runtime(pay) as rt:
        run = await rt.run(run_id, who=ME)
        assert "no person reported its outcome in time" in (await end(run))["error"]
        assert await run.waiting() == []


async def test_a_cancelled_run_takes_its_question_along(process: Process) -> None:
    """A hard cancel ends the wait for a person, and no question about the ended run stays open."""
    bank = Bank()
    pay = bank.tool(OnUnknown.PAUSE)
    run_id = await process.die_in(bank, pay)
    async with process.runtime(pay) as rt:
        await asked(await rt.run(run_id, who=ME))
    async with process.runtime(pay) as rt:
        run = await rt.run(run_id, who=ME)
        await run.cancel(hard=True)
        async with asyncio.timeout(20):
            assert (await run.finished()).reason is FinishReason.CANCELLED
        assert await run.waiting() == []
    assert len(bank.calls) == 1


async def test_the_outcome_of_a_call_that_may_not_be_repeated_is_on_disk_before_the_planner_goes_on(
    tmp_path: Path,
) -> None:
    """A planner that never gives way again finds the outcome of such a call on disk; others may be on their way."""
    file = tmp_path / "runs.db"
    on_disk: list[list[str]] = []

    def look(run: RunContext) -> Finish:
        outside = apsw.Connection(str(file))
        rows = outside.execute("SELECT data FROM harborage_journal ORDER BY num")
        entries = [msgspec.json.decode(data) for (data,) in rows]
        outside.close()
        on_disk.append([one["entry"] for one in entries if str(one.get("name", "")).startswith("tool.")])
        return Finish(FinishReason.GOAL)

    async def act() -> int:
        return 1

    options = {"none": {"effects": SideEffect.WRITE}, "read": {"effects": SideEffect.READ}}
    for kind, declared in options.items():
        planner = ScriptedPlanner([CallTool("act", b"{}"), look])
        storage = await open_storage(f"sqlite:{file}")
        async with Runtime(planner=planner, tools=[tool(**declared)(act)], storage=storage) as rt:
            run = await rt.start(kind, who=ME)
            await run.finished()
        await storage.aclose()
    # Only the intent of the reading call need be there beside the call before it.
    assert on_disk[0] == ["begun", "done"]
    assert on_disk[1][:3] == ["begun", "done", "begun"]


async def test_a_write_is_under_way_once_it_was_asked_for_though_the_loop_is_blocked(tmp_path: Path) -> None:
    """A write needs no further turn of the event loop: a blocked loop does not delay the write to disk."""
    database = await Database.open(tmp_path / "a.db")
    done = threading.Event()
    writing = asyncio.ensure_future(database.write(lambda tx: done.set()))
    assert done.wait(10)
    await writing
    await database.aclose()
