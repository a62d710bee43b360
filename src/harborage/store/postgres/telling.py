"""How the processes of a database hear of each other's changes: a notice after the commit, never inside it.

Inside, a notice would hold a lock of the whole server until the commit is on disk. A process gives one at most every
twenty milliseconds, however much it changes; its own listeners hear at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from harborage.concurrency import Crew
from harborage.state.errors import DatabaseError, StoreClosedError
from harborage.store.postgres.asking import SQL, fetch

if TYPE_CHECKING:
    from harborage.state.postgres.database import Database
    from harborage.state.postgres.notices import Notices

_EVERY_S: Final = 0.02
_LONGEST_BREAK_S: Final = 1.0

_logger = logging.getLogger(__name__)


class Telling:
    """The notices that a store gives."""

    def __init__(self, database: Database, notices: Notices) -> None:
        self._database = database
        self._notices = notices
        self._is_wanted = False
        self._is_at_work = False
        self._is_closing = False
        self._soon: asyncio.TimerHandle | None = None
        self._crew = Crew(lambda name, error: _logger.error("%s: %s", name, error))

    def tell(self) -> None:
        """Let everybody look for news: this process now, the others soon."""
        self._notices.tell()
        self._is_wanted = True
        if not self._is_at_work:
            self._is_at_work = True
            self._crew.start(self._work(), f"notices to {self._database.address}")

    def tell_soon(self) -> None:
        """Let this process look for news in a moment: it could not have what somebody was changing."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(_EVERY_S, self._tell_now)

    def _tell_now(self) -> None:
        self._soon = None
        self._notices.tell()

    async def aclose(self) -> None:
        """Give the notice that is still wanted, if the database takes it."""
        self._is_closing = True
        if self._soon is not None:
            self._soon.cancel()
        await self._crew.join()
        await self._crew.aclose()

    async def _work(self) -> None:
        break_s = _EVERY_S
        try:
            while self._is_wanted:
                self._is_wanted = False
                if await self._is_given():
                    break_s = _EVERY_S
                else:
                    # Others may have kept their connections, and would hear of the change from nobody else.
                    self._is_wanted = not self._is_closing
                    break_s = min(2 * break_s, _LONGEST_BREAK_S)
                await asyncio.sleep(break_s)
        finally:
            self._is_at_work = False

    async def _is_given(self) -> bool:
        """Give one notice; False when it has to be given again."""
        try:
            await fetch(self._database, SQL["tell"], stamp=self._notices.stamp)
        except StoreClosedError as error:
            _logger.warning("no notice of a change: %s", error)
        except DatabaseError as error:
            _logger.warning("no notice of a change yet: %s", error)
            return False
        return True
