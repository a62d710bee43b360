"""The groups of a store in memory, and who has joined them: by session, and those that have not ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harborage.identity import Identity
from harborage.store.rows import GroupLeft, GroupRow, GroupStatus

if TYPE_CHECKING:
    from harborage.store.commit import ChangeGroup, NewGroup
    from harborage.store.queries import GroupQuery

GroupKey = tuple[Identity, str]


class Groups:
    """Every group. One that has ended goes with the last of its members.

    Of each tenant's that have ended and have no member the last `keep_strays` stay. `deleted` is called with the
    session of each that was deleted.
    """

    def __init__(self, keep_strays: int, deleted: Callable[[Identity], None]) -> None:
        self._keep_strays = keep_strays
        self._deleted = deleted
        self._rows: dict[GroupKey, GroupRow] = {}
        self._live: dict[GroupKey, None] = {}
        self._members: dict[GroupKey, dict[str, None]] = {}
        self._of_session: dict[Identity, dict[str, None]] = {}
        self._strays: dict[str, deque[GroupKey]] = {}

    def get(self, who: Identity, group_id: str) -> GroupRow | None:
        """The group of this session with this id."""
        return self._rows.get((who, group_id))

    def members(self, who: Identity, group_id: str) -> Collection[str]:
        """The runs of a group that are still kept, in the order they joined."""
        return self._members.get((who, group_id), ())

    def live(self) -> Iterator[GroupRow]:
        """The groups that have not ended."""
        return (self._rows[key] for key in self._live)

    def likely(self, query: GroupQuery) -> Iterator[GroupRow]:
        """The groups that a query may find: few, where it names a session, or asks for those that have not ended."""
        keys: Iterable[GroupKey] = self._rows
        if query.tenant and query.user and query.session:
            who = Identity(query.tenant, query.user, query.session)
            keys = ((who, group_id) for group_id in query.group_ids or self._of_session.get(who, ()))
        elif query.statuses and not any(status.is_final for status in query.statuses):
            keys = self._live
        return (self._rows[key] for key in dict.fromkeys(keys) if key in self._rows)

    def open(self, group: NewGroup, number: int, now: int) -> bool:
        """Open a group; False when there is one with its id."""
        key = (group.who, group.group_id)
        if key in self._rows:
            return False
        self._rows[key] = GroupRow(
            number=number,
            group_id=group.group_id,
            who=group.who,
            owner=group.owner,
            retains_turn=group.retains_turn,
            fails_fast=group.fails_fast,
            description=group.description,
            status=GroupStatus.SEALED if group.is_sealed else GroupStatus.OPEN,
            created_at=now,
            sealed_at=now if group.is_sealed else None,
            deadline=group.deadline,
        )
        self._live[key] = None
        self._of_session.setdefault(group.who, {})[group.group_id] = None
        return True

    def change(self, change: ChangeGroup, now: int) -> None:
        """Change a group."""
        key = (change.who, change.group_id)
        row = self._rows[key]
        reason, outcome = change.reason or row.reason, change.outcome or row.outcome
        row = replace(row, status=change.status, reason=reason, outcome=outcome)
        if change.status is GroupStatus.SEALED:
            row = replace(row, sealed_at=now)
        elif change.status.is_final:
            row = replace(row, ended_at=now)
        self._rows[key] = row
        if change.status.is_final:
            self._live.pop(key, None)
            if key not in self._members:
                self._keep_stray(key)

    def join(self, who: Identity, group_id: str, run_id: str) -> None:
        """Count a run in."""
        key = (who, group_id)
        row = self._rows[key]
        self._rows[key] = replace(row, members=row.members + 1, open_members=row.open_members + 1)
        self._members.setdefault(key, {})[run_id] = None

    def leave(self, who: Identity, group_id: str, run_id: str) -> GroupLeft | None:
        """Count a member out that has ended; the group as it is then."""
        if (row := self._rows.get((who, group_id))) is None:
            return None
        live = row.open_members - 1
        self._rows[who, group_id] = replace(row, open_members=live)
        return GroupLeft(run_id, group_id, row.status, row.members, live, row.fails_fast, row.retains_turn)

    def forget(self, who: Identity, group_id: str, run_id: str) -> None:
        """Let go of a member that is deleted; the group goes, too, where this was the last of one that has ended."""
        key = (who, group_id)
        members = self._members.get(key)
        if members is None:
            return
        members.pop(run_id, None)
        if not members:
            del self._members[key]
            if key not in self._live:
                self._delete(key)

    def _keep_stray(self, key: GroupKey) -> None:
        """No member's end ever deletes it, so it does not stay for ever."""
        strays = self._strays.setdefault(key[0].tenant_id, deque())
        strays.append(key)
        while len(strays) > self._keep_strays:
            self._delete(strays.popleft())

    def _delete(self, key: GroupKey) -> None:
        if self._rows.pop(key, None) is None:
            return
        who, group_id = key
        ids = self._of_session[who]
        del ids[group_id]
        if not ids:
            del self._of_session[who]
        self._deleted(who)
