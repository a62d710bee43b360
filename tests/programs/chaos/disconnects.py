"""Clients that lose their connection: runs with three levels of children, read in pieces by readers that come and go.

However often a reader leaves, however slow it is and however little its subscription holds, the pieces joined at the
last number it saw are what the bus has kept of the run and its children, in order, with one end; and where the bus
itself has forgotten something, the reader is told that.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from harborage.events import BusDroppedPayload, Cursor, Event, EventType, Filter, typed_event
from harborage.planner import CallTool, Decision, Finish, FinishReason, RunContext, SpawnSpec, SpawnTask
from harborage.tasks import TaskFilter

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.host import Runtime
    from harborage.runtime.run import Run

LEVELS: Final = 3
_CHILDREN: Final = 2
_ENDS: Final = frozenset({EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_CANCELLED})
_PATIENCE_S: Final = 60.0


class Disconnected(msgspec.Struct, kw_only=True):
    """How it went: `gaps` counts notices of what was forgotten; `broken` says what must not be."""

    broken: list[str] = []
    runs: int = 0
    connections: int = 0
    events: int = 0
    gaps: int = 0


def run_of(event: Event) -> str:
    """The run that an event is about: that of its envelope, else its task's."""
    return event.identity.run_id or str(getattr(typed_event(event).payload, "task_id", ""))


async def stroll(turns: int) -> int:
    """Give the other tasks so many turns."""
    for _ in range(turns):
        await asyncio.sleep(0)
    return turns


class FamilyPlanner:
    """Works, starts children one level down and waits for them, works again; the goal says how many levels follow."""

    async def next(self, run: RunContext) -> Decision:
        """The next of its steps."""
        level, done = int(run.goal), 0 if run.trajectory is None else len(run.trajectory.steps)
        script: list[Decision] = [CallTool("stroll", b'{"turns": 3}')]
        if level:
            spec = SpawnSpec(query=str(level - 1), retain_turn=True)
            script += [SpawnTask(spec=spec)] * _CHILDREN
        script.append(CallTool("stroll", b'{"turns": 1}'))
        return script[done] if done < len(script) else Finish(FinishReason.GOAL, "done")


async def disconnects(runtime: Runtime, count: int, *, seed: int = 0, who: Identity) -> Disconnected:
    """Read runs of this runtime, whose planner is a `FamilyPlanner`, until readers have left `count` times."""
    outcome, luck = Disconnected(), random.Random(seed)
    while outcome.connections < count:
        run = await runtime.start(str(LEVELS), who=who)
        # A neighbour in the same session: its events are not the reader's, and fill the subscription all the same.
        other = await runtime.start("1", who=who)
        async with asyncio.timeout(_PATIENCE_S):
            joined = await _read_in_pieces(run, luck, outcome)
            await other.finished()
        outcome.runs += 1
        outcome.events += len(joined)
        outcome.broken += await _faults(runtime, run, joined)
        if outcome.broken:
            break
    return outcome


async def _read_in_pieces(run: Run, luck: random.Random, outcome: Disconnected) -> list[Event]:
    joined: list[Event] = []
    has_ended = False
    while not has_ended:
        outcome.connections += 1
        stay = luck.randint(0, 12)
        after = max((event.sequence for event in joined), default=0)
        stream = run.events(after=after)
        try:
            async for event in stream:
                joined.append(event)
                has_ended = event.type in _ENDS and run_of(event) == run.id
                outcome.gaps += event.type == EventType.BUS_DROPPED
                if not stay:
                    break
                stay -= 1
                await stroll(luck.choice((0, 0, 1, 5, 60)))
            else:
                has_ended = True
        finally:
            await stream.aclose()
        await stroll(luck.choice((0, 3, 30)))
    return joined


async def _faults(runtime: Runtime, run: Run, joined: list[Event]) -> list[str]:
    """What is wrong with what a reader got of a run that is over."""
    family = await _family(runtime, run)
    if len(family) != sum(_CHILDREN**level for level in range(LEVELS + 1)):
        return [f"run {run.id} has {len(family)} runs in its tree"]
    kept = await runtime.bus.replay(Cursor(run.who.session_id, 0), Filter.of(run.who.identity))
    wanted = [event.sequence for event in kept if run_of(event) in family]
    notices = [event.payload for event in joined if isinstance(event.payload, BusDroppedPayload)]
    got = [event.sequence for event in joined if event.type != EventType.BUS_DROPPED]
    faults = []
    if repeated := [number for number, times in Counter(got).items() if times > 1]:
        faults.append(f"run {run.id}: came twice: {repeated}")
    if got != sorted(got):
        faults.append(f"run {run.id}: out of order: {got}")
    missing = set(wanted) - set(got)
    unsaid = {one for one in missing if not any(gap.from_seq <= one <= gap.to_seq for gap in notices)}
    if unsaid:
        faults.append(f"run {run.id}: missing without a notice: {sorted(unsaid)}")
    ends = [event for event in joined if event.type in _ENDS and run_of(event) == run.id]
    if len(ends) != 1 or joined[-1] is not ends[0]:
        faults.append(f"run {run.id}: {len(ends)} ends; the last event is {joined[-1].type}")
    strangers = {run_of(event) for event in joined if event.type != EventType.BUS_DROPPED} - family
    if strangers:
        faults.append(f"run {run.id}: events of runs that are not in its tree: {strangers}")
    return faults


async def _family(runtime: Runtime, run: Run) -> set[str]:
    found, left = {run.id}, [run.id]
    while left:
        children = await runtime.tasks.list(run.who.identity, TaskFilter(parent=left.pop()))
        left += [child.id for child in children]
        found |= {child.id for child in children}
    return found
