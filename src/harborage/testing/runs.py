"""One run of an agent with everything that was published meanwhile, and what a test may assert of that.

`output, log, error = await run_once(agent, "goal")`, then `assert_sequence(log, ["task.spawned", "task.completed"])`.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import CancelScope
from harborage.errors import HarborageError
from harborage.events import (
    AuditAdminScopeUsedPayload,
    BusConfig,
    Cursor,
    Event,
    EventBus,
    Filter,
    MemoryEventBus,
    RecordBus,
    RedactedMap,
)
from harborage.events.event import wire_key
from harborage.identity import Identity, Quadruple, bound, require_triple

if TYPE_CHECKING:
    from harborage.runtime.effects.agent_setup import AgentLike

Input = TypeVar("Input")
Output = TypeVar("Output")

TEST_IDENTITY: Final = Identity("harbortest", "harbortest", "harbortest")
"""Who a test's runs belong to unless it names another."""

_BUS: Final = BusConfig(max_subscribers_per_session=64, subscriber_buffer_size=512, replay_buffer_size=256)
_DRAIN_S: Final = 5.0
_PARTS: Final = ("tenant_id", "user_id", "session_id")
_SEED: Final = secrets.token_hex(4)
"""What distinguishes the runs of this process from those of others that share a bus with it."""
_numbers: Final = itertools.count(1)


class NoTestAgentError(HarborageError):
    """run_once needs an agent: an Agent, or an async function of a context and an input."""


class RunContext(msgspec.Struct, frozen=True):
    """What `run_once` gives an agent: who it runs for and as which run, where it publishes, and what it depends on."""

    who: Quadruple
    bus: EventBus
    deps: Any = None


AgentFunction: TypeAlias = Callable[[RunContext, Input], Awaitable[Output]]


class EventLog(Sequence[Event]):
    """Events in the order in which they were published. It does not change."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._events = tuple(events)

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __getitem__(self, index: Any) -> Any:
        return self._events[index]

    def __repr__(self) -> str:
        return f"EventLog({self.types})"

    @property
    def types(self) -> list[str]:
        """The types of the events."""
        return [str(event.type) for event in self._events]

    def of_run(self, run_id: str) -> EventLog:
        """Return the events of one run; none for a run that is not in it."""
        return EventLog(event for event in self._events if event.identity.run_id == run_id)


class Once(NamedTuple):
    """What came of one run: its output, None where it failed; the events meanwhile; the error that it raised."""

    output: Any
    log: EventLog
    error: Exception | None


async def run_once(
    agent: AgentFunction[Input, Output] | AgentLike[Output],
    input: Input,
    *,
    who: Identity = TEST_IDENTITY,
    deps: Any = None,
    bus: EventBus | None = None,
    clock: Timers = SYSTEM_CLOCK,
) -> Once:
    """Run an agent once, and return its output, every event of the bus meanwhile, and the error that it raised.

    The agent is an async function of a context and the input, or an `Agent`, whose input is its goal; its runtime is in
    memory. Each call has a run id of its own, `harbortest-run-SEED-N`, which is with `who` the identity of a function's
    context; an `Agent` names its run itself. Without a `bus` it gets one of its own; one that is passed in stays open,
    and what others publish there meanwhile is in the log, too. A bus over a store gets five seconds to store and
    deliver the last events.

    Raises:
        NoTestAgentError: `agent` is neither.
        IdentityRequiredError: `who` lacks a part.
    """
    function: Any = _in_memory(agent) if hasattr(agent, "setup") else agent
    if not callable(function):
        raise NoTestAgentError()
    require_triple(who, "run_once")
    run = who.with_run(f"harbortest-run-{_SEED}-{next(_numbers)}")
    used = MemoryEventBus(config=_BUS, clock=clock) if bus is None else bus
    events: list[Event] = []
    output, error = None, None
    with used.subscribe(Filter(admin=True)) as subscription:
        subscription.divert(events.append, lambda: None)
        try:
            with bound(run):
                output = await function(RunContext(run, used, deps), input)
        except Exception as raised:  # noqa: BLE001 - it is what the caller asked for
            error = raised
        await _wait_until_delivered(used, who, clock)
    if bus is None:
        await used.aclose()
    return Once(output, EventLog(_without_own_audit(events)), error)


def assert_sequence(log: Iterable[Event], wanted: Iterable[str]) -> None:
    """Accept a log in which events of these types come in this order; others may lie between, before and behind.

    Raises:
        AssertionError: it names the first type that is missing, its place in `wanted`, and the types that came.
    """
    came = [str(event.type) for event in log]
    rest = iter(came)
    for place, one in enumerate(wanted, 1):
        if one not in rest:
            raise AssertionError(f"no {one} (number {place} of the sequence) in this order; the events were {came}")


def assert_no_leaks(log: Iterable[Event]) -> None:
    """Accept a log in which every run has one owner, and no payload names another than its event does.

    The first event of a run says whose it is.

    Raises:
        AssertionError: it names each event that belongs to another tenant, user or session.
    """
    owners: dict[str, Identity] = {}
    leaks: list[str] = []
    for number, event in enumerate(log, 1):
        who = event.identity.identity
        owner = owners.setdefault(event.identity.run_id, who) if event.identity.run_id else who
        if who != owner:
            leaks.append(f"event {number}, {event.type}: run {event.identity.run_id} of {owner} has one of {who}")
        named = _named_in(event.payload)
        if named is not None and named != who:
            leaks.append(f"event {number}, {event.type}: of {who}, but its payload names {named}")
    if leaks:
        raise AssertionError("events leak between principals:\n" + "\n".join(leaks))


def _in_memory(agent: Any) -> AgentFunction[Any, Any]:
    """Return an agent's run in a runtime of its own as a function."""

    async def run(context: RunContext, goal: Any) -> Any:
        from harborage.runtime.host import Runtime  # with all that executes runs, which a plain function needs not

        async with Runtime([agent], bus=context.bus) as runtime:
            started = await runtime.start(goal, who=context.who.identity, deps=context.deps)
            return (await started.result()).output

    return run


async def _wait_until_delivered(bus: EventBus, who: Identity, clock: Timers) -> None:
    """Wait until a bus over a store has delivered what was published; one in memory has."""
    if isinstance(bus, RecordBus):
        with CancelScope(clock, _DRAIN_S):
            await bus.replay(Cursor(sequence=bus.last_sequence(who)), Filter.of(who))


def _without_own_audit(events: Sequence[Event]) -> Iterator[Event]:
    """Yield the events but the audit of the subscription to all of them, which is the first of its kind."""
    is_own = True
    for event in events:
        if is_own and isinstance(event.payload, AuditAdminScopeUsedPayload):
            is_own = False
        else:
            yield event


def _named_in(payload: Any) -> Identity | None:
    """Return whom a payload names as its owner; None where it names none, or leaves a part blank."""
    if not isinstance(payload, RedactedMap):
        owner = getattr(payload, "identity", None)
        parts = [getattr(owner, name, "") for name in _PARTS]
    else:
        # Redacted in this process it has the names of its fields, read back from a store those of the wire.
        found = payload.data.get("identity", payload.data.get(wire_key("identity"), {}))
        owner = found if isinstance(found, Mapping) else {}
        parts = [str(owner.get(name, owner.get(wire_key(name), ""))) for name in _PARTS]
    return Identity(*parts) if all(parts) else None
