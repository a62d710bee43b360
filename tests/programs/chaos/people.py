"""The people of a chaos story: they answer what runs ask, some of it late and some of it never, and send controls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from harborage.runtime.durable.engine import RunNotFoundError
from harborage.runtime.loop.controls import ControlType
from harborage.runtime.pauses import AlreadyResumedError, Pause, PauseDecision, PauseNotFoundError, PauseReason
from tests.kit.stored_runs import goal_of

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from tests.programs.chaos.cluster import Cluster

_LOOK_S: Final = 0.05

_PAYLOADS: Final[dict[ControlType, Callable[[str, int], dict[str, Any] | None]]] = {
    ControlType.USER_MESSAGE: lambda _, number: {"message": f"m{number}"},
    ControlType.INJECT_CONTEXT: lambda _, number: {"note": number},
    ControlType.REDIRECT: lambda goal, _: {"goal": goal},
    ControlType.PRIORITIZE: lambda _, number: {"priority": number % 5},
    ControlType.PAUSE: lambda _, __: None,
    ControlType.RESUME: lambda _, __: None,
    ControlType.CANCEL: lambda _, number: {"hard": True} if number % 2 else None,
}
ALL_CONTROLS: Final = tuple(_PAYLOADS)
"""What people send of their own accord; they approve and reject what is asked."""


class People:
    """`approved` is what of which run they allowed, `forgotten` the runs that they never answer."""

    def __init__(self, cluster: Cluster, chance: random.Random, *, forgets: float = 0.0) -> None:
        self.approved: set[tuple[str, str]] = set()
        self.forgotten: set[str] = set()
        self.sent = 0
        self._cluster = cluster
        self._chance = chance
        self._forgets = forgets
        self._seen: set[str] = set()

    async def answer_all(self) -> None:
        """Answer what is asked, until cancelled."""
        while True:
            for pause in await self._cluster.open_pauses():
                if pause.token not in self._seen:
                    self._seen.add(pause.token)
                    if self._chance.random() < self._forgets:
                        self.forgotten.add(pause.identity.run_id)
                    else:
                        await asyncio.sleep(self._chance.choice((0.0, 0.1)) * self._chance.random())
                        await self._answer(pause)
            await asyncio.sleep(_LOOK_S)

    async def _answer(self, pause: Pause) -> None:
        who, payload = pause.identity, pause.payload or {}
        if pause.reason is PauseReason.APPROVAL_REQUIRED:
            is_yes = self._chance.random() < 0.8
            if is_yes:
                self.approved.add((who.run_id, payload["args_summary"]["args"]["what"]))
            await self._send(who, ControlType.APPROVE if is_yes else ControlType.REJECT, {"token": pause.token})
            return
        answer = {"answer": payload["question"]} if "question" in payload else None
        try:
            await self._cluster.pauses.resume(pause.token, PauseDecision.RESUME, answer, who=pause.identity)
        except (AlreadyResumedError, PauseNotFoundError):
            return

    async def talk(self, kinds: tuple[ControlType, ...], times: int, pace_s: float) -> None:
        """Send so many controls of these kinds to runs that go on, at about this pace."""
        for number in range(times):
            await asyncio.sleep(self._chance.random() * 2 * pace_s)
            going = await self._cluster.records(is_open=True)
            if going:
                record, kind = self._chance.choice(going), self._chance.choice(kinds)
                goal = await goal_of(self._cluster.storage.store, record.run_id)
                await self._send(record.quadruple, kind, _PAYLOADS[kind](goal, number))

    async def _send(self, who: Quadruple, kind: ControlType, payload: dict[str, Any] | None) -> None:
        try:
            await self._cluster.send(who, kind, payload)
            self.sent += 1
        except RunNotFoundError:
            return  # it ended meanwhile
