"""What must hold when a story is over, whatever went wrong in it: looked at in the storage and in the world outside.

Nothing here asks the code under test what it did. Records, counts and the events that are kept say it.
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
from harborage.runtime.durable import RunRequest
from harborage.runtime.engines.bodies import read_whole
from harborage.runtime.journal import Arrived, Begun, Done, Ended, Entry, Started, decode_entry
from harborage.runtime.pauses import PauseCoordinator
from harborage.runtime.steering.arrivals import Arrivals
from harborage.runtime.steering.controls import ControlEvent, ControlType
from harborage.store import EventQuery, EventRow, RunRow, Status, Store
from harborage.store.check import disagreements
from harborage.testing.simulation.loop import SimulationError

__all__ = [
    "Act",
    "BrokenPromiseError",
    "Seen",
    "broken_promises",
    "check",
    "entries_of",
    "events_of",
    "finish_of",
    "request_of",
    "tables_that_differ",
]

_HANDED_OVER: Final = frozenset({ControlType.APPROVE, ControlType.REJECT})
_ONCE: Final = ("write", "gated")
_END_EVENTS: Final = frozenset({EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_CANCELLED})


class Act(NamedTuple):
    """Something a service outside did for a run."""

    tool: str
    run_id: str
    what: str
    key: str
    process: str


class BrokenPromiseError(SimulationError):
    """Something is not as it must be. `promises` lists what."""

    def __init__(self, promises: Sequence[str] = ()) -> None:
        self.promises = tuple(promises)
        super().__init__("; ".join(promises))


class Seen(msgspec.Struct, kw_only=True):
    """What is left of a story: what is kept, what was done outside, and what people sent.

    `sent` are run, event id and encoded control of each in the order they were accepted; `approved` what of which run
    somebody allowed. `faults` is how often an answer of a model may have been lost; a run may fail only
    with a text that holds `may_fail`, when that is not empty. `has_plans` says that each goal is the JSON of a
    plan, whose outcome the run's answer must tell. `marks` name what came up. `spawned` are the
    runs that others may have begun.
    """

    records: Sequence[RunRow]
    store: Store
    pauses: PauseCoordinator
    who: Identity
    sent: Sequence[tuple[str, str, bytes]]
    acts: Sequence[Act] = ()
    asked: Mapping[tuple[str, int], int] = {}
    approved: Collection[tuple[str, str]] = ()
    faults: int = 0
    has_plans: bool = False
    may_fail: str = ""
    marks: Collection[str] = ()
    spawned: Collection[str] = ()

    def count(self, tool: str, run_id: str, what: str) -> int:
        """How often a tool acted for a run."""
        return sum(one[:3] == (tool, run_id, what) for one in self.acts)


async def check(seen: Seen) -> None:
    """Accept a story in which every promise was kept.

    Raises:
        BrokenPromiseError: it names those that were not.
    """
    broken = [*await broken_promises(seen), *await tables_that_differ(seen.store)]
    if broken:
        raise BrokenPromiseError(broken)


async def broken_promises(seen: Seen) -> list[str]:
    """Every promise that was broken, in words."""
    broken = [*_acts(seen), *_model_calls(seen)]
    parents: dict[str, str] = {}
    for record in sorted(seen.records, key=lambda one: one.created_at):
        entries = await entries_of(seen, record)
        finish = finish_of(entries)
        request = request_of(entries)
        if request.forked_from:
            parents[record.run_id] = request.forked_from
        line = [record.run_id]
        while line[-1] in parents:
            line.append(parents[line[-1]])
        found = [
            *_one_end(record, entries),
            *_failed(seen, record),
            *_begun_once(entries),
            *_controls(seen, line, entries),
        ]
        if finish is not None and seen.has_plans:
            found += _told(seen, request.goal, line, finish)
        if request.is_rehearsal:
            found += _rehearsed(seen, record)
        broken += [f"run {record.run_id[-6:]}: {one}" for one in found]
    broken += await _events(seen)
    broken += await _waiting(seen)
    return broken


async def tables_that_differ(store: Store) -> list[str]:
    """What the tables of a store say of each other, and of the journals, that is not so; a control counts once."""
    return [f"{one.subject[-6:]}: {one.says}" for one in await disagreements(store, consumed=_taken_in)]


def _taken_in(stored: bytes) -> Iterator[str]:
    """The controls that an entry says reached its run."""
    entry = decode_entry(stored, "", 0)
    if isinstance(entry, Arrived) and not bytes(entry.arrivals).startswith(b'{"$body"'):
        yield from (control.event_id for control in codec.decode(bytes(entry.arrivals), Arrivals).controls)


async def events_of(seen: Seen) -> list[EventRow]:
    """What is kept of the events of the session."""
    who = seen.who
    mine = EventQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id, limit=1_000_000)
    return await seen.store.events(mine)


async def entries_of(seen: Seen, record: RunRow) -> Sequence[Entry]:
    """What is recorded of a run."""
    store = seen.store
    stored = await store.entries(record.run_id)
    return await read_whole(record.run_id, stored, lambda digest: store.body(record.run_id, digest))


def request_of(entries: Sequence[Entry]) -> RunRequest:
    """What a run was started with."""
    first = entries[0]
    assert isinstance(first, Started)
    request: RunRequest = codec.decode(bytes(first.request), RunRequest)
    return request


def _rehearsed(seen: Seen, record: RunRow) -> Iterator[str]:
    """A run that only rehearses changes nothing outside."""
    for act in seen.acts:
        if act.run_id == record.run_id and act.tool != "read":
            yield f"it was to rehearse, and did {act.tool} {act.what}"


def finish_of(entries: Sequence[Entry]) -> Finish | None:
    """What a run ended with; None for one that failed."""
    last = entries[-1]
    if isinstance(last, Ended) and last.finish is not None:
        finish: Finish = codec.decode(bytes(last.finish), Finish)
        return finish
    return None


def _one_end(record: RunRow, entries: Sequence[Entry]) -> Iterator[str]:
    ends = [at for at, entry in enumerate(entries) if isinstance(entry, Ended)]
    if ends != [len(entries) - 1]:
        yield f"is {record.status}, and {len(ends)} of its {len(entries)} entries say that it ended: {ends}"


def _failed(seen: Seen, record: RunRow) -> Iterator[str]:
    """A run fails when its model does, and for nothing else that happens here."""
    is_meant = seen.may_fail and seen.may_fail in record.reason
    if record.status is Status.FAILED and not is_meant:
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


def _acts(seen: Seen) -> Iterator[str]:
    """What the service did: once where it may be done once, and only what somebody allowed."""
    for (tool, run_id, what), times in Counter(act[:3] for act in seen.acts).items():
        if times > 1 and tool != "read":
            yield f"run {run_id[-6:]}: {tool} {what} was done {times} times"
        if tool == "gated" and (run_id, what) not in seen.approved:
            yield f"run {run_id[-6:]}: gated {what} was done, and nobody had allowed it"


def _model_calls(seen: Seen) -> Iterator[str]:
    """A model is asked again only where an answer may have been lost: once for each time that something struck."""
    most = seen.faults
    extra = {run_id: 0 for run_id, _ in seen.asked}
    for (run_id, _), times in seen.asked.items():
        extra[run_id] += times - 1
    for run_id, times in extra.items():
        if times > most:
            yield f"run {run_id[-6:]}: the model was asked {times} times too often, after {most} faults"


def _controls(seen: Seen, line: Sequence[str], entries: Sequence[Entry]) -> Iterator[str]:
    """Each control reached the run once, in the order they were sent; those that did not came after its last step.

    `line` is the run, and those whose first steps it took over, with what had reached them by then.
    """
    sent = [event_id for run_id, event_id, _ in seen.sent if run_id == line[0]]
    kinds = {event_id: codec.decode(data, ControlEvent).type for run_id, event_id, data in seen.sent if run_id in line}
    batches = {
        (entry.position, bytes(entry.arrivals)) for entry in entries if isinstance(entry, Arrived)
    }  # an append that was tried twice says the same thing twice
    controls = [
        control
        for position, arrivals in sorted(batches, key=lambda one: _place(one[0]))
        for control in codec.decode(arrivals, Arrivals).controls
    ]
    arrived = [control.event_id for control in controls]
    # A run that ends takes the runs that it spawned along.
    cascade = {one.event_id for one in controls if one.type is ControlType.CANCEL and line[0] in seen.spawned}
    for event_id, times in Counter(arrived).items():
        if times > 1:
            yield f"{kinds.get(event_id)} {event_id} reached it {times} times"
        if event_id not in kinds and event_id not in cascade and not event_id.startswith("fork-"):
            yield f"{event_id} reached it, and nobody had sent it"
    mine = frozenset(sent)
    plain = [one for one in arrived if one in mine and kinds.get(one) not in _HANDED_OVER]
    wanted = [one for one in sent if kinds[one] not in _HANDED_OVER]
    if plain != wanted[: len(plain)]:
        yield f"got {plain} of {wanted}"


def _place(position: str) -> tuple[int, ...]:
    """Where a position stands among the others of the run's own line."""
    history, _, rest = position.rpartition("~")
    return (int(history or 0), *(int(part) for part in rest.split(".")))


def _told(seen: Seen, goal: str, line: Sequence[str], finish: Finish) -> Iterator[str]:
    """What the run says that happened is what happened."""
    if finish.reason is not FinishReason.GOAL or not isinstance(finish.payload, dict):
        return
    plan = json.loads(goal)["plan"]
    steps = [step for step in plan if step[0] != "ask"]
    observed = finish.payload["seen"]
    if len(observed) != len(steps):
        yield f"{len(observed)} of {len(steps)} steps were seen"
    for (kind, what), observation in zip(steps, observed, strict=False):
        if isinstance(what, str):
            yield from _answered(seen, line, kind, what, observation)
        elif isinstance(observation, list):
            for (name, each), one in zip(what, observation, strict=True):
                yield from _answered(seen, line, name, each, one)


def _answered(seen: Seen, line: Sequence[str], kind: str, what: str, observation: Any) -> Iterator[str]:
    tool = "read" if kind == "large" else kind
    times = sum(seen.count(tool, run_id, what) for run_id in line)
    if isinstance(observation, dict) and "error" in observation:
        if "unknown" in observation["error"] and tool not in _ONCE:
            yield f"{kind} {what} may be called again, and became unknown"
    elif isinstance(observation, str) and not observation.startswith(f"did {what}"):
        yield f"{kind} {what} was answered with {observation[:80]!r}"
    elif times == 0:
        yield f"{kind} {what} was answered, and was not done"


async def _events(seen: Seen) -> list[str]:
    """The store has every place of the session once, one outcome for each control, and one end for each run."""
    kept = await events_of(seen)
    numbers = [one.place for one in kept]
    if numbers != list(range(1, len(numbers) + 1)):
        missing = sorted(set(range(1, max(numbers, default=0) + 1)) - set(numbers))
        return [f"the events of the session have gaps at {missing[:10]}"]
    events = [decode_event(one) for one in kept]
    return [*_outcomes(seen, events), *_ends(seen, events)]


def _outcomes(seen: Seen, events: Sequence[Event]) -> Iterator[str]:
    """A control that was accepted is applied, fails or is rejected, once, whatever strikes."""
    told = Counter(
        (event.identity.run_id, _field(event, "type"))
        for event in events
        if event.type in {EventType.CONTROL_APPLIED, EventType.CONTROL_REJECTED}
    )
    accepted = {event_id: (run_id, codec.decode(data, ControlEvent).type) for run_id, event_id, data in seen.sent}
    wanted = Counter((run_id, str(kind)) for run_id, kind in accepted.values())
    # A run that ends takes the runs that it spawned along; a fork may begin with a goal of its own.
    unsent = {(run_id, str(ControlType.CANCEL)) for run_id in seen.spawned}
    unsent |= {(record.run_id, str(ControlType.REDIRECT)) for record in seen.records}
    for key in sorted(told.keys() | wanted.keys()):
        least = wanted[key]
        most = wanted[key] + (key in unsent)
        if not least <= told[key] <= most:
            yield f"run {key[0][-6:]}: {wanted[key]} {key[1]} were accepted, and {told[key]} have an outcome"


def _field(event: Event, name: str) -> str:
    """A field of a kept event."""
    typed = typed_event(event).payload
    if isinstance(typed, RedactedMap):  # it was told with what is not safe to tell everybody
        return str(typed.data.get("".join(part.title() for part in name.split("_")), ""))
    return str(getattr(typed, name, ""))


def _ends(seen: Seen, events: Sequence[Event]) -> Iterator[str]:
    """A run that is over was said to be over, once.

    Its task ends in a change of its own: what strikes before that is on record leaves a run that is not told.
    """
    told = Counter(_field(event, "task_id") for event in events if event.type in _END_EVENTS)
    for record in seen.records:
        wanted = int(record.status.is_final)
        if not wanted - seen.faults <= told[record.run_id] <= wanted:
            yield f"run {record.run_id[-6:]}: it ended {wanted} times, and {told[record.run_id]} events say so"


async def _waiting(seen: Seen) -> list[str]:
    """Nobody is asked any more for runs that are over."""
    over = {record.run_id for record in seen.records if record.status.is_final}
    rows = (await seen.pauses.list(who=seen.who, page_size=200)).rows
    return [
        f"run {one.identity.run_id[-6:]} is over, and {one.token} waits" for one in rows if one.identity.run_id in over
    ]
