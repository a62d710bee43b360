"""Pending work: for whom each item waits, until when, and which are orphans. Rules over values; no I/O, no clock.

Each item names who ends it and when. An item that names no one, or a run that has ended, is an orphan; `orphan` says
why. An overdue item is no orphan: the next worker ends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from harborage.identity import Identity, Quadruple
from harborage.planner import PauseReason
from harborage.runtime.durable.engine import PROVIDER_UNAVAILABLE, RunPhase
from harborage.runtime.durable.reader import phase_of
from harborage.store import GroupRow, GroupStatus, RunRow, Status
from harborage.store.times import moment

if TYPE_CHECKING:
    from harborage.runtime.loop.pauses import Pause
    from harborage.sessions import Session, SessionPolicy

GroupKey = tuple[Identity, str]

GRACE = timedelta(minutes=1)
"""How long a new group may have no live owner before it counts as orphaned."""


class PendingKind(StrEnum):
    """The kind of a pending item."""

    RUN = "run"
    PAUSE = "pause"
    APPROVAL = "approval"
    TASK = "task"
    GROUP = "group"
    SESSION = "session"


class Party(StrEnum):
    """Who ends a pending item: a worker, a person, the end of a run, a timer, other code, or none of these."""

    WORKER = "worker"
    PERSON = "person"
    RUN = "run"
    CLOCK = "clock"
    CODE = "code"
    NONE = "nobody"


class PendingItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pending item.

    `id` is the run, pause token, task, group or session; `who` its owner, with the run that it belongs to. `on` is who
    ends it, `name` which one: a worker or an agent for a worker, a token for a person, a run for a run. `until` is when
    it ends by itself, `then` what happens at that moment. `is_running`: a worker executes the run now. `orphan` is why
    no worker, timer or person will end it; "" for an item that is no orphan.
    """

    kind: PendingKind
    id: str
    who: Quadruple
    on: Party
    name: str = ""
    since: datetime
    until: datetime | None = None
    then: str = ""
    detail: str = ""
    is_overdue: bool = False
    is_running: bool = False
    orphan: str = ""

    @property
    def is_orphan(self) -> bool:
        """Whether no worker, timer or person will end it."""
        return bool(self.orphan)


Statuses = Mapping[str, Status]
"""The statuses of the stored runs, by their ids."""


def pending_run(
    row: RunRow,
    *,
    statuses: Statuses,
    pauses: Sequence[Pause],
    now: datetime,
) -> PendingItem | None:
    """Return the pending item of a run; None if it has ended. `pauses` are its open ones."""
    if row.status.is_final:
        return None
    run = PendingItem(
        kind=PendingKind.RUN,
        id=row.run_id,
        who=row.quadruple,
        on=Party.WORKER,
        name=row.owner or row.agent,
        since=moment(row.updated_at),
        detail=row.about,
    )
    if row.owner:
        return msgspec.structs.replace(run, is_running=True, then="another worker resumes it when that worker ends")
    match phase_of(row):
        case RunPhase.BLOCKED:
            return msgspec.structs.replace(run, on=Party.CODE, name=row.agent, detail=row.blocked)
        case RunPhase.PARKED:
            return _pending_parked_run(run, row, statuses=statuses, pauses=pauses, now=now)
        case _:
            return msgspec.structs.replace(run, then="the next worker of its agent resumes it")


def _pending_parked_run(
    run: PendingItem, row: RunRow, *, statuses: Statuses, pauses: Sequence[Pause], now: datetime
) -> PendingItem:
    """Return the pending item of a run that waits outside of memory."""
    wake_at, target = None if row.wake_at is None else moment(row.wake_at), row.awaits
    if wake_at is not None and wake_at <= now:
        return msgspec.structs.replace(run, until=wake_at, then="the next worker resumes it", is_overdue=True)
    parked = msgspec.structs.replace(run, until=wake_at, then="" if wake_at is None else "looked at again")
    if row.reason.startswith(PROVIDER_UNAVAILABLE):
        return msgspec.structs.replace(
            parked, on=Party.CLOCK, name="", detail=row.reason, then="its provider is asked again"
        )
    if target:
        status = statuses.get(target)
        parked = msgspec.structs.replace(parked, on=Party.RUN, name=target)
        if status is None or status.is_final:
            what = "is not kept" if status is None else "has ended"
            return msgspec.structs.replace(parked, orphan=f"what it waits for {what}, and it was not woken")
        return parked
    if any(pause.answering for pause in pauses):
        return msgspec.structs.replace(parked, then="the next worker of its agent applies the answer that was sent")
    if pauses:
        first = min(pauses, key=lambda pause: (pause.deadline is None, pause.deadline or now, pause.token))
        return msgspec.structs.replace(parked, on=Party.PERSON, name=first.token)
    if wake_at is None:
        return msgspec.structs.replace(parked, on=Party.NONE, name="", orphan="it is parked, and nothing wakes it")
    return msgspec.structs.replace(parked, on=Party.CLOCK, name="")


def pending_pause(pause: Pause, *, statuses: Statuses, now: datetime) -> PendingItem:
    """Return the pending item of an open pause."""
    run_id = pause.identity.run_id
    status = statuses.get(run_id)
    orphan = ""
    if status is not None and status.is_final:
        orphan = "its run has ended"
    elif run_id and status is None and pause.deadline is None:
        orphan = "its run is not kept, and it has no deadline"
    on = Party.NONE if orphan else Party.WORKER if pause.answering else Party.PERSON
    then = "" if pause.deadline is None else str(pause.default)
    return PendingItem(
        kind=PendingKind.APPROVAL if pause.reason is PauseReason.APPROVAL_REQUIRED else PendingKind.PAUSE,
        id=pause.token,
        who=pause.identity,
        on=on,
        name=pause.token if on is Party.PERSON else "",
        since=pause.paused_at,
        until=None if on is Party.WORKER else pause.deadline,
        then="it applies the answer that was sent" if on is Party.WORKER else then,
        detail=_summarize_question(pause),
        is_overdue=pause.is_due(now),
        orphan=orphan,
    )


def pending_task(row: RunRow, *, statuses: Statuses) -> PendingItem | None:
    """Return the pending item of a task without a run; None if it has ended."""
    if row.status.is_final:
        return None
    waiting = PendingItem(
        kind=PendingKind.TASK,
        id=row.run_id,
        who=row.quadruple,
        on=Party.PERSON,
        since=moment(row.created_at),
        then="ended by the program that spawned it",
        detail=row.about,
    )
    parent = statuses.get(row.parent)
    if parent is not None and parent.is_final and row.is_cascading:
        return msgspec.structs.replace(waiting, on=Party.NONE, then="", orphan="the run that spawned it has ended")
    return waiting


def pending_group(
    row: GroupRow, *, statuses: Statuses, living: Mapping[GroupKey, str], now: datetime
) -> PendingItem | None:
    """Return the pending item of a group, which waits for its owner to seal it, then its members; None if it has ended.

    `living` has one live member of each group.
    """
    if row.status.is_final:
        return None
    since = moment(row.created_at)
    waiting = PendingItem(
        kind=PendingKind.GROUP,
        id=row.group_id,
        who=row.who.with_run(row.owner),
        on=Party.RUN,
        name=row.owner,
        since=since,
        detail=row.description,
    )
    if row.status is GroupStatus.OPEN:
        owner = statuses.get(row.owner)
        if not row.owner:
            return msgspec.structs.replace(waiting, on=Party.PERSON, then="sealed by the program that opened it")
        if now - since < GRACE or (owner is not None and not owner.is_final):
            return msgspec.structs.replace(waiting, then="sealed by its owner")
        return msgspec.structs.replace(waiting, on=Party.NONE, name="", orphan="its owner has ended without sealing it")
    if row.open_members:
        then = "resolved" if row.status is GroupStatus.SEALED else "cancelled"
        name = living.get((row.who, row.group_id), "")
        return msgspec.structs.replace(waiting, name=name, then=f"{then} with its last member")
    if not row.members:
        return msgspec.structs.replace(waiting, on=Party.PERSON, name="", then="ended by the program that sealed it")
    return msgspec.structs.replace(waiting, on=Party.NONE, name="", orphan="its members have ended, and it has not")


def pending_session(session: Session, policy: SessionPolicy, *, now: datetime) -> PendingItem | None:
    """Return the pending item of a session, which waits until it is idle or old enough; None if it is closed."""
    if session.closed:
        return None
    limits = policy.effective()
    until = min(session.last_seen + limits.idle_ttl, session.opened_at + limits.hard_cap)
    return PendingItem(
        kind=PendingKind.SESSION,
        id=session.id,
        who=session.identity.with_run(""),
        on=Party.CLOCK,
        since=session.opened_at,
        until=until,
        then="closed, unless something runs in it",
        is_overdue=until < now,
    )


def _summarize_question(pause: Pause) -> str:
    """Return the question to the person in a few words."""
    payload = pause.payload or {}
    parts = (payload.get("question"), payload.get("tool"))
    return ": ".join([str(pause.reason), *(one for one in parts if isinstance(one, str) and one)])
