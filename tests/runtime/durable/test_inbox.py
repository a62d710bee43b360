"""The inbox of a run and the registry that keeps the inboxes of a process."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage.identity import Quadruple
from harborage.runtime.steering import (
    ControlEvent,
    ControlType,
    IdentityRequiredError,
    Inbox,
    InboxExistsError,
    InboxNotFoundError,
    InboxRegistry,
    InvalidScopeError,
    PayloadInvalidError,
    Scope,
    ScopeMismatchError,
    UnknownControlTypeError,
    UnsupportedPayloadValueError,
    required_scope,
)
from harborage.testing.clock import FakeClock, settle

pytestmark = pytest.mark.anyio

RUN = Quadruple("t", "u", "s", "r")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def control(text: str = "", run: Quadruple = RUN, **changes: Any) -> ControlEvent:
    """A message from the run's own user, by default."""
    fields: dict[str, Any] = {
        "type": ControlType.USER_MESSAGE,
        "identity": run,
        "caller_scope": Scope.SESSION_USER,
        "caller_tenant": run.tenant_id,
        "payload": {"message": text},
    }
    return ControlEvent(**(fields | changes))


def texts(events: list[ControlEvent]) -> list[str]:
    """What the messages say, in order."""
    return [(event.payload or {})["message"] for event in events]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
def registry(clock: FakeClock) -> InboxRegistry:
    return InboxRegistry(clock)


@pytest.fixture
def inbox(registry: InboxRegistry) -> Inbox:
    return registry.open(RUN)


# Enqueue


@pytest.mark.parametrize("type", ControlType)
def test_each_control_is_accepted_at_its_least_scope(inbox: Inbox, type: ControlType) -> None:
    """All nine controls go in when the caller has just enough."""
    least = required_scope(type)
    assert inbox.enqueue(control(type=type, caller_scope=least)) is True
    assert inbox.drain()[0].type is type


@pytest.mark.parametrize("type", [each for each in ControlType if required_scope(each) is not Scope.SESSION_USER])
def test_each_control_is_refused_one_scope_lower(inbox: Inbox, type: ControlType) -> None:
    """One scope below the least is not enough, and nothing is queued."""
    lower = Scope.OWNER_USER if required_scope(type) is Scope.ADMIN else Scope.SESSION_USER
    with pytest.raises(ScopeMismatchError):
        inbox.enqueue(control(type=type, caller_scope=lower))
    assert inbox.is_empty


def test_a_foreign_tenant_needs_an_admin(inbox: Inbox) -> None:
    """The owner of another tenant's session is refused even the mildest control; an administrator is not."""
    with pytest.raises(ScopeMismatchError):
        inbox.enqueue(control(type=ControlType.INJECT_CONTEXT, caller_tenant="other", caller_scope=Scope.OWNER_USER))
    assert inbox.enqueue(control(type=ControlType.INJECT_CONTEXT, caller_tenant="other", caller_scope=Scope.ADMIN))


def test_a_control_is_stamped_with_the_time_it_came(inbox: Inbox, clock: FakeClock) -> None:
    """`enqueued_at` is the inbox's clock at the moment of each enqueue; the caller's event stays as it was."""
    first = control("a")
    inbox.enqueue(first)
    clock.advance(5)
    inbox.enqueue(control("b"))
    assert [event.enqueued_at for event in inbox.drain()] == [NOON, NOON + timedelta(seconds=5)]
    assert first.enqueued_at is None


def test_plain_strings_become_members(inbox: Inbox) -> None:
    """A type and a scope given as wire strings are members in what comes out, so that a match on them is exhaustive."""
    inbox.enqueue(control(type="PRIORITIZE", caller_scope="admin"))
    (event,) = inbox.drain()
    assert event.type is ControlType.PRIORITIZE
    assert event.caller_scope is Scope.ADMIN


@pytest.mark.parametrize("part", ["tenant_id", "user_id", "session_id", "run_id"])
def test_an_incomplete_identity_is_refused(inbox: Inbox, part: str) -> None:
    """All four parts of the identity are needed; the message names the one that is empty."""
    who = {"tenant_id": "t", "user_id": "u", "session_id": "s", "run_id": "r"} | {part: ""}
    with pytest.raises(IdentityRequiredError, match=part):
        inbox.enqueue(control(run=Quadruple(**who)))


@pytest.mark.parametrize(
    "other",
    [
        Quadruple("t", "u", "s", "r2"),
        Quadruple("t", "u", "s2", "r"),
        Quadruple("t", "u2", "s", "r"),
        Quadruple("t2", "u", "s", "r"),
    ],
)
def test_a_control_for_another_run_is_refused(inbox: Inbox, other: Quadruple) -> None:
    """A control never lands on an inbox whose identity differs in any part."""
    with pytest.raises(IdentityRequiredError, match="another run"):
        inbox.enqueue(control(run=other))
    assert inbox.is_empty


def test_the_time_is_not_the_callers_to_fill_in(inbox: Inbox) -> None:
    """A control that brings its own `enqueued_at` is refused."""
    with pytest.raises(PayloadInvalidError, match="enqueued_at"):
        inbox.enqueue(control(enqueued_at=NOON))


def flaws() -> list[tuple[str, dict[str, Any], type[Exception]]]:
    """What can be wrong with a control, in the order in which it is looked at."""
    return [
        ("incomplete", {"identity": Quadruple("t", "u", "s", "")}, IdentityRequiredError),
        ("foreign", {"identity": Quadruple("t", "u", "s", "other")}, IdentityRequiredError),
        ("stamped", {"enqueued_at": NOON}, PayloadInvalidError),
        ("type", {"type": "STOP"}, UnknownControlTypeError),
        ("scope", {"caller_scope": "root"}, InvalidScopeError),
        ("tenant", {"caller_tenant": "other"}, ScopeMismatchError),
        ("payload", {"payload": {"x": {1}}}, UnsupportedPayloadValueError),
    ]


@pytest.mark.parametrize("first", range(len(flaws())))
def test_flaws_are_reported_in_order(inbox: Inbox, registry: InboxRegistry, first: int) -> None:
    """Of several flaws the first in the order of checks is reported, and that the run has ended comes last."""
    inbox_flaws = flaws()[first:]
    changes: dict[str, Any] = {}
    for _, change, _ in reversed(inbox_flaws):
        changes |= change
    registry.retire(RUN)
    with pytest.raises(inbox_flaws[0][2]):
        inbox.enqueue(control(**changes))


def test_a_retired_inbox_takes_nothing(inbox: Inbox, registry: InboxRegistry) -> None:
    """A control that comes after the run has ended is refused, and the error names the run."""
    registry.retire(RUN)
    with pytest.raises(InboxNotFoundError) as caught:
        inbox.enqueue(control())
    assert caught.value.run == RUN


# The same event twice


def test_an_event_that_comes_twice_counts_once(inbox: Inbox) -> None:
    """The second control with the same event id is accepted as the first one, which it does not change."""
    assert inbox.enqueue(control("a", event_id="e1")) is True
    assert inbox.enqueue(control("b", event_id="e1")) is False
    assert texts(inbox.drain()) == ["a"]


def test_an_event_counts_once_even_when_it_was_taken_before(inbox: Inbox) -> None:
    """A control that was drained is not queued again by a late repetition."""
    inbox.enqueue(control("a", event_id="e1"))
    inbox.drain()
    assert inbox.enqueue(control("a", event_id="e1")) is False
    assert inbox.drain() == []


def test_events_without_an_id_are_all_different(inbox: Inbox) -> None:
    """Nothing is said about repetitions of a control that has no event id."""
    assert inbox.enqueue(control("a"))
    assert inbox.enqueue(control("a"))
    assert len(inbox) == 2


def test_a_refused_control_does_not_use_up_its_id(inbox: Inbox) -> None:
    """The corrected control may come with the id of the one that was refused."""
    with pytest.raises(PayloadInvalidError):
        inbox.enqueue(control("x" * 5000, event_id="e1"))
    assert inbox.enqueue(control("x", event_id="e1")) is True


def test_event_ids_belong_to_a_run(registry: InboxRegistry) -> None:
    """Two runs may see the same event id, and so may a run that is opened again."""
    other = Quadruple("t", "u", "s", "r2")
    assert registry.open(RUN).enqueue(control(event_id="e1"))
    assert registry.open(other).enqueue(control(run=other, event_id="e1"))
    registry.retire(RUN)
    assert registry.open(RUN).enqueue(control(event_id="e1"))


def test_a_duplicate_wakes_and_notifies_no_listener(inbox: Inbox) -> None:
    """Listeners hear of a control once."""
    received: list[ControlEvent] = []
    inbox.on_enqueue(received.append)
    inbox.enqueue(control("a", event_id="e1"))
    inbox.enqueue(control("b", event_id="e1"))
    assert texts(received) == ["a"]


# Drain and take


def test_drain_gives_everything_in_order_and_empties(inbox: Inbox) -> None:
    """Controls come out first in, first out, and only once."""
    for text in "abc":
        inbox.enqueue(control(text))
    assert len(inbox) == 3
    assert not inbox.is_empty
    assert texts(inbox.drain()) == ["a", "b", "c"]
    assert len(inbox) == 0
    assert inbox.is_empty
    assert inbox.drain() == []


def test_a_drained_list_belongs_to_the_caller(inbox: Inbox) -> None:
    """Changing what drain returned does not reach the inbox, even when it was empty."""
    inbox.drain().append(control("stray"))
    assert inbox.drain() == []
    inbox.enqueue(control("a"))
    drained = inbox.drain()
    inbox.enqueue(control("b"))
    assert texts(drained) == ["a"]


def test_a_retired_inbox_gives_nothing(inbox: Inbox, registry: InboxRegistry) -> None:
    """Drain, take and listening fail once the run has ended, and what was queued is gone."""
    inbox.enqueue(control("a"))
    registry.retire(RUN)
    assert inbox.is_empty
    with pytest.raises(InboxNotFoundError):
        inbox.drain()
    with pytest.raises(InboxNotFoundError):
        inbox.take(lambda _: True)
    with pytest.raises(InboxNotFoundError):
        inbox.on_enqueue(lambda _: None)


def test_take_picks_and_leaves_the_rest_in_order(inbox: Inbox) -> None:
    """The wanted controls come out in order; the others stay in theirs."""
    for text in "abcd":
        inbox.enqueue(control(text))
    assert texts(inbox.take(lambda event: (event.payload or {})["message"] in "bd")) == ["b", "d"]
    assert texts(inbox.drain()) == ["a", "c"]
    assert inbox.take(lambda _: True) == []


def test_take_removes_nothing_when_the_question_fails(inbox: Inbox) -> None:
    """If `wanted` raises, every control is still queued."""
    for text in "ab":
        inbox.enqueue(control(text))

    def wanted(event: ControlEvent) -> bool:
        return {"a": True}[(event.payload or {})["message"]]

    with pytest.raises(KeyError):
        inbox.take(wanted)
    assert texts(inbox.drain()) == ["a", "b"]


actions = st.lists(
    st.one_of(st.just("enqueue"), st.just("drain"), st.tuples(st.just("take"), st.integers(1, 3))), max_size=40
)


@given(actions)
def test_order_holds_whatever_is_taken_in_between(script: list[Any]) -> None:
    """Under any mix of enqueue, drain and take each control comes out once, and never before an older one that fits."""
    inbox = InboxRegistry(FakeClock()).open(RUN)
    model: list[int] = []
    count = 0
    for action in script:
        match action:
            case "enqueue":
                inbox.enqueue(control(str(count)))
                model.append(count)
                count += 1
            case "drain":
                assert [int(text) for text in texts(inbox.drain())] == model
                model = []
            case ("take", step):

                def wanted(event: ControlEvent, step: int = step) -> bool:
                    return int((event.payload or {})["message"]) % step == 0

                assert [int(text) for text in texts(inbox.take(wanted))] == [n for n in model if n % step == 0]
                model = [n for n in model if n % step]
        assert len(inbox) == len(model)
        assert inbox.is_empty is not bool(model)


# Waiting


def test_waiting_ends_at_once_when_something_is_queued(inbox: Inbox) -> None:
    """With a control queued no task waits, and nothing is taken out."""
    inbox.enqueue(control("a"))
    with pytest.raises(StopIteration):  # it returned without giving the loop a turn
        inbox.wait_for_event().send(None)
    assert texts(inbox.drain()) == ["a"]


async def test_a_waiter_is_woken_by_the_next_control(inbox: Inbox) -> None:
    """A waiter sleeps until something is queued; a wait costs no task of the inbox's own."""
    before = len(asyncio.all_tasks())
    waiter = asyncio.create_task(inbox.wait_for_event())
    await settle()
    assert not waiter.done()
    assert len(asyncio.all_tasks()) == before + 1
    inbox.enqueue(control("a"))
    await waiter
    assert len(inbox) == 1


async def test_all_waiters_are_woken(inbox: Inbox) -> None:
    """Several may wait for the same control."""
    waiters = [asyncio.create_task(inbox.wait_for_event()) for _ in range(3)]
    await settle()
    inbox.enqueue(control())
    await asyncio.gather(*waiters)


async def test_a_waiter_that_finds_nothing_goes_on_waiting(inbox: Inbox) -> None:
    """When another reader took the control first, the wait has not ended: its end means that something is queued."""
    waiter = asyncio.create_task(inbox.wait_for_event())
    await settle()
    inbox.enqueue(control("a"))
    inbox.drain()
    await settle()
    assert not waiter.done()
    inbox.enqueue(control("b"))
    await waiter
    assert texts(inbox.drain()) == ["b"]


async def test_a_wait_can_be_cancelled(inbox: Inbox) -> None:
    """Cancelling one waiter reaches it alone, and leaves nothing behind in the inbox."""
    first, second = (asyncio.create_task(inbox.wait_for_event()) for _ in range(2))
    await settle()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not second.done()
    assert inbox._waiters is not None
    assert len(inbox._waiters) == 1
    inbox.enqueue(control())
    await second


async def test_waiters_learn_that_the_run_has_ended(inbox: Inbox, registry: InboxRegistry) -> None:
    """Retiring the inbox ends every wait with an error, a later one too."""
    waiters = [asyncio.create_task(inbox.wait_for_event()) for _ in range(2)]
    await settle()
    registry.retire(RUN)
    for waiter in waiters:
        with pytest.raises(InboxNotFoundError):
            await waiter
    with pytest.raises(InboxNotFoundError):
        await inbox.wait_for_event()


async def test_retiring_right_after_a_control_still_ends_the_wait(inbox: Inbox, registry: InboxRegistry) -> None:
    """A waiter that was woken but has not run yet when the run ends gets the error, not a stale success."""
    waiter = asyncio.create_task(inbox.wait_for_event())
    await settle()
    inbox.enqueue(control())
    registry.retire(RUN)
    with pytest.raises(InboxNotFoundError):
        await waiter


# Listening


def test_a_listener_is_called_for_each_queued_control(inbox: Inbox) -> None:
    """Listeners are called during enqueue with the stamped control, in the order they came, when it is in the queue."""
    received: list[tuple[str, int, datetime | None]] = []

    def listener(name: str) -> Callable[[ControlEvent], None]:
        return lambda event: received.append((name, len(inbox), event.enqueued_at))

    inbox.on_enqueue(listener("first"))
    inbox.on_enqueue(listener("second"))
    inbox.enqueue(control())
    assert received == [("first", 1, NOON), ("second", 1, NOON)]


def test_listening_can_be_stopped(inbox: Inbox, registry: InboxRegistry) -> None:
    """The returned function ends its own registration only; calling it again, or after the run, does nothing."""
    received: list[ControlEvent] = []
    stop = inbox.on_enqueue(received.append)
    inbox.on_enqueue(received.append)
    stop()
    stop()
    inbox.enqueue(control())
    assert len(received) == 1
    registry.retire(RUN)
    stop()


def test_a_listener_may_stop_listening_while_it_is_called(inbox: Inbox) -> None:
    """A listener that ends its registration from within disturbs none of the others."""
    received: list[str] = []

    def once(_: ControlEvent) -> None:
        received.append("once")
        stop()

    stop = inbox.on_enqueue(once)
    inbox.on_enqueue(lambda _: received.append("always"))
    inbox.enqueue(control())
    inbox.enqueue(control())
    assert received == ["once", "always", "always"]


def test_a_listener_may_take_the_control_it_is_called_for(inbox: Inbox) -> None:
    """A control can be consumed on arrival; the next drain does not give it."""
    taken: list[ControlEvent] = []
    inbox.enqueue(control("before"))
    inbox.on_enqueue(lambda event: taken.extend(inbox.take(lambda queued: queued is event)))
    inbox.enqueue(control("now"))
    assert texts(taken) == ["now"]
    assert texts(inbox.drain()) == ["before"]


def test_a_failing_listener_is_reported_and_disturbs_no_other(inbox: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    """What a listener raises is logged; the control is queued and the other listeners hear of it."""
    received: list[ControlEvent] = []

    def broken(_: ControlEvent) -> None:
        raise ValueError("broken")

    inbox.on_enqueue(broken)
    inbox.on_enqueue(received.append)
    with caplog.at_level(logging.ERROR):
        assert inbox.enqueue(control()) is True
    assert len(inbox) == len(received) == 1
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


# The registry


def test_a_registry_opens_finds_and_retires(registry: InboxRegistry) -> None:
    """An open inbox is found by its run until it is retired."""
    inbox = registry.open(RUN)
    assert inbox.identity == RUN
    assert registry.lookup(RUN) is inbox
    assert len(registry) == 1
    registry.retire(RUN)
    assert len(registry) == 0
    with pytest.raises(InboxNotFoundError):
        registry.lookup(RUN)


def test_a_run_has_one_inbox(registry: InboxRegistry) -> None:
    """Opening twice is refused and the first inbox keeps what it holds."""
    registry.open(RUN).enqueue(control("a"))
    with pytest.raises(InboxExistsError) as caught:
        registry.open(RUN)
    assert caught.value.run == RUN
    assert texts(registry.lookup(RUN).drain()) == ["a"]


def test_an_inbox_is_retired_once(registry: InboxRegistry) -> None:
    """The second retire finds nothing, and neither does one of a run that never started."""
    registry.open(RUN)
    registry.retire(RUN)
    with pytest.raises(InboxNotFoundError):
        registry.retire(RUN)
    with pytest.raises(InboxNotFoundError):
        registry.retire(Quadruple("t", "u", "s", "never"))


def test_a_run_can_be_opened_again(registry: InboxRegistry) -> None:
    """After retire the same run gets a fresh inbox, which the old one has nothing to do with."""
    old = registry.open(RUN)
    old.enqueue(control("lost"))
    registry.retire(RUN)
    new = registry.open(RUN)
    assert new.drain() == []
    with pytest.raises(InboxNotFoundError):
        old.drain()


@pytest.mark.parametrize("part", ["tenant_id", "user_id", "session_id", "run_id"])
@pytest.mark.parametrize("verb", ["open", "lookup", "retire"])
def test_every_verb_of_the_registry_needs_a_whole_identity(registry: InboxRegistry, verb: str, part: str) -> None:
    """An incomplete quadruple is refused before anything is looked up."""
    who = {"tenant_id": "t", "user_id": "u", "session_id": "s", "run_id": "r"} | {part: ""}
    with pytest.raises(IdentityRequiredError, match=part):
        getattr(registry, verb)(Quadruple(**who))
    assert len(registry) == 0


def test_runs_that_differ_in_one_part_are_strangers(registry: InboxRegistry) -> None:
    """The whole identity is the key: the same run id in another session is another run."""
    runs = [Quadruple("t", "u", "s", "r"), Quadruple("t", "u", "s2", "r"), Quadruple("t2", "u", "s", "r")]
    for run in runs:
        registry.open(run).enqueue(control(run.session_id + run.tenant_id, run=run))
    assert [texts(registry.lookup(run).drain()) for run in runs] == [["st"], ["s2t"], ["st2"]]


@pytest.mark.parametrize("runs", [24, 128])
async def test_concurrent_runs_do_not_mix(registry: InboxRegistry, runs: int) -> None:
    """Many runs that enqueue, wait, drain and retire at once see their own controls only, and leave nothing behind."""

    async def writer(inbox: Inbox) -> None:
        for n in range(10):
            inbox.enqueue(control(f"{inbox.identity.run_id}/{n}", run=inbox.identity))
            await asyncio.sleep(0)

    async def reader(inbox: Inbox) -> list[str]:
        seen: list[str] = []
        while len(seen) < 20:
            await inbox.wait_for_event()
            seen.extend(texts(inbox.drain()))
        return seen

    async def one(n: int) -> None:
        run = Quadruple(f"t{n % 3}", f"u{n % 5}", f"s{n % 7}", f"r{n}")
        inbox = registry.open(run)
        seen, *_ = await asyncio.gather(reader(inbox), writer(inbox), writer(inbox))
        assert sorted(seen) == sorted([f"r{n}/{k}" for k in range(10)] * 2)
        registry.retire(run)

    await asyncio.gather(*(one(n) for n in range(runs)))
    assert len(registry) == 0


def test_an_unsteered_inbox_is_small(inbox: Inbox) -> None:
    """A run without controls pays for an empty list and nothing else."""
    assert not hasattr(inbox, "__dict__")
    assert sys.getsizeof(inbox) + sys.getsizeof(inbox._queue) < 256
    assert (inbox._seen, inbox._waiters, inbox._listeners) == (None, None, None)


def test_what_was_checked_is_what_is_handed_out() -> None:
    """A caller who changes its payload after queueing it changes nothing for the run."""
    inbox = InboxRegistry().open(RUN)
    payload: dict[str, Any] = {"message": "a", "more": [1]}
    inbox.enqueue(control(payload=payload))
    payload["message"] = "x" * 100_000
    payload["more"].append(2)
    (event,) = inbox.drain()
    assert event.payload == {"message": "a", "more": [1]}
