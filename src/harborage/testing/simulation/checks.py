"""The promises that hold at the end of every story, checked in the storage and in the world outside.

The code under test is not asked: journals, counts and stored events are the evidence.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from harborage import codec
from harborage.events import Event, EventType, RedactedMap, typed_event
from harborage.events.rows import decode_event
from harborage.identity import Identity
from harborage.planner import Finish, FinishReason
from harborage.runtime.durable.bodies import read_whole
from harborage.runtime.durable.engine import RunPhase
from harborage.runtime.durable.journal import Arrived, Begun, Done, Ended, Entry, Started, decode_entry
from harborage.runtime.durable.reader import phase_of
from harborage.runtime.loop.arrivals import Arrivals
from harborage.runtime.loop.controls import ControlEvent, ControlType
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.pauses import Coordinator
from harborage.store import EventQuery, EventRow, RunRow, Store
from harborage.store.check import disagreements
from harborage.testing.simulation.loop import SimulationError

_ANSWERS: Final = frozenset({ControlType.APPROVE, ControlType.REJECT})
_ONCE: Final = ("write", "gated")
_END_EVENTS: Final = frozenset({EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_CANCELLED})


class ServiceCall(NamedTuple):
    """A call that a service outside did for a run."""

    tool: str
    run_id: str
    what: str
    key: str
    process: str


class InvariantBrokenError(SimulationError):
    """An invariant does not hold at the end of a simulation. `promises` has a sentence for each that is broken."""

    def __init__(self, promises: Sequence[str] = ()) -> None:
        self.promises = tuple(promises)
        super().__init__("; ".join(promises))


class Evidence(msgspec.Struct, kw_only=True):
    """The evidence that a story leaves: the storage, the calls of services, and the accepted controls.

    `sent` has run, event id and encoded control of each control in the order they were accepted; `approved` has the
    approved calls as run and argument. `faults` is how often an answer of a model may have been lost; a run may fail
    only with a text that holds `may_fail`, if that is not empty. `has_plans` says that each goal is the JSON of a plan,
    whose outcome must be in the run's answer. `marks` name the situations that came up. `spawned` are the runs that
    other runs may have begun.
    """

    records: Sequence[RunRow]
    store: Store
    pauses: Coordinator
    who: Identity
    sent: Sequence[tuple[str, str, bytes]]
    acts: Sequence[ServiceCall] = ()
    asked: Mapping[tuple[str, int], int] = {}
    approved: Collection[tuple[str, str]] = ()
    faults: int = 0
    has_plans: bool = False
    may_fail: str = ""
    marks: Collection[str] = ()
    spawned: Collection[str] = ()

    def count(self, tool: str, run_id: str, what: str) -> int:
        """Return how often a tool acted for a run."""
        return sum(one[:3] == (tool, run_id, what) for one in self.acts)


async def check(evidence: Evidence) -> None:
    """Accept a story that broke no promise.

    Raises:
        InvariantBrokenError: it lists the broken promises.
    """
    broken = [*await find_broken_promises(evidence), *await table_disagreements(evidence.store)]
    if broken:
        raise InvariantBrokenError(broken)


async def find_broken_promises(evidence: Evidence) -> list[str]:
    """Return a sentence for every broken promise."""
    broken = [*_acts(evidence), *_model_calls(evidence)]
    parents: dict[str, str] = {}
    for record in sorted(evidence.records, key=lambda one: one.created_at):
        entries = await load_entries(evidence, record)
        finish = decode_finish(entries)
        request = decode_request(entries)
        if request.forked_from:
            parents[record.run_id] = request.forked_from
        line = [record.run_id]
        while line[-1] in parents:
            line.append(parents[line[-1]])
        found = [
            *_one_end(record, entries),
            *_failed(evidence, record),
            *_begun_once(entries),
            *_controls(evidence, line, entries),
        ]
        if finish is not None and evidence.has_plans:
            found += _plan_outcome(evidence, request.goal, line, finish)
        if request.is_rehearsal:
            found += _dry_run(evidence, record)
        broken += [f"run {record.run_id[-6:]}: {one}" for one in found]
    broken += await _events(evidence)
    broken += await _open_pauses(evidence)
    return broken


async def table_disagreements(store: Store) -> list[str]:
    """Return where the tables of a store contradict each other or the journals; a control counts once."""
    return [f"{one.subject[-6:]}: {one.says}" for one in await disagreements(store, consumed=_control_ids)]


def _control_ids(stored: bytes) -> Iterator[str]:
    """Yield the ids of the controls that reached the run with an entry."""
    entry = decode_entry(stored, "", 0)
    if isinstance(entry, Arrived) and not bytes(entry.arrivals).startswith(b'{"$body"'):
        yield from (control.event_id for control in codec.decode(bytes(entry.arrivals), Arrivals).controls)


async def load_events(evidence: Evidence) -> list[EventRow]:
    """Return the stored events of the session."""
    who = evidence.who
    mine = EventQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, limit=1_000_000)
    return await evidence.store.events(mine)


async def load_entries(evidence: Evidence, record: RunRow) -> Sequence[Entry]:
    """Return the journal of a run."""
    store = evidence.store
    stored = await store.entries(record.run_id)
    return await read_whole(record.run_id, stored, lambda digest: store.body(record.run_id, digest))


def decode_request(entries: Sequence[Entry]) -> RunRequest:
    """Return the request that started a run."""
    first = entries[0]
    assert isinstance(first, Started)
    request: RunRequest = codec.decode(bytes(first.request), RunRequest)
    return request


def _dry_run(evidence: Evidence, record: RunRow) -> Iterator[str]:
    """A dry run changes nothing outside."""
    for act in evidence.acts:
        if act.run_id == record.run_id and act.tool != "read":
            yield f"it was a dry run, and did {act.tool} {act.what}"


def decode_finish(entries: Sequence[Entry]) -> Finish | None:
    """Return how a run finished; None for one that failed."""
    last = entries[-1]
    if isinstance(last, Ended) and last.finish is not None:
        finish: Finish = codec.decode(bytes(last.finish), Finish)
        return finish
    return None


def _one_end(record: RunRow, entries: Sequence[Entry]) -> Iterator[str]:
    ends = [at for at, entry in enumerate(entries) if isinstance(entry, Ended)]
    if ends != [len(entries) - 1]:
        yield f"is {record.status}, and {len(ends)} of its {len(entries)} entries say that it ended: {ends}"


def _failed(evidence: Evidence, record: RunRow) -> Iterator[str]:
    """A run fails only when its model does; one that ends without its goal has a finish."""
    is_meant = evidence.may_fail and evidence.may_fail in record.reason
    if phase_of(record) is RunPhase.FAILED and not is_meant:
        yield f"failed: {record.reason}"


def _begun_once(entries: Sequence[Entry]) -> Iterator[str]:
    """A call that must not be made twice is not begun twice, and no step has two results."""
    begun = {(one.position, one.at) for one in entries if isinstance(one, Begun) and _may_not_repeat(one.name)}
    for position, times in Counter(position for position, _ in begun).items():
        if times > 1:
            yield f"the call at {position} was begun {times} times"
    results = {(one.position, bytes(one.result)) for one in entries if isinstance(one, Done)}
    for position, times in Counter(position for position, _ in results).items():
        if times > 1:
            yield f"the step at {position} has {times} results"


def _may_not_repeat(name: str) -> bool:
    return name.removeprefix("tool.") in _ONCE


def _acts(evidence: Evidence) -> Iterator[str]:
    """A service did a call at most once if it must not repeat, and gated calls only if they were approved."""
    for (tool, run_id, what), times in Counter(act[:3] for act in evidence.acts).items():
        if times > 1 and tool != "read":
            yield f"run {run_id[-6:]}: {tool} {what} was done {times} times"
        if tool == "gated" and (run_id, what) not in evidence.approved:
            yield f"run {run_id[-6:]}: gated {what} was done without approval"


def _model_calls(evidence: Evidence) -> Iterator[str]:
    """A model is asked again only where an answer may have been lost: once for each fault."""
    most = evidence.faults
    extra = {run_id: 0 for run_id, _ in evidence.asked}
    for (run_id, _), times in evidence.asked.items():
        extra[run_id] += times - 1
    for run_id, times in extra.items():
        if times > most:
            yield f"run {run_id[-6:]}: the model was asked {times} times too often, after {most} faults"


def _controls(evidence: Evidence, line: Sequence[str], entries: Sequence[Entry]) -> Iterator[str]:
    """Each control reached the run once, in the order they were sent; those that did not came after its last step.

    `line` is the run and those it was forked from, with the controls that had reached them by then.
    """
    sent = [event_id for run_id, event_id, _ in evidence.sent if run_id == line[0]]
    kinds = {
        event_id: codec.decode(data, ControlEvent).type for run_id, event_id, data in evidence.sent if run_id in line
    }
    batches = {
        (entry.position, bytes(entry.arrivals)) for entry in entries if isinstance(entry, Arrived)
    }  # an append that was tried twice says the same thing twice
    controls = [
        control
        for position, arrivals in sorted(batches, key=lambda one: _position_key(one[0]))
        for control in codec.decode(arrivals, Arrivals).controls
    ]
    arrived = [control.event_id for control in controls]
    # A run that ends cancels the runs that it spawned.
    cascade = {one.event_id for one in controls if one.type is ControlType.CANCEL and line[0] in evidence.spawned}
    for event_id, times in Counter(arrived).items():
        if times > 1:
            yield f"{kinds.get(event_id)} {event_id} reached it {times} times"
        if event_id not in kinds and event_id not in cascade and not event_id.startswith("fork-"):
            yield f"{event_id} reached it, but was not sent"
    mine = frozenset(sent)
    plain = [one for one in arrived if one in mine and kinds.get(one) not in _ANSWERS]
    wanted = [one for one in sent if kinds[one] not in _ANSWERS]
    if plain != wanted[: len(plain)]:
        yield f"got {plain} of {wanted}"


def _position_key(position: str) -> tuple[int, ...]:
    """Return the sort key of a position in a run's line of forks."""
    history, _, rest = position.rpartition("~")
    return (int(history or 0), *(int(part) for part in rest.split(".")))


def _plan_outcome(evidence: Evidence, goal: str, line: Sequence[str], finish: Finish) -> Iterator[str]:
    """The answer of the run agrees with the calls that were done."""
    if finish.reason is not FinishReason.GOAL or not isinstance(finish.payload, dict):
        return
    plan = json.loads(goal)["plan"]
    steps = [step for step in plan if step[0] != "ask"]
    observed = finish.payload["seen"]
    if len(observed) != len(steps):
        yield f"{len(observed)} of {len(steps)} steps were seen"
    for (kind, what), observation in zip(steps, observed, strict=False):
        if isinstance(what, str):
            yield from _answered(evidence, line, kind, what, observation)
        elif isinstance(observation, list):
            for (name, each), one in zip(what, observation, strict=True):
                yield from _answered(evidence, line, name, each, one)


def _answered(evidence: Evidence, line: Sequence[str], kind: str, what: str, observation: Any) -> Iterator[str]:
    tool = "read" if kind == "large" else kind
    times = sum(evidence.count(tool, run_id, what) for run_id in line)
    if isinstance(observation, dict) and "error" in observation:
        if "unknown" in observation["error"] and tool not in _ONCE:
            yield f"{kind} {what} may be called again, and became unknown"
    elif isinstance(observation, str) and not observation.startswith(f"did {what}"):
        yield f"{kind} {what} was answered with {observation[:80]!r}"
    elif times == 0:
        yield f"{kind} {what} was answered, and was not done"


async def _events(evidence: Evidence) -> list[str]:
    """The store has every place of the session once, one outcome for each control, and one end for each run."""
    stored = await load_events(evidence)
    numbers = [one.place for one in stored]
    if numbers != list(range(1, len(numbers) + 1)):
        missing = sorted(set(range(1, max(numbers, default=0) + 1)) - set(numbers))
        return [f"the events of the session have gaps at {missing[:10]}"]
    events = [decode_event(one) for one in stored]
    return [*_outcomes(evidence, events), *_ends(evidence, events)]


def _outcomes(evidence: Evidence, events: Sequence[Event]) -> Iterator[str]:
    """A control that was accepted is applied, fails or is rejected, once, with any fault."""
    counted = Counter(
        (event.identity.run_id, _field(event, "type"))
        for event in events
        if event.type in {EventType.CONTROL_APPLIED, EventType.CONTROL_REJECTED}
    )
    accepted = {event_id: (run_id, codec.decode(data, ControlEvent).type) for run_id, event_id, data in evidence.sent}
    wanted = Counter((run_id, str(kind)) for run_id, kind in accepted.values())
    # A run that ends cancels the runs that it spawned.
    unsent = {(run_id, str(ControlType.CANCEL)) for run_id in evidence.spawned}
    for key in sorted(counted.keys() | wanted.keys()):
        least = wanted[key]
        most = wanted[key] + (key in unsent)
        if not least <= counted[key] <= most:
            yield f"run {key[0][-6:]}: {wanted[key]} {key[1]} were accepted, and {counted[key]} have an outcome"


def _field(event: Event, name: str) -> str:
    """Return a field of a stored event."""
    typed = typed_event(event).payload
    if isinstance(typed, RedactedMap):  # the payload was redacted
        return str(typed.data.get("".join(part.title() for part in name.split("_")), ""))
    return str(getattr(typed, name, ""))


def _ends(evidence: Evidence, events: Sequence[Event]) -> Iterator[str]:
    """A run that has ended has one event of its end, with any fault: the two are one commit. Any other has none."""
    counted = Counter(_field(event, "task_id") for event in events if event.type in _END_EVENTS)
    for record in evidence.records:
        wanted = int(record.status.is_final)
        if counted[record.run_id] != wanted:
            yield f"run {record.run_id[-6:]}: it ended {wanted} times, and {counted[record.run_id]} events say so"


async def _open_pauses(evidence: Evidence) -> list[str]:
    """No pause is open for runs that have ended."""
    over = {record.run_id for record in evidence.records if record.status.is_final}
    rows = (await evidence.pauses.list(who=evidence.who, page_size=200)).rows
    return [
        f"run {one.identity.run_id[-6:]} has ended, and pause {one.token} is open"
        for one in rows
        if one.identity.run_id in over
    ]
