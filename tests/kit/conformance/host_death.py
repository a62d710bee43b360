"""How the host suites let a process die: at a call of its storage that is counted beforehand, or right now.

Part of the suite in `hosts`. A host that opens an engine with a `Death` puts `of` around the parts of its storage.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from harborage.state.errors import DatabaseUnreachableError

P = TypeVar("P")

CHANGES = frozenset({"append", "claim", "commit", "delete", "save", "unblock"})
"""The calls that change a storage; between two of them a death makes no difference to what is kept."""

LIFE = frozenset({"beat", "join", "leave", "look"})
"""The signs of a worker's life, which end with its task, as a lock does that the system holds for a process."""


class Death:
    """The end of one process at the `at`-th moment right before or right after a change of its storage; 0 never.

    The call at which it comes never returns, nor does any that only reads afterwards; a change is refused, since a host
    that is cleared away may wait for what it writes on its way out. `came` is set from then on.
    """

    def __init__(self, at: int = 0) -> None:
        self.came = asyncio.Event()
        self._at = at
        self._moments = 0

    def of(self, part: P) -> P:
        """A part of the storage as the process that will die sees it."""
        return cast(P, _Mortal(part, self))

    def strike(self) -> None:
        """Let it come now."""
        self.came.set()

    async def moment(self) -> None:
        """A moment at which it may come.

        Raises:
            DatabaseUnreachableError: it has come before.
        """
        if self.came.is_set():
            raise DatabaseUnreachableError("storage", "the process that asks is dead")
        self._moments += 1
        if self._moments == self._at:
            self.strike()
            await self.halt()

    async def halt(self) -> None:
        """Wait for ever once it has come."""
        if self.came.is_set():
            await asyncio.get_running_loop().create_future()


class _Mortal:
    """A part of a storage whose calls end with its process."""

    def __init__(self, part: object, death: Death) -> None:
        self._part = part
        self._death = death

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        return self._mortal(name, found) if inspect.iscoroutinefunction(found) and name not in LIFE else found

    def _mortal(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def mortal(*args: Any, **options: Any) -> Any:
            if name not in CHANGES:
                await self._death.halt()
                return await call(*args, **options)
            await self._death.moment()
            result = await call(*args, **options)
            await self._death.moment()
            return result

        return mortal
