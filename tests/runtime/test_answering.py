"""Answers through the handle of a run: whoever gives one learns at once when it is for no question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harborage.identity import Identity
from harborage.planner import CallParallel, CallTool, Finish, FinishReason, PauseReason, RequestPause
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable import RunNotFoundError
from harborage.runtime.pauses import AlreadyResumedError, PauseAmbiguousError, PauseNotFoundError
from harborage.runtime.steering import NoOutstandingPauseError, Scope, ScopeMismatchError
from harborage.testing.clock import settle

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
ASK = RequestPause(PauseReason.AWAIT_INPUT, {"q": 1})
Runtimes = Callable[..., Any]


async def pay(n: int = 0) -> int:
    """Pay."""
    return n


def paying(*amounts: int) -> Any:
    """Calls of `pay`, side by side when there are several."""
    calls = tuple(CallTool("pay", b'{"n":%d}' % n) for n in amounts)
    return calls[0] if len(calls) == 1 else CallParallel(calls)


def told(run: Any) -> Finish:
    hint = run.trajectory.resume_hint
    if hint is not None:
        return Finish(FinishReason.GOAL, hint.resume_payload)
    return Finish(FinishReason.GOAL, run.trajectory.steps[-1].observation)


async def begun(runtimes: Runtimes, decision: Any) -> tuple[Any, Any]:
    """A run that waits with this decision."""
    bench = await runtimes([decision, told], tools=[pay], approvals={"pay": AlwaysDeny()})
    run = await bench.start()
    await settle()
    return bench, run


async def test_an_answer_without_a_token_is_for_the_one_open_pause(runtimes: Runtimes) -> None:
    """Of a call, or of the planner, which is not shown the token by which the pause was named."""
    table: list[tuple[Any, str, dict[str, Any], Any]] = [
        (paying(1), "approve", {}, 1),
        (paying(1), "approve", {"args": {"n": 2}}, 2),
        (paying(1), "reject", {"reason": "no"}, None),
        (ASK, "approve", {"reason": "fine"}, {"q": 1, "reason": "fine", "decision": "approve"}),
    ]
    for decision, verb, more, wanted in table:
        bench, run = await begun(runtimes, decision)
        assert await getattr(run, verb)(**more), (verb, more)
        finish = await bench.end(run)
        if wanted is not None:
            assert finish.payload == wanted, (verb, more)
        else:
            assert "no" in finish.payload["error"], finish
    bench, run = await begun(runtimes, ASK)
    await run.reject()
    assert (await bench.end(run)).metadata["steering_reason"] == "control_reject"


async def test_an_answer_for_none_of_several_pauses_is_refused_with_their_list(runtimes: Runtimes) -> None:
    """Oldest first, each with what it is about; nothing is settled, and with a token each can be."""
    bench, run = await begun(runtimes, paying(1, 2))
    tokens = [pause.token for pause in reversed(await run.waiting())]
    for verb in (run.approve, run.reject):
        with pytest.raises(PauseAmbiguousError, match="waits for 2 answers; name one by its token") as refused:
            await verb()
        assert list(refused.value.tokens) == tokens
        assert all(f"{token} (approval_required: pay)" in str(refused.value) for token in tokens)
    assert len(await run.waiting()) == 2
    for token in tokens:
        await run.approve(token)
    await bench.end(run)
    assert bench.told.types.count("control.rejected") == 2


async def test_an_answer_to_nothing_is_refused(runtimes: Runtimes) -> None:
    """To a run that waits for nothing, under a token that is unknown, used, or another run's, and after the end."""
    bench, run = await begun(runtimes, ASK)
    other = await bench.start()
    await settle()
    foreign = (await bench.paused(other)).token
    used = (await bench.paused(run)).token
    for token in ("nobody's", foreign):
        for verb in (run.approve, run.reject, lambda token: run.resume({"token": token})):
            with pytest.raises(PauseNotFoundError):
                await verb(token)
    assert (await bench.paused(run)).token == used
    assert (await bench.paused(other)).token == foreign
    await other.approve()
    await bench.end(other)
    with pytest.raises(RunNotFoundError, match="has ended"):
        await other.approve()
    with pytest.raises(RunNotFoundError, match="has ended"):
        await other.approve(foreign)
    assert bench.told.types.count("control.rejected") == 6


async def test_an_answer_to_a_run_that_waits_for_none_is_refused(runtimes: Runtimes) -> None:
    """While it is at work; a pause that was answered is not there to be answered again."""
    bench, run = await begun(runtimes, ASK)
    (pause,) = await run.waiting()
    await run.pause()
    await bench.rt.pauses.resume(pause.token, "resume", who=ME)
    with pytest.raises(NoOutstandingPauseError, match="waits for no answer; there is nothing to approve"):
        await run.approve()
    with pytest.raises(AlreadyResumedError, match=r"was settled before \(resume\)"):
        await run.approve(pause.token)
    await settle()
    await run.approve()  # what the pause that was asked for above is settled by
    await bench.end(run)


async def test_who_may_not_answer_learns_nothing_of_what_is_open(runtimes: Runtimes) -> None:
    """The scope is checked first."""
    bench, run = await begun(runtimes, ASK)
    weak = await bench.rt.run(run.id, who=ME, scope=Scope.SESSION_USER)
    for token in ("", "nobody's", (await bench.paused(run)).token):
        with pytest.raises(ScopeMismatchError):
            await weak.approve(token)
    assert bench.told.types.count("control.rejected") == 3
