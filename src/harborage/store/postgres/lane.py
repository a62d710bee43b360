"""How changes reach the server so that each happens once, also when an answer is lost on its way back.

Every change has the name of its writer and a number. The server keeps the last number of each writer with what came of
it: a change that is sent again is not made again, and its answer is the same. So a connection that breaks in the middle
of a commit costs nothing but time, and only where no way leads to the server any more is its outcome unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from harborage.ids import new_id
from harborage.state.errors import AnswerLostError, DatabaseUnreachableError
from harborage.state.postgres.driver import is_unique_violation
from harborage.store.postgres.statements import bound

if TYPE_CHECKING:
    from harborage.state.postgres.database import Database
    from harborage.state.postgres.driver import Connection

_PATIENCE_S: Final = 10.0
_SHORTEST_BREAK_S: Final = 0.05
_LONGEST_BREAK_S: Final = 1.0
_MEETINGS: Final = 4


class Lane:
    """Changes of one process, one at a time, on a connection of their own.

    `patience_s` is how long an answer that was lost is looked for.
    """

    def __init__(self, database: Database, *, patience_s: float = _PATIENCE_S) -> None:
        self.name = new_id()
        self._own = _Own(database)
        self._database = database
        self._patience_s = patience_s
        self._batch = 0
        self._turn = asyncio.Lock()

    async def change(self, text: str, values: Mapping[str, Any], *, is_again: bool = False) -> Any:
        """The answer of a statement that makes a change under `:writer` and `:batch`. With `is_again` it is the change
        before, whose answer was lost: it is made now, or answered as it was then.

        Raises:
            AnswerLostError: the way to the server broke for longer than `patience_s`; the change was made or not.
            DatabaseError: the server refused; nothing was changed.
        """
        async with self._turn:
            self._batch += not is_again
            sent, given = bound(text, {**values, "writer": self.name, "batch": self._batch})
            return await self._found(sent, given)

    def close(self) -> None:
        """Let go of the connection."""
        self._own.close()

    async def _found(self, sent: str, given: list[Any]) -> Any:
        lost: AnswerLostError | None = None
        give_up_at, break_s = 0.0, _SHORTEST_BREAK_S
        now = asyncio.get_running_loop().time
        while True:
            try:
                return await self._database.run(lambda connection, _: _make(connection, sent, given), source=self._own)
            except DatabaseUnreachableError as error:
                if lost is None:
                    if not isinstance(error, AnswerLostError):
                        raise
                    lost, give_up_at = error, now() + self._patience_s
                if now() >= give_up_at:
                    raise lost from error
            await asyncio.sleep(break_s)
            break_s = min(2 * break_s, _LONGEST_BREAK_S)


class _Own:
    """A connection that is opened when it is needed, and again once it has broken: taking it costs nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        """The connection, for one piece of work at a time."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.opened()
        try:
            yield self._connection
        except (asyncio.CancelledError, TimeoutError):
            self.close()  # what was asked for may still be under way on it
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


async def _make(connection: Connection, sent: str, given: list[Any]) -> Any:
    """Make the change, once more where another transaction made a row of the same key meanwhile: now it can be seen."""
    for _ in range(_MEETINGS - 1):
        try:
            return await connection.fetchval(sent, *given)
        except Exception as error:
            if not is_unique_violation(error):
                raise
    return await connection.fetchval(sent, *given)
