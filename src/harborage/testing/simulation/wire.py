"""The way from a simulated process to something outside of it, which lives on when the process dies.

What is asked travels, is done at once and in one piece, and the answer travels back. The process may die or freeze
before and after; whoever asked may be cancelled meanwhile, and then it was done whole or not at all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from harborage.testing.simulation.loop import LANE

if TYPE_CHECKING:
    from harborage.testing.simulation.process import Process
    from harborage.testing.simulation.simulation import Simulation

__all__ = ["Wire"]

T = TypeVar("T")

_Act = Callable[[], Coroutine[Any, Any, Any]]


class Wire:
    """One process's way to one thing. What it asks there is done in the order in which it was asked.

    `refusal` makes the error of a call that is turned away before anything is done; `loss` that of a call that fails
    on its way there or back. Once `is_cut`, nothing that is still on its way is done any more.
    """

    def __init__(
        self,
        simulation: Simulation,
        process: Process,
        *,
        refusal: Callable[[str], Exception] | None = None,
        loss: Callable[[str], Exception] | None = None,
        fastest_s: float = 0.0,
        slowest_s: float = 0.0,
    ) -> None:
        self._simulation = simulation
        self._process = process
        self._refusal = refusal
        self._loss = loss
        self._fastest_s = fastest_s
        self._slowest_s = slowest_s
        self._chance = simulation.chance(f"wire {simulation.number()}")
        self._asked: deque[_Asked] = deque()
        self.is_cut = False

    async def ask(self, what: str, act: _Act) -> Any:
        """What `act` gives, which must not wait for anything.

        Raises:
            Exception: what `act` raised, or the refusal or the loss that struck this call.
        """
        process, simulation = self._process, self._simulation
        if simulation.is_over:
            raise asyncio.CancelledError
        await process.point(f"{what} ▸")
        if self._refusal is not None and simulation.fates.strikes("refuse"):
            simulation.note(f"{process.name} {what} is refused")
            await self._travel()
            raise self._refusal(what)
        is_lost = self._loss is not None and simulation.fates.strikes("lose")
        is_lost_on_the_way = is_lost and self._chance.random() < 0.5
        asked = _Asked(self, what, None if is_lost_on_the_way else act)
        self._asked.append(asked)
        simulation.loop.call_later(self._length(), self._do_next, context=_outside(simulation))
        try:
            await asked.done
        except asyncio.CancelledError:
            # Until it is done it may still be called back, and nobody can tell whether it was.
            if self._chance.random() < 0.5:
                asked.act = None
            raise
        await self._travel()
        await process.point(f"▸ {what}")
        if self._loss is not None and is_lost:
            simulation.note(f"{process.name} {what} is lost {'there' if is_lost_on_the_way else 'on the way back'}")
            raise self._loss(what)
        if asked.error is not None:
            raise asked.error
        return asked.result

    def _do_next(self) -> None:
        """Do what was asked first; a dead process may have asked for it in its last moment, or not quite."""
        asked = self._asked.popleft()
        if self.is_cut or (self._process.is_dead and self._chance.random() < 0.5):
            asked.act = None
        asked.do()
        self._simulation.detail(
            f"{self._process.name} {asked.what}{'' if asked.error is None else f': {asked.error!r}'}"
        )

    def _length(self) -> float:
        return self._chance.uniform(self._fastest_s, self._slowest_s) if self._slowest_s else 0.0

    async def _travel(self) -> None:
        if self._slowest_s:
            await asyncio.sleep(self._length())


class _Asked:
    """One thing that was asked for; `act` is taken away when it is not to be done after all."""

    def __init__(self, wire: Wire, what: str, act: _Act | None) -> None:
        self.wire = wire
        self.what = what
        self.act = act
        self.context = _outside(wire._simulation)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.result: Any = None
        self.error: Exception | None = None

    def do(self) -> None:
        act, self.act = self.act, None
        if act is not None:
            self.context.run(partial(self._do, act))
        if not self.done.done():
            self.done.set_result(None)

    def _do(self, act: _Act) -> None:
        coro = act()
        try:
            coro.send(None)
        except StopIteration as ended:
            self.result = ended.value
        except Exception as error:  # noqa: BLE001 - raised where it was asked for
            self.error = error
        else:
            coro.close()
            raise RuntimeError(f"{self.what} waits for something; what is outside of a process acts at once")


def _outside(simulation: Simulation) -> Any:
    """The caller's context, with what happens there outside of every process."""
    context = copy_context()
    context.run(LANE.set, simulation.loop.main)
    return context
