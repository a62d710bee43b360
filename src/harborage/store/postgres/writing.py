"""Commits on their way: those that are asked for while one batch is under way become the next, in the order they came.

One batch is one call and one transaction, so a hundred writers share one flush to the disk and one turn at the lock
under which events are numbered. A commit that the server cannot take for itself fails alone: the others of its
batch are sent again without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.codec import UnserializableError
from harborage.concurrency import Crew
from harborage.state.errors import (
    DatabaseError,
    DatabaseFullError,
    DatabaseReadOnlyError,
    DatabaseUnreachableError,
    StoreClosedError,
)
from harborage.state.postgres.driver import UNFIT
from harborage.store.commit import Commit, is_news
from harborage.store.postgres.documents import Answer, Batch, answers_of
from harborage.store.postgres.statements import SQL
from harborage.store.times import micros

if TYPE_CHECKING:
    from harborage.state.postgres.database import Database
    from harborage.store.postgres.lane import Lane

_MOST: Final = 100
_MOST_BYTES: Final = 4 << 20
_WHOLE: Final = (DatabaseUnreachableError, DatabaseFullError, DatabaseReadOnlyError, StoreClosedError)
"""What is said of the database itself: no commit of a batch fares better alone."""

_logger = logging.getLogger(__name__)


class _Asked(NamedTuple):
    commit: Commit
    answer: asyncio.Future[Answer]


class Writing:
    """The commits of one store. `notify` is called after those that another process may wait for."""

    def __init__(
        self, database: Database, lane: Lane, notify: Callable[[], None], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._database = database
        self._lane = lane
        self._notify = notify
        self._clock = clock
        self._asked: deque[_Asked] = deque()
        self._is_at_work = False
        self._crew = Crew(lambda name, error: _logger.error("%s: %s", name, error))

    async def commit(self, commit: Commit) -> Answer:
        """What the server says of a commit. A caller that is cancelled does not know whether it was applied.

        Raises:
            DatabaseError: the database refused.
        """
        asked = _Asked(commit, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        if not self._is_at_work:
            self._is_at_work = True
            self._crew.start(self._work(), f"commits to {self._database.address}")
        return await asked.answer

    async def aclose(self) -> None:
        """Wait for what was asked for so far."""
        await self._crew.join()
        await self._crew.aclose()

    async def _work(self) -> None:
        try:
            while self._asked:
                await self._carry_out(self._next())
        finally:
            self._is_at_work = False

    def _next(self) -> list[_Asked]:
        """The commits that have piled up, as many as go together; those whose callers have gone are left out."""
        some: list[_Asked] = []
        size = 0
        while self._asked and len(some) < _MOST and size < _MOST_BYTES:
            one = self._asked.popleft()
            if not one.answer.done():
                some.append(one)
                size += sum(map(len, one.commit.entries)) + sum(map(len, one.commit.bodies.values()))
        return some

    async def _carry_out(self, some: Sequence[_Asked]) -> None:
        """Give every commit its answer or its error. Never: raises, but what cancels it."""
        if not some:
            return
        try:
            answers = await self._apply([one.commit for one in some])
        except Exception as error:  # noqa: BLE001 - raised to the callers
            if len(some) > 1 and not isinstance(error, _WHOLE):
                for one in some:
                    await self._carry_out([one])
                return
            for one in some:
                if not one.answer.done():
                    one.answer.set_exception(error)
            return
        for one, answer in zip(some, answers, strict=True):
            if not one.answer.done():
                one.answer.set_result(answer)
        done = zip(some, answers, strict=True)
        if any(is_news(one.commit) for one, answer in done if not answer.refused and not answer.again):
            self._notify()

    async def _apply(self, commits: Sequence[Commit]) -> list[Answer]:
        batch = Batch()
        try:
            for commit in commits:
                batch.add(commit)
            values = batch.values()
        except (UnicodeEncodeError, UnserializableError) as error:
            raise DatabaseError(self._database.address, UNFIT) from error
        text = await self._lane.change(SQL["commit"], {**values, "now": micros(self._clock.now())})
        return answers_of(text)
