"""The principals, what each of them has written, and the runtime over which they all work.

Tenants share the names of their users, and users the names of their sessions, so that whoever forgets one part of an
identity meets somebody else's values.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from harborage.events import Event, EventType, RuntimeWarningPayload
from harborage.identity import Identity
from harborage.planner import Finish, FinishReason, RunContext
from harborage.runtime.host import Runtime

if TYPE_CHECKING:
    from harborage.state.storage import Storage

_SESSIONS: Final = 2
_USERS: Final = 5
_OWN: Final = 0.5


class _Finisher:
    async def next(self, run: RunContext) -> Finish:
        return Finish(FinishReason.GOAL, run.goal)


def mark_of(number: int) -> str:
    """The text in every value that a principal writes."""
    return f"canary-{number}-"


class Tenants:
    """An open runtime, and the ids of what each principal has made in it: everybody knows the ids of all."""

    def __init__(self, principals: int, luck: random.Random, storage: Storage | None = None) -> None:
        self.luck = luck
        self.storage = storage
        self.principals = [self._named(number) for number in range(principals)]
        self.marks = {who: mark_of(number) for number, who in enumerate(self.principals)}
        self.known: dict[str, list[tuple[Identity, str]]] = {}
        self.caller = self.principals[0]
        self.asked: list[tuple[str, str]] = []
        self._runtime: Runtime | None = None
        self._count = 0

    @property
    def runtime(self) -> Runtime:
        """The runtime that is open now."""
        assert self._runtime is not None
        return self._runtime

    async def open(self) -> None:
        """Open a runtime; one that is open is closed before, and what it remembers with it."""
        await self.aclose()
        self._runtime = await Runtime(planner=_Finisher(), storage=self.storage, memory="truncation").__aenter__()

    async def aclose(self) -> None:
        """Close the runtime, if one is open."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.aclose()

    def value(self, who: Identity) -> str:
        """A value of this principal's that was never there before."""
        self._count += 1
        return f"{self.marks[who]}{self._count}"

    def note(self, kind: str, who: Identity, id: str) -> None:
        """Remember what was made, and by whom; of each kind only the latest."""
        known = self.known.setdefault(kind, [])
        known.append((who, id))
        if len(known) > 4 * len(self.principals):
            del known[0]

    def any_id(self, kind: str) -> str:
        """The id of an existing thing, half of the time one of the caller's; `asked` remembers which."""
        known = self.known.get(kind) or [(self.principals[0], "none")]
        mine = [one for one in known if one[0] == self.caller] if self.luck.random() < _OWN else []
        _, found = self.luck.choice(mine or known)
        self.asked.append((kind, found))
        return found

    def anybody(self) -> Identity:
        """One of the principals."""
        return self.luck.choice(self.principals)

    async def tell(self, who: Identity) -> Any:
        """Publish an event of this principal's."""
        payload = RuntimeWarningPayload(self.value(who))
        return await self.runtime.bus.publish(Event(EventType.RUNTIME_WARNING, who.with_run(""), payload))

    @staticmethod
    def _named(number: int) -> Identity:
        rest, session = divmod(number, _SESSIONS)
        tenant, user = divmod(rest, _USERS)
        return Identity(f"tenant{tenant}", f"user{user}", f"session{session}")
