"""A conversation: the messages of a user and the answers of an agent, one after the other in one session.

What was said before reaches the model by the memory of the session, so a conversation outlives its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from harborage.errors import HarborageError, InvalidOptionError, one_of
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.starting import MESSAGE
from harborage.store import LIVE, RunQuery, RunRow, Store

if TYPE_CHECKING:
    from harborage.artifacts.media import Goal
    from harborage.identity import Identity
    from harborage.runtime.result import Result
    from harborage.runtime.run import Run

OutT = TypeVar("OutT", default=Any)


class Busy(StrEnum):
    """What happens to a message that comes while the one before it is being answered."""

    WAIT = "wait"
    REFUSE = "refuse"


class SessionBusyError(HarborageError):
    """The message before is still being answered, by the run `run_id`; send it again later, or use busy="wait"."""

    def __init__(self, run_id: str = "") -> None:
        self.run_id = run_id
        super().__init__(
            f"run {run_id} is still answering the message before; send it again later, or use busy='wait'"
            if run_id
            else ""
        )


class Turns:
    """Whose turn it is in one session: a message is answered after those before it, of other processes, too."""

    def __init__(self, store: Store, who: Identity) -> None:
        self._store = store
        self._who = who
        self._lock = asyncio.Lock()

    async def take(
        self, start: Callable[[], Awaitable[Run[OutT]]], find: Callable[[str], Awaitable[Run[Any]]], busy: Busy
    ) -> Run[OutT]:
        """Start the run of a message when the runs of the messages before it have ended.

        Raises:
            SessionBusyError: one goes on, and `busy` says that the message is refused then.
        """
        if self._lock.locked() and busy is Busy.REFUSE:
            raise SessionBusyError(await self._live() or "another message")
        async with self._lock:
            while (run_id := await self._live()) is not None:
                if busy is Busy.REFUSE:
                    raise SessionBusyError(run_id)
                await _ended(await find(run_id))
            return await start()

    async def _live(self) -> str | None:
        """The run that a user's message started in this session and that goes on; None when there is none."""
        who = self._who
        mine = RunQuery(
            tenant=who.tenant_id, user=who.user_id, session=who.session_id, statuses=LIVE, oldest_first=True
        )
        rows: list[RunRow] = (await self._store.runs(mine)).rows
        return next((row.run_id for row in rows if row.description == MESSAGE), None)


async def _ended(run: Run[Any]) -> None:
    """Wait for the end of a run, however it ends."""
    try:
        await run.finished()
    except RunFailedError:
        return


class Chat(Generic[OutT]):
    """A conversation with an agent. Get one from `Agent.session` or `Runtime.session`.

    A message that comes while the one before is being answered waits in turn, or is refused, as `busy` says.
    """

    def __init__(self, id: str, start: Callable[[Goal, Busy], Awaitable[Run[OutT]]], *, busy: Busy | str) -> None:
        if not id:
            raise InvalidOptionError("session", id, "a text that names the session")
        self.id = id
        self._start = start
        self._busy = one_of(Busy, busy, "busy")

    async def send(self, text: Goal) -> Result[OutT]:
        """Send a message; return what the agent answers.

        Raises:
            SessionBusyError: the message before is still being answered, and `busy` is "refuse".
            RunFailedError: the run that answers ended without reaching its goal.
        """
        return await (await self.start(text)).result()

    async def start(self, text: Goal) -> Run[OutT]:
        """Send a message; return the handle of the run that answers it.

        Raises:
            SessionBusyError: as of `send`.
        """
        return await self._start(text, self._busy)

    @asynccontextmanager
    async def stream(self, text: Goal) -> AsyncIterator[Run[OutT]]:
        """Send a message, for a block that watches the run that answers it; leaving the block stops looking."""
        yield await self.start(text)
