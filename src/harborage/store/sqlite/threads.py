"""A thread that carries out calls from any number of event loops, in the order they came and in batches.

Whatever piles up while one batch is under way becomes the next: so a hundred writers share one flush to the disk. A
call is handed over at once, so that an event loop that is blocked afterwards does not hold it up; the thread mostly
gets to run when the event loop has nothing left to do, and finds all that was asked for in that turn.
It knows nothing of SQL.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from harborage.state.errors import StoreClosedError

_MOST = 1000


class Call:
    """One piece of work, the event loop that asked for it, and its outcome."""

    __slots__ = ("error", "future", "loop", "result", "run_id", "work")

    def __init__(self, work: Callable[[Any], Any], run_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.run_id = run_id
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None


class Station(Protocol):
    """What works in a lane's thread, and only there."""

    def carry_out(self, calls: Sequence[Call]) -> None:
        """Give every call its result or its error. Never: raises."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Lane:
    """A thread with a queue. `make` builds what works there, inside the thread."""

    def __init__(self, name: str, make: Callable[[], Station]) -> None:
        self._make = make
        self._queue: SimpleQueue[Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        # A daemon: a store that a program forgets to close must not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    @property
    def is_closed(self) -> bool:
        """Whether it takes no call any more."""
        return self._is_closed

    async def open(self) -> None:
        """Start the thread; whatever `make` raises is raised here."""
        self._thread.start()
        await asyncio.shield(asyncio.wrap_future(self._opened))

    def ask(self, work: Callable[[Any], Any], run_id: str = "") -> asyncio.Future[Any]:
        """The result of `work`, once it was carried out. Cancelled before it begins, it is left out.

        Raises:
            StoreClosedError: at once, after `aclose`.
        """
        loop = asyncio.get_running_loop()
        call = Call(work, run_id, loop)
        with self._lock:  # nothing may come behind the last item, which is None
            if self._is_closed:
                raise StoreClosedError()
            self._queue.put(call)
        return call.future

    async def aclose(self) -> None:
        """Carry out what was asked for so far, then end the thread. Closing twice does nothing."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)
        if self._thread.ident is None:
            return
        await asyncio.shield(asyncio.wrap_future(self._ended))
        self._thread.join()

    def _live(self) -> None:
        try:
            station = self._make()
        except BaseException as error:  # noqa: BLE001 - raised where the lane is opened
            self._is_closed = True
            self._opened.set_exception(error)
            self._ended.set_result(None)
            return
        self._opened.set_result(None)
        try:
            is_open = True
            while is_open:
                calls, is_open = self._next()
                if calls:
                    _carry_out(station, calls)
                    _deliver(calls)
        finally:
            station.close()
            self._ended.set_result(None)

    def _next(self) -> tuple[list[Call], bool]:
        """What has piled up, once there is something, and whether more may come."""
        calls: list[Call] = []
        item = self._queue.get()
        try:
            while item is not None:
                calls.append(item)
                if len(calls) >= _MOST:
                    return calls, True
                item = self._queue.get_nowait()
        except Empty:
            return calls, True
        return calls, False


def _carry_out(station: Station, calls: Sequence[Call]) -> None:
    try:
        station.carry_out(calls)
    except Exception as error:  # noqa: BLE001 - raised to the callers, who would wait for ever
        for call in calls:
            call.error = error


def _deliver(calls: Sequence[Call]) -> None:
    """Wake the callers, each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Call]] = {}
    for call in calls:
        by_loop.setdefault(call.loop, []).append(call)
    for loop, mine in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, mine)
        except RuntimeError:
            continue  # that loop is closed: no caller waits there any more


def _settle(calls: Sequence[Call]) -> None:
    for call in calls:
        if call.future.done():
            continue  # its caller was cancelled meanwhile
        if call.error is None:
            call.future.set_result(call.result)
        else:
            call.future.set_exception(call.error)
