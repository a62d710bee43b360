"""Which runs a worker takes: the server says which, and what it needs of them is read once they are its own."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.store.errors import EntryDamagedError
from harborage.store.port import Claimed
from harborage.store.postgres.asking import SQL, fetch
from harborage.store.postgres.reading import checked
from harborage.store.postgres.rows import controls_of, run_of

if TYPE_CHECKING:
    from harborage.state.postgres.database import Database
    from harborage.store.postgres.lane import Lane
    from harborage.store.rows import ControlRow, RunRow

__all__ = ["Claiming"]

_logger = logging.getLogger(__name__)


class _Answer(msgspec.Struct, frozen=True):
    """What the server says of a claim: the numbers of the runs, and whether it left ready ones for later."""

    claimed: list[int]
    left: bool


class Claiming:
    """The claims of one store. `left` is called after one that left runs to somebody who was changing them."""

    def __init__(self, database: Database, lane: Lane, left: Callable[[], None], max_attempts: int) -> None:
        self._database = database
        self._lane = lane
        self._left = left
        self._max_attempts = max_attempts

    async def claim(self, worker: str, *, agent: str, limit: int, now: int) -> list[Claimed]:
        """Take ready runs, highest priority first, then oldest. One that cannot be read is blocked instead."""
        asked = {"worker": worker, "agent": agent, "limit": limit, "attempts": self._max_attempts, "now": now}
        answer = codec.decode((await self._lane.change(SQL["claim"], asked)).encode(), _Answer)
        if answer.left:
            self._left()
        nums = answer.claimed
        if not nums:
            return []
        rows = await self._rows(nums)
        journals = await self._journals(nums)
        controls = await self._controls(nums, limit)
        claimed: list[Claimed] = []
        for row in (rows[num] for num in nums if num in rows):
            try:
                entries = checked(row.run_id, 0, row.position, journals[row.number])
            except EntryDamagedError as error:
                _logger.error("%s; it is blocked", error)
                await self._block(row, str(error))
                continue
            claimed.append(Claimed(row, entries, controls[row.run_id]))
        return claimed

    async def _rows(self, nums: list[int]) -> dict[int, RunRow]:
        rows = await fetch(self._database, f"{SQL['run_rows']}\n{SQL['run_from']}\n{SQL['by_number']}", nums=nums)
        return {row.number: row for row in map(run_of, rows)}

    async def _journals(self, nums: list[int]) -> dict[int, list[Any]]:
        found: defaultdict[int, list[Any]] = defaultdict(list)
        rows: Any = await fetch(self._database, SQL["entries_of_runs"], nums=nums)
        for run, position, crc, data in rows:
            found[run].append((position, crc, data))
        return found

    async def _controls(self, nums: list[int], limit: int) -> dict[str, list[ControlRow]]:
        found: defaultdict[str, list[ControlRow]] = defaultdict(list)
        for control in controls_of(await fetch(self._database, SQL["unread_of_runs"], nums=nums, limit=limit)):
            found[control.run_id].append(control)
        return found

    async def _block(self, row: RunRow, reason: str) -> None:
        await fetch(self._database, SQL["block"], num=row.number, worker=row.owner, fence=row.fence, reason=reason)
