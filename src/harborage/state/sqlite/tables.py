"""What runs are in SQLite: each function is one step of a transaction, and knows nothing of threads or event loops."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import suppress
from operator import itemgetter
from typing import Any, Final
from zlib import crc32

from msgspec.structs import replace

from harborage.state.runs import (
    Claim,
    EntryMissingError,
    Lease,
    LeaseLostError,
    QueueFullError,
    RunFilter,
    RunRecord,
    RunRecordNotFoundError,
    Sent,
    Standing,
    Write,
    check_bodies,
    check_body,
)
from harborage.state.sqlite.connection import statements
from harborage.state.sqlite.salvage import UNREADABLE, read_rows, record_of, salvaged_number, salvaged_record
from harborage.state.sqlite.stations import Rows, Transaction
from harborage.state.sqlite.times import micros

__all__ = ["RunTables"]

_NO_RUN: Final = 0


class RunTables:
    """The tables of runs. `now` is always in microseconds."""

    def __init__(self) -> None:
        self._sql = {**statements("runs"), **statements("queue")}
        # Every step of every run asks for these.
        self._extend = self._sql["extend"]
        self._extend_known = self._sql["extend_known"]
        self._entry_rows = Rows(self._sql["add_entry"], 4)
        # Of runs that are written here: their number, and how many entries they had when this was last heard of.
        self._extents: dict[str, tuple[int, int]] = {}

    # ── Writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def create(self, transaction: Transaction, record: RunRecord, write: Write, now: int) -> bool:
        """Keep a new run; False, and nothing done, for an id that is kept."""
        check_bodies(write)
        who, execute = record.who, transaction.execute
        made = (
            record.run_id,
            who.tenant_id,
            who.user_id,
            who.session_id,
            who.run_id,
            record.agent,
            micros(record.created_at),
            record.goal,
        )
        number: Any = execute(self._sql["add_run"], made).get
        if number is None:
            return False
        execute(self._sql["add_standing"], (record.run_id, number, record.agent, len(write.entries), now))
        self._fill(transaction, number, 0, write)
        self._stand(transaction, record.run_id, write.standing or record.standing, now)
        transaction.tell()
        return True

    def append(self, transaction: Transaction, lease: Lease, write: Write, now: int) -> None:
        """Change a run.

        Raises:
            LeaseLostError, BodyMismatchError: nothing was changed.
        """
        if write.bodies:
            check_bodies(write)
        run_id = lease.run_id
        number, before = self._extended(transaction, lease, len(write.entries), now)
        self._fill(transaction, number, before, write)
        if write.taken:
            transaction.execute(self._sql["take_controls"], (write.taken, run_id))
        if write.standing is not None:
            self._stand(transaction, run_id, write.standing, now)

    def _extended(self, transaction: Transaction, lease: Lease, count: int, now: int) -> tuple[int, int]:
        """The number of a run that gets so many entries more, and how many it had.

        What is known from the last time spares the database an answer, and half of what this costs. It may be wrong,
        after a transaction that was taken back or when another process had the run: then nothing matches it.

        Raises:
            LeaseLostError: the worker does not hold the run.
        """
        known = self._extents.get(lease.run_id)
        if known is not None:
            transaction.execute(self._extend_known, (count, now, *lease, *known))
            if transaction.connection.changes() == 1:
                number, before = known
                self._extents[lease.run_id] = number, before + count
                return known
            del self._extents[lease.run_id]
        held: Any = transaction.execute(self._extend, (count, now, *lease)).get
        if held is None:
            raise LeaseLostError(*lease)
        number, entries = held
        self._extents[lease.run_id] = number, entries
        return number, entries - count

    def release(self, transaction: Transaction, lease: Lease, standing: Standing, now: int) -> None:
        """Give a run back; a lease that was lost is nothing to give back."""
        self._extents.pop(lease.run_id, None)
        if transaction.execute(self._sql["is_held"], lease).get:
            self._stand(transaction, lease.run_id, standing, now, is_given_back=True)

    def forget(self, transaction: Transaction, run_id: str) -> None:
        """Drop a run, and the bodies that only it names."""
        execute, sql = transaction.execute, self._sql
        transaction.add_now()
        self._extents.pop(run_id, None)
        number: Any = execute(sql["drop_run"], (run_id,)).get
        if number is None:
            return
        for statement in ("drop_entries", "drop_controls"):
            execute(sql[statement], (number,))
        for (digest,) in execute(sql["drop_names"], (number,)).fetchall():
            execute(sql["drop_body"], (digest,))
        execute(sql["drop_standing"], (run_id,))
        execute(sql["wake_waiting"], (run_id,))
        transaction.tell()

    def _fill(self, transaction: Transaction, number: int, before: int, write: Write) -> None:
        execute = transaction.execute
        values: builtins.list[Any] = []
        for position, data in enumerate(write.entries, before + 1):
            values += (number, position, crc32(data), data)
        transaction.add_later(self._entry_rows, values)
        for digest, body in write.bodies.items():
            execute(self._sql["add_body"], (digest, body))
            execute(self._sql["name_body"], (number, digest))

    def _stand(
        self, transaction: Transaction, run_id: str, standing: Standing, now: int, *, is_given_back: bool = False
    ) -> None:
        stand = standing.stand
        values = (
            stand.value,
            standing.reason,
            micros(standing.wake_at),
            standing.waits_for,
            is_given_back or stand.is_final,
            now,
            run_id,
        )
        transaction.execute(self._sql["stand"], values)
        if stand.is_final:
            self._extents.pop(run_id, None)
            transaction.execute(self._sql["wake_waiting"], (run_id,))
        transaction.tell()

    # ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, transaction: Transaction, run_id: str, after: int) -> builtins.list[bytes]:
        """The entries of a run behind the first `after`.

        Raises:
            EntryMissingError: one is not there, or is not what was kept.
        """
        extent: Any = transaction.execute(self._sql["extent"], (run_id,)).get
        if extent is None:
            return []
        number, count = extent
        found: builtins.list[bytes] = []
        for position, crc, data in transaction.execute(self._sql["read"], (number, after)):
            if position != after + len(found) + 1 or crc32(data) != crc:
                break
            found.append(data)
        if after + len(found) < count:
            raise EntryMissingError(run_id=run_id, entry=after + len(found))
        return found

    def body(self, transaction: Transaction, run_id: str, digest: str) -> bytes:
        """The body that the run names.

        Raises:
            EntryMissingError: it is not there, or is not what was kept.
        """
        data: Any = transaction.execute(self._sql["body"], (digest, run_id)).get
        if data is None:
            raise EntryMissingError(run_id=run_id, digest=digest)
        return check_body(run_id, digest, data)

    def list(self, transaction: Transaction, filter: RunFilter, after: str, limit: int) -> builtins.list[RunRecord]:
        """A page of the runs that are wanted.

        Raises:
            RunRecordNotFoundError: `after` names no run.
        """
        behind: Any = _NO_RUN
        if after:
            behind = transaction.execute(self._sql["number"], (after,)).get
            if behind is None:
                behind = salvaged_number(after)
            if behind is None:
                raise RunRecordNotFoundError(f"no run {after} to list the runs behind")
        pages = [read_rows(transaction, self._sql[name], values) for name, values in _lists(filter, behind, limit)]
        found: builtins.list[tuple[int, Any]] = [(row[-1], row) for rows, _ in pages for row in rows]
        found += [(number, None) for _, unreadable in pages for number in unreadable]
        found.sort(key=itemgetter(0))
        records = [(number, self._record(transaction, number, row)) for number, row in found[:limit]]
        if filter.run_id:
            return [record for number, record in records if number > behind and _is_of(filter, record)]
        return [record for _, record in records]

    def _record(self, transaction: Transaction, number: int, row: Any) -> RunRecord:
        """The run in a row; one of which something cannot be read is blocked, and its reason says so."""
        if row is not None:
            with suppress(*UNREADABLE):
                return record_of(row)
        return salvaged_record(number, transaction.execute(self._sql["salvage"], (number,)).fetchone())

    # ── Carrying ────────────────────────────────────────────────────────────────────────────────────────────────────

    def claim(
        self,
        transaction: Transaction,
        worker: str,
        *,
        agent: str,
        limit: int,
        blocked: bool,
        behind: str,
        now: int,
    ) -> builtins.list[Claim]:
        """Take runs that are ready and that nobody carries, oldest first."""
        execute, sql = transaction.execute, self._sql
        execute(sql["fall_due"], (now,))
        asked: builtins.list[tuple[str, tuple[Any, ...]]] = [("ready", (limit,))]
        if agent:
            asked = [("ready_of_agent", (one, limit)) for one in ("", agent)]
        if blocked:
            asked.append(("blocked", (behind, agent, limit)))
        ready: builtins.list[Any] = []
        for name, values in asked:
            rows, unreadable = read_rows(transaction, sql[name], values)
            ready += rows
            for number in unreadable:
                self._block(transaction, number, now)
        claims: builtins.list[Claim] = []
        for number, run_id in sorted(ready)[:limit]:
            try:
                record = record_of(execute(sql["find"], (run_id,)).fetchone())
            except UNREADABLE:
                self._block(transaction, number, now)
                continue
            fence: Any = execute(sql["take"], (worker, run_id)).get
            record = replace(record, owner=worker, fence=fence)
            claims.append(Claim(record, Lease(run_id, worker, fence)))
        return claims

    def _block(self, transaction: Transaction, number: int, now: int) -> None:
        """Keep a run whose row cannot be read from being claimed, with a reason that names the row."""
        row = transaction.execute(self._sql["salvage"], (number,)).fetchone()
        transaction.execute(self._sql["block"], (salvaged_record(number, row).standing.reason, now, number))
        transaction.tell()

    def send(self, transaction: Transaction, run_id: str, event_id: str, data: bytes, limit: int) -> bool:
        """Keep a control; False for an event id that the run has had.

        Raises:
            RunRecordNotFoundError: the run is not there, or has ended.
            QueueFullError: `limit` controls wait for it, and this one is new.
        """
        run: Any = transaction.execute(self._sql["open_run"], (run_id,)).get
        if run is None:
            raise RunRecordNotFoundError(f"no run {run_id} that could still take a control")
        number: Any = transaction.execute(self._sql["add_control"], (run, event_id, data)).get
        if number is None:
            return False
        # Kept first: a repeated event id is no news, however many wait. What is raised takes it back.
        if limit and transaction.execute(self._sql["is_full"], (run_id, limit)).get:
            raise QueueFullError(run_id, limit)
        transaction.execute(self._sql["keep_sent"], (number, run_id))
        transaction.tell()
        return True

    def arrived(self, transaction: Transaction, worker: str, after: int) -> builtins.list[Sent]:
        """The controls behind `after` that wait for the runs of a worker."""
        rows, unreadable = read_rows(transaction, self._sql["arrived"], (after, worker))
        found = [Sent(*row) for row in rows]
        for number in unreadable:
            row: Any = transaction.execute(self._sql["sent"], (number,)).fetchone()
            found.append(Sent(number, row[1], row[2].decode("utf-8", "replace"), row[3]))
        return sorted(found) if unreadable else found

    def wake(self, transaction: Transaction, run_id: str) -> None:
        """Let a parked run be ready, now or when it is given back."""
        if transaction.execute(self._sql["wake"], (run_id,)).get:
            transaction.tell()

    def next_wake(self, transaction: Transaction, agent: str) -> int | None:
        """When the next parked run that nobody carries is to be looked at."""
        at: Any = transaction.execute(self._sql["next_wake"], (agent,)).get
        return None if at is None else int(at)


def _lists(filter: RunFilter, after: int, limit: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The statements, and their values, that together find what is wanted without looking at much else."""
    user, session, agent = filter.user, filter.session, filter.agent
    stands = f"|{'|'.join(filter.stands)}|" if filter.stands else ""
    if filter.run_id:
        yield "find", (filter.run_id,)
    elif filter.tenant and user and session:
        yield "list_session", (filter.tenant, user, session, after, agent, stands, limit)
    elif filter.tenant:
        yield "list_tenant", (filter.tenant, after, user, session, agent, stands, limit)
    elif agent:
        yield "list_agent", (agent, after, user, session, stands, limit)
    elif filter.stands:
        for stand in dict.fromkeys(filter.stands):
            yield "list_stand", (stand.value, after, user, session, limit)
    else:
        yield "list", (after, user, session, limit)


def _is_of(filter: RunFilter, record: RunRecord) -> bool:
    """Whether the one run that was asked for by its id is wanted for the rest, too."""
    who = record.who
    return (
        filter.tenant in ("", who.tenant_id)
        and filter.user in ("", who.user_id)
        and filter.session in ("", who.session_id)
        and filter.agent in ("", record.agent)
        and (not filter.stands or record.standing.stand in filter.stands)
    )
