"""Scenarios of the store suite: pauses are opened once, answered once, and found by who may answer them."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from harborage.store import (
    Change,
    Commit,
    DropAnswer,
    EventQuery,
    NewEvent,
    NewPause,
    PauseQuery,
    PauseStatus,
    SendControl,
    SettlePause,
    Status,
)
from harborage.store.errors import PauseAnsweredError, PauseSettledError
from harborage.testing.conformance.checks import expect_equal, expect_raises
from harborage.testing.conformance.store_bench import ME, OTHERS, StoreBench, claim, row, start, step


async def a_pause_is_resolved_once(bench: StoreBench) -> None:
    """Of forty concurrent answers one resolves the pause; the other callers get its answer and approver."""
    store, other = bench.store, await bench.another()
    await start(store, "r")
    await store.commit(Commit(opens=(NewPause(token="t", run_id="r", who=ME, reason="approval_required", data=b"q"),)))

    async def answer(by: int) -> str:
        settle = SettlePause(token="t", status=PauseStatus.APPROVED, by=f"approver{by}", answer=b"a")
        event = NewEvent(type="pause.resumed", data=b"{}")
        try:
            await (store if by % 2 else other).commit(Commit(settles=(settle,), who=ME, events=(event,)))
        except PauseSettledError as error:
            return error.row.settled_by
        return f"approver{by}"

    approvers = await asyncio.gather(*(answer(by) for by in range(40)))
    (pause,) = (await store.pauses(PauseQuery(run_ids=("r",)))).rows
    expect_equal((pause.status, pause.answer, pause.data), (PauseStatus.APPROVED, b"a", b"q"), "the pause")
    expect_equal(set(approvers), {pause.settled_by}, "the approver that each caller gets")
    expect_equal(len(await store.events(EventQuery(types=("pause.resumed",)))), 1, "events of a pause that is settled")


async def a_pause_is_opened_once(bench: StoreBench) -> None:
    """Of concurrent commits that open it one succeeds and gets that it is new; a later one changes nothing."""
    store, other = bench.store, await bench.another()
    new = NewPause(token="t", run_id="r", who=ME, reason="await_input", at=7)
    asked = [replace(new, data=bytes([number])) for number in range(10)]
    done = await asyncio.gather(
        *((store if number % 2 else other).commit(Commit(opens=(pause,))) for number, pause in enumerate(asked))
    )
    expect_equal(sorted(opened for one in done for opened in one.opened), [False] * 9 + [True], "who opened it")
    (pause,) = (await store.pauses(PauseQuery())).rows
    expect_equal(pause.data, asked[[one.opened for one in done].index((True,))].data, "the question")
    await store.commit(Commit(settles=(SettlePause(token="t", status=PauseStatus.ANSWERED, by="ada", at=9),)))
    more = await store.commit(Commit(opens=(replace(new, at=8), replace(new, token="other", at=0))))
    expect_equal(more.opened, (False, True), "which were not there")
    (pause,) = (await store.pauses(PauseQuery(tokens=("t",)))).rows
    expect_equal((pause.status, pause.opened_at, pause.settled_at), (PauseStatus.ANSWERED, 7, 9), "the pause")


async def a_pause_has_one_pending_answer(bench: StoreBench) -> None:
    """Of many concurrent answers one is accepted; another one only after that was dropped, none after its effect."""
    store, other = bench.store, await bench.another()
    await start(store, "r")
    await store.commit(Commit(opens=(NewPause(token="t", run_id="r", who=ME, reason="await_input"),)))
    answer = SendControl(run_id="r", event_id="e", type="APPROVE", data=b"{}", answers="t")

    async def send_one(number: int) -> tuple[bool, ...] | None:
        one = Commit(sends=(replace(answer, event_id=f"e{number}"),))
        try:
            return (await (store if number % 2 else other).commit(one)).sent
        except PauseAnsweredError as error:
            expect_equal(error.row.token, "t", "the pause with a pending answer")
            return None

    async def answering() -> str:
        return (await store.pauses(PauseQuery(tokens=("t",)))).rows[0].answering

    done = await asyncio.gather(*(send_one(number) for number in range(20)))
    first = f"e{done.index((True,))}"
    expect_equal((done.count((True,)), done.count(None)), (1, 19), "answers that were taken, and refused")
    expect_equal([one.event_id for one in await store.controls("r")], [first], "what the run gets")
    expect_equal((await store.commit(Commit(sends=(replace(answer, event_id=first),)))).sent, (False,), "once more")
    await store.commit(Commit(drops=(DropAnswer(token="t", event_id="other"),)))
    expect_equal(await answering(), first, "the pending answer after another one was dropped")
    await store.commit(Commit(drops=(DropAnswer(token="t", event_id=first), DropAnswer(token="none", event_id="e"))))
    expect_equal(await answering(), "", "the pending answer after it was dropped")
    await store.commit(Commit(sends=(replace(answer, event_id="second"),)))
    await store.commit(Commit(settles=(SettlePause(token="t", status=PauseStatus.APPROVED, by="boss"),)))
    await store.commit(Commit(drops=(DropAnswer(token="t", event_id="second"),)))
    expect_equal(await answering(), "second", "which answer resolved it")
    late = store.commit(Commit(sends=(replace(answer, event_id="late"),)))
    await expect_raises(PauseSettledError, late, "an answer after it was resolved")
    expect_equal((await store.commit(Commit(sends=(replace(answer, event_id="second"),)))).sent, (False,), "again")
    strange = replace(answer, event_id="strange", answers="unknown")
    expect_equal((await store.commit(Commit(sends=(strange,)))).sent, (True,), "an answer to a pause that is elsewhere")


async def an_answer_can_claim_its_run(bench: StoreBench) -> None:
    """A worker that sends the answer claims the run with it; without one the run is ready for any worker."""
    store = bench.store
    await store.join("one")
    for run_id, take in (("a", "one"), ("b", "")):
        lease = await start(store, run_id, worker="one")
        opens = (NewPause(token=run_id, run_id=run_id, who=ME, reason="await_input"),)
        await store.commit(step(lease, 1, b"p", opens=opens, change=Change(status=Status.PAUSED, release=True)))
        expect_equal((await row(store, run_id)).owner, "", "the owner of a run that waits")
        settle = SettlePause(token=run_id, status=PauseStatus.ANSWERED)
        done = await store.commit(Commit(settles=(settle,), take=take))
        expect_equal([taken.run_id for taken in done.taken], [run_id] if take else [], "what is taken")
        if take:
            await store.commit(step(done.taken[0], 2, b"next"))
    (ready,) = await claim(store, "one", "b")
    expect_equal(
        (ready.row.status, ready.row.fence), (Status.PAUSED, 2), "a claimed run keeps waiting until it says so"
    )


async def pauses_are_listed_by_who_may_answer_them(bench: StoreBench) -> None:
    """Pauses of a user, open ones of a tenant, of a run and by token; resolved ones stay readable."""
    store = bench.store
    for number, who in enumerate((ME, *OTHERS)):
        for name in ("open", "settled"):
            token = f"{name}{number}"
            pause = NewPause(token=token, run_id=f"r{number}", who=who, reason="approval_required")
            await store.commit(Commit(opens=(pause,)))
            bench.later(1)
            if name == "settled":
                await store.commit(Commit(settles=(SettlePause(token=token, status=PauseStatus.REJECTED, by="boss"),)))

    async def tokens(query: PauseQuery) -> list[str]:
        found = (await store.pauses(query)).rows
        expect_equal(await store.count_pauses(replace(query, limit=1)), len(found), f"how many {query} finds")
        return [one.token for one in found]

    mine = PauseQuery(tenant=ME.tenant_id, user=ME.user_id)
    expect_equal(await tokens(mine), ["settled3", "open3", "settled0", "open0"], "of a user")
    expect_equal(await tokens(replace(mine, session=ME.session_id)), ["settled0", "open0"], "of a session")
    only_open = PauseQuery(tenant=ME.tenant_id, statuses=(PauseStatus.OPEN,))
    expect_equal(await tokens(only_open), ["open3", "open2", "open0"], "the open ones of a tenant")
    every_open = PauseQuery(statuses=(PauseStatus.OPEN,))
    expect_equal(await tokens(every_open), ["open3", "open2", "open1", "open0"], "the open ones of all tenants")
    of_session = PauseQuery(tenant=ME.tenant_id, session=OTHERS[1].session_id)
    expect_equal(
        await tokens(of_session),
        ["settled2", "open2", "settled0", "open0"],
        "of sessions of one name, of all owners",
    )
    expect_equal(await tokens(PauseQuery(run_ids=("r1",))), ["settled1", "open1"], "of a run")
    expect_equal(await tokens(PauseQuery(tokens=("open2", "unknown"))), ["open2"], "by token")
    expect_equal(await tokens(replace(mine, reasons=("await_input",))), [], "of another reason")
    page = await store.pauses(replace(mine, limit=3))
    rest = await store.pauses(replace(mine, limit=3, after=page.cursor))
    expect_equal(([one.token for one in rest.rows], rest.cursor), (["open0"], None), "the last page")


async def pauses_are_due_at_their_deadline(bench: StoreBench) -> None:
    """Open ones whose deadline has come, of all or of one tenant; resolved ones and those without one are never due."""
    store = bench.store
    for number, (who, deadline) in enumerate([(ME, 10), (OTHERS[0], 20), (ME, 30), (ME, None), (ME, 5)]):
        pause = NewPause(token=f"t{number}", run_id="r", who=who, reason="await_input", deadline=deadline)
        await store.commit(Commit(opens=(pause,)))
        bench.later(1)
    await store.commit(Commit(settles=(SettlePause(token="t4", status=PauseStatus.ANSWERED),)))

    async def due(at: int, **parts: Any) -> list[str]:
        return [one.token for one in (await store.pauses(PauseQuery(due=at, **parts))).rows]

    expect_equal([await due(at) for at in (9, 10, 29, 30)], [[], ["t0"], ["t1", "t0"], ["t2", "t1", "t0"]], "when due")
    expect_equal(await due(30, tenant=ME.tenant_id), ["t2", "t0"], "of a tenant")
    expect_equal(await due(30, tokens=("t0", "t4")), ["t0"], "by token")
    page = await store.pauses(PauseQuery(due=30, limit=2))
    rest = await store.pauses(PauseQuery(due=30, after=page.cursor))
    expect_equal([one.token for one in rest.rows], ["t0"], "the last page")


async def pauses_without_a_run_are_deleted_in_the_end(bench: StoreBench) -> None:
    """They are deleted long after they were resolved; open ones stay, and those of a run are deleted with it."""
    store = bench.store
    await start(store, "r")
    for token, run_id, at in (("old", "", 5), ("new", "", 6), ("open", "", 0), ("of a run", "r", 1)):
        await store.commit(Commit(opens=(NewPause(token=token, run_id=run_id, who=ME, reason="await_input", at=1),)))
        if at:
            await store.commit(Commit(settles=(SettlePause(token=token, status=PauseStatus.ANSWERED, at=at),)))
    expect_equal([await store.drop_pauses(6) for _ in range(2)], [1, 0], "how many were dropped")
    left = {one.token for one in (await store.pauses(PauseQuery())).rows}
    expect_equal(left, {"new", "open", "of a run"}, "what is left")


SCENARIOS = (
    a_pause_is_resolved_once,
    a_pause_is_opened_once,
    a_pause_has_one_pending_answer,
    an_answer_can_claim_its_run,
    pauses_are_listed_by_who_may_answer_them,
    pauses_are_due_at_their_deadline,
    pauses_without_a_run_are_deleted_in_the_end,
)
