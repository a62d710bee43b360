"""Applying controls to the world outside the run: the codes of failures, bound answers, and answers for gates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from harborage.events import ControlLifecyclePayload, MemoryEventBus
from harborage.identity import Quadruple
from harborage.planner import PauseReason
from harborage.runtime.approval import ApprovalNotFoundError, ApprovalScopeRequiredError, InvalidApprovalError
from harborage.runtime.effects.gates import Gates
from harborage.runtime.effects.services import AgentServices
from harborage.runtime.effects.steering import failure_code, open_pause, route_answer, steer
from harborage.runtime.loop.state import OpenPause, Steered, SteerRequest
from harborage.runtime.pauses import (
    AlreadyResumedError,
    Coordinator,
    Pause,
    PauseDecision,
    PauseNotFoundError,
    PauseScopeMismatchError,
    ToolContextLostError,
)
from harborage.runtime.steering import (
    ControlErrors,
    ControlEvent,
    ControlHistory,
    ControlType,
    NoOutstandingPauseError,
    PayloadInvalidError,
    RunLoopMisconfiguredError,
    Scope,
    ScopeMismatchError,
)
from harborage.state.errors import DatabaseError
from harborage.store import Commit, NewRun, SendControl
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

RUN = Quadruple("t", "u", "s", "r")


class Gate:
    """Stands for an approval gate at which calls of runs wait under tokens."""

    def __init__(self, **owners: Quadruple) -> None:
        self.owners = owners
        self.answers: list[tuple[Any, ...]] = []

    def owner(self, token: str) -> Quadruple | None:
        return self.owners.get(token)

    async def resolve_approval(self, token: str, decision: Any, reason: str, **more: Any) -> None:
        if self.owners.pop(token, None) is None:
            raise ApprovalNotFoundError(token)
        self.answers.append((token, str(decision), reason, more["args"], more["who"]))


def control(type: str, payload: dict[str, Any] | None = None) -> ControlEvent:
    return ControlEvent(ControlType(type), RUN, Scope.ADMIN, "t", payload)


@pytest.fixture
def served() -> Callable[..., AgentServices]:
    """Makes services that record failing controls; options replace their parts."""

    def make(**options: Any) -> AgentServices:
        clock = FakeClock()
        parts = {
            "pauses": Coordinator(clock=clock),
            "history": ControlHistory(),
            "clock": clock,
            "stamp": clock,
            "control_errors": ControlErrors.REJECT,
        }
        return AgentServices(**{**parts, **options})

    return make


async def apply(services: AgentServices, *controls: ControlEvent, pause: OpenPause | None = None) -> list[Steered]:
    return await steer(services, RUN, SteerRequest(controls=controls, pause=pause), key="r/1")


@each_row(
    "error, code",
    [
        (NoOutstandingPauseError(), "no_outstanding_pause"),
        (RunLoopMisconfiguredError(), "misconfigured"),
        (PayloadInvalidError("x"), "payload_invalid"),
        (InvalidApprovalError("x"), "payload_invalid"),
        (AlreadyResumedError("p"), "already_resumed"),
        (ScopeMismatchError("x"), "scope_mismatch"),
        (PauseScopeMismatchError("p"), "scope_mismatch"),
        (PauseNotFoundError("p"), "pause_not_found"),
        (ToolContextLostError("h"), "tool_context_lost"),
        (ApprovalNotFoundError("p"), "apply_failed"),
        (ApprovalScopeRequiredError("x"), "apply_failed"),
        (ValueError("secret words"), "apply_failed"),
    ],
)
def test_a_failure_has_a_code_and_quotes_no_input(error: Exception, code: str) -> None:
    """One of a few words, whatever the error says."""
    assert failure_code(error) == code


async def test_an_answer_for_a_gate_resolves_no_pause(served: Callable[..., AgentServices]) -> None:
    """At a boundary too: the call that waits gets it, with reason and arguments; the run goes on."""
    gate = Gate(a=RUN, b=RUN)
    services = served(gates=Gates({"x": gate}))
    approve = control("APPROVE", {"token": "a", "reason": "fine", "args": {"n": 1}})
    reject = control("REJECT", {"token": "b"})
    assert await apply(services, approve, reject) == [Steered(control=approve), Steered(control=reject)]
    assert gate.answers == [("a", "approve", "fine", b'{"n":1}', RUN), ("b", "reject", "", None, RUN)]


async def test_an_answer_for_another_runs_call_is_not_delivered(served: Callable[..., AgentServices]) -> None:
    """It answers no question of this run, and fails."""
    gate = Gate(a=Quadruple("t", "u", "s", "other"))
    (outcome,) = await apply(served(gates=Gates({"x": gate})), control("APPROVE", {"token": "a"}))
    assert outcome.error == "no_outstanding_pause"
    assert gate.answers == []


@pytest.mark.parametrize("payload", [None, {}, {"token": ""}, {"token": 7}, {"token": None}])
async def test_an_answer_without_a_token_is_for_the_runs_own_pause(
    served: Callable[..., AgentServices], payload: dict[str, Any] | None
) -> None:
    """Gates are not asked."""
    services = served(gates=Gates({"x": Gate(a=RUN)}), binds_answers=True)
    pause = await open_pause(services, RUN, PauseReason.AWAIT_INPUT, {"q": 1}, key="r/0")
    (outcome,) = await apply(services, control("APPROVE", payload), pause=pause)
    assert (outcome.resolved, outcome.resolved_token, outcome.error) == (PauseDecision.APPROVE, pause.token, "")


@pytest.mark.parametrize(("binds", "error"), [(True, "pause_not_found"), (False, "")])
async def test_an_answer_that_names_another_question(
    served: Callable[..., AgentServices], binds: bool, error: str
) -> None:
    """Where answers are bound it fails and the pause stays; else it resolves the open one."""
    services = served(binds_answers=binds)
    pause = await open_pause(services, RUN, PauseReason.AWAIT_INPUT, {}, key="r/0")
    (outcome,) = await apply(services, control("APPROVE", {"token": "another"}), pause=pause)
    assert outcome.error == error
    assert (await services.pauses.status(pause.token, who=RUN)).is_paused == binds


async def test_controls_of_a_batch_build_on_each_other(served: Callable[..., AgentServices]) -> None:
    """A pause opened by the first is resolved by the third; what fails between them is passed over."""
    services = served()
    outcomes = await apply(services, control("PAUSE"), control("PRIORITIZE"), control("RESUME"), control("RESUME"))
    assert [one.error for one in outcomes] == ["", "payload_invalid", "", "already_resumed"]
    assert outcomes[0].opened is not None
    assert outcomes[2].resolved_token == outcomes[0].opened.token


async def test_a_second_answer_of_a_batch_comes_too_late(served: Callable[..., AgentServices]) -> None:
    """Whatever it says: the pause was resolved by the first. One for a pause opened in between is in time."""
    for second in ("RESUME", "APPROVE", "REJECT"):
        services = served(binds_answers=True)
        pause = await open_pause(services, RUN, PauseReason.AWAIT_INPUT, {}, key="r/0")
        sent = ["RESUME", second, "PAUSE", second]
        outcomes = await apply(services, *map(control, sent), pause=pause)
        assert [one.error for one in outcomes] == ["", "already_resumed", "", ""], second
        again = await open_pause(services, RUN, PauseReason.AWAIT_INPUT, {}, key="r/1")
        named = [control(second, {"token": token}) for token in (again.token, "another")]
        outcomes = await apply(services, control("RESUME"), *named, pause=again)
        assert [one.error for one in outcomes] == ["", "already_resumed", "no_outstanding_pause"], second


@pytest.mark.parametrize("is_paused", [True, False])
async def test_an_answer_to_a_pause_of_an_earlier_batch_comes_too_late(
    served: Callable[..., AgentServices], is_paused: bool
) -> None:
    """Where answers are bound it is refused, whether or not another pause is open, and that one stays open."""
    for late in ("RESUME", "APPROVE", "REJECT"):
        services = served(binds_answers=True)
        first = await open_pause(services, RUN, PauseReason.AWAIT_INPUT, {}, key="r/0")
        assert (await apply(services, control("RESUME"), pause=first))[0].resolved is PauseDecision.RESUME
        now = await open_pause(services, RUN, PauseReason.AWAIT_INPUT, {}, key="r/1") if is_paused else None
        (outcome,) = await apply(services, control(late, {"token": first.token}), pause=now)
        assert (outcome.error, outcome.resolved) == ("already_resumed", None), late
        if now is not None:
            assert (await services.pauses.status(now.token, who=RUN)).is_paused


async def test_an_answer_to_another_runs_resolved_pause_says_nothing_of_it(
    served: Callable[..., AgentServices],
) -> None:
    """It names no pause of this run, open or resolved."""
    services = served(binds_answers=True)
    other = RUN.identity.with_run("other")
    theirs = await open_pause(services, other, PauseReason.AWAIT_INPUT, {}, key="other/0")
    await services.pauses.resume(theirs.token, PauseDecision.RESUME, who=other)
    (outcome,) = await apply(services, control("RESUME", {"token": theirs.token}))
    assert outcome.error == "no_outstanding_pause"


@pytest.mark.parametrize("is_known", [True, False], ids=["the run waits on it", "the run waits no more"])
async def test_an_answer_that_took_effect_before_its_process_died_has_not_failed(
    served: Callable[..., AgentServices], is_known: bool
) -> None:
    """Sent again to the next process, the one answer that a pause took is applied; another one comes too late."""
    store = MemoryStore()
    services = served(binds_answers=True, pauses=Coordinator(store=store))
    pause = await open_pause(services, RUN, PauseReason.AWAIT_INPUT, {}, key="r/0")
    answer = msgspec.structs.replace(control("APPROVE", {"token": pause.token}), event_id="e1")
    sent = SendControl(run_id=RUN.run_id, event_id="e1", type="APPROVE", data=b"{}", answers=pause.token)
    await store.commit(Commit(starts=(NewRun(run_id=RUN.run_id, who=RUN.identity),)))
    await store.commit(Commit(sends=(sent,)))
    assert (await apply(services, answer, pause=pause))[0].resolved is PauseDecision.APPROVE
    (again,) = await apply(services, answer, pause=pause if is_known else None)
    assert (again.error, again.resolved) == ("", PauseDecision.APPROVE if is_known else None)
    for other in (control("APPROVE", {"token": pause.token}), msgspec.structs.replace(answer, type=ControlType.REJECT)):
        (late,) = await apply(services, other, pause=pause if is_known else None)
        assert late.error == "already_resumed"


@pytest.mark.parametrize("keys_pauses", [True, False])
async def test_a_batch_applied_again_finds_its_pause(served: Callable[..., AgentServices], keys_pauses: bool) -> None:
    """After a crash in mid step; only where run ids are never used twice."""
    services = served(keys_pauses=keys_pauses)
    first, again = [(await apply(services, control("PAUSE")))[0].opened for _ in range(2)]
    assert (first == again) == keys_pauses


async def test_a_pause_resolved_elsewhere_is_not_resolved_twice(served: Callable[..., AgentServices]) -> None:
    """The control fails with a code of its own; the run learns of the other answer when it next waits."""
    services = served()
    pause = await open_pause(services, RUN, PauseReason.AWAIT_INPUT, {}, key="r/0")
    await services.pauses.resume(pause.token, PauseDecision.APPROVE, who=RUN)
    (outcome,) = await apply(services, control("REJECT"), pause=pause)
    assert (outcome.error, outcome.resolved) == ("already_resumed", None)


async def test_where_controls_fail_loud_a_pause_they_opened_is_given_up(served: Callable[..., AgentServices]) -> None:
    """The run ends with the error, and its open pause is withdrawn."""
    opened: list[Pause] = []

    class Watched(Coordinator):
        async def request(self, request: Any, **options: Any) -> Pause:
            opened.append(await super().request(request, **options))
            return opened[-1]

    services = served(control_errors=ControlErrors.FAIL, pauses=Watched(clock=FakeClock()))
    with pytest.raises(PayloadInvalidError):
        await apply(services, control("PAUSE"), control("PRIORITIZE", {"priority": "high"}))
    assert (await services.pauses.status(opened[0].token, who=RUN)).decision == "reject"


@pytest.mark.parametrize("priority", [1001, -1001, 1.5, 1e300, float("inf"), float("nan"), True, None])
async def test_a_priority_outside_the_range_is_refused(served: Callable[..., AgentServices], priority: Any) -> None:
    """Before any store is asked, which has a range of its own."""
    services = served(control_errors=ControlErrors.FAIL)
    with pytest.raises(PayloadInvalidError, match="from -1000 to 1000"):
        await apply(services, control("PRIORITIZE", {"priority": priority}))


async def test_an_answer_handed_over_in_mid_step_is_published_like_any_other(
    served: Callable[..., AgentServices],
) -> None:
    """Received, then applied or failed; a token that no call waits for is not routed."""
    bus = MemoryEventBus()
    recorder = EventRecorder(bus)
    gate = Gate(a=RUN, b=RUN)
    services = served(gates=Gates({"x": gate}), bus=bus)
    assert route_answer(services, RUN, control("APPROVE", {"token": "nobody's"})) is None
    assert route_answer(services, RUN, control("RESUME", {"token": "a"})) is None
    good, bad = (route_answer(services, RUN, control("APPROVE", {"token": token})) for token in "ab")
    gate.owners.pop("b")
    for work in (good, bad):
        await work
    assert [(one.outcome, one.err) for one in recorder.payloads(ControlLifecyclePayload)] == [
        ("received", ""),
        ("applied", ""),
        ("received", ""),
        ("failed", "apply_failed"),
    ]
    assert [line.err is None for line in services.history.of("s", who=RUN)] == [True, False]


async def test_an_answer_that_its_call_found_by_itself_has_not_failed(served: Callable[..., AgentServices]) -> None:
    """It resolved the pause in a process that died, and arrives again: published as applied, another one as failed."""
    store, bus = MemoryStore(), MemoryEventBus()
    recorder = EventRecorder(bus)
    gate = Gate()
    services = served(gates=Gates({"x": gate}), bus=bus, binds_answers=True, pauses=Coordinator(store=store))
    pause = await open_pause(services, RUN, PauseReason.APPROVAL_REQUIRED, {}, key="r/0")
    answer = msgspec.structs.replace(control("APPROVE", {"token": pause.token}), event_id="e1")
    sent = SendControl(run_id=RUN.run_id, event_id="e1", type="APPROVE", data=b"{}", answers=pause.token)
    await store.commit(Commit(starts=(NewRun(run_id=RUN.run_id, who=RUN.identity),)))
    await store.commit(Commit(sends=(sent,)))
    assert (await apply(services, answer, pause=OpenPause(pause.token, PauseReason.APPROVAL_REQUIRED)))[0].error == ""
    first = len(recorder.payloads(ControlLifecyclePayload))
    for one in (answer, msgspec.structs.replace(answer, event_id="e2")):
        gate.owners[pause.token] = RUN
        work = route_answer(services, RUN, one)
        del gate.owners[pause.token]
        assert work is not None
        await work
    assert [(one.outcome, one.err) for one in recorder.payloads(ControlLifecyclePayload)[first:]] == [
        ("received", ""),
        ("applied", ""),
        ("received", ""),
        ("failed", "apply_failed"),
    ]


async def test_a_database_that_refuses_in_the_middle_of_a_batch_repeats_nothing(
    served: Callable[..., AgentServices],
) -> None:
    """It is asked again; each control is received once, applied once and kept once, in order."""
    refusals = [DatabaseError("hiccup"), DatabaseError("hiccup")]
    clock = FakeClock()

    class Flaky(Coordinator):
        async def request(self, request: Any, **options: Any) -> Pause:
            if refusals:
                raise refusals.pop()
            return await super().request(request, **options)

    bus = MemoryEventBus()
    recorder = EventRecorder(bus)
    services = served(bus=bus, pauses=Flaky(clock=clock), clock=clock)
    applying = asyncio.create_task(apply(services, control("INJECT_CONTEXT", {"a": 1}), control("PAUSE")))
    await clock.run_for(2.1)
    assert [one.error for one in await applying] == ["", ""]
    lives = [(one.type, one.outcome) for one in recorder.payloads(ControlLifecyclePayload)]
    assert lives == [
        ("INJECT_CONTEXT", "received"),
        ("INJECT_CONTEXT", "applied"),
        ("PAUSE", "received"),
        ("PAUSE", "applied"),
    ]
    assert [one.type for one in services.history.of("s", who=RUN)] == ["INJECT_CONTEXT", "PAUSE"]


async def test_where_controls_fail_loud_so_does_a_database(served: Callable[..., AgentServices]) -> None:
    """No worker resumes such a run, so nothing waits for the database."""

    class Down(Coordinator):
        async def request(self, request: Any, **_: Any) -> Pause:
            raise DatabaseError("gone")

    with pytest.raises(DatabaseError, match="gone"):
        await apply(served(control_errors=ControlErrors.FAIL, pauses=Down(clock=FakeClock())), control("PAUSE"))
