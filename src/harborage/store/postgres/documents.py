"""How commits travel to the server: their words and numbers as JSON, their bytes beside it, named by their place.

A batch also says which rows its commits will touch, so that the server locks them all, in one order, before it looks at
the first condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from harborage import codec
from harborage.state.postgres.records import kept_text
from harborage.store.commit import (
    Change,
    ChangeGroup,
    Commit,
    DecidePatch,
    DropAnswer,
    Move,
    NewEvent,
    NewGroup,
    NewPause,
    NewRun,
    SendControl,
    SettlePause,
    about,
)

if TYPE_CHECKING:
    from harborage.identity import Identity


class Answer(msgspec.Struct, frozen=True):
    """What the server says of a commit. `refused` is the condition that does not hold, of the part that it is `at`."""

    refused: str = ""
    at: int = 0
    found: str = ""
    again: bool = False
    first: int = 0
    place: int = 0
    sent: tuple[bool, ...] = ()
    opened: tuple[bool, ...] = ()
    taken: tuple[tuple[str, int], ...] = ()
    left: tuple[tuple[str, str, str, int, int, bool, bool], ...] = ()


def answers_of(text: str) -> list[Answer]:
    """The answers to a batch."""
    found: list[Answer] = codec.decode(text.encode(), list[Answer])
    return found


def events_alone(events: Sequence[NewEvent]) -> tuple[str, list[bytes]]:
    """Events that no commit stores, as those of a commit are given, and their bytes."""
    rows = [_event(event, place) for place, event in enumerate(events, 1)]
    return codec.encode(rows, "events").decode(), [event.data for event in events]


class Batch:
    """Commits that are applied in one transaction, each of them whole or not at all."""

    def __init__(self) -> None:
        self.size = 0
        self._commits: list[dict[str, Any]] = []
        self._blobs: list[bytes] = []
        self._sessions: dict[Identity, int] = {}
        self._opening: list[bool] = []
        self._runs: set[str] = set()
        self._ends: set[str] = set()
        self._tokens: set[str] = set()
        self._groups: set[str] = set()
        self._waits = False

    def values(self) -> dict[str, Any]:
        """What the statement is given."""
        return {
            "commits": codec.encode(self._commits, "commit").decode(),
            "blobs": self._blobs,
            "tenants": [who.tenant_id for who in self._sessions],
            "users": [who.user_id for who in self._sessions],
            "sessions": [who.session_id for who in self._sessions],
            "opening": self._opening,
            "runs": [*self._runs],
            "ends": [*self._ends],
            "tokens": [*self._tokens],
            "groups": [*self._groups],
            "waits": self._waits,
        }

    def add(self, commit: Commit) -> None:
        """One more commit, after those that are in it."""
        parts: list[tuple[str, Any]] = []
        opening: set[int] = set()
        if (guard := commit.guard) is not None:
            lease = guard.lease
            self._runs.add(lease.run_id)
            entries = self._entries(commit.entries)
            own = {"run": lease.run_id, "worker": lease.worker, "fence": lease.fence, "position": guard.position}
            parts.append(("guard", own | entries))
            if commit.change is not None:
                parts.append(("change", self._change(lease.run_id, commit.change)))
        parts += (
            ("consumed", list(commit.consumed)),
            ("bodies", [(digest, self._blob(commit.bodies[digest])) for digest in sorted(commit.bodies)]),
            ("starts", [self._start(start, opening) for start in commit.starts]),
            ("moves", [self._move(move) for move in commit.moves]),
            ("groups", [self._group(group, opening) for group in commit.groups]),
            ("patches", [self._patch(patch, opening) for patch in commit.patches]),
            ("opens", [self._open(pause, opening) for pause in commit.opens]),
            ("settles", [self._settle(settle) for settle in commit.settles]),
            ("sends", [self._send(send) for send in commit.sends]),
            ("drops", [self._drop(drop) for drop in commit.drops]),
            ("wakes", list(commit.wakes)),
            ("take", commit.take),
        )
        self._runs.update(commit.wakes)
        if commit.who is not None and commit.events:
            parts.append(("who", self._session(commit.who, opening)))
            parts.append(("events", [self._event(event) for event in commit.events]))
        parts.append(("opening", sorted(opening)))
        self._commits.append({name: part for name, part in parts if part})

    # ── Parts ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _change(self, run_id: str, change: Change) -> dict[str, Any]:
        if change.status is not None and change.status.is_final:
            self._ends.add(run_id)
        self._await(change.awaits)
        return _given(
            status=None if change.status is None else change.status.code,
            reason=None if change.reason is None else kept_text(change.reason),
            outcome=self._given_blob(change.outcome),
            blocked=None if change.blocked is None else kept_text(change.blocked),
            wake_at=change.wake_at,
            awaits=change.awaits,
            priority=change.priority,
            release=change.release or None,
            is_ready=change.is_ready or None,
            seen_control=change.seen_control or None,
            progress=change.progress or None,
            tool_calls=change.tool_calls or None,
            tokens=change.tokens or None,
            cost=change.cost or None,
        )

    def _start(self, start: NewRun, opening: set[int]) -> dict[str, Any]:
        self._runs.update(one for one in (start.parent, start.root) if one)
        if start.group:
            self._groups.add(start.group)
        return _given(
            run=start.run_id,
            who=self._session(start.who, opening),
            tenant=start.who.tenant_id,
            user=start.who.user_id,
            agent=start.agent,
            parent=start.parent or None,
            root=start.root or None,
            group=start.group or None,
            kind=start.kind,
            priority=start.priority,
            status=start.status.code,
            description=kept_text(about(start.description)),
            about=kept_text(about(start.goal)),
            asked=self._given_blob(start.asked or None),
            deadline=start.deadline,
            worker=start.worker or None,
            tags=start.tags or None,
            key=start.key or None,
            fingerprint=start.fingerprint,
            cascades=start.is_cascading or None,
            notifies=start.notifies or None,
            retains_turn=start.retains_turn or None,
            max_children=start.max_children or None,
            max_tree=start.max_tree or None,
        ) | self._entries(start.entries)

    def _move(self, move: Move) -> dict[str, Any]:
        self._runs.add(move.run_id)
        if move.status is not None and move.status.is_final:
            self._ends.add(move.run_id)
        self._await(move.awaits)
        return _given(
            run=move.run_id,
            expected=[status.code for status in move.expected],
            status=None if move.status is None else move.status.code,
            reason=None if move.reason is None else kept_text(move.reason),
            outcome=self._given_blob(move.outcome),
            awaits=move.awaits,
            priority=move.priority,
            acknowledged=move.is_acknowledged,
            tool_calls=move.tool_calls,
        ) | self._entries(move.entries)

    def _group(self, group: NewGroup | ChangeGroup, opening: set[int]) -> dict[str, Any]:
        self._groups.add(group.group_id)
        if isinstance(group, NewGroup):
            return _given(
                is_new=True,
                group=group.group_id,
                who=self._session(group.who, opening),
                owner=group.owner,
                retains_turn=group.retains_turn or None,
                fails_fast=group.fails_fast or None,
                description=kept_text(group.description),
                deadline=group.deadline,
                is_sealed=group.is_sealed or None,
            )
        if group.status.is_final:
            self._ends.add(group.group_id)
        return _given(
            group=group.group_id,
            who=self._session(group.who),
            expected=[status.value for status in group.expected],
            status=group.status.value,
            reason=kept_text(group.reason),
            is_empty=group.is_empty or None,
            members=group.members or None,
            owner=group.owner or None,
            outcome=group.outcome.decode() or None,
        )

    def _patch(self, patch: DecidePatch, opening: set[int]) -> dict[str, Any]:
        who = self._session(patch.who) if patch.decision else self._session(patch.who, opening)
        return _given(patch=patch.patch_id, who=who, decision=patch.decision or None)

    def _open(self, pause: NewPause, opening: set[int]) -> dict[str, Any]:
        return _given(
            token=pause.token,
            run=pause.run_id,
            who=self._session(pause.who, opening),
            tenant=pause.who.tenant_id,
            user=pause.who.user_id,
            reason=pause.reason,
            deadline=pause.deadline,
            at=pause.at or None,
            data=self._blob(pause.data),
        )

    def _settle(self, settle: SettlePause) -> dict[str, Any]:
        self._tokens.add(settle.token)
        return _given(
            token=settle.token,
            status=settle.status.value,
            by=kept_text(settle.by),
            at=settle.at or None,
            answer=self._blob(settle.answer),
        )

    def _send(self, send: SendControl) -> dict[str, Any]:
        self._runs.add(send.run_id)
        if send.answers:
            self._tokens.add(send.answers)
        return _given(
            run=send.run_id,
            event=send.event_id,
            type=send.type,
            limit=send.limit or None,
            answers=send.answers or None,
            data=self._blob(send.data),
        )

    def _drop(self, drop: DropAnswer) -> dict[str, Any]:
        self._tokens.add(drop.token)
        return {"token": drop.token, "event": drop.event_id}

    def _event(self, event: NewEvent) -> tuple[Any, ...]:
        return _event(event, self._blob(event.data))

    def _entries(self, entries: Sequence[bytes]) -> dict[str, Any]:
        first = len(self._blobs) + 1
        for entry in entries:
            self._blob(entry)
        return {"entries": len(entries), "first": first, "crcs": [crc32(entry) for entry in entries]}

    def _await(self, target: str | None) -> None:
        """Lock what a run is to wait for."""
        if target:
            self._runs.add(target)
            self._groups.add(target)
            self._waits = True

    def _given_blob(self, data: bytes | None) -> int | None:
        return None if data is None else self._blob(data)

    def _blob(self, data: bytes) -> int:
        """The place of bytes, counted from 1."""
        self._blobs.append(data)
        self.size += len(data)
        return len(self._blobs)

    def _session(self, who: Identity, opening: set[int] | None = None) -> int:
        """The place of a session, counted from 1; with `opening` it is opened when it is new."""
        place = self._sessions.get(who)
        if place is None:
            place = self._sessions[who] = len(self._sessions) + 1
            self._opening.append(False)
        if opening is not None:
            self._opening[place - 1] = True
            opening.add(place)
        return place


def _event(event: NewEvent, place: int) -> tuple[Any, ...]:
    """An event whose bytes are at this place among those that the statement is given."""
    return event.type, event.run_id, event.at or None, crc32(event.data), place


def _given(**parts: Any) -> dict[str, Any]:
    """The parts that there are."""
    return {name: part for name, part in parts.items() if part is not None}
