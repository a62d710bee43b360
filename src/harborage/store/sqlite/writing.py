"""How a commit changes the tables: one step of a transaction, which knows nothing of threads or event loops.

Conditions are looked at first, and the owner's guarded update is the first write: a commit that is refused has written
nothing, so the others of its transaction go on without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

import apsw

from harborage import codec
from harborage.store.commit import (
    Change,
    ChangeGroup,
    Commit,
    Committed,
    DecidePatch,
    Guard,
    Move,
    NewEvent,
    NewGroup,
    NewPause,
    NewRun,
    SendControl,
    SettlePause,
    about,
)
from harborage.store.errors import (
    EntryDamagedError,
    LeaseLostError,
)
from harborage.store.port import Claimed
from harborage.store.rows import EVENT_STEP, GroupLeft, GroupStatus, Lease
from harborage.store.sql.rows import group_left
from harborage.store.sqlite.conditions import FINAL, Conditions
from harborage.store.sqlite.transactions import Rows, Transaction

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.store.rows import RunRow
    from harborage.store.sqlite.reading import Reading


def names_of(agents: Sequence[str]) -> str | None:
    """The names of agents as a parameter of a statement; None when there are none, which means all agents."""
    return codec.encode_text(agents) if agents else None


class Writing:
    """Applies commits, claims runs and deletes them."""

    def __init__(self, sql: Mapping[str, str], reading: Reading) -> None:
        self._sql = sql
        self._reading = reading
        self._conditions = Conditions(sql, reading)
        self._entries = Rows(sql["add_entry"], 4)
        self._events = Rows(sql["add_event"], 8)

    def apply(self, tx: Transaction, commit: Commit, now: int, *, notifies: bool) -> Committed:
        """Change the tables as the commit says; with `notifies` the listeners of all processes are called.

        Raises:
            CommitRefusedError: a condition does not hold; nothing was changed.
            RowNotFoundError: it names a row that is not there; nothing was changed.
        """
        if commit.guard is not None and commit.groups and not self._is_held(tx, commit.guard):
            # Applied before, it has changed the groups that its conditions would look at.
            return self._again(tx, commit.guard, commit.entries)
        self._conditions.check(tx, commit)
        run = 0
        if commit.guard is not None:
            run = self._guarded(tx, commit.guard, commit, now)
            if not run:
                return self._again(tx, commit.guard, commit.entries)
        for group in commit.groups:
            self._group(tx, group, now)
        for start in commit.starts:
            num = self._start(tx, start, now)
            if not run:
                self._name(tx, num, commit.bodies)
        left = [self._move(tx, move, now) for move in commit.moves]
        for patch in commit.patches:
            self._patch(tx, patch, now)
        opened = tuple(self._open(tx, pause, now) for pause in commit.opens)
        for settle in commit.settles:
            self._settle(tx, settle, now)
        sent = tuple(self._send(tx, send, now) for send in commit.sends)
        for drop in commit.drops:
            tx.execute(self._sql["drop_answer"], (drop.token, drop.event_id))
        for run_id in commit.wakes:
            tx.execute(self._sql["wake"], (run_id,))
        if run and commit.change is not None:
            left.append(self._change(tx, run, commit, commit.change, now))
        first, place = self.publish(tx, commit.who, commit.events, now)
        taken = self._take(tx, commit) if commit.take else ()
        if notifies:
            tx.notify()
        groups = tuple(one for one in left if one is not None)
        return Committed(first=first, place=place, sent=sent, opened=opened, taken=taken, left=groups)

    # ── The owner's part ────────────────────────────────────────────────────────────────────────────────────────────

    def _guarded(self, tx: Transaction, guard: Guard, commit: Commit, now: int) -> int:
        """Write the owner's entries; the number of its run, 0 when nothing was written: it does not hold the run so."""
        lease, count = guard.lease, len(commit.entries)
        step = (count, now, lease.run_id, lease.fence, lease.worker, guard.position)
        found: Any = tx.execute(self._sql["step"], step).fetchone()
        if found is None:
            return 0
        run: int = found[0]
        self._append(tx, run, guard.position, commit.entries)
        self._name(tx, run, commit.bodies)
        if commit.consumed:
            for number in commit.consumed:
                tx.execute(self._sql["consume"], (guard.position + count, number, run))
            tx.execute(self._sql["keep_unread"], (run,))
        return run

    def _name(self, tx: Transaction, run: int, bodies: Mapping[str, bytes]) -> None:
        """Keep what a run's entries name."""
        for digest, data in bodies.items():
            tx.execute(self._sql["add_body"], (digest, data))
            tx.execute(self._sql["name_body"], (run, digest))

    def _is_held(self, tx: Transaction, guard: Guard) -> bool:
        """Whether the run is its owner's, at this place."""
        found: Any = tx.execute(self._sql["held"], (guard.lease.run_id,)).fetchone()
        if found is None:
            return False
        _, _, owner, fence, position, *_ = found
        return (owner, fence, position) == (guard.lease.worker, guard.lease.fence, guard.position)

    def _again(self, tx: Transaction, guard: Guard, entries: Sequence[bytes]) -> Committed:
        """The answer to a commit that was applied before.

        Raises:
            LeaseLostError: it was not: another worker holds the run, or none does.
        """
        if not self._is_again(tx, guard, entries):
            raise LeaseLostError(*guard.lease)
        return Committed(is_again=True)

    def _is_again(self, tx: Transaction, guard: Guard, entries: Sequence[bytes]) -> bool:
        """Whether the journal ends with these entries already, under this fence."""
        if not entries:
            return False
        tx.add_now()
        found: Any = tx.execute(self._sql["held"], (guard.lease.run_id,)).fetchone()
        if found is None:
            return False
        num, _, _, fence, position, *_ = found
        if fence != guard.lease.fence or position != guard.position + len(entries):
            return False
        kept = [
            tx.execute(self._sql["entry_at"], (num, guard.position + offset)).get
            for offset in range(1, len(entries) + 1)
        ]
        return kept == list(entries)

    def _append(self, tx: Transaction, run: int, before: int, entries: Sequence[bytes]) -> None:
        values: list[Any] = []
        for position, data in enumerate(entries, before + 1):
            values += (run, position, crc32(data), data)
        if values:
            tx.add_later(self._entries, values)

    def _change(self, tx: Transaction, run: int, commit: Commit, change: Change, now: int) -> GroupLeft | None:
        assert commit.guard is not None
        run_id = commit.guard.lease.run_id
        status = None if change.status is None else change.status.code
        values = (
            status,
            change.reason,
            change.outcome,
            change.blocked or None,
            change.priority,
            change.progress,
            change.tool_calls,
            change.tokens,
            change.cost,
            run,
        )
        tx.execute(self._sql["change"], values)
        if change.status is not None and change.status.is_final:
            return self._end(tx, run, run_id, now)
        if change.release:
            given_back = (change.wake_at, change.awaits, change.seen_control, change.is_ready, run)
            tx.execute(self._sql["release"], given_back)
            if change.awaits:
                _, session, *_ = self._conditions.run(tx, run_id)
                tx.execute(self._sql["wake_if_ended"], (run, change.awaits, session))
        elif change.awaits is not None:
            tx.execute(self._sql["await_nothing"], (run,))
        return None

    def _end(self, tx: Transaction, run: int, run_id: str, now: int) -> GroupLeft | None:
        """What follows from a run's end: its lease and open pauses end, its group counts it out, who waits wakes."""
        execute, sql = tx.execute, self._sql
        execute(sql["end"], (run,))
        execute(sql["cancel_pauses"], (now, run_id))
        _, session, _, _, _, _, _, group = self._conditions.run(tx, run_id)
        found: Any = None
        if group is not None:
            found = execute(sql["leave_group"], (session, group)).fetchone()
            execute(sql["wake_waiting_for_group"], (group, session))
        execute(sql["wake_waiting"], (run_id,))
        return None if found is None else group_left((run_id, group, *found))

    # ── Everybody's part ────────────────────────────────────────────────────────────────────────────────────────────

    def _opened_session(self, tx: Transaction, who: Identity, now: int) -> int:
        found = self._reading.session(tx, who)
        if found is not None:
            return found
        made: Any = tx.execute(self._sql["add_session"], (who.tenant_id, who.user_id, who.session_id, now)).get
        return int(made)

    def _start(self, tx: Transaction, start: NewRun, now: int) -> int:
        who = start.who
        session = self._opened_session(tx, who, now)
        tx.execute(self._sql["see_session"], (now, session))
        values = (
            start.run_id,
            session,
            who.tenant_id,
            who.user_id,
            start.agent,
            start.parent or None,
            start.root or None,
            start.group or None,
            start.kind,
            start.priority,
            start.status.code,
            about(start.description),
            about(start.goal),
            now,
            start.deadline,
            len(start.entries),
            start.worker or None,
            1 if start.worker else 0,
            bool(start.entries) and not start.worker,
            start.key or None,
            start.fingerprint,
            start.is_cascading,
            start.notifies,
            start.retains_turn,
            start.asked or None,
            start.tags or None,
        )
        run: Any = tx.execute(self._sql["add_run"], values).get
        self._append(tx, run, 0, start.entries)
        if start.group:
            tx.execute(self._sql["join_group"], (session, start.group))
        if start.parent:
            tx.execute(self._sql["add_child"], (start.parent, session))
        if start.root:
            tx.execute(self._sql["grow_tree"], (start.root, session))
        return int(run)

    def _move(self, tx: Transaction, move: Move, now: int) -> GroupLeft | None:
        _, _, _, _, _, before, _, _ = self._conditions.run(tx, move.run_id)
        values = (
            None if move.status is None else move.status.code,
            move.reason,
            move.outcome,
            move.awaits,
            move.priority,
            move.is_acknowledged,
            move.tool_calls,
            len(move.entries),
            now,
            move.run_id,
        )
        moved: Any = tx.execute(self._sql["move"], values).fetchone()
        run, position = moved
        self._append(tx, run, position - len(move.entries), move.entries)
        is_end = move.status is not None and move.status.is_final and before < FINAL
        return self._end(tx, run, move.run_id, now) if is_end else None

    def _group(self, tx: Transaction, group: NewGroup | ChangeGroup, now: int) -> None:
        session = self._opened_session(tx, group.who, now)
        if isinstance(group, NewGroup):
            values = (
                session,
                group.group_id,
                group.owner,
                group.retains_turn,
                group.fails_fast,
                group.description,
                GroupStatus.SEALED if group.is_sealed else GroupStatus.OPEN,
                now,
                now if group.is_sealed else None,
                group.deadline,
            )
            tx.execute(self._sql["add_group"], values)
            return
        found: Any = tx.execute(self._sql["group"], (session, group.group_id)).fetchone()
        tx.execute(self._sql["change_group"], (group.status, group.reason, now, group.outcome.decode(), found[0]))
        if group.status.is_final:
            tx.execute(self._sql["wake_waiting_for_group"], (group.group_id, session))

    def _patch(self, tx: Transaction, patch: DecidePatch, now: int) -> None:
        session = self._opened_session(tx, patch.who, now)
        tx.execute(self._sql["add_patch"], (session, patch.patch_id, now))
        if patch.decision:
            tx.execute(self._sql["decide_patch"], (patch.decision, now, session, patch.patch_id))

    def _open(self, tx: Transaction, pause: NewPause, now: int) -> bool:
        who = pause.who
        session = self._opened_session(tx, who, now)
        values = (
            pause.token,
            pause.run_id,
            session,
            who.tenant_id,
            who.user_id,
            pause.reason,
            pause.at or now,
            pause.deadline,
            pause.data,
        )
        return tx.execute(self._sql["open_pause"], values).get is not None

    def _settle(self, tx: Transaction, settle: SettlePause, now: int) -> None:
        run_id = self._reading.pause(tx, settle.token).run_id
        tx.execute(self._sql["settle"], (settle.status, settle.at or now, settle.by, settle.answer, settle.token))
        tx.execute(self._sql["wake"], (run_id,))

    def _send(self, tx: Transaction, send: SendControl, now: int) -> bool:
        run = self._conditions.run(tx, send.run_id)[0]
        made: Any = tx.execute(self._sql["send"], (run, send.event_id, send.type, now, send.data)).get
        if made is None:
            return False
        if send.answers:
            tx.execute(self._sql["begin_answer"], (send.event_id, send.answers))
        tx.execute(self._sql["count_unread"], (run,))
        return True

    def publish(self, tx: Transaction, who: Identity | None, events: Sequence[NewEvent], now: int) -> tuple[int, int]:
        """Number the events of a session; the first number, and the first place."""
        if who is None or not events:
            return 0, 0
        count = len(events)
        counting = (count, now, who.tenant_id, who.user_id, who.session_id)
        found: Any = tx.execute(self._sql["count_events"], counting).fetchone()
        if found is None:
            self._opened_session(tx, who, now)
            found = tx.execute(self._sql["count_events"], counting).fetchone()
        session, counted, kept = found
        place = counted - count + 1
        # The rows of this transaction wait for its end, so the database's own counter knows nothing of them yet.
        last = tx.shared.get("sequence", kept or 0)
        tx.shared["sequence"] = last + count * EVENT_STEP
        first = last + EVENT_STEP
        values: list[Any] = []
        for offset, event in enumerate(events):
            sequence = first + offset * EVENT_STEP
            data = event.data
            values += (sequence, session, place + offset, event.run_id, event.type, event.at or now, crc32(data), data)
        tx.add_later(self._events, values)
        return first, place

    def _take(self, tx: Transaction, commit: Commit) -> tuple[Lease, ...]:
        """Claim, for the worker that `take` names, what the commit's answers and controls woke."""
        woken = [self._reading.pause(tx, settle.token).run_id for settle in commit.settles]
        taken: list[Lease] = []
        for run_id in dict.fromkeys([*woken, *(send.run_id for send in commit.sends)]):
            found: Any = tx.execute(self._sql["held"], (run_id,)).fetchone()
            if found is None:
                continue
            fence: Any = tx.execute(self._sql["take"], (commit.take, False, found[0])).get
            if fence is not None:
                taken.append(Lease(run_id, commit.take, fence))
        return tuple(taken)

    # ── Claiming and deleting ───────────────────────────────────────────────────────────────────────────────────────

    def claim(
        self,
        tx: Transaction,
        worker: str,
        *,
        agents: Sequence[str],
        limit: int,
        max_attempts: int,
        now: int,
        corrupt: dict[int, str],
    ) -> list[Claimed]:
        """Take ready runs, highest priority first, then oldest.

        Once SQLite has met a damaged page it lets this transaction write no more. The run that has it is then noted in
        `corrupt`, by number and with the reason; a caller that tries again with them finds them blocked.

        Raises:
            apsw.CorruptError: a page is damaged; nothing was taken.
        """
        execute, sql = tx.execute, self._sql
        tx.add_now()
        names = names_of(agents)
        execute(sql["fall_due"], (now, names))
        claimed: list[Claimed] = []
        ready: list[Any] = execute(sql["ready"], (names, limit)).fetchall()
        for num, attempts in ready:
            if num in corrupt:
                execute(sql["block"], (corrupt[num], num))
                tx.notify()  # another process may wait for its end
                continue
            if attempts >= max_attempts:
                execute(sql["block"], (f"claimed {attempts} times without progress", num))
                tx.notify()
                continue
            is_taken = execute(sql["take"], (worker, True, num)).get is not None
            row = self._reading.row(tx, num)
            if row.is_damaged:
                self._set_aside(tx, row, row.blocked)
            if row.is_damaged or not is_taken:
                continue
            try:
                entries = self._reading.entries(tx, row.run_id, 0)
                controls = self._reading.controls(tx, row.run_id, 0, limit)
            except EntryDamagedError as error:
                self._set_aside(tx, row, str(error))
                continue
            except apsw.CorruptError as error:
                corrupt[num] = f"run {row.run_id}: a page of what it has is damaged ({error}); bring back a whole copy"
                raise
            claimed.append(Claimed(row, entries, controls))
        return claimed

    def _set_aside(self, tx: Transaction, row: RunRow, reason: str) -> None:
        """Block a run that cannot be executed as it is kept, and give it back."""
        tx.execute(self._sql["block"], (reason, row.number))
        tx.execute(self._sql["release"], (None, None, 0, False, row.number))
        tx.notify()

    def delete(self, tx: Transaction, run_id: str) -> bool:
        """Delete an ended run with all that only it has; False for one that is not there, or still live."""
        execute, sql = tx.execute, self._sql
        tx.add_now()
        found: Any = execute(sql["delete_run"], (run_id,)).fetchone()
        if found is None:
            return False
        run, session, group = found
        execute(sql["delete_journal"], (run,))
        execute(sql["delete_controls"], (run,))
        execute(sql["delete_pauses"], (run_id,))
        for (body,) in execute(sql["delete_names"], (run,)).fetchall():
            execute(sql["delete_body"], (body,))
        if group is not None:
            execute(sql["delete_group"], (session, group))
        return True
