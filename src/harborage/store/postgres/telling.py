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

__all__ = ["Telling"]

_EVERY_S: Final = 0.02

_logger = logging.getLogger(__name__)


class Telling:
    """The notices that a store gives."""

    def __init__(self, database: Database, notices: Notices) -> None:
        self._database = database
        self._notices = notices
        self._is_wanted = False
        self._is_at_work = False
        self._crew = Crew(lambda name, error: _logger.error("%s: %s", name, error))

    def tell(self) -> None:
        """Let everybody look for news: this process now, the others soon."""
        self._notices.tell()
        self._is_wanted = True
        if not self._is_at_work:
            self._is_at_work = True
            self._crew.start(self._work(), f"notices to {self._database.address}")

    async def aclose(self) -> None:
        """Give the notice that is still wanted."""
        await self._crew.join()
        await self._crew.aclose()

    async def _work(self) -> None:
        try:
            while self._is_wanted:
                self._is_wanted = False
                try:
                    await fetch(self._database, SQL["tell"], stamp=self._notices.stamp)
                except (DatabaseError, StoreClosedError) as error:
                    # Others look by themselves now and then, and those who lost their connection look at once.
                    _logger.warning("no notice of a change: %s", error)
                await asyncio.sleep(_EVERY_S)
        finally:
            self._is_at_work = False
