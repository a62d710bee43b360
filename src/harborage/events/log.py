"""Where a bus keeps its events so that they outlive the process: one gap-free line of them for each session.

Bytes and numbers only; what an event is, is the bus's business. Every call needs a complete identity, and a closed log
refuses every call with LogClosedError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from harborage.identity import Identity

__all__ = ["EventLog", "Logged"]


class Logged(NamedTuple):
    """One kept event of a session."""

    who: Identity
    sequence: int
    data: bytes


class EventLog(Protocol):
    """Keeps events by session. Never: changes one, or keeps two under the same number."""

    async def append(self, events: Sequence[Logged]) -> None:
        """Keep events, all or none; they are on disk once this returns. Those that are kept already may come again.

        Raises:
            SequenceTakenError: a number stands for another event; nothing was written.
            IdentityRequiredError: an event is nobody's; nothing was written.
            HarborageError: the store refused; nothing was written.
        """
        ...

    async def last(self, who: Identity) -> int:
        """The highest number of the session; 0 when it has none."""
        ...

    async def read(self, who: Identity, *, after: int = 0, limit: int = 1000) -> list[Logged]:
        """The events of the session behind number `after`, in order."""
        ...

    async def forget(self, who: Identity) -> None:
        """Drop a session's events; an unknown session is nothing to drop."""
        ...

    async def aclose(self) -> None:
        """Release what the log holds. Closing twice does nothing."""
        ...
