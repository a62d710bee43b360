"""What waits, on whom, until when, and what nobody would ever end: rules over values, without I/O and without a clock.

Everything that waits names who ends it and when. What names nobody, or somebody who is gone, is an orphan: `orphan`
then says why. What is overdue is not one: whoever looks next ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from harborage.identity import Quadruple
from harborage.planner import PauseReason
from harborage.state.runs import PROVIDER_UNAVAILABLE, RunRecord, Stand
from harborage.tasks import GroupStatus, Task, TaskGroup, TaskKind

if TYPE_CHECKING:
    from harborage.runtime.pauses import Pause
    from harborage.sessions import Session, SessionPolicy

__all__ = ["GRACE", "Party", "Wait", "WaitKind", "circles", "of_group", "of_pause", "of_run", "of_session", "of_task"]

GRACE = timedelta(minutes=1)
"""How long what was only just made is left to whoever made it."""


class WaitKind(StrEnum):
    """What it is that waits."""

    RUN = "run"
    PAUSE = "pause"
    APPROVAL = "approval"
    TASK = "task"
    GROUP = "group"
    SESSION = "session"


class Party(StrEnum):
    """Who ends a wait: a process that carries runs, a person, the end of a run, the clock, other code, or nobody."""

    WORKER = "worker"
    PERSON = "person"
    RUN = "run"
    CLOCK = "clock"
    CODE = "code"
    NOBODY = "nobody"


class Wait(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that waits.

    `id` is the run, pause token, task, group or session; `who` its owner, with the run that it belongs to. `on` is who
    ends the wait, `name` which one: a worker or an agent for a worker, a token for a person, a run for a run. `until`
    is when it ends by itself, `then` what happens at that moment. `orphan` says why nobody would ever end it; "" for
    what is in order.
    """

    kind: WaitKind
    id: str
    who: Quadruple
    on: Party
    name: str = ""
    since: datetime
    until: datetime | None = None
    then: str = ""
    detail: str = ""
    is_overdue: bool = False
    orphan: str = ""

    @property
    def is_orphan(self) -> bool:
        """Whether nobody would ever end it."""
        return bool(self.orphan)


Stands = Mapping[str, Stand]
"""How the runs that are kept stand, by their ids."""


def circles(records: Iterable[RunRecord]) -> frozenset[str]:
    """The runs out of memory that wait for themselves through the runs that they wait for."""
    awaits = {
        one.run_id: one.standing.waits_for for one in records if one.standing.stand is Stand.PARKED and not one.owner
    }
    found: set[str] = set()
    clear: set[str] = set()
    for run_id in awaits:
        path: dict[str, None] = {}
        while run_id in awaits and run_id not in path and run_id not in clear:
            path[run_id] = None
            run_id = awaits[run_id]
        ids = list(path)
        if run_id in path:
            found.update(ids[ids.index(run_id) :])
        clear.update(ids)
    return frozenset(found)


def of_run(
    record: RunRecord,
    *,
    stands: Stands,
    pauses: Sequence[Pause],
    now: datetime,
    circular: frozenset[str] = frozenset(),
) -> Wait | None:
    """What a run waits for; None for one that has ended. `pauses` are its open ones, `circular` the runs that wait for
    themselves."""
    standing = record.standing
    if standing.stand.is_final:
        return None
    run = Wait(
        kind=WaitKind.RUN,
        id=record.run_id,
        who=record.who,
        on=Party.WORKER,
        name=record.owner or record.agent,
        since=record.updated_at,
        detail=record.goal,
    )
    if record.owner:
        return msgspec.structs.replace(run, then="carried; free for others when that worker ends")
    match standing.stand:
        case Stand.BLOCKED:
            return msgspec.structs.replace(run, on=Party.CODE, name=record.agent, detail=standing.reason)
        case Stand.PARKED:
            waiting = _of_parked(run, record, stands=stands, pauses=pauses, now=now)
            if record.run_id in circular and not waiting.is_orphan:
                return msgspec.structs.replace(waiting, orphan="it waits for itself, through the run that it waits for")
            return waiting
        case _:
            return msgspec.structs.replace(run, then="carried on by the next worker of its agent")


def _of_parked(run: Wait, record: RunRecord, *, stands: Stands, pauses: Sequence[Pause], now: datetime) -> Wait:
    """A run that waits outside of memory."""
    wake_at, target = record.standing.wake_at, record.standing.waits_for
    if wake_at is not None and wake_at <= now:
        return msgspec.structs.replace(run, until=wake_at, then="carried on by the next worker", is_overdue=True)
    parked = msgspec.structs.replace(run, until=wake_at, then="" if wake_at is None else "looked at again")
    if record.standing.reason.startswith(PROVIDER_UNAVAILABLE):
        return msgspec.structs.replace(
            parked, on=Party.CLOCK, name="", detail=record.standing.reason, then="its provider is asked again"
        )
    if target:
        stand = stands.get(target)
        parked = msgspec.structs.replace(parked, on=Party.RUN, name=target)
        if stand is None or stand.is_final:
            what = "is not kept" if stand is None else "has ended"
            return msgspec.structs.replace(parked, orphan=f"the run that it waits for {what}, and it was not woken")
        return parked
    if pauses:
        first = min(pauses, key=lambda pause: (pause.deadline is None, pause.deadline or now, pause.token))
        return msgspec.structs.replace(parked, on=Party.PERSON, name=first.token)
    if wake_at is None:
        return msgspec.structs.replace(parked, on=Party.NOBODY, name="", orphan="it is parked, and nothing wakes it")
    return msgspec.structs.replace(parked, on=Party.CLOCK, name="")


def of_pause(pause: Pause, *, stands: Stands, now: datetime) -> Wait:
    """What an open pause waits for."""
    run_id = pause.identity.run_id
    stand = stands.get(run_id)
    orphan = ""
    if stand is not None and stand.is_final:
        orphan = "its run has ended"
    elif run_id and stand is None and pause.deadline is None:
        orphan = "its run is not kept, and it has no deadline"
    return Wait(
        kind=WaitKind.APPROVAL if pause.reason is PauseReason.APPROVAL_REQUIRED else WaitKind.PAUSE,
        id=pause.token,
        who=pause.identity,
        on=Party.NOBODY if orphan else Party.PERSON,
        name="" if orphan else pause.token,
        since=pause.paused_at,
        until=pause.deadline,
        then="" if pause.deadline is None else str(pause.default),
        detail=_asked(pause),
        is_overdue=pause.is_due(now),
        orphan=orphan,
    )


def of_task(task: Task, *, stands: Stands, now: datetime) -> Wait | None:
    """What a task waits for: background work always, other tasks only where their run does not speak for them."""
    if task.status.is_terminal:
        return None
    stand, parent = stands.get(task.id), stands.get(task.parent_task_id or "")
    since = datetime.fromtimestamp(task.created_at / 1e9, UTC)
    waiting = Wait(
        kind=WaitKind.TASK,
        id=task.id,
        who=task.identity.identity.with_run(task.id),
        on=Party.RUN,
        name=task.id,
        since=since,
        detail=task.query or task.description,
    )
    if stand is not None and stand.is_final:
        return msgspec.structs.replace(waiting, on=Party.NOBODY, name="", orphan="its run has ended")
    if stand is not None:
        return waiting if task.kind is TaskKind.BACKGROUND else None
    if parent is not None and not parent.is_final:
        return msgspec.structs.replace(waiting, name=task.parent_task_id or "", then="begun by the run that spawned it")
    if now - since < GRACE:
        return msgspec.structs.replace(waiting, on=Party.WORKER, name="", then="begun by whoever spawned it")
    return msgspec.structs.replace(waiting, on=Party.NOBODY, name="", orphan="no run was begun for it")


def of_group(group: TaskGroup, *, stands: Stands, living: frozenset[str], now: datetime) -> Wait | None:
    """What a group waits for: its owner to seal it, then its members. `living` are the tasks that have not ended."""
    if group.status.is_terminal:
        return None
    waiting = Wait(
        kind=WaitKind.GROUP,
        id=group.id,
        who=group.session.with_run(group.owner_task_id),
        on=Party.RUN,
        name=group.owner_task_id,
        since=group.created_at,
        detail=group.description,
    )
    if group.status is GroupStatus.SEALED:
        members = [member for member in group.members if member in living]
        if members:
            return msgspec.structs.replace(waiting, name=members[0], then="resolved with its last member")
        return msgspec.structs.replace(
            waiting, on=Party.NOBODY, name="", orphan="its members have ended, and it has not"
        )
    if not group.owner_task_id:
        return msgspec.structs.replace(waiting, on=Party.PERSON, then="sealed by whoever made it")
    owner = stands.get(group.owner_task_id)
    if now - group.created_at < GRACE or (owner is not None and not owner.is_final):
        return msgspec.structs.replace(waiting, then="sealed by its owner")
    return msgspec.structs.replace(waiting, on=Party.NOBODY, name="", orphan="its owner has ended without sealing it")


def of_session(session: Session, policy: SessionPolicy, *, now: datetime) -> Wait | None:
    """What an open session waits for: to be left alone for long enough, or to grow too old."""
    if session.closed:
        return None
    limits = policy.effective()
    until = min(session.last_seen + limits.idle_ttl, session.opened_at + limits.hard_cap)
    return Wait(
        kind=WaitKind.SESSION,
        id=session.id,
        who=session.identity.with_run(""),
        on=Party.CLOCK,
        since=session.opened_at,
        until=until,
        then="closed, unless something runs in it",
        is_overdue=until < now,
    )


def _asked(pause: Pause) -> str:
    """What a person is asked, in a few words."""
    payload = pause.payload or {}
    said = (payload.get("question"), payload.get("tool"))
    return ": ".join([str(pause.reason), *(one for one in said if isinstance(one, str) and one)])
