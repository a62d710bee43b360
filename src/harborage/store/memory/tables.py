"""What a store in memory holds, and how a commit changes it that its conditions have let through.

No await, no clock: a commit is applied in one go at a given moment, and no reader ever sees half of one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from harborage.identity import Identity
from harborage.store.commit import (
    Change,
    ChangeGroup,
    Commit,
    Committed,
    DecidePatch,
    Move,
    NewEvent,
    NewGroup,
    NewPause,
    NewRun,
    SendControl,
    SettlePause,
    about,
)
from harborage.store.errors import RowNotFoundError
from harborage.store.memory.due import Due
from harborage.store.memory.groups import Groups
from harborage.store.memory.index import RunIndex
from harborage.store.memory.pauses import Pauses
from harborage.store.memory.sessions import Sessions
from harborage.store.rows import (
    EVENT_STEP,
    ControlRow,
    EventRow,
    GroupLeft,
    Lease,
    PatchRow,
    RunRow,
)
from harborage.store.times import micros

if TYPE_CHECKING:
    from harborage.store.queries import RunQuery

_NO_IDS: Final[set[str]] = set()
_NO_CONTROLS: Final[dict[int, ControlRow]] = {}


class HeldRun:
    """A run in memory: its row, its journal, the controls that wait in its inbox, and what it is noted to wait for."""

    __slots__ = ("_row", "awaited", "bodies", "controls", "entries", "event_ids", "written_at")

    def __init__(self, row: RunRow, entries: Iterable[bytes]) -> None:
        self._row = row
        self.entries = list(entries)
        self.written_at: datetime | None = None
        self.awaited = ""
        # Most runs never have any of these, and thousands that ended are kept: they are made when they are needed.
        self.controls: dict[int, ControlRow] = _NO_CONTROLS
        self.event_ids: set[str] = _NO_IDS
        self.bodies: frozenset[str] = frozenset()

    @property
    def row(self) -> RunRow:
        """Its row. Entries that were only appended are counted in when it is read: most commits bring nothing else."""
        if self.written_at is not None:
            row, at = self._row, micros(self.written_at)
            self._row = replace(row, position=len(self.entries), unread=len(self.controls), updated_at=at)
            self.written_at = None
        return self._row

    @row.setter
    def row(self, row: RunRow) -> None:
        self._row = row
        self.written_at = None

    def is_held(self, lease: Lease) -> bool:
        """Whether this lease is the right to write it."""
        row = self._row  # neither an owner nor a fence changes by an append
        return row.fence == lease.fence and row.owner == lease.worker

    @property
    def is_free(self) -> bool:
        """Whether a worker may claim it: it has to look at something, no worker holds it, and it is not blocked."""
        row = self.row
        return row.is_woken and not row.owner and not row.blocked and not row.status.is_final


class Tables:
    """The rows of all runs, groups, pauses, patches, sessions and events."""

    def __init__(self, keep_strays: int) -> None:
        self.runs: dict[str, HeldRun] = {}
        self.index = RunIndex()
        self.live: dict[str, None] = {}
        self.ready: dict[str, None] = {}
        self.due = Due()
        self.waiting: dict[str, dict[str, None]] = {}
        self.keys: dict[tuple[Identity, str], str] = {}
        self.sessions = Sessions()
        self.groups = Groups(keep_strays, self.sessions.release)
        self.pauses = Pauses(keep_strays)
        self.patches: dict[tuple[Identity, str], PatchRow] = {}
        self.unread: dict[str, None] = {}
        self.ended: deque[str] = deque()
        self.events: dict[Identity, list[EventRow]] = {}
        self.bodies: dict[str, bytes] = {}
        self._named: Counter[str] = Counter()
        self.sequence = 0
        self._numbers = 0

    def apply(self, commit: Commit, now: int) -> Committed:
        """Change the rows as a commit says all of whose conditions hold."""
        held = None if commit.guard is None else self.runs[commit.guard.lease.run_id]
        if held is not None:
            self._write(held, commit, now)
        for group in commit.groups:
            if isinstance(group, NewGroup):
                self._open_group(group, now)
        for start in commit.starts:
            self._start(start, now)
            if held is None:
                self._name(self.runs[start.run_id], commit.bodies)
        for group in commit.groups:
            if isinstance(group, ChangeGroup):
                self._change_group(group, now)
        left = [self._move(move, now) for move in commit.moves]
        for patch in commit.patches:
            self._patch(patch, now)
        opened = tuple(self._open(pause, now) for pause in commit.opens)
        for settle in commit.settles:
            self._settle(settle, now)
        sent = tuple(self._send(send, now) for send in commit.sends)
        for drop in commit.drops:
            self.pauses.drop(drop)
        for run_id in commit.wakes:
            self._wake(run_id)
        if held is not None and commit.change is not None:
            left.append(self._change(held, commit.change, now))
        first, place = self.publish(commit.who, commit.events, now)
        return Committed(
            first=first,
            place=place,
            sent=sent,
            opened=opened,
            taken=tuple(self._take(commit)),
            left=tuple(one for one in left if one is not None),
        )

    # ── Changes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, held: HeldRun, commit: Commit, now: int) -> None:
        """The owner's entries, and the controls that it has consumed."""
        held.entries += commit.entries
        for number in commit.consumed:
            held.controls.pop(number, None)
        if not held.controls:
            self.unread.pop(held.row.run_id, None)
        self._name(held, commit.bodies)
        held.row = replace(held.row, position=len(held.entries), unread=len(held.controls), updated_at=now)

    def _name(self, held: HeldRun, bodies: Mapping[str, bytes]) -> None:
        """Keep what a run's entries name."""
        for digest, data in bodies.items():
            self.bodies.setdefault(digest, data)
            if digest not in held.bodies:
                held.bodies |= {digest}
                self._named[digest] += 1

    def _start(self, start: NewRun, now: int) -> None:
        self._numbers += 1
        self.sessions.hold(start.who, now)
        row = RunRow(
            number=self._numbers,
            run_id=start.run_id,
            who=start.who,
            agent=start.agent,
            parent=start.parent,
            root=start.root,
            group=start.group,
            kind=start.kind,
            priority=start.priority,
            status=start.status,
            description=about(start.description),
            about=about(start.goal),
            asked=start.asked,
            created_at=now,
            updated_at=now,
            deadline=start.deadline,
            tags=start.tags,
            position=len(start.entries),
            owner=start.worker,
            fence=1 if start.worker else 0,
            is_woken=bool(start.entries) and not start.worker,
            key=start.key,
            fingerprint=start.fingerprint,
            is_cascading=start.is_cascading,
            notifies=start.notifies,
            retains_turn=start.retains_turn,
        )
        self.runs[start.run_id] = HeldRun(row, start.entries)
        self.index.add(row)
        if start.key:
            self.keys[start.who, start.key] = start.run_id
        if start.group:
            self.groups.join(start.who, start.group, start.run_id)
        self._count_up(start.parent, start.who, "children")
        self._count_up(start.root, start.who, "tree")
        self._enlist(self.runs[start.run_id])

    def _count_up(self, run_id: str, who: Identity, counter: str) -> None:
        held = self.of_session(run_id, who)
        if held is not None:
            held.row = replace(held.row, **{counter: getattr(held.row, counter) + 1})

    def _move(self, move: Move, now: int) -> GroupLeft | None:
        held = self.run(move.run_id)
        changed: dict[str, Any] = {"updated_at": now, "tool_count": held.row.tool_count + move.tool_calls}
        for field in ("status", "reason", "outcome", "awaits", "priority", "is_acknowledged"):
            if (value := getattr(move, field)) is not None:
                changed[field] = value
        was_final = held.row.status.is_final
        held.entries += move.entries
        held.row = replace(held.row, position=len(held.entries), **changed)
        left = self._end(held, now) if not was_final and held.row.status.is_final else None
        self._enlist(held)
        return left

    def _open_group(self, group: NewGroup, now: int) -> None:
        self._numbers += 1
        if self.groups.open(group, self._numbers, now):
            self.sessions.hold(group.who, now)

    def _change_group(self, change: ChangeGroup, now: int) -> None:
        self.groups.change(change, now)
        if change.status.is_final:
            self._wake_waiting(change.group_id, change.who)

    def _patch(self, patch: DecidePatch, now: int) -> None:
        key = (patch.who, patch.patch_id)
        if key not in self.patches:
            self.sessions.hold(patch.who, now)
            self.patches[key] = PatchRow(patch_id=patch.patch_id, who=patch.who, created_at=now)
        if patch.decision:
            self.patches[key] = replace(self.patches[key], decision=patch.decision, decided_at=now)

    def _open(self, pause: NewPause, now: int) -> bool:
        self._numbers += 1
        return self.pauses.open(pause, self._numbers, now)

    def _settle(self, settle: SettlePause, now: int) -> None:
        run_id = self.pauses.get(settle.token).run_id
        self.pauses.settle(settle, now, has_run=run_id in self.runs)
        self._wake(run_id)

    def _send(self, send: SendControl, now: int) -> bool:
        held = self.runs[send.run_id]
        if send.event_id in held.event_ids:
            return False
        self._numbers += 1
        if not held.event_ids:
            held.event_ids, held.controls = set(), {}
        held.event_ids.add(send.event_id)
        held.controls[self._numbers] = ControlRow(
            number=self._numbers,
            run_id=send.run_id,
            event_id=send.event_id,
            type=send.type,
            sent_at=now,
            data=send.data,
        )
        held.row = replace(held.row, unread=len(held.controls))
        if send.answers:
            self.pauses.answering(send.answers, send.event_id)
        self.unread[send.run_id] = None
        if not held.row.owner:  # a worker that holds it looks for itself
            self._wake(send.run_id)
        return True

    def _wake(self, run_id: str) -> None:
        held = self.runs.get(run_id)
        if held is not None and held.entries and not held.row.status.is_final and not held.row.is_woken:
            held.row = replace(held.row, is_woken=True)
            self._enlist(held)

    def _wake_waiting(self, target: str, who: Identity | None = None) -> None:
        """Wake the runs that await a run, or those of this session that await a group."""
        for run_id in tuple(self.waiting.get(target, ())):
            if who is None or self.runs[run_id].row.who == who:
                self._wake(run_id)

    def _change(self, held: HeldRun, change: Change, now: int) -> GroupLeft | None:
        row = held.row
        changed: dict[str, Any] = {
            field: value
            for field in ("status", "reason", "outcome", "blocked", "awaits", "priority")
            if (value := getattr(change, field)) is not None
        }
        if change.progress:
            changed["attempts"] = 0
        if change.release:
            is_woken = change.is_ready or row.is_woken or next(reversed(held.controls), 0) > change.seen_control
            changed |= {"owner": "", "is_woken": is_woken, "wake_at": change.wake_at}
            changed["seen_control"] = change.seen_control
            if change.awaits is not None:
                changed["awaits"] = change.awaits
        held.row = replace(
            row,
            tool_count=row.tool_count + change.tool_calls,
            tokens=row.tokens + change.tokens,
            cost=row.cost + change.cost,
            **changed,
        )
        left: GroupLeft | None = None
        if held.row.status.is_final:
            left = self._end(held, now)
        elif change.release and change.awaits and self._has_ended(change.awaits, row.who):
            held.row = replace(held.row, is_woken=True)
        self._enlist(held)
        return left

    def _has_ended(self, target: str, who: Identity) -> bool:
        """Whether nothing of this name would ever end any more."""
        run, group = self.runs.get(target), self.groups.get(who, target)
        return (run is None or run.row.status.is_final) and (group is None or group.status.is_final)

    def _end(self, held: HeldRun, now: int) -> GroupLeft | None:
        """What follows from a run's end: its lease and open pauses end, its group counts it out, who waits wakes."""
        left: GroupLeft | None = None
        held.row = row = replace(held.row, owner="", is_woken=False, wake_at=None, awaits="")
        self.ended.append(row.run_id)
        self.unread.pop(row.run_id, None)
        self.pauses.cancel_of(row.run_id, now)
        if row.group:
            left = self.groups.leave(row.who, row.group, row.run_id)
            self._wake_waiting(row.group, row.who)
        self._wake_waiting(row.run_id)
        return left

    def _enlist(self, held: HeldRun) -> None:
        """Keep the lists of what is live, ready, due and waiting in step with a row."""
        row = held.row
        if row.status.is_final:
            self.live.pop(row.run_id, None)
        else:
            self.live[row.run_id] = None
        if held.is_free:
            self.ready[row.run_id] = None
        else:
            self.ready.pop(row.run_id, None)
        if row.wake_at is not None and not row.owner and not row.is_woken:
            self.due.put(row.run_id, row.agent, row.wake_at)
        else:
            self.due.drop(row.run_id)
        if row.awaits != held.awaited:
            self._note_wait(held, row.awaits)

    def _note_wait(self, held: HeldRun, target: str) -> None:
        if held.awaited:
            waiting = self.waiting[held.awaited]
            del waiting[held.row.run_id]
            if not waiting:
                del self.waiting[held.awaited]
        if target:
            self.waiting.setdefault(target, {})[held.row.run_id] = None
        held.awaited = target

    def publish(self, who: Identity | None, events: Sequence[NewEvent], now: int) -> tuple[int, int]:
        """Number the events of a session; the first number, and the first place."""
        if who is None or not events:
            return 0, 0
        place = self.sessions.see(who, now, events=len(events)).events - len(events) + 1
        first = self.sequence + EVENT_STEP
        log = self.events.setdefault(who, [])
        for offset, event in enumerate(events):
            self.sequence += EVENT_STEP
            log.append(
                EventRow(
                    sequence=self.sequence,
                    who=who,
                    place=place + offset,
                    run_id=event.run_id,
                    type=event.type,
                    at=event.at or now,
                    data=event.data,
                )
            )
        return first, place

    def _take(self, commit: Commit) -> Iterator[Lease]:
        """Claim, for the worker that `take` names, what the commit's answers and controls woke."""
        if not commit.take:
            return
        woken = [self.pauses.get(settle.token).run_id for settle in commit.settles]
        for run_id in dict.fromkeys([*woken, *(send.run_id for send in commit.sends)]):
            held = self.runs.get(run_id)
            if held is not None and held.is_free:
                yield self.claim(held, commit.take)

    # ── Reading, claiming, deleting ─────────────────────────────────────────────────────────────────────────────────

    def run(self, run_id: str) -> HeldRun:
        """The run with this id.

        Raises:
            RowNotFoundError: there is none.
        """
        if (held := self.runs.get(run_id)) is None:
            raise RowNotFoundError(run_id, what="run")
        return held

    def of_session(self, run_id: str, who: Identity) -> HeldRun | None:
        """The run with this id, if it is one of this session."""
        held = self.runs.get(run_id)
        return held if held is not None and held.row.who == who else None

    def likely(self, query: RunQuery) -> Iterator[RunRow]:
        """The runs that a query may find: few, where it names what they belong to, or asks for live ones alone."""
        ways: list[Collection[str]] = [self.runs, *self.index.of(query)]
        if query.run_ids:
            ways.append(dict.fromkeys(query.run_ids))
        if query.statuses and not any(status.is_final for status in query.statuses):
            ways.append(self.live)
        if query.group and query.tenant and query.user and query.session:
            ways.append(self.groups.members(Identity(query.tenant, query.user, query.session), query.group))
        return (self.runs[run_id].row for run_id in min(ways, key=len) if run_id in self.runs)

    def runs_of(self, who: Identity) -> list[RunRow]:
        """The runs of a session, oldest first."""
        return [self.runs[run_id].row for run_id in self.index.of_session(who)]

    def claim(self, held: HeldRun, worker: str) -> Lease:
        """Give a free run to a worker. What it awaits stays noted, until it says that it waits no longer."""
        row = held.row
        held.row = replace(
            row,
            owner=worker,
            fence=row.fence + 1,
            attempts=row.attempts + 1,
            is_woken=False,
            wake_at=None,
        )
        self._enlist(held)
        return held.row.lease

    def block(self, held: HeldRun, reason: str) -> None:
        """Keep a run from being claimed."""
        held.row = replace(held.row, blocked=reason)
        self._enlist(held)

    def unblock(self, held: HeldRun) -> None:
        """Let a run be claimed again, now."""
        held.row = replace(held.row, blocked="", attempts=0, is_woken=True)
        self._enlist(held)

    def release_all(self, worker: str) -> int:
        """Free what a worker holds; how many runs that were."""
        mine = [held for held in self.runs.values() if held.row.owner == worker]
        for held in mine:
            held.row = replace(held.row, owner="", is_woken=True)
            self._enlist(held)
        return len(mine)

    def wake_due(self, now: int, agents: Sequence[str]) -> None:
        """Let the runs of these agents, or of all without a name, be ready whose time has come.

        Those of other agents are left to fall due for their own workers, who ask when that will be.
        """
        for run_id in self.due.fallen(now, agents):
            self._wake(run_id)

    def delete(self, run_id: str) -> bool:
        """Delete an ended run with all that only it has; False for one that is not there, or still live."""
        held = self.runs.get(run_id)
        if held is None or not held.row.status.is_final:
            return False
        row = held.row
        del self.runs[run_id]
        self.index.remove(row)
        self.keys.pop((row.who, row.key), None)
        self.pauses.delete_of(run_id)
        for digest in held.bodies:
            self._named[digest] -= 1
            if not self._named[digest]:
                del self._named[digest], self.bodies[digest]
        self.groups.forget(row.who, row.group, run_id)
        self.sessions.release(row.who)
        return True
