"""Answers through the handle of a run: a caller whose answer fits no open pause gets an error at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from harborage.errors import HarborageError, InvalidOptionError
from harborage.events import ControlLifecyclePayload, ControlRejectedPayload, Triple
from harborage.identity import Identity
from harborage.planner import CallParallel, CallTool, Finish, FinishReason, PauseReason, RequestPause
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.loop.controls import ControlType
from harborage.runtime.loop.limits import Limits
from harborage.runtime.pauses import AlreadyResumedError, PauseAmbiguousError, PauseNotFoundError
from harborage.runtime.steering import NoOutstandingPauseError, PayloadInvalidError, Scope, ScopeMismatchError
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


def finish_with_answer(run: Any) -> Finish:
    hint = run.trajectory.resume_hint
    if hint is not None:
        return Finish(FinishReason.GOAL, hint.resume_payload)
    return Finish(FinishReason.GOAL, run.trajectory.steps[-1].observation)


async def begun(runtimes: Runtimes, decision: Any) -> tuple[Any, Any]:
    """A run that waits with this decision."""
    bench = await runtimes([decision, finish_with_answer], tools=[pay], approvals={"pay": AlwaysDeny()})
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
    """Oldest first, each with what it is about; nothing is resolved, and with a token each can be."""
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
    assert bench.recorder.types.count("control.rejected") == 2


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
                await verb(token=token)
    assert (await bench.paused(run)).token == used
    assert (await bench.paused(other)).token == foreign
    await other.approve()
    await bench.end(other)
    with pytest.raises(RunNotFoundError, match="has ended"):
        await other.approve()
    with pytest.raises(RunNotFoundError, match="has ended"):
        await other.approve(foreign)
    assert bench.recorder.types.count("control.rejected") == 6


async def test_a_resume_decides_nothing_about_a_call(runtimes: Runtimes) -> None:
    """Named, it is refused; unnamed, it waits for a pause of the run; either way the approval can still be given."""
    bench, run = await begun(runtimes, paying(1))
    (pause,) = await run.waiting()
    for verb in (lambda: run.resume({"token": pause.token}), lambda: run.answer("yes")):
        with pytest.raises(NoOutstandingPauseError, match="approve or reject|nothing to resume"):
            await verb()
    assert await run.control(ControlType.RESUME, {}, event_id="resume-1")
    with pytest.raises(NoOutstandingPauseError):
        await run.control(ControlType.RESUME, {"token": pause.token}, event_id="resume-2")
    assert [one.token for one in await run.pending()] == [pause.token]
    assert await run.control(ControlType.APPROVE, {}, event_id="approve-1")
    finish = await bench.end(run)
    assert finish.payload == 1


async def test_an_answer_to_a_run_that_waits_for_none_is_refused(runtimes: Runtimes) -> None:
    """While it is at work; a pause that was answered is not there to be answered again."""
    bench, run = await begun(runtimes, ASK)
    (pause,) = await run.waiting()
    await run.pause()
    await bench.rt.pauses.resume(pause.token, "resume", who=ME)
    with pytest.raises(NoOutstandingPauseError, match="waits for no answer; there is nothing to approve"):
        await run.approve()
    with pytest.raises(AlreadyResumedError, match=r"was resolved before \(resume by \w+ at "):
        await run.approve(pause.token)
    await settle()
    await run.approve()  # what the pause that was asked for above is resolved by
    await bench.end(run)


async def test_who_may_not_answer_learns_nothing_of_what_is_open(runtimes: Runtimes) -> None:
    """The scope is checked first."""
    bench, run = await begun(runtimes, ASK)
    weak = await bench.rt.run(run.id, who=ME, scope=Scope.SESSION_USER)
    for token in ("", "nobody's", (await bench.paused(run)).token):
        with pytest.raises(ScopeMismatchError):
            await weak.approve(token)
    assert bench.recorder.types.count("control.rejected") == 3


async def test_arguments_that_are_no_object_are_refused_before_anything_is_sent(runtimes: Runtimes) -> None:
    """The person meant other arguments than the call's own, so the call is not made with its own; it waits on."""
    bench, run = await begun(runtimes, paying(1))
    for wrong in ('{"n": 2}', b"{}", [2], 5, True, (), 0, ""):
        with pytest.raises(InvalidOptionError, match="^approve: args=.*expected a dict or None"):
            await run.approve(args=wrong)
    await settle()
    assert bench.controls == []
    assert await run.approve(args={"n": 2})
    assert (await bench.end(run)).payload == 2


async def test_a_control_whose_arguments_are_no_object_fails_and_the_call_waits_on(runtimes: Runtimes) -> None:
    """A client of a protocol sends controls that no handle has checked; so do arguments that the tool does not take."""
    bench, run = await begun(runtimes, paying(1))
    token = (await bench.paused(run)).token
    for wrong in ('{"n": 2}', [2], 5, False, "", {"n": "two"}):
        await run._send(ControlType.APPROVE, {"token": token, "args": wrong})
        await settle()
        assert bench.controls[-1] == ("APPROVE", "failed", "payload_invalid"), wrong
        assert (await bench.paused(run)).token == token, wrong
    await run.approve(token, args={"n": 3})
    assert (await bench.end(run)).payload == 3


async def test_a_parameter_of_the_wrong_type_is_named_with_what_it_takes(runtimes: Runtimes) -> None:
    """In one line, before anything is sent or started."""
    bench, run = await begun(runtimes, ASK)
    table: list[tuple[Any, str]] = [
        (lambda: run.resume("hello"), "resume: payload='hello': expected a dict or None"),
        (lambda: run.resume([1]), "resume: payload=[1]: expected a dict or None"),
        (lambda: run.inject("text"), "inject: context='text': expected a dict"),
        (lambda: run.inject(None), "inject: context=None: expected a dict"),
        (lambda: run.message({"a": 1}), "message: text={'a': 1}: expected a text"),
        (lambda: run.message(None), "message: text=None: expected a text"),
        (lambda: run.redirect(5), "redirect: goal=5: expected a text"),
        (lambda: run.approve(5), "approve: token=5: expected a text"),
        (lambda: run.approve(reason=None), "approve: reason=None: expected a text"),
        (lambda: run.reject(reason=5), "reject: reason=5: expected a text"),
        (lambda: bench.rt.start("g", who="ada"), "start: who='ada': expected an identity, such as Identity("),
        (lambda: bench.rt.start(5, who=ME), "start: goal=5: expected a text"),
        (lambda: bench.rt.start("g", who=ME, deadline="noon"), "start: deadline='noon': expected a datetime"),
        (lambda: bench.rt.start("g", who=ME, limits={"steps": 3}), "limits={'steps': 3}: expected harborage.Limits("),
    ]
    for call, wanted in table:
        with pytest.raises(HarborageError) as caught:
            await call()
        assert str(caught.value).startswith(wanted), (wanted, str(caught.value))
        assert "\n" not in str(caught.value), wanted
    await settle()
    assert bench.controls == []


async def test_an_approval_says_the_deadline_of_its_run_where_that_comes_first(runtimes: Runtimes) -> None:
    """Every screen shows the moment from which no answer counts: the run ends then, and the call is not made."""
    bench = await runtimes([paying(1), finish_with_answer], tools=[pay], approvals={"pay": AlwaysDeny()})
    run = await bench.start(limits=Limits(seconds=60))
    pause = await bench.paused(run)
    assert pause.deadline == bench.clock.now() + timedelta(seconds=60)
    await bench.clock.run_for(61)
    assert (await bench.end(run)).reason is FinishReason.DEADLINE_EXCEEDED
    with pytest.raises((AlreadyResumedError, RunNotFoundError)):
        await run.approve(pause.token)
    patient = await bench.start(limits=Limits(seconds=10_000_000))
    assert (await bench.paused(patient)).deadline == bench.clock.now() + RuntimeOptions().approval_ttl


async def test_an_approval_is_remembered(runtimes: Runtimes) -> None:
    """Through the run or the question, for the run or always; another word is refused before anything is sent."""
    bench = await runtimes(
        [paying(1), paying(1), paying(2), finish_with_answer], tools=[pay], approvals={"pay": AlwaysDeny()}
    )
    run = await bench.start()
    pending = await run.wait_pending()
    for verb in (run.approve, pending.approve):
        with pytest.raises(InvalidOptionError, match="remember"):
            await verb(remember="forever")
    await pending.approve(remember="always")
    await run.wait_pending()  # for the other amount
    assert [one.tool for one in await bench.rt.grants.list(who=ME)] == ["pay"]
    await run.approve(remember="run")
    assert (await bench.end(run)).payload == 2
    assert bench.recorder.types.count("pause.requested") == 2


async def test_a_control_is_sent_by_its_type(runtimes: Runtimes) -> None:
    """Each of the nine, once under its id, to a run or to the only pause below it; who sent it is published."""
    bench, run = await begun(runtimes, ASK)
    other = Identity("t", "boss", "x")
    for is_first in (True, False):
        assert await run.control(ControlType.USER_MESSAGE, {"message": "hi"}, event_id="m", by=other) is is_first
    with pytest.raises(ScopeMismatchError):
        await run.control(ControlType.PRIORITIZE, {"priority": 1}, event_id="p")
    with pytest.raises(PayloadInvalidError):
        await run.control(ControlType.APPROVE, {"args": {}, "args_patch": {}}, event_id="q")
    with pytest.raises(PauseNotFoundError):
        await run.control(ControlType.REJECT, {"token": "nobody's"}, event_id="n")
    assert await run.control(ControlType.APPROVE, event_id="a")
    await bench.end(run)
    assert not await run.control(ControlType.APPROVE, event_id="a")
    with pytest.raises(RunNotFoundError):
        await run.control(ControlType.APPROVE, event_id="b")
    published = [(one.event_id, one.outcome, one.err) for one in bench.recorder.payloads(ControlLifecyclePayload)]
    wanted = [("n", "failed", "pause_not_found"), ("m", "applied", ""), ("a", "applied", "")]
    assert sorted(one for one in published if one[1] != "received") == sorted(wanted)
    rejected = bench.recorder.payloads(ControlRejectedPayload)
    assert [(one.type, one.reason, one.event_id) for one in rejected] == [
        ("PRIORITIZE", "scope_mismatch", "p"),
        ("APPROVE", "payload_invalid", "q"),
    ]
    by = {one.event_id: one.by for one in bench.recorder.payloads(ControlLifecyclePayload)}
    assert by == {"n": Triple.of(ME), "m": Triple.of(other), "a": Triple.of(ME)}
