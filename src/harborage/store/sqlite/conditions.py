"""When a store in SQLite takes a commit: the conditions that are looked at before the first write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from harborage.store.commit import Change, ChangeGroup, Commit, DecidePatch, NewGroup, NewRun, SendControl, ending
from harborage.store.errors import (
    ControlLimitError,
    ControlsLeftError,
    GroupClosedError,
    PauseAnsweredError,
    PauseSettledError,
    RowNotFoundError,
    RunCycleError,
    RunKnownError,
    RunLimitError,
    RunOverError,
    SessionOverError,
    StatusConflictError,
)
from harborage.store.rows import GroupStatus, PauseStatus, Status
from harborage.store.sql.rows import status_of

if TYPE_CHECKING:
    from harborage.store.sqlite.reading import Reading
    from harborage.store.sqlite.transactions import Transaction

FINAL: Final = Status.COMPLETE.code
"""The smallest number of a final status."""


class Conditions:
    """Looks at the conditions of commits."""

    def __init__(self, sql: Mapping[str, str], reading: Reading) -> None:
        self._sql = sql
        self._reading = reading

    def check(self, tx: Transaction, commit: Commit) -> None:
        """Look at every condition but the guard, which is part of the first write.

        Raises:
            CommitRefusedError: one does not hold.
            RowNotFoundError: the commit names a row that is not there.
        """
        for start in commit.starts:
            self._check_start(tx, start, commit)
        for move in commit.moves:
            _, _, owner, _, _, status, _, _ = self.run(tx, move.run_id)
            found = status_of(status)
            if found not in move.expected or (owner is not None and move.status is not None):
                raise StatusConflictError(f"run {move.run_id}", found, move.expected)
            if move.awaits:
                self._check_wait(tx, move.run_id, move.awaits)
        for group in commit.groups:
            if isinstance(group, ChangeGroup):
                self._check_group(tx, group, commit)
            elif group.is_sealed:
                self._check_new(tx, group)
        for patch in commit.patches:
            self._check_patch(tx, patch)
        for settle in commit.settles:
            pause = self._reading.pause(tx, settle.token)
            if pause.status is not PauseStatus.OPEN:
                raise PauseSettledError(pause)
        for send in commit.sends:
            self._check_send(tx, send)
        if commit.guard is not None and commit.change is not None:
            self._check_change(tx, commit.guard.lease.run_id, commit, commit.change)

    def run(self, tx: Transaction, run_id: str) -> Any:
        """What conditions look at of a run: number, session, owner, fence, position, status, unread, group.

        Raises:
            RowNotFoundError: there is none.
        """
        row = tx.execute(self._sql["held"], (run_id,)).fetchone()
        if row is None:
            raise RowNotFoundError(run_id, what="run")
        return row

    def _check_start(self, tx: Transaction, start: NewRun, commit: Commit) -> None:
        execute, sql = tx.execute, self._sql
        known: Any = execute(sql["held"], (start.run_id,)).fetchone() and start.run_id
        session = self._reading.session(tx, start.who)
        if not known and start.key and session is not None:
            known = execute(sql["by_key"], (session, start.key)).get
        if known:
            raise RunKnownError(self._reading.run(tx, known))
        if not start.parent and session is not None and execute(sql["is_closed"], (session,)).get:
            raise SessionOverError(self._reading.session_row(tx, session))
        for run_id, most, at, what in (
            (start.parent, start.max_children, 0, "run {}"),
            (start.root, start.max_tree, 1, "the tree of run {}"),
        ):
            if most and run_id and session is not None:
                sizes: Any = execute(sql["sizes"], (run_id, session)).fetchone()
                if sizes is not None and sizes[at] >= most:
                    raise RunLimitError(what.format(run_id), most)
        if start.group:
            found: Any = None if session is None else execute(sql["group"], (session, start.group)).fetchone()
            if found is not None and found[1] != GroupStatus.OPEN:
                raise GroupClosedError(start.group, found[1])
            is_new = any(isinstance(one, NewGroup) and one.group_id == start.group for one in commit.groups)
            if found is None and not is_new:
                raise RowNotFoundError(start.group, what="group")

    def _check_new(self, tx: Transaction, group: NewGroup) -> None:
        session = self._reading.session(tx, group.who)
        found: Any = None
        if session is not None:
            found = tx.execute(self._sql["group"], (session, group.group_id)).fetchone()
        if found is not None:
            raise StatusConflictError(f"group {group.group_id}", found[1], ("new",))

    def _check_group(self, tx: Transaction, change: ChangeGroup, commit: Commit) -> None:
        session = self._reading.session(tx, change.who)
        found: Any = None
        if session is not None:
            found = tx.execute(self._sql["group"], (session, change.group_id)).fetchone()
        if found is None:
            raise RowNotFoundError(change.group_id, what="group")
        _, status, live, members, owner = found
        if status not in change.expected:
            raise StatusConflictError(f"group {change.group_id}", status, change.expected)
        if change.is_empty and live and live > self._ending(tx, session, change, commit):
            raise StatusConflictError(f"group {change.group_id}", f"busy ({live} live)", ("empty",))
        if (change.members and change.members != members) or (change.owner and change.owner != owner):
            there = f"owned by {owner}, with {members} members"
            raise StatusConflictError(f"group {change.group_id}", there, ("as expected",))

    def _ending(self, tx: Transaction, session: int | None, change: ChangeGroup, commit: Commit) -> int:
        """How many members of the group the commit itself ends."""
        count = 0
        for run_id in ending(commit):
            _, of_session, _, _, _, status, _, group = self.run(tx, run_id)
            count += of_session == session and group == change.group_id and status < FINAL
        return count

    def _check_patch(self, tx: Transaction, patch: DecidePatch) -> None:
        if not patch.decision:
            return
        session = self._reading.session(tx, patch.who)
        found: Any = None
        if session is not None:
            found = tx.execute(self._sql["patch"], (session, patch.patch_id)).fetchone()
        if found is None:
            raise RowNotFoundError(patch.patch_id, what="patch")
        if found[0]:
            raise StatusConflictError(f"patch {patch.patch_id}", found[0], ("pending",))

    def _check_send(self, tx: Transaction, send: SendControl) -> None:
        num, _, _, _, _, status, unread, _ = self.run(tx, send.run_id)
        if status_of(status).is_final:
            raise RunOverError(send.run_id, status_of(status))
        if send.limit and unread >= send.limit and not tx.execute(self._sql["is_sent"], (num, send.event_id)).get:
            raise ControlLimitError(send.run_id, send.limit)
        if send.answers:
            self._check_answer(tx, send.answers, send.event_id)

    def _check_answer(self, tx: Transaction, token: str, event_id: str) -> None:
        found: Any = tx.execute(self._sql["answering"], (token,)).fetchone()
        if found is None or found[1] == event_id:
            return
        if found[0] != PauseStatus.OPEN:
            raise PauseSettledError(self._reading.pause(tx, token))
        if found[1]:
            raise PauseAnsweredError(self._reading.pause(tx, token))

    def _check_change(self, tx: Transaction, run_id: str, commit: Commit, change: Change) -> None:
        if change.status is not None and change.status.is_final:
            _, _, _, fence, _, _, unread, _ = self.run(tx, run_id)
            assert commit.guard is not None
            if unread and fence == commit.guard.lease.fence:
                # Not a comparison of counts: a commit may name a control twice, or one that was consumed before.
                controls = self._reading.controls(tx, run_id, 0, -1)
                if left := [one for one in controls if one.number not in commit.consumed]:
                    raise ControlsLeftError(run_id, left)
        if change.awaits:
            self._check_wait(tx, run_id, change.awaits)

    def _check_wait(self, tx: Transaction, run_id: str, target: str) -> None:
        _, session, *_ = self.run(tx, run_id)
        if tx.execute(self._sql["leads_back"], (target, session, run_id)).get:
            raise RunCycleError(run_id, target)
