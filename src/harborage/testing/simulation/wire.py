"""The connection from a simulated process to a service outside of it, which outlives the process.

A request travels, is done at once and in one piece, and the answer travels back. The process may die or freeze before
and after; its caller may be cancelled meanwhile, and then the request was done whole or not at all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from harborage.testing.simulation.loop import CURRENT_QUEUE

if TYPE_CHECKING:
    from harborage.testing.simulation.process import Process
    from harborage.testing.simulation.simulation import Simulation

T = TypeVar("T")

_Act = Callable[[], Coroutine[Any, Any, Any]]


class Wire:
    """One process's connection to one service. Requests are done in the order in which they were made.

    `refusal` makes the error of a call that is refused before anything is done; `loss` that of a call whose request or
    answer is lost. Once `is_cut`, requests that still travel are dropped.
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
        self._requests: deque[_Request] = deque()
        self.is_cut = False

    async def ask(self, what: str, act: _Act) -> Any:
        """Run `act` at the service and return its result; `act` must not wait for anything.

        Raises:
            Exception: what `act` raised, or the refusal or loss of this call.
        """
        process, simulation = self._process, self._simulation
        if simulation.is_over:
            raise asyncio.CancelledError
        await process.point(f"{what} ▸")
        if self._refusal is not None and simulation.injector.strikes("refuse"):
            simulation.note(f"{process.name} {what} is refused")
            await self._travel()
            raise self._refusal(what)
        is_lost = self._loss is not None and simulation.injector.strikes("lose")
        is_lost_before = is_lost and self._chance.random() < 0.5
        request = _Request(self, what, None if is_lost_before else act)
        self._requests.append(request)
        simulation.loop.call_later(self._length(), self._do_next, context=_outside(simulation))
        try:
            await request.done
        except asyncio.CancelledError:
            # A request that is not done yet may be dropped or done; the caller cannot know.
            if self._chance.random() < 0.5:
                request.act = None
            raise
        await self._travel()
        await process.point(f"▸ {what}")
        if self._loss is not None and is_lost:
            simulation.note(
                f"{process.name} {what} is lost {'on the way there' if is_lost_before else 'on the way back'}"
            )
            raise self._loss(what)
        if request.error is not None:
            raise request.error
        return request.result

    def _do_next(self) -> None:
        """Do the oldest request; one of a dead process was sent before its death, or not, by chance."""
        request = self._requests.popleft()
        if self.is_cut or (self._process.is_dead and self._chance.random() < 0.5):
            request.act = None
        request.do()
        self._simulation.detail(
            f"{self._process.name} {request.what}{'' if request.error is None else f': {request.error!r}'}"
        )

    def _length(self) -> float:
        return self._chance.uniform(self._fastest_s, self._slowest_s) if self._slowest_s else 0.0

    async def _travel(self) -> None:
        if self._slowest_s:
            await asyncio.sleep(self._length())


class _Request:
    """One request; `act` is None when it is dropped."""

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
            raise RuntimeError(f"{self.what} awaits something; a service outside of a process must act at once")


def _outside(simulation: Simulation) -> Any:
    """Return a copy of the caller's context that belongs to no process."""
    context = copy_context()
    context.run(CURRENT_QUEUE.set, simulation.loop.main)
    return context
