"""What a story was about: the things that happened in it, read off what is left of it.

A simulation that never parks a run proves nothing about parked runs, however many seeds it plays. So each story says
what came up in it, and whoever plays many can see that nothing is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from harborage import codec
from harborage.runtime.durable.journal import Arrived, Begun, Cut, Done, Entry, Joined
from harborage.runtime.loop.arrivals import Arrivals
from harborage.runtime.loop.controls import ControlEvent, ControlType
from harborage.testing.simulation.checks import Evidence, decode_finish, decode_request, load_entries, load_events

if TYPE_CHECKING:
    from harborage.store import Lease

_STEPS: Final = {
    "task.spawn": "a task was spawned",
    "task.await": "a task was awaited",
    "pause.request": "a planner asked a person",
}
_TOLD: Final = {
    "trajectory.compressed": "a history was summarised",
    "trajectory.compression_failed": "a summary failed",
    "control.rejected": "a control was refused",
}
_ENDS: Final = {
    "deadline": "a run ran into its deadline",
    "pause_timeout": "a pause ran out",
    "hard_cancel": "a run was cancelled hard",
    "cancel_while_paused": "a parked run was cancelled",
    "control_reject": "a person said no",
}
_NIGHT: Final = ("a pause ran out while nothing was up", "a run's deadline passed while nothing was up")

EVERYTHING: Final = frozenset(
    {
        *_STEPS.values(),
        *_TOLD.values(),
        *_ENDS.values(),
        *_NIGHT,
        *(f"{kind} arrived" for kind in ControlType),
        *(f"{kind} sent while nothing was up" for kind in ControlType),
        "a call was allowed and made",
        "a call was cut short",
        "a call's outcome is unknown",
        "a model was asked again",
        "a run ended cancelled",
        "a run rehearsed",
        "a run took over another's steps",
        "a run was carried by several processes",
        "a run left memory and came back",
        "a write came too late",
        "calls were made at once",
        "calls were overtaken by others",
    }
)
"""All that may come up."""


async def marks_of(evidence: Evidence, claims: Sequence[Lease], refused_writes: int) -> frozenset[str]:
    """Return the situations that came up in a story, which gave the leases `claims`."""
    marks = {*evidence.marks, *_of_claims(claims)}
    for record in evidence.records:
        entries = await load_entries(evidence, record)
        for entry in entries:
            marks.update(_of_entry(entry))
        request, finish = decode_request(entries), decode_finish(entries)
        if request.forked_from:
            marks.add("a run rehearsed" if request.is_rehearsal else "a run took over another's steps")
        if finish is not None:
            why = (finish.metadata or {}).get("steering_reason", "")
            marks.update(_ENDS[why] for _ in [0] if why in _ENDS)
            marks.update(["a run ended cancelled"] * (str(finish.reason) == "cancelled"))
    if any(act.tool == "gated" for act in evidence.acts):
        marks.add("a call was allowed and made")
    if any(times > 1 for times in evidence.asked.values()):
        marks.add("a model was asked again")
    if refused_writes:
        marks.add("a write came too late")
    return frozenset(marks.union(_TOLD[one.type] for one in await load_events(evidence) if one.type in _TOLD))


def _of_claims(claims: Sequence[Lease]) -> Iterator[str]:
    if len({(one.run_id, one.worker) for one in claims}) > len({one.run_id for one in claims}):
        yield "a run was carried by several processes"
    if any(times > 2 for times in Counter((one.run_id, one.worker) for one in claims).values()):
        yield "a run left memory and came back"


def _of_entry(entry: Entry) -> Iterator[str]:
    match entry:
        case Joined():
            yield "calls were made at once"
            if "cancelled" in entry.outcomes:
                yield "calls were overtaken by others"
        case Cut():
            yield "a call was cut short"
        case Begun() | Done() if entry.name in _STEPS:
            yield _STEPS[entry.name]
        case Done() if entry.name.startswith("tool.") and b"unknown" in bytes(entry.result):
            yield "a call's outcome is unknown"
        case Arrived():
            arrivals: Arrivals = codec.decode(bytes(entry.arrivals), Arrivals)
            yield from map(_of_control, arrivals.controls)
        case _:
            pass


def _of_control(control: ControlEvent) -> str:
    return f"{control.type} arrived"
