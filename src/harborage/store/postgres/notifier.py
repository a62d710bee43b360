"""Notifies the processes of a database of changes: by a notice after the commit, never inside it.

Inside, a notice would hold a lock of the whole server until the commit is on disk. A process sends one at most every
twenty milliseconds, however much it changes; its own listeners are called at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from harborage.concurrency import Crew
from harborage.state.errors import DatabaseError, StoreClosedError
from harborage.store.postgres.statements import SQL, fetch

if TYPE_CHECKING:
    from harborage.state.postgres.database import Database, Notices

_EVERY_S: Final = 0.02
_LONGEST_BREAK_S: Final = 1.0

_logger = logging.getLogger(__name__)


class Notifier:
    """Sends the notices of one store."""

    def __init__(self, database: Database, notices: Notices) -> None:
        self._database = database
        self._notices = notices
        self._is_due = False
        self._is_sending = False
        self._is_closing = False
        self._soon: asyncio.TimerHandle | None = None
        self._crew = Crew(lambda name, error: _logger.error("%s: %s", name, error))

    def notify(self) -> None:
        """Call the listeners of this process now, and send the other processes a notice soon."""
        self._notices.notify()
        self._is_due = True
        if not self._is_sending:
            self._is_sending = True
            self._crew.start(self._work(), f"notices to {self._database.address}")

    def notify_soon(self) -> None:
        """Call the listeners of this process in a moment: it could not take rows that a transaction was changing."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(_EVERY_S, self._notify_now)

    def _notify_now(self) -> None:
        self._soon = None
        self._notices.notify()

    async def aclose(self) -> None:
        """Send the notice that is still due, if the database takes it."""
        self._is_closing = True
        if self._soon is not None:
            self._soon.cancel()
        await self._crew.join()
        await self._crew.aclose()

    async def _work(self) -> None:
        break_s = _EVERY_S
        try:
            while self._is_due:
                self._is_due = False
                if await self._is_sent():
                    break_s = _EVERY_S
                else:
                    # Others may have kept their connections, and no other process would notify them of the change.
                    self._is_due = not self._is_closing
                    break_s = min(2 * break_s, _LONGEST_BREAK_S)
                await asyncio.sleep(break_s)
        finally:
            self._is_sending = False

    async def _is_sent(self) -> bool:
        """Send one notice; False when it has to be sent again."""
        try:
            await fetch(self._database, SQL["notify"], stamp=self._notices.stamp)
        except StoreClosedError as error:
            _logger.warning("no notice of a change: %s", error)
        except DatabaseError as error:
            _logger.warning("no notice of a change yet: %s", error)
            return False
        return True
