"""The coordinator in one process: the order of checks, one winner, live handles, and who may look."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from harborage.codec import UnserializableError
from harborage.errors import InvalidOptionError
from harborage.events import MemoryEventBus, PauseRequestedPayload, PauseResumedPayload, Triple
from harborage.identity import Identity, IdentityRequiredError, Quadruple, bound
from harborage.planner import ProcessLocalHandleRegistry, ToolContext, Trajectory
from harborage.runtime.pauses import (
    AlreadyResumedError,
    Coordinator,
    InvalidReasonError,
    Pause,
    PauseDecision,
    PauseDecisionError,
    PauseFilter,
    PauseNotFoundError,
    PauseReason,
    PauseRequest,
    PauseScopeMismatchError,
    PauseState,
    ToolContextLostError,
)
from harborage.store.memory import MemoryStore
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder

Asking = Callable[..., PauseRequest]

INTRUDER = Quadruple("evil", "eve", "s6", "r6")
COLLEAGUE = Quadruple("acme", "bob", "s2")
ADMIN = frozenset({"admin"})


def test_the_coordinator_is_the_port() -> None:
    """A caller that asks for the port can be handed this class."""
    port: Coordinator = Coordinator()
    assert isinstance(port, Coordinator)


async def test_a_request_opens_a_pause_and_publishes_it(
    coordinator: Coordinator, recorder: EventRecorder, asking: Asking, owner: Quadruple, clock: FakeClock
) -> None:
    """The pause is open under a fresh token, and one event says so for the owner and its run."""
    pause = await coordinator.request(asking(payload={"ask": "city?"}))
    assert (pause.state, pause.identity, pause.payload) == (PauseState.PAUSED, owner, {"ask": "city?"})
    assert (pause.paused_at, pause.resumed_at, pause.decision) == (clock.now(), None, None)
    assert len(pause.token) == 26
    assert await coordinator.status(pause.token) == pause
    assert recorder.payloads(PauseRequestedPayload) == [
        PauseRequestedPayload(token=pause.token, reason="await_input", approvers=("user:ann", "scope:admin"))
    ]
    assert recorder.events[0].identity == owner


@pytest.mark.parametrize("part", ["tenant_id", "user_id", "session_id"])
async def test_an_incomplete_identity_is_refused(coordinator: Coordinator, asking: Asking, part: str) -> None:
    """Each part of the triple is needed, and nothing is recorded."""
    parts = {"tenant_id": "acme", "user_id": "ann", "session_id": "s1", part: ""}
    with pytest.raises(IdentityRequiredError, match=part):
        await coordinator.request(asking(identity=Identity(**parts)))
    assert (await coordinator.list(who=COLLEAGUE)).total == 0


async def test_an_unknown_reason_is_refused(coordinator: Coordinator, asking: Asking) -> None:
    """The identity is looked at first."""
    with pytest.raises(InvalidReasonError, match="'bored'"):
        await coordinator.request(asking(reason="bored"))
    with pytest.raises(IdentityRequiredError):
        await coordinator.request(asking(reason="bored", identity=Quadruple()))


async def test_a_reason_may_come_as_its_word(coordinator: Coordinator, asking: Asking) -> None:
    """The wire string is as good as the member."""
    assert (await coordinator.request(asking(reason="external_event"))).reason is PauseReason.EXTERNAL_EVENT


async def test_an_unknown_default_is_refused(coordinator: Coordinator, asking: Asking) -> None:
    """A deadline must lead somewhere."""
    with pytest.raises(PauseDecisionError, match="'shrug'"):
        await coordinator.request(asking(default="shrug"))


async def test_a_deadline_needs_a_time_zone(coordinator: Coordinator, asking: Asking) -> None:
    """A time without a zone is ambiguous."""
    with pytest.raises(InvalidOptionError):
        await coordinator.request(asking(deadline=datetime(2026, 1, 1)))


async def test_a_live_object_in_the_payload_is_refused_without_a_store_too(
    coordinator: Coordinator, asking: Asking, recorder: EventRecorder, owner: Quadruple
) -> None:
    """The path names it, nothing is recorded or published, and the next valid request works."""
    with pytest.raises(UnserializableError) as caught:
        await coordinator.request(asking(payload={"socket": object()}))
    assert caught.value.field == "PauseRecord.payload.socket"
    assert (await coordinator.list(who=owner)).total == 0
    assert recorder.types == []
    assert (await coordinator.request(asking(payload={"socket": "closed"}))).is_paused


async def test_a_live_object_in_the_trajectory_is_named_by_its_own_path(
    coordinator: Coordinator, asking: Asking
) -> None:
    """The path is the one that serialising the trajectory itself would give."""
    trajectory = Trajectory(tool_context=ToolContext(serializable={"live_callback": print}))
    with pytest.raises(UnserializableError) as caught:
        await coordinator.request(asking(trajectory=trajectory))
    assert caught.value.field == "Trajectory.tool_context.serializable.live_callback"


async def test_the_payload_is_looked_at_before_the_trajectory(coordinator: Coordinator, asking: Asking) -> None:
    """With both broken the payload is named."""
    trajectory = Trajectory(tool_context=ToolContext(serializable={"live": print}))
    with pytest.raises(UnserializableError, match=r"PauseRecord\.payload\.f"):
        await coordinator.request(asking(payload={"f": print}, trajectory=trajectory))


async def test_a_pause_keeps_its_own_payload(coordinator: Coordinator, asking: Asking) -> None:
    """What the caller changes afterwards does not reach the pause."""
    payload = {"ask": "city?"}
    pause = await coordinator.request(asking(payload=payload))
    payload["ask"] = "changed"
    assert (await coordinator.status(pause.token)).payload == {"ask": "city?"}


async def test_the_run_comes_from_the_context(coordinator: Coordinator, asking: Asking, owner: Quadruple) -> None:
    """An owner without a run is in the ambient one, as long as that is of the same triple."""
    with bound(owner):
        assert (await coordinator.request(asking(identity=owner.identity))).identity == owner
        assert (await coordinator.request(asking(identity=COLLEAGUE))).identity == COLLEAGUE
    assert (await coordinator.request(asking(identity=owner.identity))).identity.run_id == ""


async def test_the_same_key_gives_the_same_pause(
    coordinator: Coordinator, asking: Asking, recorder: EventRecorder
) -> None:
    """Asking again under a key is no second question; a resolved pause comes back as resolved."""
    first, second = await asyncio.gather(*(coordinator.request(asking(key="run/7")) for _ in range(2)))
    assert first == second
    assert recorder.types == ["pause.requested"]
    resolved = await coordinator.resume(first.token, PauseDecision.RESUME, {"a": 1}, who=first.identity)
    assert await coordinator.request(asking(key="run/7")) == resolved


async def test_a_key_is_the_owners_own(coordinator: Coordinator, asking: Asking) -> None:
    """Another run, user or tenant with the same key is asked for itself."""
    owners = [Quadruple("acme", "ann", "s1", "r1"), Quadruple("acme", "ann", "s1", "r2"), COLLEAGUE, INTRUDER]
    tokens = {(await coordinator.request(asking(key="k", identity=who))).token for who in owners}
    assert len(tokens) == 4


async def test_resuming_resolves_once_and_publishes(
    coordinator: Coordinator, recorder: EventRecorder, asking: Asking, owner: Quadruple, clock: FakeClock
) -> None:
    """The answer is merged over the question, and one event names token, reason and decision."""
    pause = await coordinator.request(asking(payload={"ask": "city?", "tries": 1}))
    clock.advance(5)
    resolved = await coordinator.resume(pause.token, PauseDecision.RESUME, {"tries": 2}, who=owner)
    assert (resolved.state, resolved.decision) == (PauseState.RESUMED, PauseDecision.RESUME)
    assert (resolved.paused_at, resolved.resumed_at) == (pause.paused_at, clock.now())
    assert resolved.payload == {"ask": "city?", "tries": 2}
    assert recorder.payloads(PauseResumedPayload) == [
        PauseResumedPayload(token=pause.token, reason="await_input", decision="resume", by=Triple.of(owner))
    ]
    assert recorder.events[-1].identity == owner


async def test_a_resolved_pause_stays_readable(coordinator: Coordinator, asking: Asking, owner: Quadruple) -> None:
    """Its status and the list of resolved pauses show the outcome."""
    pause = await coordinator.request(asking())
    resolved = await coordinator.resume(pause.token, PauseDecision.APPROVE, {"by": "ann"}, who=owner)
    assert await coordinator.status(pause.token) == resolved
    page = await coordinator.list(PauseFilter(states=(PauseState.RESUMED,)), who=owner)
    assert (page.rows, page.truncated) == ((resolved,), False)


async def test_a_second_resume_is_refused(coordinator: Coordinator, asking: Asking, owner: Quadruple) -> None:
    """A decision is made once."""
    pause = await coordinator.request(asking())
    await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    with pytest.raises(AlreadyResumedError) as caught:
        await coordinator.resume(pause.token, PauseDecision.REJECT, who=owner)
    assert caught.value.token == pause.token
    assert (await coordinator.status(pause.token)).decision is PauseDecision.RESUME


async def test_the_second_answer_learns_how_the_pause_was_resolved(
    coordinator: Coordinator, asking: Asking, owner: Quadruple, clock: FakeClock
) -> None:
    """The decision, the moment and the user; a stranger only that it was."""
    pause = await coordinator.request(asking())
    clock.advance(7)
    await coordinator.resume(pause.token, PauseDecision.REJECT, who=COLLEAGUE, scopes=ADMIN)
    with pytest.raises(AlreadyResumedError) as caught:
        await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    published = caught.value
    assert (published.decision, published.at, published.by) == ("reject", clock.now(), "bob")
    assert f"resolved before (reject by bob at {clock.now():%Y-%m-%d %H:%M:%S} UTC)" in str(published)
    with pytest.raises(AlreadyResumedError) as caught:
        await coordinator.resume(pause.token, PauseDecision.RESUME, who=INTRUDER)
    assert (caught.value.decision, caught.value.at, caught.value.by) == ("", None, "")
    assert "bob" not in str(caught.value)


async def test_a_pause_without_a_waiter_is_withdrawn(
    coordinator: Coordinator, asking: Asking, owner: Quadruple, recorder: EventRecorder
) -> None:
    """It reads as rejected because its run ended, without a user; what was resolved before stays as it was."""
    pause = await coordinator.request(asking(payload={"ask": "city?"}, trajectory=with_handle()))
    with pytest.raises(PauseScopeMismatchError):
        await coordinator.withdraw(pause.token, who=INTRUDER)
    assert await coordinator.withdraw(pause.token, who=owner)
    found = await coordinator.status(pause.token)
    assert (found.decision, found.resolved_by) == (PauseDecision.REJECT, "")
    assert found.payload == {"ask": "city?", "rejected": True, "reason": "run ended"}
    assert recorder.types == ["pause.requested", "pause.resumed"]
    assert not await coordinator.withdraw(pause.token, who=owner)
    with pytest.raises(PauseNotFoundError):
        await coordinator.withdraw("no-such-token", who=owner)
    answered = await coordinator.request(asking())
    resolved = await coordinator.resume(answered.token, PauseDecision.RESUME, who=owner)
    assert not await coordinator.withdraw(answered.token, who=owner)
    assert await coordinator.status(answered.token) == resolved


async def test_of_many_concurrent_resumes_exactly_one_wins(
    coordinator: Coordinator, asking: Asking, owner: Quadruple, recorder: EventRecorder
) -> None:
    """Every other caller gets AlreadyResumedError, and one event is published."""
    pause = await coordinator.request(asking())
    tries = (coordinator.resume(pause.token, PauseDecision.RESUME, {"n": n}, who=owner) for n in range(100))
    results = await asyncio.gather(*tries, return_exceptions=True)
    won = [result for result in results if isinstance(result, Pause)]
    assert len(won) == 1
    assert sum(isinstance(result, AlreadyResumedError) for result in results) == 99
    assert recorder.types.count("pause.resumed") == 1
    assert await coordinator.status(pause.token) == won[0]


@pytest.mark.parametrize("decision", ["", "maybe", "APPROVE"])
async def test_an_unknown_decision_is_refused(coordinator: Coordinator, decision: Any) -> None:
    """It is looked at before identity and token."""
    with pytest.raises(PauseDecisionError):
        await coordinator.resume("no-such-token", decision)


async def test_resuming_needs_an_identity(coordinator: Coordinator) -> None:
    """It is looked at before the token; an explicit one must be complete."""
    with pytest.raises(IdentityRequiredError):
        await coordinator.resume("no-such-token", PauseDecision.RESUME)
    with pytest.raises(IdentityRequiredError):
        await coordinator.resume("no-such-token", PauseDecision.RESUME, who=Quadruple("acme", "", "s1"))


async def test_an_unknown_token_is_not_found(coordinator: Coordinator, owner: Quadruple) -> None:
    """The error names it."""
    with pytest.raises(PauseNotFoundError) as caught:
        await coordinator.resume("no-such-token", PauseDecision.RESUME, who=owner)
    assert caught.value.id == "no-such-token"


async def test_an_intruder_is_refused_and_the_owner_still_resumes(
    coordinator: Coordinator, asking: Asking, owner: Quadruple
) -> None:
    """A foreign tenant changes nothing, not even as an admin of its own."""
    pause = await coordinator.request(asking())
    for scopes in (None, ADMIN):
        with pytest.raises(PauseScopeMismatchError):
            await coordinator.resume(pause.token, PauseDecision.RESUME, who=INTRUDER, scopes=scopes)
    with bound(INTRUDER), pytest.raises(PauseScopeMismatchError):
        await coordinator.resume(pause.token, PauseDecision.RESUME)
    assert (await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)).decision is PauseDecision.RESUME


async def test_the_ambient_identity_resumes(coordinator: Coordinator, asking: Asking, owner: Quadruple) -> None:
    """A run may be another one, and the explicit identity outranks the ambient one."""
    pause = await coordinator.request(asking())
    with bound(owner), pytest.raises(PauseScopeMismatchError):
        await coordinator.resume(pause.token, PauseDecision.RESUME, who=INTRUDER)
    with bound(Quadruple("acme", "ann", "s1", "another-run")):
        assert (await coordinator.resume(pause.token, PauseDecision.RESUME)).identity == owner


async def test_an_admin_of_the_tenant_resumes_only_by_explicit_scope(coordinator: Coordinator, asking: Asking) -> None:
    """Scopes of the context do not count here: they must be passed in."""
    pause = await coordinator.request(asking())
    with bound(COLLEAGUE.identity, scopes=ADMIN), pytest.raises(PauseScopeMismatchError):
        await coordinator.resume(pause.token, PauseDecision.RESUME)
    resolved = await coordinator.resume(pause.token, PauseDecision.REJECT, who=COLLEAGUE, scopes=ADMIN)
    assert resolved.decision is PauseDecision.REJECT


async def test_an_answer_that_is_no_json_leaves_the_pause_open(
    coordinator: Coordinator, asking: Asking, owner: Quadruple
) -> None:
    """The path names the offender and the next answer is taken."""
    pause = await coordinator.request(asking())
    with pytest.raises(UnserializableError, match=r"PauseRecord\.payload\.f"):
        await coordinator.resume(pause.token, PauseDecision.RESUME, {"f": print}, who=owner)
    assert (await coordinator.status(pause.token)).is_paused


async def test_the_trajectory_comes_back_to_the_caller_that_resumes(
    coordinator: Coordinator, asking: Asking, owner: Quadruple
) -> None:
    """The history is handed over once and not kept for a resolved pause."""
    trajectory = Trajectory(query="what is a harbour?")
    pause = await coordinator.request(asking(trajectory=trajectory))
    assert pause.trajectory is None
    assert (await coordinator.status(pause.token)).trajectory is None
    resolved = await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert resolved.trajectory == trajectory.serialize()
    assert (await coordinator.status(pause.token)).trajectory is None


def with_handle() -> Trajectory:
    """A history that needs one live object."""
    return Trajectory(tool_context=ToolContext(handles=("browser",)))


@pytest.mark.parametrize("decision", [PauseDecision.RESUME, PauseDecision.APPROVE])
async def test_a_lost_handle_keeps_the_pause_open(asking: Asking, owner: Quadruple, decision: PauseDecision) -> None:
    """Once the handle is back, the same answer is taken."""
    handles = ProcessLocalHandleRegistry()
    coordinator = Coordinator(handles=handles)
    pause = await coordinator.request(asking(trajectory=with_handle()))
    with pytest.raises(ToolContextLostError) as caught:
        await coordinator.resume(pause.token, decision, who=owner)
    assert caught.value.handle == "browser"
    assert (await coordinator.status(pause.token)).is_paused
    handles.set("browser", object())
    assert (await coordinator.resume(pause.token, decision, who=owner)).decision is decision


async def test_without_a_registry_every_handle_is_lost(
    coordinator: Coordinator, asking: Asking, owner: Quadruple
) -> None:
    """There is no registry that could have the object."""
    pause = await coordinator.request(asking(trajectory=with_handle()))
    with pytest.raises(ToolContextLostError):
        await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)


async def test_a_rejection_needs_no_handle(coordinator: Coordinator, asking: Asking, owner: Quadruple) -> None:
    """A run whose live objects are gone can still be ended."""
    pause = await coordinator.request(asking(trajectory=with_handle()))
    resolved = await coordinator.resume(pause.token, PauseDecision.REJECT, who=owner)
    assert resolved.decision is PauseDecision.REJECT


async def test_without_any_identity_the_token_is_the_capability(coordinator: Coordinator, asking: Asking) -> None:
    """A caller with the token and no identity may look."""
    pause = await coordinator.request(asking())
    assert await coordinator.status(pause.token) == pause


async def test_a_foreign_identity_may_not_look(coordinator: Coordinator, asking: Asking, owner: Quadruple) -> None:
    """Explicit or ambient, it is refused; owner and tenant admin are not."""
    pause = await coordinator.request(asking())
    with pytest.raises(PauseScopeMismatchError):
        await coordinator.status(pause.token, who=INTRUDER)
    with bound(INTRUDER.identity), pytest.raises(PauseScopeMismatchError):
        await coordinator.status(pause.token)
    with pytest.raises(PauseScopeMismatchError):
        await coordinator.status(pause.token, who=COLLEAGUE)
    with bound(INTRUDER.identity):
        assert await coordinator.status(pause.token, who=owner) == pause
    assert await coordinator.status(pause.token, who=COLLEAGUE, scopes=ADMIN) == pause


async def test_an_incomplete_identity_may_not_look(coordinator: Coordinator, asking: Asking) -> None:
    """Half an identity is not the same as none."""
    pause = await coordinator.request(asking())
    with pytest.raises(IdentityRequiredError):
        await coordinator.status(pause.token, who=Identity("acme", "ann", ""))


async def test_the_status_of_an_unknown_token_is_not_found(coordinator: Coordinator) -> None:
    """There is nothing to show."""
    with pytest.raises(PauseNotFoundError):
        await coordinator.status("no-such-token")


async def test_resolved_pauses_of_no_run_are_forgotten_in_time(asking: Asking, owner: Quadruple) -> None:
    """Only the last ones of a tenant stay; memory does not grow with every pause there ever was."""
    coordinator = Coordinator(store=MemoryStore(keep_strays=2))
    foreign = await coordinator.request(asking(identity=INTRUDER))
    await coordinator.resume(foreign.token, PauseDecision.RESUME, who=INTRUDER)
    tokens = [(await coordinator.request(asking())).token for _ in range(3)]
    for token in tokens:
        await coordinator.resume(token, PauseDecision.RESUME, who=owner)
    with pytest.raises(PauseNotFoundError):
        await coordinator.status(tokens[0])
    kept = [*tokens[1:], foreign.token]
    assert [(await coordinator.status(token)).state for token in kept] == ["resumed"] * 3


async def test_a_bus_that_refuses_stops_no_pause(
    asking: Asking, owner: Quadruple, caplog: pytest.LogCaptureFixture
) -> None:
    """Events are best effort here; a failure is logged."""
    bus = MemoryEventBus()
    await bus.aclose()
    coordinator = Coordinator(bus=bus)
    with caplog.at_level(logging.WARNING):
        pause = await coordinator.request(asking())
        await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)
    assert caplog.text.count("was not published") == 2


async def test_no_bus_is_needed(asking: Asking, owner: Quadruple) -> None:
    """A coordinator alone keeps pauses."""
    coordinator = Coordinator()
    pause = await coordinator.request(asking())
    assert (await coordinator.resume(pause.token, PauseDecision.RESUME, who=owner)).decision is PauseDecision.RESUME
