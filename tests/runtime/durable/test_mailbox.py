"""What reaches a run in this process: taken at boundaries, handed over in mid step, or cutting a step short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from harborage.concurrency import CancelScope, Crew
from harborage.identity import Quadruple
from harborage.planner import BackgroundResult, PauseReason
from harborage.runtime.durable.journal import Patched
from harborage.runtime.durable.mailbox import Mailbox
from harborage.runtime.durable.outbox import Outbox
from harborage.runtime.durable.steps import Act, Change, Effect, Note, StepCall, Wait, Waiting
from harborage.runtime.loop.arrivals import NOTHING, Hold, Interrupt, Woken
from harborage.runtime.pauses import Coordinator, Pause, PauseDecision, PauseNotFoundError, PauseRequest
from harborage.runtime.steering import ControlEvent, ControlType, Inbox, InboxRegistry, Scope
from harborage.testing.clock import FakeClock, settle

pytestmark = pytest.mark.anyio

RUN = Quadruple("t", "u", "s", "r")
HARD = {"hard": True}


async def nothing(call: Any) -> None:
    """An effect that does nothing."""


STEADY = Note(run=nothing)
CUTTABLE = Note(run=nothing, is_interruptible=True)
FLIGHT = StepCall("r", "1", "step", None)
RESTING = Wait(run=nothing)
ACTING: dict[Effect, Effect] = {
    STEADY: Change(run=nothing, acts=True),
    CUTTABLE: Act(run=nothing),
    RESTING: Act(run=nothing, yields_to_cancel=lambda _: True),
}
"""The kind that is interrupted like each of these, and does not begin once the run is cancelled."""


class DeafCoordinator(Coordinator):
    """Calls no subscriber when a pause is resolved, as if the notice were lost."""

    def on_resolved(self, token: str, wake: Callable[[Pause], None]) -> Callable[[], None]:
        return lambda: None


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def inbox(clock: FakeClock) -> Inbox:
    return InboxRegistry(clock=clock).open(RUN)


@pytest.fixture
def pauses(clock: FakeClock) -> Coordinator:
    return Coordinator(clock=clock)


@pytest.fixture
async def crew() -> AsyncIterator[Crew]:
    crew = Crew(lambda name, error: None)
    yield crew
    await crew.aclose()


@pytest.fixture
async def mailbox(inbox: Inbox, pauses: Coordinator, crew: Crew, clock: FakeClock) -> AsyncIterator[Mailbox]:
    mailbox = Mailbox(inbox, pauses, crew, clock=clock)
    yield mailbox
    mailbox.close()


def control(type: str, payload: dict[str, Any] | None = None) -> ControlEvent:
    return ControlEvent(ControlType(type), RUN, Scope.ADMIN, "t", payload)


def background(group_id: str) -> BackgroundResult:
    return BackgroundResult(group_id=group_id, status="completed", resolved_at=FakeClock().now())


async def pause(pauses: Coordinator, **options: Any) -> str:
    return (await pauses.request(PauseRequest(identity=RUN, reason=PauseReason.AWAIT_INPUT, **options))).token


async def test_nothing_is_taken_when_nothing_came(mailbox: Mailbox, inbox: Inbox) -> None:
    """The answer is the one value for it, also after something was taken."""
    assert mailbox.take() is NOTHING
    inbox.enqueue(control("PAUSE"))
    mailbox.deliver(background("g"))
    assert mailbox.take() is not NOTHING
    assert mailbox.take() is NOTHING


async def test_everything_is_taken_in_order_and_once(mailbox: Mailbox, inbox: Inbox) -> None:
    """Controls in arrival order, background results beside them."""
    for text in ("a", "b"):
        inbox.enqueue(control("USER_MESSAGE", {"message": text}))
        mailbox.deliver(background(text))
    taken = mailbox.take()
    assert [one.payload for one in taken.controls] == [{"message": "a"}, {"message": "b"}]
    assert [one.group_id for one in taken.background] == ["a", "b"]
    assert not taken.is_past_deadline


@pytest.mark.parametrize("effect", [STEADY, CUTTABLE, RESTING], ids=["steady", "cuttable", "resting"])
@pytest.mark.parametrize("cause", ["nothing", "soft", "hard", "deadline", "soft then hard", "hard then deadline"])
async def test_what_forbids_an_effect_and_what_cuts_it(
    inbox: Inbox, pauses: Coordinator, crew: Crew, clock: FakeClock, effect: Effect, cause: str
) -> None:
    """Every cause against every kind of effect: a flight is cut exactly if its effect may not begin either."""
    mailbox = Mailbox(inbox, pauses, crew, clock=clock, deadline=clock.now() + timedelta(seconds=1))
    flown = asyncio.create_task(fly(mailbox, effect))
    await settle()
    for one in cause.split(" then "):
        match one:
            case "soft" | "hard":
                inbox.enqueue(control("CANCEL", HARD if one == "hard" else None))
            case "deadline":
                clock.advance(1)
    await settle()
    reasons = {
        "soft": {RESTING: Interrupt.SOFT_CANCEL},
        "hard": {CUTTABLE: Interrupt.HARD_CANCEL, RESTING: Interrupt.HARD_CANCEL},
        "deadline": {CUTTABLE: Interrupt.DEADLINE, RESTING: Interrupt.DEADLINE},
    }
    reasons["soft then hard"] = reasons["hard then deadline"] = reasons["hard"]
    wanted = next((why for kind, why in reasons.get(cause, {}).items() if kind is effect), None)
    assert mailbox.find_interrupt(effect, FLIGHT) == wanted
    assert flown.done() == (wanted is not None)
    acting = ACTING[effect]
    barred = Interrupt.SOFT_CANCEL if cause == "soft" else mailbox.reason
    assert mailbox.find_start_blocker(acting, FLIGHT) == (wanted or barred)
    assert mailbox.find_start_blocker(effect, FLIGHT) == wanted
    flown.cancel()
    await asyncio.wait({flown})
    mailbox.close()
    assert clock.armed == 0


async def fly(mailbox: Mailbox, effect: Effect) -> None:
    """Be in flight until cut."""
    with CancelScope() as scope:
        flight = mailbox.enter(scope, effect, FLIGHT)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            mailbox.leave(flight)


@pytest.mark.parametrize("payload", [None, {}, {"hard": False}, {"hard": "yes"}, {"hard": 1}])
async def test_only_true_makes_a_cancel_hard(mailbox: Mailbox, inbox: Inbox, payload: Any) -> None:
    """Anything else is a soft one."""
    inbox.enqueue(control("CANCEL", payload))
    assert mailbox.reason is None
    assert mailbox.was_cancelled


async def test_an_approval_that_a_gate_waits_for_is_handed_over_at_once(mailbox: Mailbox, inbox: Inbox) -> None:
    """Only answers that the route owns; every other control waits for the boundary, in order."""
    handed: list[Any] = []

    def route(one: ControlEvent) -> Coroutine[Any, Any, None] | None:
        return note(one) if (one.payload or {}).get("token") == "mine" else None

    async def note(one: ControlEvent) -> None:
        handed.append(one.type)

    mailbox.connect(route)
    for kind, payload in (
        ("USER_MESSAGE", {"message": "a"}),
        ("APPROVE", {"token": "mine"}),
        ("APPROVE", {"token": "not mine"}),
        ("RESUME", {"token": "mine"}),
        ("INJECT_CONTEXT", {"token": "mine"}),
        ("REJECT", {"token": "mine"}),
        ("USER_MESSAGE", {"message": "b"}),
    ):
        inbox.enqueue(control(kind, payload))
    await settle()
    assert handed == ["APPROVE", "RESUME", "REJECT"]
    left = [(str(one.type), one.payload) for one in mailbox.take().controls]
    assert left == [
        ("USER_MESSAGE", {"message": "a"}),
        ("APPROVE", {"token": "not mine"}),
        ("INJECT_CONTEXT", {"token": "mine"}),
        ("USER_MESSAGE", {"message": "b"}),
    ]


async def test_without_a_bridge_approvals_wait_for_the_boundary(mailbox: Mailbox, inbox: Inbox) -> None:
    """There is no call that they could be passed to."""
    inbox.enqueue(control("APPROVE", {"token": "x"}))
    assert len(mailbox.take().controls) == 1


async def parked(mailbox: Mailbox, token: str, clock: FakeClock, seconds: float = 0, **hold: Any) -> Woken:
    """Why a parked run went on, having waited so long first."""
    task = asyncio.create_task(mailbox.park(Hold(token, **hold)))
    await settle()
    assert mailbox.is_parked
    await clock.run_for(seconds)
    woken = await task
    assert not mailbox.is_parked
    assert clock.armed == 0
    return woken


async def test_parking_ends_with_the_pause(mailbox: Mailbox, pauses: Coordinator, clock: FakeClock) -> None:
    """The answer says how it was resolved, with what, and when."""
    token = await pause(pauses, payload={"q": 1})
    task = asyncio.create_task(parked(mailbox, token, clock))
    await settle()
    await pauses.resume(token, PauseDecision.APPROVE, {"a": 2}, who=RUN)
    assert await task == Woken(PauseDecision.APPROVE, {"q": 1, "a": 2}, clock.now())


@pytest.mark.parametrize("resolved_first", [True, False])
async def test_a_pause_is_noticed_without_a_notice(
    inbox: Inbox, crew: Crew, clock: FakeClock, resolved_first: bool
) -> None:
    """The coordinator is asked again every so often, so a message that was lost only costs time."""
    deaf = DeafCoordinator(clock=clock)
    token = await pause(deaf)
    mailbox = Mailbox(inbox, deaf, crew, clock=clock, recheck_s=30)
    if resolved_first:
        await deaf.resume(token, PauseDecision.RESUME, who=RUN)
        assert (await mailbox.park(Hold(token))).decision is PauseDecision.RESUME
        return
    task = asyncio.create_task(mailbox.park(Hold(token)))
    await clock.run_for(45)
    await deaf.resume(token, PauseDecision.RESUME, who=RUN)
    await clock.run_for(14)
    assert not task.done()
    await clock.run_for(1)
    assert (await task).decision is PauseDecision.RESUME
    assert clock.armed == 0


async def test_a_pause_that_is_resolved_while_the_store_answers_ends_the_parking(
    inbox: Inbox, crew: Crew, clock: FakeClock
) -> None:
    """The answer that comes back then is older than the decision; no time has to pass for the run to go on."""

    class Slow(Coordinator):
        """Returns the pause as it was read before it was resolved."""

        async def expire(self, token: str) -> Pause:
            read = await super().expire(token)
            if read.is_paused:
                await self.resume(token, PauseDecision.APPROVE, who=RUN)
            return read

    slow = Slow(clock=clock)
    token = await pause(slow)
    mailbox = Mailbox(inbox, slow, crew, clock=clock)
    task = asyncio.create_task(mailbox.park(Hold(token)))
    await settle()
    assert task.done()
    assert (await task).decision is PauseDecision.APPROVE
    assert clock.armed == 0


async def test_parking_ends_at_the_deadline_of_the_pause(
    mailbox: Mailbox, pauses: Coordinator, clock: FakeClock
) -> None:
    """The parked run resolves it, long before its next poll."""
    until = clock.now() + timedelta(seconds=5)
    token = await pause(pauses, deadline=until, default=PauseDecision.REJECT)
    woken = await parked(mailbox, token, clock, 5, until=until)
    assert woken == Woken(PauseDecision.REJECT, None, until)


async def test_parking_ends_at_the_deadline_of_the_run(
    inbox: Inbox, pauses: Coordinator, crew: Crew, clock: FakeClock
) -> None:
    """The pause stays open; the next boundary hears of the deadline too."""
    token = await pause(pauses)
    mailbox = Mailbox(inbox, pauses, crew, clock=clock, deadline=clock.now() + timedelta(seconds=3))
    assert (await parked(mailbox, token, clock, 3)).is_past_deadline
    assert mailbox.take().is_past_deadline
    assert mailbox.take() is NOTHING
    assert (await pauses.status(token, who=RUN)).is_paused


@pytest.mark.parametrize("cause", ["control", "background"])
@pytest.mark.parametrize("came_first", [True, False])
async def test_parking_ends_when_something_came(
    mailbox: Mailbox, pauses: Coordinator, inbox: Inbox, clock: FakeClock, cause: str, came_first: bool
) -> None:
    """Before or meanwhile; what came is left for the boundary."""
    token = await pause(pauses)
    task = None if came_first else asyncio.create_task(mailbox.park(Hold(token)))
    await settle()
    if cause == "control":
        inbox.enqueue(control("USER_MESSAGE", {"message": "a"}))
    else:
        mailbox.deliver(background("g"))
    woken = await (task or mailbox.park(Hold(token)))
    assert woken == Woken(at=clock.now())
    assert mailbox.take() is not NOTHING
    assert clock.armed == 0


async def test_a_resolved_pause_outranks_what_came(mailbox: Mailbox, pauses: Coordinator, inbox: Inbox) -> None:
    """The run learns how it was resolved first; the control waits for the boundary."""
    token = await pause(pauses)
    inbox.enqueue(control("USER_MESSAGE", {"message": "a"}))
    await pauses.resume(token, PauseDecision.RESUME, who=RUN)
    assert (await mailbox.park(Hold(token))).decision is PauseDecision.RESUME


async def test_an_unknown_pause_is_an_error(mailbox: Mailbox) -> None:
    """Nothing would ever wake the run."""
    with pytest.raises(PauseNotFoundError):
        await mailbox.park(Hold("nobody's"))
    assert not mailbox.is_parked


async def test_a_cancelled_wait_leaves_nothing_armed(mailbox: Mailbox, pauses: Coordinator, clock: FakeClock) -> None:
    """No timer and no callback is left; the pause stays open for the next worker."""
    token = await pause(pauses)
    task = asyncio.create_task(mailbox.park(Hold(token)))
    await settle()
    assert clock.armed == 1
    task.cancel()
    await asyncio.wait({task})
    assert clock.armed == 0
    assert not pauses._waiters._wakers


async def test_a_deadline_that_has_passed_counts_at_once(
    inbox: Inbox, pauses: Coordinator, crew: Crew, clock: FakeClock
) -> None:
    """No step may begin first, not even one that never gives way to a timer."""
    mailbox = Mailbox(inbox, pauses, crew, clock=clock, deadline=clock.now())
    assert mailbox.find_interrupt(CUTTABLE, FLIGHT) is Interrupt.DEADLINE
    assert mailbox.take().is_past_deadline
    assert clock.armed == 0


async def test_a_closed_mailbox_receives_nothing(
    inbox: Inbox, pauses: Coordinator, crew: Crew, clock: FakeClock
) -> None:
    """Neither controls nor the deadline; the inbox itself keeps what is sent to it."""
    mailbox = Mailbox(inbox, pauses, crew, clock=clock, deadline=clock.now() + timedelta(seconds=1))
    mailbox.close()
    inbox.enqueue(control("CANCEL", HARD))
    await clock.run_for(2)
    assert mailbox.reason is None
    assert len(inbox) == 1


async def test_a_soft_cancel_of_before_is_heeded(mailbox: Mailbox) -> None:
    """A run that is resumed does not begin to wait if it had been cancelled; other controls change nothing."""
    mailbox.mark_consumed([control("PAUSE")])
    assert mailbox.find_interrupt(RESTING, FLIGHT) is None
    mailbox.mark_consumed([control("CANCEL")])
    mailbox.mark_consumed([])
    assert mailbox.find_interrupt(RESTING, FLIGHT) is Interrupt.SOFT_CANCEL
    assert mailbox.find_interrupt(CUTTABLE, FLIGHT) is None


async def test_what_was_taken_before_is_no_news(inbox: Inbox, mailbox: Mailbox) -> None:
    """A control that a record has taken already may be sent again with those that it had overtaken."""
    taken = ControlEvent(ControlType.RESUME, RUN, Scope.ADMIN, "t", None, "taken")
    new = ControlEvent(ControlType.RESUME, RUN, Scope.ADMIN, "t", None, "new")
    mailbox.mark_consumed([taken])
    inbox.enqueue(taken)
    assert mailbox.take() is NOTHING
    inbox.enqueue(taken)
    inbox.enqueue(new)
    assert [one.event_id for one in mailbox.take().controls] == ["new"]
    assert not inbox


@pytest.mark.parametrize(("payload", "reason"), [(None, None), ({"hard": True}, Interrupt.HARD_CANCEL)])
async def test_a_cancel_that_came_before_the_run_was_carried_is_heeded(
    inbox: Inbox, pauses: Coordinator, crew: Crew, clock: FakeClock, payload: Any, reason: Interrupt | None
) -> None:
    """A step that an earlier process left in the middle is not waited for: the control is in the inbox already."""
    inbox.enqueue(control(ControlType.CANCEL, payload))
    late = Mailbox(inbox, pauses, crew, clock=clock)
    assert (late.was_cancelled, late.reason) == (True, reason)
    assert [one.type for one in late.take().controls] == [ControlType.CANCEL]
    late.close()


async def test_a_run_whose_record_is_being_written_is_at_work(
    mailbox: Mailbox, crew: Crew, pauses: Coordinator
) -> None:
    """Beside branches that only wait one may be about to begin: its intent is on its way to the record."""
    gate = asyncio.Event()

    class Slow:
        append_now = None

        async def append(self, run_id: str, entries: Any) -> None:
            await gate.wait()

    mailbox.outbox = Outbox("r", Slow(), crew)
    effect = Wait(run=nothing, waits_for=lambda _: Waiting())
    mailbox.enter(CancelScope(), effect, StepCall("r", "1.0.1", "approve.x", None))
    assert mailbox.waiting == Waiting()
    mailbox.outbox.note(Patched(at=FakeClock().now(), change="c"))
    writing = crew.start(mailbox.outbox.flush(), "flush")
    await settle()
    assert mailbox.waiting is None
    gate.set()
    await writing
    assert mailbox.waiting == Waiting()


ASKING = Wait(run=nothing, waits_for=lambda _: Waiting(run_id="c"))
AWAITING = Wait(run=nothing, waits_for=lambda _: Waiting(run_id="c"), yields_to_pause=True)


@pytest.mark.parametrize("effect", [ASKING, AWAITING], ids=["asking", "awaiting"])
@pytest.mark.parametrize("type", list(ControlType))
async def test_only_what_ends_the_wait_of_a_step_keeps_its_run_at_work(
    mailbox: Mailbox, inbox: Inbox, effect: Effect, type: ControlType
) -> None:
    """The other controls, answers that no call waits for and outcomes of background groups are taken behind it."""
    flown = asyncio.create_task(fly(mailbox, effect))
    await settle()
    inbox.enqueue(control(type, {"goal": "g", "message": "m", "priority": 1}))
    mailbox.deliver(background("g"))
    ends = type is ControlType.CANCEL or (type is ControlType.PAUSE and effect is AWAITING)
    assert (mailbox.waiting is None) == ends
    await settle()
    assert flown.done() == ends
    assert [one.type for one in mailbox.take().controls] == [type]
    flown.cancel()
    await asyncio.wait({flown})


async def test_a_run_is_at_work_while_an_answer_is_handed_over(mailbox: Mailbox, inbox: Inbox) -> None:
    """Left in the middle of that, it would be unknown whether its call has the answer."""
    is_given = asyncio.Event()

    def route(_: ControlEvent) -> Coroutine[Any, Any, None]:
        async def give() -> None:
            await is_given.wait()

        return give()

    mailbox.connect(route)
    mailbox.enter(CancelScope(), ASKING, FLIGHT)
    assert mailbox.waiting == Waiting(run_id="c")
    inbox.enqueue(control("APPROVE"))
    assert mailbox.waiting is None
    is_given.set()
    await mailbox.wait_for_answers()
    await settle()
    assert mailbox.waiting == Waiting(run_id="c")
    assert inbox.is_empty


async def test_whatever_comes_keeps_a_run_at_work_that_waits_on_a_pause(
    mailbox: Mailbox, pauses: Coordinator, inbox: Inbox
) -> None:
    """It takes it at once, and waits again."""
    token = await pause(pauses)
    for arrive in (lambda: inbox.enqueue(control("USER_MESSAGE")), lambda: mailbox.deliver(background("g"))):
        waiting = asyncio.create_task(mailbox.park(Hold(token)))
        await settle()
        assert mailbox.waiting == Waiting()
        arrive()
        assert mailbox.waiting is None
        assert (await waiting).decision is None
        mailbox.take()
