"""A new run from the first steps of another: its request, and the journal that it begins with. Pure.

The steps before the fork are copied with their results; none of them is executed again. The other run is only read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from harborage import codec
from harborage.errors import HarborageError
from harborage.runtime.durable.histories import latest_history, read_value, steps_of
from harborage.runtime.durable.journal import (
    Arrived,
    Begun,
    Cut,
    Done,
    Entry,
    Failed,
    Patched,
    Rolled,
    decode_entries,
    encode_entry,
    raw,
)
from harborage.runtime.history.reading import open_record, place_of
from harborage.runtime.loop.arrivals import Arrivals
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.loop.limits import Limits
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.loop.state import Steered
from harborage.tasks import SpawnRequest, TaskKind

if TYPE_CHECKING:
    from harborage.identity import Identity, Quadruple


class ForkError(HarborageError):
    """A run cannot be forked at that step; the text names the possible steps."""


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """A fork before its start: `seed` are its first entries, for `Engine.start`; `request` has the parent identity."""

    request: RunRequest
    seed: tuple[bytes, ...]
    parent: str
    at: int

    def for_run(self, who: Quadruple) -> RunRequest:
        """Return the request of the run `who`."""
        return replace(self.request, who=who, task_id=who.run_id)

    def limited(self, limits: Limits, deadline: datetime | None, now: datetime) -> Fork:
        """Return the fork under these limits, if it starts now.

        Raises:
            ValueError: the deadline has no time zone.
        """
        if deadline is not None and deadline.tzinfo is None:
            raise ValueError("fork: the deadline needs a time zone")
        kept = None if limits == Limits() else limits
        return replace(self, request=replace(self.request, limits=kept, deadline=limits.until(deadline, now)))

    def task(self, who: Identity, goal: str, key: str = "") -> SpawnRequest:
        """Return the task of the run; one with a `key` is started once."""
        request = self.request
        decided = [self.parent, self.at, goal, request.model, request.instructions, request.agent, request.max_steps]
        return SpawnRequest(
            identity=who.with_run(""),
            kind=TaskKind.FOREGROUND,
            query=goal or request.goal,
            input_artifact_ids=request.input_artifact_ids,
            idempotency_key=key,
            mark=codec.encode_text([*decided, request.is_rehearsal]) if key else "",
        )

    def decided_by(self, agent: str, model: str, instructions: str) -> Fork:
        """Return the fork whose new steps another agent decides, over another model, or with other instructions; what
        is empty stays as it is.

        By another agent a fork at the first step begins without anything of the other run.
        """
        request = self.request
        is_other = bool(agent) and agent != request.agent
        if not (is_other or model or instructions):
            changed = min(request.changed_at, self.at)
            return replace(self, request=replace(request, changed_at=changed))
        request = replace(
            request,
            agent=agent or request.agent,
            model=model or ("" if is_other else request.model),
            instructions=instructions or ("" if is_other else request.instructions),
            changed_at=self.at,
        )
        seed = () if is_other and self.at == 1 else self.seed
        return replace(self, request=request, seed=seed)


def fork_at(
    record: Sequence[bytes], at: int, *, now: datetime, goal: str = "", is_live: bool = False, max_steps: int = 0
) -> Fork:
    """Return the fork of a recorded run that decides step `at`, counted from 1, anew, and continues from there.

    With `goal` it is redirected at that step, or begins with that goal at step 1. Unless it `is_live`, its new steps
    have no effects: calls of tools with effects, and spawned tasks, are refused. The deadline of the run is not
    inherited; `max_steps` 0 inherits its steps.

    Raises:
        ForkError: there is no such step, or it is before a rollover.
        JournalCorruptError: the record cannot be read.
    """
    opened = open_record(record)
    history = latest_history(opened.request, opened.entries)
    seed = decode_entries(steps_of(record, opened.run_id), opened.run_id)
    plans = [place_of(one.position).at for one in seed if not isinstance(one, Begun) and _name(one) == "plan"]
    before = _steps_before(opened.entries)
    if not before < at <= before + len(plans):
        raise ForkError(_no_such_step(opened.run_id, at, before, len(plans)))
    cut = plans[at - before - 1]
    kept = _kept(seed, cut)
    request = replace(
        history.request,
        deadline=None,
        is_rehearsal=not is_live,
        forked_from=opened.run_id,
        forked_at=at,
        limits_of="",
        max_steps=max_steps or history.request.max_steps,
    )
    if goal and at == 1:
        request = replace(request, goal=goal, query=goal)
    elif goal:
        kept = _redirected(kept, cut, goal, request.who, now)
    return Fork(request=request, seed=tuple(encode_entry(one) for one in kept), parent=opened.run_id, at=at)


def _name(entry: Entry) -> str:
    return str(getattr(entry, "name", ""))


def _steps_before(entries: Sequence[Entry]) -> int:
    """Return the number of the planner's steps before the last rollover."""
    rolled = [index for index, entry in enumerate(entries) if isinstance(entry, Rolled)]
    earlier = entries[: rolled[-1]] if rolled else ()
    return sum(isinstance(one, Done | Failed | Cut) and one.name == "plan" for one in earlier)


def _no_such_step(run_id: str, at: int, before: int, count: int) -> str:
    if not count:
        return f"run {run_id} has no recorded step that could be decided anew"
    if 0 < at <= before:
        return f"step {at} of run {run_id} lies before its history was begun anew; fork it at {before + 1} or later"
    return f"run {run_id} has no recorded step {at}; fork it at {before + 1} to {before + count}"


def _kept(seed: Sequence[Entry], cut: int) -> list[Entry]:
    """Return the entries before position `cut`, without the start of the parent's own task."""
    kept: list[Entry] = []
    is_before = True
    for entry in seed:
        if isinstance(entry, Patched):
            if is_before:
                kept.append(entry)
            continue
        at = place_of(entry.position).at
        is_before = is_before and at < cut
        if at < cut and _name(entry) != "task.begin":
            kept.append(entry)
    return kept


def _redirected(kept: list[Entry], cut: int, goal: str, who: Quadruple, now: datetime) -> list[Entry]:
    """Return the entries with another goal, given at the last boundary: in a replay of the fork the earlier steps keep
    their goal."""
    control = ControlEvent(ControlType.REDIRECT, who, Scope.ADMIN, who.tenant_id, {"goal": goal}, f"fork-{cut}", now)
    places = {place_of(one.position).at: index for index, one in enumerate(kept) if one.position}
    steered = places.get(cut - 1)
    if steered is not None and _name(kept[steered]) == "steer":
        boundary, outcomes = cut - 2, _read(kept[steered], list[Steered])
    else:
        boundary, outcomes, steered = cut - 1, [], None
    arrived = places.get(boundary)
    arrivals = Arrivals() if arrived is None else _read(kept[arrived], Arrivals)
    arrivals = replace(arrivals, controls=(*arrivals.controls, control))
    position = str(boundary)
    outcomes = [*outcomes, Steered(control=control)]
    gone = {index for index in (steered, arrived) if index is not None}
    return [
        *(one for index, one in enumerate(kept) if index not in gone),
        Arrived(at=now, position=position, arrivals=raw(arrivals)),
        Done(at=now, position=str(boundary + 1), name="steer", result=raw(outcomes)),
    ]


def _read(entry: Entry, type: Any) -> Any:
    match entry:
        case Arrived():
            return read_value(entry.arrivals, type, entry.position)
        case Done():
            return read_value(entry.result, type, entry.position)
        case _:
            raise AssertionError(f"{entry} has no value to read")
