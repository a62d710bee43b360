"""Which runs a worker takes: the server says which, and what it needs of them is read once they are its own."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.state.errors import AnswerLostError
from harborage.store.errors import EntryDamagedError
from harborage.store.port import Claimed
from harborage.store.postgres.reading import ROWS
from harborage.store.postgres.statements import SQL, fetch
from harborage.store.sql.rows import checked_entries

if TYPE_CHECKING:
    from harborage.state.postgres.database import Database
    from harborage.store.postgres.lane import Lane
    from harborage.store.postgres.notifier import Notifier
    from harborage.store.postgres.workers import Workers
    from harborage.store.rows import ControlRow, RunRow

_logger = logging.getLogger(__name__)


class _Answer(msgspec.Struct, frozen=True):
    """What the server says of a claim: whether its worker is one, the numbers of the runs, whether it blocked any, and
    whether it left ready ones because another transaction was changing them."""

    worker: bool
    claimed: list[int]
    blocked: bool
    left: bool


class Claiming:
    """Claims runs for the workers of one store, and notifies the listeners of runs that it blocks or leaves.

    Where the database goes away in the middle of a claim, the runs that it took come with their worker's next one.
    """

    def __init__(self, database: Database, lane: Lane, notifier: Notifier, workers: Workers, max_attempts: int) -> None:
        self._database = database
        self._lane = lane
        self._notifier = notifier
        self._workers = workers
        self._max_attempts = max_attempts
        self._turn = asyncio.Lock()
        self._unsure: dict[str, Any] | None = None
        self._owed: defaultdict[str, list[int]] = defaultdict(list)

    async def claim(self, worker: str, *, agents: Sequence[str], limit: int, now: int) -> list[Claimed]:
        """Take ready runs, highest priority first, then oldest. One that cannot be read is blocked instead."""
        asked = {
            "worker": worker,
            "agents": list(agents) or None,
            "limit": limit,
            "attempts": self._max_attempts,
            "now": now,
        }
        taken = await self._take(asked)
        nums = list(dict.fromkeys((*self._owed.pop(worker, ()), *taken)))
        if not nums:
            return []
        try:
            return await self._read(worker, nums, limit)
        except BaseException:
            self._owed[worker] += nums
            raise

    async def _take(self, asked: dict[str, Any]) -> list[int]:
        """The numbers of the runs that a claim takes."""
        async with self._turn:
            if self._unsure is not None:
                answer = await self._asked(self._unsure, is_again=True)
                self._owed[self._unsure["worker"]] += answer.claimed
                self._unsure = None
            try:
                answer = await self._asked(asked)
                if not answer.worker and await self._workers.is_back(asked["worker"]):
                    answer = await self._asked(asked)
            except AnswerLostError:
                self._unsure = asked
                raise
            return answer.claimed

    async def _asked(self, asked: dict[str, Any], *, is_again: bool = False) -> _Answer:
        text: str = await self._lane.change(SQL["claim"], asked, is_again=is_again)
        answer: _Answer = codec.decode(text.encode(), _Answer)
        if answer.blocked:
            self._notifier.notify()  # another process may wait for its end
        if answer.left:
            self._notifier.notify_soon()
        return answer

    async def _read(self, worker: str, nums: list[int], limit: int) -> list[Claimed]:
        rows = await self._rows(nums)
        journals = await self._journals(nums)
        controls = await self._controls(nums, limit)
        claimed: list[Claimed] = []
        for row in (rows[num] for num in nums if num in rows and rows[num].owner == worker):
            try:
                entries = checked_entries(row.run_id, 0, row.position, journals[row.number])
            except EntryDamagedError as error:
                _logger.error("%s; it is blocked", error)
                await self._block(row, str(error))
                continue
            claimed.append(Claimed(row, entries, controls[row.run_id]))
        return claimed

    async def _rows(self, nums: list[int]) -> dict[int, RunRow]:
        rows = await fetch(self._database, f"{SQL['run_rows']}\n{SQL['run_from']}\n{SQL['by_number']}", nums=nums)
        return {row.number: row for row in map(ROWS.run, rows)}

    async def _journals(self, nums: list[int]) -> dict[int, list[Any]]:
        found: defaultdict[int, list[Any]] = defaultdict(list)
        rows: Any = await fetch(self._database, SQL["entries_of_runs"], nums=nums)
        for run, position, crc, data in rows:
            found[run].append((position, crc, data))
        return found

    async def _controls(self, nums: list[int], limit: int) -> dict[str, list[ControlRow]]:
        found: defaultdict[str, list[ControlRow]] = defaultdict(list)
        for control in map(ROWS.control, await fetch(self._database, SQL["unread_of_runs"], nums=nums, limit=limit)):
            found[control.run_id].append(control)
        return found

    async def _block(self, row: RunRow, reason: str) -> None:
        await fetch(self._database, SQL["block"], num=row.number, worker=row.owner, fence=row.fence, reason=reason)
        self._notifier.notify()
